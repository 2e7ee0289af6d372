"""The kernel tells all changes of a folder that a walk finds, whatever programs do there."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from support.file_histories import FileHistory
from support.kernel_events import need_an_instance

from kimi_tui.workspace import tree_watch
from kimi_tui.workspace.manifest import Limits
from kimi_tui.workspace.scan import Scanner
from kimi_tui.workspace.store import BlobStore
from kimi_tui.workspace.tree_watch import TreeWatch

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells by inotify")


class Followed:
    """A folder whose changes are told, and a walk to compare with."""

    def __init__(self, top: Path, most: int | None = None) -> None:
        self.root, self.outside = top / "work", top / "outside"
        self.root.mkdir()
        self.outside.mkdir()
        self.store = BlobStore(top / "store", 1 << 30)
        need_an_instance()
        self.watch = TreeWatch(most)
        self.scanner = Scanner(str(self.root), self.store, Limits(), watch=self.watch)
        self.scanner.scan()

    def check(self, what: str = "") -> None:
        known = dict(self.scanner.manifest)
        scan = self.scanner.scan()
        told = dict(self.scanner.manifest)
        walker = Scanner(str(self.root), self.store, Limits())
        walker.scan()
        walked = dict(walker.manifest)
        differ = {
            path for path in told.keys() | walked.keys() if told.get(path) != walked.get(path)
        }
        assert not differ, f"{what}: {[(one, told.get(one), walked.get(one)) for one in differ]}"
        changed = {path for path in known.keys() | told.keys() if known.get(path) != told.get(path)}
        assert changed == set(scan.changed), what


def play(top: Path, seed: int, steps: int) -> None:
    followed = Followed(top)
    history = FileHistory(followed.root, followed.outside, seed)
    chance = random.Random(seed)
    for _ in range(steps):
        done = [history.step() for _ in range(chance.choice([1, 1, 2, 5]))]
        followed.check(f"seed {seed}, {history.count}: {done}")
    # A new hard link makes it walk once.
    assert followed.scanner.n_walks < steps / 4


@pytest.mark.sample
@pytest.mark.parametrize("seed", range(3))
def test_what_is_told_is_what_a_walk_finds(seed: int, tmp_path: Path) -> None:
    play(tmp_path, seed, 35)


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(100, 140))
def test_what_is_told_is_what_a_walk_finds_in_long_histories(seed: int, tmp_path: Path) -> None:
    play(tmp_path, seed, 400)


def test_a_file_of_several_names_is_asked_for_its_stamp_after_each_command(tmp_path: Path) -> None:
    followed = Followed(tmp_path)
    (followed.root / "a").write_text("one")
    followed.check()
    os.link(followed.root / "a", followed.root / "b")
    os.link(followed.root / "a", followed.outside / "c")
    followed.check()
    walks = followed.scanner.n_walks
    with open(followed.outside / "c", "a") as file:
        file.write("two")
    followed.check()
    assert followed.scanner.n_walks == walks


@pytest.mark.parametrize("name", [".env", "an ignored.log"])
def test_a_link_whose_name_is_left_out_leads_to_the_file(name: str, tmp_path: Path) -> None:
    followed = Followed(tmp_path)
    (followed.root / ".gitignore").write_text("*.log\n")
    (followed.root / "a").write_text("one")
    followed.check()
    walks = followed.scanner.n_walks
    os.link(followed.root / "a", followed.root / name)
    followed.check()
    for text in ("two", "three"):
        with open(followed.root / name, "a") as file:
            file.write(text)
        followed.check()
    assert followed.scanner.n_walks == walks + 1
    # Of this file no other name is in the folder.
    (followed.root / name).unlink()
    (followed.outside / "b").write_text("one")
    os.link(followed.outside / "b", followed.root / name)
    for text in ("two", "three"):
        with open(followed.root / name, "a") as file:
            file.write(text)
        followed.check()
    assert followed.scanner.n_walks == walks + 2


def test_too_many_events_or_folders_make_it_walk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    followed = Followed(tmp_path, most=3)
    real = tree_watch.Inotify.read

    def read(self: tree_watch.Inotify):
        yield from real(self)
        monkeypatch.undo()
        yield -1, tree_watch.inotify.OVERFLOW, b""

    monkeypatch.setattr(tree_watch.Inotify, "read", read)
    (followed.root / "a").write_text("one")
    followed.check()
    assert (followed.scanner.n_walks, followed.scanner.n_lost) == (2, 1)
    followed.check()
    assert followed.scanner.n_walks == 2
    for name in ("x", "y", "z"):
        (followed.root / name).mkdir()
    followed.check()
    assert "3 folders" in followed.watch.trouble
    walks = followed.scanner.n_walks
    (followed.root / "z/f").write_text("no event tells this")
    followed.check()
    assert followed.scanner.n_walks == walks + 1


def test_a_file_system_that_others_change_too_is_walked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nfs = 0x6969
    monkeypatch.setattr(tree_watch, "file_system_kind", lambda folder: nfs)
    followed = Followed(tmp_path)
    assert followed.watch.trouble
    (followed.root / "a").write_text("one")
    followed.check()
    assert followed.scanner.n_walks == 2


_HOLDER = """
import mmap, os, sys
file = open(sys.argv[1], "r+b")
mapped = mmap.mmap(file.fileno(), 0)
mapped[0:1] = b"1"
file.close()
for line in sys.stdin:
    mapped[0:1] = line.strip().encode()
    print("done", flush=True)
"""


def test_what_a_living_process_writes_into_a_mapping_is_seen(tmp_path: Path) -> None:
    followed = Followed(tmp_path)
    path = followed.root / "mapped"
    path.write_bytes(b"0" * 9_000)
    followed.check()
    with subprocess.Popen(
        [sys.executable, "-c", _HOLDER, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdin
        assert holder.stdout
        for letter in "234":
            print(letter, file=holder.stdin, flush=True)
            holder.stdout.readline()
            followed.check(letter)
            assert (
                followed.store.get(followed.scanner.manifest["mapped"].blob)[:1].decode() == letter
            )
        holder.stdin.close()
    assert followed.scanner.n_walks == 1


_LATE_HOLDER = """
import mmap, sys
print("ready", flush=True)
for line in sys.stdin:
    if not line.strip():
        file = open(sys.argv[1], "r+b")
        mapped = mmap.mmap(file.fileno(), 0)
        file.close()
    else:
        mapped[0:1] = line.strip().encode()
    print("done", flush=True)
"""


def test_a_process_that_waits_is_looked_at_again_when_it_has_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    followed = Followed(tmp_path)
    path = followed.root / "mapped"
    path.write_bytes(b"0" * 9_000)
    followed.check()
    looked: list[int] = []
    look = tree_watch._mapped
    monkeypatch.setattr(
        tree_watch, "_mapped", lambda process: looked.append(process) or look(process)
    )
    with subprocess.Popen(
        [sys.executable, "-c", _LATE_HOLDER, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as holder:
        assert holder.stdin
        assert holder.stdout
        holder.stdout.readline()
        while Path(f"/proc/{holder.pid}/stat").read_text().rpartition(")")[2].split()[0] != "S":
            pass
        for _ in range(5):
            followed.check()
        # It may have been on its way to sleep at the first looks.
        if Path(f"/proc/{holder.pid}/schedstat").exists():
            assert looked.count(holder.pid) < 5
        for letter in ("", "2", "3"):
            print(letter, file=holder.stdin, flush=True)
            holder.stdout.readline()
            followed.check(letter)
        entry = followed.scanner.manifest["mapped"]
        assert followed.store.get(entry.blob)[:1] == b"3"
        holder.stdin.close()
    assert followed.scanner.n_walks == 1


def test_a_work_folder_that_was_replaced_is_walked(tmp_path: Path) -> None:
    followed = Followed(tmp_path)
    (followed.root / "a").write_text("one")
    followed.check()
    followed.root.rename(tmp_path / "moved")
    followed.root.mkdir()
    (followed.root / "b").write_text("two")
    followed.check()
    (tmp_path / "moved/a").write_text("another folder by now")
    (followed.root / "b").write_text("three")
    followed.check()


def test_a_check_finds_and_counts_what_no_event_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    followed = Followed(tmp_path)
    for name in ("a", "b", "d/c"):
        (followed.root / name).parent.mkdir(exist_ok=True)
        (followed.root / name).write_text(name)
    followed.check()
    # A link that was made outside, and what is written through it, is told by nobody.
    os.link(followed.root / "a", followed.outside / "a")
    (followed.outside / "a").write_text("changed")
    (followed.root / "b").write_text("told")
    assert followed.scanner.scan().changed == ("b",)
    (followed.root / "d/c").write_text("told during the check")
    followed.scanner.begin_check()
    while followed.scanner.check(0):
        pass
    assert followed.scanner.has_suspects
    assert followed.scanner.scan().changed == ("a", "d/c")
    assert followed.scanner.untold == ("a",)
    assert followed.scanner.n_untold == 1
    followed.scanner.begin_check()
    while followed.scanner.check(0):
        pass
    assert followed.scanner.scan().changed == ()
    assert followed.scanner.n_untold == 1

"""Scanning: what changed is found, what is left out is said, nothing is followed."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimi_tui import filesystem
from kimi_tui.tools import file_edit
from kimi_tui.tools.files import read_whole
from kimi_tui.tools.paths import ResolvedPath
from kimi_tui.workspace import restore, scan
from kimi_tui.workspace.file_table import edited
from kimi_tui.workspace.manifest import REST, Limits, ManifestEntry, was_looked_for
from kimi_tui.workspace.restore import FileChange
from kimi_tui.workspace.scan import Scanner, _with, _without
from kimi_tui.workspace.store import BlobStore


def make(tmp_path: Path, limits: Limits | None = None) -> tuple[Path, BlobStore, Scanner]:
    root = tmp_path / "work"
    root.mkdir()
    store = BlobStore(tmp_path / "store", 1 << 30)
    return root, store, Scanner(str(root), store, limits or Limits())


def scanned(scanner: Scanner) -> Mapping[str, ManifestEntry]:
    """Return the entries that a scan finds now."""
    scanner.scan()
    return scanner.manifest


def age(*paths: Path) -> None:
    """Put the times an hour back, so that the scan trusts them (the change time stays young)."""
    for path in paths:
        os.utime(path, (1_600_000_000, 1_600_000_000))


def test_the_second_scan_names_what_changed(tmp_path: Path) -> None:
    root, store, scanner = make(tmp_path)
    (root / "keep").write_text("same")
    (root / "edit").write_text("old")
    (root / "gone").write_text("bye")
    assert scanner.scan().changed == ("edit", "gone", "keep")
    (root / "edit").write_text("new")
    (root / "gone").unlink()
    (root / "sub").mkdir()
    (root / "sub/born").write_text("hi")
    second = scanner.scan()
    assert second.changed == ("edit", "gone", "sub/born")
    assert store.get(scanner.manifest["edit"].blob) == b"new"


def test_a_rewrite_of_the_same_size_and_time_is_seen(tmp_path: Path) -> None:
    root, _, scanner = make(tmp_path)
    (root / "a").write_text("one")
    age(root / "a")
    scanner.scan()
    (root / "a").write_text("two")
    age(root / "a")
    assert scanner.scan().changed == ("a",)


class CoarseStatus:
    """A file status with the clock of a file system that has a resolution of two seconds."""

    def __init__(self, status: os.stat_result) -> None:
        self._status = status
        self.st_mtime_ns = status.st_mtime_ns // 2_000_000_000 * 2_000_000_000
        self.st_ctime_ns = status.st_ctime_ns // 2_000_000_000 * 2_000_000_000

    def __getattr__(self, name: str) -> object:
        return getattr(self._status, name)


def test_a_rewrite_within_a_tick_of_the_clock_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, _, scanner = make(tmp_path)
    real = os.stat
    monkeypatch.setattr(os, "stat", lambda *args, **kw: CoarseStatus(real(*args, **kw)))
    for number in range(20):
        (root / "a").write_text(f"{number:03}")
        assert scanner.scan().changed == ("a",)


def test_new_ignore_rules_take_effect_below(tmp_path: Path) -> None:
    root, _, scanner = make(tmp_path)
    (root / "sub").mkdir()
    (root / "sub/x.log").write_text("log")
    assert scanned(scanner)["sub/x.log"].kept
    (root / ".gitignore").write_text("*.log\n")
    assert scanned(scanner)["sub/x.log"].kind == "ignored"


def test_links_are_kept_and_never_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    root, store, scanner = make(tmp_path)
    (root / "link").symlink_to(outside)
    (root / "dangling").symlink_to("nowhere")
    os.mkfifo(root / "pipe")
    manifest = scanned(scanner)
    assert manifest["link"].kind == "link"
    assert store.get(manifest["dangling"].blob) == b"nowhere"
    assert manifest["pipe"].kind == "special"
    assert not any(path.startswith("link/") for path in manifest)


def test_limits_are_remarks_not_failures(tmp_path: Path) -> None:
    limits = Limits(max_files=3, max_file_bytes=100)
    root, _, scanner = make(tmp_path, limits)
    (root / "big").write_bytes(b"x" * 101)
    for number in range(5):
        (root / f"f{number}").write_text(str(number))
    scan = scanner.scan()
    kinds = {path: entry.kind for path, entry in scanner.manifest.items()}
    assert kinds == {"big": "large", "f0": "file", "f1": "file", "f2": "file", REST: "over"}
    assert "3 files" in scan.full
    assert not was_looked_for(scanner.manifest, "f4")
    assert not was_looked_for(scanner.manifest, "f9")
    (root / "f1").unlink()
    after = scanned(scanner)
    assert "f1" not in after
    assert scanned(scanner)["f3"].kept, "there is room for one again"


def test_what_is_known_stays_covered_when_a_flood_comes(tmp_path: Path) -> None:
    root, store, scanner = make(tmp_path, Limits(max_files=4))
    (root / "z").mkdir()
    (root / "z/mine").write_text("old")
    scanner.scan()
    (root / "a").mkdir()
    for number in range(10):
        (root / f"a/{number}").write_text("x")
    (root / "b").mkdir()
    (root / "b/late").write_text("x")
    (root / "z/mine").write_text("new")
    scan = scanner.scan()
    assert "z/mine" in scan.changed
    assert store.get(scanner.manifest["z/mine"].blob) == b"new", (
        "too many files, not too many bytes"
    )
    assert scanner.manifest["b"].kind == "over"
    assert not was_looked_for(scanner.manifest, "b/late")
    assert scan.full


def test_what_is_too_large_takes_no_place_among_the_files(tmp_path: Path) -> None:
    root, _, scanner = make(tmp_path, Limits(max_files=2, max_file_bytes=100))
    (root / "b").write_text("x")
    (root / "huge").write_bytes(b"x" * 101)
    (root / "z").write_text("x")
    scanner.scan()
    scan = scanner.scan()
    assert scan.changed == ()
    assert {path: entry.kind for path, entry in scanner.manifest.items()} == {
        "b": "file",
        "huge": "large",
        "z": "file",
    }


def test_a_full_budget_reads_nothing_new_and_keeps_following_the_old(tmp_path: Path) -> None:
    root = tmp_path / "work"
    root.mkdir()
    scanner = Scanner(str(root), BlobStore(tmp_path / "store", 3_000), Limits())
    (root / "a").write_bytes(os.urandom(1_000))
    assert not scanner.scan().full
    (root / "b").write_bytes(os.urandom(5_000))
    scan = scanner.scan()
    assert "limit" in scan.full
    assert scanner.manifest["b"].kind == "over"
    (root / "a").unlink()
    assert "a" in scanner.scan().changed


def test_folders_that_vanish_take_what_was_in_them(tmp_path: Path) -> None:
    root, _, scanner = make(tmp_path)
    (root / "x/y/z").mkdir(parents=True)
    (root / "x/y/z/f").write_text("1")
    (root / "x/empty").mkdir()
    assert scanner.scan().changed == ("x/empty", "x/y/z/f")
    shutil.rmtree(root / "x")
    assert scanner.scan().changed == ("x/empty", "x/y/z/f")
    assert scanned(scanner) == {}
    (root / "x").write_text("a file now")
    assert scanner.scan().changed == ("x",)
    (root / "x").unlink()
    (root / "x").mkdir()
    assert scanned(scanner)["x"].kind == "folder"


def test_an_adopted_manifest_is_what_was_there_before(tmp_path: Path) -> None:
    root, store, scanner = make(tmp_path)
    for name in ("same", "edited", "gone"):
        (root / name).write_text(name)
    (root / "sub").mkdir()
    (root / "sub/deep").write_text("deep")
    manifest = dict(scanned(scanner))
    (root / "edited").write_text("other")
    (root / "gone").unlink()
    shutil.rmtree(root / "sub")
    again = Scanner(str(root), store, Limits())
    again.adopt(edited({}, manifest))
    assert again.scan().changed == ("edited", "gone", "sub/deep")
    assert again.scan().changed == ()


def test_the_program_does_not_look_at_its_own_folders(tmp_path: Path) -> None:
    root = tmp_path / "work"
    (root / "data/session").mkdir(parents=True)
    (root / "data/session/context.jsonl").write_text("{}")
    store = BlobStore(root / "data/store", 1 << 20)
    scanner = Scanner(str(root), store, Limits(), own=[str(root / "data")])
    assert {path: e.kind for path, e in scanned(scanner).items()} == {"data": "ignored"}
    assert scanner.scan().changed == ()


def test_rules_of_the_repository_around_count(tmp_path: Path) -> None:
    root, store, _ = make(tmp_path)
    (tmp_path / ".git/info").mkdir(parents=True)
    (tmp_path / ".git/info/exclude").write_text("*.secret\n")
    (tmp_path / ".gitignore").write_text("work/build/\n*.log\n/only-here\n")
    # A file system may find a repository under another spelling.
    for name in ("a.log", "b.secret", "build/x", "only-here", "kept", "sub/.GI\u200dT/x"):
        (root / name).parent.mkdir(exist_ok=True, parents=True)
        (root / name).write_text(name)
    kinds = {path: e.kind for path, e in scanned(Scanner(str(root), store, Limits())).items()}
    assert kinds == {
        "a.log": "ignored", "b.secret": "ignored", "build": "ignored",
        "only-here": "file", "kept": "file", "sub/.GI\u200dT": "ignored",
    }  # fmt: skip
    (tmp_path / ".gitignore").write_text("*\n")
    assert scanned(Scanner(str(root), store, Limits()))["a.log"].kept, (
        "a repository that leaves out the work folder itself has no say in it"
    )


def test_names_that_are_no_text_are_followed(tmp_path: Path) -> None:
    root, _, scanner = make(tmp_path)
    name = os.fsdecode(b"caf\xe9")
    (root / name).write_text("x")
    assert scanner.scan().changed == (name,)


EDITS = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "d/a", "d/e/b", "d/e/f/c", ".gitignore", "d/.gitignore"]),
        st.sampled_from(["one", "two", "*.x\n", "e/\n", "a\n", None, "folder"]),
    ),
    max_size=5,
)


@given(st.lists(EDITS, min_size=1, max_size=6))
def test_looking_again_finds_what_a_first_look_finds(
    rounds: list[list[tuple[str, str | None]]],
) -> None:
    with tempfile.TemporaryDirectory() as top:
        root = Path(top) / "work"
        root.mkdir()
        store = BlobStore(Path(top) / "store", 1 << 20)
        scanner = Scanner(str(root), store, Limits())
        known: dict[str, ManifestEntry] = {}
        for edits in rounds:
            for name, content in edits:
                change(root / name, content)
            for folder, _, files in os.walk(root):
                # Everything at rest, so that the remembered stamps are what is relied upon.
                for path in (folder, *(os.path.join(folder, file) for file in files)):
                    os.utime(path, (1_600_000_000, 1_600_000_000))
            scan = scanner.scan()
            manifest = scanner.manifest
            assert manifest == scanned(Scanner(str(root), store, Limits()))
            for path in scan.changed:
                if path in manifest:
                    known[path] = manifest[path]
                else:
                    known.pop(path)
            assert known == manifest


def change(path: Path, content: str | None) -> None:
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        if content is None:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        elif content == "folder":
            path.mkdir()
        else:
            path.write_text(content)


def test_what_was_not_looked_for_was_not_absent(tmp_path: Path) -> None:
    root, _, scanner = make(tmp_path)
    (root / ".gitignore").write_text("venv/\n")
    (root / "venv").mkdir()
    (root / "venv/lib").write_text("x")
    manifest = scanned(scanner)
    assert not was_looked_for(manifest, "venv/lib")
    assert was_looked_for(manifest, "src/new.py")


def test_a_scan_that_is_not_wanted_any_more_changes_nothing(tmp_path: Path) -> None:
    root = tmp_path / "work"
    root.mkdir()
    (root / "a").write_text("a")
    wanted = [True]
    scanner = Scanner(
        str(root), BlobStore(tmp_path / "s", 1 << 20), Limits(), cancelled=lambda: not wanted[0]
    )
    before = dict(scanned(scanner))
    wanted[0] = False
    (root / "b").write_text("b")
    assert scanner.scan().changed == ()
    assert scanner.manifest == before


def test_what_cannot_be_looked_at_is_not_taken_for_absent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, _, scanner = make(tmp_path)
    (root / "sub").mkdir()
    for name in ("a", "sub/b", "gone"):
        (root / name).write_text(name)
    real = os.stat
    troubles = [errno.EIO, errno.ESTALE, errno.EACCES, errno.ETIMEDOUT]

    def stat(path: str, **where: Any) -> os.stat_result:
        if path in ("a", "b") and troubles:
            raise OSError(troubles[0], os.strerror(troubles[0]))
        if path == "gone":
            raise FileNotFoundError(errno.ENOENT, "just deleted")
        return real(path, **where)

    monkeypatch.setattr(scan.os, "stat", stat)
    while troubles:
        manifest = scanned(scanner)
        assert {path: entry.kind for path, entry in manifest.items()} == {
            "a": "unreadable",
            "sub/b": "unreadable",
        }
        assert not was_looked_for(manifest, "a")
        assert was_looked_for(manifest, "gone")
        troubles.pop()
    assert {entry.kind for entry in scanned(scanner).values()} == {"file"}


class _OddEntry:
    """An entry of a listing whose kind the disk does not tell."""

    def __init__(self, entry: os.DirEntry[str], troubles: list[int]) -> None:
        self.name = entry.name
        self._entry = entry
        self._troubles = troubles

    def is_dir(self, **how: bool) -> bool:
        if self._troubles:
            raise OSError(self._troubles[0], os.strerror(self._troubles[0]))
        return self._entry.is_dir(**how)


def test_a_folder_with_an_entry_of_unknown_kind_is_listed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, _, scanner = make(tmp_path)
    (root / "a").write_text("a")
    (root / "sub").mkdir()
    (root / "sub" / "b").write_text("b")
    real, troubles = os.scandir, [errno.EIO]

    @contextlib.contextmanager
    def scandir(place: int) -> Iterator[list[_OddEntry]]:
        with real(place) as listing:
            yield [_OddEntry(entry, troubles) for entry in listing]

    monkeypatch.setattr(scan.os, "scandir", scandir)
    # The stamps of the folder are old enough: they alone would say that nothing changed.
    monkeypatch.setattr(scan, "SETTLED_NS", -(10**10))
    assert {path: entry.kind for path, entry in scanned(scanner).items()} == {
        "a": "unreadable",
        "sub": "unreadable",
    }
    troubles.clear()
    assert {path: entry.kind for path, entry in scanned(scanner).items()} == {
        "a": "file",
        "sub/b": "file",
    }


def test_a_large_folder_is_in_order_and_can_be_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kimi_tui.workspace.store._SORTED", 7)
    monkeypatch.setattr(scan, "_CHECKED_FILES", 10)
    root, store, scanner = make(tmp_path)
    for number in range(50):
        (root / f"f{number:02}").write_text(str(number))
    assert list(scanned(scanner)) == [f"f{number:02}" for number in range(50)]
    asked = 0

    def cancelled() -> bool:
        nonlocal asked
        asked += 1
        return asked > 2

    stopped = Scanner(str(root), store, Limits(), cancelled=cancelled)
    assert (stopped.scan().changed, stopped.manifest) == ((), {})
    assert asked < 20


def test_what_this_program_has_half_written_is_nobody_s_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, _, scanner = make(tmp_path)
    (root / "edited").write_text("old")
    (root / "restored").write_text("old")
    target = ResolvedPath("edited", root / "edited", root, inside=True, linked=False)
    half: list[list[str]] = []

    def publish(temporary: str, name: str, folder: int, *, replace: bool) -> None:
        # Another agent's tool ends at this moment, and the scan for it begins.
        half.append(sorted(one.name for one in root.iterdir()))
        found.extend(scanned(scanner))
        filesystem.publish(temporary, name, folder, replace=replace)

    found: list[str] = []
    before = scanned(scanner)["restored"]
    (root / "restored").write_text("new")
    now = scanned(scanner)["restored"]
    for module in (file_edit, restore):
        monkeypatch.setattr(module, "publish", publish)
    file_edit.replace_file(target, b"new", read_whole(target))
    back = FileChange("restored", "restore", now=now, then=before)
    assert restore.carry_out(root, BlobStore(tmp_path / "store", 1 << 30), [back]).restored
    assert [len(names) for names in half] == [3, 3]
    assert found == ["edited", "restored"] * 2
    assert set(scanned(scanner)) == {"edited", "restored"}


@pytest.mark.parametrize(
    "name",
    [".a.tmp", "a.0123456789ab.tmp", ".a.0123456789AB.tmp", ".0123456789ab.tmp", ".a.restore"],
)
def test_names_that_only_look_like_ours_are_kept(tmp_path: Path, name: str) -> None:
    root, _, scanner = make(tmp_path)
    (root / name).write_text("somebody's")
    (root / ".a.0123456789ab.tmp").mkdir()
    assert set(scanned(scanner)) == {name, ".a.0123456789ab.tmp"}


def test_one_name_comes_and_goes() -> None:
    assert _with("b", ("a", "c")) == ("a", "b", "c")
    assert _with("b", ("a", "b")) == ("a", "b")
    assert _without("b", ("a", "b", "c")) == ("a", "c")
    assert _without("b", ("a", "c")) == ("a", "c")

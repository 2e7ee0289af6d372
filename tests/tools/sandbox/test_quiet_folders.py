"""Folders of which the kernel told nothing are not looked at, and nothing that changed is missed."""

from __future__ import annotations

import ctypes
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.file_histories import FileHistory
from support.kernel_events import need_an_instance
from support.ordinary_rights import ordinary_rights

from kimi_tui.tools.sandbox import policy as policy_module
from kimi_tui.tools.sandbox import quiet_folders
from kimi_tui.tools.sandbox.policy import FolderMemory, SandboxSettings, policy_for
from kimi_tui.workspace import tree_watch

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells by inotify")


class Looked:
    """A work folder of which every folder is watched, and a policy that is made anew to compare with."""

    def __init__(self, top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        need_an_instance()
        self.top, self.work, self.outside = top, top / "work", top / "outside"
        (top / "home").mkdir()
        self.work.mkdir()
        self.outside.mkdir()
        self.environ = {
            "HOME": str(top / "home"),
            "KIMI_TUI_HOME": str(top / "app"),
            "PATH": os.environ["PATH"],
        }
        monkeypatch.setattr(quiet_folders, "_FROM_FOLDERS", 1)
        # Times are settled as soon as the clock of the file system has gone on.
        monkeypatch.setattr(policy_module, "SETTLED_NS", 0)
        self.memory = FolderMemory()
        self.asked: list[str] = []
        listing = policy_module._listing

        def counted(folder: str, *args: Any) -> Any:
            self.asked.append(folder)
            return listing(folder, *args)

        monkeypatch.setattr(policy_module, "_listing", counted)

    def tick(self) -> None:
        """Wait until a change has a later time than all changes before."""
        probe = self.top / "clock"
        probe.touch()
        before = probe.stat().st_ctime_ns
        while probe.stat().st_ctime_ns == before:
            probe.touch()

    def settle(self) -> None:
        """Have all folders taken as quiet: listed, found unchanged while they are watched, and told of no more."""
        for _ in range(3):
            self.tick()
            self.look()

    def look(self) -> Any:
        return policy_for(self.work, SandboxSettings(), self.environ, memory=self.memory)

    def look_inside(self, memory: FolderMemory) -> list[object]:
        """Return all that a look at the work folder alone finds."""
        top, watch, repositories = policy_module._look(str(self.work), memory, self.environ)
        found = (top, watch.secrets, watch.links, watch.repositories, watch.unseen, watch.closed)
        return [watch.stamps, set(watch.sockets), set(repositories), *map(set, found)]

    def check_inside(self, what: str) -> None:
        assert self.look_inside(self.memory) == self.look_inside(FolderMemory()), what

    def n_asked(self) -> int:
        """Return how many folders below the work folder a look asks for their times."""
        self.asked.clear()
        self.look()
        return sum(one.startswith(f"{self.work}/") for one in self.asked)

    def check(self, what: str = "") -> None:
        found = self.look()
        fresh = policy_for(self.work, SandboxSettings(), self.environ, memory=FolderMemory())
        # Sockets elsewhere come and go with other programs.
        for name in ("hidden", "kept", "links", "pinned", "writable"):
            assert set(getattr(found, name)) == set(getattr(fresh, name)), f"{what}: {name}"
        for name in ("secrets", "links", "repositories", "sockets", "unseen", "closed"):
            have, want = getattr(found.watch, name), getattr(fresh.watch, name)
            assert set(have) == set(want), f"{what}: {name}"
        assert found.watch.stamps == fresh.watch.stamps, what


@pytest.fixture
def looked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Looked:
    return Looked(tmp_path, monkeypatch)


def test_quiet_folders_are_not_asked_for_their_times(looked: Looked) -> None:
    for n in range(50):
        (looked.work / f"a{n}/b").mkdir(parents=True)
        (looked.work / f"a{n}/b/file").touch()
    assert looked.n_asked() >= 100
    looked.settle()
    assert looked.n_asked() == 0
    # A new name makes its folder, and no other, be looked at.
    (looked.work / "a7/b/.env").touch()
    looked.check()
    looked.tick()
    assert looked.n_asked() < 10
    looked.settle()
    assert looked.n_asked() == 0


def test_what_happens_to_folders_is_seen(looked: Looked) -> None:
    for name in ("one", "two", "three/deep"):
        (looked.work / name / "x").mkdir(parents=True)
    (looked.work / "one/x/.env").touch()
    looked.settle()
    # Another folder under the same name, of the same times where it can be.
    (looked.work / "two").rename(looked.outside / "two")
    (looked.work / "one").rename(looked.work / "two")
    looked.check("moved")
    assert str(looked.work / "two/x/.env") in looked.look().hidden
    looked.settle()
    shutil.rmtree(looked.work / "two")
    (looked.outside / "two").rename(looked.work / "two")
    looked.check("moved back")
    looked.settle()
    (looked.work / "two/x/secrets").mkdir()
    (looked.outside / "key").touch()
    os.link(looked.outside / "key", looked.work / "three/deep/x/id_rsa")
    looked.check("linked")
    looked.settle()
    # The work folder itself is another one.
    looked.work.rename(looked.top / "old")
    (looked.work / "three/deep/x").mkdir(parents=True)
    (looked.work / "three/deep/x/.env").touch()
    looked.check("replaced")
    looked.settle()
    assert looked.n_asked() == 0
    (looked.top / "old/two/x/.env").touch()
    (looked.work / "three/deep/x/.netrc").touch()
    looked.check("replaced, later")


def exchange(one: Path, other: Path) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(-100, os.fsencode(one), -100, os.fsencode(other), 2):
        raise OSError(ctypes.get_errno(), "not exchanged")


def put_by_renames(inner: Path, other: Path) -> None:
    inner.rename(inner.with_name("old"))
    other.rename(inner)
    inner.with_name("old").rename(other)


def put_by_a_link(inner: Path, other: Path) -> None:
    inner.rename(other.with_name("old"))
    inner.symlink_to(other)


@pytest.mark.parametrize("put", [exchange, put_by_renames, put_by_a_link])
def test_a_folder_put_into_one_that_was_changed_just_before_is_seen(
    looked: Looked, put: Callable[[Path, Path], None]
) -> None:
    (looked.work / "a/b/c").mkdir(parents=True)
    (looked.outside / "b/c").mkdir(parents=True)
    (looked.outside / "b/c/.env").touch()
    looked.settle()
    # The folder above has just been found changed, and those below it are quiet.
    (looked.work / "a/file").touch()
    looked.look()
    put(looked.work / "a/b", looked.outside / "b")
    looked.check()
    looked.settle()
    assert looked.n_asked() == 0


def test_a_folder_far_below_one_that_changes_all_the_time_is_seen(looked: Looked) -> None:
    (looked.work / "a/b/c/d").mkdir(parents=True)
    (looked.outside / "d").mkdir()
    (looked.outside / "d/.env").touch()
    for n in range(4):
        (looked.work / f"a/{n}").touch()
        looked.tick()
        looked.look()
    (looked.work / "a/b/c/d").rename(looked.outside / "old")
    (looked.outside / "d").rename(looked.work / "a/b/c/d")
    (looked.work / "a/9").touch()
    looked.check("inner")
    (looked.work / "a/8").touch()
    looked.look()
    (looked.work / "a").rename(looked.outside / "a")
    (looked.work / "a/b/c/d").mkdir(parents=True)
    (looked.work / "a/b/c/.netrc").touch()
    looked.check("upper")


def test_folders_that_are_closed_and_opened_are_seen(looked: Looked) -> None:
    for name in ("a/b", "a/c", "other"):
        (looked.work / name).mkdir(parents=True)
        (looked.work / name / ".env").touch()
    looked.settle()
    assert looked.n_asked() == 0
    with ordinary_rights():
        for mode in (0o000, 0o300, 0o600, 0o400, 0o100):
            for name in ("a/b", "a"):
                (looked.work / name).chmod(mode)
                looked.check(f"closed {mode:o} {name}")
                hidden = looked.look().hidden
                assert str(looked.work / name) in hidden
                looked.settle()
                looked.check(f"still closed {mode:o} {name}")
                (looked.work / name).chmod(0o700)
                looked.check(f"opened {mode:o} {name}")
                assert str(looked.work / "a/b/.env") in looked.look().hidden
    looked.settle()
    assert looked.n_asked() == 0


def test_what_is_mounted_and_unmounted_is_seen(looked: Looked) -> None:
    (looked.work / "a/b").mkdir(parents=True)
    (looked.work / "a/b/.env").touch()
    looked.settle()
    assert looked.n_asked() == 0
    place = looked.work / "a"
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "none", place], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("only root mounts")
    try:
        looked.check("mounted")
        (place / "c").mkdir()
        (place / "c/.netrc").touch()
        looked.settle()
        assert looked.n_asked() == 0
    finally:
        subprocess.run(["umount", place], check=True)
    looked.check("unmounted")


def test_folders_made_and_removed_many_times_leave_no_watches(looked: Looked) -> None:
    (looked.work / "kept").mkdir()
    counts: list[int] = []
    for _ in range(6):
        for n in range(30):
            (looked.work / f"many/{n}/inner").mkdir(parents=True)
        looked.settle()
        counts.append(watched(looked))
        shutil.rmtree(looked.work / "many")
        looked.settle()
        counts.append(watched(looked))
    assert len(set(counts)) == 2
    assert min(counts) == 2


def watched(looked: Looked) -> int:
    """Return how many folders the kernel watches for the sandbox."""
    watch = looked.memory._quiet._watch
    assert watch is not None
    path = f"/proc/self/fdinfo/{watch._inotify.descriptor}"
    return sum(line.startswith("inotify ") for line in Path(path).read_text().splitlines())


def test_many_moved_folders_are_seen(looked: Looked) -> None:
    for n in range(60):
        (looked.work / f"a{n}/b/c").mkdir(parents=True)
    looked.settle()
    for n in range(60):
        (looked.work / f"a{n}").rename(looked.work / f"b{n}")
        (looked.work / f"b{n}/b/c/.env").touch()
    looked.check()
    looked.settle()
    assert looked.n_asked() == 0


def test_lost_events_and_the_end_of_a_minute_make_it_look_at_all(
    looked: Looked, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(20):
        (looked.work / f"a{n}").mkdir()
    looked.settle()
    assert looked.n_asked() == 0
    with monkeypatch.context() as patched:
        # A mount is not told.
        patched.setattr(quiet_folders, "_MOST_AGE_S", -1)
        assert looked.n_asked() >= 20
    looked.settle()
    assert looked.n_asked() == 0
    most = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    for n in range(most // 2 + 10):
        name = looked.work / "a3" / str(n % 7)
        name.touch()
        name.unlink()
    (looked.work / "a4/.env").touch()
    assert looked.n_asked() >= 20
    looked.check()


@pytest.mark.parametrize("most", [0, 4 * 8])
def test_without_enough_watches_every_folder_is_looked_at(
    looked: Looked, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tree_watch, "most_watches", lambda: most)
    for n in range(20):
        (looked.work / f"a{n}").mkdir()
    looked.settle()
    assert looked.n_asked() >= 20
    (looked.work / "a4/.env").touch()
    looked.check()


def play(looked: Looked, seed: int, steps: int) -> None:
    history = FileHistory(looked.work, looked.outside, seed)
    chance = random.Random(seed)
    n_quiet = 0
    for _ in range(steps):
        done = [history.step() for _ in range(chance.choice([1, 1, 2, 5]))]
        looked.check(f"seed {seed}, {history.count}: {done}")
        if chance.random() < 0.4:
            looked.settle()
            n_quiet += looked.n_asked() == 0
    assert n_quiet


class FolderHistory:
    """Moves, exchanges, replaces, closes and fills folders at random: what hides a change of a folder from its own times."""

    def __init__(self, work: Path, outside: Path, seed: int) -> None:
        self.work, self.outside = work, outside
        self.chance = random.Random(seed)
        self.steps = [
            *(
                self.fill,
                self.fill,
                self.touch,
                self.touch,
                self.move,
                self.exchange,
                self.exchange,
            ),
            *(self.out, self.back, self.back, self.link, self.close, self.open, self.remove),
            *(self.repository, self.swap_with_outside, self.swap_with_outside),
        ]

    def step(self) -> str:
        step = self.chance.choice(self.steps)
        try:
            step()
        except OSError as error:
            return f"{step.__name__} {error}"
        return step.__name__

    def some(self, top: Path | None = None) -> Path:
        top = top or self.work
        found = sorted(Path(one) for one, _, _ in os.walk(top) if ".git" not in one)[1:]
        return self.chance.choice(found or [self.new(top)])

    def new(self, top: Path) -> Path:
        return top.joinpath(
            *(self.chance.choice("abc") for _ in range(self.chance.randrange(1, 5)))
        )

    def fill(self) -> None:
        place = self.new(self.chance.choice([self.work, self.outside]))
        place.mkdir(parents=True, exist_ok=True)
        (place / self.chance.choice([".env", "file", "id_rsa", "package.json"])).touch()

    def touch(self) -> None:
        (self.some() / str(self.chance.randrange(99))).touch()

    def move(self) -> None:
        self.some().rename(self.some() / self.chance.choice("abc"))

    def exchange(self) -> None:
        exchange(self.some(), self.some())

    def out(self) -> None:
        self.some().rename(self.outside / self.chance.choice("abc"))

    def back(self) -> None:
        self.some(self.outside).rename(self.some() / self.chance.choice("abc"))

    def swap_with_outside(self) -> None:
        exchange(self.some(), self.some(self.outside))

    def link(self) -> None:
        place = self.some()
        place.rename(self.outside / str(self.chance.random()))
        place.symlink_to(self.some(self.outside))

    def close(self) -> None:
        self.some().chmod(self.chance.choice([0, 0o300, 0o600]))

    def open(self) -> None:
        # Closed ones are found by their parents alone.
        for place, names, _ in os.walk(self.work):
            for name in names:
                Path(place, name).chmod(0o700)

    def remove(self) -> None:
        shutil.rmtree(self.some())

    def repository(self) -> None:
        (self.some() / ".git").mkdir()


def play_folders(looked: Looked, seed: int, steps: int) -> None:
    history = FolderHistory(looked.work, looked.outside, seed)
    for _ in range(12):
        history.fill()
    with ordinary_rights():
        for _ in range(steps):
            done = [history.step() for _ in range(history.chance.choice([1, 1, 2, 4]))]
            if history.chance.random() < 0.3:
                looked.tick()
            looked.check_inside(f"seed {seed}: {done}")
            if history.chance.random() < 0.4:
                for _ in range(3):
                    looked.tick()
                    looked.look_inside(looked.memory)
        history.open()


@pytest.mark.sample
@pytest.mark.parametrize("seed", range(2))
def test_after_folders_changed_places_the_policy_is_that_of_a_fresh_look(
    seed: int, looked: Looked
) -> None:
    play_folders(looked, seed, 25)


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(100, 108))
def test_after_folders_changed_places_often_the_policy_is_that_of_a_fresh_look(
    seed: int, looked: Looked
) -> None:
    play_folders(looked, seed, 100)


@pytest.mark.sample
@pytest.mark.parametrize("seed", range(2))
def test_after_random_changes_the_policy_is_that_of_a_fresh_look(seed: int, looked: Looked) -> None:
    play(looked, seed, 25)


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(100, 120))
def test_after_long_random_changes_the_policy_is_that_of_a_fresh_look(
    seed: int, looked: Looked
) -> None:
    play(looked, seed, 200)

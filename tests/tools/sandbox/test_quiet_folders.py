"""Folders of which the kernel told nothing are not looked at, and nothing that changed is missed."""

from __future__ import annotations

import os
import random
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from support.file_histories import FileHistory
from support.kernel_events import need_an_instance

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
        for name in ("secrets", "links", "repositories", "sockets", "unseen"):
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

"""Past files at the work folder's path: the base, the runs over it, a search over forty steps, and kills at every phase."""

from __future__ import annotations

import asyncio
import hashlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import pytest
from support.file_histories import FileHistory

from kimi_tui.soul.bisect import Bisection, candidates_of, never
from kimi_tui.tools.past_command import PastCommands, PastRun, last_lines, place_of, sweep
from kimi_tui.tools.sandbox.policy import SandboxSettings
from kimi_tui.workspace.base import Base, FileState, NoBase, Past
from kimi_tui.workspace.manifest import Limits
from kimi_tui.workspace.tracker import SnapshotScope, Tracker


class Told(NamedTuple):
    """A checkpoint."""

    id: int
    uid: str
    was: str | None = None


class Held:
    """A session's folder with snapshots of a work folder, without a conversation."""

    def __init__(self, top: Path) -> None:
        self.work, self.dir = top / "work", top / "data/sessions/bucket/session"
        self.work.mkdir()
        self.dir.mkdir(parents=True)
        self.environ = {**os.environ, "KIMI_TUI_HOME": str(top / "data"), "HOME": str(top)}
        self.points: list[Told] = []
        self._tracker = Tracker(self.work, self.dir / "files", Limits(), SnapshotScope())

    def begin(self) -> None:
        assert self._tracker.first_scan()

    def step(self, **files: str) -> None:
        """Note a checkpoint; the agent writes files after it."""
        point = Told(len(self.points), f"uid{len(self.points)}")
        self.points.append(point)
        self._tracker.mark(point.uid)
        for name, text in files.items():
            (self.work / name).write_text(text)
        if files:
            assert self._tracker.take_snapshot("agent")

    def taken(self) -> None:
        self._tracker.take_snapshot("agent")

    def past(self) -> Past:
        self._tracker.close()
        return Past(self.dir / "files", self.work)

    def commands(self, past: Past) -> PastCommands:
        return PastCommands(self.dir, past, SandboxSettings(), self.environ)


@pytest.fixture
def held(tmp_path: Path) -> Held:
    return Held(tmp_path)


def seen(folder: Path) -> dict[str, str]:
    """Return what a folder holds: each file with its mode and contents, each link with its target."""
    found: dict[str, str] = {}
    for path in folder.rglob("*"):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = f"-> {os.readlink(path)}"
        elif path.is_file():
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            found[name] = f"{path.stat().st_mode & 0o777:o} {digest}"
        elif not any(path.iterdir()):
            found[name] = "empty"
    return found


def wanted(past: Past, state: FileState) -> dict[str, str]:
    found: dict[str, str] = {}
    for path, entry in past.files(state).items():
        if entry.kind == "link":
            found[path] = f"-> {past.content(entry).decode(errors='surrogateescape')}"
        elif entry.kind == "file":
            found[path] = f"{entry.mode:o} {entry.blob}"
        elif entry.kind == "folder":
            found[path] = "empty"
    return found


@pytest.mark.sample(1)
@pytest.mark.parametrize("seed", range(12))
def test_a_base_is_the_files_of_each_snapshot_in_any_order(held: Held, seed: int) -> None:
    outside = held.work.parent / "outside"
    outside.mkdir()
    history = FileHistory(held.work, outside, seed)
    held.begin()
    for _ in range(15):
        for _ in range(4):
            history.step()
        held.taken()
    past = held.past()
    snapshots = [*past.log.snapshots]
    random.Random(seed).shuffle(snapshots)
    base = Base(held.work.parent / "base", past)
    for snapshot in snapshots:
        state = FileState(snapshot)
        base.move(state)
        assert seen(base.folder) == wanted(past, state)
    base.close()


def test_a_base_is_taken_over_unless_something_was_changed_in_it(held: Held) -> None:
    (held.work / "a").write_text("a")
    held.begin()
    held.step(a="b")
    past = held.past()
    place = held.work.parent / "base"
    first, last = map(FileState, past.log.snapshots)

    def moved(state: FileState) -> int:
        """Return the inode of the folder: another one if it was made anew."""
        base = Base(place, past)
        base.move(state)
        assert seen(base.folder) == wanted(past, state)
        base.close()
        return base.folder.stat().st_ino

    made = moved(first)
    assert moved(last) == made
    (place / "base/a").write_text("B")
    moved(first)
    assert (place / "base/a").read_text() == "a"
    (place / "base.json").unlink()
    (place / "base/left").write_text("a killed move")
    moved(first)
    with_lock = Base(place, past)
    with pytest.raises(NoBase, match="Another bisect"):
        Base(place, past)
    with_lock.close()


def test_a_base_is_left_to_another_place_and_taken_from_it(held: Held) -> None:
    (held.work / "a").write_text("a")
    held.begin()
    held.step(a="b")
    past = held.past()
    first, last = FileState(past.log.snapshots[0]), FileState(past.last)
    kept, top = held.work.parent / "kept", held.work.parent

    def run(place: Path, state: FileState) -> int:
        """Move a base that takes the files of the kept one, and leave them to it; return the inode of the folder."""
        base = Base(place, past)
        base.take(kept)
        base.move(state)
        assert seen(base.folder) == wanted(past, state)
        inode = base.folder.stat().st_ino
        base.leave(kept)
        base.close()
        return inode

    made = run(top / "one", first)
    assert run(top / "two", last) == made
    assert not (top / "two" / "base").exists()
    # A base that is used stays where it is, and one that was changed is made anew.
    with_lock = Base(kept, past)
    assert run(top / "three", first) != made
    with_lock.close()
    (kept / "base" / "a").write_text("B")
    assert run(top / "four", last) != made


def test_files_are_copied_from_the_work_folder_only_if_they_are_the_same(
    held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A stamp counts only if the file was left alone for a while before.
    monkeypatch.setattr("kimi_tui.workspace.scan.SETTLED_NS", 0)
    for name in ("same", "edited", "replaced", "gone", "step"):
        (held.work / name).write_text(f"{name} as it was")
    time.sleep(0.02)
    held.begin()
    held.step(step="after the step")
    past = held.past()
    for name in ("edited", "replaced"):
        file, times = held.work / name, (held.work / name).stat()
        if name == "replaced":
            file.unlink()
        file.write_text(f"{name} by hand"[: times.st_size].ljust(times.st_size))
        os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    (held.work / "gone").unlink()
    unpacked: list[str] = []
    content = past.content
    monkeypatch.setattr(
        past, "content", lambda entry: unpacked.append(entry.blob) or content(entry)
    )
    base = Base(held.work.parent / "base", past)
    state = FileState(past.log.snapshots[0])
    base.move(state)
    assert seen(base.folder) == wanted(past, state)
    files = past.files(state)
    assert {name for name in files if files[name].blob not in unpacked} == {"same"}
    left = held.work / "same", base.folder / "same"
    assert left[0].stat().st_mtime_ns == left[1].stat().st_mtime_ns
    assert left[0].stat().st_ino != left[1].stat().st_ino
    base.close()


def test_a_full_disk_leaves_no_half_a_base(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    (held.work / "a").write_text("a")
    held.begin()
    past = held.past()
    base = Base(held.work.parent / "base", past)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("kimi_tui.workspace.base.write_all", full)
    with pytest.raises(NoBase, match="The disk is full"):
        base.move(FileState(past.last))
    assert not base.folder.exists()
    monkeypatch.setattr("kimi_tui.workspace.base._LEFT_FREE", 1 << 60)
    with pytest.raises(NoBase, match="MB are free"):
        base.move(FileState(past.last))
    base.close()


@pytest.mark.exhaustive
def test_forty_steps_of_a_repository_take_six_runs_and_touch_nothing(held: Held) -> None:
    subprocess.run(["git", "init", "-q", str(held.work)], check=True)
    for n in range(60):
        (held.work / f"module_{n}.py").write_text(f"value = {n}\n")
    (held.work / ".gitignore").write_text("__pycache__/\n")
    held.begin()
    for n in range(40):
        # Two of five steps write, as in most sessions; the others read and run.
        writes = n % 5 in (1, 3)
        text = "value = 1 +\n" if n == 23 else f"value = {n} * 2\n"
        held.step(**({f"module_{n}": text} if writes else {}))
        if writes:
            (held.work / f"module_{n}").rename(held.work / f"module_{n}.py")
            held.taken()
    before = {
        path: (path.lstat().st_mtime_ns, path.lstat().st_ctime_ns)
        for path in (held.work, *held.work.rglob("*"))
    }

    async def found() -> None:
        past = held.past()
        commands = held.commands(past)
        await commands.open(scans=True)
        try:
            candidates = candidates_of(past, held.points)

            async def run(place: object) -> PastRun:
                state = place.state  # pyright: ignore[reportAttributeAccessIssue]
                check = (
                    f"{sys.executable} -B -m compileall -q . ; code=$?; rm -rf * .git; exit $code"
                )
                return await commands.run(check, state, timeout_s=60)

            outcome = await Bisection(candidates, run, asks=never).search()
            (change,) = outcome.found
            assert (change.id, change.cause) == (23, "step")
            assert outcome.n_runs <= 6
        finally:
            await commands.close()

    asyncio.run(found())
    after = {
        path: (path.lstat().st_mtime_ns, path.lstat().st_ctime_ns)
        for path in (held.work, *held.work.rglob("*"))
    }
    assert after == before


_KILLED = """
import asyncio, os, signal, sys
from pathlib import Path
from kimi_tui.tools.past_command import PastCommands, place_of
from kimi_tui.tools.sandbox.policy import SandboxSettings
from kimi_tui.workspace.base import FileState, Past
from kimi_tui.workspace.worktree import write_worktree
phase, work, folder = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
past = Past(folder / "files", work)
def die(*_): os.kill(os.getpid(), signal.SIGKILL)
if phase == "worktree":
    write_worktree(past, FileState(past.last), work.parent / "tree", place_of(folder, os.environ).parent, die)
async def main():
    commands = PastCommands(folder, past, SandboxSettings(), os.environ)
    await commands.open(scans=phase == "scan")
    if phase in ("scan", "open"): die()
    told = die if phase == "base" else lambda _: None
    await commands.run("echo x > new; echo started; sleep 60", FileState(past.last), timeout_s=60,
        told=told, on_output=die if phase == "run" else lambda _: None)
asyncio.run(main())
"""


def test_the_end_of_an_output_keeps_its_indentation() -> None:
    output = 'one\n\nTraceback:\n  File \x1b[31m"a"\x1b[0m  \r\n\tx\n\n'
    assert last_lines(output, 3) == ["Traceback:", '  File "a"', "    x"]


@pytest.mark.sample(1)
@pytest.mark.parametrize("phase", ["run", "worktree", "scan", "open", "base"])
def test_nothing_is_left_of_a_killed_program_after_the_next_start(held: Held, phase: str) -> None:
    (held.work / "a").write_text("a")
    held.begin()
    held.past()
    arguments = [sys.executable, "-c", _KILLED, phase, str(held.work), str(held.dir)]
    killed = subprocess.run(arguments, env=held.environ, check=False, timeout=50)
    assert killed.returncode == -signal.SIGKILL
    assert seen(held.work).keys() == {"a"}
    sweep(held.environ)
    place = place_of(held.dir, held.environ)
    left = {one.name for one in place.iterdir()} if place.exists() else set()
    assert left <= {"base", "base.json", "lock"}
    assert ("base" in left) == ("base.json" in left)
    assert {one.name for one in place.parent.iterdir()} <= {place.name}
    assert {one.name for one in held.work.parent.iterdir()} == {"work", "data"}

"""A full disk, a power cut, files that the user edits, another program, and a server that refuses, in each phase of a set of futures."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.chat_server import Answer, Request, status

from kimi_tui.futures.running import STARTS, Futures
from kimi_tui.futures.values import FuturesPlan, Variant
from kimi_tui.launch import Launch
from kimi_tui.soul.opening import open_session
from kimi_tui.soul.rewind_values import END, Target
from kimi_tui.tools.past_command import sweep
from kimi_tui.wire.events import FutureChanged

from .conftest import Scene, answer, contents

PATIENCE_S = 90
PHASES: dict[str, Callable[[FutureChanged], bool]] = {
    "preparing": lambda one: one.state == "preparing",
    "its process starts": lambda one: one.why == STARTS,
    "its session opens": lambda one: one.state == "running",
    "first step": lambda one: one.step == 1,
    "a command runs": lambda one: one.step == 2,
    "checking": lambda one: one.state == "checking",
    "it has ended": lambda one: one.state == "done",
    "it is a world line": lambda one: one.world_line > 0,
}
PLAN = FuturesPlan(Target(END), (Variant("do alpha"), Variant("do gamma")), check="sleep 0.5")

pytestmark = pytest.mark.exhaustive


async def run(scene: Scene, phase: str, act: Callable[[], object]) -> list[FutureChanged]:
    """Run two futures to their end, and do something at once when one of them comes to a phase; return their states."""
    futures = scene.futures
    done: list[str] = []

    def wake(key: str) -> None:
        if not done and PHASES[phase](futures.state(key)):
            done.append(key)
            act()

    futures.subscribe(wake)
    async with asyncio.timeout(PATIENCE_S):
        keys = await futures.start(PLAN)
        await futures.ended()
    assert done, [futures.state(key) for key in keys]
    return [futures.state(key) for key in keys]


async def kept(launch: Launch, home: Path) -> tuple[list[FutureChanged], Scene]:
    """Open the session again, as the next start does; return the futures that it has, and the scene, which the caller closes."""
    opened = await open_session(launch._replace(resume="newest"))
    soul = opened.soul
    for one in list(soul.before_close):
        # The futures that were left are taken up beside everything else.
        await one()
    await asyncio.to_thread(sweep, os.environ)
    futures = Futures(soul, launch)
    scene = Scene(soul.session.work_dir, home, None, launch, soul, futures)  # pyright: ignore[reportArgumentType]
    assert scene.left() == []
    return [one for one in futures.states if one.world_line], scene


async def each_can_be_made_current(scene: Scene, states: list[FutureChanged], before: str) -> None:
    """Switch to each future and back, and look at the folder at each point."""
    for one in states:
        outcome = await scene.futures.make_current(one.key)
        assert not outcome.conflicts
        await scene.soul.travel.undo()
        assert contents(scene.work) == before


def mounted(place: Path, *words: str) -> None:
    """Mount a file system, or skip the test."""
    place.mkdir(exist_ok=True)
    can = shutil.which("mount") and os.geteuid() == 0
    if not can or subprocess.run(["mount", *words, place], capture_output=True).returncode:
        pytest.skip("no file system can be mounted here")


def unmounted(place: Path) -> None:
    subprocess.run(["umount", "-l", place], check=True)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """The data folder on a file system of 120 MB."""
    place = tmp_path / "home"
    mounted(place, "-t", "tmpfs", "-o", "size=120m", "tmpfs")
    yield place
    unmounted(place)


def fill(path: Path) -> None:
    """Write until the disk is full to the last byte."""
    for size in (1 << 20, 512):
        with contextlib.suppress(OSError), path.open("ab", buffering=0) as file:
            while file.write(bytes(size)):
                pass


@pytest.mark.parametrize("phase", PHASES)
async def test_a_full_disk_harms_neither_session_nor_folder(
    small_disk: Path, scene: Scene, phase: str
) -> None:
    before = contents(scene.work)
    live = (scene.soul.session.dir / "context.jsonl").read_bytes()
    filler = small_disk / "filler"
    states = await run(scene, phase, lambda: fill(filler))
    assert all(one.is_over for one in states)
    assert contents(scene.work) == before
    filler.unlink()
    await scene.soul.aclose()
    assert (scene.soul.session.dir / "context.jsonl").read_bytes() == live
    found, again = await kept(scene.launch, scene.home)
    if phase == "it is a world line":
        assert found
    await each_can_be_made_current(again, found, before)
    await again.soul.run("do beta")
    assert (scene.work / "beta.txt").exists()
    await again.soul.aclose()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """The data folder on a file system in a file, of which a copy is what a power cut leaves."""
    image, place = tmp_path / "disk", tmp_path / "home"
    if not shutil.which("mkfs.ext4"):
        pytest.skip("mkfs.ext4 is not installed")
    with image.open("wb") as file:
        file.truncate(256 << 20)
    subprocess.run(["mkfs.ext4", "-q", "-F", image], check=True)
    mounted(place, "-o", "loop", str(image))
    yield image
    unmounted(place)


@pytest.mark.parametrize("phase", PHASES)
async def test_a_power_cut_harms_neither_session_nor_folder(
    disk: Path, scene: Scene, phase: str
) -> None:
    before = contents(scene.work)
    live = (scene.soul.session.dir / "context.jsonl").read_bytes()
    # The session of the scene was only begun; its own end on the disk is tested elsewhere.
    os.sync()
    cut = disk.with_name("cut")
    await run(scene, phase, lambda: shutil.copyfile(disk, cut))
    await scene.soul.aclose()
    unmounted(scene.home)
    mounted(scene.home, "-o", "loop", str(cut))
    assert (scene.soul.session.dir / "context.jsonl").read_bytes() == live
    found, again = await kept(scene.launch, scene.home)
    if phase == "it is a world line":
        assert found
    await each_can_be_made_current(again, found, before)
    assert contents(scene.work) == before
    await again.soul.aclose()


# What was edited when the first phase begins is among the files with which futures begin.
@pytest.mark.parametrize("phase", list(PHASES)[1:])
async def test_what_the_user_edits_meanwhile_stays(scene: Scene, phase: str) -> None:
    work = scene.work

    def edit() -> None:
        (work / "src" / "f1.py").write_text("by the user\n")
        (work / "src" / "f3.py").unlink()
        (work / "own.txt").write_text("by the user\n")

    states = await run(scene, phase, edit)
    edited = contents(work)
    assert [one.state for one in states] == ["done", "done"]
    for one in states:
        outcome = await scene.futures.make_current(one.key)
        assert "src/f1.py" in outcome.conflicts or one.number == 2
        assert (work / "src" / "f1.py").read_text() == "by the user\n"
        assert (work / "own.txt").read_text() == "by the user\n"
        await scene.soul.travel.undo()
        assert contents(work) == edited


@pytest.mark.parametrize("phase", PHASES)
async def test_another_program_in_the_folder_takes_nothing_away(scene: Scene, phase: str) -> None:
    others: list[asyncio.Task[None]] = []

    async def other() -> None:
        # Its start sweeps what killed programs have left, and it has a session of its own.
        opened = await open_session(scene.launch)
        await asyncio.to_thread(sweep, os.environ)
        await opened.soul.run("do beta")
        await opened.soul.aclose()

    states = await run(scene, phase, lambda: others.append(asyncio.ensure_future(other())))
    await others[0]
    assert [(one.state, one.check) for one in states] == [("done", "passed")] * 2
    assert (scene.work / "beta.txt").exists()
    assert not (scene.work / "alpha.txt").exists()
    assert scene.left() == []


@pytest.mark.parametrize("number", [429, 503])
async def test_a_server_that_refuses_a_second_request_gets_one_at_a_time(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr("kimi_tui.futures.running.n_at_once", lambda *_: 2)
    refused: list[int] = []

    def check(request: Request) -> Answer:
        at_once = [one.state == "running" for one in map(scene.futures.state, keys)]
        if sum(at_once) > 1 and not refused:
            refused.append(number)
            return status(number, "too many requests at a time", headers={"Retry-After": "1"})
        return answer(request)

    scene.server.check = check
    seen: list[tuple[str, str]] = []

    def wake(key: str) -> None:
        state = scene.futures.state(key)
        seen.append((state.state, state.why))

    scene.futures.subscribe(wake)
    keys = await scene.futures.start(PLAN)
    async with asyncio.timeout(PATIENCE_S):
        await scene.futures.ended()
    assert [scene.futures.state(key).state for key in keys] == ["done", "done"]
    assert refused
    waits = [why for state, why in seen if state == "waiting"]
    assert any("Retrying in " in why for why in waits), waits

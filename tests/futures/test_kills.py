"""Kills at every phase of a set of futures: the session and the work folder stay, finished steps are kept, and nothing is left."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

import pytest

from kimi_tui.futures.running import Futures
from kimi_tui.futures.values import FuturesPlan, Variant
from kimi_tui.launch import Launch
from kimi_tui.soul.opening import open_session
from kimi_tui.soul.rewind_values import END, Target
from kimi_tui.tools.past_command import sweep

from .conftest import answer, contents, scene_in

NEEDS_PROC = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="The processes of a future are found in /proc."
)
pytestmark = NEEDS_PROC
PROGRAM = """
import asyncio, json, sys
from kimi_tui.futures.running import Futures
from kimi_tui.futures.values import FuturesPlan, Variant
from kimi_tui.launch import Options, launch_of
from kimi_tui.soul.opening import open_session
from kimi_tui.soul.rewind_values import END, Target

async def main():
    launch = launch_of(Options(work_dir=sys.argv[1], newest=True, mode="sandboxed"))
    soul = (await open_session(launch)).soul
    futures = Futures(soul, launch)
    def wake(key):
        state = futures.state(key)
        pid = futures.process_id(key)
        print(json.dumps([state.number, state.state, state.step, pid, state.world_line]), flush=True)
    futures.subscribe(wake)
    await futures.start(FuturesPlan(Target(END), tuple(map(Variant, sys.argv[2:])), check="sleep 1"))
    await futures.ended()
    await soul.aclose()

asyncio.run(main())
"""
Seen = list[Any]
PHASES: dict[str, Callable[[Seen], bool]] = {
    "preparing": lambda seen: seen[1] == "preparing",
    "its process starts": lambda seen: seen[3] > 0,
    "its session opens": lambda seen: seen[1] == "running",
    "first step": lambda seen: seen[2] == 1,
    "a command runs": lambda seen: seen[2] == 2,
    "checking": lambda seen: seen[1] == "checking",
    "it has ended": lambda seen: seen[1] == "done",
}


@pytest.fixture
async def stage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncGenerator[tuple[Path, Launch]]:
    """A stored session of one turn that no program has open."""
    async with scene_in(tmp_path, monkeypatch, answer) as one:
        await one.soul.aclose()
        yield one.work, one.launch


def processes_of(work: Path) -> list[int]:
    """The processes whose environment or folder has to do with these tests, without this one."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                if str(work.parent).encode() in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
    return found


def started(work: Path, words: list[str]) -> subprocess.Popen[str]:
    """Start a program that starts futures."""
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(work), *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


async def begun(
    work: Path, words: list[str], holds: Callable[[Seen], bool]
) -> tuple[subprocess.Popen[str], list[int]]:
    """Start a program with futures; return it, and the processes of its futures, when one of them is as wanted."""
    process = started(work, words)
    pids: set[int] = set()

    def read() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            seen: Seen = json.loads(line)
            pids.update({seen[3]} - {0})
            if holds(seen):
                return

    await asyncio.to_thread(read)
    return process, sorted(pids)


async def nothing_runs(work: Path) -> None:
    """Wait until no process of a future is left."""
    until = time.monotonic() + 60
    while left := processes_of(work):
        assert time.monotonic() < until, left
        await asyncio.sleep(0.1)


def places_of_sets() -> list[Path]:
    """The folders with the files of sets of futures."""
    return list(Path(os.environ["KIMI_TUI_HOME"]).glob("futures/*~*"))


async def nothing_lies_about() -> None:
    """Wait until the sweep of the start has removed the files of all sets."""
    until = time.monotonic() + 30
    while left := await asyncio.to_thread(places_of_sets):
        assert time.monotonic() < until, left
        await asyncio.to_thread(sweep, os.environ)
        await asyncio.sleep(0.1)


async def nothing_half_made(bucket: Path) -> None:
    """Wait until the opened session has removed what is left of sessions, beside everything else."""
    until = time.monotonic() + 30
    while left := await asyncio.to_thread(lambda: list(bucket.glob(".f*"))):
        assert time.monotonic() < until, left
        await asyncio.sleep(0.02)


async def looks_right(work: Path, launch: Launch, before: str, live: bytes) -> list[int]:
    """Open the session again, look at everything; return the steps of the futures that were kept."""
    opened = await open_session(launch._replace(resume="newest"))
    soul = opened.soul
    try:
        for one in list(soul.before_close):
            # The futures that were left are taken up beside everything else.
            await one()
        futures = Futures(soul, launch)
        assert contents(work) == before
        assert (soul.session.dir / "context.jsonl").read_bytes() == live
        await nothing_half_made(soul.session.dir.parent)
        await nothing_lies_about()
        kept = [state for state in futures.states if state.world_line]
        for state in kept:
            assert state.is_over
            await futures.preview(state.key)
            outcome = await futures.make_current(state.key)
            assert not outcome.conflicts
            await soul.travel.undo()
            assert contents(work) == before
        return [len(soul.session.world_lines.read(state.world_line).checkpoints) for state in kept]
    finally:
        await soul.aclose()


def live_file(launch: Launch) -> Path:
    (found,) = Path(os.environ["KIMI_TUI_HOME"]).glob("sessions/*/*/context.jsonl")
    return found


@pytest.mark.exhaustive
@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("killed", ["program", "future", "all"])
async def test_a_kill_leaves_the_session_and_the_files_as_they_were(
    stage: tuple[Path, Launch], phase: str, killed: str
) -> None:
    work, launch = stage
    before, live = contents(work), live_file(launch).read_bytes()
    process, pids = await begun(work, ["do alpha", "do gamma"], PHASES[phase])
    victims = {"program": [process.pid], "future": pids[:1], "all": [process.pid, *pids]}[killed]
    for pid in victims:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    if killed == "future":
        assert process.stdout is not None
        await asyncio.to_thread(process.stdout.read)
    await asyncio.to_thread(process.wait)
    assert process.stdout is not None
    process.stdout.close()
    await nothing_runs(work)
    assert contents(work) == before
    steps = await looks_right(work, launch, before, live)
    if phase == "it has ended" and killed != "all":
        assert steps
    # Nothing of it is done twice.
    assert await looks_right(work, launch, before, live) == steps


@pytest.mark.exhaustive
async def test_a_killed_program_leaves_its_finished_steps_to_the_next_one(
    stage: tuple[Path, Launch],
) -> None:
    work, launch = stage
    before, live = contents(work), live_file(launch).read_bytes()
    process, _ = await begun(work, ["do wait"], PHASES["a command runs"])
    process.kill()
    await asyncio.to_thread(process.wait)
    assert process.stdout is not None
    process.stdout.close()
    await nothing_runs(work)
    (steps,) = await looks_right(work, launch, before, live)
    assert steps > 2


@pytest.mark.exhaustive
async def test_a_full_disk_fails_the_futures_and_nothing_else(
    stage: tuple[Path, Launch], monkeypatch: pytest.MonkeyPatch
) -> None:
    work, launch = stage
    before = contents(work)
    opened = await open_session(launch._replace(resume="newest"))
    futures = Futures(opened.soul, launch)
    monkeypatch.setattr("kimi_tui.workspace.base._LEFT_FREE", 1 << 60)
    (key,) = await futures.start(FuturesPlan(Target(END), (Variant("do alpha"),)))
    await futures.ended()
    state = futures.state(key)
    assert (state.state, state.world_line) == ("failed", 0)
    assert "MB are free" in state.why
    assert contents(work) == before
    assert not places_of_sets()
    await opened.soul.run("Go on.")
    await opened.soul.aclose()


@pytest.mark.exhaustive
async def test_another_program_in_the_folder_is_not_in_the_way(stage: tuple[Path, Launch]) -> None:
    work, launch = stage
    process, pids = await begun(work, ["do wait"], PHASES["a command runs"])
    # Its start sweeps what killed programs have left, and has a session of its own.
    other = await open_session(launch)
    await other.soul.run("do alpha")
    await asyncio.to_thread(sweep, os.environ)
    assert (work / "alpha.txt").exists()
    assert places_of_sets()
    for pid in pids:
        os.kill(pid, signal.SIGTERM)
    assert process.stdout is not None
    lines = (await asyncio.to_thread(process.stdout.read)).splitlines()
    await asyncio.to_thread(process.wait)
    process.stdout.close()
    last: Seen = json.loads(lines[-1])
    assert last[1] == "stopped"
    assert last[4] > 0
    assert not (work / "wait.txt").exists()
    await other.soul.aclose()

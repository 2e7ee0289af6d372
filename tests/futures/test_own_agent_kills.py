"""Kills while sub-agents of futures work, and at each point of their way into the session: none is lost, doubled or without its steps."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any, Literal

import pytest
from support.chat_server import ChatServer

from kimi_tui.futures import own_agents
from kimi_tui.futures.running import Futures
from kimi_tui.futures.values import FuturesPlan, Variant
from kimi_tui.launch import Launch
from kimi_tui.soul.opening import open_session
from kimi_tui.soul.rewind_values import END, Target

from .conftest import Scene, contents, scene_in
from .test_kills import (
    NEEDS_PROC,
    nothing_half_made,
    nothing_lies_about,
    nothing_runs,
    processes_of,
)
from .test_own_agents import act, cards, cards_of_line, said_by

pytestmark = [pytest.mark.exhaustive, pytest.mark.timeout(300), NEEDS_PROC]

PROGRAM = """
import asyncio, json, os, signal, sys
from kimi_tui.futures.running import Futures
from kimi_tui.futures.values import FuturesPlan, Variant
from kimi_tui.launch import Options, launch_of
from kimi_tui.soul.opening import open_session
from kimi_tui.soul.rewind_values import END, Target
from kimi_tui.wire import events as ev
{patch}
def told(*facts):
    print(json.dumps(facts), flush=True)

async def main():
    launch = launch_of(Options(work_dir=sys.argv[1], newest=True, mode="sandboxed"))
    soul = (await open_session(launch)).soul
    await soul.files_ready()
    futures = Futures(soul, launch)
    def wake(key):
        told("future", futures.state(key).state, futures.process_id(key))
    futures.subscribe(wake)
    keys = await futures.start(FuturesPlan(Target(END), (Variant("use alpha beta"), Variant("use beta"))))
    async def follow(key):
        async for record in futures.wire(key).subscribe():
            if isinstance(one := record.event, ev.AgentChanged):
                told(one.name, one.state, one.calls)
            elif isinstance(record.event, ev.ToolResult):
                told("result")
    for key in keys:
        asyncio.create_task(follow(key))
    await futures.ended()
    await soul.aclose()

asyncio.run(main())
"""
Told = list[Any]
PHASES: dict[str, Callable[[Told], bool]] = {
    "waiting": lambda told: told[:2] == ["general-101", "waiting"],
    "working": lambda told: told[:2] == ["general-101", "working"],
    "its first call": lambda told: told == ["general-101", "working", 1],
    "its command": lambda told: told == ["general-101", "working", 2],
    "one is done": lambda told: told[:2] == ["general-101", "done"],
    "the other works": lambda told: told == ["general-102", "working", 1],
    "its result": lambda told: told == ["result"],
}
_AROUND = """
import {module} as module
inner = module.{name}
n = 0
def around(*args, **facts):
    global n
    n += 1
    if n == {number} and {before}:
        os.kill(os.getpid(), signal.SIGKILL)
    found = inner(*args, **facts)
    if n == {number}:
        os.kill(os.getpid(), signal.SIGKILL)
    return found
module.{name} = around
"""


def _around(module: str, name: str, *, before: bool = False, number: int = 1) -> str:
    facts = {"module": f"kimi_tui.{module}", "name": name, "before": before, "number": number}
    return _AROUND.format(**facts)


PATCHES = {
    "the line is named": _around("futures.world_line", "_named"),
    "the line is there": _around("futures.world_line", "_carried_over"),
    "a state is written": _around("futures.own_agents", "_rewrite"),
    "one is moved": _around("futures.own_agents", "_rewrite", before=True, number=2),
    "all are moved": _around("futures.world_line", "_carried_agents"),
    "the snapshots are there": _around("futures.world_line", "_added", before=True),
    "the session of the future is to be removed": _around(
        "futures.world_line", "remove_tree", before=True
    ),
}


@pytest.fixture
async def stage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncGenerator[tuple[Path, Launch, ChatServer]]:
    """A stored session of one turn that no program has open."""
    async with scene_in(tmp_path, monkeypatch, act) as one:
        await one.soul.aclose()
        yield one.work, one.launch, one.server


def started(work: Path, patch: str) -> subprocess.Popen[str]:
    """Start a program with two futures that have sub-agents."""
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM.replace("{patch}", patch), str(work)],
        stdout=subprocess.PIPE,
        text=True,
    )


async def run_until(
    work: Path, holds: Callable[[Told], bool] | None, patch: str = ""
) -> tuple[subprocess.Popen[str], list[int]]:
    """Run the program until it tells something, or kills itself; return it, and the processes of its futures."""
    process = started(work, patch)
    pids: set[int] = set()

    def read() -> bool:
        assert process.stdout is not None
        for line in process.stdout:
            told: Told = json.loads(line)
            if told[0] == "future":
                pids.update({told[2]} - {0})
            elif holds is not None and holds(told):
                return True
        return holds is None

    assert await asyncio.to_thread(read), "the phase was not reached"
    return process, sorted(pids)


async def looks_right(work: Path, launch: Launch, server: ChatServer, before: str) -> list[str]:
    """Open the session again, look at each future that was kept, and let it go on; return the states of all sub-agents before that."""
    opened = await open_session(launch._replace(resume="newest"))
    soul = opened.soul
    scene = Scene(
        work, Path(os.environ["KIMI_TUI_HOME"]), server, launch, soul, Futures(soul, launch)
    )
    try:
        for one in list(soul.before_close):
            await one()
        await nothing_half_made(soul.session.dir.parent)
        await nothing_lies_about()
        assert contents(work) == before
        agents = [] if soul.agents is None else list(soul.agents.states)
        assert len({one.key for one in agents}) == len(agents)
        for state in [one for one in scene.futures.states if one.world_line]:
            shown = await cards_of_line(scene, state.world_line)
            assert not {"waiting", "working"} & set(shown.values())
            await scene.futures.make_current(state.key)
            assert await cards(scene) == shown
            assert await soul.resume() == "done"
            said = await cards(scene)
            for name, how in shown.items():
                assert said[name] == ("done" if how == "paused" else how)
                if said[name] == "done":
                    assert (await said_by(scene, name))[-1].startswith("I did ")
            await soul.travel.rewind(Target(0), "restore")
            assert contents(work) == before
        return sorted(one.state for one in agents)
    finally:
        await soul.aclose()


@pytest.mark.parametrize("killed", ["program", "future", "all"])
@pytest.mark.parametrize("phase", PHASES)
async def test_a_kill_while_they_work(
    stage: tuple[Path, Launch, ChatServer],
    phase: str,
    killed: Literal["program", "future", "all"],
) -> None:
    work, launch, server = stage
    before = contents(work)
    process, pids = await run_until(work, PHASES[phase])
    victims = {
        "program": [process.pid],
        "future": pids[:1],
        "all": [process.pid, *processes_of(work)],
    }
    for pid in victims[killed]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    assert process.stdout is not None
    await asyncio.to_thread(process.stdout.read)
    await asyncio.to_thread(process.wait)
    process.stdout.close()
    await nothing_runs(work)
    states = await looks_right(work, launch, server, before)
    if phase in ("one is done", "its result"):
        assert "done" in states
    if phase not in ("waiting", "working"):
        assert states


@pytest.mark.parametrize("phase", PATCHES)
async def test_a_kill_on_their_way_into_the_session(
    stage: tuple[Path, Launch, ChatServer], phase: str
) -> None:
    work, launch, server = stage
    before = contents(work)
    process, _ = await run_until(work, None, PATCHES[phase])
    assert await asyncio.to_thread(process.wait) == -signal.SIGKILL
    assert process.stdout is not None
    process.stdout.close()
    await nothing_runs(work)
    states = await looks_right(work, launch, server, before)
    # The other future may have been at work still.
    assert states.count("done") >= 1


async def test_a_full_disk_on_their_way_keeps_them_for_the_next_start(
    stage: tuple[Path, Launch, ChatServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    work, launch, server = stage
    before = contents(work)
    opened = await open_session(launch._replace(resume="newest"))
    futures = Futures(opened.soul, launch)
    rewrite, n = own_agents._rewrite, 0

    def full(*args: Any) -> None:
        nonlocal n
        n += 1
        if n > 1:
            raise OSError(28, "No space left on device")
        rewrite(*args)

    with monkeypatch.context() as patched:
        patched.setattr(own_agents, "_rewrite", full)
        (key,) = await futures.start(FuturesPlan(Target(END), (Variant("use alpha beta"),)))
        await futures.ended()
    assert "No space left" in futures.state(key).why
    await opened.soul.aclose()
    assert await looks_right(work, launch, server, before) == ["done", "done"]


async def test_names_that_the_session_has_given_meanwhile_are_left_to_it(
    stage: tuple[Path, Launch, ChatServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    # So it is with the future of an earlier version, whose sub-agents count from one.
    work, launch, _ = stage
    opened = await open_session(launch._replace(resume="newest"))
    soul = opened.soul
    futures = Futures(soul, launch)
    monkeypatch.setattr(futures, "_next_first_agent", lambda: 1)
    (key,) = await futures.start(FuturesPlan(Target(END), (Variant("use alpha beta"),)))
    await soul.run("use beta")
    await futures.ended()
    scene = Scene(work, work, stage[2], launch, soul, futures)
    assert await cards_of_line(scene, futures.state(key).world_line) == {
        "general-2": "done",
        "general-3": "done",
    }
    assert await cards(scene) == {"general-1": "done"}
    assert (await said_by(scene, "general-3"))[-1].startswith("I did ")
    await soul.aclose()

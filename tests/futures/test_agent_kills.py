"""Kills of the program, of a sub-agent's process, and of all, while two sub-agents write at the same time: nothing that they had finished
is lost, they go on, a rewind past their cards restores the folder, and nothing is left lying about.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest
from support.chat_server import ChatServer, strict

from kimi_tui.launch import Options, launch_of
from kimi_tui.soul.opening import open_session
from kimi_tui.soul.rewind_values import Target
from kimi_tui.tools.past_command import sweep

from . import test_agents
from .conftest import contents, make_files, set_environment
from .test_kills import nothing_lies_about, nothing_runs, processes_of

pytestmark = [pytest.mark.exhaustive, pytest.mark.timeout(300)]

PROGRAM = """
import os, signal, sys
from kimi_tui.cli import main
{patch}
sys.exit(main(["-p", "do both", "--mode", "sandboxed", "--output-format", "stream-json"]))
"""
Line = dict[str, Any]


def _of(line: Line, kind: str, **facts: object) -> bool:
    return line["type"] == kind and all(line.get(name) == value for name, value in facts.items())


PHASES: dict[str, Callable[[Line], bool]] = {
    "called": lambda line: _of(line, "ToolCall", name="Agent"),
    "copying": lambda line: _of(line, "AgentChanged", state="waiting"),
    "begun": lambda line: _of(line, "AgentChanged", state="working"),
    "its first message": lambda line: _of(line, "CheckpointCreated", source="general-1"),
    "its first call": lambda line: _of(line, "ToolCall", source="general-1"),
    "its first file": lambda line: _of(line, "ToolResult", source="general-1"),
    "its command": lambda line: _of(line, "AgentChanged", name="general-2", calls=2),
    "its last answer": lambda line: _of(line, "TurnEnd", source="general-1"),
    "the first ended": lambda line: _of(line, "AgentChanged", state="done"),
    "its result": lambda line: _of(line, "ToolResult", source=""),
}
PATCHES = {
    "applying": """
from kimi_tui.workspace import restore
carry_out = restore.carry_out
def killed(root, store, changes):
    if changes:
        carry_out(root, store, changes[:2])
        os.kill(os.getpid(), signal.SIGKILL)
    return carry_out(root, store, changes)
restore.carry_out = killed
""",
    "applied": """
from kimi_tui.workspace.snapshots import SnapshotLog
add_all = SnapshotLog.add_all
def killed(self, records):
    add_all(self, records)
    os.kill(os.getpid(), signal.SIGKILL)
SnapshotLog.add_all = killed
""",
    "the second applied": """
from kimi_tui.workspace.snapshots import SnapshotLog
add_all = SnapshotLog.add_all
def killed(self, records):
    add_all(self, records)
    if any(getattr(one, "agent", "") == "general-2" for one in records):
        os.kill(os.getpid(), signal.SIGKILL)
SnapshotLog.add_all = killed
""",
}


async def until(program: asyncio.subprocess.Process, holds: Callable[[Line], bool] | None) -> None:
    """Read what a program tells until a line is as wanted, or it ends."""
    assert program.stdout is not None
    async with asyncio.timeout(150):
        async for data in program.stdout:
            if holds is not None and holds(json.loads(data)):
                return
    if holds is not None:
        pytest.fail("the phase was not reached")


def engines_of(work: Path) -> list[int]:
    """Return the processes of sub-agents, and the one from which they are forked."""
    found: list[int] = []
    for pid in processes_of(work):
        with contextlib.suppress(OSError):
            if b"start_server" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
    return found


async def looks_right(work: Path, before: str, server: ChatServer) -> None:
    """Open the session again, let it go on, and go back to before everything."""
    launch = launch_of(Options(work_dir=str(work), newest=True, mode="sandboxed"))
    soul = (await open_session(launch)).soul
    try:
        states = [] if soul.agents is None else [one.state for one in soul.agents.states]
        assert not {"waiting", "working", "asking"} & set(states)
        assert await soul.resume() == "done"
        if soul.agents is not None:
            ended = [one.state for one in soul.agents.states]
            assert set(ended) <= {"done", "stopped", "failed"}
            if set(states) == {"paused"} and len(states) == 2:
                assert ended == ["done", "done"]
        await soul.files_ready()
        for folder in (soul.session.dir / "subagents").glob("*"):
            assert not (folder / "files").exists()
        await soul.travel.rewind(Target(0), "restore")
        assert contents(work) == before
    finally:
        await soul.aclose()
    assert not [one for one in server.requests if strict(one) is not None]
    await nothing_runs(work)
    await asyncio.to_thread(sweep, os.environ)
    await nothing_lies_about()


@pytest.mark.parametrize("whom", ["program", "all"])
@pytest.mark.parametrize("phase", [*PHASES, *PATCHES])
async def test_a_kill_of_the_program_in_each_phase(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, phase: str, whom: Literal["program", "all"]
) -> None:
    work = tmp_path / "work"
    make_files(work)
    before = contents(work)
    test_agents.TASKS[:] = [["alpha", "beta"]]
    async with ChatServer(check=test_agents.act) as server:
        set_environment(monkeypatch, tmp_path, server.base_url)
        program = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            PROGRAM.format(patch=PATCHES.get(phase, "")),
            cwd=work,
            stdout=asyncio.subprocess.PIPE,
            limit=1 << 24,
        )
        others: list[int] = []
        try:
            await until(program, PHASES.get(phase))
        finally:
            others = processes_of(work) if whom == "all" else []
            for pid in {program.pid, *others}:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            await program.wait()
        await looks_right(work, before, server)


@pytest.mark.parametrize("phase", ["begun", "its first file", "its command"])
async def test_a_kill_of_one_process_ends_that_one_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, phase: str
) -> None:
    work = tmp_path / "work"
    make_files(work)
    before = contents(work)
    test_agents.TASKS[:] = [["alpha", "beta"]]
    async with ChatServer(check=test_agents.act) as server:
        set_environment(monkeypatch, tmp_path, server.base_url)
        program = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            PROGRAM.format(patch=""),
            cwd=work,
            stdout=asyncio.subprocess.PIPE,
            limit=1 << 24,
        )
        await until(program, PHASES[phase])
        # The youngest of the engine's processes is that of a sub-agent.
        engines = await asyncio.to_thread(engines_of, work)
        os.kill(max(engines), signal.SIGKILL)
        await until(program, None)
        assert await program.wait() == 0
        await looks_right(work, before, server)

"""Kills of the program, of a sub-agent's process, and of all, while two sub-agents write at the same time: nothing that they had finished
is lost, they go on, a rewind past their cards restores the folder, and nothing is left lying about.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Literal

import pytest
from support import agent_kills
from support.agent_kills import kill, program, tells, until
from support.chat_server import ChatServer, strict

from kimi_tui.launch import Options, launch_of
from kimi_tui.soul.opening import open_session
from kimi_tui.soul.rewind_values import Target
from kimi_tui.tools.past_command import sweep

from . import test_agents
from .conftest import contents, make_files, set_environment
from .test_kills import nothing_lies_about, nothing_runs, processes_of

pytestmark = [pytest.mark.exhaustive, pytest.mark.timeout(300)]

PHASES = {
    **agent_kills.PHASES,
    "its command": lambda line: tells(line, "AgentChanged", name="general-2", calls=2),
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


@pytest.fixture
async def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[ChatServer]:
    """A model that has two sub-agents write at once, and the work folder of the program."""
    make_files(tmp_path / "work")
    test_agents.TASKS[:] = [["alpha", "beta"]]
    async with ChatServer(check=test_agents.act) as found:
        set_environment(monkeypatch, tmp_path, found.base_url)
        yield found


@pytest.mark.parametrize("whom", ["program", "all"])
@pytest.mark.parametrize("phase", [*PHASES, *PATCHES])
async def test_a_kill_of_the_program_in_each_phase(
    tmp_path: Path, server: ChatServer, phase: str, whom: Literal["program", "all"]
) -> None:
    work = tmp_path / "work"
    before = contents(work)
    async with program(work, "do both", "sandboxed", PATCHES.get(phase, "")) as started:
        await until(started, PHASES.get(phase))
        kill({started.pid, *(processes_of(work) if whom == "all" else ())})
    await looks_right(work, before, server)


@pytest.mark.parametrize("phase", ["begun", "its first file", "its command"])
async def test_a_kill_of_one_process_ends_that_one_alone(
    tmp_path: Path, server: ChatServer, phase: str
) -> None:
    work = tmp_path / "work"
    before = contents(work)
    async with program(work, "do both", "sandboxed") as started:
        await until(started, PHASES[phase])
        # The youngest of the engine's processes is that of a sub-agent.
        kill([max(await asyncio.to_thread(engines_of, work))])
        await until(started, None)
        assert await started.wait() == 0
        await looks_right(work, before, server)


async def test_opening_and_closing_the_session_brings_nothing_into_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = tmp_path / "work"
    make_files(work)
    before = contents(work)
    test_agents.TASKS[:] = [["alpha", "beta"]]
    async with ChatServer(check=test_agents.act) as server:
        set_environment(monkeypatch, tmp_path, server.base_url)
        async with program(work, "do both", "sandboxed") as started:
            await until(started, PHASES["its command"])
        await nothing_runs(work)
        launch = launch_of(Options(work_dir=str(work), newest=True, mode="sandboxed"))
        soul = (await open_session(launch)).soul
        await soul.files_ready()
        await soul.aclose()
        assert contents(work) == before
        await looks_right(work, before, server)

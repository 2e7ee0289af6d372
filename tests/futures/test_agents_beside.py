"""Sub-agents in copies beside the rest of a session: its time travel, D-Mails, limits, hooks, MCP servers, stops, and its next start."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.mcp_session import configure, entry
from support.soul import until_end

from kimi_tui.soul.agents_part import AgentsPart
from kimi_tui.soul.errors import SoulError
from kimi_tui.soul.rewind_values import Target

from .conftest import Scene, contents
from .test_agents import MAILS, TASKS, asking, closed, results, scene_in, working
from .test_agents import scene as scene  # pytest finds the fixture by its name here

pytestmark = pytest.mark.exhaustive


def agents_of(scene: Scene) -> AgentsPart:
    assert scene.soul.agents is not None
    return scene.soul.agents


def states(scene: Scene) -> list[str]:
    return [one.state for one in agents_of(scene).states]


async def became(holds: Callable[[], bool]) -> None:
    """Wait for what comes behind a turn and no event tells."""
    async with asyncio.timeout(30):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.05)


# -- time travel -------------------------------------------------------------------------------------


async def test_undo_and_redo_of_rewinds_over_two_turns_with_two_each(scene: Scene) -> None:
    work, soul, travel = scene.work, scene.soul, scene.soul.travel
    at = [contents(work)]
    begins: list[int] = []
    for tasks in (["alpha", "beta"], ["slow", "clash"]):
        TASKS.append(tasks)
        begins.append(len(soul.session.context.checkpoints))
        assert await soul.run("do both") == "done"
        at.append(contents(work))
    assert len(set(at)) == 3
    for place in (0, 1):
        await travel.rewind(Target(begins[place]), "restore")
        assert contents(work) == at[place]
        for _ in range(2):
            await travel.undo()
            assert contents(work) == at[2]
            assert states(scene) == ["done"] * 4
            await travel.redo()
            assert contents(work) == at[place]
        await travel.undo()
        assert contents(work) == at[2]
    again = await _restarted(scene)
    assert states(again) == ["done"] * 4
    await again.soul.travel.redo()
    assert contents(work) == at[1]
    await again.soul.travel.undo()
    assert contents(work) == at[2]
    assert states(again) == ["done"] * 4
    await again.soul.aclose()


async def _restarted(scene: Scene) -> Scene:
    """Close the session and open it again."""
    await scene.soul.aclose()
    again = await scene.again()
    await again.soul.files_ready()
    return again


async def test_a_dmail_folds_the_step_with_their_cards_and_its_undo_brings_it_back(
    scene: Scene,
) -> None:
    work, soul = scene.work, scene.soul
    before = contents(work)
    TASKS.append(["alpha", "beta"])
    MAILS.append("both are done")
    assert await soul.run("do both") == "done"
    after = contents(work)
    assert before != after
    assert results(scene) == []
    assert "both are done" in json.dumps(scene.server.requests[-1].messages)
    assert "I did alpha" not in json.dumps(scene.server.requests[-1].messages)
    assert states(scene) == ["done", "done"]
    await soul.travel.undo()
    assert ["I did alpha." in one for one in results(scene)][:2] == [True, False]
    assert contents(work) == after
    await soul.travel.redo()
    assert results(scene) == []
    assert contents(work) == after
    await soul.travel.rewind(Target(0), "restore")
    assert contents(work) == before
    await soul.travel.undo()
    assert contents(work) == after
    await closed(scene)


# -- limits, hooks and servers -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "most", "why"),
    [
        ("[agents]\nsteps = 1\n", 0, "step"),
        ("[agents]\ntokens = 1000\n", 0, "token"),
        ("", 2300, "token"),
    ],
    ids=["steps", "tokens", "the session's tokens"],
)
async def test_limits_end_each_of_them_and_what_they_did_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: str, most: int, why: str
) -> None:
    async with scene_in(tmp_path, monkeypatch, config, max_tokens=most) as scene:
        before = contents(scene.work)
        TASKS.append(["alpha", "beta"])
        await until_end(asyncio.ensure_future(scene.soul.run("do both")))
        await scene.soul.files_ready()
        found = agents_of(scene).states
        assert [one.state for one in found] == ["failed", "failed"]
        assert all(why in one.why for one in found), [one.why for one in found]
        assert all(one.is_future for one in found)
        assert (scene.work / "alpha.md").exists()
        assert (scene.work / "beta.md").exists()
        assert not (scene.work / "binary").exists() or most
        await scene.soul.travel.rewind(Target(0), "restore")
        assert contents(scene.work) == before
        await closed(scene)


async def test_a_hook_refuses_in_a_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = '[[hooks]]\nevent = "PreToolUse"\nmatcher = "Shell"\ncommand = "echo not here >&2; exit 2"\n'
    async with scene_in(tmp_path, monkeypatch, config) as scene:
        TASKS.append(["alpha", "beta"])
        assert await scene.soul.run("do both") == "done"
        assert [one.is_future for one in agents_of(scene).states] == [True, True]
        assert states(scene) == ["done", "done"]
        assert (scene.work / "alpha.md").exists()
        assert (scene.work / "beta.md").exists()
        assert not (scene.work / "new").exists()
        assert not (scene.work / "binary").exists()
        told = [json.dumps(one.messages) for one in scene.server.requests]
        assert sum("Not run: the hook" in one and "not here" in one for one in told) == 2


async def test_an_mcp_server_works_in_the_files_of_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(tmp_path / "home" / "mcp.json", made=entry())
    async with scene_in(tmp_path, monkeypatch) as scene:
        soul, work = scene.soul, scene.work
        turn, asked = await asking(scene, ["serve", "alpha"])
        assert asked.agent == "general-1"
        # What the other one does is no answer to this one.
        assert not (work / "served.txt").exists()
        soul.answer(asked.id, "once")
        assert await turn == "done"
        assert states(scene) == ["done", "done"]
        assert [one.is_future for one in agents_of(scene).states] == [True, True]
        assert (work / "served.txt").read_text() == "written by the server\n"
        await soul.travel.rewind(Target(0), "restore")
        assert not (work / "served.txt").exists()
        await closed(scene)


# -- stops -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("then", ["go on", "message", "restart"])
async def test_two_stops_while_both_work(scene: Scene, then: str) -> None:
    """The first Esc stops the sub-agents, the second the turn, before they have ended."""
    work, soul = scene.work, scene.soul
    before = contents(work)
    turn = await working(scene, ["wait", "wait"], "general-1", "general-2")
    stopping = asyncio.create_task(agents_of(scene).stop_all())
    await asyncio.sleep(0)
    await soul.interrupt()
    await until_end(turn)
    await stopping
    await became(lambda: (work / "wait.md").exists() and not soul.running)
    assert states(scene) == ["stopped", "stopped"]
    assert {one.why for one in agents_of(scene).states} == {"You stopped it."}
    if then == "restart":
        scene = await _restarted(scene)
        assert states(scene) == ["stopped", "stopped"]
    if then == "message":
        TASKS.append(["alpha", "beta"])
        assert await scene.soul.run("another") == "done"
        assert states(scene) == ["stopped", "stopped", "done", "done"]
        assert (work / "new" / "alpha").exists()
    else:
        assert await scene.soul.resume() == "done"
        assert states(scene) == ["stopped", "stopped"]
    assert (work / "wait.md").read_text() == "wait"
    await scene.soul.travel.rewind(Target(0), "restore")
    assert contents(work) == before
    await closed(scene)
    if then == "restart":
        await scene.soul.aclose()


async def test_one_that_has_ended_waits_for_an_earlier_one_and_says_so(scene: Scene) -> None:
    soul = scene.soul
    turn, asked = await asking(scene, ["ask", "alpha"])
    agents = agents_of(scene)
    await became(lambda: "has ended" in agents.state("general-2").why)
    waits = agents.state("general-2")
    assert (waits.state, waits.doing) == ("waiting", "")
    assert waits.why.startswith("It has ended. Its file changes are applied after")
    # A message would never be read.
    with pytest.raises(SoulError, match="general-2 has ended"):
        agents.steer("general-2", "more")
    soul.answer(asked.id, "once")
    assert await turn == "done"
    assert [(one.state, one.why) for one in agents.states] == [("done", ""), ("done", "")]


PROCESS = """
import asyncio, os, sys
from kimi_tui.futures import child
from kimi_tui.futures.agent_child import main
from kimi_tui.soul.attachments import Attachments

# The message arrives after the session was opened, and before the turn has begun.
held = asyncio.Event()
check, carry_out = Attachments.check_and_store, child.FutureChild._carry_out
async def checked(self, *given):
    os.write(2, b"held\\n")
    await held.wait()
    await check(self, *given)
async def carried_out(self, line):
    await carry_out(self, line)
    held.set()
Attachments.check_and_store, child.FutureChild._carry_out = checked, carried_out
sys.exit(main())
"""


@pytest.mark.parametrize("message", [{"type": "close"}, {"type": "limit", "text": "Too much."}])
async def test_a_stop_just_before_the_turn_begins_ends_the_process(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, message: dict[str, Any]
) -> None:
    from kimi_tui.futures import process

    orders: list[Any] = []
    ran = process.FutureProcess.run

    async def noted(self: process.FutureProcess, order: Any) -> str:
        orders.append(order)
        return await ran(self, order)

    monkeypatch.setattr(process.FutureProcess, "run", noted)
    TASKS.append(["alpha", "beta"])
    assert await scene.soul.run("do both") == "done"
    n_before = len(scene.server.requests)
    started = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        PROCESS,
        cwd=scene.work,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        limit=1 << 24,
    )
    assert started.stdin is not None
    assert started.stdout is not None
    assert started.stderr is not None
    order = orders[0]._replace(message="Again.", variables={})._asdict()
    started.stdin.write(json.dumps(order).encode() + b"\n")
    try:
        async with asyncio.timeout(60):
            while (line := await started.stderr.readline()) != b"held\n":
                assert line
            # Standard input stays open: only the message ends it.
            started.stdin.write(json.dumps(message).encode() + b"\n")
            told = [json.loads(line) async for line in started.stdout]
            assert await started.wait() == 0
    finally:
        if started.returncode is None:
            started.kill()
            await started.wait()
    (ended,) = [one["ended"] for one in told if "ended" in one]
    assert (ended["reason"], ended["limit"]) == ("interrupted", message.get("text", ""))
    assert len(scene.server.requests) == n_before

"""Sub-agents that futures have started themselves: they come into the session with the world line, and go on there."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from support.chat_server import Answer, Request, call, calls, say, strict
from support.soul import next_event

from kimi_tui.futures.running import Futures
from kimi_tui.futures.values import FuturesPlan, Variant
from kimi_tui.projection.blocks import ToolBlock
from kimi_tui.projection.session_model import SessionModel
from kimi_tui.projection.subagents import with_agents
from kimi_tui.soul.rewind_values import END, Target
from kimi_tui.wire import events as ev

from .conftest import Scene, contents, scene_in
from .test_running import until

SUMMARY = "Begin with what was done."
COMMANDS = {
    "alpha": "echo alpha >> src/f1.py",
    "beta": "rm src/f2.py",
    "wait": "touch waiting; sleep 60",
    "ask": "true",
}


def act(request: Request) -> Answer:
    """A model that is told `use WORD WORD …`, and has a sub-agent do each of the words: it writes a file, runs a command and says so."""
    if (refused := strict(request)) is not None:
        return refused
    messages = request.messages
    texts = [json.dumps(one["content"]) for one in messages if one["role"] == "user"]
    if "You are a sub-agent" in str(messages[0]["content"]):
        word = next(one for one in COMMANDS if f"do {one}" in " ".join(texts))
        done = sum(message["role"] == "tool" for message in messages)
        if done == 0:
            return call("WriteFile", {"path": f"{word}.md", "content": word}, usage=(1000, 20))
        if done == 1:
            more: dict[str, Any] = {"sandbox": "off", "why": "Ask."} if word == "ask" else {}
            return call("Shell", {"command": COMMANDS[word], **more}, usage=(1100, 20))
        return say(f"I did {word}.", usage=(1200, 10))
    if "It is data to summarise" in texts[-1]:
        return say(SUMMARY, usage=(100, 50))
    told = [
        found[1] for one in texts if (found := re.search(r"(use [a-z ]+|on\.|hello|much)", one))
    ]
    words = [one for one in told[-1].split() if one in COMMANDS]
    if "mail" in told[-1] and messages[-1]["role"] == "tool" and "It is done." not in texts[-1]:
        return call("SendDMail", {"message": "It is done.", "checkpoint_id": 3})
    if "It is done." in texts[-1]:
        words = []
    if "much" in told[-1] and messages[-1]["role"] == "user":
        return say("Much is said here. " * 1500, usage=(100, 5))
    if messages[-1]["role"] == "tool" or not words:
        return say("All is done.", usage=(100, 5))
    return calls(
        [
            ("Agent", {"description": one, "prompt": f"do {one}", "kind": "general"})
            for one in words
        ],
        usage=(15_500 if "full" in told[-1] else 100, 5),
    )


@pytest.fixture
async def scene(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncGenerator[Scene]:
    async with scene_in(tmp_path, monkeypatch, act, window=getattr(request, "param", "")) as one:
        yield one


def plan(*messages: str) -> FuturesPlan:
    return FuturesPlan(Target(END), tuple(map(Variant, messages)))


async def cards(scene: Scene) -> dict[str, str]:
    """The sub-agents on the cards of the chat, with their states."""
    model = SessionModel()
    for record in await scene.soul.history():
        model.apply(record)
    blocks = [one for one in model.chat.blocks if isinstance(one, ToolBlock)]
    return {one.agent.name: one.agent.state for one in blocks if one.agent is not None}


async def cards_of_line(scene: Scene, world_line: int) -> dict[str, str]:
    """The sub-agents on the cards of another world line, with their states."""
    assert scene.soul.agents is not None
    model = SessionModel()
    records = await scene.soul.lines.read(world_line)
    for record in with_agents(records, scene.soul.agents.states):
        model.apply(record)
    blocks = [one for one in model.chat.blocks if isinstance(one, ToolBlock)]
    return {one.agent.name: one.agent.state for one in blocks if one.agent is not None}


async def said_by(scene: Scene, name: str) -> list[str]:
    """What a sub-agent has said, by its transcript."""
    assert scene.soul.agents is not None
    history, subscription = await scene.soul.agents.listen(name)
    await scene.soul.agents.unlisten(name, subscription)
    return [one.event.text for one in history if isinstance(one.event, ev.TextPart)]


async def test_a_sub_agent_of_a_future_comes_with_its_world_line(scene: Scene) -> None:
    futures, soul = scene.futures, scene.soul
    (key,) = await futures.start(plan("use alpha"))
    await soul.run("use beta")
    await futures.ended()
    assert await cards(scene) == {"general-1": "done"}
    assert await cards_of_line(scene, futures.state(key).world_line) == {"general-101": "done"}
    await futures.make_current(key)
    assert await cards(scene) == {"general-101": "done"}
    assert await said_by(scene, "general-101") == ["I did alpha."]
    assert scene.left() == []


@pytest.mark.exhaustive
async def test_each_step_of_them_can_be_gone_back_to_also_at_the_next_start(scene: Scene) -> None:
    futures, soul, work = scene.futures, scene.soul, scene.work
    await soul.run("use alpha")
    before = contents(work)
    first, second = await futures.start(plan("use alpha beta", "use beta"))
    await soul.run("use beta")
    after = contents(work)
    await futures.ended()
    assert soul.agents is not None
    names = ("general-1", "general-2", "general-101", "general-102", "general-201")
    assert {one.name for one in soul.agents.states} == {*names}
    assert {one.number for one in soul.agents.states} == {1, 2, 3, 4, 5}
    assert {one.state for one in soul.agents.states} == {"done"}
    assert await cards(scene) == {"general-1": "done", "general-2": "done"}
    of_first = {"general-1": "done", "general-101": "done", "general-102": "done"}
    assert await cards_of_line(scene, futures.state(first).world_line) == of_first
    assert await said_by(scene, "general-102") == ["I did beta."]

    # Made current, its sub-agents are on the cards, and each of their steps can be gone back to, with its files.
    await futures.make_current(first)
    assert await cards(scene) == of_first
    points = [
        one.event
        for one in (await soul.agents.listen("general-101"))[0]
        if isinstance(one.event, ev.CheckpointCreated)
    ]
    assert (work / "src" / "f1.py").read_text().count("alpha") == 2
    await soul.agents.rewind("general-101", Target(points[-2].id), "restore")
    assert (work / "src" / "f1.py").read_text().count("alpha") == 1
    assert await soul.resume() == "done"
    assert (work / "src" / "f1.py").read_text().count("alpha") == 2
    for _ in range(2):
        await soul.travel.undo()
    assert contents(work) == after
    assert await cards(scene) == {"general-1": "done", "general-2": "done"}

    # All of it is there at the next start, and nothing else.
    await soul.aclose()
    again = await scene.again()
    assert again.soul.agents is not None
    # The later one of the two began anew after the rewind.
    assert len(again.soul.agents.states) == 6
    assert await cards_of_line(again, futures.state(second).world_line) == {
        "general-1": "done",
        "general-201": "done",
    }
    assert again.left() == []
    # The next set has names of its own.
    await again.soul.files_ready()
    await again.soul.travel.rewind(Target(0), "restore")
    (third,) = await again.futures.start(plan("use alpha"))
    await again.futures.ended()
    assert "general-301" in await cards_of_line(again, again.futures.state(third).world_line)
    await again.soul.aclose()
    assert before != after


@pytest.mark.exhaustive
async def test_a_paused_sub_agent_goes_on_in_each_future_as_another_one(scene: Scene) -> None:
    futures, soul = scene.futures, scene.soul
    await soul.run("use alpha")
    assert soul.agents is not None
    history, subscription = await soul.agents.listen("general-1")
    await soul.agents.unlisten("general-1", subscription)
    points = [one.event for one in history if isinstance(one.event, ev.CheckpointCreated)]
    await soul.agents.rewind("general-1", Target(points[-2].id), "restore")
    assert await cards(scene) == {"general-1": "paused"}
    one, other = await futures.start(plan("Go on.", "And on."))
    await futures.ended()
    assert await cards(scene) == {"general-1": "paused"}
    assert [one.state for one in soul.agents.states] == ["paused", "done", "done"]
    await futures.make_current(one)
    assert await cards(scene) == {"general-101": "done"}
    await futures.make_current(other)
    assert await cards(scene) == {"general-201": "done"}
    assert (await said_by(scene, "general-201"))[-1] == "I did alpha."
    for _ in range(2):
        await soul.travel.undo()
    assert await cards(scene) == {"general-1": "paused"}
    assert await soul.resume() == "done"
    assert await cards(scene) == {"general-1": "done"}


@pytest.mark.exhaustive
async def test_a_future_that_is_stopped_while_its_sub_agent_works_keeps_it(scene: Scene) -> None:
    futures, soul = scene.futures, scene.soul
    (wait,) = await futures.start(plan("use wait"))
    await next_event(futures.wire(wait).subscribe(), ev.AgentChanged, lambda one: one.calls == 2)
    await futures.stop(wait)
    await futures.ended()
    await futures.make_current(wait)
    assert await cards(scene) == {"general-101": "stopped"}
    assert (scene.work / "wait.md").exists()
    assert await soul.run("Go on.") == "done"
    await soul.travel.rewind(Target(2), "restore")
    assert not (scene.work / "wait.md").exists()


@pytest.mark.exhaustive
async def test_two_of_a_future_ask_while_the_session_goes_back_and_another_future_is_taken(
    scene: Scene,
) -> None:
    futures, soul, work = scene.futures, scene.soul, scene.work
    before = contents(work)
    await soul.run("use beta")
    asks, done = await futures.start(plan("use ask ask", "use alpha"))
    await until(scene, done, lambda state: state.world_line > 0)
    await until(scene, asks, lambda state: state.state == "asking")
    # The session goes back to before the checkpoint with which both have begun, and on, while one asks.
    await soul.travel.rewind(Target(2), "restore")
    assert contents(work) == before
    await futures.make_current(done)
    assert await cards(scene) == {"general-1": "done", "general-201": "done"}
    assert (work / "alpha.md").exists()
    ((key, request),) = futures.asked
    assert (key, request.tool) == (asks, "Shell")
    assert request.agent == "general-101"
    futures.answer(asks, request.id, "once")
    await until(scene, asks, lambda state: state.state == "asking" and not is_(request, futures))
    await soul.travel.undo()
    await soul.run("use beta")
    ((_, second),) = futures.asked
    futures.answer(asks, second.id, "no")
    await futures.ended()
    assert futures.state(asks).state == "done"
    shown = await cards_of_line(scene, futures.state(asks).world_line)
    assert shown == {"general-1": "done", "general-101": "done", "general-102": "stopped"}
    await futures.make_current(asks)
    assert await cards(scene) == shown
    assert (await said_by(scene, "general-101"))[-1] == "I did ask."
    assert scene.left() == []


def is_(request: ev.ApprovalRequest, futures: Futures) -> bool:
    """Whether a request still waits."""
    return any(one.id == request.id for _, one in futures.asked)


@pytest.mark.exhaustive
async def test_what_a_future_left_by_a_dmail_has_its_sub_agents(scene: Scene) -> None:
    futures, soul = scene.futures, scene.soul
    (mails,) = await futures.start(plan("use mail alpha"))
    await futures.ended()
    state = futures.state(mails)
    assert state.state == "done", state
    lines = sorted(
        (await asyncio.to_thread(soul.session.world_lines.list, soul.session.context.world_line)),
        key=lambda one: one.n,
    )
    assert len(lines) == 2
    left = next(one.n for one in lines if one.n != state.world_line)
    assert await cards_of_line(scene, left) == {"general-101": "done"}
    await soul.travel.rewind(Target(END, left), "restore")
    assert await cards(scene) == {"general-101": "done"}
    assert (scene.work / "alpha.md").exists()
    await futures.make_current(mails)
    await soul.travel.undo()
    await soul.travel.undo()
    assert not (scene.work / "alpha.md").exists()


@pytest.mark.exhaustive
@pytest.mark.parametrize("scene", ["16000"], indirect=True)
async def test_what_a_future_left_by_a_compaction_has_its_sub_agents(scene: Scene) -> None:
    futures, soul = scene.futures, scene.soul
    await soul.run("Say much.")
    await soul.run("use beta")
    (full,) = await futures.start(plan("use full alpha"))
    await futures.ended()
    state = futures.state(full)
    lines = await asyncio.to_thread(soul.session.world_lines.list, soul.session.context.world_line)
    left = next(one.n for one in lines if one.n != state.world_line)
    shown = {"general-1": "done", "general-101": "done"}
    assert await cards_of_line(scene, left) == shown
    await futures.make_current(full)
    assert (scene.work / "alpha.md").exists()
    assert SUMMARY in str([one.text for one in soul.session.context.messages])
    await soul.travel.rewind(Target(END, left), "restore")
    assert await cards(scene) == shown
    assert (scene.work / "alpha.md").exists()
    for _ in range(2):
        await soul.travel.undo()
    assert not (scene.work / "alpha.md").exists()
    assert (scene.work / "beta.md").exists()


@pytest.mark.exhaustive
async def test_a_future_that_is_current_is_told_once_at_the_next_start(scene: Scene) -> None:
    futures, soul = scene.futures, scene.soul
    (key,) = await futures.start(plan("use alpha"))
    await soul.run("use beta")
    await futures.ended()
    await futures.make_current(key)
    await soul.aclose()
    for _ in range(2):
        scene = await scene.again()
        model = SessionModel()
        for record in await scene.soul.history():
            model.apply(record)
        states = [
            one.agent.name for one in model.chat.blocks if isinstance(one, ToolBlock) and one.agent
        ]
        assert states == ["general-101"]
        assert [one.id for one in model.timeline.path_of(0)] == [0, 1, 2, 3, 4]
        # The line that was left is the session's own.
        left = scene.futures.state(key).world_line + 1
        assert await cards_of_line(scene, left) == {"general-1": "done"}
        points = scene.soul.session.world_lines.read(left).checkpoints
        assert [one.uid for one in model.timeline.path_of(left)] == [one.uid for one in points]
        await scene.soul.aclose()

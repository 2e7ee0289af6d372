"""Sub-agents that futures have started themselves: they come into the session with the world line, and go on there."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from support.chat_server import Answer, ChatServer, Request, call, calls, say, strict
from support.soul import next_event

from kimi_tui.futures.running import Futures
from kimi_tui.futures.values import FuturesPlan, Variant
from kimi_tui.launch import Options, launch_of
from kimi_tui.projection.blocks import ToolBlock
from kimi_tui.projection.session_model import SessionModel
from kimi_tui.projection.subagents import with_agents
from kimi_tui.soul.opening import open_session
from kimi_tui.soul.rewind_values import END, Target
from kimi_tui.wire import events as ev

from .conftest import Scene, contents, make_files, set_environment

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
    told = [found[1] for one in texts if (found := re.search(r"(use [a-z ]+|on\.|hello)", one))]
    words = [one for one in told[-1].split() if one in COMMANDS]
    if messages[-1]["role"] == "tool" or not words:
        return say("All is done.", usage=(100, 5))
    return calls(
        [
            ("Agent", {"description": one, "prompt": f"do {one}", "kind": "general"})
            for one in words
        ],
        usage=(100, 5),
    )


@pytest.fixture
async def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[Scene]:
    work = tmp_path / "work"
    make_files(work)
    async with ChatServer(check=act) as server:
        set_environment(monkeypatch, tmp_path, server.base_url)
        launch = launch_of(Options(work_dir=str(work), mode="sandboxed"))
        opened = await open_session(launch)
        if opened.soul.mode != "sandboxed":
            await opened.soul.aclose()
            pytest.skip(f"These tests need a complete sandbox. {opened.no_sandbox}")
        await opened.soul.run("Say hello.")
        await opened.soul.files_ready()
        futures = Futures(opened.soul, launch)
        yield Scene(work, tmp_path / "home", server, launch, opened.soul, futures)
        await opened.soul.aclose()


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


async def test_sub_agents_of_futures_come_with_their_world_lines(scene: Scene) -> None:
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
    await again.soul.travel.rewind(Target(0), "restore")
    (third,) = await again.futures.start(plan("use alpha"))
    await again.futures.ended()
    assert "general-301" in await cards_of_line(again, again.futures.state(third).world_line)
    await again.soul.aclose()
    assert before != after


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

"""Sub-agents that write at the same time: each in a process and files of its own, with its difference brought in order of the calls."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from support.chat_server import Answer, Request, call, calls, say, strict
from support.soul import Ear, next_event, until_end

from kimi_tui.futures import planning
from kimi_tui.llm.openai_compatible import OpenAICompatible
from kimi_tui.soul.rewind_values import Target
from kimi_tui.tools.sandbox.view import Tier
from kimi_tui.wire import events as ev
from kimi_tui.workspace.base import NoBase

from . import conftest
from .conftest import Scene, contents


def agent(prompt: str, kind: str = "general") -> tuple[str, dict[str, Any]]:
    return ("Agent", {"description": prompt, "prompt": prompt, "kind": kind})


COMMANDS = {
    "alpha": "echo alpha >> src/f1.py; rm -f src/f2.py; mkdir -p new; echo 1 > new/alpha",
    "beta": "chmod +x src/f3.py; ln -s f4.py src/link; printf '\\000\\001' > binary",
    "clash": "echo clash >> src/f1.py; echo own > clash.txt",
    "slow": "sleep 3; echo slow >> src/f1.py",
    "ask": "true",
    "wait": "touch waiting; sleep 60",
    "place": "pwd > place.txt",
    "serve": "",
}
TASKS: list[list[str]] = []
"""What each turn of the session's agent has done by sub-agents, called at once."""
MAILS: list[str] = []
"""The D-Mails that it sends to its first checkpoint when they have ended."""


def act(request: Request) -> Answer:
    """A model that has sub-agents work at once, and as one of them writes a file, runs a command and says so."""
    if (refused := strict(request)) is not None:
        return refused
    messages = request.messages
    if "You are a sub-agent" in str(messages[0]["content"]):
        said = json.dumps([m["content"] for m in messages if m["role"] == "user"])
        word = next((one for one in COMMANDS if f"do {one}" in said), "")
        done = sum(message["role"] == "tool" for message in messages)
        if done == 0 and word:
            return call("WriteFile", {"path": f"{word}.md", "content": word}, usage=(1000, 20))
        if done == 1 and word == "serve":
            return call("mcp__made__write", {"path": "served.txt"}, usage=(1100, 20))
        if done == 1 and word:
            more: dict[str, Any] = {"sandbox": "off", "why": "Ask."} if word == "ask" else {}
            return call("Shell", {"command": COMMANDS[word], **more}, usage=(1100, 20))
        return say(f"I did {word}.", usage=(1200, 10))
    if messages[-1]["role"] == "tool" and MAILS:
        return call("SendDMail", {"message": MAILS.pop(), "checkpoint_id": 1})
    if messages[-1]["role"] == "tool" or not TASKS:
        return say("All is done.", usage=(100, 5))
    return calls([agent(f"do {word}") for word in TASKS.pop(0)], usage=(100, 5))


@asynccontextmanager
async def scene_in(
    top: Path, monkeypatch: pytest.MonkeyPatch, config: str = "", **options: Any
) -> AsyncGenerator[Scene]:
    """Open a session whose agent has sub-agents.

    Args:
        top: the folder of all of it.
        monkeypatch: sets the environment.
        config: what config.toml has.
        options: those of the launch that are not the usual ones.
    """
    TASKS.clear()
    MAILS.clear()
    async with conftest.scene_in(
        top, monkeypatch, act, first="", config=config, **options
    ) as scene:
        yield scene


@pytest.fixture
async def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[Scene]:
    async with scene_in(tmp_path, monkeypatch) as found:
        yield found


def results(scene: Scene) -> list[str]:
    """What the session's agent was told of its calls."""
    return [one.text for one in scene.soul.session.context.messages if one.role == "tool"]


async def working(scene: Scene, words: list[str], *names: str) -> asyncio.Task[str]:
    """Begin a turn that has these words done at once; return it when these sub-agents have begun their second calls."""
    heard = scene.soul.wire.subscribe()
    TASKS.append(words)
    turn = asyncio.create_task(scene.soul.run("do all"))
    left = {*names}
    async with asyncio.timeout(60):
        async for record in heard:
            if isinstance(one := record.event, ev.AgentChanged) and one.calls == 2:
                left.discard(one.name)
            if not left:
                break
    return turn


async def asking(scene: Scene, words: list[str]) -> tuple[asyncio.Task[str], ev.ApprovalRequest]:
    """Begin a turn that has these words done at once; return it, and the first question in it."""
    heard = scene.soul.wire.subscribe()
    TASKS.append(words)
    turn = asyncio.create_task(scene.soul.run("do all"))
    return turn, await next_event(heard, ev.ApprovalRequest)


async def closed(scene: Scene) -> None:
    """Wait until the files of the sets are gone."""
    async with asyncio.timeout(20):
        while scene.left():  # noqa: ASYNC110 - no event tells that files are gone
            await asyncio.sleep(0.05)


async def test_two_write_at_once_and_their_files_come_in_order(scene: Scene) -> None:
    work, soul = scene.work, scene.soul
    before = contents(work)
    ear = Ear(soul.wire)
    TASKS.append(["alpha", "beta"])
    assert await soul.run("do both") == "done"
    assert ear.notices() == []
    assert (work / "alpha.md").read_text() == "alpha"
    assert (work / "new" / "alpha").read_text() == "1\n"
    assert (work / "src" / "f1.py").read_text() == "x = 1\nalpha\n"
    assert not (work / "src" / "f2.py").exists()
    assert (work / "src" / "f3.py").stat().st_mode & 0o111
    assert (work / "src" / "link").readlink() == Path("f4.py")
    assert (work / "binary").read_bytes() == b"\0\1"
    assert soul.agents is not None
    states = soul.agents.states
    assert [(one.state, one.step, one.is_future) for one in states] == [("done", 3, True)] * 2
    assert states[0].tokens == 3350
    after = contents(work)
    await soul.travel.rewind(Target(0), "restore")
    assert contents(work) == before
    await soul.travel.undo()
    assert contents(work) == after
    await closed(scene)


@pytest.mark.exhaustive
async def test_a_rewind_to_a_step_of_one_keeps_the_earlier_and_makes_the_later_again(
    scene: Scene,
) -> None:
    work, soul = scene.work, scene.soul
    TASKS.append(["alpha", "beta", "place"])
    await soul.run("do all")
    after = contents(work)
    agents = soul.agents
    assert agents is not None
    history, subscription = await agents.listen("general-2")
    points = [one.event for one in history if isinstance(one.event, ev.CheckpointCreated)]
    assert len(points) >= 3
    preview = await agents.preview("general-2", Target(points[2].id))
    assert preview.files is not None
    assert {one.path for one in preview.files.files} == {
        *("src/f3.py", "src/link", "binary", "place.md", "place.txt")
    }
    await agents.rewind("general-2", Target(points[2].id), "restore")
    # What the first one did, and the first step of the second, is there.
    assert (work / "new" / "alpha").exists()
    assert (work / "beta.md").exists()
    assert not (work / "binary").exists()
    assert not (work / "place.txt").exists()
    assert [one.state for one in agents.states] == ["done", "paused", "done"]
    await soul.travel.undo()
    assert contents(work) == after
    await agents.rewind("general-2", Target(points[2].id), "restore")
    assert await soul.resume() == "done"
    assert contents(work) == after
    await agents.unlisten("general-2", subscription)


@pytest.mark.exhaustive
async def test_questions_come_into_the_one_queue_and_a_yes_for_the_session_counts_for_all(
    scene: Scene,
) -> None:
    soul = scene.soul
    await soul.set_mode("ask")
    heard = soul.wire.subscribe()
    TASKS.append(["ask", "beta"])
    turn = asyncio.create_task(soul.run("ask both"))
    asked: list[ev.ApprovalRequest] = []
    async with asyncio.timeout(60):
        async for record in heard:
            if isinstance(record.event, ev.ApprovalRequest) and not record.source:
                asked.append(record.event)
                soul.answer(record.event.id, "session" if len(asked) == 1 else "once")
            if isinstance(record.event, ev.TurnEnd) and not record.source:
                break
    assert await turn == "done"
    assert [one.tool for one in asked] == ["WriteFile", "Shell", "Shell"]
    assert {one.agent for one in asked} == {"general-1", "general-2"}
    assert {one.key for one in asked} == {""}
    assert soul.agents is not None
    assert [one.state for one in soul.agents.states] == ["done", "done"]
    # Its own record has question and answer.
    history, subscription = await soul.agents.listen(asked[0].agent)
    kinds = [type(one.event) for one in history]
    assert kinds.count(ev.ApprovalRequest) == 2
    assert kinds.count(ev.ApprovalResolved) == 2
    await soul.agents.unlisten(asked[0].agent, subscription)


@pytest.mark.exhaustive
async def test_a_no_ends_one_and_the_other_goes_on(scene: Scene) -> None:
    soul = scene.soul
    turn, asked = await asking(scene, ["ask", "alpha"])
    soul.answer(asked.id, "no")
    assert await turn == "done"
    assert soul.agents is not None
    assert [one.state for one in soul.agents.states] == ["stopped", "done"]
    assert (scene.work / "ask.md").exists()
    assert (scene.work / "alpha.md").exists()


@pytest.mark.exhaustive
async def test_a_conflict_stays_as_it_is_and_is_told(scene: Scene) -> None:
    # The second one ends first, and its changes come second all the same.
    work, soul = scene.work, scene.soul
    before = contents(work)
    TASKS.append(["slow", "clash"])
    await soul.run("clash")
    assert (work / "src" / "f1.py").read_text() == "x = 1\nslow\n"
    assert (work / "clash.txt").read_text() == "own\n"
    told = results(scene)[1]
    assert "Its changes of 1 file were not applied" in told
    place = told.split("its version is in ")[1].split("\n")[0]
    assert await asyncio.to_thread(Path(place).read_text) == "x = 1\nclash\n"
    await soul.travel.rewind(Target(0), "restore")
    assert contents(work) == before


@pytest.mark.exhaustive
async def test_one_is_stopped_alone_and_its_finished_steps_stay(scene: Scene) -> None:
    work, soul = scene.work, scene.soul
    turn = await working(scene, ["wait", "beta"], "general-1")
    assert soul.agents is not None
    ear = Ear(soul.wire)
    soul.agents.steer("general-1", "never read")
    await soul.agents.stop("general-1")
    assert await turn == "done"
    words = "general-1 ended before it read your message: never read"
    assert [one.text for one in ear.notices()] == [words]
    assert [one.text for one in ear.of(ev.SteerTaken) if one.handed_back] == ["never read"]
    assert [one.state for one in soul.agents.states] == ["stopped", "done"]
    assert (work / "wait.md").read_text() == "wait"
    assert (work / "binary").exists()
    assert "The user stopped it" in results(scene)[0]


@pytest.mark.exhaustive
async def test_the_turn_is_stopped_and_what_they_did_comes_behind_it(scene: Scene) -> None:
    work, soul = scene.work, scene.soul
    turn = await working(scene, ["wait", "wait"], "general-1", "general-2")
    await soul.interrupt()
    await until_end(turn)
    assert soul.agents is not None
    async with asyncio.timeout(20):
        while not (work / "wait.md").exists():  # noqa: ASYNC110 - they come behind the turn
            await asyncio.sleep(0.05)
    assert [one.state for one in soul.agents.states] == ["stopped", "stopped"]
    await closed(scene)


@pytest.mark.exhaustive
async def test_a_steer_and_the_mode_reach_one(scene: Scene) -> None:
    soul = scene.soul
    turn, asked = await asking(scene, ["ask", "alpha"])
    assert soul.agents is not None
    soul.agents.steer("general-1", "and be quick")
    history, subscription = await soul.agents.listen("general-1")
    soul.answer(asked.id, "once")
    await turn
    told = [r for r in scene.server.requests if "and be quick" in json.dumps(r.messages)]
    assert told
    kinds = [type(one.event) for one in subscription.drain()]
    assert ev.SteerTaken in kinds
    assert ev.TurnEnd in kinds
    assert any(isinstance(one.event, ev.ToolCall) for one in history)
    await soul.agents.unlisten("general-1", subscription)


@pytest.mark.exhaustive
@pytest.mark.parametrize("tier", ["copy", "elsewhere"])
async def test_without_overlays_each_has_a_copy(
    scene: Scene, tier: Tier, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "tier_of", lambda _backend, _environ: tier)
    work, soul = scene.work, scene.soul
    before = contents(work)
    TASKS.append(["alpha", "place"])
    assert await soul.run("do both") == "done"
    assert soul.agents is not None
    assert [(one.state, one.is_future) for one in soul.agents.states] == [("done", True)] * 2
    assert (work / "src" / "f1.py").read_text() == "x = 1\nalpha\n"
    assert ((work / "place.txt").read_text().strip() == str(work)) == (tier == "copy")
    # Its session belongs to the work folder again.
    history, subscription = await soul.agents.listen("general-2")
    assert any(isinstance(one.event, ev.TurnEnd) for one in history)
    await soul.agents.unlisten("general-2", subscription)
    await soul.travel.rewind(Target(0), "restore")
    assert contents(work) == before
    await closed(scene)


@pytest.mark.exhaustive
@pytest.mark.parametrize("failing", ["base", "mount", "model"])
async def test_where_there_can_be_no_copies_they_work_one_after_another_and_one_line_says_why(
    scene: Scene, failing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*_: object, **__: object) -> None:
        raise NoBase("There is not enough room on the disk.")

    if failing == "base":
        monkeypatch.setattr("kimi_tui.futures.set_files.Base.move", refuses)
    elif failing == "mount":
        monkeypatch.setattr("kimi_tui.futures.set_files.PastView.words", lambda _: ("over:/no",))
    else:
        monkeypatch.setattr(OpenAICompatible, "made_with", None)
    work, soul = scene.work, scene.soul
    before = contents(work)
    ear = Ear(soul.wire)
    TASKS.append(["alpha", "clash"])
    assert await soul.run("do both") == "done"
    assert soul.agents is not None
    assert [(one.state, one.is_future) for one in soul.agents.states] == [("done", False)] * 2
    # The second one has seen what the first one did.
    assert (work / "src" / "f1.py").read_text() == "x = 1\nalpha\nclash\n"
    (said,) = [one.text for one in ear.notices()]
    assert said.startswith("The sub-agents work one after another, without copies of the files: ")
    # The notice passes; the view of each of them still says it.
    assert [one.remark for one in soul.agents.states] == [said] * 2
    await soul.travel.rewind(Target(0), "restore")
    assert contents(work) == before
    await closed(scene)


@pytest.mark.exhaustive
async def test_one_that_works_in_the_folder_because_its_process_cannot_can_be_stopped(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kimi_tui.futures.set_files.PastView.words", lambda _: ("over:/no",))
    soul = scene.soul
    turn = await working(scene, ["wait", "other"], "general-1")
    assert soul.agents is not None
    async with asyncio.timeout(20):
        await soul.agents.stop("general-1")
        assert await turn == "done"
    assert [(one.state, one.is_future) for one in soul.agents.states] == [
        ("stopped", False),
        ("done", False),
    ]
    await closed(scene)


@pytest.mark.exhaustive
async def test_a_file_that_a_person_changes_meanwhile_stays_theirs(scene: Scene) -> None:
    work, soul = scene.work, scene.soul
    turn, asked = await asking(scene, ["ask", "alpha"])
    (work / "src" / "f1.py").write_text("by a person\n")
    (work / "src" / "f5.py").write_text("by a person, too\n")
    soul.answer(asked.id, "once")
    assert await turn == "done"
    assert (work / "src" / "f1.py").read_text() == "by a person\n"
    assert (work / "alpha.md").exists()
    assert "src/f1.py: also changed in the work folder" in results(scene)[1]
    await soul.travel.rewind(Target(0), "restore")
    assert (work / "src" / "f1.py").read_text() == "by a person\n"
    assert (work / "src" / "f5.py").read_text() == "by a person, too\n"
    assert not (work / "alpha.md").exists()
    assert (work / "src" / "f2.py").exists()

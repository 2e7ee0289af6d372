"""Sub-agents in the running engine: what they are sent and may do, what comes of their files and figures, and how they end."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.chat_server import call, calls, gate, say
from support.soul import Stage, next_event, stage, until_end

from kimi_tui.filesystem import Storage
from kimi_tui.hooks.definitions import FoundHooks, Hook
from kimi_tui.llm.errors import LLMError
from kimi_tui.llm.openai_compatible import OpenAICompatible
from kimi_tui.session.errors import StorageTrouble
from kimi_tui.soul.assembly import open_soul
from kimi_tui.soul.errors import SoulError
from kimi_tui.soul.model_slot import Budget
from kimi_tui.soul.rewind_values import Target
from kimi_tui.soul.subagents import (
    Subagents,
    _Agent,
    _encoded,
    _kind_of,
    _outcome,
    _stored_agents,
    _Version,
    _write,
)
from kimi_tui.tools.agent import AgentTool
from kimi_tui.tools.agent_kind import AgentKind
from kimi_tui.wire import events as ev
from kimi_tui.wire.codec import encode_event


def agent(prompt: str, kind: str = "general", title: str = "a part") -> tuple[str, dict[str, Any]]:
    return ("Agent", {"description": title, "prompt": prompt, "kind": kind})


def states(on: Stage) -> list[str]:
    return [one.state for one in on.ear.of(ev.AgentChanged)]


def result(on: Stage, number: int = -1) -> str:
    """Return what the session's agent got of the call whose result is in a request."""
    return next(text for role, text in reversed(on.sent(number)) if role == "tool")


async def test_the_last_answer_is_the_result(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        (on.work / "a.txt").write_text("one\n")
        on.server.script(
            calls([agent("Where is one?", "explore", "find one")], usage=(100, 10)),
            call("ReadFile", {"path": "a.txt"}, usage=(50, 5)),
            say("a.txt:1 has one", usage=(60, 6)),
            say("It is in a.txt.", usage=(200, 5)),
        )
        heard = on.soul.wire.subscribe()
        await on.soul.run("find it")
        assert "a.txt:1 has one" in result(on)
        assert "explore-1, 2 steps" in result(on)
        # The sub-agent is told its task alone, with the tools of its kind.
        first = on.server.requests[1]
        assert [m["role"] for m in first.messages] == ["system", "user"]
        assert "You find things out" in first.messages[0]["content"]
        tools = [one["function"]["name"] for one in first.body["tools"]]
        assert "ReadFile" in tools
        assert not {"WriteFile", "Shell", "Agent", "SendDMail", "AskUserQuestion"} & set(tools)
        # Its calls count in the session's figures.
        status = on.soul.status
        assert (status.total_input, status.total_output) == (410, 26)
        assert on.soul.agents is not None
        (one,) = on.soul.agents.states
        assert (one.state, one.step, one.calls, one.input, one.output) == ("done", 2, 1, 110, 11)
        assert one.cost == -1.0
        assert one.last_words == "a.txt:1 has one"
        # Its events are on the session's wire with its name.
        records = heard.drain()
        named = [r for r in records if r.source]
        assert {r.source for r in named} == {"explore-1"}
        ends = {
            one.event.state: one.event.ended_at > 0
            for one in records
            if isinstance(one.event, ev.AgentChanged)
        }
        assert ends == {"waiting": False, "working": False, "done": True}
        assert any(isinstance(r.event, ev.ToolResult) for r in named)


async def test_its_files_belong_to_the_session(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        await on.soul.files_ready()
        on.server.script(
            calls([agent("Write b.txt")]),
            call("WriteFile", {"path": "b.txt", "content": "by the sub-agent\n"}),
            say("written"),
            say("done"),
        )
        await on.soul.run("write it")
        assert (on.work / "b.txt").read_text() == "by the sub-agent\n"
        assert on.soul.agents is not None
        assert on.soul.agents.state("general-1").files == 1
        preview = await on.soul.travel.preview(Target(0))
        assert preview.files is not None
        assert [(one.path, one.reason) for one in preview.files.files] == [("b.txt", "")]
        await on.soul.travel.rewind(Target(0), "restore")
        assert not (on.work / "b.txt").exists()
        await on.soul.travel.undo()
        assert (on.work / "b.txt").exists()


async def test_a_question_names_it(tmp_path: Path) -> None:
    async with stage(tmp_path, mode="ask") as on:
        on.server.script(
            calls([agent("Write b.txt")]),
            call("WriteFile", {"path": "b.txt", "content": "x\n"}),
            say("written"),
            say("done"),
        )
        heard = on.soul.wire.subscribe()
        turn = asyncio.create_task(on.soul.run("write it"))
        named = await next_event(heard, ev.ApprovalRequest, lambda one: bool(one.agent))
        assert (named.agent, named.tool, named.key) == ("general-1", "WriteFile", "")
        assert states(on)[-1] == "asking"
        on.soul.answer(named.id, "once")
        assert await turn == "done"
        assert (on.work / "b.txt").exists()


async def test_one_is_stopped_alone(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        on.server.script(
            calls([agent("Look around", "explore")]),
            call("Glob", {"pattern": "*"}, text="I look first."),
            gate(0, say("never")),
            say("Then without."),
        )
        turn = asyncio.create_task(on.soul.run("look"))
        await on.server.received(3)
        assert on.soul.agents is not None
        await on.soul.agents.stop("explore-1")
        assert await turn == "done"
        assert "The user stopped it. Its last message follows." in result(on)
        assert "I look first." in result(on)
        assert on.soul.agents.state("explore-1").state == "stopped"


async def test_the_turn_is_stopped_with_it(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        on.server.script(calls([agent("Look around", "explore")]), gate(0, say("never")), say("ok"))
        turn = asyncio.create_task(until_end(on.soul.run("look")))
        await on.server.received(2)
        await on.soul.interrupt()
        await turn
        assert on.soul.agents is not None
        assert on.soul.agents.state("explore-1").state == "stopped"
        await on.soul.run("go on")
        assert "stopped this call" in str(on.sent())


async def test_a_steer_reaches_it(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        on.server.script(
            calls([agent("Look around", "explore")]),
            gate(0, call("Glob", {"pattern": "*"})),
            say("looked"),
            say("done"),
        )
        turn = asyncio.create_task(on.soul.run("look"))
        await on.server.received(2)
        assert on.soul.agents is not None
        on.soul.agents.steer("explore-1", "only Python files")
        on.server.release()
        await turn
        assert on.sent(2)[-1] == ("user", "only Python files")


async def test_readers_run_at_once_and_writers_in_turn(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        on.server.script(
            calls([agent("one", "explore"), agent("two", "explore")]),
            gate(0, say("first")),
            gate(0, say("second")),
            calls([agent("three"), agent("four")]),
            say("third"),
            say("fourth"),
            say("done"),
        )
        turn = asyncio.create_task(on.soul.run("look"))
        # Both readers are under way before either has an answer.
        await on.server.received(3)
        on.server.release()
        await turn
        said = [str(request.messages[1]["content"]) for request in on.server.requests[4:6]]
        assert ["three" in said[0], "four" in said[1]] == [True, True]


async def test_unknown_kinds_and_the_other_name(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        on.server.script(
            calls([agent("x", "exploer")]),
            calls([("Task", {"description": "d", "prompt": "p", "subagent_type": "review"})]),
            say("reviewed"),
            say("done"),
        )
        await on.soul.run("go")
        assert "Did you mean explore?" in result(on, 1)
        assert "reviewed" in result(on)


async def test_its_budgets(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        on.soul.agents_config = on.soul.agents_config._replace(steps=2)
        on.server.script(
            calls([agent("loop", "explore")]),
            call("Glob", {"pattern": "*"}, text="one"),
            call("Glob", {"pattern": "*.py"}, text="two"),
            say("I see."),
        )
        await on.soul.run("go")
        assert "ended early" in result(on)
        assert "two" in result(on)
        on.soul.agents_config = on.soul.agents_config._replace(tokens=100)
        on.server.script(
            calls([agent("read", "explore")]),
            call("Glob", {"pattern": "*"}, text="three", usage=(90, 20)),
            say("I see."),
        )
        await on.soul.run("again")
        assert "limit of 100 tokens" in result(on)
        # No more than is left of the session's.
        agents = on.soul.agents
        assert isinstance(agents, Subagents)
        conversation = agents._conversation
        for left, most in ((7, 7), (101, 100), (0, 1), (-5, 1)):
            whole = Budget(conversation.spent.tokens + left)
            conversation.limits = conversation.limits._replace(budget=whole)
            assert agents._budget().tokens == most
        conversation.limits = conversation.limits._replace(budget=Budget(0, 2.0))
        assert agents._budget() == Budget(100, 2.0)
        on.soul.agents_config = on.soul.agents_config._replace(cost=0.5)
        assert agents._budget() == Budget(100, 0.5)


async def test_one_of_a_killed_program_goes_on(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        on.server.script(
            calls([agent("Look around", "explore")]),
            call("Glob", {"pattern": "*"}, text="First I list."),
            gate(0, say("never")),
        )
        turn = asyncio.create_task(until_end(on.soul.run("look")))
        await on.server.received(3)
        copy = tmp_path / "copy"
        shutil.copytree(on.session.dir, copy / on.session.dir.name)
        await on.soul.interrupt()
        await turn
        on.server.release()
        await on.soul.aclose()
        # The session as the killed program left it.
        shutil.rmtree(on.session.dir)
        shutil.copytree(copy / on.session.dir.name, on.session.dir)
        on.session = on.store.find(on.session.id, on.work)
        await on.open()
        assert on.soul.agents is not None
        (one,) = on.soul.agents.states
        assert (one.state, one.why) == ("paused", "kimi-tui exited before the sub-agent was done.")
        assert one.step == 1
        assert one.ended_at > 0
        on.server.script(say("Found nothing."), say("So be it."))
        await on.soul.resume()
        assert "Found nothing." in result(on)
        assert "First I list." in str(on.sent(-2))
        ended = on.soul.agents.state("explore-1")
        assert (ended.state, ended.step) == ("done", 2)
        assert 0 <= ended.ended_at - ended.began_at < 60
        await on.reopen()
        assert on.soul.agents is not None
        history, subscription = await on.soul.agents.listen("explore-1")
        assert any(isinstance(r.event, ev.TextPart) for r in history)
        await on.soul.agents.unlisten("explore-1", subscription)


async def test_back_to_one_of_its_steps_and_on_from_there(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        await on.soul.files_ready()
        on.server.script(
            calls([agent("Write two files")]),
            call("WriteFile", {"path": "b.txt", "content": "1\n"}),
            call("WriteFile", {"path": "c.txt", "content": "2\n"}),
            say("both written"),
            say("done"),
        )
        await on.soul.run("write it")
        agents = on.soul.agents
        assert agents is not None
        history, subscription = await agents.listen("general-1")
        points = [r.event for r in history if isinstance(r.event, ev.CheckpointCreated)]
        assert [one.kind for one in points] == ["user", "step", "step", "step"]
        before = on.file()
        preview = await agents.preview("general-1", Target(points[2].id))
        assert preview.files is not None
        assert [one.path for one in preview.files.files] == ["c.txt"]
        await agents.rewind("general-1", Target(points[2].id), "restore")
        assert agents.state("general-1").state == "paused"
        assert sorted(one.name for one in on.work.iterdir()) == ["b.txt"]
        on.server.script(say("only one now"), say("I see"))
        await on.soul.resume()
        assert "only one now" in result(on)
        assert "both written" not in str(on.sent())
        assert "c.txt" not in str(on.sent(-2))
        assert agents.state("general-1").state == "done"
        # The undo brings back both conversations and the files.
        await on.soul.travel.undo()
        assert [r for r in on.file() if r["role"] != "_usage"] == [
            r for r in before if r["role"] != "_usage"
        ]
        assert sorted(one.name for one in on.work.iterdir()) == ["b.txt", "c.txt"]
        assert agents.state("general-1").last_words == "both written"
        soul_file = on.session.dir / "subagents" / "general-1" / "context.jsonl"
        assert "both written" in soul_file.read_text()
        await agents.unlisten("general-1", subscription)
        assert isinstance(agents, Subagents)
        assert agents._agents["general-1"].soul is None
        # Its card has the time that it worked; a clock that went back makes it none.
        one = agents._agents["general-1"]
        for ended_at, worked_s in ((107.5, 7.5), (100.5, 0.5), (90.0, 0.0)):
            one.state = replace(one.state, began_at=100.0, ended_at=ended_at)
            assert agents._shown_of(one.state.key)[1] == worked_s
        assert agents._shown_of("another") == ("", 0.0)


async def test_a_rewind_that_the_session_cannot_follow_changes_nothing(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        on.server.script(calls([agent("Look", "explore")]), say("found"), say("done"))
        await on.soul.run("go")
        agents = on.soul.agents
        assert isinstance(agents, Subagents)
        await on.soul.travel.rewind(Target(0))
        own = on.session.dir / "subagents" / "explore-1" / "context.jsonl"
        before = own.read_text()
        with pytest.raises(KeyError):
            await agents.rewind("explore-1", Target(0))
        assert [json.loads(line)["role"] for line in own.read_text().splitlines()] == [
            json.loads(line)["role"] for line in before.splitlines()
        ]
        assert "found" in own.read_text()
        assert agents._agents["explore-1"].soul is None
        assert agents.state("explore-1").state == "done"


async def test_an_undo_works_where_its_conversation_is_gone(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        on.server.script(calls([agent("Look", "explore")]), say("found"), say("done"))
        await on.soul.run("go")
        assert on.soul.agents is not None
        await on.soul.agents.rewind("explore-1", Target(0))
        shutil.rmtree(on.session.dir / "subagents" / "explore-1")
        await on.soul.travel.undo()
        assert on.soul.agents.state("explore-1").state == "done"


async def test_one_that_goes_on_is_stopped_and_every_call_of_its_step_has_a_result(
    tmp_path: Path,
) -> None:
    async with stage(tmp_path) as on:
        await on.soul.files_ready()
        on.server.script(
            calls([agent("Write"), agent("Write more"), ("Glob", {"pattern": "*"})]),
            call("WriteFile", {"path": "b.txt", "content": "1\n"}),
            say("written"),
            call("WriteFile", {"path": "c.txt", "content": "1\n"}),
            say("more written"),
            say("done"),
        )
        await on.soul.run("go")
        agents = on.soul.agents
        assert agents is not None
        await agents.rewind("general-1", Target(1), "restore")
        n_sent = len(on.server.requests)
        on.server.script(gate(0, say("never")))
        turn = asyncio.create_task(until_end(on.soul.resume()))
        await on.server.received(n_sent + 1)
        await on.soul.interrupt()
        await turn
        assert agents.state("general-1").state == "stopped"
        await on.session.sync()
        (asked,) = [record for record in on.file() if record.get("tool_calls")]
        told = {r["tool_call_id"]: str(r["content"]) for r in on.file() if r["role"] == "tool"}
        assert list(told) == [one["id"] for one in asked["tool_calls"]]
        assert "stopped this call" in told[asked["tool_calls"][0]["id"]]


async def test_the_others_of_its_step_go_along(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with stage(tmp_path) as on:
        await on.soul.files_ready()
        on.server.script(
            calls(
                [
                    agent("first", "explore"),
                    agent("second"),
                    agent("third"),
                    agent("4th", "explore"),
                ]
            ),
            say("found"),
            call("WriteFile", {"path": "b.txt", "content": "1\n"}),
            say("second wrote"),
            call("WriteFile", {"path": "c.txt", "content": "2\n"}),
            say("third wrote"),
            say("found more"),
            say("done"),
        )
        await on.soul.run("go")
        agents = on.soul.agents
        assert agents is not None
        keys = {one.name: one.key for one in agents.states}
        await agents.rewind("general-1", Target(1), "restore")
        uid = agents.state("general-1").uid
        now = {one.name: one.key for one in agents.states}
        assert {name for name in keys if now[name].startswith(uid)} == {
            *("explore-1", "general-1", "explore-2")
        }
        # The first result is there, the last one is given again, and what was undone is done again.
        on.server.script(say("second again"), say("third again"), say("all"))
        await on.soul.resume()
        told = [text for role, text in on.sent() if role == "tool"]
        assert [any(words in one for one in told) for words in ("found", "second again")] == [
            True
        ] * 2
        assert [words in told[n] for n, words in ((2, "third again"), (3, "found more"))] == [
            True
        ] * 2
        assert len(agents.states) == 5
        await on.soul.travel.undo()
        assert {one.name: one.key for one in agents.states if one.name in keys} == keys
        # One that wrote before it goes along, too: its files are still there.
        await agents.rewind("general-2", Target(1), "restore")
        uid = agents.state("general-2").uid
        now = {one.name: one.key for one in agents.states}
        assert {name for name in keys if now[name].startswith(uid)} == {
            *("explore-1", "general-1", "general-2", "explore-2")
        }
        await on.soul.travel.undo()
        assert {one.name: one.key for one in agents.states if one.name in keys} == keys
        # The conversations of the others were never changed, so there is nothing to undo in them.
        assert "could not follow" not in caplog.text


@pytest.mark.exhaustive
async def test_no_more_begin_once_all_are_stopped(tmp_path: Path) -> None:
    one_file = {"path": "between.txt", "content": ""}
    # Those on both sides of a change do not begin together.
    async with stage(tmp_path) as on:
        on.server.script(
            calls([agent("first"), ("WriteFile", one_file), agent("second")]),
            gate(0, say("never")),
            say("without"),
        )
        turn = asyncio.create_task(on.soul.run("go"))
        await on.server.received(2)
        assert on.soul.agents is not None
        await on.soul.agents.stop_all()
        assert await turn == "done"
        assert "Not started" in result(on)
        assert [one.state for one in on.soul.agents.states] == ["stopped"]


@pytest.mark.exhaustive
async def test_ten_at_once_wait_for_their_places(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        on.soul.agents_config = on.soul.agents_config._replace(parallel=3)
        on.server.script(
            calls([agent(f"part {n}", "explore") for n in range(10)]),
            *[gate(0, say(f"found {n}")) for n in range(10)],
            say("all found"),
        )
        turn = asyncio.create_task(on.soul.run("go"))
        await on.server.received(4)
        agents = on.soul.agents
        assert agents is not None
        agents.steer("explore-10", "be brief")
        for _ in range(10):
            on.server.release()
            await asyncio.sleep(0)
        while not turn.done():
            on.server.release()
            await asyncio.wait([turn], timeout=0.05)
        assert [one.state for one in agents.states] == ["done"] * 10
        assert sum(role == "tool" for role, _ in on.sent()) == 10
        # What was said before it began comes after its task.
        last = next(r for r in on.server.requests if "part 9" in str(r.messages[1]["content"]))
        assert str(last.messages[1]["content"]).endswith("part 9\n\nbe brief")


async def test_a_hook_guards_its_calls_too(tmp_path: Path) -> None:
    heard = tmp_path / "heard"
    guard = Hook(
        *("PreToolUse", "Write", "echo not here >&2; exit 2", 30.0, False, "user"), tmp_path
    )
    said = Hook("UserPromptSubmit", "", f"echo said >> {heard}", 30.0, False, "user", tmp_path)
    ended = Hook("Stop", "", f"echo ended >> {heard}", 30.0, False, "user", tmp_path)
    environ = {"PATH": os.environ["PATH"]}
    async with stage(tmp_path, hooks=FoundHooks((guard, said, ended)), environ=environ) as on:
        on.server.script(
            calls([agent("Write b.txt")]),
            call("WriteFile", {"path": "b.txt", "content": "1\n"}),
            say("refused"),
            say("done"),
        )
        await on.soul.begin_hooks("startup")
        await on.soul.run("go")
        assert "not here" in str(on.sent(2))
        # The task that it gets, and its end, are none of the user's.
        assert heard.read_text() == "said\nended\n"
        assert not (on.work / "b.txt").exists()


@pytest.mark.exhaustive
async def test_in_plan_mode_it_changes_nothing(tmp_path: Path) -> None:
    async with stage(tmp_path, mode="plan") as on:
        on.server.script(
            calls([agent("Write b.txt")]),
            call("WriteFile", {"path": "b.txt", "content": "1\n"}),
            say("I may not"),
            say("done"),
        )
        await on.soul.run("go")
        assert not (on.work / "b.txt").exists()
        assert "I may not" in result(on)


async def test_an_undo_after_a_restart(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        on.server.script(calls([agent("Look", "explore")]), say("found"), say("done"))
        await on.soul.run("go")
        assert on.soul.agents is not None
        await on.soul.agents.rewind("explore-1", Target(0))
        await on.reopen()
        assert on.soul.agents is not None
        assert on.soul.agents.state("explore-1").state == "paused"
        await on.soul.travel.undo()
        assert on.soul.agents.state("explore-1").state == "done"
        await on.soul.travel.redo()
        assert on.soul.agents.state("explore-1").state == "paused"
        # A message lets it go on as well, and comes after its result.
        on.server.script(say("found again"), say("done again"))
        await on.soul.run("and then?")
        assert [role for role, _ in on.sent()][-2:] == ["tool", "user"]
        assert "found again" in result(on)


async def test_a_dmail_folds_it(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        on.server.script(
            calls([agent("Look", "explore")]),
            say("a long report"),
            calls([("SendDMail", {"message": "it is in a.txt", "checkpoint_id": 1})]),
            say("done"),
        )
        await on.soul.run("go")
        assert "a long report" not in str(on.sent())
        assert "it is in a.txt" in str(on.sent())
        assert on.soul.agents is not None
        assert on.soul.agents.state("explore-1").last_words == "a long report"
        await on.soul.travel.undo()
        assert "a long report" in str(await on.messages())


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (LLMError("No model sonnet."), "No model sonnet."),
        (KeyError("sonnet"), "No such model is configured."),
    ],
    ids=["refused", "unknown"],
)
async def test_a_model_that_is_not_configured(tmp_path: Path, error: Exception, why: str) -> None:
    async with stage(tmp_path) as on:

        async def models(name: str, effort: str, session_id: str) -> Any:
            raise error

        on.soul.agent_models = models
        kind = AgentKind("mine", "for me", "Do it.", model="sonnet")
        on.soul.change_tools([AgentTool([kind])], ["Agent"])
        on.server.script(calls([agent("x", "mine")]), say("with the session's"), say("done"))
        await on.soul.run("go")
        assert "with the session's" in result(on)
        (said,) = [one.text for one in on.ear.notices()]
        assert "sonnet cannot be used" in said
        assert said.endswith(why)


async def test_its_kind_says_how_much_it_thinks(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        made_with = on.soul.model.require().made_with
        assert made_with is not None
        # The server of this dialect takes efforts.
        on.soul.set_provider(OpenAICompatible(**{**made_with, "dialect": "gemini"}))
        kinds = [AgentKind("deep", "", "Think.", effort="high"), AgentKind("plain", "", "Do.")]
        on.soul.change_tools([AgentTool(kinds)], ["Agent"])
        on.server.script(
            calls([agent("x", "deep")]),
            say("thought"),
            calls([agent("x", "plain")]),
            say("did"),
            say("done"),
        )
        await on.soul.run("go")
        efforts = [one.body.get("reasoning_effort") for one in on.server.requests]
        assert efforts == [None, "high", None, None, None]


ERRORS = [
    LLMError("It broke.", advice="Mend it."),
    SoulError("It broke.", advice="Mend it."),
    StorageTrouble("It broke.", advice="Mend it."),
]


@pytest.mark.parametrize(
    "error", [*ERRORS, OSError("It broke.")], ids=lambda one: type(one).__name__
)
async def test_one_that_cannot_be_opened_ends_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    async def breaks(*_: object, **__: object) -> bool:
        raise error

    monkeypatch.setattr(Subagents, "_opened", breaks)
    async with stage(tmp_path) as on:
        on.server.script(calls([agent("Look", "explore")]), say("done"))
        assert await on.soul.run("go") == "done"
        assert on.soul.agents is not None
        failed = on.soul.agents.state("explore-1")
        assert (failed.state, failed.why) == ("failed", "It broke.")
        assert "The sub-agent could not be started. It broke." in result(on)


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
async def test_an_error_ends_it_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    async def breaks(*_: object) -> bool:
        raise error

    monkeypatch.setattr(Subagents, "_turns", breaks)
    async with stage(tmp_path) as on:
        on.server.script(calls([agent("Look", "explore")]), say("done"))
        assert await on.soul.run("go") == "done"
        assert on.soul.agents is not None
        failed = on.soul.agents.state("explore-1")
        assert (failed.state, failed.why) == ("failed", "It broke. Mend it.")
        assert "It ended early: It broke. Mend it. It had not answered yet." in result(on)


async def test_a_fork_has_its_own(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        on.server.script(calls([agent("Look", "explore")]), say("found"), say("done"))
        await on.soul.run("go")
        agents = on.soul.agents
        assert agents is not None
        _, heard = await agents.listen("explore-1")
        forked = await on.soul.travel.fork()
        soul = await open_soul(
            session=on.store.find(forked.session_id, on.work), provider=None, environ={}
        )
        assert soul.agents is not None
        told, other = await soul.agents.listen("explore-1")
        assert any(isinstance(r.event, ev.TextPart) for r in told)
        await soul.agents.unlisten("explore-1", other)
        await soul.aclose()
        await agents.unlisten("explore-1", heard)


@pytest.mark.parametrize(
    ("facts", "text", "message", "brief"),
    [
        (
            {"state": "done", "step": 12, "files": 1, "input": 1_234_000},
            "all well",
            "general-1, 12 steps, 1 file changed.",
            "12 steps, 1.2M tokens",
        ),
        (
            {"state": "done", "step": 1, "files": 2, "output": 999},
            "",
            "general-1, 1 step, 2 files changed. It ended without an answer.",
            "1 step, 999 tokens",
        ),
        (
            {"state": "stopped", "why": "You refused its request."},
            "",
            "general-1, 0 steps. The user refused what it asked for. It had not answered yet.",
            "stopped, 0 steps, 0 tokens",
        ),
        (
            {"state": "stopped"},
            "so far",
            "general-1, 0 steps. It was stopped. Its last message follows.",
            "stopped, 0 steps, 0 tokens",
        ),
    ],
)
def test_what_is_said_of_an_end(facts: dict[str, Any], text: str, message: str, brief: str) -> None:
    found = _outcome(ev.AgentChanged("general-1", **facts), text)
    assert (found.output, found.message, found.brief) == (text, message, brief)


def test_what_is_stored_is_read_again(tmp_path: Path) -> None:
    kinds = [
        AgentKind("reader", "reads", "Read.", ("ReadFile",), "small", "low", 7),
        AgentKind("general", "does all"),
    ]
    for number, kind in enumerate(kinds, 2):
        state = ev.AgentChanged(f"{kind.name}-{number}", number, kind.name)
        versions = [_Version(state), _Version(state, moved=False)]
        one = _Agent(state, kind, "a task", tmp_path / state.name, versions=versions, since="s")
        _write(Storage(), one.folder, _encoded(one))
    lacks = (("broken-1", {"task": "t"}), ("broken-9", {"kind": {"name": "k"}}))
    for name, has in lacks:
        record = {"agent": encode_event(ev.AgentChanged(name)), **has}
        _write(Storage(), tmp_path / name, json.dumps(record).encode())
    found = _stored_agents(tmp_path)
    assert [one.kind for one in found] == kinds
    for steps, known in ((-1, 0), (1_000_001, 0), (True, 0), ("7", 0), (1_000_000, 1_000_000)):
        kind = _kind_of({"name": "reader", "tools": ["ReadFile", 5], "steps": steps})
        assert kind == AgentKind("reader", "", tools=("ReadFile",), steps=known)
    assert [(one.state.number, one.text, one.since) for one in found] == [
        (2, "a task", "s"),
        (3, "a task", "s"),
    ]
    assert [version.moved for version in found[0].versions] == [True, False]

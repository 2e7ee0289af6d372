"""A turn from the person's words to its end: what the server gets, what the files hold, what the wire tells."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from support.chat_server import call, calls, say, status
from support.soul import next_event, stage, until_end

from kimi_tui.config.settings import DMailConfig, LoopControl
from kimi_tui.soul import conversation
from kimi_tui.soul.assembly import open_soul
from kimi_tui.soul.errors import SoulBusy
from kimi_tui.soul.model_slot import LoopLimits
from kimi_tui.soul.rewind_values import Target
from kimi_tui.wire import events as ev


async def test_a_turn_of_two_steps(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        (on.work / "a.txt").write_text("hello\n")
        on.server.script(
            call("ReadFile", {"path": "a.txt"}, text="I look.", think="hm", usage=(100, 10)),
            say("It says hello.", usage=(150, 5)),
        )
        await on.soul.run("what is in a?")

        assert on.sent(0) == [("user", "what is in a?")]
        first, second = (request.messages for request in on.server.requests)
        assert second[: len(first) - 1] == first[:-1]
        assert on.sent(1)[0] == ("user", "what is in a?")
        assert on.sent(1)[1] == ("assistant", 'I look.\nReadFile({"path": "a.txt"})')
        assert on.sent(1)[2][1].endswith("1\thello")
        # Both requests begin with the same bytes of system prompt and tools.
        assert first[0] == second[0]
        assert on.server.requests[0].body["tools"] == on.server.requests[1].body["tools"]

        roles = [
            (r["role"], r.get("id", r.get("token_count")))
            for r in on.file()
            if not (r["role"] == "user" and r["content"].startswith("<system>CHECKPOINT"))
        ]
        assert roles == [
            ("_system_prompt", None),
            ("_checkpoint", 0),
            ("user", None),
            ("_checkpoint", 1),
            ("_usage", 100),
            ("assistant", None),
            ("_usage", 110),
            ("tool", None),
            ("_checkpoint", 2),
            ("_usage", 150),
            ("assistant", None),
            ("_usage", 155),
        ]
        assert on.ear.names(ev.StatusUpdate, ev.ToolCallPart) == [
            "TurnBegin",
            "CheckpointCreated",
            "StepBegin",
            "CheckpointCreated",
            "ThinkPart",
            "TextPart",
            "ToolCall",
            "ToolStarted",
            "ToolResult",
            "StepBegin",
            "CheckpointCreated",
            "TextPart",
            "TurnEnd",
        ]
        points = on.ear.of(ev.CheckpointCreated)
        assert [(p.id, p.kind, p.label) for p in points] == [
            (0, "user", "what is in a?"),
            (1, "step", ""),
            (2, "step", ""),
        ]
        assert len({p.uid for p in points}) == 3
        last = on.ear.of(ev.StatusUpdate)[-1]
        assert (last.used, last.estimated, last.limit, last.trigger) == (155, False, 200000, 150000)
        assert (last.total_input, last.total_output) == (250, 15)
        assert last.system + last.talk + last.tools == last.used
        assert last.per_step == 50
        assert on.ear.of(ev.TurnEnd) == [ev.TurnEnd("done")]


async def test_the_first_record_is_the_system_prompt_and_stays(tmp_path: Path) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "AGENTS.md").write_text("Always run make test.\n")
    async with stage(tmp_path) as on:
        on.server.script(say("one"), say("two"))
        await on.soul.run("hi")
        (folder / "AGENTS.md").write_text("Changed.\n")
        await on.reopen()
        await on.soul.run("again")
        first, second = (request.messages[0] for request in on.server.requests)
        assert first == second
        assert first["role"] == "system"
        assert "Always run make test." in first["content"]
        assert str(on.work) in first["content"]
        assert on.file()[0] == {"role": "_system_prompt", "content": first["content"]}
        assert on.sent() == [("user", "hi"), ("assistant", "one"), ("user", "again")]


async def test_no_model(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        await on.soul.aclose()
        session = on.store.create(on.work)
        on.soul = await open_soul(session=session, provider=None, environ={})
        heard = on.soul.wire.subscribe()
        await until_end(on.soul.run("hi"))
        end = await next_event(heard, ev.TurnEnd)
        assert end.reason == "error"
        assert "No model" in end.error
        assert end.advice
        assert not session.context.checkpoints
        await on.soul.compact()
        assert (await next_event(heard, ev.Notice)).level == "error"


async def test_a_refusal_is_told_and_the_next_turn_works(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        on.server.script(
            status(401, {"error": {"message": "Bad key sk-1", "type": "invalid_api_key"}}),
            say("here"),
            say("there"),
        )
        await until_end(on.soul.run("hi"))
        (end,) = on.ear.of(ev.TurnEnd)
        assert end.reason == "error"
        assert "Bad key" in end.error
        await until_end(on.soul.resume())
        assert on.sent() == [("user", "hi")]
        assert on.ear.of(ev.TurnEnd)[-1] == ev.TurnEnd("done")
        assert on.ear.of(ev.TurnBegin)[-1] == ev.TurnBegin("", resumed=True)
        await until_end(on.soul.run("go on"))
        assert on.sent() == [("user", "hi"), ("assistant", "here"), ("user", "go on")]


async def test_a_retry_drops_what_came_before(tmp_path: Path) -> None:
    from support.chat_server import drop_after

    async with stage(tmp_path) as on:
        on.server.script(
            drop_after(3, say("This will never be")), status(503), say("whole", usage=(10, 1))
        )
        await on.soul.run("hi")
        assert [e.attempt for e in on.ear.of(ev.StepRetry)] == [2, 3]
        assert on.session.context.messages[-1].text == "whole"
        assert sum(r["role"] == "assistant" for r in on.file()) == 1


async def test_too_many_steps(tmp_path: Path) -> None:
    async with stage(tmp_path, limits=LoopLimits(LoopControl(max_steps_per_turn=2))) as on:
        for _ in range(3):
            on.server.script(call("Glob", {"pattern": "*"}))
        await until_end(on.soul.run("loop"))
        assert len(on.server.requests) == 2
        (end,) = on.ear.of(ev.TurnEnd)
        assert end.reason == "error"
        assert "2 steps" in end.error
        on.server.script(say("x"))
        await until_end(on.soul.resume())
        assert on.ear.of(ev.TurnEnd)[-1].reason == "done"
        assert len(on.server.requests) == 4


async def test_one_thing_at_a_time(tmp_path: Path) -> None:
    import asyncio

    from support.chat_server import gate

    async with stage(tmp_path) as on:
        on.server.script(gate(1, say("slow")))
        turn = asyncio.create_task(on.soul.run("hi"))
        await on.server.at_gate.wait()
        assert on.soul.running
        with pytest.raises(SoulBusy):
            await on.soul.run("too")

        with pytest.raises(SoulBusy):
            await on.soul.travel.rewind(Target(0))
        on.server.release()
        await turn
        assert not on.soul.running
        # The next turn may begin within the very event that ends this one.
        on.server.script(say("a"), say("b"))
        heard = on.soul.wire.subscribe()
        first = asyncio.create_task(on.soul.run("x"))
        await next_event(heard, ev.TurnEnd)
        await on.soul.run("y")
        await first


async def test_bad_calls_are_answered(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        on.server.script(
            calls([("ReadFile", '{"path": '), ("Nope", {}), ("ReadFile", {"file": 1})]),
            say("sorry"),
        )
        await on.soul.run("hi")
        results = [text for role, text in on.sent() if role == "tool"]
        assert len(results) == 3
        assert all(text.startswith("<system>ERROR") for text in results)
        assert all(r.is_error for r in on.ear.of(ev.ToolResult))


async def test_no_result_brings_a_reminder_where_none_is_wanted(tmp_path: Path) -> None:
    async with stage(tmp_path, limits=LoopLimits(dmail=DMailConfig(rules=()))) as on:
        (on.work / "big.txt").write_text("some words of a line\n" * 4_000)
        on.server.script(call("ReadFile", {"path": "big.txt"}), say("ok"))
        await on.soul.run("read")
        assert "<system-reminder>" not in json.dumps(on.file())


async def test_a_large_result_brings_a_reminder(tmp_path: Path) -> None:
    async with stage(tmp_path, limits=LoopLimits(dmail=DMailConfig(nudge_tokens=1_000))) as on:
        (on.work / "big.txt").write_text("some words of a line\n" * 400)
        (on.work / "small.txt").write_text("x\n")
        on.server.script(
            call("ReadFile", {"path": "small.txt"}), call("ReadFile", {"path": "big.txt"}), say("")
        )
        on.server.script(say("ok"))
        await on.soul.run("read")
        reminders = [
            json.dumps(r)
            for r in on.file()
            if r["role"] == "user" and str(r["content"]).startswith("<system-reminder>")
        ]
        assert len(reminders) == 1
        assert "SendDMail" in reminders[0]
        assert "checkpoint_id 2" in reminders[0]
        # The text is sent within the result, never as the user's.
        assert [role for role, _ in on.sent(2)] == [
            "user",
            "assistant",
            "tool",
            "assistant",
            "tool",
        ]
        assert "SendDMail" in on.sent(2)[-1][1]


async def test_the_output_limit_is_told(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        on.server.script(say("This is as far as", finish="length"))
        await on.soul.run("write")
        assert on.ear.of(ev.TurnEnd)[-1].reason == "done"
        assert "cut" in on.ear.notices()[0].text


async def test_closing_releases_everything(tmp_path: Path) -> None:
    import asyncio

    from support.chat_server import stall

    async with stage(tmp_path) as on:
        on.server.script(stall(2))
        turn = asyncio.create_task(until_end(on.soul.run("hi")))
        await next_event(on.soul.wire.subscribe(), ev.TextPart)
        before = asyncio.all_tasks() - {turn}
        await on.soul.aclose()
        await turn
        await on.soul.aclose()
        await asyncio.wait_for(on.server.client_gone.wait(), 5)
        # Nothing of the engine runs any more, and another process may open the session.
        left = {task.get_name() for task in asyncio.all_tasks() & before}
        assert not left & {"soul", "recorder", "approval requests"}
        again = on.store.find(on.session.id)
        await again.open()
        assert again.context.messages[-1].interrupted
        await again.aclose()


async def test_after_a_kill_in_the_middle_of_a_tool_the_next_turn_works(tmp_path: Path) -> None:
    from kimi_tui.llm.message import Message

    async with stage(tmp_path) as on:
        on.server.script(say("one"), say("two"))
        await on.soul.run("hi")
        function = {"name": "Shell", "arguments": '{"command": "make"}'}
        half = {"role": "assistant", "tool_calls": [{"id": "c", "function": function}]}
        await on.session.context.append([Message.model_validate(half)])
        await on.reopen()
        await on.soul.run("go on")
        # The server refuses calls without results; the text comes after the substitute result.
        sent = on.sent()
        assert any(role == "tool" and "interrupted" in text for role, text in sent)
        assert sent[-1][1].endswith("go on")
        assert on.ear.of(ev.TurnEnd) == [ev.TurnEnd("done")]


async def test_what_the_engine_says_of_itself(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        soul = on.soul
        assert soul.message_count == 0
        before = soul.status
        assert before.limit == on.window
        on.server.script(call("Glob", {"pattern": "*"}, usage=(100, 10)), say("x", usage=(200, 20)))
        await soul.run("hi")
        # The messages are the user's, two answers and a result; markers of checkpoints are no messages.
        assert soul.message_count == 4
        assert soul.status == on.ear.of(ev.StatusUpdate)[-1]
        assert (soul.status.used, soul.status.total_output) == (220, 30)
        assert before.total_output == 0


async def test_why_a_turn_ended_is_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with stage(tmp_path) as on:
        on.server.script(status(401, {"error": {"message": "no such key"}}))
        await until_end(on.soul.run("hi"))
        error = on.ear.of(ev.TurnEnd)[-1].error
        assert error
        assert error in caplog.text


async def test_statistics_count_what_was_published_just_now(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        on.server.script(say("Hello."))
        await on.soul.run("hi")
        on.soul.wire.publish(ev.TurnBegin("more"))
        assert (await on.soul.statistics()).turns == 2


async def test_a_folder_that_is_not_scanned_has_no_number_of_files(tmp_path: Path) -> None:
    async with stage(tmp_path, environ={"HOME": str(tmp_path / "work")}) as on:
        facts = await on.soul.files_ready()
        assert (facts.n_files, facts.is_more) == (None, False)


async def test_closing_ends_the_search_for_a_sandbox(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        never: asyncio.Future[tuple[None, str]] = asyncio.get_running_loop().create_future()

        async def find() -> tuple[None, str]:
            return await never

        finding = asyncio.create_task(find())
        on.soul.use_sandbox_of(finding)
        await on.soul.aclose()
        never.cancel()
        await asyncio.wait([finding])
        assert finding.cancelling()


async def test_a_row_has_the_figure_that_was_shown_and_reads_nothing_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stage(tmp_path) as on:
        on.server.script(say("one", usage=(5_000, 10)), say("two", usage=(5_100, 10)))
        await on.soul.run("a")
        await on.soul.run("b")
        monkeypatch.delattr(conversation, "WorldLineTokens")
        preview = await on.soul.travel.preview(Target(2))
        assert preview.tokens_after

"""Stopping at any moment: within a second, with a valid history, and with what was streamed kept."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from support.chat_server import (
    Answer,
    call,
    calls,
    cut,
    drop_after,
    gate,
    say,
    slow_headers,
    stall,
    status,
)
from support.chat_server import Stall as Stalled
from support.soul import Stage, Tool, next_event, stage, until_end

from kimi_tui.llm.completion import RetryPolicy
from kimi_tui.prompts import NOT_BEGUN
from kimi_tui.soul.history import fits, session_history
from kimi_tui.soul.rewind_values import Target
from kimi_tui.tools.base import ToolEnv
from kimi_tui.tools.outcome import ToolOutcome
from kimi_tui.tools.toolset import Toolset
from kimi_tui.wire import events as ev

# Only ends a test that hangs: what would take longer than a second is made to take for ever.
_PATIENCE_S = 20.0


async def stop(on: Stage, turn: asyncio.Task[None]) -> None:
    async with asyncio.timeout(_PATIENCE_S):
        await on.soul.interrupt()
        await turn
    assert not on.soul.running
    assert on.ear.of(ev.TurnEnd)[-1] == ev.TurnEnd("interrupted")


async def goes_on(on: Stage) -> list[tuple[str, str]]:
    """Run a turn, which must work; return what it sent (the server checks that it is valid)."""
    on.server.script(say("fine"))
    await on.soul.run("and now")
    assert on.ear.of(ev.TurnEnd)[-1] == ev.TurnEnd("done")
    return on.sent()


LONG = say("One two three four five.", think="First I think about it.", piece=4)
ARGUMENTS = calls(
    [("ReadFile", {"path": "a"}), ("Shell", {"command": "echo one two three"})],
    text="I run it.",
    piece=6,
)


@pytest.mark.parametrize(
    ("answer", "until", "kept"),
    [
        (slow_headers(), None, None),
        (stall(), None, None),
        (cut(LONG, 4, Stalled()), ev.ThinkPart, ""),
        (cut(LONG, 11, Stalled()), ev.TextPart, "One"),
    ],
    ids=["before headers", "before the first token", "in reasoning", "in text"],
)
async def test_while_the_model_speaks(
    tmp_path: Path, answer: Answer, until: type[ev.TextPart | ev.ThinkPart] | None, kept: str | None
) -> None:
    async with stage(tmp_path) as on:
        on.server.script(answer)
        heard = on.soul.wire.subscribe()
        turn = asyncio.create_task(until_end(on.soul.run("hi")))
        await on.server.received(1)
        if until is not None:
            # The text comes in pieces, and their size depends on the machine.
            said = ""
            while (kept or "First") not in said:
                said += (await next_event(heard, until)).text
        await stop(on, turn)
        last = on.file()[-1]
        if kept is None:
            assert last["role"] == "user"
        else:
            assert (last["role"], last["interrupted"]) == ("assistant", True)
            assert str(last["content"]).count("First")
            assert kept in str(last["content"])
        assert on.ear.of(ev.StepInterrupted)
        sent = await goes_on(on)
        assert "hi" in sent[0][1]
        assert sent[-1][1].endswith("and now")
        if kept:
            assert kept in sent[1][1]
        assert "interrupted" not in str(on.server.requests[-1].body)


async def test_in_arguments(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        whole = next(
            i
            for i, op in enumerate(op for op in ARGUMENTS.ops if hasattr(op, "data"))
            if "Shell" in str(op)
        )
        on.server.script(cut(ARGUMENTS, whole + 2, Stalled()))
        heard = on.soul.wire.subscribe()
        turn = asyncio.create_task(until_end(on.soul.run("hi")))
        await next_event(heard, ev.ToolCallPart, lambda e: "command" in e.arguments or True)
        await next_event(heard, ev.ToolCall, lambda e: e.name == "Shell")
        await next_event(heard, ev.ToolCallPart)
        await stop(on, turn)
        message, result = on.file()[-2:]
        # The whole call stays with a result, the half one is dropped; both cards are closed.
        assert [c["function"]["name"] for c in message["tool_calls"]] == ["ReadFile"]
        assert message["interrupted"]
        assert result["role"] == "tool"
        closed = on.ear.of(ev.ToolResult)
        assert len(closed) == 2
        assert all(r.interrupted for r in closed)
        sent = await goes_on(on)
        assert "I run it." in sent[1][1]


async def test_in_a_retry_wait(tmp_path: Path) -> None:
    slow = RetryPolicy(initial_s=60, max_s=60, jitter_s=0)
    async with stage(tmp_path, policy=slow) as on:
        on.server.script(status(503), say("there"))
        heard = on.soul.wire.subscribe()
        turn = asyncio.create_task(until_end(on.soul.run("hi")))
        await next_event(heard, ev.StepRetry)
        await stop(on, turn)
        # Cutting the wait short asks again at once.
        on.server.script(status(503), say("here"))
        turn = asyncio.create_task(until_end(on.soul.resume()))
        assert (await next_event(heard, ev.TextPart)).text == "there"
        await turn
        turn = asyncio.create_task(until_end(on.soul.run("more")))
        await next_event(heard, ev.StepRetry)
        on.soul.retry_now()
        await asyncio.wait_for(turn, 5)
        assert on.ear.of(ev.TurnEnd)[-1].reason == "done"


@pytest.mark.parametrize(
    ("second", "kept"), [("But this is more", "But this is more"), ("But this", "This broke off")]
)
async def test_of_two_attempts_the_words_of_the_longer_one_are_kept(
    tmp_path: Path, second: str, kept: str
) -> None:
    async with stage(tmp_path) as on:
        on.server.script(drop_after(4, say("This broke off")), cut(say(second), 5, Stalled()))
        heard = on.soul.wire.subscribe()
        turn = asyncio.create_task(until_end(on.soul.run("hi")))
        await next_event(heard, ev.StepRetry)
        await next_event(heard, ev.TextPart, lambda e: second.endswith(e.text))
        await stop(on, turn)
        assert on.file()[-1]["content"] == kept


@pytest.mark.exhaustive
async def test_while_an_approval_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The tool does not run before the question, however long that takes.
    monkeypatch.setattr("kimi_tui.soul.tool_calls._SHOWN_AS_STARTED_AFTER_S", 0.0)
    async with stage(tmp_path, mode="ask") as on:
        on.server.script(call("Shell", {"command": "touch x"}))
        heard = on.soul.wire.subscribe()
        turn = asyncio.create_task(until_end(on.soul.run("hi")))
        request = await next_event(heard, ev.ApprovalRequest)
        await stop(on, turn)
        assert on.ear.of(ev.ApprovalResolved)[0].id == request.id
        assert not on.ear.of(ev.ToolStarted)
        assert NOT_BEGUN in json.dumps(on.file()[-1])
        on.soul.answer(request.id, "once")
        await goes_on(on)
        assert not (on.work / "x").exists()


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "summary",
    [slow_headers(), stall(2, say("SUMMARY of it")), status(503)],
    ids=["before headers", "in its text", "in a retry wait"],
)
async def test_in_a_compaction_in_the_middle_of_a_turn(tmp_path: Path, summary: Answer) -> None:
    patient = RetryPolicy(initial_s=60, max_s=60, jitter_s=0)
    async with stage(tmp_path, window=40_000, policy=patient) as on:
        for words in ("one", "two"):
            on.server.script(say(f"answer {words}", usage=(3_000, 10)))
            await until_end(on.soul.run(words * 2_000))
        heard = on.soul.wire.subscribe()
        on.server.script(call("Glob", {"pattern": "*"}, text="first", usage=(34_000, 10)), summary)
        turn = asyncio.create_task(until_end(on.soul.run("the task")))
        await next_event(heard, ev.CompactionBegin)
        await on.server.received(4)
        if summary.status == 503:
            await next_event(heard, ev.StepRetry)
        before = on.file()
        await stop(on, turn)
        (end,) = on.ear.of(ev.CompactionEnd)
        assert "unchanged" in end.error
        assert on.file() == before
        assert not (on.session.dir / "context_1.jsonl").exists()
        # The next turn compacts and goes on.
        on.server.script(say("SUMMARY"))
        sent = await goes_on(on)
        assert "SUMMARY" in sent[0][1]
        assert "and now" in sent[-1][1]


def made(**works: Callable[[dict[str, Any], ToolEnv], Awaitable[ToolOutcome]]) -> Toolset:
    return Toolset(
        [Tool(name, work, changes=name.startswith("change")) for name, work in works.items()]
    )


async def test_while_tools_run(tmp_path: Path) -> None:
    begun = asyncio.Event()

    async def quick(_: dict[str, Any], env: ToolEnv) -> ToolOutcome:
        return ToolOutcome("ready")

    async def slow(_: dict[str, Any], env: ToolEnv) -> ToolOutcome:
        env.emit("working\n")
        begun.set()
        await asyncio.Event().wait()
        raise AssertionError

    async with stage(tmp_path, toolset=made(quick=quick, change_slow=slow)) as on:
        on.server.script(calls([("quick", {}), ("change_slow", {}), ("change_slow", {})]))
        turn = asyncio.create_task(until_end(on.soul.run("hi")))
        await begun.wait()
        await stop(on, turn)
        results = on.ear.of(ev.ToolResult)
        assert [r.interrupted for r in results] == [False, True, True]
        assert "may have taken effect" in results[1].message
        assert "before this call began" in results[2].message
        sent = await goes_on(on)
        assert [text.partition("\n")[0][:16] for role, text in sent if role == "tool"] == [
            "ready",
            "<system>ERROR: T",
            "<system>ERROR: N",
        ]


async def test_a_tool_that_takes_long_to_end(tmp_path: Path) -> None:
    begun, may_end, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def stubborn(_: dict[str, Any], env: ToolEnv) -> ToolOutcome:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            await may_end.wait()
            ended.set()
        raise AssertionError

    async with stage(tmp_path, toolset=made(change=stubborn)) as on:
        on.server.script(call("change", {}))
        turn = asyncio.create_task(until_end(on.soul.run("hi")))
        await begun.wait()
        await stop(on, turn)
        assert not ended.is_set()
        await goes_on(on)
        # Closing waits for what it started.
        closing = asyncio.create_task(on.soul.aclose())
        await asyncio.sleep(0)
        assert not closing.done()
        may_end.set()
        await closing
        assert ended.is_set()


async def test_stopping_twice_and_when_nothing_runs(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        await on.soul.interrupt()
        on.server.script(stall(3))
        turn = asyncio.create_task(until_end(on.soul.run("hi")))
        await next_event(on.soul.wire.subscribe(), ev.TextPart)
        await asyncio.gather(on.soul.interrupt(), on.soul.interrupt(), on.soul.interrupt())
        await turn
        assert len(on.ear.of(ev.TurnEnd)) == 1
        await goes_on(on)


async def test_a_cancelled_caller_stops_the_turn(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        on.server.script(stall(3))
        turn = asyncio.create_task(on.soul.run("hi"))
        await next_event(on.soul.wire.subscribe(), ev.TextPart)
        turn.cancel()
        with pytest.raises(asyncio.CancelledError):
            await turn
        assert on.ear.of(ev.TurnEnd) == [ev.TurnEnd("interrupted")]
        await goes_on(on)


@pytest.mark.parametrize("n_rounds", range(1, 6))
async def test_what_was_said_is_kept_however_soon_it_is_stopped(
    tmp_path: Path, n_rounds: int
) -> None:
    async with stage(tmp_path) as on:
        turn = asyncio.create_task(until_end(on.soul.run("hi")))
        for _ in range(n_rounds):
            await asyncio.sleep(0)
        await stop(on, turn)
        assert on.file()[-1]["role"] == "user"
        assert "hi" in [r.get("content") for r in on.file()]


@pytest.mark.sample(3)
@pytest.mark.parametrize("moment", range(12))
async def test_at_any_moment_the_history_stays_valid(tmp_path: Path, moment: int) -> None:
    """Stop after so many events of a turn with text, calls, a D-Mail and results."""
    async with stage(tmp_path) as on:
        on.server.script(
            calls(
                [("Glob", {"pattern": "*"}), ("Shell", {"command": "echo hi"})], text="a", piece=3
            ),
            call("SendDMail", {"message": "m", "checkpoint_id": 1}),
            say("done"),
        )
        heard = on.soul.wire.subscribe()
        turn = asyncio.create_task(until_end(on.soul.run("hi")))
        count = 0
        async for record in heard:
            count += 1
            if count == 3 * moment + 1 or isinstance(record.event, ev.TurnEnd):
                break
        await on.soul.interrupt()
        await turn
        while on.server.left:
            # The part that was not requested yet is not needed any more.
            on.server._answers.popleft()
        sent = await goes_on(on)
        assert "hi" in sent[0][1]


async def test_going_on_after_a_stopped_answer_sends_a_word(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        on.server.script(gate(3, say("I am at work on it.", piece=4)), say("and on"))
        heard = on.soul.wire.subscribe()
        turn = asyncio.create_task(until_end(on.soul.run("hi")))
        await next_event(heard, ev.TextPart)
        await on.soul.interrupt()
        await turn
        stopped = on.file()
        await until_end(on.soul.resume())
        last = on.server.requests[-1].messages[-1]
        assert last["role"] == "user"
        # Not the bare name of a checkpoint, which nobody can answer.
        assert "Go on from where you stopped" in last["content"]
        assert "CHECKPOINT" in last["content"]
        # It is no message of the user: neither listed nor given back, and gone with its checkpoint.
        seen = await on.soul.travel.preview(Target(0))
        assert [one.kind for one in seen.dropped] == ["agent", "agent"]
        assert fits(session_history(on.session), on.session)
        point = on.session.context.checkpoints[-1]
        await on.soul.travel.rewind(Target(point.id))
        assert on.file() == stopped


@pytest.mark.exhaustive
async def test_a_word_is_sent_once_and_only_where_it_is_needed(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        refused = {"error": {"message": "no"}}
        on.server.script(
            say("done"), status(400, refused), say("more"), call("Glob", {"pattern": "*"})
        )
        await until_end(on.soul.run("hi"))
        await until_end(on.soul.resume())
        await until_end(on.soul.resume())
        words = str(on.server.requests[-1].messages).count("Go on from where you stopped")
        assert words == 1
        on.server.script(call("Glob", {"pattern": "*"}), say("found"))
        await until_end(on.soul.run("look"))
        await until_end(on.soul.run("again"))
        assert str(on.server.requests[-1].messages).count("Go on from where you stopped") == 1


@pytest.mark.parametrize("fault", [status(400, {"error": {"message": "no"}}), drop_after(2)])
async def test_a_failed_call_ends_its_step(tmp_path: Path, fault: Answer) -> None:
    policy = RetryPolicy(max_attempts=1)
    async with stage(tmp_path, policy=policy) as on:
        on.server.script(fault, say("well"))
        await until_end(on.soul.run("hi"))
        names = on.ear.names(ev.StatusUpdate, ev.TextPart)
        assert names[-2:] == ["StepInterrupted", "TurnEnd"]
        assert on.ear.of(ev.StepInterrupted) == [ev.StepInterrupted(failed=True)]
        assert on.ear.of(ev.TurnEnd)[-1].reason == "error"
        # The user did not stop it.
        rows = await on.checkpoints()
        assert rows[-1].kind == "error"
        await until_end(on.soul.resume())
        assert on.ear.of(ev.TurnEnd)[-1].reason == "done"
        assert len(on.ear.of(ev.StepInterrupted)) == 1


async def test_the_figures_after_a_stopped_turn_count_what_it_left(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        on.server.script(cut(LONG, 11, Stalled()))
        heard = on.soul.wire.subscribe()
        turn = asyncio.create_task(until_end(on.soul.run("hi")))
        await next_event(heard, ev.TextPart)
        await stop(on, turn)
        told = on.ear.of(ev.StatusUpdate)[-1]
        on.soul.publish_status()
        assert on.ear.of(ev.StatusUpdate)[-1] == told

"""Every fault of a model call, from the socket to the person: what is told, what is kept, and that the next turn
works.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.chat_server import (
    Answer,
    Chunk,
    Drop,
    call,
    calls,
    cut,
    delta,
    drop,
    drop_after,
    gate,
    raw,
    reply,
    say,
    stall,
    status,
    stream,
    tool_delta,
)
from support.soul import Stage, next_event, stage, until_end

from kimi_tui.llm.completion import RetryPolicy
from kimi_tui.projection.blocks import (
    AgentBlock,
    ErrorBlock,
    MarkBlock,
    RetryBlock,
    ThoughtBlock,
    ToolBlock,
    UserBlock,
)
from kimi_tui.projection.transcript import TranscriptModel
from kimi_tui.soul.conversation_text import conversation_text
from kimi_tui.soul.rebuilt_history import rebuild_history
from kimi_tui.wire import events as ev

PART = "This part was never"
"""The beginning of an answer that breaks off: it is kept only if no later attempt is completed."""


def contents(on: Stage) -> list[tuple[str, str]]:
    """Role and text of the stored messages, without the markers of checkpoints."""
    return [
        (record["role"], str(record.get("content", "")))
        for record in on.file()
        if not record["role"].startswith("_")
        and not str(record.get("content", "")).startswith("<system>CHECKPOINT")
    ]


async def goes_on(on: Stage, *, kept: bool = False) -> None:
    """The next turn works, and what it sends is valid (the server is strict); it has what was kept of a broken answer."""
    on.server.script(say("fine"))
    await on.soul.run("and now")
    assert on.ear.of(ev.TurnEnd)[-1] == ev.TurnEnd("done")
    assert contents(on)[-1] == ("assistant", "fine")
    assert (PART in json.dumps(on.server.requests[-1].body)) == kept


# Name: the answer, and words of what the person is told. One of each kind: which faults may pass is a test of the model's client.
PASSING: dict[str, tuple[Answer, str]] = {
    "reset before headers": (drop(), "closed the connection"),
    "no HTTP at all": (raw(b"SSH-2.0-OpenSSH_9\r\n"), "closed the connection"),
    "dropped in mid-stream": (drop_after(4, say(f"{PART} meant.")), "connection was lost"),
    "dropped in mid-arguments": (
        drop_after(8, call("Shell", {"command": "touch made"}, text=PART)),
        "connection was lost",
    ),
    "malformed chunk": (stream(delta(content=PART), Chunk("{oops")), "not JSON"),
    "no finish and no [DONE]": (
        say(PART, finish=None, usage=None, done=False),
        "ended before it was complete",
    ),
    "empty answer": (say(""), "an empty answer"),
    "only reasoning": (say("", think=PART), "an empty answer"),
    "429 with Retry-After": (status(429, headers={"Retry-After": "0.05"}), "429"),
    "503": (status(503, "Busy"), "503: Busy"),
    "HTML page": (
        status(502, "<html><title>Bad gateway</title>", content_type="text/html"),
        "a web page, “Bad gateway”",
    ),
    "error within the stream": (
        stream(delta(content=PART), Chunk({"error": {"message": "Overloaded", "code": 503}})),
        "Overloaded",
    ),
}


@pytest.mark.sample(2)
@pytest.mark.usefixtures("far")
@pytest.mark.parametrize("name", PASSING)
async def test_a_fault_that_passes(tmp_path: Path, name: str) -> None:
    fault, words = PASSING[name]
    async with stage(tmp_path) as on:
        on.server.script(fault, say("whole", usage=(5_000, 3)))
        await on.soul.run("hi")
        # The person: why, which attempt of how many, then the whole answer and a turn that is done.
        (retry,) = on.ear.of(ev.StepRetry)
        assert words in retry.reason
        assert (retry.n, retry.attempt, retry.max_attempts) == (1, 2, 3)
        assert on.ear.of(ev.TurnEnd) == [ev.TurnEnd("done")]
        told = on.ear.events
        since = told[told.index(retry) :]
        assert "".join(e.text for e in since if isinstance(e, ev.TextPart)) == "whole"
        # The context: nothing of what failed.
        assert [role for role, _ in contents(on)] == ["user", "assistant"]
        assert PART not in str(on.file())
        assert not (on.work / "made").exists()
        await goes_on(on)


@pytest.mark.sample(2)
@pytest.mark.usefixtures("far")
@pytest.mark.parametrize(
    "name",
    ["reset before headers", "empty answer", "503"],
)
async def test_a_fault_that_comes_every_time(tmp_path: Path, name: str) -> None:
    fault, words = PASSING[name]
    async with stage(tmp_path) as on:
        on.server.script(fault, fault, fault)
        await until_end(on.soul.run("hi"))
        assert [retry.attempt for retry in on.ear.of(ev.StepRetry)] == [2, 3]
        (end,) = on.ear.of(ev.TurnEnd)
        assert (end.reason, end.kind) == ("error", "model")
        assert words in end.error
        assert contents(on) == [("user", "hi")]
        # DroppedMessages on without a word asks the same again.
        on.server.script(say("whole"))
        await until_end(on.soul.resume())
        assert on.ear.of(ev.TurnEnd)[-1] == ev.TurnEnd("done")
        assert on.sent() == [("user", "hi")]
        await goes_on(on)


def shown_of(on: Stage) -> TranscriptModel:
    """The chat as a screen has it."""
    model = TranscriptModel()
    for n, event in enumerate(on.ear.events):
        model.apply(ev.EventRecord(n, 0.0, event))
    return model


BREAKS: dict[str, Answer] = {
    "closed": drop_after(5, say(f"{PART} meant to end")),
    "reset": drop_after(5, say(f"{PART} meant to end"), reset=True),
    "malformed": stream(delta(content=PART), Chunk("{oops")),
    "unfinished": say(PART, finish=None, usage=None, done=False),
    "an error": stream(
        delta(content=PART), Chunk({"error": {"message": "Overloaded", "code": 503}})
    ),
    "refused": stream(delta(content=PART), Chunk({"error": {"message": "No", "code": 400}})),
    "in a call": drop_after(8, call("Shell", {"command": "touch made"}, text=PART)),
    "behind a call": cut(calls([("Shell", {"command": "touch made"})], text=PART), 9, Drop()),
    "thinking": drop_after(7, say("So.", think=PART + " thought to its end")),
}


@pytest.mark.sample(3)
@pytest.mark.usefixtures("far")
@pytest.mark.parametrize("name", BREAKS)
async def test_what_came_of_an_answer_that_breaks_off_is_kept(tmp_path: Path, name: str) -> None:
    async with stage(tmp_path) as on:
        on.server.script(*[BREAKS[name]] * (1 if name == "refused" else 3))
        await until_end(on.soul.run("hi"))
        (end,) = on.ear.of(ev.TurnEnd)
        assert (end.reason, end.kind) == ("error", "model")
        assert on.ear.of(ev.AnswerBroken) == [ev.AnswerBroken(end.error)]
        # The context.
        kept = next(one for one in on.file() if one["role"] == "assistant")
        assert (kept["interrupted"], kept["broken"]) == (True, end.error)
        assert PART in json.dumps(kept["content"])
        # The screen, which has it once, and says that it broke off.
        model = shown_of(on)
        texts = [
            one.stream.text for one in model.blocks if isinstance(one, AgentBlock | ThoughtBlock)
        ]
        assert len(texts) == 1
        assert texts[0].startswith(PART)
        marks = [one.text for one in model.blocks if isinstance(one, MarkBlock)]
        assert marks == ["The answer broke off here"]
        error = model.blocks[-1]
        assert isinstance(error, ErrorBlock)
        assert error.advice.endswith(
            "The part that arrived is kept. Press Enter to continue the answer."
        )
        assert [one.state for one in model.blocks if isinstance(one, ToolBlock)] in (
            [],
            ["stopped"],
        )
        assert not (on.work / "made").exists()
        # Export, and a session that is opened without its record.
        written = conversation_text(on.soul.session.context.messages, 10_000)
        assert f"broke off here: {end.error}" in written
        told = [one.event for one in rebuild_history(on.soul.session, [])]
        assert ev.AnswerBroken(end.error) in told
        assert ev.TurnEnd("error", end.error, kind="model") in told
        assert ev.StepInterrupted() not in told
        # The agent continues from it.
        on.server.script(say("whole"))
        await until_end(on.soul.resume())
        assert on.ear.of(ev.TurnEnd)[-1] == ev.TurnEnd("done")
        await goes_on(on, kept=name != "thinking")


@pytest.mark.usefixtures("far")
async def test_of_several_attempts_the_one_that_brought_most_is_kept(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        on.server.script(
            drop_after(6, say(f"{PART} meant to end")), drop_after(2, say("Again")), status(400)
        )
        await until_end(on.soul.run("hi"))
        most = f"{PART} meant"
        assert contents(on)[-1] == ("assistant", most)
        model = shown_of(on)
        assert [one.stream.text for one in model.blocks if isinstance(one, AgentBlock)] == [most]


@pytest.mark.usefixtures("far")
async def test_an_attempt_stays_on_view_until_the_next_one_says_something(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        on.server.script(drop_after(5, say(f"{PART} meant")), gate(2, say("whole")))
        turn = asyncio.create_task(on.soul.run("hi"))
        await on.server.received(2)
        await on.server.at_gate.wait()
        model = TranscriptModel()
        told = list(on.ear.events)
        after = next(n for n, one in enumerate(told) if isinstance(one, ev.StepRetry)) + 1
        for n, event in enumerate(told[:after]):
            model.apply(ev.EventRecord(n, 0.0, event))
        assert [type(one) for one in model.blocks] == [UserBlock, AgentBlock, RetryBlock]
        on.server.release()
        await turn
        assert [type(one) for one in shown_of(on).blocks] == [UserBlock, AgentBlock]


FINAL: dict[str, tuple[Answer, str, str]] = {
    "400": (status(400, {"error": {"message": "Bad field"}}), "400: Bad field", "Change"),
    "401": (status(401, {"error": {"message": "Bad key"}}), "401: Bad key", "/model"),
    "402": (status(402, {"error": {"message": "Pay"}}), "402: Pay", "credit"),
    "403": (status(403, {"error": {"message": "Not you"}}), "403: Not you", "plan"),
    "404": (status(404, {"error": {"message": "No model"}}), "404: No model", "'stand-in'"),
    "429 of a quota": (
        status(429, {"error": {"message": "No money", "code": "insufficient_quota"}}),
        "429: No money",
        "credit",
    ),
    "429 for an hour": (
        status(429, {"error": {"message": "Wait"}}, headers={"Retry-After": "3600"}),
        "429: Wait",
        "60 min",
    ),
    "redirect": (status(307, "", headers={"Location": "http://127.0.0.2/x"}), "307", "127.0.0.2"),
    "a page with 200": (
        status(200, "<html><title>Log in</title>", content_type="text/html"),
        "Log in",
        "/v1",
    ),
    "an error with 200": (reply({"error": {"message": "No such", "code": 404}}), "No such", ""),
    "the filter": (say("", finish="content_filter"), "filter", "Rephrase"),
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", FINAL)
async def test_a_fault_that_stays(tmp_path: Path, name: str) -> None:
    fault, words, advice = FINAL[name]
    async with stage(tmp_path) as on:
        on.server.script(fault)
        await until_end(on.soul.run("hi"))
        assert len(on.server.requests) == 1
        assert not on.ear.of(ev.StepRetry)
        (end,) = on.ear.of(ev.TurnEnd)
        assert (end.reason, end.kind) == ("error", "model")
        assert words in end.error
        assert advice in end.advice
        assert end.advice
        assert contents(on) == [("user", "hi")]
        await goes_on(on)


async def test_nobody_listens(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        await on.server.stop()
        await until_end(on.soul.run("hi"))
        assert len(on.ear.of(ev.StepRetry)) == 2
        (end,) = on.ear.of(ev.TurnEnd)
        assert "127.0.0.1 cannot be reached" in end.error
        assert "running" in end.advice
        assert contents(on) == [("user", "hi")]
        await on.server.start_again()
        await goes_on(on)


async def test_every_attempt_has_its_own_fault(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        on.server.script(drop_after(4, say(f"{PART} meant.")), status(529), say("whole"))
        await on.soul.run("hi")
        assert [retry.status for retry in on.ear.of(ev.StepRetry)] == [None, 529]
        assert [role for role, _ in contents(on)] == ["user", "assistant"]
        await goes_on(on)


async def test_a_later_step_that_fails_keeps_the_earlier_ones(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        on.server.script(call("Glob", {"pattern": "*"}, text="I look."), status(401))
        await until_end(on.soul.run("hi"))
        assert [role for role, _ in contents(on)] == ["user", "assistant", "tool"]
        on.server.script(say("whole"))
        await until_end(on.soul.resume())
        assert [role for role, _ in on.sent()] == ["user", "assistant", "tool"]
        await goes_on(on)


async def test_a_wait_that_is_cut_short_is_told(tmp_path: Path) -> None:
    async with stage(tmp_path, policy=RetryPolicy(jitter_s=0.0)) as on:
        on.server.script(status(429, headers={"Retry-After": "40"}), say("whole"))
        heard = on.soul.wire.subscribe()
        turn = asyncio.create_task(on.soul.run("hi"))
        assert (await next_event(heard, ev.StepRetry)).wait_s == 40
        on.soul.retry_now()
        again = await next_event(heard, ev.StepRetry)
        assert (again.wait_s, again.attempt, again.status) == (0, 2, 429)
        await asyncio.wait_for(turn, 5)
        assert on.ear.of(ev.TurnEnd) == [ev.TurnEnd("done")]


# -- what is no fault: the answer is taken as it is --


ALL_THE_SAME: dict[str, tuple[Answer, bool]] = {
    "no [DONE]": (say("whole", done=False, usage=(5_000, 3)), False),
    "no usage": (say("whole", usage=None), True),
    "usage with zero": (say("whole", usage=(0, 0)), True),
    "one character at a time": (say("whole", piece=1, usage=(5_000, 3)), False),
}


@pytest.mark.parametrize("name", ALL_THE_SAME)
async def test_what_is_no_fault(tmp_path: Path, name: str) -> None:
    answer, estimated = ALL_THE_SAME[name]
    async with stage(tmp_path) as on:
        on.server.script(answer)
        await on.soul.run("hi")
        assert not on.ear.of(ev.StepRetry)
        assert on.ear.of(ev.TurnEnd) == [ev.TurnEnd("done")]
        last = on.ear.of(ev.StatusUpdate)[-1]
        assert last.estimated is estimated
        assert last.used > 2_000
        await goes_on(on)


@pytest.mark.sample
@pytest.mark.parametrize(
    ("window", "read", "is_full"),
    [(100_000, 99_000, False), (24_000, 25_000, True)],
    ids=["a figure that no such prompt has", "one that it might have"],
)
async def test_a_false_figure_stops_no_turn(
    tmp_path: Path, window: int, read: int, is_full: bool
) -> None:
    async with stage(tmp_path, window=window) as on:
        on.server.script(
            *(call("Glob", {"pattern": f"{n}*"}, usage=(read, 10)) for n in range(4)),
            say("done", usage=(read, 10)),
        )
        await on.soul.run("look")
        assert on.ear.of(ev.TurnEnd) == [ev.TurnEnd("done")]
        assert len(on.server.requests) == 5 + len(on.ear.of(ev.CompactionBegin))
        assert (not on.ear.notices()) is not is_full
        assert (on.soul.used < 10_000) is not is_full
        await goes_on(on)


@pytest.mark.exhaustive
async def test_ten_megabytes(tmp_path: Path) -> None:
    piece = "0123456789abcdef" * 4_096
    async with stage(tmp_path, window=8_000_000) as on:
        on.server.script(stream(*[delta(content=piece)] * 160, usage=(5_000, 3_000_000)))
        await on.soul.run("hi")
        assert on.ear.of(ev.TurnEnd) == [ev.TurnEnd("done")]
        assert len(on.session.context.messages[-1].text) == 160 * len(piece)
        await goes_on(on)


# -- calls that are not as they should be: the model reads why, and can do better --


def two_of_one_index() -> Answer:
    return stream(
        tool_delta(0, name="Glob", arguments='{"pattern":"*.a"}', id="x"),
        tool_delta(0, name="Glob", arguments='{"pattern":"*.b"}', id="y"),
        finish="tool_calls",
    )


def without_ids() -> Answer:
    return stream(
        tool_delta(0, name="Glob", arguments='{"pattern":"*.a"}'),
        tool_delta(1, name="Glob", arguments='{"pattern":"*.b"}'),
        finish="stop",
    )


ODD_CALLS: dict[str, tuple[Callable[[], Answer], list[bool]]] = {
    "arguments in single characters": (
        lambda: calls([("Glob", {"pattern": "*"})], piece=1),
        [False],
    ),
    "arguments that are not JSON": (lambda: calls([("Glob", '{"pattern": ')]), [True]),
    "arguments that are no object": (lambda: calls([("Glob", "[1]")]), [True]),
    "two calls of one index": (two_of_one_index, [False, False]),
    "calls without ids": (without_ids, [False, False]),
    "an unknown tool": (lambda: calls([("Teleport", {"to": "x"})]), [True]),
    "a good call beside a bad one": (
        lambda: calls([("Teleport", {}), ("Glob", {"pattern": "*"})]),
        [True, False],
    ),
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", ODD_CALLS)
async def test_odd_calls(tmp_path: Path, name: str) -> None:
    answer, errors = ODD_CALLS[name]
    async with stage(tmp_path) as on:
        on.server.script(answer(), say("I see."))
        await on.soul.run("hi")
        results = on.ear.of(ev.ToolResult)
        assert [result.is_error for result in results] == errors
        assert len({result.key for result in results}) == len(errors)
        sent = on.server.requests[-1].messages
        made = [entry for message in sent for entry in message.get("tool_calls", [])]
        answered = [message for message in sent if message["role"] == "tool"]
        assert len(made) == len(answered) == len(errors)
        for message, bad in zip(answered, errors, strict=True):
            assert message["content"].startswith("<system>ERROR") is bad
        await goes_on(on)


# -- the window --


def named(window: int) -> dict[str, Any]:
    return {"error": {"message": f"maximum context length is {window} tokens", "code": "x"}}


@pytest.mark.exhaustive
async def test_an_overflow_teaches_the_window_and_the_person_sees_it(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        for words in ("one", "two", "three"):
            on.server.script(say(f"answer {words}", usage=(5_000, 3)))
            await on.soul.run(words)
        assert on.ear.of(ev.StatusUpdate)[-1].limit == 200_000
        on.server.script(status(400, named(40_000)), say("SUMMARY"), say("done"))
        await on.soul.run("four")
        events = on.ear.events
        first = next(i for i, e in enumerate(events) if getattr(e, "limit", 0) == 40_000)
        began = next(i for i, e in enumerate(events) if isinstance(e, ev.CompactionBegin))
        assert first < began
        assert on.ear.of(ev.StatusUpdate)[-1].trigger == 30_000
        assert len(on.ear.of(ev.CompactionEnd)) == 1
        assert on.ear.of(ev.TurnEnd)[-1] == ev.TurnEnd("done")
        await goes_on(on)


@pytest.mark.exhaustive
async def test_an_overflow_in_mid_answer_drops_what_was_said(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        for words in ("one", "two", "three"):
            on.server.script(say(f"answer {words}"))
            await on.soul.run(words)
        full = Chunk({"error": {"message": "context_length_exceeded", "code": 400}})
        on.server.script(stream(delta(content=PART), full), say("SUMMARY"), say("done"))
        await on.soul.run("four")
        (retry,) = on.ear.of(ev.StepRetry)
        assert "context_length_exceeded" in retry.reason
        told = on.ear.names()
        assert told.index("StepRetry") < told.index("CompactionBegin")
        assert on.ear.of(ev.TurnEnd)[-1] == ev.TurnEnd("done")
        assert PART not in str(on.file())
        await goes_on(on)


async def test_an_answer_that_fills_the_window_is_kept_if_nothing_can_be_compacted(
    tmp_path: Path,
) -> None:
    async with stage(tmp_path) as on:
        full = Chunk({"error": {"message": "context_length_exceeded", "code": 400}})
        on.server.script(stream(delta(content=PART), full))
        await until_end(on.soul.run("hi"))
        (end,) = on.ear.of(ev.TurnEnd)
        assert "nothing older" in end.error
        assert contents(on)[-1] == ("assistant", PART)
        model = shown_of(on)
        assert [one.stream.text for one in model.blocks if isinstance(one, AgentBlock)] == [PART]
        await goes_on(on, kept=True)


async def test_an_overflow_with_nothing_to_compact(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        on.server.script(status(400, named(40_000)))
        await until_end(on.soul.run("hi"))
        (end,) = on.ear.of(ev.TurnEnd)
        assert "nothing older" in end.error
        assert "maximum context length" in end.error
        assert end.advice
        assert contents(on) == [("user", "hi")]
        assert on.ear.of(ev.StatusUpdate)[-1].limit == 40_000
        await goes_on(on)


async def test_an_overflow_whose_summary_fails_leaves_everything(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        for words in ("one", "two", "three"):
            on.server.script(say(f"answer {words}"))
            await until_end(on.soul.run(words))
        before = contents(on)
        on.server.script(status(400, named(40_000)), *[status(500)] * 3)
        await until_end(on.soul.run("four"))
        assert "not compacted" in on.ear.of(ev.TurnEnd)[-1].error
        assert contents(on) == [*before, ("user", "four")]
        await goes_on(on)


async def test_a_prompt_cut_without_a_word_is_told_once(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        (on.work / "long.txt").write_text("a word and another\n" * 900)
        on.server.script(
            call("ReadFile", {"path": "long.txt"}, usage=(5_000, 10)),
            call("Glob", {"pattern": "*"}, usage=(2_048, 10)),
            say("well", usage=(2_048, 10)),
        )
        await on.soul.run("hi")
        (notice,) = on.ear.notices()
        assert notice.level == "warning"
        assert "2,048" in notice.text
        assert "OLLAMA_CONTEXT_LENGTH" in notice.advice
        # The server read another text than the context holds, so its figure says nothing about estimates.
        last = on.ear.of(ev.StatusUpdate)[-1]
        assert last.used > 8_000
        assert last.estimated
        assert on.ear.of(ev.TurnEnd) == [ev.TurnEnd("done")]
        await goes_on(on)


# -- a server that calls no tools --


async def test_without_tools(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        no_tools = {"error": {"message": "stand-in does not support tools"}}
        on.server.script(status(400, no_tools))
        await until_end(on.soul.run("hi"))
        (end,) = on.ear.of(ev.TurnEnd)
        assert (end.reason, end.kind) == ("error", "tools")
        assert "does not support tools" in end.error
        assert contents(on) == [("user", "hi")]
        on.soul.use_tools("off")
        on.server.script(say("whole"))
        await until_end(on.soul.resume())
        assert "tools" not in on.server.requests[-1].body
        assert on.ear.of(ev.TurnEnd)[-1] == ev.TurnEnd("done")
        on.soul.use_tools("on")
        await goes_on(on)
        assert on.server.requests[-1].body["tools"]


# -- estimates --


async def test_what_was_learned_of_estimates_is_there_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", "kimi_tui")
    async with stage(tmp_path) as on:
        on.server.script(say("one", usage=(9_000, 10)), say("two", usage=(9_100, 10)))
        await until_end(on.soul.run("hi"))
        await until_end(on.soul.run("more"))
        lines = [r.getMessage() for r in caplog.records if r.getMessage().startswith("tokens:")]
        assert len(lines) == 2
        assert "the server says 9000, difference +" in lines[0]
        learned = on.ear.of(ev.StatusUpdate)[-1].correction
        assert learned > 1.2
        # The last figure is an estimate when the program ends: what was learned does not hang on it.
        on.server.script(stall(3, say(f"{PART} meant.")))
        turn = asyncio.create_task(until_end(on.soul.run("again")))
        await next_event(on.soul.wire.subscribe(), ev.TextPart)
        await on.soul.interrupt()
        await turn
        await on.reopen()
        shown = [r.event for r in on.soul.opened_with if isinstance(r.event, ev.StatusUpdate)]
        assert shown[-1].correction == learned
        assert on.soul._conversation.meter.scale.factor == learned

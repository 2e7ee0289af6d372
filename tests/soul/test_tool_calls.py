"""The calls of one step: reading ones at once, changing ones in order, results in the order of the calls."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from support.chat_server import calls, gate, say
from support.effort import most_in_a_callback
from support.soul import Tool, next_event, stage, until_end

from kimi_tui.llm.message import MANY
from kimi_tui.llm.tokens import text_tokens
from kimi_tui.session import context_index
from kimi_tui.session.context_index import ContextIndex, MessageCache, MessageList
from kimi_tui.session.schema import MessageKind
from kimi_tui.soul import tasks
from kimi_tui.soul.model_slot import LoopLimits
from kimi_tui.soul.request_form import CHARS_A_TOKEN
from kimi_tui.soul.tool_calls import within_room
from kimi_tui.tools.base import TO_RUN, ApprovalQuestion, ToolEnv
from kimi_tui.tools.outcome import ToolOutcome
from kimi_tui.tools.toolset import Toolset
from kimi_tui.wire import events as ev


class Recording:
    """Tools that say when they begin and end, and wait for each other where a test wants it."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.together = asyncio.Barrier(2)

    def tools(self) -> Toolset:
        return Toolset(
            [
                Tool("read", self.read),
                Tool("meet", self.meet),
                Tool("change", self.change, changes=True),
            ]
        )

    async def read(self, values: dict[str, Any], env: ToolEnv) -> ToolOutcome:
        self.log.append(f"read {values['name']}")
        return ToolOutcome(values["name"])

    async def meet(self, values: dict[str, Any], env: ToolEnv) -> ToolOutcome:
        # Passes only while another one runs too.
        await asyncio.wait_for(self.together.wait(), 5)
        return ToolOutcome(values["name"])

    async def change(self, values: dict[str, Any], env: ToolEnv) -> ToolOutcome:
        await env.approver.ask(ApprovalQuestion(TO_RUN, "Run?", values["name"]))
        self.log.append(f"begin {values['name']}")
        await asyncio.sleep(0)
        self.log.append(f"end {values['name']}")
        return ToolOutcome(values["name"])


async def test_reading_at_once_and_changing_in_order(tmp_path: Path) -> None:
    recording = Recording()
    async with stage(tmp_path, toolset=recording.tools()) as on:
        names = [
            ("meet", "a"),
            ("meet", "b"),
            ("change", "c"),
            ("change", "d"),
            ("read", "e"),
            ("change", "f"),
        ]
        on.server.script(calls([(tool, {"name": name}) for tool, name in names]), say("ok"))
        await on.soul.run("go")
        assert recording.log == [
            "begin c",
            "end c",
            "begin d",
            "end d",
            "read e",
            "begin f",
            "end f",
        ]
        assert [text for role, text in on.sent() if role == "tool"] == list("abcdef")


async def test_a_bare_no_stops_what_would_change_more(tmp_path: Path) -> None:
    recording = Recording()
    async with stage(tmp_path, toolset=recording.tools(), mode="ask") as on:
        names = [("change", "a"), ("change", "b"), ("read", "c")]
        on.server.script(calls([(tool, {"name": name}) for tool, name in names]))
        heard = on.soul.wire.subscribe()
        turn = asyncio.create_task(on.soul.run("go"))
        on.soul.answer((await next_event(heard, ev.ApprovalRequest)).id, "no")
        await turn
        assert recording.log == ["read c"]
        results = on.ear.of(ev.ToolResult)
        assert [(r.rejected, r.is_error) for r in results] == [
            (True, True),
            (False, True),
            (False, False),
        ]
        assert len(on.ear.of(ev.ApprovalRequest)) == 1
        assert on.ear.of(ev.TurnEnd)[-1].reason == "rejected"


async def test_started_is_told_when_it_may_run(tmp_path: Path) -> None:
    recording = Recording()
    async with stage(tmp_path, toolset=recording.tools(), mode="ask") as on:
        on.server.script(calls([("change", {"name": "a"})]), say("ok"))
        heard = on.soul.wire.subscribe()
        turn = asyncio.create_task(on.soul.run("go"))
        request = await next_event(heard, ev.ApprovalRequest)
        await asyncio.sleep(0.05)
        assert not on.ear.of(ev.ToolStarted)
        on.soul.answer(request.id, "once")
        await turn
        names = on.ear.names(ev.StatusUpdate, ev.ToolCallPart)
        at = names.index("ApprovalRequest")
        assert names[at : at + 4] == [
            "ApprovalRequest",
            "ApprovalResolved",
            "ToolStarted",
            "ToolResult",
        ]


async def test_live_output_is_cleaned_bounded_and_not_stored(tmp_path: Path) -> None:
    async def flood(arguments: dict[str, Any], env: ToolEnv) -> ToolOutcome:
        env.emit("\x1b]52;c;aaaa")
        env.emit("\x07red \x1b[31mred\n")
        await asyncio.sleep(0.08)
        for _ in range(2_000):
            env.emit("x" * 5_000)
        await asyncio.to_thread(env.emit, "the end\n")
        return ToolOutcome("done")

    async with stage(tmp_path, toolset=Toolset([Tool("flood", flood)])) as on:
        on.server.script(calls([("flood", {})]), say("ok"))
        await on.soul.run("go")
        pieces = [e.text for e in on.ear.of(ev.ToolOutput)]
        text = "".join(pieces)
        assert text.startswith("red red\n")
        assert "\x1b" not in text
        assert len(text) < 60_000
        assert "characters …]" in text
        assert text.endswith("the end\n")
        assert b"ToolOutput" not in on.session.record.path.read_bytes()


async def test_output_is_told_again_and_again_while_a_tool_runs(tmp_path: Path) -> None:
    told = asyncio.Event()

    async def talk(arguments: dict[str, Any], env: ToolEnv) -> ToolOutcome:
        for number in range(3):
            env.emit(f"{number}\n")
            await asyncio.wait_for(told.wait(), 20)
            told.clear()
        return ToolOutcome("done")

    async with stage(tmp_path, toolset=Toolset([Tool("talk", talk)])) as on:
        on.server.script(calls([("talk", {})]), say("ok"))
        heard = on.soul.wire.subscribe()
        turn = asyncio.create_task(on.soul.run("go"))
        for number in range(3):
            assert (await next_event(heard, ev.ToolOutput)).text == f"{number}\n"
            told.set()
        assert await turn == "done"


async def test_a_tool_is_bounded_but_the_person_is_not(tmp_path: Path) -> None:
    async def endless(_: dict[str, Any], env: ToolEnv) -> ToolOutcome:
        await asyncio.Event().wait()
        raise AssertionError

    async def asking(_: dict[str, Any], env: ToolEnv) -> ToolOutcome:
        await env.approver.ask(ApprovalQuestion(TO_RUN, "Run?", "x"))
        return ToolOutcome("ran")

    async def both(values: dict[str, Any], env: ToolEnv) -> ToolOutcome:
        await asking(values, env)
        return await endless(values, env)

    tools = Toolset(
        [
            Tool("endless", endless),
            Tool("asking", asking, changes=True),
            Tool("both", both, changes=True),
        ]
    )
    limits = LoopLimits(tool_timeout_s=0.05)
    async with stage(tmp_path, toolset=tools, mode="ask", limits=limits) as on:
        on.server.script(calls([("endless", {}), ("asking", {}), ("both", {})]), say("ok"))
        heard = on.soul.wire.subscribe()
        turn = asyncio.create_task(on.soul.run("go"))
        request = await next_event(heard, ev.ApprovalRequest)
        await asyncio.sleep(0.12)
        on.soul.answer(request.id, "once")
        request = await next_event(heard, ev.ApprovalRequest)
        on.soul.answer(request.id, "once")
        async with asyncio.timeout(20):
            await turn
        first, second, third = on.ear.of(ev.ToolResult)
        assert first.is_error
        assert "longer than" in first.message
        assert second.output == "ran"
        assert "longer than" in third.message


@pytest.mark.exhaustive
async def test_of_many_that_read_some_run_at_once(tmp_path: Path) -> None:
    running = most = 0

    async def read(values: dict[str, Any], env: ToolEnv) -> ToolOutcome:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return ToolOutcome(str(values["n"]))

    async with stage(tmp_path, toolset=Toolset([Tool("read", read)])) as on:
        on.server.script(calls([("read", {"n": n}) for n in range(100)]), say("ok"))
        await on.soul.run("go")
        assert 2 <= most <= 16
        said = [text for role, text in on.sent() if role == "tool"]
        assert said == [str(n) for n in range(100)]


@pytest.mark.exhaustive
@pytest.mark.parametrize("stopped", [False, True])
async def test_many_calls_hold_the_event_loop_up_no_longer_than_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stopped: bool
) -> None:
    monkeypatch.setattr(tasks, "_SLICE_S", 0.0)
    begun = asyncio.Event()

    async def read(values: dict[str, Any], env: ToolEnv) -> ToolOutcome:
        begun.set()
        if stopped:
            await asyncio.Event().wait()
        return ToolOutcome("a line\n" * 3)

    async with stage(tmp_path, toolset=Toolset([Tool("read", read)])) as on:
        on.server.script(calls([("read", {"n": n}) for n in range(160)], piece=99), say("ok"))
        turn = asyncio.create_task(until_end(on.soul.run("go")))
        await begun.wait()
        with most_in_a_callback() as most:
            if stopped:
                await on.soul.interrupt()
            await turn
        assert len([role for role, _ in on.sent() if role == "tool"]) == (0 if stopped else 160)
        # All at once they take more than eight thousand.
        assert most.n_calls < 4_000


@pytest.mark.exhaustive
@pytest.mark.parametrize("stopped", [False, True])
async def test_an_answer_with_hundreds_of_calls_holds_the_event_loop_up_no_longer_than_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stopped: bool
) -> None:
    monkeypatch.setattr(tasks, "_SLICE_S", 0.0)
    n_calls = MANY + 100
    read_again: list[int] = []
    real = context_index.parse

    def parse(data: bytes) -> dict[str, Any] | str | None:
        if len(data) > 10 * MANY:
            read_again.append(len(data))
        return real(data)

    monkeypatch.setattr(context_index, "parse", parse)

    async def read(values: dict[str, Any], env: ToolEnv) -> ToolOutcome:
        return ToolOutcome("x")

    answer = calls([("read", {"n": n}) for n in range(n_calls)], piece=99)
    async with stage(tmp_path, toolset=Toolset([Tool("read", read)]), window=1_000_000) as on:
        on.server.script(gate(len(answer.ops) - 3, answer), say("ok"))
        told = on.soul.wire.subscribe()
        turn = asyncio.create_task(until_end(on.soul.run("go")))
        for _ in range(n_calls):
            await next_event(told, ev.ToolCallPart)
        with most_in_a_callback() as most:
            if stopped:
                await on.soul.interrupt()
            on.server.release()
            await turn
        index, messages = on.session.context.index, on.session.context.messages
        assert sum(index.calls()) == n_calls
        assert bytes(index.kinds()).count(MessageKind.RESULT) == (0 if stopped else n_calls)
        # Appending a few dozen results takes so many calls; each step over all calls would take three for each.
        assert most.n_calls < 4_400
        # The context file was not read again to find out which part it is.
        assert read_again == []
        data = (on.session.dir / "context.jsonl").read_bytes()

        def stored(size: int, offset: int) -> bytes:
            return data[offset : offset + size]

        scanned = ContextIndex.scan(stored)
        assert scanned == index
        assert [one.stored() for one in MessageList(scanned, stored, MessageCache())] == [
            one.stored() for one in messages
        ]


@pytest.mark.parametrize("piece", ["words of a text ", "1234567890 ", "{[(=)]} "])
def test_a_text_is_cut_to_the_tokens_that_there_is_room_for(piece: str) -> None:
    most_chars = 6_000
    most = most_chars // CHARS_A_TOKEN
    found = within_room(piece * 2_000, most_chars)
    assert len(found) <= most_chars + 100  # the words in place of the middle
    assert text_tokens(found) <= most * 1.05
    # As much as there is room for is kept, in characters or in tokens.
    assert len(found) > most_chars * 0.9 or text_tokens(found) > most * 0.9
    assert within_room(piece, most_chars) == piece
    assert within_room(piece * 2_000, None) == piece * 2_000
    assert within_room("", most_chars) == ""

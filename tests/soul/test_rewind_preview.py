"""A preview lists the messages of the line, and neither reads nor counts parts that nobody looks at."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.chat_server import Answer, call, calls, gate, say, status
from support.soul import Stage, stage, until_end

from kimi_tui.llm.message import FunctionCall, Message, ToolCall
from kimi_tui.session import context_index, schema
from kimi_tui.session.context_index import ContextIndex
from kimi_tui.session.schema import Checkpoint, message_line
from kimi_tui.soul import dmail, tasks, token_meter
from kimi_tui.soul import messages as messages_module
from kimi_tui.soul import rewind_preview as preview_module
from kimi_tui.soul.messages import (
    call_target,
    dmail_text,
    internal_kind,
    is_user_words,
    kind_of,
    label_of,
    segments,
    summary_text,
)
from kimi_tui.soul.rewind_values import END, DroppedMessage, Target
from kimi_tui.soul.tool_results import outcome_of
from kimi_tui.wire import events as ev

Row = tuple[str, str, str, bool]


def read_through(messages: list[Message]) -> list[Row]:
    """Return every row of these messages by reading all of them, newest first."""
    rows: list[Row] = []
    for place, message in enumerate(messages):
        letter, summary = dmail_text(message), summary_text(message)
        if letter is not None:
            rows.append(("dmail", label_of(letter), "", False))
        elif summary is not None:
            rows.append(("summary", label_of(summary), "", False))
        elif is_user_words(message):
            rows.append(("user", label_of(message.text), "", False))
        elif message.role == "assistant":
            if message.text.strip():
                rows.append(("agent", label_of(message.text), "", False))
            for order, one in enumerate(message.tool_calls or ()):
                result = messages[place + 1 + order : place + 2 + order]
                failed = any(outcome_of(each).is_error for each in result)
                rows.append(("tool", call_target(one), one.function.name, failed))
    return rows[::-1]


def row(one: DroppedMessage) -> Row:
    return (one.kind, one.text, one.name, one.failed)


async def eventful(on: Stage) -> None:
    """Two turns with several results, a failure, a steer, a D-Mail, and a compaction of what came first."""
    (on.work / "a.txt").write_text("hello\n")
    on.server.script(
        say("zero"),
        calls([("ReadFile", {"path": "a.txt"}), ("ReadFile", {"path": "none"})], text="I look."),
        call("Shell", {"command": "exit 3"}),
        gate(2, call("Glob", {"pattern": "*"})),
        call("SendDMail", {"message": "skip it", "checkpoint_id": 5}),
        say("   "),
        say("SUMMARY"),
        call("Shell", {"command": "true"}, text="And on."),
        say("done"),
    )
    await on.soul.run("begin")
    turn = asyncio.create_task(on.soul.run("work\nwith more"))
    await on.server.at_gate.wait()
    on.soul.say("and hurry")
    on.server.release()
    await turn
    await on.soul.compact(until=Target(2))
    await on.soul.run("more")


@pytest.mark.exhaustive
async def test_the_rows_are_those_of_the_messages(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        await eventful(on)
        context = on.session.context
        for place, point in enumerate(context.checkpoints):
            if not point.id:
                continue
            seen = await on.soul.travel.preview(Target(point.id))
            going = list(context.messages[point.message_index :])
            expected = read_through(going)
            parts = segments(context.world_line, place)
            if seen.prompt:
                last = sum(1 for m in parts[0].messages if is_user_words(m))
                said = [one for one in expected if one[0] == "user"]
                for one in said[len(said) - last :]:
                    expected.remove(one)
            assert [row(one) for one in seen.dropped] == expected
            assert [row(one) for one in seen.dropped[1:4]] == expected[1:4]
            assert [row(seen.dropped[-n]) for n in range(1, len(expected) + 1)] == expected[::-1]
            # A D-Mail carries the message that began its turn over: that turn goes, too.
            turns = sum(len(part.carried) + (part.kind == "user") for part in parts)
            assert (seen.steps, seen.turns) == (len(parts), turns)
            assert seen.label == parts[0].label
            assert seen.messages == sum(internal_kind(m) != "marker" for m in going)
            assert seen.ran_commands == any(one.name == "Shell" for one in seen.dropped)
        kinds_there = {
            kind_of(context.index.kinds(p.message_index, q.message_index), p.id)
            for p, q in zip(context.checkpoints, context.checkpoints[1:], strict=False)
        }
        assert kinds_there == {"compaction", "user", "dmail", "step"}


def counted(monkeypatch: pytest.MonkeyPatch, place: Any, name: str) -> list[str]:
    """Return the threads in which a function was called from now on."""
    found: list[str] = []
    real: Callable[..., Any] = getattr(place, name)

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        found.append(threading.current_thread().name)
        return real(*args, **kwargs)

    monkeypatch.setattr(place, name, wrapped)
    return found


def usage(tokens: int) -> bytes:
    """Return the line of a figure of the server."""
    return schema.added_lines([schema.TokenCount(tokens, estimated=False)], 0)[0].data


def turn_of(number: int) -> bytes:
    """Return a turn of four messages and three checkpoints, as lines of the file."""
    step, last = 3 * number + 1, 3 * number + 2
    asked = {"id": f"c{number}", "function": {"name": "ReadFile", "arguments": "{}"}}
    answer = Message.model_validate({"role": "assistant", "content": [], "tool_calls": [asked]})
    return b"".join(
        [
            schema.encode({"role": "_checkpoint", "id": step - 1, "uid": f"u{step - 1}"}),
            message_line(Message(role="user", content=f"question {number}")),
            schema.encode({"role": "_checkpoint", "id": step, "uid": f"u{step}"}),
            usage(100 + 20 * number),
            message_line(answer),
            message_line(Message(role="tool", content="x " * 400, tool_call_id=f"c{number}")),
            schema.encode({"role": "_checkpoint", "id": last, "uid": f"u{last}"}),
            usage(110 + 20 * number),
            message_line(Message(role="assistant", content=f"answer {number}")),
        ]
    )


async def long_stage(on: Stage, n_turns: int, *answers: Answer) -> None:
    """Put a long line in the place of the stage's empty one."""
    await on.soul.aclose()
    path = on.session.dir / "context.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(
        schema.added_lines([schema.SystemPrompt("S")], 0)[0].data
        + b"".join(map(turn_of, range(n_turns)))
    )
    on.session = on.store.find(on.session.id, on.work)
    await on.open()
    await on.soul.files_ready()
    on.server.script(*answers)


@pytest.mark.exhaustive
async def test_a_long_line_is_neither_read_nor_counted_for_a_preview(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stage(tmp_path, window=10_000_000) as on:
        await long_stage(on, 500, gate(2, say("I am at work.")))
        turn = asyncio.create_task(on.soul.run("go"))
        await on.server.at_gate.wait()
        assert on.soul.running
        on.session.context._cache.clear()
        read = counted(monkeypatch, context_index, "parse_message")
        estimated = counted(monkeypatch, token_meter, "message_tokens")
        for target in (Target(0), Target(4), Target(700)):
            read.clear()
            seen = await on.soul.travel.preview(target)
            # The message at the checkpoint itself is read, for its label.
            assert len(read) <= 3
            assert seen.steps == 1_502 - target.id
            assert [one.text for one in seen.dropped[:3]] == ["go", "answer 499", ""]
            assert len(read) <= 6
        # Only what has come since the figures were told last: a marker.
        assert len(estimated) <= 1
        # The user's messages stay with a D-Mail: they are counted, but not on the loop.
        counts = counted(monkeypatch, dmail, "message_tokens")
        found = await on.soul.dmails.preview(4, "Look there.")
        assert (await on.soul.travel.preview(Target(4))).messages - found.messages == 499
        # With the marker and the D-Mail itself.
        assert len(counts) == 501
        assert threading.main_thread().name not in counts
        on.server.release()
        await turn


@pytest.mark.exhaustive
async def test_what_is_pinned_and_said_is_nothing_that_a_dmail_takes(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        on.server.script(
            say("one"), call("Glob", {"pattern": "*"}), say("two"), say("three", usage=(9_000, 10))
        )
        for text in ("first", "second", "third"):
            await on.soul.run(text)
        pinned = next(point for point in on.session.context.checkpoints if point.id == 3)
        await on.soul.marks.pin(pinned.uid, 0)
        rewind = await on.soul.travel.preview(Target(2))
        assert (rewind.steps, rewind.turns, rewind.messages) == (5, 2, 6)
        end = await on.soul.travel.preview(Target(END))
        assert (end.steps, end.turns, end.messages, len(end.dropped)) == (0, 0, 0, 0)
        assert end.tokens_before == end.tokens_after == on.soul.used
        assert end.is_there
        # The result stays with its call.
        found = await on.soul.dmails.preview(2, "Think.", "person")
        assert (found.steps, found.turns, found.messages) == (2, 0, 2)
        assert [(one.kind, one.text) for one in found.dropped] == [
            ("agent", "three"),
            ("agent", "two"),
        ]
        await on.soul.dmails.send(Target(2), "Think.")
        assert on.soul.used == found.tokens_after


async def test_a_preview_stands_when_the_line_becomes_another_one(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        on.server.script(say("one"), say("two"), say("three"))
        for text in ("first", "second", "third"):
            await on.soul.run(text)
        seen = await on.soul.travel.preview(Target(2))
        newest = seen.dropped[0]
        await on.soul.travel.rewind(Target(0))
        assert len(seen.dropped) == 3
        assert seen.dropped[0] == newest
        assert seen.dropped[2].kind == "agent"
        assert seen.dropped[2].text == ""


async def test_an_undo_is_previewed_with_the_figures_that_come_back(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        on.server.script(say("one", usage=(8_000, 10)), say("two", usage=(9_000, 10)))
        for text in ("first", "second"):
            await on.soul.run(text)
        full = on.soul.used
        await on.soul.travel.rewind(Target(2))
        seen = await on.soul.travel.preview_undo()
        assert (seen.tokens_before, seen.tokens_after) == (on.soul.used, full)
        await on.soul.travel.undo()
        assert on.soul.used == full
        assert not on.soul.status.estimated
        # What no server has counted stays an estimate.
        on.server.script(status(400, {"error": {"message": "no"}}))
        await until_end(on.soul.run("third"))
        assert on.soul.status.estimated
        used = on.soul.used
        await on.soul.travel.rewind(Target(2))
        await on.soul.travel.undo()
        assert (on.soul.used, on.soul.status.estimated) == (used, True)


async def test_a_preview_of_a_line_left_reads_its_file_once_and_never_on_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stage(tmp_path) as on:
        on.server.script(say("one"), say("two"))
        for text in ("first", "second"):
            await on.soul.run(text)
        await on.soul.travel.rewind(Target(2))
        await on.reopen()
        on.server.script(gate(2, say("I am at work.")))
        turn = asyncio.create_task(on.soul.run("go"))
        await on.server.at_gate.wait()
        taken = counted(monkeypatch, ContextIndex, "_add_line")
        for _ in range(2):
            seen = await on.soul.travel.preview(Target(2, world_line=1))
            assert seen.prompt == "second"
        assert taken
        assert threading.main_thread().name not in taken
        n_taken = len(taken)
        await on.soul.travel.preview(Target(3, world_line=1))
        assert len(taken) == n_taken
        on.server.release()
        await turn


@pytest.mark.exhaustive
async def test_a_long_line_is_compacted_up_to_here_away_from_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stage(tmp_path, window=10_000_000) as on:
        await long_stage(on, 300, say("SUMMARY"))
        here = threading.main_thread().name
        taken = counted(monkeypatch, ContextIndex, "_add_line")
        encoded = counted(monkeypatch, schema, "encode")
        await on.soul.compact(until=Target(6))
        assert on.ear.of(ev.CompactionEnd)[-1].error == ""
        # A few records of the operation itself.
        assert taken.count(here) < 5 < 1_000 < len(taken)
        assert encoded.count(here) < 20 < 800 < len(encoded)
        created = on.ear.of(ev.CheckpointCreated)
        assert len(created) == 1 + 900 - 6
        assert [one.label for one in created[1:4]] == ["question 2", "Read", "answer 2"]


async def test_a_message_of_many_calls_is_listed_in_time_that_grows_with_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_at = 0

    class Kinds(bytes):
        def __getitem__(self, key: Any) -> Any:
            nonlocal looked_at
            found: Any = super().__getitem__(key)
            looked_at += len(found) if isinstance(found, bytes) else 1
            return found

    real = ContextIndex.kinds

    def kinds(index: ContextIndex, first: int = 0, last: int | None = None) -> bytes:
        return Kinds(real(index, first, last))

    n_calls = 400
    async with stage(tmp_path, follow_files=False) as on:
        on.server.script(say("done"))
        await on.soul.run("go on")
        made = [
            ToolCall(id=f"c{n}", function=FunctionCall(name="Glob", arguments="{}"))
            for n in range(n_calls)
        ]
        results = [Message(role="tool", content="found", tool_call_id=one.id) for one in made]
        answer = Message(role="assistant", content="I look.", tool_calls=made)
        await on.session.context.append([answer, *results])
        monkeypatch.setattr(ContextIndex, "kinds", kinds)
        preview = await on.soul.travel.preview(Target(0))
        # Only the visible calls are read.
        targets = counted(monkeypatch, preview_module, "call_target")
        assert [row.kind for row in preview.dropped[:5]] == ["tool"] * 5
        assert len(targets) == 5
        looked_at = 0
        rows = list(preview.dropped)
        assert sum(row.kind == "tool" and row.tokens is not None for row in rows) == n_calls
        assert looked_at < 20 * n_calls


async def test_the_label_of_a_step_reads_as_many_calls_as_it_has_room_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    targets = counted(monkeypatch, messages_module, "call_target")
    made = [
        ToolCall(id=f"c{n}", function=FunctionCall(name="Glob", arguments='{"pattern": "*"}'))
        for n in range(9 * messages_module.MAX_LABEL)
    ]
    answer = Message(role="assistant", content=[], tool_calls=made)
    step = messages_module.Segment(Checkpoint(0, "u", "", 0, 0), (answer,))
    label = step.label
    assert len(label) == messages_module.MAX_LABEL
    assert label.startswith("Glob *, Glob *, ")
    assert len(targets) <= messages_module.MAX_LABEL


async def test_what_was_spent_is_counted_in_slices_when_a_session_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stage(tmp_path, follow_files=False) as on:
        conversation = on.soul._conversation  # pyright: ignore[reportPrivateUsage]
        monkeypatch.setattr("kimi_tui.soul.tasks._SLICE_S", 0.0)
        yields = counted(monkeypatch, tasks.TimeSlices, "yield_if_over")
        stored = [ev.EventRecord(n, 0.0, ev.StepBegin(1)) for n in range(1, 5_001)]
        await conversation.resume(stored, stored)
        assert len(yields) > 10


@pytest.mark.parametrize("path", ["a.txt", "none"])
async def test_a_single_result_costs_what_its_step_added_failed_or_not(
    tmp_path: Path, path: str
) -> None:
    async with stage(tmp_path) as on:
        (on.work / "a.txt").write_text("hello\n")
        on.server.script(
            call("ReadFile", {"path": path}, usage=(3_000, 20)), say("done", usage=(3_700, 10))
        )
        await on.soul.run("read it")
        (row,) = [
            one for one in (await on.soul.travel.preview(Target(0))).dropped if one.kind == "tool"
        ]
        assert (row.failed, row.tokens) == (path == "none", 700)
        # The same behind another turn.
        on.server.script(
            call("ReadFile", {"path": path}, usage=(4_000, 20)), say("done", usage=(4_300, 10))
        )
        await on.soul.run("again")
        here = [one.id for one in on.session.context.checkpoints][3]
        (row,) = [
            one
            for one in (await on.soul.travel.preview(Target(here))).dropped
            if one.kind == "tool"
        ]
        assert row.tokens == 300

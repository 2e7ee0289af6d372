"""The record holds what was told, merged, and tells the same when it is read."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any, cast

import pytest
from support.chat_server import say
from support.soul import stage

from kimi_tui.session.jsonl import JsonlLog
from kimi_tui.session.session import Session
from kimi_tui.soul import record
from kimi_tui.soul.record import Recorder
from kimi_tui.tool_cards import DiffBlock, DiffLine
from kimi_tui.wire import events as ev
from kimi_tui.wire.codec import Decoder
from kimi_tui.wire.queue import Wire

TOLD: list[ev.Event] = [
    ev.TurnBegin("hi"),
    ev.ThinkPart("a"),
    ev.ThinkPart("b"),
    ev.TextPart("c"),
    ev.TextPart("d"),
    ev.ToolCall("k:0", "Shell", '{"com', "c0"),
    ev.ToolCallPart("k:0", 'mand": '),
    ev.ToolCallPart("k:0", '"ls"}'),
    ev.ToolStarted("k:0", "Shell", '{"command": "ls"}'),
    ev.ToolOutput("k:0", "x\n"),
    ev.ToolResult("k:0", False, "x\n", id="c0"),
    ev.TextPart("e"),
    ev.TurnEnd("done"),
]
STORED: list[ev.Event] = [
    ev.TurnBegin("hi"),
    ev.ThinkPart("ab"),
    ev.TextPart("cd"),
    ev.ToolCall("k:0", "Shell", '{"command": "ls"}', "c0"),
    ev.ToolStarted("k:0", "Shell", '{"command": "ls"}'),
    ev.ToolResult("k:0", False, "x\n", id="c0"),
    ev.TextPart("e"),
    ev.TurnEnd("done"),
]


def read(file: JsonlLog) -> list[ev.Event]:
    decoder = Decoder()
    records = [decoder.decode_record(line, 0) for line in file.read()]
    return [one.event for one in records if one is not None]


async def test_the_end_is_found_where_its_last_checkpoint_stands_further_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The last message of the context alone is longer than what is read first.
    monkeypatch.setattr(record, "END_BYTES", 1_000)
    async with stage(tmp_path) as on:
        on.server.script(say("one"), say("word " * 1_000))
        await on.soul.run("first")
        await on.soul.run("second")
        await on.soul.flush()
        said = [one.event for one in record.end_of_record(on.session)]
    assert said[-1] == ev.TurnEnd("done")
    assert any(isinstance(one, ev.TurnBegin) and one.text == "second" for one in said)


async def test_texts_are_merged_and_arguments_stored_once(tmp_path: Path) -> None:
    file, wire = JsonlLog(tmp_path / "wire.jsonl"), Wire()
    recorder = Recorder(cast(JsonlLog, file), wire)
    for event in TOLD:
        wire.publish(event)
        await asyncio.sleep(0)
    await recorder.aclose()
    assert read(file) == STORED
    assert file.path.read_bytes().count(b'\\"ls\\"') == 1
    file.close()


async def test_a_flush_writes_what_is_open(tmp_path: Path) -> None:
    file, wire = JsonlLog(tmp_path / "wire.jsonl"), Wire()
    recorder = Recorder(cast(JsonlLog, file), wire)
    wire.publish(ev.TextPart("half "))
    await recorder.flush()
    assert read(file) == [ev.TextPart("half ")]
    wire.publish(ev.TextPart("whole"))
    await recorder.aclose()
    assert read(file) == [ev.TextPart("half "), ev.TextPart("whole")]
    file.close()


class Watched:
    """A file that tells of each record it is given."""

    def __init__(self, file: JsonlLog) -> None:
        self.file = file
        self.loop = asyncio.get_running_loop()
        self.written: asyncio.Queue[None] = asyncio.Queue()

    def append(self, *records: dict[str, Any]) -> None:
        self.file.append(*records)
        self.loop.call_soon_threadsafe(self.written.put_nowait, None)


@pytest.mark.parametrize(("part_s", "part_chars"), [(0.05, 1000), (60.0, 4)])
@pytest.mark.parametrize("kind", ["text", "thought", "call"])
async def test_what_is_being_streamed_is_written_in_parts_and_read_as_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, part_s: float, part_chars: int
) -> None:
    # Parts are joined by their age, also if nothing follows, and by their length.
    monkeypatch.setattr(record, "PART_S", part_s)
    monkeypatch.setattr(record, "PART_CHARS", part_chars)
    monkeypatch.setattr(record, "GATHERED_S", 0.001)
    session = Session(tmp_path, tmp_path)
    file, wire = Watched(session.record), Wire()
    recorder = record.Recorder(cast("JsonlLog", file), wire)
    streams: dict[str, list[ev.Event]] = {
        "text": [ev.TextPart("half a"), ev.TextPart("n answer"), ev.TextPart(" and its end")],
        "thought": [ev.ThinkPart("half a"), ev.ThinkPart(" thought"), ev.ThinkPart(" and more")],
        "call": [
            ev.ToolCall("k:0", "Shell", '{"comm', "c0"),
            ev.ToolCallPart("k:0", 'and": '),
            ev.ToolCallPart("k:0", '"ls"}'),
        ],
    }
    parts = streams[kind]
    first = wire.publish(parts[0])
    await asyncio.wait_for(file.written.get(), 10)
    for number, part in enumerate(parts[1:], 2):
        wire.publish(part)
        await asyncio.wait_for(file.written.get(), 10)
        assert len(read(session.record)) == number
    wire.publish(ev.ToolStarted("k:0", "Shell", '{"command": "ls"}'))
    await recorder.aclose()
    assert session.record.path.read_bytes().count(b'\\"ls\\"') == 1
    whole, started = record.read_records(session)
    assert whole.at == first.at
    assert whole.seq == len(parts)
    assert _text(whole.event) == "".join(map(_text, parts))
    assert isinstance(started.event, ev.ToolStarted)
    session.record.close()


def _text(event: ev.Event) -> str:
    match event:
        case ev.TextPart(text) | ev.ThinkPart(text):
            return text
        case ev.ToolCall(arguments=text) | ev.ToolCallPart(arguments=text):
            return text
        case _:
            return ""


class Slow:
    """A file whose writes take long, one after another."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []
        self.go_on = threading.Event()

    def append(self, *records: dict[str, Any]) -> None:
        self.go_on.wait(5)
        self.lines += records


async def test_nothing_is_lost_when_it_is_closed_in_the_middle_of_a_write() -> None:
    file, wire = Slow(), Wire()
    recorder = Recorder(cast(JsonlLog, file), wire)
    for number in range(20):
        wire.publish(ev.StepBegin(number))
        await asyncio.sleep(0)
    closing = asyncio.create_task(recorder.aclose())
    await asyncio.sleep(0)
    file.go_on.set()
    await closing
    assert [line["message"]["payload"]["n"] for line in file.lines] == list(range(20))


def test_half_an_answer_is_what_was_said_of_the_one_that_no_message_holds(tmp_path: Path) -> None:
    step = ev.CheckpointCreated(1, "u1", "step", "")
    said = [ev.StepBegin(1), step, ev.ThinkPart("hm"), ev.TextPart("half "), ev.TextPart("of it")]
    retry = ev.StepRetry(1, 1, 3, 0.0, "broken")
    none = record.HalfAnswer()
    cases: list[tuple[list[ev.Event], record.HalfAnswer]] = [
        ([*said], record.HalfAnswer("hm", "half of it")),
        (
            [*said, ev.ToolCall("k:0", "Shell", '{"com', "c0")],
            record.HalfAnswer("hm", "half of it"),
        ),
        # Of several attempts it is the one that brought most.
        ([*said, retry, ev.TextPart("anew")], record.HalfAnswer("hm", "half of it", True)),
        (
            [*said, retry, ev.TextPart("anew, and more")],
            record.HalfAnswer("", "anew, and more"),
        ),
        ([*said, retry], record.HalfAnswer("hm", "half of it", True)),
        ([*said, ev.StatusUpdate(0, 0, 0, step_output=4)], none),
        ([*said, ev.StepInterrupted()], none),
        ([*said, ev.AnswerBroken("no")], none),
        ([*said, ev.TurnEnd("interrupted", killed=True)], none),
        ([ev.CheckpointCreated(1, "u1", "user", "said"), ev.TextPart("a draft")], none),
    ]
    for events, half in cases:
        records = [ev.EventRecord(n, float(n), event) for n, event in enumerate(events, 1)]
        assert record.half_answer(records) == half, events


async def test_what_has_no_text_to_be_merged_is_encoded_in_the_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoded_in: list[bool] = []
    real = record.encode_record

    def encode(one: ev.EventRecord) -> Any:
        encoded_in.append(threading.current_thread() is threading.main_thread())
        return real(one)

    monkeypatch.setattr(record, "encode_record", encode)
    file, wire = JsonlLog(tmp_path / "wire.jsonl"), Wire()
    recorder = Recorder(cast(JsonlLog, file), wire)
    rows = tuple(DiffLine("+", n + 1, "x") for n in range(3))
    diff = DiffBlock("a", 3, 0, rows, True)
    told = [
        ev.ApprovalRequest("a", "k:0", "WriteFile", "Write?", "a", display=(diff,)),
        ev.ToolResult("k:0", False, "", display=(diff,)),
    ]
    for event in told:
        wire.publish(event)
    await recorder.aclose()
    assert read(file) == told
    assert encoded_in == [False, False]
    file.close()


async def test_a_version_that_does_not_know_the_newest_events_reads_all_others(
    tmp_path: Path,
) -> None:
    newest = ("TitleChanged", "ModelChanged", "MarksChanged")
    async with stage(tmp_path) as on:
        on.server.script(say("one"), say("two"))
        await on.soul.run("first")
        await on.soul.rename("Mine")
        uid = on.session.context.checkpoints[0].uid
        await on.soul.marks.bookmark(uid, "Here")
        on.soul.wire.publish(ev.TurnBegin("another"), "another")
        on.soul.set_provider(None)
        await on.reopen()
        await on.soul.run("second")
        known = [r for r in await on.soul.history() if not isinstance(r.event, ev.SESSION_FACTS)]
        await on.soul.aclose()
        record = on.session.record.path
        stored = record.read_text()
        # What an agent beside that of the session does is in its own record.
        assert '"another"' not in stored
        for name in newest:
            assert f'"type":"{name}"' in stored
            # Versions before these pass over a type that they do not know, as this one does.
            stored = stored.replace(f'"type":"{name}"', f'"type":"{name}OfTomorrow"')
        record.write_text(stored)
        on.session = on.store.find(on.session.id, on.work)
        await on.open()
        assert not on.session.remarks
        told = [r for r in await on.soul.history() if not isinstance(r.event, ev.SESSION_FACTS)]
        assert [r.event for r in told] == [r.event for r in known]
        assert on.soul.session.title == "Mine"


async def test_what_is_not_told_anything_does_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record, "GATHERED_S", 0.0)
    wire, n_taken = Wire(), 0
    recorder = Recorder(JsonlLog(tmp_path / "wire.jsonl"), wire)
    take = recorder._take_all

    async def counted() -> None:
        nonlocal n_taken
        n_taken += 1
        await take()

    monkeypatch.setattr(recorder, "_take_all", counted)
    for n_told in range(3):
        for _ in range(100):
            await asyncio.sleep(0)
        assert n_taken <= n_told
        wire.publish(ev.TurnBegin("hi"))
    await recorder.aclose()
    assert len(read(JsonlLog(tmp_path / "wire.jsonl"))) == 3

"""The record of a session: `wire.jsonl`, everything that was published, as it is written, read and searched.

Text deltas and the arguments of a call are stored as they grow, in parts of about a second, so that a program that is
killed leaves what was on the screen; a reader gets one event for each run of text. Live output is not stored at all (the
result holds what is kept of it). The record alone knows times, diffs, notices, costs and failed attempts; what the
model is sent never comes from it. `history` says what a listener hears of a stored session.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, NamedTuple

from kimi_tui import lenient_json
from kimi_tui.projection.world_lines import CheckpointName, LineEdit, WorldLines, names_in
from kimi_tui.prompts import INTERRUPTED, KILLED, NOT_BEGUN
from kimi_tui.session.jsonl import JsonlLog
from kimi_tui.session.rotation import LIVE_NAME
from kimi_tui.session.schema import CHECKPOINT
from kimi_tui.session.session import Session
from kimi_tui.soul.record_repair import StoredLine, without_doubled
from kimi_tui.soul.tasks import TimeSlices, run_to_completion
from kimi_tui.tool_cards import BriefBlock, DisplayBlock
from kimi_tui.wire import events as ev
from kimi_tui.wire.codec import Decoder, encode_record
from kimi_tui.wire.events import (
    SESSION_FACTS,
    AgentChanged,
    CheckpointCreated,
    CompactionEnd,
    ContextReverted,
    Event,
    EventRecord,
    FutureChanged,
    JobsChanged,
    LineChanged,
    ModeChanged,
    PromptProgress,
    TextPart,
    ThinkPart,
    ToolCall,
    ToolCallPart,
    ToolOutput,
    ToolResult,
    ToolsChanged,
    ToolStarted,
    TurnBegin,
    continues,
    text_of,
    with_text,
)
from kimi_tui.wire.queue import Wire

Json = dict[str, Any]
log = logging.getLogger(__name__)


GATHERED_S = 0.1
"""Seconds for which events are gathered before they are written together."""
PART_S = 1.0
"""Seconds for which a streamed text is in memory only: a kill loses no more."""
PART_CHARS = 4096
"""Characters of a streamed text that are in memory only, where it comes fast."""
WRITTEN_AT_ONCE = 32
"""Lines that are written together: a diff makes a long one, and a failed write keeps them in memory."""
END_BYTES = 1 << 18
"""Bytes of the end of a file that are read first, to be shown until all of it is read."""
LARGE_END_BYTES = 1 << 22
"""The number of bytes read instead if `END_BYTES` hold no step."""
FOLLOWS = "after"
"""The key of a line with the number of the line before it. kimi-cli ignores keys that it does not know."""
BEHIND = "behind"
"""The key of a line, true if the record did not lead to the conversation when the program that wrote the line began."""
# A record has tens of thousands of events: looking a class up in a set takes a quarter of the time of asking for several classes.
_CONTINUE = frozenset(ev.STREAMED)
"""The events that `continues` may be true of."""
_OF_LINES = frozenset(
    {CheckpointCreated, ev.WorldLineAdded, ContextReverted, CompactionEnd, LineChanged}
)
_CLOSES = (TurnBegin, ev.TurnEnd, ContextReverted, LineChanged)
"""Events after which no call, question or compaction is open."""


class Recorder:
    """Writes what is published into the record, in a thread.

    Args:
        file: the record.
        wire: what is published.
        is_behind: whether the record lacks operations that led to the conversation, as a killed program may leave it. A later
            operation may go back to a line that it has, and it would seem to lack nothing.
    """

    def __init__(self, file: JsonlLog, wire: Wire, *, is_behind: bool = False) -> None:
        self._file = file
        self._wire = wire
        self._is_behind = is_behind
        self._woken = asyncio.Event()
        self._subscription = wire.subscribe(lambda _: self._woken.set(), records=True)
        self._lock = asyncio.Lock()
        self._open: EventRecord | None = None
        self._pieces: list[str] = []
        self._n_chars = 0
        self._opened_at = 0.0
        self._drained: deque[EventRecord] = deque()
        self._lines: list[Json | EventRecord] = []
        """The lines and events to be written next. Events become lines in the thread: a diff may have a hundred thousand lines."""
        self._arguments: dict[str, str] = {}
        self._end = 0
        """The number of the newest event at the newest flush."""
        self._newest_written = 0
        self._closing = asyncio.Event()
        self._task = asyncio.create_task(self._run(), name="recorder")

    async def flush(self) -> None:
        """Write everything that has been published so far; a text that goes on is in parts before and after that."""
        self._end = max(self._end, self._wire.newest_seq)
        await self._take_all()
        self._close()
        await run_to_completion(self._write_out())

    async def aclose(self) -> None:
        """Write the remaining events and unsubscribe."""
        self._closing.set()
        self._woken.set()
        await asyncio.gather(self._task, return_exceptions=True)
        await self.flush()
        self._wire.unsubscribe(self._subscription)

    async def _run(self) -> None:
        # This task is never cancelled: a write that waits for its thread would be lost.
        while not self._closing.is_set():
            # A text that has stopped growing is written too.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(None if self._open is None else PART_S):
                    await self._woken.wait()
            self._woken.clear()
            # The record is not written once for each token: the queue merges the deltas of this time, which are written together.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(GATHERED_S):
                    await self._closing.wait()
            await self._take_all()
            if self._open is not None and self._is_part():
                self._close()
            # A token of a text that goes on needs no thread.
            if self._lines:
                await self._write_out()

    def _is_part(self) -> bool:
        """Return whether the open text is long or old enough to be written, though it goes on."""
        return self._n_chars >= PART_CHARS or time.monotonic() - self._opened_at >= PART_S

    async def _take_all(self) -> None:
        # Another caller that drains during the slices below takes from the same end.
        self._drained += self._subscription.drain()
        slices = TimeSlices()
        while self._drained:
            self._take(self._drained.popleft())
            await slices.yield_if_over()

    async def _write_out(self) -> None:
        async with self._lock:
            lines, self._lines = self._lines, []
            if lines:
                await asyncio.to_thread(self._write, lines)

    def _write(self, lines: Sequence[Json | EventRecord]) -> None:
        encoded = map(self._chained, lines)
        while part := [*islice(encoded, WRITTEN_AT_ONCE)]:
            self._file.append(*part)

    def _chained(self, line: Json | EventRecord) -> Json:
        """Return a line with the number of the one before it, unless that is of an earlier run of the program. Numbers alone tell
        of no lost line: events that are not stored have numbers, too.
        """
        made = encode_record(line) if isinstance(line, EventRecord) else line
        if self._newest_written:
            made[FOLLOWS] = self._newest_written
        elif self._is_behind:
            made[BEHIND] = True
        self._newest_written = made["seq"]
        return made

    def _take(self, record: EventRecord) -> None:
        if record.source:
            # A sub-agent has a record of its own.
            return
        event = record.event
        match event:
            case (
                ToolOutput()
                | JobsChanged()
                | ModeChanged()
                | PromptProgress()
                | FutureChanged()
                | AgentChanged()
            ):
                # These events tell of this run of the program alone, or are kept elsewhere.
                return
            case ToolsChanged(added=(), removed=()):
                return
            case ToolsChanged():
                # Older versions, which know no other form, ignore an empty one.
                event = replace(event, form="", names=())
                record = record._replace(event=event)
            case _:
                pass
        text = text_of(event)
        is_before_end = self._open is not None and self._open.seq <= self._end < record.seq
        if self._open is not None and not is_before_end and _is_more_of(self._open, record):
            self._pieces.append(text)
            self._n_chars += len(text)
            self._open = self._open._replace(seq=record.seq)
            return
        self._close()
        match event:
            case TextPart() | ThinkPart() | ToolCall() | ToolCallPart():
                self._open, self._pieces = record, [text]
                self._n_chars, self._opened_at = len(text), time.monotonic()
            case ToolStarted(key, name, arguments):
                line = encode_record(record)
                if self._arguments.get(key) == arguments:
                    line["message"]["payload"] = {"key": key, "name": name}
                self._lines.append(line)
            case ToolResult(key=key):
                self._arguments.pop(key, None)
                self._lines.append(record)
            case _:
                self._lines.append(record)

    def _close(self) -> None:
        record, self._open = self._open, None
        if record is None:
            return
        text = "".join(self._pieces)
        self._pieces = []
        match record.event:
            case ToolCall(key=key):
                self._arguments[key] = text
            case ToolCallPart(key=key):
                self._arguments[key] = self._arguments.get(key, "") + text
            case _:
                pass
        self._lines.append(encode_record(record._replace(event=with_text(record.event, text))))


def _joined(records: Iterable[EventRecord]) -> Iterator[EventRecord]:
    """Join each run of text events into one, with the time of its first part and the number of its last."""
    first: EventRecord | None = None
    pieces: list[str] = []
    for record in records:
        if first is not None and type(record.event) in _CONTINUE and _is_more_of(first, record):
            pieces = pieces or [text_of(first.event)]
            pieces.append(text_of(record.event))
            first = first._replace(seq=record.seq)
            continue
        if first is not None:
            yield _whole(first, pieces)
        first, pieces = record, []
    if first is not None:
        yield _whole(first, pieces)


def _is_more_of(first: EventRecord, record: EventRecord) -> bool:
    if not continues(first.event, record.event):
        return False
    return (first.foreign, first.source) == (record.foreign, record.source)


def _whole(record: EventRecord, pieces: Sequence[str]) -> EventRecord:
    """Return the record of a run of text with all its pieces; the same record if it has no further pieces."""
    return record._replace(event=with_text(record.event, "".join(pieces))) if pieces else record


class StoredRecords(NamedTuple):
    """The result of reading a record.

    Attributes:
        records: the readable records of the session's agent, numbered upwards.
        n_skipped: the number of unreadable records that we wrote.
        ended_at: when the last record was written, which is later than the first word of its text.
        beside: the readable records of agents beside it, numbered likewise.
        incomplete: the uids of checkpoints at which a line is missing, or could not be read.
        is_behind: whether it once did not lead to the conversation (`Recorder`), and was continued.
        newest: the highest number in the record, which a newer version may have given to an event that is unknown here.
    """

    records: list[EventRecord]
    n_skipped: int
    ended_at: float
    beside: Sequence[EventRecord] = ()
    incomplete: frozenset[str] = frozenset()
    is_behind: bool = False
    newest: int = 0


def read_records(session: Session) -> list[EventRecord]:
    """Return every readable event of the record, numbered upwards."""
    return read_stored(session).records


def read_stored(session: Session, newest_read: float = math.inf) -> StoredRecords:
    """Read the record of a session up to the event of a number, passing over what cannot be read."""
    decoder = Decoder()
    records: list[EventRecord] = []
    beside: list[EventRecord] = []
    incomplete: set[str] = set()
    n_skipped = newest = 0
    uid, is_gap_open, is_behind = "", False, False
    for _, line in _lines(without_doubled(session.record.read_with_offsets())):
        try:
            record = decoder.decode_record(line, 0)
        except Exception:
            log.exception("a record cannot be read")
            n_skipped += 1
            # The next line follows this one, which is missing there.
            continue
        if record is None:
            # A newer version knows more events.
            newest = max(newest, lenient_json.count(line.get("seq")) or 0)
            continue
        if record.seq > newest_read:
            continue
        if 0 < record.seq <= newest:
            # A record that stands there twice (a repeated write) has a number that came before. One whose number did not is not
            # at its place, or follows a damaged number.
            if not (_has_number(records, record.seq) or _has_number(beside, record.seq)):
                incomplete.add(uid)
                is_gap_open = True
            continue
        if not (follows := lenient_json.count(line.get(FOLLOWS))):
            is_behind = is_behind or line.get(BEHIND) is True
        elif follows > newest:
            incomplete.add(uid)
            is_gap_open = True
        newest = max(newest, record.seq)
        if is_gap_open or type(record.event) is CheckpointCreated:
            match record.event:
                case CheckpointCreated(uid=uid):
                    if is_gap_open:
                        # The beginning of its turn or step may be what is missing.
                        incomplete.add(uid)
                    is_gap_open = False
                case TurnBegin() | ev.StepBegin():
                    is_gap_open = False
                case _:
                    pass
        if record.source:
            beside.append(record)
            continue
        # Records of another program have no numbers, and must not use up those of ours.
        following = records[-1].seq + 1 if records else 1
        records.append(record if record.seq >= following else record._replace(seq=following))
    ended_at = records[-1].at if records else 0.0
    return StoredRecords(
        list(_joined(records)),
        n_skipped,
        ended_at,
        list(_joined(beside)),
        frozenset(incomplete),
        is_behind,
        newest,
    )


def _has_number(records: Sequence[EventRecord], seq: int) -> bool:
    """Return whether one of these records, which are in the order of their numbers, has a number."""
    place = bisect_left(records, seq, key=lambda one: one.seq)
    return place < len(records) and records[place].seq == seq


def _lines(read: Iterable[StoredLine]) -> Iterable[StoredLine]:
    """Return the readable lines, up to an error of reading itself."""
    try:
        yield from read
    except Exception:
        log.exception("the record ends in the middle")


def end_of_record(session: Session) -> list[EventRecord]:
    """Return the last turns of the record, to be shown until all of it is read.

    Only whole turns, or the last steps where one turn is longer than what is read; and only what does not depend on
    anything further up. Nothing where the record ends elsewhere than the context does (a program was killed within an
    operation), and nothing of another program's record, which does not tell what was undone.
    """
    ended_at = 0.0
    records: list[EventRecord] = []
    for size_bytes in (END_BYTES, LARGE_END_BYTES):
        start = session.record.tail_start(size_bytes)
        parts = list(_decoded(session.record, start))
        ended_at = parts[-1].at if parts else 0.0
        joined = list(_joined(parts))
        if (records := _from_turn(joined)) or start == 0:
            break
        if records := _from_turn(joined, in_turn=True):
            break
    if any(record.foreign for record in records):
        return []
    line = final_checkpoints(records)
    if line is None or line[-1:] != [_newest_checkpoint(session)]:
        return []
    return [*records, *closing_events(records, ended_at)]


def _newest_checkpoint(session: Session) -> str:
    """Return the uid of the last checkpoint in the end of the context; empty if there is none that has one."""
    file = JsonlLog(session.dir / LIVE_NAME, session.storage, metadata=None)
    for size_bytes in (END_BYTES, LARGE_END_BYTES):
        start = file.tail_start(size_bytes)
        names = [line.get("uid") for line in file.read(start) if line.get("role") == CHECKPOINT]
        if names or start == 0:
            return lenient_json.text(names[-1]) if names else ""
    return ""


def _decoded(file: JsonlLog, start: int) -> Iterator[EventRecord]:
    """Return the events in the record from an offset on, numbered upwards."""
    decoder = Decoder()
    seq = 0
    for _, line in without_doubled(file.read_with_offsets(start)):
        record = decoder.decode_record(line, seq + 1)
        if record is not None and not record.source:
            seq = record.seq
            yield record


def _from_turn(recorded: Iterable[EventRecord], *, in_turn: bool = False) -> list[EventRecord]:
    """Return the end of some events that depends on nothing before it: from the first such turn on, or step (`in_turn`)."""
    records: list[EventRecord] = []
    known: set[str] = set()
    for record in recorded:
        match record.event:
            case ContextReverted(uid=uid) if uid not in known:
                records.clear()
            case CompactionEnd() | LineChanged():
                records.clear()
            case ev.StepBegin() if in_turn and not records:
                records.append(record._replace(event=TurnBegin("", resumed=True)))
            case CheckpointCreated(uid=uid):
                known.add(uid)
            case _:
                pass
        if records or isinstance(record.event, TurnBegin):
            records.append(record)
    return records


def closing_events(
    records: Iterable[EventRecord], ended_at: float | None = None
) -> list[EventRecord]:
    """Return the events that end what is open at a record's end, where the program was killed.

    Calls, questions, queued texts and a compaction end as a stop would have ended them, and so does a turn that was within
    a step: its end closes the answer or the reasoning that was being written, and a wait for the next attempt.

    Args:
        records: a session's events in order, of a program that was killed.
        ended_at: when the program was killed, in seconds since 1970; None if only the time of the last record is known.
    """
    calls: dict[str, str] = {}
    begun: set[str] = set()
    asked: dict[str, str] = {}
    queued: dict[str, ev.SteerQueued] = {}
    compaction: ev.CompactionBegin | None = None
    broken: str | None = None
    is_asking = is_unsent = has_failed = is_stopped = False
    records = list(records)
    if not records:
        return []
    for record in records:
        # Most of a record has many turns, and nothing else stays open from one to the next.
        if isinstance(event := record.event, ev.SteerQueued):
            queued[event.id] = event
        elif isinstance(event, ev.SteerTaken):
            queued.pop(event.id, None)
    places = range(len(records) - 1, -1, -1)
    begin = next((place for place in places if isinstance(records[place].event, _CLOSES)), 0)
    for record in islice(records, begin, None):
        match record.event:
            case ev.ToolCall(key=key, id=call_id):
                calls[key] = call_id
            case ev.ToolStarted(key=key):
                calls.setdefault(key, "")
                begun.add(key)
                is_asking = False
            case ev.ToolResult(key=key):
                calls.pop(key, None)
            case ev.ApprovalRequest(id=name, key=key):
                asked[name] = key
            case ev.ApprovalResolved(id=name):
                asked.pop(name, None)
            case TurnBegin(resumed=resumed):
                # The message becomes a part of the conversation with its checkpoint.
                is_unsent = not resumed
            case ev.CheckpointCreated(kind=kind, was=was):
                is_unsent = has_failed = is_stopped = False
                broken = None
                is_asking = is_asking or (kind == "step" and not was)
            case ev.StatusUpdate(step_output=output) if output is not None:
                is_asking = False
            case ev.StepInterrupted(failed=failed):
                has_failed, is_stopped = failed, not failed
            case ev.AnswerBroken(reason):
                broken = reason
            case ev.StepRetry():
                # The calls that were still being written went with the failed attempt.
                calls = {key: call_id for key, call_id in calls.items() if key in begun}
            case ev.CompactionBegin() as compaction:
                pass
            case ev.CompactionEnd():
                compaction = None
            case _:
                pass
    events: list[Event] = [ev.ApprovalResolved(name, "no", "stopped") for name in asked]
    events += [
        _stopped(key, call_id, begun=key not in asked.values()) for key, call_id in calls.items()
    ]
    events += [
        ev.SteerTaken(one.id, one.text, withdrawn=True, images=one.images)
        for one in queued.values()
    ]
    if compaction is not None:
        tokens = compaction.tokens_before
        events.append(
            ev.CompactionEnd(tokens, tokens, error="kimi-tui exited before the compaction ended.")
        )
    # A fork ends within a turn too, but never within a step: its record was cut off in no answer.
    if is_asking and (half := half_answer(records)).is_earlier:
        # The next attempt had begun to take its place.
        events.append(ev.StepRetry(1, 1, 1, 0.0, KILLED))
        events += [ThinkPart(half.thought)] if half.thought else []
        events += [TextPart(half.text)] if half.text else []
    if is_asking or is_unsent or has_failed or calls or compaction is not None:
        if broken is not None:
            events.append(ev.TurnEnd("error", broken, kind="model"))
        else:
            # What a failed step had said and is not kept goes from the view with the end of its turn.
            kind = "model" if has_failed else ""
            events.append(ev.TurnEnd("interrupted", kind=kind, killed=not is_stopped))
    last = records[-1]
    at = last.at if ended_at is None else ended_at
    return [EventRecord(last.seq + n, at, event) for n, event in enumerate(events, 1)]


class HalfAnswer(NamedTuple):
    """What a model had said of an answer that it did not complete, and whether a later attempt had begun to answer anew."""

    thought: str = ""
    text: str = ""
    is_earlier: bool = False

    @property
    def n_chars(self) -> int:
        """The number of characters of both."""
        return len(self.thought) + len(self.text)


def half_answer(records: Sequence[EventRecord]) -> HalfAnswer:
    """Return what the model had said of an answer when the program was killed, of the attempt that brought most; empty if it was
    not answering.
    """
    longest = HalfAnswer()
    texts: list[str] = []
    thoughts: list[str] = []
    is_earlier = False

    def attempt() -> HalfAnswer:
        one = HalfAnswer("".join(reversed(thoughts)), "".join(reversed(texts)), is_earlier)
        return one if one.n_chars > longest.n_chars else longest

    for record in reversed(records):
        match record.event:
            case TextPart(text):
                texts.append(text)
            case ThinkPart(text):
                thoughts.append(text)
            case ev.StepRetry():
                longest, is_earlier = attempt(), True
                texts.clear()
                thoughts.clear()
            case CheckpointCreated(kind=kind, was=was):
                return attempt() if kind == "step" and not was else HalfAnswer()
            case ev.StatusUpdate(step_output=output) if output is not None:
                break
            case (
                ev.StepInterrupted()
                | ev.AnswerBroken()
                | ev.TurnEnd()
                | ev.ToolStarted()
                | ContextReverted()
                | LineChanged()
                | ev.CompactionBegin()
            ):
                break
            case _:
                pass
    return HalfAnswer()


def _stopped(key: str, call_id: str, *, begun: bool) -> ev.ToolResult:
    return ev.ToolResult(
        key,
        True,
        "",
        INTERRUPTED if begun else NOT_BEGUN,
        (BriefBlock("stopped"),),
        interrupted=True,
        id=call_id,
    )


def follow_line(
    lines: WorldLines[CheckpointName], record: EventRecord
) -> LineEdit[CheckpointName] | None:
    """Apply an event to the lines of a session; return how an operation changed the live one."""
    match record.event:
        case CheckpointCreated(id=number, uid=uid) as event:
            lines.add(event, CheckpointName(uid, number))
        case ev.WorldLineAdded() as event:
            lines.add_line(event, names_in(event), record.at)
        case event:
            return lines.apply(event, record.at)
    return None


def of_lines(records: Iterable[EventRecord]) -> list[EventRecord]:
    """Return the events that change the lines of a session (`follow_line`), a few of the many of a record."""
    return [record for record in records if type(record.event) in _OF_LINES]


def final_checkpoints(records: Sequence[EventRecord]) -> list[str] | None:
    """Return the uids of the world line at which these events end; None if they lead to one that they do not contain."""
    lines = WorldLines[CheckpointName]()
    for record in of_lines(records):
        follow_line(lines, record)
    return None if lines.is_lost else [point.uid for point in lines.live.points]


def end_of_line(records: Sequence[EventRecord], uid: str) -> int | None:
    """Return how many of these events lead to the newest moment at which the live world line ended with a checkpoint.

    What followed there (a turn, a compaction, a rewind) is not among them. None if the line never ended so.

    Args:
        records: the events, from the first one on.
        uid: the uid of the checkpoint; empty for a line without one.
    """
    lines = WorldLines[CheckpointName]()
    newest: CheckpointName | None = None
    end = None if uid else 0
    goes_on = False
    for n, record in enumerate(records):
        # A turn and a step are told of before their checkpoint, and a compaction before its summary.
        goes_on = goes_on or isinstance(
            record.event, ev.TurnBegin | ev.StepBegin | ev.CompactionBegin
        )
        follow_line(lines, record)
        points = lines.live.points
        before, newest = newest, points[-1] if points else None
        goes_on = goes_on and newest is before
        if not goes_on and (newest.uid if newest else "") == uid:
            end = n + 1
    return end


_ANSWERS = (TextPart, ThinkPart, ToolCall, ToolCallPart, ToolStarted, ToolResult)
_OPERATIONS = (
    SESSION_FACTS
    | ev.ContextReverted
    | ev.LineChanged
    | ev.CompactionBegin
    | ev.CompactionEnd
    | ev.FilesRestored
    | ev.Notice
)


def records_by_checkpoint(
    records: Sequence[EventRecord], incomplete: Collection[str] = ()
) -> dict[str, list[EventRecord]]:
    """Return the events of a record by the checkpoint they belong to; operations and facts of the session belong to none, nor do
    kimi-cli's records.

    Args:
        records: the record.
        incomplete: the uids of checkpoints whose events are left out.
    """
    found: dict[str, list[EventRecord]] = {}
    before: list[EventRecord] = []
    current: list[EventRecord] = []
    is_left = False
    for record in records:
        if record.foreign:
            continue
        match record.event:
            case ev.TurnBegin() | ev.StepBegin() as begin:
                # These events are published just before their checkpoint. If that one was never made, they belong to none.
                if isinstance(begin, ev.TurnBegin) or any(
                    isinstance(waiting.event, ev.StepBegin) for waiting in before
                ):
                    before = []
                # What an answer said or called belongs to a checkpoint that is lost.
                before = [one for one in before if not isinstance(one.event, _ANSWERS)]
                before.append(record)
            case ev.CheckpointCreated(uid=uid, was=was, kind=kind, kept=kept) as created:
                # The messages tell what was kept of a checkpoint, also if it was renumbered again.
                is_untold = bool(kept or uid in incomplete or (was and not found.get(was)))
                current = [] if is_untold else found.setdefault(uid, [])
                is_left = False
                if was:
                    # The events that began the checkpoint were published under its old name.
                    current += _renamed(found.get(was, ()), created)
                    continue
                if kind == "step":
                    # The checkpoint of the turn itself is lost: its beginning comes from the messages, and must not come twice.
                    before = [waiting for waiting in before if not _begins_turn(waiting.event)]
                current += [*before, record]
                before = []
            case ev.SteerTaken():
                # The event belongs to the checkpoint that was there, also if a turn has been resumed since.
                current.append(record)
            case ev.ContextReverted() | ev.LineChanged():
                is_left = True
            case ev.StatusUpdate() if is_left:
                # The figures are those of the line that is current now, and not those of the checkpoint that was left.
                continue
            case event if isinstance(event, _OPERATIONS | ev.SteerQueued):
                # Nothing waits once the turn is over.
                continue
            case _:
                (before if before else current).append(record)
    return found


def _begins_turn(event: ev.Event) -> bool:
    """Return whether the user began a turn with this event, which has a checkpoint of its own."""
    return isinstance(event, ev.TurnBegin) and not event.resumed


def _renamed(
    records: Sequence[EventRecord], created: ev.CheckpointCreated
) -> Iterator[EventRecord]:
    """Return the records of a checkpoint that was renumbered, with its new name everywhere."""
    old, new = f"{created.was}:", f"{created.uid}:"
    for record in records:
        match record.event:
            case ev.CheckpointCreated(label=label, first=first):
                # The label holds the checkpoint's own words: messages that had waited when a turn began may stand before them.
                yield record._replace(event=replace(created, was="", label=label, first=first))
            case ev.StatusUpdate():
                # The figures in this event are those before the summary.
                continue
            case (
                ev.ToolCall(key=key)
                | ev.ToolCallPart(key=key)
                | ev.ToolStarted(key=key)
                | ev.ToolOutput(key=key)
                | ev.ToolResult(key=key)
            ) as event if key.startswith(old):
                yield record._replace(event=replace(event, key=new + key.removeprefix(old)))
            case ev.FilesChanged(uid=created.was, key=key) as event:
                key = new + key.removeprefix(old) if key else ""
                yield record._replace(event=replace(event, uid=created.uid, key=key))
            case _:
                yield record


@dataclass(slots=True)
class RecordedUnit:
    """A turn of kimi-cli's record (`words` is set) or a step: when it began, what it called and showed."""

    at: float
    words: str | None = None
    calls: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    displays: dict[str, tuple[DisplayBlock, ...]] = field(
        default_factory=dict[str, tuple[DisplayBlock, ...]]
    )

    def display(self, place: int) -> tuple[DisplayBlock, ...]:
        """Return the display blocks of the result of the call at this place of the step."""
        if place >= len(self.calls):
            return ()
        return self.displays.get(self.calls[place][0], ())


class KimiCliRecord:
    """Times and displays from a record that kimi-cli wrote, for messages of an imported session.

    Such a record knows no checkpoints and no reverts, and its ids repeat. So its turns and steps are matched in their
    order: a turn by the user's words, a step by the tools it called.

    Args:
        records: the whole record, kimi-cli's records among ours.
    """

    def __init__(self, records: Iterable[EventRecord]) -> None:
        self._units = _units(records)
        self._next = 0
        # The places where turns with the same words begin, so that unknown words cost no walk through all turns.
        self._turns: dict[str, list[int]] = {}
        for place, unit in enumerate(self._units):
            if unit.words is not None:
                self._turns.setdefault(unit.words.strip(), []).append(place)

    def turn(self, words: str) -> RecordedUnit | None:
        """Return the next turn that began with these words; those passed over had none in the conversation (commands)."""
        places = self._turns.get(words.strip(), [])
        following = bisect_left(places, self._next)
        if following == len(places):
            return None
        place = places[following]
        self._next = place + 1
        return self._units[place]

    @property
    def next_at(self) -> float:
        """When the turn or step began that follows those returned so far, in seconds since 1970; infinite after the last."""
        return self._units[self._next].at if self._next < len(self._units) else math.inf

    def step(self, names: Sequence[str]) -> RecordedUnit | None:
        """Return the next step of the same turn that called these tools."""
        for place in range(self._next, len(self._units)):
            unit = self._units[place]
            if unit.words is not None:
                return None
            if [name for _, name in unit.calls] == list(names):
                self._next = place + 1
                return unit
        return None


def _units(records: Iterable[EventRecord]) -> list[RecordedUnit]:
    units: list[RecordedUnit] = []
    for record in records:
        if not record.foreign:
            continue
        match record.event:
            case ev.TurnBegin(text):
                units.append(RecordedUnit(record.at, text))
            case ev.StepBegin():
                units.append(RecordedUnit(record.at))
            case ev.ToolCall(key, name) if units:
                units[-1].calls.append((key, name))
            case ev.ToolResult(key=key, display=display) if units:
                units[-1].displays[key] = display
            case _:
                pass
    return units

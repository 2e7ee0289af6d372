"""Tells a conversation from its messages, where the record of what was told is missing or does not fit.

The pieces of the record that belong to a checkpoint of the line are told as they were; the rest is made from the
messages, without times and diffs, which only the record knows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import cast

from kimi_tui.llm.message import Message, TextPart, ThinkPart
from kimi_tui.session.records import Checkpoint
from kimi_tui.session.session import Session
from kimi_tui.session.worldlines import WorldLine, WorldLines
from kimi_tui.soul.asking import call_key
from kimi_tui.soul.foreign_record import ForeignRecord, Unit
from kimi_tui.soul.internal_messages import internal_kind, is_said
from kimi_tui.soul.segments import Segment, segments
from kimi_tui.soul.tool_message import INTERRUPTED, outcome_of
from kimi_tui.wire import events as ev
from kimi_tui.wire.events import Event, Operation, Record

_REASONS = frozenset({"rewind", "dmail", "clear", "jump", "undo", "redo"})
_OPERATIONS = (
    ev.ContextReverted
    | ev.LineChanged
    | ev.CompactionBegin
    | ev.CompactionEnd
    | ev.FilesRestored
    | ev.Notice
)


def rebuilt(session: Session, records: Sequence[Record]) -> list[Record]:
    """The history of the session: each line that was left, how it was left, and the live line last."""
    context = session.context
    told = pieces(records)
    teller = _Teller(ForeignRecord(records))
    shown: list[Checkpoint] = []
    shown_as: WorldLine | None = None
    for line in [*_left_lines(session), None]:
        points = context.checkpoints if line is None else line.checkpoints
        messages = context.messages if line is None else _messages_of(session, line.n)
        shared = _shared(shown, points)
        if shared < len(shown) and shown_as is not None:
            teller.leave(shown_as, shown, shared)
        for segment in segments(points, messages, shared):
            teller.tell(segment, told.get(segment.point.uid))
            teller.arrive()
        shown, shown_as = list(points), line
    return teller.end()


def _left_lines(session: Session) -> list[WorldLine]:
    context = session.context
    lines = WorldLines(context.folder, context.journal, context.storage)
    return lines.list(context.checkpoints)


def _messages_of(session: Session, n: int) -> Sequence[Message]:
    context = session.context
    return WorldLines(context.folder, context.journal, context.storage).messages_of(n)


def _shared(one: Sequence[Checkpoint], other: Sequence[Checkpoint]) -> int:
    count = 0
    for mine, theirs in zip(one, other, strict=False):
        if mine.uid != theirs.uid:
            break
        count += 1
    return count


def pieces(records: Sequence[Record]) -> dict[str, list[Record]]:
    """The events of a record by the checkpoint they belong to; operations belong to none."""
    found: dict[str, list[Record]] = {}
    before: list[Record] = []
    current: list[Record] = []
    for record in records:
        match record.event:
            case ev.TurnBegin() | ev.StepBegin() as begin:
                # They are told just before their checkpoint. What waited for one that never came belongs to none.
                if isinstance(begin, ev.TurnBegin) or any(
                    isinstance(waiting.event, ev.StepBegin) for waiting in before
                ):
                    before = []
                before.append(record)
            case ev.CheckpointCreated(uid=uid):
                current = found.setdefault(uid, [])
                current += [*before, record]
                before = []
            case event if isinstance(event, _OPERATIONS):
                continue
            case _:
                (before if before else current).append(record)
    return found


class _Teller:
    """Collects the records, numbering them and keeping their times in order."""

    def __init__(self, foreign: ForeignRecord) -> None:
        self._foreign = foreign
        self._records: list[Record] = []
        self._at = 0.0
        self._in_turn = False
        self._n = 0
        self._stopped = False
        self._compaction: ev.CompactionEnd | None = None

    def leave(self, line: WorldLine, shown: Sequence[Checkpoint], shared: int) -> None:
        """The live line is cut back to its first `shared` checkpoints; what was there is now world line `line.n`."""
        at = _seconds(line.at)
        if line.reason == "compaction" and shared == 0:
            # Told when the summary's checkpoint is there.
            self._compaction = ev.CompactionEnd(
                line.tokens_before, line.tokens_after, line.text, line.n
            )
            return
        reason = line.reason if line.reason in _REASONS else "rewind"
        cut = shown[shared]
        self._add(
            ev.ContextReverted(
                reason=cast("Operation", reason),
                checkpoint_id=cut.id,
                uid=cut.uid,
                from_checkpoint=shown[-1].id,
                world_line=line.n,
                messages_dropped=line.messages_dropped,
                tool_calls_dropped=0,
                tokens_before=line.tokens_before,
                tokens_after=line.tokens_after,
                text=line.text if reason == "dmail" else "",
            ),
            at,
        )

    def arrive(self) -> None:
        """After a segment: the compaction that made it, if one did."""
        compaction, self._compaction = self._compaction, None
        if compaction is not None:
            self._add(compaction, self._at)

    def tell(self, segment: Segment, told: Sequence[Record] | None) -> None:
        if told:
            for record in told:
                self._add(record.event, record.at)
            return
        unit = self._foreign_unit(segment)
        at = _seconds(segment.point.at) or (unit.at if unit is not None else 0.0)
        place = 0
        for event in self._made(segment):
            if isinstance(event, ev.ToolResult) and unit is not None:
                self._add(replace(event, display=unit.display(place)), at)
                place += 1
            else:
                self._add(event, at)

    def _foreign_unit(self, segment: Segment) -> Unit | None:
        if segment.kind == "user":
            return self._foreign.turn(segment.said)
        if segment.kind != "step":
            return None
        calls = [call for m in segment.messages for call in m.tool_calls or ()]
        return self._foreign.step([call.function.name for call in calls])

    def end(self) -> list[Record]:
        if self._in_turn:
            self._add(ev.TurnEnd("interrupted" if self._stopped else "done"), self._at)
        return self._records

    def _add(self, event: Event, at: float) -> None:
        self._at = max(self._at, at)
        match event:
            case ev.TurnBegin():
                if self._in_turn:
                    reason = "interrupted" if self._stopped else "done"
                    self._records.append(self._record(ev.TurnEnd(reason)))
                self._in_turn, self._n, self._stopped = True, 0, False
            case ev.TurnEnd():
                if not self._in_turn:
                    return
                self._in_turn = False
            case ev.StepBegin(n):
                self._n = n
                self._stopped = False
            case ev.StepInterrupted():
                self._stopped = True
            case _:
                pass
        self._records.append(self._record(event))

    def _record(self, event: Event) -> Record:
        return Record(len(self._records) + 1, self._at, event)

    def _made(self, segment: Segment) -> Iterator[Event]:
        point, kind = segment.point, segment.kind
        created = ev.CheckpointCreated(
            point.id, point.uid, kind, segment.label, point.tokens or 0, point.at
        )
        if kind == "user":
            yield ev.TurnBegin(segment.said)
            yield created
            return
        if kind != "step":
            yield created
            yield from _said_on_the_way(segment.messages, point.uid)
            return
        if not self._in_turn:
            yield ev.TurnBegin("", resumed=True)
        yield ev.StepBegin(self._n + 1)
        yield created
        yield from _said_on_the_way(segment.messages, point.uid)


def _said_on_the_way(messages: Sequence[Message], uid: str) -> Iterator[Event]:
    """The answers, calls, results and steers among some messages."""
    open_calls: list[tuple[str, str]] = []
    for message in messages:
        if message.role == "assistant":
            yield from _answer(message, uid)
            open_calls = [
                (call_key(uid, place), call.id)
                for place, call in enumerate(message.tool_calls or ())
            ]
            if message.interrupted:
                yield ev.StepInterrupted()
        elif message.role == "tool":
            if open_calls:
                key, call_id = open_calls.pop(0)
                outcome = outcome_of(message)
                yield ev.ToolResult(
                    key,
                    outcome.is_error,
                    outcome.output,
                    outcome.message,
                    interrupted=outcome.message == INTERRUPTED,
                    id=call_id,
                )
        elif is_said(message) and internal_kind(message) is None:
            yield ev.SteerTaken("", message.text)
    for key, call_id in open_calls:
        yield ev.ToolResult(key, True, "", INTERRUPTED, interrupted=True, id=call_id)


def _answer(message: Message, uid: str) -> Iterator[Event]:
    for part in message.parts:
        if isinstance(part, ThinkPart) and part.think:
            yield ev.ThinkPart(part.think)
        elif isinstance(part, TextPart) and part.text:
            yield ev.TextPart(part.text)
    for place, call in enumerate(message.tool_calls or ()):
        key = call_key(uid, place)
        arguments = call.function.arguments or ""
        yield ev.ToolCall(key, call.function.name, arguments, call.id)
        yield ev.ToolStarted(key, call.function.name, arguments)


def _seconds(iso: str) -> float:
    try:
        return datetime.fromisoformat(iso).timestamp() if iso else 0.0
    except ValueError:
        return 0.0

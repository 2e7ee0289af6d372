"""Tells a conversation from its messages, where the record of what was told is missing or does not fit.

The pieces of the record that belong to a checkpoint of the line are told as they were; the rest is made from the
messages, without times and diffs, which only the record knows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import cast

from kimi_tui.llm.message import Message
from kimi_tui.session.line import LineIndex
from kimi_tui.session.records import Checkpoint
from kimi_tui.session.session import Session
from kimi_tui.session.tokens import LineTokens
from kimi_tui.session.worldlines import WorldLine, WorldLines, shared_checkpoints
from kimi_tui.soul.dmail import author_of
from kimi_tui.soul.foreign_record import ForeignRecord, Unit
from kimi_tui.soul.internal_messages import dmail_text, ends_open, summary_text
from kimi_tui.soul.marks import PersonMarks
from kimi_tui.soul.record_pieces import pieces
from kimi_tui.soul.retelling import said_on_the_way
from kimi_tui.soul.segments import Segment, segments
from kimi_tui.wire import events as ev
from kimi_tui.wire.events import Event, Operation, Record

_SWITCHES = frozenset({"jump", "undo", "redo"})
_REASONS = frozenset({"rewind", "dmail", "compaction", "clear", "jump", "undo", "redo"})


def rebuilt(session: Session, records: Sequence[Record]) -> list[Record]:
    """The history of the session: each line that was left, how it was left, and the live line last."""
    context = session.context
    told = pieces(records)
    teller = _Teller(ForeignRecord(records), PersonMarks(session).pinned_points)
    shown: Sequence[Checkpoint] = ()
    shown_messages: Sequence[Message] = ()
    shown_as: WorldLine | None = None
    left: dict[int, WorldLine] = {}
    for line in [*_left_lines(session), None]:
        points = context.checkpoints if line is None else line.checkpoints
        messages = context.messages if line is None else _messages_of(session, line.n)
        teller.read(context.index if line is None else _index_of(session, line.n), messages)
        shared = shared_checkpoints((shown, shown_messages), (points, messages))
        parts = segments(points, messages, shared)
        if shared < len(shown) and shown_as is not None:
            back, most = _parted_later(session, left, (points, messages), shared)
            if back is None:
                teller.leave(shown_as, shown, shared, parts)
            else:
                parts = segments(points, messages, most)
                teller.switch(shown_as, back, most)
            left[shown_as.n] = shown_as
        for segment in parts:
            teller.tell(segment, told.get(segment.point.uid))
            teller.arrive()
        shown, shown_messages, shown_as = points, messages, line
    return teller.end(is_open=ends_open(context.messages))


def _parted_later(
    session: Session,
    left: Mapping[int, WorldLine],
    line: tuple[Sequence[Checkpoint], Sequence[Message]],
    shared: int,
) -> tuple[WorldLine | None, int]:
    """Of the lines that were left, the one that has the most of `line`, more than its first `shared` checkpoints.

    Somebody went back to it then: by a jump, an undo or a redo. With it comes how many checkpoints both have.
    """
    points = line[0]
    found: WorldLine | None = None
    for one in left.values():
        # Names do not come twice, so a look at one place tells nearly always.
        if shared < min(len(points), len(one.checkpoints)) and (
            one.checkpoints[shared].uid == points[shared].uid
        ):
            most = shared_checkpoints((one.checkpoints, _messages_of(session, one.n)), line)
            if most > shared:
                found, shared = one, most
    return found, shared


def told_line(session: Session, records: Sequence[Record], n: int) -> list[Record]:
    """One line that was left (0: the live one) from its first checkpoint on, as it was when it was left.

    Raises:
        KeyError: there is no such line.
    """
    context = session.context
    lines = WorldLines(context.folder, context.journal, context.storage)
    points = lines.index(n).checkpoints if n else context.checkpoints
    messages = lines.messages_of(n) if n else context.messages
    told = pieces(records)
    teller = _Teller(ForeignRecord(records), PersonMarks(session).pinned_points)
    teller.read(lines.index(n) if n else context.index, messages)
    for segment in segments(points, messages):
        teller.tell(segment, told.get(segment.point.uid))
    return teller.end()


def _left_lines(session: Session) -> list[WorldLine]:
    context = session.context
    lines = WorldLines(context.folder, context.journal, context.storage)
    return lines.list(context.checkpoints, context.messages)


def _index_of(session: Session, n: int) -> LineIndex:
    context = session.context
    return WorldLines(context.folder, context.journal, context.storage).index(n)


def _messages_of(session: Session, n: int) -> Sequence[Message]:
    context = session.context
    return WorldLines(context.folder, context.journal, context.storage).messages_of(n)


class _Teller:
    """Collects the records, numbering them and keeping their times in order."""

    def __init__(
        self,
        foreign: ForeignRecord,
        pinned: Callable[[Sequence[Checkpoint]], tuple[str, ...]],
    ) -> None:
        self._foreign = foreign
        self._pinned = pinned
        self._records: list[Record] = []
        self._at = 0.0
        self._in_turn = False
        self._n = 0
        self._stopped = False
        self._compaction: ev.CompactionEnd | None = None
        self._letter_told = False
        self._tokens = LineTokens()
        self._index = LineIndex()
        self._messages: Sequence[Message] = ()

    def read(self, index: LineIndex, messages: Sequence[Message]) -> None:
        """What is told from now on stands on this line."""
        self._tokens, self._index, self._messages = LineTokens(), index, messages

    def _tokens_at(self, point: Checkpoint) -> int:
        """What was sent there; of a place where nothing was sent, what stood before it."""
        if point.tokens is not None:
            return point.tokens
        return self._tokens.before(self._index, point.offset, self._messages)

    def leave(
        self,
        line: WorldLine,
        shown: Sequence[Checkpoint],
        shared: int,
        parts: Sequence[Segment],
    ) -> None:
        """The live line is cut back to its first `shared` checkpoints; what was there is now world line `line.n`.

        `parts` is what follows there.
        """
        at = _seconds(line.at)
        if line.reason == "compaction":
            # Told when the summary's checkpoint is there.
            self._compaction = ev.CompactionEnd(
                line.tokens_before, line.tokens_after, line.text, line.n
            )
            if shared == 0:
                # Ends the text that stands before it. Who asked for it is not told anywhere.
                self._add(ev.CompactionBegin(line.tokens_before, automatic=False), at)
                return
        reason = line.reason if line.reason in _REASONS else "rewind"
        cut = shown[shared]
        letter = _letter_of(parts[0]) if parts and reason == "dmail" else None
        self._letter_told = letter is not None
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
                pinned=() if letter is None else self._pinned(shown[shared:]),
                author="agent" if letter is None else author_of(letter),
            ),
            at,
        )

    def switch(self, line: WorldLine, back: WorldLine, shared: int) -> None:
        """The live line becomes the first `shared` checkpoints of `back`; what was there is now world line `line.n`."""
        op = line.reason if line.reason in _SWITCHES else "jump"
        goes = back.checkpoints[shared].uid if shared < len(back.checkpoints) else ""
        self._letter_told = False
        told = ev.LineChanged(cast("Operation", op), line.n, back.n, goes)
        self._add(told, _seconds(line.at))

    def arrive(self) -> None:
        """After a segment: the compaction that made it, if one did."""
        compaction, self._compaction = self._compaction, None
        if compaction is not None:
            self._add(compaction, self._at)

    def tell(self, segment: Segment, told: Sequence[Record] | None) -> None:
        letter, self._letter_told = None if self._letter_told else _letter_of(segment), False
        if letter is not None:
            at = told[0].at if told else _seconds(segment.point.at)
            tokens = self._tokens_at(segment.point)
            self._add(_arrived(letter, segment.point, tokens), at)
        summary = next((text for m in segment.messages if (text := summary_text(m))), "")
        if summary and self._compaction is None:
            self._tell_summary(segment, summary)
        else:
            self._tell(segment, told)

    def _tell_summary(self, segment: Segment, summary: str) -> None:
        """A summary of which is not told what it replaced, and what was kept beside it."""
        point, at = segment.point, _seconds(segment.point.at)
        tokens = self._tokens_at(point)
        self._add(ev.CheckpointCreated(point.id, point.uid, segment.kind, "", tokens, point.at), at)
        self._add(ev.CompactionEnd(tokens, tokens, summary), at)
        for event in said_on_the_way(segment.messages, point.uid):
            self._add(event, at)

    def _tell(self, segment: Segment, told: Sequence[Record] | None) -> None:
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

    def end(self, *, is_open: bool = False) -> list[Record]:
        # What ended in the middle of something without a word had its program killed: nobody heard the turn end.
        if self._in_turn and (self._stopped or not is_open):
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
            point.id, point.uid, kind, segment.label, self._tokens_at(point), point.at
        )
        if kind == "user":
            yield ev.TurnBegin(segment.said)
            yield created
            return
        if kind != "step":
            yield created
            yield from said_on_the_way(segment.messages, point.uid)
            return
        if not self._in_turn:
            yield ev.TurnBegin("", resumed=True)
        yield ev.StepBegin(self._n + 1)
        yield created
        yield from said_on_the_way(segment.messages, point.uid)


def _letter_of(segment: Segment) -> Message | None:
    """The D-Mail that a segment brought, if it did."""
    if segment.kind != "dmail":
        return None
    return next((m for m in segment.messages if dmail_text(m) is not None), None)


def _arrived(letter: Message, point: Checkpoint, tokens: int) -> ev.ContextReverted:
    """A letter of which it is not known, or does not matter here, what it undid."""
    return ev.ContextReverted(
        reason="dmail",
        checkpoint_id=point.id,
        uid="",
        from_checkpoint=point.id - 1,
        world_line=0,
        messages_dropped=0,
        tool_calls_dropped=0,
        tokens_before=tokens,
        tokens_after=tokens,
        text=dmail_text(letter) or "",
        author=author_of(letter),
    )


def _seconds(iso: str) -> float:
    try:
        return datetime.fromisoformat(iso).timestamp() if iso else 0.0
    except ValueError:
        return 0.0

"""The course of a recorded session: where one may stop, what the scrubber marks, and what is to come when.

Made once from the records and never changed. A position is a number of records: those before it have happened.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from kimi_tui.tui.replay.times import Times
from kimi_tui.wire.events import (
    CheckpointCreated,
    CompactionBegin,
    CompactionEnd,
    ContextReverted,
    Event,
    LineChanged,
    Record,
    StepBegin,
    TurnBegin,
)

MarkKind = Literal["turn", "dmail", "compaction", "rewind"]

_TRAVEL = frozenset({"jump", "undo", "redo"})
_BY_PERSON = frozenset({"rewind", "clear"})


@dataclass(frozen=True, slots=True)
class Mark:
    """Something that the scrubber shows.

    `position` is where it has happened, `from_id` the checkpoint that it left (-1: not told), `name` what it is called.
    """

    kind: MarkKind
    position: int
    time_s: float
    from_id: int = -1
    name: str = ""


class Course:
    """What happened, in order.

    Attributes:
        records: all events.
        marks: turns, D-Mails, compactions and returns, in order.
        stops: the positions at which a step, a turn or an operation is complete; the first is 0, the last the end.
        turns: those of them before which a turn's first words stand.
    """

    def __init__(self, records: Sequence[Record]) -> None:
        self.records = tuple(records)
        self._times = Times(self.records)
        self.marks = self._marks()
        self.stops = tuple(sorted({0, *_stops(self.records), len(self.records)}))
        self.turns = tuple(
            sorted({self.stop_after(m.position) for m in self.marks if m.kind == "turn"})
        )
        self._folds = tuple(mark for mark in self.marks if mark.kind != "turn")
        self._fold_positions = tuple(mark.position for mark in self._folds)
        self._made = {
            record.event.uid: index + 1
            for index, record in enumerate(self.records)
            if isinstance(record.event, CheckpointCreated)
        }

    @property
    def end(self) -> int:
        """The last position."""
        return len(self.records)

    @property
    def opening(self) -> int:
        """Where to begin: with the first thing that was said, which is more than an empty page."""
        return self.turns[0] if self.turns else self.step(0, 1)

    @property
    def length_s(self) -> float:
        """How long all of it plays at the usual speed."""
        return self._times.reached[-1] if self.records else 0.0

    def time_of(self, position: int) -> float:
        """When a position is reached, in seconds of playing."""
        return self._times.reached[position - 1] if position > 0 else 0.0

    def position_at(self, time_s: float) -> int:
        """How much has happened by then."""
        return bisect_right(self._times.reached, time_s)

    def said_by(self, position: int, time_s: float) -> int:
        """How many characters of the text that comes next were streamed by then."""
        return self._times.said_by(position, time_s)

    def clock_at(self, position: int) -> float:
        """What the clock said, in seconds since 1970; 0 where nothing is recorded."""
        return self.records[max(0, position - 1)].at if self.records else 0.0

    # Stops

    def step(self, position: int, steps: int) -> int:
        """The stop so many steps before or after a position."""
        return _beside(self.stops, position, steps)

    def turn(self, position: int, steps: int) -> int:
        """The turn so many turns before or after a position; beyond them the beginning and the end."""
        return _beside(sorted({0, *self.turns, self.end}), position, steps)

    def stop_after(self, position: int) -> int:
        """The first stop at or after a position."""
        at = bisect_left(self.stops, position)
        return self.stops[at] if at < len(self.stops) else self.end

    def is_stop(self, position: int) -> bool:
        """Whether all that began before a position is complete."""
        return self.stop_after(position) == position

    def stop_of(self, uid: str) -> int | None:
        """Where the step of a checkpoint is complete; None for one that is not told of."""
        made = self._made.get(uid)
        return None if made is None else self.stop_after(made)

    # What lies ahead

    def next_fold(self, position: int) -> Mark | None:
        """The next D-Mail, compaction or return that has not happened yet."""
        at = bisect_right(self._fold_positions, position)
        return self._folds[at] if at < len(self._folds) else None

    def fold_between(self, start: int, end: int) -> Mark | None:
        """The first D-Mail or return that happens after `start` and not after `end`."""
        fold = self.next_fold(start)
        return fold if fold is not None and fold.position <= end else None

    def _marks(self) -> tuple[Mark, ...]:
        marks: list[Mark] = []
        for index, record in enumerate(self.records):
            kind = _mark_of(record.event)
            if kind is None:
                continue
            event = record.event
            from_id = event.from_checkpoint if isinstance(event, ContextReverted) else -1
            at = self._times.reached[index]
            marks.append(Mark(kind, index + 1, at, from_id, _name_of(event, kind)))
        return tuple(marks)


def _beside(stops: Sequence[int], position: int, steps: int) -> int:
    # Between two stops, the one before is a step away, and so is the one after.
    at = bisect_left(stops, position) if steps < 0 else bisect_right(stops, position) - 1
    return stops[max(0, min(len(stops) - 1, at + steps))]


def _name_of(event: Event, kind: MarkKind) -> str:
    """The word for what will happen; a rewind may be one that the person called otherwise."""
    match event:
        case LineChanged(op=op) | ContextReverted(reason=op) if kind == "rewind":
            return op
        case _:
            return "D-Mail" if kind == "dmail" else kind


def _mark_of(event: Event) -> MarkKind | None:
    match event:
        case TurnBegin(resumed=False):
            return "turn"
        case ContextReverted(reason="dmail"):
            return "dmail"
        case ContextReverted(reason=reason) if reason in _BY_PERSON:
            return "rewind"
        case LineChanged(op=op) if op in _TRAVEL:
            return "rewind"
        case CompactionEnd(error=""):
            return "compaction"
        case _:
            return None


def _stops(records: Sequence[Record]) -> list[int]:
    """Where something begins, all before it is complete; an event that belongs to the one before it begins nothing."""
    stops: list[int] = []
    is_open, compacting = False, False
    for index, record in enumerate(records):
        match record.event:
            case CompactionEnd():
                compacting = is_open = False
            case _ if compacting:
                pass
            case CheckpointCreated(kind=kind):
                if not is_open:
                    stops.append(index)
                # The summary of a compaction whose beginning was not told is followed by its end.
                is_open = compacting = kind in ("compaction", "summary")
            case CompactionBegin():
                stops.append(index)
                compacting = True
            case LineChanged(op=op):
                if op in _TRAVEL:
                    stops.append(index)
                if op in _TRAVEL or op in _BY_PERSON:
                    is_open = False
            case TurnBegin() | StepBegin() | ContextReverted():
                if not is_open:
                    stops.append(index)
                is_open = True
            case _:
                pass
    return stops

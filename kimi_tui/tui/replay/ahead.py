"""What is still to come at a moment of a replay: the checkpoints that will be made, for the token curve.

In the order in which they were made, whatever became of them; those of a line that is left again are among them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from kimi_tui.tui.replay.course import Mark
from kimi_tui.tui.timeline.points import Future, Point
from kimi_tui.wire.events import CheckpointCreated, CompactionEnd, Record, StatusUpdate

_FOLDS = {"dmail": ("dmail",), "compaction": ("compaction", "summary")}


class Ahead:
    """The checkpoints of a whole session, from which those that were not made yet are taken."""

    def __init__(self, records: Sequence[Record]) -> None:
        self._points: list[Point] = []
        self._positions: list[int] = []
        self._eras: list[tuple[int, int]] = [(0, 0)]
        """Where a compaction lets the numbers begin anew, and how many steps there will be until the next one."""
        used = 0
        for index, record in enumerate(records):
            match record.event:
                case CheckpointCreated() as event:
                    self._add(index + 1, event, event.tokens or used, record.at)
                case StatusUpdate(used=tokens):
                    used = tokens
                case CompactionEnd(error="", tokens_after=tokens) if self._points:
                    used = tokens
                    if self._points[-1].is_summary:
                        self._points[-1].tokens = tokens
                case _:
                    pass
        if self._points:
            self._points[-1].tokens_end = used
        self._told: tuple[int, str, Future] | None = None

    def _add(self, position: int, event: CheckpointCreated, tokens: int, at: float) -> None:
        if event.kind == "compaction" and event.id == 0:
            self._eras.append((position, 0))
        first = 1 if len(self._eras) > 1 else 0
        self._eras[-1] = (self._eras[-1][0], event.id + 1 - first)
        key = len(self._points)
        point = Point(key, event.id, event.uid, event.kind, key, at, tokens=tokens)
        # The curve marks only where something was folded.
        point.saved = 0 if event.kind in ("dmail", "compaction", "summary") else None
        self._points.append(point)
        self._positions.append(position)

    def n_steps(self, position: int) -> int:
        """How many steps there are at the end of the line, or at its next compaction; a summary is none."""
        return self._eras[bisect_right(self._eras, position, key=lambda era: era[0]) - 1][1]

    def after(self, position: int, following: Mark | None) -> Future:
        """What comes after a position, where this fold is the next; the same object while nothing changes."""
        first = bisect_right(self._positions, position)
        awaited = ""
        if following is not None and following.kind in _FOLDS:
            kinds = _FOLDS[following.kind]
            awaited = next((p.uid for p in self._points[first:] if p.kind in kinds), "")
        told = self._told
        if told is None or told[:2] != (first, awaited):
            told = self._told = (first, awaited, Future(tuple(self._points[first:]), awaited))
        return told[2]

"""Both sides as rows of one sheet: what both have stands at the same height. Knows no widget.

Only heights are kept, measured from the top on and in slices; the rows themselves are made when they are seen.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Generator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from kimi_tui.tui.compare.drawing import Span, message_rows
from kimi_tui.tui.glyphs import Glyphs

if TYPE_CHECKING:
    from kimi_tui.tui.compare.model import Comparison, Side

KEPT = 200
"""Messages whose rows are kept."""
Key = tuple["Side", int]


class Cell(NamedTuple):
    """One side of a row. `entry` is the index of the message that it belongs to, -1 for none."""

    spans: tuple[Span, ...] = ()
    entry: int = -1
    is_band: bool = False


BLANK = Cell()


class Sheet:
    """The rows of two columns.

    Args:
        comparison: what stands there.
        width: of each column.
        glyphs: the signs in use.
        known: heights of messages that were measured for the same width.

    Attributes:
        height: all rows, as far as measured.
        complete: whether all are.
        starts: for every message that is measured the row where it begins.
    """

    def __init__(
        self,
        comparison: Comparison,
        width: int,
        glyphs: Glyphs,
        known: Mapping[Key, int] | None = None,
    ) -> None:
        self._comparison = comparison
        self._glyphs = glyphs
        self._rows: dict[Key, list[list[Span]]] = {}
        self.width = width
        self.heights: dict[Key, int] = dict(known or {})
        self.height = 0
        self.complete = False
        self.starts: dict[Side, list[int]] = {"other": [], "live": []}

    def measure(self) -> Generator[None]:
        """Measure all messages from the top; gives way after each."""
        for run in self._comparison.runs:
            top = self.height
            ends: dict[Side, int] = {"other": top, "live": top}
            next_of: dict[Side, int] = {"other": run.a, "live": run.c}
            last_of: dict[Side, int] = {"other": run.b, "live": run.d}
            while (side := _behind(ends, next_of, last_of)) is not None:
                ends[side] = self._put(side, next_of[side], ends[side])
                next_of[side] += 1
                self.height = max(self.height, ends[side])
                yield
        self.complete = True

    def _put(self, side: Side, index: int, end: int) -> int:
        entries = self._comparison.sides[side]
        message = entries[index].message
        before = entries[index - 1].message.kind if index else ""
        has_gap = end > 0 and not before == message.kind == "tool"
        start = end + 1 if has_gap else end
        self.starts[side].append(start)
        key: Key = (side, index)
        if key not in self.heights:
            self.heights[key] = len(self._make(key))
        return start + self.heights[key]

    def _make(self, key: Key) -> list[list[Span]]:
        side, index = key
        entry = self._comparison.sides[side][index]
        whole = key in self._comparison.unfolded
        return message_rows(
            entry.message,
            self.width,
            self._glyphs,
            same=entry.same,
            whole=whole,
            lost=side == "other",
        )

    def cell(self, side: Side, row: int) -> Cell:
        """What stands in a row of one side."""
        index = bisect_right(self.starts[side], row) - 1
        if index < 0:
            return BLANK
        key: Key = (side, index)
        offset = row - self.starts[side][index]
        if offset >= self.heights[key]:
            return BLANK
        rows = self._rows.get(key)
        if rows is None:
            while len(self._rows) >= KEPT:
                del self._rows[next(iter(self._rows))]
            rows = self._rows[key] = self._make(key)
        message = self._comparison.sides[side][index].message
        return Cell(tuple(rows[offset]), index, message.kind == "user")

    def last_row(self, side: Side, index: int) -> int:
        """The last row of a message."""
        return self.starts[side][index] + self.heights[(side, index)] - 1


def _behind(
    ends: Mapping[Side, int], next_of: Mapping[Side, int], last_of: Mapping[Side, int]
) -> Side | None:
    """The side that has come less far, so that the sheet grows evenly; None where both have ended."""
    is_other_open, is_live_open = (
        next_of["other"] < last_of["other"],
        next_of["live"] < last_of["live"],
    )
    if is_other_open and (not is_live_open or ends["other"] <= ends["live"]):
        return "other"
    return "live" if is_live_open else None

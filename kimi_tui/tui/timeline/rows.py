"""The tree as rows: what is folded, unfolded, filtered, and in which lane each row stands.

Rows are held oldest first, so that a new checkpoint is an append and a rewind a truncation; the widget counts from
the other end. Every row bears the `order` of the place on the live line that it belongs to, so that any place is
found by bisection and only its own rows are built anew when something there folds.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Literal

from kimi_tui.tui.timeline.points import Key, Point, WorldLine
from kimi_tui.tui.timeline.tree import Tree

RowKind = Literal["point", "gap", "line", "foot", "base", "more"]

MAX_DEPTH = 40
"""Lines within lines that are followed; a damaged record may tell of lines that hang on one another."""
SHORT = 6
"""An opened world line shows this many steps next to its name; the rest is one row until that is opened too."""

_order = attrgetter("order")


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """One row.

    `lanes` has a letter for every lane left of the row's own: `l` a line that goes on, `b` the line before a
    compaction. `is_tip` marks the newest row of an opened world line, `hidden` counts what a fold holds.
    """

    kind: RowKind
    order: int
    lanes: str = ""
    point: Point | None = None
    line: WorldLine | None = None
    is_tip: bool = False
    hidden: int = 0

    @property
    def key(self) -> Key:
        """What selection names; a gap cannot be selected."""
        if self.kind == "point" and self.point is not None:
            return self.point.row_key
        if self.line is not None:
            return ("more", self.line.n) if self.kind == "more" else self.line.row_key
        return ("gap", self.order)


class Rows:
    """The rows of a tree, kept up to date by whoever changes the tree."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._rows: list[Row] = []
        self._headings: list[int] = []
        self.typed = ""
        self.needle = ""

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> Row:
        return self._rows[index]

    @property
    def n_points(self) -> int:
        """How many checkpoints are among the rows."""
        return sum(1 for row in self._rows if row.kind == "point")

    @property
    def headings(self) -> list[int]:
        """The live indexes of the turns, oldest first."""
        return self._headings

    # Changes of the tree

    def reset(self) -> None:
        """Build everything anew."""
        live = self._tree.live
        self._headings = [point.index for point in live if point.is_heading]
        self._rows = list(self._live(0, len(live)))

    def appended(self, point: Point) -> None:
        """A checkpoint was appended to the live line."""
        if point.is_heading:
            self._headings.append(point.index)
        heading = self.heading_of(point.index)
        if heading is not None and heading is not point and heading.folded and not self.needle:
            last = self._rows[-1]
            self._rows[-1] = replace(last, hidden=point.index - heading.index)
            return
        if point.index == 0:
            self._rows.clear()
        self._rows.extend(self._live(point.index, point.index + 1))

    def cut(self, index: int) -> None:
        """The live line was cut before `index`, and what was cut hangs there."""
        while self._headings and self._headings[-1] >= index:
            self._headings.pop()
        heading = self.heading_of(index - 1)
        if heading is not None and heading.folded and not self.needle:
            # A fold must not hide that the line was just cut here.
            heading.folded = False
            heading.touch()
            self._truncate(2 * heading.index)
            self._rows.extend(self._live(heading.index, index))
            return
        self._truncate(2 * index - 1)
        self._rows.extend(self._forks_at(index))

    def _truncate(self, order: int) -> None:
        # What parted before everything belongs to the first checkpoint's rows.
        del self._rows[bisect_left(self._rows, order if order > 0 else -1, key=_order) :]

    def relabelled(self, point: Point) -> None:
        """What a checkpoint of the live line says is another thing now: a filter may find it, or no longer."""
        if self.needle:
            order = 2 * point.index
            found = [Row("point", order, point=point)] if point.matches(self.needle) else []
            self._splice(order, order, iter(found))

    # Folding

    def refold(self, heading: Point) -> None:
        """Build the rows of one turn anew."""
        position = bisect_right(self._headings, heading.index)
        end = self._headings[position] if position < len(self._headings) else len(self._tree.live)
        first = 2 * heading.index
        self._splice(first or -1, 2 * end - 1, self._live(heading.index, end))

    def reopen(self, row: Row) -> None:
        """Build the rows of the place that `row` belongs to anew."""
        order = row.order
        if order % 2:
            self._splice(order, order, self._forks_at((order + 1) // 2))

    def _splice(self, first: int, last: int, rows: Iterator[Row]) -> None:
        start = bisect_left(self._rows, first, key=_order)
        end = bisect_right(self._rows, last, key=_order)
        self._rows[start:end] = rows

    def filter(self, needle: str) -> None:
        """Show only what holds the text; empty shows everything."""
        self.typed = needle
        self.needle = needle.strip().lower()
        self.reset()

    # Finding

    def heading_of(self, index: int) -> Point | None:
        """The turn that the live checkpoint at `index` belongs to."""
        position = bisect_right(self._headings, index) - 1
        return self._tree.live[self._headings[position]] if position >= 0 else None

    def index_of_order(self, order: int) -> int:
        """The first row at or after a place; the number of rows if there is none."""
        return bisect_left(self._rows, order, key=_order)

    def index_of_point(self, point: Point) -> int | None:
        """The row of a checkpoint of the live line."""
        order = 2 * point.index
        at = bisect_left(self._rows, order, key=_order)
        while at < len(self._rows) and self._rows[at].order == order:
            if self._rows[at].point is point and self._rows[at].kind == "point":
                return at
            at += 1
        return None

    def index_of(self, key: Key, hint: int = -1) -> int | None:
        """The row with this key; `hint` is where it was."""
        if 0 <= hint < len(self._rows) and self._rows[hint].key == key:
            return hint
        return next((i for i, row in enumerate(self._rows) if row.key == key), None)

    # Building

    def _live(self, start: int, end: int) -> Iterator[Row]:
        """The rows of the live checkpoints from `start` to before `end`, and of what parted above each."""
        tree, needle = self._tree, self.needle
        live = tree.live
        if start == 0:
            yield from self._forks(tree.root, "", -1)
        fold: Point | None = None
        for index in range(start, end):
            point = live[index]
            if point.is_heading:
                fold = point if point.folded else None
            if needle:
                yield from self._filtered(point, needle)
                continue
            if fold is not None and fold is not point:
                continue
            if tree.base(point) is not None:
                yield from self._base(point, "", 2 * index - 1)
            if point.is_heading and index > 0 and not live[index - 1].is_summary:
                yield Row("gap", 2 * index)
            if fold is point:
                yield Row("point", 2 * index, point=point, hidden=self._steps_of(index))
                continue
            yield Row("point", 2 * index, point=point)
            yield from self._forks(point.key, "", 2 * index + 1)

    def _filtered(self, point: Point, needle: str) -> Iterator[Row]:
        order = 2 * point.index
        if point.is_summary:
            yield from self._base(point, "", order - 1)
        if point.matches(needle):
            yield Row("point", order, point=point)
        yield from self._forks(point.key, "", order + 1)

    def _steps_of(self, index: int) -> int:
        position = bisect_right(self._headings, index)
        end = self._headings[position] if position < len(self._headings) else len(self._tree.live)
        return end - index - 1

    def _forks_at(self, index: int) -> Iterator[Row]:
        """What stands directly below the live checkpoint `index`."""
        tree = self._tree
        order = 2 * index - 1
        if index > 0:
            yield from self._forks(tree.live[index - 1].key, "", order)
        else:
            yield from self._forks(tree.root, "", order)
        if index < len(tree.live):
            yield from self._base(tree.live[index], "", order)

    def _forks(self, key: int, lanes: str, order: int) -> Iterator[Row]:
        for line in self._tree.forks(key):
            if self.needle:
                inner = list(self._inside(line, lanes + "l", order))
                if inner:
                    yield Row("foot", order, lanes, line=line)
                    yield from inner
            elif line.is_open:
                yield Row("foot", order, lanes, line=line)
                yield from self._inside(line, lanes + "l", order)
            else:
                yield Row("line", order, lanes, line=line)

    def _base(self, point: Point, lanes: str, order: int) -> Iterator[Row]:
        """The line that a compaction replaced: it stands below it, its name on top."""
        line = self._tree.base(point)
        if line is None:
            return
        if self.needle or line.is_open:
            inner = list(self._inside(line, lanes + "b", order))
            if self.needle and not inner:
                return
            yield from inner
        yield Row("base", order, lanes, line=line)

    def _inside(self, line: WorldLine, lanes: str, order: int) -> Iterator[Row]:
        if len(lanes) > MAX_DEPTH:
            return
        points = line.points
        if line.root:
            yield from self._forks(line.root, lanes, order)
        shown = points
        hidden = 0
        if not self.needle and not line.is_whole and len(points) > SHORT:
            shown = points[-SHORT + 1 :] if line.is_base else points[: SHORT - 1]
            hidden = len(points) - len(shown)
        if hidden and line.is_base:
            yield Row("more", order, lanes, line=line, hidden=hidden)
        for point in shown:
            yield from self._base(point, lanes, order)
            if not self.needle or point.matches(self.needle):
                is_tip = not hidden and point is points[-1] and not line.is_base
                yield Row("point", order, lanes, point=point, line=line, is_tip=is_tip)
            yield from self._forks(point.key, lanes, order)
        if hidden and not line.is_base:
            yield Row("more", order, lanes, line=line, is_tip=True, hidden=hidden)

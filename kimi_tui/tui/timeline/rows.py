"""The tree as rows: what is folded, unfolded, filtered, and in which lane each row stands.

Rows are held oldest first, so that a new checkpoint is an append and a rewind a truncation; the widget counts from
the other end. Every row bears the `order` of the place on the live line that it belongs to, so that any place is
found by bisection and only its own rows are built anew when something there folds. What a change of the whole line
reaches is built when somebody looks, once for as many changes as there were.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import replace
from operator import attrgetter

from kimi_tui.tui.timeline.building import Builder, Row
from kimi_tui.tui.timeline.points import Key, Point
from kimi_tui.tui.timeline.tree import Tree

_order = attrgetter("order")
_NEAR = 100
"""Rows around a known one that are looked at before all."""


class Rows:
    """The rows of a tree, kept up to date by whoever changes the tree."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._rows: list[Row] = []
        self._headings: list[int] = []
        self._builder = Builder(tree)
        self._changes = 0
        # The live checkpoint from which on the rows are still to be built; None where all are there.
        self._missing: int | None = None
        self.typed = ""

    def __len__(self) -> int:
        return len(self._whole())

    def __getitem__(self, index: int) -> Row:
        return self._whole()[index]

    @property
    def needle(self) -> str:
        """What the rows that are shown must hold, in lower case."""
        return self._builder.needle

    @property
    def n_points(self) -> int:
        """How many checkpoints are among the rows."""
        return sum(1 for row in self._whole() if row.kind == "point")

    @property
    def n_missing(self) -> int:
        """For how many checkpoints of the live line the rows are still to be built."""
        return 0 if self._missing is None else len(self._tree.live) - self._missing

    @property
    def headings(self) -> list[int]:
        """The live indexes of the turns, oldest first."""
        return self._headings

    # Changes of the tree

    def reset(self, start: int = 0) -> None:
        """The live line is another one from the checkpoint at index `start` on, and what parts there."""
        self._changes += 1
        del self._headings[bisect_left(self._headings, start) :]
        live = self._tree.live
        self._headings += [n for n in range(start, len(live)) if live[n].is_heading]
        self._missing = start if self._missing is None else min(start, self._missing)

    def settle(self) -> Iterator[None]:
        """Build what is missing, a checkpoint at a time; if something changes in between, the rest waits until it is needed."""
        before = self._changes
        rows: list[Row] = []
        for row in self._rest():
            if row is not None:
                rows.append(row)
            yield
            if before != self._changes or self._missing is None:
                return
        self._rows += rows
        self._missing = None

    def _whole(self) -> list[Row]:
        if self._missing is not None:
            self._rows += _built(self._rest())
            self._missing = None
        return self._rows

    def _rest(self) -> Iterator[Row | None]:
        """The rows that are missing, behind those that stay."""
        start = self._missing
        if start is None:
            return
        live = self._tree.live
        heading = self.heading_of(start - 1) if start else None
        if heading is not None and heading.folded:
            start = heading.index
        self._truncate(2 * start - 1)
        if start:
            yield from self._builder.parted_at(start)
        yield from self._builder.live(start, len(live))

    def appended(self, point: Point) -> None:
        """A checkpoint was appended to the live line."""
        self._changes += 1
        if point.is_heading:
            self._headings.append(point.index)
        if self._missing is not None:
            return
        heading = self.heading_of(point.index)
        if heading is not None and heading is not point and heading.folded and not self.needle:
            last = self._rows[-1]
            self._rows[-1] = replace(last, hidden=point.index - heading.index)
            return
        if point.index == 0:
            self._rows.clear()
        self._rows.extend(_built(self._builder.live(point.index, point.index + 1)))

    def cut(self, index: int) -> None:
        """The live line was cut before `index`, and what was cut hangs there."""
        self._changes += 1
        while self._headings and self._headings[-1] >= index:
            self._headings.pop()
        heading = self.heading_of(index - 1)
        if heading is not None and heading.folded and not self.needle:
            # A fold must not hide that the line was just cut here.
            heading.folded = False
            heading.touch()
            if self._missing is not None:
                self._missing = min(heading.index, self._missing)
                return
            self._truncate(2 * heading.index)
            self._rows.extend(_built(self._builder.live(heading.index, index)))
            return
        if self._missing is not None:
            self._missing = min(index, self._missing)
            return
        self._truncate(2 * index - 1)
        self._rows.extend(_built(self._builder.forks_at(index)))

    def _truncate(self, order: int) -> None:
        # What parted before everything belongs to the first checkpoint's rows.
        del self._rows[bisect_left(self._rows, order if order > 0 else -1, key=_order) :]

    def relabelled(self, point: Point) -> None:
        """What a checkpoint of the live line says is another thing now: a filter may find it, or no longer."""
        if self.needle and self._missing is None:
            order = 2 * point.index
            found = [Row("point", order, point=point)] if point.matches(self.needle) else []
            self._splice(order, order, found)
        self._changes += 1

    # Folding

    def refold(self, heading: Point) -> None:
        """Build the rows of one turn anew."""
        position = bisect_right(self._headings, heading.index)
        end = self._headings[position] if position < len(self._headings) else len(self._tree.live)
        first = 2 * heading.index
        self._splice(first or -1, 2 * end - 1, self._builder.live(heading.index, end))

    def reopen(self, row: Row) -> None:
        """Build the rows of the place that `row` belongs to anew."""
        order = row.order
        if order % 2:
            self._splice(order, order, self._builder.forks_at((order + 1) // 2))

    def _splice(self, first: int, last: int, rows: Iterable[Row | None]) -> None:
        self._changes += 1
        whole = self._whole()
        start = bisect_left(whole, first, key=_order)
        end = bisect_right(whole, last, key=_order)
        whole[start:end] = _built(rows)

    def filter(self, typed: str) -> None:
        """Show only what holds the text; empty shows everything."""
        self.typed = typed
        self._builder = Builder(self._tree, typed.strip().lower())
        self.reset()

    def search(self, typed: str) -> Iterator[None]:
        """The same a checkpoint at a time: who looks at ten thousand has to let others run in between.

        Until it has ended, what was shown before is shown, and kept up to date.
        """
        self.typed = typed
        before, builder = self._changes, Builder(self._tree, typed.strip().lower())
        rows: list[Row] = []
        for row in builder.live(0, len(self._tree.live)):
            if row is not None:
                rows.append(row)
            yield
            if before != self._changes:
                # What was found may be gone. Most of it is known by now, so at once is soon enough.
                self.filter(typed)
                return
        self._builder, self._rows, self._missing = builder, rows, None
        self._changes += 1

    # Finding

    def heading_of(self, index: int) -> Point | None:
        """The turn that the live checkpoint at `index` belongs to."""
        position = bisect_right(self._headings, index) - 1
        return self._tree.live[self._headings[position]] if position >= 0 else None

    def index_of_order(self, order: int) -> int:
        """The first row at or after a place; the number of rows if there is none."""
        return bisect_left(self._whole(), order, key=_order)

    def index_of_point(self, point: Point) -> int | None:
        """The row of a checkpoint of the live line."""
        order, rows = 2 * point.index, self._whole()
        at = bisect_left(rows, order, key=_order)
        while at < len(rows) and rows[at].order == order:
            if rows[at].point is point and rows[at].kind == "point":
                return at
            at += 1
        return None

    def index_of(self, key: Key, hint: int = -1) -> int | None:
        """The row with this key; `hint` is where it was."""
        rows = self._whole()
        if 0 <= hint < len(rows) and rows[hint].key == key:
            return hint
        # Where a key or a page went is near where one was before.
        around = range(max(0, hint - _NEAR), min(len(rows), hint + _NEAR + 1)) if hint >= 0 else ()
        near = next((i for i in around if rows[i].key == key), None)
        if near is not None:
            return near
        return next((i for i, row in enumerate(rows) if row.key == key), None)


def _built(rows: Iterable[Row | None]) -> list[Row]:
    return [row for row in rows if row is not None]

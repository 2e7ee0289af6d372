"""From the tree to rows: in which order they stand, in which lane, and which of them a filter leaves.

Builds what it is asked for anew; which rows stand already is kept in `rows`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from kimi_tui.tui.timeline.points import Key, Point, WorldLine
from kimi_tui.tui.timeline.tree import Tree

RowKind = Literal["point", "gap", "line", "foot", "base", "more"]

MAX_DEPTH = 40
"""Lines within lines that are followed; a damaged record may tell of lines that hang on one another."""
SHORT = 6
"""An opened world line shows this many steps next to its name; the rest is one row until that is opened too."""


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


class Builder:
    """Makes rows, oldest first. Where a filter passes over a checkpoint, None stands in: a place to pause.

    Args:
        tree: the checkpoints and lines.
        needle: what a row must hold, in lower case; empty for every row.
    """

    def __init__(self, tree: Tree, needle: str = "") -> None:
        self._tree = tree
        self.needle = needle

    def live(self, start: int, end: int) -> Iterator[Row | None]:
        """The rows of the live checkpoints from `start` to before `end`, and of what parted above each."""
        tree = self._tree
        live = tree.live
        if start == 0:
            yield from self._forks(tree.root, "", -1)
        fold: Point | None = None
        for index in range(start, min(end, len(live))):
            point = live[index]
            if point.is_heading:
                fold = point if point.folded else None
            if self.needle:
                yield from self._filtered(point)
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

    def forks_at(self, index: int) -> Iterator[Row | None]:
        """What stands directly below the live checkpoint `index`."""
        live = self._tree.live
        yield from self.parted_at(index)
        if index < len(live):
            yield from self._base(live[index], "", 2 * index - 1)

    def parted_at(self, index: int) -> Iterator[Row | None]:
        """The lines that parted before the live checkpoint `index`."""
        tree = self._tree
        key = tree.live[index - 1].key if index > 0 else tree.root
        yield from self._forks(key, "", 2 * index - 1)

    def _filtered(self, point: Point) -> Iterator[Row | None]:
        order = 2 * point.index
        if point.is_summary:
            yield from self._base(point, "", order - 1)
        yield Row("point", order, point=point) if point.matches(self.needle) else None
        yield from self._forks(point.key, "", order + 1)

    def _steps_of(self, index: int) -> int:
        """How many checkpoints the turn that begins at a live index has."""
        live = self._tree.live
        end = next((i for i in range(index + 1, len(live)) if live[i].is_heading), len(live))
        return end - index - 1

    def _forks(self, key: int, lanes: str, order: int) -> Iterator[Row | None]:
        for line in self._tree.forks(key):
            if not self.needle and not line.is_open:
                yield Row("line", order, lanes, line=line)
                continue
            is_named = False
            if not self.needle:
                yield Row("foot", order, lanes, line=line)
                is_named = True
            for row in self._inside(line, lanes + "l", order):
                if row is not None and not is_named:
                    yield Row("foot", order, lanes, line=line)
                    is_named = True
                yield row

    def _base(self, point: Point, lanes: str, order: int) -> Iterator[Row | None]:
        """The line that a compaction replaced: it stands below it, its name on top."""
        line = self._tree.base(point)
        if line is None:
            return
        is_found = not self.needle
        if self.needle or line.is_open:
            for row in self._inside(line, lanes + "b", order):
                is_found = is_found or row is not None
                yield row
        if is_found:
            yield Row("base", order, lanes, line=line)

    def _inside(self, line: WorldLine, lanes: str, order: int) -> Iterator[Row | None]:
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
            else:
                yield None
            yield from self._forks(point.key, lanes, order)
        if hidden and not line.is_base:
            yield Row("more", order, lanes, line=line, is_tip=True, hidden=hidden)

"""Layout and scrolling of the transcript: the heights and rows of all blocks (`Flow`), and the visible part (`Viewport`).

Blocks far from the screen are not laid out: their heights are estimates, corrected when they come near, as are parts of a
long answer that were never visible. A `Viewport` follows the end, or keeps the text at its top in place, whatever grows,
folds or disappears around it. A `RevertAnimation` has the rows that a revert removed, to be drawn over the new ones for a
moment. This module has no colours and no widget.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate, islice
from math import inf
from time import thread_time
from typing import Any

from textual.strip import Strip

from kimi_tui.projection.blocks import (
    AgentBlock,
    Block,
    DMailBlock,
    ThoughtBlock,
    ToolBlock,
    UserBlock,
)
from kimi_tui.tui.faults import log_fault
from kimi_tui.tui.glyphs import Glyphs
from kimi_tui.tui.painter import FADED
from kimi_tui.tui.rows import BLANK, COLOUR, LayoutRoom, Line, Span, style_parts
from kimi_tui.tui.transcript.layout import (
    SLICE_ROWS,
    ThoughtStream,
    follows_closely,
    iter_rows,
    plain_block,
    probable_height,
    rows_of,
    with_pin,
)
from kimi_tui.tui.transcript.markdown_stream import MarkdownStream, Shown, marks_in
from kimi_tui.tui.transcript.text_position import TextPosition, extent_of, moved

SLICE = 3_000
"""The most characters of a growing answer that are laid out in one slice, so that no key waits for longer."""
SLICE_S = 0.0015
"""CPU seconds after which such a slice ends as well: code can take ten times as long as prose. The last part is completed."""
PART = 750
"""Characters of a part of a slice; the time is checked after each."""
PART_MARKS = 200
"""The most marks of a part, see `marks_in`."""
LINE_MARKS = 5
"""Marks that a line counts as, since it may be an entry of a list."""
AT_ONCE = 30_000
"""The same as `SLICE` for the first slice of an answer, so that all but the longest are complete with it."""
AT_ONCE_S = 0.016
"""The same as `SLICE_S` for the first slice: a frame."""
AT_ONCE_ROWS = 1_000
"""The rows of the first slice of any other block; a later one has `SLICE_ROWS`."""
MEASURED = 500
"""Blocks whose height for another width is estimated in one slice."""
ARRANGED = 250
"""Blocks that are arranged in one step where thousands have changed."""
CHUNK = 128
"""Views whose rows are summed up together: a change of one costs a sum of these, and not of all views below it."""
KEPT_ROWS = 5_000
"""About how many rows are kept laid out; those farthest from the screen are dropped first."""
KEPT_STRIPS = 400
"""The rows that are painted before the strips of those far from the screen are dropped. A strip takes some 5 KB, its row a tenth."""

_NOT_LAID: list[Any] = []
"""The rows of a view that was never laid out; shared, and never changed."""


class View:
    """A block with its layout: its rows, as far as they exist, and its height. `gap` is 1 for a blank row above it, else 0."""

    __slots__ = (
        "answer",
        "block",
        "coming",
        "cursor",
        "gap",
        "height",
        "is_broken",
        "laid",
        "late",
        "lines",
        "marked",
        "reserved",
        "sized",
        "strips",
        "taken",
        "version",
        "work",
        "work_version",
    )

    def __init__(self, block: Block) -> None:
        # A step may have thousands of blocks, most of which are never visible: they share empty lists.
        self.block = block
        self.version = -1
        self.sized = -1
        """The version of its block that the height was computed for."""
        self.gap = 0
        self.height = 1
        self.laid = False
        self.lines: list[Line] = _NOT_LAID
        self.strips: list[Strip | None] = _NOT_LAID
        self.answer: MarkdownStream | ThoughtStream | None = None
        self.late: MarkdownStream | None = None
        """Lays out the rows that are still empty; None if none are."""
        self.taken = 0
        self.cursor = False
        self.work: Iterator[Line] | None = None
        """The iterator of the rows that are still to be made; None if the layout is complete."""
        self.work_version = -1
        self.coming: list[Line] = _NOT_LAID
        """The rows made so far: shown at once, or when they are complete if others are shown."""
        self.reserved = 0
        """The estimated height, used until all rows are made; 0 if the height grows with the text."""
        self.is_broken = False
        """Whether its layout failed, so that it is shown as plain text."""
        self.marked: Sequence[Line] | None = None
        """The rows that kept positions refer to, while new ones are made in slices."""

    def forget(self) -> None:
        """Drop the rows; the height is kept."""
        self.laid = False
        self.version = -1
        self.stop()
        self.lines = self.strips = self.coming = _NOT_LAID
        self.is_broken = False
        self.marked = None

    def stop(self) -> None:
        """Cancel the layout that is under way."""
        self.answer = self.late = None
        self.taken = 0
        self.work = None
        self.coming = []
        self.reserved = 0

    @property
    def rows(self) -> int:
        """The height in rows, with the gap."""
        return self.gap + self.height


class _Starts:
    """The first row of each view, kept as sums of chunks of them, so that a change of one view costs the same in any place.

    Args:
        views: all views; the list is read when a row is asked for.
    """

    def __init__(self, views: list[View]) -> None:
        self._views = views
        self._within: list[list[int] | None] = []
        """The rows of each chunk above each of its views, and at the end all its rows; None for a chunk that is to be summed up."""
        self._tops = [0]
        """The first row of each chunk."""
        self._known = 0
        """The last chunk whose first row is valid."""

    def forget(self, index: int) -> None:
        """Have the sums that contain the height of a view made anew."""
        chunk = index // CHUNK
        if chunk < len(self._within):
            self._within[chunk] = None
        self._known = min(self._known, chunk)

    def cut(self, index: int) -> None:
        """Have the sums from an index on made anew, because other views are there now."""
        chunk = index // CHUNK
        del self._within[chunk:]
        del self._tops[chunk + 1 :]
        self._known = min(self._known, chunk)

    def start(self, index: int) -> int:
        """Return the first row of a view; for the index after the last view the height of all."""
        chunk, at = divmod(index, CHUNK)
        return self._top(chunk) + (self._sums(chunk)[at] if at else 0)

    def find(self, row: int) -> tuple[int, int]:
        """Return the index of the view that a row belongs to, and the row within it."""
        n_chunks = max(1, -(-len(self._views) // CHUNK))
        self._top(n_chunks - 1)
        chunk = max(0, bisect_right(self._tops, row, 0, n_chunks) - 1)
        sums, top = self._sums(chunk), self._tops[chunk]
        at = max(0, bisect_right(sums, row - top, 0, len(sums) - 1) - 1)
        return chunk * CHUNK + at, row - top - sums[at]

    def _top(self, chunk: int) -> int:
        tops = self._tops
        for before in range(self._known, chunk):
            top = tops[before] + self._sums(before)[-1]
            if before + 1 < len(tops):
                tops[before + 1] = top
            else:
                tops.append(top)
        self._known = max(self._known, chunk)
        return tops[chunk]

    def _sums(self, chunk: int) -> list[int]:
        within = self._within
        within.extend([None] * (chunk + 1 - len(within)))
        sums = within[chunk]
        if sums is None:
            views = self._views[chunk * CHUNK : (chunk + 1) * CHUNK]
            sums = within[chunk] = [*accumulate((view.rows for view in views), initial=0)]
        return sums


Place = tuple[View | None, int, Line]
"""A row: the view, the index among its lines (-1: its gap), and the line."""
_NOWHERE: Place = (None, -1, BLANK)
"""A row above or below all blocks."""


class Flow:
    """The blocks of a transcript below each other: their heights and rows.

    Attributes:
        positions: text positions that are updated when rows change; their owners add and remove them.
    """

    def __init__(self, room: LayoutRoom) -> None:
        self.room = room
        self.views: list[View] = []
        self.positions: list[TextPosition] = []
        self._starts = _Starts(self.views)
        self._next: Flow | None = None
        """The flow that is being arranged to replace what this one holds."""
        self._seams: set[int] = set()
        """The indices in that flow whose gap depends on a view that has changed meanwhile."""
        self._lent: set[int] = set()
        """The indices of the views here whose gap may be that which they have in that flow."""
        self._n_updates = 0
        self._laid_rows = 0
        self._n_widths = 0
        self._painted: set[View] = set()
        """The views that have strips."""
        self._n_painted = 0
        """The strips that were made since those far from the screen were dropped."""
        self._places: dict[int, int] = {}
        """The indices of the views, by the keys of their blocks."""
        self._unfinished: dict[View, int] = {}
        """The views whose layout was begun and is not complete, each with its index."""
        self._measuring: Iterator[bool] | None = None

    @property
    def behind(self) -> bool:
        """Whether the layout of some view is not complete: `lay_out` it again soon."""
        return bool(self._unfinished)

    @property
    def first_behind(self) -> int:
        """The index of the first view whose layout is not complete; the number of views where all are."""
        return min(self._unfinished.values(), default=len(self.views))

    @property
    def n_to_lay_out(self) -> int:
        """The characters of the growing answer at the end that were received and are not laid out."""
        view = self.views[-1] if self.views else None
        if view is None or view.answer is None:
            return 0
        block = view.block
        if not isinstance(block, (AgentBlock, ThoughtBlock)) or not block.open:
            return 0
        return block.stream.size - view.taken

    # --- positions

    @property
    def height(self) -> int:
        """The number of all rows; estimated where views are not laid out."""
        return self.start(len(self.views))

    def start(self, index: int) -> int:
        """Return the first row of a view, its gap included; for the index after the last view the height of all."""
        return self._starts.start(index)

    def turn_row(self, row: int, step: int) -> int:
        """Return the row of the user's message before (-1) or after (1) a row; 0 or the height if there is none."""
        index, _ = self.find(row)
        n_views = len(self.views)
        places = range(min(index, n_views - 1), -1, -1) if step < 0 else range(index, n_views)
        for place in places:
            view = self.views[place]
            start = self.start(place) + view.gap
            if isinstance(view.block, UserBlock) and (start < row if step < 0 else start > row):
                return start
        return 0 if step < 0 else self.height

    def find(self, row: int) -> tuple[int, int]:
        """Return the index of the view that a row belongs to, and the row within the view, its gap included."""
        return self._starts.find(row)

    def index_of(self, mark: TextPosition) -> int | None:
        """Return the index of the view of a position; None if its block was removed."""
        views = self.views
        if mark.hint < len(views) and views[mark.hint].block.key == mark.key:
            return mark.hint
        index = self.index_of_key(mark.key)
        if index is not None:
            mark.hint = index
        return index

    def index_of_key(self, key: int | None) -> int | None:
        """Return the index of the view of the block with this key; None if there is none."""
        return self._places.get(key) if key is not None else None

    def row_of(self, mark: TextPosition) -> int | None:
        """Return the row of a position; None if its block was removed."""
        index = self.index_of(mark)
        return None if index is None else self.start(index) + self.views[index].gap + mark.row

    def position_at(self, row: int) -> TextPosition | None:
        """Return the position of the first character of the text in a row; None if there are no blocks."""
        if not self.views:
            return None
        index, offset = self.find(row)
        view = self.views[index]
        at = offset - view.gap
        column = extent_of(view.lines[at]).start if 0 <= at < len(view.lines) else 0
        return TextPosition(view.block.key, at, column, hint=index)

    def _forget_starts(self, index: int) -> None:
        """Invalidate the starts of the views after one whose height changed."""
        self._starts.forget(index)
        if self._next is not None:
            place = self._next.index_of_key(self.views[index].block.key)
            if place is not None:
                self._next._starts.forget(place)
                self._seams.add(place + 1)

    # --- changes

    def update(self, blocks: Sequence[Block], first: int) -> None:
        """Update the views from block `first` on, of which any may have been changed, added or removed."""
        self._n_updates += 1
        self._give_up()
        self._unfinished.clear()
        first = max(0, min(first, len(self.views)))
        # Only one of thousands of cards of a step changes at a time.
        kept = first
        for view, block in zip(self.views[first:], blocks[first:], strict=False):
            if view.block is not block:
                break
            kept += 1
        if kept < max(len(self.views), len(blocks)):
            self._exchange(blocks, kept)
        is_changed = False
        for index in range(first, len(self.views)):
            view = self.views[index]
            block = view.block
            was_changed, is_changed = is_changed, index >= kept
            # This is `block.version`, without a call for each of thousands of blocks below one that has changed.
            if view.sized != block.stretch.version + block.n_edits:
                is_changed = True
                self._forget_starts(index)
                self._estimate(view)
            if is_changed or was_changed:
                self._regap(index)

    def _exchange(self, blocks: Sequence[Block], kept: int) -> None:
        """Have the views from an index on show these blocks: the known ones among them keep their views."""
        old = self.views[kept:]
        known = {view.block.key: view for view in old} if old else {}
        fresh: list[View] = []
        for block in blocks[kept:]:
            view = known.get(block.key)
            if view is not None and view.block is block:
                del known[block.key]
            else:
                exchanged, view = view, View(block)
                if exchanged is not None and any(mark.key == block.key for mark in self.positions):
                    # The new block shows the same text under another number, or nearly: marks stay with it.
                    view.marked = exchanged.marked or exchanged.lines
            fresh.append(view)
        for view in known.values():
            self._laid_rows -= len(view.lines)
            view.forget()
        self.views[kept:] = fresh
        for view in old:
            self._places.pop(view.block.key, None)
        for place, view in enumerate(fresh, kept):
            self._places[view.block.key] = place
        self._starts.cut(kept)

    def _estimate(self, view: View) -> None:
        """Estimate the height of a view whose block has changed."""
        view.sized = view.block.version
        if view.version == view.block.version:
            return
        if not view.laid:
            view.height = probable_height(view.block, self.room)
        elif view.answer is not None:
            # Outside the screen its height grows by estimate; on the screen it is laid out at once.
            view.height = max(view.height, probable_height(view.block, self.room))

    def sum_up(self) -> Generator[None]:
        """Sum up the heights of all blocks, as a generator that yields between small steps; `height` does what is left at once."""
        for index in range(0, len(self.views), CHUNK):
            self.start(index)
            yield

    def arranged(self, blocks: Sequence[Block]) -> Generator[None, None, Flow | None]:
        """Arrange the blocks in small steps in a flow of their own, which `take` puts in place of what is here.

        It shares the views of the blocks that are known here. This flow may be used meanwhile.

        Args:
            blocks: all blocks; not to be changed meanwhile.

        Returns:
            the flow; None if this one was updated or got another width meanwhile.
        """
        count = self._n_updates
        self._give_up()
        fresh = self._next = Flow(self.room)
        for start in range(0, len(blocks), ARRANGED):
            fresh._adopt(blocks[start : start + ARRANGED], self)
            fresh.start(len(fresh.views))
            yield
            if self._n_updates != count or self._next is not fresh:
                return None
        return fresh

    def _adopt(self, blocks: Sequence[Block], other: Flow) -> None:
        """Append blocks, with the views that they have in another flow."""
        first = len(self.views)
        for block in blocks:
            at = other.index_of_key(block.key)
            view = other.views[at] if at is not None else None
            if view is None or view.block is not block:
                exchanged, view, at = view, View(block), None
                if exchanged is not None and any(m.key == block.key for m in other.positions):
                    view.marked = exchanged.marked or exchanged.lines
            index = self._places[block.key] = len(self.views)
            self.views.append(view)
            before = view.rows
            if view.sized != block.version:
                self._estimate(view)
            if at is None or at == 0 or index == 0 or other.views[at - 1] is not self.views[-2]:
                self._regap(index)
            if at is not None and view.rows != before:
                other._starts.forget(at)
                # Which gap the next view has there depends on the height of this one.
                other._lent |= {at, at + 1}
        self._starts.cut(first)

    def _give_up(self) -> None:
        """Drop the flow that is being arranged; the views that both have get the gaps that they have here."""
        self._next = None
        self._seams.clear()
        for index in self._lent:
            if index < len(self.views):
                self._regap(index)
        self._lent.clear()

    def take(self, fresh: Flow) -> Generator[None]:
        """Show what was arranged; returns a generator that frees what was here in small steps: thousands of views take long."""
        former, self.views = self.views, fresh.views
        self._starts, self._places, self._next = fresh._starts, fresh._places, None
        self._n_updates += 1
        self._unfinished.clear()
        self._lent.clear()
        for index in self._seams:
            if index < len(self.views):
                self._regap(index)
        return self._freed(former, self._n_widths)

    def _freed(self, former: list[View], width: int) -> Generator[None]:
        while former:
            # With another width, rows that were counted before are not counted any more.
            counted = former[-ARRANGED:] if width == self._n_widths else []
            for view in counted:
                if view.laid and self.index_of_view(view) is None:
                    self._laid_rows -= len(view.lines)
                    view.forget()
            del former[-ARRANGED:]
            yield

    def index_of_view(self, view: View) -> int | None:
        """Return the index of a view; None if it is not here any more."""
        index = self.index_of_key(view.block.key)
        return index if index is not None and self.views[index] is view else None

    def resize(self, room: LayoutRoom) -> None:
        """Set another width: rows are laid out again when they are needed, those of kept positions at once.

        The heights of the other blocks are the former ones until the last call of `measure`.
        """
        self.room = room
        self._n_updates += 1
        self._n_widths += 1
        self._give_up()
        old = {
            index: self.views[index].marked or self.views[index].lines
            for mark in self.positions
            if (index := self.index_of(mark)) is not None
        }
        self._unfinished.clear()
        forgotten: list[tuple[list[Line], list[Strip | None]]] = []
        for view in self.views:
            if view.laid:
                forgotten.append((view.lines, view.strips))
                view.forget()
        self._laid_rows = 0
        for index, lines in old.items():
            self.lay_out(index, lines)
        self._measuring = self._measured(forgotten)
        self.measure()

    @property
    def is_measured(self) -> bool:
        """Whether all heights were estimated or computed for the present width."""
        return self._measuring is None

    def measure(self) -> bool:
        """Estimate the heights of a slice of the blocks for another width; returns whether it was the last one."""
        if self._measuring is not None and not next(self._measuring, False):
            self._measuring = None
        return self._measuring is None

    def _measured(self, forgotten: list[tuple[list[Line], list[Strip | None]]]) -> Iterator[bool]:
        """Estimate all heights in slices, and set them after the last slice, so that rows move once.

        Args:
            forgotten: the former rows, freed in slices: freeing thousands of them takes as long as measuring.
        """
        heights: list[tuple[View, int, int]] = []
        for start in range(0, len(self.views), MEASURED):
            if start:
                yield True
            del forgotten[-MEASURED:]
            for view in self.views[start : start + MEASURED]:
                height = probable_height(view.block, self.room)
                if height != view.height:
                    heights.append((view, view.block.version, height))
        regapped: list[View] = []
        for view, version, height in heights:
            # Blocks that changed meanwhile were measured for this width.
            if not view.laid and version == view.block.version:
                view.height = height
                # The gap below anything else is the same for all heights.
                if isinstance(view.block, ToolBlock):
                    regapped.append(view)
        for flow in (self, self._next):
            if flow is not None:
                flow._starts.cut(0)
        for view in regapped:
            index = self.index_of_view(view)
            if index is not None and index + 1 < len(self.views):
                self._regap(index + 1)

    def repaint(self) -> None:
        """Drop the strips, as colours or the painted width changed; the rows are kept."""
        for view in self.views:
            if view.laid:
                view.strips = [None] * len(view.lines)

    def _regap(self, index: int) -> None:
        view = self.views[index]
        gap = 0
        if index:
            before = self.views[index - 1]
            gap = 0 if follows_closely(before.block, before.height, view.block) else 1
        if gap != view.gap:
            view.gap = gap
            self._forget_starts(index)

    # --- rows

    def lay_out(self, index: int, old: Sequence[Line] | None = None) -> int:
        """Lay a view out; returns the number of rows by which all rows below it move.

        Args:
            index: the index of the view.
            old: the rows that positions refer to, where the view has dropped them.
        """
        view = self.views[index]
        if view.laid and view.version == view.block.version:
            return 0
        following = self.views[index + 1] if index + 1 < len(self.views) else None
        before = view.rows + (following.gap if following is not None else 0)
        count = len(view.lines)
        marks = [mark for mark in self.positions if mark.key == view.block.key]
        if marks and view.marked is None:
            view.marked = list(view.lines) if old is None else old
        goes_on = view in self._unfinished
        first = self._lay_block(view)
        is_whole = view.version == view.block.version
        if is_whole:
            self._unfinished.pop(view, None)
        else:
            self._unfinished[view] = index
        self._laid_rows += len(view.lines) - count
        grows = isinstance(view.block, (AgentBlock, ThoughtBlock)) and view.block.open
        if is_whole or grows:
            # The rows of a long block that is made in slices are known only when all of them exist.
            for mark in marks:
                _move(mark, view.marked or (), view.lines, 0 if goes_on else first)
            view.marked = None
        height = max(len(view.lines), view.reserved)
        if height != view.height:
            view.height = height
            self._forget_starts(index)
        if following is not None:
            self._regap(index + 1)
        return view.rows + (following.gap if following is not None else 0) - before

    def lay_out_whole(self, index: int) -> int:
        """Lay out all rows of a view, also those of an answer that were never shown; returns as `lay_out` does."""
        shift, view = self.lay_out(index), self.views[index]
        return shift + self._show_late(index, 0, len(view.lines))

    def whole_in_steps(self, view: View) -> Generator[None]:
        """Do the same as `lay_out_whole` as a generator with small steps, between which the flow may change."""
        mark = TextPosition(view.block.key, 0, 0)
        if (index := self.index_of(mark)) is not None:
            self.lay_out(index)
        while (late := view.late) is not None and (index := self.index_of(mark)) is not None:
            self._take_shown(index, late.show_next())
            yield

    def show(self, start: int, end: int, limit: float = inf) -> int:
        """Lay out the rows from `start` to `end` (exclusive) that are still empty.

        Args:
            start: the first row.
            end: the row after the last one.
            limit: the most characters, about, that are laid out; where rows stay empty, the flow is `behind`.

        Returns:
            the approximate number of characters that were laid out; 0 for nothing.
        """
        low, _ = self.find(start)
        spent = 0
        for index in range(low, len(self.views)):
            view = self.views[index]
            first = self.start(index) + view.gap
            if first >= end:
                break
            if (late := view.late) is not None:
                before = late.spent
                self._show_late(index, max(0, start - first), end - first, limit - spent)
                spent += late.spent - before
                if late.is_late_in(max(0, start - first), min(end - first, len(view.lines))):
                    self._unfinished[view] = index
        return spent

    def _show_late(self, index: int, start: int, end: int, limit: float = inf) -> int:
        """Lay out the rows of a view from `start` to `end` (exclusive) that are still empty; returns as `lay_out` does."""
        view = self.views[index]
        if view.late is None:
            return 0
        return self._take_shown(index, view.late.show(start, min(end, len(view.lines)), limit))

    def _take_shown(self, index: int, changes: Sequence[Shown]) -> int:
        """Replace empty rows of a view by these; returns as `lay_out` does."""
        view = self.views[index]
        if not changes:
            return 0
        for first, last, rows in reversed(changes):
            view.lines[first:last] = rows
            view.strips[first:last] = [None] * len(rows)
            shift = len(rows) - (last - first)
            for mark in self.positions if view.marked is None else ():
                if mark.key != view.block.key or mark.row < first:
                    continue
                is_within = mark.row < last
                mark.row = (
                    max(first, min(mark.row, last - 1 + shift)) if is_within else mark.row + shift
                )
        shift = sum(len(rows) - (last - first) for first, last, rows in changes)
        self._laid_rows += shift
        view.height = max(len(view.lines), view.reserved)
        self._forget_starts(index)
        if view.late is not None and not view.late.n_late:
            view.late = None
        return shift

    def _lay_block(self, view: View) -> int:
        """Make the rows of a view; returns the index of the first one that may have changed."""
        block = view.block
        first = 0
        if view.strips is _NOT_LAID:
            view.lines, view.strips, view.coming = [], [], []
        try:
            match block:
                case _ if view.is_broken:
                    self._lay_plain(view)
                case ThoughtBlock() if block.open and block.unfolded:
                    first = self._lay_answer(view, block)
                # A very long block is laid out a slice at a time, too.
                case AgentBlock() if block.open or view.answer or block.stream.size > SLICE:
                    first = self._lay_answer(view, block)
                case _:
                    self._lay_rows(view)
        except Exception:
            # The error stops nothing: the block is plain text from now on, and all others are unaffected.
            log_fault(f"laying out {type(block).__name__}")
            view.stop()
            view.is_broken = True
            self._lay_plain(view)
        view.laid = True
        return first

    def _lay_plain(self, view: View) -> None:
        view.lines = plain_block(view.block, self.room)
        view.strips = [None] * len(view.lines)
        view.cursor = False
        view.version = view.block.version

    def _lay_rows(self, view: View) -> None:
        """Make the rows of a block, those of a long one a slice at a time."""
        block = view.block
        if view.work is None or view.work_version != block.version:
            view.stop()
            view.work, view.work_version = iter_rows(block, self.room), block.version
            count = AT_ONCE_ROWS
        else:
            count = SLICE_ROWS
        is_shown = view.lines is view.coming
        known = len(view.coming) if is_shown else 0
        rows = list(islice(view.work, count))
        view.coming += rows
        is_complete = len(rows) < count
        # If much was visible before, it stays visible until all rows exist.
        if is_complete or is_shown or len(view.lines) <= AT_ONCE_ROWS:
            if not is_complete and not view.reserved:
                view.reserved = probable_height(block, self.room)
            self._show(view, view.coming, known)
        if is_complete:
            view.stop()
            view.version = block.version

    def _show(self, view: View, lines: list[Line], first: int) -> None:
        """Set the rows of a view, of which those from `first` on are new."""
        del view.strips[first:]
        view.lines = lines
        view.strips.extend([None] * (len(lines) - len(view.strips)))
        view.cursor = False

    def _lay_answer(self, view: View, block: AgentBlock | ThoughtBlock) -> int:
        answer = view.answer
        if answer is None:
            view.stop()
            answer = view.answer = (
                MarkdownStream(self.room.width, self.room.glyphs, late=not block.pinned)
                if isinstance(block, AgentBlock)
                else ThoughtStream(block, self.room)
            )
            view.lines = []
            view.strips = []
            view.cursor = False
            view.reserved = 0 if block.open else probable_height(block, self.room)
        first = len(view.lines)
        if view.cursor and first:
            first -= 1
        view.cursor = False
        # Content that was on the screen before a change of width comes back at once, and not bit by bit.
        limit, slice_s = (SLICE, SLICE_S) if view.taken else (AT_ONCE, AT_ONCE_S)
        limit, until = limit + answer.spent, thread_time() + slice_s
        while fresh := _in_one_go(block.stream.part(view.taken, PART)):
            view.taken += len(fresh)
            first = min(first, answer.feed(fresh, block.stream.size - view.taken))
            if answer.spent >= limit or thread_time() >= until:
                break
        is_complete = view.taken >= block.stream.size
        if is_complete and not block.open and isinstance(answer, MarkdownStream):
            first = min(first, answer.finish(SLICE))
            is_complete = not answer.is_behind
        view.lines[first:] = answer.lines[first:]
        late = answer if isinstance(answer, MarkdownStream) and answer.n_late else None
        if is_complete:
            view.version = block.version
        if block.open and isinstance(block, AgentBlock):
            self._set_cursor(view)
        elif is_complete and not block.open:
            view.stop()
            view.lines = view.lines or [Line((Span("    "),))]
            if block.pinned:
                view.lines, first = with_pin(view.lines, block, self.room), 0
        view.late = late
        del view.strips[first:]
        view.strips.extend([None] * (len(view.lines) - len(view.strips)))
        return first

    def _set_cursor(self, view: View) -> None:
        """Append the cursor to the last row of a growing answer."""
        if not view.lines:
            view.lines.append(Line((Span("    "),)))
        last = view.lines[-1]
        if last.spans and last.spans[-1].style.endswith("@raised"):
            return
        view.lines[-1] = last._replace(spans=(*last.spans, Span(self.room.glyphs.edge, "accent")))
        view.cursor = True

    def line(self, row: int) -> Place:
        """Return the row at an index of the flow."""
        return self.lines(row, row + 1)[0]

    def lines(self, start: int, end: int) -> list[Place]:
        """Return the rows from `start` to `end` (exclusive).

        A view that was never laid out is laid out; one that has changed since, or is `behind`, keeps its rows until `lay_out`.
        """
        found: list[Place] = [_NOWHERE] * (min(0, end) - start)
        while (row := start + len(found)) < min(end, self.height):
            index, offset = self.find(row)
            view = self.views[index]
            if not view.laid:
                self.lay_out(index)
            late = view.late if view not in self._unfinished else None
            for at in range(offset - view.gap, max(offset - view.gap + 1, view.height)):
                row = start + len(found)
                if row >= end or (
                    late is not None and late.is_late(at) and self.show(row, row + 1)
                ):
                    break  # rows that were empty may take more rows now
                if 0 <= at < len(view.lines):
                    line = view.lines[at]
                    if line.late is not None:
                        line = view.lines[at] = line.shown
                    found.append((view, at, line))
                else:
                    found.append((view, -1, BLANK))
        return found + [_NOWHERE] * (end - start - len(found))

    def keep_strip(self, view: View, index: int, strip: Strip) -> None:
        """Keep the strip of a row of a view until the row changes or is far from the visible ones."""
        view.strips[index] = strip
        self._painted.add(view)
        self._n_painted += 1

    def _drop_strips(self, first_row: int, last_row: int) -> None:
        low, _ = self.find(max(0, first_row - KEPT_STRIPS // 4))
        high, _ = self.find(last_row + KEPT_STRIPS // 4)
        near = {*self.views[low : high + 1]}
        for view in self._painted - near:
            if view.strips is not _NOT_LAID:
                view.strips = [None] * len(view.strips)
        self._painted &= near
        self._n_painted = 0

    def evict(self, first_row: int, last_row: int) -> None:
        """Drop strips far from the visible rows where more than `KEPT_STRIPS` were made, and rows where more than `KEPT_ROWS` are
        laid out.
        """
        if self._n_painted > KEPT_STRIPS:
            self._drop_strips(first_row, last_row)
        if self._laid_rows <= KEPT_ROWS * 2:
            return
        low, _ = self.find(max(0, first_row - KEPT_ROWS // 2))
        high, _ = self.find(last_row + KEPT_ROWS // 2)
        held = {mark.key for mark in self.positions}
        for index, view in enumerate(self.views):
            if view.block.key in held:
                continue
            is_growing = view.answer is not None and not view.reserved
            if view.laid and not low <= index <= high and not is_growing:
                self._unfinished.pop(view, None)
                self._laid_rows -= len(view.lines)
                view.forget()
                view.version = view.block.version


def _move(mark: TextPosition, old: Sequence[Line], new: Sequence[Line], first: int) -> None:
    """Move a position with its text, after rows from `first` on have changed."""
    if mark.row < first:
        return
    if old:
        mark.row, mark.column = moved(old, new, mark.row, mark.column, ends=mark.ends)
    elif mark.row >= len(new):
        mark.row, mark.column = max(0, len(new) - 1), 0


class Viewport:
    """The rows of a flow that a pane shows.

    The owner sets `height` and `top` when the pane was resized or scrolled, and reads them after each call.

    Attributes:
        flow: all rows.
        height: rows of the pane; 0 while it has no place on the screen.
        top: the first visible row.
        follows: whether the end is kept visible.
    """

    def __init__(self, flow: Flow) -> None:
        self.flow = flow
        self.height = 0
        self.top = 0
        self.follows = True
        self._known_height = 0
        """The height of the flow when its end was left: rows below that count as new."""
        self._read: TextPosition | None = None
        """The text position that is kept in place while the end is not followed."""
        self._read_at = 0
        """The row of the pane at which that position is kept; negative above the pane."""

    @property
    def last_top(self) -> int:
        """The first visible row while the end is visible."""
        return max(0, self.flow.height - self.height)

    @property
    def n_new(self) -> int:
        """The number of rows that were added at the end since it was left."""
        return 0 if self.follows else max(0, self.flow.height - self._known_height)

    # --- changes of the content

    def update(self, blocks: Sequence[Block], first: int) -> None:
        """Update the blocks from `first` on, as `Flow.update`; call `settle` next."""
        with self._exchanging():
            self.flow.update(blocks, first)

    def take(self, arranged: Flow) -> Generator[None]:
        """Show what `Flow.arranged` made, as `update` does; returns the generator of `Flow.take`, to be run in small steps."""
        with self._exchanging():
            return self.flow.take(arranged)

    @contextmanager
    def _exchanging(self) -> Generator[None]:
        """Keep the visible rows in place while blocks are exchanged."""
        flow = self.flow
        if self.follows:
            yield
            return
        before, visible = flow.height, self._visible_blocks()
        yield
        self._read_what_is_left(visible)
        if flow.height < before:
            # After rows were removed, new rows count as new even if the conversation was longer before.
            self._known_height = min(self._known_height, flow.height)

    def settle(self, *, seen: bool = True, whole: bool = True) -> None:
        """Lay out the visible rows, and set `top` so that the kept position stays in its row, or the end visible.

        Args:
            seen: whether the rows are painted next; else empty rows are not laid out while the flow is `behind`.
            whole: whether all visible rows that are empty are laid out; else a slice of them, and the flow is `behind` where
                more are.
        """
        flow = self.flow
        if not self.height:
            return
        done: set[View] = set()
        left, until = (inf, inf) if whole else (SLICE, 0.0)
        while True:
            top = self._settled_top()
            if not flow.views:
                break
            low, _ = flow.find(top)
            high, _ = flow.find(max(top, top + self.height - 1))
            fresh = [at for at in range(high, low - 1, -1) if flow.views[at] not in done]
            if not fresh:
                seen = seen or not flow.behind
                if not seen:
                    break
                until = until or thread_time() + SLICE_S
                # Even without time left, empty rows must be recognised.
                part = (left if whole else min(left, PART)) if thread_time() < until else 0
                spent = flow.show(top, top + self.height, part)
                if not spent:
                    break
                left -= spent
            for index in fresh:
                # Each view is laid out once: a growing answer is laid out a slice at a time.
                done.add(flow.views[index])
                flow.lay_out(index)
        self.top = top
        flow.evict(top, top + self.height)

    def resize(self, room: LayoutRoom) -> None:
        """Set another size: all rows are laid out again where the width changed, with the same text at the top.

        Call `measure` then, as long as the flow is not measured.
        """
        before = self.flow.height
        if room != self.flow.room:
            self.flow.resize(room)
        self.settle()
        # Rows that result only from the new width are not new.
        self._known_height += self.flow.height - before

    def measure(self) -> None:
        """Measure a slice of the flow for another width; after the last one `top` is set anew, with the same text in place."""
        before = self.flow.height
        if self.flow.measure():
            self.settle()
            self._known_height += self.flow.height - before

    def toggled(self, blocks: Sequence[Block], index: int) -> None:
        """Apply that a block was folded or unfolded: its title row stays in place, or is made visible by `settle`."""
        flow = self.flow
        view = flow.views[index]
        before = flow.height
        seen_at = flow.start(index) + view.gap + view.block.title_row - self.top
        flow.update(blocks, index)
        flow.lay_out(index)
        # Rows that were only folded before are not new.
        self._known_height += flow.height - before
        # The user wants to read the unfolded text, not the end of the conversation.
        if not self.follows or flow.height - self.top > self.height:
            self.hold()
            place = TextPosition(view.block.key, view.block.title_row, 0, hint=index)
            self._keep(place, max(0, seen_at))

    # --- scrolling

    def scrolled(self, old: int, *, at_end: bool) -> None:
        """Apply that the user scrolled from the row `old`: the end is followed only where it is visible now."""
        flow, new = self.flow, self.top
        if self.follows and not at_end:
            self._known_height = flow.height
        self.follows = at_end
        before = flow.height
        # Scrolling up lays out blocks above the former top, which moves down by the scrolled distance.
        start = old if 0 < new < old else new
        self._keep(None if at_end else flow.position_at(start), start - new)
        self.settle()
        self._keep_top()
        # Rows that were only estimated before are not new.
        self._known_height += flow.height - before

    def show_row(self, row: int, at: int = 0) -> None:
        """Scroll so that a row is `at` rows below the top of the pane, as far as the content allows."""
        flow = self.flow
        self.hold()
        before = flow.height
        self._keep(flow.position_at(max(0, row)), at)
        self.settle()
        self._known_height += flow.height - before
        self.stay()

    def show_end(self) -> None:
        """Scroll to the end and follow it."""
        self.follows = True
        self._keep(None)
        self.settle()

    def hold(self) -> None:
        """Stop following the end."""
        if self.follows:
            self.follows = False
            self._known_height = self.flow.height
            self._keep_top()

    def leave(self) -> None:
        """Remove the kept position from the flow, which is no longer shown here."""
        self._keep(None)

    def stay(self) -> None:
        """Keep the text at the top in place from now on; follow the end where it is visible."""
        self.follows = self.top >= self.last_top
        self._keep_top()

    # --- the kept position

    def _settled_top(self) -> int:
        """Return the first visible row, by the end or the kept position."""
        last = self.last_top
        if self.follows:
            return last
        row = self.flow.row_of(self._read) if self._read is not None else None
        top = self.top if row is None else row - self._read_at
        return min(max(0, top), last)

    def _keep(self, mark: TextPosition | None, at: int = 0) -> None:
        """Set the position that is kept, `at` rows below the top of the pane; None for none."""
        flow = self.flow
        flow.positions = [one for one in flow.positions if one is not self._read]
        self._read, self._read_at = mark, at
        if mark is not None:
            flow.positions.append(mark)

    def _keep_top(self) -> None:
        """Keep the text at the top in place; none while the end is followed."""
        self._keep(None if self.follows else self.flow.position_at(self.top))

    def _visible_blocks(self) -> list[tuple[int, int]]:
        """Return the keys of the visible blocks, each with the row of the pane in which it begins."""
        flow = self.flow
        if not flow.views:
            return []
        low, _ = flow.find(self.top)
        high, _ = flow.find(self.top + self.height - 1)
        return [
            (flow.views[index].block.key, flow.start(index) + flow.views[index].gap - self.top)
            for index in range(low, high + 1)
        ]

    def _read_what_is_left(self, visible: Sequence[tuple[int, int]]) -> None:
        """If the block of the kept position was removed, keep the next one that was visible."""
        flow = self.flow
        if self._read is None or flow.index_of(self._read) is not None:
            return
        for key, at in visible:
            mark = TextPosition(key, 0, 0)
            if flow.index_of(mark) is not None:
                self._keep(mark, at)
                return
        self._keep(None)

    # --- targets of keys

    def turn_row(self, step: int) -> int:
        """Return the row of the user's message before (-1) or after (1) the first visible row."""
        return self.flow.turn_row(self.top, step)

    def last_visible(self, unless: int | None) -> int | None:
        """Return the key of the last visible block, or `unless` where that is visible; None if there are no blocks."""
        visible = [self.flow.views[index].block.key for index in self.visible]
        return unless if unless in visible else visible[-1] if visible else None

    @property
    def visible(self) -> range:
        """The indices of the blocks of which a row is visible."""
        flow = self.flow
        if not flow.views:
            return range(0)
        low, _ = flow.find(self.top)
        high, _ = flow.find(max(0, min(self.top + self.height, flow.height) - 1))
        return range(low, high + 1)


def _in_one_go(part: str) -> str:
    """Return the beginning of a part that may be laid out without checking the time."""
    while len(part) > 1 and marks_in(part) + LINE_MARKS * part.count("\n") > PART_MARKS:
        part = part[: len(part) // 2]
    return part


DMAIL_S = 0.9
SHORT_S = 0.3


@dataclass(frozen=True, slots=True)
class RevertAnimation:
    """The rows that a revert drops, which fade from the bottom up and then close; drawn over those of the final state.

    Attributes:
        start: the first row.
        rows: the rows as they were.
        kept: the number of rows at the end (the call that sends a D-Mail) that do not fade.
        is_dmail: whether a D-Mail is the cause, for which the animation is longer.
        after: the rows that replace them in the final state, where these are known.
        staying: the indices of rows that are not dropped: messages of the user, and pinned ones.
    """

    start: int
    rows: tuple[Line, ...]
    kept: int
    is_dmail: bool
    after: tuple[Line, ...] = ()
    staying: frozenset[int] = frozenset()

    @property
    def duration_s(self) -> float:
        """The duration in seconds."""
        return DMAIL_S if self.is_dmail else SHORT_S

    def row(self, row: int, progress: float, glyphs: Glyphs) -> Line:
        """Return the line in a row at or below `start` at a progress from 0 to 1."""
        index = row - self.start
        count = len(self.rows)
        quiet, dimming = (1 / 6, 5 / 9) if self.is_dmail else (0.0, 0.7)
        going = count - self.kept
        closing = (progress - quiet - dimming) / (1 - quiet - dimming)
        if closing > 0:
            return self._closing(index, closing, glyphs)
        if not 0 <= index < count:
            return BLANK
        if index in self.staying:
            return self.rows[index]
        if index >= going:
            return self._marked(self.rows[index], glyphs) if progress > quiet else self.rows[index]
        dimmed = going * min(1.0, max(0.0, progress - quiet) / dimming)
        return (
            self._faded(self.rows[index], glyphs) if index >= going - dimmed else self.rows[index]
        )

    def _closing(self, index: int, share: float, glyphs: Glyphs) -> Line:
        """Return the line at an index while the rows close: at a `share` of 0 all are there, at 1 only those of the final state."""
        if 0 <= index < len(self.after):
            return self.after[index]
        left = max(0, len(self.rows) - self.kept - len(self.after)) * (1 - share)
        if 0 <= index < len(self.rows) and index < len(self.after) + left:
            return self._faded(self.rows[index], glyphs)
        return BLANK

    def _edge(self, glyphs: Glyphs) -> Span:
        return Span(glyphs.edge, "dmail" if self.is_dmail else "lost")

    def _marked(self, line: Line, glyphs: Glyphs) -> Line:
        return line._replace(spans=(self._edge(glyphs), *_without_first(line.spans)), hit="")

    def _faded(self, line: Line, glyphs: Glyphs) -> Line:
        spans = tuple(faded_span(span) for span in _without_first(line.spans))
        return line._replace(spans=(self._edge(glyphs), *spans), hit="")


def faded_span(span: Span) -> Span:
    """Return the span in faded colours, without its background; one of an image is returned unchanged."""
    ink, flags, _ = style_parts(span.style)
    if ink.startswith(COLOUR):
        return span
    return Span(span.text, f"{ink}/{flags}{FADED}")


def _without_first(spans: Sequence[Span]) -> tuple[Span, ...]:
    if not spans:
        return ()
    first, *rest = spans
    shorter = Span(first.text[1:], first.style)
    return (shorter, *rest) if shorter.text else tuple(rest)


def revert_animation_of(
    flow: Flow, first: int, top: int, height: int, remains: Sequence[Block]
) -> RevertAnimation | None:
    """Return the animation of a revert that drops the blocks from `first` on; None if none of their rows is visible.

    Args:
        flow: the rows before the revert.
        first: the index of the first block that is dropped.
        top, height: the visible rows.
        remains: the blocks from that index on after the revert; with a D-Mail among them the animation is that of a D-Mail.
    """
    start = max(top, flow.start(min(first, len(flow.views))))
    rows: list[Line] = []
    kept = 0
    is_dmail = any(isinstance(block, DMailBlock) for block in remains)
    staying: set[int] = set()
    for view, _, line in flow.lines(start, min(flow.height, top + height)):
        rows.append(line)
        block = view.block if view is not None else None
        kept += isinstance(block, ToolBlock) and block.card.is_letter
        if is_dmail and block is not None and (block.pinned or isinstance(block, UserBlock)):
            staying.add(len(rows) - 1)
    if not rows:
        return None
    after: list[Line] = []
    if start == flow.start(min(first, len(flow.views))):
        for block in remains:
            if first or after:
                after.append(BLANK)
            after.extend(rows_of(block, flow.room))
    return RevertAnimation(
        start,
        tuple(rows),
        kept if is_dmail else 0,
        is_dmail,
        tuple(after[:height]),
        frozenset(staying),
    )

"""Blocks below each other: where each stands, its rows while they are needed, and rows by number.

Blocks far from the screen are not laid out: their heights are estimates, put right when they come near. No colours
and no widget here.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from textual.strip import Strip

from kimi_tui.tui.chat.answer import AnswerLayout
from kimi_tui.tui.chat.blocks import AgentBlock, Block
from kimi_tui.tui.chat.layout import follows_closely, probable_height, rows_of
from kimi_tui.tui.chat.lines import BLANK, Line, Span
from kimi_tui.tui.chat.rows import Room

SLICE = 3_000
"""Characters of a growing answer that are laid out in one go, about 3 ms: a key must not wait for more."""
KEPT_ROWS = 5_000
"""About how many rows are kept laid out; what is farthest from the screen goes first."""


class View:
    """One block with what is known of its rows. `gap` is the blank row above it, part of its height."""

    __slots__ = (
        "answer",
        "block",
        "cursor",
        "gap",
        "height",
        "laid",
        "lines",
        "strips",
        "taken",
        "version",
    )

    def __init__(self, block: Block) -> None:
        self.block = block
        self.version = -1
        self.gap = 0
        self.height = 1
        self.laid = False
        self.lines: list[Line] = []
        self.strips: list[Strip | None] = []
        self.answer: AnswerLayout | None = None
        self.taken = 0
        self.cursor = False

    def forget(self) -> None:
        """Drop the rows, keep the height."""
        self.laid = False
        self.version = -1
        self.lines = []
        self.strips = []
        self.answer = None
        self.taken = 0

    @property
    def rows(self) -> int:
        """Its height with the gap."""
        return self.gap + self.height


class Flow:
    """All views in order. `top_rows` are laid out exactly around the rows that `ensure` was asked for."""

    def __init__(self, room: Room) -> None:
        self.room = room
        self.views: list[View] = []
        self._starts: list[int] = [0]
        self._known = 0
        """Starts up to this index are right."""
        self._laid_rows = 0
        self.behind = False
        """Whether an answer grew faster than it was laid out: `ensure` it again soon."""

    # Positions

    @property
    def height(self) -> int:
        """All rows, as far as known."""
        self._settle(len(self.views))
        return self._starts[len(self.views)]

    def start(self, index: int) -> int:
        """The first row of a view, its gap included."""
        self._settle(index)
        return self._starts[index]

    def find(self, row: int) -> tuple[int, int]:
        """Which view a row belongs to, and which of its rows it is (the gap counts)."""
        self._settle(len(self.views))
        index = bisect_right(self._starts, row, 0, len(self.views)) - 1
        return max(0, index), row - self._starts[max(0, index)]

    def _settle(self, upto: int) -> None:
        starts, views = self._starts, self.views
        if len(starts) != len(views) + 1:
            del starts[len(views) + 1 :]
            starts.extend([0] * (len(views) + 1 - len(starts)))
            self._known = min(self._known, len(views))
        for index in range(self._known, upto):
            view = views[index]
            starts[index + 1] = starts[index] + view.gap + view.height
        self._known = max(self._known, upto)

    def _moved(self, index: int) -> None:
        self._known = min(self._known, index)

    # Changes

    def update(self, blocks: Sequence[Block], first: int) -> None:
        """The blocks from `first` on may have changed, come or gone."""
        first = max(0, min(first, len(self.views)))
        old = self.views[first:]
        known = {view.block.key: view for view in old} if old else {}
        fresh: list[View] = []
        for block in blocks[first:]:
            view = known.pop(block.key, None)
            if view is None or view.block is not block:
                view = View(block)
            fresh.append(view)
        for view in known.values():
            self._laid_rows -= len(view.lines)
        self.views[first:] = fresh
        self._moved(first)
        for index in range(first, len(self.views)):
            view = self.views[index]
            if view.version != view.block.version and not view.laid:
                view.height = probable_height(view.block, self.room)
            self._regap(index)

    def resize(self, room: Room) -> None:
        """Another width: every row is made anew when it is needed."""
        self.room = room
        for view in self.views:
            view.forget()
            view.height = probable_height(view.block, room)
        self._laid_rows = 0
        self._known = 0
        for index in range(len(self.views)):
            self._regap(index)

    def repaint(self) -> None:
        """Other colours: rows stay, their strips go."""
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
            self._moved(index)

    # Rows

    def ensure(self, index: int) -> int:
        """Lay a view out exactly; returns by how many rows all below it moves."""
        view = self.views[index]
        if view.laid and view.version == view.block.version:
            return 0
        before = view.rows
        following = self.views[index + 1] if index + 1 < len(self.views) else None
        gap_before = following.gap if following is not None else 0
        count = len(view.lines)
        self._lay(view)
        self._laid_rows += len(view.lines) - count
        height = len(view.lines)
        if height != view.height:
            view.height = height
            self._moved(index)
        self._regap(index)
        if following is not None:
            self._regap(index + 1)
            return view.rows - before + following.gap - gap_before
        return view.rows - before

    def _lay(self, view: View) -> None:
        block = view.block
        if isinstance(block, AgentBlock) and (block.open or view.answer is not None):
            self._lay_answer(view, block)
        else:
            view.lines = rows_of(block, self.room)
            view.strips = [None] * len(view.lines)
            view.version = block.version
        view.laid = True

    def _lay_answer(self, view: View, block: AgentBlock) -> None:
        answer = view.answer
        if answer is None:
            answer = view.answer = AnswerLayout(self.room.width, self.room.glyphs)
            view.taken = 0
            view.lines = []
            view.strips = []
        first = len(view.lines)
        if view.cursor and first:
            first -= 1
        view.cursor = False
        # What was on the screen before (another width) comes back whole, not bit by bit.
        fresh = block.stream.part(view.taken, SLICE if view.taken else block.stream.size)
        if fresh:
            first = min(first, answer.feed(fresh))
            view.taken += len(fresh)
        self.behind = view.taken < block.stream.size
        if not self.behind:
            view.version = block.version
            if not block.open:
                first = min(first, answer.finish())
                view.answer = None
        view.lines[first:] = answer.lines[first:]
        if view.answer is not None:
            self._set_cursor(view)
        del view.strips[first:]
        view.strips.extend([None] * (len(view.lines) - len(view.strips)))

    def _set_cursor(self, view: View) -> None:
        """The text cursor stands behind the newest character."""
        if not view.lines:
            view.lines.append(Line((Span("    "),)))
        last = view.lines[-1]
        if last.spans and last.spans[-1].style.endswith("@raised"):
            return
        view.lines[-1] = last._replace(spans=(*last.spans, Span(self.room.glyphs.edge, "accent")))
        view.cursor = True

    def line(self, row: int) -> tuple[View | None, int, Line]:
        """The view, the index among its lines (-1: its gap) and the line in a row.

        A view that was never laid out is now; one that has changed since is drawn as it was until `ensure`.
        """
        if not 0 <= row < self.height:
            return None, -1, BLANK
        index, offset = self.find(row)
        view = self.views[index]
        if not view.laid:
            self.ensure(index)
        at = offset - view.gap
        if 0 <= at < len(view.lines):
            return view, at, view.lines[at]
        return view, -1, BLANK

    def evict(self, first_row: int, last_row: int) -> None:
        """Forget rows far from the screen where too many are kept."""
        if self._laid_rows <= KEPT_ROWS * 2:
            return
        low, _ = self.find(max(0, first_row - KEPT_ROWS // 2))
        high, _ = self.find(last_row + KEPT_ROWS // 2)
        for index, view in enumerate(self.views):
            if view.laid and not low <= index <= high and view.answer is None:
                self._laid_rows -= len(view.lines)
                view.forget()
                view.version = view.block.version

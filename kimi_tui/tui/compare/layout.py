"""The rows of a comparison of two world lines: their blocks in two columns, and the files that differ.

Blocks look as in the chat. Blocks that both sides have are grey, and stand at the same height in both columns. Only the
heights of blocks are kept, measured from the top down and in time slices; rows are made when they are visible. This module
has no widget.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Generator, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from kimi_tui.foreign_text import one_line, shown_name
from kimi_tui.projection.blocks import AgentBlock, Block, ToolBlock, images_of
from kimi_tui.tui import formatting
from kimi_tui.tui.diff import change_counts, diff_rows
from kimi_tui.tui.faults import log_fault
from kimi_tui.tui.glyphs import Glyphs
from kimi_tui.tui.rows import (
    BLANK,
    MARGIN,
    LayoutRoom,
    Line,
    Span,
    fold_mark,
    past_line,
    spans_width,
)
from kimi_tui.tui.transcript.layout import (
    follows_closely,
    iter_rows,
    plain_block,
    probable_height,
)
from kimi_tui.tui.transcript.markdown_stream import MarkdownStream

if TYPE_CHECKING:
    from kimi_tui.projection.comparison import Comparison, Side
    from kimi_tui.workspace.diff import DivergedFile, Divergence, SideChange

ANSWER_ROWS = 4
"""The largest number of rows of a folded answer."""
WHOLE_ROWS = 1_000
"""The largest number of rows of an unfolded block."""
PIECE_CHARS = 1_500
"""Characters of an answer that are laid out in one step; most answers are shorter."""
ROOMY = 90
"""Width in cells from which on the columns of the files are aligned with those of the blocks, and are not abbreviated."""
COLUMN_GAP = 3
KEPT = 200
"""The largest number of blocks whose rows are cached."""
Key = tuple["Side", int]
"""A block: its side, and its index there."""


class Cell(NamedTuple):
    """One side of a row of the comparison. `entry` is the index of its block, -1 for none."""

    line: Line = BLANK
    entry: int = -1


EMPTY = Cell()
AT_ITS_END = Cell(Line((Span(f"{' ' * MARGIN}This world line ends here.", "quiet"),)))


class ComparisonRows:
    """The blocks of two world lines as rows in two columns.

    Args:
        comparison: the blocks, each with whether both lines have it.
        room: the width of a column, and the options of the layout.
        known: heights of blocks that were measured before, for the same width.

    Attributes:
        height: the number of rows measured so far.
        starts: the first row of each measured block.
        outdated: the blocks whose rows have changed since; these rows stay on the screen until others are measured.
    """

    def __init__(
        self, comparison: Comparison, room: LayoutRoom, known: Mapping[Key, int] | None = None
    ) -> None:
        self._comparison = comparison
        self._room = room
        self._rows: dict[Key, list[Line]] = {}
        self.heights: dict[Key, int] = dict(known or {})
        self.outdated: set[Key] = set()
        self.height = 0
        self.starts: dict[Side, list[int]] = {side: [] for side in comparison.names}

    @property
    def width(self) -> int:
        """The width of a column in cells."""
        return self._room.width

    def measure(self) -> Generator[None]:
        """Measure all blocks from the top; yields after each."""
        for stretch in self._comparison.stretches:
            ends = dict.fromkeys(stretch, self.height)
            next_of = {side: first for side, (first, _) in stretch.items()}
            last_of = {side: last for side, (_, last) in stretch.items()}
            while (side := _behind(ends, next_of, last_of)) is not None:
                ends[side] = self._put(side, next_of[side], ends[side])
                next_of[side] += 1
                self.height = max(self.height, ends[side])
                yield

    def _put(self, side: Side, index: int, end: int) -> int:
        entries = self._comparison.sides[side]
        key: Key = (side, index)
        before = entries[index - 1].block if index else None
        height = self.heights.get((side, index - 1), 0)
        is_close = before is not None and follows_closely(before, height, entries[index].block)
        start = end + 1 if end > 0 and not is_close else end
        self.starts[side].append(start)
        if key not in self.heights:
            self.heights[key] = len(self._make(key))
        return start + self.heights[key]

    def _make(self, key: Key) -> list[Line]:
        side, index = key
        entry = self._comparison.sides[side][index]
        try:
            rows = _rows_of(entry.block, self._room)
        except Exception:
            log_fault("laying out a compared message")
            rows = plain_block(entry.block, self._room)[:WHOLE_ROWS]
        rows = [past_line(row.shown) for row in rows] if entry.same else rows
        return rows or [BLANK]

    def cell(self, side: Side, row: int) -> Cell:
        """Return one side of a row."""
        if row == 0 and not self._comparison.sides[side]:
            return AT_ITS_END
        index = bisect_right(self.starts[side], row) - 1
        if index < 0:
            return EMPTY
        key: Key = (side, index)
        offset = row - self.starts[side][index]
        if offset >= self.heights[key]:
            return EMPTY
        rows = self._rows.get(key)
        if rows is None:
            while len(self._rows) >= KEPT:
                del self._rows[next(iter(self._rows))]
            rows = self._rows[key] = self._make(key)
        if offset >= len(rows):
            return EMPTY  # folded since it was measured
        return Cell(rows[offset].shown, index)

    def valid_heights(self) -> dict[Key, int]:
        """Return the heights that are valid for other rows of the same width: those of all blocks that are not outdated."""
        return {key: height for key, height in self.heights.items() if key not in self.outdated}

    def last_row(self, side: Side, index: int) -> int:
        """Return the last row of a block."""
        return self.starts[side][index] + self.heights[(side, index)] - 1


def _behind(
    ends: Mapping[Side, int], next_of: Mapping[Side, int], last_of: Mapping[Side, int]
) -> Side | None:
    """Return the side to measure next: the shortest one so far, so that all grow evenly; None if all are complete."""
    still_open = [side for side in ends if next_of[side] < last_of[side]]
    return min(still_open, key=lambda side: ends[side], default=None)


def _rows_of(block: Block, room: LayoutRoom) -> list[Line]:
    """Return the rows of a block as in the chat: of a folded answer the first ones, of a folded call without images only the title."""
    if isinstance(block, AgentBlock):
        return _answer(block, room)
    is_title = isinstance(block, ToolBlock) and not block.unfolded and not images_of(block)
    return list(islice(iter_rows(block, room), 1 if is_title else WHOLE_ROWS))


def _answer(block: AgentBlock, room: LayoutRoom) -> list[Line]:
    text = block.stream.text.strip()
    most = WHOLE_ROWS if block.unfolded else ANSWER_ROWS
    layout = MarkdownStream(room.width, room.glyphs, numbered=False)
    fed = 0
    while fed < len(text) and len(layout.lines) <= most + 1:
        layout.feed(text[fed : fed + PIECE_CHARS])
        fed += PIECE_CHARS
    if fed >= len(text):
        layout.finish()
    rows = layout.lines
    # The rows of a long answer are estimated from its beginning, which alone is laid out.
    count = len(rows) if fed >= len(text) else max(len(rows), probable_height(block, room))
    if count <= most + 1:
        return rows
    rows = rows[:most]
    while rows and not rows[-1].text.strip():
        rows = rows[:-1]
    return [*rows, Line((Span(" " * MARGIN), Span(fold_mark(count - len(rows)), "quiet")))]


class ComparedFiles:
    """The files that either world line changed since the fork, as rows of a table with a column for each side.

    Args:
        files: the changed files.
        world_line: the number of the line that was left.
        fork: the id of the newest checkpoint that both lines have, -1 if they share none.
        width: cells of a row.
        glyphs: the set of signs in use.
    """

    def __init__(
        self, files: Divergence, world_line: int, fork: int, width: int, glyphs: Glyphs
    ) -> None:
        self._files = files
        self._line = world_line
        self._fork = fork
        self._width = width
        self._glyphs = glyphs
        self._roomy = width >= ROOMY
        self._end = width - 2
        self._middle = (width - 1) // 2 - 2
        if not self._roomy:
            said = [self._now(one) for one in files.files]
            widest = max([len("current"), *(spans_width(words) for words in said)])
            self._middle = self._end - widest - COLUMN_GAP

    def head(self) -> list[Span]:
        """Return the heading over the columns."""
        title: list[Span] = [Span("  Files", "quiet")]
        if self._files.reason or not self._files.files:
            return title
        return self._row(
            title, [Span(f"world line {self._line}", "quiet")], [Span("current", "quiet")]
        )

    def rows(self, unfolded: frozenset[int]) -> list[tuple[list[Span], int]]:
        """Return the rows, each with the index of its file (-1: a row of a diff, or a sentence).

        Args:
            unfolded: the indexes of the files whose diff is shown.
        """
        files = self._files
        if files.reason:
            return [(self._sentence(files.reason), -1)]
        rows: list[tuple[list[Span], int]] = []
        for index, one in enumerate(files.files):
            rows.append((self._file(one), index))
            if index in unfolded:
                rows += [(spans, -1) for spans in self._diffs(one)]
        if not rows:
            rows.append(
                (self._sentence("Neither world line has changed a file since they diverged."), -1)
            )
        return [*rows, *((self._sentence(words), -1) for words in files.remarks)]

    def _file(self, one: DivergedFile) -> list[Span]:
        other, now = self._side(one.left), self._now(one)
        room = max(8, self._middle - MARGIN - COLUMN_GAP - spans_width(other))
        name = formatting.path(shown_name(one.path), room, self._glyphs.cut)
        return self._row([Span(" " * MARGIN, "quiet"), Span(name, "ink")], other, now)

    def _row(self, left: list[Span], other: list[Span], now: list[Span]) -> list[Span]:
        gap = self._middle - spans_width(left) - spans_width(other)
        spans = [*left, Span(" " * max(1, gap), "quiet"), *other]
        return [
            *spans,
            Span(" " * max(1, self._end - spans_width(spans) - spans_width(now)), "quiet"),
            *now,
        ]

    def _now(self, one: DivergedFile) -> list[Span]:
        if not one.alike:
            return self._side(one.now)
        return [
            Span(f"same as on world line {self._line}" if self._roomy else "same change", "quiet")
        ]

    def _side(self, side: SideChange) -> list[Span]:
        """Return the change of a file on one side, in a few words."""
        if side.outcome == "same":
            since = f"same as at #{self._fork}" if self._fork >= 0 else "unchanged"
            return [Span(since if self._roomy else "same", "quiet")]
        fate = "" if side.outcome == "changed" else f"{side.outcome}  "
        outside = "outside kimi-tui" if self._roomy else "outside"
        if side.authors == "others":
            return [Span(f"{side.outcome} {outside}", "warn")]
        spans: list[Span] = (
            [Span(f"also changed {outside}  ", "warn")] if side.authors == "both" else []
        )
        if fate:
            spans.append(Span(fate, "quiet"))
        return [*spans, *self._counts(side)]

    def _counts(self, side: SideChange) -> list[Span]:
        if side.diff is None:
            return [Span("not text", "quiet")]
        spans = change_counts(side.diff.added, side.diff.removed, self._glyphs, blank="error")
        if spans:
            return spans
        return [Span("permissions" if side.outcome == "changed" else "empty", "quiet")]

    def _diffs(self, one: DivergedFile) -> Iterator[list[Span]]:
        since = f", since #{self._fork}" if self._fork >= 0 else ""
        sides = [(f"World line {self._line}", one.left), ("Current", one.now)]
        if one.alike:
            sides = [("Both", one.left)]
        for name, side in sides:
            if side.outcome != "same":
                yield [Span(" " * (MARGIN + 2), "quiet"), Span(f"{name}{since}", "quiet")]
                yield from self._diff(side)

    def _diff(self, side: SideChange) -> Iterator[list[Span]]:
        rows = () if side.diff is None else side.diff.rows
        yield from diff_rows(
            rows, self._width - 2, self._glyphs, indent=MARGIN + 2, digits=4, context="quiet"
        )
        if not rows:
            yield [Span(" " * (MARGIN + 2), "quiet"), Span("There is no diff to show.", "quiet")]

    def _sentence(self, words: str) -> list[Span]:
        text = formatting.cut(one_line(words), max(1, self._width - MARGIN - 2), self._glyphs.cut)
        return [Span(" " * MARGIN, "quiet"), Span(text, "quiet")]

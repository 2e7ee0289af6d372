"""The files that two courses of a conversation changed since they parted, as rows: a column a side. Knows no widget."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.cells import cell_len

from kimi_tui.foreign_text import clean, one_line
from kimi_tui.tui import numbers
from kimi_tui.tui.compare.drawing import MARGIN, Span
from kimi_tui.tui.glyphs import Glyphs

if TYPE_CHECKING:
    from kimi_tui.soul.travel_protocol import FileSide, PartedFiles, PartedPath

ROOMY = 90
"""From this width on the columns end where those of the messages do, and have whole words."""
COLUMN_GAP = 3


class FileTable:
    """All rows, for one width.

    Args:
        files: what changed.
        world_line: the line that was left.
        fork: the newest checkpoint that both have, -1 where they share none.
        width: cells there are.
        glyphs: the signs in use.
    """

    def __init__(
        self, files: PartedFiles, world_line: int, fork: int, width: int, glyphs: Glyphs
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
            widest = max([len("now"), *(_width(words) for words in said)])
            self._middle = self._end - widest - COLUMN_GAP

    def head(self) -> list[Span]:
        """What stands over the columns."""
        title: list[Span] = [("  Files", "quiet")]
        if self._files.reason or not self._files.files:
            return title
        return self._row(title, [(f"world line {self._line}", "quiet")], [("now", "quiet")])

    def rows(self, unfolded: frozenset[int]) -> list[tuple[list[Span], int]]:
        """The files with the index of each (-1: a row of a diff, or a sentence)."""
        files = self._files
        if files.reason:
            return [(self._sentence(files.reason), -1)]
        rows: list[tuple[list[Span], int]] = []
        for index, one in enumerate(files.files):
            rows.append((self._file(one), index))
            if index in unfolded:
                rows += [(spans, -1) for spans in self._diffs(one)]
        if not rows:
            rows.append((self._sentence("Neither changed a file since they parted."), -1))
        return [*rows, *((self._sentence(words), -1) for words in files.remarks)]

    def _file(self, one: PartedPath) -> list[Span]:
        other, now = self._side(one.other), self._now(one)
        room = max(8, self._middle - MARGIN - COLUMN_GAP - _width(other))
        name = numbers.path(one_line(one.path), room, self._glyphs.cut)
        return self._row([(" " * MARGIN, "quiet"), (name, "ink")], other, now)

    def _row(self, left: list[Span], other: list[Span], now: list[Span]) -> list[Span]:
        gap = self._middle - _width(left) - _width(other)
        spans = [*left, (" " * max(1, gap), "quiet"), *other]
        return [*spans, (" " * max(1, self._end - _width(spans) - _width(now)), "quiet"), *now]

    def _now(self, one: PartedPath) -> list[Span]:
        if not one.alike:
            return self._side(one.live)
        return [(f"as on world line {self._line}" if self._roomy else "as there", "quiet")]

    def _side(self, side: FileSide) -> list[Span]:
        """What one side made of a file, in a few words."""
        if side.became == "same":
            since = f"same as at #{self._fork}" if self._fork >= 0 else "as it was"
            return [(since if self._roomy else "same", "quiet")]
        fate = "" if side.became == "changed" else f"{side.became}  "
        if side.hands == "others":
            return [(f"{side.became} outside", "warn")]
        spans: list[Span] = [("also outside  ", "warn")] if side.hands == "both" else []
        if fate:
            spans.append((fate, "quiet"))
        return [*spans, *self._counts(side)]

    def _counts(self, side: FileSide) -> list[Span]:
        if not side.is_text:
            return [("not a text", "quiet")]
        spans: list[Span] = []
        if side.added:
            spans.append((f"+{numbers.grouped(side.added)}", "ok"))
        if side.removed:
            lead = " " if spans else ""
            spans.append((f"{lead}{self._glyphs.minus}{numbers.grouped(side.removed)}", "error"))
        if spans:
            return spans
        return [("no other text" if side.became == "changed" else "empty", "quiet")]

    def _diffs(self, one: PartedPath) -> Iterator[list[Span]]:
        since = f", since #{self._fork}" if self._fork >= 0 else ""
        sides = [(f"World line {self._line}", one.other), ("Now", one.live)]
        if one.alike:
            sides = [("On both", one.other)]
        for name, side in sides:
            if side.became != "same":
                yield [(" " * (MARGIN + 2), "quiet"), (f"{name}{since}", "quiet")]
                yield from self._diff(side)

    def _diff(self, side: FileSide) -> Iterator[list[Span]]:
        looks = {"+": ("+", "added"), "-": (self._glyphs.minus, "removed"), " ": (" ", "quiet")}
        room = max(1, self._width - 15)
        for line in side.rows:
            sign, style = looks[line.sign]
            text = numbers.cut(clean(line.text).replace("\t", "    "), room, self._glyphs.cut)
            lead = f"{' ' * (MARGIN + 2)}{line.number:>4} "
            yield [(lead, "quiet"), (f"{sign} {text}", style)]
        if not side.rows:
            yield [(" " * (MARGIN + 2), "quiet"), ("There is no diff to show.", "quiet")]

    def _sentence(self, words: str) -> list[Span]:
        text = numbers.cut(one_line(words), max(1, self._width - MARGIN - 2), self._glyphs.cut)
        return [(" " * MARGIN, "quiet"), (text, "quiet")]


def _width(spans: list[Span]) -> int:
    return sum(cell_len(text) for text, _ in spans)

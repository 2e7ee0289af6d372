"""Positions in the transcript that keep pointing at the same text while rows are added, removed and wrapped again.

A `TextPosition` is a character of a row of a block. When the rows of the block change, it moves to the new place of the same
text. This module has no widget.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kimi_tui.tui.rows import HANGING, Line, style_parts

_SIZES = (24, 16, 12, 8, 6, 5, 4)
"""Numbers of neighbouring characters by which a position is found again in changed text, tried from the first on."""
CONTEXT = _SIZES[0]
_DIFF_GROUNDS = frozenset({"add-bg", "del-bg", "page"})
_EDGES = " ▌["


@dataclass(eq=False, repr=False)  # few methods, as it is defined before the first paint
class TextPosition:
    """A position in the text of the transcript that survives changes of its rows.

    Attributes:
        key: the key of the block.
        row: the index of a row of the block; -1 for the blank row above it.
        column: the index of a character of the row.
        ends: whether the position stays with the character before it; else with the one at `column`.
        hint: the approximate index of the block in the transcript.
    """

    key: int
    row: int
    column: int
    ends: bool = False
    hint: int = 0


class Extent(NamedTuple):
    """The indices of the characters of a row that are text: from `start` to `end` (exclusive)."""

    start: int
    end: int


def gutter_of(line: Line) -> int:
    """Return the number of leading characters of a row that are not text: margin, edge, bars, the line numbers of a diff."""
    lead = line.spans[1:2] if line.margin > HANGING else ()
    if any(style_parts(span.style)[2] in _DIFF_GROUNDS for span in lead) or is_code(line):
        return min(line.margin, len(line.text))
    at = 0
    for text, style, _ in line.spans:
        if style_parts(style)[0] == "line":
            at += len(text)
            continue
        blanks = len(text) - len(text.lstrip(_EDGES))
        skipped = min(blanks, max(0, line.margin - at))
        at += skipped
        if skipped < len(text):
            break
    return at


def is_code(line: Line) -> bool:
    """Return whether a row of an answer is part of a code block, which begins with two blanks on the background of code."""
    used = 0
    for text, style, _ in line.spans:
        used += len(text)
        if used >= line.margin:
            return used == line.margin and text == "  " and style == "ink@raised"
    return False


def extent_of(line: Line) -> Extent:
    """Return the text of a row: without its gutter, the label or number at its right end, and trailing blanks."""
    text = line.text
    start = gutter_of(line)
    if line.chopped is not None:
        return Extent(start, max(start, len(text) - line.chopped))
    end = len(text) - line.label_size
    return Extent(start, max(start, len(text[:end].rstrip(" "))))


def ink(line: Line) -> str:
    """Return the characters of a row's text that are the same at every width: without blanks and horizontal rules."""
    text = line.text
    start, end = extent_of(line)
    if not any(style_parts(span.style)[0] == "line" for span in line.spans):
        return "".join(text[start:end].split())
    return "".join(text[at] for at in _ink_places(line))


def _ink_places(line: Line) -> list[int]:
    """Return the indices of the characters that `ink` returns."""
    start, end = extent_of(line)
    out: list[int] = []
    at = 0
    for span in line.spans:
        is_rule = style_parts(span.style)[0] == "line"
        for char in span.text:
            if start <= at < end and not is_rule and not char.isspace():
                out.append(at)
            at += 1
    return out


def moved(
    old: Sequence[Line], new: Sequence[Line], row: int, column: int, *, ends: bool
) -> tuple[int, int]:
    """Return the row and column at which the text of a position is after the rows of its block have changed.

    Args:
        old, new: the rows of the block before and after a change of its text or its width.
        row, column: the position in the old rows.
        ends: whether the position stays with the text before it; else with the text behind it.
    """
    if row < 0 or not old or not new:
        return min(row, 0), 0 if row >= 0 else column
    row = min(row, len(old) - 1)
    first = 0
    limit = min(len(old), len(new), row + 1)
    while first < limit and (old[first] is new[first] or old[first] == new[first]):
        first += 1
    if first > row:
        return row, column
    # A row without text keeps its distance to the next row with text.
    lead = 0
    if not ends:
        while row + lead < len(old) - 1 and not ink(old[row + lead]):
            lead += 1
        if lead:
            row, column = row + lead, 0
    before = [ink(line) for line in old[first:]]
    after = [ink(line) for line in new[first:]]
    count = sum(len(part) for part in before[: row - first])
    count += sum(1 for at in _ink_places(old[row]) if at < column)
    found = same_place("".join(before), "".join(after), count, ends=ends)
    at, place = _located(new, first, [len(part) for part in after], found, ends=ends)
    while lead and at and not ink(new[at - 1]):
        at, place, lead = at - 1, 0, lead - 1
    return at, place


def _located(
    lines: Sequence[Line], first: int, sizes: Sequence[int], count: int, *, ends: bool
) -> tuple[int, int]:
    """Return the row and column of the character with `count` characters of `ink` before it, counted from the row `first`."""
    for row, size in enumerate(sizes, first):
        if count < size or (ends and size and count == size):
            places = _ink_places(lines[row])
            if not ends:
                return row, places[count]
            return row, places[count - 1] + 1 if count else extent_of(lines[row]).start
        count -= size
    last = len(lines) - 1
    return last, extent_of(lines[last]).end


def same_place(before: str, after: str, at: int, *, ends: bool = False) -> int:
    """Return the index in a changed text of the character that had the index `at` before.

    Args:
        before, after: the text before and after the change.
        at: an index into `before`.
        ends: whether the characters before the index are searched first; else those after it.
    """
    head, rest = before[:at], before[at:]
    near = rest[:CONTEXT]
    if after.startswith(head) and (ends or not near or near.startswith(after[at:][:CONTEXT])):
        return at
    if after.startswith(head) and after.startswith(near[: _SIZES[3]], at):
        return at
    if rest and after.endswith(rest):
        return len(after) - len(rest)
    for is_behind in (not ends, ends):
        for size in _SIZES:
            part = before[at : at + size] if is_behind else before[max(0, at - size) : at]
            found = _nearest(after, part, at if is_behind else at - len(part))
            if found >= 0:
                return found if is_behind else found + len(part)
    return min(at, len(after))


def _nearest(text: str, part: str, at: int) -> int:
    """Return the index of the occurrence of `part` in a text that is nearest to the index `at`; -1 if there is none."""
    if not part:
        return -1
    below = text.find(part, max(0, at))
    above = text.rfind(part, 0, max(0, at) + len(part))
    if below < 0 or above < 0:
        return max(below, above)
    return below if below - at <= at - above else above


def line_around(lines: Sequence[Line], row: int) -> tuple[int, int]:
    """Return the indices of the first and the last row into which the line of text of this row is wrapped."""
    first = last = row
    while first > 0 and lines[first - 1].goes_on:
        first -= 1
    while last + 1 < len(lines) and lines[last].goes_on:
        last += 1
    return first, last

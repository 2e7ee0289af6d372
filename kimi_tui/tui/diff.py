"""A diff as rows: `diff_rows` cuts long lines at the edge, for overviews; `band_rows` wraps them, for cards.

The diff in an approval is laid out in `approval/model.py`: there nothing may be cut, dedented or left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rich.cells import set_cell_size

from kimi_tui.foreign_text import clean, expand_tabs
from kimi_tui.tui import formatting
from kimi_tui.tui.glyphs import Glyphs
from kimi_tui.tui.rows import LINE_LIMIT, MARGIN, Line, Span, chop, joined, pad, spans_width

if TYPE_CHECKING:
    from kimi_tui.tool_cards import DiffLine


def change_counts(added: int, removed: int, glyphs: Glyphs, *, blank: str = "quiet") -> list[Span]:
    """Return `+3 −1` without a part that is 0; `blank` is the style of the space between the two."""
    spans: list[Span] = []
    if added:
        spans.append(Span(f"+{formatting.grouped(added)}", "ok"))
    if removed:
        spans += [Span(" ", blank)] if spans else []
        spans.append(Span(f"{glyphs.minus}{formatting.grouped(removed)}", "error"))
    return joined(spans)


def diff_rows(
    lines: Sequence[DiffLine],
    width: int,
    glyphs: Glyphs,
    *,
    indent: int,
    digits: int = 0,
    context: str = "ink",
    banded: bool = False,
) -> list[list[Span]]:
    """Return a row for each line: its number, its sign, its text, cut at the right edge.

    Args:
        lines: the diff.
        width: cells of a row.
        glyphs: the signs in use.
        indent: blanks before the line numbers.
        digits: cells of a line number; 0 for as many as the longest needs.
        context: the style of unchanged lines.
        banded: the background of a changed line reaches from two cells before its number to the right edge.
    """
    digits = digits or max((len(str(line.number)) for line in lines), default=1)
    looks = {" ": (" ", context), "-": (glyphs.minus, "removed"), "+": ("+", "added")}
    made: list[list[Span]] = []
    for line in lines:
        sign, style = looks[line.sign]
        number = f"{'  ' if banded else ''}{line.number:>{digits}} "
        room = max(1, width - indent - len(number) - 2)
        text = formatting.cut(expand_tabs(_plain(line.text)), room, glyphs.cut)
        text = f"{sign} {text}"
        if banded:
            text = set_cell_size(text, room + 2)
        is_tinted = banded and line.sign != " "
        made.append(
            [
                Span(" " * indent, "quiet"),
                Span(number, style if is_tinted else "quiet"),
                Span(text, style),
            ]
        )
    return made


def common_indent(lines: Iterable[DiffLine]) -> int:
    """Return the number of blanks with which all of these lines begin; blank lines do not count."""
    indents = [
        len(text) - len(text.lstrip(" "))
        for line in lines
        if (text := expand_tabs(line.text[:LINE_LIMIT])).strip()
    ]
    return min(indents, default=0)


def band_rows(line: DiffLine, dedent: int, width: int, glyphs: Glyphs) -> list[Line]:
    """Return one line of a diff, wrapped into rows whose background reaches to column `width`.

    Args:
        line: the line with its sign.
        dedent: blanks that are left out at its beginning.
        width: cells of a row.
        glyphs: the set of signs in use.
    """
    ink, ground, sign = {
        "+": ("add", "add-bg", "+"),
        "-": ("del", "del-bg", glyphs.minus),
        " ": ("ink", "page", " "),
    }[line.sign]
    at = f"@{ground}"
    text = expand_tabs(_plain(line.text[:LINE_LIMIT]))[dedent:]
    lead = Span(f" {line.number:>3} ", ("quiet" if line.sign == " " else ink) + at)
    mark = Span(f"{sign} ", ink + at)
    made: list[Line] = []
    parts = chop([Span(text, ink + at)], max(8, width - MARGIN - 7))
    for index, part in enumerate(parts):
        head = (lead, mark) if not index else (Span(" " * 7, ink + at),)
        spans = [Span(" " * MARGIN), *head, *part]
        padding = max(0, width - spans_width(spans))
        pad(spans, width, ink + at)
        chopped = None if index == len(parts) - 1 else padding
        made.append(Line(tuple(spans), margin=MARGIN + 7, chopped=chopped))
    return made


def _plain(text: str) -> str:
    """Return a line without control characters. `clean` turns a carriage return within the line into a line feed."""
    return clean(text).replace("\n", " ")

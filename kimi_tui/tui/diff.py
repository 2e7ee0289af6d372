"""A diff as rows of spans: the styles `added`, `removed`, and `ok` and `error` for how much that is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.cells import set_cell_size

from kimi_tui.foreign_text import clean, expand_tabs
from kimi_tui.tui import formatting
from kimi_tui.tui.formatting import Span, joined
from kimi_tui.tui.glyphs import Glyphs

if TYPE_CHECKING:
    from kimi_tui.wire.display import DiffLine


def change_counts(added: int, removed: int, glyphs: Glyphs, *, blank: str = "quiet") -> list[Span]:
    """`+3 −1`; what is 0 is left out. `blank` is the style of the blank between the two."""
    spans: list[Span] = []
    if added:
        spans.append((f"+{formatting.grouped(added)}", "ok"))
    if removed:
        spans += [(" ", blank)] if spans else []
        spans.append((f"{glyphs.minus}{formatting.grouped(removed)}", "error"))
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
    """One row a line: its number, its sign, its text, cut at the right edge.

    Args:
        lines: the diff.
        width: cells of a row.
        glyphs: the signs in use.
        indent: blanks before the numbers.
        digits: cells for a number; 0 for as many as the longest needs.
        context: the style of lines that both sides have.
        banded: the ground of a changed line begins two cells before its number and goes to the right edge.
    """
    digits = digits or max((len(str(line.number)) for line in lines), default=1)
    looks = {" ": (" ", context), "-": (glyphs.minus, "removed"), "+": ("+", "added")}
    rows: list[list[Span]] = []
    for line in lines:
        sign, style = looks[line.sign]
        number = f"{'  ' if banded else ''}{line.number:>{digits}} "
        room = max(1, width - indent - len(number) - 2)
        # A carriage return within a line comes out of `clean` as a line feed.
        text = formatting.cut(expand_tabs(clean(line.text).replace("\n", " ")), room, glyphs.cut)
        text = f"{sign} {text}"
        if banded:
            text = set_cell_size(text, room + 2)
        is_tinted = banded and line.sign != " "
        rows.append(
            [(" " * indent, "quiet"), (number, style if is_tinted else "quiet"), (text, style)]
        )
    return rows

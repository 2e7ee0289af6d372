"""One row of the chat as plain values: what stands there, in which style, and what a click on it means.

A style is a short text, `name/flags@background`: `ink`, `strong@band`, `ink/iu@raised` (b bold, i italic, u underline, s
struck through). The palette turns it into colours, so a row can be made and tested without a screen.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from rich.cells import cell_len

MARGIN = 4
"""Where text starts; the glyph stands two cells before it."""
HANGING = 6
"""Where what belongs to a card starts."""
RIGHT = 2
"""Cells left free at the right edge of the pane."""
PROSE_WIDTH = 88
"""The widest prose."""
NUMBER_ROOM = 6
"""What is kept free of prose before the right edge's margin: the column of `#N` and the gap before it."""

HIT_FOLD = "fold"
HIT_CHECKPOINT = "#"
HIT_LINK = "link:"


class Span(NamedTuple):
    """A run of text in one style. `hit` says what a click does: `#12` or `link:https://…`."""

    text: str
    style: str = "ink"
    hit: str = ""


class Line(NamedTuple):
    """One row. `fill` is the background where no span stands; `hit` is what a click anywhere in the row does.

    `soft` rows go on in the next one behind a blank, `chopped` ones without any, so many cells at their end being only
    padding (a copy joins both); `margin` leading cells are left out of a copy.
    """

    spans: tuple[Span, ...] = ()
    fill: str = "page"
    hit: str = ""
    soft: bool = False
    margin: int = MARGIN
    chopped: int | None = None

    @property
    def text(self) -> str:
        """The characters of the row."""
        return "".join(span.text for span in self.spans)

    @property
    def width(self) -> int:
        """Its width in cells."""
        return width_of(self.spans)

    @property
    def goes_on(self) -> bool:
        """Whether the next row is part of the same line."""
        return self.soft or self.chopped is not None

    def trimmed(self, text: str) -> str:
        """The text of the row, or the beginning of it, without what only fills it up.

        Where it goes on below, a number at its right end does not belong to the text.
        """
        if self.chopped is not None:
            return text[: len(self.text) - self.chopped]
        last = self.spans[-1] if self.soft and self.spans else None
        if last is not None and last.hit.startswith(HIT_CHECKPOINT):
            text = text[: len(self.text) - len(last.text)]
        return text.rstrip()


BLANK = Line()


def cells(text: str) -> int:
    """The width of a text in cells."""
    return len(text) if text.isascii() else cell_len(text)


def style_parts(style: str) -> tuple[str, str, str]:
    """The ink, the flags and the ground that a style names; the last two may be empty."""
    name, _, ground = style.partition("@")
    ink, _, flags = name.partition("/")
    return ink, flags, ground


def width_of(spans: Iterable[Span]) -> int:
    """The width of several runs in cells."""
    return sum(cells(span.text) for span in spans)


def prose_width(width: int, *, numbered: bool = True) -> int:
    """How wide prose may be in a pane of this width; `numbered` rows may end with `#N`."""
    room = width - MARGIN - RIGHT - (NUMBER_ROOM if numbered else 0)
    return max(16, min(PROSE_WIDTH, room))


def pad(spans: list[Span], column: int, style: str = "ink") -> None:
    """Add blanks so that the next span starts at this column, where that is still ahead."""
    missing = column - width_of(spans)
    if missing > 0:
        spans.append(Span(" " * missing, style))


def hit_at(line: Line, column: int) -> str:
    """What a click in this column of the row does; empty for nothing."""
    position = 0
    for span in line.spans:
        position += cells(span.text)
        if column < position:
            return span.hit or line.hit
    return line.hit

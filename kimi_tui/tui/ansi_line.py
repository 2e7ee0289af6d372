"""`ansi_spans`: one line that a program printed for a terminal, as spans in its colours.

Only the sequences for colours and weight (SGR) have a meaning. All others are dropped with their contents, as everywhere in
foreign text, so the line can move no cursor, set no title and reach no clipboard. The sixteen named colours become those of
the theme, which can be read on its background; the others stay as they are.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from kimi_tui.foreign_text import Cleaner
from kimi_tui.tui.rows import COLOUR, Span

MOST_CHARS = 4_000
"""The characters of a line that are read."""
_SGR = re.compile(r"\x1b\[([0-9;:]{0,64})m")
_NAMED = ("quiet", "error", "ok", "warn", "accent", "dmail", "user", "ink")
_LEVELS = (0, 95, 135, 175, 215, 255)
"""The levels of red, green and blue in the cube of the 256 colours."""


class _Look(NamedTuple):
    ink: str = "ink"
    ground: str = ""
    bold: bool = False
    italic: bool = False
    underline: bool = False

    @property
    def style(self) -> str:
        if self.ink.startswith(COLOUR):
            return f"{self.ink}@{self.ground}"
        ink = "strong" if self.bold and self.ink == "ink" else self.ink
        flags = "b" * self.bold + "i" * self.italic + "u" * self.underline
        return f"{ink}/{flags}" if flags else ink


_PLAIN = _Look()


def ansi_spans(line: str) -> list[Span]:
    """Return the spans of a line. The style of one with a colour of its own is `#d0a010@`, with `#20242a` behind the `@` if it has a
    background, too.
    """
    spans: list[Span] = []
    # One cleaner for all of it: a sequence that does not end takes along what follows it.
    cleaner, look = Cleaner(), _PLAIN
    for part, piece in enumerate(_SGR.split(line[:MOST_CHARS])):
        if part % 2:
            look = _turned(look, piece)
        elif text := cleaner.feed(piece).replace("\n", " ").expandtabs(1):
            spans.append(Span(text, look.style))
    return spans


def _turned(look: _Look, codes: str) -> _Look:
    """Return the look after a sequence with these codes; unknown ones change nothing."""
    # Most digits are those of a colour; a longer number means nothing.
    numbers = [int(one) if one else 0 for one in codes.replace(":", ";").split(";") if len(one) < 4]
    at = 0
    while at < len(numbers):
        code = numbers[at]
        at += 1
        match code:
            case 0:
                look = _PLAIN
            case 1:
                look = look._replace(bold=True)
            case 2:
                look = look._replace(ink="quiet")
            case 3:
                look = look._replace(italic=True)
            case 4:
                look = look._replace(underline=True)
            case 22:
                look = look._replace(bold=False, ink="ink" if look.ink == "quiet" else look.ink)
            case 23:
                look = look._replace(italic=False)
            case 24:
                look = look._replace(underline=False)
            case 38 | 48:
                colour, at = _colour(numbers, at)
                if colour:
                    look = look._replace(ink=colour) if code == 38 else look._replace(ground=colour)
            case 39:
                look = look._replace(ink="ink")
            case 49:
                look = look._replace(ground="")
            case _ if 30 <= code <= 37:
                look = look._replace(ink=_NAMED[code - 30])
            case _ if 90 <= code <= 97:
                look = look._replace(ink="strong" if code == 97 else _NAMED[code - 90])
            case _:
                pass
    return look


def _colour(numbers: Sequence[int], at: int) -> tuple[str, int]:
    """Return the colour that `5;N` or `2;R;G;B` names from a place on, and the place behind it; empty for none."""
    kind = numbers[at] if at < len(numbers) else 0
    given = numbers[at + 1 : at + (4 if kind == 2 else 2)]
    behind = at + 1 + len(given)
    if kind == 2 and len(given) == 3 and max(given) < 256:
        return "#{:02x}{:02x}{:02x}".format(*given), behind
    if kind != 5 or not given or given[0] > 255:
        return "", behind
    n = given[0]
    if n < 16:
        return "strong" if n == 15 else _NAMED[n % 8], behind
    if n > 231:
        return "#{0:02x}{0:02x}{0:02x}".format(8 + 10 * (n - 232)), behind
    n -= 16
    return "#{:02x}{:02x}{:02x}".format(*(_LEVELS[n // size % 6] for size in (36, 6, 1))), behind

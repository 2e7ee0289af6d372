"""The last frame of a session: taken from the screen when the session is left, and shown again while it is being read."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.console import COLOR_SYSTEMS, Console
from rich.segment import Segment
from rich.style import Style
from textual.geometry import Region
from textual.screen import Screen
from textual.strip import Strip
from textual.widget import Widget

from kimi_tui.tui.textual_patches.compositor import drawn_strips

if TYPE_CHECKING:
    from kimi_tui.instant.stored_frame import Cells

_SGR = re.compile(r"\x1b\[([\d;]+)m")


class StoredRows(Widget):
    """Rows that stood on the screen before, in their colours. Rows for which there is no room are left out at the top.

    Args:
        rows: the rows, as wide as the screen.
    """

    def __init__(self, rows: Sequence[Sequence[Cells]]) -> None:
        super().__init__(classes="stored-rows")
        self._strips = [_strip_of(row) for row in rows]

    def render_lines(self, crop: Region) -> list[Strip]:
        """Return the rows of a region."""
        first = max(0, len(self._strips) - self.size.height)
        shown = self._strips[first:][crop.y : crop.bottom]
        shown += [Strip.blank(self.size.width)] * (crop.height - len(shown))
        return [strip.crop(crop.x, crop.right) for strip in shown]


def _strip_of(row: Sequence[Cells]) -> Strip:
    from rich.ansi import AnsiDecoder

    decoder = AnsiDecoder()
    segments: list[Segment] = []
    for text, codes in row:
        style = decoder.decode_line(f"\x1b[0{codes}mx").spans
        segments.append(Segment(text, _style(style[0].style) if style else None))
    return Strip(segments)


def _style(style: str | Style) -> Style:
    return Style.parse(style) if isinstance(style, str) else style


def rows_above(screen: Screen[Any], height: int, console: Console) -> list[list[Cells]]:
    """Return the first rows of a screen as they were drawn.

    Args:
        screen: the screen.
        height: the number of rows.
        console: knows the colours of the terminal.
    """
    rows: list[list[Cells]] = []
    system = COLOR_SYSTEMS[console.color_system or "truecolor"]
    for strip in drawn_strips(screen)[:height]:
        row: list[Cells] = []
        for text, style, _ in strip:
            codes = ""
            if style is not None:
                # A link would be a sequence of its own.
                found = _SGR.match(style.update_link(None).render("x", color_system=system))
                codes = f";{found[1]}" if found is not None else ""
            row.append((text, codes))
        rows.append(row)
    return rows

"""From rows to strips: cached where nothing but the scroll position changes, made anew for the few rows that stand out.

A row stands out while the pointer is over it, while it is selected, or while the motion of a fold covers it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING

from rich.segment import Segment
from rich.style import Style
from textual.color import Color
from textual.filter import LineFilter
from textual.strip import Strip

from kimi_tui.tui.chat.lines import BLANK, Line
from kimi_tui.tui.chat.palette import Palette, faded

if TYPE_CHECKING:
    from kimi_tui.tui.chat.flow import View


class Painter:
    """Makes strips of one width, in the colours of the moment, with Textual's line filters already applied.

    Args:
        component: the style of a component class.
        filters: the line filters of the app (no colour, ANSI colours).
    """

    def __init__(
        self, component: Callable[[str], Style], filters: Callable[[], Sequence[LineFilter]]
    ) -> None:
        self._component = component
        self._filters = filters
        self._palette = Palette(component)
        self._active: list[LineFilter] | None = None
        self._ground = Color(0, 0, 0)
        self._blank: Strip | None = None
        self.width = 0

    def reset(self) -> None:
        """Colours or filters have changed."""
        self._palette = Palette(self._component)
        self._active = None
        self._blank = None

    def resize(self, width: int) -> None:
        """Strips have another width from now on."""
        self.width = width
        self._blank = None

    def blank(self) -> Strip:
        """An empty row."""
        if self._blank is None:
            self._blank = self.paint(BLANK)
        return self._blank

    def paint(self, line: Line) -> Strip:
        """A row as it is sent to the terminal."""
        return self._filtered(self._palette.strip(line, self.width))

    def view_strip(self, view: View, index: int) -> Strip:
        """A row of a block, from its cache where it is there."""
        strip = view.strips[index]
        if strip is None:
            strip = view.strips[index] = self.paint(view.lines[index])
        return strip

    def hovered(self, line: Line) -> Strip:
        """A row under the pointer that a click would act on."""
        return self.paint(line._replace(fill="band") if line.fill == "page" else line)

    def current(self, line: Line, *, focused: bool, edge: str) -> Strip:
        """The row that the keys act on."""
        spans = line.spans
        first = spans[0] if spans else None
        rest = spans[1:]
        if first is not None and len(first.text) > 1:
            rest = (first._replace(text=first.text[1:]), *rest)
        lead = type(first)(edge, "accent" if focused else "quiet") if first is not None else None
        marked = (lead, *rest) if lead is not None else spans
        ground = "select" if focused else "band"
        return self.paint(line._replace(spans=marked, fill=ground))

    def selected(self, strip: Strip, start: int, end: int, style: Style) -> Strip:
        """The strip with some of its characters selected (`end` -1: to the end of its text)."""
        length = len(strip.text.rstrip())
        stop = length if end < 0 else min(end, length)
        if start >= stop:
            return strip
        out: list[Segment] = []
        position = 0
        for text, own, _ in strip:
            cuts = (0, max(0, start - position), max(0, stop - position), len(text))
            for part, (low, high) in enumerate(pairwise(cuts)):
                piece = text[low:high]
                if piece:
                    chosen = (own + style if own is not None else style) if part == 1 else own
                    out.append(Segment(piece, chosen))
            position += len(text)
        return Strip(out, strip.cell_length)

    def receded(self, strip: Strip) -> Strip:
        """The strip as it stands behind something that floats above it; as it is where colours are not known."""
        out = [Segment(text, _receding(style) if style else style) for text, style, _ in strip]
        return Strip(out, strip.cell_length)

    def allowed(self, style: Style) -> Style:
        """A style as the line filters leave it, for what is laid over strips that they have gone through."""
        return next(
            (s.style for s in self._filtered(Strip([Segment(" ", style)], 1)) if s.style), style
        )

    def with_mark(self, strip: Strip, line: Line) -> Strip:
        """The strip with a mark at its right end."""
        mark = self._filtered(self._palette.strip(line, line.width))
        return Strip.join([strip.crop(0, max(0, self.width - mark.cell_length)), mark])

    def _filtered(self, strip: Strip) -> Strip:
        if self._active is None:
            self._active = [one for one in self._filters() if one.enabled]
            ground = self._palette["ink"].bgcolor
            self._ground = Color(0, 0, 0) if ground is None else Color.from_rich_color(ground)
        for one in self._active:
            strip = strip.apply_filter(one, self._ground)
        return strip


@lru_cache(maxsize=512)
def _receding(style: Style) -> Style:
    known = style.color is not None and style.color.triplet is not None
    return faded(style) if known else style

"""Turns rows of spans into strips, with the component styles of a widget: a span of style `name` has `PREFIX--name`."""

from __future__ import annotations

from collections.abc import Iterable

from rich.segment import Segment
from rich.style import Style
from textual.color import Color
from textual.strip import Strip
from textual.widget import Widget

from kimi_tui.tui.formatting import StyledText
from kimi_tui.tui.rows import COLOUR, style_parts


class SpanPainter:
    """Paints the spans of one widget.

    Args:
        widget: whose component styles are used.
        prefix: what stands before the two dashes in their names.
    """

    def __init__(self, widget: Widget, prefix: str) -> None:
        self._widget = widget
        self._prefix = prefix
        self._styles: dict[tuple[str, str], Style] = {}

    def clear(self) -> None:
        """Forget all styles: colours have changed."""
        self._styles.clear()

    def style(self, name: str, ground: str = "") -> Style:
        """A style on the ground of another one, or on its own where it names one.

        Args:
            name: may end in flags and a ground, as `style_parts` takes it apart.
            ground: the style whose background is under it; empty for that of the widget.
        """
        style = self._styles.get((name, ground))
        if style is None:
            ink, flags, own = style_parts(name)
            if ink.startswith(COLOUR):
                from kimi_tui.tui.pictures import cell_style

                return cell_style(name)
            style = self._widget.rich_style
            back = self._component(own or ground) if own or ground else Style()
            style += back
            # Where selection is told by reversing, other colours on it would be grounds of their own.
            if ink and not back.reverse:
                style += self._component(ink)
            if flags:
                style += Style(
                    bold="b" in flags or None,
                    italic="i" in flags or None,
                    underline="u" in flags or None,
                    strike="s" in flags or None,
                )
            self._styles[name, ground] = style
        return style

    def _component(self, name: str) -> Style:
        return self._widget.get_component_rich_style(f"{self._prefix}--{name}", partial=True)

    def strip(self, spans: Iterable[StyledText], width: int, *, ground: str = "") -> Strip:
        """The spans on one ground, in exactly `width` cells; what is left free is in the style `quiet`."""
        segments = [Segment(text, self.style(name, ground)) for text, name in spans]
        return Strip(segments).adjust_cell_length(width, self.style("quiet", ground))

    def row(self, spans: Iterable[StyledText], width: int, ground: str = "") -> Strip:
        """The same as the terminal can show it."""
        return self.filtered([self.strip(spans, width, ground=ground)], ground)[0]

    def filtered(self, strips: Iterable[Strip], ground: str = "") -> list[Strip]:
        """The strips as the terminal can show them: for widgets that hand whole strips to Textual.

        Args:
            strips: rows of the widget.
            ground: the style with the background of what has none.
        """
        filters = [one for one in self._widget.get_line_filters() if one.enabled]
        colour = self.style("quiet", ground).bgcolor
        background = Color(0, 0, 0) if colour is None else Color.from_rich_color(colour)
        rows = list(strips)
        for one in filters:
            rows = [strip.apply_filter(one, background) for strip in rows]
        return rows

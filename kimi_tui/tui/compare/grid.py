"""A pane that draws rows of spans as they are seen: what the sides and the files of a comparison have in common."""

from __future__ import annotations

from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.color import Color
from textual.geometry import Region
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from kimi_tui.tui.app_of import app_of
from kimi_tui.tui.chat.lines import style_parts
from kimi_tui.tui.compare.drawing import Span
from kimi_tui.tui.glyphs import glyphs_of
from kimi_tui.tui.scrollbar import use_thin_scrollbar

_STYLES = (
    "page",
    "band",
    "select",
    "ink",
    "strong",
    "quiet",
    "accent",
    "tool",
    "dmail",
    "compaction",
    "error",
    "warn",
    "ok",
    "line",
    "added",
    "removed",
    "raised",
    "code-keyword",
    "code-string",
    "code-comment",
)


class Rows(ScrollView, can_focus=False):
    """Rows of spans, drawn as they are seen."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {f"compare--{name}" for name in _STYLES}

    class Clicked(Message):
        """A row was clicked."""

        def __init__(self, rows: Rows, x: int, row: int) -> None:
            super().__init__()
            self.rows = rows
            self.x = x
            self.row = row

    def __init__(self) -> None:
        super().__init__()
        self._styles: dict[str, Style] = {}

    def on_mount(self) -> None:
        """Take the thin scrollbar."""
        use_thin_scrollbar(self, glyphs_of(app_of(self)))

    @property
    def width(self) -> int:
        """Cells to draw on, the scrollbar's included."""
        return self.outer_size.width or app_of(self).size.width

    def spans_of(self, row: int) -> list[tuple[Span, str]]:
        """The spans of a row, each with the name of its ground."""
        raise NotImplementedError

    def spans_below(self) -> list[tuple[Span, str]]:
        """The spans of a row under the last one."""
        return []

    def notify_style_update(self) -> None:
        """Colours may have changed."""
        super().notify_style_update()
        self._styles.clear()

    def style(self, name: str, ground: str) -> Style:
        """A colour on a ground, or on the one that it has itself."""
        key = f"{name}@{ground}"
        if key not in self._styles:
            ink, flags, own = style_parts(name)
            base = self.rich_style
            for part in (own or ground, ink):
                base += self.get_component_rich_style(f"compare--{part}", partial=True)
            self._styles[key] = base + Style(
                bold="b" in flags or None,
                italic="i" in flags or None,
                underline="u" in flags or None,
                strike="s" in flags or None,
            )
        return self._styles[key]

    def render_lines(self, crop: Region) -> list[Strip]:
        """The visible rows of a region, with the app's filters applied."""
        top, width = round(self.scroll_y), self.width
        filters = [one for one in self.get_line_filters() if one.enabled]
        page = self.style("ink", "page")
        back = Color(0, 0, 0) if page.bgcolor is None else Color.from_rich_color(page.bgcolor)
        strips: list[Strip] = []
        for y in range(crop.y, crop.bottom):
            spans = (
                self.spans_of(top + y) if top + y < self.virtual_size.height else self.spans_below()
            )
            strip = Strip([Segment(text, self.style(name, on)) for (text, name), on in spans])
            strip = strip.adjust_cell_length(width, page)
            for one in filters:
                strip = strip.apply_filter(one, back)
            strips.append(strip.crop(crop.x, crop.right))
        return strips

    def on_click(self, event: events.Click) -> None:
        """Tell where."""
        self.post_message(self.Clicked(self, event.x, round(self.scroll_y) + event.y))

    def show_rows(self, first: int, last: int) -> None:
        """Bring rows into view, the first of them above all."""
        height, top = self.size.height, round(self.scroll_y)
        if first < top:
            top = first
        elif last >= top + height:
            top = min(first, last - height + 1)
        # Rows that were unfolded just now may have no scrollbar yet.
        self.scroll_to(y=top, animate=False, force=True)

"""A screen that shows one text to be read: help, notices, statistics. It scrolls, and Esc closes it."""

from __future__ import annotations

from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.geometry import Size
from textual.screen import ModalScreen
from textual.strip import Strip
from textual.visual import Visual
from textual.widget import Widget

from kimi_tui.tui.glyphs import glyphs_of
from kimi_tui.tui.screens import AnswersOnce
from kimi_tui.tui.scrollbar import use_thin_scrollbar
from kimi_tui.tui.transcript.word_clicks import select_piece


class TextRows(Widget):
    """Rows of text that stand in a frame that scrolls; only those on view are painted."""

    def __init__(self) -> None:
        super().__init__()
        self._wrapped: tuple[int, list[Content]] = (-1, [])

    def wrapped(self, width: int) -> list[Content]:
        """All rows, none wider than `width` cells."""
        raise NotImplementedError

    def _rows(self, width: int) -> list[Content]:
        if self._wrapped[0] != width:
            self._wrapped = (width, self.wrapped(width))
        return self._wrapped[1]

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """As many rows as the words need."""
        return len(self._rows(width))

    def render(self) -> Content:
        """All rows: for what is selected with the mouse."""
        return Content("\n").join(self._rows(self.content_size.width))

    def on_click(self, event: events.Click) -> None:
        """A second click selects the word, a third one the row."""
        event.prevent_default()
        at = event.get_content_offset(self)
        rows = self._rows(self.content_size.width)
        if at is not None and at.y < len(rows):
            select_piece(self, event, rows[at.y].plain, at)

    def render_line(self, y: int) -> Strip:
        """One row."""
        if self.text_selection is not None:
            return super().render_line(y)
        width, style = self.size.width, self.visual_style
        rows = self._rows(width)
        strips = Visual.to_strips(self, rows[y], width, 1, style) if 0 <= y < len(rows) else []
        return strips[0].apply_offsets(0, y) if strips else Strip.blank(width, style.rich_style)


class TextScreen(ModalScreen[None], AnswersOnce[None]):
    """Rows of text in a frame.

    Args:
        title: in the frame.
        text: what is to be read.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,enter", "dismiss", "Close", show=False),
    ]

    def __init__(self, title: str, text: TextRows) -> None:
        super().__init__()
        self._title = title
        self._text = text

    def compose(self) -> ComposeResult:
        """One text that scrolls."""
        frame = VerticalScroll(self._text)
        use_thin_scrollbar(frame, glyphs_of(self))
        frame.border_title = Content(self._title)
        frame.border_subtitle = "Esc close"
        yield frame

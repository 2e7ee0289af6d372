"""Screens that show one text to be read: notices, statistics and jobs. They scroll, and Esc closes them. So does the help."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import ClassVar

from rich.cells import cell_len
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

from kimi_tui.foreign_text import clean, one_line
from kimi_tui.tui.formatting import wrap_words
from kimi_tui.tui.glyphs import glyphs_of
from kimi_tui.tui.screens import AnswersOnce, sheets
from kimi_tui.tui.scrollbar import use_thin_scrollbar
from kimi_tui.tui.state import Told
from kimi_tui.tui.transcript.selection import select_piece

TIME_CELLS = 10
_MARGIN = 3

Wrap = Callable[[int], list[Content]]
"""Makes the rows of a text, none wider than so many cells."""


class TextRows(Widget):
    """Rows of text that stand in a frame that scrolls; only those on view are painted."""

    def __init__(self, wrap: Wrap) -> None:
        super().__init__()
        self._wrap = wrap
        self._wrapped: tuple[int, list[Content]] = (-1, [])

    def rows(self, width: int) -> list[Content]:
        """All of them, none wider than `width` cells."""
        if self._wrapped[0] != width:
            self._wrapped = (width, self._wrap(width))
        return self._wrapped[1]

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """As many rows as the words need."""
        return len(self.rows(width))

    def render(self) -> Content:
        """All rows: for what is selected with the mouse."""
        return Content("\n").join(self.rows(self.content_size.width))

    def on_click(self, event: events.Click) -> None:
        """A second click selects the word, a third one the row."""
        event.prevent_default()
        at = event.get_content_offset(self)
        rows = self.rows(self.content_size.width)
        if at is not None and at.y < len(rows):
            select_piece(self, event, rows[at.y].plain, at)

    def render_line(self, y: int) -> Strip:
        """One row."""
        if self.text_selection is not None:
            return super().render_line(y)
        width, style = self.size.width, self.visual_style
        rows = self.rows(width)
        strips = Visual.to_strips(self, rows[y], width, 1, style) if 0 <= y < len(rows) else []
        return strips[0].apply_offsets(0, y) if strips else Strip.blank(width, style.rich_style)


class TextScreen(ModalScreen[None], AnswersOnce[None]):
    """Rows of text in a frame.

    Args:
        title: in the frame.
        wrap: makes the rows of what is to be read.
    """

    HELP_TITLE = "Jobs, window, statistics, notices"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,enter", "dismiss", "Close", show=False),
    ]

    def __init__(self, title: str, wrap: Wrap) -> None:
        super().__init__()
        self._title = title
        self._wrap = wrap

    def compose(self) -> ComposeResult:
        """One text that scrolls."""
        frame = VerticalScroll(TextRows(self._wrap))
        use_thin_scrollbar(frame, glyphs_of(self))
        frame.border_title = Content(self._title)
        frame.border_subtitle = "Esc close"
        yield frame


class NoticesScreen(TextScreen):
    """The notices of this run, to be read again: the newest first, each with its time and its advice below it.

    Args:
        told: the oldest first.
    """

    CSS_PATH = sheets("text_screen")

    def __init__(self, told: Sequence[Told]) -> None:
        super().__init__("Notices", self._rows)
        self._told = tuple(reversed(told))

    def _rows(self, width: int) -> list[Content]:
        if not self._told:
            return [Content.styled("Nothing was told in this session.", "$ink-quiet")]
        lines: list[Content] = []
        room = max(16, width - TIME_CELLS)
        indent = " " * TIME_CELLS
        for one in self._told:
            style = {"warning": "$warn", "error": "$kind-error"}.get(one.level, "$ink-strong")
            at = f"{time.strftime('%H:%M:%S', time.localtime(one.at)):<{TIME_CELLS}}"
            first, *rest = wrap_words(one_line(one.text), room) or [""]
            lines.append(Content.assemble((at, "$ink-quiet"), (first, style)))
            lines += [Content.styled(indent + row, style) for row in rest]
            advice = " ".join(clean(one.advice).split())
            lines += [
                Content.styled(indent + row, "$ink") for row in wrap_words(advice, room) if row
            ]
        return lines


class StatisticsScreen(TextScreen):
    """Names and figures, as they were when they were asked for.

    Args:
        name: of the screen.
        title: the first row.
        pairs: names and what there is to say of them.
    """

    CSS_PATH = sheets("text_screen")

    def __init__(self, name: str, title: str, pairs: Sequence[tuple[str, str]]) -> None:
        super().__init__(name, self._rows)
        self._heading = one_line(title)
        # A tool bears the name that the model gave it.
        self._pairs = [(name, one_line(text)) for name, text in pairs]

    def _rows(self, width: int) -> list[Content]:
        """The heading, then a row for each name, and more where its sentence is long."""
        column = max((cell_len(name) for name, _ in self._pairs), default=0) + _MARGIN
        lines = [
            Content.styled(row, "bold $ink-strong") for row in wrap_words(self._heading, width)
        ]
        if lines:
            lines.append(Content(""))
        for name, text in self._pairs:
            first, *rest = wrap_words(text, max(16, width - column)) or [""]
            gap = " " * (column - cell_len(name))
            lines.append(Content.assemble((name, "$ink-quiet"), gap, (first, "$ink")))
            lines += [Content.styled(" " * column + row, "$ink") for row in rest]
        return lines

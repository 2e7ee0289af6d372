"""What the session did and cost, in one place that Esc closes."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from rich.cells import cell_len
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.geometry import Size
from textual.screen import ModalScreen
from textual.widget import Widget

from kimi_tui.foreign_text import one_line
from kimi_tui.tui.answering import AnswersOnce
from kimi_tui.tui.app_of import app_of
from kimi_tui.tui.glyphs import glyphs_of
from kimi_tui.tui.numbers import wrap_words
from kimi_tui.tui.scrollbar import use_thin_scrollbar
from kimi_tui.tui.statistics_words import statistics_pairs
from kimi_tui.tui.styles import sheets

if TYPE_CHECKING:
    from kimi_tui.soul.statistics import Statistics

MARGIN = 3


class StatisticsText(Widget):
    """Names and sentences, wrapped for their width."""

    def __init__(self, title: str, figures: Statistics) -> None:
        super().__init__()
        self._title = one_line(title)
        # A tool bears the name that the model gave it.
        self._pairs = [(name, one_line(text)) for name, text in statistics_pairs(figures)]
        self._column = max((cell_len(name) for name, _ in self._pairs), default=0) + MARGIN

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """As many rows as the words need."""
        return len(self._lines(width))

    def render(self) -> Content:
        """All rows."""
        return Content("\n").join(self._lines(self.content_size.width))

    def _lines(self, width: int) -> list[Content]:
        lines = [Content.styled(row, "bold $ink-strong") for row in wrap_words(self._title, width)]
        if lines:
            lines.append(Content(""))
        for name, text in self._pairs:
            first, *rest = wrap_words(text, max(16, width - self._column)) or [""]
            gap = " " * (self._column - cell_len(name))
            lines.append(Content.assemble((name, "$ink-quiet"), gap, (first, "$ink")))
            lines += [Content.styled(" " * self._column + row, "$ink") for row in rest]
        return lines


class StatisticsScreen(ModalScreen[None], AnswersOnce[None]):
    """The statistics of one session, as they were when they were asked for."""

    CSS_PATH = sheets("statistics")
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,enter", "dismiss", "Close", show=False),
    ]

    def __init__(self, title: str, figures: Statistics) -> None:
        super().__init__()
        self._text = StatisticsText(title, figures)

    def compose(self) -> ComposeResult:
        """One text that scrolls."""
        frame = VerticalScroll(self._text)
        use_thin_scrollbar(frame, glyphs_of(app_of(self)))
        frame.border_title = "Statistics"
        frame.border_subtitle = "Esc close"
        yield frame

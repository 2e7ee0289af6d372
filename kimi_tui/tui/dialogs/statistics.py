"""What the session did and cost, as a text to be read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.cells import cell_len
from textual.content import Content

from kimi_tui.foreign_text import one_line
from kimi_tui.tui.dialogs.text_screen import TextRows, TextScreen
from kimi_tui.tui.formatting import statistics_pairs, wrap_words
from kimi_tui.tui.screens import sheets

if TYPE_CHECKING:
    from kimi_tui.soul.usage import Statistics

MARGIN = 3


class StatisticsText(TextRows):
    """Names and sentences, wrapped for their width."""

    def __init__(self, title: str, figures: Statistics) -> None:
        super().__init__()
        self._title = one_line(title)
        # A tool bears the name that the model gave it.
        self._pairs = [(name, one_line(text)) for name, text in statistics_pairs(figures)]
        self._column = max((cell_len(name) for name, _ in self._pairs), default=0) + MARGIN

    def wrapped(self, width: int) -> list[Content]:
        """The title, then a row for each name, and more where its sentence is long."""
        lines = [Content.styled(row, "bold $ink-strong") for row in wrap_words(self._title, width)]
        if lines:
            lines.append(Content(""))
        for name, text in self._pairs:
            first, *rest = wrap_words(text, max(16, width - self._column)) or [""]
            gap = " " * (self._column - cell_len(name))
            lines.append(Content.assemble((name, "$ink-quiet"), gap, (first, "$ink")))
            lines += [Content.styled(" " * self._column + row, "$ink") for row in rest]
        return lines


class StatisticsScreen(TextScreen):
    """The statistics of one session, as they were when they were asked for."""

    CSS_PATH = sheets("statistics")

    def __init__(self, title: str, figures: Statistics) -> None:
        super().__init__("Statistics", StatisticsText(title, figures))

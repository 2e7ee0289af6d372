"""What the session did and cost, or what its window holds: names and figures to be read."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from textual.content import Content

from kimi_tui.foreign_text import one_line
from kimi_tui.tui.dialogs.text_screen import TextRows, TextScreen
from kimi_tui.tui.formatting import wrap_words
from kimi_tui.tui.screens import sheets

MARGIN = 3


class StatisticsText(TextRows):
    """Names and sentences, wrapped for their width."""

    def __init__(self, title: str, pairs: Sequence[tuple[str, str]]) -> None:
        super().__init__()
        self._title = one_line(title)
        # A tool bears the name that the model gave it.
        self._pairs = [(name, one_line(text)) for name, text in pairs]
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
    """Figures of one session, as they were when they were asked for.

    Args:
        name: of the screen.
        title: the first row.
        pairs: names and what there is to say of them.
    """

    CSS_PATH = sheets("statistics")

    def __init__(self, name: str, title: str, pairs: Sequence[tuple[str, str]]) -> None:
        super().__init__(name, StatisticsText(title, pairs))

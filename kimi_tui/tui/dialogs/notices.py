"""What was told in this run, as a text to be read."""

from __future__ import annotations

import time
from collections.abc import Sequence

from textual.content import Content

from kimi_tui.foreign_text import clean, one_line
from kimi_tui.tui.dialogs.text_screen import TextRows, TextScreen
from kimi_tui.tui.formatting import wrap_words
from kimi_tui.tui.screens import sheets
from kimi_tui.tui.state import Told


class NoticesText(TextRows):
    """All that was told, the newest first, each with its time."""

    TIME_CELLS = 10

    def __init__(self, told: Sequence[Told]) -> None:
        super().__init__()
        self._told = tuple(reversed(told))

    def wrapped(self, width: int) -> list[Content]:
        """Every notice, and its advice below it."""
        if not self._told:
            return [Content.styled("Nothing was told in this session.", "$ink-quiet")]
        lines: list[Content] = []
        room = max(16, width - self.TIME_CELLS)
        indent = " " * self.TIME_CELLS
        for one in self._told:
            style = {"warning": "$warn", "error": "$kind-error"}.get(one.level, "$ink-strong")
            at = f"{time.strftime('%H:%M:%S', time.localtime(one.at)):<{self.TIME_CELLS}}"
            first, *rest = wrap_words(one_line(one.text), room) or [""]
            lines.append(Content.assemble((at, "$ink-quiet"), (first, style)))
            lines += [Content.styled(indent + row, style) for row in rest]
            advice = " ".join(clean(one.advice).split())
            lines += [
                Content.styled(indent + row, "$ink") for row in wrap_words(advice, room) if row
            ]
        return lines


class NoticesScreen(TextScreen):
    """The notices of this run, to be read again.

    Args:
        told: the oldest first.
    """

    CSS_PATH = sheets("help")

    def __init__(self, told: Sequence[Told]) -> None:
        super().__init__("Notices", NoticesText(told))

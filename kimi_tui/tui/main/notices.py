"""Notices over the last rows of the chat: what happened, then what to do, in at most three rows.

One with a topic stays until it is solved; the others go after a few seconds or when the next one comes.
"""

from __future__ import annotations

import time
from typing import Literal, NamedTuple

from textual.content import Content
from textual.geometry import Size
from textual.widget import Widget

from kimi_tui.foreign_text import clean, one_line
from kimi_tui.tui.app_of import app_of
from kimi_tui.tui.glyphs import glyphs_of
from kimi_tui.tui.numbers import cut, wrap_words

Level = Literal["info", "warning", "error"]
STAYS_S = 6.0
MAX_ROWS = 3


class Shown(NamedTuple):
    """A notice on the screen; `until` is a monotonic time, or None where it stays until solved."""

    level: Level
    text: str
    advice: str = ""
    topic: str = ""
    until: float | None = None


def with_notice(board: tuple[Shown, ...], new: Shown, now: float) -> tuple[Shown, ...]:
    """The board with one more: it replaces what passes by itself, and what was said on the same topic."""
    kept = tuple(
        old
        for old in board
        if (old.until is None and old.topic != new.topic) or ((old.until or 0) > now and new.topic)
    )
    return (*kept, new)


def without(board: tuple[Shown, ...], topic: str, now: float) -> tuple[Shown, ...]:
    """The board without a topic and without what has passed."""
    return tuple(
        old
        for old in board
        if (not topic or old.topic != topic) and (old.until is None or old.until > now)
    )


class Notices(Widget):
    """The notices; not there while there are none."""

    def __init__(self) -> None:
        super().__init__()
        self._board: tuple[Shown, ...] = ()

    @property
    def board(self) -> tuple[Shown, ...]:
        """What is shown now."""
        return self._board

    def tell(self, text: str, *, level: Level = "info", advice: str = "", topic: str = "") -> None:
        """Show a notice; with a topic it stays until `solve`."""
        now = time.monotonic()
        until = None if topic else now + STAYS_S
        new = Shown(level, one_line(text), " ".join(clean(advice).split()), topic, until)
        self._show(with_notice(self._board, new, now))
        if until is not None:
            self.set_timer(STAYS_S + 0.05, self._expire)

    def solve(self, topic: str) -> None:
        """Take the notice of a topic away."""
        self._show(without(self._board, topic, time.monotonic()))

    def clear(self) -> None:
        """Take away what would go by itself."""
        self._show(tuple(shown for shown in self._board if shown.until is None))

    def _expire(self) -> None:
        self._show(without(self._board, "", time.monotonic()))

    def _show(self, board: tuple[Shown, ...]) -> None:
        if board == self._board:
            return
        self._board = board
        self.display = bool(board)
        self.set_class(any(shown.level == "error" for shown in board), "-grave")
        self.refresh(layout=True)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """As many rows as there are at that width, which is not the widget's own before it has a place."""
        return len(self._rows(width))

    def render(self) -> Content:
        """The newest notices that fit, each with its advice under it."""
        return Content("\n").join(self._rows(self.size.width))

    def _rows(self, width: int) -> list[Content]:
        glyphs = glyphs_of(app_of(self))
        width = max(8, width - 6)
        rows: list[Content] = []
        for shown in reversed(self._board):
            style = {"info": "$accent", "warning": "$warn", "error": "$kind-error"}[shown.level]
            advice = _wrapped(shown.advice, width, MAX_ROWS - 1, glyphs.cut)
            text = _wrapped(shown.text, width, MAX_ROWS - len(advice), glyphs.cut)
            block = [Content.styled(row, "bold $ink-strong") for row in text]
            block += [Content.styled(row, "$ink") for row in advice]
            if len(rows) + len(block) > MAX_ROWS:
                break
            for index, row in enumerate(block):
                sign = "  " if index or shown.level == "info" else f"{glyphs.caution} "
                rows.append(
                    Content.assemble((glyphs.edge, style), " ", (sign, f"bold {style}"), row)
                )
        return rows


def _wrapped(text: str, width: int, rows: int, ellipsis: str) -> list[str]:
    """The text in at most `rows` lines of `width` cells."""
    lines = wrap_words(text, width)
    if len(lines) > rows:
        lines = [*lines[: rows - 1], " ".join(lines[rows - 1 :])]
    return [cut(line, width, ellipsis) for line in lines]

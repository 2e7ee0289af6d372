"""Notices under the last rows of the chat: what happened, then what to do, in a few rows.

One with a topic stays until it is solved; the others go after a few seconds or when the next one comes.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Literal, NamedTuple

from textual import events
from textual.content import Content
from textual.geometry import Size
from textual.message import Message
from textual.selection import Selection
from textual.widget import Widget

from kimi_tui.foreign_text import clean, one_line
from kimi_tui.tui.formatting import cut, wrap_words
from kimi_tui.tui.glyphs import glyphs_of
from kimi_tui.tui.state import STAYS_S

Level = Literal["info", "warning", "error"]
MAX_ROWS = 3
LIST_ROWS = 6
"""Rows for several notices that came at once."""


class Shown(NamedTuple):
    """A notice on the screen; `until` is a monotonic time, or None where it stays until solved.

    `more` are others that came at once, and are shown with it.
    """

    level: Level
    text: str
    advice: str = ""
    topic: str = ""
    until: float | None = None
    more: tuple[str, ...] = ()


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

    class Grown(Message):
        """They take another number of rows."""

        def __init__(self, rows: int) -> None:
            super().__init__()
            self.rows = rows

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

    def tell_all(self, texts: Sequence[str], *, level: Level) -> None:
        """Show several notices that came at once as one list, for as long as each of them would stay."""
        first, *more = map(one_line, texts)
        stays_s = STAYS_S * len(texts)
        new = Shown(level, first, until=time.monotonic() + stays_s, more=tuple(more))
        self._show(with_notice(self._board, new, time.monotonic()))
        self.set_timer(stays_s + 0.05, self._expire)

    def on_resize(self) -> None:
        """What stands above them may have to give way."""
        self._tell_rows()

    def _tell_rows(self) -> None:
        self.post_message(self.Grown(self.size.height if self.display else 0))

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
        # Where they take as many rows as before they were gone no resize tells of it.
        self.call_after_refresh(self._tell_rows)
        self.set_class(any(shown.level == "error" for shown in board), "-grave")
        self.refresh(layout=True)

    def on_click(self, event: events.Click) -> None:
        """A third click selects what the second one did: Textual would select all that stands in the same pane."""
        if event.chain > 1:
            event.prevent_default()
            self.text_select_all()

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """What is selected, without the edge and the signs before it."""
        found = super().get_selection(selection)
        if found is None:
            return None
        glyphs = glyphs_of(self)
        signs = f" {glyphs.edge}{glyphs.caution}"
        return "\n".join(row.lstrip(signs) for row in found[0].split("\n")), found[1]

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """As many rows as there are at that width, which is not the widget's own before it has a place."""
        return len(self._rows(width))

    def render(self) -> Content:
        """The newest notices that fit, each with its advice under it."""
        return Content("\n").join(self._rows(self.size.width))

    def _rows(self, width: int) -> list[Content]:
        glyphs = glyphs_of(self)
        width = max(8, width - 6)
        rows: list[Content] = []
        for shown in reversed(self._board):
            if shown.more:
                rows += self._listed(shown, width)
                break
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

    def _listed(self, shown: Shown, width: int) -> list[Content]:
        """Several notices, each with a sign of its own; where there are too many, where the rest is to be read."""
        glyphs = glyphs_of(self)
        texts = (shown.text, *shown.more)
        each = max(1, LIST_ROWS // len(texts))
        n_shown = len(texts) if len(texts) <= LIST_ROWS else LIST_ROWS - 1
        rows: list[Content] = []
        for text in texts[:n_shown]:
            for index, line in enumerate(_wrapped(text, width, each, glyphs.cut)):
                sign = f"{glyphs.caution} " if not index and shown.level != "info" else "  "
                rows.append(
                    Content.assemble(
                        (glyphs.edge, "$warn"), " ", (sign, "bold $warn"), (line, "$ink-strong")
                    )
                )
        if n_shown < len(texts):
            left = f"    {len(texts) - n_shown} more; /notices lists all of them"
            rows.append(Content.assemble((glyphs.edge, "$warn"), (left[1:], "$ink")))
        return rows


def _wrapped(text: str, width: int, rows: int, ellipsis: str) -> list[str]:
    """The text in at most `rows` lines of `width` cells."""
    lines = wrap_words(text, width)
    if len(lines) > rows:
        lines = [*lines[: rows - 1], " ".join(lines[rows - 1 :])]
    return [cut(line, width, ellipsis) for line in lines]

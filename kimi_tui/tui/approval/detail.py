"""The part of an approval that may be long: which of its rows are on the screen, and whether the last one has been."""

from __future__ import annotations

from collections.abc import Sequence

from kimi_tui.tui.approval.model import DetailRow, counts, detail_rows, wrapped
from kimi_tui.tui.glyphs import Glyphs
from kimi_tui.wire.events import ApprovalRequest

FEW_ROWS = 12
AROUND = 5
"""Rows that a small screen keeps for what is not the panel, and for the line that says which rows are shown."""
AROUND_WHOLE = 12
"""Rows that a large screen keeps for that where all of the detail is wanted."""


class Detail:
    """All of what will run or be written, and the rows of it that are shown.

    Args:
        request: what is asked.

    Attributes:
        seen_end: whether the last row has been on the screen.
    """

    def __init__(self, request: ApprovalRequest) -> None:
        self._request = request
        self._rows: tuple[DetailRow, ...] = ()
        self._width = 0
        self._screen_height = 0
        self._beside = 0
        self._moved_here: tuple[str, ...] = ()
        self._top = 0
        self._is_whole = False
        self.seen_end = False

    def fit(
        self,
        width: int,
        screen_height: int,
        glyphs: Glyphs,
        *,
        beside: int,
        moved_here: tuple[str, ...] = (),
    ) -> None:
        """Take these sizes.

        Args:
            width: of a row.
            screen_height: of all that can be seen.
            glyphs: the signs to draw with.
            beside: rows of the panel that are not the detail.
            moved_here: texts for which there was no room beside; they come first here.
        """
        self._screen_height = screen_height
        self._beside = beside
        if (width, moved_here) != (self._width, self._moved_here):
            self._width = width
            self._moved_here = moved_here
            self._rows = (
                *(DetailRow(row, "path") for text in moved_here for row in wrapped(text, width)),
                *detail_rows(self._request, width, glyphs),
            )
        self._move(0)

    @property
    def room(self) -> int:
        """The most rows that may be shown."""
        if self._is_whole and self._whole_room > FEW_ROWS:
            return self._whole_room
        return min(FEW_ROWS, max(2, self._screen_height - AROUND - self._beside))

    @property
    def shows_all(self) -> bool:
        """Whether every row is shown at once."""
        return self.room >= len(self._rows)

    @property
    def at_end(self) -> bool:
        """Whether the last row is shown."""
        return self._top + self._window >= len(self._rows)

    @property
    def more_words(self) -> str:
        """What `toggle_whole` does, as the footer says it; empty where it does nothing."""
        if len(self._rows) <= FEW_ROWS or self._whole_room <= FEW_ROWS:
            return ""
        if self._is_whole:
            return "less"
        if len(self._rows) > self._whole_room:
            return "more rows"
        return "whole text" if counts(self._request) is None else "whole diff"

    @property
    def shown(self) -> Sequence[DetailRow]:
        """The rows that are shown."""
        return self._rows[self._top : self._top + self._window]

    @property
    def place_words(self) -> str:
        """Which rows of how many are shown."""
        return f"rows {self._top + 1} to {self._top + self._window} of {len(self._rows)}"

    def toggle_whole(self) -> None:
        """As many rows as the screen has room for, or a few again; nothing where that would be no more."""
        if self.more_words:
            self._is_whole = not self._is_whole
            self._move(0)

    def scroll(self, key: str, rows: int = 1) -> None:
        """Show other rows.

        Args:
            key: what was pressed: pageup, pagedown, home, end, ctrl+up or ctrl+down.
            rows: how far the last two go.
        """
        page = self._window - 1
        step = {
            "pageup": -page,
            "pagedown": page,
            "home": -len(self._rows),
            "end": len(self._rows),
            "ctrl+up": -rows,
            "ctrl+down": rows,
        }[key]
        self._move(step)

    def _move(self, step: int) -> None:
        self._top = max(0, min(self._top + step, len(self._rows) - self._window))

    @property
    def _window(self) -> int:
        return min(len(self._rows), self.room)

    @property
    def _whole_room(self) -> int:
        return self._screen_height - AROUND_WHOLE - self._beside

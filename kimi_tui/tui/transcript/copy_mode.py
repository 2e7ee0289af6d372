"""Copy mode: a cursor that keys move through the rows of the transcript, and the selection between it and an anchor.

Cursor and anchor are `TextPosition`s, so that they stay with their text while rows come, fold or are wrapped again. This
module has no widget.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from rich.cells import get_character_cell_size

from kimi_tui.tui.rows import BLANK, Line
from kimi_tui.tui.transcript.selection import LINE, TextSelection, kind_of
from kimi_tui.tui.transcript.text_position import Extent, TextPosition, extent_of
from kimi_tui.tui.transcript.viewport import Flow

Outcome = Literal["moved", "take", "leave"]
ACTIONS = (
    *("left", "right", "up", "down", "word", "back", "word_end", "start", "text", "end"),
    *("turn_before", "turn_after", "page_up", "page_down", "top", "bottom"),
    *("mark", "lines", "swap", "take", "leave", "author"),
)
"""The actions of copy mode, by their names in `[keys]` without `copy.`."""


class CopyMode:
    """A cursor in the text of a transcript, and the selection from an anchor to it.

    Args:
        flow: the layout of the transcript.
        selection: the selection that follows the cursor.
        row: the row of the content on which cursor and anchor are at first.
    """

    def __init__(self, flow: Flow, selection: TextSelection, row: int) -> None:
        self._flow = flow
        self._selection = selection
        self._by_lines = False
        self._wanted: int | None = None
        """The column that the cursor has in rows that are long enough."""
        self._head = self._mark(row, self._extent(row).start)
        self._anchor: TextPosition | None = replace(self._head)
        self._hold()

    @property
    def place(self) -> tuple[int, int] | None:
        """The cursor as row of the content and column; None if its block was removed."""
        row = self._flow.row_of(self._head)
        return None if row is None else (row, self._head.column)

    @property
    def selects(self) -> bool:
        """Whether text is selected."""
        return self._anchor is not None

    def end(self) -> None:
        """Drop cursor and anchor."""
        self._selection.hold(())

    def act(self, action: str, page: int) -> Outcome:
        """Carry out the action of a key.

        Args:
            action: one of `ACTIONS`.
            page: the number of rows of a page.
        """
        match action:
            case "take" | "leave":
                return action
            case "mark" | "lines":
                by_lines = action == "lines"
                is_off = self._anchor is not None and self._by_lines == by_lines
                if is_off or self._anchor is None:
                    self._anchor = None if is_off else replace(self._head)
                self._by_lines = by_lines
                self._hold()
            case "swap":
                if self._anchor is not None:
                    self._head, self._anchor = self._anchor, self._head
            case _:
                self._move(action, page)
        return "moved"

    @property
    def pieces(
        self,
    ) -> tuple[tuple[TextPosition, TextPosition], tuple[TextPosition, TextPosition]] | None:
        """The pieces of text at anchor and cursor, which the selection includes.

        They are single characters, or lines if lines are selected. Without an anchor both are the line of the cursor. The
        result is None if a block of them was removed.
        """
        ends = (self._anchor or self._head, self._head)
        found: list[tuple[TextPosition, TextPosition]] = []
        for mark in ends:
            row = self._flow.row_of(mark)
            if row is None:
                return None
            if self._by_lines or self._anchor is None:
                found.append(self._selection.piece_at(row, 0, LINE))
            else:
                column = min(mark.column + 1, max(mark.column, self._extent(row).end))
                found.append((replace(mark), replace(mark, column=column, ends=True)))
        return found[0], found[1]

    # --- the cursor

    def _hold(self) -> None:
        """Have cursor and anchor follow their text."""
        held = (self._head,) if self._anchor is None else (self._head, self._anchor)
        self._selection.hold(held)

    def _line(self, row: int) -> Line:
        return self._flow.line(row)[2]

    def _extent(self, row: int) -> Extent:
        line = self._line(row)
        return Extent(0, 0) if line is BLANK else extent_of(line)

    def _mark(self, row: int, column: int) -> TextPosition:
        mark = self._flow.position_at(row)
        assert mark is not None
        mark.column = column
        return mark

    def _go(self, row: int, column: int) -> None:
        row = min(max(0, row), max(0, self._flow.height - 1))
        start, end = self._extent(row)
        # When rows are laid out for this, everything below may move, so the mark is taken from the present row.
        mark = self._mark(row, min(max(start, column), max(start, end - 1)))
        self._head.key, self._head.row, self._head.column = mark.key, mark.row, mark.column
        self._head.hint = mark.hint

    def _move(self, action: str, page: int) -> None:
        place = self.place
        if place is None:
            return
        row, column = place
        start, end = self._extent(row)
        steps = {"up": -1, "down": 1, "page_up": -page, "page_down": page}
        if action in steps:
            self._wanted = column if self._wanted is None else self._wanted
            self._go(row + steps[action], self._wanted)
            return
        self._wanted = None
        match action:
            case "left" | "right":
                self._go(row, self._beside(row, column, -1 if action == "left" else 1))
            case "start" | "text":
                text = self._line(row).text[start:end]
                indent = len(text) - len(text.lstrip()) if action == "text" else 0
                self._go(row, start + indent)
            case "end":
                self._go(row, end)
                self._wanted = 1 << 30
            case "word":
                self._go(*self._next_word(row, column))
            case "word_end":
                self._go(*self._word_end(row, column))
            case "back":
                self._go(*self._word_before(row, column))
            case "top" | "bottom":
                self._go(0 if action == "top" else self._flow.height - 1, 0)
            case _:
                turn = self._flow.turn_row(row, -1 if action == "turn_before" else 1)
                self._go(min(turn, self._flow.height - 1), 0)

    def _beside(self, row: int, column: int, step: int) -> int:
        """Return the column of the next character (`step` 1), or the one before (-1), that has a cell of its own."""
        text = self._line(row).text
        start, end = self._extent(row)
        at = column + step
        while start < at < end and get_character_cell_size(text[at]) == 0:
            at += step
        return at

    def _kind(self, row: int, column: int) -> str:
        """Return the kind of the character at a position; `blank` at the end of a row."""
        start, end = self._extent(row)
        return kind_of(self._line(row).text[column]) if start <= column < end else "blank"

    def _step(self, row: int, column: int, step: int) -> tuple[int, int] | None:
        """Return the next position (`step` 1), or the one before (-1), also in another row; None at the end of the text."""
        start, end = self._extent(row)
        if start <= column + step < end:
            return row, column + step
        other = row + step
        if not 0 <= other < self._flow.height:
            return None
        low, high = self._extent(other)
        return other, low if step > 0 else max(low, high - 1)

    def _next_word(self, row: int, column: int) -> tuple[int, int]:
        kind, place = self._kind(row, column), (row, column)
        while (following := self._step(*place, 1)) is not None:
            other_row = following[0] != place[0]
            place = following
            here = self._kind(*place)
            if here != "blank" and (here != kind or other_row):
                break
            kind = here
        return place

    def _word_end(self, row: int, column: int) -> tuple[int, int]:
        place = self._step(row, column, 1) or (row, column)
        while self._kind(*place) == "blank":
            following = self._step(*place, 1)
            if following is None:
                return place
            place = following
        kind = self._kind(*place)
        while (following := self._step(*place, 1)) is not None:
            if following[0] != place[0] or self._kind(*following) != kind:
                break
            place = following
        return place

    def _word_before(self, row: int, column: int) -> tuple[int, int]:
        place = self._step(row, column, -1) or (row, column)
        while self._kind(*place) == "blank":
            before = self._step(*place, -1)
            if before is None:
                return place
            place = before
        kind = self._kind(*place)
        while (before := self._step(*place, -1)) is not None:
            if before[0] != place[0] or self._kind(*before) != kind:
                break
            place = before
        return place

"""Text selection: of characters, words or lines, in the transcript (`TextSelection`) and in other widgets that paint rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from rich.cells import cell_len, get_character_cell_size
from rich.segment import Segment
from textual import events
from textual.geometry import Offset
from textual.selection import Selection
from textual.strip import Strip
from textual.widget import Widget

from kimi_tui.tui.rows import Line, Span
from kimi_tui.tui.transcript.text_position import Extent, TextPosition, extent_of, line_around

if TYPE_CHECKING:
    from kimi_tui.tui.painter import Painter
    from kimi_tui.tui.transcript.viewport import Flow


CHARACTER, WORD, LINE = 1, 2, 3
"""The unit by which a selection grows: the number of clicks that begin it."""
_WORD_SIGNS = frozenset("@-./_~?&=%+#")
"""Characters that belong to a word besides letters and digits, so that paths, options and addresses are words."""
_ENDS_NO_WORD = ".?"


def character_at(line: Line, cell: int) -> int:
    """Return the index of the character in a cell of a row; the length of the text for a cell after its end."""
    text = line.text
    if text.isascii():
        return min(max(0, cell), len(text))
    used = 0
    for index, char in enumerate(text):
        used += get_character_cell_size(char)
        if cell < used:
            return index
    return len(text)


def word_at(line: Line, column: int) -> Extent:
    """Return the word around a character of a row; around a blank or a sign the run of characters of that kind."""
    text = line.text
    start, end = extent_of(line)
    if not start <= column < end:
        return Extent(min(max(column, start), end), min(max(column, start), end))
    kind = kind_of(text[column])
    first = last = column
    while first > start and kind_of(text[first - 1]) == kind:
        first -= 1
    while last + 1 < end and kind_of(text[last + 1]) == kind:
        last += 1
    if kind == "word":
        while last > column and text[last] in _ENDS_NO_WORD:
            last -= 1
    return Extent(first, last + 1)


def kind_of(char: str) -> str:
    """Return the kind of a character: `word`, `blank` or `sign`."""
    if char.isalnum() or char in _WORD_SIGNS:
        return "word"
    # Marks and joiners belong to the letter before them.
    if not char.isascii() and get_character_cell_size(char) == 0:
        return "word"
    return "blank" if char.isspace() else "sign"


class TextSelection:
    """The selection in the text of a transcript. It keeps its text when rows are added, removed or wrapped again.

    Args:
        flow: the layout of the transcript.

    Attributes:
        ends: the first and the last position of the selected text; None if nothing is selected.
    """

    def __init__(self, flow: Flow) -> None:
        self._flow = flow
        self.ends: tuple[TextPosition, TextPosition] | None = None
        self._held: tuple[TextPosition, ...] = ()

    def select(self, start: TextPosition, end: TextPosition) -> None:
        """Select the text between two positions."""
        start.ends, end.ends = False, True
        self.clear()
        self.ends = (start, end)
        self._flow.positions += self.ends

    def clear(self) -> None:
        """Select nothing."""
        ends, self.ends = self.ends, None
        if ends is not None:
            self._flow.positions = [mark for mark in self._flow.positions if mark not in ends]

    def hold(self, marks: tuple[TextPosition, ...]) -> None:
        """Have these positions follow their text as well, instead of those set before: the origin of a growing selection."""
        flow = self._flow
        flow.positions = [mark for mark in flow.positions if mark not in self._held]
        flow.positions += marks
        self._held = marks

    @property
    def is_lost(self) -> bool:
        """Whether the block in which the selected text begins or ends was removed."""
        return self.ends is not None and any(
            self._flow.index_of(mark) is None for mark in self.ends
        )

    @property
    def whole(self) -> tuple[TextPosition, TextPosition] | None:
        """The first and the last position of all text; None if there is no text."""
        views = self._flow.views
        if not views:
            return None
        last = len(views) - 1
        self._flow.lay_out(last)
        rows = views[last].lines
        end = TextPosition(views[last].block.key, len(rows) - 1, len(rows[-1].text) if rows else 0)
        return TextPosition(views[0].block.key, 0, 0), end

    def span(self, row: int, line: Line) -> tuple[int, int] | None:
        """Return the selected characters of a row of the content, as indices (the second exclusive); None if none is selected."""
        if self.ends is None:
            return None
        start, end = self.ends
        first, last = self._flow.row_of(start), self._flow.row_of(end)
        if first is None or last is None or not first <= row <= last:
            return None
        low, high = extent_of(line)
        low = max(low, start.column) if row == first else low
        high = min(high, end.column) if row == last else high
        return (low, high) if low < high else None

    def piece_at(self, row: int, cell: int, grain: int) -> tuple[TextPosition, TextPosition]:
        """Return the first and the last position of the character, word or line in a cell of a row of the content.

        Args:
            row: the row of the content; the nearest one is taken where there is no such row.
            cell: the cell of the row.
            grain: `CHARACTER`, `WORD` or `LINE`.
        """
        flow = self._flow
        row = min(max(0, row), max(0, flow.height - 1))
        view, index, line = flow.line(row)
        if view is None or index < 0:
            # The row is between blocks, or below the last one.
            at, _ = flow.find(row)
            key = flow.views[at].block.key
            return TextPosition(key, 0, 0, hint=at), TextPosition(key, 0, 0, ends=True, hint=at)
        key, at = view.block.key, flow.find(row)[0]
        if grain == LINE:
            first, last = line_around(view.lines, index)
            start, end = 0, extent_of(view.lines[last]).end
        else:
            first = last = index
            column = character_at(line, cell)
            start, end = word_at(line, column) if grain == WORD else (column, column + 1)
        return TextPosition(key, first, start, hint=at), TextPosition(
            key, last, end, ends=True, hint=at
        )

    def select_from(
        self, origin: tuple[TextPosition, TextPosition], head: tuple[TextPosition, TextPosition]
    ) -> None:
        """Select two pieces of text and all text between them.

        Args:
            origin: the piece at which the selection began, as its first and last position.
            head: the piece up to which it goes now, before or after the origin.
        """
        start, end = origin
        if self._position(head[0]) < self._position(start):
            start = head[0]
        if self._position(head[1]) > self._position(end):
            end = head[1]
        if self._position(start) < self._position(end):
            self.select(replace(start), replace(end))
        else:
            self.clear()

    def _position(self, mark: TextPosition) -> tuple[int, int, int]:
        """Return a key that orders positions as they follow each other in the text."""
        index = self._flow.index_of(mark)
        return (-1 if index is None else index, mark.row, mark.column)


def select_piece(
    widget: Widget, event: events.Click, text: str, at: Offset, side: tuple[int, int] | None = None
) -> bool:
    """Select the word at a second click and the row at a third one, in a widget that paints its rows.

    Args:
        widget: the widget that was clicked.
        event: the click; Textual's own handling of it is prevented.
        text: the text of the row.
        at: the cell and the row that was clicked.
        side: the first cell of the clicked column of text, and the one behind its last; None if the row is one column.

    Returns:
        whether something was selected: False for a first click.
    """
    event.prevent_default()
    if event.chain < 2:
        return False
    line = Line((Span(text, "ink"),))
    piece = extent_of(line)
    if event.chain == 2:
        piece = word_at(line, character_at(line, at.x))
    elif side is not None:
        start, end = (character_at(line, cell) for cell in side)
        said = text[start:end]
        piece = Extent(end - len(said.lstrip()), start + len(said.rstrip()))
    ends = Offset(piece.start, at.y), Offset(max(piece), at.y)
    widget.screen.selections = {widget: Selection(*ends)}
    return True


def with_selection(
    widget: Widget, painter: Painter, strip: Strip, row: int, text_of: Callable[[int], str]
) -> Strip:
    """Return the strip of a row with its selected text highlighted; the text is only asked for where some of it is selected.

    Args:
        widget: the widget.
        painter: made the strip.
        strip: the strip without a selection.
        row: the row of the content.
        text_of: returns the text of a row.
    """
    selection = widget.text_selection
    span = selection.get_span(row) if selection is not None else None
    if span is None:
        return strip
    text = text_of(row)
    # An end of -1 means the end of the row.
    first, last = (cell_len(text if place < 0 else text[:place]) for place in span)
    style = painter.allowed(widget.screen.get_component_rich_style("screen--selection"))
    chosen = [
        Segment(one.text, one.style + style if one.style else style)
        for one in strip.crop(first, last)
    ]
    return Strip.join([strip.crop(0, first), Strip(chosen), strip.crop(last)])


def selected_text(selection: Selection, text_of: Callable[[int], str]) -> tuple[str, str] | None:
    """Return the selected text of one row and its line end, as `Widget.get_selection` returns them; None if nothing is selected.

    Args:
        selection: a selection made by `select_piece`.
        text_of: returns the text of a row.
    """
    start, end = selection
    return None if start is None or end is None else (text_of(start.y)[start.x : end.x], "\n")

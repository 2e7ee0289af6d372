"""A word or a row selected by a second or third click on drawn rows, as in the chat: Textual selects all of a widget."""

from __future__ import annotations

from collections.abc import Callable

from rich.cells import cell_len
from rich.segment import Segment
from textual import events
from textual.geometry import Offset
from textual.selection import Selection
from textual.strip import Strip
from textual.widget import Widget

from kimi_tui.tui.rows import Line, Span
from kimi_tui.tui.transcript.marks import Extent, extent_of
from kimi_tui.tui.transcript.selection import character_at, word_at


def select_piece(
    widget: Widget, event: events.Click, text: str, at: Offset, side: tuple[int, int] | None = None
) -> bool:
    """Select what a second or third click is on; False at a first click, which does what it always does.

    Args:
        widget: that was clicked.
        event: the click, of which Textual makes nothing any more.
        text: of the row.
        at: the cell and the row that was clicked.
        side: the first cell, and the one behind the last, of the column that a row is of; None where that is all of it.
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


def with_selection(widget: Widget, strip: Strip, row: int, text: str) -> Strip:
    """A row of a widget, with what of its text is selected."""
    selection = widget.text_selection
    span = selection.get_span(row) if selection is not None else None
    if span is None:
        return strip
    first, last = (cell_len(text[:place]) for place in span)
    style = widget.screen.get_component_rich_style("screen--selection")
    chosen = [
        Segment(one.text, one.style + style if one.style else style)
        for one in strip.crop(first, last)
    ]
    return Strip.join([strip.crop(0, first), Strip(chosen), strip.crop(last)])


def selected_text(selection: Selection, text_of: Callable[[int], str]) -> tuple[str, str] | None:
    """What is selected of one row, as Textual asks a widget for it.

    Args:
        selection: made by `select_piece`.
        text_of: the text of a row.
    """
    start, end = selection
    return None if start is None or end is None else (text_of(start.y)[start.x : end.x], "\n")

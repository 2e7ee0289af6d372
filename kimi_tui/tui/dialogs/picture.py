"""A screen that shows one image: by the terminal's own graphics where it has them, else in cells of two colours."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import count
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from rich.segment import Segment
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.strip import Strip
from textual.widget import Widget

from kimi_tui.images import image_tokens
from kimi_tui.tui.faults import reported
from kimi_tui.tui.formatting import cut, size_words, tokens, wrap_words
from kimi_tui.tui.frame import Footer
from kimi_tui.tui.glyphs import glyphs_of
from kimi_tui.tui.pictures import (
    MOST_SIXELS,
    USUAL_CELL,
    CellRow,
    cell_of_terminal,
    cell_rows,
    cell_style,
    draws_cells,
    fitted,
    kitty_forget,
    kitty_picture,
    sixel_picture,
)
from kimi_tui.tui.row_list import Words
from kimi_tui.tui.rows import Line, Span
from kimi_tui.tui.screens import AnswersOnce, sheets

if TYPE_CHECKING:
    from kimi_tui.tool_cards import ImageBlock
    from kimi_tui.tui.terminal_input import Graphics

_numbers = count(4_711)
"""The ids under which the terminal (kitty) stores drawings."""

NO_GRAPHICS = "This terminal cannot show images. Use a terminal with sixel or kitty graphics. If this terminal has 256 colours, set TERM=xterm-256color to see images drawn with characters."
_MARGIN = 2
_LEAST_NAME = 12

Load = Callable[[], Awaitable[bytes | None]]
"""Reads the image; returns None if its file is gone."""


class PictureTerminal(NamedTuple):
    """The terminal's own way of drawing images (kitty, sixel), and the function that draws at a column and row."""

    graphics: Callable[[], Awaitable[Graphics]]
    draw_at: Callable[[int, int, str], None]


class Drawing(NamedTuple):
    """An image drawn for a number of cells.

    Attributes:
        rows: the image as cells; empty if the terminal draws it.
        sequence: the sequence with which the terminal draws it; empty if it is drawn as cells.
        takes_away: the sequence that deletes it in the terminal.
    """

    rows: tuple[CellRow, ...] = ()
    sequence: str = ""
    takes_away: str = ""


def _drawing_of(data: bytes, facts: ImageBlock, size: Size, graphics: Graphics) -> Drawing:
    """Make the drawing of an image for a number of cells. It takes long.

    Raises:
        ValueError: the image cannot be decoded.
    """
    cell = cell_of_terminal()
    if not graphics or (graphics == "sixel" and cell is None):
        columns, rows = fitted(facts.width, facts.height, *size, cell or USUAL_CELL)
        return Drawing(cell_rows(data, columns, rows))
    cell = cell or USUAL_CELL
    columns, rows = fitted(facts.width, facts.height, *size, cell)
    if graphics == "kitty":
        number = next(_numbers)
        return Drawing(
            sequence=kitty_picture(data, number, columns, rows, cell),
            takes_away=kitty_forget(number),
        )
    shrink = (columns * rows * cell.width * cell.height / MOST_SIXELS) ** 0.5
    if shrink > 1:
        columns, rows = max(1, int(columns / shrink)), max(1, int(rows / shrink))
    return Drawing(sequence=sixel_picture(data, columns, rows, cell))


class PictureView(Widget):
    """The widget with the image, as large as its place.

    Args:
        facts: name, size and hash of the image.
        load: reads the image.
        terminal: how the terminal draws images by itself.
    """

    def __init__(self, facts: ImageBlock, load: Load, terminal: PictureTerminal) -> None:
        super().__init__()
        self._facts = facts
        self._load = load
        self._terminal = terminal
        self._words = ""
        self._drawing = Drawing()
        self._is_shown = self._is_due = False

    def on_resize(self) -> None:
        """Draw the image for the new size."""
        self.take_away()
        self.run_worker(reported(self, self._draw), group="picture", exclusive=True)

    async def _draw(self) -> None:
        data = await self._load()
        graphics = await self._terminal.graphics()
        if data is None:
            self._words = "The file of this image no longer exists."
        elif not graphics and not draws_cells(self):
            self._words = NO_GRAPHICS
        else:
            try:
                self._drawing = await asyncio.to_thread(
                    _drawing_of, data, self._facts, self.size, graphics
                )
            except ValueError:
                self._words = "The image is damaged and cannot be shown."
        self.refresh()

    def render_lines(self, crop: Region) -> list[Strip]:
        """Return the rows of a region; images that the terminal draws come after the frame with these rows."""
        is_over_cells = bool(self._drawing.takes_away)
        if self._drawing.sequence and not self._is_due and not (self._is_shown and is_over_cells):
            # A sixel image takes the place of cells, and disappears when these are written.
            self._is_due = True
            self.call_next(self._show)
        return super().render_lines(crop)

    def _show(self) -> None:
        self._is_due, self._is_shown = False, True
        if self._drawing.sequence and self.screen.is_current:
            self._terminal.draw_at(*self.region.offset, self._drawing.sequence)

    def take_away(self) -> None:
        """Make the terminal draw nothing over the cells any more."""
        self._is_shown = False
        if self._drawing.takes_away:
            self._terminal.draw_at(0, 0, self._drawing.takes_away)

    def render_line(self, y: int) -> Strip:
        """Return a row of cells, or of the text that says why there are none."""
        rows, style = self._drawing.rows, self.rich_style
        found = (
            [Segment(span.text, cell_style(span.style)) for span in rows[y]]
            if y < len(rows)
            else []
        )
        if self._words:
            said = wrap_words(self._words, self.size.width)
            found = [Segment(said[y], style)] if y < len(said) else []
        return Strip(found).adjust_cell_length(self.size.width, style)


class PictureScreen(AnswersOnce[None]):
    """Shows an image with its name and size.

    Args:
        facts: name, size and hash of the image.
        load: reads the image.
        terminal: how the terminal draws images by itself.
    """

    CSS_PATH = [*sheets("rows", "picture")]  # noqa: RUF012 - Textual declares it so
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,enter,space,o", "dismiss", "Back", show=False),
    ]

    def __init__(self, facts: ImageBlock, load: Load, terminal: PictureTerminal) -> None:
        super().__init__()
        self._facts = facts
        self._heading = Words()
        self._view = PictureView(facts, load, terminal)

    def compose(self) -> ComposeResult:
        """Return a heading, the picture, the keys."""
        yield self._heading
        yield self._view
        footer = Footer()
        footer.hints = (("Esc", "back"),)
        yield footer

    def on_resize(self) -> None:
        """Fit the heading to the width: the name is shortened before the facts."""
        facts = self._facts
        kind = facts.media_type.rpartition("/")[2].upper()
        more = (
            f"{facts.width}x{facts.height}",
            kind,
            size_words(facts.n_bytes),
            f"{tokens(image_tokens(facts.width, facts.height), estimated=True)} tokens",
        )
        told = "   " + "  ".join(more)
        room = self.size.width - 2 * _MARGIN - len(told)
        name = cut(facts.name or "image", max(_LEAST_NAME, room), glyphs_of(self).cut)
        self._heading.show(Line((Span(name, "strong"), Span(told, "quiet"))))

    def on_screen_suspend(self) -> None:
        """Remove the image from the terminal while another screen covers this one."""
        self._view.take_away()

    def on_screen_resume(self) -> None:
        """Draw the image, at first or again."""
        self._view.refresh()

    def on_unmount(self) -> None:
        """Delete the image in the terminal."""
        self._view.take_away()

    def on_click(self, event: events.Click) -> None:
        """Close the screen."""
        event.stop()
        self.dismiss(None)

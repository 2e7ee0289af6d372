"""The two sides of a comparison, and the files under them, as panes in which a row is selected."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from textual.geometry import Size

from kimi_tui.tui.app_of import app_of
from kimi_tui.tui.compare.drawing import Span
from kimi_tui.tui.compare.files import FileTable
from kimi_tui.tui.compare.grid import Rows
from kimi_tui.tui.compare.model import Comparison, Side
from kimi_tui.tui.compare.sheet import Sheet
from kimi_tui.tui.glyphs import glyphs_of
from kimi_tui.tui.preview.words import fitted

if TYPE_CHECKING:
    from kimi_tui.soul.travel_protocol import LineComparison

SLICE_S = 0.003
"""How long rows are measured before keys and frames get their turn."""
SIDES: tuple[Side, Side] = ("other", "live")


class CompareSides(Rows):
    """The messages of both sides.

    Args:
        comparison: what is compared.

    Attributes:
        side: which side the keys act on.
        focused_here: whether they act here at all.
    """

    def __init__(self, comparison: Comparison) -> None:
        super().__init__()
        self.comparison = comparison
        self.side: Side = "other"
        self.focused_here = True
        # Nothing is chosen at first: a jump then means the whole line.
        self._selected: dict[Side, int] = {"other": -1, "live": -1}
        self._sheet: Sheet | None = None

    @property
    def selected(self) -> int:
        """The index of the selected message on the side that the keys act on; -1 where none is."""
        return self._selected[self.side]

    def on_resize(self) -> None:
        """Other widths have other rows."""
        if self._sheet is None or self._sheet.width != self.column_width():
            self.lay_out()

    def column_width(self) -> int:
        """How wide each side is."""
        return (self.width - 1) // 2

    def lay_out(self) -> None:
        """Measure the rows anew, in slices: a key must not wait for a long conversation."""
        sheet = self.comparison.sheet(self.column_width(), glyphs_of(app_of(self)), self._sheet)
        self.run_worker(self._measured(sheet), group="measure", exclusive=True)

    async def _measured(self, sheet: Sheet) -> None:
        old, selected = self._sheet, self.selected
        top = round(self.scroll_y)
        until = time.perf_counter() + SLICE_S
        for _ in sheet.measure():
            if time.perf_counter() >= until:
                # What stood there stays until as much of the new one is known.
                if self._sheet is sheet or old is None or sheet.height >= top + self.size.height:
                    self._show(sheet)
                await asyncio.sleep(0)
                until = time.perf_counter() + SLICE_S
        self._show(sheet)
        if selected >= 0:
            # Of another width, or unfolded just now: it would reach beyond the edge.
            self.select(selected)

    def _show(self, sheet: Sheet) -> None:
        self._sheet = sheet
        if self.virtual_size.height != sheet.height:
            self.virtual_size = Size(self.size.width, sheet.height)
        self.refresh()

    def select(self, index: int) -> None:
        """Select a message of the side, as far as they are measured."""
        sheet = self._sheet
        if sheet is not None and (starts := sheet.starts[self.side]):
            index = max(0, min(index, len(starts) - 1))
            self._selected[self.side] = index
            first = starts[index]
            last = sheet.last_row(self.side, index)
            self.show_rows(first, min(last, first + max(0, self.size.height - 1)))
        self.refresh()

    def toggle(self) -> None:
        """Show the selected message whole, or short again."""
        key: tuple[Side, int] = (self.side, self.selected)
        if self._sheet is None or key[1] < 0:
            return
        self.comparison.unfolded.symmetric_difference_update([key])
        self._sheet.heights.pop(key, None)
        self.lay_out()

    def choose_at(self, x: int, row: int) -> None:
        """Select what was clicked."""
        self.side = SIDES[x > self.column_width()]
        if self._sheet is not None and 0 <= row < self._sheet.height:
            index = self._sheet.cell(self.side, row).entry
            if index >= 0:
                self._selected[self.side] = index
        self.refresh()

    def spans_of(self, row: int) -> list[tuple[Span, str]]:
        """Both sides and the divider."""
        sheet = self._sheet
        if sheet is None:
            return []
        width = sheet.width
        glyphs = glyphs_of(app_of(self))
        return [
            *self._cell("other", sheet, row, width, glyphs.edge),
            ((glyphs.step, "line"), "page"),
            *self._cell("live", sheet, row, self.width - width - 1, glyphs.edge),
        ]

    def spans_below(self) -> list[tuple[Span, str]]:
        """The divider goes down to the end of the pane."""
        return [
            ((" " * self.column_width(), "ink"), "page"),
            ((glyphs_of(app_of(self)).step, "line"), "page"),
        ]

    def _cell(
        self, side: Side, sheet: Sheet, row: int, width: int, edge: str
    ) -> Iterable[tuple[Span, str]]:
        cell = sheet.cell(side, row)
        ground = "band" if cell.is_band else "page"
        spans = fitted(list(cell.spans), width)
        is_selected = 0 <= cell.entry == self._selected[side]
        if is_selected and side == self.side:
            ground = "select" if self.focused_here else "band"
            first, *rest = spans
            mark: Span = (edge, "accent" if self.focused_here else "quiet")
            spans = [mark, (first[0][1:], first[1]), *rest]
        return [(span, ground) for span in spans]


class CompareFiles(Rows):
    """What became of the files on both sides.

    Args:
        found: the comparison.
    """

    def __init__(self, found: LineComparison) -> None:
        super().__init__()
        self._found = found
        self._files = found.files
        self._unfolded: frozenset[int] = frozenset()
        self._rows: list[tuple[list[Span], int]] = []
        self.selected = 0
        self.focused_here = False

    @property
    def count(self) -> int:
        """How many files there are."""
        return len(self._files.files) if not self._files.reason else 0

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """As many rows as there are."""
        self._make()
        return len(self._rows)

    def _make(self) -> None:
        self._rows = self.table(self.width).rows(self._unfolded)

    def table(self, width: int) -> FileTable:
        """The columns for a width."""
        found = self._found
        glyphs = glyphs_of(app_of(self))
        return FileTable(self._files, found.world_line, found.fork, width, glyphs)

    def on_resize(self) -> None:
        """Other widths have other rows."""
        self.lay_out()

    def lay_out(self) -> None:
        """Make the rows anew."""
        self._make()
        self.virtual_size = Size(self.size.width, len(self._rows))
        self.refresh()

    def select(self, index: int) -> None:
        """Select a file."""
        self.selected = max(0, min(index, self.count - 1))
        row = next((i for i, (_, at) in enumerate(self._rows) if at == self.selected), 0)
        self.show_rows(row, row)
        self.refresh()

    def toggle(self) -> None:
        """Show the diff of the selected file, or hide it."""
        self._unfolded ^= {self.selected}
        self.set_class(bool(self._unfolded), "-open")
        self.lay_out()
        self.refresh(layout=True)

    def choose_at(self, row: int) -> None:
        """Select what was clicked, and show its diff."""
        if 0 <= row < len(self._rows) and self._rows[row][1] >= 0:
            self.selected = self._rows[row][1]
            self.toggle()

    def spans_of(self, row: int) -> list[tuple[Span, str]]:
        """One row."""
        spans, index = self._rows[row]
        if index != self.selected or index < 0 or not self.focused_here:
            return [(span, "page") for span in spans]
        edge: Span = (glyphs_of(app_of(self)).edge, "accent")
        first, *rest = fitted(spans, self.width)
        return [(span, "select") for span in (edge, (first[0][1:], first[1]), *rest)]

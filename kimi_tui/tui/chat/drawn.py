"""What a pane of rows looks like and what the pointer meets there: strips, hover, the selection of text.

Textual's costs decide its shape: strips are cached and handed out as they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.geometry import Offset, Region
from textual.selection import Selection
from textual.strip import Strip

from kimi_tui.tui.chat.lines import BLANK, Line, Span, hit_at
from kimi_tui.tui.chat.painting import Painter
from kimi_tui.tui.chat.palette import CLASSES
from kimi_tui.tui.chat.surface import Surface
from kimi_tui.tui.numbers import grouped

if TYPE_CHECKING:
    from kimi_tui.tui.chat.flow import View


class DrawnSurface(Surface):
    """Rows of a flow in their colours."""

    COMPONENT_CLASSES: ClassVar[set[str]] = set(CLASSES)

    def __init__(self, *, widget_id: str | None = None, classes: str | None = None) -> None:
        super().__init__(widget_id=widget_id, classes=classes)
        self._painter = Painter(self.get_component_rich_style, self.get_line_filters)
        self._behind = False

    @property
    def behind(self) -> bool:
        """Whether something floats above it, so that it recedes."""
        return self._behind

    @behind.setter
    def behind(self, behind: bool) -> None:
        if behind != self._behind:
            self._behind = behind
            self.refresh()

    # --- what others fill in

    def covering(self, row: int) -> Line | None:
        """What stands in front of a row of the content for a moment, if anything."""
        del row
        return None

    def empty_rows(self) -> list[Line]:
        """The rows of the pane while there is no content."""
        return []

    # --- painting

    def render_lines(self, crop: Region) -> list[Strip]:
        """The visible rows of a region.

        Goes round Textual's style cache, which would make a new strip of every row at each refresh; so the painter
        fills backgrounds and applies the line filters.
        """
        painter = self._painter
        width = self.outer_size.width
        if painter.width != width:
            painter.resize(width)
            if self._flow is not None:
                self._flow.repaint()
        top = self.top
        strips = [self._strip(top, y) for y in range(crop.y, crop.bottom)]
        if self._behind:
            strips = [painter.receded(strip) for strip in strips]
        if crop.x == 0 and crop.width >= width:
            return strips
        return [strip.crop(crop.x, crop.right) for strip in strips]

    def _strip(self, top: int, y: int) -> Strip:
        painter = self._painter
        flow = self._flow
        if flow is None or not flow.views:
            rows = self.empty_rows()
            return painter.paint(rows[y]) if 0 <= y < len(rows) else painter.blank()
        row = top + y
        cover = self.covering(row)
        if cover is not None:
            return painter.paint(cover)
        view, index, line = flow.line(row)
        if view is None or index < 0:
            strip = painter.blank()
        else:
            strip = self._block_strip(view, index, line, row)
        selection = self.text_selection
        if selection is not None and (span := selection.get_span(row)) is not None:
            style = self.screen.get_component_rich_style("screen--selection")
            strip = painter.selected(strip, *span, style)
        if y == self.size.height - 1 and (mark := self.new_mark()) is not None:
            strip = painter.with_mark(strip, mark)
        return strip

    def _block_strip(self, view: View, index: int, line: Line, row: int) -> Strip:
        if view.block.key == self._current and index == view.block.title_row:
            return self._painter.current(line, focused=self.has_focus, edge=self.glyphs.edge)
        if row == self._hovered:
            return self._painter.hovered(line)
        return self._painter.view_strip(view, index)

    def new_mark(self) -> Line | None:
        """How many rows came below since the person scrolled up."""
        if self._follow or self._flow is None:
            return None
        count = self._flow.height - self._left_height
        if count <= 0:
            return None
        return Line((Span(f"  {self.glyphs.down} {grouped(count)} new  ", "accent"),))

    def refresh_from(self, first: int) -> None:
        """Ask for the visible rows from the first one of a block on that has no strip yet."""
        flow = self._flow
        if flow is None:
            return
        top, height = self.top, self.size.height
        row = max(top, flow.start(min(first, len(flow.views))))
        while row < min(top + height, flow.height):
            view, index, _ = flow.line(row)
            if view is None or index < 0 or view.strips[index] is None:
                break
            row += 1
        row = min(row, top + height - 1)
        self.refresh(Region(0, row - top, self.outer_size.width, height - (row - top)))

    def notify_style_update(self) -> None:
        """Colours may have changed."""
        super().notify_style_update()
        self._painter.reset()
        if self._flow is not None:
            self._flow.repaint()

    # --- pointer and selection

    def hit(self, x: int, y: int) -> str:
        """What a click in a cell would do; empty for nothing."""
        if self._flow is None or self.covering(self.top + y) is not None:
            return ""
        _, _, line = self._flow.line(self.top + y)
        return hit_at(line, x) if line is not BLANK else ""

    def hover(self, row: int | None) -> None:
        """The pointer is over a row that a click would act on (None: over none)."""
        if row == self._hovered:
            return
        for changed in (self._hovered, row):
            if changed is not None:
                self.refresh(Region(0, changed - self.top, self.outer_size.width, 1))
        self._hovered = row

    def render_line(self, y: int) -> Strip:
        """One row with its place in the text, for the selection of text by mouse."""
        top = self.top
        strip = self._strip(top, y)
        has_text = self._flow is not None and bool(self._flow.views)
        return strip.apply_offsets(0, top + y) if has_text else strip

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """The selected text, without margins and with wrapped rows joined."""
        from kimi_tui.tui.chat.copying import copied

        flow = self._flow
        if flow is None or not flow.views:
            return None
        row = selection.start.y if selection.start is not None else 0
        rows: list[tuple[Line, int, int | None]] = []
        while row < flow.height and (selection.end is None or row <= selection.end.y):
            # Laying a row out may change the height, so it is asked for each time.
            _, _, line = flow.line(row)
            start, end = selection.get_span(row) or (0, 0)
            rows.append((line, start, None if end < 0 else end))
            row += 1
        return copied(rows), "\n"

    def move_selection(self, rows: int) -> None:
        """What is selected stands so many rows further down now."""
        selection = self.text_selection
        if selection is None or not rows:
            return
        ends = (end and Offset(end.x, end.y + rows) for end in selection)
        self.screen.selections = {**self.screen.selections, self: Selection(*ends)}

    def selection_updated(self, selection: Selection | None) -> None:
        """Paint the selection."""
        self.refresh(self.area)

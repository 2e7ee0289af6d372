"""A scrollable pane of rows: draws what is visible from a `Flow`, follows its end, lets text be selected.

Knows nothing of events. Textual's costs decide its shape: strips are cached and handed out as they are, and the height
of the content changes without a layout of the screen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, cast

from textual.geometry import Region, Size
from textual.reactive import Reactive
from textual.scroll_view import ScrollView
from textual.selection import Selection
from textual.strip import Strip

from kimi_tui.tui.app_of import app_of
from kimi_tui.tui.chat.lines import BLANK, Line, Span, hit_at
from kimi_tui.tui.chat.painting import Painter
from kimi_tui.tui.chat.palette import CLASSES
from kimi_tui.tui.glyphs import Glyphs, glyphs_of
from kimi_tui.tui.numbers import grouped
from kimi_tui.tui.scrollbar import use_thin_scrollbar

if TYPE_CHECKING:
    from collections.abc import Callable

    from textual._types import AnimationLevel, CallbackType

    from kimi_tui.tui.chat.flow import Flow, View
    from kimi_tui.tui.chat.rows import Room

LOW_ROWS = 30
LOWEST_ROWS = 24


class Surface(ScrollView, can_focus=True):
    """Rows of a flow. Those who fill it call `settle` after a change of its blocks, then refresh."""

    COMPONENT_CLASSES: ClassVar[set[str]] = set(CLASSES)

    def __init__(self, *, widget_id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=widget_id, classes=classes)
        self._flow: Flow | None = None
        self._painter = Painter(self.get_component_rich_style, self.get_line_filters)
        self._room_used: Room | None = None
        self._follow = True
        self._left_height = 0
        self._placing = False
        self._hovered: int | None = None
        self._current: int | None = None
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

    # --- sizes

    @property
    def glyphs(self) -> Glyphs:
        """The signs in use."""
        return glyphs_of(app_of(self)) if self.is_attached else Glyphs()

    @property
    def pane_width(self) -> int:
        """Its whole width; the scrollbar stands on the last column."""
        return self.outer_size.width or 80

    @property
    def area(self) -> Region:
        """All that is visible."""
        return Region(0, 0, self.outer_size.width, self.size.height)

    @property
    def top(self) -> int:
        """The first visible row of the content."""
        return round(self.scroll_y)

    @property
    def is_ready(self) -> bool:
        """Whether it has a place on the screen."""
        return self.is_attached and bool(self.size)

    def room(self) -> Room:
        """What layouts are made for now."""
        from kimi_tui.tui.chat.rows import Room

        rows = app_of(self).size.height if self.is_attached else LOW_ROWS
        return Room(self.pane_width, rows < LOW_ROWS, rows < LOWEST_ROWS, self.glyphs)

    def on_mount(self) -> None:
        """Take the thin scrollbar."""
        use_thin_scrollbar(self, self.glyphs)

    def resized(self) -> None:
        """Another size: all rows anew where the width changed, with the same row at the top."""
        flow = self._flow
        if flow is None:
            self.refresh()
            return
        room = self.room()
        if room != self._room_used:
            self._room_used = room
            index, offset = flow.find(self.top)
            share = offset / max(1, flow.views[index].rows) if flow.views else 0.0
            flow.resize(room)
            if flow.views and not self._follow:
                flow.ensure(index)
                self._place(flow.height, flow.start(index) + round(share * flow.views[index].rows))
        self.settle()
        self.refresh()

    # --- position

    def settle(self, anchor: int | None = None) -> None:
        """Lay out what is visible; what moves because of it moves out of sight.

        Args:
            anchor: the row that stays where it is seen; the first visible one if it is not given.
        """
        flow = self._flow
        if flow is None or not self.is_ready:
            return
        height = self.size.height
        top = max(0, flow.height - height) if self._follow else self.top
        anchor = top if anchor is None else anchor
        done: set[View] = set()
        while flow.views:
            low, _ = flow.find(top)
            high, _ = flow.find(max(top, top + height - 1))
            shift = 0
            moved = False
            for index in range(high, low - 1, -1):
                # Once each: a growing answer is laid out a slice at a time.
                view = flow.views[index]
                if view in done:
                    continue
                done.add(view)
                start = flow.start(index)
                change = flow.ensure(index)
                if change:
                    moved = True
                    shift += change if start < anchor else 0
            if not moved:
                break
            anchor += shift
            top = max(0, flow.height - height) if self._follow else max(0, top + shift)
        top = min(top, max(0, flow.height - height))
        self._place(flow.height, top)
        flow.evict(top, top + height)

    def _place(self, height: int, top: int) -> None:
        """Set the height of the content and the first visible row, without a layout of the screen."""
        self._placing = True
        try:
            if height != self.virtual_size.height:
                size = Size(self.size.width, height)
                self.set_reactive(cast("Reactive[Size]", ScrollView.virtual_size), size)
                self._scroll_update(size)
            if top != self.scroll_y:
                self.set_reactive(ScrollView.scroll_y, float(top))
                self.set_reactive(cast("Reactive[float]", ScrollView.scroll_target_y), float(top))
                if self.show_vertical_scrollbar:
                    self.vertical_scrollbar.position = top
        finally:
            self._placing = False

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """The person scrolled: follow the end only from the end."""
        super().watch_scroll_y(old_value, new_value)
        if self._placing or self._flow is None:
            return
        follow = new_value >= self.max_scroll_y
        if self._follow and not follow:
            self._left_height = self._flow.height
        self._follow = follow
        self._hovered = None
        before = self._flow.height
        # Scrolling up lays out blocks above what was seen: that moves down by as much as was asked for.
        self.settle(round(old_value) if 0 < new_value < old_value else None)
        # What was only estimated before is not new.
        self._left_height += self._flow.height - before

    def scroll_to(
        self,
        x: float | None = None,
        y: float | None = None,
        *,
        animate: bool = True,
        speed: float | None = None,
        duration: float | None = None,
        easing: Callable[[float], float] | str | None = None,
        force: bool = False,
        on_complete: CallbackType | None = None,
        level: AnimationLevel = "basic",
        immediate: bool = False,
    ) -> None:
        """Scroll at once: panes do not slide here."""
        super().scroll_to(
            x, y, animate=False, force=force, on_complete=on_complete, level=level, immediate=True
        )

    def show_row(self, row: int) -> None:
        """Bring a row of the content to the top, as far as there is enough below it."""
        flow = self._flow
        if flow is None or not self.is_ready:
            return
        self.hold()
        self._place(flow.height, max(0, min(row, flow.height - self.size.height)))
        self.settle()
        self._follow = self.scroll_y >= self.max_scroll_y
        self.refresh(self.area)

    def scroll_to_end(self) -> None:
        """Go to the newest row and follow it."""
        self._follow = True
        self.settle()
        self.refresh(self.area)

    def hold(self) -> None:
        """Follow the end no longer."""
        if self._follow and self._flow is not None:
            self._follow = False
            self._left_height = self._flow.height

    def action_scroll_end(self) -> None:
        """Go to the newest row and follow it."""
        self.scroll_to_end()

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

    def selection_updated(self, selection: Selection | None) -> None:
        """Paint the selection."""
        self.refresh(self.area)

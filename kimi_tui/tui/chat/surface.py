"""A scrollable pane of rows: where they stand, which of them are visible, and how the end is followed.

Knows nothing of events and draws nothing. The height of the content changes without a layout of the screen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from textual.geometry import Region, Size
from textual.reactive import Reactive
from textual.scroll_view import ScrollView

from kimi_tui.tui.app_of import app_of
from kimi_tui.tui.glyphs import Glyphs, glyphs_of
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

    def __init__(self, *, widget_id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=widget_id, classes=classes)
        self._flow: Flow | None = None
        self._room_used: Room | None = None
        self._follow = True
        self._left_height = 0
        self._placing = False
        self._hovered: int | None = None
        self._current: int | None = None

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
    def follows(self) -> bool:
        """Whether its end is on view, and stays so."""
        return self._follow

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
        before = flow.height
        if room != self._room_used:
            self._room_used = room
            index, offset = flow.find(self.top)
            share = offset / max(1, flow.views[index].rows) if flow.views else 0.0
            flow.resize(room)
            if flow.views and not self._follow:
                flow.ensure(index)
                self._place(flow.height, flow.start(index) + round(share * flow.views[index].rows))
        self.settle()
        # What only takes more rows now is not new.
        self._left_height += flow.height - before
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
        before = flow.height
        self._place(flow.height, max(0, min(row, flow.height - self.size.height)))
        self.settle()
        self._left_height += flow.height - before
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

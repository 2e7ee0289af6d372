"""The timeline with a selected row: moving it, keeping it in view, and typing a filter over what can be selected.

Which keys and clicks do what with the row is the widget's business.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Literal

from textual import events
from textual.message import Message

from kimi_tui.foreign_text import one_line
from kimi_tui.tui.timeline.building import Row
from kimi_tui.tui.timeline.canvas import Canvas
from kimi_tui.tui.timeline.points import Key, Point

if TYPE_CHECKING:
    from textual.worker import Worker

    from kimi_tui.tui.timeline.model import TimelineModel

FilterState = Literal["", "typed", "kept"]
NEEDLE_LIMIT = 200
"""Characters that are taken of what is pasted into the filter."""
_SLICE_S = 0.002
_BETWEEN = 100
"""Checkpoints that are looked at between two looks at the clock."""
_AT_ONCE = 500
"""Checkpoints that are looked at before anyone else may do something: most sessions have no more."""


class SelectingCanvas(Canvas):
    """A timeline of which one row may be selected."""

    class Highlighted(Message):
        """Another row is selected (or none); `uid` names its checkpoint where it is one."""

        def __init__(self, timeline: SelectingCanvas, key: Key | None, uid: str) -> None:
            super().__init__()
            self.timeline = timeline
            self.key = key
            self.uid = uid

    class FilterChanged(Message):
        """A filter is typed, stands, or is gone: the keys mean other things now."""

    _searching: Worker[None] | None = None
    _settling: Worker[None] | None = None

    def changed(self, *, motion: bool = True) -> None:
        """The model took in events: show them; where another line is live, when its rows stand.

        Args:
            motion: a fold may be shown in motion; false while a history is read.
        """
        if self._settling is not None:
            self._settling.cancel()
            self._settling = None
        model = self._state.model
        if model is not None and model.rows.n_missing > _AT_ONCE and self.is_running:
            # A long line may take longer than a key should have to wait.
            self._settling = self.run_worker(partial(self._settle, model, motion), group="settle")
            return
        self._show_changed(motion=motion)

    async def _settle(self, model: TimelineModel, motion: bool) -> None:
        await _in_slices(model.rows.settle())
        self._settling = None
        if model is self._state.model:
            self._show_changed(motion=motion)

    def _show_changed(self, *, motion: bool) -> None:
        super().changed(motion=motion)
        if self._state.selected is not None and self._state.selected_position() is None:
            # It went with what was taken away. Looking for it at every frame would take long.
            self.select(None)

    def on_focus(self) -> None:
        """The keys need something that is selected."""
        self._measure()
        if self._state.selected is None and not self._state.is_empty:
            self.action_move(0)
        self.refresh()

    def on_blur(self) -> None:
        """The selected row loses the accent."""
        self._state.show_keys = False
        self.refresh()

    def select(self, key: Key | None) -> None:
        """Select a row and bring it into view; None selects nothing."""
        self._measure()
        state = self._state
        if state.listing is None:
            return
        position = state.listing.position(key, state.hint)
        key = key if position is not None else None
        if key != state.selected:
            state.selected = key
            self._fit()
            row = state.listing.row(position) if position is not None else None
            uid = row.point.uid if row is not None and row.point is not None else ""
            self.post_message(self.Highlighted(self, key, uid))
        if position is not None:
            state.hint = state.listing.from_oldest(position)
            y = state.scroll_to_show(position)
            if y != state.scroll_y:
                self.scroll_to(y=y, animate=False)
        self.refresh()

    def select_point(self, point: Point) -> None:
        """Select a checkpoint of the live line, or the turn that it is folded into."""
        listing = self._state.listing
        position = listing.position_of_point(point) if listing is not None else None
        if listing is not None and position is not None:
            self.select(listing.key(position))

    def show_whole(self, model: TimelineModel) -> None:
        """Show the session of which only the end was shown so far; what is selected stays."""
        row, top = self._selected_row(), self.scroll_offset.y
        filtering = self._state.filtering
        self.model = model
        self._state.filtering = filtering
        # The newest is at the top: what is new to the screen is below.
        self.scroll_to(y=top, animate=False)
        if row is None:
            return
        if row.point is None or row.line is not None:
            self.select(row.key)
        elif (index := model.tree.find(row.point.uid, row.point.id)) is not None:
            self.select_point(model.tree.live[index])

    def _selected_row(self) -> Row | None:
        listing = self._state.listing
        position = self._state.selected_position()
        return listing.row(position) if listing is not None and position is not None else None

    def action_move(self, step: int) -> None:
        """Select the row above or below; the newest turn where nothing is selected."""
        position = self._state.selected_position()
        if position is None:
            start = self._state.start_position()
            self.select(self._state.near(start, 1) if start is not None else None)
        else:
            self.select(self._state.near(position + step, step))

    def action_page(self, step: int) -> None:
        """Go a page up or down."""
        position = self._state.selected_position() or 0
        page = max(1, self._state.list_height - 2)
        self.select(self._state.near(position + step * page, step))

    def action_edge(self, step: int) -> None:
        """Go to now, or to the beginning."""
        listing = self._state.listing
        if listing is not None:
            self.select(self._state.near(len(listing) - 1 if step > 0 else 0, -step))

    def action_turn(self, step: int) -> None:
        """Go to the turn above or below."""
        listing = self._state.listing
        position = self._state.selected_position()
        if listing is None:
            return
        found = listing.turn(-1 if position is None else position, step)
        if found is not None:
            self.select(listing.key(found))

    # Filtering

    @property
    def filter_state(self) -> FilterState:
        """Whether a filter is being typed, or stands."""
        state = self._state
        return "typed" if state.filtering else "kept" if state.is_filtered else ""

    def action_filter(self) -> None:
        """Begin to type a filter."""
        if self._state.model is not None:
            self._state.filtering = True
            self._fit(is_new_list=True)
            self.refresh()
            self.post_message(self.FilterChanged())

    def _end_filter(self, needle: str) -> None:
        self._state.filtering = False
        self._set_filter(needle)
        self.post_message(self.FilterChanged())

    def _begins_filter(self, key: str) -> bool:
        """Whether the key begins a filter.

        Textual runs the bindings when the key has gone up to the app; what was typed in the same moment is here by
        then, and would go past the filter.
        """
        found = self.screen.active_bindings.get(key)
        return found is not None and found.node is self and found.binding.action == "filter"

    def on_paste(self, event: events.Paste) -> None:
        """What is pasted while a filter is typed belongs to it."""
        model = self._state.model
        if self._state.filtering and model is not None:
            event.stop()
            self._set_filter(model.rows.typed + one_line(event.text)[:NEEDLE_LIMIT])

    def _set_filter(self, needle: str) -> None:
        """Show what holds the text; a long session is looked through in slices, so that no key has to wait for it."""
        model = self._state.model
        if model is None:
            return
        if self._searching is not None:
            self._searching.cancel()
        steps = model.search(needle)
        if _went_on(steps, at_least=_AT_ONCE):
            self._searching = self.run_worker(partial(self._search, model, steps), group="search")
            self.refresh()
        else:
            self._show_found()

    async def _search(self, model: TimelineModel, steps: Iterator[None]) -> None:
        await _in_slices(steps)
        if model is self._state.model:
            self._show_found()

    def _show_found(self) -> None:
        state = self._state
        self._fit(is_new_list=True)
        if state.selected_position() is None:
            state.selected = None
            self.select(state.near(0, 1))
        else:
            self.select(state.selected)

    def _filter_key(self, event: events.Key, needle: str) -> bool:
        if event.key == "escape":
            self._end_filter("")
        elif event.key in ("enter", "up", "down"):
            self._end_filter(needle)
        elif event.key == "backspace":
            self._set_filter(needle[:-1])
        elif event.key == "ctrl+u":
            self._set_filter("")
        elif event.is_printable and event.character is not None:
            self._set_filter(needle + event.character)
        else:
            return False
        return True


async def _in_slices(steps: Iterator[None]) -> None:
    """Take all steps, and let others run before, in between, and before what is done with the result."""
    is_pending = True
    while is_pending:
        await asyncio.sleep(0)
        is_pending = _went_on(steps)
    await asyncio.sleep(0)


def _went_on(steps: Iterator[None], at_least: int = _BETWEEN) -> bool:
    """Take steps for a few milliseconds; whether there are more."""
    until = time.perf_counter() + _SLICE_S
    wanted = at_least
    while sum(1 for _ in islice(steps, wanted)) == wanted:
        if time.perf_counter() > until:
            return True
        wanted = _BETWEEN
    return False

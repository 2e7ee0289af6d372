"""Whoever lets an app of a test draw sees all of it drawn, however busy the machine is, and nobody pays for what is not seen."""

from __future__ import annotations

import asyncio
import functools
from typing import Any

from textual._compositor import Compositor
from textual._context import visible_screen_stack
from textual.app import App, ScreenStackError
from textual.geometry import Region
from textual.pilot import Pilot
from textual.screen import Screen

N_ROUNDS = 200
"""What still changes after so many is something that moves, as a blinking cursor."""


def wait_for_it() -> None:
    """Begin: `Pilot.pause()` ends when no widget has a message and the screen has nothing left to lay out or to draw.

    By itself it waits until the process seems to be idle, which it also seems to be while others have the processor, and
    draws once. What a layout brings about (a size, hence a scroll bar, hence another layout) is only drawn later. Nothing is
    drawn while a widget has a message, as the program's own timer does not: its tasks go first in each turn of the loop.
    """
    pause = Pilot.pause

    @functools.wraps(pause)
    async def paused(self: Pilot[Any], delay: float | None = None) -> None:
        await pause(self, delay)
        n_quiet = 0
        for _ in range(N_ROUNDS):
            if (screen := _screen(self.app)) is None:
                return
            if _has_messages(screen):
                n_quiet = 0
            elif _is_to_be_drawn(screen):
                n_quiet = 0
                screen._on_timer_update()
            else:
                n_quiet += 1
                if n_quiet > 1:
                    return
            await asyncio.sleep(0)

    Pilot.pause = paused


def write_nothing() -> None:
    """Begin: every widget draws its rows as ever, but they are cut and joined to an update only for a picture.

    An app without a terminal throws each update away. Putting them together was a good part of the work of these tests.
    """
    update = Compositor.render_update

    @functools.wraps(update)
    def drawn(self: Compositor, full: bool = False, screen_stack: Any = None, **named: Any) -> Any:
        if full:
            return update(self, full, screen_stack, **named)
        visible_screen_stack.set(screen_stack or [])
        if self._dirty_regions:
            crop = Region.from_union(self._dirty_regions).intersection(self.size.region)
            self._dirty_regions.clear()
            for _ in self._get_renders(crop):
                pass
        return None

    Compositor.render_update = drawn  # pyright: ignore[reportAttributeAccessIssue]


def _screen(app: App[Any]) -> Screen[Any] | None:
    try:
        return app.screen
    except ScreenStackError:
        return None


def _has_messages(screen: Screen[Any]) -> bool:
    pumps = (screen.app, screen, *screen.walk_children())
    return any(pump.message_queue_size for pump in pumps)


def _is_to_be_drawn(screen: Screen[Any]) -> bool:
    pending = (
        screen._layout_required,
        screen._scroll_required,
        screen._repaint_required,
        screen._dirty_widgets,
        screen._callbacks,
    )
    return any(pending)

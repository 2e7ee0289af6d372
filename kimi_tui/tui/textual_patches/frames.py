"""Replaces the timer with which a Textual screen draws its frames.

Textual's timer is a task that wakes once more after each frame, to find that there is nothing to draw.
"""

# pyright: reportPrivateUsage=false

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from textual.screen import UPDATE_PERIOD, Screen
from textual.timer import Timer

if TYPE_CHECKING:
    from textual.app import App


CallAt = Callable[[float, Callable[[], None]], asyncio.Handle]
"""Calls a function when the clock of the event loop shows a time in seconds, and reports what it raises: `Callbacks.call_at`."""


class FrameTimer:
    """Draws a frame of a screen when one is wanted, at most once in a period; it does nothing between.

    Args:
        screen: the screen, which need not run yet.
        call_at: calls the function that draws.
        period_s: the least time between two frames, in seconds.
    """

    def __init__(
        self, screen: Screen[Any], call_at: CallAt, period_s: float = UPDATE_PERIOD
    ) -> None:
        self._screen, self._call_at, self._period_s = screen, call_at, period_s
        self._handle: asyncio.Handle | None = None
        self._next_at = 0.0

    def resume(self) -> None:
        """Draw a frame as soon as the period since the last one is over: mostly in the next turn of the event loop."""
        if self._handle is None:
            self._handle = self._call_at(self._next_at, self._draw)

    def pause(self) -> None:
        """Draw no frame until the next `resume`."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _draw(self) -> None:
        self._handle = None
        screen = self._screen
        if not screen.is_running:
            return
        self._next_at = asyncio.get_running_loop().time() + self._period_s
        if not cast("App[object]", screen.app)._exit:
            screen._on_timer_update()


def draw_when_wanted(screen: Screen[Any], call_at: CallAt) -> None:
    """Use a `FrameTimer` for a screen that was not shown yet."""
    timer = FrameTimer(screen, call_at)
    screen._Screen__update_timer = cast("Timer", timer)  # pyright: ignore[reportAttributeAccessIssue]

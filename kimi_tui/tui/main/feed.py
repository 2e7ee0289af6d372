"""Brings the wire's events to the screen: at most sixty times a second, in slices that never hold up a key."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kimi_tui.wire.events import Record
    from kimi_tui.wire.queue import Subscription, Wire

FRAME_S = 1 / 60
SLICE_S = 0.004
CHUNK = 32


class Feed:
    """Listens to one wire. The first event after a pause is shown at once, what follows once a frame.

    Args:
        show: takes the records of a slice; called on the event loop.
        caught_up: called once, when the history has been shown.
    """

    def __init__(
        self, show: Callable[[Sequence[Record]], None], caught_up: Callable[[], None]
    ) -> None:
        self._show = show
        self._caught_up = caught_up
        self._wire: Wire | None = None
        self._subscription: Subscription | None = None
        self._waiting: list[Record] = []
        self._history_end = 0
        self._in_history = False
        self._drawn_at = 0.0
        self._handle: asyncio.Handle | None = None

    def follow(self, wire: Wire, history: Sequence[Record]) -> None:
        """Show `history`, then what the wire tells from now on."""
        self.stop()
        self._wire = wire
        self._in_history = True
        self._history_end = history[-1].seq if history else 0
        self._subscription = wire.subscribe(history, self._wake)
        # The wire wakes only for what it tells itself; the history, or that there is none, is up to us.
        self._schedule(0.0)

    def stop(self) -> None:
        """Listen no more."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        if self._wire is not None and self._subscription is not None:
            self._wire.unsubscribe(self._subscription)
        self._wire = self._subscription = None
        self._waiting = []

    def _wake(self) -> None:
        self._schedule(max(0.0, self._drawn_at + FRAME_S - time.monotonic()))

    def _schedule(self, delay_s: float) -> None:
        if self._handle is None:
            self._handle = asyncio.get_running_loop().call_later(delay_s, self._draw)

    def _draw(self) -> None:
        self._handle = None
        if self._subscription is None:
            return
        self._waiting += self._subscription.drain()
        started = time.monotonic()
        shown = 0
        while shown < len(self._waiting) and time.monotonic() - started < SLICE_S:
            self._show(self._waiting[shown : shown + CHUNK])
            shown += CHUNK
        last = self._waiting[min(shown, len(self._waiting)) - 1].seq if self._waiting else 0
        del self._waiting[:shown]
        self._drawn_at = time.monotonic()
        if self._in_history and (last >= self._history_end or not self._waiting):
            self._in_history = False
            self._caught_up()
        if self._waiting:
            self._schedule(0.0)

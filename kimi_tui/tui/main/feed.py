"""Drains the wire's event queue into the views, at most sixty times a second and in time slices that delay no key.

Events within a few milliseconds of the first one after a pause are drawn in one frame, as the beginnings of a turn and of its
first step are. Status figures alone wait for the next event. The end of a turn is drawn at once, with all before it.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from kimi_tui.own_process import COLLECTOR
from kimi_tui.tui.faults import Callbacks, Report
from kimi_tui.tui.slices import run_until

if TYPE_CHECKING:
    import asyncio

    from kimi_tui.wire.events import Event, EventRecord
    from kimi_tui.wire.queue import Subscription, Wire

FRAME_S = 1 / 60
GATHERED_S = 0.008
FIGURES_S = 0.05
"""Seconds that status figures wait: the end of a turn follows them when the answer is on the disk."""
SLICE_S = 0.004
HISTORY_SLICE_S = 0.0015
"""Seconds of a slice of a long history; a key takes several turns of the event loop, each of which waits for one slice."""
CHUNK = 32


def _raise(error: Exception) -> None:
    raise error


class Feed:
    """Drains the event queue of one wire once a frame and passes the records on in short slices.

    Args:
        show: draws the records of a slice; called on the event loop.
        caught_up: called once, when the history has been shown.
        settle: an iterator over what remains to be done before `caught_up`, in small steps.
        report: called with an exception that one of these raises; the feed goes on.
    """

    def __init__(
        self,
        show: Callable[[Sequence[EventRecord]], None],
        caught_up: Callable[[], None],
        settle: Callable[[], Iterator[None]] = lambda: iter(()),
        report: Report = _raise,
    ) -> None:
        self._show = show
        self._caught_up = caught_up
        self._settle = settle
        self._report = report
        self._callbacks = Callbacks(report)
        self._settling: Iterator[None] | None = None
        self._wire: Wire | None = None
        self._subscription: Subscription | None = None
        self._waiting: deque[EventRecord] = deque()
        self._history_left = 0
        self._in_history = False
        self._drawn_at = 0.0
        self._due = 0.0
        self._handle: asyncio.Handle | None = None

    def follow(self, wire: Wire, history: Sequence[EventRecord]) -> None:
        """Show the records of `history`, then the events that the wire publishes from now on."""
        self.stop()
        self._wire = wire
        self._in_history = True
        self._history_left = len(history)
        # Not through the wire's queue, which would take a long history in one go.
        self._waiting.extend(history)
        self._subscription = wire.subscribe(wake=self._wake)
        # The wire wakes only for what it tells itself; the history, or that there is none, is up to us.
        self._schedule(0.0)

    def stop(self) -> None:
        """Unsubscribe from the wire."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        if self._wire is not None and self._subscription is not None:
            self._wire.unsubscribe(self._subscription)
        self._wire = self._subscription = self._settling = None
        self._waiting.clear()

    def _wake(self, event: Event) -> None:
        from kimi_tui.wire.events import StatusUpdate, TurnEnd

        if isinstance(event, TurnEnd):
            self._schedule(0.0)
            return
        gathered_s = FIGURES_S if isinstance(event, StatusUpdate) else GATHERED_S
        self._schedule(max(gathered_s, self._drawn_at + FRAME_S - time.perf_counter()))

    def _schedule(self, delay_s: float) -> None:
        """Draw so soon, or when it is due already."""
        due = time.perf_counter() + delay_s
        if self._handle is not None:
            if self._due <= due:
                return
            self._handle.cancel()
        self._due = due
        self._handle = self._callbacks.call_later(delay_s, self._draw)

    def _draw(self) -> None:
        self._handle = None
        if self._subscription is None:
            return
        self._waiting += self._subscription.drain()
        until = time.perf_counter() + (HISTORY_SLICE_S if self._in_history else SLICE_S)
        while time.perf_counter() < until and (chunk := self._chunk()):
            with COLLECTOR.paused():
                self._attempt(partial(self._show, chunk))
        if self._in_history and not self._history_left:
            self._catch_up(until)
        self._drawn_at = time.perf_counter()
        if self._waiting or self._settling is not None:
            self._schedule(0.0)

    def _catch_up(self, until: float) -> None:
        """Finish showing the history; where that fails, it counts as shown all the same."""
        try:
            self._settling = self._settling or self._settle()
            if run_until(self._settling, until):
                return
        except Exception as error:
            self._report(error)
        self._in_history, self._settling = False, None
        self._attempt(self._caught_up)

    def _attempt(self, work: Callable[[], None]) -> None:
        """What follows comes also behind something that cannot be shown."""
        try:
            work()
        except Exception as error:
            self._report(error)

    def _chunk(self) -> list[EventRecord]:
        """What is shown next, in one go. What happens now is told apart from the history: that left nothing open."""
        count = min(CHUNK, len(self._waiting))
        if self._in_history:
            count = min(count, self._history_left)
            self._history_left -= count
        return [self._waiting.popleft() for _ in range(count)]

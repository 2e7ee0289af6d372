"""`Feed`: the events of a session in batches, as they are drawn: at most thirty times a second, so that no key waits for long.

Events within a few milliseconds of the first one after a pause are one batch, as the beginnings of a turn and of its first
step are. Events that say only that steps go on are drawn eight times a second: they may follow one another faster than anybody
reads them, and drawing each would take longer than they do. Status figures alone wait for the next event. The end of a turn
is drawn at once, with everything before it.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from kimi_tui.tui.faults import Callbacks
    from kimi_tui.wire.events import Event, EventRecord
    from kimi_tui.wire.queue import Subscription

FRAME_S = 1 / 30
STEPS_S = 1 / 8
"""Seconds between two batches of events that are about steps."""
GATHERED_STEPS_S = 0.05
"""Seconds that such an event waits for others after a pause: a quick step is drawn as a whole, when its next request has left."""
GATHERED_S = 0.008
FIGURES_S = 0.05
"""Seconds that status figures wait: the end of a turn follows them when the answer is on the disk."""
SLICE_S = 0.004
HISTORY_SLICE_S = 0.0015
"""Seconds of a slice of a long history; a key takes several turns of the event loop, each of which waits for one slice."""
CHUNK = 32


class Publisher(Protocol):
    """Publishes events: the wire of a session, or the part of one that a sub-agent has."""

    def subscribe(self, wake: Callable[[Event], None] | None = None) -> Subscription:
        """Return a subscription, as `Wire.subscribe`."""
        ...

    def unsubscribe(self, subscription: Subscription) -> None:
        """End a subscription."""
        ...


class Feed:
    """The records of one session in batches: first `history`, then `live`. A batch is drawn when it is returned.

    If drawing takes longer than a time slice, the event loop gets its turn before the next batch.

    Args:
        wire: publishes the events; it is subscribed to at once.
        history: the records of events that were published before.
        callbacks: schedules the batches.
    """

    def __init__(
        self, wire: Publisher, history: Iterable[EventRecord], callbacks: Callbacks
    ) -> None:
        # The history does not go through the wire's queue, which would return a long one in one go.
        self._waiting = deque(history)
        self._callbacks = callbacks
        self._drawn_at = self._due_at = 0.0
        self._is_due = asyncio.Event()
        self._handle: asyncio.Handle | None = None
        self._wire = wire
        self._subscription = wire.subscribe(wake=self._wake)

    def history(self) -> AsyncGenerator[Sequence[EventRecord]]:
        """Return the records of the history."""
        return self._batches(HISTORY_SLICE_S)

    async def live(self) -> AsyncGenerator[Sequence[EventRecord]]:
        """Yield the records of the events that the wire publishes from the beginning of the subscription on, without end."""
        while True:
            self._waiting += self._subscription.drain()
            async for records in self._batches(SLICE_S):
                yield records
            self._drawn_at = time.perf_counter()
            await self._is_due.wait()
            self._is_due.clear()

    async def _batches(self, slice_s: float) -> AsyncGenerator[Sequence[EventRecord]]:
        """Yield the waiting records. The event loop gets its turn after each time slice of `slice_s` seconds."""
        until = time.perf_counter() + slice_s
        while self._waiting:
            records = self._chunk()
            yield records
            if time.perf_counter() >= until or _exchanges(records[-1]):
                await asyncio.sleep(0)
                until = time.perf_counter() + slice_s

    def _chunk(self) -> list[EventRecord]:
        """Take some of the waiting records, up to one that exchanges much of what is shown: others do not wait with it."""
        records: list[EventRecord] = []
        for _ in range(min(CHUNK, len(self._waiting))):
            records.append(self._waiting.popleft())
            if _exchanges(records[-1]):
                break
        return records

    def take(self) -> list[EventRecord]:
        """Return the records that `live` has not yielded yet; the caller draws them in its place."""
        taken = [*self._waiting, *self._subscription.drain()]
        self._waiting.clear()
        return taken

    def stop(self) -> None:
        """Unsubscribe from the wire."""
        if self._handle is not None:
            self._handle.cancel()
        self._wire.unsubscribe(self._subscription)

    def _wake(self, event: Event) -> None:
        from kimi_tui.wire.queue import urgency

        # The pairs are ordered by urgency: the least seconds from now, and from the last batch.
        gathered_s, frame_s = (
            (FIGURES_S, STEPS_S),
            (GATHERED_STEPS_S, STEPS_S),
            (GATHERED_S, FRAME_S),
            (0.0, 0.0),
        )[urgency(event) - 1]
        self._schedule(max(gathered_s, self._drawn_at + frame_s - time.perf_counter()))

    def _schedule(self, delay_s: float) -> None:
        """Have the next batch come after `delay_s` seconds, unless it is due before."""
        due_at = time.perf_counter() + delay_s
        if self._handle is not None:
            if self._due_at <= due_at:
                return
            self._handle.cancel()
        self._due_at = due_at
        self._handle = self._callbacks.call_later(delay_s, self._come_due)

    def _come_due(self) -> None:
        self._handle = None
        self._is_due.set()


def _exchanges(record: EventRecord) -> bool:
    """Return whether an event exchanges much of what is shown, which takes long in a session of tens of thousands of messages."""
    return type(record.event) in _exchanging()


@cache
def _exchanging() -> frozenset[type[Event]]:
    """Return the classes of such events. They are imported once: a long history has tens of thousands of events."""
    from kimi_tui.wire.events import CompactionEnd, ContextReverted, LineChanged, MarksChanged

    return frozenset((CompactionEnd, ContextReverted, LineChanged, MarksChanged))

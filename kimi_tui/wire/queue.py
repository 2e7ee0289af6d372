"""The event queue between soul and screens: every subscriber gets every event, in order, at its own pace.

Publishing never waits. Text deltas that pile up for a slow subscriber are merged, so that a screen that draws thirty
times a second gets thirty texts and not two thousand. Everything here belongs to one event loop.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable

from kimi_tui.wire.events import (
    CheckpointCreated,
    Event,
    EventRecord,
    FilesChanged,
    Notice,
    StatusUpdate,
    SteerQueued,
    SteerTaken,
    StepBegin,
    ToolCall,
    ToolResult,
    ToolStarted,
    TurnEnd,
    continues,
    text_of,
    with_text,
)

_MERGED_CHARS = 32_768
"""Characters at which a merged text stops growing, as joining strings again and again takes quadratic time."""

_URGENCIES: dict[type[Event], int] = {
    StatusUpdate: 1,
    CheckpointCreated: 2,
    FilesChanged: 2,
    StepBegin: 2,
    ToolCall: 2,
    ToolStarted: 2,
    ToolResult: 2,
    TurnEnd: 4,
}
_URGENT = 3


def urgency(event: Event) -> int:
    """Return how soon an event is to be shown: 1 for figures, 2 for the facts of a step, 3 for all others, 4 for the end of a turn.

    Steps may follow one another faster than anybody reads them. A text that streams, a question and a notice are not of them.
    """
    return _URGENCIES.get(type(event), _URGENT)


class Subscription:
    """One subscriber's own queue. Iterate over it, or take the waiting events with `drain`.

    Attributes:
        listens: whether the subscriber shows events to somebody; one that only records them does not.
    """

    def __init__(self, wake: Callable[[Event], None] | None = None) -> None:
        self.listens = False
        self._pending: deque[EventRecord] = deque()
        self._ready = asyncio.Event()
        self._closed = False
        self._wake = wake
        self._urgency = 0
        """The highest urgency of the waiting events; 0 for none."""

    def put(self, record: EventRecord) -> None:
        """Queue one record (called by the wire)."""
        event = record.event
        if self._pending:
            last = self._pending[-1]
            # A `ToolCall` is an event of its own, although `ToolCallPart` events continue its arguments.
            is_more = type(last.event) is type(event) and last.source == record.source
            if is_more and continues(last.event, event):
                before = text_of(last.event)
                if len(before) < _MERGED_CHARS:
                    whole = with_text(event, before + text_of(event))
                    self._pending[-1] = last._replace(seq=record.seq, event=whole)
                    return
        self._pending.append(record)
        self._ready.set()
        if (urgent := urgency(event)) > self._urgency:
            self._urgency = urgent
            if self._wake is not None:
                self._wake(event)

    def close(self) -> None:
        """End the iteration after the queued events."""
        self._closed = True
        self._ready.set()

    def drain(self) -> list[EventRecord]:
        """Return all waiting records, in order; empty if there are none."""
        records = list(self._pending)
        self._pending.clear()
        self._urgency = 0
        if not self._closed:
            self._ready.clear()
        return records

    def __aiter__(self) -> AsyncIterator[EventRecord]:
        return self._iterate()

    async def _iterate(self) -> AsyncIterator[EventRecord]:
        while True:
            await self._ready.wait()
            while self._pending:
                yield self._pending.popleft()
            if self._closed:
                return
            self._ready.clear()


class Wire:
    """Publishes events to any number of subscribers.

    Args:
        first_seq: the number of the first event.
        tell: called with each event before it is queued: for an agent beside that of a session, whose events are told there too.
    """

    def __init__(self, first_seq: int = 1, tell: Callable[[Event], object] | None = None) -> None:
        self._next_seq = first_seq
        self._tell = tell
        self._subscriptions: list[Subscription] = []
        self._n_listeners = 0
        # The unsolved notices by topic, and the notices that were published while there was no listener.
        self._unsolved: dict[str, EventRecord] = {}
        self._missed_notices: list[EventRecord] = []
        # The `SteerQueued` events of waiting messages, by their ids.
        self._queued: dict[str, EventRecord] = {}

    @property
    def newest_seq(self) -> int:
        """The number of the newest event that was published or recorded."""
        return self._next_seq - 1

    def waits(self, said_id: str) -> bool:
        """Return whether a message with this id was published as queued and not as taken since."""
        return said_id in self._queued

    def publish(self, event: Event, source: str = "") -> EventRecord:
        """Queue the event for every subscriber; return it with its number and time.

        Args:
            event: the event.
            source: the name of the agent whose event it is, for an agent beside the session's own; empty for the session's own.
        """
        record = EventRecord(self._next_seq, time.time(), event, source=source)
        self._next_seq += 1
        if self._tell is not None:
            self._tell(event)
        # The wire of another agent tells of that one's waiting messages and unsolved notices.
        if not source:
            self._keep(event, record)
        for subscription in self._subscriptions:
            subscription.put(record)
        return record

    def _keep(self, event: Event, record: EventRecord) -> None:
        """Keep an event for later subscribers, or drop one that it answers."""
        if isinstance(event, Notice):
            self._remember(event, record)
        elif isinstance(event, SteerQueued):
            self._queued[event.id] = record
        elif isinstance(event, SteerTaken):
            self._queued.pop(event.id, None)

    def subscribe(
        self, wake: Callable[[Event], None] | None = None, *, records: bool = False
    ) -> Subscription:
        """Return a new subscription to events published from now on.

        It also gets the waiting messages of the user, the unsolved notices, and the notices published while nobody listened:
        a problem that begins before a screen listens must not be lost.

        Args:
            wake: called on the loop with the event when the queue was empty, or held only less urgent events (`urgency`)
                until then; for subscribers that use `drain`.
            records: whether the subscriber only records events and shows them to nobody; notices that it gets do not count as seen.
        """
        subscription = Subscription(wake)
        self._subscriptions.append(subscription)
        if not records:
            self._n_listeners += 1
            subscription.listens = True
            missed = [
                *self._queued.values(),
                *self._unsolved.values(),
                *self._missed_notices,
            ]
            self._missed_notices.clear()
            for record in sorted(missed, key=lambda one: one.seq):
                subscription.put(record)
        return subscription

    def _remember(self, notice: Notice, record: EventRecord) -> None:
        if notice.topic:
            self._unsolved.pop(notice.topic, None)
            if not notice.solved:
                self._unsolved[notice.topic] = record
        elif not self._n_listeners:
            self._missed_notices.append(record)

    def unsubscribe(self, subscription: Subscription) -> None:
        """End a subscription; its iteration ends after the queued events."""
        if subscription in self._subscriptions:
            self._subscriptions.remove(subscription)
            self._n_listeners -= subscription.listens
        subscription.close()

    def take_over(self, other: Wire) -> None:
        """Have those who listen to another wire hear this one from now on, with numbers that go on; what only records stays there."""
        self._next_seq = max(self._next_seq, other._next_seq)
        moved = [one for one in other._subscriptions if one.listens]
        other._subscriptions = [one for one in other._subscriptions if not one.listens]
        other._n_listeners = 0
        self._subscriptions += moved
        self._n_listeners += len(moved)

    def close(self) -> None:
        """End every iteration."""
        for subscription in list(self._subscriptions):
            self.unsubscribe(subscription)

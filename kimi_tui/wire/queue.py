"""The queue between soul and screens: every subscriber gets every event, in order, at its own pace.

Publishing never waits. Text that piles up for a slow subscriber is merged, so that a screen that draws thirty times
a second is handed thirty texts and not two thousand.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

from kimi_tui.wire.events import Event, Record, TextPart, ThinkPart, ToolCallPart, ToolOutput


def merged(first: Event, second: Event) -> Event | None:
    """The two events as one where they are neighbouring pieces of one text, else None."""
    if isinstance(first, TextPart) and isinstance(second, TextPart):
        return TextPart(first.text + second.text)
    if isinstance(first, ThinkPart) and isinstance(second, ThinkPart):
        return ThinkPart(first.text + second.text)
    if (
        isinstance(first, ToolCallPart)
        and isinstance(second, ToolCallPart)
        and first.key == second.key
    ):
        return ToolCallPart(first.key, first.arguments + second.arguments)
    if isinstance(first, ToolOutput) and isinstance(second, ToolOutput) and first.key == second.key:
        return ToolOutput(first.key, first.text + second.text)
    return None


class Subscription:
    """One listener's own queue. Iterate over it, or take what is there with `drain`."""

    def __init__(self, wake: Callable[[], None] | None = None) -> None:
        self._pending: deque[Record] = deque()
        self._ready = asyncio.Event()
        self._closed = False
        self._wake = wake

    def put(self, record: Record) -> None:
        """Queue one record (called by the wire)."""
        if self._pending:
            last = self._pending[-1]
            # Joining strings again and again is quadratic, so a merged text stops growing at 32k characters.
            joined = merged(last.event, record.event) if _size(last.event) < 32_768 else None
            if joined is not None:
                self._pending[-1] = replace(last, seq=record.seq, event=joined)
                return
        self._pending.append(record)
        self._ready.set()
        if self._wake is not None and len(self._pending) == 1:
            self._wake()

    def close(self) -> None:
        """End the iteration after what is queued."""
        self._closed = True
        self._ready.set()

    def drain(self) -> list[Record]:
        """All records that are waiting, in order; empty if there are none."""
        records = list(self._pending)
        self._pending.clear()
        if not self._closed:
            self._ready.clear()
        return records

    def __aiter__(self) -> AsyncIterator[Record]:
        return self._iterate()

    async def _iterate(self) -> AsyncIterator[Record]:
        while True:
            await self._ready.wait()
            while self._pending:
                yield self._pending.popleft()
            if self._closed:
                return
            self._ready.clear()


def _size(event: Event) -> int:
    match event:
        case TextPart(text) | ThinkPart(text):
            return len(text)
        case ToolCallPart(arguments=text) | ToolOutput(text=text):
            return len(text)
        case _:
            return 0


class Wire:
    """Publishes events to any number of subscribers. Belongs to one event loop."""

    def __init__(self, first_seq: int = 1) -> None:
        self._next_seq = first_seq
        self._subscriptions: list[Subscription] = []

    @property
    def next_seq(self) -> int:
        """The number the next event will bear."""
        return self._next_seq

    def publish(self, event: Event) -> Record:
        """Tell everyone; returns the event with its number and time."""
        record = Record(self._next_seq, time.time(), event)
        self._next_seq += 1
        for subscription in self._subscriptions:
            subscription.put(record)
        return record

    def subscribe(self, wake: Callable[[], None] | None = None) -> Subscription:
        """A new listener for what is published from now on.

        Args:
            wake: called on the loop when the queue goes from empty to not empty, for those who `drain`.
        """
        subscription = Subscription(wake)
        self._subscriptions.append(subscription)
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        """Stop telling this listener; its iteration ends after what is queued."""
        if subscription in self._subscriptions:
            self._subscriptions.remove(subscription)
        subscription.close()

    def close(self) -> None:
        """End every iteration."""
        for subscription in list(self._subscriptions):
            self.unsubscribe(subscription)

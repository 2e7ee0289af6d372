"""The feed: every event in order, history first, told when it is through, and never for long at once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence

import pytest

from kimi_tui.tui.main import feed
from kimi_tui.tui.main.feed import FRAME_S, GATHERED_S, HISTORY_SLICE_S, Feed
from kimi_tui.wire.events import EventRecord, StatusUpdate, StepBegin, TextPart, TurnBegin, TurnEnd
from kimi_tui.wire.queue import Wire


class Listener:
    """Notes what it is shown."""

    def __init__(self) -> None:
        self.shown: list[EventRecord] = []
        self.calls = 0
        self.caught_up_after: int | None = None
        self.happened = asyncio.Event()
        self.feed = Feed(self.show, self.caught_up)

    def show(self, records: Sequence[EventRecord]) -> None:
        """Take a slice."""
        self.calls += 1
        self.shown += records
        self.happened.set()

    def caught_up(self) -> None:
        """Only once."""
        assert self.caught_up_after is None
        self.caught_up_after = len(self.shown)
        self.happened.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for something to hold."""
        async with asyncio.timeout(50):
            while not condition():
                self.happened.clear()
                await self.happened.wait()

    async def has(self, count: int) -> None:
        """Wait until so many came and the history is through."""
        await self.until(lambda: len(self.shown) >= count and self.caught_up_after is not None)

    @property
    def n_characters(self) -> int:
        """Of all texts."""
        return sum(len(r.event.text) for r in self.shown if isinstance(r.event, TextPart))


async def test_history_comes_first_then_what_happens() -> None:
    wire, one = Wire(first_seq=1001), Listener()
    history = [EventRecord(n, 0.0, StepBegin(n)) for n in range(1, 1001)]
    one.feed.follow(wire, history)
    wire.publish(StepBegin(1001))
    await one.has(1001)
    assert [record.seq for record in one.shown] == list(range(1, 1002))
    # What happens now is told after it, and as what happens now.
    assert one.caught_up_after == 1000
    assert one.calls > 10  # in slices, not in one
    one.feed.stop()


async def test_an_empty_history_is_through_at_once() -> None:
    wire, one = Wire(), Listener()
    one.feed.follow(wire, ())
    await one.has(0)
    assert one.caught_up_after == 0
    one.feed.stop()


async def test_many_texts_become_few() -> None:
    wire, one = Wire(), Listener()
    one.feed.follow(wire, ())
    await one.has(0)
    began = asyncio.get_running_loop().time()
    for _ in range(200):
        wire.publish(TextPart("a"))
        await asyncio.sleep(0)
    await one.until(lambda: one.n_characters == 200)
    frames = (asyncio.get_running_loop().time() - began) / FRAME_S
    assert one.calls <= frames + 2
    one.feed.stop()


async def test_what_begins_together_is_shown_together_and_an_end_at_once() -> None:
    wire, one = Wire(), Listener()
    one.feed.follow(wire, ())
    await one.has(0)
    wire.publish(TurnBegin("Hi"))
    await asyncio.sleep(GATHERED_S / 4)
    wire.publish(StepBegin(1))
    await one.has(2)
    assert one.calls == 1
    # The next one would wait for a frame.
    wire.publish(TextPart("a"))
    wire.publish(TurnEnd("done"))
    turns = 0
    while len(one.shown) < 4:
        await asyncio.sleep(0)
        turns += 1
    assert turns < 5
    one.feed.stop()


async def test_figures_wait_for_what_comes_next(monkeypatch: pytest.MonkeyPatch) -> None:
    wire, one = Wire(), Listener()
    one.feed.follow(wire, ())
    await one.has(0)
    figures = StatusUpdate(used=1, limit=2, trigger=2)
    monkeypatch.setattr(feed, "FIGURES_S", 3600)
    for calls, event in enumerate((StepBegin(1), TurnEnd("done")), 1):
        wire.publish(figures)
        wire.publish(figures)
        wire.publish(event)
        await one.has(3 * calls)
        assert one.calls == calls
    monkeypatch.setattr(feed, "FIGURES_S", 0.0)
    wire.publish(figures)
    await one.has(7)
    one.feed.stop()


async def test_after_the_end_nothing_is_shown() -> None:
    wire, one = Wire(), Listener()
    one.feed.follow(wire, ())
    await one.has(0)
    wire.publish(StepBegin(1))
    one.feed.stop()
    await asyncio.sleep(2 * FRAME_S)
    assert one.shown == []


async def test_what_remains_to_be_done_is_done_in_slices_before_it_is_through() -> None:
    wire, one = Wire(first_seq=11), Listener()
    done = 0

    def settle() -> Iterator[None]:
        nonlocal done
        for _ in range(1_000):
            assert one.caught_up_after is None
            done += 1
            if done % 100 == 0:
                # What happens meanwhile waits.
                wire.publish(StepBegin(done))
                time.sleep(2 * HISTORY_SLICE_S)  # a slice is over
            yield

    one.feed = Feed(one.show, one.caught_up, settle)
    one.feed.follow(wire, [EventRecord(n, 0.0, StepBegin(n)) for n in range(1, 11)])
    turns = 0

    def turn() -> None:
        nonlocal turns
        turns += 1
        if one.caught_up_after is None:
            asyncio.get_running_loop().call_soon(turn)

    turn()
    await one.until(lambda: one.caught_up_after is not None)
    assert done == 1_000
    assert turns > 10  # others had their turn in between
    assert one.caught_up_after == 10
    await one.has(20)
    one.feed.stop()

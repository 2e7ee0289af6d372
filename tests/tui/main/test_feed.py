"""The feed: every event in order, history first, told when it is through, and never for long at once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

import pytest

from kimi_tui.tui.faults import Callbacks
from kimi_tui.tui.main import feed
from kimi_tui.tui.main.feed import FRAME_S, GATHERED_S, HISTORY_SLICE_S, STEPS_S, Feed
from kimi_tui.wire.events import (
    EventRecord,
    Notice,
    StatusUpdate,
    StepBegin,
    TextPart,
    ToolStarted,
    TurnBegin,
    TurnEnd,
)
from kimi_tui.wire.queue import Wire


def _raise(error: Exception) -> None:
    raise error


class Listener:
    """Notes the batches of a feed."""

    def __init__(self, wire: Wire, history: Sequence[EventRecord] = ()) -> None:
        self.shown: list[EventRecord] = []
        self.calls = 0
        self.takes_s = 0.0
        """Seconds that each batch takes."""
        self.caught_up_after: int | None = None
        self.happened = asyncio.Event()
        self.callbacks = Callbacks(_raise)
        self.feed = Feed(wire, history, self.callbacks)
        self.callbacks.start(self._follow())

    async def _follow(self) -> None:
        async for records in self.feed.history():
            self._show(records)
        self.caught_up_after = len(self.shown)
        self.happened.set()
        async for records in self.feed.live():
            self._show(records)

    def _show(self, records: Sequence[EventRecord]) -> None:
        self.calls += 1
        self.shown += records
        time.sleep(self.takes_s)
        self.happened.set()

    async def stop(self) -> None:
        """End."""
        self.feed.stop()
        await self.callbacks.close()

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
        """The number of characters of all texts."""
        return sum(len(r.event.text) for r in self.shown if isinstance(r.event, TextPart))


async def test_history_comes_first_then_what_happens() -> None:
    wire = Wire(first_seq=1001)
    one = Listener(wire, [EventRecord(n, 0.0, StepBegin(n)) for n in range(1, 1001)])
    wire.publish(StepBegin(1001))
    await one.has(1001)
    assert [record.seq for record in one.shown] == list(range(1, 1002))
    # Live events come after the history, and are reported as live.
    assert one.caught_up_after == 1000
    assert one.calls > 10  # in slices, not in one
    await one.stop()


async def test_an_empty_history_is_through_at_once() -> None:
    wire = Wire()
    one = Listener(wire)
    await one.has(0)
    assert one.caught_up_after == 0
    await one.stop()


async def test_many_texts_become_few() -> None:
    wire = Wire()
    one = Listener(wire)
    await one.has(0)
    began = asyncio.get_running_loop().time()
    for _ in range(200):
        wire.publish(TextPart("a"))
        await asyncio.sleep(0)
    await one.until(lambda: one.n_characters == 200)
    frames = (asyncio.get_running_loop().time() - began) / FRAME_S
    assert one.calls <= frames + 2
    await one.stop()


async def test_what_begins_together_is_shown_together_and_an_end_at_once() -> None:
    wire = Wire()
    one = Listener(wire)
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
    await one.stop()


async def test_figures_wait_for_what_comes_next(monkeypatch: pytest.MonkeyPatch) -> None:
    wire = Wire()
    one = Listener(wire)
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
    await one.stop()


async def test_steps_alone_are_shown_seldom_and_with_what_is_read_or_asked_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(feed, "STEPS_S", 3600)
    monkeypatch.setattr(feed, "GATHERED_STEPS_S", 3600)
    wire = Wire()
    one = Listener(wire)
    await one.has(0)
    for calls, urgent in enumerate((TextPart("a"), Notice("info", "b"), TurnEnd("done")), 1):
        wire.publish(StepBegin(calls))
        await asyncio.sleep(2 * FRAME_S)
        assert one.calls == calls - 1
        wire.publish(ToolStarted(f"k{calls}", "Shell", "{}"))
        wire.publish(urgent)
        await one.has(3 * calls)
        assert one.calls == calls
    await one.stop()


async def test_steps_that_go_on_are_shown_all_the_same() -> None:
    wire = Wire()
    one = Listener(wire)
    await one.has(0)
    began = asyncio.get_running_loop().time()
    for n in range(100):
        wire.publish(StepBegin(n))
        await asyncio.sleep(0.003)
    await one.has(100)
    lasted_s = asyncio.get_running_loop().time() - began
    assert 1 < one.calls <= lasted_s / STEPS_S + 2
    await one.stop()


async def test_after_the_end_nothing_is_shown() -> None:
    wire = Wire()
    one = Listener(wire)
    await one.has(0)
    wire.publish(StepBegin(1))
    one.feed.stop()
    wire.publish(StepBegin(2))
    await asyncio.sleep(2 * FRAME_S)
    assert one.shown == []
    await one.stop()


async def test_others_have_their_turn_between_the_slices_of_a_history() -> None:
    wire = Wire(first_seq=1001)
    one = Listener(wire, [EventRecord(n, 0.0, StepBegin(n)) for n in range(1, 1001)])
    one.takes_s = 2 * HISTORY_SLICE_S
    turns = 0

    def turn() -> None:
        nonlocal turns
        turns += 1
        if one.caught_up_after is None:
            if turns % 10 == 0:
                # Events that come meanwhile wait.
                wire.publish(StepBegin(1000 + turns))
            asyncio.get_running_loop().call_soon(turn)

    turn()
    await one.until(lambda: one.caught_up_after is not None)
    assert turns > 20
    assert one.caught_up_after == 1000
    await one.has(1002)
    await one.stop()

"""Switches to a future, as those who listen to the session hear of them: at once, while a turn runs, and at the next start."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence

import pytest

from kimi_tui.futures.values import FuturesPlan, Variant
from kimi_tui.projection.blocks import AgentBlock, UserBlock
from kimi_tui.projection.session_model import SessionModel
from kimi_tui.session.jsonl import RECORD_NAME
from kimi_tui.session.session import Session
from kimi_tui.soul import kimisoul
from kimi_tui.soul.history import history_until
from kimi_tui.soul.rewind_values import END, Target
from kimi_tui.wire import events as ev
from kimi_tui.wire.events import EventRecord

from .conftest import Scene


def shown(records: Sequence[EventRecord]) -> tuple[list[str], list[int], set[int]]:
    """Return what a screen shows of these events: the messages, the steps, and the world lines that the timeline lists."""
    model = SessionModel()
    for record in records:
        model.apply(record)
    said: list[str] = []
    for block in model.chat.blocks:
        if isinstance(block, UserBlock) and not block.queued:
            said.append(block.text)
        elif isinstance(block, AgentBlock):
            said.append(block.stream.text)
    steps = [one.id for one in model.timeline.path_of(0)]
    return said, steps, set(model.timeline.tree.lines)


async def ended(scene: Scene, message: str) -> str:
    """Run a future to its end; return its key."""
    plan = FuturesPlan(Target(END), (Variant(message),))
    (key,) = await scene.futures.start(plan)
    await scene.futures.ended()
    return key


async def asks(scene: Scene) -> tuple[asyncio.Task[object], ev.ApprovalRequest]:
    """Begin a turn that asks the user something; return it, and its question."""
    events = scene.soul.wire.subscribe()
    turn = asyncio.create_task(scene.soul.run("do ask"))
    async for record in events:
        if isinstance(record.event, ev.ApprovalRequest):
            scene.soul.wire.unsubscribe(events)
            return turn, record.event
    raise AssertionError("it asks nothing")


HELLO = ["Say hello.", "Hello."]
ALPHA = ["do alpha", "I did alpha."]


@pytest.mark.exhaustive
@pytest.mark.parametrize("goes_on", [False, True])
async def test_a_future_that_is_current_is_told_in_a_turn_and_listed_once(
    scene: Scene, goes_on: bool
) -> None:
    soul = scene.soul
    key = await ended(scene, "do alpha")
    said, left = HELLO, set[int]()
    if goes_on:
        # The line of the session is left at the switch, and is no beginning of the future.
        await soul.run("do gamma")
    await scene.futures.make_current(key)
    if goes_on:
        left = {scene.futures.state(key).world_line + 1}
    turn, question = await asks(scene)
    said = [*HELLO, *ALPHA, "do ask"]
    assert shown(await soul.history()) == (said, [*range(9)], left)
    soul.answer(question.id, "once")
    await turn
    said.append("I did ask.")
    now = (said, [*range(10)], left)
    assert shown(await soul.history()) == now
    await soul.travel.undo()
    assert "I did alpha." not in shown(await soul.history())[0]
    await soul.travel.redo()
    assert shown(await soul.history()) == now
    await soul.aclose()
    # Without its record the session is told from its lines.
    record = soul.session.dir / RECORD_NAME
    record.rename(record.with_suffix(".away"))
    scene = await scene.again()
    assert shown(await scene.soul.history()) == now
    await scene.soul.aclose()
    record.with_suffix(".away").rename(record)
    scene = await scene.again()
    assert shown(await scene.soul.history()) == now
    turn, question = await asks(scene)
    assert shown(await scene.soul.history())[0] == [*said, "do ask"]
    scene.soul.answer(question.id, "once")
    await turn
    await scene.soul.aclose()


async def test_a_turn_that_begins_while_the_history_is_read_is_told_once(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    soul = scene.soul
    key = await ended(scene, "do alpha")
    await scene.futures.make_current(key)
    reads, goes_on = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def slow(session: Session, newest: int, is_followed: bool) -> list[EventRecord]:
        if not goes_on.is_set():
            loop.call_soon_threadsafe(reads.set)
            goes_on.wait(20)
        return history_until(session, newest, is_followed)

    monkeypatch.setattr(kimisoul, "history_until", slow)
    listening = asyncio.create_task(soul.listen())
    await reads.wait()
    # Its message is in the context before the history is read.
    turn, question = await asks(scene)
    goes_on.set()
    history, events = await listening
    assert shown(history)[0] == [*HELLO, *ALPHA]
    soul.answer(question.id, "once")
    await turn
    assert shown([*history, *events.drain()])[0] == [*HELLO, *ALPHA, "do ask", "I did ask."]

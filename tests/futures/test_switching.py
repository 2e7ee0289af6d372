"""Switches to a future, as those who listen to the session hear of them: at once, while a turn runs, and at the next start."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
from support.chat_server import Answer, Request, say
from support.stored_lines import read_line
from support.time_traveller import Views
from support.truth import untrue_of_chat, untrue_of_rows, untrue_of_world_lines

from kimi_tui.futures.values import FuturesPlan, Variant
from kimi_tui.projection.blocks import AgentBlock, UserBlock
from kimi_tui.projection.session_model import SessionModel
from kimi_tui.session.jsonl import RECORD_NAME
from kimi_tui.session.rotation import LIVE_NAME
from kimi_tui.session.session import Session
from kimi_tui.soul import kimisoul
from kimi_tui.soul.history import history_until
from kimi_tui.soul.kimisoul import KimiSoul
from kimi_tui.soul.opening import open_session
from kimi_tui.soul.rewind_values import END, Target
from kimi_tui.wire import events as ev
from kimi_tui.wire.events import EventRecord

from .conftest import Scene, scene_in


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


def untrue(soul: KimiSoul, records: Sequence[EventRecord]) -> list[str]:
    """What is wrong with what a screen shows of these events, by the files of the session."""
    views, folder = Views(records), soul.session.dir
    line = read_line(folder)
    return [
        *untrue_of_chat(views.chat, line),
        *untrue_of_rows(views.timeline, line),
        *untrue_of_world_lines(views.timeline, folder),
        *(["a switch is not told"] if views.lost else []),
        *(
            f"{one} is open"
            for one in views.chat.blocks
            if isinstance(one, AgentBlock) and one.open
        ),
    ]


def echo(request: Request) -> Answer:
    """A model that counts the messages of the user."""
    return say(f"Answer {sum(one['role'] == 'user' for one in request.messages)}.")


def cut_after(file: Path, word: bytes) -> None:
    """Cut a file after its last line with a word."""
    lines = file.read_bytes().splitlines(keepends=True)
    newest = max(n for n, line in enumerate(lines) if word in line)
    file.write_bytes(b"".join(lines[: newest + 1]))


async def test_a_turn_on_the_line_of_a_future_goes_and_comes_back_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with scene_in(tmp_path, monkeypatch, echo) as scene:
        soul = scene.soul
        key = await ended(scene, "a future")
        await scene.futures.make_current(key)
        for _ in range(2):
            await soul.travel.undo()
            await soul.travel.redo()
        await soul.run("a message")
        assert not untrue(soul, await soul.history())
        await soul.travel.undo()
        assert not untrue(soul, await soul.history())
        await soul.travel.redo()
        assert not untrue(soul, await soul.history())
        await soul.run("another one")
        await soul.aclose()
        # The program was killed in the middle of the answer, of which the record alone has the beginning.
        cut_after(soul.session.dir / RECORD_NAME, b'"ContentPart"')
        cut_after(soul.session.dir / LIVE_NAME, b'"_checkpoint"')
        for _ in range(2):
            opened = await open_session(scene.launch._replace(resume=soul.session.id))
            soul = opened.soul
            assert not untrue(soul, opened.history)
            assert not untrue(soul, await soul.history())
            await soul.travel.undo()
            assert not untrue(soul, await soul.history())
            await soul.travel.redo()
            assert not untrue(soul, await soul.history())
            await soul.aclose()


@pytest.mark.exhaustive
async def test_a_turn_on_the_line_of_a_future_stays_away_when_the_future_is_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with scene_in(tmp_path, monkeypatch, echo) as scene:
        soul = scene.soul
        key = await ended(scene, "a future")
        await scene.futures.make_current(key)
        await soul.run("a message")
        await soul.travel.undo()
        await soul.run("another one")
        await scene.futures.prune([key])
        assert not untrue(soul, await soul.history())
        await soul.aclose()
        opened = await open_session(scene.launch._replace(resume=soul.session.id))
        assert not untrue(opened.soul, opened.history)
        await opened.soul.aclose()

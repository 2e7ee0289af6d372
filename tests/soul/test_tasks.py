"""Tasks that outlive their turn, and work that a cancel waits for."""

from __future__ import annotations

import asyncio
import gc
import json
from pathlib import Path

import pytest

from kimi_tui.llm.message import MANY, Message, TextPart, user_message
from kimi_tui.session.context import Context
from kimi_tui.soul.errors import RunCancelled
from kimi_tui.soul.tasks import (
    OneAtATime,
    OrphanedTasks,
    run_to_completion,
    shielded_at_once,
)


async def test_orphans_are_waited_for_and_their_faults_are_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    may_end = asyncio.Event()
    ended: list[str] = []

    async def tidies_up() -> None:
        await may_end.wait()
        ended.append("tidy")

    async def breaks() -> None:
        await may_end.wait()
        raise ZeroDivisionError

    orphans = OrphanedTasks()
    orphans.adopt({asyncio.create_task(tidies_up()), asyncio.create_task(breaks(), name="broken")})
    waiting = asyncio.create_task(orphans.wait(10.0))
    asyncio.get_running_loop().call_soon(may_end.set)
    await waiting
    assert ended == ["tidy"]
    await asyncio.sleep(0)
    assert "broken failed after it was stopped" in caplog.text


async def test_an_orphan_that_does_not_end_is_left_behind(caplog: pytest.LogCaptureFixture) -> None:
    task = asyncio.create_task(asyncio.Event().wait(), name="stuck")
    orphans = OrphanedTasks()
    orphans.adopt({task})  # type: ignore[arg-type]
    await orphans.wait(0.01)
    assert "stuck does not end" in caplog.text
    task.cancel()


async def test_a_cancel_waits_for_work_that_must_not_be_cut_short() -> None:
    begun, may_end = asyncio.Event(), asyncio.Event()
    done: list[int] = []

    async def work() -> None:
        begun.set()
        await may_end.wait()
        done.append(1)

    caller = asyncio.create_task(run_to_completion(work()))
    await begun.wait()
    caller.cancel()
    asyncio.get_running_loop().call_soon(may_end.set)
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert done == [1]


async def test_work_that_does_not_wait_takes_no_turn_of_the_event_loop() -> None:
    turns: list[str] = []

    @shielded_at_once
    async def work(number: int) -> int:
        async with lock:
            return 10 // number

    lock = asyncio.Lock()
    asyncio.get_running_loop().call_soon(turns.append, "turn")
    assert await work(5) == 2
    with pytest.raises(ZeroDivisionError):
        await work(0)
    assert not turns


@pytest.mark.parametrize("is_cancelled", [False, True])
async def test_work_that_begins_at_once_and_waits_is_not_cut_short(is_cancelled: bool) -> None:
    done: list[str] = []
    may_end = asyncio.Event()

    @shielded_at_once
    async def work(number: int) -> int:
        await asyncio.sleep(0)
        async with lock:
            done.append("has the lock")
        try:
            await asyncio.wait_for(may_end.wait(), 10)
            await asyncio.to_thread(done.append, "thread")
            return 10 // number
        finally:
            done.append("end")

    lock = asyncio.Lock()
    await lock.acquire()
    caller = asyncio.create_task(work(5))
    for _ in range(3):
        await asyncio.sleep(0)
    assert done == []
    if is_cancelled:
        caller.cancel()
    lock.release()
    asyncio.get_running_loop().call_soon(may_end.set)
    if is_cancelled:
        with pytest.raises(asyncio.CancelledError):
            await caller
    else:
        assert await caller == 2
        with pytest.raises(ZeroDivisionError):
            await work(0)
        assert done[3:] == done[:3]
    assert done[:3] == ["has the lock", "thread", "end"]


async def test_a_turn_whose_caller_was_cancelled_is_no_fault_of_the_program() -> None:
    """The app cancels what waits for a turn when it is closed; the turn then ends with an error that nobody awaits."""
    faults: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context))
    alone = OneAtATime(lambda: None)

    async def turn() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise RunCancelled from None

    caller = asyncio.create_task(alone.run(turn(), stoppable=True))
    await asyncio.sleep(0)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert not alone.running
    gc.collect()
    await asyncio.sleep(0)
    assert faults == []


@pytest.mark.parametrize(
    "turn", [0, 2, *(pytest.param(n, marks=pytest.mark.exhaustive) for n in range(3, 40))]
)
async def test_a_cancel_in_any_turn_of_the_event_loop_splits_no_append_and_is_not_lost(
    tmp_path: Path, turn: int
) -> None:
    context = Context(tmp_path)
    await context.restore()
    many = [TextPart(text=str(n)) for n in range(MANY + 1)]
    parts = [user_message("short"), Message(role="user", content=many), user_message("end")]
    is_done = False

    @shielded_at_once
    async def append() -> None:
        for part in parts:
            await context.append([part])

    async def work() -> None:
        nonlocal is_done
        await append()
        is_done = True
        await asyncio.Event().wait()

    # The turns are those of an append that waits for another one, and then for the thread that encodes the long message.
    async with context._lock:  # pyright: ignore[reportPrivateUsage]
        caller = asyncio.create_task(work())
        for _ in range(min(turn, 3)):
            await asyncio.sleep(0)
        if turn < 3:
            caller.cancel()
    for _ in range(turn - 3):
        await asyncio.sleep(0)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    expected = parts if turn else []
    assert [one.text for one in context.messages] == [one.text for one in expected]
    assert not (is_done and turn < 3)
    await context.aclose()
    lines = (tmp_path / "context.jsonl").read_bytes().splitlines()
    assert [json.loads(line)["role"] for line in lines] == ["user"] * len(expected)

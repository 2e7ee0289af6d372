"""asyncio helpers: shielding from cancellation, long computations in slices, and tasks that outlive their turn."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

log = logging.getLogger(__name__)
_SLICE_S = 0.002


async def run_to_completion(work: Coroutine[Any, Any, T]) -> T:
    """Await `work`; a cancel waits until it has ended, so that the context is changed wholly or not at all.

    Raises:
        asyncio.CancelledError: cancelled meanwhile; an error of the work is only logged then.
    """
    task = asyncio.ensure_future(work)
    try:
        # The shield protects the write that is under way, not the caller.
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        if not task.done():
            await asyncio.wait([task])
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("failed while it was being stopped", exc_info=error)
        raise


def shielded(work: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Have each call of a coroutine function run to its end, also when it is cancelled: see `run_to_completion`."""

    @wraps(work)
    def whole(*args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, T]:
        return run_to_completion(work(*args, **kwargs))

    return whole


class TimeSlices:
    """Yields to the event loop every 2 ms of a long computation.

    A thread would be no help: whoever computes in Python there keeps the interpreter from the event loop.
    """

    def __init__(self) -> None:
        self._began = time.perf_counter()

    async def yield_if_over(self) -> None:
        """Yield to the event loop if the time slice is over. Other tasks may run then, and change shared state."""
        if time.perf_counter() - self._began > _SLICE_S:
            await asyncio.sleep(0)
            self._began = time.perf_counter()


async def clear_in_slices(items: list[Any]) -> None:
    """Empty a list in slices: what thousands of items hold takes tens of milliseconds to free."""
    slices = TimeSlices()
    while items:
        items.pop()
        await slices.yield_if_over()


class OrphanedTasks:
    """Tasks of stopped tools that are still ending what they started. Errors among them are logged."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def adopt(self, tasks: set[asyncio.Task[None]]) -> None:
        """Take over tasks that have been cancelled and have not ended yet."""
        self._tasks |= tasks
        for task in tasks:
            task.add_done_callback(self._ended)

    async def wait(self, timeout_s: float) -> None:
        """Wait for all of them; those that do not end in that time are left behind."""
        if not self._tasks:
            return
        _, late = await asyncio.wait(self._tasks, timeout=timeout_s)
        for task in late:
            log.warning("%s does not end; it is left behind", task.get_name())

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("%s failed after it was stopped", task.get_name(), exc_info=error)

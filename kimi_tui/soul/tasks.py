"""asyncio helpers: one turn or operation at a time, shielding from cancellation, long computations in slices, and tasks that
outlive their turn.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Generator
from functools import wraps
from typing import Any, Generic, ParamSpec, TypeVar

from kimi_tui.soul.errors import RunCancelled, SoulBusy

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
        # The shield protects the running write; the caller itself may be cancelled.
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


def shielded_at_once(
    work: Callable[P, Coroutine[Any, Any, T]],
) -> Callable[P, Coroutine[Any, Any, T]]:
    """Do what `shielded` does, without a task as long as the coroutine does not wait: a task costs three turns of the event loop.

    The coroutine must not ask for its task, as `asyncio.timeout` does: until it first waits that is the caller's.
    """

    @wraps(work)
    async def whole(*args: P.args, **kwargs: P.kwargs) -> T:
        begun = work(*args, **kwargs)
        try:
            awaited = begun.send(None)
        except StopIteration as end:
            value: T = end.value
            return value
        return await run_to_completion(_continued(begun, awaited))

    return whole


async def _continued(begun: Coroutine[Any, Any, T], awaited: Any) -> T:
    """Go on with a coroutine that waits for something already."""
    return await _BegunWork(begun, awaited)


class _BegunWork(Generic[T]):
    """The rest of a coroutine that was begun outside of a task."""

    def __init__(self, begun: Coroutine[Any, Any, T], awaited: Any) -> None:
        self._begun = begun
        self._awaited = awaited

    def __await__(self) -> Generator[Any, Any, T]:
        begun, awaited = self._begun, self._awaited
        try:
            while True:
                try:
                    sent = yield awaited
                except GeneratorExit:
                    begun.close()
                    raise
                except BaseException as error:
                    awaited = begun.throw(error)
                else:
                    awaited = begun.send(sent)
        except StopIteration as end:
            value: T = end.value
            return value


class TimeSlices:
    """Yields to the event loop every 2 ms of a long computation.

    A thread would not help: Python code that computes in a thread keeps the interpreter from the event loop.
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


class OneAtATime:
    """Runs turns and operations, one at a time, each in a task of its own, so that it can be stopped apart from its caller.

    Args:
        before_stoppable: called before one begins that the user waits for and may stop.

    Attributes:
        closed: whether nothing may begin any more.
        stopping: whether what runs, or ran last, was stopped.
        n_ahead: how many wait for their turn before all else that may begin (`idle_first`).
        n_begun: how many have begun so far.
    """

    def __init__(self, before_stoppable: Callable[[], None]) -> None:
        self._before_stoppable = before_stoppable
        self._task: asyncio.Task[Any] | None = None
        self._stoppable = False
        self.stopping = False
        self.closed = False
        self.n_ahead = self.n_begun = 0

    @property
    def running(self) -> bool:
        """Whether a turn or operation is under way."""
        return self._task is not None

    @property
    def stoppable(self) -> bool:
        """Whether one is under way that the user may stop."""
        return self._task is not None and self._stoppable

    def free(self) -> None:
        """Let the next one begin, called by what runs when there is nothing left to do but to say so."""
        self._task = None

    async def settled(self) -> None:
        """Wait until none is under way but one that may be stopped."""
        while (task := self._task) is not None and not self._stoppable:
            await asyncio.wait([task])

    async def idle(self) -> None:
        """Wait until none is under way."""
        while (task := self._task) is not None:
            await asyncio.wait([task])

    async def idle_first(self) -> None:
        """Wait as `idle` does, but before all callers that have waited longer."""
        self.n_ahead += 1
        try:
            await self.idle()
        finally:
            self.n_ahead -= 1

    async def run(self, work: Coroutine[Any, Any, T], *, stoppable: bool = False) -> T:
        """Run one to its end.

        Raises:
            SoulBusy: another one runs, or nothing may begin any more.
        """
        if self._task is not None or self.closed:
            work.close()
            raise SoulBusy("The agent is working. Stop it first with Esc.")
        if stoppable:
            self._before_stoppable()
        self.n_begun += 1
        self._task = task = asyncio.create_task(work, name="soul")
        self._stoppable, self.stopping = stoppable, False
        try:
            # The shield keeps a caller's own cancel away from the task, which is stopped in order below.
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            # Nobody else hears how it ends, and asyncio would report that as a fault of the program.
            task.add_done_callback(_end_heard)
            if not task.done():
                await self.interrupt()
            raise
        finally:
            if self._task is task:
                self._task = None

    async def interrupt(self) -> None:
        """Stop what runs, and wait for what cannot be stopped."""
        task = self._task
        if task is None:
            return
        if self._stoppable and not self.stopping:
            # The task is cancelled only once: a second cancel would cut short the tidying up after the first. It must have
            # begun by then, which takes one turn of the event loop: the user's message is in the context first.
            self.stopping = True
            await asyncio.sleep(0)
            task.cancel()
        await asyncio.wait([task])


def _end_heard(task: asyncio.Task[Any]) -> None:
    """Take note of the end of a turn or operation whose caller was cancelled, as when the app is closed."""
    if not task.cancelled() and (error := task.exception()) is not None:
        level = logging.INFO if isinstance(error, RunCancelled) else logging.WARNING
        log.log(level, "what ran ended after its caller: %s: %s", type(error).__name__, error)

"""Scheduling on the event loop, and faults: callbacks, tasks and timers, and the handling of their errors.

An error in a callback, task, layout or painting is reported to the user or logged, and the program goes on: asyncio would
only log it, and Textual learns only of errors in its own queues. So everything in `tui` is scheduled through this module. A
fault in one row or block never hides the others.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import traceback
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any, TypeVar, cast

from rich.segment import Segment
from textual import message_pump
from textual.geometry import Region
from textual.strip import Strip
from textual.timer import Timer

from kimi_tui.app_paths import log_file, log_words
from kimi_tui.tui.textual_patches.app import app_context

if TYPE_CHECKING:
    from types import FrameType

    from textual.app import App
    from textual.message_pump import MessagePump

T = TypeVar("T")

FAULT = "kimi-tui had an internal error. You can continue."
"""The text of the notice about an error that the program survives."""

Report = Callable[[Exception], None]
"""Reports an error that the program survives: it is logged, and shown to the user in one line."""


def fault_advice() -> str:
    """Return where the reason for such an error can be read."""
    return log_words()


def is_user_facing(error: Exception) -> bool:
    """Return whether the text of an error was written for the user, as those of our own error classes are."""
    return type(error).__module__.startswith("kimi_tui.")


def report_of(node: MessagePump) -> Report:
    """Return the receiver of a widget's callback errors: the method `report` of the app that contains the widget at that time."""

    def report(error: Exception) -> None:
        app = cast("App[object]", node.app)
        known = cast("Report | None", getattr(app, "report", None))
        if known is not None:
            known(error)
        else:
            app.call_next(_raise, error)

    return report


def reported(
    node: MessagePump,
    work: Callable[[], Awaitable[object]],
    then: Callable[[str], None] | None = None,
) -> Callable[[], Coroutine[Any, Any, None]]:
    """Wrap the function of a Textual worker so that its errors are reported and do not end the program.

    Args:
        node: the widget or app that the worker belongs to.
        work: called when the worker starts, so that one that is cancelled before that leaves no coroutine behind that nobody awaits.
        then: called after an error was reported, with two sentences about it, so that the widget can be used again.
    """

    async def run() -> None:
        try:
            await work()
        except Exception as error:
            report_of(node)(error)
            if then is not None:
                then(f"{FAULT} {fault_advice()}")

    return run


def _raise(error: Exception) -> None:
    raise error


def start_detached(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """Start a coroutine as a task that is not cancelled with its caller; its exception goes to the callers that still wait.

    The event loop keeps the context of a timer until its time, even if it was cancelled long before: the limit of a model's
    answer is two minutes, that of a tool may be an hour. With the context of a screen's handler, a screen that was left would
    stay in memory that long.
    """
    task = asyncio.get_running_loop().create_task(work, context=app_context())
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
    return task


async def run_detached(work: Coroutine[Any, Any, T]) -> T:
    """Await a coroutine in a task of its own, without the context of the current widget or worker.

    Returns and raises what the coroutine does.
    """
    return await start_detached(work)


class SureTimer(Timer):
    """A Textual timer whose only tick is never skipped, however late it is.

    Textual skips ticks that are overdue when it computes the next one, even the only tick of a one-shot timer. If the process
    was not scheduled between two readings of the clock, the tick never came: a resize, for which there are 8 ms, was never
    laid out, and a question that waits for the terminal never accepted an answer.
    """

    def __init__(
        self, *args: Any, repeat: int | None = None, skip: bool = True, **options: Any
    ) -> None:
        super().__init__(*args, repeat=repeat, skip=skip and repeat != 0, **options)


def use_sure_timers() -> None:
    """Make every timer that is created from now on, by us or by Textual, a `SureTimer`."""
    setattr(message_pump, "Timer", SureTimer)  # noqa: B010 - a class, to the type checker


class Callbacks:
    """Schedules on the running event loop, in a context that holds no widget.

    Args:
        report: called with an exception that a callback or task raises.
    """

    def __init__(self, report: Report) -> None:
        self._report = report
        self._tasks: dict[asyncio.Task[None], Callable[[], None] | None] = {}

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        """Call a function after `delay_s` seconds."""
        return asyncio.get_running_loop().call_later(
            delay_s, self._guarded, callback, context=app_context()
        )

    def call_at(self, time_s: float, callback: Callable[[], None]) -> asyncio.Handle:
        """Call a function in the next turn of the event loop, or later if its clock shows less than `time_s` seconds."""
        loop = asyncio.get_running_loop()
        if loop.time() >= time_s:
            return loop.call_soon(self._guarded, callback, context=app_context())
        return loop.call_at(time_s, self._guarded, callback, context=app_context())

    def on_signal(self, number: int, callback: Callable[[], None]) -> None:
        """Call a function when the process gets a signal."""
        asyncio.get_running_loop().add_signal_handler(number, self._guarded, callback)

    def on_rare_signal(self, number: int, callback: Callable[[], None]) -> None:
        """Call a function when the process gets a signal, as `on_signal` does. Registering it takes a twentieth of the time.

        asyncio makes a list of all sixty signals for each handler that is registered. This handler is Python's own and stays
        after the end of the loop; then it passes the signal on to the system.
        """
        loop = asyncio.get_running_loop()

        def heard(_number: int, _frame: FrameType | None) -> None:
            try:
                loop.call_soon_threadsafe(self._guarded, callback)
            except RuntimeError:
                signal.signal(number, signal.SIG_DFL)
                os.kill(os.getpid(), number)

        signal.signal(number, heard)
        signal.siginterrupt(number, False)

    def start(
        self, work: Coroutine[Any, Any, None], then: Callable[[], None] | None = None
    ) -> asyncio.Task[None]:
        """Run a coroutine, and call `then` when it has ended in any way; `close` awaits it."""
        task = asyncio.get_running_loop().create_task(work, context=app_context())
        self._tasks[task] = then
        task.add_done_callback(self._ended)
        return task

    async def close(self) -> None:
        """Cancel everything that still runs, and await its end."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _guarded(self, callback: Callable[[], None]) -> None:
        try:
            callback()
        except Exception as error:
            self._report(error)

    def _ended(self, task: asyncio.Task[None]) -> None:
        then = self._tasks.pop(task)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception):
            self._report(error)
        if then is not None:
            then()


def each(items: Iterable[T], take: Callable[[T], object], report: Report) -> bool:
    """Call a function with each item, going on after an item for which it raises; the error is reported.

    Returns:
        whether it raised for no item.
    """
    whole = True
    for item in items:
        try:
            take(item)
        except Exception as error:
            whole = False
            report(error)
    return whole


def not_shown() -> str:
    """Return the text in the place of something whose layout failed."""
    return f"This could not be shown. {log_words()}"


LOGGED_LIMIT = 100
"""The largest number of different faults that are logged in one run, as a faulty row may be drawn sixty times a second."""

_logged: set[tuple[str, str, str]] = set()


def log_fault(what: str) -> None:
    """Log the exception being handled, with its traceback, unless the same one has been logged before.

    Args:
        what: the failed activity, in a few words.
    """
    error = sys.exception()
    place = ""
    if error is not None:
        for frame, line in traceback.walk_tb(error.__traceback__):
            place = f"{frame.f_code.co_filename}:{line}"
    key = (what, type(error).__name__, place)
    if key not in _logged and len(_logged) < LOGGED_LIMIT:
        _logged.add(key)
        from kimi_tui.logging_setup import begin_logging

        # The demo and a replay ask no model, so logging may not have begun in them.
        begin_logging(log_file())
        logging.getLogger(__name__).error("A fault while %s", what, exc_info=error)


def blank_strips(what: str, crop: Region) -> list[Strip]:
    """Blank rows for a region whose painting raised; the first row says so. Logs the exception being handled.

    Args:
        what: the failed activity, in a few words.
        crop: the region; its width and height are those of the rows.
    """
    log_fault(f"painting {what}")
    words = Strip([Segment(not_shown())])
    return [
        (words if not y else Strip([])).adjust_cell_length(crop.width) for y in range(crop.height)
    ]

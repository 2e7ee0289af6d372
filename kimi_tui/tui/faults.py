"""Faults of the screen: what a callback, a task, a layout or a painting raises is reported or logged, and the program goes on.

asyncio itself tells nobody but its own log of such an error, and Textual hears only of what went through its queues. So
nothing in `tui` schedules on the loop but through here. A view is never a reason to stop: a fault in one row or block
concerns that one alone.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
import traceback
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable, Iterator
from contextvars import Context
from typing import TYPE_CHECKING, Any, TypeVar, cast

from rich.segment import Segment
from textual import message_pump
from textual._context import active_app, active_message_pump
from textual.geometry import Region
from textual.strip import Strip
from textual.timer import Timer

from kimi_tui.app_paths import log_file, short
from kimi_tui.tui.screens import app_of

if TYPE_CHECKING:
    from textual.message_pump import MessagePump

T = TypeVar("T")

FAULT = "Something went wrong in the program; it goes on."
"""What the user is told of an error that ends nothing."""

Report = Callable[[Exception], None]
"""Takes an error that ends nothing: it is logged, and the user is told in one line."""


def fault_advice() -> str:
    """A sentence on where the reason for such an error can be read."""
    return f"The reason is in {short(log_file())}."


def is_user_facing(error: Exception) -> bool:
    """Whether an error's text is meant for the user: those of ours are."""
    return type(error).__module__.startswith("kimi_tui.")


def report_of(node: MessagePump) -> Report:
    """Where the errors of a widget's callbacks go: to `report` of the app that it is in when it happens."""

    def report(error: Exception) -> None:
        app = app_of(node)
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
    """The work of a worker, whose errors are reported and do not end the program.

    Args:
        node: the widget or app that the worker belongs to.
        work: called when the worker begins: one that is cancelled before that has made no coroutine that nobody awaits.
        then: called after an error was reported, with two sentences on it, so that the widget can be used again.
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


def _apart() -> Context:
    """A context that names the app, and neither the widget nor the worker at work.

    The event loop keeps the context of a timer until it would have been due, also when it was cancelled long before: the
    limit of a model's answer is two minutes, that of a tool may be an hour. With the context of a screen's handler a
    screen that was left would stay in memory for as long.
    """
    context = Context()
    app = active_app.get(None)
    if app is not None:
        context.run(active_app.set, app)
        context.run(active_message_pump.set, app)
    return context


def started(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """Start a coroutine as a task that is not cancelled with its caller; its exception goes to whoever still waits."""
    task = asyncio.get_running_loop().create_task(work, context=_apart())
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
    return task


async def apart(work: Coroutine[Any, Any, T]) -> T:
    """Await what a coroutine returns or raises, without lending it the context of the widget or worker at work."""
    return await started(work)


class SureTimer(Timer):
    """A timer of Textual that always comes if it is to come once, however late.

    Textual leaves out the ticks that are due already when it looks when the next one is, and of a timer that ticks once that
    one. Where the system gives the processor to others for so long between two looks at the clock, it never came: the window
    stayed as it was for ever behind a resize, for which there are 8 ms, and a question that waits for the terminal never took
    an answer.
    """

    def __init__(
        self, *args: Any, repeat: int | None = None, skip: bool = True, **options: Any
    ) -> None:
        super().__init__(*args, repeat=repeat, skip=skip and repeat != 0, **options)


def use_sure_timers() -> None:
    """Let whatever is timed from now on, by us or by Textual, have these."""
    setattr(message_pump, "Timer", SureTimer)  # noqa: B010 - a class, to the type checker


class Callbacks:
    """Schedules on the running event loop, in a context that holds no widget.

    Args:
        report: told what a callback or task raises.
    """

    def __init__(self, report: Report) -> None:
        self._report = report
        self._tasks: dict[asyncio.Task[None], Callable[[], None] | None] = {}

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        """Call a function after so many seconds."""
        return asyncio.get_running_loop().call_later(
            delay_s, self._guarded, callback, context=_apart()
        )

    def on_signal(self, number: int, callback: Callable[[], None]) -> None:
        """Call when the process gets a signal."""
        asyncio.get_running_loop().add_signal_handler(number, self._guarded, callback)

    def start(
        self, work: Coroutine[Any, Any, None], then: Callable[[], None] | None = None
    ) -> asyncio.Task[None]:
        """Run a coroutine, and call `then` when it has ended, however it did; `close` awaits it."""
        task = asyncio.get_running_loop().create_task(work, context=_apart())
        self._tasks[task] = then
        task.add_done_callback(self._ended)
        return task

    async def close(self) -> None:
        """Cancel what still runs, and await its end."""
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
    """Take items one by one, also behind one that cannot be taken; whether all of them were."""
    whole = True
    for item in items:
        try:
            take(item)
        except Exception as error:
            whole = False
            report(error)
    return whole


def drained(work: Generator[None, None, T]) -> T:
    """What a generator returns, without a pause."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            return end.value


def run_until(steps: Iterator[None], until: float, at_least: int = 1) -> bool:
    """Take steps until a time of `time.perf_counter`, and `at_least` so many; returns whether there may be more."""
    for count, _ in enumerate(steps, 1):
        if count >= at_least and time.perf_counter() >= until:
            return True
    return False


async def in_slices(work: Generator[None, None, T], slice_s: float) -> T:
    """What a generator returns; keys and frames get their turn before it, once a slice is over, and before the result is used.

    Args:
        work: gives way often; a step takes less than a slice.
        slice_s: how long it computes in one go, in seconds.
    """
    returned: list[T] = []

    def steps() -> Generator[None]:
        returned.append((yield from work))

    is_pending, under_way = True, steps()
    while is_pending:
        await asyncio.sleep(0)
        is_pending = run_until(under_way, time.perf_counter() + slice_s)
    await asyncio.sleep(0)
    return returned[0]


NOTHING = "Could not be shown; the log says why"
LOGGED_LIMIT = 100
"""Different faults that are logged in one run: a row may be drawn sixty times a second."""

_logged: set[tuple[str, str, str]] = set()


def log_fault(what: str) -> None:
    """Log the exception that is being handled with its traceback, unless this one has been logged before.

    Args:
        what: what was being done, in a few words.
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

        # The demo and a replay ask no model, and so far nothing may have been logged in them.
        begin_logging(log_file())
        logging.getLogger(__name__).error("A fault while %s", what, exc_info=error)


def blank_strips(what: str, crop: Region) -> list[Strip]:
    """Rows for a region that could not be painted, while the exception is being handled: the first says so."""
    log_fault(f"painting {what}")
    words = Strip([Segment(NOTHING)])
    return [
        (words if not y else Strip([])).adjust_cell_length(crop.width) for y in range(crop.height)
    ]

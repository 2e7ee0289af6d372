"""How much work something is, counted and not timed, so that a busy machine changes nothing."""

from __future__ import annotations

import asyncio
import sys
from _lsprof import Profiler
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

from support.watchdog import is_of_a_test


def n_calls(work: Callable[[], object]) -> int:
    """Return how many functions, ours and built-in ones, are called while `work` runs."""
    if sys.version_info >= (3, 12):
        return _n_calls_of_thread(work)
    # The profiler is in C: a function in Python that is called for each call took ten times as long as the work itself.
    profiler = Profiler()
    profiler.enable()
    try:
        work()
    finally:
        profiler.disable()
    return sum(entry.callcount for entry in profiler.getstats())


def _n_calls_of_thread(work: Callable[[], object]) -> int:
    """Return the same figure where the profiler in C counts calls of other threads too, as it does since Python 3.12."""
    n = 0

    def called(frame: FrameType, event: str, argument: object) -> None:
        nonlocal n
        n += event in ("call", "c_call")

    sys.setprofile(called)
    try:
        work()
    finally:
        sys.setprofile(None)
    return n


def n_steps(work: Callable[[], object]) -> int:
    """Return how many lines of Python are run and built-in functions called in `work`; this counts loops without calls too."""
    n = 0

    def line(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal n
        n += event == "line"
        return line

    sys.settrace(line)
    try:
        return n_calls(work) + n
    finally:
        sys.settrace(None)


@dataclass
class Most:
    """The most calls in one callback of the event loop."""

    n_calls: int = 0


@contextmanager
def most_in_a_callback() -> Generator[Most]:
    """Count the functions that are called in each callback of the event loop within this context, except those of tests."""
    run = asyncio.events.Handle._run
    most = Most()

    def counted(handle: Any) -> None:
        if is_of_a_test(handle):
            run(handle)
            return
        most.n_calls = max(most.n_calls, n_calls(lambda: run(handle)))

    asyncio.events.Handle._run = counted  # pyright: ignore[reportAttributeAccessIssue]
    try:
        yield most
    finally:
        asyncio.events.Handle._run = run  # pyright: ignore[reportAttributeAccessIssue]

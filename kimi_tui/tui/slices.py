"""Time slices: generators that compute for long, run a slice at a time so that they delay no key and no frame.

The generators yield often, wherever others may have a turn. The engine has `soul.tasks.TimeSlices` for the same.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator, Iterator
from typing import Any, TypeVar

T = TypeVar("T")

_RELEASED = 100
"""Objects that are dropped in one step."""


def drained(work: Generator[None, None, T]) -> T:
    """Run a generator to its end, ignoring its yields; returns its return value."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            return end.value


def run_until(steps: Iterator[None], until: float, at_least: int = 1) -> bool:
    """Advance an iterator of steps until a time.

    Args:
        steps: each `next` does a piece of the work.
        until: the time, as `time.perf_counter` has it, in seconds.
        at_least: the number of steps that are done in any case.

    Returns:
        whether there may be more steps.
    """
    for count, _ in enumerate(steps, 1):
        if count >= at_least and time.perf_counter() >= until:
            return True
    return False


async def in_slices(work: Generator[None, None, T], slice_s: float) -> T:
    """Run a generator to its end in time slices on the event loop, and return its return value.

    Keys and frames are handled before the first slice, between slices, and before the result is returned.

    Args:
        work: yields often: a step takes less than a slice.
        slice_s: length of a slice, in seconds.
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


async def release(held: list[Any], slice_s: float) -> None:
    """Drop references to objects in time slices: freeing tens of thousands of them at once would delay keys and frames.

    Args:
        held: the objects; the list is emptied. Whatever else refers to one of them keeps it.
        slice_s: length of a slice, in seconds.
    """

    def steps() -> Generator[None]:
        while held:
            del held[-_RELEASED:]
            yield

    await in_slices(steps(), slice_s)

"""Watches a running program from a test: conditions, the event loop's waits, memory, files."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path


async def until(condition: Callable[[], bool], within_s: float = 50.0) -> bool:
    """Wait for a condition that another process or thread brings about; return whether it holds."""
    end = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > end:
            return False
        await asyncio.sleep(0.01)
    return True


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def memory_of(pid: int) -> Iterator[bytes]:
    """Yield the writable parts of a process's memory, each in one piece."""
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            place, rights, *_ = line.split()
            if "w" not in rights:
                continue
            start, end = (int(one, 16) for one in place.split("-"))
            with contextlib.suppress(OSError, ValueError, OverflowError):
                memory.seek(start)
                yield memory.read(end - start)


@contextlib.asynccontextmanager
async def loop_waits() -> AsyncIterator[list[float]]:
    """Measure how long the event loop kept a one-millisecond timer waiting, each time."""
    waits = [0.0]

    async def tick() -> None:
        while True:
            start = time.monotonic()
            await asyncio.sleep(0.001)
            waits.append(time.monotonic() - start - 0.001)

    ticking = asyncio.create_task(tick())
    try:
        yield waits
    finally:
        ticking.cancel()


def reset_peak_bytes() -> int:
    """Reset the peak memory of this process; return its present memory in bytes."""
    Path("/proc/self/clear_refs").write_text("5")
    return peak_bytes()


def peak_bytes() -> int:
    """Return the largest memory in bytes that this process had since the last reset."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def n_descriptors() -> int:
    """Return how many files this process has open."""
    return len(os.listdir("/proc/self/fd"))

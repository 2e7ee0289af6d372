"""This process: hardening before it holds API keys, returning freed memory to the system, and the garbage collector.

The C library keeps freed memory between blocks in use (fragmentation), and is told to return it. The garbage collector is
suspended while a stored session is read: nearly all objects made then stay, and scanning them again and again takes a tenth
of the time, in pauses of up to 0.1 s. After a long session its objects are frozen (`gc.freeze`) until another one is opened.
"""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Generator
from contextlib import contextmanager

_PR_SET_DUMPABLE = 4
_M_MMAP_THRESHOLD = -3
_M_ARENA_MAX = -8
_LARGE_BYTES = 512 * 1024
LONG = 2_000
"""Events of a history that is worth it."""
THRESHOLDS = 2_000, 5, 500
"""For `gc.set_threshold`: what one collection looks at is so little that none takes longer than a few milliseconds."""


def harden() -> None:
    """Keep other processes of this user, such as the commands the agent runs, out of our memory and environment.

    Without this a child could read keys from `/proc/PPID/environ`. Where the system has no such switch, nothing
    is done.
    """
    if sys.platform != "linux":
        return
    try:
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    except (OSError, AttributeError):
        return


def tune_malloc() -> None:
    """Have the C library map large allocations, so that these are unmapped when they are freed, and use one arena.

    It would raise the size from which on it maps as allocations come and go, and keep those below it in an arena for each
    thread: requests of some megabytes, made again in every step, would stay in memory several times. One arena is enough, as
    only one thread runs Python at a time. Does nothing where the library has no such settings.
    """
    choose = getattr(ctypes.CDLL(None), "mallopt", None)
    if choose is not None:
        choose(_M_MMAP_THRESHOLD, _LARGE_BYTES)
        choose(_M_ARENA_MAX, 1)


def trim_heap() -> None:
    """Return freed memory to the system, where the C library can; takes some milliseconds, so call it in a thread."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


class GarbageCollector:
    """Controls Python's garbage collector, of which a process has one."""

    def __init__(self) -> None:
        self._is_held = False
        self._has_frozen = False

    def begin(self) -> None:
        """Collect from now on, unless a session is being read."""
        gc.set_threshold(*THRESHOLDS)
        if not self._is_held:
            gc.enable()

    def hold(self) -> None:
        """Suspend the garbage collection while a stored session is read."""
        if self._has_frozen:
            # What the one before left may be gone by now.
            gc.unfreeze()
            self._has_frozen = False
        gc.disable()
        self._is_held = True

    def release(self, n_events: int = 0) -> None:
        """Resume the garbage collection after a session of so many events was read. Does nothing where it is not suspended."""
        if not self._is_held:
            return
        self._is_held = False
        if n_events >= LONG:
            gc.freeze()
            self._has_frozen = True
        gc.enable()

    @contextmanager
    def paused(self) -> Generator[None]:
        """Suspend the garbage collection while this context is entered: of what one event makes by the thousands nearly all stays."""
        if not gc.isenabled():
            yield
            return
        gc.disable()
        try:
            yield
        finally:
            if not self._is_held:
                gc.enable()


COLLECTOR = GarbageCollector()

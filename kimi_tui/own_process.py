"""This process itself: its protection before it holds any key, and giving memory back to the system.

The C library keeps memory that was freed between pieces that are in use, and asks for more all the same.
"""

from __future__ import annotations

import ctypes
import sys

_PR_SET_DUMPABLE = 4
_M_MMAP_THRESHOLD = -3
_M_ARENA_MAX = -8
_LARGE_BYTES = 512 * 1024


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


def keep_large_apart() -> None:
    """Have large pieces of memory given back as soon as they are freed, where the C library knows how.

    It takes longer and longer pieces for ordinary ones as they come and go, and keeps the room of the largest for each
    thread: requests of some megabytes, made again in every step, would stay in memory several times. And what one thread
    freed, the others would not use: all take from one room, as only one of them runs Python at a time.
    """
    choose = getattr(ctypes.CDLL(None), "mallopt", None)
    if choose is not None:
        choose(_M_MMAP_THRESHOLD, _LARGE_BYTES)
        choose(_M_ARENA_MAX, 1)


def give_back() -> None:
    """Give all freed memory back, where the C library knows how; takes some milliseconds, so call it in a thread."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)

"""Gives memory that was freed back to the system: large pieces at once, the rest when something large was read.

The C library keeps what was freed between pieces that are in use, and asks for more all the same.
"""

from __future__ import annotations

import ctypes

_M_MMAP_THRESHOLD = -3
_LARGE_BYTES = 512 * 1024


def keep_large_apart() -> None:
    """Have large pieces of memory given back as soon as they are freed, where the C library knows how.

    It takes longer and longer pieces for ordinary ones as they come and go, and keeps the room of the largest for each
    thread: requests of some megabytes, made again in every step, would stay in memory several times.
    """
    choose = getattr(ctypes.CDLL(None), "mallopt", None)
    if choose is not None:
        choose(_M_MMAP_THRESHOLD, _LARGE_BYTES)


def give_back() -> None:
    """Do so where the C library knows how; takes some milliseconds, so call it in a thread."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)

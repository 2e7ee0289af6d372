"""Gives memory that was freed back to the system, after something large was read of which little is kept.

The C library keeps what was freed between pieces that are in use, and asks for more all the same.
"""

from __future__ import annotations

import ctypes


def give_back() -> None:
    """Do so where the C library knows how; takes some milliseconds, so call it in a thread."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)

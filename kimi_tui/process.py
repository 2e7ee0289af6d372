"""What this process does for its own protection before it holds any key."""

from __future__ import annotations

import sys

_PR_SET_DUMPABLE = 4


def harden() -> None:
    """Keep other processes of this user, such as the commands the agent runs, out of our memory and environment.

    Without this a child could read keys from `/proc/PPID/environ`. Where the system has no such switch, nothing
    is done.
    """
    if sys.platform != "linux":
        return
    import ctypes

    try:
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    except (OSError, AttributeError):
        return

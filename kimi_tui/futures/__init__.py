"""Futures: several continuations of a session from one checkpoint, side by side, each in a process with files of its own.

`values` has the plan, the estimate and the limits; `running` is the running set, with which a screen or a command starts,
steers, stops and answers them. Nothing of this package is imported before somebody asks for futures, except `values`.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

PREFIX = ".future-"
"""The beginning of the name of a future's session; sessions whose names begin with a dot are not listed."""


def are_left(bucket: Path) -> bool:
    """Return whether sessions of futures are among those of a work folder. It reads the folder, so call it in a thread."""
    with contextlib.suppress(OSError):
        return any(name.startswith(PREFIX) for name in os.listdir(bucket))
    return False

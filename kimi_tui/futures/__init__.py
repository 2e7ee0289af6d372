"""Futures: several continuations of a session from one checkpoint, side by side, each in a process with files of its own.

`values` has the plan, the estimate and the limits; `running` is the running set, with which a screen or a command starts,
steers, stops and answers them. Nothing of this package is imported before somebody asks for futures, except `values`.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kimi_tui.session.session import Session

PREFIX = ".future-"
"""The beginning of the name of a future's session; sessions whose names begin with a dot are not listed."""


def places_of(session: Session) -> list[Path]:
    """Return the folders in which the sessions of an open session's futures may lie.

    A session that moved with its renamed work folder, once or several times, may have left some behind in any of them. It reads a
    folder, so call it in a thread.
    """
    bucket = session.dir.parent
    if not session.state.moved_from:
        return [bucket]
    with contextlib.suppress(OSError), os.scandir(bucket.parent) as listing:
        return [Path(item.path) for item in listing if item.is_dir(follow_symlinks=False)]
    return [bucket]


def are_left(session: Session) -> bool:
    """Return whether sessions of futures lie where those of a session may lie. It reads folders, so call it in a thread."""
    for place in places_of(session):
        with contextlib.suppress(OSError):
            if any(name.startswith(PREFIX) for name in os.listdir(place)):
                return True
    return False

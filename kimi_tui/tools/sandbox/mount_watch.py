"""`MountWatch`: whether something was mounted or unmounted, as the kernel tells (Linux).

A mount changes what is at a path without a change of any time or name of a folder.
"""

from __future__ import annotations

import contextlib
import os
import select
import weakref
from collections.abc import Callable

_TABLE = "/proc/self/mountinfo"


class MountWatch:
    """The table of mounts of this process. Used by one thread at a time."""

    def __init__(self) -> None:
        self._owner = 0
        self._waiter = select.poll()
        self._close: Callable[[], object] = _nothing

    def changed(self) -> bool:
        """Return whether the table may have changed since the last call; always for the first one, never where no kernel tells."""
        if self._owner != os.getpid():
            # A forked process shares the descriptor, and with it what was told.
            self._owner = os.getpid()
            self._open()
            return True
        return bool(self._waiter.poll(0))

    def _open(self) -> None:
        self._close()
        self._waiter, self._close = select.poll(), _nothing
        with contextlib.suppress(OSError):
            table = os.open(_TABLE, os.O_RDONLY | os.O_CLOEXEC)
            self._close = weakref.finalize(self, os.close, table)
            self._waiter.register(table, select.POLLPRI)


def _nothing() -> None:
    pass

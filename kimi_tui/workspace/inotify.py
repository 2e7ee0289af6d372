"""`Inotify`: the kernel's queue of events in watched folders (Linux only), by the three calls of the C library.

The libraries for it (watchfiles, watchdog) read the queue in a thread of their own and hand events over when they like; a
caller that has to know everything that happened until now needs to read the queue dry itself.
"""

from __future__ import annotations

import os
import struct
import sys
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

MODIFY: Final = 0x2
ATTRIB: Final = 0x4
CLOSE_WRITE: Final = 0x8
MOVED_FROM: Final = 0x40
MOVED_TO: Final = 0x80
CREATE: Final = 0x100
DELETE: Final = 0x200
UNMOUNT: Final = 0x2000
OVERFLOW: Final = 0x4000
IGNORED: Final = 0x8000
ONLY_FOLDERS: Final = 0x01000000
EXCLUDE_UNLINKED: Final = 0x04000000
IS_FOLDER: Final = 0x40000000

_EVENT = struct.Struct("iIII")
_READ_BYTES = 64 << 10
_LIMIT_FILE = Path("/proc/sys/fs/inotify/max_user_watches")


class Inotify:
    """One inotify instance. Every watch has a number, the same one for the same folder however it was found.

    Attributes:
        descriptor: readable while events are waiting; -1 when closed.

    Raises:
        OSError: the system has no inotify, or the user has too many instances.
    """

    def __init__(self) -> None:
        self._libc = _libc()
        self.descriptor: int = self._libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
        if self.descriptor < 0:
            raise _error()
        self._close = weakref.finalize(self, os.close, self.descriptor)

    def add(self, folder: int, kinds: int) -> int:
        """Watch an open folder (`O_PATH` suffices); return the number of the watch, -1 if the kernel refuses.

        Args:
            folder: the folder's descriptor, which may be closed afterwards.
            kinds: the wanted events, joined by `|`.
        """
        path = b"/proc/self/fd/%d" % folder
        number: int = self._libc.inotify_add_watch(self.descriptor, path, kinds | ONLY_FOLDERS)
        return number

    def remove(self, number: int) -> None:
        """Stop watching a folder; its number is not given again."""
        if self.descriptor >= 0:
            self._libc.inotify_rm_watch(self.descriptor, number)

    def read(self) -> Iterator[tuple[int, int, bytes]]:
        """Yield the waiting events of one read: the number of the watch, the kinds, and the name in the folder. None at all
        means that the queue is empty.
        """
        try:
            data = os.read(self.descriptor, _READ_BYTES)
        except OSError:
            return
        at = 0
        while at < len(data):
            number, kinds, _, size = _EVENT.unpack_from(data, at)
            at += _EVENT.size
            yield number, kinds, data[at : at + size].rstrip(b"\0")
            at += size

    def close(self) -> None:
        """Stop watching all folders."""
        self.descriptor = -1
        self._close()


def most_watches() -> int:
    """Return the number of folders that the user may watch, in all programs together; 0 if it is unknown."""
    try:
        return int(_LIMIT_FILE.read_text())
    except (OSError, ValueError):
        return 0


def file_system_kind(folder: int) -> int:
    """Return the magic number of the file system of an open folder (`statfs`); 0 if it is unknown."""
    import ctypes

    # The number is the first word on every architecture, and no structure is larger than this.
    status = (ctypes.c_long * 64)()
    try:
        found = _libc().fstatfs(folder, ctypes.byref(status))
    except OSError:
        return 0
    return 0 if found else status[0] & 0xFFFFFFFF


def _libc() -> Any:
    """Return the C library with inotify's calls.

    Raises:
        OSError: the C library has no inotify.
    """
    if sys.platform != "linux":
        raise OSError("there is no inotify on this system")
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "inotify_init1"):
        raise OSError("there is no inotify on this system")
    return libc


def _error() -> OSError:
    import ctypes

    number = ctypes.get_errno()
    return OSError(number, os.strerror(number))

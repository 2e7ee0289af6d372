"""Folders for temporary files of this program. The program removes them at its end; `sweep` removes those of killed programs.

Each folder is locked (`flock`) by the process that made it, as long as the process uses it. So an unlocked folder is left over.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import fcntl
import os
import tempfile
import threading
import time
from types import TracebackType
from typing import Self

from kimi_tui.filesystem import remove_tree

PREFIX = "kimi-tui-run-"
_FORMER = "kimi-tui-trial-"
"""The beginning of the names of folders of earlier versions, which locked none and used each for some seconds."""
_FORMER_S = 3600.0
_AWAITED_S = 5.0
"""Seconds that the end of the program waits for a thread that still uses a folder, which takes that long on a busy machine only."""

_NAMED_BY = ("TMPDIR", "TEMP", "TMP")

_used: set[TemporaryFolder] = set()
_swept = threading.Event()


class TemporaryFolder:
    """A new folder that only this user may read. As a context manager it is removed at the end.

    Args:
        kind: what it is for, as a part of its name.
        within: the folder to make it in; empty for the usual one.
        awaited: whether the end of the program waits a moment for the thread that uses it, which would go on writing into it.

    Attributes:
        path: its path, without links.

    Raises:
        OSError: the disk refused.
    """

    def __init__(self, kind: str, *, within: str = "", awaited: bool = False) -> None:
        top = os.path.realpath(within or _usual())
        self.path, self._lock = _made(top, kind)
        self._is_awaited = awaited
        self._is_over = threading.Event()
        self._pid = os.getpid()
        if not _used:
            atexit.unregister(remove_all)
            atexit.register(remove_all)
        _used.add(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.remove()

    def remove(self) -> None:
        """Remove it; what the disk refuses to remove stays. It may be called again."""
        with contextlib.suppress(OSError):
            remove_tree(self.path)
        # The folder counts as used until it is gone: else the program could end in the middle of the removal.
        _used.discard(self)
        self._is_over.set()
        lock, self._lock = self._lock, -1
        if lock >= 0:
            os.close(lock)

    def end(self) -> None:
        """Remove it because the program ends, unless that is a fork of the one that uses it."""
        if os.getpid() != self._pid:
            return
        if self._is_awaited:
            self._is_over.wait(_AWAITED_S)
        self.remove()


def _usual() -> str:
    """Return the folder for temporary files.

    Raises:
        OSError: there is none in which anything can be written. Python takes the current folder then, which is the work folder:
            what lies there is the user's, and of snapshots and commands.
    """
    found = tempfile.gettempdir()
    named = {os.path.abspath(os.environ.get(name) or "/tmp") for name in _NAMED_BY}
    if found == os.getcwd() and found not in {*named, "/var/tmp", "/usr/tmp"}:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/tmp")
    return found


def _made(top: str, kind: str) -> tuple[str, int]:
    """Make a folder and lock it; return its path and the descriptor of the lock, -1 if the file system has no locks."""
    while True:
        path = os.path.join(top, f"{PREFIX}{kind}-{os.urandom(6).hex()}")
        os.mkdir(path, 0o700)
        try:
            lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except FileNotFoundError:
            continue  # A sweep took it for a folder that was left over.
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            continue
        except OSError:
            os.close(lock)
            return path, -1
        if os.path.isdir(path):
            return path, lock
        os.close(lock)


def remove_all() -> None:
    """Remove the folders of this process at its end. Only a process that ends by `os._exit` has to call it."""
    for one in list(_used):
        one.end()


def sweep() -> int:
    """Remove the folders that killed programs of this user have left; return how many. It blocks."""
    n_removed = 0
    with contextlib.suppress(OSError), os.scandir(os.path.realpath(_usual())) as listing:
        found = [one.path for one in listing if one.name.startswith((PREFIX, _FORMER))]
        for path in found:
            with contextlib.suppress(OSError):
                n_removed += _removed(path)
    return n_removed


def _removed(path: str) -> bool:
    """Remove a folder that nobody uses; return false if somebody does. Raises OSError: it is none, or the disk refused."""
    lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        status = os.fstat(lock)
        is_former = os.path.basename(path).startswith(_FORMER)
        if status.st_uid != os.geteuid() or (
            is_former and time.time() - status.st_mtime < _FORMER_S
        ):
            return False
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        remove_tree(path)
        return True
    finally:
        os.close(lock)


def sweep_in_background() -> None:
    """Run `sweep` in a thread, once in the life of the program. The end of the program does not wait for it."""
    if not _swept.is_set():
        _swept.set()
        threading.Thread(target=sweep, name="temporary folders", daemon=True).start()

"""The lock of a session, so that only one process has it open: an OS lock, which ends with its process and is never stale.

It is a `flock` on a file that nothing else opens: a POSIX record lock would be lost when any descriptor of the file is
closed. The text in the file only names the holder.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import socket
import time
from pathlib import Path

from kimi_tui.app_paths import short
from kimi_tui.filesystem import READ_ONLY, open_regular
from kimi_tui.session.errors import SessionLocked, StorageTrouble

LOCK_NAME = "lock"
_UNSUPPORTED = frozenset(
    {errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL}
)
# `holder_of` holds the lock for a moment, so a failed attempt is repeated.
_ATTEMPTS = 5
_ATTEMPT_S = 0.02
_HELD = frozenset({errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES})


class SessionLock:
    """The lock of one session.

    Attributes:
        supported: False if the file system cannot lock, or the lock file cannot be written; `remark` says which.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / LOCK_NAME
        self._fd: int | None = None
        self.supported = True
        self._refusal = 0
        self._warned = False

    @property
    def held(self) -> bool:
        """Whether this object holds the lock, or no process can."""
        return self._fd is not None or not self.supported

    @property
    def remark(self) -> str:
        """A sentence for the user, to be shown once; empty for none."""
        if self.supported:
            return ""
        if self._refusal:
            what = "disk is read-only" if self._refusal == errno.EROFS else "folder is not writable"
            return f"The {what}, so nothing can be saved in {short(self._path.parent)}"
        return "This disk does not support file locks. Do not open this session in two programs at once."

    def acquire(self) -> None:
        """Take the lock without waiting.

        Raises:
            SessionLocked: Another process (or another part of this one) holds the lock.
            StorageTrouble: The lock file cannot be opened.
        """
        if self._fd is not None:
            return
        try:
            # The descriptor is not inheritable, because a child left running in the background would keep the lock.
            fd = open_regular(self._path, os.O_RDWR | os.O_CREAT)
        except OSError as error:
            if error.errno in READ_ONLY and self._path.parent.is_dir():
                self.supported = False
                self._refusal = error.errno or 0
                return
            raise StorageTrouble.of("open the session", error) from error
        try:
            _flock_patiently(fd)
        except OSError as error:
            holder = _holder(fd)
            os.close(fd)
            if error.errno in _UNSUPPORTED:
                self.supported = False
                return
            if error.errno in _HELD:
                raise SessionLocked(holder) from error
            raise StorageTrouble.of("lock the session", error) from error
        self._fd = fd
        # The text is only for people to read; a full disk does not weaken the lock.
        with contextlib.suppress(OSError):
            os.ftruncate(fd, 0)
            os.pwrite(fd, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)

    def release(self) -> None:
        """Release the lock. The file stays: deleting it would let two processes lock two files with one name."""
        fd, self._fd = self._fd, None
        if fd is not None:
            with contextlib.suppress(OSError):
                os.ftruncate(fd, 0)
            with contextlib.suppress(OSError):
                os.close(fd)

    def check(self) -> str:
        """Check that the lock file still exists, and lock it again if it was deleted.

        Returns:
            A sentence for the user, to be shown once; empty if the lock is unchanged.
        """
        if self._fd is None or self._is_named(self._fd):
            return ""
        old, self._fd = self._fd, None
        try:
            self.acquire()
        except (SessionLocked, StorageTrouble) as error:
            # The old descriptor's lock tells other processes nothing any more, but this process still holds the session.
            self._fd = old
            if self._warned:
                return ""
            self._warned = True
            who = f" {error}" if isinstance(error, SessionLocked) else ""
            return f"The session's lock file was deleted, so another program may write to this session. Quit the other program.{who}"
        with contextlib.suppress(OSError):
            os.close(old)
        self._warned = False
        return "The session's lock file was deleted; it was created again."

    def _is_named(self, fd: int) -> bool:
        held = os.fstat(fd)
        try:
            named = os.lstat(self._path)
        except FileNotFoundError:
            # Without its folder there is nothing to lock; the lock is taken again when the folder is made anew.
            return not self._path.parent.is_dir()
        except OSError:
            return True
        return (held.st_dev, held.st_ino) == (named.st_dev, named.st_ino)

    def renew(self) -> None:
        """Take the lock again in a folder that was made anew; the old lock file has no name any more."""
        self.release()
        self.acquire()


def holder_of(folder: Path) -> str | None:
    """Return the process that has a session open; None if none has."""
    try:
        fd = open_regular(folder / LOCK_NAME)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return _holder(fd) if error.errno in _HELD else None
    else:
        return None
    finally:
        os.close(fd)


def _flock(fd: int) -> None:
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _flock_patiently(fd: int) -> None:
    for _ in range(_ATTEMPTS):
        try:
            _flock(fd)
        except OSError as error:
            # A holder writes its name; an empty file means that another process only asks who holds the lock.
            if error.errno not in _HELD or _holder_text(fd):
                raise
            time.sleep(_ATTEMPT_S)
        else:
            return
    _flock(fd)


def _holder(fd: int) -> str:
    text = _holder_text(fd)
    return text if text.isprintable() and text else "another process"


def _holder_text(fd: int) -> str:
    try:
        return os.pread(fd, 200, 0).decode(errors="replace").strip()
    except OSError:
        return ""

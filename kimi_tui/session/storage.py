"""The few calls to the operating system that sessions are written with, and what each may do wrong.

Everything that changes a session's files goes through a `Storage`, so that each call can be made to fail, or the process
to die at it. Nothing here knows what the bytes mean.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import platform
import time
from collections.abc import Iterable
from pathlib import Path

FILE_MODE = 0o600
FOLDER_MODE = 0o700
COPY_CHUNK_BYTES = 4 << 20

# What a file system says that has no hard links: FAT, BeeGFS, Android, protected_hardlinks, WSL shares, SMB, 9p.
NO_HARD_LINKS = frozenset(
    {
        errno.EPERM,
        errno.EACCES,
        errno.EXDEV,
        errno.EMLINK,
        errno.ENOTSUP,
        errno.EOPNOTSUPP,
        errno.EINVAL,
        errno.ENOSYS,
    }
)
# What a file system says that cannot sync a folder; nothing is known to be lost by it.
_NO_FOLDER_SYNC = frozenset(
    {errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EACCES, errno.EBADF}
)
_BUSY = frozenset({errno.EACCES, errno.EBUSY, errno.EPERM})
_REPLACE_PATIENCE_S = 2.5


class Storage:
    """The real disk.

    Args:
        patient: Try a refused rename again for a while: a Windows virus scanner holds files for milliseconds, and WSL
            passes that on. None looks at the system.
    """

    def __init__(self, *, patient: bool | None = None) -> None:
        self._patient = "microsoft" in platform.release().lower() if patient is None else patient

    def open(self, path: Path, flags: int) -> int:
        """A descriptor that children do not inherit; new files are for their owner only."""
        return os.open(path, flags | os.O_CLOEXEC, FILE_MODE)

    def close(self, fd: int) -> None:
        """Close; a failure is a failed sync, and the descriptor is gone all the same."""
        os.close(fd)

    def write(self, fd: int, data: bytes | memoryview) -> int:
        """Write; may write less than was asked."""
        return os.write(fd, data)

    def pread(self, fd: int, size: int, offset: int) -> bytes:
        """Read at a place; may read less than was asked."""
        return os.pread(fd, size, offset)

    def copy_range(self, source: int, target: int, size: int, offset: int) -> int:
        """Append up to `size` bytes of `source` from `offset` to `target`, in the kernel where it can."""
        size = min(size, COPY_CHUNK_BYTES)
        if hasattr(os, "copy_file_range"):
            with contextlib.suppress(OSError):
                # The kernel refuses O_APPEND targets and some file systems; the plain way then meets a real error too.
                done = os.copy_file_range(source, target, size, offset)
                if done:
                    return done
        return self.write(target, self.pread(source, size, offset))

    def fsync(self, fd: int) -> None:
        """Bring a file to the disk itself."""
        full = getattr(fcntl, "F_FULLFSYNC", None)
        if full is not None:
            with contextlib.suppress(OSError):
                fcntl.fcntl(fd, full)
                return
        os.fsync(fd)

    def ftruncate(self, fd: int, size: int) -> None:
        """Cut a file."""
        os.ftruncate(fd, size)

    def fstat(self, fd: int) -> os.stat_result:
        """What the descriptor refers to."""
        return os.fstat(fd)

    def stat(self, path: Path) -> os.stat_result:
        """What the name refers to."""
        return os.stat(path)

    def link(self, source: Path, target: Path) -> None:
        """A second name; fails where the name is taken."""
        os.link(source, target)

    def replace(self, source: Path, target: Path) -> None:
        """Rename over, at once."""
        waited_s = 0.0
        while True:
            try:
                os.replace(source, target)
            except OSError as error:
                if not self._patient or error.errno not in _BUSY or waited_s >= _REPLACE_PATIENCE_S:
                    raise
                pause_s = 0.01 if waited_s < 0.1 else 0.1
                time.sleep(pause_s)
                waited_s += pause_s
            else:
                return

    def unlink(self, path: Path) -> None:
        """Remove a name."""
        os.unlink(path)

    def make_folder(self, path: Path) -> None:
        """A folder for its owner only, with its parents."""
        missing = [folder for folder in (path, *path.parents) if not folder.exists()]
        for folder in reversed(missing):
            with contextlib.suppress(FileExistsError):
                os.mkdir(folder, FOLDER_MODE)

    def free_bytes(self, path: Path) -> int:
        """How much more this user may write to the disk that holds a folder."""
        status = os.statvfs(path)
        return status.f_bavail * status.f_frsize

    def sync_folder(self, path: Path) -> None:
        """Bring a folder's names to the disk, where its file system knows how."""
        try:
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except PermissionError:
            return
        try:
            os.fsync(fd)
        except OSError as error:
            if error.errno not in _NO_FOLDER_SYNC:
                raise
        finally:
            os.close(fd)


def write_all(storage: Storage, fd: int, data: bytes | memoryview) -> None:
    """Write everything, however short single writes are.

    Raises:
        OSError: The disk refused; part of the data may be written.
    """
    left = memoryview(data)
    while left:
        done = storage.write(fd, left)
        if done <= 0:
            raise OSError(errno.EIO, "nothing was written")
        left = left[done:]


def copy_bytes(storage: Storage, source: int, target: int, size: int, start: int = 0) -> None:
    """Append `size` bytes of one file, from `start` on, to another.

    Raises:
        OSError: The disk refused, or the source is shorter.
    """
    offset, end = start, start + size
    while offset < end:
        done = storage.copy_range(source, target, end - offset, offset)
        if done <= 0:
            raise OSError(errno.EIO, "the file is shorter than it was")
        offset += done


def read_exactly(storage: Storage, fd: int, size: int, offset: int) -> bytes:
    """Read a whole range.

    Raises:
        OSError: The disk refused, or the file is shorter.
    """
    pieces: list[bytes] = []
    while size:
        piece = storage.pread(fd, size, offset)
        if not piece:
            raise OSError(errno.EIO, "the file is shorter than it was")
        pieces.append(piece)
        offset += len(piece)
        size -= len(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def same_bytes(storage: Storage, one: Path, other: Path, size: int) -> bool:
    """Whether both files begin with the same `size` bytes; the end is compared first, where they are likeliest to differ."""
    if size == 0:
        return True
    one_fd = storage.open(one, os.O_RDONLY)
    try:
        other_fd = storage.open(other, os.O_RDONLY)
        try:
            last = max(0, size - 4096)
            starts: Iterable[int] = (last, *range(0, last, COPY_CHUNK_BYTES))
            for start in starts:
                count = min(COPY_CHUNK_BYTES, size - start)
                if read_exactly(storage, one_fd, count, start) != read_exactly(
                    storage, other_fd, count, start
                ):
                    return False
            return True
        finally:
            storage.close(other_fd)
    finally:
        storage.close(one_fd)


def write_anew(storage: Storage, path: Path, data: bytes) -> None:
    """Replace a small file whole, or leave it as it was.

    Raises:
        OSError: The disk refused; the old file stands.
    """
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        fd = storage.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        try:
            write_all(storage, fd, data)
            storage.fsync(fd)
        finally:
            storage.close(fd)
        storage.replace(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            storage.unlink(temporary)
        raise
    storage.sync_folder(path.parent)

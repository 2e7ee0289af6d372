"""A disk that can be made to fail, to write less than asked, to kill the process or to lose its power at any call."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kimi_tui.filesystem import Storage

CHANGING = (
    "open",
    "close",
    "write",
    "copy_range",
    "fsync",
    "ftruncate",
    "link",
    "replace",
    "unlink",
    "make_folder",
    "sync_folder",
)
READING = ("pread", "fstat", "stat")

Before = Callable[[str, tuple[Any, ...]], None]


class WatchedStorage(Storage):
    """A storage that calls `before(name, arguments)` before every changing call (or `after` after it)."""

    def __init__(self) -> None:
        super().__init__(patient=False)
        self.before: Before = lambda _name, _arguments: None
        self.after: Before = lambda _name, _arguments: None
        self.calls: list[str] = []


def _watched(name: str) -> Callable[..., Any]:
    real = getattr(Storage, name)

    def call(self: WatchedStorage, *arguments: Any) -> Any:
        self.calls.append(name)
        self.before(name, arguments)
        result = real(self, *arguments)
        self.after(name, arguments)
        return result

    return call


for _name in (*CHANGING, *READING):
    setattr(WatchedStorage, _name, _watched(_name))


def failing(
    names: set[str], number: int = errno.ENOSPC, *, skip: int = 0, times: int = 10**9
) -> Before:
    """Return a function that makes calls of these names fail with an error number, after `skip` good ones, `times` times."""
    seen = 0

    def before(name: str, _arguments: tuple[Any, ...]) -> None:
        nonlocal seen
        if name in names:
            seen += 1
            if skip < seen <= skip + times:
                raise OSError(number, os.strerror(number))

    return before


def killing(at: int) -> Before:
    """Return a function that kills the process at the `at`-th changing call (counted from 0)."""
    seen = -1

    def before(name: str, arguments: tuple[Any, ...]) -> None:
        nonlocal seen
        if name in CHANGING:
            seen += 1
            if seen == at:
                if name == "write" and at % 2:
                    # Half of the write reaches the disk.
                    fd, data = arguments
                    os.write(fd, bytes(data)[: len(data) // 2])
                os.kill(os.getpid(), signal.SIGKILL)

    return before


class ShortStorage(WatchedStorage):
    """A storage that writes at most `limit` bytes a call."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self.limit = limit

    def write(self, fd: int, data: bytes | memoryview) -> int:
        """Write the beginning only."""
        return os.write(fd, bytes(data)[: self.limit])

    def pread(self, fd: int, size: int, offset: int) -> bytes:
        """Read the beginning only."""
        return os.pread(fd, min(size, self.limit), offset)


class FullStorage(WatchedStorage):
    """A storage with room for `room` more bytes: a write that does not fit is first short, then refused."""

    def __init__(self, room: int = 1 << 40) -> None:
        super().__init__()
        self.room = room

    def write(self, fd: int, data: bytes | memoryview) -> int:
        """Write as many bytes as fit."""
        if not self.room:
            raise OSError(errno.ENOSPC, "No space left on device")
        done = os.write(fd, bytes(data)[: self.room])
        self.room -= done
        return done

    def copy_range(self, source: int, target: int, size: int, offset: int) -> int:
        """Copy as many bytes as fit."""
        return self.write(target, os.pread(source, size, offset))


def files_in(folder: Path) -> dict[str, int]:
    """Return the names of the files in a folder, with their inodes."""
    return {entry.name: entry.inode() for entry in os.scandir(folder) if entry.is_file()}


class PowerStorage(WatchedStorage):
    """A storage that knows what a power cut leaves: contents as of each file's last sync, names as of the folder's.

    `cut(target, how)` makes a folder as it would be found: unsynced bytes lost (`lost`), zeros in their place (`zeros`), or
    all there (`kept`); names as of the last sync of the folder, or (`kept`) as they are now.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        self.contents: dict[int, bytes] = {}
        self.names: dict[str, int] = {}

    def open(self, path: Path, flags: int) -> int:
        """Open a file so that `fsync` knows its path."""
        return super().open(
            path, flags & ~os.O_WRONLY | os.O_RDWR if flags & os.O_WRONLY else flags
        )

    def fsync(self, fd: int) -> None:
        """Record that the content of the file is safe."""
        self.before("fsync", (fd,))
        os.fsync(fd)
        status = os.fstat(fd)
        self.contents[status.st_ino] = os.pread(fd, status.st_size, 0)

    def sync_folder(self, path: Path) -> None:
        """Record that the names in the folder are safe."""
        self.before("sync_folder", (path,))
        if path == self.folder:
            self.names = files_in(path)

    def cut(self, target: Path, how: str) -> None:
        """Make the folder that a power cut at this moment would leave."""
        target.mkdir()
        now = files_in(self.folder)
        current: dict[int, bytes] = {}
        for name, inode in now.items():
            # A thread may have deleted the file by now.
            with contextlib.suppress(FileNotFoundError):
                current[inode] = (self.folder / name).read_bytes()
        names = now if how == "kept" else self.names
        for name, inode in names.items():
            synced = self.contents.get(inode, b"")
            data = current.get(inode, synced)
            if how == "lost":
                data = synced
            elif how == "zeros":
                data = synced + bytes(max(0, len(data) - len(synced)))
            (target / name).write_bytes(data)

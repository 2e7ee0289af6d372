"""Opens a session's line from the disk, repairing what a crash left. Needs no free byte, and never raises on content."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

from kimi_tui.session.journal import Journal
from kimi_tui.session.line import LineIndex
from kimi_tui.session.line_files import line_path, live_path, tidy
from kimi_tui.session.live_file import LiveFile
from kimi_tui.session.storage import Storage, read_exactly

_READ_ONLY = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})


def open_line(
    storage: Storage,
    folder: Path,
    live: LiveFile,
    journal: Journal,
    remark: Callable[[str], None],
) -> LineIndex:
    """Tidy up, read the live line through and take it over; blocks, so call it in a thread.

    Args:
        storage: The disk.
        folder: The session's folder.
        live: The live file, which then stands for what is there.
        journal: The journal, which is loaded first.
        remark: Told what the person should know.

    Raises:
        OSError: There is nothing that can be opened.
    """
    journal.load()
    tidy(storage, folder, journal, remark)
    path = live_path(folder)
    try:
        fd = storage.open(path, os.O_RDWR | os.O_CREAT)
    except OSError as error:
        if error.errno not in _READ_ONLY:
            raise
        fd = storage.open(path, os.O_RDONLY)
    refused: OSError | None = None
    try:
        index = scan(storage, fd)
        try:
            # What a killed process wrote may be in the kernel's memory only; from here on it counts as saved.
            storage.fsync(fd)
            if index.size == 0:
                storage.sync_folder(folder)
        except OSError as error:
            refused = error
    finally:
        storage.close(fd)
    live.adopt(index.size, index.torn)
    if refused is not None and refused.errno not in _READ_ONLY:
        live.distrust(refused, "save the conversation")
    live.move_torn()
    return index


def scan(storage: Storage, fd: int) -> LineIndex:
    """The index of an open file."""
    return LineIndex.scan(lambda size, offset: storage.pread(fd, size, offset))


def scan_line(storage: Storage, folder: Path, n: int) -> LineIndex:
    """The index of a world line (0 = the live one) as it is on the disk.

    Raises:
        OSError: It cannot be opened.
    """
    fd = storage.open(line_path(folder, n), os.O_RDONLY)
    try:
        return scan(storage, fd)
    finally:
        storage.close(fd)


def read_line(storage: Storage, folder: Path, n: int, size: int, offset: int) -> bytes:
    """Some bytes of a world line (0 = the live one) as it is on the disk.

    Raises:
        OSError: They cannot be read.
    """
    fd = storage.open(line_path(folder, n), os.O_RDONLY)
    try:
        return read_exactly(storage, fd, size, offset)
    finally:
        storage.close(fd)

"""Writes a file whole and brings it to the disk before any name that matters leads to it."""

from __future__ import annotations

import os
from pathlib import Path

from kimi_tui.session.storage import Storage, copy_bytes, write_all

Identity = tuple[int, int]
"""Which file it is, as long as it has a name or is open: its device and its inode."""


def identity_of(status: os.stat_result) -> Identity:
    """Which file this tells of."""
    return status.st_dev, status.st_ino


def write_new(
    storage: Storage, path: Path, source: int | None, keep: int, extra: bytes
) -> Identity:
    """Write a file and sync it; one that stood there is overwritten.

    Args:
        storage: The disk.
        path: Where.
        source: A descriptor whose first bytes it begins with; None for none.
        keep: How many of them.
        extra: What follows.

    Raises:
        OSError: The disk refused; part of the file may be there.
    """
    fd = storage.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    try:
        if source is not None:
            copy_bytes(storage, source, fd, keep)
        write_all(storage, fd, extra)
        storage.fsync(fd)
        return identity_of(storage.fstat(fd))
    finally:
        storage.close(fd)

"""Where the torn end of a line goes that a crash left: beside the file, so that nothing is lost of it."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from kimi_tui.session.storage import Storage, write_all


def keep_beside(storage: Storage, path: Path, torn: bytes) -> None:
    """Add the torn end of a file to another beside it, and sync that.

    Args:
        storage: The disk.
        path: The file.
        torn: Its end.

    Raises:
        OSError: The disk refused; what was kept there before is as it was.
    """
    beside = path.with_name(f"{path.name}.torn")
    fd = storage.open(beside, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        before = storage.fstat(fd).st_size
        try:
            write_all(storage, fd, torn + b"\n")
            storage.fsync(fd)
        except OSError:
            with contextlib.suppress(OSError):
                storage.ftruncate(fd, before)
            raise
    finally:
        storage.close(fd)
    storage.sync_folder(path.parent)

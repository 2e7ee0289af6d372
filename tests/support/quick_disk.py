"""Where tests may keep many small files whose syncs cost nothing."""

from __future__ import annotations

import os
import shutil

ROOM_BYTES = 4 << 30
"""More than all that the tests write."""


def memory_folder() -> str | None:
    """A file system in memory, None (the usual temporary folder) where there is none.

    A killed process loses nothing by it: only a power cut would tell the difference.
    """
    folder = "/dev/shm"
    if not os.access(folder, os.W_OK) or os.statvfs(folder).f_flag & os.ST_NOEXEC:
        return None
    return folder if shutil.disk_usage(folder).free > ROOM_BYTES else None

"""Where tests may keep many small files whose syncs cost nothing."""

from __future__ import annotations

import os


def memory_folder() -> str | None:
    """A file system in memory, None (the usual temporary folder) where there is none.

    A killed process loses nothing by it: only a power cut would tell the difference.
    """
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None

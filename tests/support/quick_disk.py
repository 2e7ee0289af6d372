"""Folders in which tests may keep many small files whose syncs cost nothing."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOM_BYTES = 4 << 30
"""Free bytes that a memory file system needs: more than all that the tests write."""


def memory_folder() -> str | None:
    """Return a folder of a file system in memory; None (for the usual temporary folder) if there is none.

    A killed process loses nothing by it: only a power cut would tell the difference.
    """
    folder = "/dev/shm"
    if not os.access(folder, os.W_OK) or os.statvfs(folder).f_flag & os.ST_NOEXEC:
        return None
    return folder if shutil.disk_usage(folder).free > ROOM_BYTES else None


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A folder of its own, in memory if there is some. For a `conftest.py` whose tests write much and use no tools: these
    read nothing below `/dev`.
    """
    with tempfile.TemporaryDirectory(dir=memory_folder(), ignore_cleanup_errors=True) as folder:
        yield Path(folder)

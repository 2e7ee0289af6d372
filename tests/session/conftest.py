"""Sessions are stored where syncs cost nothing: nearly every test of them syncs, and on a disk it would wait for that."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.quick_disk import memory_folder


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A folder of its own, in memory if there is some."""
    with tempfile.TemporaryDirectory(dir=memory_folder(), ignore_cleanup_errors=True) as folder:
        yield Path(folder)

from __future__ import annotations

from pathlib import Path

import pytest
from support.tool_env import Bench


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    work = tmp_path / "work"
    work.mkdir()
    return Bench(work)

"""The journeys that are counted still lead where they say: a word on the screen that changed would end one in vain."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.exhaustive
def test_every_journey_arrives() -> None:
    command = [sys.executable, "-m", "bench.journeys"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert len(re.findall(r"^.+?\s+\d+\s+[\d,]+\s+[\d,]+$", ended.stdout, re.M)) == 9

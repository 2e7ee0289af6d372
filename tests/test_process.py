"""What the process does for its own protection."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

HARDENED = """
import ctypes, os, subprocess
from kimi_tui.process import harden
if os.getuid() == 0:
    os.setgid(65534); os.setuid(65534)  # root may read everything
    ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)
read = ["cat", f"/proc/{os.getpid()}/environ"]
before = subprocess.run(read, capture_output=True)
harden()
after = subprocess.run(read, capture_output=True)
print(b"hush-hush" in before.stdout, b"hush-hush" in after.stdout, after.returncode != 0)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
def test_a_child_cannot_read_keys_from_our_environment() -> None:
    environ = {**os.environ, "KIMI_API_KEY": "hush-hush"}
    done = subprocess.run(
        [sys.executable, "-c", HARDENED], env=environ, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["True", "False", "True"]

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.covered import is_covered

from kimi_tui.tools.sandbox.policy import NoSandbox, SandboxSettings
from kimi_tui.tools.sandbox.sandbox import Sandbox, find_sandbox


@pytest.fixture(scope="module")
def sandbox() -> Sandbox:
    if is_covered(Path(__file__)):
        pytest.skip("this checkout lies below /tmp, which the sandbox covers: nothing was tried")
    try:
        found = find_sandbox(SandboxSettings(), os.environ)
    except NoSandbox as no:
        pytest.skip(f"no sandbox on this machine, nothing was tried: {no}")
    if not found.is_whole:
        pytest.skip(f"the sandbox here is not whole, nothing was tried: {found.gaps}")
    return found

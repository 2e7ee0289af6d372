from __future__ import annotations

import os

import pytest

from kimi_tui.tools.sandbox.policy import NoSandbox, SandboxSettings
from kimi_tui.tools.sandbox.sandbox import Sandbox, find_sandbox


@pytest.fixture(scope="module")
def sandbox() -> Sandbox:
    try:
        found = find_sandbox(SandboxSettings(), os.environ)
    except NoSandbox as no:
        pytest.skip(f"no sandbox on this machine, nothing was tried: {no}")
    if not found.is_whole:
        pytest.skip(f"the sandbox here is not whole, nothing was tried: {found.gaps}")
    return found

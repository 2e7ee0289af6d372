from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.covered import is_covered

from kimi_tui.tools.process import find_program
from kimi_tui.tools.sandbox.policy import NoSandbox, SandboxSettings
from kimi_tui.tools.sandbox.sandbox import Sandbox, find_sandbox, trouble_with


@pytest.fixture(scope="module", params=["own", "bwrap"])
def sandbox(request: pytest.FixtureRequest) -> Sandbox:
    """The one that is used here, and bubblewrap, which is used where there is no Landlock."""
    if is_covered(Path(__file__)):
        pytest.skip("this checkout lies below /tmp, which the sandbox covers: nothing was tried")
    if request.param == "bwrap":
        return with_bubblewrap()
    try:
        found = find_sandbox(SandboxSettings(), os.environ)
    except NoSandbox as no:
        pytest.skip(f"no sandbox on this machine, nothing was tried: {no}")
    if not found.is_whole:
        pytest.skip(f"the sandbox here is not whole, nothing was tried: {found.gaps}")
    return found


def with_bubblewrap() -> Sandbox:
    program = find_program("bwrap", os.environ)
    if not program:
        pytest.skip("bubblewrap is not installed here: nothing was tried in it")
    sandbox = Sandbox("bwrap", SandboxSettings(), os.environ, program)
    if trouble := trouble_with(sandbox):
        pytest.skip(f"bubblewrap does not hold here, nothing was tried in it: {trouble}")
    return sandbox

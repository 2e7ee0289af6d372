from __future__ import annotations

from pathlib import Path

import pytest
from support.covered import bubblewrap, whole_sandbox

from kimi_tui.tools.sandbox.sandbox import Sandbox


@pytest.fixture(scope="module", params=["own", "bwrap"])
def sandbox(request: pytest.FixtureRequest) -> Sandbox:
    """The one that is used here, and bubblewrap, which is used where there is no Landlock."""
    found = whole_sandbox(Path(__file__))
    return bubblewrap() if request.param == "bwrap" else found

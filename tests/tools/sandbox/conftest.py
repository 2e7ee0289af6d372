from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.covered import bubblewrap, set_up_ahead, whole_sandbox

from kimi_tui.tools.sandbox.sandbox import Sandbox


@pytest.fixture(scope="module", autouse=True)
def data_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The data folder of the program, in which private layers are: none of the machine's."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("data")
        patch.setenv("KIMI_TUI_HOME", str(folder))
        yield folder


@pytest.fixture(
    scope="module",
    params=["own", pytest.param("ahead", marks=pytest.mark.exhaustive), "bwrap"],
)
def sandbox(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    """The one that is used here, the same set up before its command, and bubblewrap, which is used where there is no Landlock."""
    place = Path(__file__)
    with set_up_ahead() if request.param == "ahead" else contextlib.nullcontext():
        yield bubblewrap(place) if request.param == "bwrap" else whole_sandbox(place)

"""A desk: a folder with a model, in which editors open sessions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.chat_server import ChatServerThread
from support.editor import Desk


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    with ChatServerThread() as server:
        made = Desk(tmp_path, server)
        for name, value in made.environment.items():
            monkeypatch.setenv(name, value)
        yield made

"""A data folder and a work folder of their own for the tests of the commands."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.commands import Place


@pytest.fixture
def place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Place:
    for name in [n for n in os.environ if n.lower().endswith("_proxy") or n.startswith("OPENAI_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("KIMI_TUI_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KIMI_SHARE_DIR", raising=False)
    made = Place(tmp_path, capsys)
    monkeypatch.chdir(made.work)
    return made

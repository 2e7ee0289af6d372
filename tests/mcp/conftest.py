"""A home and a work folder for servers."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with the work folder `work`, and `home` as the home of the program and of kimi-cli."""
    (tmp_path / "work").mkdir()
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("KIMI_TUI_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("KIMI_SHARE_DIR", str(tmp_path / "home" / ".kimi"))
    return tmp_path

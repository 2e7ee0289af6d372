"""What is said where a session cannot be opened: one line, with what to do, and the exit code."""

from __future__ import annotations

from pathlib import Path

import pytest

from kimi_tui.config.choosing import Choice
from kimi_tui.launch import Launch
from kimi_tui.tui.main.engine import CannotOpen
from kimi_tui.tui.main.opening import open_session


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own."""
    monkeypatch.setenv("KIMI_TUI_HOME", str(tmp_path))
    return tmp_path


def launch_at(home: Path, dialect: str | None = None) -> Launch:
    """A new session with a model whose server is not asked."""
    choice = Choice("server", "http://127.0.0.1:9/v1", "m", window=9000, dialect=dialect)
    return Launch(work_dir=home, config_path=home / "config.toml", choice=choice)


async def test_a_place_that_takes_no_session_is_named(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "file").write_text("")
    monkeypatch.setenv("KIMI_TUI_HOME", str(home / "file"))
    with pytest.raises(CannotOpen, match=r"file; KIMI_TUI_HOME moves") as failed:
        await open_session(launch_at(home), lambda records: None)
    assert failed.value.code == 1


async def test_an_unknown_dialect_is_told_with_those_there_are(home: Path) -> None:
    with pytest.raises(CannotOpen, match=r"no dialect 'mine'.*generic") as failed:
        await open_session(launch_at(home, dialect="mine"), lambda records: None)
    assert failed.value.code == 2

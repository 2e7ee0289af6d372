"""Sessions of other agents on the sessions screen: they are offered, looked at and imported, and ours go on being the list."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest
from support.foreign_sessions import FILES, PROJECT
from support.screens import Desk

from kimi_tui.config.model_choice import ModelChoice
from kimi_tui.config.settings import Config
from kimi_tui.launch import Launch
from kimi_tui.session.store import SessionStore
from kimi_tui.tui.app import KimiApp
from kimi_tui.tui.keyboard import SeenQuestion


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A work folder in which Claude Code and pi were used."""
    monkeypatch.setenv("KIMI_TUI_HOME", str(tmp_path / "ours"))
    monkeypatch.setenv("HOME", str(tmp_path))
    work = tmp_path / "work"
    work.mkdir()
    for name, folder in (("claude", ".claude"), ("pi", ".pi/agent")):
        shutil.copytree(FILES / name, tmp_path / folder)
    for path in (*tmp_path.rglob("*.jsonl"),):
        path.write_text(path.read_text().replace(PROJECT, str(work)))
        # Claude Code was used last.
        written = time.time() - (0 if ".claude" in path.parts else 5)
        os.utime(path, (written, written))
    named = str(work).replace("/", "-").replace("_", "-")
    (tmp_path / ".claude" / "projects" / "-home-user-project").rename(
        tmp_path / ".claude" / "projects" / named
    )
    (tmp_path / ".pi" / "agent" / "sessions" / "--home-user-project--").rename(
        tmp_path / ".pi" / "agent" / "sessions" / f"--{str(work)[1:].replace('/', '-')}--"
    )
    return tmp_path


async def test_one_is_looked_at_imported_and_listed(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SeenQuestion, "accepts", lambda _self, _at: True)
    launch = Launch(
        work_dir=home / "work",
        config_path=home / "config.toml",
        config=Config(reduced_motion=True),
        choice=ModelChoice("test", "http://127.0.0.1:9/v1", "kimi-test", window=32_000),
        picks=True,
    )
    app = KimiApp(launch)
    async with app.run_test(size=(120, 40)) as pilot:
        one = Desk(app, pilot)
        await one.sees("1 Claude Code session and 1 pi session in this folder  i lists them")
        await pilot.press("i")
        await one.sees("10 messages, 3 tool calls, 1 fork, 1")
        await pilot.press("f")
        await one.sees("This is a session of another agent. Press Enter to import it first.")
        await pilot.press("enter")
        await one.sees("Import Look here.")
        await pilot.press("escape")
        await pilot.press("down", "enter")
        await one.sees("Import Hello pi.")
        await pilot.press("y")
        await one.sees("Imported Hello pi.")
        assert len(SessionStore(home / "ours").list(home / "work")) == 1
        await pilot.press("i")
        await one.sees("1 session of other agents")

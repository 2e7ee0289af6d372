"""/import-settings on the screen: what other agents have is listed, shown, and written after a yes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.chat_server import ChatServer
from support.screens import desk

from kimi_tui.tui.main.commands.custom import CustomCommandScreen


async def test_a_server_is_listed_shown_without_its_secrets_and_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KIMI_TUI_HOME", str(tmp_path / "own"))
    monkeypatch.setenv("HOME", str(tmp_path))
    entry = {"command": "docs", "env": {"TOKEN": "secret-value"}}
    (tmp_path / ".claude.json").write_text(json.dumps({"mcpServers": {"docs": entry}}))
    async with ChatServer() as server, desk(tmp_path, server.base_url) as one:
        await one.ready()
        await one.say("/import-settings")
        shown = await one.sees("can be imported")
        assert "docs" in shown
        await one.pilot.press("enter")
        shown = await one.sees("TOKEN; their values are not shown")
        assert "secret-value" not in shown
        question = one.app.screen
        assert isinstance(question, CustomCommandScreen)
        await one.until(lambda: question.seen.is_open)
        await one.pilot.press("y")
        await one.sees("kimi-tui already has it")
        await one.pilot.press("escape")
        written = json.loads((tmp_path / "own" / "mcp.json").read_text())
        assert written["mcpServers"]["docs"] == entry

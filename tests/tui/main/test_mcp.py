"""`/mcp`: a project's server before and after the yes, its tools, its question, its prompt and its resource."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.chat_server import ChatServer, call, say
from support.mcp_session import configure, entry
from support.screens import desk
from support.soul import said_in

from kimi_tui.tui.dialogs.list_screen import ListScreen
from kimi_tui.tui.main.commands.custom import CustomCommandScreen


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KIMI_TUI_HOME", str(tmp_path))
    monkeypatch.setenv("KIMI_SHARE_DIR", str(tmp_path / ".kimi"))
    return tmp_path


async def test_a_projects_server_from_the_question_to_its_resource(home: Path) -> None:
    configure(home / "app" / ".mcp.json", made=entry())
    async with ChatServer() as server, desk(home, server.base_url) as one:
        await one.ready()
        await one.sees("not started until you allow it: made")
        await one.say("/mcp allow made")
        await one.sees("OUTSIDE THE SANDBOX")
        screen = one.app.screen
        assert isinstance(screen, CustomCommandScreen)
        await one.until(lambda: screen.seen.is_open)
        await one.pilot.press("y")
        await one.sees("The MCP server made is connected, with 6 tools.")
        # Its question is put in the panel, as the agent's own ones are.
        server.script(call("mcp__made__ask", {}), say("Red it is."))
        await one.say("Ask me")
        await one.sees("Call ask of the MCP server made?")
        panel = one.screen.bench.question
        assert panel is not None
        await one.until(lambda: panel.accepts_keys)
        await one.pilot.press("y")
        await one.sees("The MCP server made asks: Which color?")
        await one.until(
            lambda: one.screen.bench.question is not None and one.screen.bench.question.accepts_keys
        )
        await one.pilot.press("1")
        await one.pilot.press("enter")
        await one.sees("Red it is.")
        await one.idle()
        assert '"color": "red"' in said_in(server.requests[-1].messages[-1])
        server.script(say("A note."))
        await one.say("What is in @made:note://one?")
        await one.sees("A note.")
        await one.idle()
        assert "the first note" in said_in(server.requests[-1].messages[-1])
        server.script(say("Dear Ada."))
        await one.say("/made:greet Ada")
        await one.sees("Greet Ada kindly.")
        question = one.app.screen
        assert isinstance(question, CustomCommandScreen)
        await one.until(lambda: question.seen.is_open)
        await one.pilot.press("y")
        await one.sees("Dear Ada.")
        await one.idle()
        await one.say("/mcp made")
        await one.until(lambda: isinstance(one.app.screen, ListScreen))
        shown = await one.sees("crash")
        assert "Add two numbers" not in shown
        assert "outside the sandbox" in shown
        # The permission is listed with the others, and taken back there; the server stops.
        await one.pilot.press("escape")
        await one.say("/permissions")
        await one.sees("the MCP server made")
        await one.pilot.press("escape")
        await one.say("/permissions 1")
        await one.sees("Revoked: the MCP server made.")
        await one.say("/mcp revoke made")
        await one.sees("You have not allowed the MCP server made in this folder.")

"""The screen offers what its agent has: with an agent without parts no command, key, row or click leads to one."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from support.chat_server import ChatServer, say
from support.screens import Desk, desk

from kimi_tui.agent_parts import PARTS, parts_of
from kimi_tui.soul import assembly
from kimi_tui.soul.soul import Soul
from kimi_tui.tui.dialogs.help import HelpScreen
from kimi_tui.tui.main.commands.table import COMMANDS


class Bare:
    """A soul without any part: what an agent of another kind may be."""

    def __init__(self, soul: Soul) -> None:
        self._soul = soul

    def __getattr__(self, name: str) -> Any:
        if name in PARTS:
            raise AttributeError(f"this soul has no {name}")
        return getattr(self._soul, name)


@asynccontextmanager
async def bare(folder: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[Desk]:
    """Yield a screen whose agent has no part, and has answered once."""
    open_soul = assembly.open_soul

    async def opened(**options: Any) -> Any:
        return Bare(await open_soul(**options))

    monkeypatch.setattr(assembly, "open_soul", opened)
    monkeypatch.setenv("KIMI_TUI_HOME", str(folder))
    async with ChatServer() as server:
        server.script(say("The answer."), say("Another answer."))
        async with desk(folder, server.base_url) as one:
            await one.ready()
            assert isinstance(one.screen.conversation.soul, Soul)
            assert parts_of(one.screen.conversation.soul) == set()
            assert "goes back to any step" not in await one.sees("stops the agent")
            await one.say("A question")
            await one.sees("The answer.")
            await one.idle()
            yield one


async def test_commands_of_parts_that_are_missing_are_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with bare(tmp_path, monkeypatch) as one:
        needing = {command.name for command in COMMANDS if command.needs}
        assert len(needing) == 16
        assert needing.isdisjoint(command.name for command in one.screen.commands)
        # A missing command is treated as an unknown word: similar commands are named, and this one is not.
        await one.say("/rewind")
        await one.sees('"/rewind" is not a command.')
        one.screen.prompt.area.put("")
        await one.pilot.press(*"/un")
        await one.until(lambda: one.screen.prompt.area.text == "/un")
        assert "Reverse the last rewind" not in one.text()
        one.screen.prompt.area.put("")
        await one.pilot.press("ctrl+p")
        await one.sees("/usage")
        assert "/rewind [N]" not in one.text()
        await one.pilot.press("escape")
        await one.say("/help")
        await one.sees("Help")
        help_page = one.app.screen
        assert isinstance(help_page, HelpScreen)
        rows = "\n".join(row.text for row in help_page._rows(100))  # pyright: ignore[reportPrivateUsage]
        assert "/usage" in rows
        for words in (
            "/rewind",
            "/tasks",
            "Ctrl+B  ",
            "preview a rewind to before",
            "pin the message",
        ):
            assert words not in rows
        await one.pilot.press("escape")
        # Commands that need no part still work.
        await one.say("/mode edits")
        await one.sees("accept edits")


async def test_keys_and_clicks_on_parts_that_are_missing_say_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with bare(tmp_path, monkeypatch) as one:
        await one.pilot.press("ctrl+b")
        await one.sees("This agent does not support background tasks.")
        await one.pilot.press("ctrl+t")
        await one.until(lambda: one.screen.bench.timeline_pane.has_keys)
        footer = one.text().split("\n")[-1]
        assert "move" in footer
        for word in ("preview", "bookmark", "undo", "read"):
            assert word not in footer
        await one.pilot.press("up", "enter")
        await one.sees("This agent does not support time travel.")
        await one.pilot.press("b")
        await one.sees("This agent does not support bookmarks and pins.")
        await one.pilot.press("u")
        await one.sees("This agent does not support time travel.")
        await one.pilot.press("escape")
        one.screen.bench.focus_chat()
        await one.until(lambda: one.screen.transcript.has_focus)
        assert "go back" not in one.text().split("\n")[-1]
        await one.pilot.press("escape")
        await one.say("And now?")
        await one.sees("Another answer.")


async def test_the_engine_of_this_program_is_offered_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KIMI_TUI_HOME", str(tmp_path))
    async with ChatServer() as server, desk(tmp_path, server.base_url) as one:
        await one.ready()
        assert one.screen.conversation.state.parts == PARTS
        assert {command.name for command in COMMANDS} <= {
            command.name for command in one.screen.commands
        }

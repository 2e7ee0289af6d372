"""The screen offers what its agent has: with an agent without parts no command, key, row or click leads to one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import pytest
from support.chat_server import ChatServer, say
from support.screens import Desk, desk

from kimi_tui.agent_parts import PARTS, parts_of
from kimi_tui.soul import assembly, opening
from kimi_tui.soul.errors import RunCancelled
from kimi_tui.soul.soul import Soul
from kimi_tui.tui.dialogs.help import HelpScreen
from kimi_tui.tui.main.commands.table import COMMANDS
from kimi_tui.wire import events as ev
from kimi_tui.wire.queue import Wire


class Bare:
    """A soul with a session and without any other part."""

    def __init__(self, soul: Soul) -> None:
        self._soul = soul

    def __getattr__(self, name: str) -> Any:
        if name in PARTS - {"session"}:
            raise AttributeError(f"this soul has no {name}")
        return getattr(self._soul, name)


class Parrot:
    """A soul that has nothing but what every soul has: no session, no parts, no inbox."""

    name = "parrot"
    model_name = "parrot-1"
    model_capabilities: frozenset[str] | None = frozenset()

    def __init__(self) -> None:
        self.wire = Wire()
        self.heard: list[str] = []
        self.is_closed = False
        self._is_let_go = asyncio.Event()

    @property
    def status(self) -> ev.StatusUpdate:
        return ev.StatusUpdate(0, 1_000, 900)

    @property
    def message_count(self) -> int:
        return len(self.heard)

    async def run(self, user_input: str) -> Literal["done", "rejected"]:
        self.heard.append(user_input)
        self.wire.publish(ev.TurnBegin(user_input))
        self.wire.publish(ev.StepBegin(1))
        if user_input == "crash":
            raise ZeroDivisionError
        if user_input == "wait":
            self._is_let_go.clear()
            await self._is_let_go.wait()
            self.wire.publish(ev.TurnEnd("interrupted"))
            raise RunCancelled
        self.wire.publish(ev.TextPart(f"{user_input}, {user_input}!"))
        self.wire.publish(ev.TurnEnd("done"))
        return "done"

    async def interrupt(self) -> None:
        self._is_let_go.set()

    async def aclose(self) -> None:
        self.is_closed = True
        self._is_let_go.set()


async def test_an_agent_that_is_no_more_than_a_soul_can_be_talked_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    soul = Parrot()
    assert isinstance(soul, Soul)
    assert parts_of(soul) == set()

    async def opened(*_: object) -> opening.Opened:
        agent: Any = soul
        return opening.Opened(agent, (), (), agent, tmp_path, "")

    monkeypatch.setattr(opening, "open_session", opened)
    monkeypatch.setenv("KIMI_TUI_HOME", str(tmp_path))
    async with desk(tmp_path, "http://127.0.0.1:9/v1") as one:
        await one.sees("parrot-1   parrot")
        assert [command.name for command in one.screen.commands if command.needs] == []
        assert "Mode" not in one.text()
        await one.say("Hello")
        await one.sees("Hello, Hello!")
        # A message sent meanwhile waits, can be taken back, and is handed back by Esc.
        await one.say("wait")
        await one.until(lambda: soul.heard == ["Hello", "wait"])
        await one.say("next")
        await one.sees("next")
        await one.pilot.press("escape")
        await one.sees("Stopped")
        await one.until(lambda: one.screen.prompt.area.text == "next")
        await one.pilot.press("enter")
        await one.sees("next, next!")
        # A fault of the agent ends its turn alone.
        await one.say("crash")
        await one.sees("The agent failed: ZeroDivisionError.")
        await one.say("again")
        await one.sees("again, again!")
        # Every key and every command of the table is harmless, also those for parts that it lacks.
        for key in ("shift+tab", "ctrl+o", "ctrl+b", "f4"):
            await one.pilot.press(key)
            await one.sees("This agent does not support")
        for command in COMMANDS:
            if command.needs:
                assert one.screen.run_command(command.name, "1") is None
        await one.say("/stop")
        await one.say("/usage")
        await one.pilot.press("ctrl+t", "up", "enter", "escape")
        await one.say("still there")
        await one.sees("still there, still there!")
    assert soul.is_closed


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
            assert isinstance(one.screen.conversation.soul, Bare)
            assert parts_of(one.screen.conversation.soul) == {"session"}
            assert "goes back to any step" not in await one.sees("stops the agent")
            await one.say("A question")
            await one.sees("The answer.")
            await one.idle()
            yield one


async def test_commands_of_parts_that_are_missing_are_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with bare(tmp_path, monkeypatch) as one:
        needing = {command.name for command in COMMANDS if command.needs not in (None, "session")}
        assert len(needing) == 30
        assert needing.isdisjoint(command.name for command in one.screen.commands)
        # A missing command is no unknown word: what the agent lacks is said, and the text can be sent to it.
        await one.say("/rewind")
        await one.sees("This agent does not support time travel; kimi-tui's own agent does.")
        await one.sees("again sends the text to the agent.")
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


@pytest.mark.exhaustive
async def test_keys_and_clicks_on_parts_that_are_missing_say_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with bare(tmp_path, monkeypatch) as one:
        await one.pilot.press("ctrl+b")
        await one.sees("This agent does not support background tasks; kimi-tui's own agent does.")
        await one.pilot.press("ctrl+t")
        await one.until(lambda: one.screen.bench.timeline_pane.has_keys)
        footer = one.text().split("\n")[-1]
        assert "move" in footer
        for word in ("preview", "bookmark", "undo", "read"):
            assert word not in footer
        await one.pilot.press("up", "enter")
        await one.sees("This agent does not support time travel; kimi-tui's own agent does.")
        await one.pilot.press("b")
        await one.sees("This agent does not support bookmarks or pins; kimi-tui's own agent does.")
        await one.pilot.press("u")
        await one.sees("This agent does not support time travel; kimi-tui's own agent does.")
        await one.pilot.press("escape")
        one.screen.bench.focus_chat()
        await one.until(lambda: one.screen.transcript.has_focus)
        assert "go back" not in one.text().split("\n")[-1]
        await one.pilot.press("escape")
        await one.say("And now?")
        await one.sees("Another answer.")


@pytest.mark.exhaustive
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

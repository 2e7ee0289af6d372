"""Commands of files, other words for commands, and what is offered while they are typed."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import patch

import pytest
from support.chat_server import ChatServer, say
from support.screens import Desk, desk
from textual import events

from kimi_tui.tui import keyboard
from kimi_tui.tui.keyboard import LetterRun, SeenQuestion
from kimi_tui.tui.main.commands import custom
from kimi_tui.tui.main.commands.table import COMMANDS
from kimi_tui.tui.prompt.command import CommandTable, Values
from kimi_tui.tui.prompt.menu import found

if TYPE_CHECKING:
    from kimi_tui.tui.main.commands import MainParts


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KIMI_TUI_HOME", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def names(table: CommandTable, text: str) -> list[str]:
    """Return the names that are offered for a text."""
    return [command.name for command in table.offered(text)]


def test_other_words_and_letters_in_order() -> None:
    for word, name in (("exit", "quit"), ("resume", "sessions"), ("cost", "usage")):
        command = COMMANDS.parse(f"/{word}").command
        assert command is not None
        assert command.name == name
        assert names(COMMANDS, f"/{word}")[0] == name
        assert word not in COMMANDS
    assert "timeline" in names(COMMANDS, "/tmln")
    assert not COMMANDS["timeline"].is_begun_by("/tmln")
    assert found(COMMANDS, "tmln")[0].name == "timeline"


def test_what_is_used_most_comes_first() -> None:
    table = CommandTable(*COMMANDS)
    assert names(table, "/com")[:3] == ["compare", "compact", "commit"]
    table.learn_uses(["/commands", "/commands", "/compact all", "/compact", "/compact", "compare"])
    assert names(table, "/com")[:3] == ["compact", "commands", "compare"]
    assert names(table, "/compare")[0] == "compare"
    assert found(table, "com")[0].name == "compact"
    # The command that was run last comes first; one that only begins with another word comes last.
    table.learn_uses(["/compare 2", "/tmp is full"])
    assert names(table, "/com")[:3] == ["compare", "compact", "commands"]
    assert found(table, "com")[0].name == "compare"
    table.learn_uses(["/sessions"])
    assert names(table, "/res")[0] == "sessions"
    assert names(table, "/re")[0] != "sessions"
    assert names(table, "/com")[:3] == ["compact", "commands", "compare"]


def test_commands_in_folders() -> None:
    table = CommandTable(*COMMANDS)
    table.add([COMMANDS["undo"]._replace(name="git:push", aliases=("push", "exit"))])
    for text in ("/git:push", "/push", "/git:p", "/GIT:PUSH now"):
        parsed = table.parse(text)
        assert (parsed.command or parsed.meant[0]) == table["git:push"]
    assert names(table, "/git:")[0] == "git:push"
    assert "git:push" in names(table, "/pus")
    assert table.parse("/exit").command == table["quit"], "no other takes its words"
    assert table.parse("/git:puhs").meant[0] == table["git:push"]
    assert table.parse("/git: what is it").unknown == ""


def test_numbers_are_offered_with_what_they_stand_for() -> None:
    known = Values(checkpoints=(("12", "Fix it"), ("2", "Begin")))
    entries = COMMANDS.with_values("/rewind 2", known)
    assert [(one.name, one.title) for one in entries] == [("rewind 2", "Begin")]
    assert [one.name for one in COMMANDS.with_values("/rewind ", known)][1:] == [
        "rewind 12",
        "rewind 2",
    ]


def asks(one: Desk) -> bool:
    """Return whether a key would answer the question."""
    screen = one.app.screen
    return isinstance(screen, custom.CustomCommandScreen) and screen.seen.is_open


async def test_a_command_of_the_folder_is_shown_first(home: Path) -> None:
    commands = home / "app" / ".kimi-tui" / "commands"
    commands.mkdir(parents=True)
    (commands / "greet.md").write_text("---\ndescription: Greet someone\n---\nGreet $1 warmly.")
    async with ChatServer() as server, desk(home, server.base_url) as one:
        server.script(say("Hello."), say("Hello again."), say("Written."))
        await one.ready()
        await one.until(lambda: "greet" in one.screen.commands)
        await one.pilot.press(*"/gre")
        await one.sees("Greet someone")
        one.screen.prompt.area.take()
        await one.say("/greet Ada")
        await one.sees("Greet $1 warmly.")
        await one.pilot.press("escape")
        await one.sees("/greet was not sent.")
        assert one.screen.prompt.area.text == "/greet Ada"
        # Keys typed right after it are no answer.
        with patch.object(SeenQuestion, "QUIET_S", 60.0):
            area = one.screen.prompt.area
            area.put("/greet Ada")
            await one.pilot.press("enter", "y", "y", "e", "s")
            await one.sees("This command comes from a file in this folder.")
            await one.pilot.press("y", "space", "y")
            # Nor does a letter within a word put the question away.
            await one.pilot.press("n", "q")
            assert isinstance(one.app.screen, custom.CustomCommandScreen)
            assert len(server.requests) == 0
            await one.pilot.press("escape")
        one.screen.prompt.area.take()
        await one.say("/greet Ada")
        await one.sees("This command comes from a file in this folder.")
        await one.until(lambda: asks(one))
        # A word that begins with the letter answers nothing, and neither does a user who returns to the window.
        with patch.object(LetterRun, "DEBOUNCE_S", 60.0):
            await one.pilot.press("y", "e", "s")
        with patch.object(SeenQuestion, "QUIET_S", 60.0):
            one.app.post_message(events.AppFocus())
            await one.until(lambda: not asks(one))
            await one.pilot.press("y")
        assert isinstance(one.app.screen, custom.CustomCommandScreen)
        assert len(server.requests) == 0
        one.app.post_message(events.AppFocus())
        await one.until(lambda: asks(one))
        await one.pilot.press("y")
        await one.sees("Hello.")
        await one.idle()
        await one.say("/greet Bob")
        await one.sees("Hello again.")
        await one.idle()
        assert "Greet Bob warmly." in str(server.requests[-1].messages[-1])
        await one.say("/init")
        await one.sees("Written.")
        await one.idle()
        assert "AGENTS.md" in str(server.requests[-1].messages[-1])
        # A checkpoint is offered with its number and its message.
        await one.pilot.press(*"/rewind", "space")
        await one.sees("Greet Bob warmly.")
        await one.sees("/rewind 0")
        one.screen.prompt.area.take()
        # A command that hides a text after many lines is read before it is sent.
        (commands / "long.md").write_text("Greet.\n" + ".\n\n" * 60 + "And the end.")
        await custom.learn(one.screen.parts)
        await one.say("/long")
        shown = await one.sees("This command comes from a file in this folder.")
        assert "And the end." not in shown
        await one.until(lambda: asks(one))
        await one.pilot.press("y")
        await one.sees("read to the end first")
        await one.pilot.press("end")
        await one.sees("And the end.")
        server.script(say("Greeted."))
        await one.pilot.press("y")
        await one.sees("Greeted.")
        await one.idle()


@pytest.mark.sample
@pytest.mark.parametrize("released", ["", "seen", "late"])
async def test_what_is_typed_blind_behind_a_command_is_no_message(
    home: Path, monkeypatch: pytest.MonkeyPatch, released: str
) -> None:
    commands = home / "app" / ".kimi-tui" / "commands"
    commands.mkdir(parents=True)
    (commands / "greet.md").write_text("Greet $1 warmly.")
    found = asyncio.Event()
    learn = custom.learn

    async def slow(main: MainParts) -> None:
        await found.wait()
        await learn(main)

    monkeypatch.setattr(custom, "learn", slow)
    if released:
        monkeypatch.setattr(keyboard, "LONGEST_WAIT_S", 0.1)
    async with ChatServer() as server, desk(home, server.base_url) as one:
        await one.ready()
        await one.pilot.press(*"/greet Ada", "enter", "y", "y")
        if released == "late":
            # On a machine that stood still, Enter is read before the text that it sends can be seen, and arrives after it.
            await one.until(lambda: one.screen.prompt.area.text == "yy")
        await one.pilot.press("enter")
        if released:
            # The text is shown if it takes long, and waits for an Enter of its own.
            await one.until(lambda: one.screen.prompt.area.text == "yy")
        found.set()
        await one.sees("This command comes from a file in this folder.")
        await one.until(lambda: asks(one))
        assert one.screen.prompt.area.text == ("yy" if released else "")
        assert len(server.requests) == 0

"""The keys of vim in the prompt of the running program, with its menus, chips and history."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.chat_server import ChatServer, say
from support.screens import Desk, desk
from textual import events

from kimi_tui.config.settings import Config, PromptConfig
from kimi_tui.projection.blocks import UserBlock

VIM = Config(prompt=PromptConfig(vim=True))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own."""
    monkeypatch.setenv("KIMI_TUI_HOME", str(tmp_path))
    return tmp_path


def said(one: Desk) -> list[str]:
    """Return the user's messages, as the chat shows them."""
    return [b.text for b in one.screen.transcript.blocks if isinstance(b, UserBlock)]


async def test_a_message_is_written_changed_undone_and_sent(home: Path) -> None:
    async with ChatServer() as server, desk(home, server.base_url, config=VIM) as one:
        server.script(say("first"), say("second"))
        await one.ready()
        area, press = one.screen.prompt.area, one.pilot.press
        await one.sees("INSERT")
        await press(*"fix the bad test", "escape")
        await one.sees("NORMAL")
        await press("b", "b", "c", "w", *"red", "escape", "0", "d", "w")
        assert area.text == "the red test"
        await press("u")
        assert area.text == "fix the red test"
        await press("ctrl+r")
        assert area.text == "the red test"
        # Letters are commands; what is selected is shown, and taken with ctrl+c, too.
        await press("w", "v", "e")
        await one.sees("VISUAL")
        assert area.selected_text == "red"
        await press("d", "p", "V", "escape", "enter")
        await one.sees("first")
        assert said(one) == ["the  redtest"]
        assert area.mode == "insert"
        await one.idle()
        # `k` in the first line is what was sent before, `j` in the last one leads back; a slash begins a command.
        await press(*"draft", "escape", "k")
        assert area.text == "the  redtest"
        assert area.mode == "normal"
        await press("j")
        assert area.text == "draft"
        await press("d", "d")
        assert area.text == ""
        await press("slash", *"them")
        assert area.text == "/them"
        await one.until(lambda: one.screen.completion.menu is not None)
        # Esc closes the menu first.
        await press("escape")
        assert (area.mode, area.text) == ("insert", "/them")
        # A colon does the same.
        await press("escape", "d", "d", *":q")
        assert (area.mode, area.text) == ("insert", "/q")
        await one.until(lambda: (menu := one.screen.completion.menu) is not None and menu.active)
        assert (chosen := one.screen.completion.command) is not None
        assert chosen.name == "quit"
        await press("ctrl+u", *"and: more", "escape", "0", "colon", "escape", "d", "d", "a")
        assert area.text == ""
        await press("escape", "c", "c", *"second line", "enter")
        await one.until(lambda: said(one)[-1] == "second line")
        await one.idle()


@pytest.mark.exhaustive
async def test_esc_twice_stops_the_agent_and_prose_from_elsewhere_is_written(home: Path) -> None:
    async with ChatServer() as server, desk(home, server.base_url, config=VIM) as one:
        await one.ready()
        area, press = one.screen.prompt.area, one.pilot.press
        await press("escape")
        assert area.mode == "normal"
        area.text = "some words"
        await press("escape")
        await one.until(lambda: area.mode == "normal")
        one.screen.keystrokes.write_to_prompt("more ")
        assert area.mode == "insert"
        await press(*"and")
        assert "more and" in area.text
        # Off while it runs.
        area.use_vim(on=False)
        await press("escape", "x")
        assert "more andx" in area.text
        assert "INSERT" not in one.text()


@pytest.mark.exhaustive
async def test_a_chip_moves_and_goes_as_one(home: Path) -> None:
    long = "".join(f"line {n}\n" for n in range(30))
    async with ChatServer() as server, desk(home, server.base_url, config=VIM) as one:
        await one.ready()
        area, press = one.screen.prompt.area, one.pilot.press
        await press(*"see ")
        area.post_message(events.Paste(long))
        await one.until(lambda: area.text == "see [Pasted 30 lines]")
        await press(*" now", "escape", "0", "w")
        assert area.selection.end == (0, 4)
        await press("l")
        assert area.selection.end == (0, len("see [Pasted 30 lines]"))
        await press("h", "x")
        assert area.text == "see  now"
        await press("P")
        assert area.message == f"see {long} now"
        await press("d", "w", "u", "w", "i", *"is ")
        assert area.message == f"see {long} is now"


@pytest.mark.exhaustive
async def test_a_macro_and_replace_mode(home: Path) -> None:
    long = "".join(f"line {n}\n" for n in range(30))
    async with ChatServer() as server, desk(home, server.base_url, config=VIM) as one:
        server.script(say("seen"))
        await one.ready()
        area, press = one.screen.prompt.area, one.pilot.press
        area.text = "one\ntwo\nthree"
        await press("escape", "g", "g", "q", "a")
        await one.sees("recording @a q: end")
        # Text that the field inserts in insert mode is part of the macro.
        await press("A", *" [x]", "backspace", "semicolon", "escape", "j", "q")
        await one.until(lambda: "recording" not in one.text())
        await press("2", "at", "a")
        assert area.text == "one [x;\ntwo [x;\nthree [x;"
        await press("u")
        assert area.text == "one [x;\ntwo\nthree"
        await press("g", "g", "0", "R")
        await one.sees("REPLACE")
        await press("T", "W", "O", "space", "backspace", "backspace")
        assert area.text == "TWe [x;\ntwo\nthree"
        # A paste stands between; a new line takes no place; Enter sends.
        area.post_message(events.Paste(long))
        await one.until(lambda: "[Pasted 30 lines]" in area.text)
        await press("O", "shift+enter", "escape")
        assert area.text == "TW[Pasted 30 lines]O\n [x;\ntwo\nthree"
        assert area.mode == "normal"
        await press("g", "g", "d", "G", "i", *"go", "escape", "0", "R", "n", "enter")
        await one.sees("seen")
        assert said(one)[-1].endswith("no")
        assert area.mode == "insert"
        await one.idle()

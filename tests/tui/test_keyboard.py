"""Names of keys; and what is typed at once behind a key that opens something goes to what it opens, and acts on nothing else."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from support.cases import each
from support.chat_server import ChatServer, say
from support.screens import Desk, desk, talk
from textual import events, on
from textual.app import App, ComposeResult
from textual.widgets import Input

from kimi_tui.soul.errors import SoulError
from kimi_tui.soul.kimisoul import KimiSoul
from kimi_tui.soul.parts import Travel
from kimi_tui.soul.rewind_values import Forked, RewindPreview, Target
from kimi_tui.tui import keyboard
from kimi_tui.tui.dialogs.help import HelpScreen
from kimi_tui.tui.dialogs.text_dialog import TextDialog
from kimi_tui.tui.key_names import key_name
from kimi_tui.tui.keyboard import LONGEST_WAIT_S
from kimi_tui.tui.line_field import LineField
from kimi_tui.tui.preview.screen import RewindScreen
from kimi_tui.tui.prompt.menu import CommandMenu


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own."""
    monkeypatch.setenv("KIMI_TUI_HOME", str(tmp_path))
    return tmp_path


def at_once(one: Desk, *keys: str) -> None:
    """Press keys faster than anything can be opened in between."""
    for key in keys:
        key = "space" if key == " " else key
        character = key if len(key) == 1 else {"space": " ", "enter": "\r"}.get(key)
        one.app.post_message(events.Key(key, character))


@pytest.mark.exhaustive
async def test_a_command_typed_in_one_go_leaves_no_menu(home: Path) -> None:
    async with ChatServer() as server, desk(home, server.base_url) as one:
        await one.ready()
        await one.pilot.press(*"/us", "ctrl+u")
        menu = one.screen.query_one(CommandMenu)
        await one.until(lambda: not menu.active)
        at_once(one, *"/usage", "enter")
        await one.sees("Session: ")
        await one.until(lambda: not menu.active)


async def a_turn(one: Desk, server: ChatServer) -> None:
    """A conversation of one turn."""
    server.script(say("They are red."))
    await one.ready()
    await one.say("Tell me of apples")
    await one.sees("They are red.")
    await one.idle()


def soul_of(one: Desk) -> KimiSoul:
    """Return the engine of the session on the screen."""
    soul = one.screen.conversation.soul
    assert soul is not None
    return soul


@pytest.mark.exhaustive
async def test_a_bookmark_is_named_by_what_is_typed_at_once(home: Path) -> None:
    async with talk(home, a_turn) as (one, _):
        soul = soul_of(one)
        await one.pilot.press("ctrl+t")
        await one.until(lambda: one.screen.bench.timeline_pane.has_keys)
        # P pins, u undoes, w reads a line and p plays back, where they act on the timeline.
        at_once(one, *"jbPuwp")
        await one.until(lambda: isinstance(one.app.screen, TextDialog))
        field = one.app.screen
        assert isinstance(field, TextDialog)
        await one.until(lambda: field.area.text == "Puwp")
        assert not soul.marks.pins
        at_once(one, "x", "enter")
        await one.until(lambda: "Puwpx" in soul.marks.bookmarks.values())


async def test_the_palette_takes_what_is_typed_at_once(home: Path) -> None:
    async with talk(home, a_turn) as (one, server):
        at_once(one, "ctrl+p", *"show the help", "enter")
        await one.until(lambda: isinstance(one.app.screen, HelpScreen))
        assert one.screen.prompt.area.text == ""
        assert len(server.requests) == 1, "Enter has sent nothing"


@pytest.mark.sample
@pytest.mark.parametrize("typed", [("ctrl+t", "j", "enter"), ("tab", "k", "enter")])
async def test_what_is_typed_while_a_preview_is_computed_acts_on_nothing(
    home: Path, monkeypatch: pytest.MonkeyPatch, typed: tuple[str, ...]
) -> None:
    computed = asyncio.Event()
    preview = Travel.preview

    async def slow(self: Travel, target: Target) -> RewindPreview:
        await computed.wait()
        return await preview(self, target)

    monkeypatch.setattr(Travel, "preview", slow)
    async with talk(home, a_turn, quiet_s=1e9) as (one, server):
        soul = soul_of(one)
        for key in typed:
            await one.pilot.press(key)
        at_once(one, *"PyPu just")
        await one.pilot.pause()
        assert not soul.marks.pins
        computed.set()
        await one.until(lambda: isinstance(one.app.screen, RewindScreen))
        await one.until(lambda: one.screen.prompt.area.text == "PyPu just")
        assert not soul.marks.pins
        assert len(server.requests) == 1


async def test_escape_lets_go_of_what_was_typed_ahead(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    never = asyncio.Event()

    async def slow(self: Travel, target: Target) -> RewindPreview:
        await never.wait()
        raise KeyError(f"There is no checkpoint #{target.id}.")

    monkeypatch.setattr(Travel, "preview", slow)
    async with talk(home, a_turn) as (one, _):
        await one.say("/rewind 0")
        at_once(one, *"lost")
        await one.pilot.press("escape")
        await one.pilot.press(*"kept")
        await one.until(lambda: one.screen.prompt.area.text == "kept")
        never.set()
        await one.sees("There is no checkpoint #0.")


@pytest.mark.exhaustive
async def test_what_is_typed_in_the_prompt_is_not_held_back_for_long(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    computed = asyncio.Event()

    async def slow(self: Travel, target: Target) -> RewindPreview:
        await computed.wait()
        raise KeyError(f"There is no checkpoint #{target.id}.")

    monkeypatch.setattr(Travel, "preview", slow)
    async with talk(home, a_turn) as (one, _):
        await one.say("/rewind 0")
        at_once(one, *"later")
        await one.until(lambda: one.screen.prompt.area.text == "later")
        # Enter sends it for those who had time to see it.
        ahead = one.screen.bench.type_ahead
        assert ahead.is_blind(0.0)
        monkeypatch.setattr(keyboard, "QUIET_S", 0.0)
        await one.until(lambda: not ahead.is_blind(time.monotonic()))
        computed.set()
        await one.sees("There is no checkpoint #0.")
        assert one.screen.prompt.area.text == "later"


@pytest.mark.exhaustive
async def test_a_command_that_opens_nothing_leaves_the_keys_where_they_are(home: Path) -> None:
    async with talk(home, a_turn) as (one, _):
        at_once(one, *"/usage", "enter", *"more")
        await one.until(lambda: one.screen.prompt.area.text == "more")


@each(
    "key, name",
    [
        ("ctrl+t", "Ctrl+T"),
        ("f1", "F1"),
        ("shift+tab", "Shift+Tab"),
        ("escape,q", "Esc"),
        ("ctrl+home", "Ctrl+Home"),
        ("ctrl+underscore", "Ctrl+_"),
        ("ctrl+full_stop", "Ctrl+."),
        ("question_mark", "?"),
        ("alt+delete", "Alt+Delete"),
        ("insert", "Insert"),
        ("K", "K"),
    ],
)
def test_keys_as_people_read_them(key: str, name: str) -> None:
    assert key_name(key) == name


@pytest.mark.exhaustive
async def test_what_is_typed_while_a_fork_is_made_is_said_in_the_fork(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = asyncio.Event()
    fork = Travel.fork

    async def slow(self: Travel, *args: Any) -> Forked:
        await made.wait()
        return await fork(self, *args)

    monkeypatch.setattr(Travel, "fork", slow)
    async with talk(home, a_turn) as (one, server):
        first = soul_of(one).session
        server.script(say("They are yellow."))
        at_once(one, *"/fork", "enter", *"And pears", "enter")
        # Waiting longer than text is held after another command shows that it waits to be seen.
        await asyncio.sleep(LONGEST_WAIT_S + 0.1)
        assert len(server.requests) == 1
        made.set()
        await one.sees("They are yellow.")
        soul = one.screen.conversation.soul
        assert soul is not None
        assert soul.session.id != first.id


@pytest.mark.exhaustive
async def test_what_is_typed_while_a_fork_fails_stays_in_the_prompt(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def failing(self: Travel, *args: Any) -> Forked:
        raise SoulError("The fork could not be made.")

    monkeypatch.setattr(Travel, "fork", failing)
    async with talk(home, a_turn) as (one, _):
        at_once(one, *"/fork", "enter", *"And pears")
        await one.sees("The fork could not be made.")
        await one.until(lambda: one.screen.prompt.area.text == "And pears")


@pytest.mark.exhaustive
async def test_a_draft_goes_along_into_another_session(home: Path) -> None:
    async with talk(home, a_turn) as (one, _):
        before = one.screen
        await one.pilot.press(*"Pears")
        one.screen.action_command("new")
        await one.until(lambda: one.app.screen is not before and one.screen is not before)
        await one.until(lambda: one.screen.prompt.area.text == "Pears")


class FieldApp(App[None]):
    """A field, and what was entered in it."""

    def __init__(self) -> None:
        super().__init__()
        self.entered: list[str] = []

    def compose(self) -> ComposeResult:
        """Return the field."""
        yield LineField("as it was")

    @on(Input.Submitted)
    def _entered(self, event: Input.Submitted) -> None:
        self.entered.append(event.value)


async def test_what_is_typed_right_behind_a_key_comes_behind_it() -> None:
    app = FieldApp()
    async with app.run_test() as pilot:
        app.query_one(LineField).focus()
        await pilot.pause()
        for key in ("ctrl+u", *"new", "enter", "ctrl+u", *"er", "home", "ctrl+k", *"xy", "enter"):
            event = events.Key(key, key if len(key) == 1 else None)
            event.set_sender(app)
            app.post_message(event)
        while len(app.entered) < 2:
            await pilot.pause()
        assert app.entered == ["new", "xy"]

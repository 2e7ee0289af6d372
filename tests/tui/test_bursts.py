"""Keys that come in one burst, as from a paste or a slow line, do what they do when they are pressed one by one."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from support.chat_server import ChatServer
from support.screens import Desk, desk
from support.stored_sessions import store_session
from textual import events
from textual.widgets import Input

from kimi_tui.tui.pick_list import PickList
from kimi_tui.tui.prompt.menu import CommandMenu
from kimi_tui.tui.sessions.screen import SessionList

WORDS = "Fix the import", "Port the tests", "Why does CI wait?", "Release azz", "zz top"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with some sessions."""
    monkeypatch.setenv("KIMI_TUI_HOME", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "app").mkdir()
    for n, words in enumerate(WORDS):
        store_session(tmp_path, tmp_path / "app", words, "Done.", at=1e9 + n * 1e6)
    for name in ("apple.py", "zebra.py", "azz.txt"):
        (tmp_path / "app" / name).write_text("x")
    return tmp_path


def press(one: Desk, key: str) -> None:
    """Press one key, as the terminal sends it."""
    names = {"/": "slash", " ": "space", "@": "at"}
    character = key if len(key) == 1 else {"enter": "\r", "tab": "\t"}.get(key)
    event = events.Key(names.get(key, key), character)
    event.set_sender(one.app)
    one.app.post_message(event)


async def settled(one: Desk) -> None:
    """Let the app do what the keys have set off."""
    for _ in range(3):
        await one.pilot.pause()


def state(one: Desk) -> list[object]:
    """Return the state that keys can change: the screen, the focus, the text and the choice."""
    screen = one.app.screen
    found: list[object] = [type(screen), type(one.app.focused), one.screen.prompt.area.text]
    found += [field.value for field in screen.query(Input)]
    found += [(picks.chosen, picks.narrowed) for picks in screen.query(PickList)]
    found += [rows.chosen and rows.chosen.title for rows in screen.query(SessionList)]
    for menu in screen.query(CommandMenu):
        found.append((menu.active, menu.chosen and menu.chosen.name, menu.offer))
    return found


LETTERS = "azz"
EDITING = ("backspace", "ctrl+u", "left", "home")
MOVING = ("down", "down", "up", "end")


PLACES: dict[tuple[str, ...], tuple[str, ...]] = {
    ("/sessions",): (*"//az", "n", "v", *EDITING, *MOVING, "escape"),
    ("/settings",): (*LETTERS, "t", "right", "delete", *EDITING, *MOVING, "escape"),
    ("/model",): (*LETTERS, "k", "right", *EDITING, *MOVING, "escape"),
    ("ctrl+p",): (*LETTERS, "t", *EDITING, *MOVING, "escape"),
    ("ctrl+r",): (*"ses", *EDITING, "down", "ctrl+r", "enter", "escape"),
    ("@", "z"): (*LETTERS, *EDITING, "down", "tab"),
    ("/", "t"): (*LETTERS, "h", " ", *EDITING, "down", "tab"),
    ("ctrl+f",): (*LETTERS, *EDITING),
}
"""How each list that is narrowed by typing is opened, and the keys that are pressed there."""
TWICE = ("/", "z", "z", "z", "ctrl+u")


async def opened(one: Desk, opening: tuple[str, ...]) -> None:
    """An empty prompt, and what these keys open over it."""
    one.screen._escaped_at = 0.0  # pyright: ignore[reportPrivateUsage]
    one.screen.prompt.area.put("")
    await settled(one)
    for key in opening:
        if len(key) > 1 and key.startswith("/"):
            await one.say(key)
            await one.until(lambda: one.app.screen is not one.screen)
        else:
            press(one, key)
    await settled(one)
    await one.until(lambda: "Asking the server" not in one.text())


async def closed(one: Desk) -> None:
    """Back in the prompt."""
    press(one, "escape")
    await settled(one)
    while one.app.screen is not one.screen:
        press(one, "escape")
        await settled(one)


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", [0, pytest.param(15, marks=pytest.mark.exhaustive)])
async def test_a_burst_does_what_the_keys_do_one_by_one(home: Path, seed: int) -> None:
    choose = random.Random(seed)
    async with ChatServer() as server, desk(home, server.base_url, size=(80, 24)) as one:
        await one.ready()
        for opening, keys in PLACES.items():
            chosen = choose.choices(keys, k=choose.randint(3, 6))
            for drawn in (TWICE, chosen) if seed else (TWICE,):
                seen: list[list[object]] = []
                for is_burst in (False, True):
                    await opened(one, opening)
                    for key in drawn:
                        press(one, key)
                        if not is_burst:
                            await one.pilot.pause()
                    await settled(one)
                    seen.append(state(one))
                    await closed(one)
                assert seen[0] == seen[1], (opening, drawn)
        assert not one.app._reported, "a fault of the program"  # pyright: ignore[reportPrivateUsage]

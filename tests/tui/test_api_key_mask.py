"""Keys of servers in fields that show what is written: no cell of a terminal is ever sent one."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import Mock

import pytest
from support.chat_server import ChatServer
from support.screens import Desk, desk
from textual import events, on
from textual.app import App, ComposeResult
from textual.widgets import Input

from kimi_tui.config.model_choice import NeedsChoice
from kimi_tui.launch import Launch
from kimi_tui.tui import api_key_mask
from kimi_tui.tui.api_key_mask import MASK
from kimi_tui.tui.app import KimiApp
from kimi_tui.tui.dialogs.text_dialog import KEY_REFUSED as NOT_TAKEN
from kimi_tui.tui.dialogs.text_dialog import TextDialog
from kimi_tui.tui.line_field import LineField
from kimi_tui.tui.model_setup.screens import KEY_MOVED, KEY_REFUSED, KeyScreen

KEY = "sk-aB3dE5fG7hK9mN1pQ"
RANDOM = "9f8e7d6c5b4a39281706f5e4d3c2b1a0"
MODEL = "deepseek-r1-distill-qwen-32b"


def can_be_seen(running: App[None]) -> bool:
    """Return whether the screen that asks for a key is on the terminal."""
    return isinstance(running.screen, KeyScreen) and running.screen.seen.is_open


class FieldApp(App[None]):
    """A field, and the keys that it told of."""

    def __init__(self, *, is_address: bool = False) -> None:
        super().__init__()
        self.is_address = is_address
        self.keys: list[str] = []

    def compose(self) -> ComposeResult:
        """Return the field."""
        yield LineField(is_address=self.is_address)

    @on(LineField.KeyEntered)
    def _entered(self, event: LineField.KeyEntered) -> None:
        self.keys.append(event.key)

    @property
    def field(self) -> LineField:
        """The field."""
        return self.query_one(LineField)

    @property
    def shown(self) -> str:
        """The visible text of the field."""
        return self.field.render_line(0).text.rstrip()


@pytest.mark.parametrize("key", [KEY, RANDOM])
async def test_a_pasted_key_is_masked_in_its_first_picture_and_told(key: str) -> None:
    app = FieldApp()
    async with app.run_test() as pilot:
        app.field.focus()
        await pilot.pause()
        app.post_message(events.Paste("http://h/v1"))
        await pilot.pause()
        app.post_message(events.Paste(f"{key}\n"))
        while not app.keys:
            await pilot.pause()
        # A key is masked after other text, too, even if no space separates them.
        assert app.field.value == f"http://h/v1{key}"
        assert app.shown == f"http://h/v1{MASK * len(key)}"
        assert app.keys == [key]
        app.field.take_out(key)
        assert app.shown == "http://h/v1"


@pytest.mark.exhaustive
async def test_a_burst_is_masked_until_it_is_over_and_then_only_a_key_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for text, keys, shown in ((MODEL, [], MODEL), (KEY, [KEY], MASK * len(KEY))):
        # Time stands still until all has been typed, however long this machine takes.
        clock = Mock(monotonic=Mock(return_value=1_000.0))
        monkeypatch.setattr(api_key_mask, "time", clock)
        app = FieldApp()
        async with app.run_test() as pilot:
            app.field.focus()
            await pilot.pause()
            for n in range(len(text)):
                event = events.Key(text[n], text[n])
                event.time = 1_000.0
                event.set_sender(app)
                app.post_message(event)
            while app.field.value != text:
                await pilot.pause()
                drawn = app.shown if len(app.field.value) > 3 else ""
                assert set(drawn) <= {MASK}, drawn
            clock.monotonic.return_value += 1
            # If the state is never reached, this loop runs until the test's time is over.
            while (app.shown, app.keys) != (shown, keys):
                await pilot.pause()


async def test_of_what_is_typed_by_hand_an_address_alone_is_shown() -> None:
    app = FieldApp(is_address=True)
    async with app.run_test() as pilot:
        app.field.focus()
        await pilot.pause()
        for written, shown in (
            ("sk-a", "sk-a"),
            ("sk-ab3d", f"sk-a{MASK * 3}"),
            ("9f8e7d", f"9f8e{MASK * 2}"),
            ("gpu12x:8080", "gpu12x:8080"),
            ("localhost", "localhost"),
            ("sk-learn.org/v1", "sk-learn.org/v1"),
        ):
            app.field.value = written
            app.field.cursor_position = len(written)
            await pilot.pause()
            assert app.shown == shown


def at_once(one: Desk, *keys: str) -> None:
    """Keys from the terminal, all there before any of them is handled."""
    for key in keys:
        event = events.Key(key, key if len(key) == 1 else None)
        event.set_sender(one.app)
        one.app.post_message(event)


def files_with(folder: Path, text: str) -> list[Path]:
    """Return the files that contain a text."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return [path for path in files if text in path.read_text("utf-8", "replace")]


def in_words(desk: Desk) -> str:
    """Return the text of the screen in one line, without the borders of boxes."""
    return " ".join(desk.text().replace("│", " ").split())


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own."""
    monkeypatch.setenv("KIMI_TUI_HOME", str(tmp_path))
    return tmp_path


@pytest.mark.sample
@pytest.mark.parametrize("size", [(120, 40), (80, 24), (60, 20)])
async def test_a_key_in_the_base_url_goes_where_keys_go(home: Path, size: tuple[int, int]) -> None:
    launch = Launch(work_dir=home, config_path=home / "config.toml", choice=NeedsChoice())
    running = KimiApp(launch)
    async with ChatServer(models=["small"]) as server, running.run_test(size=size) as pilot:
        one = Desk(running, pilot)
        await pilot.press("1")
        await one.until(lambda: can_be_seen(running))
        await pilot.press("down", "down", "down", "down", "enter")
        url, key = (running.screen.query_one(name, LineField) for name in ("#url", "#key"))
        await one.until(lambda: url.has_focus)
        running.post_message(events.Paste(KEY))
        await one.until(lambda: KEY_MOVED in in_words(one))
        assert (url.value, key.value, key.has_focus) == ("", KEY, True)
        # Nothing is asked before there is an address.
        assert not server.other_requests
        url.focus()
        url.value = server.base_url
        # A second one does not take the place of the first unseen.
        running.post_message(events.Paste(RANDOM))
        await one.until(lambda: KEY_REFUSED in in_words(one))
        assert (url.value, key.value) == (server.base_url, KEY)
        # The first one is asked with, as its field was left.
        await one.sees("accepted, 1 model")
        assert server.other_requests[-1].headers["authorization"] == f"Bearer {KEY}"
        # Nor is that said of the key that takes its place.
        assert KEY_REFUSED in in_words(one)
        key.focus()
        await pilot.press("ctrl+u")
        running.post_message(events.Paste(RANDOM))
        await one.until(lambda: key.value == RANDOM and KEY_REFUSED not in in_words(one))


@pytest.mark.exhaustive
async def test_a_key_that_is_pasted_on_the_list_of_servers_is_meant_for_its_field(
    home: Path,
) -> None:
    launch = Launch(work_dir=home, config_path=home / "config.toml", choice=NeedsChoice())
    running = KimiApp(launch)
    async with running.run_test(size=(80, 24)) as pilot:
        one = Desk(running, pilot)
        await pilot.press("1")
        await one.until(lambda: can_be_seen(running))
        await pilot.press("down", "down", "down", "down")
        running.post_message(events.Paste(KEY))
        await one.until(lambda: running.screen.query_one("#key", Input).value == KEY)


@pytest.mark.sample
@pytest.mark.parametrize("place", ["key", "list"])
async def test_an_address_is_no_key_and_goes_to_no_server(home: Path, place: str) -> None:
    launch = Launch(work_dir=home, config_path=home / "config.toml", choice=NeedsChoice())
    running = KimiApp(launch)
    async with ChatServer() as server, running.run_test(size=(80, 24)) as pilot:
        one = Desk(running, pilot)
        await pilot.press("1")
        await one.until(lambda: can_be_seen(running))
        if place == "key":
            # The key belongs to the chosen server, which would get it.
            await pilot.press("enter")
            await one.until(lambda: running.focused is running.screen.query_one("#key"))
        running.post_message(events.Paste(f"{server.base_url}\n"))
        await one.until(lambda: running.screen.query_one("#url", Input).value == server.base_url)
        key = running.screen.query_one("#key", Input)
        await one.until(lambda: running.focused is key)
        assert key.value == ""
        await one.sees("This is a URL, so it was moved")
        # Another one takes the place of none.
        running.post_message(events.Paste("https://example.org/v1"))
        await one.sees("This is a URL, not a key")
        assert (key.value, running.screen.query_one("#url", Input).value) == ("", server.base_url)
        assert server.other_requests == []


async def test_a_command_takes_no_key_and_keeps_none(home: Path) -> None:
    async with ChatServer() as server, desk(home, server.base_url) as one:
        for command in ("/model", "/rename", "/modle"):
            at_once(one, *f"{command} {KEY}", "enter")
            await one.until(
                lambda command=command: (
                    f"What follows {command} looks like an API key" in in_words(one)
                )
            )
            assert KEY not in one.text()
        # Nor one among other words, as in a dialog that asks for a name.
        at_once(one, *f"/bookmark 0 my {KEY}", "enter")
        await one.until(lambda: "What follows /bookmark looks like an API key" in in_words(one))
        await one.pilot.press(*"/model ")
        one.app.post_message(events.Paste(KEY))
        await one.sees(f"› /model {MASK * len(KEY)}")
        await one.pilot.press("ctrl+u")
    assert files_with(home, KEY) == []


@pytest.mark.exhaustive
async def test_a_setting_takes_no_key(home: Path) -> None:
    async with ChatServer() as server, desk(home, server.base_url) as one:
        await one.say("/settings")
        await one.sees("default_model")
        await one.pilot.press("enter")
        await one.until(lambda: isinstance(one.app.screen, TextDialog))
        one.app.post_message(events.Paste(KEY))
        await one.sees(MASK * len(KEY))
        await one.pilot.press("enter")
        await one.until(lambda: NOT_TAKEN in in_words(one))
        assert KEY not in one.text()

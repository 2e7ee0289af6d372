"""The settings: what holds and why, changed in the file and, where that can be, at once."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from support.chat_server import ChatServer
from support.pictures import Pictures
from support.screens import Desk, desk

from kimi_tui.config.file import read_config
from kimi_tui.config.model_choice import ModelChoice
from kimi_tui.config.settings import SETTINGS, THEMES, Config
from kimi_tui.launch import GivenValue, Launch
from kimi_tui.tui.app import KimiApp
from kimi_tui.tui.dialogs.settings import SettingsScreen
from kimi_tui.tui.dialogs.text_dialog import TextDialog
from kimi_tui.tui.main.screen import OPEN_DELAY_S, MainScreen


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own."""
    monkeypatch.setenv("KIMI_TUI_HOME", str(tmp_path))
    return tmp_path


def test_titles_leave_room_for_the_values_at_60_columns() -> None:
    assert [one.title for one in SETTINGS.values() if len(one.title) > 28] == []


async def choose(one: Desk, key: str) -> None:
    """Find a setting by typing its name."""
    await one.until(lambda: isinstance(one.app.screen, SettingsScreen))
    await one.pilot.press(*key)

    def is_chosen() -> bool:
        shown = one.app.screen
        return isinstance(shown, SettingsScreen) and shown.chosen.key.startswith(key)

    await one.until(is_chosen)


def refused(path: Path, *_: object, **__: object) -> Config:
    """Raise the system's error for a file that cannot be written."""
    raise PermissionError(errno.EPERM, "Operation not permitted", str(path.parent / ".config.tmp"))


async def test_settings_are_found_changed_and_kept(home: Path) -> None:
    async with ChatServer() as server, desk(home, server.base_url, config=Config()) as one:
        await one.ready()
        file = one.app.launch.config_path
        await one.say("/settings")
        await choose(one, "dmail.review")
        await one.pilot.press("enter")
        await one.sees("Saved. The change takes effect in the next session.")
        row = next(row for row in one.text().split("\n") if "* Review" in row)
        assert row.split()[-3:-1] == ["on", "config.toml"]
        assert read_config(file).dmail.review
        # Another session is started with it.
        assert one.app.launch.config.dmail.review
        assert one.screen.conversation.new_launch().config.dmail.review
        await one.pilot.press("delete")
        await one.until(lambda: not read_config(file).dmail.review)
        # A number that is none leaves the file as it is; one that is kept is shown.
        await one.pilot.press(*["backspace"] * len("dmail.review"))
        await choose(one, "loop_control.max_steps")
        await one.pilot.press("enter")
        await one.sees("Leave it empty for the default.")
        # A wrong value stays in the field, to be corrected there.
        for text, words in (("many", "must be a number"), ("0", "from 1"), ("12", "Saved.")):
            await one.pilot.press("ctrl+a", "ctrl+k", *text, "enter")
            await one.sees(words)
            assert isinstance(one.app.screen, TextDialog) is (words != "Saved.")
        assert read_config(file).loop_control.max_steps_per_turn == 12
        # A disk that refuses is told in words, all of them: not with a number and the name of a file beside it.
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr("kimi_tui.tui.dialogs.settings.save_setting", refused)
            await one.pilot.press("delete")
            await one.sees("The setting was not saved: Operation not permitted")
        # A key is pressed; one that is taken says whose it is.
        await one.pilot.press(*"zz", "ctrl+u")
        await choose(one, "keys.send")
        await one.pilot.press("enter")
        await one.sees("Press a key.")
        await one.pilot.press("tab", "enter")
        await one.sees("which already belongs to complete")
        # The text is no answer yet.
        assert "Enter save" not in one.text()
        await one.pilot.press("backspace")
        await one.sees("Press a key.")
        # Some terminals tell of a modifier before the key that it is held for.
        await one.pilot.press("left_shift", "ctrl+left_control", "iso_level3_shift")
        await one.pilot.press("ctrl+s", "f5", "backspace", "enter")
        await one.sees("Saved. The change takes effect after a restart.")
        assert read_config(file).keys == {"send": "ctrl+s"}


@pytest.mark.exhaustive
async def test_a_theme_is_tried_on_and_put_back(home: Path) -> None:
    async with ChatServer() as server, desk(home, server.base_url, config=Config()) as one:
        await one.ready()
        await one.say("/settings")
        await choose(one, "theme")
        await one.pilot.press("right", "right", "right", "right")
        assert one.app.theme == "kimi-atom-one-dark"
        await one.sees("atom-one-dark  preview")
        # If there are many choices, those around the chosen one are shown, with the complete description.
        assert f"{len(THEMES)} values: " in one.text()
        assert "light, 16, atom-one-dark, atom-one-light, " in one.text()
        assert "A change takes effect at once." in one.text()
        # Esc leaves what was typed to find it, then the settings.
        await one.pilot.press("escape")
        await one.sees("Default model")
        await one.until(lambda: one.app.theme == "kimi-dark")
        assert "▌   Theme" in one.text()


@pytest.mark.exhaustive
async def test_a_value_is_chosen_from_a_list_and_one_that_is_not_set_is_shown_as_it_is_used(
    home: Path,
) -> None:
    async with ChatServer() as server, desk(home, server.base_url, config=Config()) as one:
        await one.ready()
        await one.say("/mode edits")
        await one.until(lambda: one.screen.conversation.mode == "edits")
        file = one.app.launch.config_path
        await one.say("/settings")
        await choose(one, "mode")
        await one.sees("Not set; this session uses edits.")
        await one.sees("Enter choose a value")
        await one.pilot.press("enter")
        await one.sees("Enter save")
        assert "✓ edits" in one.text()
        await one.pilot.press("up")
        # Nothing is written before it is chosen.
        assert not file.exists()
        await one.pilot.press("escape")
        await one.until(lambda: isinstance(one.app.screen, SettingsScreen))
        assert not file.exists()
        await one.pilot.press("enter", "up", "up", "enter")
        await one.sees("Saved.")
        assert read_config(file).mode == "plan"
        await one.sees("This session uses edits.")
        # The list of themes previews each of them, and puts the former one back.
        await one.pilot.press(*["backspace"] * len("mode"))
        await choose(one, "theme")
        await one.pilot.press("enter")
        await one.sees("Enter save")
        await one.pilot.press("down")
        await one.until(lambda: one.app.theme == "kimi-dark")
        await one.pilot.press("down")
        await one.until(lambda: one.app.theme == "kimi-light")
        await one.pilot.press("escape")
        await one.until(lambda: one.app.theme == "kimi-dark")
        assert read_config(file).theme == "auto"


@pytest.mark.exhaustive
async def test_what_an_argument_says_goes_before(home: Path) -> None:
    async with ChatServer() as server, desk(home, server.base_url, config=Config()) as one:
        await one.ready()
        given = {"mode": GivenValue("all", "--yolo")}
        one.app.launch = one.app.launch._replace(given=given)
        await one.say("/settings")
        await choose(one, "mode")
        await one.sees("* Mode")
        await one.sees("--yolo sets")
        await one.pilot.press("enter")
        await one.sees("Enter save")
        await one.pilot.press("enter")
        await one.sees("Saved. In this run --yolo still overrides it.")


@pytest.mark.exhaustive
@pytest.mark.parametrize("size", [(120, 40), (80, 24), (60, 20)], ids=["wide", "usual", "narrow"])
async def test_picture(
    home: Path,
    size: tuple[int, int],
    picture: Pictures,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # There is no engine, since its figures would be behind the screen.
    monkeypatch.setattr(MainScreen, "_open", lambda self: self.bench.views)
    monkeypatch.setenv("HOME", str(home))
    config = Config(theme="light" if size == (80, 24) else "dark", reduced_motion=True)
    choice = ModelChoice("test", "http://127.0.0.1:9/v1", "kimi-test")
    app = KimiApp(Launch(home, home / "config.toml", config, choice))
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        await pilot.pause(OPEN_DELAY_S * 2)
        app.screen_stack[0].action_command("settings")  # type: ignore[attr-defined]
        await pilot.pause()
        await pilot.press(*"sandbox", "down", "down")
        await pilot.pause()
        picture(app)

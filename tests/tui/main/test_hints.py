"""The keys that the footer of the main screen lists."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.cells import cell_len
from support.chat_server import ChatServer, say
from support.screens import Desk, desk

from kimi_tui.projection.session_state import SessionState
from kimi_tui.tui.frame_rows import fit_hints
from kimi_tui.tui.glyphs import UNICODE
from kimi_tui.tui.key_names import key_of
from kimi_tui.tui.main.demo_player import demo_end
from kimi_tui.tui.main.hints import hints


def test_at_sixty_cells_the_timeline_can_be_filtered() -> None:
    shown = fit_hints(hints("timeline", SessionState(), {}, UNICODE, 0.0), 56)
    assert [key for key, _ in shown] == ["↑↓", "Enter", "/", "Esc"]


def test_the_footer_follows_what_happens() -> None:
    def said(state: SessionState, place: str = "prompt") -> str:
        pairs = hints(place, state, {}, UNICODE, 1000.0)  # type: ignore[arg-type]
        return "   ".join(f"{key} {meaning}" for key, meaning in pairs)

    assert said(SessionState(running=True)) == (
        "Enter steer   Esc stop   Ctrl+T timeline   Ctrl+O compact   Ctrl+P commands   F1 help"
    )
    assert "compact" not in said(SessionState())
    assert "continue" in said(SessionState(can_resume=True))
    assert "retry now" in said(SessionState(running=True, retry_until=1002.0))
    waiting = SessionState(running=True, commands=frozenset({"key"}))
    assert "background" in said(waiting._replace(step=1))
    # A command of the user's own is one that no agent waits for.
    assert "background" not in said(waiting)
    # While it runs there is no agent to steer.
    assert said(waiting._replace(own_command=True)).startswith("Enter queue the message   Esc stop")
    assert said(waiting._replace(own_command=True, step=1)).startswith("Enter steer")
    assert said(SessionState(), "timeline").startswith("↑↓ move   Enter preview   / filter")
    assert cell_len(said(SessionState(), "timeline")) <= 116
    # While a filter is typed, letters and brackets are what it looks for.
    assert (
        said(SessionState(), "filter") == "Enter go to the step   Esc show all steps   Ctrl+U clear"
    )
    assert "fold" not in said(SessionState(), "found")


def test_changed_keys_are_the_ones_that_are_shown() -> None:
    assert key_of("compact", {"compact": "ctrl+k"}) == "Ctrl+K"
    pairs = hints("prompt", SessionState(running=True), {"compact": ""}, UNICODE, 0.0)
    assert "compact" not in [meaning for _, meaning in pairs]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own."""
    monkeypatch.setenv("KIMI_TUI_HOME", str(tmp_path))
    return tmp_path


def foot(one: Desk) -> str:
    """Return the last row of the screen."""
    return one.text().splitlines()[-1].strip()


@pytest.mark.exhaustive
async def test_keys_of_what_is_offered_take_the_place_of_those_of_the_prompt(home: Path) -> None:
    async with ChatServer() as server, desk(home, server.base_url) as one:
        server.script(say("seen"))
        await one.ready()
        await one.say("Hello")
        await one.idle()
        usual = foot(one)
        assert usual.startswith("Enter send   ? keys   Ctrl+T timeline")
        for keys, shown in (
            (("/",), "↑↓ choose   Tab complete   Esc close"),
            (("/", "down"), "Enter run   ↑↓ choose   Tab complete   Esc close"),
            ((*"/dmail",), "Enter complete   ↑↓ choose   Esc close"),
            ((*"/rename x",), "Enter run   Ctrl+J new line   F1 help"),
            (("ctrl+r",), "Enter accept   ↑↓ choose   Ctrl+R previous   Esc back"),
            (("ctrl+r", *"zz"), "Esc back   F1 help"),
        ):
            await one.pilot.press(*keys)
            await one.until(lambda shown=shown: foot(one).startswith(shown))
            if "ctrl+r" in keys or " " not in keys:
                await one.pilot.press("escape")
                left = usual if "ctrl+r" in keys else "Enter send   Ctrl+J new line"
                await one.until(lambda left=left: foot(one).startswith(left))
            await one.pilot.press("ctrl+u")
            await one.until(lambda: foot(one) == usual)
        # With vim, Esc is about what is offered before it leaves what is written.
        one.screen.prompt.area.use_vim(on=True)
        await one.pilot.press("/")
        await one.until(lambda: foot(one).startswith("INSERT    ↑↓ choose"))
        await one.pilot.press("escape")
        await one.until(lambda: foot(one).startswith("INSERT Esc: normal mode   Enter send"))


@pytest.mark.exhaustive
async def test_below_a_dialog_no_keys_are_named(home: Path) -> None:
    async with ChatServer() as server, desk(home, server.base_url) as one:
        await one.ready()
        usual = foot(one)
        assert usual.startswith("Enter send")
        for opens in ("ctrl+p", "f1"):
            await one.pilot.press(opens)
            await one.until(lambda: foot(one) == "")
            assert "Esc close" in one.text()
            await one.pilot.press("escape")
            await one.until(lambda: foot(one) == usual)


def test_the_end_of_the_demo_names_a_command_that_works_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = tmp_path / "on-path" / "kimi-tui"
    found.parent.mkdir()
    found.write_text("#!/bin/sh\n")
    found.chmod(0o700)
    monkeypatch.setenv("PATH", str(found.parent))
    assert demo_end().endswith("then run kimi-tui in your project.")
    # After `make run` the path has no program of that name.
    monkeypatch.setenv("PATH", str(tmp_path))
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    monkeypatch.setattr("sys.executable", str(bin_folder / "python"))
    assert f"then run {bin_folder}/python -m kimi_tui in your project" in demo_end()
    (bin_folder / "kimi-tui").touch()
    assert f"then run {bin_folder}/kimi-tui in your project" in demo_end()

"""Which keys the footer of the main screen lists."""

from __future__ import annotations

import json
import os
import string
from pathlib import Path

import pytest
from rich.cells import cell_len
from support.chat_server import ChatServer, call, gate, say, stall
from support.screens import desk
from textual import events

from kimi_tui.app_paths import hints_file
from kimi_tui.tui.frame import fit_hints
from kimi_tui.tui.glyphs import UNICODE
from kimi_tui.tui.keyboard import key_of
from kimi_tui.tui.main.hints import WORDS, hints, keep_seen, read_seen
from kimi_tui.tui.state import MainState


def test_at_sixty_cells_the_timeline_can_be_filtered() -> None:
    shown = fit_hints(hints("timeline", MainState(), {}, UNICODE, 0.0), 56)
    assert [key for key, _ in shown] == ["↑↓", "Enter", "/", "Esc"]


def test_the_footer_follows_what_happens() -> None:
    def said(state: MainState, place: str = "prompt") -> str:
        pairs = hints(place, state, {}, UNICODE, 1000.0)  # type: ignore[arg-type]
        return "   ".join(f"{key} {meaning}" for key, meaning in pairs)

    assert said(MainState(running=True)) == (
        "Enter steer   Esc stop   Ctrl+T timeline   Ctrl+O compact   Ctrl+P commands   F1 help"
    )
    assert "compact" not in said(MainState())
    assert "go on" in said(MainState(can_resume=True))
    assert "try now" in said(MainState(running=True, retry_until=1002.0))
    waiting = MainState(running=True, commands=frozenset({"key"}))
    assert "background" in said(waiting._replace(step=1))
    # A command of the user's own is one that no agent waits for.
    assert "background" not in said(waiting)
    # While it runs there is no agent to steer.
    assert said(waiting._replace(own_command=True)).startswith("Enter send after it   Esc stop")
    assert said(waiting._replace(own_command=True, step=1)).startswith("Enter steer")
    assert said(MainState(), "timeline").startswith("↑↓ move   Enter preview   / filter")
    assert cell_len(said(MainState(), "timeline")) <= 116
    # While a filter is typed, letters and brackets are what it looks for.
    assert said(MainState(), "filter") == "Enter go there   Esc all steps   Ctrl+U clear"
    assert "fold" not in said(MainState(), "found")


def test_changed_keys_are_the_ones_that_are_shown() -> None:
    assert key_of("compact", {"compact": "ctrl+k"}) == "Ctrl+K"
    pairs = hints("prompt", MainState(running=True), {"compact": ""}, UNICODE, 0.0)
    assert "compact" not in [meaning for _, meaning in pairs]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own, where every key has given time to read."""
    monkeypatch.setenv("KIMI_TUI_HOME", str(tmp_path))
    monkeypatch.setattr("kimi_tui.tui.main.hints.READ_S", 0.0)
    return tmp_path


async def test_each_comes_once_and_goes_with_a_key(home: Path) -> None:
    async with ChatServer() as server, desk(home, server.base_url, hints=True) as one:
        server.script(say("One."), gate(0, call("Shell", {"command": "true"})), stall())
        await one.ready()
        prompt = one.screen.prompt
        await one.say("First")
        await one.sees("Ctrl+T goes back to any step")
        await one.pilot.press("a")
        await one.until(lambda: not prompt.hint)
        assert "goes back to any step" not in one.text()
        await one.until(lambda: read_seen(hints_file(home)) == {"turn"})
        # What is sent while the agent works says how to have it back.
        await one.say("Second")
        await one.until(lambda: len(server.requests) == 2)
        await one.say("and that")
        await one.sees("↑ takes it back; Tab would queue it")
        # Never over a decision: that has a row of its own for what was pressed too early there.
        server.release()
        await one.sees("Run this command?")
        panel = one.screen.bench.question  # pyright: ignore[reportPrivateUsage]
        assert panel is not None
        height = panel.size.height
        while not panel.hint:
            panel.wait_anew()
            await one.pilot.press("y")
        await one.sees("Too early: answers wait")
        assert "takes it back" not in one.text()
        assert panel.size.height == height
        await one.until(lambda: panel.armed)
        await one.pilot.press("y")
        await one.until(lambda: len(server.requests) == 3)
        await one.pilot.press("escape")
        await one.sees("↑ has the message again")
    assert read_seen(hints_file(home)) == {"turn", "steered", "early", "stopped"}


async def test_what_was_shown_or_is_switched_off_does_not_come(home: Path) -> None:
    keep_seen(hints_file(home), "turn")
    async with ChatServer() as server, desk(home, server.base_url, hints=True) as one:
        server.script(say("One."), say("Two."))
        await one.ready()
        one.screen.prompt.area.post_message(events.Paste("x\n" * 30))
        await one.sees("Left, then Enter, opens what was pasted")
        await one.pilot.press("enter")
        # In the place of what was shown another one, and none after it is switched off.
        await one.sees("F1 lists the keys of every place")
        assert "goes back to any step" not in one.text()
        await one.pilot.press("a")
        assert not one.screen.prompt.hint
        config = one.app.launch.config
        one.app.configuration_changed("hints", config._replace(hints=False))
        hints_file(home).unlink()
        await one.screen._learn_hints()  # pyright: ignore[reportPrivateUsage]
        await one.say("Again")
        await one.sees("Two.")
        await one.idle()
        assert not one.screen.prompt.hint


@pytest.mark.parametrize("width", [80, 60])
def test_all_fit_over_the_prompt(width: int) -> None:
    for words in WORDS.values():
        parts = string.Formatter().parse(words)
        shown = "".join(said + (key_of(action, {}) if action else "") for said, action, *_ in parts)
        assert cell_len(shown) <= width - 5, shown


def test_what_stands_in_the_file_is_believed_as_far_as_it_is_known(tmp_path: Path) -> None:
    path = hints_file(tmp_path / "deep" / "folder")
    keep_seen(path, "turn")
    keep_seen(path, "help")
    assert read_seen(path) == {"turn", "help"}
    for hostile in (
        b"",
        b"{",
        b"7",
        b'{"turn": 1}',
        b"[" * 4000,
        b'"turn"',
        b"\xff" * 9,
        b"[]" * 9_000,
    ):
        path.write_bytes(hostile)
        assert read_seen(path) == set(), hostile
    path.write_text(json.dumps(["dmail", "\x1b[2J", 7, None, ["turn"]]))
    assert read_seen(path) == {"dmail"}
    path.unlink()
    os.mkfifo(path)
    assert read_seen(path) == set()
    # What is no folder costs only the memory.
    (tmp_path / "file").write_text("")
    keep_seen(tmp_path / "file" / "hints.json", "turn")

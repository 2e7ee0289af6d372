"""Hints that come once per account: at what, where they stand, how they go, and what is kept of it."""

from __future__ import annotations

import json
import os
import string
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from rich.cells import cell_len
from support.chat_server import ChatServer, call, gate, say, stall
from support.screens import Desk, desk
from textual import events

from kimi_tui.app_paths import hints_file
from kimi_tui.tui.dialogs.settings import SettingsScreen
from kimi_tui.tui.formatting import cut_wording
from kimi_tui.tui.key_names import key_of
from kimi_tui.tui.main.first_time_hints import WORDS, FirstTimeHints, keep_seen, read_seen
from kimi_tui.wire import events as ev


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own, where every key has given time to read."""
    monkeypatch.setenv("KIMI_TUI_HOME", str(tmp_path))
    monkeypatch.setattr("kimi_tui.tui.main.first_time_hints.READ_S", 0.0)
    return tmp_path


async def learned(one: Desk) -> None:
    """Wait until the session is open and it is known which hints were shown: before that none is."""
    await one.ready()

    def is_known() -> bool:
        hints = one.screen.first_time_hints
        return hints is not None and hints._seen is not None  # pyright: ignore[reportPrivateUsage]

    await one.until(is_known)


async def test_one_comes_once_and_goes_with_a_key(home: Path) -> None:
    async with ChatServer() as server, desk(home, server.base_url, hints=True) as one:
        server.script(say("One."))
        await learned(one)
        prompt = one.screen.prompt
        await one.say("First")
        await one.sees("Ctrl+T: go back to any step")
        await one.pilot.press("a")
        await one.until(lambda: not prompt.hint)
        assert "go back to any step, files" not in one.text()
        await one.until(lambda: read_seen(hints_file(home)) == {"turn"})


async def test_how_a_message_is_taken_back_is_not_said_of_one_that_waits_no_more(
    home: Path,
) -> None:
    async with ChatServer() as server, desk(home, server.base_url, hints=True) as one:
        await learned(one)
        hints, prompt = one.screen.first_time_hints, one.screen.prompt
        assert hints is not None
        hints.apply(ev.TurnBegin("First"))
        hints.apply(ev.SteerQueued("1", "and that"))
        assert "takes it back" in " ".join(prompt.hint)
        hints.apply(ev.SteerTaken("1", "and that", withdrawn=True))
        assert not prompt.hint
        # Nor of one that was stopped, once another one is the newest.
        hints.apply(ev.TurnEnd("interrupted"))
        assert "back into the prompt" in " ".join(prompt.hint)
        hints.apply(ev.TurnBegin("Second"))
        assert not prompt.hint


@pytest.mark.exhaustive
async def test_each_comes_once_and_goes_with_a_key(home: Path) -> None:
    async with ChatServer() as server, desk(home, server.base_url, hints=True) as one:
        server.script(say("One."), gate(0, call("Shell", {"command": "true"})), stall())
        await learned(one)
        prompt = one.screen.prompt
        await one.say("First")
        await one.sees("Ctrl+T: go back to any step")
        await one.pilot.press("a")
        await one.until(lambda: not prompt.hint)
        assert "go back to any step, files" not in one.text()
        await one.until(lambda: read_seen(hints_file(home)) == {"turn"})
        # A message that is sent while the agent works brings the hint on how to take it back.
        await one.say("Second")
        await one.until(lambda: len(server.requests) == 2)
        await one.say("and that")
        await one.sees("↑ takes it back")
        # Never over a decision: that has a row of its own for what was pressed too early there.
        server.release()
        await one.sees("Run this command?")
        panel = one.screen.bench.question  # pyright: ignore[reportPrivateUsage]
        assert panel is not None
        height = panel.size.height
        while not panel.hint:
            panel.restart_wait()
            await one.pilot.press("y")
        await one.sees("Pressed too early: answer after")
        assert "takes it back" not in one.text()
        assert panel.size.height == height
        await one.until(lambda: panel.accepts_keys)
        await one.pilot.press("y")
        await one.until(lambda: len(server.requests) == 3)
        await one.pilot.press("escape")
        await one.sees("↑ gets the message back")
    assert read_seen(hints_file(home)) == {"turn", "steered", "early", "stopped"}


@pytest.mark.exhaustive
async def test_what_was_shown_or_is_switched_off_does_not_come(home: Path) -> None:
    keep_seen(hints_file(home), "turn")
    async with ChatServer() as server, desk(home, server.base_url, hints=True) as one:
        server.script(say("One."), say("Two."))
        await learned(one)
        one.screen.prompt.area.post_message(events.Paste("x\n" * 30))
        await one.sees("To open the pasted text, press Left")
        await one.pilot.press("enter")
        # In the place of what was shown another one, and none after it is switched off.
        await one.sees("F1 lists all keys")
        assert "go back to any step, files" not in one.text()
        await one.pilot.press("a")
        assert not one.screen.prompt.hint
        config = one.app.launch.config
        saved = SettingsScreen.SettingSaved("hints", config._replace(hints=False))
        one.app.on_settings_screen_setting_saved(saved)
        hints_file(home).unlink()
        assert one.screen.first_time_hints is not None
        await one.screen.first_time_hints.learn()
        await one.say("Again")
        await one.sees("Two.")
        await one.idle()
        assert not one.screen.prompt.hint


@pytest.mark.parametrize("width", [80, 60, 40])
def test_all_fit_over_the_prompt(width: int) -> None:
    room = width - 5
    for forms in WORDS.values():
        written: list[str] = []
        for words in forms:
            parts = string.Formatter().parse(words)
            said = (text + (key_of(action, {}) if action else "") for text, action, *_ in parts)
            written.append("".join(said))
        shown = cut_wording(tuple(written), room)
        assert shown in written
        assert cell_len(shown) <= room, shown
        if width == 80:
            assert shown == written[0]


@pytest.mark.exhaustive
async def test_a_hint_has_its_key_in_a_terminal_that_becomes_narrower(home: Path) -> None:
    async with ChatServer() as server, desk(home, server.base_url, hints=True) as one:
        server.script(say("One."), say("Two."))
        await learned(one)
        await one.say("Hello")
        await one.idle()
        await one.say("/clear")
        await one.sees("are now a world line (a branch); Ctrl+T shows it")
        await one.pilot.resize_terminal(60, 24)
        await one.sees("are a world line (branch): Ctrl+T")
        await one.pilot.resize_terminal(40, 24)
        await one.sees("Ctrl+T shows the new world line")


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
    # If there is no folder, only the memory of the hint is lost.
    (tmp_path / "file").write_text("")
    keep_seen(tmp_path / "file" / "hints.json", "turn")


@pytest.mark.parametrize(
    "event",
    [
        ev.ContextReverted("rewind", 1, "u", 3, 2, 4, 1, 900, 100),
        ev.ContextReverted("clear", 1, "u", 3, 2, 4, 1, 900, 100),
        ev.LineChanged("jump", 1, 2, ""),
    ],
    ids=["rewind", "clear", "jump"],
)
def test_each_way_to_leave_a_line_is_told(event: ev.Event, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    nobody = cast(Any, SimpleNamespace(state=SimpleNamespace(running=False)))
    hints = FirstTimeHints(nobody, nobody, None)
    monkeypatch.setattr(hints, "happened", told.append)
    hints.apply(event)
    assert told == ["line"]


async def test_the_first_d_mail_world_line_and_compaction_are_told_in_a_sentence(
    home: Path,
) -> None:
    async with ChatServer() as server, desk(home, server.base_url, hints=True) as one:
        await learned(one)
        hints, prompt = one.screen.first_time_hints, one.screen.prompt
        assert hints is not None
        conversation = one.screen.conversation
        # The state may know of a turn already when the message is told that began it.
        conversation._change(conversation.state._replace(running=True))  # pyright: ignore[reportPrivateUsage]
        hints.apply(ev.SteerQueued("1", "First"))
        assert not prompt.hint
        letter = ev.ContextReverted("dmail", 1, "u", 3, 1, 4, 1, 900, 100, author="agent")
        told = (
            (ev.TurnEnd("done"), "Ctrl+T: go back to any step"),
            (letter, "left itself a note (a D-Mail); Ctrl+T shows it"),
            (ev.ContextReverted("rewind", 1, "u", 3, 2, 4, 1, 900, 100), "are now a world line"),
            (ev.CompactionEnd(900, 100, "summary"), "became a summary (a compaction); Ctrl+T"),
        )
        for n_told, (event, words) in enumerate(told, start=1):
            # A hint about this event is more useful than an older one, which was read.
            hints.apply(event)
            assert words in " ".join(prompt.hint)
            await one.until(lambda n=n_told: len(read_seen(hints_file(home))) == n)
        hints.apply(letter)
        assert "compaction" in " ".join(prompt.hint), "each is told once"
        prompt.hint = ""
        hints._place = None  # pyright: ignore[reportPrivateUsage]
        full = ev.StatusUpdate(used=90, limit=100, trigger=80)
        # A compaction that has just failed is not recommended.
        hints.apply(ev.CompactionEnd(900, 900, error="no"))
        hints.apply(full)
        assert not prompt.hint
        hints.apply(ev.CompactionEnd(900, 100, "summary"))
        hints.apply(full)
        assert "replaces older messages" in " ".join(prompt.hint)
        await one.until(lambda: "context" in read_seen(hints_file(home)))
    assert read_seen(hints_file(home)) == {"turn", "dmail", "line", "compacted", "context"}

"""Clicks outside of chat and timeline: header, gauge and footer; and commands that are typed on the timeline."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.chat_server import ChatServer, say
from support.screens import Desk, desk
from textual import events
from textual.widget import Widget

from kimi_tui.tui.dialogs.help import HelpScreen
from kimi_tui.tui.frame import Footer, Header
from kimi_tui.tui.gauge import Gauge
from kimi_tui.tui.model_setup.screens import ModelScreen
from kimi_tui.tui.preview.screen import RewindScreen


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own."""
    monkeypatch.setenv("KIMI_TUI_HOME", str(tmp_path))
    return tmp_path


def at(one: Desk, widget: type[Widget], words: str) -> tuple[int, int]:
    """Return the cell where a text of a row is drawn in a widget."""
    shown = one.app.screen.query_one(widget)
    row = one.text().split("\n")[shown.region.y]
    return row.index(words) - shown.region.x + 1, 0


async def test_header_gauge_and_footer_do_what_they_name(home: Path) -> None:
    async with ChatServer() as server, desk(home, server.base_url) as one:
        server.script(say("Seen."))
        await one.ready()
        await one.say("Hello")
        await one.idle()
        area = one.screen.prompt.area
        await one.pilot.click(Header, offset=at(one, Header, "ask"))
        await one.until(lambda: area.text == "/mode ")
        area.put("")
        await one.pilot.click(Header, offset=at(one, Header, "kimi-test"))
        await one.until(lambda: isinstance(one.app.screen, ModelScreen))
        await one.pilot.press("escape")
        await one.until(lambda: one.app.screen is one.screen)
        await one.pilot.click(Gauge, offset=(3, 0))
        await one.until(lambda: one.app.screen is not one.screen)
        await one.pilot.press("escape")
        await one.until(lambda: one.app.screen is one.screen)
        await one.pilot.click(Footer, offset=at(one, Footer, "help"))
        await one.until(lambda: isinstance(one.app.screen, HelpScreen))
        await one.pilot.press("escape")
        await one.until(lambda: one.app.screen is one.screen)
        area.put("a")
        await one.sees("Enter send   Ctrl+J new line")
        await one.pilot.click(Footer, offset=at(one, Footer, "Ctrl+J"))
        await one.until(lambda: area.text == "a\n")


@pytest.mark.exhaustive
async def test_a_right_click_is_no_left_one(home: Path) -> None:
    async with ChatServer() as server, desk(home, server.base_url) as one:
        server.script(say("Seen."))
        await one.ready()
        await one.say("Hello")
        await one.idle()
        row = next(y for y, text in enumerate(one.text().split("\n")) if "#0 Hello" in text)
        column = one.screen.bench.timeline_pane.region.x + 12
        for button in (3, 2, 1):
            await one.pilot.pause()
            assert one.app.screen is one.screen
            for kind in (events.MouseDown, events.MouseUp):
                # The terminal's driver passes events on like this.
                event = kind(None, column, row, 0, 0, button, False, False, False, column, row)
                event.set_sender(one.app)
                one.app.post_message(event)
        await one.until(lambda: isinstance(one.app.screen, RewindScreen))


@pytest.mark.exhaustive
async def test_a_command_that_is_typed_on_the_timeline_is_run(home: Path) -> None:
    async with ChatServer() as server, desk(home, server.base_url) as one:
        server.script(say("Seen."))
        await one.ready()
        await one.say("Hello")
        await one.idle()
        await one.pilot.press("ctrl+t", *"/rename")
        await one.sees("/rename is a command")
        await one.pilot.press(*" Other", "enter")
        await one.sees("This session is now called Other.")
        assert one.screen.prompt.area.has_focus
        # A word that some step has is a filter; a word that is neither a command nor found stays to be changed.
        await one.pilot.press("ctrl+t", *"/seen", "enter")
        await one.until(lambda: one.screen.bench.timeline_pane.place == "found")
        await one.pilot.press("escape", *"/zzz", "enter")
        await one.sees("zzz")
        assert one.screen.bench.timeline_pane.place == "missed"

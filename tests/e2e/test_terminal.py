"""The pty harness itself, on a tiny Textual app: what it types arrives, what it shows is what a person sees."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.program import Program
from support.terminal import ScreenTimeout, Terminal

APP = """
from textual.app import App
from textual.widgets import Input, Static

class Tiny(App):
    BINDINGS = [("ctrl+t", "note('ctrl+t')")]
    ENABLE_COMMAND_PALETTE = False

    def compose(self):
        yield Static("ready", id="top")
        yield Static("size", id="size")
        yield Static("[bold #ff8000]amber[/] plain", id="colour")
        yield Input(placeholder="type here")

    def action_note(self, what):
        self.query_one("#top", Static).update(what)

    def on_input_submitted(self, event):
        self.query_one("#top", Static).update(f"sent <{event.value}>".replace("[", "("))

    def on_click(self, event):
        self.query_one("#top", Static).update(f"click {event.screen_x},{event.screen_y}")

    def on_resize(self, event):
        self.query_one("#size", Static).update(f"{event.size.width} x {event.size.height}")

Tiny().run()
"""
# Without the end of an interpreter, which costs a fork as much as a start.
AT_ITS_END = "import os, sys\nsys.stdout.flush()\nos._exit(0)\n"


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    script = tmp_path / "tiny.py"
    script.write_text(APP)
    code = f"{APP}{AT_ITS_END}"
    with Terminal([sys.executable, str(script)], size=(60, 15), code=code) as running:
        running.wait_for("60 x 15")
        yield running


def test_keys_and_text_arrive(terminal: Terminal) -> None:
    terminal.key("ctrl+t")
    terminal.wait_for("ctrl+t")
    terminal.type("grüße ✓")
    terminal.key("enter")
    terminal.wait_for("sent <grüße ✓>")


def test_the_mouse_clicks_the_cell(terminal: Terminal) -> None:
    terminal.click(7, 2)
    terminal.wait_for("click 7,2")
    x, y = terminal.click_text("plain")
    terminal.wait_for(f"click {x},{y}")


def test_resize_reaches_the_program(terminal: Terminal) -> None:
    terminal.resize(44, 12)
    terminal.wait_for("44 x 12")
    assert len(terminal.lines()) == 12


def test_colours_are_seen_and_drawn(terminal: Terminal, tmp_path: Path) -> None:
    terminal.wait_for("amber")
    found = terminal.find("amber")
    assert found is not None
    cell = terminal.style_at(*found)
    assert (cell.fg, cell.bold) == ("ff8000", True)
    terminal.save_svg(tmp_path / "screen.svg")
    picture = (tmp_path / "screen.svg").read_text()
    assert re.search(r'fill="#ff8000" font-weight="bold"[^>]*>amber</text>', picture)


def test_queries_do_not_litter_the_screen(terminal: Terminal) -> None:
    assert b"\x1b[?2026$p" in terminal.raw
    assert re.search(r"\$p|\?u|>1u|4;2", terminal.screen_text()) is None


def test_waiting_in_vain_shows_the_screen(terminal: Terminal) -> None:
    with pytest.raises(ScreenTimeout, match="type here"):
        terminal.wait_for("never", timeout_s=0.05)


def test_exit_and_kill(terminal: Terminal) -> None:
    terminal.key("ctrl+q")
    assert terminal.wait_exit() == 0
    with Terminal(["cat"]) as other:
        other.type("hello\n")
        other.wait_for("hello")
        other.kill()
        assert not other.running


@pytest.mark.exhaustive
def test_a_program_that_holds_its_loop_up_is_told_of(configured: Program) -> None:
    terminal = configured.start_python(
        """
import sys, time
from kimi_tui import cli
from kimi_tui.tui import app
on_event = app.KimiApp.on_event

async def slow(self, event):
    if getattr(event, "key", "") == "f2":
        end = time.thread_time() + 1.2
        while time.thread_time() < end:
            pass
    await on_event(self, event)

app.KimiApp.on_event = slow
sys.exit(cli.main([]))
"""
    )
    terminal.wait_for("Ctrl+T timeline")
    configured.assert_never_held_up()
    terminal.key("f2")
    terminal.type("x")
    terminal.wait_for("› x")
    with pytest.raises(AssertionError, match="ms of CPU"):
        configured.assert_never_held_up()
    configured.lag_file.unlink()

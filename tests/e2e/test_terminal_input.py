"""Input of a terminal beside keys: bytes of another encoding, a paste full of colours, answers."""

from __future__ import annotations

import os
import signal

import pytest
from support.program import Program
from support.terminal import Terminal


def test_neither_a_stray_byte_nor_a_coloured_paste_does_harm(program: Program) -> None:
    terminal: Terminal = program.start("--demo", "--speed", "20")
    terminal.wait_for("› Rows with")
    terminal.write(b"\xe9")
    terminal.key("ctrl+u")
    terminal.wait_for("› Ask for a change")
    terminal.paste("\x1b[31mfirst\x1b[0m\nsecond\x1b[0m\nthird")
    terminal.wait_for("  third")
    screen = terminal.screen_text()
    assert "› first" in screen, "all of it stands in the prompt"
    assert "This is a demo. Press Enter to start." in screen, "nothing was sent"
    terminal.key("ctrl+q")
    assert terminal.wait_exit() == 0


def test_the_colours_follow_the_terminal_and_its_answers_are_no_keys(configured: Program) -> None:
    terminal = configured.start()
    terminal.answers = False  # not between the pieces of another answer
    terminal.wait_raw(b"\x1b]11;?")
    terminal.wait_for("› Ask for a change")
    terminal.type("be")
    for piece in (b"\x1b", b"]11;rgb:ff", b"ff/ffff/ffff\x1b", b"\\"):
        terminal.write(piece)
        terminal.wait_quiet(0.02)
    terminal.type("fore")
    terminal.wait_for("› before")
    # The background of a light page, then that of a dark one.
    terminal.wait_raw(b"48;2;251;250;247")
    start = terminal.n_bytes
    terminal.write(b"\x1b[?997;1nhand")
    terminal.wait_raw(b"48;2;16;19;24", start=start)
    terminal.wait_for("› beforehand")
    terminal.key("ctrl+q")
    assert terminal.wait_exit() == 0
    assert b"\x1b[?2031l" in terminal.raw, "nothing is to be told any more"


@pytest.mark.exhaustive
def test_a_terminal_of_few_colours_is_not_asked_to_tell_of_another_background(
    configured: Program,
) -> None:
    terminal = configured.start(env={"TERM": "linux", "COLORTERM": ""})
    terminal.wait_for("› Ask for a change")
    terminal.key("ctrl+q")
    assert terminal.wait_exit() == 0
    assert b"\x1b[?2031" not in terminal.raw


@pytest.mark.exhaustive
def test_another_terminal_that_is_attached_in_place_of_the_first_is_told_all(
    configured: Program,
) -> None:
    """A terminal that `dtach`, `abduco` or `screen` attaches knows nothing; they send Ctrl+L or a window's size, often the same."""
    terminal = configured.start(env={"TERM": "xterm-256color"})
    terminal.wait_for("› Ask for a change")
    terminal.wait_raw(b"\x1b[?u")
    modes = (
        *(
            b"\x1b[?25l",
            b"\x1b[?1004h",
            b"\x1b[?2004h",
            b"\x1b[?1000h",
            b"\x1b[?1003h",
            b"\x1b[?1006h",
        ),
        *(b"\x1b[=29;1u", b"\x1b[>4;1m"),
    )
    for attach in (
        lambda: terminal.key("ctrl+l"),
        lambda: os.kill(terminal.pid, signal.SIGWINCH),
        lambda: terminal.resize(90, 30),
    ):
        terminal.wait_quiet()
        start = terminal.n_bytes
        attach()
        for mode in modes:
            terminal.wait_raw(mode, start=start)
        # All of the screen is drawn, not only what has changed.
        terminal.wait_raw(b"sk for a change", start=start)
    terminal.key("ctrl+q")
    assert terminal.wait_exit() == 0

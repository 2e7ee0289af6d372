"""Input of a terminal beside keys: bytes of another encoding, a paste full of colours, answers."""

from __future__ import annotations

import os
import signal

import pytest
from support.chat_server import ChatServerThread, call, say, stall
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


@pytest.mark.exhaustive
def test_text_that_comes_at_once_without_the_marks_of_a_paste_answers_nothing(
    configured: Program, server: ChatServerThread
) -> None:
    server.script(call("Shell", {"command": "touch made"}), say("I made it."))
    terminal = configured.start(fresh=True)
    terminal.wait_for("Enter send")
    terminal.type("Make it")
    terminal.wait_for("› Make it")
    terminal.key("enter")
    terminal.wait_for("Yes, once")
    # Each of these would answer if it were pressed key by key; all of them come after the panel accepts keys.
    for text in ("yes\r", "yy", "yyy", "1\r", "y\r", "y\ry\r", "a\r", "yes, do it\r"):
        terminal.wait_quiet(0.8)
        terminal.type(text)
        terminal.wait_quiet(0.8)
        assert "Yes, once" in terminal.screen_text(), text
        if "Esc back to the answers" in terminal.screen_text():
            terminal.key("escape")
    assert not (configured.work / "made").exists()
    terminal.wait_quiet(0.8)
    terminal.key("y")
    terminal.wait_for("I made it.")
    assert (configured.work / "made").exists()


@pytest.mark.exhaustive
def test_a_key_pasted_without_marks_at_the_first_start_goes_to_its_field(program: Program) -> None:
    terminal = program.start(fresh=True)
    for text in ("3rd", "sk-abc3defghijklmnopqrstuvwxyz12345", "3\rx"):
        terminal.wait_for("Enter or 1 to 3 choose")
        terminal.type(text)
        if text.startswith("sk-"):
            terminal.wait_for("it was moved to the field")
            assert "This is a demo" not in terminal.screen_text()
            terminal.key("escape")
        else:
            terminal.wait_for("neither an API key nor a URL")
            terminal.key("down")
            terminal.wait_gone("neither an API key")
    # Piece by piece, as a serial line has it.
    for letter in "x3x":
        terminal.type(letter)
        terminal.wait_quiet(0.03)
    terminal.wait_for("Text cannot be typed here")
    terminal.wait_quiet(0.5)
    terminal.key("3")
    terminal.wait_for("This is a demo")


@pytest.mark.exhaustive
def test_esc_and_a_slash_in_one_piece_stop_the_agent_and_begin_a_command(
    configured: Program, server: ChatServerThread
) -> None:
    server.script(stall(4, say("It has begun")))
    terminal = configured.start()
    terminal.wait_for("Enter send")
    terminal.type("Begin")
    terminal.wait_for("› Begin")
    terminal.key("enter")
    terminal.wait_for("It has begun")
    terminal.type("\x1b/mode")
    terminal.wait_for("Stopped by you")
    terminal.wait_for("› /mode")
    terminal.wait_for("Change the mode")

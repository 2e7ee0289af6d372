"""What a terminal may send beside keys: bytes of another encoding, and a paste full of colours."""

from __future__ import annotations

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
    assert "This is a demo. Enter begins it." in screen, "nothing was sent"
    terminal.key("ctrl+q")
    assert terminal.wait_exit() == 0

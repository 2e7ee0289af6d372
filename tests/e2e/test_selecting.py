"""Text of the chat is selected with the mouse, farther than the screen reaches, and arrives in the clipboard."""

from __future__ import annotations

import base64

import pytest
from support.chat_server import ChatServerThread, say
from support.program import Program

READY = "Ctrl+T timeline"
LINES = [f"row {n}:\tvalue {n}" for n in range(120)]


@pytest.mark.exhaustive
def test_a_selection_dragged_beyond_the_screen_is_copied(
    configured: Program, server: ChatServerThread
) -> None:
    code = "\n".join(LINES)
    server.script(say(f"Here:\n\n```\n{code}\n```\n\nThat is all of it."))
    terminal = configured.start(env={"TMUX": "", "STY": "", "TERM_PROGRAM": "", "VTE_VERSION": ""})
    terminal.wait_for(READY)
    terminal.type("Show the rows")
    terminal.key("enter")
    terminal.wait_for("That is all of it.")
    terminal.wait_for(lambda screen: "Enter send" in screen)
    found = terminal.find("row 119:")
    assert found is not None
    x, y = found
    terminal.mouse(0, x + len("row 119:   value 119"), y)
    terminal.mouse(32, x, y - 5)
    terminal.mouse(32, x, 2)
    # Held at the edge it scrolls by itself, to the very first row.
    terminal.wait_for(lambda screen: all(f"row {n}:" in screen for n in (0, 7, 20)))
    terminal.wait_quiet()
    first = terminal.find("row 7:")
    assert first is not None
    terminal.mouse(32, *first)
    terminal.mouse(0, *first, released=True)
    terminal.resize(90, 30)
    terminal.wait_quiet()
    start = terminal.n_bytes
    terminal.key("ctrl+c")
    terminal.wait_for("Copied 113 lines.")
    terminal.wait_raw(b"\x1b]52;c;", start=start)
    payload = terminal.raw[start:].split(b"\x1b]52;c;", 1)[1].split(b"\x07", 1)[0]
    assert base64.b64decode(payload).decode().split("\n") == LINES[7:]

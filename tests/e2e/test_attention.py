"""A session left and found again on the sessions screen, and what the terminal is told besides the screen."""

from __future__ import annotations

from support.chat_server import ChatServerThread, call, say
from support.program import Program


def test_asked_while_looking_away_and_found_again(
    configured: Program, server: ChatServerThread
) -> None:
    server.server.title = say("Make a note")
    server.script(call("Shell", {"command": "echo made"}), say("Made it."))
    terminal = configured.start(env={"TERM": "xterm-kitty"})
    terminal.wait_for("asks first")
    terminal.type("Note it down, please")
    # Who types looks here: looked away again before it asks.
    terminal.key("enter")
    terminal.write(b"\x1b[O")
    terminal.wait_raw(b"\x1b]2;* importer: Note it down, please\x1b\\")
    terminal.wait_raw(b"\x1b]2;? importer: Note it down, please\x1b\\")
    terminal.wait_raw(b"\x1b]99;;importer: the agent asks\x1b\\")
    terminal.wait_for("Yes, once")
    terminal.wait_quiet(0.8)
    terminal.key("y")
    terminal.wait_for("Made it.")
    terminal.wait_raw(b"\x1b]2;importer: Make a note\x1b\\")
    terminal.key("ctrl+q")
    assert terminal.wait_exit() == 0
    assert terminal.raw.index(b"\x1b[22;2t") < terminal.raw.rindex(b"\x1b[23;2t")
    again = configured.start("--resume")
    again.wait_for("1 here, 1 in all")
    again.wait_for("Note it down, please")
    again.key("/")
    again.type("down")
    again.wait_for("1 found")
    again.key("enter")
    again.wait_for("Made it.")
    again.wait_for("asks first")
    again.key("ctrl+q")
    assert again.wait_exit() == 0

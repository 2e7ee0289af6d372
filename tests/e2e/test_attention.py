"""A session left and found again on the sessions screen, and what the terminal is told besides the screen."""

from __future__ import annotations

import re

import pytest
from support.chat_server import ChatServerThread, call, gate, say
from support.program import Program


@pytest.mark.exhaustive
def test_asked_while_looking_away_and_found_again(
    configured: Program, server: ChatServerThread
) -> None:
    commands = configured.work / ".kimi-tui" / "commands"
    commands.mkdir(parents=True)
    (commands / "greet.md").write_text("Greet $1 warmly.")
    server.server.title = say("Make a note")
    server.script(gate(0, call("Shell", {"command": "echo made"})), say("Made it."))
    terminal = configured.start(env={"TERM": "xterm-kitty"})
    terminal.wait_for("Mode ask")
    # The window loses the focus with Enter, which counts all the same.
    terminal.write(b"Note it down, please\r\x1b[O")
    server.wait_at_gate()
    terminal.wait_raw(b"\x1b]2;* importer: Note it down, please\x1b\\")
    terminal.wait_for(re.compile(r"\d:\d\d  step"))
    server.release()
    terminal.wait_raw(b"\x1b]2;? importer: Note it down, please\x1b\\")
    terminal.wait_raw(b"\x1b]99;;importer: the agent is waiting for your answer\x1b\\")
    terminal.wait_for("Yes, once")
    terminal.wait_quiet(0.8)
    terminal.key("y")
    terminal.wait_for("Made it.")
    terminal.wait_raw(b"\x1b]2;importer: Make a note\x1b\\")
    terminal.key("ctrl+q")
    assert terminal.wait_exit() == 0
    assert terminal.raw.index(b"\x1b[22;2t") < terminal.raw.rindex(b"\x1b[23;2t")
    with (configured.home / "config.toml").open("a") as file:
        file.write("[mouse]\ncapture = false\n")
    again = configured.start("--resume")
    again.wait_for("1 here, 1 in all")
    again.wait_for("Note it down, please")
    again.key("/")
    again.type("down")
    again.wait_for("1 found")
    again.key("enter")
    again.wait_for("Made it.")
    again.wait_for(re.compile(r" ask$", re.MULTILINE))
    # A command that the folder brings is shown before it is sent.
    again.type("/greet Ada")
    again.key("enter")
    again.wait_for("Greet $1 warmly.")
    again.wait_quiet(0.8)
    server.script(say("Hello, Ada."))
    again.key("y")
    again.wait_for("Hello, Ada.")
    again.key("ctrl+q")
    assert again.wait_exit() == 0
    assert b"\x1b[?1000h" in terminal.raw
    assert b"\x1b[?1000h" not in again.raw

"""Several sessions in one run of the program, with other sizes of the terminal in between."""

from __future__ import annotations

import re

import pytest
from support.chat_server import ChatServerThread, say
from support.program import Program

READY = "Ctrl+T timeline"
ASK = re.compile(r" ask$", re.MULTILINE)
"""The mode, at the end of the header."""


@pytest.mark.exhaustive
def test_new_and_fork_again_and_again(configured: Program, server: ChatServerThread) -> None:
    terminal = configured.start("--yolo")
    terminal.wait_for(READY)
    terminal.wait_for("allow all")
    terminal.type("/mode ask")
    terminal.key("enter")
    terminal.wait_for(ASK)
    for place, command in enumerate(("/new", "/fork", "/new", "/new")):
        server.script(say(f"Answer {place}."))
        terminal.type(f"Question {place}")
        terminal.key("enter")
        terminal.wait_for(f"Answer {place}.")
        terminal.wait_for("Enter send")
        terminal.type(command)
        terminal.wait_for(f"› {command}")
        terminal.key("enter")
        if command == "/new":
            terminal.wait_gone(f"Answer {place}.")
            terminal.wait_for("New session")
        else:
            terminal.wait_gone(f"› {command}")
            terminal.wait_for(f"Answer {place}.")
        for size in ((60, 20), (80, 24), (100, 30), (120, 40)):
            terminal.resize(*size)
            terminal.wait_for(ASK)
        terminal.wait_for(READY)
    server.script(say("The last answer."))
    terminal.type("The last question")
    terminal.key("enter")
    terminal.wait_for("The last answer.")
    terminal.key("ctrl+q")
    assert terminal.wait_exit() == 0
    assert len(list(configured.home.glob("sessions/*/*/context.jsonl"))) == 5

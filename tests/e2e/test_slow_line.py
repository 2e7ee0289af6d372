"""Over a slow line: nothing is answered before its question has arrived at the terminal."""

from __future__ import annotations

import os
import signal
import time

from support.chat_server import ChatServerThread, call, gate, say
from support.program import Program
from support.terminal import Terminal

from kimi_tui.tui.keyboard import QUIET_S
from kimi_tui.tui.terminal_input import FIRST_ANSWER_S

QUIET = 3 * QUIET_S
"""Seconds behind which a key answers what could be seen before."""


def _asked(program: Program, server: ChatServerThread) -> Terminal:
    """The program with a question that it has written, and that is on its way."""
    server.script(gate(0, call("Shell", {"command": "echo > ran"})), say("Well."))
    # Little is drawn, so that the system holds all of it: the program has written it.
    terminal = program.start(size=(80, 24))
    terminal.wait_for("›")
    terminal.type("go")
    terminal.wait_for("› go")
    terminal.key("enter")
    server.wait_at_gate()
    terminal.wait_quiet(0.05)
    terminal.hold()
    server.release()
    program.wait_kept("wire.jsonl", "ApprovalRequest")
    time.sleep(QUIET)
    return terminal


def test_no_key_answers_a_question_that_has_not_arrived(
    configured: Program, server: ChatServerThread
) -> None:
    terminal = _asked(configured, server)
    terminal.key("y")
    time.sleep(QUIET)
    assert not (configured.work / "ran").exists()
    terminal.go_on()
    terminal.wait_for("Run this command?")
    time.sleep(QUIET)
    assert not (configured.work / "ran").exists()
    terminal.type("y")
    terminal.wait_for("Well.")
    assert (configured.work / "ran").exists()


def test_no_key_answers_behind_a_stop_before_the_question_is_drawn_again(
    configured: Program, server: ChatServerThread
) -> None:
    terminal = _asked(configured, server)
    terminal.go_on()
    terminal.wait_for("Run this command?")
    time.sleep(QUIET)
    os.kill(terminal.pid, signal.SIGSTOP)
    terminal.hold()
    os.kill(terminal.pid, signal.SIGCONT)
    for _ in range(3):
        time.sleep(QUIET)
        terminal.key("y")
    time.sleep(QUIET)
    assert not (configured.work / "ran").exists()
    terminal.go_on()
    terminal.wait_quiet(QUIET)
    assert not (configured.work / "ran").exists()
    terminal.key("y")
    terminal.wait_for("Well.")
    assert (configured.work / "ran").exists()


def test_a_terminal_that_never_answers_is_asked_all_the_same(
    configured: Program, server: ChatServerThread
) -> None:
    server.script(call("Shell", {"command": "echo > ran"}), say("Well."))
    terminal = configured.start(size=(80, 24))
    terminal.answers = False
    terminal.wait_for("›")
    terminal.type("go")
    terminal.wait_for("› go")
    terminal.key("enter")
    terminal.wait_for("Run this command?")
    time.sleep(FIRST_ANSWER_S + QUIET)
    terminal.key("y")
    terminal.wait_for("Well.")
    assert (configured.work / "ran").exists()


def test_no_enter_sends_a_dmail_whose_dialog_has_not_arrived(
    configured: Program, server: ChatServerThread
) -> None:
    server.script(say("One."), say("Two."))
    terminal = configured.start(size=(80, 24))
    terminal.wait_for("›")
    for words, answer in (("first", "One."), ("/dmail 0", "")):
        terminal.type(words)
        terminal.wait_for(f"› {words}")
        if answer:
            terminal.key("enter")
            terminal.wait_for(answer)
            terminal.wait_for("Enter send")
    terminal.wait_quiet(0.1)
    terminal.hold()
    terminal.key("enter")
    time.sleep(QUIET)
    terminal.type("word")
    for _ in range(3):
        time.sleep(QUIET)
        terminal.key("enter")
    time.sleep(QUIET)
    n_asked = len(server.requests)
    terminal.go_on()
    terminal.wait_for("What should the agent have known there?")
    assert n_asked == 1

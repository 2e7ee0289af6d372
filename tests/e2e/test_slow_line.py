"""Over a slow line: nothing is answered before its question has arrived at the terminal."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence

import pytest
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


def _began(program: Program, *said: tuple[str, str], options: Sequence[str] = ()) -> Terminal:
    """The program behind some turns and commands, each with what it shows then; one that has nothing stands in the prompt."""
    terminal = program.start(*options, size=(100, 30))
    terminal.wait_for("›")
    for words, answer in said:
        terminal.wait_for("Enter send")
        terminal.type(words)
        terminal.wait_for(f"› {words}")
        if answer:
            terminal.key("enter")
            terminal.wait_for(answer)
    terminal.wait_quiet(0.3)
    return terminal


def _lines(program: Program) -> int:
    """How many world lines there are."""
    return len([*program.session_dir().glob("context*.jsonl")])


def _press_unseen(terminal: Terminal, *keys: str) -> None:
    """Press these twice, each time when the program has had its time."""
    for _ in range(2):
        time.sleep(QUIET)
        terminal.key(*keys)
    time.sleep(QUIET)


@pytest.mark.parametrize("key", ["r", "1", "enter"])
def test_no_key_answers_a_preview_that_has_not_arrived(
    configured: Program, server: ChatServerThread, key: str
) -> None:
    server.script(say("One."))
    terminal = _began(configured, ("first", "One."), ("/rewind 0", ""))
    terminal.hold()
    terminal.key("enter")
    _press_unseen(terminal, key)
    terminal.go_on()
    terminal.wait_for("Rewind the conversation")
    terminal.wait_quiet(QUIET)
    assert _lines(configured) == 1
    terminal.key("r")
    terminal.wait_for("Rewound")
    assert _lines(configured) == 2


def test_no_key_answers_before_what_the_help_stood_over_is_drawn_again(
    configured: Program, server: ChatServerThread
) -> None:
    server.script(say("One."), say("Two."), say("## Task\n\nAll of it."))
    terminal = _began(
        configured,
        ("first", "One."),
        ("second", "Two."),
        ("/compact", "Compacted"),
        ("/summary", "Summary at #"),
    )
    n_lines = _lines(configured)

    def stand_over(shown: str) -> None:
        terminal.key("f1")
        terminal.wait_gone(shown)
        terminal.wait_quiet(0.3)
        terminal.hold()
        terminal.key("escape")

    stand_over("Summary at #")
    _press_unseen(terminal, "u")
    terminal.go_on()
    terminal.wait_for("Summary at #")
    terminal.wait_quiet(QUIET)
    assert _lines(configured) == n_lines
    terminal.key("escape")
    terminal.wait_gone("Summary at #")
    terminal.type("/rewind 1")
    terminal.wait_for("› /rewind 1")
    terminal.key("enter")
    terminal.wait_for("Rewind the conversation")
    time.sleep(QUIET)
    stand_over("Rewind the conversation")
    _press_unseen(terminal, "enter")
    terminal.go_on()
    terminal.wait_for("Rewind the conversation")
    terminal.wait_quiet(QUIET)
    assert _lines(configured) == n_lines
    terminal.key("enter")
    terminal.wait_for("Rewound")


def test_no_command_is_ended_by_quitting_before_it_is_said_that_one_runs(
    configured: Program, server: ChatServerThread
) -> None:
    server.script(call("Shell", {"command": "sleep 300", "background": True}), say("It runs."))
    terminal = _began(configured, ("go", "It runs."), options=["--yolo"])
    terminal.hold()
    _press_unseen(terminal, "ctrl+q")
    assert terminal.running
    terminal.go_on()
    terminal.wait_for("1 command runs in the background")
    terminal.wait_quiet(QUIET)
    assert terminal.running
    # Behind a stop it is said again.
    os.kill(terminal.pid, signal.SIGSTOP)
    terminal.key("ctrl+q")
    os.kill(terminal.pid, signal.SIGCONT)
    terminal.wait_quiet(QUIET)
    assert terminal.running
    terminal.wait_for("1 command runs in the background")
    terminal.key("ctrl+q")
    assert terminal.wait_exit() == 0


def test_no_enter_sends_what_stands_in_a_field_that_has_not_arrived(
    configured: Program, server: ChatServerThread
) -> None:
    (configured.home / "config.toml").write_text('mode = "ask"\n[dmail]\nreview = true\n')
    server.script(call("SendDMail", {"message": "Skip it.", "checkpoint_id": 0}), say("Well."))
    terminal = _began(configured, ("go", "Yes, send it"))
    time.sleep(QUIET)
    terminal.hold()
    terminal.key("c")
    _press_unseen(terminal, "enter")
    terminal.go_on()
    terminal.wait_for("Back to the answers")
    assert len(server.requests) == 1
    # What has the keys is behind a stop to be seen again, too.
    os.kill(terminal.pid, signal.SIGSTOP)
    terminal.hold()
    os.kill(terminal.pid, signal.SIGCONT)
    _press_unseen(terminal, "enter")
    terminal.go_on()
    terminal.wait_quiet(0.3)
    assert len(server.requests) == 1
    terminal.key("enter")
    terminal.wait_for("Well.")

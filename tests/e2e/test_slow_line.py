"""Over a slow line: nothing is answered before its question has arrived at the terminal."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress

import pytest
from support.cases import first_only
from support.chat_server import ChatServerThread, call, gate, say
from support.program import Program
from support.terminal import ScreenTimeout, Terminal

from kimi_tui.tui.keyboard import QUIET_S
from kimi_tui.tui.terminal_input import FIRST_ANSWER_S

QUIET = 3 * QUIET_S
"""Seconds after which a key answers a question that could be seen before, also on a busy machine."""
UNSEEN = 2 * QUIET_S
"""Seconds after which a key would answer a question that cannot be seen, if that were not checked."""
KEY = "sk-proj-abcdEFGH1234567890abcdEFGH1234567890abcdEFGH12"


def _asked(program: Program, server: ChatServerThread) -> Terminal:
    """Return the program with a question that it has written, and that is on its way."""
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


@pytest.mark.exhaustive
def test_no_key_answers_behind_a_stop_before_the_question_is_drawn_again(
    configured: Program, server: ChatServerThread
) -> None:
    terminal = _asked(configured, server)
    terminal.go_on()
    terminal.wait_for("Run this command?")
    time.sleep(QUIET)
    terminal.stop()
    terminal.hold()
    terminal.resume()
    time.sleep(QUIET)
    _pressed_blind(terminal, "y", "y", "y")
    assert not (configured.work / "ran").exists()
    terminal.go_on()
    terminal.wait_quiet(QUIET)
    assert not (configured.work / "ran").exists()
    terminal.key("y")
    terminal.wait_for("Well.")
    assert (configured.work / "ran").exists()


@pytest.mark.exhaustive
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


@pytest.mark.exhaustive
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
    time.sleep(UNSEEN)
    terminal.type("word")
    for _ in range(3):
        time.sleep(UNSEEN)
        terminal.key("enter")
    time.sleep(UNSEEN)
    n_asked = len(server.requests)
    terminal.go_on()
    terminal.wait_for("What should the agent know at that checkpoint?")
    assert n_asked == 1


def _pressed_blind(terminal: Terminal, *keys: str) -> None:
    """Press keys, each long after the one before."""
    for key in keys:
        terminal.key(key)
        time.sleep(UNSEEN)


def _pressed_until(terminal: Terminal, key: str, words: str) -> None:
    """Press a key again until these words are on the screen: the first one may still come too early."""
    for _ in range(5):
        terminal.key(key)
        with suppress(ScreenTimeout):
            terminal.wait_for(words, QUIET)
            return
    raise AssertionError(f"{key} never counted:\n{terminal.screen_text()}")


def _typed(program: Program, words: str) -> Terminal:
    """Return the program, with words in the prompt and all of it drawn."""
    terminal = program.start(size=(80, 24))
    terminal.wait_for("What shall we work on?")
    terminal.type(words)
    terminal.wait_for(f"› {words}")
    terminal.wait_quiet(0.3)
    return terminal


@pytest.mark.exhaustive
def test_no_enter_writes_a_note_that_has_not_been_asked_about(configured: Program) -> None:
    terminal = _typed(configured, "# A heading")
    notes = configured.work / "AGENTS.md"
    terminal.hold()
    _pressed_blind(terminal, "enter", "enter")
    assert not notes.exists()
    terminal.go_on()
    terminal.wait_for("Add this line")
    terminal.wait_quiet(0.3)
    terminal.stop()
    terminal.hold()
    terminal.resume()
    _pressed_blind(terminal, "enter")
    assert not notes.exists()
    terminal.go_on()
    terminal.wait_quiet(0.3)
    _pressed_until(terminal, "enter", "Added to")
    assert notes.exists()


@pytest.mark.exhaustive
def test_words_stay_until_they_have_arrived(configured: Program) -> None:
    terminal = _typed(configured, "/thinking")
    terminal.type(f" {KEY}")
    terminal.wait_for("•••")
    terminal.wait_quiet(0.3)
    terminal.hold()
    _pressed_blind(terminal, "enter", "enter", "enter")
    terminal.go_on()
    terminal.wait_quiet(0.3)
    assert "looks like an API key" in terminal.screen_text()


@pytest.mark.exhaustive
def test_no_enter_lets_the_agent_go_on_before_that_is_offered(
    configured: Program, server: ChatServerThread
) -> None:
    server.script(gate(0, say("One.")), say("Two."))
    terminal = _typed(configured, "go")
    terminal.key("enter")
    server.wait_at_gate()
    terminal.wait_quiet(0.1)
    terminal.hold()
    _pressed_blind(terminal, "escape", "enter", "enter")
    n_asked = len(server.requests)
    terminal.go_on()
    terminal.wait_for("Enter to continue")
    assert n_asked == 1
    terminal.wait_quiet(0.3)
    _pressed_until(terminal, "enter", "Two.")


@pytest.mark.exhaustive
def test_nobody_leaves_what_runs_before_it_is_named(
    configured: Program, server: ChatServerThread
) -> None:
    server.script(call("Shell", {"command": "sleep 60", "background": True}), say("It runs."))
    terminal = configured.start("--yolo", size=(80, 24))
    terminal.wait_for("What shall we work on?")
    terminal.type("go")
    terminal.wait_for("› go")
    terminal.key("enter")
    terminal.wait_for("It runs.")
    terminal.wait_for("1 task /tasks")
    terminal.wait_quiet(0.3)
    terminal.hold()
    _pressed_blind(terminal, "ctrl+q", "ctrl+q")
    assert terminal.running
    terminal.go_on()
    terminal.wait_for("will be stopped")
    terminal.wait_quiet(0.3)
    terminal.key("ctrl+q")
    assert terminal.wait_exit() == 0


def _asks_to_rewind(program: Program, server: ChatServerThread) -> Terminal:
    server.script(say("One."))
    terminal = _typed(program, "first")
    terminal.key("enter")
    terminal.wait_for("One.")
    terminal.wait_for("Enter send")
    terminal.type("/rewind 0")
    terminal.wait_for("› /rewind 0")
    terminal.key("enter")
    terminal.wait_for("Rewind to")
    return terminal


def _asks_to_delete(program: Program, server: ChatServerThread) -> Terminal:
    server.script(say("One."))
    terminal = _typed(program, "first")
    terminal.key("enter")
    terminal.wait_for("One.")
    terminal.wait_for("Enter send")
    for command in ("/new", "/sessions"):
        terminal.type(command)
        terminal.wait_for(f"› {command}")
        terminal.key("enter")
        terminal.wait_for("What shall we work on?" if command == "/new" else "2 messages")
    terminal.key("d")
    terminal.wait_for("Delete first?")
    return terminal


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("ask", "words", "keys"),
    [
        (_asks_to_rewind, "Rewind to", ("enter", "r")),
        (_asks_to_delete, "Delete first?", ("y", "y")),
    ],
)
def test_no_key_answers_below_a_closed_help_before_the_question_is_drawn_again(
    configured: Program,
    server: ChatServerThread,
    ask: Callable[[Program, ChatServerThread], Terminal],
    words: str,
    keys: tuple[str, ...],
) -> None:
    terminal = ask(configured, server)
    kept = sorted(configured.home.glob("sessions/*/*/context*.jsonl"))
    time.sleep(QUIET)
    terminal.key("f1")
    terminal.wait_for("Esc close")
    terminal.wait_quiet(0.3)
    terminal.hold()
    _pressed_blind(terminal, "escape", *keys)
    terminal.go_on()
    terminal.wait_for(words)
    assert sorted(configured.home.glob("sessions/*/*/context*.jsonl")) == kept


@pytest.mark.exhaustive
def test_no_setting_is_changed_before_it_can_be_seen(configured: Program) -> None:
    terminal = _typed(configured, "/settings")
    file = configured.home / "config.toml"
    before = file.read_text()
    terminal.hold()
    _pressed_blind(terminal, "enter")
    terminal.type("sandbox.enabled")
    _pressed_blind(terminal, "enter", "delete", "right")
    assert file.read_text() == before
    terminal.go_on()
    terminal.wait_for("pressed too early")
    terminal.wait_quiet(0.3)
    _pressed_until(terminal, "enter", "Saved.")
    assert file.read_text() != before


@pytest.mark.exhaustive
def test_a_key_goes_to_no_server_that_nobody_has_seen(program: Program) -> None:
    terminal = program.start(size=(80, 30))
    terminal.wait_for("Which model should the agent use?")
    terminal.wait_quiet(0.3)
    terminal.hold()
    _pressed_blind(terminal, "1")
    terminal.type(KEY)
    _pressed_blind(terminal, "enter")
    terminal.paste(KEY)
    time.sleep(QUIET)
    terminal.go_on()
    shown = terminal.wait_for("Nothing was sent yet")
    assert "asking" not in shown
    assert KEY.encode() not in terminal.raw


@pytest.mark.exhaustive
def test_no_enter_chooses_from_models_that_came_by_themselves(
    program: Program, server: ChatServerThread
) -> None:
    terminal = program.start(size=(80, 30))
    terminal.wait_for("Which model should the agent use?")
    terminal.key("1")
    terminal.wait_for("Another server")
    terminal.wait_quiet(0.3)
    terminal.paste(server.base_url)
    terminal.wait_for("so it was moved to the field")
    terminal.wait_quiet(0.3)
    terminal.hold()
    terminal.type("word")
    _pressed_blind(terminal, "enter", "enter", "enter")
    assert not (program.home / "config.toml").exists()
    terminal.go_on()
    terminal.wait_for("stand-in")
    _pressed_until(terminal, "enter", "What shall we work on?")


def _began(program: Program, *said: tuple[str, str], options: Sequence[str] = ()) -> Terminal:
    """Return the program after some turns and commands, each with the text that it shows then; without one it is in the prompt."""
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
    """Return the number of world lines."""
    return len([*program.session_dir().glob("context*.jsonl")])


def _press_unseen(terminal: Terminal, key: str) -> None:
    """Press a key twice, each time when the program has had its time."""
    time.sleep(UNSEEN)
    _pressed_blind(terminal, key, key)


@pytest.mark.exhaustive
@pytest.mark.parametrize("key", ["r", *first_only(["enter", "1"])])
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


@pytest.mark.exhaustive
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


@pytest.mark.exhaustive
def test_no_command_is_ended_by_quitting_before_it_is_said_that_one_runs(
    configured: Program, server: ChatServerThread
) -> None:
    server.script(call("Shell", {"command": "sleep 300", "background": True}), say("It runs."))
    terminal = _began(configured, ("go", "It runs."), options=["--yolo"])
    terminal.hold()
    _press_unseen(terminal, "ctrl+q")
    assert terminal.running
    terminal.go_on()
    terminal.wait_for("1 background task is running")
    terminal.wait_quiet(QUIET)
    assert terminal.running
    # After a stop the notice is shown again.
    terminal.stop()
    terminal.key("ctrl+q")
    time.sleep(QUIET)  # a stop shorter than a question must have stood is none
    terminal.hold()
    terminal.resume()
    # The key that was pressed meanwhile may be lost with the stop.
    time.sleep(UNSEEN)
    _pressed_blind(terminal, "ctrl+q")
    assert terminal.running
    terminal.go_on()
    terminal.wait_quiet(QUIET)
    assert terminal.running
    terminal.wait_for("1 background task is running")
    terminal.key("ctrl+q")
    assert terminal.wait_exit() == 0


@pytest.mark.exhaustive
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
    # After a stop the focused part must be seen again, too.
    terminal.stop()
    terminal.hold()
    terminal.resume()
    _press_unseen(terminal, "enter")
    terminal.go_on()
    terminal.wait_quiet(0.3)
    assert len(server.requests) == 1
    terminal.key("enter")
    terminal.wait_for("Well.")

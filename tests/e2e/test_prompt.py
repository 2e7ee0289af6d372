"""The prompt in a terminal: the menu of commands, and the keys as terminals send them."""

from __future__ import annotations

import pytest
from support.chat_server import ChatServerThread, say
from support.program import Program

READY = "≡ at 75k"
"""The gauge: the session is open."""


@pytest.mark.exhaustive
def test_the_menu_runs_what_is_highlighted(configured: Program, server: ChatServerThread) -> None:
    server.script(say("Cleaned."))
    terminal = configured.start()
    terminal.wait_for(READY)
    terminal.type("/he")
    terminal.wait_for("▌ /help")
    terminal.key("enter")
    terminal.wait_for("Esc close")
    terminal.key("escape")
    terminal.wait_gone("Esc close")
    terminal.type("/re")
    terminal.wait_for("▌ /rewind")
    terminal.key("down", "down", "down", "down")
    terminal.wait_for("▌ /rename")
    terminal.key("tab")
    terminal.wait_for("› /rename")
    terminal.type("Pears\r")
    terminal.wait_for("This session is now called Pears.")
    # A slash alone runs nothing, and is sent to nobody; what was run last comes first.
    terminal.type("/")
    terminal.wait_for("  /timeline")
    terminal.key("enter")
    terminal.wait_for('"/" begins a command.')
    terminal.key("down")
    terminal.wait_for("▌ /rename")
    terminal.key("down", "down")
    terminal.wait_for("▌ /timeline")
    terminal.key("enter")
    terminal.wait_for("Enter preview")
    terminal.key("escape")
    terminal.wait_for("Enter send")
    # All of it in one go, as a slow machine sees it.
    terminal.type("/tmp is full, clean it\r")
    terminal.wait_for('"/tmp" is not a command.')
    terminal.wait_quiet(0.2)  # it can be seen
    terminal.key("enter")
    terminal.wait_for("Cleaned.")
    assert "/tmp is full, clean it" in str(server.requests[-1].body["messages"][-1])
    assert len(server.requests) == 1
    terminal.key("ctrl+q")
    assert terminal.wait_exit() == 0


@pytest.mark.exhaustive
def test_every_enter_with_a_modifier_breaks_the_line_as_bytes(
    configured: Program, server: ChatServerThread
) -> None:
    server.script(say("Ten lines."))
    terminal = configured.start()
    terminal.wait_for(READY)
    forms = (b"\x1b\r", b"\x1b[27;2;13~", b"\x1b[13;2u", b"\x1b[27;5;13~", b"\n")
    # Whole, and as a slow connection brings it.
    pieces = [(form, size) for size in (100, 1) for form in forms]
    for line, (form, size) in enumerate(pieces):
        terminal.type(f"line {line}")
        for at in range(0, len(form), size):
            terminal.write(form[at : at + size])
        terminal.type(f"begin {line}")
        terminal.wait_for(f"  begin {line}")
    terminal.write(b"\x1bd\x17\x19\r")  # Alt+D, Ctrl+W, Ctrl+Y, Enter
    terminal.wait_for("Ten lines.")
    (request,) = server.requests
    sent = str(request.messages[-1]["content"])
    assert "".join(f"line {n}\nbegin {n}" for n in range(len(pieces))) in sent
    terminal.key("ctrl+q")
    assert terminal.wait_exit() == 0


@pytest.mark.exhaustive
def test_a_setting_is_changed_in_the_file(configured: Program) -> None:
    terminal = configured.start()
    terminal.wait_for(READY)
    terminal.type("/settings\r")
    terminal.wait_for("config.toml ─╯")
    terminal.type("dmail.review")
    terminal.wait_for("▌   Review")
    terminal.wait_quiet(0.2)  # it can be seen
    terminal.key("enter")
    terminal.wait_for("Saved.")
    # Out of what was typed to find it, then of the settings.
    terminal.key("escape")
    terminal.wait_gone("filter: ")
    terminal.key("escape")
    terminal.wait_gone("─ Settings ─")
    terminal.key("ctrl+q")
    assert terminal.wait_exit() == 0
    assert "[dmail]\nreview = true" in (configured.home / "config.toml").read_text()


@pytest.mark.exhaustive
def test_a_message_typed_before_the_program_reads_keys_is_sent(
    configured: Program, server: ChatServerThread
) -> None:
    server.script(say("Heard."))
    terminal = configured.start(fresh=True)
    # The terminal still edits lines, and makes a line feed of Enter.
    terminal.type("hello\r")
    terminal.wait_for("Heard.")
    assert len(server.requests) == 1

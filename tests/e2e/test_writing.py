"""Input of the prompt besides messages, in a terminal: files, commands, notes, the past, the editor, pastes, follow-ups."""

from __future__ import annotations

import base64
import json

import pytest
from support.chat_server import ChatServerThread, say, stall
from support.program import Program

READY = "≡ at 75k"
"""The gauge: the session is open."""


@pytest.mark.exhaustive
def test_what_is_named_run_noted_and_written_elsewhere(
    configured: Program, server: ChatServerThread
) -> None:
    server.script(say("I have read it."), say("All of it."))
    (configured.work / "src").mkdir()
    (configured.work / "src" / "parser.py").write_text("first\nsecond\nthird\n")
    editor = configured.home / "ed.sh"
    opened = configured.home / "opened"
    editor.write_text(
        f"#!/bin/sh\necho >> {opened}\n"
        'if grep -q "in the editor" "$1"; then : > "$1"; else printf " in the editor" >> "$1"; fi\n'
        "sleep 0.2\n"
    )
    editor.chmod(0o755)
    terminal = configured.start(size=(80, 24), env={"EDITOR": str(editor), "VISUAL": ""})
    terminal.wait_for(READY)
    # A file, taken from the menu in the middle of a sentence.
    terminal.type("explain @prs")
    terminal.wait_for("▌ src/parser.py")
    terminal.key("tab")
    terminal.wait_for("@src/parser.py")
    terminal.type("please\r")
    terminal.wait_for("src/parser.py 3 lines")
    terminal.wait_for("I have read it.")
    assert "second" in json.dumps(server.requests[-1].body["messages"])
    # A command of the user's own, and one that is not told.
    terminal.type("!echo mine > made.txt; cat made.txt\r")
    terminal.wait_for("exit 0")
    terminal.type("!!echo hidden\r")
    terminal.wait_for("hidden")
    # A note.
    terminal.type("#use tabs\r")
    terminal.wait_for("Add this line to")
    terminal.wait_quiet(0.2)  # it can be seen
    terminal.key("enter")
    terminal.wait_for("Added to")
    assert (configured.work / "AGENTS.md").read_text() == "- use tabs\n"
    # The editor, with the terminal to itself: pressed twice, its keys open one.
    terminal.type("begun")
    terminal.write(b"\x18\x05\x18\x05")
    terminal.wait_for("begun in the editor")
    assert opened.read_text() == "\n"
    # An editor that empties its file empties the prompt, and a notice says so.
    terminal.write(b"\x18\x05")
    terminal.wait_for("The file was empty")
    terminal.wait_for("Ask for a change")
    terminal.key("up")
    terminal.wait_for("begun in the editor")
    terminal.key("ctrl+u")
    # The past, and a paste that is sent whole.
    terminal.key("ctrl+r")
    terminal.type("explain")
    terminal.wait_for("▌ explain @src/parser.py please")
    terminal.key("escape")
    terminal.wait_gone("▌ explain @src/parser.py please")
    terminal.paste("".join(f"row {n}\n" for n in range(30)))
    terminal.wait_for("[Pasted 30 lines]")
    terminal.key("enter")
    terminal.wait_for("All of it.")
    sent = json.dumps(server.requests[-1].body["messages"])
    assert "row 29" in sent
    assert "mine" in sent
    assert "hidden" not in sent
    terminal.key("ctrl+q")
    assert terminal.wait_exit() == 0


@pytest.mark.exhaustive
def test_what_waits_for_the_turn_is_there_again_after_the_end(
    configured: Program, server: ChatServerThread
) -> None:
    server.script(stall())
    terminal = configured.start(size=(80, 24))
    terminal.wait_for(READY)
    terminal.type("begin\r")
    terminal.wait_for("step 1")
    terminal.type("and then this")
    terminal.wait_for("Tab queues it")
    terminal.key("tab")
    terminal.wait_for("queued until the turn ends: and then this")
    terminal.key("ctrl+q")
    assert terminal.wait_exit() == 0
    terminal = configured.start("--continue", size=(80, 24))
    terminal.wait_for("› and then this")
    terminal.key("ctrl+q")
    assert terminal.wait_exit() == 0


def test_a_draft_outlives_a_kill(configured: Program, server: ChatServerThread) -> None:
    server.script(say("First answer."))
    terminal = configured.start()
    terminal.wait_for(READY)
    terminal.type("not said yet")
    configured.wait_kept("draft.json", "not said yet")
    terminal.kill()
    again = configured.start()
    again.wait_for("› not said yet")
    again.key("enter")
    again.wait_for("First answer.")
    again.key("ctrl+u", "ctrl+q")
    assert again.wait_exit() == 0
    assert list(configured.home.glob("sessions/*/*/*draft*")) == []


@pytest.mark.exhaustive
def test_a_draft_of_a_session_outlives_a_kill(
    configured: Program, server: ChatServerThread
) -> None:
    server.script(say("First answer."))
    terminal = configured.start()
    terminal.wait_for(READY)
    terminal.type("not said yet")
    terminal.key("enter")
    terminal.wait_for("First answer.")
    terminal.type("half a tho")
    configured.wait_kept("draft.json", "half a tho")
    terminal.kill()
    last = configured.start("--continue")
    last.wait_for("› half a tho")
    assert "not said yet" in last.screen_text(), "in the chat, once"
    last.key("ctrl+u", "ctrl+q")
    assert last.wait_exit() == 0
    assert list(configured.home.glob("sessions/*/*/*draft*")) == []


@pytest.mark.exhaustive
def test_vim_and_the_cursor_in_the_chat(configured: Program, server: ChatServerThread) -> None:
    server.script(say("It is in the parser."))
    (configured.home / "config.toml").write_text('mode = "ask"\n[prompt]\nvim = true\n')
    terminal = configured.start(size=(80, 24))
    terminal.wait_for(READY)
    terminal.wait_for("INSERT")
    # Esc and letters in one go, as fast hands and slow lines have it.
    terminal.type("wher is it?\x1b0ea")
    terminal.type("e\x1b")
    terminal.wait_for("NORMAL")
    terminal.wait_for("› where is it?")
    terminal.type("\r")
    terminal.wait_for("It is in the parser.")
    terminal.wait_for("INSERT")
    terminal.key("tab")
    terminal.wait_for("[ ] turn")
    terminal.type("vV")
    terminal.wait_for("select characters, lines")
    terminal.type("kk")
    terminal.key("enter")
    terminal.wait_for("Copied")
    copied = base64.b64encode(b"where is it?\n\nIt is in the parser.")
    terminal.wait_raw(copied)

"""A conversation with the installed program, from the first key to the last file on disk."""

from __future__ import annotations

import json
import re

import pytest
from support.chat_server import ChatServerThread, Request, call, calls, gate, say
from support.program import Program

READY = "Ctrl+T timeline"


def _idle(screen: str) -> bool:
    """Return whether the agent has stopped: the prompt sends, and does not steer."""
    return "Enter send" in screen


def _said(request: Request) -> str:
    """Everything in a request that is not the system prompt, as one text."""
    return json.dumps(request.messages[1:], ensure_ascii=False)


@pytest.mark.exhaustive
def test_type_approve_click_a_row_rewind_and_ask_again(
    configured: Program, server: ChatServerThread
) -> None:
    server.script(
        say("The importer splits *each line* at commas.\n\n- one\n- two\n", think="Hmm."),
        call("WriteFile", {"path": "notes.md", "content": "quotes are doubled\n"}),
        say("I wrote it down."),
        say("Green, then."),
    )
    terminal = configured.start(fresh=True)
    terminal.wait_for(READY)
    terminal.type("How does the importer work?")
    terminal.key("enter")
    terminal.wait_for("splits each line at commas")
    terminal.wait_for(_idle)
    terminal.type("Write that down")
    terminal.wait_for("› Write that down")
    terminal.key("enter")
    terminal.wait_for("Yes, once")
    # Keys typed for the prompt must not answer: it listens once the keyboard has been quiet.
    assert not (configured.work / "notes.md").exists()
    terminal.wait_quiet(0.7)
    terminal.key("y")
    terminal.wait_for("I wrote it down.")
    assert (configured.work / "notes.md").read_text() == "quotes are doubled\n"

    # The second turn's heading on the timeline, clicked with the mouse.
    screen = terminal.wait_for(_idle)
    rows = [
        (line.rindex("Write that down"), y)
        for y, line in enumerate(screen.split("\n"))
        if "Write that down" in line[81:]
    ]
    assert rows, screen
    terminal.click(*rows[0])
    terminal.wait_for("Rewind the conversation")
    terminal.wait_for("Rewind to #2")
    # As at approvals, keys that were typed ahead do not answer.
    terminal.wait_quiet(0.7)
    terminal.key("enter")
    terminal.wait_gone("Rewind the conversation")
    terminal.wait_for("› Write that down")
    screen = terminal.wait_gone("I wrote it down.")
    assert "splits each line at commas" in screen

    terminal.key("ctrl+u")
    terminal.type("Is it green?")
    terminal.key("enter")
    terminal.wait_for("Green, then.")
    last = server.requests[-1]
    assert "How does the importer work?" in _said(last)
    assert "Is it green?" in _said(last)
    assert "Write that down" not in _said(last)
    assert "I wrote it down" not in _said(last)

    live = json.dumps(configured.context())
    left = json.dumps(configured.context("context_1.jsonl"))
    assert "Write that down" in left
    assert "I wrote it down." in left
    assert "Write that down" not in live
    assert "Is it green?" in live
    terminal.key("ctrl+q")
    assert terminal.wait_exit() == 0


@pytest.mark.exhaustive
def test_keys_in_one_go_keep_their_order(configured: Program, server: ChatServerThread) -> None:
    server.script(say("First answer."), say("Second answer."))
    terminal = configured.start()
    terminal.wait_for(READY)
    # A slow line, or a program that types, delivers keys like this: Enter acts at its place in the text.
    terminal.type("draft\x15One\r")
    terminal.wait_for("First answer.")
    terminal.wait_for(_idle)
    # An Enter followed by more text was pasted: nobody saw what it would send.
    terminal.type("Two\r!touch ran\rThree")
    terminal.wait_for("  Three")
    terminal.key("enter")
    terminal.wait_for("Second answer.")
    said = [m["content"] for m in server.requests[-1].messages if m["role"] == "user"]
    words = [word for text in said for word in text.split("\n") if word and "<system>" not in word]
    assert words == ["One", "Two", "!touch ran", "Three"]
    assert not (configured.work / "ran").exists()


@pytest.mark.exhaustive
def test_dmail_compaction_quit_and_continue(configured: Program, server: ChatServerThread) -> None:
    (configured.work / "import.log").write_text("a row without news\n" * 400)
    server.script(
        say("Good morning."),
        call("ReadFile", {"path": "import.log"}, text="I read the log."),
        call("SendDMail", {"message": "The log says nothing: skip it.", "checkpoint_id": 3}),
        say("The log says nothing of use."),
        say("## Current task\n\nFind out about the log."),
        say("It is a fine day."),
    )
    terminal = configured.start()
    terminal.wait_for(READY)
    terminal.type("Hello")
    terminal.key("enter")
    terminal.wait_for("Good morning.")
    terminal.wait_for(_idle)
    terminal.type("What does the log say?")
    terminal.key("enter")
    terminal.wait_for("The log says nothing of use.")
    screen = terminal.wait_for("The log says nothing: skip it.")
    assert "from #4 to #3" in screen
    assert "◊ 1   " in screen
    after = _said(server.requests[3])
    assert "The log says nothing: skip it." in after
    assert "What does the log say?" in after
    assert "a row without news" not in after
    assert '"content": "I read the log."' not in after

    terminal.wait_for(_idle)
    terminal.key("ctrl+o")
    terminal.wait_for("Compacted")
    terminal.wait_for(_idle)
    terminal.type("How is the weather?")
    terminal.key("enter")
    terminal.wait_for("It is a fine day.")
    last = _said(server.requests[-1])
    assert "Find out about the log." in last
    assert "Good morning." not in last
    # The newest two messages stay word for word, with the letter between them.
    assert "What does the log say?" in last
    assert "The log says nothing of use." in last

    terminal.wait_for(_idle)
    # The freed tokens are shown for a few seconds; then the forecast is back.
    terminal.wait_for(re.compile("%  ≡ (at|in)"))
    # Not a picture that is half drawn, or followed by another one.
    terminal.wait_quiet()
    before = terminal.screen_text()
    terminal.key("ctrl+q")
    assert terminal.wait_exit() == 0

    again = configured.start("--continue")
    # Chat, timeline and gauge are as they were.
    again.wait_for(before)


def test_killed_in_mid_answer_and_continued(configured: Program, server: ChatServerThread) -> None:
    server.script(
        say("First answer."),
        gate(6, say("Half of this was said when the machine went down.")),
        say("Here I am again."),
    )
    terminal = configured.start()
    terminal.wait_for(READY)
    terminal.type("One")
    terminal.key("enter")
    terminal.wait_for("First answer.")
    terminal.type("Two")
    terminal.key("enter")
    terminal.wait_for("Half of this")
    # The text is on the disk while the answer continues, and only the rest of it is lost.
    configured.wait_kept("wire.jsonl", "Half of this")
    terminal.kill()

    again = configured.start("--continue")
    again.wait_for("First answer.")
    again.wait_for("Two")
    again.wait_for("Half of this")
    again.wait_for("kimi-tui exited here")
    again.type("Three")
    again.key("enter")
    again.wait_for("Here I am again.")
    said = _said(server.requests[-1])
    assert all(word in said for word in ("One", "First answer.", "Two", "Half of this", "Three"))


@pytest.mark.exhaustive
def test_escape_stops_the_answer(configured: Program, server: ChatServerThread) -> None:
    server.script(gate(4, say("One two three four five six seven.")), say("Next."))
    terminal = configured.start()
    terminal.wait_for(READY)
    terminal.type("Count")
    terminal.key("enter")
    terminal.wait_for("One two")
    terminal.key("escape")
    terminal.wait_for(lambda screen: "Esc stop" not in screen)
    terminal.type("Go on")
    terminal.key("enter")
    terminal.wait_for("Next.")


def test_hostile_text_reaches_the_screen_only_as_text(
    configured: Program, server: ChatServerThread
) -> None:
    evil = (
        "before \x1b]52;c;aGFjaw==\x07 \x1b]8;;http://evil.example\x1b\\link\x1b]8;;\x1b\\ \x1b[6n \x1b[2J"
        " \x9b31m \x90q\x9c \x1bPq\x1b\\ [red]a [/] b[/red] \u202eover \x07 after"
    )
    (configured.work / "evil.txt").write_text(evil + "\n", encoding="utf-8")
    server.script(
        calls(
            [
                ("ReadFile", {"path": "evil.txt"}),
                ("Shell", {"command": "printf 'x\\033]52;c;AAAA\\007\\033[6ny'; cat evil.txt"}),
            ],
            text=evil,
            think=evil,
        ),
        say(f"done {evil}"),
    )
    terminal = configured.start()
    terminal.wait_for(READY)
    start = terminal.n_bytes
    terminal.type("[bold]go[/] [/]")
    terminal.key("enter")
    terminal.wait_for("Yes, once")
    terminal.wait_quiet(0.7)
    terminal.key("y")
    screen = terminal.wait_for("done before")
    assert "a [/] b" in screen
    assert "[bold]go[/] [/]" in screen
    # The title of the window, the question for its colours and its pointer are ours; nothing of a sequence stands in them.
    written = re.sub(
        rb"\x1b\](?:2;[^\x00-\x1f\x7f]*|11;\?|22;default)(?:\x07|\x1b\\)", b"", terminal.raw[start:]
    )
    for forbidden in (
        b"\x1b]",
        b"\x1bP",
        b"\x1b[6n",
        b"\x1b[2J",
        b"\x07",
        b"\xc2\x9b",
        b"\xc2\x90",
    ):
        assert forbidden not in written, forbidden
    assert "\u202e".encode() not in written
    terminal.key("ctrl+q")
    assert terminal.wait_exit() == 0

"""Time travel with mouse and keys in the installed program: what is on the screen, on the disk, and sent next."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.chat_server import ChatServerThread, call, calls, say
from support.program import Program
from support.terminal import Terminal

PATIENCE_S = 25.0
"""No test of this file is about speed: a machine that is busy with other things may take its time."""
TIMELINE_AT = 81
ACCENT = "73bbf9"
OLD_PARSER = 'def parse(line):\n    return line.split(",")\n'
NEW_PARSER = "import csv\n\n\ndef parse(line):\n    return next(csv.reader([line]))\n"
BY_HAND = "quotes are doubled\nby hand\n"
COMMAND = "mkdir -p tests; echo ok > tests/test_parse.py; echo built > build.txt; seq 101 108"
OBSERVATIONS = "\n".join(f"- observation {n}" for n in range(1, 41))


class Person:
    """Looks at a terminal and acts only on what stands still there."""

    def __init__(self, terminal: Terminal) -> None:
        self.terminal = terminal

    def sees(self, wanted: str | re.Pattern[str] | Callable[[str], bool]) -> str:
        """Wait until it is there; returns the screen."""
        return self.terminal.wait_for(wanted, PATIENCE_S)

    def sees_at_rest(self, wanted: str | Callable[[str], bool]) -> str:
        """Wait until the text is there and nothing moves any more, so that a click finds it where it was seen."""
        self.sees(wanted)
        self.terminal.wait_quiet(0.1, timeout_s=PATIENCE_S)
        return self.sees(wanted)

    def sees_no(self, text: str) -> str:
        """Wait until it is gone."""
        return self.sees(lambda screen: text not in screen)

    def sees_all(self, *texts: str) -> str:
        """Wait until all of these are there."""
        return self.sees(lambda screen: all(text in screen for text in texts))

    def reads(self, text: str) -> str:
        """Wait until it stands in the chat, on however many rows."""
        return self.sees(lambda screen: text in words_of(chat_of(screen)))

    def says(self, text: str, answer: str) -> None:
        """Send a message and wait for the end of the turn."""
        self.terminal.type(text)
        self.sees(f"› {text}")
        self.terminal.key("enter")
        self.reads(answer)
        self.sees("Enter send")

    def clicks(self, text: str, *, dx: int = 0) -> None:
        """Click where this text stands, wherever that is."""
        self.sees_at_rest(text)
        self.terminal.click_text(text, dx=dx)

    def clicks_row(self, text: str) -> None:
        """Click the row of the timeline that holds this text."""
        screen = self.sees_at_rest(lambda shown: text in timeline_of(shown))
        y = next(y for y, row in enumerate(screen.split("\n")) if text in row[TIMELINE_AT:])
        x = screen.split("\n")[y].index(text, TIMELINE_AT)
        self.terminal.click(x, y)

    def holds(self, x: int, y: int) -> None:
        """Press the button on a scrollbar and wait until it is held: it has the accent then."""
        self.terminal.mouse(0, x, y)
        self.sees(lambda _: self.terminal.style_at(x, y).fg == ACCENT)

    def lets_go(self, x: int, y: int) -> None:
        """Let go of the button."""
        self.terminal.mouse(0, x, y, released=True)
        self.sees(lambda _: all(cell.fg != ACCENT for cell in self.terminal.cells()[y][x : x + 1]))

    def moves(self, *way: tuple[int, int]) -> None:
        """Move the pointer along the way with the button pressed."""
        for cell in way:
            self.terminal.mouse(32, *cell)


def chat_of(screen: str) -> str:
    """Return the text left of the timeline."""
    return "\n".join(row[:TIMELINE_AT] for row in screen.split("\n"))


def words_of(rows: str) -> str:
    """Return the words of some rows in one line."""
    return " ".join(rows.replace("▌", " ").split())


def timeline_of(screen: str) -> str:
    """Return the text right of the chat."""
    return "\n".join(row[TIMELINE_AT:] for row in screen.split("\n"))


def bar_of(screen: str) -> list[int]:
    """Return the rows of the chat's scrollbar."""
    return [y for y, row in enumerate(screen.split("\n")) if row[80:81] == "▐"]


def files(work: Path) -> dict[str, str]:
    """Return all files below a folder."""
    return {
        str(path.relative_to(work)): path.read_text("utf-8")
        for path in sorted(work.rglob("*"))
        if path.is_file()
    }


def plain(messages: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Role and text of sent messages, with the markers of their checkpoints."""
    return [(message["role"], message.get("content") or "") for message in messages]


@pytest.fixture
def person(configured: Program, server: ChatServerThread) -> Person:
    """Someone whose agent has answered a question (#0 to #2) and changed five files (#3 to #6), one of them since by hand."""
    work = configured.work
    (work / "parse.py").write_text(OLD_PARSER)
    (work / "notes.md").write_text("fields are split\n")
    (work / "readme.md").write_text("An importer.\n")
    server.script(
        call("ReadFile", {"path": "parse.py"}, text="I read the parser."),
        say(f"It splits at commas.\n\n{OBSERVATIONS}"),
        calls(
            [
                ("WriteFile", {"path": "parse.py", "content": NEW_PARSER}),
                ("WriteFile", {"path": "notes.md", "content": "quotes are doubled\n"}),
            ],
            text="The csv module does that.",
        ),
        call("Shell", {"command": COMMAND}),
        say("Quoted fields work."),
    )
    someone = Person(configured.start("--yolo"))
    someone.sees("Ctrl+T timeline")
    someone.says("How does it parse?", "observation 40")
    someone.says("Fix quoted fields", "Quoted fields work.")
    # The changes of the command are known once its row has them.
    someone.sees("2 files changed")
    assert files(work) == {**AFTER_THE_FIX, "notes.md": "quotes are doubled\n"}
    (work / "notes.md").write_text(BY_HAND)
    return someone


BEFORE_THE_FIX = {"notes.md": BY_HAND, "parse.py": OLD_PARSER, "readme.md": "An importer.\n"}
AFTER_THE_FIX = {
    "build.txt": "built\n",
    "notes.md": BY_HAND,
    "parse.py": NEW_PARSER,
    "readme.md": "An importer.\n",
    "tests/test_parse.py": "ok\n",
}


@pytest.mark.exhaustive
def test_rewind_with_files_undo_and_jump(
    person: Person, configured: Program, server: ChatServerThread
) -> None:
    terminal, work = person.terminal, configured.work

    # The chat is dragged to its beginning by the scrollbar, and back.
    bar = bar_of(terminal.screen_text())
    assert "How does it parse?" not in chat_of(terminal.screen_text()).partition("\n")[2]
    person.holds(80, bar[-1])
    person.moves((80, bar[-1] - 8), (80, 0))
    person.reads("I read the parser.")
    person.sees(lambda screen: "Quoted fields work." not in chat_of(screen))
    person.moves((80, 20), (80, 39))
    person.reads("Quoted fields work.")
    person.lets_go(80, 39)

    # A folded block opens by a click, and closes.
    assert "103" not in terminal.screen_text()
    person.clicks("+5 lines")
    person.reads("103")
    person.clicks("exit 0", dx=-20)
    person.sees_no("103")

    # The turn's heading on the timeline leads to the preview, which changes nothing.
    person.clicks_row("Fix quoted fields")
    preview = person.sees_at_rest("Rewind to #3")
    assert "Removes 4 steps, 7 messages" in preview
    assert "1 file restored, 2 deleted" in preview
    assert re.search(r"! notes\.md +also changed outside kimi-tui; kept", preview)
    terminal.key("escape")
    person.sees_no("Rewind to #3")
    assert files(work) == AFTER_THE_FIX

    # Rewind and restore files, by clicks.
    person.clicks_row("Fix quoted fields")
    person.clicks("Rewind and restore files")
    person.sees_all("1 file restored, 2 deleted", "1 kept", "› Fix quoted fields")
    assert files(work) == BEFORE_THE_FIX
    assert not (work / "tests").exists()

    # The next request is the same as before that turn, to the byte, and has the new message.
    server.script(say("A regular expression, then."))
    terminal.key("ctrl+u")
    # A user who sends a message while reading further up is brought to the end.
    terminal.key("pageup")
    person.says("Use a regex", "A regular expression, then.")
    first_of_turn, after_rewind = server.requests[2].messages, server.requests[-1].messages
    assert after_rewind[:-1] == first_of_turn[:-1]
    assert plain(after_rewind)[-1] == (
        "user",
        "<system>CHECKPOINT 3</system>\n\nUse a regex\n\n<system>CHECKPOINT 4</system>",
    )

    # Undid the files are there again, what was said since is a world line of its own.
    terminal.key("ctrl+t")
    person.sees("Esc close")
    terminal.key("u")
    assert "2 steps since then stay as world line 2 (Use a regex)." in person.sees_at_rest(
        "Undo the rewind to #3"
    )
    person.clicks("u  Undo")
    person.sees_all(
        "Undo: 2 steps since then stay as world line 2 (Use a regex)", "3 files restored"
    )
    assert files(work) == AFTER_THE_FIX
    terminal.key("escape")
    person.sees("Enter send")
    server.script(say("All is well."))
    person.says("And now?", "All is well.")
    last_of_turn, after_undo = server.requests[4].messages, server.requests[-1].messages
    assert after_undo[: len(last_of_turn)] == last_of_turn
    assert plain(after_undo)[len(last_of_turn) :] == [
        ("assistant", "Quoted fields work."),
        (
            "user",
            "<system>CHECKPOINT 7</system>\n\nAnd now?\n\n<system>CHECKPOINT 8</system>",
        ),
    ]

    # A click unfolds that world line; a step of it leads to a preview of its own, and there.
    person.clicks_row("◊ 2   ")
    person.sees(lambda screen: "A regular express" in timeline_of(screen))
    person.clicks_row("A regular express")
    preview = person.sees_at_rest(" of world line 2 (")
    assert "1 file restored, 2 deleted" in preview
    person.clicks("Switch and restore files")
    person.sees_no("Switch and restore files")
    person.reads("press Enter in the empty prompt to continue. 1 file restored, 2 deleted")
    assert files(work) == BEFORE_THE_FIX
    person.sees(lambda screen: "All is well." not in chat_of(screen))
    # The next request is the same as the first time there, and has the new message.
    server.script(say("An expression it is."))
    person.says("Go on there", "An expression it is.")
    after_jump = server.requests[-1].messages
    assert after_jump[:-1] == after_rewind[:-1]
    assert plain(after_jump)[-1] == (
        "user",
        "<system>CHECKPOINT 3</system>\n\nUse a regex\n\n"
        "<system>CHECKPOINT 4</system>\n\nGo on there\n\n<system>CHECKPOINT 5</system>",
    )

    # The whole session is played back, dragged through time, and is as it was after it.
    before = files(work), len(server.requests)
    terminal.key("ctrl+t")
    person.sees("Esc close")
    terminal.key("p")
    person.sees_at_rest("paused  1x")
    found = terminal.find("█", last=True)
    assert found is not None
    left, line = found
    terminal.mouse(0, 60, line)
    person.sees(lambda _: terminal.find("█", last=True) not in (None, (left, line)))
    person.moves((100, line), (117, line))
    person.sees("at the end")
    person.reads("An expression it is.")
    person.moves((0, line))
    person.sees(lambda screen: "at the end" not in screen)
    person.sees(lambda screen: "An expression it is." not in chat_of(screen))
    person.moves((117, line))
    terminal.mouse(0, 117, line, released=True)
    person.sees("at the end")
    terminal.key("escape")
    person.sees_no("replay, read-only")
    assert (files(work), len(server.requests)) == before

    # Nothing that was ever said is lost.
    terminal.key("ctrl+q")
    assert terminal.wait_exit(PATIENCE_S) == 0
    stored = "".join(
        path.read_text("utf-8") for path in configured.session_dir().glob("context*.jsonl")
    )
    for words in ("Quoted fields work.", "A regular expression", "All is well.", "An expression"):
        assert words in stored
    assert not server.server.refused


@pytest.mark.exhaustive
def test_a_file_that_someone_else_changed_comes_back_only_when_it_is_chosen(
    person: Person, configured: Program, server: ChatServerThread
) -> None:
    terminal, work = person.terminal, configured.work
    n_requests = len(server.requests)

    # Among the files: the conflict is marked, its diff is the one on view, and Enter shows it whole.
    person.clicks_row("Fix quoted fields")
    person.sees("Rewind to #3")
    terminal.key("tab")
    person.sees("Space restore file")
    # The half second for which no key answers may have begun a moment after the terminal had the frame.
    terminal.wait_quiet(1.0)
    terminal.key("enter")
    person.sees("Esc back")
    person.sees(re.compile(r"1 − fields are split.*\n.*1 \+ quotes are doubled.*\n.*2 \+ by hand"))
    terminal.key("escape")
    person.sees("Space restore file")
    terminal.key("space")
    person.sees_all("2 files restored, 2 deleted", "✓ notes.md")
    # One file that would come back is left alone instead.
    terminal.key("down", "space")
    person.sees("2 files restored, 1 deleted")

    # Restore files only: the conversation stays as it is.
    person.clicks("Restore files only")
    # The preview says the same before it is answered.
    person.sees_no("Rewind to #3")
    person.sees_all("2 files restored, 1 deleted", "#6 Quoted fields")
    assert files(work) == {
        "build.txt": "built\n",
        "notes.md": "fields are split\n",
        "parse.py": OLD_PARSER,
        "readme.md": "An importer.\n",
    }
    assert len(server.requests) == n_requests

    # A change by hand comes back with an undo, and goes with a redo.
    person.says("/undo", "Undid")
    assert files(work) == AFTER_THE_FIX
    person.says("/redo", "Redid")
    assert files(work)["notes.md"] == "fields are split\n"
    assert "tests/test_parse.py" not in files(work)
    person.says("/undo", "Undid")

    # The conversation never changed, so the server gets all of it and the new words.
    server.script(say("All is well."))
    person.says("And now?", "All is well.")
    last_of_turn, after = server.requests[4].messages, server.requests[-1].messages
    assert after[: len(last_of_turn)] == last_of_turn
    assert plain(after)[-1] == (
        "user",
        "<system>CHECKPOINT 7</system>\n\nAnd now?\n\n<system>CHECKPOINT 8</system>",
    )

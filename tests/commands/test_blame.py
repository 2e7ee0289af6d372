"""`kimi-tui blame`: each line of a file with the step, tool and world line that wrote it."""

from __future__ import annotations

import os

from support.chat_server import Answer, call, say
from support.commands import Place, Ran

from kimi_tui.session.lock import SessionLock
from kimi_tui.session.session import Session

START = "one\ntwo\nthree\n"


def edit(old: str, new: str, path: str = "a.py") -> Answer:
    return call("StrReplaceFile", {"path": path, "edit": {"old": old, "new": new}})


def edited(place: Place) -> Session:
    """Steps 1, 4 and 5 change a.py: a tool edits it, a command renames it, another one appends a line."""
    (place.work / "a.py").write_text(START)
    answers = [
        edit("two", "TWO"),
        say("done"),
        call("Shell", {"command": "mv a.py b.py"}),
        call("Shell", {"command": "echo four >> b.py"}),
        say("done"),
    ]
    return place.hold(answers, "first", "second")


def authors(ran: Ran) -> list[tuple[str, str, int | None, str | None]]:
    lines = ran.json["lines"]
    assert [line["line"] for line in lines] == list(range(1, len(lines) + 1))
    return [(one["text"], one["who"], one["checkpoint_id"], one["tool"]) for one in lines]


def test_each_line_names_the_step_that_wrote_it(place: Place) -> None:
    edited(place)
    with (place.work / "b.py").open("a") as file:
        file.write("by hand\n")
    assert authors(place.run("blame", "b.py", "--json")) == [
        ("one", "before", None, None),
        ("TWO", "agent", 1, "StrReplaceFile"),
        ("three", "before", None, None),
        ("four", "agent", 5, "Shell"),
        ("by hand", "other", None, None),
    ]
    text = place.run("blame", "b.py").out.splitlines()
    assert text[0].split() == ["before", "1", "one"]
    assert text[1].split() == ["#1", "StrReplaceFile", "now", "2", "TWO"]
    assert place.run("blame", "b.py:2-3").out.splitlines() == text[1:3]


def test_a_rewind_gives_lines_back_to_those_who_wrote_them(place: Place) -> None:
    edited(place)
    assert place.run("rewind", 3, "--files", "restore").code == 0
    assert authors(place.run("blame", "a.py", "--json")) == [
        ("one", "before", None, None),
        ("TWO", "agent", 1, "StrReplaceFile"),
        ("three", "before", None, None),
    ]


def test_a_session_that_is_open_elsewhere_is_read_and_left_alone(place: Place) -> None:
    session = edited(place)
    unfinished = session.dir / "files" / "store" / "0123.tmp"
    unfinished.write_bytes(b"another program writes this")
    lock = SessionLock(session.dir)
    lock.acquire()
    try:
        assert len(authors(place.run("blame", "b.py", "--json"))) == 4
    finally:
        lock.release()
    assert unfinished.exists()


def test_files_that_nobody_can_blame(place: Place) -> None:
    edited(place)
    (place.work / "new.txt").write_text("x\n")
    (place.work / "pipe").unlink(missing_ok=True)
    os.mkfifo(place.work / "pipe")
    said = place.run("blame", "new.txt")
    assert (said.code, said.complaint) == (1, 'No file snapshot of this session has "new.txt".')
    assert place.run("blame", "pipe").code == 1
    assert "outside the session's work folder" in place.run("blame", "/etc/passwd").complaint
    assert place.run("blame", "b.py:9").complaint == '"b.py" has 4 lines, so there is no line 9.'
    assert place.run("blame", "b.py:3-2").code == 2
    (place.work / "b.py").write_bytes(b"\0\1\2" * 100)
    assert place.run("blame", "b.py").complaint == '"b.py" is not a text file.'
    (place.work / "b.py").unlink()
    assert place.run("blame", "b.py").code == 1

"""`kimi-tui diff`: a patch between two checkpoints, which git applies to the files of the earlier one."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from support.chat_server import Answer, call, say
from support.commands import Place, Ran

from kimi_tui.commands.diff import complain_of
from kimi_tui.session.lock import SessionLock
from kimi_tui.session.session import Session
from kimi_tui.workspace.patch import LeftOut

START = "one\ntwo\nthree\n" + "more\n" * 8


def edit(old: str, new: str, path: str = "a.py") -> Answer:
    return call("StrReplaceFile", {"path": path, "edit": {"old": old, "new": new}})


def edited(place: Place) -> Session:
    """Step 1 edits a.py, step 4 renames it and makes a binary file, step 5 edits it again."""
    (place.work / "a.py").write_text(START)
    answers = [
        edit("two", "TWO"),
        say("done"),
        call("Shell", {"command": "mv a.py 'b b.py'; printf 'a\\0b' > bin; echo K=1 > .env"}),
        edit("three", "THREE", "b b.py"),
        say("done"),
    ]
    return place.hold(answers, "first", "second")


def applied(place: Place, patch: str) -> dict[str, bytes]:
    folder = place.folder / "other"
    folder.mkdir()
    (folder / "a.py").write_text(START)
    subprocess.run(["git", "apply", "-"], cwd=folder, input=patch.encode(), check=True)
    return {one.name: one.read_bytes() for one in folder.iterdir()}


def bare(ran: Ran) -> list[str]:
    assert ran.code == 0
    return [line for line in ran.out.splitlines() if line.startswith(("diff", "+", "-", "rename"))]


def check_ranges(place: Place) -> None:
    assert bare(place.run("diff", "1..3")) == [
        "diff --git a/a.py b/a.py",
        "--- a/a.py",
        "+++ b/a.py",
        "-two",
        "+TWO",
    ]
    assert bare(place.run("diff", "4..5"))[:3] == [
        "diff --git a/a.py b/b b.py",
        "rename from a.py",
        "rename to b b.py",
    ]
    assert place.run("diff", "6..6").out == ""
    stat = place.run("diff", "#1..6", "--stat").out.splitlines()
    assert stat[0] == " a.py => b b.py | 4 ++--"
    assert stat[-1] == " 2 files changed, 2 insertions(+), 2 deletions(-)"
    facts = place.run("diff", "4..5", "--json").out
    assert '"status": "renamed"' in facts


def check_beside_another_process(place: Place, session: Session) -> None:
    before = sorted(os.listdir(session.dir / "files"))
    lock = SessionLock(session.dir)
    lock.acquire()
    try:
        (place.work / "new").write_text("x\n")
        assert "+++ b/new" in place.run("diff").out
    finally:
        lock.release()
    assert sorted(os.listdir(session.dir / "files")) == before


def check_bad_input(place: Place) -> None:
    assert "runs backwards" in place.run("diff", "5..1").complaint
    assert "is not a range" in place.run("diff", "x..1").complaint
    assert place.run("diff", "1..99").code == 2
    assert place.run("diff", "--world-line", "7").code == 2


def test_git_applies_what_changed_between_two_checkpoints(place: Place) -> None:
    session = edited(place)
    (place.work / "hand.txt").write_text("by hand")
    ran = place.run("diff")
    assert ran.err == 'kimi-tui: ".env" is left out: it may contain secrets.\n'
    files = applied(place, ran.out)
    assert files.pop("hand.txt") == b"by hand"
    assert files == {"b b.py": b"one\nTWO\nTHREE\n" + b"more\n" * 8, "bin": b"a\0b"}
    check_ranges(place)
    check_bad_input(place)
    check_beside_another_process(place, session)


def test_a_line_that_was_left_has_its_own_changes(place: Place) -> None:
    session = edited(place)
    assert place.run("rewind", 4, "--files", "restore").code == 0
    assert "b b.py" not in place.run("diff").out
    assert "b b.py" in place.run("diff", "--world-line", "1").out
    assert bare(place.run("diff", "5", "--world-line", "1"))[-2:] == ["-three", "+THREE"]
    check_damage(place, session)


def check_damage(place: Place, session: Session) -> None:
    for pack in Path(session.dir / "files" / "store").iterdir():
        data = bytearray(pack.read_bytes())
        data[40:] = b"\0" * len(data[40:])
        pack.write_bytes(data)
    ran = place.run("diff", "1..3")
    assert (ran.code, ran.out) == (0, "")
    assert 'kimi-tui: "a.py" is left out: its contents in the snapshot are damaged.' in ran.err
    for one in (session.dir / "files").glob("snapshots*"):
        one.unlink()
    assert place.run("diff").complaint == "This session has no file snapshots."
    assert "no file snapshot of checkpoint #1" in place.run("diff", "1..2").complaint


def test_of_very_many_files_that_are_left_out_the_first_are_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    left_out = [LeftOut(f"f{n}", "it is too large for snapshots") for n in range(1_234)]
    complain_of(left_out, ["the limit is reached"])
    lines = capsys.readouterr().err.splitlines()
    n_named = sum("is left out" in line for line in lines)
    assert 0 < n_named < 100
    assert f"{1_234 - n_named:,} more files are left out." in lines[n_named]
    assert "A snapshot is incomplete: the limit is reached" in lines[n_named + 1]
    complain_of(left_out[:n_named], [])
    assert "more files" not in capsys.readouterr().err

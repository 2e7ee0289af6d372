"""`kimi-tui rewind N --files`: what comes back, what is left alone and named, and that undo takes it back."""

from __future__ import annotations

import json

from support.commands import Place


def check_written(place: Place) -> None:
    """What the agent wrote is there."""
    assert (place.work / "b.txt").read_text() == "b\n"
    assert (place.work / "c.txt").read_text() == "c\n"


def test_a_dry_run_touches_nothing(place: Place) -> None:
    session = place.three_turns()
    before = place.files(session)
    seen = place.run("rewind", 2, "--files", "restore", "--dry-run", "--json").json
    assert not seen["applied"]
    assert (seen["messages_dropped"], seen["tokens_after"]) == (9, 110)
    assert seen["files"] == [
        {"path": "b.txt", "change": "delete", "reason": None},
        {"path": "c.txt", "change": "delete", "reason": None},
    ]
    only = place.run("rewind", 2, "--files", "only", "--dry-run", "--json").json
    assert only["files"] == seen["files"]
    assert (only["messages_dropped"], only["tokens_after"]) == (0, 550)
    assert place.files(session) == before
    check_written(place)


def test_conversation_and_files(place: Place) -> None:
    session = place.three_turns()
    whole = place.files(session)["context.jsonl"]
    done = place.run("rewind", 2, "--files", "restore", "--json").json
    assert done["applied"]
    assert [(one["path"], one["change"]) for one in done["files"]] == [
        ("b.txt", "delete"),
        ("c.txt", "delete"),
    ]
    assert sorted(path.name for path in place.work.iterdir()) == ["a.txt"]
    undone = place.run("undo", "--json").json
    assert [(one["path"], one["change"]) for one in undone["files"]] == [
        ("b.txt", "create"),
        ("c.txt", "create"),
    ]
    assert place.files(session)["context.jsonl"] == whole
    check_written(place)
    assert place.run("redo").code == 0
    assert sorted(path.name for path in place.work.iterdir()) == ["a.txt"]


def test_a_conflict_says_the_same_before_and_after(place: Place) -> None:
    place.three_turns()
    (place.work / "b.txt").write_text("by hand\n")
    seen = place.run("rewind", 2, "--files", "restore", "--dry-run", "--json").json["files"]
    done = place.run("rewind", 2, "--files", "restore", "--json")
    assert done.code == 3
    named = {"path": "b.txt", "change": "conflict", "reason": "also changed outside"}
    assert named in seen
    assert named in json.loads(done.out)["files"]


def test_files_only(place: Place) -> None:
    session = place.three_turns()
    before = place.files(session)
    ran = place.run("rewind", 2, "--files", "only")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("Brought back the files of #2.\n")
    assert "b.txt" in ran.out
    assert not (place.work / "b.txt").exists()
    assert place.files(session) == before
    assert "Undone: the restored files" in place.run("undo").out
    check_written(place)


def test_conflicts_are_left_alone_and_named(place: Place) -> None:
    place.three_turns()
    (place.work / "b.txt").write_text("mine\n")
    ran = place.run("rewind", 2, "--files", "restore", "--json")
    assert ran.code == 3
    assert ran.err.count("\n") == 1
    assert "b.txt" in ran.err
    assert '"change": "conflict"' in ran.out
    assert '"applied": true' in ran.out
    assert (place.work / "b.txt").read_text() == "mine\n"
    assert not (place.work / "c.txt").exists()


def test_what_cannot_be_brought_back_says_why(place: Place) -> None:
    session = place.three_turns()
    before = place.files(session)
    shown = place.run("rewind", 99, "--files", "restore")
    assert (shown.code, "no checkpoint #99" in shown.complaint) == (2, True)
    for folder in session.dir.iterdir():
        if folder.is_dir():
            folder.rename(folder.with_name("gone"))
    for more in ((), ("--dry-run",)):
        ran = place.run("rewind", 2, "--files", "restore", *more)
        assert ran.code == 1
        assert ran.complaint
    assert place.files(session) == before
    check_written(place)


def test_an_undo_without_the_files_says_so(place: Place) -> None:
    session = place.three_turns()
    place.run("rewind", 2, "--files", "restore")
    for folder in session.dir.iterdir():
        if folder.is_dir():
            folder.rename(folder.with_name("gone"))
    undone = place.run("undo", "--json")
    assert undone.code == 3
    assert "b.txt, c.txt" in undone.err
    assert undone.out.count('"change": "conflict"') == 2
    assert place.run("checkpoints", "--json").json[-1]["id"] == 7

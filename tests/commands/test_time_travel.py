"""`kimi-tui rewind`, `jump`, `undo`, `redo` and `dmail`: what is on the disk after them, also of the working files."""

from __future__ import annotations

import asyncio
import json
import os

import pytest
from support.chat_server import call, say
from support.commands import Place
from support.soul import stage

from kimi_tui.commands.console import print_table
from kimi_tui.program import LOCKED
from kimi_tui.session.lock import SessionLock
from kimi_tui.session.session import Session
from kimi_tui.soul.history import fits
from kimi_tui.soul.record import read_records
from kimi_tui.wire import events as ev

FIELDS = ["checkpoint_id", "messages_dropped", "tokens_before", "tokens_after", "files", "applied"]


def told(place: Place, session: Session) -> list[ev.Event]:
    """Return the events of the record, after checking that it leads to the present conversation."""

    async def read() -> list[ev.Event]:
        opened = place.store.find(session.id)
        await opened.open()
        try:
            records = read_records(opened)
            assert [record.seq for record in records] == sorted({r.seq for r in records})
            lines = (opened.dir / "wire.jsonl").read_bytes().count(b"\n")
            assert len(records) == lines - 1, "what is added is read again"
            assert fits(records, opened)
            return [record.event for record in records]
        finally:
            await opened.aclose()

    return asyncio.run(read())


def test_rewind(place: Place) -> None:
    session = place.three_turns()
    whole = place.files(session)["context.jsonl"]
    meant = place.run("rewind", 2, "--dry-run", "--json").json
    assert place.files(session) == {"context.jsonl": whole}
    done = place.run("rewind", 2, "--json").json
    assert list(meant) == list(done) == FIELDS
    assert {**meant, "applied": True} == done
    assert done == {
        "checkpoint_id": 2,
        "messages_dropped": 9,
        "tokens_before": 550,
        "tokens_after": 110,
        "files": [],
        "applied": True,
    }
    files = place.files(session)
    assert files["context_1.jsonl"] == whole
    assert whole.startswith(files["context.jsonl"])
    assert b"second" not in files["context.jsonl"]
    events = told(place, session)
    reverted = next(event for event in events if isinstance(event, ev.ContextReverted))
    assert (reverted.checkpoint_id, reverted.world_line) == (2, 1)
    assert reverted.prompt == "second\nwith more"
    # The totals of the session go on.
    statuses = [event for event in events if isinstance(event, ev.StatusUpdate)]
    assert (statuses[-1].used, statuses[-1].total_input) == (110, 1_500)
    assert statuses[-1].limit == statuses[-2].limit == 200_000


def test_undo_and_redo_in_processes_of_their_own(place: Place) -> None:
    session = place.three_turns()
    whole = place.files(session)["context.jsonl"]
    place.run("rewind", 6)
    place.run("rewind", "#2")
    short = place.files(session)["context.jsonl"]
    undone = place.run("undo", "--json").json
    assert list(undone) == ["operation", *FIELDS]
    assert (undone["operation"], undone["checkpoint_id"]) == ("rewind", 2)
    assert (undone["tokens_before"], undone["tokens_after"]) == (110, 440)
    assert place.run("undo").out == "Undid the rewind to #6.\n"
    assert place.files(session)["context.jsonl"] == whole
    ran = place.run("undo")
    assert ran.code == 1
    assert ran.complaint.startswith("There is nothing to undo. Undo reverses a rewind, D-Mail,")
    place.run("redo")
    assert place.run("redo").out == "Redid the rewind to #2.\n"
    assert place.files(session)["context.jsonl"] == short
    ran = place.run("redo")
    assert (ran.code, ran.complaint) == (1, "There is nothing to redo.")
    told(place, session)


def test_jump(place: Place) -> None:
    session = place.three_turns()
    whole = place.files(session)["context.jsonl"]
    place.run("rewind", 2)
    jumped = place.run("jump", "1:6", "--json").json
    assert list(jumped) == ["world_line", *FIELDS]
    assert (jumped["world_line"], jumped["checkpoint_id"]) == (1, 6)
    assert (jumped["tokens_before"], jumped["tokens_after"]) == (110, 440)
    live = place.files(session)["context.jsonl"]
    assert whole.startswith(live)
    assert b'"third"' not in live
    everything = place.run("jump", "1", "--json").json
    assert everything["checkpoint_id"] is None
    assert place.files(session) == {"context.jsonl": whole, "context_1.jsonl": whole}
    ran = place.run("jump", "1")
    assert (ran.code, ran.complaint) == (1, "The conversation is already at this checkpoint.")
    assert "Undid the switch" in place.run("undo").out
    assert place.files(session)["context.jsonl"] == live
    told(place, session)


@pytest.mark.exhaustive
def test_files_go_along_with_a_jump_and_a_letter(place: Place) -> None:
    session = place.three_turns()
    place.run("rewind", 2, "--files", "restore")
    before = place.files(session)
    assert sorted(path.name for path in place.work.iterdir()) == ["a.txt"]
    seen = place.run("jump", 1, "--files", "restore", "--dry-run", "--json").json
    back = [("b.txt", "create"), ("c.txt", "create")]
    assert [(one["path"], one["change"]) for one in seen["files"]] == back
    assert not seen["applied"]
    assert place.files(session) == before
    said = place.run("jump", 1, "--dry-run").out
    assert said.startswith(
        "Would switch to world line 1 (second): 0 messages removed, 110 tokens before, 550 after."
    )
    done = place.run("jump", 1, "--files", "restore", "--json").json
    assert done == {**seen, "applied": True, "checkpoint_id": None}
    check_written(place)
    sent = ("dmail", 2, "otherwise", "--files", "restore")
    dry = place.run(*sent, "--dry-run")
    assert dry.out.startswith("Would send the D-Mail to checkpoint #2: 7 messages removed")
    check_written(place)
    letter = place.run(*sent, "--json")
    assert letter.code == 0
    assert sorted(path.name for path in place.work.iterdir()) == ["a.txt"]
    reverted = [event for event in told(place, session) if isinstance(event, ev.ContextReverted)]
    assert "because they did not exist then: `b.txt`, `c.txt`" in reverted[-1].facts
    assert place.run("dmail", 2, "x", "--files", "only").code == 2
    # The files alone, without a word of the conversation.
    live = place.files(session)["context.jsonl"]
    only = place.run("jump", "1", "--files", "only")
    assert (only.code, only.out.splitlines()[0]) == (
        0,
        "Restored the files of world line 1 (second).",
    )
    assert place.files(session)["context.jsonl"] == live
    check_written(place)
    again = place.run("jump", "1", "--files", "only")
    assert (again.code, again.out) == (0, "No file of world line 1 (second) was restored.\n")


def test_what_cannot_come_back_is_said_everywhere_and_is_no_success(place: Place) -> None:
    place.work.mkdir(exist_ok=True)
    os.mkfifo(place.work / "pipe")
    (place.work / "empty").mkdir()
    (place.work / "a.txt").write_text("a")
    gone = call("Shell", {"command": "rm -r pipe empty a.txt"})
    session = place.hold([gone, say("Done.")], "clean up")
    lost = {"path": "pipe", "change": "skip", "reason": "deleted; not a regular file"}
    back = [{"path": name, "change": "create", "reason": None} for name in ("a.txt", "empty")]
    for options in (("--dry-run",), ("--dry-run", "--json")):
        ran = place.run("rewind", 0, "--files", "restore", *options)
        assert ran.code == 0
        assert "pipe" in ran.out
        assert "deleted; not a regular file" in ran.out
    assert ran.json["files"] == [*back, lost]
    ran = place.run("rewind", 0, "--files", "restore", "--json")
    assert (ran.code, json.loads(ran.out)["files"]) == (3, [*back, lost])
    assert ran.err == "kimi-tui: Not restored: pipe.\n"
    assert sorted(path.name for path in place.work.iterdir()) == ["a.txt", "empty"]
    # The undo also works if it has nothing else to restore.
    place.run("undo")
    (place.work / "a.txt").write_text("a")
    assert session.id
    assert place.run("rewind", 0, "--files", "restore").code == 3


def test_the_agent_reads_a_letter_in_its_next_turn(place: Place) -> None:
    session = place.three_turns()
    sent = place.run("dmail", 3, "look into c.txt instead", "--json").json
    assert list(sent) == FIELDS
    assert (sent["checkpoint_id"], sent["messages_dropped"]) == (3, 7)
    assert (sent["tokens_before"], sent["applied"]) == (550, True)
    events = told(place, session)
    reverted = next(event for event in events if isinstance(event, ev.ContextReverted))
    assert (reverted.reason, reverted.text) == ("dmail", "look into c.txt instead")
    assert "c.txt" in reverted.facts
    assert reverted.carried == ("third",)
    made = [event for event in events if isinstance(event, ev.CheckpointCreated)][-1]
    assert (made.id, made.kind) == (3, "dmail")
    assert place.run("checkpoints", "--json").json[-1]["kind"] == "dmail"

    async def next_turn() -> list[tuple[str, str]]:
        async with stage(place.folder, data=place.folder / "data") as on:
            await on.soul.aclose()
            on.session = place.store.find(session.id)
            await on.open()
            on.server.script(say("I will"))
            await on.soul.resume()
            return on.sent()

    # Neighbouring messages of the user are sent as one.
    last = asyncio.run(next_turn())[-1]
    assert last[0] == "user"
    places = [last[1].index(text) for text in ("second", "third", "look into c.txt instead")]
    assert places == sorted(places)


def test_the_summary_is_no_target(place: Place) -> None:
    place.three_turns()
    compacted = {"role": "_checkpoint", "id": 0}
    summary = [
        {
            "type": "text",
            "text": "<system>Previous context has been compacted. Here is the compaction output:</system>",
        },
        {"type": "text", "text": "all of it"},
    ]
    folder = place.store.newest(place.work)
    assert folder is not None
    lines = [compacted, {"role": "user", "content": summary}, {"role": "_checkpoint", "id": 1}]
    (folder.dir / "context.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    for arguments in (("rewind", 0), ("rewind", 0, "--dry-run"), ("dmail", 0, "no")):
        ran = place.run(*arguments)
        assert ran.code == 2
        assert "Undo the compaction" in ran.complaint
    assert place.run("rewind", 1).code == 0


async def name_first_checkpoint(session: Session, name: str) -> None:
    await session.open()
    session.bookmark(session.context.checkpoints[0].uid, name)
    await session.aclose()


@pytest.mark.exhaustive
def test_someone_has_it_open(place: Place) -> None:
    session = place.three_turns()
    place.run("rewind", 6)
    asyncio.run(name_first_checkpoint(session, "here it worked"))
    lock = SessionLock(session.dir)
    lock.acquire()
    looks = (
        ("checkpoints",),
        ("checkpoints", "--world-line", 1, "--json"),
        ("worldlines",),
        ("worldlines", "--json"),
        ("sessions", "show", session.id),
        ("sessions", "export", session.id),
    )
    try:
        before = place.files(session)
        for arguments in (
            ("rewind", 2),
            ("rewind", 2, "--dry-run"),
            ("jump", 1),
            ("undo",),
            ("redo", "--json"),
            ("dmail", 2, "x"),
            ("sessions", "rename", session.id, "x"),
            ("sessions", "delete", session.id, "--yes"),
            ("sessions", "prune", session.id, "--yes"),
        ):
            ran = place.run(*arguments)
            assert ran.code == 4, arguments
            assert ran.complaint.startswith("This session is open in process ")
        assert place.files(session) == before
        # Commands that only read still work, and print the same as when nobody has the session open.
        seen = [place.run(*arguments) for arguments in looks]
        told = place.run("sessions", "show", session.id, "--json").json
        assert place.files(session) == before
    finally:
        lock.release()
    assert [ran.code for ran in seen] == [0] * len(looks)
    assert "here it worked" in seen[0].out
    assert [ran.out for ran in seen] == [place.run(*arguments).out for arguments in looks]
    # Opened by itself, the session notes the same figures for lists that it noted when it was closed.
    assert told == place.run("sessions", "show", session.id, "--json").json


def test_a_line_that_is_being_written(place: Place) -> None:
    """A line may stand there in part while the process that has the session open writes it."""
    session = place.three_turns()
    place.run("rewind", 6)
    messages = place.run("sessions", "show", session.id, "--json").json["messages"]
    lock = SessionLock(session.dir)
    lock.acquire()
    try:
        with (session.dir / "context.jsonl").open("ab") as file:
            file.write(b'{"role":"user","cont')
        before = place.files(session)
        told = place.run("sessions", "show", session.id[:6], "--json").json
        assert (told["id"], told["messages"]) == (session.id, messages)
        assert len(told["world_lines"]) == 1
        assert told["remarks"] == []  # nothing was repaired or kept elsewhere
        assert place.files(session) == before
    finally:
        lock.release()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("rewind",), "required: N"),
        (("rewind", "x"), "'x' is not the number of a checkpoint"),
        (("rewind", "-1"), "'-1' is not"),
        (("rewind", 99), "There is no checkpoint #99; this world line has #0 to #7."),
        (("rewind", 99, "--dry-run"), "There is no checkpoint #99"),
        (("rewind", "9" * 30), "is not the number of a checkpoint"),
        (("rewind", 1, "--files", "all"), "--files"),
        (("jump", 7), "There is no world line 7."),
        (("jump", 0), "is not the number of a world line"),
        (("jump", "1:"), "'' is not the number of a checkpoint"),
        (("dmail", 1), "required: TEXT"),
        (("dmail", 1, " \n"), "The text of the D-Mail is empty."),
        (("dmail", 99, "x"), "There is no checkpoint #99"),
        (("undo", "--session", "nope"), "There is no session 'nope'."),
        (("undo", "--session", ""), "There is no session ''."),
    ],
)
def test_wrong_words(place: Place, arguments: tuple[object, ...], words: str) -> None:
    session = place.three_turns()
    before = place.files(session)
    ran = place.run(*arguments)
    assert ran.code == 2
    assert words in ran.complaint
    assert place.files(session) == before


def test_an_imported_session_travels_too(place: Place) -> None:
    """Its record tells of no checkpoint: the history is made anew, and what is added to the record must be read again."""
    session = place.three_turns()
    record = session.dir / "wire.jsonl"
    lines = record.read_bytes().splitlines(keepends=True)
    record.write_bytes(b"".join(line for line in lines if b"CheckpointCreated" not in line))
    for arguments in (("rewind", 6), ("undo",), ("rewind", 2), ("jump", "1:6")):
        assert place.run(*arguments).code == 0

    async def read() -> None:
        opened = place.store.find(session.id)
        await opened.open()
        lines = record.read_bytes().count(b"\n")
        assert len(read_records(opened)) == lines - 1
        await opened.aclose()

    asyncio.run(read())


def test_the_disk_refuses(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    session = place.three_turns()
    before = place.files(session)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("kimi_tui.filesystem.Storage.fsync", full)
    ran = place.run("rewind", 2)
    assert ran.code == 1
    assert "No space left" in ran.complaint
    assert place.files(session)["context.jsonl"] == before["context.jsonl"]


def check_written(place: Place) -> None:
    """Check that the agent's files are there."""
    assert (place.work / "b.txt").read_text() == "b\n"
    assert (place.work / "c.txt").read_text() == "c\n"


def test_a_dry_run_of_a_dmail_counts_what_stands_there_then(place: Place) -> None:
    session = place.three_turns()
    sent = ("dmail", 2, "a letter that is long enough to be counted " * 20, "--json")
    meant = place.run(*sent, "--dry-run").json
    done = place.run(*sent).json
    assert {**meant, "applied": True} == done
    assert place.files(session)["context.jsonl"].count(b"a letter") == 20


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
    named = {"path": "b.txt", "change": "conflict", "reason": "also changed outside kimi-tui"}
    assert named in seen
    assert named in json.loads(done.out)["files"]


def test_files_only(place: Place) -> None:
    session = place.three_turns()
    before = place.files(session)
    ran = place.run("rewind", 2, "--files", "only")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("Restored the files of checkpoint #2.\n")
    assert "b.txt" in ran.out
    assert not (place.work / "b.txt").exists()
    assert place.files(session) == before
    assert "Undid the restore of files" in place.run("undo").out
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


def test_where_no_file_comes_back_nothing_else_is_said(place: Place) -> None:
    place.three_turns()
    for name in ("b.txt", "c.txt"):
        (place.work / name).write_text("changed by hand\n")
    ran = place.run("rewind", 2, "--files", "only")
    assert ran.out == "No file of checkpoint #2 was restored.\n"
    assert ran.code == 3
    assert "b.txt" in ran.err
    dry = place.run("rewind", 2, "--files", "only", "--dry-run")
    assert dry.out == "No file of checkpoint #2 would be restored.\n"


def test_a_long_path_does_not_widen_every_row(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    long = f"data/f1.txt{' ' * 480}create/{'x' * 90}.txt"
    rows = [[long, "skip", "may contain secrets"], ["a/b.py", "restore", ""]]
    print_table(["file", "change", "why"], rows)
    head, first, second = capsys.readouterr().out.splitlines()
    # A program that reads it gets the path whole.
    assert " ".join(long.split()) in " ".join(first.split())
    assert len(head) <= len(second) + 6 <= 110
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setattr("shutil.get_terminal_size", lambda: os.terminal_size((80, 24)))
    print_table(["file", "change", "why"], rows)
    lines = capsys.readouterr().out.splitlines()
    assert [
        line.index(word) for line, word in zip(lines, ("change", "skip", "restore"), strict=True)
    ] == [52] * 3
    assert max(map(len, lines)) <= 80
    assert lines[1].startswith("data/f1.txt")
    assert lines[1][:50].endswith("xxx.txt")
    assert "…" in lines[1]


def test_a_session_that_another_process_has_open_is_changed_by_no_command(place: Place) -> None:
    session = place.three_turns()
    lock = SessionLock(session.dir)
    lock.acquire()
    try:
        before = place.files(session)
        ran = place.run("rewind", 6)
        assert ran.code == LOCKED
        assert ran.complaint.startswith(f"This session is open in process {os.getpid()} ")
        assert ran.complaint.endswith("Fork it to continue in a copy.")
        assert place.files(session) == before
    finally:
        lock.release()

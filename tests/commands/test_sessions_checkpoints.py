"""`kimi-tui checkpoints` and `worldlines` on sessions that the engine wrote."""

from __future__ import annotations

import asyncio
import json
from datetime import datetime

from support.chat_server import call, calls, say, status
from support.commands import Place

from kimi_tui.session.session import Session

FIELDS = [
    "id",
    "world_line",
    "kind",
    "label",
    "at",
    "tokens",
    "tokens_change",
    "files_changed",
    "bookmark",
    "said",
]


def name_line(session: Session, n: int, name: str) -> None:
    async def mark() -> None:
        await session.open()
        line = session.world_lines.list(session.context.world_line)[n - 1]
        session.bookmark(f"line:{line.checkpoints[line.shared].uid}", name)
        await session.aclose()

    asyncio.run(mark())


def bookmark(session: Session, checkpoint_id: int, name: str) -> None:
    async def mark() -> None:
        await session.open()
        session.bookmark(session.context.index.checkpoint(checkpoint_id).uid, name)
        await session.aclose()

    asyncio.run(mark())


def test_checkpoints_with_their_tokens(place: Place) -> None:
    session = place.three_turns()
    bookmark(session, 4, "before the files")
    rows = place.run("checkpoints", "--json").json
    assert [list(row) for row in rows] == [FIELDS] * 8
    assert [(row["id"], row["world_line"], row["kind"], row["label"]) for row in rows] == [
        (0, 0, "user", "first"),
        (1, 0, "step", "one"),
        (2, 0, "user", "second"),
        (3, 0, "step", "Read a.txt"),
        (4, 0, "step", "Write b.txt, Write c.txt"),
        (5, 0, "step", "two"),
        (6, 0, "user", "third"),
        (7, 0, "step", "three"),
    ]
    # A step: what was sent. A turn: the last figure before it. The newest grows by its own answer.
    assert [row["tokens"] for row in rows[1:]] == [100, 110, 200, 300, 400, 440, 500]
    assert [row["tokens_change"] for row in rows[1:]] == [10, 90, 100, 100, 40, 60, 50]
    # Before the server has said anything: an estimate, and no more than the server's first figure.
    assert 0 < rows[0]["tokens"] <= 100
    assert rows[0]["tokens"] + rows[0]["tokens_change"] == 100
    assert [row["files_changed"] for row in rows] == [0, 0, 0, 0, 2, 0, 0, 0]
    assert [row["bookmark"] for row in rows] == [None] * 4 + ["before the files"] + [None] * 3
    assert all(datetime.fromisoformat(row["at"]).tzinfo for row in rows)


def test_looking_leaves_everything_as_it_is(place: Place) -> None:
    session = place.three_turns()
    before = {
        path: path.read_bytes()
        for path in session.dir.rglob("*")
        if path.is_file() and path.name not in ("lock", "state.json")
    }
    place.run("checkpoints")
    place.run("worldlines")
    place.run("sessions", "show", session.id)
    assert before == {path: path.read_bytes() for path in before}


def test_a_line_that_was_left_is_listed_with_its_shared_beginning(place: Place) -> None:
    place.three_turns()
    live = place.run("checkpoints", "--json").json
    place.run("rewind", 4)
    rows = place.run("checkpoints", "--json").json
    # The tokens before the first figure are estimated each time, and the newest row has no next one to compare with.
    assert rows[1:3] == live[1:3]
    assert [row["id"] for row in rows] == [0, 1, 2, 3]
    left = place.run("checkpoints", "--world-line", 1, "--json").json
    assert {row["world_line"] for row in left} == {1}
    assert [{**row, "world_line": 0} for row in left][1:] == live[1:]


def test_steps_that_did_not_end_well(place: Place) -> None:
    place.hold(
        [
            say("fine", usage=(100, 10)),
            status(400, {"error": {"message": "no such thing"}}),
            say("on", usage=(120, 10)),
        ],
        "one",
        "two",
        "three",
    )
    rows = place.run("checkpoints", "--json").json
    assert [row["kind"] for row in rows] == ["user", "step", "user", "error", "user", "step"]
    assert "no such thing" in rows[3]["label"]


def test_d_mails_name_their_targets_and_whether_they_were_sent(place: Place) -> None:
    def letter(text: str, to: int) -> tuple[str, dict[str, object]]:
        return "SendDMail", {"message": text, "checkpoint_id": to}

    place.hold(
        [
            call(*letter("nowhere", 99)),
            calls([letter("first", 2), letter("second", 1)]),
            say("done"),
        ],
        "one",
    )
    live = [row["label"] for row in place.run("checkpoints", "--json").json]
    assert live == ["one", "To checkpoint 2: first To checkpoint 1: second", "done"]
    left = place.run("checkpoints", "--world-line", 1, "--json").json
    assert [row["label"] for row in left][1:] == [
        "D-Mail not sent, to #99",
        "D-Mail to #2, D-Mail to #1",
    ]
    assert "D-Mail not sent, to #99" in place.run("checkpoints", "--world-line", 1).out
    assert [one["name"] for one in place.run("worldlines", "--json").json] == ["first"]


def test_a_record_that_is_lost_is_made_up_for(place: Place) -> None:
    session = place.three_turns()
    before = place.run("checkpoints", "--json").json
    (session.dir / "wire.jsonl").unlink()
    after = place.run("checkpoints", "--json").json
    # Only a server's own words teach how far estimates are off, and the record held them.
    assert after[1:] == before[1:]


def test_a_table_for_people(place: Place) -> None:
    place.hold([say("ok", usage=(100, 10))], "hello \x1b]0;title\x07\x1b[31mred")
    bare = place.run("checkpoints")
    assert bare.code == 0
    assert "\x1b" not in bare.out
    assert "#0  user" in bare.out
    assert "hello" in bare.out
    assert "The session has no other world lines (branches)." in place.run("worldlines").out


def test_world_lines(place: Place) -> None:
    session = place.three_turns()
    assert place.run("worldlines", "--json").json == []
    place.run("dmail", 3, "b.txt is not needed")
    place.run("rewind", 2)
    first, second = place.run("worldlines", "--json").json
    assert list(first) == [
        "n",
        "name",
        "reason",
        "checkpoint_id",
        "at",
        "tokens_before",
        "tokens_after",
        "messages_dropped",
        "checkpoints",
        "steps",
        "text",
    ]
    assert (first["n"], first["reason"], first["checkpoint_id"]) == (1, "dmail", 3)
    assert first["tokens_before"] == 550
    assert (first["messages_dropped"], first["checkpoints"]) == (8, 8)
    assert first["text"] == "b.txt is not needed"
    assert datetime.fromisoformat(first["at"]).tzinfo
    assert (second["n"], second["reason"], second["checkpoint_id"]) == (2, "rewind", 2)
    assert (second["tokens_after"], second["checkpoints"], second["text"]) == (110, 4, "")
    # Each is called by what was said or done where it begins; the D-Mail of the user is on the line that followed.
    assert (first["name"], second["name"]) == ("Read a.txt", "second")
    # The steps are those of the timeline: its own.
    assert (first["steps"], second["steps"]) == (5, 2)
    table = place.run("worldlines").out
    assert "Read a.txt" in table
    assert "~110" in table, "no server has said so, and the gauge says ~ as well"
    assert "Read a.txt" in place.run("sessions", "show", session.id).out
    name_line(session, 2, "the long way")
    named = place.run("worldlines", "--json").json
    assert [one["name"] for one in named] == ["Read a.txt", "the long way"]
    # An operation that was undone again has no line of its own, and the timeline does not show it.
    place.run("undo")
    table = place.run("worldlines").out
    assert "the long way" not in table
    assert (
        "World line 2 has no steps of its own; all its steps are part of another world line."
        in table
    )
    assert "world line 2" in place.run("sessions", "prune", session.id, "2").err


def test_wrong_words(place: Place) -> None:
    assert "This folder has no session" in place.run("checkpoints").complaint
    place.three_turns()
    for arguments, code, words in (
        (("checkpoints", "--world-line", 9), 2, "There is no world line 9."),
        (("checkpoints", "--world-line", 0), 2, "is not the number of a world line"),
        (("checkpoints", "--world-line", "x"), 2, "'x' is not the number"),
        (("checkpoints", "--session", "nope"), 2, "There is no session 'nope'."),
        (("checkpoints", "more"), 2, "unrecognized arguments: more"),
        (("worldlines", "--js"), 2, "unrecognized arguments: --js"),
    ):
        ran = place.run(*arguments)
        assert (ran.code, words in ran.complaint) == (code, True), ran


def test_json_is_one_document_of_plain_ascii(place: Place) -> None:
    place.hold([call("Glob", {"pattern": "ä*"}), say("✓")], "grüß dich")
    ran = place.run("checkpoints", "--json")
    assert ran.out.isascii()
    assert [row["label"] for row in json.loads(ran.out)] == ["grüß dich", "Glob ä*", "✓"]

"""`kimi-tui sessions`: what it lists and says, and that nothing is deleted without a yes."""

from __future__ import annotations

import json
import os
import shutil
import uuid
from pathlib import Path

import pytest
from support.chat_server import call, say
from support.commands import Place
from support.odd_files import put, short_lines

from kimi_tui.session.store import SessionStore


def write_session(store: SessionStore, work_dir: Path, title: str, at: int) -> str:
    """Return a session of another day, by its files."""
    folder = store.bucket(work_dir) / str(uuid.uuid4())
    folder.mkdir(parents=True)
    lines = [
        {"role": "_system_prompt", "content": "p"},
        {"role": "_checkpoint", "id": 0},
        {"role": "user", "content": title},
        {"role": "_usage", "token_count": 1_234},
    ]
    (folder / "context.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "state.json").write_text(json.dumps({"work_dir": str(work_dir)}))
    os.utime(folder / "context.jsonl", (at, at))
    return folder.name


def test_list(place: Place) -> None:
    assert place.run("sessions").out == "This folder has no sessions.\n"
    assert place.run("sessions", "list", "--json").json == []
    here = write_session(place.store, place.work, "older \x1b[2Jone", 1_700_000_000)
    newer = place.three_turns()
    place.run("rewind", 6)
    there = write_session(place.store, Path("/somewhere/else"), "far away", 1_600_000_000)
    mine = place.run("sessions", "list", "--json").json
    assert place.run("sessions", "--json").json == mine
    assert place.run("sessions", "--json", "list").json == mine
    assert [row["id"] for row in mine] == [newer.id, here]
    assert list(mine[0]) == [
        "id",
        "title",
        "work_dir",
        "updated_at",
        "messages",
        "tokens",
        "size_bytes",
        "world_lines",
        "world_lines_bytes",
        "archived",
        "forked_from",
        "external_agent",
    ]
    assert (mine[0]["title"], mine[0]["world_lines"], mine[0]["tokens"]) == ("first", 1, 440)
    assert mine[0]["work_dir"] == str(place.work)
    assert (mine[1]["messages"], mine[1]["tokens"]) == (1, 1_234)
    assert mine[1]["updated_at"] == "2023-11-14T22:13:20+00:00"
    everywhere = place.run("sessions", "list", "--all", "--json").json
    assert [row["id"] for row in everywhere] == [newer.id, here, there]
    table = place.run("sessions", "list", "--all").out
    assert "\x1b" not in table
    assert "/somewhere/else" in table
    assert table.count("\n") == 4


def test_show(place: Place) -> None:
    session = place.three_turns()
    place.run("dmail", 3, "look into c.txt")
    place.run("rewind", 2)
    facts = place.run("sessions", "show", session.id[:8], "--json").json
    assert place.run("sessions", "--json", "show", session.id).json == facts
    assert (facts["id"], facts["title"], facts["messages"]) == (session.id, "first", 2)
    assert (facts["tokens"], facts["checkpoints"]) == (110, 2)
    assert [line["reason"] for line in facts["world_lines"]] == ["dmail", "rewind"]
    figures = facts["statistics"]
    assert {name: figures[name] for name in ("turns", "steps", "tool_calls", "rewinds")} == {
        "turns": 3,
        "steps": 5,
        "tool_calls": {"WriteFile": 2, "ReadFile": 1},
        "rewinds": 1,
    }
    assert (figures["input_tokens"], figures["output_tokens"]) == (1_500, 150)
    assert figures["dmails"] == 1
    assert figures["compactions"] == []
    assert facts["live_bytes"] == (session.dir / "context.jsonl").stat().st_size
    said = place.run("sessions", "show", session.id).out
    for words in (
        "first\n",
        "3, with 5 steps",
        "Write 2, Read 1",
        "1.5k input",
        "D-Mails",
        "Read a.txt",
    ):
        assert words in said


def test_show_says_what_was_damaged(place: Place) -> None:
    session = place.three_turns()
    with (session.dir / "context.jsonl").open("ab") as file:
        file.write(b'{"role": broken}\n')
    facts = place.run("sessions", "show", session.id, "--json").json
    assert "could not be read" in facts["remarks"][0]
    assert (
        "! 1 line of the session could not be read" in place.run("sessions", "show", session.id).out
    )


def test_statistics_of_what_only_the_journal_knows(place: Place) -> None:
    session = place.hold(
        [call("Glob", {"pattern": "*"}, usage=(5_000, 10)), say("ok", usage=(9_000, 10))], "go"
    )
    place.run("dmail", 1, "shorter")
    (session.dir / "wire.jsonl").unlink()
    figures = place.run("sessions", "show", session.id, "--json").json["statistics"]
    assert (figures["turns"], figures["dmails"]) == (0, 1)
    assert figures["dmail_tokens_saved"] > 0


def test_rename_and_archive(place: Place) -> None:
    session = place.three_turns()
    assert place.run("sessions", "rename", session.id, "fix  the\nparser").code == 0
    assert place.run("sessions", "list", "--json").json[0]["title"] == "fix the parser"
    place.run("sessions", "rename", session.id, "")
    assert place.run("sessions", "list", "--json").json[0]["title"] == "first"
    place.run("sessions", "archive", session.id)
    assert place.run("sessions", "list", "--json").json == []
    assert place.run("sessions", "list", "--archived", "--json").json[0]["archived"]
    assert "This folder has no session" in place.run("undo").complaint
    place.run("sessions", "archive", session.id, "--undo")
    assert len(place.run("sessions", "list", "--json").json) == 1


def test_fork(place: Place) -> None:
    session = place.three_turns()
    place.run("rewind", 6)
    new = place.run("sessions", "fork", session.id).out.strip()
    assert new != session.id
    copy = place.store.find(new)
    assert place.files(copy) == place.files(session)
    place.run("undo", "--session", new)
    assert place.files(copy) != place.files(session)


@pytest.mark.parametrize("answer", ["", "n", "nonsense", "yes"])
def test_delete_asks(place: Place, answer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    session = place.three_turns()
    ran = place.run("sessions", "delete", session.id)
    assert (ran.code, "use --yes" in ran.complaint) == (1, True)
    asked: list[str] = []

    def reply(question: str) -> str:
        asked.append(question)
        return answer

    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.input", reply)
    ran = place.run("sessions", "delete", session.id)
    assert f"Delete session {session.id[:8]} (first, " in asked[0]
    assert session.dir.exists() == (answer != "yes")
    assert ran.code == (0 if answer == "yes" else 1)
    if answer == "yes":
        assert "Within 30 days, kimi-tui sessions restore" in ran.out
        assert place.run("sessions", "restore", session.id[:9]).code == 0
        assert session.dir.exists()
        assert place.run("sessions", "delete", session.id, "--for-good", "--yes").code == 0
        assert place.run("sessions", "restore", session.id).complaint.startswith("The trash has no")


def test_prune(place: Place) -> None:
    session = place.three_turns()
    assert "nothing was deleted" in place.run("sessions", "prune", session.id).out
    place.run("dmail", 3, "x")
    place.run("rewind", 2)
    live = place.files(session)["context.jsonl"]
    ran = place.run("sessions", "prune", session.id)
    assert ran.code == 1
    assert ran.complaint.startswith("Delete 2 world lines (")
    assert "no longer read them, switch to them," in ran.complaint
    ran = place.run("sessions", "prune", session.id, 1)
    assert ran.complaint.startswith("Delete world line 1 ")
    assert "no longer read it, switch to it," in ran.complaint
    ran = place.run("sessions", "prune", session.id, 9, "--yes")
    assert (ran.code, ran.complaint) == (
        2,
        "There is no world line 9. kimi-tui worldlines lists them.",
    )
    assert len(place.files(session)) == 3
    assert "Freed" in place.run("sessions", "prune", session.id, 1, "--yes").out
    assert set(place.files(session)) == {"context.jsonl", "context_2.jsonl"}
    place.run("sessions", "prune", session.id, "--yes")
    assert place.files(session) == {"context.jsonl": live}
    ran = place.run("undo")
    assert (ran.code, ran.complaint) == (1, "World line 2 was deleted, so this cannot be undone.")


def test_wrong_words(place: Place) -> None:
    for arguments, words in (
        (("show",), "required: ID"),
        (("show", "nope"), "There is no session 'nope'."),
        (("nonsense",), "invalid choice: 'nonsense'"),
        (("prune", "x", "0"), "is not the number of a world line"),
        (("rename", "nope", "x"), "There is no session"),
        (("\x1b[31mred",), "invalid choice"),
    ):
        ran = place.run("sessions", *arguments)
        assert (ran.code, words in ran.complaint) == (2, True), ran
        assert "\x1b" not in ran.err


def test_an_id_must_be_clear(place: Place) -> None:
    first = place.three_turns()
    twin = first.dir.with_name(first.id[:4] + "zzz")
    shutil.copytree(first.dir, twin)
    ran = place.run("sessions", "show", first.id[:4])
    assert (ran.code, ran.complaint) == (
        2,
        f"The id {first.id[:4]!r} is ambiguous: 2 sessions begin with it. Type more of it.",
    )
    assert place.run("sessions", "show", first.id).code == 0


def test_a_fork_says_what_it_is_a_copy_of(place: Place) -> None:
    origin = place.three_turns()
    copy = place.run("sessions", "fork", origin.id).out.strip()
    rows = {row["id"]: row for row in place.run("sessions", "--json").json}
    assert rows[copy]["forked_from"] == origin.id
    assert rows[origin.id]["forked_from"] is None
    assert rows[copy]["messages"] == rows[origin.id]["messages"]
    (line,) = [line for line in place.run("sessions").out.splitlines() if copy[:8] in line]
    assert f"first (fork of {origin.id[:8]})" in line


def test_messages_are_counted_however_long_the_session_is(place: Place) -> None:
    session = place.three_turns()
    path = session.dir / "context.jsonl"
    record = json.dumps({"role": "user", "content": "x" * 1000}).encode() + b"\n"
    with path.open("ab") as file:
        file.write(record * 100)
    before = place.run("sessions", "--json").json[0]["messages"]
    with path.open("ab") as file:
        file.write(b'{"content":"<system>CHECKPOINT 9</system>","role":"user"}\n')
        file.write(b'{"content":"prompt","role":"_system_prompt"}\nno json\n' + record)
    after = place.run("sessions", "--json").json[0]["messages"]
    assert before > 100
    assert after == before + 1


@pytest.mark.parametrize(
    ("kind", "what"), [("fifo", "a FIFO"), ("socket", "a socket"), ("zero", "a symbolic link")]
)
def test_what_is_passed_over_is_said_with_its_reason(place: Place, kind: str, what: str) -> None:
    session = place.three_turns()
    put(session.dir / "context.jsonl", kind)
    ran = place.run("sessions")
    assert ran.out == "This folder has no sessions.\n"
    assert str(session.dir / "context.jsonl") in ran.err
    assert what in ran.err
    assert "this session is skipped" in ran.err
    assert json.loads(place.run("sessions", "list", "--all", "--json").out) == []


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *(
            (name, "fifo")
            for name in ("state.json", "context.jsonl", "wire.jsonl", "lock", "files")
        ),
        *(("context.jsonl", kind) for kind in ("zero", "hole")),
        *(("wire.jsonl", "hole"), ("state.json", "zero")),
    ],
)
def test_no_command_waits_for_what_stands_in_a_session(
    place: Place, monkeypatch: pytest.MonkeyPatch, name: str, kind: str
) -> None:
    short_lines(monkeypatch)
    session = place.three_turns()
    put(session.dir / name, kind)
    for command in (["sessions"], ["sessions", "show"], ["checkpoints"], ["worldlines"], ["undo"]):
        chosen = {"sessions": [], "sessions show": [session.id]}.get(" ".join(command))
        more = ["--session", session.id] if chosen is None else chosen
        ran = place.run(*command, *more)
        assert ran.err.count("\n") <= 1
        assert "went wrong in the program" not in ran.err
    assert place.run("rewind", "0", "--session", session.id).code in (0, 1)


def test_a_conversation_is_printed_as_markdown(place: Place) -> None:
    session = place.three_turns()
    found = place.run("sessions", "export", session.id[:8])
    assert (found.code, found.err) == (0, "")
    assert found.out.startswith("**You:** first\n")
    assert "a.txt" in found.out
    hostile = write_session(place.store, place.work, "older \x1b[2Jone", 1_700_000_000)
    assert place.run("sessions", "export", hostile).out == "**You:** older one\n"
    assert "no session" in place.run("sessions", "export", "nope").complaint


def test_sessions_of_a_folder_that_was_renamed_are_offered(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = place.hold([say("Hello.")], "hi")
    new = place.work.rename(place.folder / "renamed")
    monkeypatch.chdir(new)
    offer = f"To resume the newest one here: kimi-tui --session {session.id[:8]}\n"
    assert place.run("sessions").out.endswith(offer)
    assert offer.strip() in place.run("checkpoints").complaint

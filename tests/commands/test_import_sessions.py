"""`kimi-tui import`: sessions of kimi-cli are listed, copied, and go on here; the originals stay as they are."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest
from support.commands import Place
from support.odd_files import put

from kimi_tui.app_paths import short
from kimi_tui.projection.blocks import DMailBlock, UserBlock
from kimi_tui.projection.transcript import TranscriptModel
from kimi_tui.soul.history import session_history

LETTER = (
    "<system>You just got a D-Mail from your future self. Read it. D-Mail content:\n\n{}</system>"
)


def point(number: int) -> list[dict[str, Any]]:
    text = f"<system>CHECKPOINT {number}</system>"
    return [{"role": "_checkpoint", "id": number}, {"role": "user", "content": text}]


def write_kimi_session(share: Path, work: Path, name: str, said: str) -> Path:
    """Return a session with one D-Mail, as kimi-cli writes it."""
    (share / "sessions").mkdir(parents=True, exist_ok=True)
    entry = {"path": str(work), "kaos": "local", "last_session_id": None}
    listed = share / "kimi.json"
    known: list[Any] = json.loads(listed.read_text())["work_dirs"] if listed.exists() else []
    listed.write_text(json.dumps({"work_dirs": [*known, entry]}))
    folder = share / "sessions" / hashlib.md5(str(work).encode()).hexdigest() / name
    folder.mkdir(parents=True)
    start = [
        {"role": "_system_prompt", "content": "p"},
        *point(0),
        {"role": "user", "content": said},
    ]
    left = [
        *start,
        *point(1),
        {"role": "_usage", "token_count": 1_000},
        {"role": "assistant", "content": "I read everything"},
        {"role": "_usage", "token_count": 9_000},
    ]
    live = [
        *start,
        *point(1),
        {"role": "user", "content": LETTER.format("read only the end")},
        *point(2),
        {"role": "_usage", "token_count": 1_100},
        {"role": "assistant", "content": "done"},
        {"role": "_usage", "token_count": 1_110},
    ]
    for file, records in (("context_1.jsonl", left), ("context.jsonl", live)):
        (folder / file).write_text("".join(json.dumps(record) + "\n" for record in records))
    return folder


@pytest.fixture
def share(place: Place) -> Path:
    return place.folder / ".kimi"


def content(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {
        str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_import_and_go_on(place: Place, share: Path) -> None:
    write_kimi_session(share, place.work, "0a0a", "read \x1b[1mthis")
    write_kimi_session(share, Path("/somewhere/else"), "0b0b", "other")
    before = content(share)
    (seen,) = place.run("import", "--dry-run", "--json").json
    assert (seen["state"], seen["id"], seen["kimi_cli_id"]) == ("new", "0a0a", "0a0a")
    assert not (place.folder / "data" / "sessions").exists()
    (taken,) = place.run("import", "--json").json
    assert {**seen, "state": "imported"} == taken
    assert list(taken) == [
        "id",
        "kimi_cli_id",
        "title",
        "work_dir",
        "updated_at",
        "messages",
        "tokens",
        "state",
        "error",
        "world_lines",
    ]
    assert taken["world_lines"] == [
        {
            "n": 1,
            "reason": "dmail",
            "checkpoint_id": 1,
            "tokens_before": 9_000,
            "tokens_after": 1_100,
            "messages_dropped": 1,
            "text": "read only the end",
        }
    ]
    assert content(share) == before
    assert place.run("import", "--json").json[0]["state"] == "present"
    rows = place.run("checkpoints", "--json").json
    assert [(row["id"], row["kind"]) for row in rows] == [(0, "user"), (1, "dmail"), (2, "step")]
    lost = place.run("checkpoints", "--world-line", 1, "--json").json
    assert [(row["id"], row["kind"], row["tokens"]) for row in lost][1:] == [(1, "step", 1_000)]
    figures = place.run("sessions", "show", "0a0a", "--json").json["statistics"]
    assert (figures["dmails"], figures["dmail_tokens_saved"]) == (1, 7_900)
    assert place.run("undo").out == (
        "Undid the D-Mail to #1. 3 steps since then stay as world line 2 (done).\n"
    )
    assert place.run("checkpoints", "--json").json[-1]["label"] == "I read everything"


def test_an_imported_session_is_exported_as_it_was_said(place: Place, share: Path) -> None:
    folder = write_kimi_session(share, place.work, "0a0a", "read \x1b[1mthis")
    # kimi-cli stores a call with a status in tags and the output, as parts or as one text; a call may have no result.
    asked = {"name": "Shell", "arguments": '{"command": "ls"}'}
    records = [
        *point(3),
        {"role": "user", "content": [{"type": "text", "text": "And now?"}]},
        *point(4),
        {
            "role": "assistant",
            "content": [{"type": "think", "think": "hm"}, {"type": "text", "text": "Looking."}],
            "tool_calls": [
                {"type": "function", "id": f"c{n}", "function": asked} for n in range(3)
            ],
        },
        {
            "role": "tool",
            "tool_call_id": "c0",
            "content": [
                {"type": "text", "text": "<system>Command executed successfully.</system>"},
                {"type": "text", "text": "a.txt\n"},
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "<system>ERROR: No such file</system>"},
    ]
    with (folder / "context.jsonl").open("a") as file:
        file.writelines(json.dumps(record) + "\n" for record in records)
    assert place.run("import").code == 0
    found = place.run("sessions", "export", "0a0a")
    assert (found.code, found.err) == (0, "")
    assert [part for part in found.out.strip().split("\n\n") if part[:3] != "```"] == [
        "**You:** read this",
        "**D-Mail:** read only the end",
        "**Agent:** done",
        "**You:** And now?",
        "**Agent:** Looking.",
        "**Shell** `ls`",
        "**Shell** `ls` (failed)",
        "**Shell** `ls` (no result)",
    ]
    assert "a.txt" in found.out
    assert "No such file" in found.out
    for theirs in ("<system>", "CHECKPOINT", "future self", "\x1b", "I read everything"):
        assert theirs not in found.out


def test_all_folders(place: Place, share: Path) -> None:
    write_kimi_session(share, place.work, "0a0a", "read \x1b[1mthis")
    write_kimi_session(share, Path("/somewhere/else"), "0b0b", "other")
    ran = place.run("import", "--all")
    assert ran.code == 0
    assert "\x1b" not in ran.out
    assert ran.out.count("1 D-Mail") == 2
    assert "/somewhere/else" in ran.out
    assert len(place.run("sessions", "list", "--all", "--json").json) == 2
    assert "already imported" in place.run("import", "--all").out


def test_where_from(place: Place, share: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = place.run("import")
    assert (ran.code, "kimi-cli has no sessions for this folder" in ran.out) == (0, True)
    assert place.run("import", "--json").json == []
    ran = place.run("import", "--from", place.folder / "nowhere")
    assert (ran.code, "kimi-cli has no sessions in" in ran.complaint) == (2, True)
    other = place.folder / "other"
    write_kimi_session(other, place.work, "0c0c", "hi")
    assert len(place.run("import", "--from", other, "--dry-run", "--json").json) == 1
    monkeypatch.setenv("KIMI_SHARE_DIR", str(other))
    assert place.run("import", "--json").json[0]["state"] == "imported"
    assert place.run("import", "x").code == 2


def test_one_that_fails_does_not_stop_the_others(place: Place, share: Path) -> None:
    write_kimi_session(share, place.work, "0a0a", "good")
    bad = write_kimi_session(share, place.work, "0b0b", "bad")
    # A link may lead anywhere: it is not followed.
    (bad / "context_1.jsonl").rename(share / "elsewhere")
    (bad / "context_1.jsonl").symlink_to(share / "elsewhere")
    ran = place.run("import", "--json")
    assert ran.code == 1
    assert ran.err.count("\n") == 1
    assert "'bad' was not imported" in ran.err
    assert sorted(row["state"] for row in json.loads(ran.out)) == ["failed", "imported"]
    assert [row["id"] for row in place.run("sessions", "list", "--json").json] == ["0a0a"]


ODD_LISTS = [
    b'{"work_dirs": [{"path": "\\ud800x"}, {"path": "/\\udfff"}, {"path": "a\\u0000b"}]}',
    b'{"work_dirs": [null, 5, [], "x", {"path": 7}, {"path": null}, {"kaos": {}}, {}]}',
    b'{"work_dirs": {"path": "/x"}}',
    b'{"work_dirs": 1e999}',
    b'[{"work_dirs": []}]',
    b"[" * 100_000,
    b"\xff\xfe\0\0",
    b"",
    b"1" * 5000,
]


@pytest.mark.parametrize("listed", ODD_LISTS, ids=range(len(ODD_LISTS)))
@pytest.mark.parametrize("everywhere", [True, False])
def test_an_odd_list_of_folders_ends_nothing(
    place: Place, share: Path, listed: bytes, everywhere: bool
) -> None:
    write_kimi_session(share, place.work, "mine", "hello there")
    (share / "kimi.json").write_bytes(listed)
    ran = place.run("import", "--json", *(["--all"] if everywhere else []))
    rows = json.loads(ran.out)
    assert [(row["title"], row["state"]) for row in rows] == [("hello there", "imported")]


@pytest.mark.parametrize("listed", [b"no JSON", b"[]", b"", b'{"work_dirs": 7}'])
@pytest.mark.parametrize("found", [True, False])
def test_a_list_of_folders_that_cannot_be_read_is_told(
    place: Place, share: Path, listed: bytes, found: bool
) -> None:
    write_kimi_session(share, place.work if found else Path("/elsewhere"), "one", "hello there")
    (share / "kimi.json").write_bytes(listed)
    ran = place.run("import")
    assert ("hello there" in ran.out) == found
    assert short(share / "kimi.json") in ran.err
    assert "cannot be read" in ran.err
    assert "Repair the file" in ran.err
    assert ran.code == 0


def test_no_list_of_folders_is_no_trouble(place: Place, share: Path) -> None:
    write_kimi_session(share, place.work, "one", "hello there")
    (share / "kimi.json").unlink()
    assert place.run("import").err == ""


@pytest.mark.sample(5)
@pytest.mark.parametrize("kind", ["fifo", "zero", "folder", "hole", "nuls"])
@pytest.mark.parametrize("name", ["kimi.json", "state.json", "wire.jsonl", "context_1.jsonl"])
def test_nothing_of_kimi_cli_is_waited_for(place: Place, share: Path, name: str, kind: str) -> None:
    folder = write_kimi_session(share, place.work, "odd", "hello there")
    write_kimi_session(share, place.work, "good", "and this")
    put(share / name if name == "kimi.json" else folder / name, kind)
    ran = place.run("import", "--json")
    states = {row["title"]: row["state"] for row in json.loads(ran.out)}
    assert states["and this"] == "imported"
    assert "went wrong in the program" not in ran.err


def test_a_file_of_another_age_is_listed(place: Place, share: Path) -> None:
    folder = write_kimi_session(share, place.work, "mine", "hello there")
    os.utime(folder / "context.jsonl", (2**35, 2**35))
    assert len(place.run("import", "--json").json) == 1
    assert len(place.run("sessions", "--json").json) == 1
    assert place.run("sessions").code == 0


def test_messages_of_a_long_session_are_counted(place: Place, share: Path) -> None:
    folder = write_kimi_session(share, place.work, "mine", "hello there")
    with (folder / "context.jsonl").open("a") as file:
        for n in range(100):
            file.write(json.dumps({"role": "assistant", "content": f"{n}" * 500}) + "\n")
    assert place.run("import", "--dry-run", "--json").json[0]["messages"] == 103


async def test_what_a_letter_of_kimi_cli_took_away_lies_in_its_card(
    place: Place, share: Path
) -> None:
    folder = write_kimi_session(share, place.work, "mine", "first words")
    start = [{"role": "_system_prompt", "content": "p"}]
    said = [*point(0), {"role": "user", "content": "first words"}, *point(1)]
    answer = [{"role": "_usage", "token_count": 900}, {"role": "assistant", "content": "I read"}]
    more = [*point(2), {"role": "user", "content": "and then"}, *point(3), *answer]
    letter = {"role": "user", "content": LETTER.format("begin anew")}
    end = [
        *point(1),
        {"role": "_usage", "token_count": 950},
        {"role": "assistant", "content": "ok"},
    ]
    lines = {
        "context_1.jsonl": [*start, *said, *answer, *more],
        "context.jsonl": [*start, *point(0), letter, *end],
    }
    for name, records in lines.items():
        (folder / name).write_text("".join(json.dumps(record) + "\n" for record in records))
    assert place.run("import", "--json").code == 0
    session = place.store.find("mine")
    await session.open()
    model = TranscriptModel()
    for record in session_history(session):
        model.apply(record)
    await session.aclose()
    # The model is sent neither, so neither stands in the conversation.
    assert [block for block in model.blocks if isinstance(block, UserBlock)] == []
    (card,) = [block for block in model.blocks if isinstance(block, DMailBlock)]
    folded = [block.text for block in card.folded if isinstance(block, UserBlock)]
    assert folded == ["first words", "and then"]


def test_the_first_row_of_an_imported_session_frees_no_tokens(place: Place, share: Path) -> None:
    write_kimi_session(share, place.work, "mine", "hello there")
    place.run("import")
    rows = place.run("checkpoints", "--session", "mine", "--json").json
    assert rows[0]["tokens"] <= 1_100
    assert rows[0]["tokens_change"] >= 0

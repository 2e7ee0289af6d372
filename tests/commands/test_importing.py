"""`kimi-tui import`: sessions of kimi-cli are listed, copied, and go on here; the originals stay as they are."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from support.commands import Place

LETTER = (
    "<system>You just got a D-Mail from your future self. Read it. D-Mail content:\n\n{}</system>"
)


def point(number: int) -> list[dict[str, Any]]:
    text = f"<system>CHECKPOINT {number}</system>"
    return [{"role": "_checkpoint", "id": number}, {"role": "user", "content": text}]


def write_kimi_session(share: Path, work: Path, name: str, said: str) -> Path:
    """A session with one D-Mail, as kimi-cli writes it."""
    (share / "sessions").mkdir(parents=True, exist_ok=True)
    entry = {"path": str(work), "kaos": "local", "last_session_id": None}
    listed = share / "kimi.json"
    known = json.loads(listed.read_text())["work_dirs"] if listed.exists() else []
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
    assert place.run("undo").out == "Undone: the D-Mail to #1.\n"
    assert place.run("checkpoints", "--json").json[-1]["label"] == "I read everything"


def test_all_folders(place: Place, share: Path) -> None:
    write_kimi_session(share, place.work, "0a0a", "read \x1b[1mthis")
    write_kimi_session(share, Path("/somewhere/else"), "0b0b", "other")
    ran = place.run("import", "--all")
    assert ran.code == 0
    assert "\x1b" not in ran.out
    assert ran.out.count("1 D-Mail") == 2
    assert "/somewhere/else" in ran.out
    assert len(place.run("sessions", "list", "--all", "--json").json) == 2
    assert "here already" in place.run("import", "--all").out


def test_where_from(place: Place, share: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = place.run("import")
    assert (ran.code, "kimi-cli has no session of this folder" in ran.out) == (0, True)
    assert place.run("import", "--json").json == []
    ran = place.run("import", "--from", place.folder / "nowhere")
    assert (ran.code, "no sessions of kimi-cli in" in ran.complaint) == (2, True)
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

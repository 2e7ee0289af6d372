"""What lists of sessions say of one without opening it: its last messages, the words to search, its figures."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from kimi_tui.session import listing
from kimi_tui.session.listing import (
    PreviewMessage,
    describe,
    last_said,
    read_excerpt,
    records_a_turn,
    searched_words,
    time_of,
)
from kimi_tui.session.schema import NOTE_START


def said(role: str, content: object, **more: object) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


def session(folder: Path, *records: object) -> Path:
    lines = [one if isinstance(one, str) else json.dumps(one) for one in records]
    (folder / "context.jsonl").write_text("".join(f"{line}\n" for line in lines))
    return folder


TALK = (
    {"role": "_checkpoint", "id": 0},
    said("user", "<system>CHECKPOINT 0</system>"),
    said("user", "  First question\n"),
    said("assistant", "", tool_calls=[]),
    said("tool", "result", tool_call_id="c"),
    said("assistant", "First answer"),
    said("user", f"{NOTE_START} a note"),
    "no json",
    "[1]",
    said("user", [{"type": "text", "text": "Second"}, {"type": "text", "text": "Question"}]),
    said("assistant", "Second answer"),
    {"role": "_usage", "token_count": 7},
)


def test_the_last_messages_are_those_with_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = session(tmp_path, *TALK)
    everything = [
        PreviewMessage("user", "First question"),
        PreviewMessage("assistant", "First answer"),
        PreviewMessage("user", "Second\nQuestion"),
        PreviewMessage("assistant", "Second answer"),
    ]
    assert last_said(folder, 9) == everything
    assert last_said(folder, 3) == everything[1:]
    with (folder / "context.jsonl").open("a") as file:
        file.write(json.dumps(said("user", "written in part")))
    assert last_said(folder, 9) == everything
    session(folder, *TALK)
    monkeypatch.setattr(listing, "_MAX_SAID", 8)
    assert [one.text for one in last_said(folder, 2)] == ["Second\nQ", "Second a"]
    # Only the end is read, and a line that begins before it counts for nothing.
    lines = (folder / "context.jsonl").read_bytes().split(b"\n")
    for cut in (0, 5):
        monkeypatch.setattr(listing, "_TAIL_BYTES", len(b"\n".join(lines[-4:])) - cut)
        assert len(last_said(folder, 9)) == (2 if cut == 0 else 1)
    # Nor is more read than a list may wait for.
    monkeypatch.setattr(listing, "_TAIL_BYTES", 1 << 18)
    monkeypatch.setattr(listing, "MAX_READ_BYTES", len(b"\n".join(lines[:3])) + 1)
    assert len(last_said(folder, 9)) == 1
    (folder / "context.jsonl").unlink()
    assert last_said(folder, 9) == []


def test_only_what_the_user_wrote_is_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = session(tmp_path, *TALK)
    assert searched_words(folder) == "  first question\n\nsecond question"
    monkeypatch.setattr(listing, "MAX_WORDS", 20)
    assert searched_words(folder) == "  first question\n\nsec"
    monkeypatch.setattr(listing, "MAX_WORDS", 17)
    assert searched_words(folder) == "  first question\n"
    session(folder, said("user", "Whole"), said("assistant", "x"))
    assert searched_words(folder) == "whole"
    assert last_said(folder, 9)[0].text == "Whole"
    os.mkfifo(folder / "pipe")
    (folder / "context.jsonl").unlink()
    (folder / "context.jsonl").symlink_to("pipe")
    assert searched_words(folder) == ""


def test_the_figures_of_a_long_context_come_from_its_ends(tmp_path: Path) -> None:
    long = said("tool", "x" * 20_000, tool_call_id="c")
    more = [long] * 4
    folder = session(tmp_path, *TALK, {"role": "_usage", "token_count": 9}, *more)
    path = folder / "context.jsonl"
    size = path.stat().st_size
    found = read_excerpt(path, size)
    assert (found.title, found.empty, found.messages, found.tokens) == (
        "First question",
        False,
        None,
        None,
    )
    assert read_excerpt(path, size, counted=True).messages == 11
    with path.open("a") as file:
        file.write(
            '{"role": "_usage", "token_count": 11}\n{"role": "_usage", "token_count": "x"}\n'
        )
    assert read_excerpt(path, path.stat().st_size).tokens == 11
    with path.open("a") as file:
        file.write('{"content": "no message", "role": "x"}\n{"role": "user", "content": "in part"}')
    assert read_excerpt(path, path.stat().st_size, counted=True).messages == 11
    short = read_excerpt(session(tmp_path, *TALK) / "context.jsonl", 500)
    assert (short.title, short.messages, short.tokens) == ("First question", 7, 7)


def test_a_row_counts_the_files_of_lines_that_were_left_and_survives_the_loss_of_the_live_one(
    tmp_path: Path,
) -> None:
    session(tmp_path, *TALK)
    sizes = {"context_1.jsonl": 30, "context_2.jsonl": 50, "wire.jsonl": 11}
    for name, size in sizes.items():
        (tmp_path / name).write_bytes(b"\n" * size)
    (tmp_path / "context_3.jsonl").symlink_to("context_1.jsonl")
    live = (tmp_path / "context.jsonl").stat()
    os.utime(tmp_path / "context.jsonl", (-5.0, -5.0))
    row = describe(tmp_path)
    assert row is not None
    assert (row.world_lines, row.world_lines_bytes) == (2, 80)
    assert (row.size_bytes, row.updated_at) == (live.st_size + 91, 0.0)
    (tmp_path / "context.jsonl").rename(tmp_path / "context_4.jsonl")
    row = describe(tmp_path)
    assert row is not None
    assert (row.title, row.messages, row.tokens, row.world_lines) == ("First question", 7, 7, 2)
    assert row.world_lines_bytes == 80
    os.utime(tmp_path / "context_4.jsonl", (2e11, 2e11))
    assert time_of((tmp_path / "context_4.jsonl").stat()) == 1e11
    for path in tmp_path.iterdir():
        path.unlink()
    assert describe(tmp_path) is None
    assert describe(tmp_path / "gone") is None


def test_a_record_tells_whether_there_was_a_turn(tmp_path: Path) -> None:
    record = tmp_path / "wire.jsonl"
    assert not records_a_turn(record)
    record.write_text('{"type": "metadata"}\n')
    assert not records_a_turn(record)
    record.write_text('{"type": "metadata"}\n{"message": {"type": "TurnBegin"}}\n')
    assert records_a_turn(record)
    record.unlink()
    record.mkdir()
    assert records_a_turn(record)

"""World lines: what the journal says of them, and what the files alone tell if there is none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kimi_tui.filesystem import Storage
from kimi_tui.llm.message import user_message
from kimi_tui.session.errors import UnknownWorldLine
from kimi_tui.session.journal import Journal, JournalEntry
from kimi_tui.session.schema import NewCheckpoint, TokenCount
from kimi_tui.session.session import Session
from kimi_tui.session.world_lines import StoredWorldLines, infer_revert

PROMPT = {"role": "_system_prompt", "content": "p"}
DMAIL = (
    "<system>You just got a D-Mail from your future self. Something. D-Mail content:\n\n{}</system>"
)
SUMMARY = "<system>Previous context has been compacted. Here is the compaction output:</system>"


def point(number: int, *, marker: bool = True) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = [{"role": "_checkpoint", "id": number}]
    if marker:
        text = f"<system>CHECKPOINT {number}</system>"
        made.append({"role": "user", "content": text})
    return made


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def answer(text: str, before: int, after: int, *calls: str) -> list[dict[str, Any]]:
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if calls:
        message["tool_calls"] = [{"id": c, "function": {"name": c}} for c in calls]
    return [
        {"role": "_usage", "token_count": before},
        message,
        {"role": "_usage", "token_count": after},
    ]


def write(folder: Path, n: int, records: list[dict[str, Any]]) -> Path:
    path = folder / (f"context_{n}.jsonl" if n else "context.jsonl")
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


TURN = [PROMPT, *point(0), user("go"), *point(1), *answer("hm", 100, 110, "ReadFile"), *point(2)]
LEFT = [*TURN, *answer("too much", 900, 950, "SendDMail")]


@pytest.mark.parametrize(
    ("followed", "expected"),
    [
        (
            [*TURN[:7], user(DMAIL.format("one\nline")), *point(2), *answer("ok", 130, 140)],
            ("dmail", 1, 2, 950, 130, 2, 2, "one\nline"),
        ),
        (
            [
                PROMPT,
                *point(0),
                {
                    "role": "user",
                    "content": [{"type": "text", "text": SUMMARY}, {"type": "text", "text": "sum"}],
                },
                {"role": "_usage", "token_count": 30},
            ],
            ("compaction", 0, 2, 950, 30, 3, 2, "sum"),
        ),
        (
            [PROMPT, *point(0), user("new"), *point(1), *answer("x", 20, 25)],
            ("clear", 0, 2, 950, 20, 3, 2, ""),
        ),
        ([PROMPT], ("clear", 0, 2, 950, 0, 3, 2, "")),
        (
            [*TURN[:7], user("other way"), *point(2), *answer("ok", 60, 70)],
            ("rewind", 1, 2, 950, 60, 2, 2, ""),
        ),
        (TURN[:4], ("rewind", 1, 2, 950, 0, 2, 2, "")),
        (TURN[:5], ("rewind", 1, 2, 950, 0, 2, 2, "")),
    ],
)
def test_the_files_tell_why_a_line_was_left(
    tmp_path: Path, followed: list[dict[str, Any]], expected: tuple[object, ...]
) -> None:
    left = write(tmp_path, 1, LEFT)
    left_by = infer_revert(Storage(), left, write(tmp_path, 0, followed))
    assert (
        left_by.op,
        left_by.checkpoint_id,
        left_by.from_checkpoint,
        left_by.tokens_before,
        left_by.tokens_after,
        left_by.messages_dropped,
        left_by.tool_calls_dropped,
        left_by.text,
    ) == expected


@pytest.mark.parametrize(("n_kept", "place"), [(4, 0), (7, 1)])
async def test_an_inferred_operation_names_the_checkpoint_as_its_line_does(
    tmp_path: Path, n_kept: int, place: int
) -> None:
    left = write(tmp_path, 1, LEFT)
    left_by = infer_revert(Storage(), left, write(tmp_path, 0, [*TURN[:n_kept], user("other")]))
    cut_by = infer_revert(Storage(), left, write(tmp_path, 0, TURN[:n_kept]))
    write(tmp_path, 0, LEFT)
    session = Session(tmp_path, Path("/w"))
    await session.open()
    names = [point.uid for point in session.context.checkpoints]
    # A line that goes on did so after its last checkpoint; one that only ends was cut before the next one.
    assert [left_by.uid, cut_by.uid] == names[place : place + 2]
    await session.aclose()


def test_an_operation_is_read_as_it_was_written() -> None:
    entry = JournalEntry(
        *("rewind", "id", 3, 40, True, 50, "why", 6, "uid", 7, "at", 8, 9, 10, 11, "text", "of"),
        *(12, "before", "after", ("a", "b")),
    )
    assert JournalEntry.parse(entry.record()) == entry
    least = JournalEntry("files", "id", reason="files")
    assert JournalEntry.parse(least.record()) == least
    assert JournalEntry.parse({"op": "files", "id": "id"}) == JournalEntry("files", "id")
    for record in ({"op": "other", "id": "x"}, {"op": "rewind"}, {"op": 1, "id": "x"}):
        assert JournalEntry.parse(record) is None


def test_words_of_the_user_that_look_internal_are_theirs(tmp_path: Path) -> None:
    said = {**user(DMAIL.format("x")), "by": "person"}
    left = write(tmp_path, 1, LEFT)
    left_by = infer_revert(Storage(), left, write(tmp_path, 0, [*TURN[:7], said]))
    assert left_by.op == "rewind"


def test_lines_without_a_journal_in_numeric_order(tmp_path: Path) -> None:
    for n in (1, 2, 10):
        write(tmp_path, n, [*TURN, *answer(f"{n}", n, n)])
    write(tmp_path, 0, TURN)
    journal = Journal(tmp_path)
    journal.load()
    lines = StoredWorldLines(tmp_path, journal)
    found = lines.list()
    assert [line.n for line in found] == [1, 2, 10]
    assert [line.reason for line in found] == ["rewind"] * 3
    assert [point.id for point in found[0].checkpoints] == [0, 1, 2]
    assert [message.text for message in lines.read(10).messages][-1] == "10"
    with pytest.raises(UnknownWorldLine):
        lines.read(3)


async def test_a_place_that_was_begun_anew_is_not_shared(tmp_path: Path) -> None:
    """Without names of their own, checkpoints are named by the bytes before them: the same where a line was cut."""

    def row(**record: object) -> str:
        return json.dumps(record) + "\n"

    def marker(n: int) -> str:
        named = row(role="user", content=f"<system>CHECKPOINT {n}</system>")
        return row(role="_checkpoint", id=n) + named

    start = marker(0) + row(role="user", content="go") + marker(1)
    left = start + row(role="assistant", content="one") + marker(2)
    (tmp_path / "context_1.jsonl").write_text(left)
    (tmp_path / "context_2.jsonl").write_text(start)
    (tmp_path / "context.jsonl").write_text(start + row(role="assistant", content="other"))
    session = Session(tmp_path, Path("/w"))
    await session.open()
    context = session.context
    first, second = session.world_lines.list(context.world_line)
    assert first.checkpoints[1].uid == context.checkpoints[1].uid
    assert first.shared == 1
    # Nothing says that what stops there was begun otherwise.
    assert second.shared == 2
    await session.aclose()


async def test_the_journal_tells_more(tmp_path: Path) -> None:
    session = Session(tmp_path / "s", Path("/w"))
    await session.open()
    context = session.context
    for word in ("a", "b", "c"):
        await context.checkpoint(True)
        await context.append([user_message(word)])
        await context.append([TokenCount(1_000, estimated=False)])
    target = context.index.checkpoint(1)
    dmail = [NewCheckpoint(), user_message("L")]
    await context.revert_to(1, reason="dmail", text="the dmail", then=dmail)
    await context.checkpoint(True)
    await context.revert_to(1, reason="rewind")
    first, second = session.world_lines.list(context.world_line)
    assert (first.reason, first.left_by.checkpoint_id, first.left_by.uid) == (
        "dmail",
        1,
        target.uid,
    )
    assert (first.left_by.text, first.left_by.tokens_before, first.left_by.messages_dropped) == (
        "the dmail",
        1_000,
        2,
    )
    assert first.left_by.at.startswith("20")
    assert (first.n_messages, second.n_messages) == (3, 2)
    # Both begin with the only checkpoint of the live line.
    assert (first.shared, second.shared) == (1, 1)
    await context.checkpoint(True)
    first, _ = session.world_lines.list(context.world_line)
    assert first.shared == 1
    journal = [json.loads(line) for line in (session.dir / "worldlines.jsonl").open()]
    told = journal[0]
    assert told["op"] == told["reason"] == "dmail"
    assert told["n"] == 1
    assert set(told) >= {
        "checkpoint_id",
        "uid",
        "at",
        "tokens_before",
        "tokens_after",
        "messages_dropped",
        "text",
    }
    await session.aclose()

"""The table of checkpoints, from hand-made lines: kinds, tokens, files, names."""

from __future__ import annotations

import json
from typing import Any

from kimi_tui.llm.message import Message
from kimi_tui.session.context_index import ContextIndex, WorldLineContent
from kimi_tui.session.schema import message_of
from kimi_tui.soul.checkpoint_table import CheckpointRow, checkpoint_rows, files_by_checkpoint
from kimi_tui.tool_cards import DiffBlock
from kimi_tui.wire import events as ev

SUMMARY = "<system>Previous context has been compacted. Here is the compaction output:</system>"
LETTER = "<system>You just got a D-Mail from your future self. D-Mail content:\n\nshorter</system>"


def point(n: int, **more: Any) -> dict[str, Any]:
    return {"role": "_checkpoint", "id": n, "uid": f"u{n}", "at": "2026-01-01T00:00:00Z", **more}


def usage(tokens: int) -> dict[str, Any]:
    return {"role": "_usage", "token_count": tokens}


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def answer(text: str = "ok", **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": text, **more}


def write(path: str) -> dict[str, Any]:
    arguments = json.dumps({"path": path, "content": ""})
    return {
        "type": "function",
        "id": "c",
        "function": {"name": "WriteFile", "arguments": arguments},
    }


def rows(records: list[dict[str, Any]], **source: Any) -> list[CheckpointRow]:
    data = "".join(json.dumps(record) + "\n" for record in records).encode()
    index = ContextIndex.scan(lambda size, offset: data[offset : offset + size])
    messages = [
        message
        for record in records
        if not record["role"].startswith("_") and (message := message_of(record)) is not None
    ]
    assert all(isinstance(message, Message) for message in messages)
    return checkpoint_rows(WorldLineContent(index, messages), **source)


def told(*events: ev.Event) -> list[ev.EventRecord]:
    return [ev.EventRecord(seq, float(seq), event) for seq, event in enumerate(events, 1)]


def test_a_flooding_result_counts_for_its_own_row() -> None:
    found = rows(
        [
            point(0),
            user("go"),
            point(1),
            usage(1_000),
            answer(tool_calls=[write("a.txt")]),
            usage(1_050),
            {"role": "tool", "tool_call_id": "c", "content": "x" * 8_000},
            point(2),
            usage(42_000),
            answer(),
            usage(42_010),
            point(3),
            user("and"),
        ]
    )
    assert [(row.tokens, row.tokens_change) for row in found[1:3]] == [
        (1_000, 41_000),
        (42_000, 10),
    ]
    assert [row.estimated for row in found] == [True, False, False, False]
    # A turn: the last figure before it, exact where nothing came in between; its own words are not in it.
    assert found[3].tokens == 42_010
    assert 0 < found[3].tokens_change < 50
    assert [row.change_estimated for row in found] == [True, False, False, True]


def test_a_step_that_never_returned_is_estimated() -> None:
    found = rows(
        [
            point(0),
            user("a"),
            point(1),
            usage(500),
            answer(),
            usage(510),
            point(2),
            user("b"),
            point(3),
        ]
    )
    assert found[3].estimated
    assert found[3].tokens > 510
    assert found[3].tokens_change == 0


def test_without_any_figure_the_engine_estimates() -> None:
    prompt = {"role": "_system_prompt", "content": "prompt " * 3_000}
    (first, second) = rows([prompt, point(0), user("a"), point(1)])
    # With what the tools' descriptions take, which no message holds.
    assert first.tokens > 4_000
    assert (second.tokens - first.tokens, first.estimated, second.estimated) == (5, True, True)


def test_kinds() -> None:
    records = [
        point(0),
        {"role": "user", "content": [{"type": "text", "text": SUMMARY}, {"type": "text", "text": "all"}]},
        usage(700),
        point(1),
        user(LETTER),
        point(2),
        usage(900),
        answer("half", interrupted=True),
        point(3),
        point(4),
        answer("done"),
    ]  # fmt: skip
    found = rows(
        records,
        recorded={
            "u3": told(ev.StepBegin(1), ev.TurnEnd("error", "The server said no.")),
            "u4": told(ev.TurnEnd("done")),
        },
    )
    assert [row.kind for row in found] == ["compaction", "dmail", "interrupted", "error", "step"]
    assert [row.label for row in found] == ["all", "shorter", "half", "The server said no.", "done"]
    assert found[0].tokens == 700
    # The program wrote that figure, no server.
    assert found[0].estimated
    stopped = told(ev.ToolResult("k", True, "", interrupted=True))
    assert rows(records, recorded={"u4": stopped})[4].kind == "interrupted"
    # How a turn's first step ended says nothing of the turn's own checkpoint.
    assert rows([point(0), user("a")], recorded={"u0": stopped})[0].kind == "user"


def test_files() -> None:
    step = [point(0), answer(tool_calls=[write("a.txt"), write("b.txt")])]
    results = [
        {"role": "tool", "tool_call_id": "c", "content": "fine"},
        {"role": "tool", "tool_call_id": "c", "content": "<system>ERROR: no</system>"},
    ]
    # From the messages alone: the calls that did not fail.
    assert rows([*step, *results])[0].files_changed == 1
    shown = told(
        ev.ToolResult("k", False, "", display=(DiffBlock("a.txt", 1, 0, ()),)),
        ev.ToolResult("l", False, "", display=(DiffBlock("a.txt", 1, 0, ()),)),
        ev.ToolResult("m", True, "", display=(DiffBlock("no.txt", 1, 0, ()),)),
    )
    assert rows(step, recorded={"u0": shown})[0].files_changed == 1
    seen = files_by_checkpoint(
        told(ev.FilesChanged("u0", ("made", "b")), ev.FilesChanged("u0", ("b", "a.txt")))
    )
    assert rows(step, recorded={"u0": shown}, files=seen)[0].files_changed == 3
    assert rows([point(0), answer("no tools")])[0].files_changed == 0


def test_bookmarks_follow_a_compaction() -> None:
    found = rows(
        [point(0), user("a"), point(1, was="old"), answer()],
        bookmarks={"old": "here", "u0": "start"},
    )
    assert [row.bookmark for row in found] == ["start", "here"]


def test_times_come_from_the_record_where_the_line_has_none() -> None:
    records = [{**point(0), "at": ""}, user("a"), {**point(1), "at": ""}]
    found = rows(records, recorded={"u0": [ev.EventRecord(1, 1_700_000_000.5, ev.TurnBegin("a"))]})
    assert [row.at for row in found] == ["2023-11-14T22:13:20.500Z", ""]

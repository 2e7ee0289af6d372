"""A session of kimi-cli is told with its times and diffs, although its record knows no checkpoints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.chat_server import say
from support.soul import stage

from kimi_tui.projection.timeline import TimelineModel
from kimi_tui.session.store import SessionStore
from kimi_tui.soul.checkpoint_table import list_checkpoints
from kimi_tui.soul.history import session_history
from kimi_tui.tool_cards import DiffBlock
from kimi_tui.wire import events as ev

DMAIL = "<system>You just got a D-Mail from your future self. D-Mail content:\n\nb is x</system>"

SUMMARY = {
    "type": "text",
    "text": "<system>Previous context has been compacted. Here is the compaction output:</system>",
}


def marker(n: int) -> list[dict[str, Any]]:
    text = f"<system>CHECKPOINT {n}</system>"
    return [{"role": "_checkpoint", "id": n}, {"role": "user", "content": text}]


def step(n: int, text: str, *names: str) -> list[dict[str, Any]]:
    made: dict[str, Any] = {"role": "assistant", "content": text}
    if names:
        made["tool_calls"] = [
            {"type": "function", "id": f"{name}:0", "function": {"name": name, "arguments": "{}"}}
            for name in names
        ]
    results = [
        {"role": "tool", "content": f"{name} ran", "tool_call_id": f"{name}:0"} for name in names
    ]
    return [*marker(n), {"role": "_usage", "token_count": 100 * n}, made, *results]


def told(at: float, kind: str, **payload: Any) -> dict[str, Any]:
    return {"timestamp": at, "message": {"type": kind, "payload": payload}}


def called(at: float, name: str) -> dict[str, Any]:
    function = {"name": name, "arguments": "{}"}
    return told(at, "ToolCall", type="function", id=f"{name}:0", function=function)


def ended(at: float, name: str, path: str) -> dict[str, Any]:
    diff = {"type": "diff", "path": path, "old_text": "a", "new_text": "b"}
    value = {"is_error": False, "output": "x", "message": "", "display": [diff]}
    return told(at, "ToolResult", tool_call_id=f"{name}:0", return_value=value)


async def test_turns_and_steps_are_matched_in_order(tmp_path: Path) -> None:
    store = SessionStore(tmp_path)
    session = store.create(tmp_path)
    session.dir.mkdir(parents=True)
    start = [
        {"role": "_system_prompt", "content": "s"},
        *marker(0),
        {"role": "user", "content": "go"},
    ]
    first = step(1, "one", "WriteFile")
    left = [*start, *first, *step(2, "two", "SendDMail")]
    live = [
        *start,
        *marker(1),
        {"role": "user", "content": DMAIL},
        *step(2, "three", "WriteFile"),
        *marker(3),
        {"role": "user", "content": "go"},
        *step(4, "four"),
    ]
    for name, records in (("context_1.jsonl", left), ("context.jsonl", live)):
        (session.dir / name).write_text("".join(json.dumps(r) + "\n" for r in records))
    wire = [
        {"type": "metadata", "protocol_version": "1.10"},
        told(10, "TurnBegin", user_input="go"),
        told(11, "StepBegin", n=1),
        called(12, "WriteFile"),
        ended(13, "WriteFile", "first.py"),
        told(14, "StepBegin", n=2),
        called(15, "SendDMail"),
        told(16, "StepBegin", n=3),
        called(17, "WriteFile"),
        ended(18, "WriteFile", "second.py"),
        told(19, "TurnEnd"),
        told(20, "TurnBegin", user_input="/compact"),
        told(21, "TurnEnd"),
        told(30, "TurnBegin", user_input="go"),
        told(31, "StepBegin", n=1),
        told(32, "TurnEnd"),
    ]
    session.record.path.write_text("".join(json.dumps(r) + "\n" for r in wire))
    await session.open()
    try:
        records = session_history(session)
    finally:
        await session.aclose()
    turns = [r.at for r in records if isinstance(r.event, ev.TurnBegin)]
    assert turns == [10, 30]
    steps = [r.at for r in records if isinstance(r.event, ev.StepBegin)]
    assert steps == [11, 14, 16, 31]
    diffs = [
        block.path
        for r in records
        if isinstance(r.event, ev.ToolResult)
        for block in r.event.display
        if isinstance(block, DiffBlock)
    ]
    assert diffs == ["first.py", "second.py"]
    reverted = [r.event for r in records if isinstance(r.event, ev.ContextReverted)]
    assert [(e.reason, e.world_line, e.text) for e in reverted] == [("dmail", 1, "b is x")]
    texts = [r.event.text for r in records if isinstance(r.event, ev.TextPart)]
    assert texts == ["one", "two", "three", "four"]
    ends = [r.event.reason for r in records if isinstance(r.event, ev.TurnEnd)]
    assert ends == ["done", "done"]


async def test_a_marker_that_names_nothing_here_is_not_sent(tmp_path: Path) -> None:
    """kimi-cli keeps the marker of a checkpoint that its compaction did away with; later the number is another's."""
    async with stage(tmp_path) as on:
        await on.soul.aclose()
        stale = "<system>CHECKPOINT 2</system>"
        records = [
            {"role": "_system_prompt", "content": "s"},
            *marker(0),
            {"role": "user", "content": "go"},
            {"role": "user", "content": stale},
            {"role": "assistant", "content": "one"},
        ]
        on.session.dir.mkdir(parents=True, exist_ok=True)
        path = on.session.dir / "context.jsonl"
        path.write_text("".join(json.dumps(record) + "\n" for record in records))
        on.session = on.store.find(on.session.id)
        await on.open()
        on.server.script(say("two"), say("three"))
        await on.soul.run("next")
        # Once there is a checkpoint of that number, its name is at its own place only.
        sent = str(on.server.requests[-1].messages)
        assert sent.count("CHECKPOINT 0") == sent.count("CHECKPOINT 1") == sent.count(stale) == 1
        assert sent.index("one") < sent.index("next") < sent.index(stale)
        assert stale in path.read_text().split("one")[0]


async def test_what_was_undone_and_summarised_is_told_where_it_was(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        await on.soul.aclose()
        start = [{"role": "_system_prompt", "content": "s"}, *marker(0)]
        go = {"role": "user", "content": "go"}
        begun = [*start, go]
        lines = [
            [*begun, *step(1, "one", "ReadFile"), *step(2, "two", "SendDMail")],
            [*begun, *marker(1), {"role": "user", "content": DMAIL}, *step(2, "after")],
            [*start, {"role": "user", "content": [SUMMARY, {"type": "text", "text": "all"}]}],
        ]
        folder = on.session.dir
        folder.mkdir(parents=True, exist_ok=True)
        for name, records in zip(("context_1", "context_2", "context"), lines, strict=True):
            text = "".join(json.dumps(record) + "\n" for record in records)
            (folder / f"{name}.jsonl").write_text(text)
        usage = {"input_other": 900, "output": 20, "input_cache_read": 100}
        status = told(2.0, "StatusUpdate", context_tokens=1_000, token_usage=usage)
        wire = [told(1.0, "TurnBegin", user_input="go"), status, status, told(3.0, "TurnEnd")]
        text = "".join(json.dumps(record) + "\n" for record in wire)
        (folder / "wire.jsonl").write_text(text)
        on.session = on.store.find(on.session.id)
        await on.open()
        events = [record.event for record in on.soul.opened_with]
        (reverted,) = [e for e in events if isinstance(e, ev.ContextReverted)]
        # The place it went to bears the same name on both lines, since the same bytes stand before it.
        assert (reverted.checkpoint_id, reverted.from_checkpoint) == (1, 2)
        assert (reverted.reason, reverted.world_line, reverted.text) == ("dmail", 1, "b is x")
        names = [
            type(e).__name__ for e in events if isinstance(e, ev.CompactionBegin | ev.CompactionEnd)
        ]
        assert names == ["CompactionBegin", "CompactionEnd"]
        # The totals include the earlier calls.
        on.server.script(say("more", usage=(500, 5)))
        await on.soul.run("next")
        figures = await on.soul.statistics()
        assert (figures.input_tokens, figures.cached_tokens) == (2_500, 200)
        assert figures.output_tokens == 45


@pytest.mark.parametrize("prompt", ["(elided)", "one word after the other " * 2_000])
async def test_what_precedes_the_first_figure_fits_it(tmp_path: Path, prompt: str) -> None:
    lines = [
        {"role": "_system_prompt", "content": prompt},
        *marker(0),
        {"role": "user", "content": "What is it?"},
        *marker(1),
        {"role": "_usage", "token_count": 2_000},
        {"role": "assistant", "content": "An importer."},
        {"role": "_usage", "token_count": 2_015},
    ]
    store = SessionStore(tmp_path)
    session = store.create(tmp_path)
    session.dir.mkdir(parents=True)
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (session.dir / "context.jsonl").write_text(text, "utf-8")
    await session.open()
    try:
        model = TimelineModel()
        for record in session_history(session):
            model.apply(record)
        listed = list_checkpoints(session)
    finally:
        await session.aclose()
    first = model.tree.live[0]
    # The tools are in it, and nothing that was said made it less.
    assert 1_900 < first.tokens <= 2_000
    assert first.change >= 0
    assert 1_900 < listed[0].tokens <= 2_000
    assert listed[0].tokens_change >= 0

"""A session of kimi-cli is told with its times and diffs, although its record knows no checkpoints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from kimi_tui.session.store import SessionStore
from kimi_tui.soul.history import history_records
from kimi_tui.wire import events as ev
from kimi_tui.wire.display import DiffBlock

DMAIL = "<system>You just got a D-Mail from your future self. D-Mail content:\n\nb is x</system>"


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
        records = history_records(session)
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

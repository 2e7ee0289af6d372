"""A long session opens by its offsets: hardly anything of it is parsed into messages, or kept in memory."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kimi_tui.llm.message import Message, user_message
from kimi_tui.session import context_index
from kimi_tui.session.context_file import WHOLE_IN_MEMORY_BYTES
from kimi_tui.session.session import Session

STEPS = 3_000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """20 MB: 3,000 steps of a question, an answer and a long tool result."""
    with (tmp_path / "context.jsonl").open("w") as file:
        for number in range(STEPS):
            call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
            for record in (
                {"role": "_checkpoint", "id": number, "uid": f"u{number}", "at": ""},
                {"role": "user", "content": f"question {number}"},
                {"role": "_usage", "token_count": 1_000 + number},
                {"role": "assistant", "content": "words " * 100, "tool_calls": [call]},
                {"role": "tool", "content": "line\n" * 1_200, "tool_call_id": "c"},
            ):
                file.write(json.dumps(record) + "\n")
    return tmp_path


@pytest.mark.exhaustive
async def test_opening_parses_the_end_only(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[int] = []
    real = context_index.parse_message

    def parse(data: bytes) -> Message:
        parsed.append(len(data))
        return real(data)

    monkeypatch.setattr(context_index, "parse_message", parse)
    session = Session(folder, Path("/w"))
    await session.open()
    size = session.context.size_bytes
    assert size > WHOLE_IN_MEMORY_BYTES
    assert session.context.index.n_messages == 3 * STEPS
    assert sum(parsed) < size / 4

    parsed.clear()
    assert session.context.messages[-1].text.startswith("line")
    assert session.context.token_count > 1_000 + STEPS
    assert not parsed
    assert session.context.messages[0].text == "question 0"
    assert len(parsed) == 1

    parsed.clear()
    done = await session.context.revert_to(STEPS - 5, reason="rewind")
    assert done.entry.messages_dropped == 15
    assert len(parsed) < 10
    left = session.world_lines.read(done.entry.n)
    assert left.messages[done.messages_kept].text == f"question {STEPS - 5}"
    await session.context.append([user_message("on")])
    await session.sync()
    await session.aclose()
    again = Session(folder, Path("/w"))
    await again.open()
    assert again.context.index.n_messages == 3 * (STEPS - 5) + 1
    await again.aclose()


def test_a_cleared_cache_holds_nothing_and_is_used_again() -> None:
    cache = context_index.MessageCache()
    for offset in range(3):
        cache.put(offset, user_message(f"message {offset}"), 100)
    assert cache.get(1) is not None
    cache.clear()
    assert [cache.get(offset) for offset in range(3)] == [None] * 3
    cache.clear()
    cache.put(1, user_message("again"), 100)
    found = cache.get(1)
    assert found is not None
    assert found.text == "again"

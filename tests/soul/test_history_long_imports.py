"""A session that another program wrote: what opening and listing it costs grows with its length and not faster."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.cases import first_only
from support.effort import n_calls

from kimi_tui.session.session import Session
from kimi_tui.soul.checkpoint_table import list_checkpoints
from kimi_tui.soul.history import session_history


def told(kind: str, **payload: Any) -> dict[str, Any]:
    return {"timestamp": 1.0, "message": {"type": kind, "payload": payload}}


def write_session(folder: Path, n_turns: int, *, words: str, usage: bool) -> None:
    """A session in which each turn was one step; `words` is how the record calls what the person said."""
    folder.mkdir()
    context: list[dict[str, Any]] = [{"role": "_system_prompt", "content": "p"}]
    record: list[dict[str, Any]] = [{"type": "metadata", "protocol_version": "1.10"}]
    for n in range(n_turns):
        context += [
            {"role": "_checkpoint", "id": 2 * n},
            {"role": "user", "content": f"turn {n}"},
            {"role": "_checkpoint", "id": 2 * n + 1},
            *([{"role": "_usage", "token_count": 100 + n}] if usage else []),
            {"role": "assistant", "content": f"answer {n}"},
        ]
        record += [told("TurnBegin", user_input=words.format(n)), told("StepBegin", n=1)]
    for name, lines in (("context.jsonl", context), ("wire.jsonl", record)):
        (folder / name).write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.mark.exhaustive
@pytest.mark.parametrize("work", [session_history, list_checkpoints])
@pytest.mark.parametrize(
    ("words", "usage"),
    first_only([("turn {}", True), ("turn {}", False), ("something else {}", True)], 2),
    ids=["a good record", "no figures", "another record"],
)
async def test_twice_as_long_is_twice_the_work(
    tmp_path: Path, work: Any, words: str, usage: bool
) -> None:
    calls: list[int] = []
    for n_turns in (10, 100, 200):
        folder = tmp_path / str(len(calls))
        write_session(folder, n_turns, words=words, usage=usage)
        session = Session(folder, tmp_path)
        await session.open()
        calls.append(n_calls(lambda opened=session: work(opened)))
        await session.aclose()
    # The first time things are imported and compiled.
    _, short, long = calls
    assert long < 2.3 * short


async def test_every_line_that_was_left_is_read_through_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kimi_tui.session import world_lines

    write_session(tmp_path / "s", 5, words="turn {}", usage=True)
    live = (tmp_path / "s" / "context.jsonl").read_bytes()
    for n in (1, 2, 3):
        left = json.dumps({"role": "user", "content": f"left {n}"}).encode()
        (tmp_path / "s" / f"context_{n}.jsonl").write_bytes(live + left + b"\n")
    session = Session(tmp_path / "s", tmp_path)
    await session.open()
    scanned: list[int] = []
    real = world_lines.scan_world_line

    def scan_world_line(storage: Any, folder: Path, n: int) -> Any:
        scanned.append(n)
        return real(storage, folder, n)

    monkeypatch.setattr(world_lines, "scan_world_line", scan_world_line)
    session_history(session)
    assert sorted(scanned) == [1, 2, 3]
    await session.aclose()

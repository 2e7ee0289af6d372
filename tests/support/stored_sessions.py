"""Stored sessions, written as files without an engine."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kimi_tui.session.store import SessionStore


def store_session(
    root: Path,
    work_dir: Path,
    *said: str,
    at: float = 1e9,
    **state: Any,
) -> str:
    """Store a session of these messages, the user's and the agent's in turn, last written at `at` (seconds); return its id."""
    name = str(uuid.UUID(int=int(at)))
    folder = SessionStore(root).bucket(work_dir) / name
    folder.mkdir(parents=True)
    path = folder / "context.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records(said)))
    os.utime(path, (at, at))
    summary = {
        "size": path.stat().st_size,
        "messages": len(said),
        "tokens": 1_200 * len(said),
        "title": said[0][:50] if said else "",
    }
    known = {"version": 1, "work_dir": str(work_dir), "summary": summary, **state}
    (folder / "state.json").write_text(json.dumps(known))
    return name


def records(said: Sequence[str]) -> list[dict[str, Any]]:
    """Return the records of the session's context."""
    found: list[dict[str, Any]] = [{"role": "_system_prompt", "content": "p"}]
    for number, text in enumerate(said):
        if number % 2 == 0:
            found.append({"role": "_checkpoint", "id": number // 2})
        found.append({"role": ("user", "assistant")[number % 2], "content": text})
    found.append({"role": "_usage", "token_count": 1_200 * len(said)})
    return found

"""Opens a stored session and prints its contents: a separate program, which runs with this version's engine and with older ones.

usage: python opened.py DATA_FOLDER SESSION_ID [BASE_URL]

With the URL of a model's server, the program runs a turn. It prints a list of the contents before and after the turn.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

from kimi_tui.llm.openai_compatible import OpenAICompatible
from kimi_tui.projection.transcript import TranscriptModel
from kimi_tui.session.store import SessionStore
from kimi_tui.soul.checkpoint_table import list_checkpoints
from kimi_tui.soul.history import session_history

try:
    from kimi_tui.soul.assembly import open_soul
except ImportError:
    # Until October 2026 `open_soul` was in this module.
    from kimi_tui.soul.kimisoul import open_soul  # pyright: ignore[reportAttributeAccessIssue]

SAID = "What does it look like from here?"


async def look(data: Path, session_id: str, base_url: str = "") -> list[dict[str, Any]]:
    """Open the session and return its contents; with a server, run a turn and return the contents after it, too."""
    session = SessionStore(data).find(session_id)
    provider = OpenAICompatible(
        provider="test",
        base_url=base_url or "http://127.0.0.1:9/v1",
        api_key="key",
        model="stand-in",
        window=200_000,
        dialect="generic",
        capabilities=["image_in", "thinking"],
    )
    soul: Any = await open_soul(session=session, provider=provider, mode="all", environ={})
    try:
        seen = [_seen(soul.session)]
        if base_url:
            await soul.run(SAID)
            await soul.flush()
            seen.append(_seen(soul.session))
    finally:
        await soul.aclose()
    return seen


def _seen(session: Any) -> dict[str, Any]:
    chat = TranscriptModel()
    for record in session_history(session):
        chat.apply(record)
    lines = [0, *(line.n for line in session.world_lines.list())]
    seen = {
        "title": session.title,
        "messages": [_message(one) for one in session.context.messages],
        "tokens": session.context.token_count,
        "checkpoints": [
            [dataclasses.asdict(row) for row in list_checkpoints(session, number)]
            for number in lines
        ],
        "chat": [(type(block).__name__, str(getattr(block, "text", ""))) for block in chat.blocks],
        "bookmarks": dict(session.marks.bookmarks),
        "pins": sorted(session.marks.pins),
    }
    return json.loads(json.dumps(seen))


def _message(message: Any) -> Any:
    return json.loads(message.model_dump_json(exclude_none=True))


if __name__ == "__main__":
    folder, name, *url = sys.argv[1:]
    print(json.dumps(asyncio.run(look(Path(folder), name, *url))))

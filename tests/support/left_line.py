"""A world line that was left, as views get it."""

from __future__ import annotations

from typing import Any, cast

from kimi_tui.session.journal import JournalEntry
from kimi_tui.session.world_lines import WorldLine


def left_line(
    n: int,
    reason: str,
    checkpoint_id: int,
    *,
    at: str,
    tokens_before: int,
    messages: int,
    shared: int,
) -> WorldLine:
    """Return a line with the operation that left it."""
    entry = JournalEntry(
        op=cast("Any", reason),
        n=n,
        checkpoint_id=checkpoint_id,
        at=at,
        tokens_before=tokens_before,
        messages_dropped=messages,
    )
    return WorldLine(n, reason, entry, 1, n_messages=messages, shared=shared)

"""What a session is called when nobody named it: how the person began."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from kimi_tui.llm.message import Message
from kimi_tui.session.internal import internal_kind

_MAX_LENGTH = 50
_LOOKED_AT = 200


def short_title(text: str) -> str:
    """One line of at most fifty characters."""
    line = " ".join(text[:1_000].split())
    return line if len(line) <= _MAX_LENGTH else line[: _MAX_LENGTH - 1].rstrip() + "…"


def title_of(messages: Iterable[Message]) -> str:
    """The beginning of the first thing that the person said, or nothing.

    Nothing too where the messages begin with a compaction's summary: what follows is the middle of a conversation.
    """
    for message in islice(messages, _LOOKED_AT):
        if message.role == "user" and message.text.strip():
            record = {"role": "user", "content": message.text, **(message.model_extra or {})}
            kind = internal_kind(record)
            if kind is None:
                return short_title(message.text)
            if kind == "compaction":
                return ""
    return ""

"""Tells the person's own words from the user messages that the program wrote into the context.

The literal beginnings are kimi-cli's, so that its sessions are read like ours. Words of a person that happen to begin
so are stored with `by: "person"`, which settles it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from kimi_tui.llm.message import ContentPart, Message, TextPart
from kimi_tui.session.internal import (
    COMPACTION_START,
    Internal,
    kind_by_start,
    letter_in,
    summary_in,
)

_ASIDE = frozenset[Internal | None]({"marker", "reminder", "notification", "note"})
"""What asks for no answer by itself."""
_MARKER = re.compile(r"<system>CHECKPOINT \d{1,9}</system>")


def internal_kind(message: Message) -> Internal | None:
    """What kind of internal message this is, or None for anything a person or a model said."""
    if message.role != "user" or (message.model_extra or {}).get("by") == "person":
        return None
    start = _first_text(message)
    if not start.startswith("<"):
        return None
    return "marker" if _MARKER.fullmatch(start.strip()) else kind_by_start(start)


def is_said(message: Message) -> bool:
    """Whether this is what the person said: a prompt or a steer."""
    return message.role == "user" and internal_kind(message) is None


def said(text: str) -> Message:
    """The person's words as a message that can never be taken for an internal one."""
    plain = Message(role="user", content=text)
    if internal_kind(plain) is None:
        return plain
    return Message.model_validate({"role": "user", "content": text, "by": "person"})


def dmail_text(message: Message) -> str | None:
    """The letter itself, without what the program put around it; None where the message is no D-Mail."""
    if internal_kind(message) != "dmail":
        return None
    return letter_in(message.text)


def summary_text(message: Message) -> str | None:
    """The summary that a compaction left, or None where the message is none."""
    if internal_kind(message) != "compaction":
        return None
    return summary_in(message.text)


def ends_open(messages: Sequence[Message]) -> bool:
    """Whether a line ends in the middle of something: no answer follows, or only the beginning of one."""
    for message in reversed(messages):
        if internal_kind(message) not in _ASIDE:
            answered = message.role == "assistant" and not message.tool_calls
            return not answered or bool(message.interrupted)
    return False


def summary_message(summary: str) -> Message:
    """The one user message that stands for everything a compaction took."""
    parts: list[ContentPart] = [TextPart(text=COMPACTION_START), TextPart(text=summary)]
    return Message(role="user", content=parts)


def _first_text(message: Message) -> str:
    if isinstance(message.content, str):
        return message.content
    for part in message.content:
        if isinstance(part, TextPart):
            return part.text
    return ""

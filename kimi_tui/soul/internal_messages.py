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
    DMAIL_START,
    LETTER_AFTER,
    NOTE_START,
    NOTIFICATION_START,
    REMINDER_START,
    SYSTEM_END,
    Internal,
)

_ASIDE = frozenset[Internal | None]({"marker", "reminder", "notification", "note"})
"""What asks for no answer by itself."""
_MARKER = re.compile(r"<system>CHECKPOINT (\d{1,9})</system>")


def internal_kind(message: Message) -> Internal | None:
    """What kind of internal message this is, or None for anything a person or a model said."""
    if message.role != "user" or (message.model_extra or {}).get("by") == "person":
        return None
    start = _first_text(message)
    if not start.startswith("<"):
        return None
    if start.startswith(DMAIL_START):
        return "dmail"
    if start.startswith(COMPACTION_START):
        return "compaction"
    if start.startswith(REMINDER_START):
        return "reminder"
    if start.startswith(NOTIFICATION_START):
        return "notification"
    if _MARKER.fullmatch(start.strip()):
        return "marker"
    return "note" if start.startswith(NOTE_START) else None


def is_said(message: Message) -> bool:
    """Whether this is what the person said: a prompt or a steer."""
    return message.role == "user" and internal_kind(message) is None


def said(text: str) -> Message:
    """The person's words as a message that can never be taken for an internal one."""
    plain = Message(role="user", content=text)
    if internal_kind(plain) is None:
        return plain
    return Message.model_validate({"role": "user", "content": text, "by": "person"})


def marker_id(message: Message) -> int | None:
    """The checkpoint a marker names, or None where the message is no marker."""
    if internal_kind(message) != "marker":
        return None
    found = _MARKER.fullmatch(_first_text(message).strip())
    return int(found.group(1)) if found else None


def dmail_text(message: Message) -> str | None:
    """The letter itself, without what the program put around it; None where the message is no D-Mail."""
    if internal_kind(message) != "dmail":
        return None
    whole = message.text
    _, found, text = whole.partition(LETTER_AFTER)
    return (text if found else whole).removesuffix(SYSTEM_END)


def summary_text(message: Message) -> str | None:
    """The summary that a compaction left, or None where the message is none."""
    if internal_kind(message) != "compaction":
        return None
    return message.text.removeprefix(COMPACTION_START).strip("\n")


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

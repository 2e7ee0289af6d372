"""Which stored records are words of the program, by the literal beginnings that kimi-cli gave them.

The same ones the engine writes, so that sessions of either are read alike. Works on plain records: nothing is validated.
"""

from __future__ import annotations

from typing import Any, Literal, cast

from kimi_tui.session.records import is_marker

Internal = Literal["marker", "dmail", "compaction", "reminder", "notification", "note"]

DMAIL_START = "<system>You just got a D-Mail from your future self."
COMPACTION_START = (
    "<system>Previous context has been compacted. Here is the compaction output:</system>"
)
LETTER_AFTER = "D-Mail content:\n\n"
REMINDER_START = "<system-reminder>"
NOTIFICATION_START = "<notification "
NOTE_START = "<system>"
SYSTEM_END = "</system>"


def texts_of(record: dict[str, Any]) -> list[str]:
    """The text parts of a message record."""
    content: object = record.get("content")
    if isinstance(content, str):
        return [content]
    found: list[str] = []
    if isinstance(content, list):
        for part in cast("list[object]", content):
            if isinstance(part, dict):
                text = cast("dict[str, object]", part).get("text")
                if isinstance(text, str):
                    found.append(text)
    return found


def internal_kind(record: dict[str, Any]) -> Internal | None:
    """What kind of internal message a record is, None for what a person or the model said."""
    if record.get("role") != "user" or record.get("by") == "person":
        return None
    if is_marker(record):
        return "marker"
    texts = texts_of(record)
    return kind_by_start(texts[0]) if texts else None


def kind_by_start(text: str) -> Internal | None:
    """What kind of internal message begins like this, markers aside; None for what anyone may say."""
    if not text.startswith("<"):
        return None
    if text.startswith(DMAIL_START):
        return "dmail"
    if text.startswith(COMPACTION_START):
        return "compaction"
    if text.startswith(REMINDER_START):
        return "reminder"
    if text.startswith(NOTIFICATION_START):
        return "notification"
    return "note" if text.startswith(NOTE_START) else None


def letter_of(record: dict[str, Any]) -> str:
    """The words of a D-Mail without what the program put around them."""
    return letter_in("".join(texts_of(record)))


def letter_in(text: str) -> str:
    """The same from the text of its message."""
    _, found, letter = text.partition(LETTER_AFTER)
    return (letter if found else text).removesuffix(SYSTEM_END)


def summary_of(record: dict[str, Any]) -> str:
    """The summary that a compaction left."""
    return summary_in("".join(texts_of(record)))


def summary_in(text: str) -> str:
    """The same from the text of its message."""
    return text.removeprefix(COMPACTION_START).strip("\n")

"""What the lines of a context file mean: messages, and metadata whose role begins with an underscore.

Reading is lenient (a message with one bad part is a message without it), writing is exact.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, cast

from pydantic import ValidationError

from kimi_tui.llm.message import Message
from kimi_tui.session.jsonl import encode

Operation = Literal["rewind", "dmail", "compaction", "clear", "jump", "undo", "redo", "files"]

SYSTEM_PROMPT = "_system_prompt"
CHECKPOINT = "_checkpoint"
USAGE = "_usage"
MESSAGE_ROLES = frozenset({"system", "user", "assistant", "tool"})
MAX_COUNT = 1 << 53

_MARKER = re.compile(r"\s*<system>CHECKPOINT \d{1,9}</system>\s*")
_PLAIN_KEYS = frozenset({"role", "content", "tool_call_id"})


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A point in a line. `offset` is where its record begins, `message_index` the number of messages before it.

    `tokens` is what was sent in the step it begins, None until that is known (and for the checkpoint of a turn).
    `was` is the uid it had before a compaction renumbered it.
    """

    id: int
    uid: str
    at: str
    offset: int
    message_index: int
    tokens: int | None = None
    was: str | None = None


@dataclass(frozen=True, slots=True)
class NewCheckpoint:
    """A checkpoint to be written as part of an operation; `marker` adds the message that names it to the model.

    `uid` is its name where something must know it beforehand, `was` the name it had before it was renumbered, `at` when
    it was made where that is not now.
    """

    marker: bool = False
    was: str | None = None
    uid: str = ""
    at: str = ""


@dataclass(frozen=True, slots=True)
class TokenCount:
    """A usage record to be written as part of an operation; always an estimate, since no server has seen the new line."""

    tokens: int


@dataclass(frozen=True, slots=True)
class Verbatim:
    """A record to be written again as part of an operation, byte for byte; `line` ends with its line feed."""

    line: bytes


Addition = Message | NewCheckpoint | TokenCount | Verbatim


def now() -> str:
    """The time as records hold it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def new_uid() -> str:
    """A name for a checkpoint or an operation that nothing else will ever have."""
    return secrets.token_hex(8)


def marker_text(checkpoint_id: int) -> str:
    """The words that name a checkpoint to the model."""
    return f"<system>CHECKPOINT {checkpoint_id}</system>"


def is_marker(record: dict[str, Any]) -> bool:
    """Whether this is the message that names a checkpoint, and not something said."""
    content = record.get("content")
    return (
        record.get("role") == "user"
        and record.get("by") != "person"
        and isinstance(content, str)
        and len(content) < 64
        and _MARKER.fullmatch(content) is not None
    )


def count_of(value: object) -> int | None:
    """A whole number of a sensible size, else None."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < MAX_COUNT:
        return value
    return None


def text_of(value: object) -> str:
    """The value where it is text, else nothing."""
    return value if isinstance(value, str) else ""


def message_of(record: dict[str, Any]) -> Message | None:
    """The message that a record holds, without the parts and calls that make no sense; None where nothing is left."""
    known = {key: value for key, value in record.items() if value is not None}
    try:
        return Message.model_validate(known)
    except (ValidationError, RecursionError):
        pass
    if known.get("role") not in MESSAGE_ROLES:
        return None
    content = known.get("content")
    if isinstance(content, list):
        known["content"] = [part for part in cast("list[object]", content) if _is_part(part)]
    elif not isinstance(content, str):
        known.pop("content", None)
    calls = known.pop("tool_calls", None)
    if isinstance(calls, list):
        whole = [call for call in cast("list[object]", calls) if _is_call(call)]
        if whole:
            known["tool_calls"] = whole
    if "content" not in known and "tool_calls" not in known:
        return None
    for key in ("tool_call_id", "name"):
        if not isinstance(known.get(key, ""), str):
            del known[key]
    if not isinstance(known.get("interrupted", False), bool):
        del known["interrupted"]
    try:
        return Message.model_validate(known)
    except (ValidationError, RecursionError):
        return None


def is_message(record: dict[str, Any]) -> bool:
    """Whether `message_of` will find a message; quick for the usual shapes."""
    if isinstance(record.get("content"), str) and record.keys() <= _PLAIN_KEYS:
        call_id = record.get("tool_call_id")
        return call_id is None or isinstance(call_id, str)
    return message_of(record) is not None


def usage_line(tokens: int, *, estimated: bool = False) -> bytes:
    """The line of a usage. Only an estimate says what it is: other programs pass over the key."""
    record = {"role": USAGE, "token_count": tokens}
    return encode({**record, "estimated": True} if estimated else record)


def system_prompt_line(text: str) -> bytes:
    """The line of the system prompt."""
    return encode({"role": SYSTEM_PROMPT, "content": text})


def message_line(message: Message) -> bytes:
    """The line of a message."""
    try:
        record = message.stored()
    except (ValueError, TypeError):
        # Half a surrogate pair, or an unknown key that holds what JSON does not: `encode` copes with both.
        record = message.model_dump(mode="python", exclude_none=True)
    return encode(record)


def encode_additions(additions: Sequence[Addition], next_id: int) -> bytes:
    """The lines of what an operation writes; checkpoints are numbered from `next_id`."""
    pieces: list[bytes] = []
    for addition in additions:
        if isinstance(addition, NewCheckpoint):
            record: dict[str, Any] = {
                "role": CHECKPOINT,
                "id": next_id,
                "uid": addition.uid or new_uid(),
                "at": addition.at or now(),
            }
            if addition.was is not None:
                record["was"] = addition.was
            pieces.append(encode(record))
            if addition.marker:
                pieces.append(encode({"role": "user", "content": marker_text(next_id)}))
            next_id += 1
        elif isinstance(addition, TokenCount):
            pieces.append(usage_line(addition.tokens, estimated=True))
        elif isinstance(addition, Verbatim):
            pieces.append(addition.line)
        else:
            pieces.append(message_line(addition))
    return b"".join(pieces)


def _is_part(part: object) -> bool:
    if not isinstance(part, dict):
        return False
    kind = cast("dict[str, object]", part).get("type")
    try:
        Message.model_validate({"role": "user", "content": [part]})
    except (ValidationError, RecursionError):
        return False
    return isinstance(kind, str)


def _is_call(call: object) -> bool:
    try:
        Message.model_validate({"role": "assistant", "tool_calls": [call]})
    except (ValidationError, RecursionError):
        return False
    return True

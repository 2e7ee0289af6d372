"""The records of a context file: messages, and metadata whose role begins with an underscore.

Reading is lenient (a message with one bad part is a message without it), writing is exact. Words of the program among the user
messages are told by the literal beginnings that kimi-cli gave them, so that sessions of either program are read alike.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, cast

from pydantic_core import ValidationError

from kimi_tui import lenient_json
from kimi_tui.prompts import CHECKPOINT_MARKER, COMPACTION_START
from kimi_tui.session.jsonl import encode

if TYPE_CHECKING:
    from kimi_tui.llm.message import Message

Operation = Literal["rewind", "dmail", "compaction", "clear", "jump", "undo", "redo", "files"]

SYSTEM_PROMPT = "_system_prompt"
CHECKPOINT = "_checkpoint"
USAGE = "_usage"
MESSAGE_ROLES = frozenset({"system", "user", "assistant", "tool"})
MAX_COUNT = 1 << 53

_PLAIN_KEYS = frozenset({"role", "content", "tool_call_id"})


Internal = Literal["marker", "dmail", "compaction", "reminder", "notification", "note"]
DMAIL_START = "<system>You just got a D-Mail from your future self."
DMAIL_TEXT_AFTER = "D-Mail content:\n\n"
REMINDER_START = "<system-reminder>"
NOTIFICATION_START = "<notification "
NOTE_START = "<system>"
SYSTEM_END = "</system>"
FAILED_START = "<system>ERROR: "
"""How the result of a call that failed begins."""


class Checkpoint(NamedTuple):
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
    """A checkpoint to be written; `marker` adds the message that names it to the model.

    `uid` is its name where something must know it beforehand, `was` the name it had before it was renumbered, `at` when
    it was made where that is not now.
    """

    marker: bool = False
    was: str | None = None
    uid: str = ""
    at: str = ""


@dataclass(frozen=True, slots=True)
class SystemPrompt:
    """The system prompt, to be written before anything else."""

    text: str


@dataclass(frozen=True, slots=True)
class TokenCount:
    """A usage record to be written; an estimate where no server has seen the line."""

    tokens: int
    estimated: bool = True


@dataclass(frozen=True, slots=True)
class Verbatim:
    """A record to be written again, byte for byte; `line` ends with its line feed."""

    line: bytes


Addition: TypeAlias = "Message | NewCheckpoint | TokenCount | SystemPrompt | Verbatim"
"""What can be appended to a context."""


def now() -> str:
    """The time as records hold it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def new_uid() -> str:
    """A name for a checkpoint or an operation that nothing else will ever have."""
    return secrets.token_hex(8)


def marker_text(checkpoint_id: int) -> str:
    """The text of the message that names a checkpoint to the model."""
    return f"<system>CHECKPOINT {checkpoint_id}</system>"


def is_marker(record: dict[str, Any]) -> bool:
    """Whether this is the message that names a checkpoint, and not something said."""
    content = record.get("content")
    return (
        record.get("role") == "user"
        and record.get("by") != "person"
        and isinstance(content, str)
        and len(content) < 64
        and CHECKPOINT_MARKER.fullmatch(content) is not None
    )


def count_of(value: object) -> int | None:
    """A whole number of a sensible size, else None."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < MAX_COUNT:
        return value
    return None


def message_of(record: dict[str, Any]) -> Message | None:
    """The message that a record holds, without the parts and calls that make no sense; None where nothing is left."""
    from kimi_tui.llm.message import Message

    known = {key: value for key, value in record.items() if value is not None}
    try:
        return Message.of(known)
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
        return Message.of(known)
    except (ValidationError, RecursionError):
        return None


def is_message(record: dict[str, Any]) -> bool:
    """Whether `message_of` will find a message; quick for the usual shapes."""
    if isinstance(record.get("content"), str) and record.keys() <= _PLAIN_KEYS:
        call_id = record.get("tool_call_id")
        return call_id is None or isinstance(call_id, str)
    return message_of(record) is not None


def message_line(message: Message) -> bytes:
    """The line of a message."""
    return _message_line(message).line


def _message_line(message: Message) -> AddedLine:
    try:
        record = message.stored()
    except (ValueError, TypeError):
        # Half a surrogate pair, or an unknown key that holds what JSON does not: `encode` copes with both.
        return AddedLine(encode(message.stored_loosely()))
    return AddedLine(encode(record), message, record)


class AddedLine(NamedTuple):
    """The line of something that is appended; of a message also that, and the object that the line holds."""

    line: bytes
    message: Message | None = None
    record: dict[str, Any] | None = None


def encode_additions(additions: Sequence[Addition], next_id: int) -> bytes:
    """The lines of what is appended; checkpoints are numbered from `next_id`."""
    return b"".join(added.line for added in added_lines(additions, next_id))


def added_lines(additions: Sequence[Addition], next_id: int) -> Iterator[AddedLine]:
    """The same, line by line."""
    for addition in additions:
        record: dict[str, Any]
        match addition:
            case NewCheckpoint(marker, was, uid, at):
                uid, at = uid or new_uid(), at or now()
                record = {"role": CHECKPOINT, "id": next_id, "uid": uid, "at": at}
                if was is not None:
                    record["was"] = was
                yield AddedLine(encode(record))
                if marker:
                    yield AddedLine(encode({"role": "user", "content": marker_text(next_id)}))
                next_id += 1
            case TokenCount(tokens, estimated):
                record = {"role": USAGE, "token_count": tokens}
                if estimated:
                    # Only an estimate says what it is: other programs pass over the key.
                    record["estimated"] = True
                yield AddedLine(encode(record))
            case SystemPrompt(text):
                yield AddedLine(encode({"role": SYSTEM_PROMPT, "content": text}))
            case Verbatim(line):
                yield AddedLine(line)
            case message:
                yield _message_line(message)


def _is_part(part: object) -> bool:
    if not isinstance(part, dict):
        return False
    from kimi_tui.llm.message import Message

    kind = cast("dict[str, object]", part).get("type")
    try:
        Message.model_validate({"role": "user", "content": [part]})
    except (ValidationError, RecursionError):
        return False
    return isinstance(kind, str)


def _is_call(call: object) -> bool:
    from kimi_tui.llm.message import Message

    try:
        Message.model_validate({"role": "assistant", "tool_calls": [call]})
    except (ValidationError, RecursionError):
        return False
    return True


def texts_of(record: dict[str, Any]) -> list[str]:
    """The text parts of a message record, without what the program attached to the user's words."""
    content: object = record.get("content")
    if isinstance(content, str):
        return [content]
    parts = map(lenient_json.mapping, lenient_json.listing(content))
    found = (part.get("text") for part in parts if not part.get("attached"))
    return [text for text in found if isinstance(text, str)]


def image_names_of(record: dict[str, Any]) -> list[str]:
    """The names of the images in a message record; empty for those that have none."""
    places = (
        lenient_json.mapping(part).get("image_url")
        for part in lenient_json.listing(record.get("content"))
    )
    return [
        lenient_json.text(lenient_json.mapping(where).get("name"))
        for where in places
        if isinstance(where, dict)
    ]


def internal_kind(record: dict[str, Any]) -> Internal | None:
    """What kind of internal message a record is, None for what the user or the model said."""
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


def dmail_text_of(record: dict[str, Any]) -> str:
    """The text of a D-Mail without what the program put around it."""
    return dmail_text_in("".join(texts_of(record)))


def dmail_text_in(text: str) -> str:
    """The text of a D-Mail, from the text of its whole message."""
    _, found, own = text.partition(DMAIL_TEXT_AFTER)
    return (own if found else text).removesuffix(SYSTEM_END)


def summary_of(record: dict[str, Any]) -> str:
    """The summary that a compaction left."""
    return summary_in("".join(texts_of(record)))


def summary_in(text: str) -> str:
    """The summary that a compaction left, from the text of its message."""
    return text.removeprefix(COMPACTION_START).strip("\n")

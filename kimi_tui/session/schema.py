"""The records of a context file: messages, and metadata whose role begins with an underscore.

Reading is lenient (a message with one bad part is a message without it), writing is exact. The program's messages among the
user messages are recognised by the literal beginnings that kimi-cli gave them, so sessions of both programs are read alike.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, cast

from pydantic_core import ValidationError

from kimi_tui import lenient_json
from kimi_tui.llm.tokens import stored_image_tokens
from kimi_tui.prompts import CHECKPOINT_MARKER, COMPACTION_START
from kimi_tui.session.jsonl import encode, encode_exactly

if TYPE_CHECKING:
    from kimi_tui.llm.message import Message

Operation = Literal["rewind", "dmail", "compaction", "clear", "jump", "undo", "redo", "files"]

SYSTEM_PROMPT = "_system_prompt"
CHECKPOINT = "_checkpoint"
USAGE = "_usage"
MESSAGE_ROLES = frozenset({"system", "user", "assistant", "tool"})
MAX_COUNT = 1 << 53

_PLAIN_KEYS = frozenset({"role", "content", "tool_call_id"})
_STEP_KEYS = _PLAIN_KEYS | {"tool_calls", "saw", "by"}
_PART_KEYS = frozenset({"type", "text"})
_CALL_KEYS = frozenset({"type", "id", "function"})
_FUNCTION_KEYS = frozenset({"name", "arguments"})
# A model may write any text as the name of a tool, so longer names are ignored.
_LONGEST_NAME = 64
_MOST_IMAGE_TOKENS = 1 << 30


Internal = Literal["marker", "dmail", "compaction", "reminder", "notification", "note"]
DMAIL_START = "<system>You just got a D-Mail from your future self."
DMAIL_TEXT_AFTER = "D-Mail content:\n\n"
REMINDER_START = "<system-reminder>"
NOTIFICATION_START = "<notification "
NOTE_START = "<system>"
SYSTEM_END = "</system>"
FAILED_START = "<system>ERROR: "
"""The beginning of the result of a failed call."""


class MessageKind(IntEnum):
    """The kind of a message in one byte: enough to count and list a conversation without parsing it."""

    SAID = 0
    MARKER = 1
    RESULT = 2
    FAILED = 3
    """The result of a call that failed."""
    ANSWER = 4
    """A model's message that has calls but no text."""
    WORDS = 5
    """A model's message with text."""
    DMAIL = 6
    SUMMARY = 7
    ASIDE = 8
    """A message of the program to the model beside the conversation: reminders and notes."""
    OTHER = 9


_INTERNAL = {
    "marker": MessageKind.MARKER,
    "dmail": MessageKind.DMAIL,
    "compaction": MessageKind.SUMMARY,
}


class Checkpoint(NamedTuple):
    """A point in a line. `offset` is the beginning of its record, `message_index` the number of messages before it.

    `tokens` is the number of tokens sent in the step that it begins, None until that is known (and for the checkpoint of a
    turn). `was` is its uid before a compaction renumbered it.
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

    `uid` is its name if it must be known beforehand, `was` its name before it was renumbered, `at` the time of its creation
    if that is not now.
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
    """A usage record to be written; an estimate if no server has counted the line."""

    tokens: int
    estimated: bool = True


@dataclass(frozen=True, slots=True)
class Verbatim:
    """A record to be written again, byte for byte; `line` ends with its line feed."""

    line: bytes


Addition: TypeAlias = "Message | NewCheckpoint | TokenCount | SystemPrompt | Verbatim"
"""A record that can be appended to a context."""


def now() -> str:
    """Return the current time as records hold it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def new_uid() -> str:
    """Return a unique name for a checkpoint or an operation."""
    return secrets.token_hex(8)


def marker_text(checkpoint_id: int) -> str:
    """Return the text of the message that names a checkpoint to the model."""
    return f"<system>CHECKPOINT {checkpoint_id}</system>"


def is_marker(record: dict[str, Any]) -> bool:
    """Return whether a record is the message that names a checkpoint."""
    content = record.get("content")
    return (
        record.get("role") == "user"
        and record.get("by") != "person"
        and isinstance(content, str)
        and len(content) < 64
        and CHECKPOINT_MARKER.fullmatch(content) is not None
    )


def count_of(value: object) -> int | None:
    """Return the value if it is a whole number of a plausible size, else None."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < MAX_COUNT:
        return value
    return None


def message_of(record: dict[str, Any]) -> Message | None:
    """Return the message of a record without invalid parts and calls; None if nothing is left."""
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
    for key in ("tool_call_id", "name", "broken"):
        if not isinstance(known.get(key, ""), str):
            del known[key]
    if not isinstance(known.get("interrupted", False), bool):
        del known["interrupted"]
    try:
        return Message.of(known)
    except (ValidationError, RecursionError):
        return None


def is_message(record: dict[str, Any]) -> bool:
    """Return whether `message_of` will find a message; fast for the usual shapes."""
    if isinstance(record.get("content"), str) and record.keys() <= _PLAIN_KEYS:
        call_id = record.get("tool_call_id")
        return call_id is None or isinstance(call_id, str)
    return _is_of_plain_step(record) or message_of(record) is not None


def _is_of_plain_step(record: dict[str, Any]) -> bool:
    """Return whether a record is a call or a result as the program writes them, which are most of a session's records."""
    content, calls = record.get("content"), record.get("tool_calls", ())
    return (
        record.keys() <= _STEP_KEYS
        and isinstance(record.get("tool_call_id", ""), str)
        and isinstance(content, str | list)
        and (isinstance(content, str) or all(map(_is_plain_part, cast("list[object]", content))))
        and isinstance(calls, tuple | list)
        and all(map(_is_plain_call, cast("Iterable[object]", calls)))
    )


def _is_plain_part(part: object) -> bool:
    found = lenient_json.mapping(part)
    is_text = found.get("type") == "text" and isinstance(found.get("text"), str)
    return is_text and found.keys() == _PART_KEYS


def _is_plain_call(call: object) -> bool:
    found = lenient_json.mapping(call)
    function = lenient_json.mapping(found.get("function"))
    return (
        found.get("type") == "function"
        and isinstance(found.get("id"), str)
        and found.keys() == _CALL_KEYS
        and isinstance(function.get("name"), str)
        and isinstance(function.get("arguments"), str)
        and function.keys() == _FUNCTION_KEYS
    )


class AddedLine(NamedTuple):
    """The line of an appended record, its line feed included.

    For a message it also has the message itself and its facts for the index, so that the line need not be parsed. They are
    None if the line differs from the message: JSON has no form for some values that a message can hold.
    """

    data: bytes
    message: Message | None = None
    facts: RecordFacts | None = None


def message_line(message: Message) -> bytes:
    """Return the line of a message."""
    return _message_line(message).data


def _message_line(message: Message) -> AddedLine:
    record = message.stored()
    try:
        line = encode_exactly(record)
    except (ValueError, TypeError, RecursionError):
        return AddedLine(encode(record))
    if any(call.function.arguments is None for call in message.tool_calls or ()):
        return AddedLine(line)
    if isinstance(record["content"], str) and not isinstance(message.content, str):
        # A lone text part is stored and read as a string; lines are compared by their messages.
        message = message.model_copy(update={"content": record["content"]})
    return AddedLine(line, message, facts_of(record))


def added_lines(additions: Iterable[Addition], next_id: int) -> list[AddedLine]:
    """Return the lines of appended records; checkpoints are numbered from `next_id`."""
    from kimi_tui.llm.message import user_message

    lines: list[AddedLine] = []
    for addition in additions:
        match addition:
            case NewCheckpoint(marker, was, uid, at):
                uid, at = uid or new_uid(), at or now()
                record: dict[str, Any] = {"role": CHECKPOINT, "id": next_id, "uid": uid, "at": at}
                if was is not None:
                    record["was"] = was
                lines.append(AddedLine(encode(record)))
                if marker:
                    lines.append(_message_line(user_message(marker_text(next_id))))
                next_id += 1
            case TokenCount(tokens, estimated):
                # Only an estimate has this key, which other programs ignore.
                is_estimate = {"estimated": True} if estimated else {}
                lines.append(
                    AddedLine(encode({"role": USAGE, "token_count": tokens, **is_estimate}))
                )
            case SystemPrompt(text):
                lines.append(AddedLine(encode({"role": SYSTEM_PROMPT, "content": text})))
            case Verbatim(line):
                lines.append(AddedLine(line))
            case message:
                lines.append(_message_line(message))
    return lines


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
    """Return the text parts of a message record, without parts that the program attached to the user's message."""
    content: object = record.get("content")
    if isinstance(content, str):
        return [content]
    parts = map(lenient_json.mapping, lenient_json.listing(content))
    found = (part.get("text") for part in parts if not part.get("attached"))
    return [text for text in found if isinstance(text, str)]


def image_names_of(record: dict[str, Any]) -> list[str]:
    """Return the names of the images in a message record; empty for images without one."""
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
    """Return the kind of internal message that a record is; None for messages of the user or the model."""
    if record.get("role") != "user" or record.get("by") == "person":
        return None
    if is_marker(record):
        return "marker"
    texts = texts_of(record)
    return kind_by_start(texts[0]) if texts else None


def kind_by_start(text: str) -> Internal | None:
    """Return the kind of internal message that begins with this text, markers aside; None for any other text."""
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
    """Return the text of a D-Mail without the program's words around it."""
    return dmail_text_in("".join(texts_of(record)))


def dmail_text_in(text: str) -> str:
    """Return the text of a D-Mail from the text of its whole message."""
    _, found, own = text.partition(DMAIL_TEXT_AFTER)
    return (own if found else text).removesuffix(SYSTEM_END)


def summary_of(record: dict[str, Any]) -> str:
    """Return the summary that a compaction left."""
    return summary_in("".join(texts_of(record)))


def summary_in(text: str) -> str:
    """Return the summary that a compaction left, from the text of its message."""
    return text.removeprefix(COMPACTION_START).strip("\n")


RecordFacts = tuple[MessageKind, int, Collection[str], int]
"""The facts of a message for the index: its kind, the number of its tool calls, the tools' names, and the tokens of its
images. It is a plain tuple, because one is made for each message of a session that is opened.
"""


def facts_of(record: dict[str, Any]) -> RecordFacts:
    """Return the facts of a message record for the index."""
    calls = lenient_json.listing(record.get("tool_calls"))
    called: Collection[str] = ()
    if calls:
        names = {_called(call) for call in calls}
        called = [name for name in names if 0 < len(name) <= _LONGEST_NAME]
    return _kind(record), len(calls), called, _image_tokens(record.get("content"))


def _kind(record: dict[str, Any]) -> MessageKind:
    match record["role"]:
        case "user":
            internal = internal_kind(record)
            return (
                MessageKind.SAID if internal is None else _INTERNAL.get(internal, MessageKind.ASIDE)
            )
        case "tool":
            first = next(iter(texts_of(record)), "")
            failed = first.startswith(FAILED_START) and first.endswith(SYSTEM_END)
            return MessageKind.FAILED if failed else MessageKind.RESULT
        case "assistant":
            spoke = any(text and not text.isspace() for text in texts_of(record))
            return MessageKind.WORDS if spoke else MessageKind.ANSWER
        case _:
            return MessageKind.OTHER


def _image_tokens(content: object) -> int:
    tokens = 0
    for part in lenient_json.listing(content):
        where = lenient_json.mapping(part).get("image_url")
        if isinstance(where, dict):
            facts = lenient_json.mapping(where)
            tokens += stored_image_tokens(facts.get("width"), facts.get("height"))
    return min(tokens, _MOST_IMAGE_TOKENS)


def _called(call: object) -> str:
    return lenient_json.text(
        lenient_json.mapping(lenient_json.mapping(call).get("function")).get("name")
    )

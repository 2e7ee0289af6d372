"""Stored messages: their kinds (the user's own, or a `user` message that the program wrote), and their contents.

Internal messages are recognised by their beginnings, which are kimi-cli's, so that its sessions are read like ours. A message
of the user that happens to begin so is stored with `by: "person"`, which decides.

A `Segment` is a checkpoint with the messages after it, which determine its kind and label.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from kimi_tui import lenient_json
from kimi_tui.display_names import titled
from kimi_tui.foreign_text import one_line
from kimi_tui.llm.message import (
    ContentPart,
    ImagePart,
    Message,
    TextPart,
    ToolCall,
)
from kimi_tui.projection.tokens import TokenFigure
from kimi_tui.prompts import CHECKPOINT_MARKER, COMPACTION_START, prompt
from kimi_tui.session.context_index import ContextIndex, WorldLineContent
from kimi_tui.session.images import hash_of
from kimi_tui.session.schema import (
    Checkpoint,
    Internal,
    MessageKind,
    dmail_text_in,
    kind_by_start,
    summary_in,
)
from kimi_tui.tool_cards import CALL_TOOL, Card, ImageBlock, server_of, short_name, with_names
from kimi_tui.wire.codec import decode_image
from kimi_tui.wire.events import CheckpointCreated, CheckpointKind

Author = Literal["agent", "person"]
"""The author of a D-Mail; "person" is the word for the user on disk and on the wire."""
ASIDES = frozenset[Internal | None]({"marker", "reminder", "notification", "note"})
"""The kinds of temporary messages of the program to the model: they require no answer, and need not be kept."""


def internal_kind(message: Message) -> Internal | None:
    """Return the kind of a message that the program wrote; None for messages of the user, the model or a tool."""
    if message.role != "user" or (message.model_extra or {}).get("by") == "person":
        return None
    start = message.content
    if not isinstance(start, str):
        start = next((part.text for part in start if isinstance(part, TextPart)), "")
    if not start.startswith("<"):
        return None
    return "marker" if CHECKPOINT_MARKER.fullmatch(start) else kind_by_start(start)


def is_user_words(message: Message) -> bool:
    """Return whether this is a message of the user: a prompt or a queued message."""
    return message.role == "user" and internal_kind(message) is None


def user_words(text: str) -> Message:
    """Return the user's text as a message that is never taken for an internal one."""
    plain = Message(role="user", content=text)
    if internal_kind(plain) is None:
        return plain
    return Message.model_validate({"role": "user", "content": text, "by": "person"})


def quoted(text: str) -> str:
    """Return a text for use inside a reminder, which it must not end."""
    return text.replace("</system-reminder", "<\\/system-reminder")


def command_report(message: Message) -> tuple[str, str] | None:
    """Return how a command of the user ended, and its output, from the message that reports it to the model; None for other messages."""
    if internal_kind(message) != "reminder":
        return None
    before, _, after = prompt("user_command", FACTS="\0", OUTPUT="").partition("\0")
    text = message.text
    if not (text.startswith(before) and text.endswith(after.strip())):
        return None
    facts, _, output = text[len(before) :].removesuffix(after.strip()).partition("\n")
    return facts, output.removesuffix("\n").replace("<\\/system-reminder", "</system-reminder")


def answered_words(message: Message) -> Message:
    """Mark a message of the user as answered: its answer is now part of a summary."""
    return Message.model_validate({**message.stored(), "answered": True})


def dmail_text(message: Message) -> str | None:
    """Return the text of a D-Mail without the program's words around it; None if the message is no D-Mail."""
    if internal_kind(message) != "dmail":
        return None
    return dmail_text_in(message.text)


def summary_text(message: Message) -> str | None:
    """Return the summary that a compaction left; None if the message is none."""
    if internal_kind(message) != "compaction":
        return None
    return summary_in(message.text)


def ends_open(messages: Sequence[Message]) -> bool:
    """Return whether a conversation ends within a turn: its last message has no answer, or an interrupted one."""
    for message in reversed(messages):
        if command_report(message) is not None:
            return False
        if internal_kind(message) not in ASIDES:
            extra = message.model_extra or {}
            answered = message.role == "assistant" and not message.tool_calls
            return not (answered or extra.get("answered")) or bool(message.interrupted)
    return False


def ends_with_answer(messages: Sequence[Message]) -> bool:
    """Return whether a conversation ends with an answer of the model, so that a request to continue needs a user message first."""
    for message in reversed(messages):
        kind = internal_kind(message)
        if kind == "note":
            return False
        if kind not in ASIDES:
            return message.role == "assistant" and not message.tool_calls
    return False


def summary_message(summary: str) -> Message:
    """Return the user message that stands for everything that a compaction replaced."""
    parts: list[ContentPart] = [TextPart(text=COMPACTION_START), TextPart(text=summary)]
    return Message(role="user", content=parts)


def dmail_message(body: str, author: Author, images: Sequence[ImagePart] = ()) -> Message:
    """Return the stored message of a D-Mail, with its images; an extra key stores its author."""
    message = Message(role="user", content=[TextPart(text=body), *images] if images else body)
    return message if author == "agent" else message.model_copy(update={"author": author})


def author_of(message: Message) -> Author:
    """Return the author of a stored D-Mail."""
    return "person" if (message.model_extra or {}).get("author") == "person" else "agent"


def call_arguments(arguments: str | None) -> dict[str, Any]:
    """Return the arguments of a tool call; empty if they are not a JSON object."""
    try:
        value = json.loads(arguments or "{}")
    except (ValueError, RecursionError):
        return {}
    return lenient_json.mapping(value)


# -- images: as in events, and as text for places without images


def image_block(part: ImagePart) -> ImageBlock:
    """Return an image of a message, as events have it."""
    where = part.image_url
    return decode_image({**where.model_dump(), "sha256": hash_of(where.url)})


def image_blocks(message: Message, *, pasted: bool = False) -> tuple[ImageBlock, ...]:
    """Return the images of a message, as events have them: all, or only those that the user pasted."""
    parts = message.images
    return tuple(image_block(part) for part in parts if not (pasted and part.attached))


def words_with_images(message: Message) -> str:
    """Return the text of a message, with the names of its images."""
    return with_names(message.text, image_blocks(message))


# -- segments: a world line split at its checkpoints -------------------------------------------------

MAX_LABEL = 200
_BEGINNING = 4_096
_SAID = bytes([MessageKind.SAID])
_SUMMARY = bytes([MessageKind.SUMMARY])
_ASIDES = bytes([MessageKind.MARKER, MessageKind.ASIDE])
_UNTOLD = frozenset({MessageKind.MARKER, MessageKind.RESULT, MessageKind.FAILED})
_TARGET_KEYS = ("path", "command", "pattern", "query", "url", "message", "description")


@dataclass(frozen=True, slots=True)
class Segment:
    """A checkpoint and the messages up to the next one, without its marker."""

    point: Checkpoint
    messages: tuple[Message, ...]

    @property
    def kind(self) -> CheckpointKind:
        """The kind of the checkpoint."""
        kinds = [internal_kind(message) for message in self.messages]
        # A D-Mail may carry a pinned summary, but a segment that begins with a summary is a compaction that kept a D-Mail.
        begins = next((kind for kind in kinds if kind != "note"), None)
        if "dmail" in kinds and (self.point.id or begins != "compaction"):
            return "dmail"
        if "compaction" in kinds:
            return "compaction" if self.point.id == 0 else "summary"
        first = next((m for m in self.messages if internal_kind(m) is None), None)
        return "user" if first is not None and is_user_words(first) else "step"

    @property
    def words(self) -> tuple[Message, ...]:
        """The messages of the user in the segment."""
        return tuple(filter(is_user_words, self.messages))

    @property
    def said(self) -> tuple[str, ...]:
        """The texts of the user's messages."""
        return tuple(m.text for m in self.words)

    @property
    def carried(self) -> tuple[str, ...]:
        """The user's messages among them that were carried over with a D-Mail, and come before it; an older D-Mail may be included."""
        if self.kind != "dmail":
            return ()
        last = max(n for n, m in enumerate(self.messages) if dmail_text(m) is not None)
        return tuple(m.text for m in self.messages[:last] if is_user_words(m))

    @property
    def first(self) -> int:
        """The number of the first message that is part of the conversation: a message of the program may come before it."""
        said = (n for n, m in enumerate(self.messages) if internal_kind(m) != "note")
        return next(said, 0)

    @property
    def user_words(self) -> str:
        """The text of the user's messages in the segment."""
        return "\n\n".join(text for text in self.said if text.strip())

    @property
    def label(self) -> str:
        """The label of the segment, in one line of text."""
        match self.kind:
            case "user":
                return label_of_message(next(m for m in self.messages if is_user_words(m)))
            case "dmail":
                dmails = [text for m in self.messages if (text := dmail_text(m)) is not None]
                # Several D-Mails that were sent at once are one message, each below its target.
                return label_of(" ".join(dmails[-1][:_BEGINNING].split())) if dmails else ""
            case "compaction" | "summary":
                texts = [text for m in self.messages if (text := summary_text(m)) is not None]
                return label_of(texts[0]) if texts else ""
            case _:
                return self._step_label()

    def _step_label(self) -> str:
        for message in self.messages:
            if message.role != "assistant":
                continue
            if message.tool_calls:
                # Each call adds at least one character to the label, and there may be thousands.
                calls = (
                    f"{short_name(c.function.name)} {call_target(c)}"
                    for c in message.tool_calls[:MAX_LABEL]
                )
                return label_of(", ".join(map(str.strip, calls)))
            return label_of(message.text)
        return ""


def segments(line: WorldLineContent, first: int = 0, end: int | None = None) -> list[Segment]:
    """Return the segments of a world line from its checkpoint at place `first` on, up to before that at `end`."""
    points, messages = line.checkpoints, line.messages
    found: list[Segment] = []
    for place in range(first, len(points) if end is None else end):
        start = points[place].message_index
        stop = points[place + 1].message_index if place + 1 < len(points) else len(messages)
        inside = tuple(m for m in messages[start:stop] if internal_kind(m) != "marker")
        found.append(Segment(points[place], inside))
    return found


def segment_at(line: WorldLineContent, point: Checkpoint) -> Segment:
    """Return the segment of a checkpoint without the results of its tools, which may be large and do not affect its label."""
    first = point.message_index
    kinds = kinds_behind(line.index, point)
    wanted = [n for n, kind in enumerate(kinds, first) if kind not in _UNTOLD]
    return Segment(point, tuple(line.messages[n] for n in wanted))


def kinds_behind(index: ContextIndex, point: Checkpoint) -> bytes:
    """Return the kinds of the messages after a checkpoint, up to the next one."""
    following = index.checkpoints[place_of(point, index.checkpoints) + 1 :][:1]
    end = following[0].message_index if following else index.n_messages
    return index.kinds(point.message_index, end)


def place_of(point: Checkpoint, checkpoints: Sequence[Checkpoint]) -> int:
    """Return the place of a checkpoint in the list of its world line, found by its offset."""
    return bisect_left(checkpoints, point.offset, key=lambda one: one.offset)


def kind_of(kinds: bytes, checkpoint_id: int) -> CheckpointKind:
    """Return the kind of a checkpoint from the kinds of the messages after it (`Segment.kind` without reading them)."""
    begins = kinds.lstrip(_ASIDES)[:1]
    if MessageKind.DMAIL in kinds and (checkpoint_id or begins != _SUMMARY):
        return "dmail"
    if MessageKind.SUMMARY in kinds:
        return "summary" if checkpoint_id else "compaction"
    return "user" if begins == _SAID else "step"


def checkpoint_created(
    point: Checkpoint,
    kind: CheckpointKind,
    label: str,
    figure: TokenFigure,
    *,
    first: int = 0,
    was: str = "",
    kept: tuple[int, ...] = (),
    said: tuple[str, ...] = (),
    carried: int = 0,
) -> CheckpointCreated:
    """Return the `CheckpointCreated` of a checkpoint; `figure` is that of the context before it, the other arguments are as
    in that event.
    """
    return CheckpointCreated(
        point.id,
        point.uid,
        kind,
        label,
        figure.tokens,
        point.at,
        was,
        first,
        kept,
        said,
        carried,
        figure.measured,
        figure.fitted,
    )


def label_of(text: str) -> str:
    """Return the label of a checkpoint from a text: its first line that is not blank, shortened to `MAX_LABEL` characters."""
    # A text may be megabytes; its beginning is nearly always enough.
    for size in (_BEGINNING, len(text)):
        for line in text[:size].splitlines():
            if short := one_line(line):
                return short if len(short) <= MAX_LABEL else short[: MAX_LABEL - 1] + "…"
        if size >= len(text):
            break
    return ""


def label_of_message(message: Message) -> str:
    """Return the label of a checkpoint that a message of the user began; a message of images alone gives their names."""
    return label_of(titled(message.text, [part.image_url.name or "" for part in message.images]))


def server_called(call: ToolCall) -> str:
    """Return the MCP server whose tool a call runs, itself or through `CallTool`; empty for none."""
    name = call.function.name
    if name == CALL_TOOL:
        given = call_arguments(call.function.arguments).get("tool")
        name = given if isinstance(given, str) else ""
        # The model may write it as cards show it.
        if "/" in name:
            name = f"mcp__{name.replace('/', '__', 1)}"
    return server_of(name)


def call_target(call: ToolCall, card: Card | None = None) -> str:
    """Return the target of a call: its path, command or pattern, or the argument that the tool's card names; empty if it has
    none of these.
    """
    arguments = call_arguments(call.function.arguments)
    for key in (*(card.keys if card is not None else ()), *_TARGET_KEYS):
        if isinstance(arguments.get(key), str):
            return one_line(arguments[key])[:MAX_LABEL]
    return ""

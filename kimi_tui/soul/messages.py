"""What a stored message is: the user's own words or one of the `user` messages that the program wrote, and what it holds.

Internal messages are known by how they begin, and the beginnings are kimi-cli's, so that its sessions are read like
ours. Words of the user that happen to begin so are stored with `by: "person"`, which settles it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from kimi_tui.llm.message import (
    ContentPart,
    ImagePart,
    Message,
    TextPart,
)
from kimi_tui.prompts import CHECKPOINT_MARKER, COMPACTION_START, prompt
from kimi_tui.session.images import hash_of
from kimi_tui.session.schema import (
    Internal,
    dmail_text_in,
    kind_by_start,
    summary_in,
)
from kimi_tui.wire.display import ImageBlock, decode_image, with_names

Author = Literal["agent", "person"]
"""Who wrote a D-Mail; "person" is the word for the user on disk and on the wire."""
ASIDES = frozenset[Internal | None]({"marker", "reminder", "notification", "note"})
"""What the program says for the moment: it asks for no answer by itself, and is nothing to keep."""


def internal_kind(message: Message) -> Internal | None:
    """The kind of a message that the program wrote; None for what the user, the model or a tool said."""
    if message.role != "user" or (message.model_extra or {}).get("by") == "person":
        return None
    start = _first_text(message)
    if not start.startswith("<"):
        return None
    return "marker" if CHECKPOINT_MARKER.fullmatch(start) else kind_by_start(start)


def is_user_words(message: Message) -> bool:
    """Whether this is what the user said: a prompt or a steer."""
    return message.role == "user" and internal_kind(message) is None


def user_words(text: str) -> Message:
    """The user's words as a message that is never taken for an internal one."""
    plain = Message(role="user", content=text)
    if internal_kind(plain) is None:
        return plain
    return Message.model_validate({"role": "user", "content": text, "by": "person"})


def quoted(text: str) -> str:
    """A text that stands in a reminder and must not end it."""
    return text.replace("</system-reminder", "<\\/system-reminder")


def command_report(message: Message) -> tuple[str, str] | None:
    """What the model was told of a command that the user ran: how it ended, and its output. None where it is not that."""
    if internal_kind(message) != "reminder":
        return None
    before, _, after = prompt("user_command", FACTS="\0", OUTPUT="").partition("\0")
    text = message.text
    if not (text.startswith(before) and text.endswith(after.strip())):
        return None
    facts, _, output = text[len(before) :].removesuffix(after.strip()).partition("\n")
    return facts, output.removesuffix("\n").replace("<\\/system-reminder", "</system-reminder")


def answered_words(message: Message) -> Message:
    """A message of the user marked as answered: what answered it has gone into a summary."""
    return Message.model_validate({**message.stored(), "answered": True})


def dmail_text(message: Message) -> str | None:
    """The D-Mail itself, without what the program put around it; None where the message is no D-Mail."""
    if internal_kind(message) != "dmail":
        return None
    return dmail_text_in(message.text)


def summary_text(message: Message) -> str | None:
    """The summary that a compaction left, or None where the message is none."""
    if internal_kind(message) != "compaction":
        return None
    return summary_in(message.text)


def ends_open(messages: Sequence[Message]) -> bool:
    """Whether a conversation ends in the middle of something: no answer follows, or only the beginning of one."""
    for message in reversed(messages):
        if command_report(message) is not None:
            return False
        if internal_kind(message) not in ASIDES:
            extra = message.model_extra or {}
            answered = message.role == "assistant" and not message.tool_calls
            return not (answered or extra.get("answered")) or bool(message.interrupted)
    return False


def ends_with_answer(messages: Sequence[Message]) -> bool:
    """Whether a conversation ends with an answer of the model, so that a request to go on needs a user message first."""
    for message in reversed(messages):
        kind = internal_kind(message)
        if kind == "note":
            return False
        if kind not in ASIDES:
            return message.role == "assistant" and not message.tool_calls
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


def dmail_message(body: str, author: Author, images: Sequence[ImagePart] = ()) -> Message:
    """The stored message of a D-Mail, with images that go with it; its author is an extra key, so that it is known later."""
    message = Message(role="user", content=[TextPart(text=body), *images] if images else body)
    return message if author == "agent" else message.model_copy(update={"author": author})


def author_of(message: Message) -> Author:
    """Who wrote the D-Mail of a stored message."""
    return "person" if (message.model_extra or {}).get("author") == "person" else "agent"


# -- images: as events have them, and as words where no image can stand


def image_block(part: ImagePart) -> ImageBlock:
    """An image in a message, as events have it."""
    where = part.image_url
    return decode_image({**where.model_dump(), "sha256": hash_of(where.url)})


def image_blocks(message: Message, *, pasted: bool = False) -> tuple[ImageBlock, ...]:
    """The images in a message, as events have them: all, or only those that the user put in."""
    parts = message.images
    return tuple(image_block(part) for part in parts if not (pasted and part.attached))


def words_with_images(message: Message) -> str:
    """What a message says, with its images by name."""
    return with_names(message.text, image_blocks(message))

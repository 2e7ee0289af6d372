"""What stands in the context window now, part by part, each with its tokens: for the user to see what takes the room."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass
from itertools import islice

from kimi_tui.llm.message import ImagePart, Message
from kimi_tui.llm.tokens import estimate_fixed, message_tokens, said_tokens, text_tokens
from kimi_tui.soul.conversation import Conversation
from kimi_tui.soul.internal_messages import internal_kind
from kimi_tui.soul.project_notes import brought_by, notes_in

_OF_PROGRAM = {
    "marker": "checkpoint marks",
    "dmail": "D-Mails",
    "compaction": "summaries",
    "reminder": "reminders",
    "notification": "reminders",
    "note": "reminders",
}
ORDER = (
    *("your messages", "answers", "thoughts", "tool results", "attachments"),
    *("D-Mails", "summaries", "reminders", "checkpoint marks"),
)


@dataclass(frozen=True, slots=True)
class WindowPart:
    """One part: what it is, its tokens, of how many things (0: it is no count), and whether it is in the part above."""

    name: str
    tokens: int
    count: int = 0
    is_inside: bool = False


async def window_parts(conversation: Conversation) -> list[WindowPart]:
    """The parts in the order in which they are sent. They are estimates, scaled so that they add up to what is used."""
    used = conversation.meter.used
    parts = await asyncio.to_thread(_parts, conversation)
    guess = sum(part.tokens for part in parts if not part.is_inside)
    scale = used / guess if guess else 0.0
    return [
        WindowPart(part.name, round(part.tokens * scale), part.count, part.is_inside)
        for part in parts
    ]


def _parts(conversation: Conversation) -> list[WindowPart]:
    system, tools = conversation.system, conversation.toolset.specs()
    messages = conversation.sent
    tokens: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    below: dict[str, int] = {}
    # What is appended meanwhile is no part of it.
    for message in islice(messages, len(messages)):
        whole = message_tokens(message)
        name = _kind_of(message)
        if n_images := sum(isinstance(part, ImagePart) for part in message.parts):
            words = [part for part in message.parts if not isinstance(part, ImagePart)]
            said = message_tokens(message.model_copy(update={"content": words}))
            tokens["attachments"] += whole - said
            counts["attachments"] += n_images
            whole = said
        if thought := whole - said_tokens(message) if message.thinking else 0:
            tokens["thoughts"] += thought
            counts["thoughts"] += 1
        tokens[name] += whole - thought
        counts[name] += 1
        if path := brought_by(message):
            below[path] = whole
    parts = [WindowPart("system prompt", text_tokens(system))]
    parts += [
        WindowPart(notes.path, text_tokens(notes.text), is_inside=True)
        for notes in notes_in(system)
    ]
    parts.append(WindowPart("tools", estimate_fixed("", tools), len(tools)))
    for name in ORDER:
        if counts[name]:
            parts.append(WindowPart(name, tokens[name], counts[name]))
        if name == "reminders":
            parts += [WindowPart(path, size, is_inside=True) for path, size in below.items()]
    return parts


def _kind_of(message: Message) -> str:
    if message.role == "tool":
        return "tool results"
    if message.role == "assistant":
        return "answers"
    return _OF_PROGRAM.get(internal_kind(message) or "", "your messages")

"""The live line cut at its checkpoints: what each of them began, read off its messages."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from kimi_tui.foreign_text import one_line
from kimi_tui.llm.message import Message, ToolCall
from kimi_tui.session.records import Checkpoint
from kimi_tui.soul.internal_messages import dmail_text, internal_kind, is_said, summary_text
from kimi_tui.tool_names import short_name
from kimi_tui.wire.events import CheckpointKind

MAX_LABEL = 200
_TARGET_KEYS = ("path", "command", "pattern", "query", "url", "message")


@dataclass(frozen=True, slots=True)
class Segment:
    """A checkpoint and the messages up to the next one, without its marker."""

    point: Checkpoint
    messages: tuple[Message, ...]

    @property
    def kind(self) -> CheckpointKind:
        """What the checkpoint began."""
        for message in self.messages:
            kind = internal_kind(message)
            if kind == "dmail":
                return "dmail"
            if kind == "compaction":
                return "compaction" if self.point.id == 0 else "summary"
        first = next((m for m in self.messages if internal_kind(m) is None), None)
        return "user" if first is not None and is_said(first) else "step"

    @property
    def said(self) -> str:
        """What the person said in it."""
        return "\n\n".join(m.text for m in self.messages if is_said(m) and m.text.strip())

    @property
    def label(self) -> str:
        """What it was, in a line."""
        match self.kind:
            case "user":
                return label_of(next(m.text for m in self.messages if is_said(m)))
            case "dmail":
                letters = [text for m in self.messages if (text := dmail_text(m)) is not None]
                return label_of(letters[0]) if letters else ""
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
                calls = (
                    f"{short_name(c.function.name)} {call_target(c)}" for c in message.tool_calls
                )
                return label_of(", ".join(map(str.strip, calls)))
            return label_of(message.text)
        return ""


def segments(
    checkpoints: Sequence[Checkpoint], messages: Sequence[Message], first: int = 0
) -> list[Segment]:
    """The segments of a line from its checkpoint at place `first` of the list on."""
    found: list[Segment] = []
    for place in range(first, len(checkpoints)):
        start = checkpoints[place].message_index
        end = (
            checkpoints[place + 1].message_index if place + 1 < len(checkpoints) else len(messages)
        )
        inside = tuple(m for m in messages[start:end] if internal_kind(m) != "marker")
        found.append(Segment(checkpoints[place], inside))
    return found


def label_of(text: str) -> str:
    """The first line of a text that is not blank, as a checkpoint is labelled."""
    for line in text.splitlines():
        if short := one_line(line):
            return short if len(short) <= MAX_LABEL else short[: MAX_LABEL - 1] + "…"
    return ""


def call_target(call: ToolCall) -> str:
    """What a call is about: its path, command or pattern; empty where it has none."""
    try:
        value = json.loads(call.function.arguments or "{}")
    except (ValueError, RecursionError):
        return ""
    arguments = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    for key in _TARGET_KEYS:
        if isinstance(arguments.get(key), str):
            return one_line(arguments[key])[:MAX_LABEL]
    return ""

"""Collecting a stream into the message that is stored: reasoning, text and tool calls in order."""

from __future__ import annotations

from typing import Any

from kimi_tui.llm import loose
from kimi_tui.llm.message import (
    ContentPart,
    FunctionCall,
    Message,
    TextPart,
    ThinkPart,
    ToolCall,
)
from kimi_tui.llm.provider import Finished, StreamItem, TextDelta, ThinkDelta, ToolCallDelta, Usage
from kimi_tui.llm.tool_pieces import is_object


class _Open:
    """A part that is still growing."""

    def __init__(self, field: str | None) -> None:
        self.field = field  # None: text, else the field that the reasoning came under
        self.pieces: list[str] = []
        self.details: list[dict[str, Any]] = []


class _Call:
    def __init__(self) -> None:
        self.id = ""
        self.name = ""
        self.pieces: list[str] = []
        self.extras: dict[str, Any] = {}


class Collector:
    """Takes the items of one answer. `provider` and `model` are written on its reasoning."""

    def __init__(self, provider: str = "", model: str = "") -> None:
        self._provider = provider or None
        self._model = model or None
        self._parts: list[_Open] = []
        self._calls: dict[int, _Call] = {}
        self.usage: Usage | None = None
        self.finish: Finished | None = None

    def add(self, item: StreamItem) -> None:
        """Take one more item."""
        match item:
            case TextDelta(text):
                self._part(None).pieces.append(text)
            case ThinkDelta(text, field, details):
                part = self._part(field)
                part.pieces.append(text)
                for entry in details:
                    _merge_detail(part.details, dict(entry))
            case ToolCallDelta(position, call_id, name, arguments, extras):
                call = self._calls.setdefault(position, _Call())
                call.id = call.id or call_id
                call.name = call.name or name
                call.pieces.append(arguments)
                call.extras.update(extras or {})
            case Usage():
                self.usage = item
            case Finished():
                self.finish = item

    def _part(self, field: str | None) -> _Open:
        last = self._parts[-1] if self._parts else None
        if last is None or (last.field is None) != (field is None):
            last = _Open(field)
            self._parts.append(last)
        elif field == "reasoning_details":
            last.field = field  # the details decide, whichever chunk brought them
        return last

    @property
    def has_text(self) -> bool:
        """Whether there is any text that is not blank."""
        return any(part.field is None and "".join(part.pieces).strip() for part in self._parts)

    @property
    def has_calls(self) -> bool:
        """Whether there is any tool call."""
        return bool(self._calls)

    def message(self, interrupted: bool = False) -> Message | None:
        """The message so far, or None if there is nothing to store.

        Args:
            interrupted: the stream was stopped: the message is marked, and calls whose arguments are not whole are
                dropped.
        """
        parts: list[ContentPart] = []
        for part in self._parts:
            words = loose.without_surrogates("".join(part.pieces))
            if part.field is None:
                if words:
                    parts.append(TextPart(text=words))
            elif not interrupted or words:
                parts.append(
                    ThinkPart(
                        think=words,
                        field=part.field,
                        provider=self._provider,
                        model=self._model,
                        details=part.details or None,
                    )
                )
        parts = _empty_thought_first(parts)
        calls: list[ToolCall] = []
        for _, call in sorted(self._calls.items()):
            arguments = loose.without_surrogates("".join(call.pieces))
            if interrupted and not (call.name and is_object(arguments)):
                continue
            function = FunctionCall(name=call.name, arguments=arguments)
            calls.append(ToolCall(id=call.id, function=function, extras=call.extras or None))
        if not parts and not calls:
            return None
        return Message(
            role="assistant",
            content=parts,
            tool_calls=calls or None,
            interrupted=True if interrupted else None,
        )


def _empty_thought_first(parts: list[ContentPart]) -> list[ContentPart]:
    """Empty reasoning is only known at the end of a stream, but belongs at the beginning."""
    empty = [part for part in parts if isinstance(part, ThinkPart) and not part.think]
    empty = [part for part in empty if not part.details]
    return [*empty, *(part for part in parts if part not in empty)] if empty else parts


def _merge_detail(details: list[dict[str, Any]], entry: dict[str, Any]) -> None:
    """Join a piece to the entry it continues: same index and type, its texts grow, the rest is set."""
    last = details[-1] if details else None
    same = (
        last is not None
        and last.get("type") == entry.get("type")
        and last.get("index") == entry.get("index")
        and (entry.get("id") in {None, last.get("id")} or last.get("id") is None)
    )
    if last is None or not same:
        details.append(entry)
        return
    for key, value in entry.items():
        before = last.get(key)
        if (
            key in {"text", "summary", "data"}
            and isinstance(value, str)
            and isinstance(before, str)
        ):
            last[key] = before + value
        elif value is not None or key not in last:
            last[key] = value

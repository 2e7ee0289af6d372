"""The events of the wire as lines of JSON, the format `stream-json`: the names and fields of `wire.events`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, cast

from kimi_tui.wire import events as ev
from kimi_tui.wire.events import EventRecord

Json = dict[str, Any]
_PIECES = (ev.TextPart, ev.ThinkPart, ev.ToolCallPart, ev.ToolOutput)


class EventLines:
    """Makes JSON lines of events.

    Args:
        deltas: whether pieces of texts are lines of their own; otherwise an answer, a reasoning and the arguments of a call
            are one line each, when they are complete, and live output is left out, since the result has it.
    """

    def __init__(self, *, deltas: bool) -> None:
        self._deltas = deltas
        self._held: EventRecord | None = None

    def of(self, record: EventRecord) -> Iterator[str]:
        """Yield the lines that are complete with this event."""
        if self._deltas:
            yield line_of(record)
            return
        event, held = record.event, self._held
        if isinstance(event, ev.ToolOutput | ev.PromptProgress):
            return
        if held is not None and ev.continues(held.event, event) and held.source == record.source:
            whole = ev.with_text(held.event, ev.text_of(held.event) + ev.text_of(event))
            self._held = held._replace(event=whole)
            return
        if isinstance(event, ev.StepRetry) and held is not None:
            # The retry makes the step anew, so the pieces that were held are no part of it.
            held = self._held = None
        yield from self.rest()
        if isinstance(event, ev.TextPart | ev.ThinkPart | ev.ToolCall):
            self._held = record
        elif not isinstance(event, _PIECES):
            yield line_of(record)

    def rest(self) -> Iterator[str]:
        """Yield the line of a text that no further event completes."""
        if self._held is not None:
            yield line_of(self._held)
        self._held = None


def line_of(record: EventRecord) -> str:
    """Return an event as a line of JSON: its type, number, time and agent, and its fields."""
    event = record.event
    found = _fields(event)
    if "at" in found:
        # A checkpoint has a time of its own, which a D-Mail or a compaction does not change.
        found["created_at"] = found.pop("at")
    return json_line(
        {
            "type": type(event).__name__,
            "seq": record.seq,
            "at": round(record.at, 3),
            "source": record.source,
            **found,
        }
    )


def json_line(value: Mapping[str, Any]) -> str:
    """Return an object as a line."""
    return json.dumps(value, ensure_ascii=True, separators=(",", ":")) + "\n"


def _fields(value: Any) -> Json:
    if isinstance(value, ev.StatusUpdate):
        return value._asdict()
    return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return {"type": type(value).__name__, **_fields(value)}
    if isinstance(value, tuple):
        if hasattr(cast("object", value), "_asdict"):
            named = cast("Mapping[str, object]", cast("Any", value)._asdict())
            return {name: _plain(one) for name, one in named.items()}
        return [_plain(one) for one in cast("Sequence[object]", value)]
    return value

"""What a killed program left running: the calls and questions of a record that nobody can end any more."""

from __future__ import annotations

from collections.abc import Iterable

from kimi_tui.soul.tool_message import INTERRUPTED, NOT_BEGUN
from kimi_tui.wire import events as ev
from kimi_tui.wire.display import BriefBlock
from kimi_tui.wire.events import Event, Record


def endings(records: Iterable[Record]) -> list[Record]:
    """What a stop would have told after these records, as of the moment when they break off.

    Args:
        records: a session's events in order; its program must not be running any more.
    """
    calls: dict[str, str] = {}
    begun: set[str] = set()
    asked: dict[str, str] = {}
    last: Record | None = None
    for record in records:
        last = record
        match record.event:
            case ev.ToolCall(key=key, id=call_id):
                calls[key] = call_id
            case ev.ToolStarted(key=key):
                calls.setdefault(key, "")
                begun.add(key)
            case ev.ToolResult(key=key):
                calls.pop(key, None)
            case ev.ApprovalRequest(id=name, key=key):
                asked[name] = key
            case ev.ApprovalResolved(id=name):
                asked.pop(name, None)
            case ev.StepRetry():
                # What was only being written went with the failed attempt.
                calls = {key: call_id for key, call_id in calls.items() if key in begun}
            case ev.TurnBegin() | ev.TurnEnd() | ev.ContextReverted() | ev.LineChanged():
                calls, begun, asked = {}, set(), {}
            case _:
                pass
    if last is None:
        return []
    told: list[Event] = [ev.ApprovalResolved(name, "no", "stopped") for name in asked]
    told += [
        _stopped(key, call_id, begun=key not in asked.values()) for key, call_id in calls.items()
    ]
    return [Record(last.seq + n, last.at, event) for n, event in enumerate(told, 1)]


def _stopped(key: str, call_id: str, *, begun: bool) -> ev.ToolResult:
    return ev.ToolResult(
        key,
        True,
        "",
        INTERRUPTED if begun else NOT_BEGUN,
        (BriefBlock("stopped"),),
        interrupted=True,
        id=call_id,
    )

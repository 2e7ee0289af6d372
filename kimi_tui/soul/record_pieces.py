"""The record cut into what belongs to each checkpoint, so that it can be told in the order of any line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from kimi_tui.wire import events as ev
from kimi_tui.wire.events import Record

_OPERATIONS = (
    ev.ContextReverted
    | ev.LineChanged
    | ev.CompactionBegin
    | ev.CompactionEnd
    | ev.FilesRestored
    | ev.Notice
)


def pieces(records: Sequence[Record]) -> dict[str, list[Record]]:
    """The events of a record by the checkpoint they belong to; operations belong to none."""
    found: dict[str, list[Record]] = {}
    before: list[Record] = []
    current: list[Record] = []
    for record in records:
        match record.event:
            case ev.TurnBegin() | ev.StepBegin() as begin:
                # They are told just before their checkpoint. What waited for one that never came belongs to none.
                if isinstance(begin, ev.TurnBegin) or any(
                    isinstance(waiting.event, ev.StepBegin) for waiting in before
                ):
                    before = []
                before.append(record)
            case ev.CheckpointCreated(uid=uid, was=was) as created:
                current = found.setdefault(uid, [])
                if was:
                    # What it began was told under its old name.
                    current += _renamed(found.get(was, ()), created)
                    continue
                current += [*before, record]
                before = []
            case event if isinstance(event, _OPERATIONS):
                continue
            case _:
                (before if before else current).append(record)
    return found


def _renamed(records: Sequence[Record], created: ev.CheckpointCreated) -> Iterator[Record]:
    """The records of a checkpoint that was renumbered, with its new name everywhere."""
    old, new = f"{created.was}:", f"{created.uid}:"
    for record in records:
        match record.event:
            case ev.CheckpointCreated():
                yield replace(record, event=replace(created, was=""))
            case (
                ev.ToolCall(key=key)
                | ev.ToolCallPart(key=key)
                | ev.ToolStarted(key=key)
                | ev.ToolOutput(key=key)
                | ev.ToolResult(key=key)
            ) as event if key.startswith(old):
                yield replace(record, event=replace(event, key=new + key.removeprefix(old)))
            case _:
                yield record

"""From one state of the main screen's frame to the next, event by event; nothing here knows a widget."""

from __future__ import annotations

from kimi_tui.foreign_text import one_line
from kimi_tui.tui.main.state import MainState, Queued
from kimi_tui.tui.numbers import cut
from kimi_tui.wire.events import (
    ApprovalRequest,
    ApprovalResolved,
    CompactionBegin,
    CompactionEnd,
    ContextReverted,
    LineChanged,
    Record,
    StatusUpdate,
    SteerQueued,
    SteerTaken,
    StepBegin,
    StepRetry,
    TextPart,
    ThinkPart,
    ToolCall,
    TurnBegin,
    TurnEnd,
)

TITLE_CELLS = 60


def title_from(text: str) -> str:
    """A session's title from the first thing said in it."""
    return cut(one_line(text), TITLE_CELLS)


def reduce(state: MainState, record: Record) -> MainState:
    """The state after one event."""
    match record.event:
        case TurnBegin(text=text):
            return state._replace(
                title=state.title or title_from(text),
                running=True,
                turn_at=record.at,
                step=0,
                can_resume=False,
                has_messages=True,
            )
        case TurnEnd(reason=reason):
            return state._replace(
                running=False,
                compacting=False,
                retry_until=0.0,
                approvals=(),
                can_resume=reason in ("error", "interrupted"),
            )
        case StepBegin(n=n):
            return state._replace(step=n, retry_until=0.0)
        case StepRetry(wait_s=wait_s):
            return state._replace(retry_until=record.at + wait_s)
        case TextPart() | ThinkPart() | ToolCall():
            return state._replace(retry_until=0.0) if state.retry_until else state
        case CompactionBegin():
            return state._replace(compacting=True)
        case CompactionEnd():
            return state._replace(compacting=False, retry_until=0.0)
        case ContextReverted(reason="rewind", prompt=prompt):
            return state._replace(can_resume=not prompt)
        case LineChanged(op="undo" | "redo" | "jump" | "clear", is_open=is_open):
            return state._replace(can_resume=is_open)
        case StatusUpdate() as usage:
            return state._replace(usage=usage)
        case ApprovalRequest() as request:
            return state._replace(approvals=(*state.approvals, request))
        case ApprovalResolved(id=request_id):
            left = tuple(asked for asked in state.approvals if asked.id != request_id)
            return state._replace(approvals=left)
        case SteerQueued(id=steer_id, text=text):
            return state._replace(queued=(*state.queued, Queued(steer_id, text)))
        case SteerTaken(id=steer_id):
            return state._replace(queued=tuple(q for q in state.queued if q.id != steer_id))
        case _:
            return state


def settled(state: MainState, *, running: bool) -> MainState:
    """The state once the history has been read: what it left open (a killed program) is over."""
    if running:
        return state._replace(ready=True)
    return state._replace(
        ready=True,
        running=False,
        compacting=False,
        retry_until=0.0,
        can_resume=state.can_resume or state.running,
        queued=(),
        approvals=(),
    )

"""Tells hooks of what has happened in a session: checkpoints, rewinds, D-Mails, compactions, questions, turns that failed.

These hooks decide nothing, so that they hear the events as every other listener does, and run beside the session.
"""

from __future__ import annotations

from kimi_tui.hooks.runner import Hooks
from kimi_tui.wire import events as ev
from kimi_tui.wire.events import Event
from kimi_tui.wire.queue import Subscription


async def follow(subscription: Subscription, hooks: Hooks) -> None:
    """Tell the hooks of the session's own events until the wire ends."""
    async for record in subscription:
        if not record.source:
            tell(record.event, hooks)


def tell(event: Event, hooks: Hooks) -> None:
    """Tell the hooks of one event, if it is one that they have."""
    match event:
        case ev.CheckpointCreated(was="") as made:
            hooks.tell(
                "checkpoint",
                made.kind,
                checkpoint_id=made.id,
                checkpoint_uid=made.uid,
                kind=made.kind,
                label=made.label,
                tokens=made.tokens,
            )
        case ev.ContextReverted(reason="dmail") as back:
            hooks.tell(
                "dmail",
                back.author,
                checkpoint_id=back.checkpoint_id,
                from_checkpoint=back.from_checkpoint,
                author="user" if back.author == "person" else "agent",
                message=back.text,
                world_line=back.world_line,
                messages_dropped=back.messages_dropped,
            )
        case ev.ContextReverted(reason=("rewind" | "clear") as reason) as back:
            hooks.tell(
                "rewind",
                reason,
                reason=reason,
                checkpoint_id=back.checkpoint_id,
                from_checkpoint=back.from_checkpoint,
                world_line=back.world_line,
                messages_dropped=back.messages_dropped,
                tool_calls_dropped=back.tool_calls_dropped,
                prompt=back.prompt,
            )
        case ev.LineChanged(op=("undo" | "redo" | "jump") as op) as changed:
            hooks.tell(
                "rewind",
                op,
                reason=op,
                checkpoint_uid=changed.uid,
                world_line=changed.from_line,
                to_world_line=changed.to_line,
            )
        case ev.FilesRestored() as files:
            hooks.tell(
                "rewind",
                "files",
                reason="files",
                restored=list(files.restored),
                deleted=list(files.deleted),
                conflicts=list(files.conflicts),
            )
        case ev.CompactionEnd(error="") as end:
            facts = {"tokens_before": end.tokens_before, "tokens_after": end.tokens_after}
            hooks.tell("PostCompact", "", summary=end.summary, **facts)
        case ev.ApprovalRequest() as request:
            kind = "permission_prompt" if request.kind in ("tool", "dmail", "plan") else "question"
            message = f"{request.question} {request.detail}".strip()
            hooks.tell(
                "Notification", kind, notification_type=kind, message=message, tool=request.tool
            )
        case ev.TurnEnd(reason="error") as end:
            hooks.tell("StopFailure", end.kind, error=end.error, advice=end.advice)
        case _:
            pass

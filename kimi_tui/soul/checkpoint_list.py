"""Lists the checkpoints of an open session: of its live line, or of one that was left. Reads files.

Asks for no engine, so that looking at a session does nothing but look.
"""

from __future__ import annotations

from kimi_tui.session.session import Session
from kimi_tui.soul.accounting import Accounting
from kimi_tui.soul.checkpoint_rows import (
    CheckpointRow,
    RowSource,
    checkpoint_rows,
    files_by_checkpoint,
)
from kimi_tui.soul.history import history_records
from kimi_tui.soul.record_pieces import pieces
from kimi_tui.tools.toolset import default_toolset
from kimi_tui.wire.events import Record, StatusUpdate


def list_checkpoints(
    session: Session, world_line: int = 0, accounting: Accounting | None = None
) -> list[CheckpointRow]:
    """The checkpoints of a line, oldest first. Call it in a thread.

    Args:
        session: open.
        world_line: 0 is the live line.
        accounting: what estimates are made with; None for what the session itself tells of it.

    Raises:
        UnknownWorldLine: there is no such line.
    """
    context = session.context
    if world_line:
        index = session.world_lines.index(world_line)
        messages = session.world_lines.messages_of(world_line)
    else:
        index, messages = context.index, context.messages
    records = history_records(session)
    estimates = accounting or _accounting_of(session, records)
    source = RowSource(
        told=pieces(records),
        files=files_by_checkpoint(records),
        bookmarks=session.marks.bookmarks,
        estimate=lambda count: estimates.estimate_with(messages[:count]),
    )
    return checkpoint_rows(index, messages, source, world_line=world_line)


def _accounting_of(session: Session, records: list[Record]) -> Accounting:
    """How far estimates were off in this session."""
    context = session.context
    accounting = Accounting(context.system_prompt or "", default_toolset().specs())
    accounting.estimates.follow_line(context.index, context.messages)
    last = next((r.event for r in reversed(records) if isinstance(r.event, StatusUpdate)), None)
    accounting.restore(last, context.token_count)
    return accounting

"""What a listener should hear of a session that was there before: its record, or the same rebuilt from the context."""

from __future__ import annotations

from collections.abc import Sequence

from kimi_tui.session.session import Session
from kimi_tui.soul.rebuild import rebuilt
from kimi_tui.soul.unended import endings
from kimi_tui.wire.codec import Decoder
from kimi_tui.wire.events import (
    CheckpointCreated,
    CompactionEnd,
    ContextReverted,
    LineChanged,
    Record,
    TurnBegin,
)

_LONG_BYTES = 4 << 20
_END_BYTES = 1 << 18
_SWITCHES = frozenset({"jump", "undo", "redo"})


def history_records(session: Session) -> list[Record]:
    """The history of an open session. Reads files: call it in a thread.

    The record is told as it is where it leads to the conversation that the context holds; else (it is missing,
    damaged, older or the line was exchanged since) its pieces are put in the context's order, and what is missing is
    told from the messages.
    """
    return history_from(read_records(session), session)


def history_from(stored: list[Record], session: Session) -> list[Record]:
    """The same, where the record has been read already."""
    return stored if fits(stored, session) else rebuilt(session, stored)


def read_records(session: Session) -> list[Record]:
    """Everything in the record that can be read, numbered upwards."""
    decoder = Decoder()
    records: list[Record] = []
    for line in session.record.read():
        following = records[-1].seq + 1 if records else 1
        record = decoder.decode_record(line, following)
        # What stands there twice (a write that was repeated) bears a number that has been.
        if record is not None and record.seq >= following:
            records.append(record)
    return records


def end_of_record(session: Session) -> list[Record]:
    """How a long record ends, for somebody who waits until all of it is read; nothing where it is short.

    Told are whole turns, and nothing that goes back to what stands further up.
    """
    file = session.record
    if file.size < _LONG_BYTES:
        return []
    decoder = Decoder()
    records: list[Record] = []
    known: set[str] = set()
    for line in file.read(file.tail_start(_END_BYTES)):
        record = decoder.decode_record(line, records[-1].seq + 1 if records else 1)
        if record is None:
            continue
        match record.event:
            case TurnBegin() if not records:
                pass
            case ContextReverted(uid=uid) if uid not in known:
                records.clear()
            case CompactionEnd() | LineChanged():
                records.clear()
            case CheckpointCreated(uid=uid):
                known.add(uid)
            case _:
                pass
        if records or isinstance(record.event, TurnBegin):
            records.append(record)
    return [*records, *endings(records)]


def fits(records: list[Record], session: Session) -> bool:
    """Whether telling these events one after another ends at the live line as it is."""
    return line_told(records) == [point.uid for point in session.context.checkpoints]


def line_told(records: Sequence[Record]) -> list[str] | None:
    """The checkpoints of the line at which these events end; None where they go to what they did not tell of."""
    live: list[str] = []
    lines: dict[int, list[str]] = {}
    replaced: list[str] | None = None
    for record in records:
        match record.event:
            case CheckpointCreated(uid=uid, kind=kind, id=number):
                if kind == "compaction" and number == 0:
                    replaced, live = live, []
                live.append(uid)
            case CompactionEnd(error="", world_line=n) if n and replaced is not None:
                lines[n], replaced = replaced, None
            case ContextReverted(from_checkpoint=newest, checkpoint_id=number) if newest < number:
                pass  # a letter at the end
            case ContextReverted(uid=uid, world_line=n, checkpoint_id=number):
                if n:
                    lines[n] = list(live)
                if uid in live:
                    del live[live.index(uid) :]
                elif number:
                    return None
                else:
                    live.clear()
            case LineChanged(op=op, from_line=left, to_line=n, uid=uid) if op in _SWITCHES and n:
                target = lines.get(n)
                if target is None:
                    return None
                if left:
                    lines[left] = list(live)
                live = target[: target.index(uid)] if uid in target else list(target)
            case _:
                pass
    return live

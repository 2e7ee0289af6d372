"""The rest of a line, written again behind a summary: the same records byte for byte under renumbered checkpoints.

Usages are shifted by what the summary saved, since the figures that the server gave counted what is no longer there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from kimi_tui.llm.message import Message
from kimi_tui.session.context import Context
from kimi_tui.session.jsonl import parse
from kimi_tui.session.records import (
    CHECKPOINT,
    USAGE,
    Addition,
    Checkpoint,
    NewCheckpoint,
    TokenCount,
    Verbatim,
    count_of,
    is_marker,
    message_line,
    new_uid,
)
from kimi_tui.soul.marks import root_of


@dataclass(frozen=True, slots=True)
class Rewritten:
    """What to write. `renamed` are the checkpoints among it: the new uid, and the one that it had."""

    additions: tuple[Addition, ...]
    renamed: tuple[tuple[str, str], ...]


def rewritten(
    context: Context, first: Checkpoint, saved: int, *, instead: tuple[int, Message] | None = None
) -> Rewritten:
    """Everything from a checkpoint of the live line on. Reads the file: call it in a thread.

    Args:
        context: the live line.
        first: the checkpoint.
        saved: how many tokens fewer are now before it.
        instead: the number of a message, and what stands in its place.
    """
    data = context.read(context.size_bytes - first.offset, first.offset)
    points = {point.offset: point for point in context.checkpoints}
    replaced = -1 if instead is None else context.index.place(instead[0])[0]
    additions: list[Addition] = []
    renamed: list[tuple[str, str]] = []
    offset = first.offset
    for line in data.split(b"\n"):
        at, offset = offset, offset + len(line) + 1
        record = parse(line) if line.strip() else None
        if record is None:
            continue
        point = points.get(at)
        if point is not None:
            uid = new_uid()
            additions.append(NewCheckpoint(was=root_of(point), uid=uid, at=point.at))
            renamed.append((uid, point.uid))
        elif at == replaced and instead is not None:
            additions.append(Verbatim(message_line(instead[1])))
        elif isinstance(record, dict) and is_marker(record):
            # It names a number that is another one now; where it has lost its checkpoint it names nothing.
            last = additions[-1] if additions else None
            if isinstance(last, NewCheckpoint):
                additions[-1] = replace(last, marker=True)
        elif isinstance(record, dict) and record.get("role") == USAGE:
            tokens = count_of(record.get("token_count"))
            if tokens is not None:
                additions.append(TokenCount(max(1, tokens - saved)))
        elif not (isinstance(record, dict) and record.get("role") == CHECKPOINT):
            additions.append(Verbatim(line + b"\n"))
    return Rewritten(tuple(additions), tuple(renamed))

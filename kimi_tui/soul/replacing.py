"""Puts a summary in the place of a part of the live line, in one operation, and tells of it.

The whole line, what precedes a checkpoint, what follows one, or the text of a summary that is there already: each is a
new line, and the one before stays as a world line, so that undo brings it back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from kimi_tui.llm.message import Message
from kimi_tui.session.journal import Entry
from kimi_tui.session.records import Addition, Checkpoint, NewCheckpoint, TokenCount, new_uid
from kimi_tui.session.reports import Reverted
from kimi_tui.session.tokens import message_tokens
from kimi_tui.soul.errors import NothingToCompact
from kimi_tui.soul.internal_messages import internal_kind, summary_message, summary_text
from kimi_tui.soul.live_line import LiveLine
from kimi_tui.soul.marks import PersonMarks
from kimi_tui.soul.rewriting import Rewritten, rewritten
from kimi_tui.soul.segments import segments
from kimi_tui.wire.events import CompactionEnd

EDITED = "edit"
"""The journal's word for a compaction that only gave the summary other words."""
_TOLD_AT_ONCE = 100


@dataclass(frozen=True, slots=True)
class Span:
    """The part of the live line from before `start` (None: from its beginning) to before `until` (None: to its end)."""

    start: Checkpoint | None = None
    until: Checkpoint | None = None

    @property
    def is_whole(self) -> bool:
        """Whether it is all of the line."""
        return self.start is None and self.until is None


WHOLE = Span()


@dataclass(frozen=True, slots=True)
class Replacement:
    """What stands in place of a part: the summary's message and what was kept; `pinned` are places among those."""

    summary: str
    messages: Sequence[Message]
    pinned: Sequence[int] = ()


async def replace_part(
    line: LiveLine, marks: PersonMarks, span: Span, by: Replacement, before: int
) -> None:
    """Put a summary in the place of a part of the line.

    Args:
        line: the conversation.
        marks: hears under which name pinned messages stand now.
        span: which part.
        by: what stands there afterwards.
        before: tokens of the line so far, as they were told.

    Raises:
        StorageTrouble: the disk refused; nothing changed.
    """
    context, start, until = line.context, span.start, span.until
    if start is None:
        base = line.accounting.estimate_with(by.messages)
    else:
        sizes = sum(map(message_tokens, by.messages))
        base = line.tokens_before(start.id) + line.accounting.estimated(sizes)
    uid = new_uid()
    then: list[Addition] = [NewCheckpoint(uid=uid), *by.messages, TokenCount(base)]
    rest = Rewritten((), ())
    if until is not None:
        saved = line.tokens_before(until.id) - base
        rest = await asyncio.to_thread(rewritten, context, until, saved)
        then += [*rest.additions, TokenCount(max(base, before - saved))]
    # Written before it holds: a name that nothing bears does no harm, a pin that is lost would.
    await marks.pin_all((uid, place) for place in by.pinned)
    if start is None:
        reverted = await context.clear(reason="compaction", text=by.summary, then=then)
    else:
        reverted = await context.revert_to(
            start.id, reason="compaction", text=by.summary, then=then
        )
    kept = 0 if start is None else start.message_index
    await _follow(line, kept)
    await _tell(line, reverted, by.summary, before, (uid, ""), rest.renamed)


async def replace_summary(line: LiveLine, text: str) -> None:
    """Put another text in the place of the newest summary on the line.

    Raises:
        NothingToCompact: there is no summary.
        StorageTrouble: the disk refused; nothing changed.
    """
    context, before = line.context, line.used
    place = await asyncio.to_thread(_newest_summary, line.messages)
    point = next((p for p in reversed(context.checkpoints) if p.message_index <= place), None)
    if place < 0 or point is None:
        raise NothingToCompact("There is no summary on this line.")
    new = summary_message(text)
    sizes = (message_tokens(message) for message in (line.messages[place], new))
    was, now = (line.accounting.estimated(size) for size in sizes)
    anew = await asyncio.to_thread(rewritten, context, point, was - now, instead=(place, new))
    reverted = await context.revert_to(
        point.id,
        reason="compaction",
        text=text,
        then=anew.additions,
        files=Entry(op="compaction", reason=EDITED),
    )
    await _follow(line, point.message_index)
    await _tell(line, reverted, text, before, anew.renamed[0], anew.renamed[1:])


async def newest_summary(line: LiveLine) -> str:
    """The text of the newest summary on the line; empty where there is none."""
    place = await asyncio.to_thread(_newest_summary, line.messages)
    return "" if place < 0 else summary_text(line.messages[place]) or ""


def _newest_summary(messages: Sequence[Message]) -> int:
    for place in range(len(messages) - 1, -1, -1):
        if internal_kind(messages[place]) == "compaction":
            return place
    return -1


async def _follow(line: LiveLine, kept: int) -> None:
    line.kept(kept)
    await line.follow()
    # The numbers mean other checkpoints now.
    line.denwa.forget_deliveries()


async def _tell(
    line: LiveLine,
    reverted: Reverted,
    summary: str,
    before: int,
    first: tuple[str, str],
    renamed: Sequence[tuple[str, str]],
) -> None:
    """Tell of the new line. `first` is the summary's checkpoint, `renamed` those behind it, each with its old uid."""
    context = line.context
    names = dict([first, *renamed])
    points = context.checkpoints
    place = next(i for i, point in enumerate(points) if point.uid == first[0])
    # Reads everything behind the summary.
    parts = await asyncio.to_thread(segments, points, context.messages, place)
    if parts[0].point.id:
        world_line = line.number_of(reverted)
        line.tell_reverted(reverted, "compaction", world_line=world_line, tokens_before=before)
    for order, part in enumerate(parts):
        if order % _TOLD_AT_ONCE == _TOLD_AT_ONCE - 1:
            await asyncio.sleep(0)
        point, kind, label = part.point, part.kind, part.label
        if order == 0:
            kind, label = "summary" if point.id else "compaction", ""
        tokens = point.tokens or context.tokens_at(point.id)
        line.tell_checkpoint(point, kind, label, tokens, names.get(point.uid, ""))
    line.wire.publish(CompactionEnd(before, line.used, summary, reverted.world_line))
    line.tell_changed("compaction", reverted.world_line, 0, first[0])

"""Where the blocks go when a summary takes the place of a part of the conversation, and what follows it is renumbered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from kimi_tui.tui.chat.blocks import Block, CompactionBlock, DMailBlock


@dataclass(slots=True)
class Summarised:
    """A summary's checkpoint, and what the events tell of those behind it until the end.

    Attributes:
        checkpoint, uid: its own.
        was: the uid of the summary whose text it changes; empty for a new one.
        moved: the checkpoints behind it, new number and uid by the uid that they had.
    """

    checkpoint: int
    uid: str
    was: str
    moved: dict[str, tuple[int, str]] = field(default_factory=dict[str, tuple[int, str]])

    @property
    def is_partial(self) -> bool:
        """Whether anything of the line before stays where it can be returned to."""
        return bool(self.checkpoint or self.was or self.moved)


@dataclass(frozen=True, slots=True)
class Laid:
    """The blocks before the summary's card, those behind it, and those that are in the summary."""

    lead: list[Block]
    kept: list[Block]
    gone: tuple[Block, ...]


def lay(
    before: Sequence[Block], base: int, summary: Summarised, numbers: Mapping[str, int]
) -> Laid:
    """Sort the blocks of the line so far.

    Args:
        before: all of them, without the new card.
        base: the first whose checkpoint can be returned to.
        summary: what is known of the new line.
        numbers: the checkpoints of the line so far, by uid.
    """
    moved = {numbers[was]: (was, now) for was, now in summary.moved.items() if was in numbers}
    if summary.was:
        moved[summary.checkpoint] = (summary.was, (summary.checkpoint, summary.uid))
    cut = _cut(before, base, summary, moved)
    kept: list[Block] = []
    gone: list[Block] = []
    for block in before[cut:]:
        if isinstance(block, CompactionBlock) and summary.was and block.uid == summary.was:
            continue
        if block.checkpoint is None and moved:
            kept.append(block)
        elif block.checkpoint in moved:
            was, (number, uid) = moved[block.checkpoint]
            # A copy: the line that was left keeps the block with its own number.
            copy = replace(
                block,
                checkpoint=number,
                uid=uid if block.uid == was else block.uid,
                version=block.version + 1,
            )
            if isinstance(copy, DMailBlock) and number != block.checkpoint:
                # What it undid stays as far away as it was.
                copy.from_checkpoint += number - (block.checkpoint or 0)
                copy.is_moved = True
            kept.append(copy)
        else:
            gone.append(block)
    return Laid(list(before[:cut]), kept, tuple(gone))


def _cut(
    before: Sequence[Block],
    base: int,
    summary: Summarised,
    moved: Mapping[int, tuple[str, tuple[int, str]]],
) -> int:
    """The place of the card."""
    for index in range(base, len(before)):
        block = before[index]
        if summary.was:
            if isinstance(block, CompactionBlock) and block.uid == summary.was:
                return index
        elif summary.checkpoint:
            if block.checkpoint is not None and block.checkpoint >= summary.checkpoint:
                return index
        elif block.checkpoint is not None and block.checkpoint in moved:
            return index
    return len(before)

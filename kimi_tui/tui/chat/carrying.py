"""What of a conversation stays when a letter folds it away: the person's words, what they pinned, and notices."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from kimi_tui.tui.chat.blocks import Block, DMailBlock, NoticeBlock, ToolBlock, UserBlock

B = TypeVar("B", bound=Block)


@dataclass(frozen=True, slots=True)
class Carried:
    """What stands before the letter now, in how many messages, and what lies folded away in its card."""

    blocks: tuple[Block, ...]
    messages: int
    folded: tuple[Block, ...]


def carry(gone: Sequence[Block], checkpoint: int, pinned: Collection[str]) -> Carried:
    """Sort what was cut away. What stays is copied: the line that was left keeps the blocks with their own numbers.

    Args:
        gone: the blocks, in order.
        checkpoint: the letter's.
        pinned: uids of the checkpoints behind which something is pinned.
    """
    stays: list[Block] = []
    folded: list[Block] = []
    messages = 0
    group: tuple[str, int] | None = None
    place = 0
    for block in gone:
        if isinstance(block, NoticeBlock):
            stays.append(_moved(block, checkpoint, 0))
        elif isinstance(block, UserBlock):
            stays.append(_moved(block, checkpoint, messages))
            messages += 1
        elif _is_pinned(block, pinned):
            if (block.uid, block.number) != group:
                group, place = (block.uid, block.number), messages
                messages += 1
            # A call has its result behind it.
            messages += isinstance(block, ToolBlock)
            kept = _moved(block, checkpoint, place)
            kept.pinned = True
            stays.append(kept)
        else:
            folded.append(block)
    return Carried(tuple(stays), messages, tuple(folded))


def _is_pinned(block: Block, pinned: Collection[str]) -> bool:
    """Whether it was pinned itself: behind a letter's checkpoint stands more than the letter."""
    return block.uid in pinned and (block.pinned or not isinstance(block, DMailBlock))


def _moved(block: B, checkpoint: int, number: int) -> B:
    return replace(block, checkpoint=checkpoint, uid="", number=number, version=block.version + 1)

"""The list of blocks with the few operations that all parts of the reducer share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from kimi_tui.tui.chat.blocks import Block

B = TypeVar("B", bound=Block)


@dataclass(frozen=True, slots=True)
class Change:
    """What an event did: blocks before `first` are as they were (None: nothing is to be drawn).

    `gone` are the blocks that a revert took away, for the motion that shows it; `rebuild` is true where the events do
    not tell what the chat looks like now.
    """

    first: int | None = None
    gone: tuple[Block, ...] = ()
    rebuild: bool = False


NOTHING = Change()


def both(first: Change, second: Change) -> Change:
    """Two changes, one after the other, as one."""
    if first.first is None and not first.rebuild:
        return second
    if second.first is None and not second.rebuild:
        return first
    starts = [start for start in (first.first, second.first) if start is not None]
    return Change(
        min(starts) if starts else None,
        first.gone + second.gone,
        first.rebuild or second.rebuild,
    )


@dataclass(slots=True)
class BlockList:
    """The blocks in order, and where new ones belong.

    Attributes:
        blocks: as they stand; the last `tail` of them (what is queued) stay last.
        base: the first block whose checkpoint is on the live line: what stands before was compacted.
        checkpoint, uid: the newest point of the live line; None between a cut and the next one.
        points: all checkpoints of the live line since the last compaction, as (uid, number).
        attempt: keys of what the running attempt of a model call has streamed: gone if it is tried again.
    """

    blocks: list[Block] = field(default_factory=list[Block])
    tail: int = 0
    base: int = 0
    checkpoint: int | None = None
    uid: str = ""
    points: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])
    attempt: set[int] = field(default_factory=set[int])
    _next_key: int = 0

    @property
    def end(self) -> int:
        """The index behind the last block that is not queued."""
        return len(self.blocks) - self.tail

    @property
    def last(self) -> Block | None:
        """The newest block that is not queued."""
        return self.blocks[self.end - 1] if self.end > 0 else None

    def new(self, kind: Callable[..., B], at: float) -> B:
        """A block of this kind after the newest checkpoint, not yet in the list."""
        return kind(key=self.new_key(), checkpoint=self.checkpoint, uid=self.uid, at=at)

    def new_key(self) -> int:
        """A key that no block has."""
        self._next_key += 1
        return self._next_key

    def append(self, block: Block) -> Change:
        """Put a block after the last one that is not queued."""
        index = self.end
        self.blocks.insert(index, block)
        return Change(index)

    def queue(self, block: Block) -> Change:
        """Put a block last, where it stays until it is removed."""
        self.blocks.append(block)
        self.tail += 1
        return Change(len(self.blocks) - 1)

    def touched(self, block: Block) -> Change:
        """A block has changed."""
        block.touch()
        return self.at(block)

    def at(self, block: Block) -> Change:
        """Where a block stands; nothing if it lies folded away in a letter."""
        # What changes is nearly always close to the end.
        for index in range(len(self.blocks) - 1, -1, -1):
            if self.blocks[index] is block:
                return Change(index)
        return NOTHING

    def remove(self, block: Block) -> Change:
        """Take a block out."""
        change = self.at(block)
        if change.first is not None:
            if change.first >= self.end:
                self.tail -= 1
            del self.blocks[change.first]
        return change

    def begin_point(self, checkpoint: int, uid: str) -> None:
        """A checkpoint was made."""
        self.checkpoint, self.uid = checkpoint, uid
        self.points.append((uid, checkpoint))

    def first_from(self, checkpoint: int) -> int:
        """The first block on the live line that belongs to this checkpoint or a later one."""
        for index in range(self.base, self.end):
            point = self.blocks[index].checkpoint
            if point is not None and point >= checkpoint:
                return index
        return self.end

    def forget_point(self, checkpoint: int | None = None) -> None:
        """The line is another one, cut before a checkpoint (None: whole); its next point is not there yet."""
        while checkpoint is not None and self.points and self.points[-1][1] >= checkpoint:
            self.points.pop()
        self.checkpoint, self.uid = None, ""
        self.attempt.clear()

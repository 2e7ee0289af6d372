"""A search through the blocks of the chat: how many matches each holds, and which of them is the current one.

Counting is a generator that gives way often, so that the search of a huge conversation holds up no key. Knows no widget.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import NamedTuple, TypeVar

from kimi_tui.tui.chat.blocks import Block
from kimi_tui.tui.chat.found import Found
from kimi_tui.tui.chat.lines import Line
from kimi_tui.tui.chat.matching import (
    Match,
    Part,
    Pattern,
    matches,
    may_hold,
    parts_in_row,
    pattern_of,
    unfolded_rows,
)
from kimi_tui.tui.chat.rows import Room

T = TypeVar("T")
PIECE = 64
"""Blocks that are passed over, known already, before others get their turn."""


class Origin(NamedTuple):
    """Where the person was: the block at the top of the pane, and which of its rows."""

    block: int = 0
    row: int = 0


class Place(NamedTuple):
    """A match: the block that holds it by its key, and which of that block's matches it is."""

    key: int
    number: int


def drained(work: Generator[None, None, T]) -> T:
    """What a generator returns, without a pause."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            return end.value


class Finder:
    """Counts and finds.

    Attributes:
        current: the match that was gone to.
        match: where that one stands in its block.
    """

    def __init__(self, query: str) -> None:
        self.query = query
        self._pattern = pattern_of(query)
        self._counts: dict[int, tuple[int, int]] = {}
        """By the key of a block: its version when it was counted, and how many it holds."""
        self._room: Room | None = None
        self._complete = False
        self.current: Place | None = None
        self.match: Match = ()

    def refined(self, query: str) -> Finder:
        """A search for another query; where it only goes on, blocks without a match need not be looked at again."""
        made = Finder(query)
        if self._pattern is not None and query.lower().startswith(self.query.lower()):
            made._room = self._room
            made._counts = {key: known for key, known in self._counts.items() if not known[1]}
        return made

    @property
    def pattern(self) -> Pattern | None:
        """What matches; None for an empty query."""
        return self._pattern

    def scan(
        self, blocks: Sequence[Block], room: Room, origin: Origin
    ) -> Generator[Place | None, None, None]:
        """Count the matches of all blocks, those below the origin first, then upward.

        Yields:
            The match nearest to the origin as soon as it is known, once, and None whenever others may have a turn.
        """
        self._complete = False
        if room != self._room:
            self._room = room
            self._counts.clear()
        pattern = self._pattern
        if pattern is None:
            return
        blocks = tuple(blocks)
        first = min(origin.block, max(0, len(blocks) - 1))
        is_told = False
        for turn, index in enumerate([*range(first, len(blocks)), *range(first, -1, -1)]):
            is_below = turn < len(blocks) - first
            block = blocks[index]
            known = self._counts.get(block.key)
            found: list[Match] | None = None
            if known is None or known[0] != block.version:
                version = block.version
                found = yield from self._matches(block, room)
                known = self._counts[block.key] = (version, len(found))
                yield None
            elif not turn % PIECE:
                yield None
            if is_told or not known[1]:
                continue
            number = 0 if is_below else known[1] - 1
            if is_below and index == first and origin.row:
                found = found if found is not None else (yield from self._matches(block, room))
                number = next((i for i, one in enumerate(found) if one[0].row >= origin.row), -1)
            if number >= 0:
                is_told = True
                yield Place(block.key, number)
        self._complete = True

    def _matches(self, block: Block, room: Room) -> Generator[None, None, list[Match]]:
        if self._pattern is None or not may_hold(block, self.query):
            return []
        return matches((yield from unfolded_rows(block, room)), self._pattern)

    def next(self, blocks: Sequence[Block], step: int) -> Place | None:
        """The match after (1) or before (-1) the current one, round the ends; None where there is none."""
        held = [block.key for block in blocks if self._count(block.key)]
        if not held:
            return None
        current = self.current
        if current is None or current.key not in held:
            return Place(held[0], 0) if step > 0 else Place(held[-1], self._count(held[-1]) - 1)
        number = current.number + step
        if 0 <= number < self._count(current.key):
            return Place(current.key, number)
        key = held[(held.index(current.key) + step) % len(held)]
        return Place(key, 0 if step > 0 else self._count(key) - 1)

    def told(self, blocks: Sequence[Block]) -> Found:
        """How far the search is, for the person."""
        if self._pattern is None:
            return Found()
        total = at = 0
        for block in blocks:
            if self.current is not None and block.key == self.current.key:
                at = total + self.current.number + 1
            total += self._count(block.key)
        return Found(self.query, min(at, total), total, self._complete)

    def _count(self, key: int) -> int:
        return self._counts.get(key, (0, 0))[1]

    def parts(self, key: int, lines: Sequence[Line], row: int) -> list[tuple[Part, bool]]:
        """What of a row of a block is to be marked, and whether it is the current match."""
        if self._pattern is None:
            return []
        marked = [(part, False) for part in parts_in_row(lines, row, self._pattern)]
        if self.current is not None and self.current.key == key:
            marked += [(part, True) for part in self.match if part.row == row]
        return marked

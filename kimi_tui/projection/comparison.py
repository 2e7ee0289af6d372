"""The comparison of two world lines: the blocks of their messages, aligned where both lines have the same.

Blocks that occur exactly once on both sides anchor the alignment of the others (a patience diff), in O(n log n) time.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import NamedTuple

from kimi_tui.projection.blocks import (
    AgentBlock,
    Block,
    CompactionBlock,
    DMailBlock,
    ToolBlock,
    UserBlock,
    images_of,
)
from kimi_tui.projection.transcript import TranscriptModel
from kimi_tui.wire.events import EventRecord

SHOWN = (UserBlock, AgentBlock, ToolBlock, DMailBlock, CompactionBlock)
"""The blocks that are compared: messages, and calls with their results."""


class Run(NamedTuple):
    """Consecutive messages, `left[a:b]` and `right[c:d]`: `same` where they are equal, else without a counterpart."""

    same: bool
    a: int
    b: int
    c: int
    d: int


def runs(left: Sequence[Hashable], right: Sequence[Hashable]) -> list[Run]:
    """Align two sequences; returns runs that cover both from beginning to end."""
    made: list[Run] = []
    i = j = 0
    for a, c in _pairs(left, right):
        if (a, c) != (i, j):
            made.append(Run(False, i, a, j, c))
        last = made[-1] if made else None
        if last is not None and last.same and (a, c) == (last.b, last.d):
            made[-1] = last._replace(b=a + 1, d=c + 1)
        else:
            made.append(Run(True, a, a + 1, c, c + 1))
        i, j = a + 1, c + 1
    if i < len(left) or j < len(right):
        made.append(Run(False, i, len(left), j, len(right)))
    return made


def _pairs(left: Sequence[Hashable], right: Sequence[Hashable]) -> list[tuple[int, int]]:
    """Index pairs of equal items, ascending on both sides."""
    in_left, in_right = Counter(left), Counter(right)
    place = {key: at for at, key in enumerate(right) if in_right[key] == 1}
    unique = [(at, place[key]) for at, key in enumerate(left) if in_left[key] == 1 and key in place]
    found: list[tuple[int, int]] = []
    i = j = 0
    for a, c in [*_rising(unique), (len(left), len(right))]:
        # Lines between two anchors are paired from the first anchor on, and then back from the second.
        while i < a and j < c and left[i] == right[j]:
            found.append((i, j))
            i, j = i + 1, j + 1
        before: list[tuple[int, int]] = []
        x, y = a - 1, c - 1
        while x >= i and y >= j and left[x] == right[y]:
            before.append((x, y))
            x, y = x - 1, y - 1
        found += reversed(before)
        if a < len(left) and c < len(right):
            found.append((a, c))
        i, j = a + 1, c + 1
    return found


def _rising(pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The longest subsequence of pairs whose second numbers ascend; their first ones do already."""
    ends: list[int] = []
    holders: list[int] = []
    before: list[int] = []
    for index, (_, c) in enumerate(pairs):
        length = bisect_left(ends, c)
        before.append(holders[length - 1] if length else -1)
        ends[length : length + 1] = [c]
        holders[length : length + 1] = [index]
    chosen: list[tuple[int, int]] = []
    at = holders[-1] if holders else -1
    while at >= 0:
        chosen.append(pairs[at])
        at = before[at]
    return chosen[::-1]


Side = str
"""A column of a comparison: `other` is the line that was left, `live` the live one; futures have their keys."""
Stretch = Mapping[Side, tuple[int, int]]
"""Blocks that stand at the same height: the first of each side, and the one after the last."""


class ComparisonEntry(NamedTuple):
    """A block of one side. `same` is true where it is aligned with an equal one of the other side."""

    block: Block
    same: bool


class Comparison:
    """The aligned blocks of two world lines.

    Args:
        other: the blocks of the line that was left.
        live: those of the live line.

    Attributes:
        runs: the alignment, from the beginning.
        names: the sides, from the left.
        sides: the blocks that are shown, by side.
    """

    names: Sequence[Side] = ("other", "live")

    def __init__(self, other: Sequence[Block], live: Sequence[Block]) -> None:
        self.runs = runs([_content(one) for one in other], [_content(one) for one in live])
        same = [run for run in self.runs if run.same]
        same_left = {i for run in same for i in range(run.a, run.b)}
        same_right = {i for run in same for i in range(run.c, run.d)}
        self.sides: dict[Side, list[ComparisonEntry]] = {
            "other": [ComparisonEntry(one, i in same_left) for i, one in enumerate(other)],
            "live": [ComparisonEntry(one, i in same_right) for i, one in enumerate(live)],
        }

    @property
    def stretches(self) -> Sequence[Stretch]:
        """The alignment: what stands at the same height."""
        return [{"other": (run.a, run.b), "live": (run.c, run.d)} for run in self.runs]

    @classmethod
    def of(
        cls, other: Iterable[EventRecord], live: Iterable[EventRecord], work_dir: str = ""
    ) -> Comparison:
        """Compare two world lines by their events; paths below `work_dir` are shown relative to it."""
        return cls(_compared(other, work_dir), _compared(live, work_dir))

    def next_difference(self, side: Side, current: int) -> int | None:
        """The index of the next block of a side without a counterpart, wrapping around; None where there is none."""
        entries = self.sides[side]
        order = [*range(current + 1, len(entries)), *range(current + 1)]
        return next((i for i in order if not entries[i].same), None)


class SideBySide(Comparison):
    """The blocks of several lines beside one another, from where they part; nothing of them is aligned.

    Args:
        blocks: the blocks of each side, from the left.
    """

    def __init__(self, blocks: Mapping[Side, Sequence[Block]]) -> None:
        super().__init__((), ())
        self.names = tuple(blocks)
        self.sides = {
            side: [ComparisonEntry(one, same=False) for one in shown if isinstance(one, SHOWN)]
            for side, shown in blocks.items()
        }

    @property
    def stretches(self) -> Sequence[Stretch]:
        """All blocks, which begin at the same height."""
        return [{side: (0, len(entries)) for side, entries in self.sides.items()}]


def _compared(records: Iterable[EventRecord], work_dir: str) -> list[Block]:
    model = TranscriptModel(work_dir)
    for record in records:
        model.apply(record)
    return [block for block in model.blocks if isinstance(block, SHOWN)]


def content_of(block: Block) -> str:
    """The text of the message that a block shows: of a call that of its result."""
    match block:
        case UserBlock() | DMailBlock():
            return block.text
        case AgentBlock():
            return block.stream.text.strip()
        case ToolBlock():
            return block.output or block.message
        case CompactionBlock():
            return block.summary
        case _:
            return ""


def number_of(block: Block, blocks: Sequence[Block]) -> int | None:
    """The number of the message that a block shows, behind its checkpoint, counted as pins count.

    Args:
        block: what is shown; of a call the message is its result, or where it has none the one that called.
        blocks: all of its line.

    Returns:
        The number; None where it shows no message that can be sent.
    """
    if not isinstance(block, SHOWN) or not block.uid:
        return None
    if not isinstance(block, ToolBlock) or (block.state == "stopped" and not block.result):
        return block.number
    if block.is_own:
        return None
    place = (block.uid, block.number)
    calls = [b for b in blocks if isinstance(b, ToolBlock) and (b.uid, b.number) == place]
    # The results stand behind the message that called, in the order of the calls.
    return block.number + 1 + next(at for at, one in enumerate(calls) if one is block)


def newest_words(blocks: Sequence[Block]) -> Block | None:
    """The newest words of the agent, else the newest message: what is sent where nothing is chosen."""
    said = [one for one in blocks if isinstance(one, SHOWN)]
    words = [one for one in said if isinstance(one, AgentBlock)]
    return (words or said or [None])[-1]


def _content(block: Block) -> Hashable:
    images = tuple(image.sha256 for image in images_of(block))
    call = (block.tool, block.target) if isinstance(block, ToolBlock) else ()
    return type(block), call, content_of(block), images

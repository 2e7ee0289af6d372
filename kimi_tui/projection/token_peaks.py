"""`TokenPeaks`: the largest token figures among the checkpoints of one line, kept for groups of neighbours.

The curve of a timeline and its scale need the largest figure of many ranges after each step. With the groups that takes time
in proportion to the columns of the curve, and not to the checkpoints of the session.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kimi_tui.projection.timeline_tree import CheckpointNode

GROUP = 32
"""Checkpoints of a group: about as many as there are groups in a session of a thousand steps."""
NEWEST = 2
"""The checkpoints at the end whose figures change without notice; they are in no group."""
_SETTLED_AT_ONCE = 32


class _Peak(NamedTuple):
    """The facts about a group: the most tokens before a checkpoint, and before or after one, and the places of those that saved tokens."""

    tokens: int
    most: int
    savings: tuple[int, ...]


def _peak_of(points: Sequence[CheckpointNode], start: int, end: int) -> _Peak:
    part = points[start:end]
    tokens = max((one.tokens for one in part), default=0)
    most = max((one.tokens_end for one in part), default=0)
    places = tuple(place for place, one in enumerate(part, start) if one.saved is not None)
    return _Peak(tokens, max(tokens, most), places)


class TokenPeaks:
    """The peaks of one line, which every call is given anew. `cut` must be called before the figures of an older checkpoint are read
    again after they have changed, or after checkpoints were exchanged.

    Attributes:
        n_cuts: how often something was forgotten.
    """

    def __init__(self) -> None:
        self._groups: list[_Peak] = []
        self.n_cuts = 0

    def cut(self, kept: int = 0) -> None:
        """Forget what is known of the checkpoints from a place on; of all by default."""
        self.n_cuts += 1
        del self._groups[kept // GROUP :]

    def n_missing(self, points: Sequence[CheckpointNode]) -> int:
        """Return how many checkpoints the next question about all of them has to look at."""
        return len(points) - min(len(points), len(self._groups) * GROUP)

    def settle(self, points: Sequence[CheckpointNode]) -> Generator[None]:
        """Look at all checkpoints that were not looked at yet, as a generator that yields between small steps."""
        while True:
            for _ in range(_SETTLED_AT_ONCE):
                if not self._next(points):
                    return
            yield

    def most(self, points: Sequence[CheckpointNode]) -> int:
        """Return the most tokens before or after any checkpoint; 0 if there is none."""
        end = self._known(points)
        rest = _peak_of(points, end, len(points)).most
        return max(max((group.most for group in self._groups), default=0), rest)

    def largest(self, points: Sequence[CheckpointNode], start: int, end: int) -> int:
        """Return the most tokens before a checkpoint of a range that is not empty."""
        known = self._known(points) // GROUP
        first, last = -(-start // GROUP), min(end // GROUP, known)
        if first >= last:
            return _peak_of(points, start, end).tokens
        inside = max(group.tokens for group in self._groups[first:last])
        before = _peak_of(points, start, first * GROUP).tokens
        return max(inside, before, _peak_of(points, last * GROUP, end).tokens)

    def savings(self, points: Sequence[CheckpointNode]) -> list[int]:
        """Return the places of the checkpoints that saved tokens: D-Mails and summaries."""
        end = self._known(points)
        found = [place for group in self._groups for place in group.savings]
        return [*found, *_peak_of(points, end, len(points)).savings]

    def _known(self, points: Sequence[CheckpointNode]) -> int:
        """Look at all checkpoints that were not looked at yet, but the newest; return how many are in groups."""
        del self._groups[max(0, len(points) - NEWEST) // GROUP :]
        while self._next(points):
            pass
        return len(self._groups) * GROUP

    def _next(self, points: Sequence[CheckpointNode]) -> bool:
        """Make the next group; return whether there were checkpoints for one."""
        start = len(self._groups) * GROUP
        if start + GROUP > len(points) - NEWEST:
            return False
        self._groups.append(_peak_of(points, start, start + GROUP))
        return True


class PeaksFrom(NamedTuple):
    """The peaks of a line from one checkpoint on, taken from those of the whole line, which does not change."""

    whole: TokenPeaks
    points: Sequence[CheckpointNode]
    first: int

    def largest(self, points: Sequence[CheckpointNode], start: int, end: int) -> int:
        """Return what `TokenPeaks.largest` does."""
        return self.whole.largest(self.points, self.first + start, self.first + end)

    def savings(self, points: Sequence[CheckpointNode]) -> list[int]:
        """Return what `TokenPeaks.savings` does."""
        found = self.whole.savings(self.points)
        return [place - self.first for place in found if place >= self.first]


@dataclass(frozen=True, slots=True, eq=False)
class Future:
    """The checkpoints that a replay has not reached yet.

    Attributes:
        checkpoints: the checkpoints, oldest first.
        awaited: the uid of the next D-Mail or compaction among them; empty for none.
        peaks: the peaks of their figures, if they are known.
    """

    checkpoints: tuple[CheckpointNode, ...]
    awaited: str = ""
    peaks: PeaksFrom | None = None

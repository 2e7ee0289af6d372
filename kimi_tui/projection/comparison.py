"""The comparison of two world lines from their fork on: their messages, and which of them both have.

Messages that occur exactly once on both sides anchor the alignment of the others (a patience diff), in O(n log n) time.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from kimi_tui.wire.display import DisplayBlock, ImageBlock

MessageKind = Literal["user", "agent", "tool", "dmail", "summary", "reminder"]


@dataclass(frozen=True, slots=True)
class WorldLineMessage:
    """A message of a world line, whole. `uid` and `number` name it for `KimiSoul.carry` and `KimiSoul.pin`.

    Attributes:
        checkpoint_id: Behind which checkpoint it stands.
        number: Its place behind that checkpoint, from 0.
        kind: How to draw it; of a `tool` the text is the result, `name` and `target` are those of the call.
        calls: The tools that an agent's message calls, each as name and target.
        pinned: Whether neither a compaction nor a D-Mail may drop it.
        display: What a tool's card draws beside its result, where the record has it (in a comparison); of other messages
            their images.
        sent_from: Of a D-Mail the checkpoint that it was sent from, and `saved` the tokens it took away; -1 and 0 where
            that is not known.
    """

    checkpoint_id: int
    uid: str
    number: int
    kind: MessageKind
    text: str
    name: str = ""
    target: str = ""
    failed: bool = False
    calls: tuple[tuple[str, str], ...] = ()
    pinned: bool = False
    display: tuple[DisplayBlock, ...] = ()
    sent_from: int = -1
    saved: int = 0


class Run(NamedTuple):
    """A run of neighbouring messages, `left[a:b]` and `right[c:d]`: either the same on both sides, or without a counterpart."""

    same: bool
    a: int
    b: int
    c: int
    d: int


def runs(left: Sequence[Hashable], right: Sequence[Hashable]) -> list[Run]:
    """Both sides from their beginning to their end as runs."""
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
    """Places of what is the same, rising on both sides."""
    in_left, in_right = Counter(left), Counter(right)
    place = {key: at for at, key in enumerate(right) if in_right[key] == 1}
    unique = [(at, place[key]) for at, key in enumerate(left) if in_left[key] == 1 and key in place]
    found: list[tuple[int, int]] = []
    i = j = 0
    for a, c in [*_rising(unique), (len(left), len(right))]:
        # Between two anchors: what follows the one, then what precedes the other.
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
    """The longest choice of pairs whose second numbers rise (their first ones do)."""
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


Side = Literal["other", "live"]
"""The line that was left, and the live one."""


class ComparisonEntry(NamedTuple):
    """A message of one side. `same` is true where the other side has it too, at that place."""

    message: WorldLineMessage
    same: bool


class Comparison:
    """The messages of two lines.

    Args:
        other: the messages of the line that was left.
        live: those of the live line.

    Attributes:
        runs: what both have and what only one of them has, from the beginning.
        sides: the messages that are shown.
        unfolded: which of them are shown whole.
    """

    def __init__(self, other: Sequence[WorldLineMessage], live: Sequence[WorldLineMessage]) -> None:
        left, right = _shown(other), _shown(live)
        self.runs = runs([_key(one) for one in left], [_key(one) for one in right])
        same = [run for run in self.runs if run.same]
        same_left = {i for run in same for i in range(run.a, run.b)}
        same_right = {i for run in same for i in range(run.c, run.d)}
        self.sides: dict[Side, list[ComparisonEntry]] = {
            "other": [ComparisonEntry(one, i in same_left) for i, one in enumerate(left)],
            "live": [ComparisonEntry(one, i in same_right) for i, one in enumerate(right)],
        }
        self.unfolded: set[tuple[Side, int]] = set()

    def next_difference(self, side: Side, current: int) -> int | None:
        """The next message of a side that the other one has not; from the beginning again behind the last."""
        entries = self.sides[side]
        order = [*range(current + 1, len(entries)), *range(current + 1)]
        return next((i for i in order if not entries[i].same), None)


def _shown(messages: Sequence[WorldLineMessage]) -> list[WorldLineMessage]:
    """Without reminders, and without what the agent did not say (its calls stand with their results)."""
    return [
        one
        for one in messages
        if one.kind != "reminder" and (one.text.strip() or one.kind != "agent")
    ]


def _key(message: WorldLineMessage) -> Hashable:
    images = tuple(shown.sha256 for shown in message.display if isinstance(shown, ImageBlock))
    return message.kind, message.name, message.target, message.text, images

"""Bookmarks (names of checkpoints and world lines) and pins (messages that no compaction and no D-Mail drops).

A mark is stored under the uid that its checkpoint had first, so that it holds on every world line that has the
checkpoint, also where a compaction has renumbered it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence

from kimi_tui.llm.message import Message
from kimi_tui.session.schema import Checkpoint
from kimi_tui.session.session import Session
from kimi_tui.soul.messages import ASIDES, internal_kind
from kimi_tui.wire.events import MarksChanged
from kimi_tui.wire.queue import Wire

Pin = tuple[str, int]
"""A checkpoint's uid, and the number (from 0) of the message after it, markers not counted."""


class UserMarks:
    """The bookmarks and pins of one session; each change is published as `MarksChanged`.

    Args:
        session: stores them.
        wire: where changes are published.
    """

    def __init__(self, session: Session, wire: Wire) -> None:
        self._session = session
        self._wire = wire
        self._lock = asyncio.Lock()
        self._told = self.all

    @property
    def all(self) -> MarksChanged:
        """All names and pins, as they are published."""
        return MarksChanged(tuple(sorted(self.bookmarks.items())), tuple(sorted(self.pins)))

    def publish(self) -> None:
        """Publish the marks if they have changed since, also by an operation that renamed checkpoints."""
        if (now := self.all) != self._told:
            self._told = now
            self._wire.publish(now)

    @property
    def bookmarks(self) -> Mapping[str, str]:
        """The names of bookmarks by the present uids of their checkpoints (and by the first uids of renumbered ones)."""
        names = dict(self._session.marks.bookmarks)
        # A session may have ten thousands of checkpoints, most of them without a name.
        for point in self._session.context.checkpoints if names else ():
            if point.was and point.was in names:
                names.setdefault(point.uid, names[point.was])
        return names

    @property
    def pins(self) -> frozenset[Pin]:
        """The pinned messages, by the present uids of checkpoints, and by the first uids of renumbered checkpoints."""
        pins = self._session.marks.pins
        if not pins:
            return pins
        roots = {p.was: p.uid for p in self._session.context.checkpoints if p.was}
        return pins | {(roots[uid], number) for uid, number in pins if uid in roots}

    async def bookmark(self, uid: str, name: str) -> None:
        """Give a checkpoint (of any world line) a name, or with an empty one take it away. At any time.

        Raises:
            StorageTrouble: it could not be written.
        """
        root = self._root(uid)
        async with self._lock:
            await asyncio.to_thread(self._session.bookmark, root, " ".join(name.split()))
        self.publish()

    async def pin(self, uid: str, number: int = 0, pinned: bool = True) -> None:
        """Pin a message, so that no compaction or D-Mail drops it, or remove the pin. It may be called at any time.

        `number` counts the messages after the checkpoint from 0, without markers: in a turn 0 is the user's message; in a
        step 0 is the agent's message and 1 its first tool result. A call and its results are pinned together.

        Raises:
            StorageTrouble: it could not be written.
        """
        root = self._root(uid)
        async with self._lock:
            await asyncio.to_thread(self._session.change_pins, {(root, number)}, pinned)
        self.publish()

    async def pin_all(self, pins: Iterable[Pin]) -> None:
        """Pin messages whose checkpoint, named in each pin, is about to be made.

        Raises:
            StorageTrouble: it could not be written.
        """
        async with self._lock:
            await asyncio.to_thread(self._session.change_pins, tuple(pins))
        self.publish()

    def pinned_places(self, first: int = 0) -> frozenset[int]:
        """Return the places of pinned messages of the live world line, from `first` on. Reads messages if there are pins."""
        context, wanted = self._session.context, dict[str, set[int]]()
        for uid, number in self._session.marks.pins:
            wanted.setdefault(uid, set()).add(number)
        found: set[int] = set()
        if not wanted:
            return frozenset(found)
        points = context.checkpoints
        for order, point in enumerate(points):
            numbers = wanted.get(point.uid, set()) | wanted.get(point.was or "", set())
            if not numbers:
                continue
            last = order + 1 == len(points)
            end = len(context.messages) if last else points[order + 1].message_index
            places = [
                place
                for place in range(point.message_index, end)
                if not context.index.is_marker(place)
            ]
            found |= {places[number] for number in numbers if number < len(places)}
        return frozenset(place for place in found if place >= first)

    def _root(self, uid: str) -> str:
        point = self._session.context.find_uid(uid)
        return root_of(point) if point is not None else uid


def root_of(point: Checkpoint) -> str:
    """Return the uid that a checkpoint had first, before any compaction renumbered it."""
    return point.was or point.uid


def whole_groups(messages: Sequence[Message], places: Collection[int]) -> list[int]:
    """Return the places of messages together with those of the same tool calls: an answer with all results of its calls.

    Messages of the program in `ASIDES` are left out.
    """
    found: set[int] = set()
    for place in places:
        start = place
        while start > 0 and messages[start].role == "tool":
            start -= 1
        found.add(start)
        if messages[start].tool_calls:
            end = start + 1
            while end < len(messages) and messages[end].role == "tool":
                found.add(end)
                end += 1
    return sorted(place for place in found if internal_kind(messages[place]) not in ASIDES)

"""The moment of a session that is shown, and how to get from one to another quickly, back as well as forward.

The same reducers as in a live session build it. Going back starts from the nearest picture of their state that was kept
on the way, so that it costs little however long the session is.
"""

from __future__ import annotations

import asyncio
import io
import pickle
import time
from bisect import bisect_right
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from kimi_tui.tui.chat.model import ChatModel
from kimi_tui.tui.gauge.model import GaugeModel
from kimi_tui.tui.replay.ahead import Ahead
from kimi_tui.tui.replay.course import Course
from kimi_tui.tui.replay.files import FilesModel
from kimi_tui.tui.timeline.model import TimelineModel
from kimi_tui.wire.events import Record

KEPT_EVERY = 500
"""Records between two kept states: as many are applied anew in the worst case."""
SLICE = 100
"""Records that are applied in one go, in about a millisecond."""
SLICE_S = 0.002
PIECE = 200
"""Blocks or checkpoints that are read in one go from a kept state, in about a millisecond."""
_LONG_CHARS = 200
Made = TypeVar("Made")


async def sliced(work: Generator[None, None, Made]) -> Made:
    """What a generator makes, with room for keys and frames where it stops on the way, if it worked for long enough."""
    since = time.perf_counter()
    while True:
        try:
            next(work)
        except StopIteration as end:
            await asyncio.sleep(0)
            return end.value
        if time.perf_counter() - since > SLICE_S:
            await asyncio.sleep(0)
            since = time.perf_counter()


@dataclass(slots=True)
class Moment:
    """What chat, timeline, gauge and file list show, when `position` records have happened."""

    chat: ChatModel = field(default_factory=ChatModel)
    timeline: TimelineModel = field(default_factory=TimelineModel)
    gauge: GaugeModel = field(default_factory=GaugeModel)
    files: FilesModel = field(default_factory=FilesModel)
    position: int = 0

    def apply(self, records: Sequence[Record]) -> None:
        """Let these happen."""
        for record in records:
            self.chat.apply(record)
            self.timeline.apply(record)
            self.gauge.apply(record)
            self.files.apply(record)
        self.position += len(records)

    def pieces(self) -> Iterator[object]:
        """All of it, the many small things first: what holds them is then no more than references to them."""
        tree, rows = self.timeline.tree, self.timeline.rows
        every: list[Sequence[object]] = [self.chat.blocks, tree.live]
        every += [line.points for line in tree.lines.values()]
        every.append([rows[index] for index in range(len(rows))])
        for things in every:
            for start in range(0, len(things), PIECE):
                yield things[start : start + PIECE]
        yield self.chat
        yield self.timeline
        yield self.gauge, self.files


class _Kept(NamedTuple):
    """A moment as bytes, in pieces one after the other, so that reading them can be interrupted."""

    position: int
    state: bytes
    n_pieces: int


class Replay:
    """A recorded session with kept states. Making one reads all of it: do so in a thread.

    Args:
        records: what was recorded.
        work_dir: paths below it are shown relative to it.
        kept_every: records between two kept states.

    Attributes:
        course: the order of events.
        ahead: what is still to come at any of its positions.
        used_at_end: how full the window is at the end, in tokens.
    """

    def __init__(
        self, records: Sequence[Record], work_dir: str = "", kept_every: int = KEPT_EVERY
    ) -> None:
        self.course = Course(records)
        self.ahead = Ahead(records)
        self._texts: list[str] = []
        self._kept: list[_Kept] = []
        moment = Moment(chat=ChatModel(work_dir=work_dir))
        numbers: dict[int, int] = {}
        self._keep(moment, numbers)
        for start in range(0, self.course.end, kept_every):
            moment.apply(self.course.records[start : start + kept_every])
            self._keep(moment, numbers)
        self.used_at_end = moment.gauge.usage.used

    def at(self, position: int) -> Moment:
        """A new moment at this position; nothing of any other moment is in it."""
        slices = self._slices(position)
        while True:
            try:
                next(slices)
            except StopIteration as end:
                return end.value

    async def reach(self, position: int) -> Moment:
        """The same, without keeping keys and frames waiting for all of it."""
        return await sliced(self._slices(position))

    def _slices(self, position: int) -> Generator[None, None, Moment]:
        """Makes a moment, and stops after every piece of the work."""
        position = max(0, min(self.course.end, position))
        index = bisect_right(self._kept, position, key=lambda kept: kept.position) - 1
        kept = self._kept[index]
        # One reader for all pieces: what was read before is referred to by those that follow.
        reader = _Reader(io.BytesIO(kept.state), self._texts)
        read: list[Any] = []
        for _ in range(kept.n_pieces):
            read.append(reader.load())
            yield
        chat, timeline, (gauge, files) = read[-3:]
        moment = Moment(chat, timeline, gauge, files, kept.position)
        while moment.position < position:
            end = min(position, moment.position + SLICE)
            moment.apply(self.course.records[moment.position : end])
            yield
        return moment

    def _keep(self, moment: Moment, numbers: dict[int, int]) -> None:
        buffer = io.BytesIO()
        writer = _Writer(buffer, self._texts, numbers)
        n_pieces = 0
        for piece in moment.pieces():
            writer.dump(piece)
            n_pieces += 1
        self._kept.append(_Kept(moment.position, buffer.getvalue(), n_pieces))


class _Writer(pickle.Pickler):
    """Writes a state, but for long texts: those are told once, whatever the number of states that hold them."""

    def __init__(self, buffer: io.BytesIO, texts: list[str], numbers: dict[int, int]) -> None:
        super().__init__(buffer, pickle.HIGHEST_PROTOCOL)
        self._texts = texts
        self._numbers = numbers

    def persistent_id(self, obj: object) -> int | None:
        """The number of a long text."""
        if type(obj) is not str or len(obj) < _LONG_CHARS:
            return None
        number = self._numbers.get(id(obj))
        if number is None:
            # Held in the list from now on, so no other text can get its identity.
            number = self._numbers[id(obj)] = len(self._texts)
            self._texts.append(obj)
        return number


class _Reader(pickle.Unpickler):
    """Reads what `_Writer` wrote in this process; nothing from outside ever comes here."""

    def __init__(self, buffer: io.BytesIO, texts: list[str]) -> None:
        super().__init__(buffer)
        self._texts = texts

    def persistent_load(self, pid: int) -> str:
        """The text of a number."""
        return self._texts[pid]

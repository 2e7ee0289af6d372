"""The moment of a session that is shown, and how to get from one to another quickly, back as well as forward.

The same reducers as in a live session build it. Going back starts from the nearest picture of their state that was kept
on the way, so that it costs little however long the session is.
"""

from __future__ import annotations

import io
import pickle
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

from kimi_tui.tui.chat.model import ChatModel
from kimi_tui.tui.gauge.model import GaugeModel
from kimi_tui.tui.replay.course import Course
from kimi_tui.tui.replay.files import FilesModel
from kimi_tui.tui.timeline.model import TimelineModel
from kimi_tui.wire.events import Record

KEPT_EVERY = 500
"""Records between two kept states: as many are applied anew in the worst case, in about 15 ms."""
_LONG_CHARS = 200


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


class Replay:
    """A recorded session with kept states. Making one reads all of it: do so in a thread.

    Args:
        records: what was recorded.
        work_dir: paths below it are shown relative to it.
        kept_every: records between two kept states.

    Attributes:
        course: the order of events.
        used_at_end: how full the window is at the end, in tokens; `n_steps` how many checkpoints the line has then.
    """

    def __init__(
        self, records: Sequence[Record], work_dir: str = "", kept_every: int = KEPT_EVERY
    ) -> None:
        self.course = Course(records)
        self._texts: list[str] = []
        self._kept: list[tuple[int, bytes]] = []
        moment = Moment(chat=ChatModel(work_dir=work_dir))
        numbers: dict[int, int] = {}
        self._keep(moment, numbers)
        for start in range(0, self.course.end, kept_every):
            moment.apply(self.course.records[start : start + kept_every])
            self._keep(moment, numbers)
        self.used_at_end = moment.gauge.usage.used
        self.n_steps = moment.timeline.n_steps

    def at(self, position: int) -> Moment:
        """A new moment at this position; nothing of any other moment is in it."""
        position = max(0, min(self.course.end, position))
        index = bisect_right(self._kept, position, key=lambda kept: kept[0]) - 1
        kept_at, state = self._kept[index]
        moment = _Reader(io.BytesIO(state), self._texts).load()
        assert isinstance(moment, Moment)
        moment.apply(self.course.records[kept_at:position])
        return moment

    def _keep(self, moment: Moment, numbers: dict[int, int]) -> None:
        buffer = io.BytesIO()
        _Writer(buffer, self._texts, numbers).dump(moment)
        self._kept.append((moment.position, buffer.getvalue()))


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

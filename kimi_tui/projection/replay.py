"""The state of a replayed session at any moment, reached quickly, back as well as forward.

A position is a number of records: those before it have happened. The reducers of a live session make the state of a
moment. Going back starts from the nearest keyframe, a pickled state that was kept on the way, so it costs little however
long the session is. Beside the state stand the files that the agent had changed by a moment (`ChangedFiles`) and the
checkpoints that were not made yet (`UpcomingCheckpoints`). When a position is reached is in `playback`.
"""

from __future__ import annotations

import io
import pickle
from bisect import bisect_right
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kimi_tui.foreign_text import shown_name
from kimi_tui.projection.gauge import GaugeModel
from kimi_tui.projection.playback import Marker, Recording
from kimi_tui.projection.timeline import TimelineModel
from kimi_tui.projection.timeline_tree import Checkpoint, Future
from kimi_tui.projection.transcript import TranscriptModel
from kimi_tui.projection.world_lines import CheckpointName, WorldLines
from kimi_tui.wire.events import (
    SUMMARIES,
    CheckpointCreated,
    CompactionEnd,
    ContextReverted,
    EventRecord,
    FilesChanged,
    FilesRestored,
    LineChanged,
    StatusUpdate,
)

KEYFRAME_EVERY = 500
"""Records between two keyframes: as many are applied anew in the worst case."""
SLICE = 100
"""Records that are applied in one go, in about a millisecond."""
PIECE = 200
"""Blocks or checkpoints that are read in one go from a keyframe, in about a millisecond."""
MOST_FAULTS = 10
"""Errors that are kept; each holds what was being worked on when it was raised."""
_LONG_CHARS = 200
_CUT_KINDS = {"dmail": ("dmail",), "compaction": SUMMARIES}
"""The kinds of checkpoint that a cut makes."""
Report = Callable[[Exception], None]
"""Takes an error that ends nothing."""


class ChangedFile(NamedTuple):
    """A file that the agent had changed by a moment.

    Attributes:
        path: of the file, in one line.
        id: the checkpoint at which it got its form; -1 where that is not known.
        is_left: that checkpoint is on a line that was left.
        is_compacted: it was compacted since.
    """

    path: str
    id: int
    is_left: bool = False
    is_compacted: bool = False


class ChangedFiles:
    """The working files that the agent changed, the newest change first.

    A file that was brought back has the form of an earlier step again; where that is none of the agent's, it is not listed.
    """

    def __init__(self) -> None:
        self._ids: dict[str, int] = {}
        self._lines = WorldLines[CheckpointName]()
        self._history: dict[str, list[str]] = {}
        """The steps that changed a file, whatever became of them."""
        self._changed: dict[str, str] = {}
        self._brought_back: tuple[str, ...] = ()

    def apply(self, record: EventRecord) -> bool:
        """Take in one event; tells whether the list may be another one."""
        match record.event:
            case CheckpointCreated(id=number, uid=uid) as event:
                self._ids[uid] = number
                self._lines.add(event, CheckpointName(uid, number))
                return False
            case FilesChanged(uid=uid, paths=paths):
                for path in paths:
                    self._history.setdefault(path, []).append(uid)
                    self._note(path, uid)
            case FilesRestored(uid=uid, restored=restored, deleted=deleted):
                files, line = (*restored, *deleted), self._line()
                stop = line.index(uid) if uid in line else len(line)
                self._bring_back(files, line[:stop])
                self._brought_back = files if uid else ()
            case LineChanged(op=op, to_line=to_line) as event:
                self._lines.apply(event, record.at)
                # In older records the event of the files that came with it was before this one.
                if to_line or op == "undo":
                    self._bring_back(self._brought_back, self._line())
                self._brought_back = ()
            case ContextReverted() | CompactionEnd():
                self._lines.apply(record.event, record.at)
            case _:
                return False
        return True

    @property
    def files(self) -> tuple[ChangedFile, ...]:
        """The files to list, the newest change first."""
        live = {one.uid for one in self._lines.live.points}
        before = {one.uid for one in self._lines.before_now()}
        return tuple(
            ChangedFile(
                shown_name(path),
                self._ids.get(uid, -1),
                uid not in live and uid not in before,
                uid in before and uid not in live,
            )
            for path, uid in reversed(self._changed.items())
        )

    def _line(self) -> list[str]:
        """The checkpoints of the live line, with those that were compacted, oldest first."""
        return [one.uid for one in (*self._lines.before_now(), *self._lines.live.points)]

    def _bring_back(self, paths: Iterable[str], line: Sequence[str]) -> None:
        """Note that these files are as this line left them."""
        on_line = set(line)
        for path in paths:
            self._changed.pop(path, None)
            uid = next((u for u in reversed(self._history.get(path, ())) if u in on_line), None)
            if uid is not None:
                self._note(path, uid)

    def _note(self, path: str, uid: str) -> None:
        self._changed.pop(path, None)
        self._changed[path] = uid


class UpcomingCheckpoints:
    """The checkpoints of a whole session in the order in which they were made, whatever became of them.

    Args:
        records: the events of the session.
    """

    def __init__(self, records: Sequence[EventRecord]) -> None:
        self._checkpoints: list[Checkpoint] = []
        self._positions: list[int] = []
        self._eras: list[tuple[int, int]] = [(0, 0)]
        """Where a compaction lets the numbers begin anew, and how many steps there will be until the next one."""
        used = 0
        for index, record in enumerate(records):
            match record.event:
                case CheckpointCreated() as event:
                    self._add(index + 1, event, event.tokens or used, record.at)
                case StatusUpdate(used=tokens):
                    used = tokens
                case CompactionEnd(error="", tokens_after=tokens) if self._checkpoints:
                    used = tokens
                    if self._checkpoints[-1].is_summary:
                        self._checkpoints[-1].tokens = tokens
                case _:
                    pass
        if self._checkpoints:
            self._checkpoints[-1].tokens_end = used
        self._newest: tuple[int, str, Future] | None = None

    def _add(self, position: int, event: CheckpointCreated, tokens: int, at: float) -> None:
        if event.kind == "compaction" and event.id == 0:
            self._eras.append((position, 0))
        first = 1 if len(self._eras) > 1 else 0
        self._eras[-1] = (self._eras[-1][0], event.id + 1 - first)
        key = len(self._checkpoints)
        point = Checkpoint(key, event.id, event.uid, event.kind, key, at, tokens=tokens)
        # The curve marks only where the context is cut.
        point.saved = 0 if event.kind in ("dmail", "compaction", "summary") else None
        self._checkpoints.append(point)
        self._positions.append(position)

    def n_steps(self, position: int) -> int:
        """How many steps there are at the end of the line, or at its next compaction; a summary is none."""
        return self._eras[bisect_right(self._eras, position, key=lambda era: era[0]) - 1][1]

    def after(self, position: int, cut: Marker | None) -> Future:
        """Those that come after a position, where `cut` is the next one; the same object while nothing changes."""
        first = bisect_right(self._positions, position)
        awaited = ""
        if cut is not None and cut.kind in _CUT_KINDS:
            kinds = _CUT_KINDS[cut.kind]
            awaited = next((p.uid for p in self._checkpoints[first:] if p.kind in kinds), "")
        newest = self._newest
        if newest is None or newest[:2] != (first, awaited):
            newest = self._newest = (
                first,
                awaited,
                Future(tuple(self._checkpoints[first:]), awaited),
            )
        return newest[2]


@dataclass(slots=True)
class ReplayState:
    """What chat, timeline, gauge and file list show, when `position` records have happened."""

    chat: TranscriptModel = field(default_factory=TranscriptModel)
    timeline: TimelineModel = field(default_factory=TimelineModel)
    gauge: GaugeModel = field(default_factory=GaugeModel)
    files: ChangedFiles = field(default_factory=ChangedFiles)
    position: int = 0

    def apply(self, records: Sequence[EventRecord], report: Report) -> None:
        """Let these happen; what one of the four cannot take is reported, and the others take it."""
        for take in (self.chat.apply, self.timeline.apply, self.gauge.apply, self.files.apply):
            for record in records:
                try:
                    take(record)
                except Exception as error:
                    report(error)
        self.position += len(records)

    def pieces(self) -> Iterator[object]:
        """All of it, the many small things first: what holds them is then no more than references to them."""
        tree, rows = self.timeline.tree, self.timeline.rows
        every: list[Sequence[object]] = [self.chat.blocks, tree.live]
        every += [line.checkpoints for line in tree.lines.values()]
        every.append([rows[index] for index in range(len(rows))])
        for things in every:
            for start in range(0, len(things), PIECE):
                yield things[start : start + PIECE]
        yield self.chat
        yield self.timeline
        yield self.gauge, self.files


class _Keyframe(NamedTuple):
    """A moment as bytes, in pieces one after the other, so that reading them can be interrupted."""

    position: int
    state: bytes
    n_pieces: int


class Replay:
    """A recorded session with keyframes. Making one reads all of it: do so in a thread.

    Args:
        records: what was recorded.
        work_dir: paths below it are shown relative to it.
        keyframe_every: records between two keyframes.

    Attributes:
        recording: the events.
        upcoming: the checkpoints that are still to come at any of its positions.
        used_at_end: how full the window is at the end, in tokens.
        faults: the first errors of events that cannot be shown.
    """

    def __init__(
        self,
        records: Sequence[EventRecord],
        work_dir: str = "",
        keyframe_every: int = KEYFRAME_EVERY,
    ) -> None:
        self.recording = Recording(records)
        self.upcoming = UpcomingCheckpoints(records)
        self.faults: list[Exception] = []
        self._texts: list[str] = []
        self._keyframes: list[_Keyframe] = []
        moment = ReplayState(chat=TranscriptModel(work_dir=work_dir))
        numbers: dict[int, int] = {}
        self._keep_keyframe(moment, numbers)
        for start in range(0, self.recording.end, keyframe_every):
            moment.apply(self.recording.records[start : start + keyframe_every], self._note)
            self._keep_keyframe(moment, numbers)
        self.used_at_end = moment.gauge.status.used

    def _note(self, error: Exception) -> None:
        if len(self.faults) < MOST_FAULTS:
            self.faults.append(error)

    def slices(self, position: int) -> Generator[None, None, ReplayState]:
        """A new moment at this position; nothing of any other moment is in it.

        Stops after every piece of the work, so that keys and frames need not wait for all of it.
        """
        position = max(0, min(self.recording.end, position))
        index = bisect_right(self._keyframes, position, key=lambda one: one.position) - 1
        keyframe = self._keyframes[index]
        # One reader for all pieces: what was read before is referred to by those that follow.
        reader = _Reader(io.BytesIO(keyframe.state), self._texts)
        read: list[Any] = []
        for _ in range(keyframe.n_pieces):
            read.append(reader.load())
            yield
        chat, timeline, (gauge, files) = read[-3:]
        moment = ReplayState(chat, timeline, gauge, files, keyframe.position)
        while moment.position < position:
            end = min(position, moment.position + SLICE)
            moment.apply(self.recording.records[moment.position : end], self._note)
            yield
        return moment

    def _keep_keyframe(self, moment: ReplayState, numbers: dict[int, int]) -> None:
        buffer = io.BytesIO()
        writer = _Writer(buffer, self._texts, numbers)
        n_pieces = 0
        for piece in moment.pieces():
            writer.dump(piece)
            n_pieces += 1
        self._keyframes.append(_Keyframe(moment.position, buffer.getvalue(), n_pieces))


class _Writer(pickle.Pickler):
    """Writes a state, but for long texts: those are kept once, whatever the number of states that hold them."""

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

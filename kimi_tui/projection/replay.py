"""The replay of a recorded session: its playing time (`Recording`, `PlaybackClock`), and its state at any moment (`Replay`).

A position is a number of records: those before it have happened. A record holds a streamed text in one piece, with the
time of its first word; its last word came before the next event.

The reducers of a live session make the state of a moment. Going back starts from the nearest keyframe, a stored pickled
state, so its time does not depend on the length of the session. Besides the state there are the files that the agent had
changed by a moment (`ChangedFiles`) and the checkpoints that were not made yet (`UpcomingCheckpoints`).
"""

from __future__ import annotations

import io
import pickle
from bisect import bisect_left, bisect_right
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from kimi_tui.foreign_text import shown_name
from kimi_tui.projection.session_model import Report, SessionModel
from kimi_tui.projection.timeline_tree import CheckpointNode
from kimi_tui.projection.token_peaks import Future, PeaksFrom, TokenPeaks
from kimi_tui.projection.world_lines import WorldLines
from kimi_tui.wire.events import (
    SUMMARIES,
    SWITCHES,
    CheckpointCreated,
    CompactionBegin,
    CompactionEnd,
    ContextReverted,
    Event,
    EventRecord,
    FilesChanged,
    FilesRestored,
    LineChanged,
    StatusUpdate,
    StepBegin,
    TextPart,
    ThinkPart,
    ToolResult,
    TurnBegin,
)

MarkerKind = Literal["turn", "dmail", "compaction", "rewind"]

LONGEST_PAUSE_S = 2.0
"""The longest pause in playing time; longer ones are shortened to it."""
STREAMED_CHARS = 24
"""The least characters of a text that is played as a stream; shorter ones appear at once."""
SLOWEST_CHARS_S = 20.0
"""The slowest stream in characters a second; time beyond that counts as a pause."""
SPEEDS = (1, 2, 4, 8, 16)
CUT_S = {"dmail": 1.0, "rewind": 0.4, "compaction": 0.4}
"""Seconds for which the clock waits at a cut of the context, a little longer than its animation."""
_UNTIMED_CHARS_S = 250.0
_UNTIMED_STEP_S = 0.5
_BY_USER = frozenset({"rewind", "clear"})


@dataclass(frozen=True, slots=True)
class Marker:
    """A turn, or a place where the context is cut: by a D-Mail, a compaction, or a rewind, jump, undo, redo or clear.

    Attributes:
        kind: the kind; the last five are all `rewind`.
        position: the position after it.
        time_s: the playing time of that position, in seconds.
        from_id: the checkpoint that was left, -1 if it is unknown.
        name: the name that is displayed.
    """

    kind: MarkerKind
    position: int
    time_s: float
    from_id: int = -1
    name: str = ""


class Recording:
    """The events of a session, with their playing times. Immutable.

    Args:
        records: the events.

    Attributes:
        records: the events.
        markers: turns and cuts, in order.
        stops: the positions at which a step, a turn or an operation is complete; the first is 0, the last the end.
        turns: the stops directly after the message that begins a turn.
    """

    def __init__(self, records: Sequence[EventRecord]) -> None:
        self.records = tuple(records)
        self._begun: list[float] = []
        self._reached: list[float] = []
        """The playing times in seconds at which each event starts and stops streaming."""
        self._measure_times()
        self.markers = self._markers()
        self.stops = tuple(sorted({0, *_stops(self.records), len(self.records)}))
        self.turns = tuple(
            sorted({self.stop_after(m.position) for m in self.markers if m.kind == "turn"})
        )
        self._cuts = tuple(marker for marker in self.markers if marker.kind != "turn")
        self._cut_positions = tuple(marker.position for marker in self._cuts)
        self._created = {
            record.event.uid: index + 1
            for index, record in enumerate(self.records)
            if isinstance(record.event, CheckpointCreated)
        }

    def _measure_times(self) -> None:
        now = 0.0
        for index, record in enumerate(self.records):
            following = self.records[index + 1] if index + 1 < len(self.records) else None
            streaming_s, pause_s = _durations(record, following)
            self._begun.append(now)
            now += streaming_s
            self._reached.append(now)
            now += pause_s

    def _markers(self) -> tuple[Marker, ...]:
        markers: list[Marker] = []
        for index, record in enumerate(self.records):
            kind = _marker_kind(record.event)
            if kind is None:
                continue
            event = record.event
            from_id = event.from_checkpoint if isinstance(event, ContextReverted) else -1
            at = self._reached[index]
            markers.append(Marker(kind, index + 1, at, from_id, _name_of(event, kind)))
        return tuple(markers)

    @property
    def end(self) -> int:
        """The last position."""
        return len(self.records)

    @property
    def opening(self) -> int:
        """The position at which a replay begins: after the first message."""
        return self.turns[0] if self.turns else self.step(0, 1)

    # --- times

    @property
    def length_s(self) -> float:
        """The playing time of the whole session at speed 1, in seconds."""
        return self._reached[-1] if self.records else 0.0

    def time_of(self, position: int) -> float:
        """The playing time of a position, in seconds."""
        return self._reached[position - 1] if position > 0 else 0.0

    def position_at(self, time_s: float) -> int:
        """The position at a playing time in seconds."""
        return bisect_right(self._reached, time_s)

    def streamed_by(self, position: int, time_s: float) -> int:
        """Return the number of characters of the event at a position that are streamed at a playing time; 0 if none or all are."""
        if position >= len(self.records):
            return 0
        begun, reached = self._begun[position], self._reached[position]
        if not begun < time_s < reached:
            return 0
        text = streamed_text(self.records[position].event)
        return int(len(text) * (time_s - begun) / (reached - begun))

    def clock_at(self, position: int) -> float:
        """The recorded time at a playing time, in seconds since 1970; 0 for an empty recording."""
        return self.records[max(0, position - 1)].at if self.records else 0.0

    # --- stops

    def step(self, position: int, steps: int) -> int:
        """Return the stop that is this number of stops before (negative) or after a position."""
        return _beside(self.stops, position, steps)

    def turn(self, position: int, steps: int) -> int:
        """Return the turn that is this number of turns before (negative) or after a position; beyond the last turn the
        beginning or the end.
        """
        return _beside(sorted({0, *self.turns, self.end}), position, steps)

    def stop_after(self, position: int) -> int:
        """The first stop at or after a position."""
        at = bisect_left(self.stops, position)
        return self.stops[at] if at < len(self.stops) else self.end

    def is_stop(self, position: int) -> bool:
        """Whether a position is a stop: everything that began before it is complete."""
        return self.stop_after(position) == position

    def stop_of(self, uid: str) -> int | None:
        """Return the stop at which the step of a checkpoint is complete; None for a checkpoint that is not recorded."""
        created = self._created.get(uid)
        return None if created is None else self.stop_after(created)

    # --- cuts

    def next_cut(self, position: int) -> Marker | None:
        """Return the first cut after a position; None if there is none."""
        at = bisect_right(self._cut_positions, position)
        return self._cuts[at] if at < len(self._cuts) else None

    def cut_between(self, start: int, end: int) -> Marker | None:
        """Return the first cut after `start` and not after `end`; None if there is none."""
        cut = self.next_cut(start)
        return cut if cut is not None and cut.position <= end else None


def streamed_text(event: Event) -> str:
    """Return the text of an event that is streamed; empty for any other event."""
    return event.text if isinstance(event, TextPart | ThinkPart) else ""


def _durations(record: EventRecord, following: EventRecord | None) -> tuple[float, float]:
    """Return the seconds for which the text of an event streams, and those of the pause after it."""
    if following is None:
        return 0.0, 0.0
    text = streamed_text(record.event)
    n_chars = len(text) if len(text) >= STREAMED_CHARS else 0
    if record.at <= 0 or following.at <= 0:
        # The conversation of another program, or one without a record, has no times, so it gets a fixed pace.
        takes_time = isinstance(following.event, CheckpointCreated | ToolResult)
        return n_chars / _UNTIMED_CHARS_S, _UNTIMED_STEP_S if takes_time else 0.0
    # A clock that was set back must not give a negative time.
    whole_s = max(0.0, following.at - record.at)
    streaming_s = min(whole_s, n_chars / SLOWEST_CHARS_S)
    return streaming_s, min(LONGEST_PAUSE_S, whole_s - streaming_s)


def _beside(stops: Sequence[int], position: int, steps: int) -> int:
    # Both neighbours of a position between two stops are one step away.
    at = bisect_left(stops, position) if steps < 0 else bisect_right(stops, position) - 1
    return stops[max(0, min(len(stops) - 1, at + steps))]


def _name_of(event: Event, kind: MarkerKind) -> str:
    match event:
        case LineChanged(op=op) | ContextReverted(reason=op) if kind == "rewind":
            return op
        case _:
            return "D-Mail" if kind == "dmail" else kind


def _marker_kind(event: Event) -> MarkerKind | None:
    match event:
        case TurnBegin(resumed=False):
            return "turn"
        case ContextReverted(reason="dmail"):
            return "dmail"
        case ContextReverted(reason=reason) if reason in _BY_USER:
            return "rewind"
        case LineChanged(op=op) if op in SWITCHES:
            return "rewind"
        case CompactionEnd(error=""):
            return "compaction"
        case _:
            return None


def _stops(records: Sequence[EventRecord]) -> list[int]:
    """Return the stops: before each event that begins something; an event that belongs to the one before it begins nothing."""
    stops: list[int] = []
    is_open, compacting = False, False
    for index, record in enumerate(records):
        match record.event:
            case CompactionEnd():
                compacting = is_open = False
            case _ if compacting:
                pass
            case CheckpointCreated(kind=kind):
                if not is_open:
                    stops.append(index)
                # The summary of a compaction whose beginning was not recorded is followed by the end of the compaction.
                is_open = compacting = kind in SUMMARIES
            case CompactionBegin():
                stops.append(index)
                compacting = True
            case LineChanged(op=op):
                if op in SWITCHES:
                    stops.append(index)
                if op in SWITCHES or op in _BY_USER:
                    is_open = False
            case TurnBegin() | StepBegin() | ContextReverted():
                if not is_open:
                    stops.append(index)
                is_open = True
            case _:
                pass
    return stops


class PlaybackClock:
    """The clock of a replay: its position in a recording, its speed, and whether it runs.

    Args:
        recording: the recording that is played.
        waits: whether the clock pauses for `CUT_S` at a cut of the context.

    Attributes:
        position: the number of records that have happened.
        time_s: the playing time in seconds, which may be between two events.
        is_playing: whether the clock runs.
        waits: as above.
    """

    def __init__(self, recording: Recording, *, waits: bool = True) -> None:
        self._recording = recording
        self._speed = 0
        self._hold_s = 0.0
        self.position = 0
        self.time_s = 0.0
        self.is_playing = False
        self.waits = waits

    @property
    def speed(self) -> int:
        """The factor by which the playback is faster than the recorded session."""
        return SPEEDS[self._speed]

    def change_speed(self, steps: int) -> None:
        """Select the next one of `SPEEDS` (1) or the one before (-1)."""
        self._speed = max(0, min(len(SPEEDS) - 1, self._speed + steps))

    def toggle(self) -> None:
        """Play or pause; at the end, play again from the beginning."""
        if not self.is_playing and self.position == self._recording.end:
            self.go_to(0)
        self.is_playing = not self.is_playing and self._recording.end > 0

    def go_to(self, position: int) -> None:
        """Set the position."""
        self.position = max(0, min(self._recording.end, position))
        self.time_s = self._recording.time_of(self.position)
        self._hold_s = 0.0

    def advance(self, elapsed_s: float) -> int:
        """Advance by seconds of real time; return the new position. The clock stops at the end, and waits at a cut."""
        if not self.is_playing:
            return self.position
        if self._hold_s > 0:
            self._hold_s -= elapsed_s
            return self.position
        recording = self._recording
        self.time_s = min(recording.length_s, self.time_s + elapsed_s * self.speed)
        reached = max(self.position, recording.position_at(self.time_s))
        cut = recording.cut_between(self.position, reached)
        if cut is not None and self.waits:
            reached, self.time_s = cut.position, cut.time_s
            self._hold_s = CUT_S.get(cut.kind, 0.0)
        self.position = reached
        if reached == recording.end:
            self.is_playing = False
        return reached

    def seconds_to(self, time_s: float) -> float:
        """Return the seconds of real time until a playing time, at the present speed."""
        return max(0.0, time_s - self.time_s) / self.speed


KEYFRAME_EVERY = 500
"""Records between two keyframes: the largest number of records that are applied to reach a position."""
SLICE = 100
"""Records that are applied in one slice, in about a millisecond."""
PIECE = 200
"""Blocks or checkpoints that are read from a keyframe in one slice, in about a millisecond."""
MOST_FAULTS = 10
"""The largest number of errors that are kept, as each keeps its traceback's objects alive."""
_LONG_CHARS = 200
_CUT_KINDS = {"dmail": ("dmail",), "compaction": SUMMARIES}
"""The kinds of the checkpoint that a cut makes, by the kind of the cut."""


class ChangedFile(NamedTuple):
    """A file that the agent had changed by a moment.

    Attributes:
        path: the path of the file, in one line.
        id: the checkpoint whose step wrote the present content; -1 if it is unknown.
        is_left: whether that checkpoint is on a line that was left.
        is_compacted: whether that checkpoint was compacted since.
    """

    path: str
    id: int
    is_left: bool = False
    is_compacted: bool = False


class ChangedFiles:
    """The working files that the agent changed, the newest change first.

    A restored file has the content of an earlier step again; if that is not a step of the agent, the file is not listed.
    """

    def __init__(self, lines: WorldLines[CheckpointNode]) -> None:
        self._ids: dict[str, int] = {}
        self._lines = lines
        self._history: dict[str, list[str]] = {}
        """The steps on any line that changed each file."""
        self._changed: dict[str, str] = {}
        self._brought_back: tuple[str, ...] = ()

    def apply(self, record: EventRecord) -> bool:
        """Apply one event; return whether the list may have changed."""
        match record.event:
            case CheckpointCreated(id=number, uid=uid):
                self._ids[uid] = number
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
            case LineChanged(op=op, to_line=to_line):
                # In older records the event of the restored files precedes this one.
                if to_line or op == "undo":
                    self._bring_back(self._brought_back, self._line())
                self._brought_back = ()
            case ContextReverted() | CompactionEnd():
                pass
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
        """Return the checkpoints of the live line, including compacted ones, oldest first."""
        return [one.uid for one in (*self._lines.before_now(), *self._lines.live.points)]

    def _bring_back(self, paths: Iterable[str], line: Sequence[str]) -> None:
        """Note that these files were restored to their contents on a line."""
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
    """All checkpoints of a recorded session in the order in which they were made, on any line.

    Args:
        records: the events of the session.
    """

    def __init__(self, records: Sequence[EventRecord]) -> None:
        self._checkpoints: list[CheckpointNode] = []
        self._positions: list[int] = []
        self._eras: list[tuple[int, int]] = [(0, 0)]
        """The positions of compactions, after which numbers start anew, each with the number of steps until the next one."""
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
        # The peaks are computed once: each moment that is played asks for those after it.
        self._peaks = TokenPeaks()
        self._peaks.savings(self._checkpoints)
        self._newest: tuple[int, str, Future] | None = None

    def _add(self, position: int, event: CheckpointCreated, tokens: int, at: float) -> None:
        if event.kind == "compaction" and event.id == 0:
            self._eras.append((position, 0))
        first = 1 if len(self._eras) > 1 else 0
        self._eras[-1] = (self._eras[-1][0], event.id + 1 - first)
        key = len(self._checkpoints)
        point = CheckpointNode(key, event.id, event.uid, event.kind, key, at, tokens=tokens)
        # The curve marks only the places where the context is cut.
        point.saved = 0 if event.kind in ("dmail", "compaction", "summary") else None
        self._checkpoints.append(point)
        self._positions.append(position)

    def n_steps(self, position: int) -> int:
        """The number of steps, without a summary, at the end of the line or at its next compaction."""
        return self._eras[bisect_right(self._eras, position, key=lambda era: era[0]) - 1][1]

    def after(self, position: int, cut: Marker | None) -> Future:
        """Return the checkpoints after a position, where `cut` is the next cut; the same object while nothing changes."""
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
                Future(
                    tuple(self._checkpoints[first:]),
                    awaited,
                    PeaksFrom(self._peaks, self._checkpoints, first),
                ),
            )
        return newest[2]


class ReplayState:
    """The state of a session and of its file list after `position` records."""

    def __init__(self, session: SessionModel, files: ChangedFiles | None = None, position: int = 0):
        self.session = session
        self.files = files or ChangedFiles(session.timeline.lines.world_lines)
        self.position = position

    def apply(self, records: Sequence[EventRecord], report: Report) -> None:
        """Apply records; an error in a part of the state is reported, and the others continue."""
        for record in records:
            self.session.apply(record, report)
            try:
                self.files.apply(record)
            except Exception as error:
                report(error)
        self.position += len(records)

    def pieces(self) -> Iterator[object]:
        """Yield the parts of the state for pickling in pieces: the many small objects first, then those that refer to them."""
        chat, timeline = self.session.chat, self.session.timeline
        tree, rows = timeline.tree, timeline.rows
        every: list[Sequence[object]] = [chat.blocks, tree.live]
        every += [line.checkpoints for line in tree.lines.values()]
        every.append([rows[index] for index in range(len(rows))])
        for things in every:
            for start in range(0, len(things), PIECE):
                yield things[start : start + PIECE]
        yield chat
        yield timeline
        yield self.session, self.files


class _Keyframe(NamedTuple):
    """A pickled state, in pieces, so that unpickling can be interrupted between them."""

    position: int
    state: bytes
    n_pieces: int


class Replay:
    """A recorded session with keyframes. The constructor applies all records: call it in a thread.

    Args:
        records: the recorded events.
        work_dir: paths below it are shown relative to it.

    Attributes:
        recording: the events.
        upcoming: the checkpoints after any position.
        used_at_end: the tokens in the window at the end.
        faults: the first errors of events that could not be applied.
    """

    def __init__(self, records: Sequence[EventRecord], work_dir: str = "") -> None:
        self.recording = Recording(records)
        self.upcoming = UpcomingCheckpoints(records)
        self.faults: list[Exception] = []
        self._texts: list[str] = []
        self._keyframes: list[_Keyframe] = []
        moment = ReplayState(SessionModel(work_dir))
        numbers: dict[int, int] = {}
        self._keep_keyframe(moment, numbers)
        for start in range(0, self.recording.end, KEYFRAME_EVERY):
            moment.apply(self.recording.records[start : start + KEYFRAME_EVERY], self._note)
            self._keep_keyframe(moment, numbers)
        self.used_at_end = moment.session.gauge.status.used

    def _note(self, error: Exception) -> None:
        if len(self.faults) < MOST_FAULTS:
            self.faults.append(error)

    def slices(self, position: int) -> Generator[None, None, ReplayState]:
        """Create a new state of a position, which shares no object with any other state; it is the generator's return value.

        Yields after every slice of the work, so that keys and frames are handled in between.
        """
        position = max(0, min(self.recording.end, position))
        index = bisect_right(self._keyframes, position, key=lambda one: one.position) - 1
        keyframe = self._keyframes[index]
        # One unpickler reads all pieces, as later pieces refer to objects of earlier ones.
        reader = _StateUnpickler(io.BytesIO(keyframe.state), self._texts)
        read: list[Any] = []
        for _ in range(keyframe.n_pieces):
            read.append(reader.load())
            yield
        session, files = read[-1]
        moment = ReplayState(session, files, keyframe.position)
        while moment.position < position:
            end = min(position, moment.position + SLICE)
            moment.apply(self.recording.records[moment.position : end], self._note)
            yield
        return moment

    def _keep_keyframe(self, moment: ReplayState, numbers: dict[int, int]) -> None:
        buffer = io.BytesIO()
        writer = _StatePickler(buffer, self._texts, numbers)
        n_pieces = 0
        for piece in moment.pieces():
            writer.dump(piece)
            n_pieces += 1
        self._keyframes.append(_Keyframe(moment.position, buffer.getvalue(), n_pieces))


class _StatePickler(pickle.Pickler):
    """Pickles a state without its long texts: each is kept once for all states that have it."""

    def __init__(self, buffer: io.BytesIO, texts: list[str], numbers: dict[int, int]) -> None:
        super().__init__(buffer, pickle.HIGHEST_PROTOCOL)
        self._texts = texts
        self._numbers = numbers

    def persistent_id(self, obj: object) -> int | None:
        """Return the index of a long text in the common list; None for any other object."""
        if type(obj) is not str or len(obj) < _LONG_CHARS:
            return None
        number = self._numbers.get(id(obj))
        if number is None:
            # The list keeps the text alive, so no other text can get its identity.
            number = self._numbers[id(obj)] = len(self._texts)
            self._texts.append(obj)
        return number


class _StateUnpickler(pickle.Unpickler):
    """Unpickles what `_StatePickler` wrote in this process; it never reads data from outside."""

    def __init__(self, buffer: io.BytesIO, texts: list[str]) -> None:
        super().__init__(buffer)
        self._texts = texts

    def persistent_load(self, pid: int) -> str:
        """Return the long text with this index."""
        return self._texts[pid]

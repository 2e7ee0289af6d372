"""The playing time of a replayed session: its stops and markers, the length of pauses, and the clock with its speed.

A position is a number of records: those before it have happened. A record holds a streamed text in one piece, with the
time of its first word; its last word came before the next event. The state at a position is in `replay`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from kimi_tui.wire.events import (
    SUMMARIES,
    SWITCHES,
    CheckpointCreated,
    CompactionBegin,
    CompactionEnd,
    ContextReverted,
    Event,
    EventRecord,
    LineChanged,
    StepBegin,
    TextPart,
    ThinkPart,
    ToolResult,
    TurnBegin,
)

MarkerKind = Literal["turn", "dmail", "compaction", "rewind"]

LONGEST_PAUSE_S = 2.0
"""Longer pauses (the user was thinking, or asleep) are played as this."""
STREAMED_CHARS = 24
"""Shorter texts are there at once."""
SLOWEST_CHARS_S = 20.0
"""Characters a second; slower than this no model writes, and the rest of the time is a pause."""
SPEEDS = (1, 2, 4, 8, 16)
CUT_S = {"dmail": 1.0, "rewind": 0.4, "compaction": 0.4}
"""How long the clock waits where the context is cut; the motion on the screen takes a little less."""
_UNTIMED_CHARS_S = 250.0
_UNTIMED_STEP_S = 0.5
_BY_USER = frozenset({"rewind", "clear"})


@dataclass(frozen=True, slots=True)
class Marker:
    """A turn, or a place where the context is cut: by a D-Mail, a compaction, or a rewind, jump, undo, redo or clear.

    Attributes:
        kind: which of them; the last five are all `rewind`.
        position: where it has happened.
        time_s: when that is reached, in seconds of playing.
        from_id: the checkpoint that was left, -1 where it is not known.
        name: the word for it.
    """

    kind: MarkerKind
    position: int
    time_s: float
    from_id: int = -1
    name: str = ""


class Recording:
    """The events of a session in order. Made once and never changed.

    Args:
        records: the events.

    Attributes:
        records: the same.
        markers: turns and cuts, in order.
        stops: the positions at which a step, a turn or an operation is complete; the first is 0, the last the end.
        turns: those of them before which a turn's first words stand.
    """

    def __init__(self, records: Sequence[EventRecord]) -> None:
        self.records = tuple(records)
        self._begun: list[float] = []
        self._reached: list[float] = []
        """When the first word of each event is there, and when all of it is, in seconds of playing."""
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
        """Where to begin: with the first thing that was said, which is more than an empty page."""
        return self.turns[0] if self.turns else self.step(0, 1)

    # --- times

    @property
    def length_s(self) -> float:
        """How long all of it plays at the usual speed."""
        return self._reached[-1] if self.records else 0.0

    def time_of(self, position: int) -> float:
        """When a position is reached, in seconds of playing."""
        return self._reached[position - 1] if position > 0 else 0.0

    def position_at(self, time_s: float) -> int:
        """The position that is reached by then."""
        return bisect_right(self._reached, time_s)

    def streamed_by(self, position: int, time_s: float) -> int:
        """How many characters of the event at a position were streamed by then; 0 where it has none, or all are."""
        if position >= len(self.records):
            return 0
        begun, reached = self._begun[position], self._reached[position]
        if not begun < time_s < reached:
            return 0
        text = streamed_text(self.records[position].event)
        return int(len(text) * (time_s - begun) / (reached - begun))

    def clock_at(self, position: int) -> float:
        """What the clock said, in seconds since 1970; 0 where nothing is recorded."""
        return self.records[max(0, position - 1)].at if self.records else 0.0

    # --- stops

    def step(self, position: int, steps: int) -> int:
        """The stop so many steps before or after a position."""
        return _beside(self.stops, position, steps)

    def turn(self, position: int, steps: int) -> int:
        """The turn so many turns before or after a position; beyond them the beginning and the end."""
        return _beside(sorted({0, *self.turns, self.end}), position, steps)

    def stop_after(self, position: int) -> int:
        """The first stop at or after a position."""
        at = bisect_left(self.stops, position)
        return self.stops[at] if at < len(self.stops) else self.end

    def is_stop(self, position: int) -> bool:
        """Whether all that began before a position is complete."""
        return self.stop_after(position) == position

    def stop_of(self, uid: str) -> int | None:
        """Where the step of a checkpoint is complete; None for a checkpoint that is not recorded."""
        created = self._created.get(uid)
        return None if created is None else self.stop_after(created)

    # --- cuts

    def next_cut(self, position: int) -> Marker | None:
        """The first cut that happens after a position."""
        at = bisect_right(self._cut_positions, position)
        return self._cuts[at] if at < len(self._cuts) else None

    def cut_between(self, start: int, end: int) -> Marker | None:
        """The first cut that happens after `start` and not after `end`."""
        cut = self.next_cut(start)
        return cut if cut is not None and cut.position <= end else None


def streamed_text(event: Event) -> str:
    """The text of an event that is streamed; empty for any other event."""
    return event.text if isinstance(event, TextPart | ThinkPart) else ""


def _durations(record: EventRecord, following: EventRecord | None) -> tuple[float, float]:
    """For how many seconds the text of an event is streamed, and how long the pause behind it is."""
    if following is None:
        return 0.0, 0.0
    text = streamed_text(record.event)
    n_chars = len(text) if len(text) >= STREAMED_CHARS else 0
    if record.at <= 0 or following.at <= 0:
        # Another program's conversation, or one without a record, does not say when: it gets a pace of its own.
        takes_time = isinstance(following.event, CheckpointCreated | ToolResult)
        return n_chars / _UNTIMED_CHARS_S, _UNTIMED_STEP_S if takes_time else 0.0
    # A clock that was set back makes no time negative.
    whole_s = max(0.0, following.at - record.at)
    streaming_s = min(whole_s, n_chars / SLOWEST_CHARS_S)
    return streaming_s, min(LONGEST_PAUSE_S, whole_s - streaming_s)


def _beside(stops: Sequence[int], position: int, steps: int) -> int:
    # Between two stops, the one before is a step away, and so is the one after.
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
    """Where something begins, all before it is complete; an event that belongs to the one before it begins nothing."""
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
                # The summary of a compaction whose beginning was not recorded is followed by its end.
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
    """The clock of a replay: its position in a recording, its speed, whether it runs.

    Args:
        recording: what is played.
        waits: whether the clock stands still for a moment where the context is cut.

    Attributes:
        position: how much has happened.
        time_s: the same in seconds of playing, exact between two events.
        is_playing: whether time goes on.
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
        """How many times faster than it happened."""
        return SPEEDS[self._speed]

    def change_speed(self, steps: int) -> None:
        """Select the next of `SPEEDS` (1) or the one before (-1)."""
        self._speed = max(0, min(len(SPEEDS) - 1, self._speed + steps))

    def toggle(self) -> None:
        """Play or pause; at the end, play again from the beginning."""
        if not self.is_playing and self.position == self._recording.end:
            self.go_to(0)
        self.is_playing = not self.is_playing and self._recording.end > 0

    def go_to(self, position: int) -> None:
        """Stand at a position."""
        self.position = max(0, min(self._recording.end, position))
        self.time_s = self._recording.time_of(self.position)
        self._hold_s = 0.0

    def advance(self, elapsed_s: float) -> int:
        """Let real time go by; returns the position that is reached. Pauses at the end, and waits at a cut."""
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
        """How long it takes at this speed until then."""
        return max(0.0, time_s - self.time_s) / self.speed

"""The scrubber: the playing time of a recorded session as a line with markers and a playhead that can be dragged.

Columns are proportional to seconds of playing time. The spans of its three rows are made by functions without a widget.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import ClassVar

from rich.cells import cell_len
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from kimi_tui.projection.replay import Marker, PlaybackClock, Recording
from kimi_tui.tui import formatting
from kimi_tui.tui.faults import blank_strips
from kimi_tui.tui.glyphs import Glyphs, glyphs_of
from kimi_tui.tui.painter import PaintedWidget, Painter
from kimi_tui.tui.rows import Span, joined, spans_width

_RANK = {"turn": 0, "rewind": 1, "compaction": 2, "dmail": 3}
_MARKER_STYLES = {"turn": "user", "rewind": "lost", "compaction": "compaction", "dmail": "dmail"}
_STYLES = (
    "ink",
    "strong",
    "quiet",
    "accent",
    "head",
    "played",
    "ahead",
    "later",
    "user",
    "lost",
    "dmail",
    "compaction",
)


def column_of(recording: Recording, time_s: float, width: int) -> int:
    """Return the column of a playing time in seconds."""
    if recording.length_s <= 0 or width <= 1:
        return 0
    return max(0, min(width - 1, round(time_s / recording.length_s * (width - 1))))


def time_at(recording: Recording, column: int, width: int) -> float:
    """Return the playing time in seconds of a column; the outermost columns are the beginning and the end."""
    if width <= 1:
        return 0.0
    return max(0.0, min(1.0, column / (width - 1))) * recording.length_s


def track_spans(
    recording: Recording, clock: PlaybackClock, width: int, glyphs: Glyphs
) -> list[Span]:
    """Return the spans of the line with the playhead and the markers."""
    if width <= 0:
        # The widget has no width while it is removed, or while its screen is being resized.
        return []
    head = column_of(recording, clock.time_s, width)
    cells: list[Span] = [
        Span(glyphs.used, "played") if column < head else Span(glyphs.rule, "ahead")
        for column in range(width)
    ]
    cut = recording.next_cut(clock.position)
    for column, marker in _markers_by_column(recording, width).items():
        was = marker.position <= clock.position
        coloured = was or marker is cut
        style = _MARKER_STYLES[marker.kind] if coloured else "later"
        cells[column] = Span(_glyph(marker, glyphs), style)
    if cut is not None:
        # Among later events in the same cell the next cut is the one that is waited for.
        column = column_of(recording, cut.time_s, width)
        cells[column] = Span(_glyph(cut, glyphs), _MARKER_STYLES[cut.kind])
    cells[head] = Span(glyphs.levels[-1], "head")
    return joined(cells)


def label_spans(
    recording: Recording, clock: PlaybackClock, width: int, checkpoint: int | None
) -> list[Span]:
    """Return the spans of the row above: the checkpoint and the recorded time, over the playhead."""
    at = recording.clock_at(clock.position)
    number = f"#{checkpoint}" if checkpoint is not None else ""
    time_of_day = _time_of_day(at) if at else ""
    gap = "  " if number and time_of_day else ""
    head = column_of(recording, clock.time_s, width)
    # The number stands to the left of the playhead, the time of day to its right, if there is room.
    size = cell_len(number + gap + time_of_day)
    start = max(0, min(head - cell_len(number), width - size))
    return [
        Span(" " * start, "quiet"),
        Span(number, "strong"),
        Span(gap, "quiet"),
        Span(time_of_day, "quiet"),
    ]


def state_spans(
    recording: Recording, clock: PlaybackClock, width: int, glyphs: Glyphs
) -> list[Span]:
    """Return the spans of the row below: whether it plays, the speed, the playing time, and at the right the next marker."""
    at_end = clock.position == recording.end
    word = "playing" if clock.is_playing else "at the end" if at_end else "paused"
    left: list[Span] = [
        Span(word, "ink"),
        Span("  ", "quiet"),
        Span(f"{clock.speed}x", "accent"),
        Span("    ", "quiet"),
        Span(_time(clock.time_s), "ink"),
        Span(f" of {_time(recording.length_s)}", "quiet"),
    ]
    used = spans_width(left)
    cut = recording.next_cut(clock.position)
    if cut is None:
        return left
    style = _MARKER_STYLES[cut.kind]
    for words in _next_words(cut, clock.seconds_to(cut.time_s), glyphs):
        gap = width - used - cell_len(words)
        if gap >= 3:
            return [*left, Span(" " * gap, "quiet"), Span(words, style)]
    return left


def _next_words(marker: Marker, seconds: float, glyphs: Glyphs) -> tuple[str, ...]:
    when = formatting.duration(seconds) if seconds >= 59.5 else f"{max(0, round(seconds))} s"
    source = (
        f" from #{marker.from_id}" if marker.from_id >= 0 and marker.kind != "compaction" else ""
    )
    return (
        f"next: {marker.name}{source} in {when}",
        f"next: {marker.name} in {when}",
        f"{_glyph(marker, glyphs)} in {when}",
    )


def _markers_by_column(recording: Recording, width: int) -> dict[int, Marker]:
    """Return the marker of each column: the one with the highest rank, and of equal ones the last."""
    shown: dict[int, Marker] = {}
    for marker in recording.markers:
        column = column_of(recording, marker.time_s, width)
        other = shown.get(column)
        if other is None or _RANK[marker.kind] >= _RANK[other.kind]:
            shown[column] = marker
    return shown


def _glyph(marker: Marker, glyphs: Glyphs) -> str:
    return {
        "turn": glyphs.turn,
        "dmail": glyphs.dmail,
        "compaction": glyphs.compaction,
        "rewind": glyphs.lost,
    }[marker.kind]


def _time(seconds: float) -> str:
    text = formatting.clock(seconds)
    return text.zfill(5)


def _time_of_day(seconds: float) -> str:
    try:
        return datetime.fromtimestamp(seconds, UTC).astimezone().strftime("%H:%M:%S")
    except (OverflowError, OSError, ValueError):
        return ""


class Scrubber(PaintedWidget, Widget, can_focus=True):
    """The scrubber widget: the time line with its markers and the playhead, the time above it, the state below it.

    In a low screen the row over the line is left out.
    """

    COMPONENT_CLASSES: ClassVar[set[str]] = {f"scrubber--{name}" for name in _STYLES}
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("space", "play", "Play, pause", id="replay.play", show=False),
        Binding("left", "step(-1)", "Step back", id="replay.back", show=False),
        Binding("right", "step(1)", "Step forward", id="replay.on", show=False),
        Binding("left_square_bracket", "turn(-1)", "Previous turn", id="replay.turn_before"),
        Binding("right_square_bracket", "turn(1)", "Next turn", id="replay.turn_after"),
        Binding("home", "edge(-1)", "Beginning", id="replay.beginning", show=False),
        Binding("end", "edge(1)", "End", id="replay.end", show=False),
        Binding("plus,equals_sign", "speed(1)", "Faster", id="replay.faster", show=False),
        Binding("minus", "speed(-1)", "Slower", id="replay.slower", show=False),
    ]

    class PlayheadMoved(Message):
        """The user moved the playhead to a position; the scrubber shows it after `moved` is called."""

        def __init__(self, position: int) -> None:
            super().__init__()
            self.position = position

    class PlayToggled(Message):
        """The key that plays and pauses was pressed."""

    class SpeedChanged(Message):
        """Another speed was chosen: one step faster or slower."""

        def __init__(self, steps: int) -> None:
            super().__init__()
            self.steps = steps

    def __init__(self) -> None:
        super().__init__()
        self._recording: Recording | None = None
        self._clock: PlaybackClock | None = None
        self._checkpoint: int | None = None
        self._aim: int | None = None
        """The position that was sought and is not shown yet; the next key seeks from here. None: no seek is under way."""
        self._dragging = False
        self._painter = Painter(self, "scrubber")

    def follow(self, recording: Recording, clock: PlaybackClock) -> None:
        """Show a recording and its clock."""
        self._recording, self._clock = recording, clock
        self.refresh()

    def moved(self, checkpoint: int | None) -> None:
        """Show the clock's present position, and its checkpoint (None before the first)."""
        self._checkpoint, self._aim = checkpoint, None
        self.refresh()

    # Keys

    def action_play(self) -> None:
        """Play or pause."""
        self.post_message(self.PlayToggled())

    def action_step(self, steps: int) -> None:
        """Move the playhead a step back or on."""
        if self._recording is not None and self._clock is not None:
            self._seek(self._recording.step(self._from(self._clock), steps))

    def action_turn(self, steps: int) -> None:
        """Move the playhead to the turn before or after."""
        if self._recording is not None and self._clock is not None:
            self._seek(self._recording.turn(self._from(self._clock), steps))

    def action_edge(self, side: int) -> None:
        """Move the playhead to the beginning or the end."""
        if self._recording is not None:
            self._seek(self._recording.end if side > 0 else 0)

    def action_speed(self, steps: int) -> None:
        """Post that the speed is to be one step faster or slower."""
        self.post_message(self.SpeedChanged(steps))

    def _from(self, clock: PlaybackClock) -> int:
        return clock.position if self._aim is None else self._aim

    def _seek(self, position: int) -> None:
        self._aim = position
        self.post_message(self.PlayheadMoved(position))

    # Mouse

    def on_mouse_down(self, event: events.MouseDown) -> None:
        """Begin to drag the playhead."""
        if event.button == 1 and self._recording is not None:
            self._dragging = True
            self.capture_mouse()
            self._drag(event)

    def on_mouse_move(self, event: events.MouseMove) -> None:
        """Move the playhead to the pointer while it is dragged."""
        if self._dragging:
            self._drag(event)

    def on_mouse_up(self) -> None:
        """End the drag."""
        if self._dragging:
            self._dragging = False
            self.release_mouse()

    def _drag(self, event: events.MouseEvent) -> None:
        recording = self._recording
        if recording is None:
            return
        column = event.x - self.styles.padding.left
        width = self.content_size.width
        time_s = time_at(recording, column, width)
        # The outermost columns lead to the very beginning and end. Elsewhere their time could be in the middle of a step.
        position = recording.end if column >= width - 1 else recording.position_at(time_s)
        self._seek(0 if column <= 0 else position)

    # Drawing

    def render_lines(self, crop: Region) -> list[Strip]:
        """Return the rows within their padding."""
        try:
            return self._painted(crop)
        except Exception:
            return blank_strips("the scrubber", crop)

    def _painted(self, crop: Region) -> list[Strip]:
        padding = self.styles.padding
        width = self.content_size.width
        rows = self._rows(width, self.content_size.height)
        edge = Span(" " * padding.left, "quiet")
        strips: list[Strip] = []
        for y in range(crop.y, crop.bottom):
            index = y - padding.top
            spans = rows[index] if 0 <= index < len(rows) else []
            shown = [span for span in (edge, *spans) if span[0]]
            strips.append(self._painter.strip(shown, self.outer_size.width))
        return [strip.crop(crop.x, crop.right) for strip in strips]

    def _rows(self, width: int, height: int) -> list[list[Span]]:
        recording, clock = self._recording, self._clock
        if recording is None or clock is None:
            return []
        glyphs = glyphs_of(self)
        rows = [
            track_spans(recording, clock, width, glyphs),
            state_spans(recording, clock, width, glyphs),
        ]
        if height > 2:
            rows.insert(0, label_spans(recording, clock, width, self._checkpoint))
        return rows

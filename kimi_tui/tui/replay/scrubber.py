"""The line of a session's time in the place of the prompt: shows the moment, and is dragged to another one."""

from __future__ import annotations

from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.color import Color
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from kimi_tui.tui.app_of import app_of
from kimi_tui.tui.glyphs import glyphs_of
from kimi_tui.tui.replay.course import Course
from kimi_tui.tui.replay.line import label_spans, line_spans, state_spans, time_at
from kimi_tui.tui.replay.playing import Player
from kimi_tui.tui.spans import Span

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


class Scrubber(Widget, can_focus=True):
    """The line with its events and the playhead, the time over it, the state under it.

    In a low screen the row over the line is left out.
    """

    COMPONENT_CLASSES: ClassVar[set[str]] = {f"scrubber--{name}" for name in _STYLES}
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("space", "play", "Play, pause", id="replay.play", show=False),
        Binding("left", "step(-1)", "Step back", id="replay.back", show=False),
        Binding("right", "step(1)", "Step on", id="replay.on", show=False),
        Binding("left_square_bracket", "turn(-1)", "Turn before", id="replay.turn_before"),
        Binding("right_square_bracket", "turn(1)", "Turn after", id="replay.turn_after"),
        Binding("home", "edge(-1)", "Beginning", id="replay.beginning", show=False),
        Binding("end", "edge(1)", "End", id="replay.end", show=False),
        Binding("plus,equals_sign", "speed(1)", "Faster", id="replay.faster", show=False),
        Binding("minus", "speed(-1)", "Slower", id="replay.slower", show=False),
    ]

    class Sought(Message):
        """The person wants to see another moment."""

        def __init__(self, position: int) -> None:
            super().__init__()
            self.position = position

    class PlayToggled(Message):
        """The person wants it to play, or to pause."""

    class SpeedChanged(Message):
        """Another speed was chosen: one step faster or slower."""

        def __init__(self, steps: int) -> None:
            super().__init__()
            self.steps = steps

    def __init__(self) -> None:
        super().__init__()
        self._course: Course | None = None
        self._player: Player | None = None
        self._checkpoint: int | None = None
        self._aim: int | None = None
        """What was sought and is not shown yet: the next key goes on from there."""
        self._dragging = False
        self._styles: dict[str, Style] = {}

    def follow(self, course: Course, player: Player) -> None:
        """Show this course and where its player stands."""
        self._course, self._player = course, player
        self.refresh()

    def moved(self, checkpoint: int | None) -> None:
        """The player stands elsewhere, at this checkpoint (None: before the first)."""
        self._checkpoint, self._aim = checkpoint, None
        self.refresh()

    # Keys

    def action_play(self) -> None:
        """Play or pause."""
        self.post_message(self.PlayToggled())

    def action_step(self, steps: int) -> None:
        """One step back or on."""
        if self._course is not None and self._player is not None:
            self._seek(self._course.step(self._from(self._player), steps))

    def action_turn(self, steps: int) -> None:
        """To the turn before or after."""
        if self._course is not None and self._player is not None:
            self._seek(self._course.turn(self._from(self._player), steps))

    def action_edge(self, side: int) -> None:
        """To the beginning or the end."""
        if self._course is not None:
            self._seek(self._course.end if side > 0 else 0)

    def action_speed(self, steps: int) -> None:
        """Faster or slower."""
        self.post_message(self.SpeedChanged(steps))

    def _from(self, player: Player) -> int:
        return player.position if self._aim is None else self._aim

    def _seek(self, position: int) -> None:
        self._aim = position
        self.post_message(self.Sought(position))

    # Mouse

    def on_mouse_down(self, event: events.MouseDown) -> None:
        """Take hold of the playhead."""
        if event.button == 1 and self._course is not None:
            self._dragging = True
            self.capture_mouse()
            self._drag(event)

    def on_mouse_move(self, event: events.MouseMove) -> None:
        """The playhead goes with the pointer."""
        if self._dragging:
            self._drag(event)

    def on_mouse_up(self) -> None:
        """Let go."""
        if self._dragging:
            self._dragging = False
            self.release_mouse()

    def _drag(self, event: events.MouseEvent) -> None:
        course = self._course
        if course is None:
            return
        column = event.x - self.styles.padding.left
        width = self.content_size.width
        time_s = time_at(course, column, width)
        # At the edges whole: half a step of what is there would be shown else.
        position = course.end if column >= width - 1 else course.position_at(time_s)
        self._seek(0 if column <= 0 else position)

    # Drawing

    def notify_style_update(self) -> None:
        """Colours may have changed."""
        super().notify_style_update()
        self._styles.clear()

    def render_lines(self, crop: Region) -> list[Strip]:
        """The rows within their padding."""
        padding = self.styles.padding
        width = self.content_size.width
        rows = self._rows(width, self.content_size.height)
        edge = (" " * padding.left, "quiet")
        strips: list[Strip] = []
        for y in range(crop.y, crop.bottom):
            index = y - padding.top
            spans = rows[index] if 0 <= index < len(rows) else []
            strip = self._strip([edge, *spans], self.outer_size.width)
            strips.append(strip.crop(crop.x, crop.right))
        return strips

    def _rows(self, width: int, height: int) -> list[list[Span]]:
        course, player = self._course, self._player
        if course is None or player is None:
            return []
        glyphs = glyphs_of(app_of(self))
        rows = [
            line_spans(course, player, width, glyphs),
            state_spans(course, player, width, glyphs),
        ]
        if height > 2:
            rows.insert(0, label_spans(course, player, width, self._checkpoint))
        return rows

    def _strip(self, spans: list[Span], width: int) -> Strip:
        strip = Strip([Segment(text, self._style(name)) for text, name in spans if text])
        strip = strip.adjust_cell_length(width, self._style("quiet"))
        background = Color.from_rich_color(self._style("quiet").bgcolor)
        for line_filter in self.get_line_filters():
            strip = strip.apply_filter(line_filter, background)
        return strip

    def _style(self, name: str) -> Style:
        style = self._styles.get(name)
        if style is None:
            over = self.get_component_rich_style(f"scrubber--{name}", partial=True)
            style = self._styles[name] = self.rich_style + over
        return style

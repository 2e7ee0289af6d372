"""The row of the prompt: its sign, the text field, and at the right a spinner, a clock and the step while the agent works."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.cells import cell_len
from textual.geometry import Size
from textual.reactive import reactive
from textual.timer import Timer
from textual.widget import Widget

from kimi_tui.projection.session_state import SessionState
from kimi_tui.tui.first_page import IDLE_WORDS
from kimi_tui.tui.formatting import Wordings, clock, cut, cut_wording, line_words
from kimi_tui.tui.glyphs import drawn, glyphs_of
from kimi_tui.tui.prompt.area import PromptArea
from kimi_tui.tui.row_list import PaintedRows, plain
from kimi_tui.tui.rows import BLANK, Line, Span, sides, spans_width
from kimi_tui.tui.screens import app_of

if TYPE_CHECKING:
    from textual.app import ComposeResult

    from kimi_tui.tui.prompt.completion import PromptCompletion
    from kimi_tui.tui.prompt.image_chips import ImageChips

BEAT_S = 0.25
WIDE_FROM = 76
CLOCK_ROOM = 25
WAITING_ROOM = 38
"""Cells of the first row kept free for the clock and the words beside it."""
STEER_WORDS = (
    "Type to steer the agent at its next step",
    "Type to steer the agent",
    "Type to steer",
    "",
)
"""The placeholders of the field while the agent works, of which the first that fits is shown."""
WAY_BACK = " Esc returns to the current conversation."
LEAST_NAME = 20
"""Cells of a world line's name that take precedence over the words about going back, which are also in the line's banner."""
AFTER_OWN_WORDS = (
    "Your message is sent when your command has ended",
    "Type the next message",
    "",
)
AFTER_TURN_WORDS = (
    "Your message is sent when the turn has ended",
    "Type the next message",
    "",
)
BEFORE_WORDS = 4
"""Cells of the sign and the spaces around it."""
RESUME_WORDS = "{send} to continue, or type what to do instead"


SHOWN_AFTER_S = 5.0
"""Seconds after which the row says that no part of an answer has arrived yet."""


def _activity_of(state: SessionState) -> tuple[object, ...]:
    """Return the fields of a state that are drawn beside the field, except those drawn by the clock."""
    return (
        state.running,
        state.step,
        state.retry_until,
        state.compacting,
        bool(state.asked_at),
        state.prompt_read,
    )


class PromptNotes(PaintedRows):
    """Rows above the text field of the prompt."""

    rows: reactive[tuple[Wordings, ...]] = reactive((), layout=True)

    def lay_out(self, width: int) -> Sequence[Line]:
        """Return the rows, each shortened if it is too long."""
        glyphs = glyphs_of(self)
        texts = [cut_wording(row, width, glyphs.cut) for row in self.rows]
        return [plain(cut(drawn(text, glyphs), width, glyphs.cut), "quiet") for text in texts]


class PromptBar(PaintedRows):
    """The prompt with its sign at the left and the running clock at the right.

    Args:
        send: the name of the key that sends.
        images: the images behind chips; None for a field that takes none.
        completion: the completion menu; None for a field without.

    Attributes:
        area: the text field.
    """

    state: reactive[SessionState] = reactive(SessionState(), repaint=False)
    reading: reactive[int] = reactive(0)
    """The number of the world line that is being read, during which nothing can be typed; 0 for none, -1 for no world line."""

    reading_words: reactive[str] = reactive("")
    """The words for what is on view, if that is no world line: `Reading future 2`."""
    way_back: reactive[str] = reactive(WAY_BACK)
    """The sentence about where Esc leads from there."""
    line_name: reactive[str] = reactive("")
    """The name of that line; empty for none."""
    hint: reactive[Wordings] = reactive("")
    """A hint above the field, below the waiting messages; empty for none, and hidden while the row names a prompt mode."""

    def __init__(
        self,
        send: str = "Enter",
        images: ImageChips | None = None,
        completion: PromptCompletion | None = None,
    ) -> None:
        super().__init__()
        self._resume_words = RESUME_WORDS.format(send=send or "/continue")
        self.area = PromptArea(placeholder=IDLE_WORDS, images=images, completion=completion)
        self._above: PromptNotes | None = None
        self._waiting: tuple[str, ...] = ()
        self._writing = ""
        self._timer: Timer | None = None
        self._beat = 0

    def compose(self) -> ComposeResult:
        """Yield the field; sign and clock are drawn around it."""
        yield self.area

    def show_above(self, waiting: Sequence[str], writing: str = "") -> None:
        """Set the rows above the field.

        Args:
            waiting: a row for each waiting message.
            writing: what the text is besides a message, such as a shell command; it hides the hint. Empty for a message.
        """
        self._waiting, self._writing = tuple(waiting), writing
        if writing:
            self.hint = ""
        self.watch_hint()

    def watch_hint(self) -> None:
        """Show the hint below the other rows above the field."""
        last = self._writing or self.hint
        rows = (*self._waiting, last) if last else self._waiting
        if self._above is None:
            if not rows:
                return
            self._above = PromptNotes()
            self.mount(self._above, before=self.area)
        if self._above.rows != rows:
            self._above.rows = rows
            self.refresh()

    def watch_state(self, old: SessionState, new: SessionState) -> None:
        """Update the placeholder and the clock for a new state of the session."""
        self._choose_words()
        busy = new.running or new.compacting
        if busy and self._timer is None:
            beat_s = 1.0 if app_of(self).animation_level == "none" else BEAT_S
            self._timer = self.set_interval(beat_s, self._tick)
        elif not busy and self._timer is not None:
            self._timer.stop()
            self._timer = None
        if _activity_of(old) != _activity_of(new):
            # The next beat shows the number of a further step: it would be a frame of its own for each of them.
            is_further = old.step and new.step and self._timer is not None
            if not is_further or _activity_of(old._replace(step=new.step)) != _activity_of(new):
                self._show_activity()
        elif self.reading:
            self.refresh()

    def on_resize(self) -> None:
        """Choose the placeholder of the field that fits the new width."""
        self._choose_words()

    def _choose_words(self) -> None:
        if self.state.running:
            room = self.size.width - self._room_beside - BEFORE_WORDS
            choices = STEER_WORDS if self.state.takes_steers else AFTER_TURN_WORDS
            choices = AFTER_OWN_WORDS if self.state.waits_for_own else choices
            words = next((one for one in choices if cell_len(one) <= room), "")
        else:
            words = self._resume_words if self.state.can_resume else IDLE_WORDS
        if self.area.placeholder != words:
            self.area.placeholder = words

    def watch_reading(self, reading: int) -> None:
        """Show a sentence in place of the field, which keeps its draft."""
        self.area.display = not reading
        self.set_class(bool(reading), "-reading")

    def on_descendant_focus(self) -> None:
        """Repaint the sign, which shows whether the prompt has the keys."""
        self.refresh()

    def on_descendant_blur(self) -> None:
        """Repaint the sign, which shows whether the prompt has the keys."""
        self.refresh()

    def _tick(self) -> None:
        self._beat += 1
        self._show_activity()

    @property
    def _room_beside(self) -> int:
        waits = self.state.retry_until > time.time() and self.size.width >= WIDE_FROM
        words = self._waiting_words(time.time())
        return max(WAITING_ROOM if waits else CLOCK_ROOM, CLOCK_ROOM + cell_len(words))

    def _waiting_words(self, now: float) -> str:
        """Return the part of the answer for which the agent waits, if that takes more than a few seconds; else empty."""
        state = self.state
        is_wide = self.size.width >= WIDE_FROM
        if 0 <= state.prompt_read < 1:
            share = int(100 * state.prompt_read)
            return f"processing the prompt {share}%" if is_wide else f"processing {share}%"
        waited_s = now - state.asked_at
        if not state.asked_at or waited_s < SHOWN_AFTER_S:
            return ""
        what = "waiting for the first token" if is_wide else "waiting for first token"
        return f"{what} {clock(waited_s)}"

    def _show_activity(self) -> None:
        """Show the activity at the right end of the field's first row, as a widget of its own would need a layout of the screen."""
        self._choose_words()
        words = self._activity()
        strip = self._painter.strip(words, spans_width(words))
        self.area.show_beside(strip, self._room_beside)
        if self.reading:
            self.refresh()

    def notify_style_update(self) -> None:
        """Paint the clock in the field anew as well."""
        super().notify_style_update()
        if self._timer is not None:
            self.call_later(self._show_activity)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """Return the number of rows of the widgets within."""
        return Widget.get_content_height(self, container, viewport, width)

    def lay_out(self, width: int) -> Sequence[Line]:
        """Return the row of the sign beside the field, and of the clock if the field is hidden; blank rows beside those above it."""
        sign = Span(glyphs_of(self).prompt, "accent" if self.area.has_focus else "quiet")
        right = self._activity() if self.reading else ()
        room = width - 1 - spans_width(right)
        left = [sign, Span(self._reading_words(room), "quiet")] if self.reading else [sign]
        above = len(self._above.rows) if self._above is not None else 0
        return [*[BLANK] * above, Line(tuple(sides(left, list(right), width)))]

    def _reading_words(self, width: int) -> str:
        """Return the sentence about the visible world line, in at most `width` cells; its name is shortened if it does not fit."""
        if self.reading_words:
            words = f" {self.reading_words}."
            return words + (self.way_back if cell_len(words + self.way_back) <= width else "")
        room = width - len(f" Reading {line_words(self.reading, '-')}.") + 1
        name = self.line_name if room > 1 else ""
        wanted = min(cell_len(name), LEAST_NAME)
        back = WAY_BACK if room - len(WAY_BACK) >= wanted else ""
        return f" Reading {line_words(self.reading, name, room - len(back))}.{back}"

    def _activity(self) -> Sequence[Span]:
        """Return the spinner, the running clock and the step, or what the agent waits for; nothing between turns."""
        state = self.state
        if not (state.running or state.compacting):
            return ()
        glyphs = glyphs_of(self)
        now = time.time()
        parts = [Span(self._spinner(), "accent"), Span(" ")]
        waits = state.retry_until > now
        if waits:
            parts.append(Span(f"retrying in {state.retry_until - now:.0f} s   ", "quiet"))
        elif state.approvals:
            parts.append(Span("waiting for your answer   ", "quiet"))
        elif words := self._waiting_words(now):
            parts.append(Span(f"{words}   ", "quiet"))
        if state.running:
            parts.append(Span(clock(max(0.0, now - state.turn_at)), "ink"))
        if state.compacting:
            parts.append(Span(f"  {glyphs.compaction} compacting", "compaction"))
        elif state.step and not (waits and self.size.width < WIDE_FROM):
            parts.append(Span(f"  step {state.step}", "quiet"))
        return parts

    def _spinner(self) -> str:
        glyphs = glyphs_of(self)
        if app_of(self).animation_level == "none":
            return glyphs.running
        frames = (glyphs.pending, glyphs.running, glyphs.turn, glyphs.running)
        return frames[self._beat % len(frames)]

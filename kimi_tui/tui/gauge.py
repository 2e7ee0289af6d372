"""The gauge: one row above the prompt with a bar of how full the context window is, and its figures.

The widget is at the top, the functions that make its spans below. It is imported with the timeline, after the first paint.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual.geometry import Region
from textual.message import Message
from textual.reactive import reactive
from textual.strip import Strip
from textual.timer import Timer
from textual.widget import Widget

from kimi_tui.projection.tokens import FreedTokens, GaugeModel
from kimi_tui.tui import formatting as numbers
from kimi_tui.tui.faults import blank_strips
from kimi_tui.tui.glyphs import Glyphs, glyphs_of
from kimi_tui.tui.painter import PaintedWidget, Painter
from kimi_tui.tui.rows import Span, joined, sides, spans_width
from kimi_tui.tui.screens import app_of
from kimi_tui.tui.textual_patches.compositor import NotesDrawn

if TYPE_CHECKING:
    from kimi_tui.wire.events import StatusUpdate


WARN_SHARE = 0.70
GRAVE_SHARE = 0.85
FORESEEABLE_STEPS = 99
"""Maximum number of steps that the forecast counts. A later compaction is given in tokens."""
MOVE_S = 0.4
"""Duration in seconds of the animation of the bar."""
MOVE_FRAME_S = 1 / 20
FREED_BAR_S = 2.0
FREED_FIGURE_S = 5.0
"""Seconds for which the figures show what a revert or compaction freed; `FREED_BAR_S` is the same for the bar."""
_MARGIN = 2
_WIDE_FIGURES = 33
_NARROW_FIGURES = 18
_NARROW_BELOW = 72
_STYLES = (
    "ink",
    "strong",
    "quiet",
    "system",
    "talk",
    "tools",
    "free",
    "mark",
    "warn",
    "error",
    "dmail",
    "compaction",
    "lost",
)


@dataclass(frozen=True, slots=True)
class GaugeLayout:
    """The columns of bar and figures."""

    bar: int
    bar_width: int
    figures: int
    figures_width: int

    @classmethod
    def of(cls, width: int, timeline_width: int) -> GaugeLayout:
        """Return the places for a screen of this width.

        Args:
            width: all cells of the row.
            timeline_width: the width in cells of the timeline beside the chat; 0 if it is an overlay.
        """
        if timeline_width:
            chat = width - timeline_width - 1
            figures = chat + 2
            return cls(_MARGIN, max(0, chat - 2 * _MARGIN), figures, max(0, width - figures))
        room = _NARROW_FIGURES if width < _NARROW_BELOW else _WIDE_FIGURES
        figures = max(0, width - _MARGIN - room)
        return cls(_MARGIN, max(0, figures - 2 * _MARGIN), figures, room)


class Gauge(PaintedWidget, NotesDrawn, Widget):
    """The row that shows how full the context window is.

    Args:
        cost_words: returns what the session has cost so far, in words; empty if no prices are set.

    Attributes:
        model: the reducer whose state is shown. Call `changed` after it has applied events; `show_model` sets another one.
    """

    COMPONENT_CLASSES: ClassVar[set[str]] = {f"gauge--{name}" for name in _STYLES}

    class Clicked(Message):
        """The row was clicked."""

    timeline_width: reactive[int] = reactive(0)
    """The width in cells of the timeline beside the chat, under which the figures stand; 0 if there is none."""
    viewed: reactive[int | None] = reactive[int | None](None)
    """Tokens in the window at an earlier moment, shown beside the present figure; None to show the present alone."""
    prospect: reactive[tuple[int, bool] | None] = reactive[tuple[int, bool] | None](None)
    """Tokens that a rewind would leave in the window, and whether that is an estimate; None while none is previewed."""
    aside: reactive[str] = reactive("")
    """Text shown beside the figures, if there is room, in place of the forecast; empty for none."""
    files_known: reactive[int | None] = reactive[int | None](None)
    """Percent of the work folder that the first file snapshot has so far; None before it and when it is finished."""
    to_send: reactive[int] = reactive(0)
    """Tokens of the text in the prompt, which count in the forecast."""
    shown: reactive[float] = reactive(0.0, init=False, repaint=False)
    """Tokens drawn as used: animated towards the model's figure."""

    def on_click(self) -> None:
        """Post the message that the row was clicked."""
        self.post_message(self.Clicked())

    def __init__(self, cost_words: Callable[[], str] = str) -> None:
        super().__init__()
        self.model = GaugeModel()
        self._cost_words = cost_words
        self._target = 0
        self._freed_serial = 0
        self._freed_bar: FreedTokens | None = None
        self._freed_figure: FreedTokens | None = None
        self._fall_timers: list[Timer] = []
        self._painter = Painter(self, "gauge")
        self._made: Strip | None = None
        self._drawn: Strip | None = None
        """The strip that was rendered last, and the one that is on the screen now; None before there is one."""
        self._moved_at = 0.0

    def show_model(self, model: GaugeModel) -> None:
        """Show another model, at once."""
        self.model = model
        self._freed_serial = model.freed.serial
        self._end_marks()
        self.changed(motion=False)

    def changed(self, *, motion: bool = True) -> None:
        """Draw the model's state after it has applied events.

        Args:
            motion: whether the bar may be animated; false while a history is read.
        """
        model = self.model
        if model.freed.serial != self._freed_serial:
            self._freed_serial = model.freed.serial
            self._end_marks()
            if motion and model.freed.before > model.freed.after:
                self._mark_freed(model.freed)
        elif self._freed_figure not in (None, model.freed):
            self._freed_figure = model.freed
        used = model.status.used
        if used != self._target or not motion:
            was_empty = self._target == 0
            still = not motion or was_empty or app_of(self).animation_level == "none"
            bar = GaugeLayout.of(self.size.width, self.timeline_width).bar_width
            # If the bar does not move, an animation would only count up the figure, in ten pictures of the row.
            moves = 0 < model.status.limit <= abs(used - self._target) * bar
            self._target = used
            if still or not moves:
                app_of(self).animator.force_stop_animation(self, "shown")
                # `watch_shown` would draw the row, which is drawn below as well.
                self.set_reactive(Gauge.shown, float(used))
            else:
                self.animate("shown", float(used), duration=MOVE_S, easing="out_cubic")
        self.refresh()

    def _end_marks(self) -> None:
        for timer in self._fall_timers:
            timer.stop()
        self._freed_bar = self._freed_figure = None

    def _mark_freed(self, freed: FreedTokens) -> None:
        self._freed_bar = self._freed_figure = freed
        self._fall_timers = [
            self.set_timer(FREED_BAR_S, self._end_freed_bar),
            self.set_timer(FREED_FIGURE_S, self._end_freed_figure),
        ]

    def _end_freed_bar(self) -> None:
        self._freed_bar = None
        self.refresh()

    def _end_freed_figure(self) -> None:
        self._freed_figure = None
        self.refresh()

    def on_enter(self) -> None:
        """Compute the tooltip when the pointer enters the gauge, and not before."""
        lines = details(self.model.status, self._cost_words(), self.files_known)
        self.tooltip = Text("\n".join(lines)) if lines else None

    # Drawing

    def watch_shown(self) -> None:
        """Draw the next frame of the animation, if it differs from the last one."""
        now = time.monotonic()
        if self.shown != self._target and now < self._moved_at + MOVE_FRAME_S:
            return
        if self._drawn is None or self._draw(self._drawn.cell_length) != self._drawn:
            self._moved_at = now
            self.refresh()

    def render_lines(self, crop: Region) -> list[Strip]:
        """Return the row of the gauge."""
        width = self.size.width
        try:
            row = self._made = self._draw(width)
        except Exception:
            return blank_strips("the gauge", crop)
        strips = [row if y == 0 else Strip.blank(width) for y in range(crop.y, crop.bottom)]
        if crop.x == 0 and crop.width == width:
            return strips
        return [strip.crop(crop.x, crop.right) for strip in strips]

    def note_drawn(self) -> None:
        """Note that the row that was rendered last is on the screen."""
        self._drawn = self._made

    def _draw(self, width: int) -> Strip:
        app = app_of(self)
        glyphs, places = glyphs_of(app), GaugeLayout.of(width, self.timeline_width)
        gap = max(0, places.figures - places.bar - places.bar_width)
        status, shown, aside = self.model.status, self.shown, self.aside
        freed_bar, freed_figure = self._freed_bar, self._freed_figure
        before = None
        if self.prospect is not None:
            before, (after, is_guess) = status, self.prospect
            shown, status = float(after), status._replace(used=after, estimated=is_guess)
            freed_bar = FreedTokens("rewind", before.used, after)
        elif self.viewed is not None:
            aside = aside or _now_words(status)
            shown, status = float(self.viewed), status._replace(used=self.viewed)
            freed_bar = freed_figure = None
        bar = bar_spans(status, shown, places.bar_width, glyphs, freed=freed_bar, mono=app.no_color)
        if before is not None:
            figures = prospect_spans(status, before, places.figures_width, glyphs)
        else:
            figures = figure_spans(
                status,
                shown,
                places.figures_width,
                glyphs,
                freed=freed_figure,
                aside=aside,
                to_send=self.to_send,
                files_known=self.files_known,
            )
        spans = [Span(" " * places.bar, "quiet"), *bar, Span(" " * gap, "quiet"), *figures]
        return self._painter.strip(spans, width)


def alarm_of(status: StatusUpdate) -> str:
    """Return the style of bar and percentage if the window is nearly full; empty while there is room."""
    share = status.used / status.limit if status.limit > 0 else 0.0
    return "error" if share >= GRAVE_SHARE else "warn" if share >= WARN_SHARE else ""


def bar_spans(
    status: StatusUpdate,
    shown: float,
    width: int,
    glyphs: Glyphs,
    *,
    freed: FreedTokens | None,
    mono: bool,
) -> list[Span]:
    """Return the spans of the bar.

    Args:
        status: the state of the window, for segments and the mark of the compaction trigger.
        shown: tokens drawn as used; it lags behind `status.used` during the animation.
        width: cells of the bar.
        glyphs: the set of signs in use.
        freed: the tokens that a revert or compaction has just freed, to be marked; None for none.
        mono: whether the terminal has no colours, so that segments differ by glyph.
    """
    if status.limit <= 0 or width <= 0:
        return [Span(glyphs.rule * width, "free")]

    def cell(tokens: float) -> int:
        return max(0, min(width, round(tokens * width / status.limit)))

    used = cell(shown)
    if shown > 0:
        used = max(1, used)
    cells: list[Span] = [Span(glyphs.rule, "free")] * width
    if freed is not None:
        for position in range(used, max(used, cell(freed.before))):
            cells[position] = Span(glyphs.freed, _style_of(freed))
    for position, span in enumerate(_segments(status, used, glyphs, mono=mono)):
        cells[position] = span
    if status.trigger > 0:
        mark = min(width - 1, status.trigger * width // status.limit)
        cells[mark] = Span(glyphs.compaction, "mark")
    return joined(cells)


def _segments(status: StatusUpdate, used: int, glyphs: Glyphs, *, mono: bool) -> list[Span]:
    total = status.system + status.talk + status.tools
    if total <= 0:
        return [Span(glyphs.used, alarm_of(status) or "talk")] * used
    system = round(used * status.system / total)
    talk = round(used * (status.system + status.talk) / total) - system
    if status.system > 0 and system == 0 and used > 1:
        system, talk = 1, max(0, talk - 1)
    tools = used - system - talk
    kinds = (
        (system, glyphs.used_system, "system"),
        (talk, glyphs.used, "talk"),
        (tools, glyphs.used_tools, "tools"),
    )
    return [
        Span(glyph if mono else glyphs.used, alarm_of(status) or style)
        for count, glyph, style in kinds
        for _ in range(count)
    ]


def figure_spans(
    status: StatusUpdate,
    shown: float,
    width: int,
    glyphs: Glyphs,
    *,
    freed: FreedTokens | None,
    aside: str = "",
    to_send: int = 0,
    files_known: int | None = None,
) -> list[Span]:
    """Return the spans of the figures: tokens used, limit, percentage, and one extra where it fits.

    Where the limit of the window is unknown only the tokens used are shown.
    """
    used = round(shown)
    if status.limit <= 0 and used <= 0:
        return [Span(" " * width, "quiet")]
    spans: list[Span] = [Span(numbers.tokens(used, estimated=status.estimated), "strong")]
    if status.limit > 0:
        spans += [
            Span(" / ", "quiet"),
            Span(numbers.tokens(status.limit, estimated=status.limit_estimated), "quiet"),
            Span("  ", "quiet"),
            Span(numbers.percent(used, status.limit), alarm_of(status) or "ink"),
        ]
    else:
        spans.append(Span(" tokens", "quiet"))
    forms = [aside] if aside else _files_words(files_known)
    asides = [[Span(form, "quiet")] for form in forms] if freed is None else []
    for extra in asides or _extras(status, glyphs, freed, to_send):
        if spans_width(spans) + 2 + spans_width(extra) <= width:
            spans += [Span("  ", "quiet"), *extra]
            break
    return sides(spans, (), width)


def _files_words(percent: int | None) -> list[str]:
    """Return how much of the work folder is known, longest form first; nothing if that need not be said."""
    return [] if percent is None else [f"file snapshot: {percent}%", f"snapshot: {percent}%"]


def prospect_spans(
    status: StatusUpdate, before: StatusUpdate, width: int, glyphs: Glyphs
) -> list[Span]:
    """Return `58.3k → 53.7k / 262k  20%`: the present and the future use of the window; shorter if there is less room.

    Args:
        status: the window after the rewind.
        before: the window now.
        width: cells of the figures.
        glyphs: the set of signs in use.
    """
    now, then = (numbers.tokens(one.used, estimated=one.estimated) for one in (before, status))
    spans: list[Span] = [Span(now, "quiet"), Span(f" {glyphs.to} ", "quiet"), Span(then, "strong")]
    if now.lstrip("~") == then.lstrip("~"):
        is_guess = before.estimated or status.estimated
        less = numbers.change(status.used - before.used, estimated=is_guess)
        spans = [
            Span(f"{now} ", "quiet"),
            Span(less.replace(numbers.MINUS, glyphs.minus), "strong"),
        ]
    limit = Span(
        f" / {numbers.tokens(status.limit, estimated=status.limit_estimated)}",
        "quiet",
    )
    share = Span(
        f"  {numbers.percent(status.used, status.limit)}",
        alarm_of(status) or "ink",
    )
    for more in ([limit, share], [share]) if status.limit > 0 else ():
        if spans_width([*spans, *more]) <= width:
            spans += more
            break
    return sides(spans, (), width)


def _now_words(status: StatusUpdate) -> str:
    """Return the present figure, shown beside those of an earlier moment: `now 58.3k, 22%`."""
    used = numbers.tokens(status.used, estimated=status.estimated)
    if status.limit > 0:
        return f"now {used}, {numbers.percent(status.used, status.limit)}"
    return f"now {used}" if status.used > 0 else ""


def _extras(
    status: StatusUpdate, glyphs: Glyphs, freed: FreedTokens | None, to_send: int
) -> list[list[Span]]:
    """Return the extra beside the figures in all its wordings, longest first. A forecast includes the text in the prompt."""
    if freed is not None:
        change = numbers.change(freed.after - freed.before, estimated=freed.estimated)
        fall = change.replace(numbers.MINUS, glyphs.minus)
        sign = {"dmail": glyphs.dmail, "compaction": glyphs.compaction}
        return [[Span(f"{sign.get(freed.reason, glyphs.lost)} {fall}", _style_of(freed))]]
    words = forecast(status.used + to_send, status.trigger, status.per_step)
    style = alarm_of(status) or "quiet"
    forms = [words, words.removeprefix("in ")]
    extras: list[list[Span]] = [
        [Span(glyphs.compaction, "mark"), Span(f" {form}", style)] for form in forms if form
    ]
    if to_send:
        # The tokens of the draft come first where there is no room for both: the forecast includes them.
        is_over = 0 < status.limit < status.used + to_send
        more = Span(f"+{numbers.tokens(to_send, estimated=True)}", "error" if is_over else "ink")
        extras = [[more, Span("  "), *extra] for extra in extras] + [[more]] + extras
    return extras


def _style_of(freed: FreedTokens) -> str:
    """Return the style for freed tokens: that of D-Mails, of compactions, or of the user's own rewinds."""
    return freed.reason if freed.reason in ("dmail", "compaction") else "lost"


def forecast(used: int, trigger: int, per_step: int) -> str:
    """Return when the context will be compacted: `in ~9 steps`, `next step`, or `at 212k` if that is far off or unknown.

    Args:
        used: tokens in the window.
        trigger: tokens at which the context is compacted; 0 for never, which makes the text empty.
        per_step: average growth of the window, in tokens a step; 0 if unknown.
    """
    if trigger <= 0:
        return ""
    steps = FORESEEABLE_STEPS + 1
    if used >= trigger or per_step > 0:
        steps = -(-(trigger - used) // max(1, per_step))
    if steps > FORESEEABLE_STEPS:
        return f"at {numbers.rounded(trigger)}"
    return "next step" if steps <= 1 else f"in ~{steps} steps"


def details(status: StatusUpdate, cost: str = "", files_known: int | None = None) -> list[str]:
    """Return the lines of the tooltip: what fills the window, and the session's totals, with the cost if it is known."""
    files: list[str] = []
    if files_known is not None:
        files = [
            f"The first file snapshot is {files_known}% done.",
            "A rewind can restore files when it is finished.",
        ]
    if status.limit <= 0:
        return [*files, *(["The size of the context window is not known."] if status.used else [])]
    lines = [
        *files,
        f"System prompt and tools  {numbers.tokens(status.system)} tokens",
        f"Conversation  {numbers.tokens(status.talk)} tokens",
        f"Tool results  {numbers.tokens(status.tools)} tokens",
        f"Free  {numbers.tokens(max(0, status.limit - status.used))} tokens",
    ]
    if status.trigger > 0:
        lines.append(f"Compaction at {numbers.rounded(status.trigger)} tokens")
    if status.total_input or status.total_output:
        cached = numbers.tokens(status.total_cached)
        lines += [
            "",
            f"This session: input {numbers.tokens(status.total_input)} tokens ({cached} cached)",
            f"output {numbers.tokens(status.total_output)} tokens",
        ]
    if cost:
        lines.append(f"cost {cost}")
    if status.estimated:
        lines.append("~ marks an estimate, which the next answer corrects.")
    return lines

"""The gauge: one row, the rule between reading and writing. Its model comes when the session is open."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual.color import Color
from textual.geometry import Region
from textual.reactive import reactive
from textual.strip import Strip
from textual.timer import Timer
from textual.widget import Widget

from kimi_tui.tui.app_of import app_of
from kimi_tui.tui.gauge.figures import (
    Freed,
    Places,
    Usage,
    bar_spans,
    details,
    figure_spans,
    now_words,
)
from kimi_tui.tui.glyphs import glyphs_of
from kimi_tui.tui.spans import Span

if TYPE_CHECKING:
    from kimi_tui.tui.gauge.model import GaugeModel

MOVE_S = 0.4
FREED_BAR_S = 2.0
FREED_FIGURE_S = 5.0


class Gauge(Widget):
    """How full the window is. Set `model` when the session is open, call `changed` when it took in events."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "gauge--ink",
        "gauge--strong",
        "gauge--quiet",
        "gauge--system",
        "gauge--talk",
        "gauge--tools",
        "gauge--free",
        "gauge--mark",
        "gauge--warn",
        "gauge--error",
        "gauge--dmail",
        "gauge--compaction",
        "gauge--lost",
    }

    timeline_width: reactive[int] = reactive(0)
    """The width of the timeline beside the chat, 0 where it is not there: the figures stand under it."""
    shown: reactive[float] = reactive(0.0, init=False)
    """Tokens drawn as used: goes after the model's in a short motion."""

    def __init__(self) -> None:
        super().__init__()
        self._model: GaugeModel | None = None
        self.cost_words: Callable[[], str] = str
        """Tells what the session has cost so far; empty where no prices are set."""
        self._target = 0
        self._freed_serial = 0
        self._freed_bar: Freed | None = None
        self._freed_figure: Freed | None = None
        self._fall_timers: list[Timer] = []
        self._viewed: int | None = None
        self._aside = ""
        self._styles: dict[str, Style] = {}
        self._strip: Strip | None = None

    @property
    def model(self) -> GaugeModel | None:
        """What it shows; None until the session is open."""
        return self._model

    @model.setter
    def model(self, model: GaugeModel | None) -> None:
        self._model = model
        self._freed_serial = model.freed.serial if model is not None else 0
        for timer in self._fall_timers:
            timer.stop()
        self._freed_bar = self._freed_figure = None
        self.changed(motion=False)

    def changed(self, *, motion: bool = True) -> None:
        """The model took in events.

        Args:
            motion: the bar may move there; false while a history is read.
        """
        model = self._model
        if model is None:
            self.refresh()
            return
        if model.freed.serial != self._freed_serial:
            self._freed_serial = model.freed.serial
            if motion and model.freed.before > model.freed.after:
                self._mark_freed(model.freed)
        used = model.usage.used
        if used != self._target or not motion:
            was_empty = self._target == 0
            self._target = used
            still = not motion or was_empty or app_of(self).animation_level == "none"
            if still:
                self._stop_moving()
                self.shown = float(used)
            else:
                self.animate("shown", float(used), duration=MOVE_S, easing="out_cubic")
        self.refresh()

    def view(self, used: int | None) -> None:
        """Show how full the window was at another moment, and say how full it is now; None goes back to now."""
        self._viewed = used
        self.refresh()

    def remark(self, words: str) -> None:
        """Say this beside the figures, where there is room, in place of the forecast."""
        if words != self._aside:
            self._aside = words
            self.refresh()

    def skip_motion(self) -> None:
        """End any motion in its final state."""
        if self.shown != self._target:
            self._stop_moving()
            self.shown = float(self._target)

    def _stop_moving(self) -> None:
        app_of(self).animator.force_stop_animation(self, "shown")

    def _mark_freed(self, freed: Freed) -> None:
        for timer in self._fall_timers:
            timer.stop()
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
        """Hovering tells the rest; computed only now, when somebody looks."""
        usage = self._model.usage if self._model is not None else Usage()
        lines = details(usage, self.cost_words())
        self.tooltip = Text("\n".join(lines)) if lines else None

    # Drawing

    def notify_style_update(self) -> None:
        """Colours may have changed."""
        super().notify_style_update()
        self._styles.clear()
        self._strip = None

    def refresh(
        self, *regions: Region, repaint: bool = True, layout: bool = False, recompose: bool = False
    ) -> Gauge:
        """Draw anew."""
        self._strip = None
        super().refresh(*regions, repaint=repaint, layout=layout, recompose=recompose)
        return self

    def render_lines(self, crop: Region) -> list[Strip]:
        """The one line."""
        width = self.size.width
        if self._strip is None or self._strip.cell_length != width:
            self._strip = self._draw(width)
        strips = [self._strip if y == 0 else Strip.blank(width) for y in range(crop.y, crop.bottom)]
        if crop.x == 0 and crop.width == width:
            return strips
        return [strip.crop(crop.x, crop.right) for strip in strips]

    def _draw(self, width: int) -> Strip:
        model = self._model
        usage = model.usage if model is not None else Usage()
        shown = self.shown
        glyphs = glyphs_of(app_of(self))
        places = Places.of(width, self.timeline_width)
        aside = self._aside
        if self._viewed is not None:
            aside = aside or now_words(usage)
            shown, usage = float(self._viewed), replace(usage, used=self._viewed)
        spans: list[Span] = [(" " * places.bar, "quiet")]
        spans += bar_spans(
            usage,
            shown,
            places.bar_width,
            glyphs,
            freed=self._freed_bar if self._viewed is None else None,
            mono=app_of(self).no_color,
        )
        gap = places.figures - places.bar - places.bar_width
        spans.append((" " * max(0, gap), "quiet"))
        spans += figure_spans(
            usage,
            shown,
            places.figures_width,
            glyphs,
            freed=self._freed_figure if self._viewed is None else None,
            aside=aside,
        )
        strip = Strip([Segment(text, self._style(name)) for text, name in spans if text])
        strip = strip.adjust_cell_length(width, self._style("quiet"))
        background = Color.from_rich_color(self._style("quiet").bgcolor)
        for line_filter in self.get_line_filters():
            strip = strip.apply_filter(line_filter, background)
        return strip

    def _style(self, name: str) -> Style:
        style = self._styles.get(name)
        if style is None:
            over = self.get_component_rich_style(f"gauge--{name}", partial=True)
            style = self._styles[name] = self.rich_style + over
        return style

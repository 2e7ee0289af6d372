"""The drawing half of the timeline: keeps the state of the view up to date and paints it, takes no input.

Imports nothing of the wire or the engine, so that it can stand on the first screen; its model comes later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from rich.style import Style
from textual.geometry import Region, Size
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip

from kimi_tui.tui.app_of import app_of
from kimi_tui.tui.glyphs import glyphs_of
from kimi_tui.tui.scrollbar import use_thin_scrollbar
from kimi_tui.tui.timeline.drawing import Drawing
from kimi_tui.tui.timeline.points import Future, Key
from kimi_tui.tui.timeline.state import ViewState

if TYPE_CHECKING:
    from kimi_tui.tui.timeline.model import TimelineModel

FOLD_S = 0.9
SHORT_FOLD_S = 0.3
_STYLES = (
    "ink",
    "strong",
    "quiet",
    "accent",
    "user",
    "tool",
    "dmail",
    "compaction",
    "lost",
    "error",
    "line",
    "past",
    "curve",
    "ahead",
    "mark-dim",
)


class Canvas(ScrollView):
    """Draws a timeline's rows, title, curve and facts.

    Set `model` when the session is open, call `changed` when the model took in events.
    """

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        *(f"timeline--{name}" for name in _STYLES),
        "timeline--page",
        "timeline--band",
        "timeline--select",
    }

    overlay: reactive[bool] = reactive(False)
    """Whether it floats over the chat in a frame that bears its title."""
    fold_progress: reactive[float] = reactive(1.0, init=False)
    """How far the motion of the newest fold has come; 1 when nothing moves."""

    def __init__(self, *, widget_id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=widget_id, classes=classes)
        self._state = ViewState()
        self._drawing = Drawing(self._state, self._style, self.get_line_filters)
        self._styles: dict[tuple[str, str], Style] = {}
        self._fold_serial = 0
        self._seen_rows = 0

    def on_mount(self) -> None:
        """The scrollbar is as thin as everywhere."""
        use_thin_scrollbar(self, glyphs_of(app_of(self)))

    # The model

    @property
    def model(self) -> TimelineModel | None:
        """What it shows; None until the session is open."""
        return self._state.model

    @model.setter
    def model(self, model: TimelineModel | None) -> None:
        self._state.show(model)
        self._fold_serial = model.fold.serial if model is not None and model.fold else 0
        self._drawing.clear()
        self._seen_rows = 0
        self.changed()

    @property
    def selected(self) -> Key | None:
        """The row that is selected."""
        return self._state.selected

    def entitle(self, words: str) -> None:
        """Say something else than the number of steps in the title row; empty for the number again."""
        if words != self._state.title:
            self._state.title = words
            self.refresh()

    def foresee(self, future: Future) -> None:
        """Draw the curve with what is still to come; for a session that is played back."""
        self._state.future = future
        self.refresh()

    def changed(self, *, motion: bool = True) -> None:
        """The model took in events: show them; to be called at most once a frame.

        Args:
            motion: a fold may be shown in motion; false while a history is read.
        """
        model = self._state.model
        if model is not None:
            serial = model.fold.serial if model.fold is not None else 0
            if serial != self._fold_serial:
                self.skip_motion()
                self._fold_serial = serial
                if motion and model.is_fold_new:
                    self._start_fold(model)
            elif not model.is_fold_new:
                self.skip_motion()
        self._fit()
        self.refresh()

    def _fit(self, *, is_new_list: bool = False) -> None:
        """Bring the scrollable height up to date, and keep what is looked at in its place."""
        self._measure()
        state = self._state
        count = len(state.listing) if state.listing is not None else 0
        added = 0 if is_new_list else count - self._seen_rows
        self._seen_rows = count
        areas = state.areas
        height = areas.header + count + areas.footer
        if height != self.virtual_size.height:
            self.virtual_size = Size(self.size.width, height)
            if added > 0 and self.scroll_offset.y > 0:
                self.scroll_to(y=self.scroll_offset.y + added, animate=False)

    def _measure(self) -> None:
        """Tell the state the sizes of this moment."""
        state = self._state
        # `size` has the scrollbar's cell in it.
        width = self.scrollable_content_region.width
        if width != state.width:
            # It comes and goes with the number of rows, without a resize.
            self._drawing.clear()
        state.width, state.height = width, self.size.height
        state.full_width = self.size.width
        state.screen_height = app_of(self).size.height
        state.scroll_y = self.scroll_offset.y
        state.overlay = self.overlay
        state.has_focus = self.has_focus
        state.fold_progress = self.fold_progress
        state.glyphs = glyphs_of(app_of(self))

    # Motion

    def _start_fold(self, model: TimelineModel) -> None:
        fold, listing = model.fold, self._state.listing
        still = app_of(self).animation_level == "none" or not self.is_on_screen
        if fold is None or listing is None or still:
            return
        if fold.reason == "compaction" or not fold.line.points:
            return
        listing.scene = fold.line
        self.set_reactive(Canvas.fold_progress, 0.0)
        self.animate(
            "fold_progress",
            1.0,
            duration=FOLD_S if fold.reason == "dmail" else SHORT_FOLD_S,
            easing="linear",
            on_complete=self.skip_motion,
        )

    def skip_motion(self) -> None:
        """End any motion in its final state; the model has been there all the time."""
        listing = self._state.listing
        if listing is None or listing.scene is None:
            return
        listing.scene = None
        app_of(self).animator.force_stop_animation(self, "fold_progress")
        self.set_reactive(Canvas.fold_progress, 1.0)
        self._fit(is_new_list=True)
        self.refresh()

    def watch_fold_progress(self) -> None:
        """Draw the next picture of the motion."""
        self.refresh()

    # Drawing

    def notify_style_update(self) -> None:
        """Colours may have changed."""
        super().notify_style_update()
        self._styles.clear()
        self._drawing.clear()

    def watch_overlay(self) -> None:
        """Columns and areas are others in the frame."""
        self.on_resize()

    def on_resize(self) -> None:
        """Other sizes have other columns and areas."""
        self._drawing.clear()
        self._fit()
        position = self._state.selected_position()
        if position is not None:
            # What is selected stays in sight: the keys act on it.
            self._measure()
            self.scroll_to(y=self._state.scroll_to_show(position), animate=False)
        self.refresh()

    def render_lines(self, crop: Region) -> list[Strip]:
        """The lines of a region, from the cache where nothing has changed.

        Overrides the way through Textual's style cache, which would make every strip anew: so the background, the
        line filters and the crop are applied by the drawing and here.
        """
        self._measure()
        strips = self._drawing.lines(crop.y, crop.bottom)
        if crop.x == 0 and crop.width == self.size.width:
            return strips
        return [strip.crop(crop.x, crop.right) for strip in strips]

    def _style(self, name: str, ground: str) -> Style:
        style = self._styles.get((name, ground))
        if style is None:
            base = self.get_component_rich_style(f"timeline--{ground}", partial=True)
            over = self.get_component_rich_style(f"timeline--{name}", partial=True)
            # Where selection is told by reversing, other colours on it would be grounds of their own.
            style = self.rich_style + base if base.reverse else self.rich_style + base + over
            self._styles[(name, ground)] = style
        return style

"""The timeline widget: the checkpoints of a session and the world lines that were left, newest at the top.

The widget selects, scrolls, filters and folds rows, and posts messages about the user's choices. The rows come from
`projection.timeline`; `viewport` places and paints them. It is imported after the first paint.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Literal, Self

from textual import events
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.geometry import Region, Size
from textual.message import Message
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip

from kimi_tui.foreign_text import one_line
from kimi_tui.projection.timeline import TimelineModel
from kimi_tui.projection.timeline_rows import SHORT, TimelineRow
from kimi_tui.projection.timeline_tree import CheckpointNode, Key, Trial
from kimi_tui.projection.token_peaks import Future
from kimi_tui.tui.faults import blank_strips, report_of
from kimi_tui.tui.glyphs import glyphs_of
from kimi_tui.tui.painter import INKS, PaintedWidget, Painter
from kimi_tui.tui.screens import app_of
from kimi_tui.tui.scrollbar import take_height, use_thin_scrollbar
from kimi_tui.tui.slices import in_slices, run_until
from kimi_tui.tui.textual_patches.compositor import NotesDrawn, runs
from kimi_tui.tui.timeline.viewport import TimelineViewport

if TYPE_CHECKING:
    from textual.worker import Worker

    from kimi_tui.soul.rewind_values import Prospect, Target


DMAIL_MOTION_S = 0.9
REVERT_MOTION_S = 0.3
FILTER_CHARS = 200
"""The largest number of characters of a paste that go into the filter."""
_SLICE_S = 0.002
_AT_ONCE = 150
"""Checkpoints that a filter searches in one step, before keys are handled: most sessions have no more."""
_STYLES = (
    *INKS,
    "user",
    "lost",
    "ok",
    "warn",
    # These are backgrounds.
    "page",
    "band",
    "select",
    # These are colours of the curve, and of texts beside it.
    "line",
    "past",
    "curve",
    "ahead",
    "mark-dim",
)

FilterState = Literal["", "begun", "typed", "missed", "kept"]
RowAction = Literal["bookmark", "pin", "read", "summary"]


class Timeline(PaintedWidget, NotesDrawn, ScrollView, can_focus=True):
    """The list of checkpoints, with the token curve above and the details of the selected row below.

    `show_model` shows another session; `changed` draws the model's state after it has applied events.
    """

    FOCUS_ON_CLICK = False
    """False: a click acts on a row and leaves the focus in the prompt, so that text typed after it is no key here."""
    COMPONENT_CLASSES: ClassVar[set[str]] = {f"timeline--{name}" for name in _STYLES}
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "Newer", id="timeline.up", show=False),
        Binding("down,j", "move(1)", "Older", id="timeline.down", show=False),
        Binding("pageup", "page(-1)", "Page up", id="timeline.page_up", show=False),
        Binding("pagedown", "page(1)", "Page down", id="timeline.page_down", show=False),
        Binding("home", "edge(-1)", "Now", id="timeline.newest", show=False),
        Binding("end", "edge(1)", "Beginning", id="timeline.oldest", show=False),
        Binding(
            "left_square_bracket", "turn(1)", "Turn before", id="timeline.older_turn", show=False
        ),
        Binding(
            "right_square_bracket", "turn(-1)", "Turn after", id="timeline.newer_turn", show=False
        ),
        Binding(
            "left_curly_bracket",
            "branch(1)",
            "Branch before",
            id="timeline.older_branch",
            show=False,
        ),
        Binding(
            "right_curly_bracket",
            "branch(-1)",
            "Branch after",
            id="timeline.newer_branch",
            show=False,
        ),
        Binding("enter", "choose", "Preview", id="timeline.choose", show=False),
        Binding("space", "fold", "Unfold", id="timeline.fold", show=False),
        Binding("slash", "filter", "Filter", id="timeline.filter", show=False),
        # These are commands of the main screen; a replay has none, so these keys do nothing there.
        Binding("u", "screen.command('undo')", "Undo", id="timeline.undo", show=False),
        Binding("U", "screen.command('redo')", "Redo", id="timeline.redo", show=False),
        Binding("b", "act('bookmark')", "Bookmark", id="timeline.bookmark", show=False),
        Binding("P", "act('pin')", "Pin", id="timeline.pin", show=False),
        Binding("w", "act('read')", "Read", id="timeline.read", show=False),
        Binding("p", "screen.command('replay')", "Replay", id="timeline.replay", show=False),
        Binding("question_mark", "keys", "Keys", id="timeline.keys", show=False),
        # The key would otherwise change the mode, although from here it should lead back.
        Binding(
            "shift+tab",
            "screen.go_round(-1)",
            "Round, the other way",
            show=False,
        ),
        Binding("escape", "leave", "Close", id="timeline.leave", show=False),
    ]

    overlay: reactive[bool] = reactive(False)
    """Whether the timeline floats over the chat, in a frame with its title."""
    revert_progress: reactive[float] = reactive(1.0, init=False)
    """Progress of the animation of the newest revert, from 0 to 1; 1 when none is running."""

    class CheckpointChosen(Message):
        """A checkpoint was clicked, or Enter pressed on it: a rewind to it is to be previewed."""

        def __init__(self, target: Target) -> None:
            super().__init__()
            self.target = target

    class RowActed(Message):
        """A key was pressed for the selected row.

        Attributes:
            action: `bookmark` or `pin` its checkpoint, `read` its world line or `summary`.
            target: the row's checkpoint, with the id -1 where the row is that of a whole world line.
            uid: the uid of the checkpoint, or that under which the line's name is stored; empty if there is none.
        """

        def __init__(self, action: RowAction, target: Target, uid: str) -> None:
            super().__init__()
            self.action = action
            self.target = target
            self.uid = uid

    class RowHighlighted(Message):
        """A row was selected. `prospect` is what a rewind to it would leave; None when no row is selected any more."""

        def __init__(self, prospect: Prospect | None) -> None:
            super().__init__()
            self.prospect = prospect

    class GrowingChosen(Message):
        """A future that has no world line yet was chosen; `key` names it."""

        def __init__(self, key: str) -> None:
            super().__init__()
            self.key = key

    class FutureChosen(Message):
        """A checkpoint that a replay has not reached yet was clicked on the curve; `uid` names it."""

        def __init__(self, uid: str) -> None:
            super().__init__()
            self.uid = uid

    class FilterChanged(Message):
        """The filter was opened, changed or closed; the keys have another meaning now."""

    class MissedChosen(Message):
        """Enter was pressed on a filter that finds nothing; `needle` is its text."""

        def __init__(self, needle: str) -> None:
            super().__init__()
            self.needle = needle

    class Left(Message):
        """The user left the timeline."""

    def __init__(self) -> None:
        super().__init__()
        self._painter = Painter(self, "timeline")
        self._view = TimelineViewport(self._painter.strip)
        self._drawn: dict[int, Strip] = {}
        """The lines as they are on the screen."""
        self._made: tuple[int, list[Strip]] = 0, []
        """The lines that were rendered last, and the position of the first of them."""
        self._ready: tuple[object, list[Strip]] | None = None
        """The lines to be drawn next, with the sizes for which they were made; None where something else has changed since."""
        self._revert_serial = 0
        self._seen_rows = 0
        # The scroll position of the list, and its size at that time: other sizes show other rows, and going back restores these.
        self._kept_y = 0
        self._kept_size: Size | None = None
        self._before_filter: Key | None = None
        """The row that was selected when the filter was begun."""
        self._searching: Worker[None] | None = None
        self._settling: Worker[None] | None = None

    def on_mount(self) -> None:
        """Use the thin scrollbar."""
        use_thin_scrollbar(self, glyphs_of(self))

    def on_unmount(self) -> None:
        """Drop the model: Textual may keep the widget alive longer than it shows it."""
        self._view.show(TimelineModel())

    # --- the model

    @property
    def model(self) -> TimelineModel:
        """The model that is shown. Call `changed` after it has applied events."""
        return self._view.listing.model

    def show_model(self, model: TimelineModel) -> None:
        """Show another model, with nothing selected."""
        self.hide_prospect()
        # The states of futures are not among the events from which a model is made anew.
        model.show_futures(
            one for key, one in self.model.futures.items() if key not in model.futures
        )
        self._view.show(model)
        self._revert_serial = model.revert.serial if model.revert else 0
        self._seen_rows = 0
        self.changed()

    def set_title(self, words: str) -> None:
        """Set the text of the title row; empty for the number of steps."""
        if words != self._view.title:
            self._view.title = words
            self.refresh()

    @property
    def reading(self) -> str:
        """The text in the empty list while a session is being read; empty for none."""
        return self._view.reading

    @reading.setter
    def reading(self, words: str) -> None:
        self._view.reading = words
        self.refresh()

    def show_upcoming(self, future: Future) -> None:
        """Draw checkpoints that a replay has not reached yet in the token curve."""
        self._view.future = future
        self.refresh()

    def show_trials(self, trials: Mapping[str, Trial], at: str = "") -> None:
        """Mark checkpoints of the current line with what a search has found out, by their uids, and show one of them."""
        self.model.show_trials(trials)
        self.changed(motion=False)
        point = next((one for one in self.model.tree.live if one.uid == at), None)
        if point is not None:
            self.select_checkpoint(point)

    def changed(self, *, motion: bool = True) -> None:
        """Draw the model's state after it has applied events: at most once a frame, after a jump when its rows are built.

        Args:
            motion: whether a revert may be animated; false while a history is read.
        """
        if self._settling is not None:
            self._settling.cancel()
            self._settling = None
        model = self.model
        if self._view.n_missing > _AT_ONCE and self.is_running:
            # A long line, or what a compaction replaced, may take longer than a key should have to wait.
            self._settling = self.run_worker(partial(self._settle, model, motion), group="settle")
        else:
            self._draw(motion=motion)

    async def _settle(self, model: TimelineModel, motion: bool) -> None:
        with self._faults_reported():
            await in_slices(self._view.settle(), _SLICE_S)
        self._settling = None
        if model is self.model:
            self._draw(motion=motion)

    def _draw(self, *, motion: bool) -> None:
        """Repaint the lines that changed: a few for an event within a turn."""
        with self._faults_reported():
            self._move_reverted(motion=motion)
            self._fit()
            strips = self._view.lines(0, self._view.height)
            changed = [y for y, strip in enumerate(strips) if self._drawn.get(y) != strip]
            width = self._view.width
            if regions := [Region(0, rows.start, width, len(rows)) for rows in runs(changed)]:
                self.refresh(*regions)
            self._ready = self._view.sizes, strips
            if self._view.selected is not None and self._view.selected_position() is None:
                # The selected row was removed. Searching it at every frame would take long.
                self.select(None)

    def refresh(
        self,
        *regions: Region,
        repaint: bool = True,
        layout: bool = False,
        recompose: bool = False,
    ) -> Self:
        """Request a repaint, for which the lines are made anew."""
        self._ready = None
        return super().refresh(*regions, repaint=repaint, layout=layout, recompose=recompose)

    @contextmanager
    def _faults_reported(self) -> Generator[None]:
        """Report exceptions within this context: rows that could not be built are left out."""
        try:
            yield
        except Exception as error:
            report_of(self)(error)
            self.refresh()

    def show_whole(self, model: TimelineModel) -> None:
        """Show the whole session after only its end was shown; the selection stays."""
        row, top = self._view.selected_row(), self.scroll_offset.y
        filtering = self._view.filtering
        self.show_model(model)
        self._view.filtering = filtering
        # The newest row is at the top, so rows that are new to the screen are below.
        self.scroll_to(y=top, animate=False)
        if row is None:
            return
        if row.checkpoint is None or row.line is not None:
            self.select(row.key)
        elif (index := model.find(row.checkpoint.uid, row.checkpoint.id)) is not None:
            self.select_checkpoint(model.tree.live[index])

    # --- the animation of a revert: dropped rows disappear one by one; the model is in its final state all the time

    def _move_reverted(self, *, motion: bool) -> None:
        model = self.model
        serial = model.revert.serial if model.revert is not None else 0
        if serial != self._revert_serial:
            self.skip_motion()
            self._revert_serial = serial
            if motion and model.is_revert_new:
                self._start_motion(model)
        elif not model.is_revert_new:
            self.skip_motion()

    def _start_motion(self, model: TimelineModel) -> None:
        revert = model.revert
        if revert is None or revert.reason == "compaction" or not revert.line.checkpoints:
            return
        if app_of(self).animation_level == "none" or not self.is_on_screen:
            return
        self._view.listing.scene = revert.line
        self.set_reactive(Timeline.revert_progress, 0.0)
        self.animate(
            "revert_progress",
            1.0,
            duration=DMAIL_MOTION_S if revert.reason == "dmail" else REVERT_MOTION_S,
            easing="linear",
            on_complete=self.skip_motion,
        )

    def skip_motion(self) -> None:
        """End the animation of a revert in its final state."""
        listing = self._view.listing
        if listing.scene is None:
            return
        listing.scene = None
        app_of(self).animator.force_stop_animation(self, "revert_progress")
        self.set_reactive(Timeline.revert_progress, 1.0)
        self._fit(is_new_list=True)
        self.refresh()

    def watch_revert_progress(self) -> None:
        """Draw the next frame of the animation."""
        self.refresh()

    # --- sizes and scrolling

    def _measure(self) -> None:
        """Set the sizes and the state of the widget in the viewport."""
        view = self._view
        # `size` includes the scrollbar's cell.
        width = self.scrollable_content_region.width
        if width != view.width:
            # The scrollbar comes and goes with the number of rows, without a resize.
            self._view.clear()
        view.width, view.height = width, self.size.height
        view.full_width = self.size.width
        app = app_of(self)
        view.screen_height = app.size.height
        view.scroll_y = self.scroll_offset.y
        view.overlay = self.overlay
        view.has_focus = self.has_focus
        view.revert_progress = self.revert_progress
        view.glyphs = glyphs_of(app)

    def _fit(self, *, is_new_list: bool = False) -> None:
        """Update the scrollable height, and keep the visible rows in place."""
        self._measure()
        count = len(self._view.listing)
        added = 0 if is_new_list else count - self._seen_rows
        self._seen_rows = count
        areas = self._view.areas
        height = areas.header + count + areas.footer
        if height != self.virtual_size.height:
            is_past_end = self.scroll_y > max(0, height - self.size.height)
            if is_past_end or not take_height(self, height, self.scroll_y):
                self.virtual_size = Size(self.size.width, height)
            if added > 0 and self.scroll_offset.y > 0:
                kept = self._kept_y + added
                self.scroll_to(y=self.scroll_offset.y + added, animate=False)
                self._kept_y = kept
            self._measure()

    def watch_overlay(self) -> None:
        """Lay out columns and areas again, which differ in the floating frame."""
        self.on_resize()

    def on_resize(self) -> None:
        """Lay out columns and areas for the new size. The visible rows stay visible, as far as there is room."""
        self._kept_size = None
        self._view.clear()
        self._fit()
        view = self._view
        view.scroll_y = min(self._kept_y, self.max_scroll_y)
        position = view.selected_position()
        if position is not None:
            # The selected row stays visible, as the keys act on it.
            view.scroll_y = view.scroll_to_show(position)
        self.scroll_to(y=view.scroll_y, animate=False)
        self._kept_size = self.size
        self.refresh()

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Store the scroll position, unless it differs only because there is less room for the moment."""
        super().watch_scroll_y(old_value, new_value)
        if self.size == self._kept_size:
            self._kept_y = round(new_value)

    # --- drawing

    def notify_style_update(self) -> None:
        """Forget the colours of the painter: called by Textual when they may have changed."""
        super().notify_style_update()
        self._ready = None
        self._view.clear()

    def render_lines(self, crop: Region) -> list[Strip]:
        """Return the strips of a region, from the cache if nothing has changed.

        Overrides Textual's style cache, which would make every strip anew: so the background and the line filters are
        applied by the painter, and the crop here.
        """
        try:
            self._measure()
            ready = self._ready
            if ready is not None and ready[0] == self._view.sizes:
                strips = ready[1][crop.y : crop.bottom]
            else:
                strips = self._view.lines(crop.y, crop.bottom)
        except Exception:
            return blank_strips("the timeline", crop)
        self._made = crop.y, strips
        if crop.x == 0 and crop.width == self.size.width:
            return strips
        return [strip.crop(crop.x, crop.right) for strip in strips]

    def note_drawn(self) -> None:
        """Note that the lines that were rendered last are on the screen."""
        top, strips = self._made
        self._drawn.update(enumerate(strips, top))

    # --- selecting

    def on_focus(self) -> None:
        """Select a row if none is selected, as the keys need one."""
        self._measure()
        if self._view.selected is None:
            self.action_move(0)
        self._look()
        self.refresh()

    def on_blur(self) -> None:
        """Hide the prospect, and draw the selected row without the accent."""
        self._view.shows_keys = False
        self.hide_prospect()

    @property
    def is_on_future(self) -> bool:
        """Whether the selected row is a future that runs, which is read instead of previewed."""
        row = self._view.selected_row() if self._view.selected is not None else None
        return row is not None and row.future is not None

    def hide_prospect(self) -> None:
        """End the prospect of a rewind to the selected row."""
        if self._view.looking:
            self._view.looking = False
            self.post_message(self.RowHighlighted(None))
            self.refresh()

    def _look(self) -> None:
        """Show the prospect of a rewind to the selected row."""
        view = self._view
        if view.selected is None:
            self.hide_prospect()
        else:
            view.looking = True
            self.post_message(self.RowHighlighted(_prospect_of(view.selected_row(), self.model)))

    def select(self, key: Key | None) -> None:
        """Select a row by its key, and make it visible; None, or a key without a row, clears the selection."""
        self._measure()
        view = self._view
        position = view.listing.position(key)
        key = key if position is not None else None
        if key != view.selected:
            view.selected = key
            self._fit()
            if view.looking or self.has_focus:
                self._look()
        if position is not None:
            y = view.scroll_to_show(position)
            if y != view.scroll_y:
                self.scroll_to(y=y, animate=False)
        self.refresh()

    def select_checkpoint(self, checkpoint: CheckpointNode) -> None:
        """Select a checkpoint of the live line, or the turn that it is folded into."""
        position = self._view.listing.position_of(checkpoint)
        if position is not None:
            self.select(self._view.listing.key(position))

    def action_move(self, step: int) -> None:
        """Select the row above or below; the newest turn if nothing is selected."""
        position, listing = self._view.selected_position(), self._view.listing
        if position is not None:
            self.select(listing.near(position + step, step))
        elif len(listing):
            self.select(listing.near(listing.turn(-1, 1) or 0, 1))

    def action_page(self, step: int) -> None:
        """Go a page up or down."""
        view = self._view
        page = max(1, view.areas.list_height - 2)
        self.select(view.listing.near((view.selected_position() or 0) + step * page, step))

    def action_edge(self, step: int) -> None:
        """Go to now, or to the beginning."""
        listing = self._view.listing
        self.select(listing.near(len(listing) - 1 if step > 0 else 0, -step))

    def action_turn(self, step: int) -> None:
        """Go to the turn above or below."""
        position, listing = self._view.selected_position(), self._view.listing
        found = listing.turn(-1 if position is None else position, step)
        if found is not None:
            self.select(listing.near(found, step))

    def action_branch(self, step: int) -> None:
        """Select the next row above (-1) or below (1) that shows a world line's name."""
        position, listing = self._view.selected_position(), self._view.listing
        found = listing.branch(-1 if position is None else position, step)
        if found is not None:
            self.select(listing.near(found, step))

    # --- actions on the selected row

    def action_choose(self) -> None:
        """Preview a rewind to the selected checkpoint, read the selected world line, or leave at the row for the present."""
        row = self._view.selected_row()
        if row is not None and row.names_line:
            self._act("read", row)
        elif row is not None:
            self._open(row)
        elif self._view.selected is not None:
            self.action_leave()

    def _open(self, row: TimelineRow) -> None:
        checkpoint, line = row.checkpoint, row.line
        if row.future is not None:
            self.post_message(self.GrowingChosen(row.future.key))
        elif checkpoint is not None and checkpoint.is_summary and line is None and row.said < 0:
            self._act("summary", row)
        elif row.kind in ("checkpoint", "said"):
            self.post_message(self.CheckpointChosen(_target_of(row)))
        else:
            self._fold(row)

    def action_act(self, action: RowAction) -> None:
        """Bookmark or pin the selected checkpoint, or read its world line."""
        row = self._view.selected_row()
        if row is not None:
            self._act(action, row)

    def _act(self, action: RowAction, row: TimelineRow) -> None:
        if action == "read" and row.future is not None:
            self._open(row)
            return
        uid = row.checkpoint.uid if row.checkpoint is not None else ""
        if action == "bookmark" and row.line is not None and row.checkpoint is None:
            uid = row.line.mark
        self.post_message(self.RowActed(action, _target_of(row), uid))

    def action_fold(self) -> None:
        """Fold or unfold the selected turn or world line."""
        row = self._view.selected_row()
        if row is not None:
            self._fold(row)

    def _fold(self, row: TimelineRow) -> None:
        model = self.model
        if model.rows.needle or row.future is not None:
            return
        with self._faults_reported():
            key = model.toggle(row)
            self._fit(is_new_list=True)
            if key is not None:
                self.select(key)
                self._show_unfolded(row)

    def _show_unfolded(self, row: TimelineRow) -> None:
        """Scroll to the first step of a compacted line, whose steps are below its name."""
        view = self._view
        position = view.selected_position()
        if row.kind != "base" or position is None:
            return
        self._measure()
        y = view.scroll_to_show(min(position + SHORT, len(view.listing) - 1))
        self.scroll_to(y=min(y, position), animate=False)

    def action_keys(self) -> None:
        """Show the keys instead of the list."""
        self._view.shows_keys = True
        self.refresh()

    def action_leave(self) -> None:
        """Remove the filter; without one, leave the timeline."""
        if self._view.is_filtered:
            self._end_filter("")
            return
        self.select(None)
        self.post_message(self.Left())

    # --- the filter

    def end_filter(self) -> None:
        """Show all rows again."""
        self._end_filter("")

    @property
    def needle(self) -> str:
        """The text of the filter that is typed."""
        return self.model.rows.typed

    @property
    def filter_state(self) -> FilterState:
        """The state of the filter: none, begun and still empty, typed with matches, without a match (missed), or kept."""
        view = self._view
        if not view.filtering:
            return "kept" if view.is_filtered else ""
        if not self.model.rows.typed:
            return "begun"
        return "typed" if len(view.listing) else "missed"

    @property
    def takes_any_letter(self) -> bool:
        """Whether a filter is being typed, or the keys are shown until one is pressed."""
        return self._view.filtering or self._view.shows_keys

    def action_filter(self) -> None:
        """Begin to type a filter."""
        if not self._view.is_filtered:
            self._before_filter = self._view.selected
        self._view.filtering = True
        self._fit(is_new_list=True)
        self.refresh()
        self.post_message(self.FilterChanged())

    def _end_filter(self, needle: str) -> None:
        view = self._view
        if not needle and (view.filtering or view.selected is None):
            # A row that was only found on the way was not the user's choice.
            view.selected = self._before_filter
        view.filtering = False
        self._set_filter(needle)
        self.post_message(self.FilterChanged())

    def _begins_filter(self, key: str) -> bool:
        """Return whether the key begins a filter.

        Textual runs the bindings when the key has gone up to the app; keys that were typed in the same moment are here by
        then, and would not reach the filter.
        """
        found = self.screen.active_bindings.get(key)
        return found is not None and found.node is self and found.binding.action == "filter"

    def _set_filter(self, needle: str) -> None:
        """Show only rows that contain the text. A long session is searched in slices, so that no key has to wait for it."""
        model = self.model
        if self._searching is not None:
            self._searching.cancel()
        steps = model.search(needle)
        with self._faults_reported():
            if run_until(steps, time.perf_counter() + _SLICE_S, at_least=_AT_ONCE):
                work = partial(self._search, model, steps)
                self._searching = self.run_worker(work, group="search")
                self.refresh()
                return
        self._show_found()

    async def _search(self, model: TimelineModel, steps: Generator[None]) -> None:
        with self._faults_reported():
            await in_slices(steps, _SLICE_S)
        if model is self.model:
            self._show_found()

    def _show_found(self) -> None:
        view = self._view
        self._fit(is_new_list=True)
        if view.selected_position() is None:
            view.selected = None
            self.select(view.listing.near(0, 1))
        else:
            self.select(view.selected)
        if self.has_focus:
            self._look()
        if view.filtering:
            self.post_message(self.FilterChanged())

    def _filter_key(self, event: events.Key, needle: str) -> bool:
        """Handle a key while a filter is typed; return whether it is one of the filter's."""
        if event.key == "escape":
            self._end_filter("")
        elif event.key in ("enter", "up", "down"):
            if self.filter_state != "missed":
                self._end_filter(needle)
            elif event.key == "enter":
                # There is no row to go to: after a slash the text may be a command; otherwise it can be edited.
                self.post_message(self.MissedChosen(needle))
        elif event.key == "backspace":
            self._set_filter(needle[:-1])
        elif event.key == "ctrl+u":
            self._set_filter("")
        elif event.is_printable and event.character is not None:
            self._set_filter(needle + event.character)
        else:
            return False
        return True

    # --- keys and mouse

    def on_key(self, event: events.Key) -> None:
        """Handle keys of the filter; any key ends a temporary display."""
        view = self._view
        self.skip_motion()
        if view.shows_keys:
            view.shows_keys = False
            self.refresh()
        elif view.filtering:
            if not self._filter_key(event, self.model.rows.typed):
                return
        elif self._begins_filter(event.key):
            self.action_filter()
        else:
            return
        event.stop()
        event.prevent_default()

    def on_paste(self, event: events.Paste) -> None:
        """Append a paste to the filter while one is typed."""
        if self._view.filtering:
            event.stop()
            self._set_filter(self.model.rows.typed + one_line(event.text)[:FILTER_CHARS])

    def on_click(self, event: events.Click) -> None:
        """Open the clicked row; on the curve select the checkpoint, on a turn's mark fold the turn."""
        self.skip_motion()
        self._measure()
        view = self._view
        view.shows_keys = False
        if event.y < view.areas.header:
            self._click_curve(event.x - 1, event.y)
            return
        position = view.position_at(event.y)
        if position is None:
            self.refresh()
            return
        key, row = view.listing.key(position), view.listing.row(position)
        if key is None:
            return
        self.select(key)
        self._look()
        if row is None:
            return
        is_turn = row.checkpoint is not None and row.checkpoint.is_heading and row.line is None
        if is_turn and event.x < view.columns.number:
            self._fold(row)
        else:
            self._open(row)

    def _click_curve(self, column: int, y: int) -> None:
        areas, model, curve = self._view.areas, self.model, self._view.curve
        if not areas.curve or y < areas.header - areas.curve - 2:
            return
        if not 0 <= column < len(curve):
            return
        clicked = curve[column]
        if clicked.is_ahead:
            self.post_message(self.FutureChosen(clicked.checkpoint.uid))
        elif not clicked.is_past:
            self.select_checkpoint(clicked.checkpoint)
        elif (key := model.reveal(clicked.checkpoint)) is not None:
            self._fit(is_new_list=True)
            self.select(key)
        self._look()

    def on_mouse_move(self, event: events.MouseMove) -> None:
        """Highlight the row under the pointer."""
        position = self._view.position_at(event.y)
        self._hover(self._view.listing.key(position) if position is not None else None)

    def on_leave(self) -> None:
        """Highlight no row: the pointer left the timeline."""
        self._hover(None)

    def _hover(self, key: Key | None) -> None:
        view = self._view
        if key == view.hovered:
            return
        view.hovered = key
        # If the foot has no room for the details, or shows those of the selected row, they float at the pointer.
        is_told = bool(view.areas.footer) and view.selected in (None, key)
        lines = [] if key is None or is_told else self._view.details(key)
        words = ["".join(span.text for span in line) for line in lines]
        self.tooltip = Content("\n".join(words)) if words else None
        self.refresh()


def _target_of(row: TimelineRow | None) -> Target:
    """Return the row's checkpoint for the engine, with the id -1 if the row stands for a whole line, or for now (None)."""
    from kimi_tui.soul.rewind_values import Target

    if row is None:
        return Target(-1)
    checkpoint, line = row.checkpoint, row.line
    return Target(
        checkpoint.id if checkpoint is not None else -1,
        line.n if line is not None else 0,
        row.said,
    )


def _prospect_of(row: TimelineRow | None, model: TimelineModel) -> Prospect:
    """Return the prospect of a rewind to this row, or to its line, as the preview computes it; for None the present state."""
    from kimi_tui.soul.rewind_values import Prospect

    target = _target_of(row)
    if row is None:
        return Prospect(target)
    checkpoint, line = row.checkpoint, row.line
    if checkpoint is None:
        return Prospect(target, line.tokens_before or None if line is not None else None, True)
    if line is not None:
        return Prospect(target, checkpoint.tokens, True)
    if not (checkpoint.tokens or checkpoint.measured):
        return Prospect(target)
    is_guess = model.estimated or not checkpoint.measured
    return Prospect(target, model.used - model.frees(checkpoint), is_guess)

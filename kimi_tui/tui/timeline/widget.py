"""The timeline: turns keys and clicks into selection, folding and messages.

Imports nothing of the wire or the engine, so that it can stand on the first screen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.message import Message

from kimi_tui.tui.timeline.building import SHORT, Row
from kimi_tui.tui.timeline.points import Key
from kimi_tui.tui.timeline.selecting import SelectingCanvas

if TYPE_CHECKING:
    from kimi_tui.soul.protocol import Target


_NAMES = frozenset({"line", "foot", "base"})
"""The rows that bear the name of a world line."""


class Timeline(SelectingCanvas, can_focus=True):
    """The line of checkpoints, newest at the top.

    Set `model` when the session is open, call `changed` when the model took in events.
    """

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
        Binding("enter", "choose", "Preview", id="timeline.choose", show=False),
        Binding("space", "fold", "Unfold", id="timeline.fold", show=False),
        Binding("slash", "filter", "Filter", id="timeline.filter", show=False),
        Binding("u", "undo", "Undo", id="timeline.undo", show=False),
        Binding("U", "redo", "Redo", id="timeline.redo", show=False),
        Binding("b", "wish('bookmark')", "Bookmark", id="timeline.bookmark", show=False),
        Binding("P", "wish('pin')", "Pin", id="timeline.pin", show=False),
        Binding("w", "wish('read')", "Read", id="timeline.read", show=False),
        Binding("p", "replay", "Replay", id="timeline.replay", show=False),
        Binding("question_mark", "keys", "Keys", id="timeline.keys", show=False),
        Binding("escape", "leave", "Close", id="timeline.leave", show=False),
    ]

    class CheckpointChosen(Message):
        """The person wants to see what a rewind to this checkpoint would do."""

        def __init__(self, timeline: Timeline, target: Target) -> None:
            super().__init__()
            self.timeline = timeline
            self.target = target

        @property
        def control(self) -> Timeline:
            """The timeline."""
            return self.timeline

    class Wished(Message):
        """Something else is wanted of a row: `read` its world line or `summary`, `bookmark` or `pin` its checkpoint.

        `target` is the row's checkpoint, with the id -1 where the row stands for a whole line.
        """

        def __init__(self, wish: str, target: Target, uid: str) -> None:
            super().__init__()
            self.wish = wish
            self.target = target
            self.uid = uid

    class UndoRequested(Message):
        """The newest operation should be undone."""

    class RedoRequested(Message):
        """What was undone last should be done again."""

    class ReplayRequested(Message):
        """The session should be played back."""

    class FutureChosen(Message):
        """The person clicked on what is still to come; `uid` names the checkpoint there."""

        def __init__(self, uid: str) -> None:
            super().__init__()
            self.uid = uid

    class Left(Message):
        """The person is done with the timeline."""

    # Actions

    def action_choose(self) -> None:
        """Ask for the preview of the selected checkpoint; a world line is opened to be read."""
        row = self._selected_row()
        if row is not None and row.kind in _NAMES:
            self._wish("read", row)
        elif row is not None:
            self._open(row)

    def action_wish(self, wish: str) -> None:
        """Tell what is wanted of the selected row."""
        row = self._selected_row()
        if row is not None:
            self._wish(wish, row)

    def _wish(self, wish: str, row: Row) -> None:
        from kimi_tui.soul.protocol import Target

        point = row.point
        n = row.line.n if row.line is not None else 0
        target = Target(point.id if point is not None else -1, n)
        self.post_message(self.Wished(wish, target, point.uid if point is not None else ""))

    def _open(self, row: Row) -> None:
        if row.point is not None and row.point.is_summary and row.line is None:
            self._wish("summary", row)
        elif row.kind == "point" and row.point is not None:
            from kimi_tui.soul.protocol import Target

            target = Target(row.point.id, row.line.n if row.line is not None else 0)
            self.post_message(self.CheckpointChosen(self, target))
        else:
            self._fold(row)

    def action_fold(self) -> None:
        """Fold or unfold the selected turn or world line."""
        row = self._selected_row()
        if row is not None:
            self._fold(row)

    def _fold(self, row: Row) -> None:
        model = self._state.model
        if model is None or model.rows.needle:
            return
        key = model.toggle(row)
        self._fit(is_new_list=True)
        if key is not None:
            self.select(key)
            self._show_unfolded(row)

    def _show_unfolded(self, row: Row) -> None:
        """The steps of a compacted line stand below its name: bring the first of them into view."""
        state = self._state
        position = state.selected_position()
        if row.kind != "base" or state.listing is None or position is None:
            return
        self._measure()
        y = state.scroll_to_show(min(position + SHORT, len(state.listing) - 1))
        self.scroll_to(y=min(y, position), animate=False)

    def action_undo(self) -> None:
        """Ask for the undoing of the newest operation."""
        self.post_message(self.UndoRequested())

    def action_redo(self) -> None:
        """Ask for the newest undone operation to be done again."""
        self.post_message(self.RedoRequested())

    def action_replay(self) -> None:
        """Ask for the session to be played back."""
        self.post_message(self.ReplayRequested())

    def action_keys(self) -> None:
        """Show the keys in place of the list."""
        self._state.show_keys = True
        self.refresh()

    def action_leave(self) -> None:
        """Take the filter away, or else leave."""
        if self._state.is_filtered:
            self._end_filter("")
            return
        self.select(None)
        self.post_message(self.Left())

    # Keys and mouse

    def on_key(self, event: events.Key) -> None:
        """Keys of the filter; any key ends what is shown only for a moment."""
        state = self._state
        self.skip_motion()
        if state.show_keys:
            state.show_keys = False
            self.refresh()
        elif state.filtering and state.model is not None:
            if not self._filter_key(event, state.model.rows.typed):
                return
        elif self._begins_filter(event.key):
            self.action_filter()
        else:
            return
        event.stop()
        event.prevent_default()

    def on_click(self, event: events.Click) -> None:
        """A click on a row opens it, on the curve selects there, on a turn's mark folds the turn."""
        self.skip_motion()
        self._measure()
        state = self._state
        state.show_keys = False
        if event.y < state.areas.header:
            self._click_curve(event.x - 1, event.y)
            return
        position = state.position_at(event.y)
        if position is None or state.listing is None:
            self.refresh()
            return
        key, row = state.listing.key(position), state.listing.row(position)
        if key is None:
            return
        self.select(key)
        if row is None:
            return
        is_turn = row.point is not None and row.point.is_heading and row.line is None
        if is_turn and event.x < state.columns.number:
            self._fold(row)
        else:
            self._open(row)

    def _click_curve(self, column: int, y: int) -> None:
        areas, model = self._state.areas, self._state.model
        curve = self._drawing.curve
        if not areas.curve or y < areas.header - areas.curve - 2 or model is None:
            return
        if not 0 <= column < len(curve):
            return
        if curve[column].is_ahead:
            self.post_message(self.FutureChosen(curve[column].point.uid))
            return
        if not curve[column].is_past:
            self.select_point(curve[column].point)
            return
        key = model.reveal(curve[column].point)
        if key is not None:
            self._fit(is_new_list=True)
            self.select(key)

    def on_mouse_move(self, event: events.MouseMove) -> None:
        """The row under the pointer has a band."""
        state = self._state
        position = state.position_at(event.y)
        listing = state.listing
        key = listing.key(position) if listing is not None and position is not None else None
        self._hover(key)

    def on_leave(self) -> None:
        """No row is under the pointer."""
        self._hover(None)

    def _hover(self, key: Key | None) -> None:
        state = self._state
        if key == state.hovered:
            return
        state.hovered = key
        # Where the foot has no room for the facts, or tells those of the selected row, they float at the pointer.
        is_told = bool(state.areas.footer) and state.selected in (None, key)
        lines = [] if key is None or is_told else self._drawing.facts(key)
        words = ["".join(text for text, _ in line) for line in lines]
        self.tooltip = Content("\n".join(words)) if words else None
        self.refresh()

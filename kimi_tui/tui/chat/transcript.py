"""The chat as the person acts on it: keys and clicks on its blocks, told to the screen in messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message

from kimi_tui.tui.chat.following import FollowingSurface
from kimi_tui.tui.chat.lines import HIT_CHECKPOINT, HIT_FOLD, HIT_LINK

if TYPE_CHECKING:
    from kimi_tui.tui.chat.blocks import Block
    from kimi_tui.tui.chat.flow import View


class Transcript(FollowingSurface):
    """The conversation. Follows its end until the person scrolls up.

    Args:
        work_dir: paths below it are shown relative to it.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "left_square_bracket", "turn(-1)", "Turn before", id="chat.turn_before", show=False
        ),
        Binding("right_square_bracket", "turn(1)", "Turn after", id="chat.turn_after", show=False),
        Binding("k", "choose(-1)", "Block above", id="chat.above", show=False),
        Binding("j", "choose(1)", "Block below", id="chat.below", show=False),
        Binding("space", "fold", "Unfold", id="chat.fold", show=False),
        Binding("enter", "preview", "Preview", id="chat.preview", show=False),
        Binding("P", "pin", "Pin", id="chat.pin", show=False),
    ]

    class CheckpointClicked(Message):
        """The person wants to see what a rewind to this checkpoint would do."""

        def __init__(self, transcript: Transcript, checkpoint_id: int) -> None:
            super().__init__()
            self.transcript = transcript
            self.id = checkpoint_id

        @property
        def control(self) -> Transcript:
            """The chat."""
            return self.transcript

    class PinWanted(Message):
        """A message should be kept from being dropped, or no longer: which one behind the checkpoint `uid`."""

        def __init__(self, uid: str, number: int) -> None:
            super().__init__()
            self.uid = uid
            self.number = number

    class LinkClicked(Message):
        """The person clicked a link; `url` is http or https."""

        def __init__(self, transcript: Transcript, url: str) -> None:
            super().__init__()
            self.transcript = transcript
            self.url = url

    class FoldToggled(Message):
        """A block was folded or unfolded."""

        def __init__(self, transcript: Transcript, key: int, *, unfolded: bool) -> None:
            super().__init__()
            self.transcript = transcript
            self.key = key
            self.unfolded = unfolded

    class RebuildNeeded(Message):
        """The events do not tell what the live line looks like now: `show_history` is wanted."""

    def rebuild_needed(self) -> None:
        """Ask for the history."""
        self.post_message(self.RebuildNeeded())

    # --- keys: the block that they act on

    def action_turn(self, step: int) -> None:
        """Bring the person's words before or after the first row to the top."""
        from kimi_tui.tui.chat.walking import turn_row

        if self._flow is not None and self._flow.views:
            self.show_row(turn_row(self._flow, self.top, step))

    def action_choose(self, step: int) -> None:
        """Go to the next block above or below."""
        from kimi_tui.tui.chat.walking import next_block

        flow = self._flow
        index = next_block(flow, self._current, step) if flow is not None else None
        if flow is None or index is None:
            return
        view = flow.views[index]
        self._current = view.block.key
        flow.ensure(index)
        row = flow.start(index) + view.gap
        if not self.top <= row < self.top + self.size.height:
            self.show_row(max(0, row - self.size.height // 3))
        self.refresh(self.area)

    def _current_view(self) -> View | None:
        views = self._flow.views if self._flow is not None else []
        return next((view for view in views if view.block.key == self._current), None)

    def action_fold(self) -> None:
        """Fold or unfold the block that the keys act on."""
        view = self._current_view()
        if view is not None:
            self.toggle_fold(view.block)

    def action_preview(self) -> None:
        """Unfold the letter that the keys act on, or ask for a rewind to the block."""
        from kimi_tui.tui.chat.blocks import DMailBlock

        view = self._current_view()
        if view is not None and isinstance(view.block, DMailBlock) and view.block.unfolds:
            self.toggle_fold(view.block)
            return
        if view is not None and view.block.checkpoint is not None and view.block.live:
            self.post_message(self.CheckpointClicked(self, view.block.checkpoint))

    def action_pin(self) -> None:
        """Ask for the block that the keys act on to be kept, or no longer."""
        view = self._current_view()
        if view is not None and view.block.uid:
            self.post_message(self.PinWanted(view.block.uid, view.block.number))

    def on_blur(self) -> None:
        """The chosen row loses the accent."""
        self.refresh(self.area)

    def toggle_fold(self, block: Block) -> None:
        """Fold or unfold a block; its first row stays where it is."""
        model, flow = self._engine()
        self.finish_motion()
        change = model.toggle(block)
        if change.first is None:
            return
        before = flow.height
        flow.update(model.blocks, change.first)
        flow.ensure(change.first)
        # What was only folded before is not new.
        self._left_height += flow.height - before
        # The person wants to read what opens, not the end of the conversation.
        if flow.height - self.top > self.size.height:
            self.hold()
        self._note(change.first)
        self._draw()
        self._follow = self.scroll_y >= self.max_scroll_y
        self.refresh(self.area)
        self.post_message(self.FoldToggled(self, block.key, unfolded=block.unfolded))

    # --- mouse

    def on_mouse_move(self, event: events.MouseMove) -> None:
        """Show what a click would act on."""
        self.hover(self.top + event.y if self.hit(event.x, event.y) else None)

    def on_leave(self) -> None:
        """Nothing is under the pointer."""
        self.hover(None)

    def on_click(self, event: events.Click) -> None:
        """Unfold, open, or ask for a rewind."""
        # Textual would select all text on a double click.
        event.prevent_default()
        flow = self._flow
        if self.is_moving:
            self.finish_motion()
            return
        if event.button != 1 or self.text_selection is not None or flow is None:
            return
        mark = self.new_mark()
        is_low = event.y == self.size.height - 1
        if mark is not None and is_low and event.x >= self.outer_size.width - mark.width:
            self.scroll_to_end()
            return
        hit = self.hit(event.x, event.y)
        view, _, _ = flow.line(self.top + event.y)
        if hit.startswith(HIT_CHECKPOINT):
            self.post_message(self.CheckpointClicked(self, int(hit[len(HIT_CHECKPOINT) :])))
        elif hit.startswith(HIT_LINK):
            self.post_message(self.LinkClicked(self, hit[len(HIT_LINK) :]))
        elif hit == HIT_FOLD and view is not None:
            self.toggle_fold(view.block)

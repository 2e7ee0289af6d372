"""The chat: takes events, draws the conversation, and turns keys and clicks into messages.

Stands on the first screen, so the reducer, Markdown and the wire's events are imported with the first event.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message

from kimi_tui.tui.chat.empty import HINTS, empty_rows
from kimi_tui.tui.chat.lines import HIT_CHECKPOINT, HIT_FOLD, HIT_LINK, Line
from kimi_tui.tui.chat.moving import MovingSurface

if TYPE_CHECKING:
    from kimi_tui.tui.chat.blocks import Block
    from kimi_tui.tui.chat.flow import Flow, View
    from kimi_tui.tui.chat.model import ChatModel
    from kimi_tui.wire.events import Record

FRAME_S = 1 / 30
HISTORY_FRAME_S = 0.1
"""While a history is read, pictures that nobody can look at are left out."""
CATCH_UP_S = 0.001
"""The pause between two slices of an answer that came faster than it is laid out."""
LIVE_S = 2.0
"""Events older than this when they arrive are history: they move nothing."""
WARM_UP_DELAY_S = 0.4


class Transcript(MovingSurface):
    """The conversation. Follows its end until the person scrolls up.

    Args:
        work_dir: paths below it are shown relative to it.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "left_square_bracket", "turn(-1)", "Turn before", id="chat.turn_before", show=False
        ),
        Binding("right_square_bracket", "turn(1)", "Turn after", id="chat.turn_after", show=False),
        Binding("k", "choose(-1)", "Card above", id="chat.above", show=False),
        Binding("j", "choose(1)", "Card below", id="chat.below", show=False),
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
        """A message should be kept from being dropped, or no longer; `uid` names its checkpoint."""

        def __init__(self, uid: str) -> None:
            super().__init__()
            self.uid = uid

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

    def __init__(
        self,
        *,
        work_dir: str = "",
        id: str | None = None,  # noqa: A002
        classes: str | None = None,
    ) -> None:
        super().__init__(widget_id=id, classes=classes)
        self._work_dir = work_dir
        self._pins: frozenset[str] = frozenset()
        self._facts = ""
        self._hints: Sequence[tuple[str, str]] = HINTS
        self._empty: list[Line] | None = None
        self._model: ChatModel | None = None
        self._changed_from: int | None = None
        self._frame: asyncio.TimerHandle | None = None
        self._drawn_at = 0.0
        self._tick: asyncio.TimerHandle | None = None

    # --- what it is told

    @property
    def streaming(self) -> bool:
        """Whether a turn is under way."""
        return self._model is not None and self._model.streaming

    @property
    def is_drawn(self) -> bool:
        """Whether all that it was told is on the screen."""
        return self._changed_from is None

    @property
    def work_dir(self) -> str:
        """Paths below it are shown relative to it."""
        return self._work_dir

    @work_dir.setter
    def work_dir(self, work_dir: str) -> None:
        self._work_dir = work_dir
        if self._model is not None:
            self._model.work_dir = work_dir

    @property
    def pins(self) -> frozenset[str]:
        """The checkpoints whose message is pinned, by uid."""
        return self._pins

    @pins.setter
    def pins(self, uids: frozenset[str]) -> None:
        self._pins = uids
        self._show_pins()

    def _show_pins(self) -> None:
        if (
            self._model is not None
            and (change := self._model.set_pins(self._pins)).first is not None
        ):
            self._note(change.first)
            self._draw()
            self.refresh(self.area)

    def set_empty(self, facts: str, hints: Sequence[tuple[str, str]] = HINTS) -> None:
        """Say what stands under the question of an empty chat (`184 files in ~/app.`), and its keys with meanings."""
        self._facts = facts
        self._hints = hints
        self._empty = None
        self.refresh()

    def apply(self, records: Sequence[Record], *, live: bool | None = None) -> None:
        """Take events in and draw them: at once after a pause, else with the next frame.

        Args:
            records: the events.
            live: whether they may move something; None: by their age.
        """
        if not records:
            return
        model, _ = self._engine()
        rebuild = False
        was_streaming = model.streaming
        is_live = time.time() - records[-1].at < LIVE_S if live is None else live
        for record in records:
            change = model.apply(record)
            if change.gone and is_live:
                self.begin_motion(change.first, model.blocks)
            rebuild = rebuild or change.rebuild
            if change.first is not None:
                self._note(change.first)
                if self.is_moving and not change.gone and _is_streamed(model):
                    self.finish_motion()
        if rebuild:
            self.post_message(self.RebuildNeeded())
        if self._changed_from is not None:
            # The last words of a turn are worth a frame of their own; those of a history are not.
            ended = is_live and was_streaming and not model.streaming
            self._draw_soon(FRAME_S if is_live else HISTORY_FRAME_S, at_once=ended)

    def show_history(self, records: Sequence[Record]) -> None:
        """Forget what is shown and show these events instead."""
        self.finish_motion()
        self._model = None
        model, _ = self._engine()
        for record in records:
            model.apply(record)
        self.show_model(model)

    def show_model(self, model: ChatModel) -> None:
        """Forget what is shown and show this conversation instead."""
        self.finish_motion()
        self._model, self._flow, self._follow = model, None, True
        self._current = self._hovered = None
        self._changed_from = 0
        self._draw()
        self.refresh()

    def _engine(self) -> tuple[ChatModel, Flow]:
        """The reducer and the rows, imported when they are first needed."""
        from kimi_tui.tui.chat.flow import Flow
        from kimi_tui.tui.chat.model import ChatModel

        if self._model is None:
            self._model = ChatModel(work_dir=self._work_dir)
        if self._flow is None:
            self._room_used = self.room()
            self._flow = Flow(self._room_used)
        return self._model, self._flow

    def _note(self, first: int) -> None:
        known = self._changed_from
        self._changed_from = first if known is None else min(known, first)

    # --- frames

    def _draw_soon(self, frame_s: float, *, at_once: bool = False) -> None:
        if (self._frame is not None and not at_once) or not self.is_ready:
            return
        loop = asyncio.get_running_loop()
        due = self._drawn_at + frame_s
        if at_once or loop.time() >= due:
            self._draw()
        else:
            self._frame = loop.call_at(due, self._draw)

    def _draw(self) -> None:
        """Bring rows, height and position up to date, and ask for what has changed to be painted."""
        if self._frame is not None:
            self._frame.cancel()
            self._frame = None
        if not self.is_ready or self._changed_from is None or self.is_moving:
            return
        self._drawn_at = asyncio.get_running_loop().time()
        model, flow = self._engine()
        first, self._changed_from = self._changed_from, None
        self._empty = None
        top = self.top
        flow.update(model.blocks, first)
        self.settle()
        if self.top != top or not first:
            self.refresh(self.area)
        else:
            self.refresh_from(first)
        self._count_down(model)
        if flow.behind:
            self._note(first)
            self._frame = asyncio.get_running_loop().call_later(CATCH_UP_S, self._draw)

    def _count_down(self, model: ChatModel) -> None:
        """While a retry waits, its row is drawn anew once a second."""
        if self._tick is not None:
            self._tick.cancel()
            self._tick = None
        block = model.waiting
        if block is not None and (left := block.due - time.time()) > 0:
            self._tick = asyncio.get_running_loop().call_later(left % 1.0 + 0.01, self._tick_down)

    def _tick_down(self) -> None:
        self._tick = None
        block = self._model.waiting if self._model is not None else None
        if self._model is None or block is None:
            return
        block.touch()
        self._note(self._model.find(block) or 0)
        self._draw()

    def on_mount(self) -> None:
        """Import what the first answer needs once nobody waits for it."""
        super().on_mount()
        self.set_timer(WARM_UP_DELAY_S, self._warm_up)

    def _warm_up(self) -> None:
        self.run_worker(_import_ahead, thread=True, group="warm-up", exit_on_error=False)

    def on_unmount(self) -> None:
        """Stop what is scheduled."""
        for handle in (self._frame, self._tick):
            if handle is not None:
                handle.cancel()
        self._frame = self._tick = None

    def on_resize(self) -> None:
        """Another size."""
        self._empty = None
        self.finish_motion()
        if self._changed_from is not None and self._flow is not None:
            self._draw()
        self.resized()

    def empty_rows(self) -> list[Line]:
        """The rows of an empty chat."""
        if self._empty is None:
            self._empty = empty_rows(
                self.pane_width, self.size.height, self._facts, self.glyphs, self._hints
            )
        return self._empty

    def motion_ended(self) -> None:
        """What came meanwhile can be drawn now."""
        if self._changed_from is not None:
            self._draw()

    # --- keys: the block that they act on

    def action_turn(self, step: int) -> None:
        """Bring the person's words before or after the first row to the top."""
        from kimi_tui.tui.chat.walking import turn_row

        if self._flow is not None and self._flow.views:
            self.show_row(turn_row(self._flow, self.top, step))

    def action_choose(self, step: int) -> None:
        """Go to the next block above or below that can be unfolded or returned to."""
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
        """Ask for a rewind to the block that the keys act on."""
        view = self._current_view()
        if view is not None and view.block.checkpoint is not None and view.block.live:
            self.post_message(self.CheckpointClicked(self, view.block.checkpoint))

    def action_pin(self) -> None:
        """Ask for the block that the keys act on to be kept, or no longer."""
        view = self._current_view()
        if view is not None and view.block.uid:
            self.post_message(self.PinWanted(view.block.uid))

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
        flow.update(model.blocks, change.first)
        flow.ensure(change.first)
        # The person wants to read what opens, not the end of the conversation.
        if flow.height - self.top > self.size.height:
            self.hold()
        self._note(change.first)
        self._draw()
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


def _is_streamed(model: ChatModel) -> bool:
    """Whether the newest block is something the agent says or does."""
    from kimi_tui.tui.chat.blocks import AgentBlock, ThoughtBlock, ToolBlock

    last = model.blocks[-1] if model.blocks else None
    return isinstance(last, (AgentBlock, ThoughtBlock, ToolBlock))


def _import_ahead() -> None:
    """What the first answer will need, imported in a thread while nobody waits for it."""
    from kimi_tui.tui.chat import code, flow, model, motion

    code.warm_up()
    del flow, model, motion

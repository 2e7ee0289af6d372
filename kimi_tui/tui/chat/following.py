"""A surface that follows a conversation: takes its events in, and draws at most thirty times a second.

Stands on the first screen, so the reducer, Markdown and the wire's events are imported with the first event.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kimi_tui.tui.chat.empty import empty_rows, facts_words
from kimi_tui.tui.chat.lines import Line
from kimi_tui.tui.chat.searching import SearchedSurface

if TYPE_CHECKING:
    from kimi_tui.soul.work_folder import FolderFacts
    from kimi_tui.tui.chat.blocks import Block
    from kimi_tui.tui.chat.flow import Flow
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


class FollowingSurface(SearchedSurface):
    """Shows what its events tell, live or from a history.

    Args:
        work_dir: paths below it are shown relative to it.
        hints: keys and what they do, for whom nothing was said yet; without them an empty chat asks nothing.
    """

    def __init__(
        self,
        *,
        work_dir: str = "",
        hints: Sequence[tuple[str, str]] = (),
        id: str | None = None,  # noqa: A002
        classes: str | None = None,
    ) -> None:
        super().__init__(widget_id=id, classes=classes)
        self._work_dir = work_dir
        self._hints = hints
        self._facts: FolderFacts | None = None
        self._pins: frozenset[tuple[str, int]] = frozenset()
        self._empty: list[Line] | None = None
        self._is_warm = False
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
    def blocks(self) -> Sequence[Block]:
        """All that is shown."""
        return self._model.blocks if self._model is not None else ()

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
    def facts(self) -> FolderFacts | None:
        """What is known of the work folder; stands in an empty chat."""
        return self._facts

    @facts.setter
    def facts(self, facts: FolderFacts | None) -> None:
        self._facts = facts
        self._empty = None
        if not self.blocks:
            self.refresh()

    @property
    def pins(self) -> frozenset[tuple[str, int]]:
        """What is pinned: a checkpoint's uid, and which of the messages behind it."""
        return self._pins

    @pins.setter
    def pins(self, pins: frozenset[tuple[str, int]]) -> None:
        self._pins = pins
        self._show_pins()

    def _show_pins(self) -> None:
        if (
            self._model is not None
            and (change := self._model.set_pins(self._pins)).first is not None
        ):
            self._note(change.first)
            self._draw()
            self.refresh(self.area)

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
            self.rebuild_needed()
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

    def show_model(self, model: ChatModel, flow: Flow | None = None) -> None:
        """Forget what is shown and show this conversation instead.

        Args:
            model: the conversation.
            flow: where its blocks stand, if that is known.
        """
        self.finish_motion()
        if model.blocks:
            self.warm_up()
        self._model, self._follow = model, True
        self._flow = flow if flow is not None and flow.room == self.room() else None
        self._room_used = self.room()
        model.set_pins(self._pins)
        self._current = self._hovered = None
        self._changed_from = len(self._flow.views) if self._flow is not None else 0
        self._draw()
        self.refresh()

    def show_whole(self, model: ChatModel, flow: Flow) -> None:
        """Show the conversation of which only the end was shown so far.

        The row at the top stays, and so does what is unfolded, chosen or selected.

        Args:
            model: the whole conversation.
            flow: where its blocks stand.
        """
        end, shown = self._flow, self._model
        if end is None or shown is None or not end.views:
            self.show_model(model, flow)
            return
        top, follows, current = self.top, self._follow, self._current
        index, offset = end.find(top)
        offset -= end.views[index].gap
        below = len(end.views) - index
        twins = _twins(shown.blocks, model.blocks)
        for old, new in twins:
            if old.unfolded != new.unfolded and (first := model.toggle(new).first) is not None:
                flow.update(model.blocks, first)
        self.show_model(model, flow)
        self._current = next((new.key for old, new in twins if old.key == current), None)
        _, whole = self._engine()
        place = len(whole.views) - below
        if not follows and place >= 0:
            whole.ensure(place)
            self.show_row(whole.start(place) + whole.views[place].gap + offset)
        self.move_selection(self.top - top)

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
        before = flow.height
        flow.update(model.blocks, first)
        if flow.height < before:
            # Where something went, what comes next is new even if the conversation was longer before.
            self._left_height = min(self._left_height, flow.height)
        self.settle()
        if self.top != top or not first:
            self.refresh(self.area)
        else:
            self.refresh_from(first)
        self._count_down(model)
        self.searched_changed()
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

    def warm_up(self) -> None:
        """Import what answers need, once: when someone begins to write or a conversation is shown, and not for an empty chat."""
        if not self._is_warm:
            self._is_warm = True
            self.set_timer(WARM_UP_DELAY_S, self._import_ahead)

    def _import_ahead(self) -> None:
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
            self._empty = self._welcome() if self._hints else []
        return self._empty

    def _welcome(self) -> list[Line]:
        width, height, facts = self.pane_width, self.size.height, ""
        if self._facts is not None:
            facts = facts_words(self._facts, self._work_dir, width, height, self.glyphs.cut)
        return empty_rows(width, height, self.glyphs, self._hints, facts)

    def rebuild_needed(self) -> None:
        """The events do not tell what the live line looks like now: `show_history` is wanted."""

    def motion_ended(self) -> None:
        """What came meanwhile can be drawn now."""
        if self._changed_from is not None:
            self._draw()


def _twins(end: Sequence[Block], whole: Sequence[Block]) -> list[tuple[Block, Block]]:
    """The blocks of the end of a conversation, each with the one that stands for it in the whole."""
    pairs = zip(reversed(end), reversed(whole), strict=False)
    return [(one, other) for one, other in pairs if (type(one), one.at) == (type(other), other.at)]


def _is_streamed(model: ChatModel) -> bool:
    """Whether the newest block is something the agent says or does."""
    from kimi_tui.tui.chat.blocks import AgentBlock, ThoughtBlock, ToolBlock

    last = model.blocks[-1] if model.blocks else None
    return isinstance(last, (AgentBlock, ThoughtBlock, ToolBlock))


def _import_ahead() -> None:
    """What the first answer will need, imported in a thread while nobody waits for it."""
    from kimi_tui.tui.chat import code, markdown, model, motion

    markdown.Parser().parse("")
    code.warm_up()
    del model, motion

"""The transcript widget: the conversation, of which only the visible rows are drawn.

It applies the wire's events through a reducer (`projection/transcript.py`), draws at most thirty times a second, and posts
messages about the user's actions on a block. Scrolling and layout are in `viewport.py`, search in `search.py`. The widget is
on the first screen, so modules that only the first event, search, copy or revert needs are imported when that happens.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, cast

from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Offset, Region, Size
from textual.message import Message
from textual.reactive import Reactive, reactive
from textual.scroll_view import ScrollView
from textual.selection import SELECT_ALL, Selection
from textual.strip import Strip
from textual.timer import Timer

from kimi_tui.daemon_threads import in_daemon_thread
from kimi_tui.tui.desktop import text_amount
from kimi_tui.tui.faults import Callbacks, report_of, reported
from kimi_tui.tui.formatting import grouped
from kimi_tui.tui.glyphs import Glyphs, glyphs_of
from kimi_tui.tui.key_names import key_of, keys_of
from kimi_tui.tui.painter import INKS, PaintedWidget, Painter
from kimi_tui.tui.rows import (
    BLANK,
    HIT_AGENT,
    HIT_CHECKPOINT,
    HIT_FOLD,
    HIT_IMAGE,
    HIT_LINE,
    HIT_LINK,
    MARGIN,
    LayoutRoom,
    Line,
    Span,
    cells,
    hit_at,
    past_line,
)
from kimi_tui.tui.screens import app_of
from kimi_tui.tui.scrollbar import move, take_height, use_thin_scrollbar
from kimi_tui.tui.slices import drained, in_slices, release, run_until
from kimi_tui.tui.textual_patches.widgets import set_content_size
from kimi_tui.tui.transcript.selection import CHARACTER, LINE, TextSelection
from kimi_tui.tui.transcript.start_page import empty_rows, facts_words, reading_rows
from kimi_tui.tui.transcript.text_position import TextPosition

if TYPE_CHECKING:
    from textual.screen import Screen
    from textual.types import AnimationLevel, CallbackType

    from kimi_tui.projection.blocks import Block, Change
    from kimi_tui.projection.transcript import TranscriptModel
    from kimi_tui.soul.system_prompt import FolderFacts
    from kimi_tui.tool_cards import DiffLine, ImageBlock
    from kimi_tui.tui.pictures import LoadImage, Thumbnails
    from kimi_tui.tui.transcript.copy_mode import CopyMode
    from kimi_tui.tui.transcript.search import Search
    from kimi_tui.tui.transcript.viewport import Flow, Place, RevertAnimation, View, Viewport
    from kimi_tui.wire.events import EventRecord

LOW_ROWS = 30
LOWEST_ROWS = 24
FRAME_S = 1 / 30
FLOODED_FRAME_S = 1 / 8
"""Seconds between frames while text arrives faster than it can be read or laid out."""
FLOOD = 400
"""Characters in one frame from which on `FLOODED_FRAME_S` applies: about two thousand tokens a second."""
MANY_BLOCKS = 2_000
"""Blocks from a changed one on from which they are arranged in slices, before a frame shows them."""
ARRANGE_SLICE_S = 0.003
"""Seconds of a time slice of arranging them, and of freeing those that are gone."""
HISTORY_FRAME_S = 0.1
"""Seconds between frames while a history is read."""
COVERED_FRAME_S = 0.25
"""Seconds between frames behind a dialog, where each frame draws the whole screen with every cell blended."""
CATCH_UP_S = 0.001
"""Seconds between two slices of the layout of an answer that arrived faster than it was laid out."""
MEASURE_S = 0.004
"""Seconds between two slices of measuring blocks for another width: long enough for a frame."""
LIVE_S = 2.0
"""Seconds after which an arriving event counts as history, and is not animated."""
WARM_UP_DELAY_S = 0.4
MOST_LANGUAGES = 8
"""The largest number of languages, those of the newest code, whose lexers are imported before a stored conversation is drawn."""
EDGE_ROWS = 2
"""Rows at the edges of the pane in which dragging a selection scrolls it."""
FASTEST_PULL = 6
PULL_S = 0.05
COPY_SLICE_S = 0.003
"""Seconds of a time slice of collecting the text of a copy."""
_INKS = (
    *INKS,
    "lost",
    "ok",
    "warn",
    "line",
    "add",
    "del",
    "code-keyword",
    "code-string",
    "code-comment",
)
_GROUNDS = ("page", "raised", "band", "select", "lost-bg", "dmail-bg", "add-bg", "del-bg")
_OVERLAYS = ("selection", "found", "found-now", "cursor")


@dataclass(eq=False, repr=False)  # other methods would take time before the first paint
class MousePress:
    """The newest press of the left mouse button.

    Attributes:
        origin: the start and the end of the unit of text that was pressed.
        grain: the unit of the selection: characters, words or lines.
        offset: the cell of the screen.
        y: the row of the pane.
        time: the event's time.
        held: whether the button is still pressed.
        dragged: whether the pointer has left the cell since.
    """

    origin: tuple[TextPosition, TextPosition]
    grain: int
    offset: Offset
    y: int
    time: float
    held: bool = False
    dragged: bool = False


class Transcript(PaintedWidget, ScrollView, can_focus=True):
    """The widget of the conversation, which follows its end until the user scrolls up.

    Args:
        work_dir: paths below this folder are shown relative to it.
        hints: keys and their effects, shown in an empty transcript; without them it shows no question either.
        question: the question in an empty transcript instead of the usual one.
        keys: the configured keys, by action.
        load_image: reads an image; None if images are only named.
        is_left: whether it shows a world line that was left: with a grey edge, and the chosen block kept visible.
        id: the widget's id.
        classes: the widget's CSS classes.
    """

    ALLOW_SELECT = False
    """False: Textual's own text selection is by row numbers, which change here."""
    FOCUS_ON_CLICK = False
    """False: a click acts on a block and leaves the focus in the prompt, so that letters typed after it are text."""
    COMPONENT_CLASSES: ClassVar[set[str]] = {
        f"transcript--{name}" for name in (*_INKS, *_GROUNDS, *_OVERLAYS)
    }
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
        Binding("y", "copy", "Copy the selection or the message", id="chat.copy", show=False),
        Binding(
            "Y", "copy_code", "Copy its code, one piece a time", id="chat.copy_code", show=False
        ),
        Binding("o", "open_link", "Open its image or link, one a time", id="chat.link", show=False),
        Binding("shift+up", "select_rows(-1)", "Select upwards", id="chat.select_up", show=False),
        Binding("shift+down", "select_rows(1)", "Select downwards", id="chat.select", show=False),
        Binding("v", "copy_mode", "Select with a cursor", id="chat.copy_mode", show=False),
        Binding("ctrl+a", "select_all", "Select all", id="chat.select_all", show=False),
        # The key would otherwise change the mode, although from here it should lead back.
        Binding("shift+tab", "screen.go_round(-1)", "Round, the other way", show=False),
        Binding("n", "next_match(1)", "Next match", id="search.next", show=False),
        Binding("N", "next_match(-1)", "Match before", id="search.before", show=False),
    ]

    motion_progress: reactive[float] = reactive(1.0, init=False)
    """The progress of the animation of a revert, from 0 to 1; 1 when none is running."""

    class CheckpointClicked(Message):
        """The number of a checkpoint was clicked, or Enter pressed on its block.

        `said` is the index of that block among the user's messages after the checkpoint; -1 for any other block.
        """

        def __init__(self, transcript: Transcript, checkpoint_id: int, said: int = -1) -> None:
            super().__init__()
            self.transcript = transcript
            self.id = checkpoint_id
            self.said = said

    class PinToggled(Message):
        """The pin of a message was toggled: the one with the index `number` after the checkpoint `uid`."""

        def __init__(self, uid: str, number: int) -> None:
            super().__init__()
            self.uid = uid
            self.number = number

    class LinkClicked(Message):
        """A link was clicked, or opened by key; `url` is http or https."""

        def __init__(self, url: str) -> None:
            super().__init__()
            self.url = url

    class DiffLineChosen(Message):
        """A line of a diff was clicked, or chosen by key: a line of a file that the step of the checkpoint `uid` changed."""

        def __init__(self, path: str, line: DiffLine, uid: str) -> None:
            super().__init__()
            self.path = path
            self.line = line
            self.uid = uid

    class ImageOpened(Message):
        """An image was clicked, or opened by key."""

        def __init__(self, image: ImageBlock) -> None:
            super().__init__()
            self.image = image

    class AgentOpened(Message):
        """The card of a sub-agent was opened; `name` is its name, empty if it has not begun."""

        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

    class Copied(Message):
        """A text should be put on the clipboard; `words` describe it for a notice."""

        def __init__(self, transcript: Transcript, text: str, words: str) -> None:
            super().__init__()
            self.transcript = transcript
            self.text = text
            self.words = words

    class NothingCopied(Message):
        """There was nothing to copy; `words` are the notice."""

        def __init__(self, words: str) -> None:
            super().__init__()
            self.words = words

    class RebuildNeeded(Message):
        """The events do not determine the live line any more, so the owner must call `show_model` with the whole history."""

    class CopyModeChanged(Message):
        """Copy mode began or ended: keys move a cursor through the text in it."""

    class SearchEnded(Message):
        """The search was closed."""

    def __init__(
        self,
        *,
        work_dir: str = "",
        hints: Sequence[tuple[str, str]] = (),
        question: str = "",
        keys: Mapping[str, str] | None = None,
        load_image: LoadImage | None = None,
        is_left: bool = False,
        id: str | None = None,  # noqa: A002
        classes: str | None = None,
    ) -> None:
        super().__init__(id=id, classes=classes)
        self._work_dir = work_dir
        self._hints = hints
        self._question = question
        self._is_left = is_left
        self._facts: FolderFacts | None = None
        self._reading = ""
        self._empty: list[Line] | None = None
        self._empty_size = (0, 0)
        self._is_warm = False

        self._model: TranscriptModel | None = None
        self._viewport: Viewport | None = None
        self._changed_from: int | None = None
        """The index of the first block that has changed since it was drawn; None if none has."""
        self._frame: asyncio.TimerHandle | None = None
        self._arranging: tuple[int, Generator[None]] | None = None
        """The work that arranges thousands of blocks in slices, behind the index of the first of them; None if none is under way."""
        self._drawn_at = 0.0
        self._n_waiting = 0
        """The characters that were not laid out when the newest frame was due; 0 once one was drawn."""
        self._is_unpainted = False
        """Whether rows have changed for which no repaint was requested."""
        self._tick: asyncio.TimerHandle | None = None
        self._measurement: asyncio.TimerHandle | None = None
        self._callbacks = Callbacks(report_of(self))
        self._has_place = asyncio.Event()
        self._placing = False

        self._painter = Painter(self, "transcript", blank="ink")
        self._painted_width = 0
        self._behind = False
        self._dropped_from: int | None = None
        """The checkpoint of the previewed rewind; -1 if it would drop nothing, None if none is previewed."""
        self._words_stay = False
        self._dropped_blocks = range(0)
        self._came_from: tuple[bool, TextPosition | None] | None = None
        """The state before the preview: whether the end was followed, and the position at the top; None without a preview."""
        self._hovered: int | None = None
        self._current: int | None = None
        """The key of the block that the keys act on."""
        self._motion: RevertAnimation | None = None
        self._search: Search | None = None

        self.keys = keys or {}
        """The configured keys, by action."""
        self.currency = "$"
        """The sign of amounts."""
        self._copying: CopyMode | None = None
        self._selection: TextSelection | None = None
        self._pressed: MousePress | None = None
        self._pulling: Timer | None = None
        self._pointer = (0, 0)
        self._grown: tuple[TextPosition, TextPosition, TextPosition] | None = None
        """The start and end of the text that shift+up and shift+down select from, and the row up to which they do."""
        self._taken_code = (0, -1)
        """The key of the block whose code was copied last, and the index of the piece of code."""
        self._opened_link = (0, -1)
        self._thumbnails: Thumbnails | None = None
        self._load_image = load_image

    # --- contents

    @property
    def blocks(self) -> Sequence[Block]:
        """All blocks that are shown."""
        return self._model.blocks if self._model is not None else ()

    @property
    def flow(self) -> Flow | None:
        """The layout of the blocks; None before the first event."""
        return self._viewport.flow if self._viewport is not None else None

    @property
    def chosen(self) -> Block | None:
        """The block that the keys act on."""
        return next((block for block in self.blocks if block.key == self._current), None)

    @property
    def has_images(self) -> bool:
        """Whether the conversation shown has an image that was sent to the model."""
        from kimi_tui.projection.blocks import images_of

        return any(images_of(block) for block in self.blocks)

    @property
    def follows(self) -> bool:
        """Whether the end is kept visible."""
        return self._viewport is None or self._viewport.follows

    @property
    def work_dir(self) -> str:
        """The work folder; paths below it are shown relative to it."""
        return self._work_dir

    @work_dir.setter
    def work_dir(self, work_dir: str) -> None:
        self._work_dir = work_dir
        if self._model is not None:
            self._model.work_dir = work_dir

    @property
    def facts(self) -> FolderFacts | None:
        """Facts about the work folder, shown in an empty transcript; None while unknown."""
        return self._facts

    @facts.setter
    def facts(self, facts: FolderFacts | None) -> None:
        self._facts = facts
        self._refresh_empty()

    @property
    def reading(self) -> str:
        """The text in an empty transcript while a conversation is being read; empty for the start page."""
        return self._reading

    @reading.setter
    def reading(self, words: str) -> None:
        self._reading = words
        self._refresh_empty()

    @property
    def hints(self) -> Sequence[tuple[str, str]]:
        """Keys and their effects, shown in an empty transcript."""
        return self._hints

    @hints.setter
    def hints(self, hints: Sequence[tuple[str, str]]) -> None:
        self._hints = hints
        self._refresh_empty()

    @property
    def behind(self) -> bool:
        """Whether a pane floats above the transcript, which dims its colours."""
        return self._behind

    @behind.setter
    def behind(self, behind: bool) -> None:
        if behind != self._behind:
            self._behind = behind
            self.refresh()

    # --- sizes

    @property
    def glyphs(self) -> Glyphs:
        """The set of signs: Unicode or ASCII."""
        return glyphs_of(self) if self.is_attached else Glyphs()

    @property
    def pane_width(self) -> int:
        """The width in cells, including the column of the scrollbar."""
        return self.outer_size.width or 80

    @property
    def top(self) -> int:
        """The first visible row of the content."""
        return round(self.scroll_y)

    @property
    def is_ready(self) -> bool:
        """Whether the widget is attached and has a size."""
        return self.is_attached and bool(self.size)

    def room(self) -> LayoutRoom:
        """Return the width and options for which blocks are laid out now."""
        rows = app_of(self).size.height if self.is_attached else LOW_ROWS
        picture = self._picture if self._load_image is not None and self.is_attached else None
        fold = key_of("chat.fold", self.keys)
        return LayoutRoom(
            self.pane_width,
            rows < LOW_ROWS,
            rows < LOWEST_ROWS,
            self.glyphs,
            picture,
            f"Tab, then {fold}" if fold else "",
            self.currency,
        )

    def _picture(self, image: ImageBlock, columns: int, rows: int) -> Sequence[tuple[Span, ...]]:
        from kimi_tui.tui.pictures import Thumbnails, draws_cells

        if self._load_image is None or not draws_cells(self):
            return ()
        if self._thumbnails is None:
            self._thumbnails = Thumbnails(self, self._load_image)
        return self._thumbnails.rows(image, columns, rows)

    def on_thumbnails_ready(self, event: Thumbnails.Ready) -> None:
        """Draw the blocks with an image that can be drawn now. The class is imported with the first image."""
        from kimi_tui.projection.blocks import images_of

        for index, block in enumerate(self.blocks):
            if event.image in images_of(block):
                block.touch()
                self._mark_changed(index)
        self._draw()

    def on_mount(self) -> None:
        """Use the thin scrollbar."""
        use_thin_scrollbar(self, self.glyphs)

    def on_unmount(self) -> None:
        """Cancel timers, and drop the conversation: Textual may keep the widget alive longer than it shows it."""
        for handle in (self._frame, self._tick, self._measurement):
            if handle is not None:
                handle.cancel()
        self._frame = self._tick = self._measurement = self._arranging = None
        views = self.flow.views if self.flow is not None else ()
        if len(views) >= MANY_BLOCKS:
            held = [*views, *self.blocks]
            self._callbacks.start(release(held, ARRANGE_SLICE_S))
        self._model = self._viewport = self._selection = self._search = self._copying = None

    def on_resize(self) -> None:
        """Lay out for the new size; if the width changed, all rows again, with the same text at the top."""
        self.finish_motion()
        viewport = self._viewport
        chosen_row = self._chosen_row() if self._is_left else None
        was_visible = (
            viewport is not None
            and chosen_row is not None
            and self.top <= chosen_row < self.top + viewport.height
        )
        if viewport is not None and self._changed_from is not None:
            self._draw_in_time()
        if (viewport := self._ready_viewport()) is not None:
            viewport.resize(self.room())
            self._take_position(viewport)
        if self._viewport is not None:
            # A widget without a place on the screen keeps its rows, as it may come back unchanged.
            self.refresh()
        if was_visible:
            self._show_chosen()
        if self._search is not None:
            self._search.resized()
        if self.is_ready:
            self._has_place.set()

    # --- events

    def apply(
        self,
        records: Sequence[EventRecord],
        *,
        live: bool | None = None,
        take: Callable[[EventRecord], Change] | None = None,
    ) -> None:
        """Apply events and draw them: at once after a pause, else with the next frame.

        Args:
            records: the events, in order.
            live: whether they may be animated; None decides by their age.
            take: applies one to the model that is shown; None where nothing else shows the session.
        """
        if not records:
            return
        model = self._loaded_model()
        rebuild = False
        was_streaming = model.streaming
        is_live = time.time() - records[-1].at < LIVE_S if live is None else live
        for record in records:
            change = model.apply(record) if take is None else take(record)
            if change.gone and is_live:
                if self._came_from is not None:
                    # The dropped part is grey already, and the rest of the conversation must become visible.
                    self._came_from = (True, None)
                else:
                    at = change.first if change.gone_at is None else change.gone_at
                    self._begin_motion(at, model.blocks)
            rebuild = rebuild or change.rebuild
            if change.first is not None:
                self._mark_changed(change.first)
                if self.is_moving and not change.gone and _is_streamed(model):
                    self.finish_motion()
        if rebuild:
            self.post_message(self.RebuildNeeded())
        if self._changed_from is not None:
            # The last words of a turn get a frame of their own; those of a history do not.
            ended = is_live and was_streaming and not model.streaming
            self._draw_soon(FRAME_S if is_live else HISTORY_FRAME_S, at_once=ended)

    def show_model(self, model: TranscriptModel, flow: Flow | None = None) -> None:
        """Show another conversation.

        Args:
            model: the conversation.
            flow: the layout of its blocks, if there is one already.
        """
        self.finish_motion()
        self._arranging = None
        if model.blocks:
            self.warm_up()
        self.end_copying()
        self.clear_selection()
        if self._viewport is not None and self._selection is not None:
            # The flow may be shown again.
            self._viewport.leave()
            self._selection.hold(())
        self._model = model
        if self._came_from is not None:
            self._came_from = (self._came_from[0], None)
        self._current = self._hovered = None
        # An empty conversation needs no layout, and no import for it.
        if model.blocks or self._viewport is not None:
            is_known = flow is not None and flow.room == self.room()
            self._show_flow(flow if is_known else None)
            self._changed_from = len(flow.views) if is_known and flow is not None else 0
        self._draw()
        self.refresh()

    def show_whole(self, model: TranscriptModel, flow: Flow | None) -> None:
        """Show the whole conversation after only its end was shown.

        The row at the top stays in place; folding, the chosen block and the selection are kept.

        Args:
            model: the whole conversation.
            flow: the layout of its blocks; None if there are none.
        """
        end, shown = self.flow, self._model
        if flow is None or end is None or shown is None or not end.views:
            self.show_model(model, flow)
            return
        follows, current = self.follows, self._current
        index, offset = end.find(self.top)
        offset -= end.views[index].gap
        below = len(end.views) - index
        twins = _twins(shown.blocks, model.blocks)
        for old, new in twins:
            if old.unfolded != new.unfolded and (first := model.toggle(new).first) is not None:
                flow.update(model.blocks, first)
        keys = {old.key: new.key for old, new in twins}
        selected = self.selected_positions
        self.show_model(model, flow)
        self._current = keys.get(current) if current is not None else None
        whole = self._loaded_viewport().flow
        place = len(whole.views) - below
        if not follows and place >= 0:
            whole.lay_out(place)
            self.show_row(whole.start(place) + whole.views[place].gap + offset)
        if selected is not None and all(mark.key in keys for mark in selected):
            first_mark, last_mark = selected
            self.select_text(
                replace(first_mark, key=keys[first_mark.key], hint=0),
                replace(last_mark, key=keys[last_mark.key], hint=0),
            )

    def _loaded_model(self) -> TranscriptModel:
        """Return the reducer, which is imported with the first event."""
        if self._model is None:
            from kimi_tui.projection.transcript import TranscriptModel

            self._model = TranscriptModel(work_dir=self._work_dir)
        return self._model

    def _loaded_viewport(self) -> Viewport:
        """Return the rows on view, whose layout is imported with the first block."""
        return self._viewport or self._show_flow(None)

    def _show_flow(self, flow: Flow | None) -> Viewport:
        from kimi_tui.tui.transcript.viewport import Flow, Viewport

        flow = flow or Flow(self.room())
        self._viewport = Viewport(flow)
        self._selection = TextSelection(flow)
        if self._search is not None:
            # The search is told at once, and not with the first frame: until then its matches would be places in the former
            # conversation.
            self._search.content_changed(self.blocks, flow)
        return self._viewport

    def _ready_viewport(self) -> Viewport | None:
        """Return the viewport, with its height and top set to those of the pane; None if there is none, or no size."""
        viewport = self._viewport
        if viewport is None or not self.is_ready:
            return None
        viewport.height, viewport.top = self.size.height, self.top
        return viewport

    def _mark_changed(self, first: int) -> None:
        """Have the next frame draw the blocks from a block on."""
        known = self._changed_from
        self._changed_from = first if known is None else min(known, first)

    def warm_up(self) -> None:
        """Import the modules that answers need, once: when the user begins to write or a conversation is shown."""
        if not self._is_warm:
            self._is_warm = True
            self.set_timer(WARM_UP_DELAY_S, self._import_ahead)

    def _import_ahead(self) -> None:
        # On the event loop the import would delay every key, so it runs in a thread.
        self.run_worker(
            reported(self, partial(in_daemon_thread, import_for_answers)), group="warm-up"
        )

    # --- frames

    async def placed(self) -> None:
        """Wait until the widget has a place on the screen."""
        await self._has_place.wait()

    async def draw_all(self) -> None:
        """Draw the present state, once the widget has a place on the screen."""
        await self.placed()
        self._draw()

    def uncovered(self) -> None:
        """Draw the changes that were made while a dialog covered the transcript."""
        if self._arranging is None and self._changed_from is not None:
            self._draw_in_time()

    def _draw_soon(self, frame_s: float, *, at_once: bool = False) -> None:
        if (self._frame is not None and not at_once) or not self.is_ready:
            return
        if self._arranging is not None:
            return  # what has changed since is drawn with its last slice
        if not self.screen.is_active:
            frame_s = max(frame_s, COVERED_FRAME_S)
        due, now = self._drawn_at + frame_s, asyncio.get_running_loop().time()
        if at_once:
            self._draw()
        elif now >= due and len(self.blocks) - (self._changed_from or 0) < MANY_BLOCKS:
            self._frame_due()
        else:
            # Applying and drawing thousands of blocks in one go would take long, so the frame is scheduled.
            self._frame = self._callbacks.call_later(max(0.0, due - now), self._frame_due)

    def _frame_due(self) -> None:
        self._frame = None
        now = asyncio.get_running_loop().time()
        before, self._n_waiting = (
            self._n_waiting,
            self.flow.n_to_lay_out if self.flow is not None else 0,
        )
        if self._n_waiting - before > FLOOD and now < self._drawn_at + FLOODED_FRAME_S:
            self._frame = self._callbacks.call_later(FRAME_S, self._frame_due)
        else:
            self._n_waiting = 0
            self._draw_in_time()

    def _draw_changes(self) -> None:
        """Draw all changes at once, for a caller that acts on the rows of the present blocks."""
        if self._changed_from is not None or self._arranging is not None:
            self._draw()

    def _draw_in_time(self) -> None:
        """Draw; where thousands of blocks may have changed, in slices, during which the former rows are shown."""
        if self._frame is not None:
            self._frame.cancel()
            self._frame = None
        first, viewport = self._changed_from, self._ready_viewport()
        if self._arranging is None:
            n_blocks = max(len(self.blocks), len(viewport.flow.views)) if viewport else 0
            if first is None or viewport is None or self._motion or n_blocks - first < MANY_BLOCKS:
                self._draw()
                return
            self._arranging = first, self._arrange(viewport, list(self.blocks), first)
            self._changed_from = None
        if run_until(self._arranging[1], time.perf_counter() + ARRANGE_SLICE_S):
            self._frame = self._callbacks.call_later(CATCH_UP_S, self._draw_in_time)

    def _arrange(self, viewport: Viewport, blocks: list[Block], first: int) -> Generator[None]:
        """Arrange the blocks in small steps, and show them."""
        arranged = yield from viewport.flow.arranged(blocks)
        self._arranging = None
        if arranged is None or self._motion is not None or self._ready_viewport() is not viewport:
            # Another change has replaced the rows, or something covers them.
            self._mark_changed(first)
            self._frame = self._callbacks.call_later(CATCH_UP_S, self._draw_in_time)
            return
        top = self.top
        freed = viewport.take(arranged)
        self._show_updated(viewport, first, top)
        self.run_worker(
            reported(self, partial(in_slices, freed, ARRANGE_SLICE_S)), group="arranged"
        )
        if self._changed_from is not None and self._frame is None:
            self._frame = self._callbacks.call_later(CATCH_UP_S, self._draw_in_time)

    def _draw(self) -> None:
        """Update rows, height and position, and request a repaint of the changed rows."""
        if self._frame is not None:
            self._frame.cancel()
            self._frame = None
        if self._arranging is not None:
            self._mark_changed(self._arranging[0])
            self._arranging = None
        model = self._model
        if model is None or self._changed_from is None or self._motion is not None:
            return
        if self._viewport is None and self.is_ready:
            self._show_flow(None)
        if (viewport := self._ready_viewport()) is None:
            return
        first, self._changed_from = self._changed_from, None
        top = self.top
        viewport.update(model.blocks, first)
        self._show_updated(viewport, first, top)

    def _show_updated(self, viewport: Viewport, first: int, top: int) -> None:
        """Set height and position after the blocks of the viewport were updated, and request a repaint of the changed rows.

        Args:
            viewport: the rows on view.
            first: the index of the first block that may have changed.
            top: the first visible row before.
        """
        model = self._loaded_model()
        self._empty = None
        if self._dropped_from is not None:
            self._update_dropped()
        if self._copying is not None and self._copying.place is None:
            self.end_copying()
        if self._selection is not None and self._selection.is_lost:
            self.clear_selection()
        now = asyncio.get_running_loop().time()
        is_due = now >= self._drawn_at + FLOODED_FRAME_S
        viewport.settle(seen=is_due, whole=False)
        self._take_position(viewport)
        if viewport.flow.behind and not is_due:
            # Not every slice of a long text needs a frame.
            self._is_unpainted = True
            return
        self._drawn_at = now
        if self.top != top or not first or self._is_unpainted:
            self._is_unpainted = False
            self.refresh_rows()
        else:
            self._refresh_from(viewport.flow, first)
        self._count_down(model)
        if self._search is not None:
            self._search.content_changed(model.blocks, viewport.flow)

    def _take_position(self, viewport: Viewport) -> None:
        """Copy the height of the content and the first visible row, without a layout of the screen."""
        height, top = viewport.flow.height, viewport.top
        self._placing = True
        try:
            if height != self.virtual_size.height and not take_height(self, height, top):
                size = Size(self.size.width, height)
                self.set_reactive(cast("Reactive[Size]", ScrollView.virtual_size), size)
                set_content_size(self, size)
            # A fraction of a row that was scrolled is kept: slow scrolling consists of such fractions.
            if top != self.top:
                self.set_reactive(ScrollView.scroll_y, float(top))
                self.set_reactive(cast("Reactive[float]", ScrollView.scroll_target_y), float(top))
            if self.show_vertical_scrollbar:
                move(self.vertical_scrollbar, height, top)
        finally:
            self._placing = False
        if viewport.flow.behind:
            self._catch_up(viewport.flow)
        if not viewport.flow.is_measured and self._measurement is None:
            self._measurement = self._callbacks.call_later(MEASURE_S, self._measure)

    def _measure(self) -> None:
        """Measure a slice of the blocks outside the view for another width."""
        self._measurement = None
        viewport = self._ready_viewport()
        if viewport is None or viewport.flow.is_measured:
            return
        if not self.is_moving:
            viewport.measure()
        self._take_position(viewport)
        if viewport.flow.is_measured:
            self.refresh_rows()

    def _catch_up(self, flow: Flow) -> None:
        """Schedule another frame: the layout of something visible is not complete."""
        self._mark_changed(flow.first_behind)
        if self._frame is None:
            self._frame = self._callbacks.call_later(CATCH_UP_S, self._draw)

    def _count_down(self, model: TranscriptModel) -> None:
        """Redraw the row of a waiting retry once a second."""
        if self._tick is not None:
            self._tick.cancel()
            self._tick = None
        block = model.waiting
        if block is not None and (left := block.due - time.time()) > 0:
            self._tick = self._callbacks.call_later(left % 1.0 + 0.01, self._tick_down)

    def _tick_down(self) -> None:
        self._tick = None
        block = self._model.waiting if self._model is not None else None
        if self._model is None or block is None:
            return
        block.touch()
        self._mark_changed(self._model.find(block) or 0)
        self._draw()

    # --- the preview of a rewind

    def show_dropped(self, checkpoint_id: int | None, *, words_stay: bool = False) -> None:
        """Show in grey the blocks that a rewind to a checkpoint would drop, and scroll to the first of them; for a D-Mail do not scroll.

        Args:
            checkpoint_id: the checkpoint; -1 if nothing would be dropped, so that the end is shown; None to end the preview
                and scroll back.
            words_stay: whether the user's messages and pinned ones stay, as with a D-Mail.
        """
        self.finish_motion()
        if checkpoint_id is not None:
            self._draw_changes()
        elif self._changed_from is not None:
            self._draw_in_time()
        self._dropped_from, self._words_stay = checkpoint_id, words_stay
        self._update_dropped()
        viewport = self._ready_viewport()
        if viewport is None or not viewport.flow.views:
            # An empty chat is dimmed too, but for a preview.
            self.refresh_rows()
            return
        if checkpoint_id is None or words_stay:
            if checkpoint_id is None:
                self._return()
            self.refresh_rows()
            return
        if self._came_from is None:
            mark = viewport.flow.position_at(self.top)
            self._came_from = (self.follows, mark)
            if mark is not None:
                viewport.flow.positions.append(mark)
        if self._dropped_blocks:
            self._show_first_dropped(viewport)
        else:
            self.scroll_to_end()
        self.refresh_rows()

    def _update_dropped(self) -> None:
        checkpoint = -1 if self._dropped_from is None else self._dropped_from
        self._dropped_blocks = (
            self._model.dropped_by(checkpoint)
            if self._model is not None and checkpoint >= 0
            else range(0)
        )

    def _show_first_dropped(self, viewport: Viewport) -> None:
        flow, first = viewport.flow, self._dropped_blocks.start
        flow.lay_out(first)
        row, height = flow.start(first) + flow.views[first].gap, self.size.height
        if self.top + height // 6 <= row < self.top + height * 5 // 6:
            self.hold()
        else:
            self.show_row(row, height // 3)

    def _return(self) -> None:
        """Scroll back to the position before the preview of a rewind."""
        came_from, self._came_from = self._came_from, None
        flow = self.flow
        if came_from is None or flow is None:
            return
        follows, mark = came_from
        flow.positions = [one for one in flow.positions if one is not mark]
        row = flow.row_of(mark) if mark is not None else None
        if follows or row is None:
            self.scroll_to_end()
        else:
            self.show_row(row)
        self.refresh_rows()

    def _dropped_rows(self) -> range:
        """Return the rows of the content that the previewed rewind would drop."""
        flow, going = self.flow, self._dropped_blocks
        if flow is None or not going or going.stop > len(flow.views):
            return range(0)
        start = flow.start(going.start) + flow.views[going.start].gap
        return range(start, flow.start(going.stop))

    # --- the animation of a revert

    @property
    def is_moving(self) -> bool:
        """Whether the animation of a revert is running: the scroll position must not change meanwhile."""
        return self._motion is not None

    def _begin_motion(self, first: int | None, blocks: Sequence[Block]) -> None:
        """Animate the removal of the rows from a block on, unless animations are turned off.

        Args:
            first: the index of the first block that was dropped; the rows still show it.
            blocks: all blocks after the revert.
        """
        from kimi_tui.tui.transcript.viewport import revert_animation_of

        flow = self.flow
        if first is None or flow is None or not self.is_ready or not self.is_on_screen:
            return
        if app_of(self).animation_level == "none":
            return
        self.finish_motion()
        self._motion = revert_animation_of(flow, first, self.top, self.size.height, blocks[first:])
        if self._motion is None:
            return
        self.set_reactive(Transcript.motion_progress, 0.0)
        self.animate(
            "motion_progress",
            1.0,
            duration=self._motion.duration_s,
            easing="linear",
            on_complete=self.finish_motion,
        )

    def finish_motion(self) -> None:
        """End the animation of a revert in its final state, as any key, click or streamed text does."""
        if self._motion is None:
            return
        self._motion = None
        app_of(self).animator.force_stop_animation(self, "motion_progress")
        self.set_reactive(Transcript.motion_progress, 1.0)
        if self._changed_from is not None:
            # This draws all changes since the beginning of the animation.
            self._draw_in_time()
        self.refresh_rows()

    def watch_motion_progress(self) -> None:
        """Draw the next frame of the animation."""
        if self._motion is not None:
            self.refresh_rows()

    # --- painting

    def render_lines(self, crop: Region) -> list[Strip]:
        """Return the visible rows of a region.

        Overrides Textual's style cache, which would make a new strip of every row at each refresh; so the painter fills
        backgrounds and applies the line filters.
        """
        if self._changed_from is not None and self._frame is None and not self.is_moving:
            # The widget was hidden and is visible again without an event, as Textual finds its size unchanged.
            self._frame = self._callbacks.call_later(CATCH_UP_S, self._draw)
        width = self.outer_size.width
        if self._painted_width != width:
            self._painted_width = width
            if self.flow is not None:
                self.flow.repaint()
        strips = self._strips(crop.y, crop.bottom)
        if self._behind and self._dropped_from is None:
            strips = [self._painter.receded(strip) for strip in strips]
        if crop.x == 0 and crop.width >= width:
            return strips
        return [strip.crop(crop.x, crop.right) for strip in strips]

    def render_line(self, y: int) -> Strip:
        """Return one row. Textual calls this to find the style under the pointer."""
        return self._strips(y, y + 1)[0]

    def _strips(self, start: int, end: int) -> list[Strip]:
        """Return the strips of the rows of the pane from `start` to `end` (exclusive)."""
        painter, flow, motion = self._painter, self.flow, self._motion
        if flow is None or not flow.views:
            rows = self._empty_rows()[max(0, start) : end]
            strips = [self._paint(row) for row in rows]
            strips += [self._paint(BLANK)] * (end - start - len(strips))
            if not self._is_left:
                return strips
            return [painter.with_edge(strip, self.glyphs.edge) for strip in strips]
        glyphs = flow.room.glyphs
        start, end, bottom = self.top + start, self.top + end, self.top + self.size.height
        # The rows below an animation are not visible.
        seen = end if motion is None else max(start, min(end, motion.start))
        dropped = self._dropped_rows()
        is_marked = self._search is not None or self._copying is not None
        is_marked = is_marked or self.selected_positions is not None
        strips = [
            self._strip(row, place, dropped, glyphs.edge, is_marked=is_marked)
            for row, place in enumerate(flow.lines(start, seen), start)
        ]
        if motion is not None:
            progress = self.motion_progress
            for row in range(seen, end):
                strips.append(self._paint(motion.row(row, progress, glyphs)))
        if seen == bottom and (words := self._new_mark()) is not None:
            mark = painter.strip(words.spans, words.width, words.fill)
            free = max(0, self.outer_size.width - mark.cell_length)
            strips[-1] = Strip.join([strips[-1].crop(0, free), mark])
        return strips

    def _paint(self, line: Line) -> Strip:
        """Return the strip of a row, as wide as the pane."""
        width = self.outer_size.width
        if line is BLANK:
            return self._painter.blank(width, line.fill)
        # An empty line of code is a span without text.
        return self._painter.strip([span for span in line.spans if span.text], width, line.fill)

    def _strip(
        self, row: int, place: Place, dropped: range, edge: str, *, is_marked: bool
    ) -> Strip:
        """Return the strip of a row of the content.

        Args:
            row: the row.
            place: its view and line.
            dropped: the rows that the previewed rewind would drop.
            edge: the sign of the edge.
            is_marked: whether any row has a match, a selection, or the cursor of copy mode.
        """
        painter, (view, index, line) = self._painter, place
        is_past = view is not None and view.block.is_past
        is_chosen = view is not None and view.block.key == self._current and index >= 0
        is_chosen_title = is_chosen and view is not None and index == view.block.title_row
        if view is None or index < 0:
            strip = self._paint(BLANK)
        elif is_chosen_title:
            strip = self._paint(_chosen_line(line, edge, has_keys=self.has_focus))
        elif row == self._hovered:
            shown = past_line(line) if is_past else line
            strip = self._paint(shown._replace(fill="band") if shown.fill == "page" else shown)
        elif (known := view.strips[index]) is not None:
            strip = known
        else:
            strip = self._paint(past_line(line) if is_past else line)
            if self.flow is not None:
                self.flow.keep_strip(view, index, strip)
        if is_marked:
            strip = self._marked(strip, row, place)
        # With a D-Mail the user's messages and pinned ones stay, although everything around them is dropped.
        stays = self._words_stay and view is not None and (view.block.pinned or view.block.is_users)
        if row in dropped and not stays:
            strip = painter.dropped(strip, edge)
        if is_chosen and self.has_focus:
            # All rows of the block get the edge, as the first one may be off the screen.
            strip = painter.with_edge(strip, edge, "accent")
        elif (self._is_left or is_past) and not is_chosen_title:
            strip = painter.with_edge(strip, edge)
        return strip

    def _marked(self, strip: Strip, row: int, place: Place) -> Strip:
        """Return the strip of a row with its matches, its selected text and the cursor of copy mode highlighted."""
        painter, (view, index, line) = self._painter, place
        if view is not None and index >= 0:
            if self._search is not None:
                strip = self._search.marked(strip, painter, view, index)
            if self._selection is not None and self._selection.ends is not None:
                span = self._selection.span(row, line)
                if span is not None:
                    strip = painter.selected(strip, *span, "selection")
        cursor = self._copying.place if self._copying is not None else None
        if cursor is not None and cursor[0] == row:
            cell = cells(line.text[: cursor[1]]) if line.text else MARGIN
            strip = painter.with_cursor(strip, cell)
        return strip

    def _new_mark(self) -> Line | None:
        """Return the label with the number of new rows since the user scrolled up; None for none."""
        count = self._viewport.n_new if self._viewport is not None else 0
        if not count:
            return None
        return Line((Span(f"  {self.glyphs.down} {grouped(count)} new  ", "accent"),))

    def _empty_rows(self) -> list[Line]:
        """Return the rows of an empty transcript."""
        width, height = self.pane_width, self.size.height
        if self._empty is None or self._empty_size != (width, height):
            self._empty_size = (width, height)
            if self._reading:
                self._empty = reading_rows(width, height, self._reading, self.glyphs.cut)
            elif self._hints:
                facts = ""
                if self._facts is not None:
                    facts = facts_words(self._facts, self._work_dir, width, height, self.glyphs.cut)
                self._empty = empty_rows(
                    width, height, self.glyphs, self._hints, facts, self._question
                )
            else:
                self._empty = []
        return self._empty

    def _refresh_empty(self) -> None:
        self._empty = None
        if not self.blocks and self.is_attached:
            self.refresh()

    def refresh_rows(self) -> None:
        """Repaint all visible rows."""
        self.refresh(Region(0, 0, self._rows_width, self.size.height))

    def _refresh_from(self, flow: Flow, first: int) -> None:
        """Repaint the visible rows of the blocks from `first` on, from the first row without a strip."""
        top, height = self.top, self.size.height
        row = max(top, flow.start(min(first, len(flow.views))))
        for view, index, _ in flow.lines(row, min(top + height, flow.height)):
            if view is None or index < 0 or view.strips[index] is None:
                break
            row += 1
        row = min(row, top + height - 1)
        self.refresh(Region(0, row - top, self._rows_width, height - (row - top)))

    @property
    def _rows_width(self) -> int:
        """Cells of the rows that can be seen; those of the scrollbar are drawn when it moves."""
        return self.outer_size.width - self.scrollbar_size_vertical

    def notify_style_update(self) -> None:
        """Forget the colours of the painter. Textual calls this when they may have changed."""
        super().notify_style_update()
        # Width changes come often, so thousands of blocks are visited only once, when they are painted.
        self._painted_width = -1

    def on_blur(self) -> None:
        """End copy mode, and draw the chosen block without the accent."""
        self.end_copying()
        self.refresh_rows()

    # --- scrolling

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Follow the end again only if the user scrolled to it."""
        super().watch_scroll_y(old_value, new_value)
        if self._placing or self._viewport is None:
            return
        self._hovered = None
        at_end = new_value >= self.max_scroll_y
        viewport = self._ready_viewport()
        if viewport is None:
            self._viewport.follows = at_end
            return
        viewport.scrolled(round(old_value), at_end=at_end)
        self._take_position(viewport)

    def scroll_to(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        x: float | None = None,
        y: float | None = None,
        *,
        animate: bool = True,
        speed: float | None = None,
        duration: float | None = None,
        easing: Callable[[float], float] | str | None = None,
        force: bool = False,
        on_complete: CallbackType | None = None,
        level: AnimationLevel = "basic",
        immediate: bool = False,
    ) -> None:
        """Scroll without an animation."""
        super().scroll_to(
            x, y, animate=False, force=force, on_complete=on_complete, level=level, immediate=True
        )

    def show_row(self, row: int, at: int = 0) -> None:
        """Scroll so that a row of the content is `at` rows below the top of the pane, as far as the content allows."""
        viewport = self._ready_viewport()
        if viewport is not None:
            viewport.show_row(row, at)
            self._take_position(viewport)
            self.refresh_rows()

    def scroll_to_end(self) -> None:
        """Go to the newest row and follow it."""
        if self._viewport is not None:
            self._viewport.follows = True
        viewport = self._ready_viewport()
        if viewport is None:
            return
        shown = self.top, viewport.flow.height
        viewport.show_end()
        self._take_position(viewport)
        if (self.top, viewport.flow.height) != shown:
            self.refresh_rows()

    def hold(self) -> None:
        """Stop following the end."""
        if self._viewport is not None:
            self._viewport.top = self.top
            self._viewport.hold()

    def action_scroll_end(self) -> None:
        """Go to the newest row and follow it."""
        self.scroll_to_end()

    def show_checkpoint(self, checkpoint_id: int) -> None:
        """Choose the block of a checkpoint, and scroll to it."""
        flow, blocks = self.flow, self.blocks
        index = next((i for i, one in enumerate(blocks) if one.checkpoint == checkpoint_id), None)
        if flow is None or index is None:
            return
        self._current = blocks[index].key
        flow.lay_out(index)
        self.show_row(flow.start(index), 1)

    def show_match(self, index: int, row: int) -> None:
        """Choose a block, and make one of its rows visible.

        Args:
            index: the index of the block.
            row: the row within the block.
        """
        flow = self.flow
        if flow is None:
            return
        self._current = flow.views[index].block.key
        flow.lay_out(index)
        at = flow.start(index) + flow.views[index].gap + row
        if not self.top < at < self.top + self.size.height - 1:
            self.show_row(at, self.size.height // 3)
        else:
            self.hold()
        self.refresh_rows()

    # --- keys: the block that they act on

    def enter(self) -> None:
        """Focus the transcript, and choose the last visible block unless a visible one is chosen."""
        viewport = self._ready_viewport()
        if viewport is not None and viewport.flow.views:
            self._current = viewport.last_visible(self._current)
        self.focus()

    def action_turn(self, step: int) -> None:
        """Scroll to the user's message before (-1) or after (1) the first visible row."""
        viewport = self._ready_viewport()
        if viewport is not None and viewport.flow.views:
            self.show_row(viewport.turn_row(step))

    def action_choose(self, step: int) -> None:
        """Choose the next block above (-1) or below (1)."""
        flow = self.flow
        if flow is None:
            return
        able = self._able()
        if not able:
            return
        here = flow.index_of_key(self._current)
        if here is None or here not in able:
            viewport = self._ready_viewport()
            on_view = viewport.visible if viewport is not None else range(0)
            index = next((i for i in able[::step] if i in on_view), able[::step][0])
        else:
            index = able[min(max(able.index(here) + step, 0), len(able) - 1)]
        self._current = flow.views[index].block.key
        flow.lay_out(index)
        self._show_chosen()
        self.refresh_rows()

    def _able(self) -> Sequence[int]:
        """Return the indices of the blocks that can be chosen; on a line that was left only those that can be carried over."""
        views = self.flow.views if self.flow is not None else []
        if not self._is_left:
            return range(len(views))
        from kimi_tui.projection.blocks import MarkBlock

        return [i for i, view in enumerate(views) if not isinstance(view.block, MarkBlock)]

    def _chosen_row(self) -> int | None:
        """Return the first row of the chosen block."""
        flow = self.flow
        index = flow.index_of_key(self._current) if flow is not None else None
        if flow is None or index is None:
            return None
        return flow.start(index) + flow.views[index].gap

    def _show_chosen(self) -> None:
        row = self._chosen_row()
        if row is not None and not self.top <= row < self.top + self.size.height:
            self.show_row(row, self.size.height // 3)

    def _current_view(self) -> View | None:
        flow = self.flow
        index = flow.index_of_key(self._current) if flow is not None else None
        return flow.views[index] if flow is not None and index is not None else None

    def action_fold(self) -> None:
        """Fold or unfold the block that the keys act on."""
        block = self.chosen
        if block is not None:
            self.toggle_fold(block)

    def action_preview(self) -> None:
        """Open the chosen sub-agent, unfold the chosen D-Mail, or post the checkpoint of the chosen block."""
        from kimi_tui.projection.blocks import DMailBlock

        block = self.chosen
        if self._open_agent(block):
            return
        if isinstance(block, DMailBlock) and block.unfolds:
            self.toggle_fold(block)
        elif block is not None and block.checkpoint is not None and block.live:
            self._choose_checkpoint(block.checkpoint, block)

    def _open_agent(self, block: Block | None) -> bool:
        """Post that the sub-agent of a card is to be opened; return False if the block is no such card."""
        from kimi_tui.projection.blocks import ToolBlock
        from kimi_tui.tool_cards import AGENT_NAMES

        if not isinstance(block, ToolBlock):
            return False
        agent = block.agent
        # A second Enter on a card whose sub-agent waits for its turn must not preview a rewind of what goes on.
        is_waiting = block.tool in AGENT_NAMES and not block.over
        if agent is not None or is_waiting:
            self.post_message(self.AgentOpened(agent.name if agent is not None else ""))
        return agent is not None or is_waiting

    def _choose_checkpoint(self, checkpoint: int, block: Block) -> None:
        from kimi_tui.projection.blocks import place_among_said

        said = place_among_said(block, self.blocks)
        self.post_message(self.CheckpointClicked(self, checkpoint, said))

    def action_pin(self) -> None:
        """Toggle the pin of the chosen block."""
        block = self.chosen
        if block is not None and block.uid:
            self.post_message(self.PinToggled(block.uid, block.number))

    def action_open_link(self) -> None:
        """Open the first image or link of the chosen block; called again, its next one."""
        # A link of any other block is not opened: a browser must not open because text was typed in the wrong place.
        view = self._current_view()
        if view is not None and view.late is not None:
            self.run_worker(
                reported(self, partial(self._open_when_whole, view)), group="link", exclusive=True
            )
        else:
            self._open_next(view)

    async def _open_when_whole(self, view: View) -> None:
        """Lay out the whole block in slices, then open its next link: rows that were never visible may have links."""
        if self.flow is not None:
            await in_slices(self.flow.whole_in_steps(view), COPY_SLICE_S)
            self._mark_changed(self.flow.index_of_key(view.block.key) or 0)
            self._draw()
            self._open_next(view)

    def _open_next(self, view: View | None) -> None:
        lines = view.lines if view is not None else ()
        hits = (hit for line in lines for hit in (line.hit, *(span.hit for span in line.spans)))
        found = list(dict.fromkeys(hit for hit in hits if hit.startswith((HIT_LINK, HIT_IMAGE))))
        if view is None or not found:
            return
        last_key, last = self._opened_link
        at = (last + 1) % len(found) if last_key == view.block.key else 0
        self._opened_link = (view.block.key, at)
        self._open(found[at], view.block)

    def _open(self, hit: str, block: Block) -> None:
        if hit.startswith(HIT_LINK):
            self.post_message(self.LinkClicked(hit[len(HIT_LINK) :]))
            return
        from kimi_tui.projection.blocks import images_of

        for image in images_of(block):
            if hit == f"{HIT_IMAGE}{image.sha256}":
                self.post_message(self.ImageOpened(image))
                return

    def _choose_diff_line(self, hit: str, block: Block) -> None:
        from kimi_tui.projection.blocks import ToolBlock
        from kimi_tui.tool_cards import DiffBlock

        place, _, number = hit.removeprefix(HIT_LINE).partition(".")
        shown = block.display[int(place) :][:1] if isinstance(block, ToolBlock) else ()
        for diff in shown:
            if isinstance(diff, DiffBlock) and int(number) < len(diff.lines):
                line = diff.lines[int(number)]
                self.post_message(self.DiffLineChosen(diff.path, line, block.uid))

    def toggle_fold(self, block: Block) -> None:
        """Fold or unfold a block; its title row stays in place, or is made visible."""
        model = self._loaded_model()
        self.finish_motion()
        self._draw_changes()
        change = model.toggle(block)
        if change.first is None:
            return
        viewport = self._ready_viewport() or self._loaded_viewport()
        viewport.toggled(model.blocks, change.first)
        self._mark_changed(change.first)
        self._draw()
        viewport.stay()
        self.refresh_rows()

    # --- copying

    def action_copy(self) -> None:
        """Copy the selected text, else the block that the keys act on, else the newest answer."""
        from kimi_tui.tui.transcript.copied_text import kind_of, source_of

        if self.copy_selection():
            return
        block = self.chosen
        if block is None:
            self.copy_answer()
        elif text := source_of(block):
            self._copied(text, f"{kind_of(block)}, {text_amount(text)}")
        else:
            self.post_message(self.NothingCopied("There is no text to copy here."))

    def copy_selection(self) -> bool:
        """Copy the selected text, and clear the selection; return False if nothing is selected.

        A long text is collected in slices, while keys and frames are handled.
        """
        from kimi_tui.tui.transcript.copied_text import selected_text

        if self.flow is None or self.selected_positions is None:
            return False
        work = selected_text(self.flow, *self.selected_positions)
        try:
            # The work starts while the text is selected, as its ends stay with their text only then.
            next(work)
        except StopIteration as end:
            self._selection_copied(end.value)
        else:
            first = self.flow.index_of(self.selected_positions[0])
            copied = partial(self._copied_in_slices, work, first or 0)
            self.run_worker(reported(self, copied), group="copy", exclusive=True)
        self.screen.clear_selection()
        return True

    async def _copied_in_slices(self, copied: Generator[None, None, str], first: int) -> None:
        self._selection_copied(await in_slices(copied, COPY_SLICE_S))
        # A block that was laid out for the copy may be higher than estimated.
        self._mark_changed(first)
        self._draw_in_time()

    def _selection_copied(self, text: str) -> None:
        text = text.rstrip("\n")
        self._copied(text, text_amount(text))

    def copy_answer(self) -> None:
        """Copy the newest answer."""
        from kimi_tui.projection.blocks import AgentBlock
        from kimi_tui.tui.transcript.copied_text import source_of

        block = next((one for one in reversed(self.blocks) if isinstance(one, AgentBlock)), None)
        if block is not None and (text := source_of(block)):
            self._copied(text, f"the last answer, {text_amount(text)}")
        else:
            self.post_message(self.NothingCopied("There is no answer to copy yet."))

    def action_copy_code(self) -> None:
        """Copy a piece of code of the block that the keys act on, else the newest; then the next one of its block."""
        block = self.chosen
        if block is None:
            self.copy_code()
        else:
            self._copy_code_of([block], 0)

    def copy_code(self, number: int = 0) -> None:
        """Copy the newest piece of code of the answers; called again, the next one of the same answer.

        With a number the piece of that number of the last answer with code in it, counted from 1.
        """
        from kimi_tui.projection.blocks import AgentBlock

        answers = (b for b in reversed(self.blocks) if isinstance(b, AgentBlock))
        self._copy_code_of(answers, -1, number)

    def _copy_code_of(self, blocks: Iterable[Block], first: int, number: int = 0) -> None:
        from kimi_tui.tui.transcript.copied_text import code_of

        found = next(((one.key, code) for one in blocks if (code := code_of(one))), None)
        if found is None:
            self.post_message(self.NothingCopied("There is no code block to copy here."))
            return
        key, pieces = found
        last_key, last = self._taken_code
        at = (last + 1 if last_key == key else first) % len(pieces)
        if number > len(pieces):
            from kimi_tui.tui.formatting import counted

            words = f"The last answer with code has {counted(len(pieces), 'code block')}."
            self.post_message(self.NothingCopied(words))
            return
        if number:
            at = number - 1
        self._taken_code = (key, at)
        language, text = pieces[at]
        words = text_amount(text, language)
        self._copied(text, f"{words} ({at + 1} of {len(pieces)})" if pieces[1:] else words)

    def _copied(self, text: str, words: str) -> None:
        self.post_message(self.Copied(self, text, f"Copied {words}."))

    # --- the selection of text

    @property
    def selected_positions(self) -> tuple[TextPosition, TextPosition] | None:
        """The start and the end of the selected text; None if nothing is selected."""
        return self._selection.ends if self._selection is not None else None

    def select_text(self, start: TextPosition, end: TextPosition) -> None:
        """Select the text between two positions, which move with their text."""
        if self._selection is not None:
            self._selection.select(start, end)
            self._selection_changed(was_selected=False)

    def clear_selection(self) -> None:
        """Remove the selection."""
        if self._selection is not None and self._selection.ends is not None:
            self._selection.clear()
            self._selection_changed(was_selected=True)

    def _selection_changed(self, *, was_selected: bool) -> None:
        """Update `Screen.selections`, with which the screen requests the text; the positions are kept here."""
        if self.selected_positions is not None:
            self.screen.selections = {self: SELECT_ALL}
        elif was_selected and self.is_attached:
            others = self.screen.selections.items()
            if any(one is self for one, _ in others):
                self.screen.selections = {one: what for one, what in others if one is not self}
        self.refresh_rows()

    def selection_updated(self, selection: Selection | None) -> None:
        """Accept a selection that Textual made or removed."""
        # The event may be old: another selection can have been made since.
        current = self.screen.selections.get(self)
        if current is None:
            if self._selection is not None:
                self._selection.clear()
        elif self.selected_positions is None:
            self.select_all()
        self.refresh_rows()

    def select_all(self) -> None:
        """Select all text."""
        whole = self._selection.whole if self._selection is not None else None
        if whole is not None:
            self.select_text(*whole)

    def action_select_all(self) -> None:
        """Select all of the conversation."""
        self.select_all()

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """Return the source of the selected text, for Textual; it blocks, unlike `copy_selection`."""
        from kimi_tui.tui.transcript.copied_text import selected_text

        del selection
        if self.flow is None or self.selected_positions is None:
            return None
        return drained(selected_text(self.flow, *self.selected_positions)), "\n"

    def action_select_rows(self, step: int) -> None:
        """Select the first row of the block that the keys act on, or the first visible one; then row by row."""
        flow, selection = self.flow, self._selection
        if flow is None or selection is None or not flow.views:
            return
        grown = self._grown if selection.ends is not None else None
        at = flow.row_of(grown[2]) if grown is not None else None
        if grown is None or at is None:
            view = self._current_view()
            row = self.top
            if view is not None:
                title = flow.row_of(TextPosition(view.block.key, view.block.title_row, 0))
                if title is not None:
                    row = title
            origin = selection.piece_at(row, 0, LINE)
        else:
            row, origin = min(max(0, at + step), flow.height - 1), (grown[0], grown[1])
        head = flow.position_at(row)
        assert head is not None
        self._grown = (*origin, head)
        self._select_from(origin, selection.piece_at(row, 0, LINE))
        selection.hold(self._grown)
        if row < self.top:
            self.show_row(row)
        elif row >= self.top + self.size.height:
            self.show_row(row, self.size.height - 1)

    # --- the selection with a cursor

    @property
    def is_copying(self) -> bool:
        """Whether keys move a cursor through the text."""
        return self._copying is not None

    def action_copy_mode(self) -> None:
        """Start copy mode, with the cursor on the chosen block if it is visible."""
        flow, selection = self.flow, self._selection
        if self._copying is not None or flow is None or selection is None or not flow.views:
            return
        from kimi_tui.tui.transcript.copy_mode import CopyMode

        self.finish_motion()
        self.hold()
        self.clear_selection()
        row = self._chosen_row()
        if row is None or not self.top <= row < self.top + self.size.height:
            row = self.top
        self._grown = None
        self._copying = CopyMode(flow, selection, row)
        self._select_copied()
        self.post_message(self.CopyModeChanged())

    def end_copying(self) -> None:
        """End copy mode; the selection stays."""
        copying, self._copying = self._copying, None
        if copying is not None:
            copying.end()
            self.refresh_rows()
            self.post_message(self.CopyModeChanged())

    def copy_action(self, key: str) -> str:
        """Return the action of a key in copy mode; empty for none."""
        from kimi_tui.tui.transcript.copy_mode import ACTIONS

        return next((one for one in ACTIONS if key in keys_of(f"copy.{one}", self.keys)), "")

    def on_key(self, event: events.Key) -> None:
        """Run the action of a key in copy mode."""
        if self._copying is None:
            return
        action = self.copy_action(event.key)
        if not action and not event.is_printable:
            return
        event.stop()
        event.prevent_default()
        if action:
            self.act_on_cursor(action)

    def act_on_cursor(self, action: str) -> None:
        """Run an action of `copy_mode.ACTIONS` on the text cursor, while there is one."""
        copying = self._copying
        if copying is None:
            return
        if action == "author":
            self._choose_line_of_cursor(copying)
            return
        outcome = copying.act(action, max(1, self.size.height - 1))
        if outcome == "moved":
            self._select_copied()
            return
        if outcome == "take":
            if not copying.selects and (pieces := copying.pieces) is not None:
                self._select_from(*pieces)
            self.copy_selection()
        self.clear_selection()
        self.end_copying()

    def _choose_line_of_cursor(self, copying: CopyMode) -> None:
        flow, place = self.flow, copying.place
        if flow is None or place is None:
            return
        view, _, line = flow.line(place[0])
        if view is None or line is BLANK or not line.hit.startswith(HIT_LINE):
            self.post_message(self.NothingCopied("The cursor is not on a line of a diff."))
            return
        self.clear_selection()
        self.end_copying()
        self._choose_diff_line(line.hit, view.block)

    def _select_copied(self) -> None:
        """Select up to the cursor of copy mode, and make it visible."""
        copying = self._copying
        pieces = copying.pieces if copying is not None else None
        place = copying.place if copying is not None else None
        if copying is None or pieces is None or place is None:
            self.end_copying()
            return
        if copying.selects:
            self._select_from(*pieces)
        else:
            self.clear_selection()
        row, height = place[0], self.size.height
        if row < self.top:
            self.show_row(row)
        elif row >= self.top + height:
            self.show_row(row, height - 1)
        self.refresh_rows()

    def _select_from(
        self, origin: tuple[TextPosition, TextPosition], head: tuple[TextPosition, TextPosition]
    ) -> None:
        """Select from one piece of text to another, both included; each is given by its start and end."""
        if self._selection is not None:
            was_selected = self._selection.ends is not None
            self._selection.select_from(origin, head)
            self._selection_changed(was_selected=was_selected)

    # --- the mouse

    def hit(self, x: int, y: int) -> str:
        """Return the action of a click in a cell of the pane (a `HIT_` of `rows`); empty for none."""
        flow = self.flow
        row, motion = self.top + y, self._motion
        if flow is None or (motion is not None and row >= motion.start):
            return ""
        _, _, line = flow.line(row)
        return hit_at(line, x) if line is not BLANK else ""

    def hover(self, row: int | None) -> None:
        """Highlight a row that a click would act on; None for no row."""
        if row == self._hovered:
            return
        for changed in (self._hovered, row):
            if changed is not None:
                self.refresh(Region(0, changed - self.top, self.outer_size.width, 1))
        self._hovered = row

    def on_mouse_down(self, event: events.MouseDown) -> None:
        """Begin a selection: of characters, at a second click of words, at a third of lines."""
        flow, selection = self.flow, self._selection
        if event.button != 1 or flow is None or selection is None or not flow.views:
            return
        if self.is_moving:
            return
        self.end_copying()
        pressed = self._pressed
        again = (
            pressed is not None
            and event.time - pressed.time <= app_of(self).CLICK_CHAIN_TIME_THRESHOLD
            and event.screen_offset == pressed.offset
        )
        grain = min(LINE, pressed.grain + 1) if pressed is not None and again else CHARACTER
        origin = selection.piece_at(self.top + event.y, event.x, grain)
        self._pressed = MousePress(
            origin, grain, event.screen_offset, event.y, event.time, held=True
        )
        self._grown = None
        selection.hold(origin)
        self.capture_mouse()
        if grain > CHARACTER:
            self._select_from(origin, origin)

    def on_mouse_move(self, event: events.MouseMove) -> None:
        """Select up to the pointer while the button is held; else highlight the row that a click would act on."""
        pressed = self._pressed
        if pressed is not None and pressed.held:
            if pressed.dragged or event.screen_offset != pressed.offset:
                pressed.dragged = True
                self._drag(event.x, event.y)
            return
        self.hover(self.top + event.y if self.hit(event.x, event.y) else None)

    def on_mouse_up(self, event: events.MouseUp) -> None:
        """Complete the selection."""
        pressed = self._pressed
        if pressed is None or not pressed.held:
            return
        # The screen regards a release at the place of the press as the end of any selection.
        if event.screen_offset == pressed.offset:
            if pressed.dragged:
                self._drag(event.x, event.y)
            elif pressed.grain > CHARACTER:
                self._select_from(pressed.origin, pressed.origin)
            else:
                self.clear_selection()
        self._end_drag()
        self.release_mouse()

    def on_mouse_release(self) -> None:
        """Stop selecting, since another widget captured the pointer."""
        self._end_drag()

    def _end_drag(self) -> None:
        if self._pressed is not None:
            self._pressed.held = False
        if self._grown is None and self._selection is not None:
            self._selection.hold(())
        if self._pulling is not None:
            self._pulling.stop()
            self._pulling = None

    def _drag(self, x: int, y: int) -> None:
        """Select from the pressed text to a cell of the pane or outside of it; scroll near the edges."""
        pressed, selection = self._pressed, self._selection
        if pressed is None or selection is None:
            return
        # The text that is being selected must not scroll away.
        self.hold()
        self._pointer = (x, y)
        height = self.size.height
        row = self.top + min(max(0, y), height - 1)
        column = 0 if y < 0 else self.outer_size.width if y >= height else x
        self._select_from(pressed.origin, selection.piece_at(row, column, pressed.grain))
        pull = self._pull()
        if pull and self._pulling is None:
            self._pulling = self.set_interval(PULL_S, self._pull_on)
        elif not pull and self._pulling is not None:
            self._pulling.stop()
            self._pulling = None

    def _pull(self) -> int:
        """Return the rows by which a drag scrolls the pane at each interval; they increase with the distance of the pointer."""
        pressed = self._pressed
        if pressed is None or not pressed.held:
            return 0
        y, height = self._pointer[1], self.size.height
        edge = min(EDGE_ROWS, height // 3)
        above, below = edge - y, y - (height - 1 - edge)
        if above > 0 and (y < pressed.y or y < 0):
            return -min(above, FASTEST_PULL)
        if below > 0 and (y > pressed.y or y >= height):
            return min(below, FASTEST_PULL)
        return 0

    def _pull_on(self) -> None:
        before = self.top
        self.scroll_relative(y=self._pull(), animate=False)
        self.hold()
        if self.top != before:
            self._drag(*self._pointer)

    def on_leave(self) -> None:
        """Remove the highlight, since the pointer left the transcript."""
        self.hover(None)

    def on_click(self, event: events.Click) -> None:
        """Unfold a block, open a link or an image, or post the clicked checkpoint."""
        flow = self.flow
        if self.is_moving:
            self.finish_motion()
            return
        pressed = self._pressed
        if event.button != 1 or flow is None or self.text_selection is not None:
            return
        if pressed is not None and pressed.dragged:
            return
        mark = self._new_mark()
        is_low = event.y == self.size.height - 1
        if mark is not None and is_low and event.x >= self.outer_size.width - mark.width:
            self.scroll_to_end()
            return
        hit = self.hit(event.x, event.y)
        view, _, _ = flow.line(self.top + event.y)
        if hit.startswith(HIT_CHECKPOINT) and view is not None:
            self._choose_checkpoint(int(hit[len(HIT_CHECKPOINT) :]), view.block)
        elif hit.startswith((HIT_LINK, HIT_IMAGE)) and view is not None:
            self._open(hit, view.block)
        elif hit.startswith(HIT_LINE) and view is not None:
            self._choose_diff_line(hit, view.block)
        elif hit == HIT_FOLD and view is not None:
            self.toggle_fold(view.block)
        elif hit == HIT_AGENT and view is not None:
            self._open_agent(view.block)

    # --- the search

    @property
    def is_searched(self) -> bool:
        """Whether a search is open."""
        return self._search is not None

    def begin_search(self, query: str = "") -> None:
        """Open and focus the search bar, and search for the query if one is given."""
        if self._search is None:
            from kimi_tui.tui.transcript.search import Search

            self._search = Search(self, self.blocks, self.flow)
        self._search.open(query)

    def on_search_reached(self, event: Search.Reached) -> None:
        """Show the current match, and unfold the block that hides it."""
        search = self._search
        if search is None:
            return
        self.finish_motion()
        for block in search.blocks_to_toggle(event.place):
            self.toggle_fold(block)
        if (place := search.reach(event)) is not None:
            self.show_match(*place)

    def on_search_left(self) -> None:
        """Close the search bar and remove the highlights."""
        self.end_search()

    def end_search(self) -> None:
        """Close the search bar and remove the highlights; the current match stays visible."""
        search, self._search = self._search, None
        if search is not None:
            search.close()
            self.refresh_rows()
            self.post_message(self.SearchEnded())

    def action_next_match(self, step: int) -> None:
        """Go to the match below (1) or above (-1), wrapping around."""
        if self._search is not None:
            self._search.go(step)


def import_for_answers() -> None:
    """Import the modules that the first answer needs; call it in a thread."""
    from kimi_tui.tui.transcript import code, viewport

    _import_markdown()
    code.warm_up()
    del viewport


def import_for(records: Iterable[EventRecord]) -> None:
    """Import the modules that drawing these events needs, and no others, as the first frame waits for them."""
    from kimi_tui.projection import transcript
    from kimi_tui.tui.transcript import viewport
    from kimi_tui.tui.transcript.code import lexer_for
    from kimi_tui.tui.transcript.markdown_stream import INFO_LIMIT, fence_of
    from kimi_tui.wire.events import TextPart

    del transcript, viewport
    _import_markdown()
    languages: dict[str, None] = {}
    for record in records:
        if isinstance(record.event, TextPart):
            fences = map(fence_of, record.event.text.split("\n"))
            languages |= {fence[2][:INFO_LIMIT]: None for fence in fences if fence and fence[2]}
    for language in list(languages)[-MOST_LANGUAGES:]:
        lexer_for(language)


def _import_markdown() -> None:
    from kimi_tui.tui.transcript import markdown

    # The parser's rules are imported when it parses a text.
    markdown.Parser().parse("")


def copy_selection(screen: Screen[Any]) -> bool:
    """Copy the selected text of a screen, and clear the selection; return False if nothing is selected."""
    for widget in screen.selections:
        if isinstance(widget, Transcript) and widget.is_attached and widget.copy_selection():
            return True
    text = screen.get_selected_text()
    if text:
        app_of(screen).copy_to_clipboard(text)
        screen.clear_selection()
    return bool(text)


def _chosen_line(line: Line, edge: str, *, has_keys: bool) -> Line:
    """Return the title row of the chosen block, with an edge and a background of its own."""
    ink, ground = ("accent", "select") if has_keys else ("quiet", "band")
    if not line.spans:
        return line._replace(fill=ground)
    first, *rest = line.spans
    if len(first.text) > 1:
        rest = [first._replace(text=first.text[1:]), *rest]
    return line._replace(spans=(Span(edge, ink), *rest), fill=ground)


def _twins(end: Sequence[Block], whole: Sequence[Block]) -> list[tuple[Block, Block]]:
    """Return the blocks of the end of a conversation, each with its equivalent in the whole conversation."""
    pairs = zip(reversed(end), reversed(whole), strict=False)
    return [(one, other) for one, other in pairs if (type(one), one.at) == (type(other), other.at)]


def _is_streamed(model: TranscriptModel) -> bool:
    """Return whether the newest block is one of the agent: text, a thought or a tool call."""
    from kimi_tui.projection.blocks import AgentBlock, ThoughtBlock, ToolBlock

    last = model.blocks[-1] if model.blocks else None
    return isinstance(last, (AgentBlock, ThoughtBlock, ToolBlock))

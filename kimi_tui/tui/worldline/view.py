"""A world line in the place of the chat: a banner that says so, and its messages, read-only, grey at their edge."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, ClassVar

from rich.segment import Segment
from rich.style import Style
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from kimi_tui.tui.app_of import app_of
from kimi_tui.tui.chat.blocks import Block, MarkBlock
from kimi_tui.tui.chat.lines import Line, Span
from kimi_tui.tui.chat.transcript import Transcript
from kimi_tui.tui.glyphs import glyphs_of
from kimi_tui.tui.worldline import model

if TYPE_CHECKING:
    from kimi_tui.soul.travel_protocol import WorldLineInfo
    from kimi_tui.wire.events import Record

SLICE = 32
"""Events that are read in one go, so that no key waits."""
_COLOURS = {
    "lost": "$kind-lost",
    "strong": "bold $ink-strong",
    "ink": "$ink",
    "quiet": "$ink-quiet",
    "accent": "$accent",
    "dmail": "$kind-dmail",
    "compaction": "$kind-compaction",
}


class LineTranscript(Transcript):
    """The messages of a line that was left."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j", "wish('jump')", "Jump back", id="line.jump", show=False),
        Binding("c", "wish('compare')", "Compare", id="line.compare", show=False),
        Binding("s", "wish('send')", "Send to now", id="line.send", show=False),
        Binding("tab", "choose(1)", "Next message", id="line.next", show=False),
        Binding("shift+tab", "choose(-1)", "Message before", id="line.before", show=False),
        Binding("escape", "wish('leave')", "Back to now", id="line.leave", show=False),
    ]

    class Wished(Message):
        """The person wants to do something with this line: jump, compare, send or leave."""

        def __init__(self, wish: str) -> None:
            super().__init__()
            self.wish = wish

    def __init__(self, *, work_dir: str) -> None:
        super().__init__(work_dir=work_dir)
        self._has_place = asyncio.Event()
        self._rows_seen = 0

    def on_resize(self) -> None:
        """It has a place now."""
        super().on_resize()
        if self.is_ready:
            self._has_place.set()

    def resized(self) -> None:
        """Another size: what is chosen and was on view stays there."""
        row = self._chosen_row()
        was_seen = row is not None and self.top <= row < self.top + self._rows_seen
        super().resized()
        self._rows_seen = self.size.height
        if was_seen:
            self._bring_into_view()

    def _chosen_row(self) -> int | None:
        flow = self._flow
        views = flow.views if flow is not None else []
        for index, view in enumerate(views):
            if flow is not None and view.block.key == self._current:
                return flow.start(index) + view.gap
        return None

    def _bring_into_view(self) -> None:
        row = self._chosen_row()
        if row is not None and not self.top <= row < self.top + self.size.height:
            self.show_row(max(0, row - self.size.height // 3))

    async def finish(self) -> None:
        """Draw all that was told, once it has a place."""
        await self._has_place.wait()
        self._draw()

    def action_wish(self, wish: str) -> None:
        """Tell what is wanted; to leave ends a search first."""
        if wish == "leave" and self.is_searched:
            self.end_search()
        else:
            self.post_message(self.Wished(wish))

    @property
    def chosen(self) -> Block | None:
        """The block that the keys act on."""
        return next((block for block in self.blocks if block.key == self._current), None)

    def show_checkpoint(self, checkpoint_id: int) -> None:
        """Choose what stands at a checkpoint, and bring it into view."""
        flow = self._flow
        blocks = self.blocks
        index = next((i for i, one in enumerate(blocks) if one.checkpoint == checkpoint_id), None)
        if flow is None or index is None:
            return
        self._current = blocks[index].key
        flow.ensure(index)
        self.show_row(max(0, flow.start(index) - 1))

    def action_choose(self, step: int) -> None:
        """Go to the message above or below: here each of them can be sent."""
        flow = self._flow
        if flow is None or not flow.views:
            return
        able = [i for i, view in enumerate(flow.views) if not isinstance(view.block, MarkBlock)]
        at = next((i for i in able if flow.views[i].block.key == self._current), None)
        if not able:
            return
        place = able.index(at) + step if at is not None else (0 if step > 0 else len(able) - 1)
        index = able[max(0, min(place, len(able) - 1))]
        view = flow.views[index]
        self._current = view.block.key
        flow.ensure(index)
        self._bring_into_view()
        self.refresh(self.area)

    def _strip(self, top: int, y: int) -> Strip:
        strip = super()._strip(top, y)
        flow = self._flow
        if flow is not None and flow.views:
            view, index, _ = flow.line(top + y)
            is_chosen = view is not None and view.block.key == self._current
            if view is not None and is_chosen and index == view.block.title_row:
                return strip
        first = next(iter(strip), None)
        edge = next(iter(self._painter.paint(Line((Span(self.glyphs.edge, "lost"),)))), None)
        if first is None or edge is None or edge.style is None:
            return strip
        ground = first.style.bgcolor if first.style is not None else None
        style = edge.style + Style(bgcolor=ground)
        return Strip.join([Strip([Segment(edge.text, style)], 1), strip.crop(1)])


class Banner(Widget):
    """The rows over a world line."""

    def __init__(self, info: WorldLineInfo) -> None:
        super().__init__()
        self._info = info
        self._news: list[model.Span] = []

    def tell(self, words: list[model.Span]) -> None:
        """Say what happens on the live line meanwhile."""
        if words != self._news:
            self._news = words
            self.refresh()

    def render(self) -> Content:
        """Name and reason, keys, and the edge that goes on, with what happens meanwhile."""
        glyphs = glyphs_of(app_of(self))
        first, second = model.banner(self._info, self.size.width, glyphs, datetime.now(UTC))
        rows = [
            Content.assemble(*((text, _COLOURS[name]) for text, name in row))
            for row in (first, second)
        ]
        width = self.size.width
        rows = [
            row.pad_right(max(0, width - row.cell_length)).stylize("on $lost-bg") for row in rows
        ]
        news = model.fitted([(f"{glyphs.edge} ", "lost"), ("  ", "quiet"), *self._news], width)
        last = Content.assemble(*((text, _COLOURS[name]) for text, name in news))
        return Content("\n").join([*rows, last])


class Reading(Vertical):
    """A world line on view.

    Args:
        info: what is known of the line.
        work_dir: paths below it are shown relative to it.
    """

    def __init__(self, info: WorldLineInfo, work_dir: str) -> None:
        super().__init__()
        self.info = info
        self.banner = Banner(info)
        self.transcript = LineTranscript(work_dir=work_dir)

    def compose(self) -> ComposeResult:
        """Banner and messages."""
        yield self.banner
        yield self.transcript

    async def show(self, records: Sequence[Record], checkpoint_id: int) -> None:
        """Show the line, at a checkpoint where one is given (-1: at its end)."""
        for start in range(0, len(records), SLICE):
            self.transcript.apply(records[start : start + SLICE], live=False)
            await asyncio.sleep(0)
        await self.transcript.finish()
        if checkpoint_id >= 0:
            self.transcript.show_checkpoint(checkpoint_id)

    def on_transcript_rebuild_needed(self, event: Transcript.RebuildNeeded) -> None:
        """This line is read, not lived: nothing is to be read anew."""
        event.stop()

"""Shows a state other than the live one: a world line instead of the chat, or in chat and gauge the prospect of a rewind.

A world line is read (it has the focus), or glanced at while one of its rows is selected on the timeline. The live line
continues meanwhile. The widget of a world line is imported when one is shown.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, ClassVar, Literal

from kimi_tui.daemon_threads import in_daemon_thread
from kimi_tui.tui.faults import reported, start_detached
from kimi_tui.tui.formatting import missing_line_words
from kimi_tui.tui.frame_rows import READ_ONLY
from kimi_tui.tui.glyphs import glyphs_of
from kimi_tui.tui.keyboard import QUIET_S, QuietKeyboard
from kimi_tui.tui.main.conversation import ConversationController
from kimi_tui.tui.main.workbench import Workbench
from kimi_tui.tui.screens import add_sheets
from kimi_tui.tui.slices import release

if TYPE_CHECKING:
    from textual import events
    from textual.worker import Worker

    from kimi_tui.projection.blocks import Block
    from kimi_tui.projection.world_lines import LiveLineActivity
    from kimi_tui.session.world_lines import WorldLine
    from kimi_tui.soul.kimisoul import KimiSoul
    from kimi_tui.soul.rewind_values import Prospect
    from kimi_tui.tui.world_line_view import WorldLineView
    from kimi_tui.wire.events import EventRecord


GLANCE_DELAY_S = 0.1
"""Seconds for which a row of a world line must be selected before that line is shown: the arrows may only pass it."""
RELEASE_S = 0.002
"""Seconds of a time slice in which the events of a line that was shown are dropped."""


class WorldLineViewer:
    """Shows a world line in place of the chat, or the prospect of a rewind or jump, and returns to the live line.

    Args:
        bench: the workbench with chat, timeline and gauge.
        conversation: the session.
    """

    QUIET_S: ClassVar[float] = QUIET_S
    """Seconds without a key before a key acts on the line."""

    def __init__(self, bench: Workbench, conversation: ConversationController) -> None:
        self._bench = bench
        self._conversation = conversation
        self._quiet = QuietKeyboard(0.0, 0.0)
        self._from_timeline = False
        self._reading: WorldLineView | None = None
        self._glance: Literal["", "coming", "whole"] = ""
        """Whether the line is only glanced at: the timeline has the focus, and selecting another row there replaces the line."""
        self._wanted = (0, -1)
        """The world line and checkpoint to glance at."""
        self._coming: Worker[None] | None = None
        self._looked_up: asyncio.Task[tuple[WorldLine, list[EventRecord]]] | None = None
        """The task that reads the line to glance at, in a thread that continues even if nobody waits for it any more."""
        self._news: LiveLineActivity | None = None
        self._selected_prospect: Prospect | None = None
        """The prospect of going to the selected row of the timeline, as the timeline last posted it; None while no row is selected."""
        self._prospect: Prospect | None = None
        """The prospect on view; None for none."""

    @property
    def shown_line(self) -> int:
        """The number of the world line in place of the chat, read (`Workbench.reading`) or glanced at; 0 for none."""
        return self._reading.info.n if self._reading is not None else 0

    @property
    def has_keys(self) -> bool:
        """Whether the line that is read has the focus."""
        line = self._bench.line
        return line is not None and line.transcript.has_focus

    def comes_early(self, event: events.Key) -> bool:
        """Return whether a key was typed before the line was visible, and so was meant for the prompt."""
        return self.has_keys and not self._quiet.accepts(event.time)

    def _focus(self) -> None:
        """Focus the line on view."""
        if self._reading is not None:
            self._bench.screen.set_focus(self._reading.transcript)

    async def open(
        self,
        soul: KimiSoul,
        world_line: int,
        checkpoint_id: int = -1,
        *,
        from_timeline: bool = False,
    ) -> None:
        """Show a line, at one of its checkpoints if one is given.

        Args:
            soul: the engine of the session.
            world_line: the number of the line.
            checkpoint_id: the checkpoint to scroll to; -1 for the end.
            from_timeline: whether the timeline had the focus, which it gets again when reading ends.

        Raises:
            KeyError: there is no such line; the text is for the user.
        """
        if (shown := self._shown(world_line)) is not None:
            if self._glance:
                self._from_timeline = from_timeline
                self._read(shown)
            shown.transcript.show_checkpoint(checkpoint_id)
            self._focus()
            return
        self._from_timeline = from_timeline
        self._stop_coming()
        info, records = await self._look_up(soul, world_line)
        reading = await self._put(info)
        self._read(reading)
        await self._show(reading, records, checkpoint_id)

    def glance(self, soul: KimiSoul, world_line: int, checkpoint_id: int) -> None:
        """Show a line while one of its rows is selected on the timeline; one that is read stays.

        Args:
            soul: the engine of the session.
            world_line: the number of the line.
            checkpoint_id: the checkpoint to scroll to, from which on the line is grey: a jump would leave that out; -1 for
                the end.
        """
        if self._bench.reading or self._bench.beside is not None:
            return
        before, self._wanted = self._wanted[0], (world_line, checkpoint_id)
        if (shown := self._shown(world_line)) is not None:
            shown.transcript.show_dropped(checkpoint_id)
        elif before != world_line:
            work = reported(self._bench.screen, partial(self._glance_at, soul, world_line))
            self._coming = self._bench.screen.run_worker(work, group="glance", exclusive=True)

    async def _glance_at(self, soul: KimiSoul, world_line: int) -> None:
        await asyncio.sleep(GLANCE_DELAY_S)
        # One line is read at a time; all waiting requests but the newest were cancelled.
        while self._looked_up is not None and not self._looked_up.done():
            await asyncio.wait([self._looked_up])
        self._looked_up = start_detached(self._look_up(soul, world_line))
        await asyncio.wait([self._looked_up])
        try:
            info, records = self._looked_up.result()
        except KeyError:
            return  # the user is told why it cannot be read when they open it
        if self._bench.on_view is not self._bench.transcript or self._wanted[0] != world_line:
            return  # another line was opened meanwhile, or is selected
        reading = await self._put(info, "coming")
        await self._show(reading, records)
        self._glance = "whole"
        reading.transcript.show_dropped(self._wanted[1])

    def end_glance(self) -> None:
        """Show the chat again if a line was only glanced at."""
        self._stop_coming()
        reading = self._reading
        if self._glance == "whole" and reading is not None and reading.transcript.has_focus:
            # A click moved the focus there.
            self._from_timeline = True
            self._read(reading)
        elif self._glance:
            self._take_away()

    def _shown(self, world_line: int) -> WorldLineView | None:
        reading = self._reading
        is_here = reading is not None and reading.info.n == world_line
        return reading if is_here and self._glance != "coming" else None

    def _stop_coming(self) -> None:
        self._wanted = (0, -1)
        if self._coming is not None:
            self._coming.cancel()

    async def _look_up(
        self, soul: KimiSoul, world_line: int
    ) -> tuple[WorldLine, list[EventRecord]]:
        """Facts about a line, and its events; meanwhile the widget that shows them is imported."""
        from kimi_tui.session.errors import UnknownWorldLine

        await in_daemon_thread(import_module, "kimi_tui.tui.world_line_view")
        try:
            records = await soul.lines.read(world_line)
        except UnknownWorldLine as error:
            raise KeyError(missing_line_words(world_line)) from error
        info = next((one for one in await soul.lines.all() if one.n == world_line), None)
        if info is None:
            raise KeyError(missing_line_words(world_line))
        if agents := self._conversation.state.agents:
            from kimi_tui.projection.subagents import with_agents

            # The record of a line lacks the states of sub-agents.
            return info, [*with_agents(records, agents)]
        return info, records

    async def _put(self, info: WorldLine, glance: Literal["", "coming"] = "") -> WorldLineView:
        """Put a line in the place of the chat."""
        from kimi_tui.projection.world_lines import LiveLineActivity
        from kimi_tui.tui.world_line_view import WorldLineView

        bench = self._bench
        add_sheets(bench.screen, "rows", "world_line")
        self._take_away()
        self._glance = glance
        reading = self._reading = WorldLineView(
            info, bench.transcript.work_dir, bench.keys, self._conversation.load_image
        )
        bench.line = None if glance else reading
        reading.banner.offer(read=not glance)
        self._news = LiveLineActivity()
        self.tell_news()
        await bench.chat_pane.read(reading)
        return reading

    async def _show(
        self, reading: WorldLineView, records: list[EventRecord], checkpoint_id: int = -1
    ) -> None:
        """Show the events of a line, of which the list is empty soon after."""
        try:
            await reading.show(records, checkpoint_id)
        finally:
            self._bench.start(release(records, RELEASE_S))

    def _read(self, reading: WorldLineView) -> None:
        """Focus the line in place of the chat, to be read."""
        bench = self._bench
        self._glance = ""
        bench.line = reading
        bench.transcript.end_search()
        reading.banner.offer(read=True)
        reading.transcript.show_dropped(None)
        bench.prompt.reading = reading.info.n
        self._head(READ_ONLY)
        bench.views.gauge.viewed = reading.info.left_by.tokens_before or None
        self._quiet = QuietKeyboard(time.monotonic(), 0.0, self.QUIET_S)
        self._focus()

    def apply(self, records: Sequence[EventRecord]) -> None:
        """Apply events of the live line while another line is shown."""
        if self._reading is not None and self._news is not None:
            from kimi_tui.projection.world_lines import news_after

            for record in records:
                self._news = news_after(self._news, record.event)
            self.tell_news()

    def tell_news(self) -> None:
        """Update the banner of the line: its name, and the news of the live line."""
        bench = self._bench
        if self._reading is not None and self._news is not None:
            from kimi_tui.tui.world_line_view import news_spans

            name = bench.views.timeline.model.line_name(self._reading.info.n)
            state, glyphs = self._conversation.state, glyphs_of(bench.screen)
            asks = bool(state.approvals)
            said = news_spans(self._news, glyphs, running=state.running, asks=asks)
            self._reading.banner.tell(name, said)
            bench.prompt.line_name = name

    def leave(self, *, back: bool = False) -> bool:
        """Return to the live line; False if it is shown already.

        Args:
            back: whether the focus returns to where the line was opened from.
        """
        bench = self._bench
        if not bench.reading:
            return False
        self._take_away()
        bench.prompt.reading = 0
        self._head("")
        bench.views.gauge.viewed = None
        if back and self._from_timeline:
            bench.timeline_pane.open()
        else:
            bench.return_to_prompt()
        return True

    def return_to_now(self) -> None:
        """Show the live line and focus the prompt."""
        if not self.leave():
            self._bench.return_to_prompt()

    def _head(self, words: str) -> None:
        header = self._bench.header
        header.heading = header.heading._replace(words=words)

    def _take_away(self) -> None:
        bench = self._bench
        reading, self._reading = self._reading, None
        bench.line = None
        if reading is not None:
            if not self._glance:
                bench.screen.set_focus(None)
            bench.chat_pane.end_reading(reading)
        self._glance = ""

    @property
    def chosen_checkpoint(self) -> int | None:
        """The checkpoint of the chosen message; None if none is chosen, or if the line cannot be cut before it."""
        block = self.chosen
        return block.checkpoint if block is not None and block.live else None

    @property
    def chosen(self) -> Block | None:
        """The chosen block of the line; None for none."""
        return self._reading.transcript.chosen if self._reading is not None else None

    @property
    def blocks(self) -> Sequence[Block]:
        """The blocks of the line."""
        return self._reading.transcript.blocks if self._reading is not None else ()

    # --- the prospect of a rewind

    def show_selected_prospect(self, prospect: Prospect | None) -> None:
        """Show the state that going to the selected row of the timeline would leave; None returns to the present."""
        self._selected_prospect = prospect
        self.show_prospect(prospect)

    def hide_prospect(self) -> None:
        """Have the timeline end its prospect of a rewind, unless it has the keyboard focus."""
        if self._selected_prospect is not None and not self._bench.timeline_pane.has_keys:
            self._bench.views.timeline.hide_prospect()

    @contextmanager
    def showing_prospect(self, prospect: Prospect) -> Generator[None]:
        """Show a prospect in chat and gauge within this context: the effects of going to a checkpoint.

        While the timeline has the focus, they continue to follow its selected row, except for a D-Mail, whose effects the
        timeline does not know.
        """
        selected, on_timeline = self._selected_prospect, self._bench.timeline_pane.has_keys
        if on_timeline and not prospect.words_stay:
            yield
            return
        if prospect != self._prospect:
            self.show_prospect(prospect)
        try:
            yield
        finally:
            # The timeline may have ended its prospect meanwhile, and the screen may be gone.
            if self._bench.frame.views is not None:
                self.show_prospect(
                    selected if on_timeline and selected is self._selected_prospect else None
                )

    def show_prospect(self, prospect: Prospect | None) -> None:
        """Show a prospect in chat and gauge, that of another world line in place of the chat; None returns to the present."""
        if prospect is not None or self._prospect is not None:
            self._bench.views.show_prospect(prospect)
        self._prospect = prospect
        soul = self._conversation.soul
        if soul is not None and "lines" not in self._conversation.state.parts:
            soul = None
        if prospect is not None and prospect.target.world_line and soul is not None:
            self.glance(soul, prospect.target.world_line, prospect.target.id)
        else:
            self.end_glance()

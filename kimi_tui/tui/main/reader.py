"""A world line that is read in the place of the chat, while the live line goes on behind it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from kimi_tui.projection.world_lines import News, news_after
from kimi_tui.tui.frame.header import READ_ONLY
from kimi_tui.tui.glyphs import glyphs_of
from kimi_tui.tui.keyboard import QUIET_S, QuietKeyboard
from kimi_tui.tui.worldline.banner import news_spans
from kimi_tui.tui.worldline.view import WorldLineView, message_of

if TYPE_CHECKING:
    from textual import events

    from kimi_tui.soul.kimisoul import KimiSoul
    from kimi_tui.soul.world_line_reader import WorldLineMessage
    from kimi_tui.tui.main.screen import MainScreen
    from kimi_tui.tui.transcript.transcript import Transcript
    from kimi_tui.wire.events import EventRecord


class Reader:
    """The world line on view.

    Args:
        screen: where it is shown.
    """

    QUIET_S: ClassVar[float] = QUIET_S
    """Seconds without a key before one does something with the line; 0 for none."""

    def __init__(self, screen: MainScreen) -> None:
        self._screen = screen
        self._quiet = QuietKeyboard(0.0, 0.0)
        self._from_timeline = False
        self._reading: WorldLineView | None = None
        self._news = News()

    @property
    def world_line(self) -> int:
        """The number of the line on view; 0 where there is none."""
        return self._reading.info.n if self._reading is not None else 0

    @property
    def transcript(self) -> Transcript | None:
        """The messages of the line on view."""
        return self._reading.transcript if self._reading is not None else None

    @property
    def has_keys(self) -> bool:
        """Whether the line on view has the focus."""
        return self._reading is not None and self._reading.transcript.has_focus

    def comes_early(self, event: events.Key) -> bool:
        """Whether a key was typed for the prompt while the line was coming on view."""
        return bool(self.QUIET_S) and self.has_keys and not self._quiet.accepts(event.time)

    def focus(self) -> None:
        """Give the line on view the keys."""
        if self._reading is not None:
            self._screen.set_focus(self._reading.transcript)

    async def open(
        self,
        soul: KimiSoul,
        world_line: int,
        checkpoint_id: int = -1,
        *,
        from_timeline: bool = False,
    ) -> None:
        """Show a line, at one of its checkpoints where that is given.

        Args:
            soul: who has it.
            world_line: its number.
            checkpoint_id: where to; -1 for its end.
            from_timeline: the keys were on the timeline, and belong there again when this is over.

        Raises:
            KeyError: there is no such line; the text is for the user.
        """
        if self._reading is not None and self._reading.info.n == world_line:
            self._reading.transcript.show_checkpoint(checkpoint_id)
            self.focus()
            return
        self._from_timeline = from_timeline
        records = await soul.read_line(world_line)
        info = next((one for one in await soul.world_lines() if one.n == world_line), None)
        if info is None:
            raise KeyError(f"There is no world line {world_line}.")
        screen = self._screen
        self._take_away()
        screen.transcript.end_search()
        reading = self._reading = WorldLineView(info, screen.transcript.work_dir)
        self._news = News()
        self.tell_news()
        await screen.chat_pane.read(reading)
        screen.prompt.reading = world_line
        self._head(READ_ONLY)
        screen.views.gauge.view(info.tokens_before or None)
        self._quiet = QuietKeyboard(time.monotonic(), 0.0, self.QUIET_S)
        self.focus()
        await reading.show(records, checkpoint_id)
        reading.transcript.pins = screen.transcript.pins

    def hear(self, records: Sequence[EventRecord]) -> None:
        """Something happened on the live line meanwhile."""
        if self._reading is not None:
            for record in records:
                self._news = news_after(self._news, record.event)
            self.tell_news()

    def tell_news(self) -> None:
        """Have the banner say what happens on the live line."""
        if self._reading is not None:
            state, glyphs = self._screen.conversation.state, glyphs_of(self._screen)
            asks = bool(state.approvals)
            said = news_spans(self._news, glyphs, running=state.running, asks=asks)
            self._reading.banner.tell(said)

    def leave(self, *, back: bool = False) -> bool:
        """Return to now; False where that is shown already.

        Args:
            back: the user is done reading, and goes on where the line was opened from.
        """
        if self._reading is None:
            return False
        self._take_away()
        self._screen.prompt.reading = 0
        self._head("")
        self._screen.views.gauge.view(None)
        if back and self._from_timeline:
            self._screen.timeline_pane.open()
        else:
            self._screen.return_to_prompt()
        return True

    def _head(self, words: str) -> None:
        header = self._screen.header
        header.heading = header.heading._replace(words=words)

    def _take_away(self) -> None:
        reading, self._reading = self._reading, None
        if reading is not None:
            self._screen.set_focus(None)
            self._screen.chat_pane.end_reading(reading)

    @property
    def chosen_checkpoint(self) -> int | None:
        """The checkpoint of the chosen message; None where none is chosen, or none that the line can be cut before."""
        block = self._reading.transcript.chosen if self._reading is not None else None
        return block.checkpoint if block is not None and block.live else None

    @property
    def has_choice(self) -> bool:
        """Whether a message of the line is chosen."""
        return self._reading is not None and self._reading.transcript.chosen is not None

    def chosen_message(self, messages: Sequence[WorldLineMessage]) -> WorldLineMessage | None:
        """The chosen one of the messages of this line; None where none is chosen, or it is none of them."""
        if self._reading is None:
            return None
        transcript = self._reading.transcript
        return message_of(transcript.chosen, transcript.blocks, messages)

"""Shows an agent that works beside the current conversation, a future or a sub-agent, in place of the chat, and follows its events."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, ClassVar

from kimi_tui.tui.glyphs import glyphs_of
from kimi_tui.tui.key_names import key_of
from kimi_tui.tui.keyboard import QUIET_S, QuietKeyboard
from kimi_tui.tui.main.feed import Feed
from kimi_tui.tui.main.workbench import Workbench
from kimi_tui.tui.prompt.bar import WAY_BACK
from kimi_tui.tui.screens import add_sheets

if TYPE_CHECKING:
    from kimi_tui.projection.session_state import SessionState
    from kimi_tui.tui.beside_view import BesideView
    from kimi_tui.tui.rows import Span


class BesideViewer:
    """Puts the view of one agent into the place of the chat, its checkpoints into that of the timeline, and takes them away again.

    Args:
        bench: the workbench with chat, timeline and prompt.

    Attributes:
        view: the agent in place of the chat; None for none.
    """

    QUIET_S: ClassVar[float] = QUIET_S
    """Seconds without a key before a key acts on the agent on view."""

    def __init__(self, bench: Workbench) -> None:
        self._bench = bench
        self.view: BesideView | None = None
        self._write: Callable[[str, str], object] | None = None
        self._drawing: asyncio.Task[None] | None = None
        self._feed: Feed | None = None
        self._from_timeline = False
        self._from_chat = False
        self._quiet = QuietKeyboard(0.0, 0.0)

    def shows(self, key: str) -> bool:
        """Give the keys to an agent if it is on view; return whether it is."""
        view = self.view
        if view is None or view.key != key:
            return False
        self._bench.timeline_pane.close()
        self._bench.screen.set_focus(view.transcript)
        return True

    async def show(
        self,
        view: BesideView,
        words: str,
        write: Callable[[str, str], object],
        events: Callable[[], Awaitable[Feed]],
    ) -> None:
        """Show an agent in place of the chat, with its own streaming, and give it the keys.

        Args:
            view: its view.
            words: the name of the agent in the header: `future 2`.
            write: begins a message to it: called with its key and with text that was typed over it.
            events: returns its events: those that were published before, and the others as they come.
        """
        bench = self._bench
        add_sheets(bench.screen, "rows", "world_line", "beside")
        if self.view is None:
            # A view that replaces another one counts as opened from where that one was.
            self._from_timeline = bench.timeline_pane.has_keys
            self._from_chat = bench.transcript.has_focus
        self.leave(focus=False)
        bench.timeline_pane.close()
        self._write = write
        self.view = bench.beside = view
        self.name_way_to_question()
        await bench.chat_pane.read(view)
        if self.view is not view:
            return  # another one was opened meanwhile
        if view.timeline is not None:
            bench.timeline_pane.read(view.timeline)
        bench.transcript.end_search()
        bench.prompt.reading_words = f"Reading {words}"
        bench.prompt.way_back = view.WAY_BACK or WAY_BACK
        bench.prompt.reading = -1
        self._head(words)
        self._quiet = QuietKeyboard(time.monotonic(), 0.0, self.QUIET_S)
        bench.screen.set_focus(view.transcript)
        try:
            feed = await events()
        except Exception:
            # Its conversation cannot be read, as the notice of the caller says.
            if self.view is view:
                self.leave(back=True)
            raise
        if self.view is not view:
            feed.stop()
            return
        self._feed = feed
        self._drawing = bench.start(self._draw(view, feed))

    async def _draw(self, view: BesideView, feed: Feed) -> None:
        async for records in feed.history():
            view.play(records, live=False)
        await view.transcript.draw_all()
        view.transcript.scroll_to_end()
        async for records in feed.live():
            view.play(records)

    def leave(self, *, back: bool = False, focus: bool = True) -> bool:
        """Show the chat again; return False if no agent is on view.

        Args:
            back: whether the focus returns to where the agent was opened from.
            focus: whether the focus moves at all.
        """
        bench, view = self._bench, self.view
        if view is None:
            return False
        self.stop_feed()
        self.view = bench.beside = None
        self.name_way_to_question()
        bench.screen.set_focus(None)
        bench.chat_pane.end_reading(view)
        bench.timeline_pane.end_reading()
        bench.prompt.reading, bench.prompt.reading_words = 0, ""
        self._head("")
        if focus and back and self._from_timeline:
            bench.timeline_pane.open()
        elif focus and back and self._from_chat:
            bench.timeline_pane.close()
            bench.screen.set_focus(bench.transcript)
        elif focus:
            bench.return_to_prompt()
        return True

    def name_way_to_question(self) -> None:
        """Let the waiting question, if there is one, name the key that leads to it from the agent on view."""
        question, view = self._bench.question, self.view
        if question is not None:
            name = "" if view is None else view.transcript.ANSWER_KEY
            question.way_back = key_of(name, self._bench.keys) if name else ""

    def news_of(self, here: SessionState, *, asks: bool) -> list[Span]:
        """Return what the current conversation does, for the banner of the agent on view.

        Args:
            here: its state.
            asks: whether a request of its own waits for an answer.
        """
        from kimi_tui.projection.world_lines import LiveLineActivity
        from kimi_tui.tui.world_line_view import news_spans

        done = LiveLineActivity(steps=here.step if here.running else 0)
        return news_spans(done, glyphs_of(self._bench.screen), running=here.running, asks=asks)

    def write(self, text: str) -> None:
        """Begin a message to the agent on view with text that was typed over it."""
        if self.view is not None and self._write is not None:
            # The field opens at once, so that the next letters wait for it.
            self._write(self.view.key, text)

    def stop_feed(self) -> None:
        """Read no events of an agent any more."""
        if self._drawing is not None:
            self._drawing.cancel()
        if self._feed is not None:
            self._feed.stop()
        self._drawing = self._feed = None

    def comes_early(self, at: float) -> bool:
        """Return whether a key was typed before the agent was visible."""
        view = self.view
        return view is not None and view.transcript.has_focus and not self._quiet.accepts(at)

    def _head(self, words: str) -> None:
        header = self._bench.header
        header.heading = header.heading._replace(words=words)

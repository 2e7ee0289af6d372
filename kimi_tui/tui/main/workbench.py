"""What the parts of the main screen and its commands share: the places on it and what stands there, who has the keys, what is
told and asked, what is put into the prompt, and the tasks that the user set off.

It knows none of these parts. Whoever shows a question in the place of the prompt, or a world line in the place of the chat,
says so here.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from textual import events
from textual.geometry import Size
from textual.screen import Screen

from kimi_tui.app_paths import data_dir
from kimi_tui.launch import Launch
from kimi_tui.tui.faults import Callbacks, is_user_facing, report_of
from kimi_tui.tui.frame import Footer, SessionFrame, heading_of
from kimi_tui.tui.glyphs import glyphs_of
from kimi_tui.tui.keyboard import TypeAhead, key_of
from kimi_tui.tui.main.hints import HELP_TITLES, MODES, Place, hints
from kimi_tui.tui.notices import Notice, NoticeDetails
from kimi_tui.tui.prompt.bar import PromptBar
from kimi_tui.tui.prompt.command import CommandTable, sent_text
from kimi_tui.tui.prompt.returned_messages import ReturnedMessages
from kimi_tui.tui.screens import AnswersOnce, SessionChosen, app_of
from kimi_tui.tui.transcript.transcript import Transcript

if TYPE_CHECKING:
    from textual.widget import Widget

    from kimi_tui.tui.approval.panel import ApprovalPanel
    from kimi_tui.tui.prompt.area import Draft
    from kimi_tui.tui.prompt.image_chips import ImageChips
    from kimi_tui.tui.views import Views
    from kimi_tui.tui.world_line_view import WorldLineView
    from kimi_tui.wire.events import LineChanged

log = logging.getLogger(__name__)

T = TypeVar("T")

OPENING = "Opening the session"
READING = "Reading the session"
NOTICES_LIMIT = 200
"""Notices that are kept to be read again."""


class Workbench:
    """What the parts of the main screen share: its places, focus, notices, questions and background work.

    Args:
        screen: that has them.
        launch: how it was started.
        size: of the terminal.
        images: what stands in prompts for images.
        commands: all that can be run.
        transcript: the chat.
        last_key_at: tells when a key was last pressed anywhere, in monotonic time.

    Attributes:
        screen: as above; so are `images`, `commands`, `transcript` and `last_key_at`.
        keys: those of the configuration, by action.
        header: the first row.
        chat_pane: with the chat, or a world line in its place.
        timeline_pane: beside the chat, or over it.
        prompt: the row of the prompt.
        footer: the last row.
        type_ahead: holds back what is typed behind a key that opens something.
        tasks: what the user set off; a failure is told.
        told: the newest notices, oldest first.
        returned: the messages that rewinds put into the prompt.
        question: what is asked in the place of the prompt; None where nothing is.
        line: the world line that is read in the place of the chat; None where none is, or one is only glanced at.
        n_changes: how many operations have changed what is live or its files since the session was opened.
        is_left: whether another session was chosen to take the place of this one.
        is_whole: whether all that happened could be shown when it was last drawn anew.
    """

    def __init__(
        self,
        screen: Screen[Any],
        launch: Launch,
        size: Size,
        images: ImageChips,
        commands: CommandTable,
        transcript: Transcript,
        last_key_at: Callable[[], float],
    ) -> None:
        self.screen = screen
        self._launch = launch
        self.keys = launch.config.keys
        self.images = images
        self.commands = commands
        self.transcript = transcript
        self.last_key_at = last_key_at
        transcript.keys = self.keys
        transcript.reading = READING if launch.resume is not None else ""
        self.opening = OPENING if launch.resume is not None else ""
        """What stands for the title until it is known."""
        heading = heading_of(launch)._replace(title=self.opening)
        self.frame = SessionFrame(screen, launch, size, heading, transcript)
        self.header = self.frame.header
        self.chat_pane = self.frame.chat_pane
        self.timeline_pane = self.frame.timeline_pane
        self.prompt = PromptBar(key_of("send", self.keys))
        self.prompt.area.images = images
        self.footer = Footer()
        self.type_ahead = TypeAhead(screen, self.hand_on)
        self.tasks = Callbacks(self._tell_failure)
        self.notices: deque[Notice] = deque(maxlen=NOTICES_LIMIT)
        self.returned = ReturnedMessages()
        self.question: ApprovalPanel | None = None
        self.line: WorldLineView | None = None
        self.n_changes = 0
        self.is_left = False
        self.is_whole = True
        self._timeline_from: Widget | None = None
        """What had the keys before the timeline."""
        self._chat_from: Widget | None = None
        """What had the keys before the chat, and gets them back; None for the prompt."""
        self._search_from: Widget | None = None
        """What had the keys before the search."""
        self._of_line: AnswersOnce[Any] | None = None
        """The question of `ask_of_line`; None while there is none."""

    async def hand_on(self, event: events.Key | events.Paste) -> None:
        """Pass a key or paste that was held back to the focused widget."""
        await app_of(self.screen).on_event(event)

    # --- what is shown

    @property
    def views(self) -> Views:
        """Chat, timeline and gauge. The latter two are imported and put in their places when they are first needed."""
        views = self.frame.views
        if views is None:
            views = self.frame.mount_views("approval", broken=self._view_broken)
            views.timeline.reading = READING if self.transcript.reading else ""
        return views

    def _view_broken(self, error: Exception) -> None:
        """Rebuild chat, timeline and gauge after one of them could not take an event, as long as that helps."""
        report_of(self.screen)(error)
        if self.is_whole:
            self.screen.post_message(Transcript.RebuildNeeded())

    @property
    def on_view(self) -> Transcript:
        """The chat, or the world line in its place."""
        return self.line.transcript if self.line is not None else self.transcript

    @property
    def reading(self) -> int:
        """The number of the world line that is read in the place of the chat; 0 where none is."""
        return self.line.info.n if self.line is not None else 0

    @property
    def sees_end(self) -> bool:
        """Whether the end of the conversation is on the screen."""
        return not self.reading and self.transcript.follows

    # --- notices

    def tell(self, text: str, **details: Unpack[NoticeDetails]) -> None:
        """Show a notice for a few seconds; with a topic, until that is solved; with `more`, several that came at once."""
        here, there = self.chat_pane, self.timeline_pane
        if self.timeline_pane.floats and not details.get("topic"):
            # It would cover what is said in the chat; what stays until solved is there afterwards.
            here, there = there, here
        there.solve()
        self.notices.append(here.tell(text, **details))

    def solved(self, topic: str) -> None:
        """Take the notice of a topic away."""
        self.chat_pane.solve(topic)

    # --- tasks, questions, and another session

    def start(self, work: Coroutine[Any, Any, None], *, opens: bool = False) -> asyncio.Task[None]:
        """Start what a key, click or command set off, as a task of the session; a failure is shown as a notice.

        Args:
            work: that.
            opens: it opens a screen or a field, which what is typed until then is meant for.
        """
        return self.tasks.start(work, self.type_ahead.opening() if opens else None)

    def _tell_failure(self, error: Exception) -> None:
        match error:
            case KeyError():
                words = str(error.args[0]) if error.args else str(error)
            case OSError():
                log.warning("operation failed", exc_info=error)
                reason = f"The disk refused: {error.strerror or error}."
                words = f"{error if is_user_facing(error) else reason} Nothing was changed."
            case _ if is_user_facing(error):
                words = str(error)
            case _:
                log.error("operation failed", exc_info=error)
                words = "That failed, and the log file says why. Nothing was lost."
        self.tell(words, level="warning")

    async def ask(self, question: Screen[T | None]) -> T | None:
        """Show a screen over this one; its answer, None where the user stays where they are."""
        answered: asyncio.Future[T | None] = asyncio.get_running_loop().create_future()

        def take(answer: T | None) -> None:
            if not answered.done():
                answered.set_result(answer)

        app_of(self.screen).push_screen(question, take)
        return await answered

    async def ask_of_line(self, question: AnswersOnce[T | None]) -> T | None:
        """Ask about an operation on the conversation as it is; None also when another operation changes that first."""
        self._of_line = question
        try:
            return await self.ask(question)
        finally:
            self._of_line = None

    def line_changed(self) -> None:
        """Close a question about the live line: an operation changed that line or its files."""
        self.n_changes += 1
        question = self._of_line
        if question is not None and question.is_current:
            if question.armed:
                self.tell("The conversation is another one now.", advice="Choose again.")
            question.dismiss(None)

    @contextmanager
    def leaving(self) -> Generator[None]:
        """Hold keys back in this context: for the session that it calls `leave_for` with, or if it calls for none, for this one."""
        self.type_ahead.leave()
        self.is_left = False
        try:
            yield
        finally:
            if not self.is_left:
                self.type_ahead.stay()

    def leave_for(self, launch: Launch) -> None:
        """Let another session take the place of this one."""
        self.is_left = True
        self.type_ahead.leave()
        self.screen.post_message(SessionChosen(launch))

    # --- what is put into the prompt

    def add_to_history(self, text: str) -> None:
        """Keep a message for the arrows, here and in the file; what the demo says is no one's own."""
        past = self.prompt.area.past
        if past is not None and text.strip():
            past.add(text)
            if not self._launch.demo:
                self.start(asyncio.to_thread(self._keep_sent, text))

    def _keep_sent(self, text: str) -> None:
        from kimi_tui.tui.prompt.history import append_history, history_file

        append_history(history_file(data_dir(), self._launch.work_dir), text)

    def keep(self, text: str) -> None:
        """Put what was not done back into the prompt; where something was typed meanwhile, Up brings it back."""
        if self.prompt.area.text:
            self.add_to_history(text)
        else:
            self.prompt.area.put_sent(text)

    def give_back(self, texts: Sequence[str]) -> None:
        """Put messages that were not sent into the prompt, before its present text."""
        parts = [part for text in (*texts, self.prompt.area.message) if (part := sent_text(text))]
        # Several are one message, also where the first of them was a command.
        if len(parts) > 1 and parts[0].startswith(("!", "#", "/")):
            parts[0] = f" {parts[0]}"
        self.prompt.area.put_sent(*parts)

    def give_draft(self, draft: Draft) -> None:
        """Put a draft into the prompt; if the prompt is not empty, Up brings it."""
        if not draft.text:
            return
        if self.prompt.area.text:
            self.add_to_history(draft.text)
        else:
            self.prompt.area.put_draft(draft)

    def return_message(self, change: LineChanged | None, text: str) -> None:
        """Put a message that a rewind or a jump removed from the chat into the prompt; `change` is the event of that.

        A draft that stood there can be had back with Up.
        """
        self.add_to_history(self.prompt.area.message)
        self.prompt.area.put_sent(text)
        if change is not None:
            self.returned.gave(change, self.prompt.area.message)

    # --- who has the keys

    def focus_prompt(self) -> None:
        """Give the keys to the prompt, or to what stands in its place: a question, or a world line on view."""
        if self.question is None and self.line is not None:
            self.screen.set_focus(self.line.transcript)
        else:
            # At once: on its way the focus must not come by a neighbour.
            question = self.question
            self.screen.set_focus(self.prompt.area if question is None else question.key_target)

    def return_to_prompt(self) -> None:
        """Close the timeline where it floats, with nothing selected on it, and give the prompt the keys."""
        if self.timeline_pane.has_keys:
            self.views.timeline.select(None)
        self.timeline_pane.close()
        self.focus_prompt()

    def focus_timeline(self) -> None:
        """Open the timeline and give it the keys; or close it where it has them."""
        if self.timeline_pane.has_keys:
            self.return_to_prompt()
        elif self.views:
            self._timeline_from, self._chat_from = self.screen.focused, None
            self.timeline_pane.open()

    def leave_timeline(self) -> None:
        """Give the keys to what had them before the timeline."""
        self._go_back(self._timeline_from)

    def focus_chat(self) -> None:
        """Give the chat the keys, or the world line in its place: its keys act on the chosen block then."""
        self._chat_from = None
        self.timeline_pane.close()
        self.on_view.enter()

    def read_chat(self, checkpoint_id: int) -> None:
        """Give the chat the keys, at a checkpoint (-1: at its end)."""
        came_from = self.views.timeline if self.timeline_pane.has_keys else None
        self.focus_chat()
        self._chat_from = came_from
        if checkpoint_id < 0:
            self.transcript.scroll_to_end()
        else:
            self.transcript.show_checkpoint(checkpoint_id)

    def leave_chat(self) -> None:
        """Give the keys to what led into the chat."""
        came_from, self._chat_from = self._chat_from, None
        self._go_back(came_from)

    def search(self, query: str) -> None:
        """Look for a text in what is on view; an empty one is asked for."""
        if not self.on_view.is_searched:
            self._search_from = self.screen.focused
        self.timeline_pane.close()
        self.on_view.begin_search(query)

    def end_search(self) -> bool:
        """End the search of what is on view; False where there is none."""
        is_searched = self.on_view.is_searched
        self.on_view.end_search()
        return is_searched

    def leave_search(self) -> None:
        """Give the keys to what had them before the search."""
        self._go_back(self._search_from)

    def _go_back(self, came_from: Widget | None) -> None:
        """Give the keys to what had them before, where that is on view still; else to the prompt."""
        if came_from is not None and came_from is self.on_view:
            self.timeline_pane.close()
            self.screen.set_focus(came_from)
        elif came_from is not None and came_from is self.views.timeline:
            self.timeline_pane.open()
        else:
            self.return_to_prompt()

    # --- what the keys do now

    def update_footer(self) -> None:
        """Update the footer with the keys of the focused part."""
        panel, area = self.question, self.prompt.area
        if panel is not None and (panel.has_focus_within or self.screen.focused is None):
            self.footer.hints = panel.hints
            return
        place = self._place()
        glyphs = glyphs_of(app_of(self.screen))
        found = hints(place, self.prompt.state, self.keys, glyphs, time.time())
        mode = area.mode if place in ("prompt", area.offered) else None
        if mode is not None:
            name, meaning = MODES[mode]
            # Esc, with which these end, is that of what is offered.
            has_esc = mode in ("insert", "replace") and place not in ("prompt", "usage")
            found = ((name, "" if has_esc else meaning), *found)
        if mode is not None and area.recording:
            found = ((f"recording @{area.recording}", "q: end"), *found)
        self.footer.hints = found

    @property
    def help_title(self) -> str:
        """What stands in the help over the keys that count now."""
        panel = self.question
        if panel is not None and (panel.has_focus_within or self.screen.focused is None):
            return "Approvals"
        return HELP_TITLES.get(self._place(), "")

    def _place(self) -> Place:
        """Where the keys go."""
        place: Place = self.timeline_pane.place if self.timeline_pane.has_keys else "prompt"
        if place == "prompt" and self.on_view.is_searched and not self.prompt.area.has_focus:
            place = "matches" if self.on_view.has_focus else "search"
        elif self.reading and place == "prompt":
            place = "line"
        elif place == "prompt" and self.transcript.has_focus:
            place = "chat"
        elif place == "prompt":
            place = self.prompt.area.offered or place
        return "copy" if self.on_view.is_copying else place

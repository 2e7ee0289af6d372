"""`Workbench`, the shared base of the main screen's parts and commands: panes and prompt, focus, notices, questions, tasks.

It imports none of these parts. A part that shows a question instead of the prompt, or a world line instead of the chat,
registers it here (`question`, `line`), so that the focus goes there. `ReturnedMessages` tracks the messages that rewinds have
put into the prompt.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from textual import events
from textual.geometry import Size
from textual.screen import Screen

from kimi_tui.agent_parts import PARTS
from kimi_tui.app_paths import data_dir, log_words, reason_of
from kimi_tui.launch import Launch
from kimi_tui.tui.faults import Callbacks, is_user_facing, report_of
from kimi_tui.tui.first_page import first_hints
from kimi_tui.tui.frame import Footer, SessionFrame
from kimi_tui.tui.frame_rows import heading_of
from kimi_tui.tui.glyphs import glyphs_of
from kimi_tui.tui.key_names import key_of
from kimi_tui.tui.keyboard import TypeAhead
from kimi_tui.tui.main.hints import HELP_TITLES, MODES, Place, hints, keys_with
from kimi_tui.tui.notices import NoticeDetails, ShownNotice
from kimi_tui.tui.prompt.bar import PromptBar
from kimi_tui.tui.prompt.command import CommandTable, sent_text
from kimi_tui.tui.prompt.completion import FolderFiles, PromptCompletion
from kimi_tui.tui.screens import AnswersOnce, SessionChosen, app_of, push_dialog
from kimi_tui.tui.terminal_input import has_extended_keys
from kimi_tui.tui.transcript.transcript import Transcript

if TYPE_CHECKING:
    from textual.widget import Widget

    from kimi_tui.agent_parts import Mode, PartName
    from kimi_tui.instant.stored_frame import Cells
    from kimi_tui.soul.rewind_values import Reversal
    from kimi_tui.tui.approval.panel import ApprovalPanel
    from kimi_tui.tui.beside_view import BesideView
    from kimi_tui.tui.prompt.area import Draft
    from kimi_tui.tui.prompt.command import Values
    from kimi_tui.tui.prompt.image_chips import ImageChips
    from kimi_tui.tui.views import Views
    from kimi_tui.tui.world_line_view import WorldLineView
    from kimi_tui.wire.events import LineChanged

log = logging.getLogger(__name__)

T = TypeVar("T")

OPENING = "Opening the session"
READING = "Reading the session"
NOTICES_LIMIT = 200
"""The most notices that are kept for `/notices`."""


@dataclass(slots=True)
class _Returned:
    """An operation of this session, and the message that it put into the prompt; empty for none."""

    change: LineChanged
    text: str = ""


class ReturnedMessages:
    """Tracks the messages that rewinds and jumps put into the prompt, so that undo removes them and redo brings them back.

    A message belongs to the one operation that took it out of the chat: undoing that removes the message from the prompt,
    redoing it puts it back, and other operations have no effect on it. When a turn begins all are forgotten.
    """

    def __init__(self) -> None:
        self._done: list[_Returned] = []
        self._undone: list[_Returned] = []
        self._early: _Returned | None = None
        """The message of an operation that has ended, but whose event has not come yet."""

    def gave(self, change: LineChanged, text: str) -> None:
        """Note that an operation that has just ended put a message into the prompt.

        Args:
            change: the event of the operation, which `changed` may not have been called for yet.
            text: the text of the prompt, as it would be sent.
        """
        newest = self._done[-1] if self._done else None
        if newest is not None and newest.change is change:
            newest.text = text
        else:
            self._early = _Returned(change, text)

    def command_behind(self, written: str) -> str:
        """Return the slash command that was typed after the message of the newest operation; empty for none.

        The message is in the prompt before the user can type, so a command typed at once follows it.

        Args:
            written: the text of the prompt.
        """
        waiting = self._done[-1].text if self._done else ""
        if not waiting or not written.startswith(waiting):
            return ""
        behind = written[len(waiting) :].strip()
        return behind if behind.startswith("/") and "\n" not in behind else ""

    def turn_began(self) -> None:
        """Forget everything: a turn has begun, so nothing undone can be redone, and no message waits in the prompt any more."""
        self._undone.clear()
        self._early = None
        for operation in self._done:
            operation.text = ""

    def changed(self, change: LineChanged, written: str) -> str | None:
        """Return the text that the prompt should have after an operation; None to keep the present one.

        Args:
            change: the event of the operation.
            written: the text of the prompt, as it would be sent.
        """
        if change.op == "undo":
            undone = self._done.pop() if self._done else _Returned(change)
            self._undone.append(undone)
            return "" if undone.text and written == undone.text else None
        if change.op == "redo":
            given = {operation.text for operation in self._done}
            again = self._undone.pop() if self._undone else _Returned(change)
            self._done.append(again)
            is_free = not written or written in given
            return again.text if again.text and is_free else None
        self._undone.clear()
        early, self._early = self._early, None
        is_meant = early is not None and early.change is change
        self._done.append(early if early and is_meant else _Returned(change))
        return None


class Workbench:
    """The widgets of the main screen, its focus, notices, questions and tasks, as its parts share them.

    Args:
        screen: the main screen.
        launch: how the session was started.
        size: the size of the terminal in cells.
        images: the images behind the chips in prompts.
        commands: all commands.
        transcript: the chat.
        values: returns the present values for arguments of commands.
        cost_words: returns what the session has cost so far, in words; empty if no prices are set.
        stored: as for `SessionFrame`.

    Attributes:
        screen: as above; so are `images`, `commands` and `transcript`.
        last_key_at: the monotonic time at which the newest key or paste was read, on any screen; 0 before the first.
        keys: the configured keys, by action.
        header: the first row.
        chat_pane: the pane of the chat, or of a world line in its place.
        timeline_pane: the pane of the timeline, beside the chat or over it.
        completion: the completions in the prompt.
        prompt: the row of the prompt.
        footer: the last row.
        type_ahead: holds back keys after one that opens something.
        tasks: the tasks that keys, clicks and commands start; a failure is shown as a notice.
        notices: the newest notices, oldest first.
        returned: the messages that rewinds put into the prompt.
        question: the approval shown instead of the prompt; None for none.
        line: the world line that is read instead of the chat; None for none, or while one is only glanced at.
        beside: the future or sub-agent that is read instead of the chat; None for none.
        n_changes: the number of operations that changed the live line or its files since the session was opened.
        is_left: whether another session was chosen to replace this one.
        is_whole: whether the last rebuild of the views could show all events.
    """

    def __init__(
        self,
        screen: Screen[Any],
        launch: Launch,
        size: Size,
        images: ImageChips,
        commands: CommandTable,
        transcript: Transcript,
        values: Callable[[], Values],
        cost_words: Callable[[], str],
        stored: Sequence[Sequence[Cells]] = (),
    ) -> None:
        self.screen = screen
        self._launch = launch
        self.keys = launch.config.keys
        self.images = images
        self.commands = commands
        self.transcript = transcript
        self.last_key_at = 0.0
        transcript.reading = READING if launch.resume is not None else ""
        self._cost_words = cost_words
        self.opening = OPENING if launch.resume is not None else ""
        """The text instead of the title until that is known."""
        heading = heading_of(launch)._replace(title=self.opening)
        self.frame = SessionFrame(screen, launch, size, heading, transcript, stored)
        self.header = self.frame.header
        self.chat_pane = self.frame.chat_pane
        self.timeline_pane = self.frame.timeline_pane
        self.tasks = Callbacks(self._tell_failure)
        files = FolderFiles(screen, self.tasks)
        self.completion = PromptCompletion(commands, self.keys, values, files)
        self.prompt = PromptBar(key_of("send", self.keys), images, self.completion)
        self.footer = Footer()
        self.type_ahead = TypeAhead(screen, self.forward)
        self.notices: deque[ShownNotice] = deque(maxlen=NOTICES_LIMIT)
        self.returned = ReturnedMessages()
        self.question: ApprovalPanel | None = None
        self.line: WorldLineView | None = None
        self.beside: BesideView | None = None
        self.n_changes = 0
        self.is_left = False
        self.is_whole = True
        self._timeline_from: Widget | None = None
        """The widget that had the focus before the timeline."""
        self._chat_from: Widget | None = None
        """The widget that had the focus before the chat, and gets it back; None for the prompt."""
        self._search_from: Widget | None = None
        """The widget that had the focus before the search."""
        self._parts: frozenset[PartName] = PARTS
        """The parts of the agent."""
        self._of_line: AnswersOnce[Any] | None = None
        """The question of `ask_of_line`; None while there is none."""

    async def forward(self, event: events.Key | events.Paste) -> None:
        """Pass a key or paste that was held back to the focused widget."""
        await app_of(self.screen).on_event(event)

    # --- visible parts

    @property
    def views(self) -> Views:
        """Chat, timeline and gauge. The latter two are imported and mounted when first needed."""
        views = self.frame.views
        if views is None:
            views = self.frame.mount_views(
                "rows", "approval", broken=self._view_broken, cost_words=self._cost_words
            )
            views.timeline.reading = READING if self.transcript.reading else ""
        return views

    def _view_broken(self, error: Exception) -> None:
        """Rebuild chat, timeline and gauge after one of them could not take an event, as long as that helps."""
        report_of(self.screen)(error)
        if self.is_whole:
            self.screen.post_message(Transcript.RebuildNeeded())

    @property
    def on_view(self) -> Transcript:
        """The visible transcript: the chat, or the world line, future or sub-agent in its place."""
        beside = self.line or self.beside
        return beside.transcript if beside is not None else self.transcript

    @property
    def reading(self) -> int:
        """The number of the world line that is read instead of the chat; 0 for none."""
        return self.line.info.n if self.line is not None else 0

    @property
    def sees_end(self) -> bool:
        """Whether the end of the conversation is on the screen."""
        return self.on_view is self.transcript and self.transcript.follows

    # --- notices

    def tell(self, text: str, **details: Unpack[NoticeDetails]) -> None:
        """Show a notice for a few seconds; with a topic, until that is dismissed; with `more`, several that came at once."""
        here, there = self.chat_pane, self.timeline_pane
        if self.timeline_pane.floats and not details.get("topic"):
            # The notice would cover the place in the chat that says the same; a notice with a topic is shown there afterwards.
            here, there = there, here
        there.dismiss()
        self.notices.append(here.tell(text, **details))

    def tell_reversal(self, done: Reversal) -> None:
        """Show what an undo or redo did, as far as no row of the chat on view says it."""
        if self.timeline_pane.floats:
            self.tell(done.text)
        elif not done.toll:
            self.tell(done.operation)

    def tell_working(self) -> None:
        """Show that a command has to wait until the turn ends."""
        self.tell(
            "The agent is working. Wait until it finishes, or stop it first with Esc.", in_turn=True
        )

    def end_turn(self) -> None:
        """Remove the notices that are true only while a turn runs."""
        self.chat_pane.end_turn()
        self.timeline_pane.end_turn()

    # --- tasks, questions, and another session

    def start(self, work: Coroutine[Any, Any, None], *, opens: bool = False) -> asyncio.Task[None]:
        """Start a task for a key, click or command; a failure is shown as a notice.

        Args:
            work: the coroutine.
            opens: whether it opens a screen or a field; then keys typed meanwhile are held back for that.
        """
        return self.tasks.start(work, self.type_ahead.opening() if opens else None)

    def _tell_failure(self, error: Exception) -> None:
        match error:
            case KeyError():
                words = str(error.args[0]) if error.args else str(error)
            case OSError():
                log.warning("operation failed", exc_info=error)
                reason = f"Writing to the disk failed: {reason_of(error)}."
                words = f"{error if is_user_facing(error) else reason} Nothing was changed."
            case _ if is_user_facing(error):
                words = str(error)
            case _:
                log.error("operation failed", exc_info=error)
                words = f"This action failed because of an internal error in kimi-tui. Nothing was lost. {log_words()}"
        self.tell(words, level="warning")

    async def ask(self, question: AnswersOnce[T | None]) -> T | None:
        """Push a screen over this one and wait for its result; None if the user cancelled, or it is open already."""
        answered: asyncio.Future[T | None] = asyncio.get_running_loop().create_future()

        def take(answer: T | None) -> None:
            if not answered.done():
                answered.set_result(answer)

        return await answered if push_dialog(self.screen, question, take) else None

    async def ask_of_line(self, question: AnswersOnce[T | None]) -> T | None:
        """Ask a question about the live line as `ask` does; it is closed with None when another operation changes that line."""
        below, self._of_line = self._of_line, question
        try:
            return await self.ask(question)
        finally:
            self._of_line = below

    def line_changed(self) -> None:
        """Close a question about the live line: an operation changed that line or its files."""
        self.n_changes += 1
        question = self._of_line
        if question is not None and question.is_current:
            if question.accepts_keys:
                self.tell("The conversation has changed since you chose.", advice="Choose again.")
            question.dismiss(None)

    @contextmanager
    def leaving(self) -> Generator[None]:
        """Hold keys back within this context: for the session that is passed to `leave_for`, else for this one."""
        self.type_ahead.leave()
        self.is_left = False
        try:
            yield
        finally:
            if not self.is_left:
                self.type_ahead.stay()

    def leave_for(self, launch: Launch) -> None:
        """Replace this session by another one."""
        self.is_left = True
        self.type_ahead.leave()
        self.screen.post_message(SessionChosen(launch))

    # --- text for the prompt

    def add_to_history(self, text: str) -> None:
        """Add a sent message to the prompt's history and its file. Messages of the demo are not added."""
        past = self.prompt.area.past
        if past is not None and text.strip():
            past.add(text)
            if not self._launch.demo:
                self.start(asyncio.to_thread(self._keep_sent, text))

    def _keep_sent(self, text: str) -> None:
        from kimi_tui.session.prompt_history import append_history, history_file

        append_history(history_file(data_dir(), self._launch.work_dir), text)

    def keep(self, text: str) -> None:
        """Put an unsent text back into the prompt; if the prompt is not empty, add it to the history instead."""
        if self.prompt.area.text:
            self.add_to_history(text)
        else:
            self.prompt.area.put_sent(text)

    def give_back(self, texts: Sequence[str]) -> None:
        """Put unsent messages into the prompt, before its present text."""
        parts = [part for text in (*texts, self.prompt.area.message) if (part := sent_text(text))]
        # Several texts are one message, even if the first was a command.
        if len(parts) > 1 and parts[0].startswith(("!", "#", "/")):
            parts[0] = f" {parts[0]}"
        self.prompt.area.put_sent(*parts)

    def give_draft(self, draft: Draft, *, to_history: bool = False) -> None:
        """Put a draft into the prompt; with `to_history`, or if the prompt is not empty, into the history, from which Up brings it."""
        if not draft.text:
            return
        if to_history or self.prompt.area.text:
            self.add_to_history(draft.text)
        else:
            self.prompt.area.put_draft(draft)

    def return_message(self, change: LineChanged | None, text: str) -> None:
        """Put a message that a rewind or jump removed from the chat into the prompt. The draft there goes into the history.

        Args:
            change: the event of the operation; None if there is none.
            text: the message.
        """
        self.add_to_history(self.prompt.area.message)
        self.prompt.area.put_sent(text)
        if change is not None:
            self.returned.gave(change, self.prompt.area.message)

    # --- focus

    def focus_prompt(self) -> None:
        """Focus the prompt, or the part in its place: a question, or a world line or future that is read."""
        if self.question is None and self.on_view is not self.transcript:
            self.screen.set_focus(self.on_view)
        else:
            # The focus is set directly, so that it does not go to a neighbour on its way.
            question = self.question
            self.screen.set_focus(self.prompt.area if question is None else question.key_target)

    def focus_question(self) -> None:
        """Focus the waiting question from a view in place of the chat; tell the user if none waits."""
        if self.question is None:
            self.tell("No question is waiting for your answer.")
        else:
            self.screen.set_focus(self.question.key_target)

    def return_to_prompt(self) -> None:
        """Focus the prompt; clear the timeline's selection, and close the timeline if it floats."""
        timeline = self.timeline_pane.shown
        if timeline is not None and self.timeline_pane.has_keys:
            timeline.select(None)
        self.timeline_pane.close()
        self.focus_prompt()

    def focus_timeline(self) -> None:
        """Open and focus the timeline; close it if it has the focus already."""
        if self.timeline_pane.has_keys:
            self.return_to_prompt()
        elif self.views:
            self._timeline_from, self._chat_from = self.screen.focused, None
            self.timeline_pane.open()

    def leave_timeline(self) -> None:
        """Focus the widget that had the focus before the timeline."""
        self._go_back(self._timeline_from)

    def focus_chat(self) -> None:
        """Focus the chat, or the world line in its place."""
        self._chat_from = None
        self.timeline_pane.close()
        self.on_view.enter()

    def read_chat(self, checkpoint_id: int) -> None:
        """Focus the chat and scroll to a checkpoint (-1: to the end)."""
        came_from = self.timeline_pane.shown if self.timeline_pane.has_keys else None
        self.focus_chat()
        self._chat_from = came_from
        if checkpoint_id < 0:
            self.transcript.scroll_to_end()
        else:
            self.transcript.show_checkpoint(checkpoint_id)

    def leave_chat(self) -> None:
        """Focus the widget that had the focus before the chat."""
        came_from, self._chat_from = self._chat_from, None
        self._go_back(came_from)

    def search(self, query: str) -> None:
        """Search the visible transcript for a text; an empty one opens the search bar."""
        if not self.on_view.is_searched:
            self._search_from = self.screen.focused
        self.timeline_pane.close()
        self.on_view.begin_search(query)

    def end_search(self) -> bool:
        """End the search in the visible transcript; return False if there is none."""
        is_searched = self.on_view.is_searched
        self.on_view.end_search()
        return is_searched

    def leave_search(self) -> None:
        """Focus the widget that had the focus before the search."""
        self._go_back(self._search_from)

    def _go_back(self, came_from: Widget | None) -> None:
        """Focus a widget that had the focus before, if it is still visible; else the prompt."""
        if came_from is not None and came_from is self.on_view:
            self.timeline_pane.close()
            self.screen.set_focus(came_from)
        elif came_from is not None and came_from is self.timeline_pane.shown:
            self.timeline_pane.open()
        else:
            self.return_to_prompt()

    def offer(self, parts: frozenset[PartName]) -> None:
        """Offer only the features of an agent with these parts: its commands, and the keys that lists, help and footer name."""
        if parts < PARTS:
            self.commands.keep(parts)
            self.keys = keys_with(self.keys, parts)
            self._parts = parts

    def update_first_hints(self, mode: Mode) -> None:
        """Update the hints in an empty chat, which say what the agent may do without asking; the demo has others."""
        if not self._launch.demo:
            self.transcript.hints = first_hints(
                self.keys, mode, self._parts, sandbox=self.header.heading.sandbox
            )

    # --- footer and help

    def update_footer(self) -> None:
        """Update the footer with the keys of the focused part."""
        panel, area = self.question, self.prompt.area
        if panel is not None and (panel.has_focus_within or self.screen.focused is None):
            self.footer.hints = panel.hints
            return
        place = self._place()
        glyphs = glyphs_of(app_of(self.screen))
        extended = has_extended_keys(self.screen)
        found = hints(
            place,
            self.prompt.state,
            self.keys,
            glyphs,
            time.time(),
            extended=extended,
            # In the other modes of vim's keys `?` searches.
            empty=not area.text and area.mode in (None, "insert"),
        )
        mode = area.mode if place in ("prompt", area.offered) else None
        if mode is not None:
            name, meaning = MODES[mode]
            # Esc, with which these modes end, first closes the menu.
            has_esc = mode in ("insert", "replace") and place not in ("prompt", "usage")
            found = ((name, "" if has_esc else meaning), *found)
        if mode is not None and area.recording:
            found = ((f"recording @{area.recording}", "q: end"), *found)
        self.footer.hints = found

    @property
    def help_title(self) -> str:
        """The title of the help's section on the keys of the focused part."""
        panel = self.question
        if panel is not None and (panel.has_focus_within or self.screen.focused is None):
            return "Approvals"
        return HELP_TITLES.get(self._place(), "")

    def _place(self) -> Place:
        """Return the part that has the keyboard focus."""
        place: Place = self.timeline_pane.place if self.timeline_pane.has_keys else "prompt"
        if place == "prompt" and self.on_view.is_searched and not self.prompt.area.has_focus:
            place = "matches" if self.on_view.has_focus else "search"
        elif self.reading and place == "prompt":
            place = "line"
        elif self.beside is not None and place == "prompt":
            place = self.beside.place
        elif place == "prompt" and self.transcript.has_focus:
            place = "chat"
        elif place == "prompt":
            place = self.prompt.area.offered or place
        return "copy" if self.on_view.is_copying else place

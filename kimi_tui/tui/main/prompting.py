"""The part of the main screen that takes what the person writes and presses in the prompt to where it is meant for.

What runs a command is imported with the first one, after the first paint.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, cast

from textual import on
from textual.binding import Binding, BindingType

from kimi_tui.tui.app_of import app_of
from kimi_tui.tui.chat.transcript import Transcript
from kimi_tui.tui.main.commands import BY_NAME, parse
from kimi_tui.tui.main.conversation import Conversation
from kimi_tui.tui.main.messages import LeaveWanted
from kimi_tui.tui.main.panes import ChatPane
from kimi_tui.tui.main.returned import Returned
from kimi_tui.tui.main.travelling import TravellingScreen
from kimi_tui.tui.prompt.area import PromptArea
from kimi_tui.tui.prompt.bar import PromptBar

if TYPE_CHECKING:
    from kimi_tui.soul.protocol import Target
    from kimi_tui.tui.main.actions import Actions
    from kimi_tui.tui.main.notices import Level
    from kimi_tui.tui.main.screen import MainScreen
    from kimi_tui.tui.timeline.course import Point
    from kimi_tui.wire.events import Record

TWICE_S = 1.0


class PromptingScreen(TravellingScreen):
    """Handles messages of the prompt and of its menu.

    Args:
        transcript: the chat.
        keys: those of the configuration, by command.

    Attributes:
        conversation: the session that is shown.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+c", "leave_or_copy('Ctrl+C')", "Copy, stop or quit", show=False),
        Binding("ctrl+d", "leave_or_copy('Ctrl+D')", "Quit", show=False),
    ]

    conversation: Conversation

    def __init__(self, transcript: Transcript, keys: Mapping[str, str]) -> None:
        super().__init__()
        self.transcript = transcript
        self.chat_pane = ChatPane(transcript, keys)
        self.prompt = PromptBar()
        self._actions: Actions | None = None
        self._returned = Returned()
        self._escaped_at = 0.0
        self._left_at = 0.0

    @abstractmethod
    def tell(self, text: str, *, level: Level = "info", advice: str = "", topic: str = "") -> None:
        """Show a notice."""
        ...

    @abstractmethod
    def focus_prompt(self) -> None:
        """Give the keys to the prompt, or to what stands in its place."""
        ...

    def suggest(self, text: str) -> None:
        """Put a message into the prompt, if it is empty."""
        if text and not self.prompt.area.text:
            self.prompt.area.put(text)

    def give_back(self, text: str) -> None:
        """Put a message that was not sent into the prompt, before what stands there."""
        self.prompt.area.put(f"{text}\n\n{self.prompt.area.text}".strip())

    def put_into_prompt(self, text: str) -> None:
        """Replace what stands in the prompt; a draft that stood there can be had back with Up."""
        self.conversation.remember(self.prompt.area.text)
        self.prompt.area.put(text)

    def uid_of(self, target: Target) -> str:
        """The lasting name of a checkpoint of the live line; empty where there is none."""
        points = () if target.world_line else self._live_points()
        return next((point.uid for point in points if point.id == target.id), "")

    def return_message(self, uid: str, checkpoint_id: int, text: str) -> None:
        """Put a message into the prompt that a rewind took out of the chat."""
        self.put_into_prompt(text)
        if uid:
            self._returned.gave(uid, checkpoint_id, self.prompt.area.text)

    def settle_returned(self, records: Sequence[Record]) -> None:
        """Have a message that came back to the chat no longer in the prompt, and the other way round."""
        from kimi_tui.wire.events import LineChanged

        for record in records:
            if isinstance(record.event, LineChanged):
                live = {point.uid for point in self._live_points()}
                again = record.event.op == "redo"
                text = self._returned.after(live, self.prompt.area.text, again=again)
                if text is not None:
                    self.prompt.area.put(text)

    def _live_points(self) -> Sequence[Point]:
        model = cast("MainScreen", self).views.timeline.model
        return model.tree.live if model is not None else ()

    @on(PromptArea.Sent)
    def _sent(self, event: PromptArea.Sent) -> None:
        self.chat_pane.clear_notices()
        text = event.text.strip()
        if (chosen := self.chat_pane.command) is not None:
            text = f"/{chosen.name}"
        if not text:
            self.conversation.go_on()
            return
        command = parse(text)
        if command is not None and command[0] not in BY_NAME:
            self.tell(f"There is no command /{command[0]}.", advice="F1 lists all of them.")
            self.suggest(event.text)
            return
        self.conversation.remember(text)
        if command is not None:
            self.action_command(*command)
        else:
            # Whoever speaks wants to see the answer, wherever they were reading.
            self.transcript.scroll_to_end()
            self.conversation.say(text)

    @on(PromptArea.Changed)
    def _typed(self, event: PromptArea.Changed) -> None:
        """A slash opens the menu of commands; whoever writes will want an answer drawn."""
        self.transcript.warm_up()
        self.prompt.area.menu = self.chat_pane.follow(event.text_area.text)

    @on(PromptArea.CompletionRequested)
    def _complete(self) -> None:
        if (chosen := self.chat_pane.command) is not None:
            self.prompt.area.put(f"/{chosen.name} ")

    @on(PromptArea.EditQueued)
    def _edit_queued(self) -> None:
        """The last queued message comes back into the prompt; with none, the history does."""
        text = self.conversation.take_back()
        if text is None:
            self.prompt.area.recall()
        else:
            self.prompt.area.put(text)

    @on(PromptArea.Paged)
    def _paged(self, event: PromptArea.Paged) -> None:
        # Not the actions of the same name, which raise where there is nothing to scroll.
        if event.direction < 0:
            self.transcript.scroll_page_up()
        else:
            self.transcript.scroll_page_down()

    def action_leave_or_copy(self, key: str) -> None:
        """What the prompt does with such a key, where something else has the focus."""
        if key == "Ctrl+C" and (selected := self.get_selected_text()):
            app_of(self).copy_to_clipboard(selected)
            self.clear_selection()
        else:
            self.post_message(PromptArea.LeaveRequested(key, stops=key == "Ctrl+C"))

    @on(PromptArea.LeaveRequested)
    def _leave_requested(self, event: PromptArea.LeaveRequested) -> None:
        """Ctrl+C stops what runs, else empties the prompt; twice in a row it quits, and so does Ctrl+D."""
        now = time.monotonic()
        if now - self._left_at < TWICE_S:
            self.post_message(LeaveWanted())
            return
        self._left_at = now
        if event.stops and not self.conversation.stop() and self.prompt.area.text:
            self.conversation.remember(self.prompt.area.take())
        self.tell(f"{event.key} again quits.")

    def action_escape(self) -> None:
        """Stop what runs; twice in an idle, empty prompt: the timeline, to go back to a step."""
        if self.transcript.has_focus and self.end_search():
            return
        if self.conversation.stop() or (self.reading and self.travel.reader.leave()):
            return
        if self.end_search():
            return
        area = self.prompt.area
        now = time.monotonic()
        if not area.has_focus:
            self.focus_prompt()
        elif self.chat_pane.command is not None:
            area.take()
        elif not area.text:
            if now - self._escaped_at < TWICE_S:
                cast("MainScreen", self).focus_timeline()
            self._escaped_at = now

    def action_command(self, name: str, argument: str = "") -> None:
        """Run a command of the table."""
        if self._actions is None:
            from kimi_tui.tui.main.actions import Actions

            self._actions = Actions(cast("MainScreen", self))
        self._actions.run(BY_NAME[name].action, argument)

    def on_command_menu_clicked(self) -> None:
        """A command of the menu was clicked."""
        if (chosen := self.chat_pane.command) is not None:
            self.prompt.area.put("")
            self.action_command(chosen.name)

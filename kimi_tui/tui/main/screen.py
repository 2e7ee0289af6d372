"""The main screen: puts the parts in their places and turns what the person does into wishes of the conversation."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.geometry import Size

from kimi_tui.launch import Launch
from kimi_tui.places import short
from kimi_tui.tui.app_of import app_of
from kimi_tui.tui.approval.answered import ApprovalAnswered
from kimi_tui.tui.chat.transcript import Transcript
from kimi_tui.tui.glyphs import glyphs_of
from kimi_tui.tui.main.approvals import Approvals
from kimi_tui.tui.main.commands import BY_NAME, COMMANDS, parse
from kimi_tui.tui.main.conversation import Conversation
from kimi_tui.tui.main.engine import CannotOpen
from kimi_tui.tui.main.footer import Footer
from kimi_tui.tui.main.header import Header, heading_of
from kimi_tui.tui.main.hints import Place, hints
from kimi_tui.tui.main.messages import LeaveWanted, Unopened
from kimi_tui.tui.main.panes import ChatPane, TimelinePane
from kimi_tui.tui.main.state import MainState
from kimi_tui.tui.main.travelling import TravellingScreen
from kimi_tui.tui.prompt.area import PromptArea
from kimi_tui.tui.prompt.bar import PromptBar
from kimi_tui.tui.styles import add_sheets, sheets

if TYPE_CHECKING:
    from kimi_tui.tui.main.actions import Actions
    from kimi_tui.tui.main.notices import Level
    from kimi_tui.tui.main.views import Views
    from kimi_tui.wire.events import Record

OPEN_DELAY_S = 0.15
TWICE_S = 1.0
WARNED_S = 10.0
NARROW_BELOW = 80
OVERLAY_BELOW = 100
SLIM_BELOW = 112
SHORT_BELOW = 30
SLIM_TIMELINE = 30
WIDE_TIMELINE = 38


class MainScreen(TravellingScreen):
    """Chat, timeline, gauge and prompt of one session.

    Args:
        launch: how to start.
        size: of the terminal.
        last_key_at: tells when a key was last pressed, in monotonic time.

    Attributes:
        conversation: the session that is shown.
    """

    SHEETS = sheets("main", "prompt", "chat")
    CSS_PATH = SHEETS
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "escape", "Stop, or back", id="escape", show=False),
        *(
            Binding(command.key, f"command('{command.name}')", command.title, id=command.name)
            for command in COMMANDS
            if command.key and command.name != "quit"
        ),
    ]

    def __init__(self, launch: Launch, size: Size, last_key_at: Callable[[], float]) -> None:
        super().__init__()
        self._launch = launch
        self.conversation = Conversation(launch, self)
        self._actions: Actions | None = None
        self._escaped_at = 0.0
        self._left_at = 0.0
        self._warned_at = -WARNED_S
        self.header = Header(heading_of(launch))
        self.transcript = Transcript(work_dir=str(launch.work_dir))
        self.prompt = PromptBar()
        self.footer = Footer()
        self._approvals = Approvals(self.prompt, last_key_at)
        self.chat_pane = ChatPane(self.transcript)
        self.timeline_pane = TimelinePane()
        self._gauge_row = Container(id="gauge-row")
        self._views: Views | None = None
        self.set_class(launch.config.glyphs == "ascii", "-ascii")
        # Before anything is styled or laid out, so that it need not be done twice.
        self._fit(size)

    def compose(self) -> ComposeResult:
        """The parts, from the top."""
        yield self.header
        yield Container(self.chat_pane, self.timeline_pane, id="body")
        yield self._gauge_row
        yield self.prompt
        yield self.footer

    def on_mount(self) -> None:
        """Give the prompt the keys; the rest comes when the first picture stands."""
        self.prompt.area.focus()
        # A moment after the first picture: importing straight after it would hold up the first key.
        self.call_after_refresh(self.set_timer, OPEN_DELAY_S, self._open)

    @property
    def views(self) -> Views:
        """Chat, timeline and gauge. The latter two are imported and put in their places when they are first needed."""
        if self._views is None:
            from kimi_tui.tui.main.views import Views

            add_sheets(app_of(self), "timeline", "gauge", "approval")
            self._views = Views(self.transcript)
            self.timeline_pane.furnish(self._views.timeline)
            self._gauge_row.mount(self._views.gauge)
            self._fit(app_of(self).size)
        return self._views

    def on_resize(self, event: events.Resize) -> None:
        """Other sizes have other places for the timeline and less air."""
        self._fit(event.size)

    def _fit(self, size: Size) -> None:
        floats = size.width < OVERLAY_BELOW
        slim = size.width < SLIM_BELOW
        self.set_class(floats, "-overlay")
        self.set_class(size.width < NARROW_BELOW, "-narrow")
        self.set_class(slim and not floats, "-slim")
        self.set_class(size.height < SHORT_BELOW, "-short")
        if self._views is not None:
            self._views.fit(0 if floats else SLIM_TIMELINE if slim else WIDE_TIMELINE)
            self.timeline_pane.settle()

    def _open(self) -> None:
        self.run_worker(self._open_session(), name="open the session")

    async def _open_session(self) -> None:
        assert self.views  # in their places before anything happens
        try:
            opened = await self.conversation.open()
        except CannotOpen as error:
            self.post_message(Unopened(str(error), error.code))
            return
        self.header.heading = self.header.heading._replace(
            folder=short(opened.folder), branch=opened.branch
        )
        self.transcript.work_dir = str(opened.folder)
        self.prompt.area.past = opened.past
        for words in (*self._launch.notices, *opened.notices):
            self.tell(words, level="warning")

    async def may_end(self) -> bool:
        """Whether all is saved; else the person is told once what would be lost, and the second time it is their will."""
        words = await self.conversation.engine.unsaved()
        now = time.monotonic()
        if not words or now - self._warned_at < WARNED_S:
            return True
        self._warned_at = now
        self.tell(words, level="error", advice="Do it again to leave without what is not saved.")
        return False

    async def end(self) -> str:
        """Save and release the session; returns a sentence on what could not be saved."""
        return await self.conversation.close()

    # --- what the conversation tells (see `conversation.Audience`)

    def draw(self, records: Sequence[Record], *, live: bool) -> None:
        """Show what happened in chat, timeline and gauge."""
        self.views.apply(records, live=live)

    def redraw(self, records: Sequence[Record]) -> None:
        """Show these events in place of what is shown."""
        self.views.rebuild(records)

    def state_changed(self, old: MainState, new: MainState) -> None:
        """Pass the state on to the parts that draw it."""
        self.prompt.state = new
        model = new.model if new.tools or not new.model else f"{new.model} without tools"
        self.header.heading = self.header.heading._replace(
            title=new.title, mode=new.mode, model=model or self.header.heading.model
        )
        if old.approvals != new.approvals:
            self._approvals.show(new.approvals)
        if new.ready and not old.ready:
            self.show_marks()
        self._update_footer()

    def tell(self, text: str, *, level: Level = "info", advice: str = "", topic: str = "") -> None:
        """Show a notice for a few seconds; with a topic, until that is solved."""
        self.chat_pane.tell(text, level, advice, topic)

    def solved(self, topic: str) -> None:
        """Take the notice of a topic away."""
        self.chat_pane.solved(topic)

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

    # --- the prompt

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
            self.conversation.say(text)

    @on(PromptArea.Changed)
    def _typed(self, event: PromptArea.Changed) -> None:
        """A slash opens the menu of commands."""
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
        if event.direction < 0:
            self.transcript.action_page_up()
        else:
            self.transcript.action_page_down()

    @on(PromptArea.LeaveRequested)
    def _leave_requested(self) -> None:
        """Ctrl+C stops what runs, else empties the prompt; twice in a row it quits."""
        now = time.monotonic()
        if now - self._left_at < TWICE_S:
            self.post_message(LeaveWanted())
            return
        self._left_at = now
        if not self.conversation.stop() and self.prompt.area.text:
            self.conversation.remember(self.prompt.area.take())
        self.tell("Ctrl+C again quits.")

    def action_escape(self) -> None:
        """Stop what runs; twice in an idle, empty prompt: the timeline, to go back to a step."""
        if self.conversation.stop() or (self.reading and self.travel.reader.leave()):
            return
        area = self.prompt.area
        now = time.monotonic()
        if not area.has_focus:
            self._focus_prompt()
        elif self.chat_pane.command is not None:
            area.take()
        elif not area.text:
            if now - self._escaped_at < TWICE_S:
                self.focus_timeline()
            self._escaped_at = now

    # --- commands

    def action_command(self, name: str, argument: str = "") -> None:
        """Run a command of the table."""
        if self._actions is None:
            from kimi_tui.tui.main.actions import Actions

            self._actions = Actions(self)
        self._actions.run(BY_NAME[name].action, argument)

    def on_command_menu_clicked(self) -> None:
        """A command of the menu was clicked."""
        if (chosen := self.chat_pane.command) is not None:
            self.prompt.area.put("")
            self.action_command(chosen.name)

    # --- the timeline

    def focus_timeline(self) -> None:
        """Open the timeline and give it the keys; or close it where it has them."""
        if self.timeline_pane.has_keys:
            self.return_to_prompt()
        elif self.views:
            self.timeline_pane.open()

    def return_to_prompt(self) -> None:
        """Close the timeline where it floats, and give the prompt the keys."""
        self.timeline_pane.close()
        self._focus_prompt()

    # The timeline's class is imported after the first paint, so its messages are named here by their handlers.

    def on_timeline_left(self) -> None:
        """The person is done with the timeline."""
        self.return_to_prompt()

    @on(Transcript.LinkClicked)
    def _link_clicked(self, event: Transcript.LinkClicked) -> None:
        app_of(self).open_url(event.url)

    @on(Transcript.RebuildNeeded)
    def _rebuild_needed(self) -> None:
        self.conversation.rebuild()

    # --- focus

    def on_descendant_focus(self) -> None:
        """The footer lists the keys of what has the focus."""
        self._update_footer()

    @on(ApprovalAnswered)
    def _approval_answered(self, event: ApprovalAnswered) -> None:
        self.conversation.answer(event.request_id, event.answer, event.feedback)

    def _focus_prompt(self) -> None:
        panel = self._approvals.panel
        if panel is None and self.reading:
            self.travel.reader.focus()
        else:
            (panel or self.prompt.area).focus()

    def _update_footer(self) -> None:
        panel = self._approvals.panel
        if panel is not None and not self.timeline_pane.has_keys:
            self.footer.hints = panel.hints
            return
        place: Place = "timeline" if self.timeline_pane.has_keys else "prompt"
        if self.reading and place == "prompt":
            place = "line"
        app = app_of(self)
        self.footer.hints = hints(
            place, self.conversation.state, self._launch.config.keys, glyphs_of(app), time.time()
        )

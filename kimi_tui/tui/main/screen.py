"""The main screen: puts the parts in their places and turns what the person does into wishes of the conversation."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.geometry import Size

from kimi_tui.launch import Launch
from kimi_tui.places import short
from kimi_tui.tui.app_of import app_of
from kimi_tui.tui.approval.answered import ApprovalAnswered, ApprovalKeysChanged
from kimi_tui.tui.chat.transcript import Transcript
from kimi_tui.tui.glyphs import glyphs_of
from kimi_tui.tui.main.approvals import Approvals
from kimi_tui.tui.main.commands import COMMANDS
from kimi_tui.tui.main.conversation import Conversation
from kimi_tui.tui.main.engine import CannotOpen, NoModelNamed
from kimi_tui.tui.main.footer import Footer
from kimi_tui.tui.main.header import Header, heading_of
from kimi_tui.tui.main.hints import Place, first_hints, hints
from kimi_tui.tui.main.messages import ModelNeeded, Unopened
from kimi_tui.tui.main.panes import OVERLAY_BELOW, SLIM_BELOW, TimelinePane, timeline_width
from kimi_tui.tui.main.prompting import PromptingScreen
from kimi_tui.tui.main.state import MainState
from kimi_tui.tui.styles import add_sheets, sheets

if TYPE_CHECKING:
    from kimi_tui.soul.work_folder import FolderFacts
    from kimi_tui.tui.main.notices import Level
    from kimi_tui.tui.main.views import Views
    from kimi_tui.wire.events import Record

OPEN_DELAY_S = 0.15
WARNED_S = 10.0
NARROW_BELOW = 80
SHORT_BELOW = 30


class MainScreen(PromptingScreen):
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
        keys = launch.config.keys
        hints = first_hints(keys)
        super().__init__(Transcript(work_dir=str(launch.work_dir), hints=hints), keys)
        self._launch = launch
        self.conversation = Conversation(launch, self)
        self._warned_at = -WARNED_S
        self.header = Header(heading_of(launch))
        self.footer = Footer()
        self._approvals = Approvals(self.prompt, last_key_at, keys, self.focus_prompt)
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
            self._views.gauge.cost_words = self.conversation.cost_words
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
            self._views.fit(timeline_width(size.width))
            self.timeline_pane.settle()

    def _open(self) -> None:
        self.run_worker(self._open_session(), name="open the session")

    async def _open_session(self) -> None:
        assert self.views  # in their places before anything happens
        try:
            opened = await self.conversation.open()
        except NoModelNamed as error:
            self.post_message(ModelNeeded("" if error.listed else str(error)))
            return
        except CannotOpen as error:
            self.post_message(Unopened(str(error), error.code))
            return
        self.header.heading = self.header.heading._replace(
            folder=short(opened.folder), branch=opened.branch
        )
        self.transcript.work_dir = str(opened.folder)
        self.prompt.area.past = opened.past
        self._tell_in_turn((*self._launch.notices, *opened.notices))

    def _tell_in_turn(self, notices: Sequence[str]) -> None:
        """Show one after the other, where each would else take the place of the one before it unread."""
        from kimi_tui.tui.main.notices import STAYS_S

        for place, words in enumerate(notices):
            if place:
                self.set_timer(place * STAYS_S, partial(self.tell, words, level="warning"))
            else:
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

    async def end(self, *, clean: bool = True) -> str:
        """Save and release the session; returns a sentence on what could not be saved.

        Args:
            clean: the program ends as it should.
        """
        return await self.conversation.close(clean=clean)

    # --- what the conversation tells (see `conversation.Audience`)

    def draw(self, records: Sequence[Record], *, live: bool) -> None:
        """Show what happened in chat, timeline and gauge."""
        self.views.apply(records, live=live)
        if live:
            self.move_marks(records)
            self.settle_returned(records)
            if self.reading:
                self.travel.reader.hear(records)

    def glance(self, records: Sequence[Record]) -> None:
        """Show how the session ended, until all of it is there."""
        self.views.glance(records)

    @property
    def sees_end(self) -> bool:
        """Whether the end of the conversation is on the screen."""
        return not self.reading and self.transcript.follows

    def settle_history(self) -> Iterator[None]:
        """Make ready what the history tells, in small steps."""
        return self.views.settle_history()

    def folder_known(self, facts: FolderFacts) -> None:
        """Say where nothing was said yet what the agent works on."""
        self.transcript.facts = facts

    def history_told(self) -> None:
        """All that was drawn as history is to be seen."""
        self.views.history_told()

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
        if new.has_messages and not old.has_messages:
            # From here on the files change, so what was counted holds no more.
            self.transcript.facts = None
        if new.ready and not old.ready:
            self.show_marks()
        if self.reading:
            self.travel.reader.tell_news()
        self._update_footer()

    def tell(self, text: str, *, level: Level = "info", advice: str = "", topic: str = "") -> None:
        """Show a notice for a few seconds; with a topic, until that is solved."""
        # Where the timeline floats it would cover what is said in the chat; what stays until solved is there afterwards.
        covered = self.timeline_pane.floats and not topic
        panes = (self.chat_pane, self.timeline_pane)
        panes[not covered].clear_notices()
        panes[covered].tell(text, level, advice, topic)

    def solved(self, topic: str) -> None:
        """Take the notice of a topic away."""
        self.chat_pane.solved(topic)

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
        self.focus_prompt()

    # The timeline's class is imported after the first paint, so its messages are named here by their handlers.

    def on_timeline_left(self) -> None:
        """The person is done with the timeline."""
        self.return_to_prompt()

    def on_selecting_canvas_filter_changed(self) -> None:
        """The keys of the timeline mean other things while it is filtered."""
        self.timeline_pane.name_keys()
        self._update_footer()

    @on(Transcript.LinkClicked)
    def _link_clicked(self, event: Transcript.LinkClicked) -> None:
        app_of(self).open_url(event.url)

    @on(Transcript.RebuildNeeded)
    def _rebuild_needed(self) -> None:
        self.conversation.rebuild()

    # --- focus

    def on_descendant_focus(self) -> None:
        """The footer lists the keys of what has the focus; notices leave the row of a search free."""
        self.chat_pane.set_class(self.on_view.is_searched, "-searched")
        self._update_footer()

    @on(ApprovalAnswered)
    def _approval_answered(self, event: ApprovalAnswered) -> None:
        self.conversation.answer(event.request_id, event.answer, event.feedback)

    @on(ApprovalKeysChanged)
    def _approval_keys_changed(self) -> None:
        self._update_footer()

    def focus_prompt(self) -> None:
        """Give the keys to the prompt, or to what stands in its place: a question, or a world line on view."""
        panel = self._approvals.panel
        if panel is None and self.reading:
            self.travel.reader.focus()
        else:
            # At once: on its way the focus must not come by a neighbour.
            self.set_focus(panel or self.prompt.area)

    def _update_footer(self) -> None:
        panel = self._approvals.panel
        # A question that came while a world line is read can wait until that is read.
        is_elsewhere = self.timeline_pane.has_keys or self.reading
        if panel is not None and (panel.has_focus_within or not is_elsewhere):
            self.footer.hints = panel.hints
            return
        place: Place = self.timeline_pane.place if self.timeline_pane.has_keys else "prompt"
        if place == "prompt" and self.on_view.is_searched and not self.prompt.area.has_focus:
            place = "matches" if self.on_view.has_focus else "search"
        elif self.reading and place == "prompt":
            place = "line"
        app = app_of(self)
        self.footer.hints = hints(
            place, self.conversation.state, self._launch.config.keys, glyphs_of(app), time.time()
        )

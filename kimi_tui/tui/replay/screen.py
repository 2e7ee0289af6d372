"""A stored session played back: the main screen's look, with the line of its time in the place of the prompt.

Read-only: nothing is locked, written or asked. The one way on is a fork.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.content import Content
from textual.geometry import Size

from kimi_tui.launch import Launch
from kimi_tui.places import short
from kimi_tui.tui.answering import AnswersOnce
from kimi_tui.tui.app_of import app_of
from kimi_tui.tui.chat.transcript import Transcript
from kimi_tui.tui.glyphs import glyphs_of
from kimi_tui.tui.main.footer import Footer
from kimi_tui.tui.main.header import Header, heading_of
from kimi_tui.tui.main.messages import LeaveWanted, SessionWanted, Unopened
from kimi_tui.tui.main.panes import (
    OVERLAY_BELOW,
    SLIM_BELOW,
    ChatPane,
    TimelinePane,
    timeline_width,
)
from kimi_tui.tui.main.screen import NARROW_BELOW, SHORT_BELOW
from kimi_tui.tui.replay.continuing import forked, hindrance
from kimi_tui.tui.replay.hints import hints
from kimi_tui.tui.replay.telling import is_ours, told_by
from kimi_tui.tui.styles import add_sheets, sheets

if TYPE_CHECKING:
    from kimi_tui.session.session import Session
    from kimi_tui.tui.main.views import Views
    from kimi_tui.tui.replay.projector import Projector
    from kimi_tui.tui.replay.scrubber import Scrubber
    from kimi_tui.tui.replay.source import Told
    from kimi_tui.tui.replay.stage import Stage
    from kimi_tui.tui.timeline.widget import Timeline

OPEN_DELAY_S = 0.05
READ_ONLY = "replay, read only"
AT_ONCE = frozenset({"escape", "q", "ctrl+c"})
"""Keys that mean the same before the session was read."""


class ReplayScreen(AnswersOnce[Launch | None]):
    """Plays a session. Ends with how to open the fork that the person goes on in, or None.

    Args:
        launch: how the app was started; for the fork.
        size: of the terminal.
        session: what to play; None for the one that the command line names.
    """

    AUTO_FOCUS = ""
    SHEETS = sheets("main", "chat", "replay")
    CSS_PATH = SHEETS
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("c", "continue", "Continue from here", id="replay.continue", show=False),
        Binding("t,ctrl+t", "timeline", "Timeline", id="replay.timeline", show=False),
        Binding("escape,q", "leave", "Leave", id="replay.leave", show=False),
    ]

    def __init__(self, launch: Launch, size: Size, session: Session | None = None) -> None:
        super().__init__()
        self._launch = launch
        self._session = session
        self._told: Told | None = None
        self._projector: Projector | None = None
        self._views: Views | None = None
        self._scrubber: Scrubber | None = None
        self._forking = self._is_over = False
        self._early: list[str] | None = []
        """Keys that were pressed while the session was read; None since it is."""
        heading = heading_of(launch)._replace(words=READ_ONLY, title="Replay")
        self.header = Header(heading)
        self.transcript = Transcript(work_dir=str(launch.work_dir))
        self.footer = Footer()
        self._chat_pane = ChatPane(self.transcript, launch.config.keys)
        self._timeline_pane = TimelinePane()
        self._gauge_row = Container(id="gauge-row")
        self.set_class(launch.config.glyphs == "ascii", "-ascii")
        self._fit(size)

    def compose(self) -> ComposeResult:
        """The parts, from the top; the rest is imported when the first picture stands."""
        yield self.header
        yield Container(self._chat_pane, self._timeline_pane, id="body")
        yield self._gauge_row
        yield self.footer

    def on_mount(self) -> None:
        """Read the session once the first picture stands."""
        self.call_after_refresh(self.set_timer, OPEN_DELAY_S, self._open)

    def _open(self) -> None:
        self.run_worker(self._read(), name="read the session")

    async def _read(self) -> None:
        try:
            told = await asyncio.to_thread(told_by, self._launch, self._session)
        except Exception as error:
            if not is_ours(error) and not isinstance(error, OSError):
                raise
            if self._session is None:
                code = 2 if type(error).__name__ == "SessionNotFound" else 1
                self.post_message(Unopened(str(error), code))
            else:
                self._tell(str(error))
            return
        self._furnish(told)

    def _furnish(self, told: Told) -> None:
        from kimi_tui.tui.main.views import Views
        from kimi_tui.tui.replay.playing import Player
        from kimi_tui.tui.replay.projector import Projector
        from kimi_tui.tui.replay.scrubber import Scrubber
        from kimi_tui.tui.replay.shelf import Shelf
        from kimi_tui.tui.replay.stage import Stage

        add_sheets(app_of(self), "timeline", "gauge")
        self._told = told
        course = told.replay.course
        player = Player(course, waits=app_of(self).animation_level != "none")
        views = self._views = Views(self.transcript)
        scrubber = self._scrubber = Scrubber()
        scrubber.follow(course, player)
        shelf = Shelf()
        stage = Stage(told.replay, player, views, scrubber, shelf)
        projector = Projector(self, course, player, stage, scrubber, self._update_footer)
        self._projector = projector
        self._timeline_pane.furnish(views.timeline)
        self._timeline_pane.border_subtitle = Content("Enter go there")
        self._timeline_pane.mount(shelf)
        self._gauge_row.mount(views.gauge)
        self.mount(scrubber, before=self.footer)
        self._fit(app_of(self).size)
        self.header.heading = self.header.heading._replace(
            title=told.title or self.header.heading.title,
            folder=short(told.session.work_dir),
            branch=told.branch,
        )
        self.transcript.work_dir = str(told.session.work_dir)
        scrubber.focus()
        projector.seek(course.opening)
        if not course.end:
            self._tell("Nothing of this session was recorded.")
        self._update_footer()

    def on_resize(self, event: events.Resize) -> None:
        """Other sizes have other places for the timeline and less air."""
        self._fit(event.size)
        self._update_footer()

    def _fit(self, size: Size) -> None:
        floats = size.width < OVERLAY_BELOW
        slim = size.width < SLIM_BELOW
        self.set_class(floats, "-overlay")
        self.set_class(size.width < NARROW_BELOW, "-narrow")
        self.set_class(slim and not floats, "-slim")
        self.set_class(size.height < SHORT_BELOW, "-short")
        if self._views is not None:
            self._views.fit(timeline_width(size.width))

    # --- the moment

    def _seek(self, position: int | None) -> None:
        if self._projector is not None:
            self._projector.seek(position)

    @on(Transcript.RebuildNeeded)
    def _rebuild_needed(self) -> None:
        """A line from before the record began: what is shown stays, and goes on with what follows."""

    # --- what the scrubber asks for; its class is imported later, so its messages are named by their handlers

    def on_scrubber_sought(self, event: Scrubber.Sought) -> None:
        """Another moment is wanted."""
        self._seek(event.position)

    def on_scrubber_play_toggled(self) -> None:
        """Play or pause."""
        if self._projector is not None:
            self._projector.toggle()

    def on_scrubber_speed_changed(self, event: Scrubber.SpeedChanged) -> None:
        """Faster or slower."""
        if self._projector is not None:
            self._projector.change_speed(event.steps)

    # --- the timeline and the chat

    def on_timeline_checkpoint_chosen(self, event: Timeline.CheckpointChosen) -> None:
        """Go to the moment when that step was complete."""
        if self._projector is not None:
            stage = self._projector.stage
            self._seek(stage.position_of(event.target.id, event.target.world_line))
        if self.has_class("-overlay"):
            self.on_timeline_left()

    def on_timeline_future_chosen(self, event: Timeline.FutureChosen) -> None:
        """Go to what was still to come."""
        if self._projector is not None:
            self._seek(self._projector.course.stop_of(event.uid))

    @on(Transcript.CheckpointClicked)
    def _checkpoint_clicked(self, event: Transcript.CheckpointClicked) -> None:
        if self._projector is not None:
            self._seek(self._projector.stage.position_of(event.id))

    @on(Transcript.LinkClicked)
    def _link_clicked(self, event: Transcript.LinkClicked) -> None:
        app_of(self).open_url(event.url)

    def on_timeline_left(self) -> None:
        """The keys go back to the scrubber."""
        self._timeline_pane.close()
        if self._scrubber is not None:
            self._scrubber.focus()

    def action_timeline(self) -> None:
        """Open the timeline and give it the keys; or close it where it has them."""
        if self._timeline_pane.has_keys:
            self.on_timeline_left()
        else:
            self._timeline_pane.open()

    def on_descendant_focus(self) -> None:
        """The footer lists the keys of what has the focus; keys that were pressed too early are pressed now."""
        self._update_footer()
        if self._scrubber is None or not self._scrubber.has_focus:
            return
        early, self._early = self._early, None
        app = app_of(self)
        for key in early or ():
            # Sent by this screen they would go no higher than here, and bindings are looked up in the app.
            app.call_later(app.simulate_key, key)

    def on_key(self, event: events.Key) -> None:
        """While the session is read nothing can be done with a key: it is kept."""
        if self._early is not None and event.key not in AT_ONCE:
            self._early.append(event.key)
            event.stop()

    # --- leaving

    def action_leave(self) -> None:
        """Back to where the person came from."""
        if self._scrubber is not None and not self._scrubber.has_focus:
            self.on_timeline_left()
        elif self._session is None:
            self.post_message(LeaveWanted())
        else:
            self.dismiss(None)

    def action_continue(self) -> None:
        """Fork the session at this moment and go on there."""
        projector, told = self._projector, self._told
        if self._forking or self._is_over or projector is None or told is None:
            return
        projector.pause()
        self._forking = True
        self.run_worker(self._continue(told, projector), name="fork")

    async def _continue(self, told: Told, projector: Projector) -> None:
        try:
            # The moment that is meant may have been asked for a moment ago.
            await projector.settled()
            launch = await self._fork(told, projector.stage)
        except Exception as error:
            if not is_ours(error):
                raise
            self._tell(str(error))
            return
        finally:
            self._forking = False
        if launch is None:
            return
        if self._launch.demo:
            self._tell(f"Forked into a new session, {launch.resume}.")
        elif self._session is not None:
            self.dismiss(launch)
        else:
            self._is_over = True
            self.post_message(SessionWanted(launch))

    async def _fork(self, told: Told, stage: Stage) -> Launch | None:
        head = stage.head
        why_not = hindrance(self._launch, has_checkpoint=head is not None)
        if head is None or why_not:
            self._tell(why_not)
            return None
        return await forked(self._launch, told, head.uid, whole=stage.is_whole)

    async def on_screen_suspend(self) -> None:
        """The fork covers the first screen of all, which cannot be taken away: it stays below, empty."""
        if self._is_over:
            await self.remove_children()

    def _tell(self, words: str) -> None:
        self._chat_pane.tell(words, "warning", "")

    def _update_footer(self) -> None:
        playing = self._projector is not None and self._projector.is_playing
        self.footer.hints = hints(
            glyphs_of(app_of(self)),
            playing=playing,
            on_timeline=self._timeline_pane.has_keys,
            is_narrow=self.has_class("-overlay"),
        )

"""A stored session played back: the main screen's look, with the line of its time in the place of the prompt.

Read-only: nothing is locked, written or asked. The one way on is a fork.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.geometry import Size
from textual.screen import Screen
from textual.timer import Timer

from kimi_tui.config.choosing import Choice
from kimi_tui.launch import Launch
from kimi_tui.places import short
from kimi_tui.tui.app_of import app_of
from kimi_tui.tui.chat.transcript import Transcript
from kimi_tui.tui.glyphs import glyphs_of
from kimi_tui.tui.main.footer import Footer
from kimi_tui.tui.main.header import Header, heading_of
from kimi_tui.tui.main.messages import LeaveWanted, SessionWanted, Unopened
from kimi_tui.tui.main.panes import ChatPane, TimelinePane
from kimi_tui.tui.numbers import counted, tokens
from kimi_tui.tui.replay.hints import hints
from kimi_tui.tui.replay.telling import is_ours, told_by
from kimi_tui.tui.styles import add_sheets, sheets

if TYPE_CHECKING:
    from kimi_tui.session.session import Session
    from kimi_tui.tui.chat.lines import Line
    from kimi_tui.tui.main.views import Views
    from kimi_tui.tui.replay.files import FilesModel
    from kimi_tui.tui.replay.playing import Player
    from kimi_tui.tui.replay.scrubber import Scrubber
    from kimi_tui.tui.replay.shelf import Shelf
    from kimi_tui.tui.replay.source import Told
    from kimi_tui.tui.timeline.widget import Timeline

FRAME_S = 1 / 30
OPEN_DELAY_S = 0.05
NARROW_BELOW = 80
OVERLAY_BELOW = 100
SLIM_BELOW = 112
SHORT_BELOW = 30
SLIM_TIMELINE = 30
WIDE_TIMELINE = 38
NEAR = 400
"""Up to so many records ahead are applied to what is shown; farther ones from a kept state."""
READ_ONLY = "replay, read only"


class PastTranscript(Transcript):
    """A chat that asks nothing while it is empty."""

    def empty_rows(self) -> list[Line]:
        """Nothing."""
        return []


class ReplayScreen(Screen[Launch | None]):
    """Plays a session. Ends with how to open the fork that the person goes on in, or None.

    Args:
        launch: how the app was started; for the fork.
        size: of the terminal.
        session: what to play; None for the one that the command line names.
    """

    SHEETS = sheets("main", "chat", "replay")
    CSS_PATH = SHEETS
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("c", "continue", "Continue from here", id="replay.continue", show=False),
        Binding("t,ctrl+t", "timeline", "Timeline", id="replay.timeline", show=False),
        Binding("escape", "leave", "Leave", id="replay.leave", show=False),
    ]

    def __init__(self, launch: Launch, size: Size, session: Session | None = None) -> None:
        super().__init__()
        self._launch = launch
        self._session = session
        self._told: Told | None = None
        self._player: Player | None = None
        self._views: Views | None = None
        self._files: FilesModel | None = None
        self._scrubber: Scrubber | None = None
        self._shelf: Shelf | None = None
        self._timer: Timer | None = None
        self._ticked_at = 0.0
        self._wanted: int | None = None
        self._forking = False
        heading = heading_of(launch)._replace(words=READ_ONLY, title="Replay")
        self.header = Header(heading)
        self.transcript = PastTranscript(work_dir=str(launch.work_dir))
        self.footer = Footer()
        self._chat_pane = ChatPane(self.transcript)
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
        from kimi_tui.tui.replay.scrubber import Scrubber
        from kimi_tui.tui.replay.shelf import Shelf

        add_sheets(app_of(self), "timeline", "gauge")
        self._told = told
        course = told.replay.course
        self._player = Player(course, waits=app_of(self).animation_level != "none")
        self._views = Views(self.transcript)
        self._timeline_pane.furnish(self._views.timeline)
        self._timeline_pane.border_subtitle = "Enter go there"
        self._shelf = Shelf()
        self._timeline_pane.mount(self._shelf)
        self._gauge_row.mount(self._views.gauge)
        self._scrubber = Scrubber()
        self._scrubber.follow(course, self._player)
        self.mount(self._scrubber, before=self.footer)
        self._fit(app_of(self).size)
        self.header.heading = self.header.heading._replace(
            title=told.title, folder=short(told.session.work_dir), branch=told.branch
        )
        self.transcript.work_dir = str(told.session.work_dir)
        self._scrubber.focus()
        # The first thing that was said is more to begin with than an empty page.
        self._seek(course.turns[0] if course.turns else course.step(0, 1))
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
            self._views.fit(0 if floats else SLIM_TIMELINE if slim else WIDE_TIMELINE)

    # --- the moment

    def _seek(self, position: int) -> None:
        """Show the moment at a position: by what happens until then, or from a kept state."""
        told, views, player = self._told, self._views, self._player
        if told is None or views is None or player is None:
            return
        if self._files is not None and 0 <= position - player.position <= NEAR:
            self._play(player.position, position, live=False)
        else:
            moment = told.replay.at(position)
            views.show(moment.chat, moment.timeline, moment.gauge)
            self._files = moment.files
        player.go_to(position)
        self._moved()

    def _moved(self) -> None:
        """Bring what is told about the moment up to date."""
        told, views, player = self._told, self._views, self._player
        if told is None or views is None or player is None:
            return
        head = views.timeline.model.head if views.timeline.model is not None else None
        if self._scrubber is not None:
            self._scrubber.moved(head.id if head is not None else None)
        if self._shelf is not None and self._files is not None:
            self._shelf.files = self._files.files
        at = f"at #{head.id}" if head is not None else "at the beginning"
        views.timeline.entitle(
            f"{at}, of {counted(told.replay.n_steps, 'step')}"
            if head or told.replay.n_steps
            else ""
        )
        views.gauge.remark(f"then; now {tokens(told.replay.used_at_end)}")

    @on(Transcript.RebuildNeeded)
    def _rebuild_needed(self) -> None:
        """A line from before the record began: what is shown stays, and goes on with what follows."""

    # --- what the scrubber asks for; its class is imported later, so its messages are named by their handlers

    def on_scrubber_sought(self, event: Scrubber.Sought) -> None:
        """Another moment is wanted; of many in a row (a drag) only the newest is shown."""
        if self._wanted is None:
            self.call_later(self._seek_wanted)
        self._wanted = event.position

    def _seek_wanted(self) -> None:
        wanted, self._wanted = self._wanted, None
        if wanted is not None:
            self._seek(wanted)

    def on_scrubber_play_toggled(self) -> None:
        """Play or pause."""
        player = self._player
        if player is None:
            return
        if not player.is_playing and self._told is not None:
            course = self._told.replay.course
            if player.position == course.end:
                self._seek(0)
        player.toggle()
        self._follow_player()

    def on_scrubber_speed_changed(self, event: Scrubber.SpeedChanged) -> None:
        """Faster or slower."""
        if self._player is not None and self._scrubber is not None:
            self._player.change_speed(event.steps)
            self._scrubber.refresh()

    def _follow_player(self) -> None:
        player = self._player
        playing = player is not None and player.is_playing
        if playing and self._timer is None:
            self._ticked_at = time.monotonic()
            self._timer = self.set_interval(FRAME_S, self._tick)
        elif not playing and self._timer is not None:
            self._timer.stop()
            self._timer = None
        if self._scrubber is not None:
            self._scrubber.refresh()
        self._update_footer()

    def _tick(self) -> None:
        player, told = self._player, self._told
        if player is None or told is None:
            return
        now = time.monotonic()
        elapsed_s, self._ticked_at = now - self._ticked_at, now
        before = player.position
        reached = player.advance(elapsed_s)
        if reached > before:
            self._play(before, reached, live=True)
            self._moved()
        elif self._scrubber is not None:
            self._scrubber.refresh()
        if not player.is_playing:
            self._follow_player()

    def _play(self, start: int, end: int, *, live: bool) -> None:
        told, views, files = self._told, self._views, self._files
        if told is None or views is None or files is None:
            return
        records = told.replay.course.records[start:end]
        views.play(records, live=live)
        for record in records:
            files.apply(record)

    # --- the timeline and the chat

    def on_timeline_checkpoint_chosen(self, event: Timeline.CheckpointChosen) -> None:
        """Go to the moment when that step was complete."""
        self._go_to(event.target.world_line, event.target.id)
        if self.has_class("-overlay"):
            self.on_timeline_left()

    def _go_to(self, line: int, number: int) -> None:
        told, model = self._told, self._views.timeline.model if self._views is not None else None
        if told is None or model is None:
            return
        points = model.tree.live
        if line:
            points = model.tree.lines[line].points if line in model.tree.lines else []
        uid = next((point.uid for point in points if point.id == number), "")
        position = told.replay.course.stop_of(uid)
        if position is not None:
            self._seek(position)

    @on(Transcript.CheckpointClicked)
    def _checkpoint_clicked(self, event: Transcript.CheckpointClicked) -> None:
        self._go_to(0, event.id)

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
        """The footer lists the keys of what has the focus."""
        self._update_footer()

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
        views, told, player = self._views, self._told, self._player
        head = views.timeline.model.head if views and views.timeline.model is not None else None
        if told is None or player is None or self._forking:
            return
        if head is None:
            self._tell("Nothing has happened yet at this moment.")
        elif not isinstance(self._launch.choice, Choice) and not self._launch.demo:
            self._tell("No model is set up yet: start kimi-tui once to choose one.")
        else:
            self._forking = True
            if player.is_playing:
                player.toggle()
                self._follow_player()
            whole = told.replay.course.is_stop(player.position)
            self.run_worker(self._fork(told, head.uid, whole=whole), name="fork")

    async def _fork(self, told: Told, uid: str, *, whole: bool) -> None:
        from kimi_tui.tui.replay.source import fork_at

        try:
            forked = await fork_at(told.session, uid, whole=whole)
        except Exception as error:
            self._forking = False
            if not is_ours(error):
                raise
            self._tell(str(error))
            return
        if self._launch.demo:
            self._forking = False
            self._tell(f"Forked into a new session, {forked.id}.")
            return
        launch = self._launch._replace(
            work_dir=told.session.work_dir,
            resume=forked.id,
            fork=False,
            replay=False,
            notices=("This is a fork; the session that was played back is as it was.",),
        )
        if self._session is not None:
            self.dismiss(launch)
        else:
            self.post_message(SessionWanted(launch))
            await self.remove_children()

    def _tell(self, words: str) -> None:
        self._chat_pane.tell(words, "warning", "")

    def _update_footer(self) -> None:
        playing = self._player is not None and self._player.is_playing
        self.footer.hints = hints(
            glyphs_of(app_of(self)),
            playing=playing,
            on_timeline=self._timeline_pane.has_keys,
            is_narrow=self.has_class("-overlay"),
        )

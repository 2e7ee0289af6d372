"""The screen that replays a stored session: it looks like the main screen, with the scrubber instead of the prompt.

It is read-only: it takes no lock, writes nothing and asks no model. A fork continues the session from a position.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Unpack

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.geometry import Size

from kimi_tui.app_paths import short
from kimi_tui.config.model_choice import ModelChoice
from kimi_tui.daemon_threads import in_daemon_thread
from kimi_tui.launch import Launch
from kimi_tui.program import FAILED, USAGE
from kimi_tui.tui.faults import is_user_facing, report_of, reported
from kimi_tui.tui.frame import Footer, SessionFrame
from kimi_tui.tui.frame_label import frame_label
from kimi_tui.tui.frame_rows import Hint, heading_of
from kimi_tui.tui.glyphs import Glyphs, glyphs_of
from kimi_tui.tui.keyboard import LetterGate
from kimi_tui.tui.notices import NoticeDetails
from kimi_tui.tui.screens import (
    AnswersOnce,
    ImageChosen,
    OpeningFailed,
    QuitChosen,
    SessionChosen,
    app_of,
    sheets,
)
from kimi_tui.tui.transcript.transcript import Transcript

if TYPE_CHECKING:
    from kimi_tui.session.session import Session
    from kimi_tui.tool_cards import ImageBlock
    from kimi_tui.tui.replay.player import Player
    from kimi_tui.tui.replay.scrubber import Scrubber
    from kimi_tui.tui.replay.source import RecordedSession
    from kimi_tui.tui.timeline.timeline import Timeline


OPEN_DELAY_S = 0.05
READ_ONLY = "replay, read-only"
AT_ONCE = frozenset({"escape", "q", "ctrl+c"})
"""Keys that act before the session has been read."""


class ReplayScreen(AnswersOnce[Launch | None]):
    """Replays a session. Its result is the launch of the fork that the user continues in, or None.

    Args:
        launch: the launch of the app, for the fork.
        size: the size of the terminal in cells.
        session: the session; None for the one that the command line names.
        write: called with text typed here that is meant for the prompt of the screen below.
    """

    AUTO_FOCUS = ""
    SHEETS = sheets("main", "chat", "replay")
    HELP_TITLE = "Replay"
    CSS_PATH = SHEETS
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("c", "continue", "Continue from here", id="replay.continue", show=False),
        Binding("t,ctrl+t", "timeline", "Timeline", id="replay.timeline", show=False),
        Binding("escape,q", "leave", "Leave", id="replay.leave", show=False),
    ]

    def __init__(
        self,
        launch: Launch,
        size: Size,
        session: Session | None = None,
        *,
        write: Callable[[str], None] | None = None,
    ) -> None:
        super().__init__()
        self._write = write
        self._letters = LetterGate(self, self._write_over)
        self._launch = launch
        self._session = session
        self._recorded: RecordedSession | None = None
        self._player: Player | None = None
        self._scrubber: Scrubber | None = None
        self._forking = self._is_over = False
        self._early: list[str] | None = []
        """The keys that were pressed while the session was read; None after that."""
        heading = heading_of(launch)._replace(words=READ_ONLY, title="Replay")
        self.transcript = Transcript(work_dir=str(launch.work_dir), load_image=self._load_image)
        self.footer = Footer()
        self._frame = SessionFrame(self, launch, size, heading, self.transcript)
        self.header = self._frame.header
        self._timeline_pane = self._frame.timeline_pane

    def compose(self) -> ComposeResult:
        """Return the widgets from the top; the others are imported and mounted after the first frame."""
        yield from self._frame.compose()
        yield self.footer

    def on_mount(self) -> None:
        """Read the session after the first frame."""
        self.call_after_refresh(self.set_timer, OPEN_DELAY_S, self._open)

    def _open(self) -> None:
        self.run_worker(reported(self, self._read_session), name="read the session")

    async def _read_session(self) -> None:
        try:
            recorded = await in_daemon_thread(load_session, self._launch, self._session)
        except Exception as error:
            if not is_user_facing(error) and not isinstance(error, OSError):
                raise
            if self._session is None:
                code = USAGE if type(error).__name__ == "SessionNotFound" else FAILED
                self.post_message(OpeningFailed(str(error), code))
            else:
                self._tell(str(error))
            return
        self._mount_views(recorded)

    def _mount_views(self, recorded: RecordedSession) -> None:
        from kimi_tui.projection.replay import PlaybackClock
        from kimi_tui.tui.replay.player import Player, ReplayFiles
        from kimi_tui.tui.replay.scrubber import Scrubber

        self._recorded = recorded
        replay, recording = recorded.replay, recorded.replay.recording
        clock = PlaybackClock(recording, waits=app_of(self).animation_level != "none")
        views = self._frame.mount_views()
        scrubber = self._scrubber = Scrubber()
        scrubber.follow(recording, clock)
        files = ReplayFiles()
        self._player = player = Player(self, replay, clock, views, scrubber, files)
        self._timeline_pane.border_subtitle = frame_label(self, "Enter go to the step")
        self._timeline_pane.mount(files)
        self.mount(scrubber, before=self.footer)
        self.header.heading = self.header.heading._replace(
            title=recorded.title or self.header.heading.title,
            folder=short(recorded.session.work_dir),
            branch=recorded.branch,
        )
        self.transcript.work_dir = str(recorded.session.work_dir)
        scrubber.focus()
        player.seek(recording.opening)
        for fault in replay.faults:
            report_of(self)(fault)
        if not recording.end:
            self._tell("This session has no event log, so there is nothing to replay.")
        self._update_footer()

    def on_resize(self, event: events.Resize) -> None:
        """Place the timeline beside or over the chat, and set the margins, for the size of the screen."""
        self._frame.fit(event.size)
        self._update_footer()

    # --- the moment

    def _seek(self, position: int | None) -> None:
        if self._player is not None:
            self._player.seek(position)

    @on(Transcript.RebuildNeeded)
    def _rebuild_needed(self) -> None:
        """Keep the shown state: the line is older than the record, so a rebuild is not possible."""

    # --- the player and the scrubber; their classes are imported later, so their messages are named by their handlers

    def on_player_playing_changed(self) -> None:
        """Name the present effect of the Space key in the footer."""
        self._update_footer()

    def on_scrubber_playhead_moved(self, event: Scrubber.PlayheadMoved) -> None:
        """Show the moment at the playhead."""
        self._seek(event.position)

    def on_scrubber_play_toggled(self) -> None:
        """Play or pause."""
        if self._player is not None:
            self._player.toggle()

    def on_scrubber_speed_changed(self, event: Scrubber.SpeedChanged) -> None:
        """Play faster or slower."""
        if self._player is not None:
            self._player.change_speed(event.steps)

    # --- the timeline and the chat

    def on_timeline_checkpoint_chosen(self, event: Timeline.CheckpointChosen) -> None:
        """Seek to where the step of the chosen checkpoint is complete."""
        if self._player is not None:
            target = event.target
            self._seek(self._player.position_of(target.id, target.world_line))
        if self.has_class("-overlay"):
            self.on_timeline_left()

    def on_timeline_future_chosen(self, event: Timeline.FutureChosen) -> None:
        """Seek to the chosen checkpoint, which is after the present position."""
        if self._player is not None:
            self._seek(self._player.recording.stop_of(event.uid))

    @on(Transcript.CheckpointClicked)
    def _checkpoint_clicked(self, event: Transcript.CheckpointClicked) -> None:
        if self._player is not None:
            self._seek(self._player.position_of(event.id))

    @on(Transcript.LinkClicked)
    def _link_clicked(self, event: Transcript.LinkClicked) -> None:
        app_of(self).open_url(event.url)

    async def _load_image(self, facts: ImageBlock) -> bytes | None:
        recorded = self._recorded
        found = await in_daemon_thread(recorded.image, facts) if recorded is not None else None
        return found.data if found is not None else None

    @on(Transcript.ImageOpened)
    def _image_opened(self, event: Transcript.ImageOpened) -> None:
        self.post_message(ImageChosen(event.image, partial(self._load_image, event.image)))

    @on(Transcript.NothingCopied)
    def _nothing_copied(self, event: Transcript.NothingCopied) -> None:
        self.tell(event.words)

    def on_timeline_left(self) -> None:
        """Focus the scrubber."""
        self._timeline_pane.close()
        if self._scrubber is not None:
            self._scrubber.focus()

    def action_timeline(self) -> None:
        """Open and focus the timeline; or close it if it has the focus."""
        if self._timeline_pane.has_keys:
            self.on_timeline_left()
        else:
            self._timeline_pane.open()

    def on_descendant_focus(self) -> None:
        """List the keys of the focused widget in the footer, and run keys that were pressed too early."""
        self._update_footer()
        if self._scrubber is None or not self._scrubber.has_focus:
            return
        early, self._early = self._early, None
        app = app_of(self)
        for key in early or ():
            # A key sent by this screen would go no higher than here, and the app looks up bindings.
            app.call_later(app.simulate_key, key)

    async def on_key(self, event: events.Key) -> None:
        """Keep keys while the session is read; after that hold a letter back until it is known whether it begins prose."""
        if self._early is not None:
            if event.key not in AT_ONCE:
                self._early.append(event.key)
                event.stop()
        elif await self._letters.intercept(event):
            event.stop()

    def _write_over(self, text: str) -> None:
        if self._write is None:
            self._tell("A replay is read-only. Press c to continue from here in a new session.")
            return
        self._write(text)
        self.dismiss(None)

    # --- leaving

    def action_leave(self) -> None:
        """Leave the replay."""
        scrubber = self._scrubber
        if scrubber is not None and scrubber.is_attached and not scrubber.has_focus:
            self.on_timeline_left()
        elif self._session is None:
            self.post_message(QuitChosen())
        else:
            self.dismiss(None)

    def action_continue(self) -> None:
        """Fork the session at the present position, and continue in the fork."""
        player, recorded = self._player, self._recorded
        if self._forking or self._is_over or player is None or recorded is None:
            return
        player.pause()
        self._forking = True
        self.run_worker(reported(self, partial(self._continue, recorded, player)), name="fork")

    async def _continue(self, recorded: RecordedSession, player: Player) -> None:
        try:
            # The requested moment may not be shown yet.
            await player.settled()
            launch = await self._fork(recorded, player)
        except Exception as error:
            if not is_user_facing(error):
                raise
            self._tell(str(error))
            return
        finally:
            self._forking = False
        if launch is None:
            return
        if self._session is not None:
            self.dismiss(launch)
        else:
            self._is_over = True
            self.post_message(SessionChosen(launch))

    async def _fork(self, recorded: RecordedSession, player: Player) -> Launch | None:
        head = player.head
        if head is None:
            self._tell("There is nothing to continue from at this moment. Move forward first.")
            return None
        if not isinstance(self._launch.choice, ModelChoice) and not self._launch.demo:
            self._tell(
                "No model is configured. Quit, then run kimi-tui without options to choose one."
            )
            return None
        from kimi_tui.tui.replay.source import forked

        return await forked(self._launch, recorded, head.uid, whole=player.is_whole)

    def tell(self, text: str, **details: Unpack[NoticeDetails]) -> None:
        """Show a notice for a few seconds."""
        self._frame.chat_pane.tell(text, **details)

    def _tell(self, words: str) -> None:
        self.tell(words, level="warning")

    def _update_footer(self) -> None:
        playing = self._player is not None and self._player.is_playing
        self.footer.hints = _replay_hints(
            glyphs_of(self),
            playing=playing,
            on_timeline=self._timeline_pane.has_keys,
            is_narrow=self.has_class("-overlay"),
        )


def load_session(launch: Launch, session: Session | None) -> RecordedSession:
    """Read a session (None: the one that the command line names). It imports the engine, so call it in a thread, after the
    first paint.

    Raises:
        SessionNotFound: there is no such session.
    """
    from kimi_tui.tui.replay.source import find, read

    return read(session if session is not None else find(launch))


def _replay_hints(
    glyphs: Glyphs, *, playing: bool, on_timeline: bool, is_narrow: bool
) -> tuple[Hint, ...]:
    """Return the keys, the most used first; in a narrow screen the last ones do not fit."""
    turn = ("[ ]", "turn")
    if on_timeline:
        return (
            (f"{glyphs.up}{glyphs.down}", "move"),
            ("Enter", "go to the step"),
            turn,
            ("Esc", "close"),
        )
    play = ("Space", "pause" if playing else "play")
    step = (f"{glyphs.back}{glyphs.to}", "step")
    speed = (f"+ {glyphs.minus}", "speed")
    go_on, leave = ("c", "continue from here"), ("Esc", "leave")
    if is_narrow:
        return play, step, go_on, leave, ("t", "timeline"), turn, speed
    return play, step, turn, speed, go_on, leave

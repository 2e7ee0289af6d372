"""`Player`: seeks in a recorded session and plays it, updating chat, timeline, gauge and the list of files.

Speeds and the clock are `PlaybackClock` in `projection.replay`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.cells import cell_len
from textual.message import Message
from textual.reactive import reactive
from textual.timer import Timer
from textual.widget import Widget

from kimi_tui.projection.replay import ChangedFile, PlaybackClock, streamed_text
from kimi_tui.tui import formatting
from kimi_tui.tui.faults import report_of, reported
from kimi_tui.tui.formatting import counted, tokens
from kimi_tui.tui.frame_rows import SHORT_BELOW
from kimi_tui.tui.glyphs import Glyphs, glyphs_of
from kimi_tui.tui.replay.scrubber import Scrubber
from kimi_tui.tui.row_list import PaintedRows, plain
from kimi_tui.tui.rows import Line, Span
from kimi_tui.tui.screens import app_of
from kimi_tui.tui.slices import in_slices
from kimi_tui.tui.views import Views
from kimi_tui.wire.events import EventRecord, TextPart, ThinkPart

if TYPE_CHECKING:
    from kimi_tui.projection.replay import ChangedFiles, Replay, ReplayState
    from kimi_tui.projection.timeline_tree import CheckpointNode
    from kimi_tui.tui.transcript.viewport import Flow


FRAME_S = 1 / 30
SLICE_S = 0.002
NEAR = 400
"""The largest number of records ahead that are applied to the shown state; for a position farther away a new state is made."""
MOST_FILES = 5
MOST_FILES_IF_SHORT = 2
"""The largest number of files in a low screen, where the checkpoints need the room."""


class ReplayFiles(PaintedRows):
    """The list of the files that the agent had changed at the shown position: at most `MOST_FILES`; hidden if there are none."""

    files: reactive[tuple[ChangedFile, ...]] = reactive((), layout=True)

    def watch_files(self, files: tuple[ChangedFile, ...]) -> None:
        """Hide the list while it is empty."""
        self.display = bool(files)

    def lay_out(self, width: int) -> Sequence[Line]:
        """Return a title, and a row for each file."""
        glyphs = glyphs_of(self)
        rows = [plain("Files at this moment", "quiet")]
        is_short = app_of(self).size.height < SHORT_BELOW
        most = MOST_FILES_IF_SHORT if is_short else MOST_FILES
        shown = self.files[: most if len(self.files) <= most else most - 1]
        since = [_since(file, glyphs) for file in shown]
        room = max(1, width - max((cell_len(words) for words in since), default=0) - 2)
        names = [formatting.path(file.path, room, glyphs.cut) for file in shown]
        widest = max((cell_len(name) for name in names), default=0)
        for name, words in zip(names, since, strict=True):
            gap = " " * (widest - cell_len(name) + 2)
            rows.append(Line((Span(name), Span(gap + words, "quiet"))))
        if len(self.files) > len(shown):
            rest = formatting.counted(len(self.files) - len(shown), "file")
            rows.append(plain(f"+{rest}", "quiet"))
        return rows


def _since(file: ChangedFile, glyphs: Glyphs) -> str:
    if file.id < 0:
        return "last changed at an unknown step"
    # Numbers start anew after a compaction, and those of a line that was left are used again.
    sign = glyphs.compaction if file.is_compacted else glyphs.lost if file.is_left else ""
    return f"as at #{file.id} {sign}".rstrip()


class Player:
    """Plays a stored session: seeks, and plays at the clock's speed.

    Args:
        owner: the widget whose workers and timers it uses, and which gets its messages.
        replay: the states of the session by position.
        clock: position and speed; only the player moves it.
        views: chat, timeline and gauge.
        scrubber: shows the clock.
        files: the list of files.

    Attributes:
        recording: the events of the session.
        clock: as above.
    """

    class PlayingChanged(Message, bubble=False):
        """Playing has begun or stopped."""

    def __init__(
        self,
        owner: Widget,
        replay: Replay,
        clock: PlaybackClock,
        views: Views,
        scrubber: Scrubber,
        files: ReplayFiles,
    ) -> None:
        self._owner = owner
        self._replay = replay
        self._views = views
        self._scrubber = scrubber
        self._files_list = files
        self.recording = replay.recording
        self.clock = clock
        self._files: ChangedFiles | None = None
        """The files at the shown moment; None if the shown state cannot be relied on."""
        self._shown: tuple[ReplayState, Flow] | None = None
        self._position = 0
        """The number of shown records, and of shown characters of the next one."""
        self._n_chars = 0
        self._timer: Timer | None = None
        self._ticked_at = 0.0
        self._target: int | None = None
        self._settled = asyncio.Event()
        self._settled.set()

    # --- the shown state

    @property
    def is_playing(self) -> bool:
        """Whether the clock runs."""
        return self.clock.is_playing

    @property
    def head(self) -> CheckpointNode | None:
        """The newest checkpoint at the shown position; None if there is none."""
        return self._views.timeline.model.tree.head

    @property
    def is_whole(self) -> bool:
        """Whether the shown position is a stop: nothing that began before it is incomplete."""
        return not self._n_chars and self.recording.is_stop(self._position)

    def position_of(self, checkpoint_id: int, world_line: int = 0) -> int | None:
        """Return the position at which a shown checkpoint was complete; None for one that is not recorded.

        Args:
            checkpoint_id: the id of the checkpoint.
            world_line: the number of its line, 0 for the live one.
        """
        model = self._views.timeline.model
        if world_line and world_line not in model.tree.lines:
            return None
        points = model.tree.lines[world_line].checkpoints if world_line else model.tree.live
        uid = next((point.uid for point in points if point.id == checkpoint_id), "")
        return self.recording.stop_of(uid)

    # --- seeking

    def seek(self, position: int | None) -> None:
        """Seek to a position; of several requests in a row, as in a drag, only the newest is carried out."""
        if position is None:
            return
        self.clock.go_to(position)
        self._target = self.clock.position
        if self._settled.is_set():
            self._settled.clear()
            self._owner.run_worker(reported(self._owner, self._seek_target), name="seek")

    async def settled(self) -> None:
        """Wait until the newest requested position is shown."""
        await self._settled.wait()

    async def _seek_target(self) -> None:
        try:
            while self._target is not None:
                target, self._target = self._target, None
                try:
                    await self._show(target)
                except Exception:
                    self._files = None
                    if self._target is None:
                        raise
        finally:
            self._settled.set()

    async def _show(self, position: int) -> None:
        """Show the state at a position, by applying records or from a keyframe."""
        is_near = 0 <= position - self._position <= NEAR
        if self._files is not None and not self._n_chars and is_near:
            self._apply(self.recording.records[self._position : position], live=False)
            self._position = position
            self._show_position()
            return
        moment = await in_slices(self._replay.slices(position), SLICE_S)
        flow = await in_slices(self._views.settle(moment.session), SLICE_S)
        self._views.show(moment.session, flow)
        before, self._shown = self._shown, (moment, flow)
        self._files = moment.files
        self._position, self._n_chars = position, 0
        self._show_position()
        # Freeing a long conversation takes milliseconds, which should not add to those for showing this one.
        await asyncio.sleep(0)
        del before

    def _apply(self, records: Sequence[EventRecord], *, live: bool) -> None:
        self._views.play(records, live=live)
        for record in records:
            if self._files is not None:
                self._files.apply(record)

    def _show_position(self) -> None:
        """Update the parts that name the position: scrubber, file list, title of the timeline, and gauge."""
        replay, recording, head = self._replay, self.recording, self.head
        timeline, at_end = self._views.timeline, self._position == recording.end
        self._scrubber.moved(head.id if head is not None else None)
        if self._files is not None:
            self._files_list.files = self._files.files
        timeline.show_upcoming(
            replay.upcoming.after(self._position, recording.next_cut(self._position))
        )
        n_steps = replay.upcoming.n_steps(self._position)
        if n_steps:
            at = f"at #{head.id}" if head is not None else "at the beginning"
            timeline.set_title(f"{at}, of {counted(max(n_steps, head.id if head else 0), 'step')}")
        self._views.gauge.aside = (
            "" if at_end else f"at this moment; now {tokens(replay.used_at_end)} tokens"
        )

    # --- playing

    def toggle(self) -> None:
        """Play or pause."""
        was_at = self.clock.position
        self.clock.toggle()
        if self.clock.position != was_at:
            self.seek(self.clock.position)
        self._follow_clock()

    def pause(self) -> None:
        """Pause."""
        if self.clock.is_playing:
            self.toggle()

    def change_speed(self, steps: int) -> None:
        """Play faster or slower."""
        self.clock.change_speed(steps)
        self._scrubber.refresh()

    def _follow_clock(self) -> None:
        playing = self.clock.is_playing
        if playing and self._timer is None:
            self._ticked_at = time.monotonic()
            self._timer = self._owner.set_interval(FRAME_S, self._tick)
        elif not playing and self._timer is not None:
            self._timer.stop()
            self._timer = None
        self._scrubber.refresh()
        self._owner.post_message(self.PlayingChanged())

    def _tick(self) -> None:
        now = time.monotonic()
        elapsed_s, self._ticked_at = now - self._ticked_at, now
        if not self._settled.is_set():
            return
        try:
            self.clock.advance(elapsed_s)
            self._show_clock()
        except Exception as error:
            report_of(self._owner)(error)
            # The state may be half applied, so the same moment is shown anew, and the error is not reported thirty times a
            # second.
            self._files = None
            self.pause()
            self.seek(self.clock.position)
            return
        if not self.clock.is_playing:
            self._follow_clock()

    def _show_clock(self) -> None:
        """Show the records up to the clock's position, and the streamed part of the text at it."""
        reached = self.clock.position
        records = list(self.recording.records[self._position : reached])
        if records and self._n_chars:
            records[0] = _part_of(records[0], self._n_chars)
            self._n_chars = 0
        self._position = reached
        n_chars = self.recording.streamed_by(reached, self.clock.time_s)
        if n_chars > self._n_chars:
            records.append(_part_of(self.recording.records[reached], self._n_chars, n_chars))
            self._n_chars = n_chars
        if records:
            self._apply(records, live=True)
            self._show_position()
        else:
            self._scrubber.refresh()


def _part_of(record: EventRecord, start: int, end: int | None = None) -> EventRecord:
    """Return a record of a text with only the characters from `start` to `end` (exclusive)."""
    part = streamed_text(record.event)[start:end]
    event = TextPart(part) if isinstance(record.event, TextPart) else ThinkPart(part)
    return record._replace(event=event)

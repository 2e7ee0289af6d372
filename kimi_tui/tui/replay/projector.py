"""Keeps what is shown of a replay at the moment that is wanted: as the clock goes by, or where the person goes.

What a moment looks like is the stage's affair, what the clock says the player's.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from textual.timer import Timer
from textual.widget import Widget

from kimi_tui.tui.replay.playing import Player
from kimi_tui.tui.replay.scrubber import Scrubber
from kimi_tui.tui.replay.stage import Stage

if TYPE_CHECKING:
    from kimi_tui.tui.replay.course import Course

FRAME_S = 1 / 30


class Projector:
    """Plays a course and seeks in it.

    Args:
        owner: whose work this is; it ends with it.
        course: what happened.
        player: the clock.
        stage: shows a moment.
        scrubber: shows where the clock stands.
        changed: called when it begins or stops to play.
    """

    def __init__(
        self,
        owner: Widget,
        course: Course,
        player: Player,
        stage: Stage,
        scrubber: Scrubber,
        changed: Callable[[], None],
    ) -> None:
        self._owner = owner
        self.player = player
        self._scrubber = scrubber
        self._changed = changed
        self._timer: Timer | None = None
        self._ticked_at = 0.0
        self._wanted: int | None = None
        self._settled = asyncio.Event()
        self._settled.set()
        self.course = course
        self.stage = stage

    @property
    def is_playing(self) -> bool:
        """Whether time goes on."""
        return self.player.is_playing

    def seek(self, position: int | None) -> None:
        """Show another moment; of many that are wanted in a row (a drag) only the newest."""
        if position is None:
            return
        self.player.go_to(position)
        self._wanted = self.player.position
        if self._settled.is_set():
            self._settled.clear()
            self._owner.run_worker(self._seek_wanted(), name="seek")

    async def _seek_wanted(self) -> None:
        try:
            while self._wanted is not None:
                wanted, self._wanted = self._wanted, None
                await self.stage.seek(wanted)
        finally:
            self._settled.set()

    async def settled(self) -> None:
        """Wait until the moment is shown that was wanted last."""
        await self._settled.wait()

    def toggle(self) -> None:
        """Play or pause."""
        was_at = self.player.position
        self.player.toggle()
        if self.player.position != was_at:
            self.seek(self.player.position)
        self._follow_player()

    def pause(self) -> None:
        """Play no further."""
        if self.player.is_playing:
            self.toggle()

    def change_speed(self, steps: int) -> None:
        """Faster or slower."""
        self.player.change_speed(steps)
        self._scrubber.refresh()

    def _follow_player(self) -> None:
        playing = self.player.is_playing
        if playing and self._timer is None:
            self._ticked_at = time.monotonic()
            self._timer = self._owner.set_interval(FRAME_S, self._tick)
        elif not playing and self._timer is not None:
            self._timer.stop()
            self._timer = None
        self._scrubber.refresh()
        self._changed()

    def _tick(self) -> None:
        now = time.monotonic()
        elapsed_s, self._ticked_at = now - self._ticked_at, now
        if not self._settled.is_set():
            return
        self.player.advance(elapsed_s)
        self.stage.play_on()
        if not self.player.is_playing:
            self._follow_player()

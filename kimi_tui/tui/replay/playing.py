"""The clock of a replay: where it stands, how fast it goes, and where it waits for a fold to be seen."""

from __future__ import annotations

from kimi_tui.tui.replay.course import Course

SPEEDS = (1, 2, 4, 8, 16)
FOLD_S = {"dmail": 1.0, "rewind": 0.4, "compaction": 0.4}
"""How long a fold is left alone; its motion takes a little less."""


class Player:
    """Plays a course.

    Args:
        course: what happened.

    Attributes:
        position: how much has happened.
        time_s: the same in seconds of playing, exact between two events.
        is_playing: whether time goes on.
        waits: whether a fold is given the time to be seen.
    """

    def __init__(self, course: Course, *, waits: bool = True) -> None:
        self._course = course
        self._speed = 0
        self._hold_s = 0.0
        self.position = 0
        self.time_s = 0.0
        self.is_playing = False
        self.waits = waits

    @property
    def speed(self) -> int:
        """How many times faster than it happened."""
        return SPEEDS[self._speed]

    def change_speed(self, steps: int) -> None:
        """The next speed, or the one before."""
        self._speed = max(0, min(len(SPEEDS) - 1, self._speed + steps))

    def toggle(self) -> None:
        """Play or pause; at the end, play again from the beginning."""
        if not self.is_playing and self.position == self._course.end:
            self.go_to(0)
        self.is_playing = not self.is_playing and self._course.end > 0

    def go_to(self, position: int) -> None:
        """Stand at a position."""
        self.position = max(0, min(self._course.end, position))
        self.time_s = self._course.time_of(self.position)
        self._hold_s = 0.0

    def advance(self, elapsed_s: float) -> int:
        """Let real time go by; returns the position that is reached. Stops at the end, and at a fold waits for it."""
        if not self.is_playing:
            return self.position
        if self._hold_s > 0:
            self._hold_s -= elapsed_s
            return self.position
        course = self._course
        self.time_s = min(course.length_s, self.time_s + elapsed_s * self.speed)
        reached = max(self.position, course.position_at(self.time_s))
        fold = course.fold_between(self.position, reached)
        if fold is not None and self.waits:
            reached, self.time_s = fold.position, fold.time_s
            self._hold_s = FOLD_S.get(fold.kind, 0.0)
        self.position = reached
        if reached == course.end:
            self.is_playing = False
        return reached

    def seconds_to(self, time_s: float) -> float:
        """How long the person waits at this speed until then."""
        return max(0.0, time_s - self.time_s) / self.speed

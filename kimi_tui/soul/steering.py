"""What the person typed while the agent works, waiting to go in between two steps."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import uuid4

from kimi_tui.wire.events import SteerQueued, SteerTaken
from kimi_tui.wire.queue import Wire


@dataclass(frozen=True, slots=True)
class Steer:
    """One queued text."""

    id: str
    text: str


class Steering:
    """The queue. What is not taken by the end of a turn stays for the next."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._queued: list[Steer] = []

    def __bool__(self) -> bool:
        return bool(self._queued)

    def queue(self, text: str) -> str:
        """Add one; returns its id."""
        steer = Steer(uuid4().hex[:12], text)
        self._queued.append(steer)
        self._wire.publish(SteerQueued(steer.id, steer.text))
        return steer.id

    def withdraw(self, steer_id: str) -> str | None:
        """Take one back; None if it has gone in already."""
        for steer in self._queued:
            if steer.id == steer_id:
                self._queued.remove(steer)
                self._wire.publish(SteerTaken(steer.id, steer.text, withdrawn=True))
                return steer.text
        return None

    def waiting(self) -> tuple[Steer, ...]:
        """What is queued, oldest first."""
        return tuple(self._queued)

    def taken(self, steers: tuple[Steer, ...], place: int) -> None:
        """These have gone in, the first of them at this place behind the newest checkpoint."""
        for number, steer in enumerate(steers, place):
            self._queued.remove(steer)
            self._wire.publish(SteerTaken(steer.id, steer.text, number=number))

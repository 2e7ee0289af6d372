"""When each event of a record is played: as it happened, but for pauses that nobody wants to sit through again.

A record holds a streamed text in one piece, with the time of its first word; its last word came before the next event.
"""

from __future__ import annotations

from collections.abc import Sequence

from kimi_tui.wire.events import (
    CheckpointCreated,
    Event,
    Record,
    TextPart,
    ThinkPart,
    ToolResult,
)

LONGEST_PAUSE_S = 2.0
"""Longer pauses (the person was thinking, or asleep) are played as this."""
STREAMED_CHARS = 24
"""Shorter texts are there at once."""
SLOWEST_CHARS_S = 20.0
"""Slower than this no model writes: the rest of the time is a pause."""
_UNTIMED_CHARS_S = 250.0
_UNTIMED_STEP_S = 0.5


class Times:
    """The times of playing, in seconds.

    Attributes:
        begun: when the first word of each event is there.
        reached: when all of it is.
    """

    def __init__(self, records: Sequence[Record]) -> None:
        self._records = records
        self.begun: list[float] = []
        self.reached: list[float] = []
        now = 0.0
        for index, record in enumerate(records):
            following = records[index + 1] if index + 1 < len(records) else None
            streaming_s, pause_s = _lasts(record, following)
            self.begun.append(now)
            now += streaming_s
            self.reached.append(now)
            now += pause_s

    def said_by(self, position: int, time_s: float) -> int:
        """How many characters of the event that comes next were streamed by then."""
        if position >= len(self._records):
            return 0
        begun, reached = self.begun[position], self.reached[position]
        if not begun < time_s < reached:
            return 0
        text = streamed_text(self._records[position].event)
        return int(len(text) * (time_s - begun) / (reached - begun))


def streamed_text(event: Event) -> str:
    """The words that an event brought one after another."""
    return event.text if isinstance(event, TextPart | ThinkPart) else ""


def _lasts(record: Record, following: Record | None) -> tuple[float, float]:
    """How long the words of an event came, and how long nothing came after them."""
    if following is None:
        return 0.0, 0.0
    text = streamed_text(record.event)
    n_chars = len(text) if len(text) >= STREAMED_CHARS else 0
    if record.at <= 0 or following.at <= 0:
        # Another program's conversation, or one without a record, does not say when: it gets a pace of its own.
        pause_s = _UNTIMED_STEP_S if _takes_time(following.event) else 0.0
        return n_chars / _UNTIMED_CHARS_S, pause_s
    # A clock that was set back makes no time negative.
    whole_s = max(0.0, following.at - record.at)
    streaming_s = min(whole_s, n_chars / SLOWEST_CHARS_S)
    return streaming_s, min(LONGEST_PAUSE_S, whole_s - streaming_s)


def _takes_time(event: Event) -> bool:
    return isinstance(event, CheckpointCreated | ToolResult)

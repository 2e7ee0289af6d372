"""Times and displays from a record that kimi-cli wrote, for a conversation that is told from its messages.

Such a record knows no checkpoints and no reverts, and its ids repeat. So its turns and steps are matched in their order: a
turn by the person's words, a step by the tools it called.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from kimi_tui.wire import events as ev
from kimi_tui.wire.display import DisplayBlock
from kimi_tui.wire.events import Record


@dataclass(slots=True)
class Unit:
    """The beginning of a turn (`words` is set), or a step: when it was, what it called, what its results showed."""

    at: float
    words: str | None = None
    calls: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    displays: dict[str, tuple[DisplayBlock, ...]] = field(
        default_factory=dict[str, tuple[DisplayBlock, ...]]
    )

    def display(self, place: int) -> tuple[DisplayBlock, ...]:
        """What the result of the call at this place of the step showed."""
        if place >= len(self.calls):
            return ()
        return self.displays.get(self.calls[place][0], ())


class ForeignRecord:
    """Hands out the units of a record in their order.

    Args:
        records: the whole record; what stands before the first checkpoint of ours is kimi-cli's.
    """

    def __init__(self, records: Iterable[Record]) -> None:
        self._units = _units(records)
        self._next = 0

    def turn(self, words: str) -> Unit | None:
        """The next turn that began with these words; those passed over had none in the conversation (commands)."""
        wanted = words.strip()
        for place in range(self._next, len(self._units)):
            unit = self._units[place]
            if unit.words is not None and unit.words.strip() == wanted:
                self._next = place + 1
                return unit
        return None

    def step(self, names: Sequence[str]) -> Unit | None:
        """The next step of the same turn that called these tools."""
        for place in range(self._next, len(self._units)):
            unit = self._units[place]
            if unit.words is not None:
                return None
            if [name for _, name in unit.calls] == list(names):
                self._next = place + 1
                return unit
        return None


def _units(records: Iterable[Record]) -> list[Unit]:
    units: list[Unit] = []
    for record in records:
        match record.event:
            case ev.CheckpointCreated():
                return units
            case ev.TurnBegin(text):
                units.append(Unit(record.at, text))
            case ev.StepBegin():
                units.append(Unit(record.at))
            case ev.ToolCall(key, name) if units:
                units[-1].calls.append((key, name))
            case ev.ToolResult(key=key, display=display) if units:
                units[-1].displays[key] = display
            case _:
                pass
    return units

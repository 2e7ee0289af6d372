"""Two courses of a conversation from where they part: their messages, and which of them both have. Knows no widget."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from kimi_tui.tui.compare.pairing import runs
from kimi_tui.tui.compare.sheet import Sheet
from kimi_tui.tui.glyphs import Glyphs

if TYPE_CHECKING:
    from kimi_tui.soul.travel_protocol import LineMessage

Side = Literal["other", "live"]


class Entry(NamedTuple):
    """A message of one side. `same` is true where the other side has it too, at that place."""

    message: LineMessage
    same: bool


class Comparison:
    """What is compared.

    Args:
        other: the messages of the line that was left.
        live: those of the live line.

    Attributes:
        runs: what both have and what only one of them has, from the beginning.
        sides: the messages that are shown.
        unfolded: which of them are shown whole.
    """

    def __init__(self, other: Sequence[LineMessage], live: Sequence[LineMessage]) -> None:
        left, right = _shown(other), _shown(live)
        self.runs = runs([_key(one) for one in left], [_key(one) for one in right])
        same = [run for run in self.runs if run.same]
        same_left = {i for run in same for i in range(run.a, run.b)}
        same_right = {i for run in same for i in range(run.c, run.d)}
        self.sides: dict[Side, list[Entry]] = {
            "other": [Entry(one, i in same_left) for i, one in enumerate(left)],
            "live": [Entry(one, i in same_right) for i, one in enumerate(right)],
        }
        self.unfolded: set[tuple[Side, int]] = set()

    def next_difference(self, side: Side, current: int) -> int | None:
        """The next message of a side that the other one has not; from the beginning again behind the last."""
        entries = self.sides[side]
        order = [*range(current + 1, len(entries)), *range(current + 1)]
        return next((i for i in order if not entries[i].same), None)

    def sheet(self, width: int, glyphs: Glyphs, before: Sheet | None = None) -> Sheet:
        """The rows for two columns of `width` cells, not measured yet.

        Args:
            width: cells of each column.
            glyphs: the signs in use.
            before: a sheet whose heights still hold where the width is the same.
        """
        known = before.heights if before is not None and before.width == width else None
        return Sheet(self, width, glyphs, known)


def _shown(messages: Sequence[LineMessage]) -> list[LineMessage]:
    """Without reminders, and without what the agent did not say (its calls stand with their results)."""
    return [
        one
        for one in messages
        if one.kind != "reminder" and (one.text.strip() or one.kind != "agent")
    ]


def _key(message: LineMessage) -> tuple[str, str, str, str]:
    return message.kind, message.name, message.target, message.text

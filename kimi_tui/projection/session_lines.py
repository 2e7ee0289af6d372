"""World lines and token figures of a session, reduced once for all that show them (`SessionLines`).

The timeline keeps a session's lines, as its checkpoints stand on them; a chat beside it is given what each event changed
(`LinesChange`). A chat that is shown alone has lines of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from kimi_tui.projection.tokens import UNCHANGED, Changed, CheckpointTokens
from kimi_tui.projection.world_lines import (
    CheckpointLike,
    CheckpointName,
    LineEdit,
    WorldLines,
    names_in,
)
from kimi_tui.wire.events import (
    CheckpointCreated,
    CompactionEnd,
    ContextReverted,
    EventRecord,
    LineChanged,
    StatusUpdate,
    WorldLineAdded,
)

P = TypeVar("P", bound=CheckpointLike)


class LinesChange(NamedTuple):
    """The changes by an event.

    Attributes:
        edit: what an operation did to the live line; None where it stays as it is.
        replaced: the checkpoints that a compaction which ends has replaced, oldest first.
        figures: the token figures.
    """

    edit: LineEdit[Any] | None = None
    replaced: Sequence[CheckpointLike] = ()
    figures: Changed = UNCHANGED


NO_CHANGE = LinesChange()


class SessionLines(Generic[P]):
    """The world lines and the token figures of one session.

    Attributes:
        world_lines: the live line and those that were left.
        figures: the tokens before each checkpoint, and after D-Mails and compactions.
    """

    def __init__(self) -> None:
        self.world_lines = WorldLines[P]()
        self.figures = CheckpointTokens()

    def operated(
        self, event: ContextReverted | CompactionEnd | LineChanged, at: float
    ) -> LinesChange:
        """Apply an operation and its time in seconds since 1970."""
        replaced = self.world_lines.replaced if isinstance(event, CompactionEnd) else None
        points = replaced.points if replaced is not None else ()
        figures = self.figures.apply(event)
        return LinesChange(self.world_lines.apply(event, at), points, figures)


def change_alone(lines: SessionLines[CheckpointName], record: EventRecord) -> LinesChange:
    """Apply any event to lines that nothing else keeps; returns what it changed."""
    match record.event:
        case CheckpointCreated(id=number, uid=uid) as event:
            lines.world_lines.add(event, CheckpointName(uid, number))
            return LinesChange(figures=lines.figures.apply(event))
        case StatusUpdate() as event:
            return LinesChange(figures=lines.figures.apply(event))
        case ContextReverted() | CompactionEnd() | LineChanged() as event:
            return lines.operated(event, record.at)
        case WorldLineAdded() as event:
            lines.world_lines.add_line(event, names_in(event), record.at)
            return NO_CHANGE
        case _:
            return NO_CHANGE

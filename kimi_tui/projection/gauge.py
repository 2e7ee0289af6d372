"""The model of the gauge: tokens in the context window, and what the newest revert or compaction freed."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kimi_tui.wire.events import (
    CheckpointCreated,
    CompactionEnd,
    ContextReverted,
    EventRecord,
    LineChanged,
    StatusUpdate,
)


@dataclass(frozen=True, slots=True)
class FreedTokens:
    """What an operation took away, in tokens; nothing where another line took the place of the one that it was taken from.

    `serial` counts operations, so that a new one is known from an old one.
    `estimated` says that `after` is no server's figure.
    """

    reason: str = ""
    before: int = 0
    after: int = 0
    serial: int = 0
    estimated: bool = False


class GaugeModel:
    """Takes in events; knows nothing of how the gauge is drawn.

    Attributes:
        status: the newest report of the window; after a revert or compaction what it is estimated to be until the next one.
        freed: what the newest rewind, D-Mail or compaction took away.
    """

    def __init__(self) -> None:
        self.status = StatusUpdate(used=0, limit=0, trigger=0)
        self.freed = FreedTokens()
        self._is_step = False
        # Whether reports to come tell better what was left: not those behind what the user says, or of another line.
        self._is_guess = False

    def apply(self, record: EventRecord) -> bool:
        """Take in one event; returns whether the gauge may look different now."""
        match record.event:
            case StatusUpdate() as status:
                freed = self.freed
                self._correct(status)
                if status == self.status and self.freed == freed:
                    return False
                self.status = status
            case CheckpointCreated(kind=kind):
                self._is_step = kind == "step"
                self._is_guess = self._is_guess and kind != "user"
                return False
            case LineChanged(op="jump" | "undo" | "redo"):
                # What the line that was left had lost says nothing of this one.
                self._is_guess = False
                self.freed = FreedTokens(serial=self.freed.serial + 1)
            case ContextReverted() as event:
                self._drop(event.reason, event.tokens_before, event.tokens_after)
            case CompactionEnd() as event if not event.error:
                # The revert of a compaction was an event before, but did not say how far the window falls.
                self._drop("compaction", event.tokens_before, event.tokens_after)
            case _:
                return False
        return True

    def _correct(self, status: StatusUpdate) -> None:
        """What was left is known by the server's next figure, that of what was sent to it first."""
        if self._is_guess:
            sent = status.step_input if self._is_step else None
            after = status.used if sent is None else sent
            self.freed = replace(self.freed, after=after, estimated=status.estimated)
            self._is_guess = sent is None and status.estimated

    def _drop(self, reason: str, before: int, after: int) -> None:
        self.freed = FreedTokens(reason, before, after, self.freed.serial + 1, estimated=True)
        self._is_guess = True
        status = self.status
        if status.used <= 0:
            self.status = status._replace(used=after, estimated=True)
            return
        # The next report splits anew; until then the system prompt keeps its size and the rest shrinks in proportion.
        system = min(status.system, after)
        rest = max(1, status.talk + status.tools)
        talk = (after - system) * status.talk // rest
        self.status = status._replace(
            used=after,
            estimated=True,
            system=system,
            talk=talk,
            tools=max(0, after - system - talk),
        )

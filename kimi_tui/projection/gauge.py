"""How full the context window is, and what the newest revert or compaction freed."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kimi_tui.wire.events import CompactionEnd, ContextReverted, EventRecord, StatusUpdate


@dataclass(frozen=True, slots=True)
class Freed:
    """What an operation took away, in tokens. `serial` counts such operations, so that a new one is known from an old one."""

    reason: str = ""
    before: int = 0
    after: int = 0
    serial: int = 0


class GaugeModel:
    """Takes in events; knows nothing of how the gauge is drawn.

    Attributes:
        status: the newest report of the window; after a revert or compaction what it is estimated to be until the next one.
        freed: what the newest rewind, D-Mail or compaction took away.
    """

    def __init__(self) -> None:
        self.status = StatusUpdate(used=0, limit=0, trigger=0)
        self.freed = Freed()

    def apply(self, record: EventRecord) -> bool:
        """Take in one event; returns whether the gauge may look different now."""
        match record.event:
            case StatusUpdate() as status:
                if status == self.status:
                    return False
                self.status = status
            case ContextReverted() as event:
                self._drop(event.reason, event.tokens_before, event.tokens_after)
            case CompactionEnd() as event if not event.error:
                # The revert of a compaction was an event before, but did not say how far the window falls.
                self._drop("compaction", event.tokens_before, event.tokens_after)
            case _:
                return False
        return True

    def _drop(self, reason: str, before: int, after: int) -> None:
        self.freed = Freed(reason, before, after, self.freed.serial + 1)
        status = self.status
        if status.used <= 0:
            self.status = replace(status, used=after, estimated=True)
            return
        # The next report splits anew; until then the system prompt keeps its size and the rest shrinks in proportion.
        system = min(status.system, after)
        rest = max(1, status.talk + status.tools)
        talk = (after - system) * status.talk // rest
        self.status = replace(
            status,
            used=after,
            estimated=True,
            system=system,
            talk=talk,
            tools=max(0, after - system - talk),
        )

"""From the engine's events to the state of the gauge. Nothing here draws."""

from __future__ import annotations

from dataclasses import replace

from kimi_tui.tui.gauge.figures import Freed, Usage
from kimi_tui.wire.events import CompactionEnd, ContextReverted, Record, StatusUpdate


class GaugeModel:
    """How full the window is.

    Attributes:
        usage: the newest state.
        freed: what the newest rewind, D-Mail or compaction took away; `serial` tells a new one from an old one.
    """

    def __init__(self) -> None:
        self.usage = Usage()
        self.freed = Freed()

    def apply(self, record: Record) -> bool:
        """Take in one event; tells whether the gauge is another one now."""
        match record.event:
            case StatusUpdate() as event:
                usage = Usage(
                    used=event.used,
                    limit=event.limit,
                    trigger=event.trigger,
                    estimated=event.estimated,
                    limit_estimated=event.limit_estimated,
                    system=event.system,
                    talk=event.talk,
                    tools=event.tools,
                    per_step=event.per_step,
                    total_input=event.total_input,
                    total_cached=event.total_cached,
                    total_output=event.total_output,
                )
                if usage == self.usage:
                    return False
                self.usage = usage
                return True
            case ContextReverted() as event:
                self._fell(event.reason, event.tokens_before, event.tokens_after)
                return True
            case CompactionEnd() as event if not event.error:
                # The revert of a compaction has told of the fall already, but not how far it goes.
                self._fell("compaction", event.tokens_before, event.tokens_after)
                return True
            case _:
                return False

    def _fell(self, reason: str, before: int, after: int) -> None:
        self.freed = Freed(reason, before, after, self.freed.serial + 1)
        usage = self.usage
        if usage.used <= 0:
            self.usage = replace(usage, used=after, estimated=True)
            return
        # The next report splits anew; until then the system prompt keeps its size and the rest shrinks in proportion.
        system = min(usage.system, after)
        rest = max(1, usage.talk + usage.tools)
        talk = (after - system) * usage.talk // rest
        self.usage = replace(
            usage,
            used=after,
            estimated=True,
            system=system,
            talk=talk,
            tools=max(0, after - system - talk),
        )

"""How many tokens the window holds before each checkpoint: one figure a row, for every view, the engine and the command line.

The engine estimates once, when it makes a checkpoint, and the server's own figure takes its place when the step was
answered. What was estimated before any server had given a figure is fitted to the first one: the estimate knows
neither the model nor how its server counts tools.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from kimi_tui.wire.events import CheckpointCreated, Event, StatusUpdate


class Figure(NamedTuple):
    """Tokens; whether they are the server's own figure, and else whether they were fitted to one."""

    tokens: int
    measured: bool
    fitted: bool = False


def fitted(tokens: int, estimate: int, figure: int) -> int:
    """An estimate of a part, where the whole was estimated at `estimate` and the server gave `figure`."""
    return round(figure * min(tokens, estimate) / estimate) if estimate > 0 else min(tokens, figure)


class RowFigures:
    """The figure of each checkpoint, by uid, on whatever line it stands."""

    def __init__(self) -> None:
        self._known: dict[str, Figure] = {}
        # Rows that were estimated before the first figure; None behind it.
        self._unfitted: list[str] | None = []
        self._newest = ""
        self._is_step = False
        self._used = 0
        # A record does not tell what was estimated before its first turn.
        self._estimated = True

    def get(self, uid: str) -> Figure | None:
        """The figure of a checkpoint; None where no event told of it."""
        return self._known.get(uid)

    def apply(self, event: Event) -> Iterable[str]:
        """Take in an event; returns the uids of the checkpoints whose figures are new or others now."""
        match event:
            case CheckpointCreated():
                return self._created(event)
            case StatusUpdate():
                return self._status(event)
            case _:
                return ()

    def _created(self, event: CheckpointCreated) -> Iterable[str]:
        # A turn's checkpoint stands before the user's message, so the last report is what was sent up to it.
        measured = event.measured or (event.kind == "user" and not self._estimated)
        self._newest, self._is_step = event.uid, event.kind == "step"
        self._known[event.uid] = Figure(event.tokens or self._used, measured)
        if measured:
            self._unfitted = None
        elif self._unfitted is not None and not event.fitted:
            self._unfitted.append(event.uid)
        return (event.uid,)

    def _status(self, event: StatusUpdate) -> Iterable[str]:
        self._used, self._estimated = event.used, event.estimated
        was = self._known.get(self._newest)
        if event.step_input is None or was is None or was.measured or not self._is_step:
            return ()
        changed = [self._newest]
        if not event.estimated and self._unfitted is not None:
            for uid in self._unfitted:
                tokens = fitted(self._known[uid].tokens, was.tokens, event.step_input)
                self._known[uid] = Figure(tokens, measured=False, fitted=True)
            changed += self._unfitted
            self._unfitted = None
        self._known[self._newest] = Figure(event.step_input, not event.estimated)
        return changed

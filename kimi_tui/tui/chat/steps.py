"""What each step added to the window: the difference of what two neighbouring model calls were sent."""

from __future__ import annotations

from kimi_tui.wire.events import StatusUpdate


class StepTokens:
    """Follows checkpoints and usage figures of the live line."""

    def __init__(self) -> None:
        self._current: int | None = None
        self._is_step = False
        self._known: dict[int, int] = {}
        self._sent: set[int] = set()

    def begin(self, checkpoint: int, tokens: int, *, is_step: bool) -> tuple[int, int, bool] | None:
        """A checkpoint was made with so many tokens before it; may tell what the step before it cost, as an estimate.

        Only a step is followed by a model call: figures that come after another checkpoint are those of the last one.
        """
        before = self._current
        self._current = checkpoint
        self._is_step = is_step
        self._known[checkpoint] = tokens
        self._sent.discard(checkpoint)
        if before is not None and before in self._sent and tokens > self._known[before]:
            return before, tokens - self._known[before], True
        return None

    def status(self, event: StatusUpdate) -> tuple[int, int, bool] | None:
        """New figures; may tell what a step cost: (checkpoint, tokens, whether that is an estimate)."""
        current = self._current
        if current is None or not self._is_step:
            return None
        if event.step_input is not None and current not in self._sent:
            self._known[current] = event.step_input
            self._sent.add(current)
            before = current - 1
            if before in self._sent:
                return before, event.step_input - self._known[before], event.estimated
            return None
        if current in self._sent and event.used > self._known[current]:
            return current, event.used - self._known[current], True
        return None

    def cut(self, checkpoint: int) -> None:
        """Checkpoints from this one on are no more."""
        self._current = None
        self._known = {known: tokens for known, tokens in self._known.items() if known < checkpoint}
        self._sent = {known for known in self._sent if known < checkpoint}

"""The limits of the loop, as the config sets them, and what follows from them for one model's window."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LoopLimits:
    """How far a turn may go and when the context is compacted (defaults as in kimi-cli).

    The reserve is kept free for an answer; it is never more than a quarter of the window, so that models with a window
    of a few thousand tokens work too.
    """

    max_steps_per_turn: int = 1000
    max_retries_per_step: int = 3
    reserved_context_size: int = 50_000
    compaction_trigger_ratio: float = 0.85
    dmail_nudge_tokens: int = 10_000
    dmails_to_one_checkpoint: int = 5
    dmail_review: bool = False
    tool_timeout_s: float = 330.0

    def reserve(self, window: int) -> int:
        """Tokens kept free in a window of this size."""
        return min(self.reserved_context_size, window // 4)

    def trigger(self, window: int) -> int:
        """From how many tokens on the context is compacted."""
        by_ratio = int(self.compaction_trigger_ratio * window)
        return max(1, min(by_ratio, window - self.reserve(window)))

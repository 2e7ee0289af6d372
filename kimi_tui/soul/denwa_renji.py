"""The mailbox in which D-Mails of the running step wait until its tools are done.

It knows which checkpoints exist and how often each was written to in this turn, and says no to the model in words that
tell it what to do instead.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DMail:
    """A message to the past self at a checkpoint."""

    message: str
    checkpoint_id: int
    restore_files: bool = False


class DenwaRenji:
    """Takes D-Mails (`Mailbox` of the tools) and hands them to the loop.

    Args:
        limit: how many D-Mails of one turn may go to the same checkpoint.
        on_refused: told once a turn, with the checkpoint, when that limit is met.
    """

    def __init__(self, limit: int = 5, on_refused: Callable[[int], None] | None = None) -> None:
        self._limit = limit
        self._on_refused = on_refused
        self._pending: list[DMail] = []
        self._n_checkpoints = 0
        self._first_target = 0
        self._delivered: Counter[int] = Counter()
        self._told: set[int] = set()

    def set_n_checkpoints(self, n_checkpoints: int, *, first_target: int = 0) -> None:
        """What can be written to: checkpoints from `first_target` to below `n_checkpoints`.

        `first_target` is 1 on a line that begins with a summary: going back before that would lose it.
        """
        self._n_checkpoints = n_checkpoints
        self._first_target = first_target

    def begin_turn(self) -> None:
        """A new turn: nothing has been sent in it yet."""
        self._pending.clear()
        self._delivered.clear()
        self._told.clear()

    def send_dmail(self, message: str, checkpoint_id: int, restore_files: bool = False) -> None:
        """Queue a D-Mail for the end of this step.

        Raises:
            ValueError: it cannot be sent there; the text is for the model.
        """
        if not message.strip():
            raise ValueError("The D-Mail is empty. Write down what your past self must know.")
        if checkpoint_id < 0:
            raise ValueError("checkpoint_id must be 0 or more.")
        if checkpoint_id >= self._n_checkpoints:
            raise ValueError(
                f"There is no checkpoint {checkpoint_id}. The newest is {self._n_checkpoints - 1}; "
                "checkpoints from before a compaction can no longer be reached."
            )
        if checkpoint_id < self._first_target:
            raise ValueError(
                f"Checkpoint {checkpoint_id} holds the summary of the compacted conversation and cannot be undone by "
                f"a D-Mail. Choose {self._first_target} or a later one."
            )
        queued = sum(1 for mail in self._pending if mail.checkpoint_id == checkpoint_id)
        if not queued and self._delivered[checkpoint_id] >= self._limit:
            if self._on_refused is not None and checkpoint_id not in self._told:
                self._told.add(checkpoint_id)
                self._on_refused(checkpoint_id)
            raise ValueError(
                f"{self._limit} D-Mails have gone to checkpoint {checkpoint_id} in this turn already. Stop sending "
                "them there: go on with what you know, or tell the person what is in the way."
            )
        self._pending.append(DMail(message, checkpoint_id, restore_files))

    def fetch_pending(self) -> tuple[DMail, ...]:
        """Everything that is queued, in the order in which it was sent; the box is empty afterwards."""
        pending = tuple(self._pending)
        self._pending.clear()
        return pending

    def delivered(self, checkpoint_id: int) -> None:
        """The context went back to this checkpoint: count it."""
        self._delivered[checkpoint_id] += 1

    def forget_deliveries(self) -> None:
        """After a compaction the numbers mean other checkpoints: count anew."""
        self._delivered.clear()
        self._told.clear()

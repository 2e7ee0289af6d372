"""DenwaRenji: the mailbox in which the D-Mails of the running step wait (`send_dmail`) until its tools have ended.

It counts the D-Mails to each checkpoint in a turn, and refuses those to unknown checkpoints and those beyond the limit, with
a sentence for the model.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from kimi_tui.prompts import prompt
from kimi_tui.wire.events import Notice
from kimi_tui.wire.queue import Wire


@dataclass(frozen=True, slots=True)
class DMail:
    """A message to the agent's past self at a checkpoint."""

    message: str
    checkpoint_id: int
    restore_files: bool = False


class BackToTheFuture(Exception):
    """Ends a step in which D-Mails were sent. It is a signal to the loop, not an error.

    Args:
        mails: the D-Mails, in the order in which they were sent.
        rule: the name of the rule that led to them; empty if none did.
        by_program: the program drafted them, not the agent; `asks` is then whether the user is asked in any case.

    Attributes:
        checkpoint_id: the context goes back to before this checkpoint, which is the earliest target.
        messages: the texts of the D-Mails; if there are several, each names its target.
        restore_files: whether any of them asks for the working files of that time.
    """

    def __init__(
        self,
        mails: Sequence[DMail],
        *,
        rule: str = "",
        by_program: bool = False,
        asks: bool = False,
    ) -> None:
        self.rule = rule
        self.by_program = by_program
        self.asks = asks
        self.checkpoint_id = min(mail.checkpoint_id for mail in mails)
        super().__init__(f"back to checkpoint {self.checkpoint_id}")
        texts = [mail.message for mail in mails]
        if len(mails) > 1:
            texts = [
                prompt("dmail_of_several", CHECKPOINT=str(mail.checkpoint_id), TEXT=mail.message)
                for mail in mails
            ]
        self.messages = tuple(texts)
        self.restore_files = any(mail.restore_files for mail in mails)


class DenwaRenji:
    """Takes D-Mails from the tool and hands them to the loop.

    Args:
        wire: the wire on which a notice is published when the limit is reached, once per turn and checkpoint.
        limit: the largest number of D-Mails of one turn to the same checkpoint, so that the agent cannot loop for ever.
    """

    def __init__(self, wire: Wire, limit: int = 5) -> None:
        self._wire = wire
        self._limit = limit
        self._pending: list[DMail] = []
        self._delivered: Counter[int] = Counter()
        self._flooded: set[int] = set()

    def begin_turn(self) -> None:
        """Start a turn with no D-Mails sent."""
        self._pending.clear()
        self._delivered.clear()
        self._flooded.clear()

    def send_dmail(self, mail: DMail, targets: range) -> None:
        """Queue a D-Mail for the end of this step.

        Args:
            mail: the D-Mail.
            targets: the checkpoints to which it may go; they begin with 1 if going back before #0 would lose a summary.

        Raises:
            ValueError: the D-Mail cannot be sent there; the text is for the model.
        """
        checkpoint_id = mail.checkpoint_id
        if not mail.message.strip():
            raise ValueError("The D-Mail is empty. Write what your past self must know.")
        if checkpoint_id < 0:
            raise ValueError("checkpoint_id must be 0 or more.")
        if checkpoint_id >= targets.stop:
            raise ValueError(
                f"There is no checkpoint {checkpoint_id}. The newest is {targets.stop - 1}; "
                "checkpoints from before a compaction can no longer be reached."
            )
        if checkpoint_id < targets.start:
            raise ValueError(
                f"Checkpoint {checkpoint_id} is the summary of the compacted conversation and cannot be undone by "
                f"a D-Mail. Choose {targets.start} or a later one."
            )
        queued = any(other.checkpoint_id == checkpoint_id for other in self._pending)
        if not queued and self._delivered[checkpoint_id] >= self._limit:
            if checkpoint_id not in self._flooded:
                self._flooded.add(checkpoint_id)
                self._wire.publish(
                    Notice(
                        "warning",
                        f"The agent keeps sending D-Mails to #{checkpoint_id}; it was told to stop.",
                        "Press Esc to stop it if it continues.",
                    )
                )
            raise ValueError(
                f"{self._limit} D-Mails have gone to checkpoint {checkpoint_id} in this turn already. Stop sending "
                "them there: continue with what you know, or tell the user what is in the way."
            )
        self._pending.append(mail)

    def fetch_pending(self) -> tuple[DMail, ...]:
        """Return the queued D-Mails in the order in which they were sent, and empty the mailbox."""
        pending = tuple(self._pending)
        self._pending.clear()
        return pending

    def delivered(self, checkpoint_id: int) -> None:
        """Count a D-Mail with which the context went back to this checkpoint."""
        self._delivered[checkpoint_id] += 1

    def forget_deliveries(self) -> None:
        """Start counting anew after a compaction, as the numbers belong to other checkpoints now."""
        self._delivered.clear()
        self._flooded.clear()

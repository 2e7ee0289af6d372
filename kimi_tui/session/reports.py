"""What opening a session and changing its line tell those who asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kimi_tui.llm.message import Message
from kimi_tui.session.journal import Entry
from kimi_tui.session.jsonl import SkippedLine


@dataclass(frozen=True, slots=True)
class RestoreReport:
    """What opening a session found. `skipped` lines are still in the file; `n_skipped` counts all of them.

    `torn_bytes` is the size of a last record that was cut off in the middle, `remarks` are sentences for the person.
    """

    messages: int
    checkpoints: int
    skipped: Sequence[SkippedLine] = ()
    n_skipped: int = 0
    n_unknown: int = 0
    torn_bytes: int = 0
    remarks: Sequence[str] = ()

    @property
    def clean(self) -> bool:
        """Whether everything was in order."""
        return not (self.n_skipped or self.torn_bytes or self.remarks)

    def sentences(self) -> list[str]:
        """What to tell the person; empty if all is in order."""
        said = list(self.remarks)
        if self.n_skipped:
            lines = "line" if self.n_skipped == 1 else "lines"
            named = "; ".join(str(line) for line in self.skipped[:3])
            more = f"; and {self.n_skipped - 3} more" if self.n_skipped > 3 else ""
            said.append(
                f"{self.n_skipped} {lines} of the session could not be read and stay in the file: {named}{more}."
            )
        if self.torn_bytes:
            said.append(
                f"The last record was cut off in the middle ({self.torn_bytes} bytes); it is kept in context.jsonl.torn."
            )
        return said


@dataclass(frozen=True, slots=True)
class Reverted:
    """What an operation on the line left behind.

    `world_line` holds the line left; the first `messages_kept` of its messages are on the live line still, `dropped` are its messages that are not on the live line any more, read when looked at.
    """

    checkpoint_id: int
    uid: str
    from_checkpoint: int
    world_line: int
    messages_kept: int
    messages_dropped: int
    tool_calls_dropped: int
    tokens_before: int
    tokens_after: int
    dropped: Sequence[Message]
    entry: Entry

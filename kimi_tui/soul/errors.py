"""The errors that can stop a turn or an operation from within the engine, with sentences for the user."""

from __future__ import annotations

import errno
import os

from kimi_tui.app_paths import log_words
from kimi_tui.filesystem import TRANSIENT_ERRORS
from kimi_tui.own_process import lack_of_memory


def lack_advice(error: OSError) -> str:
    """Return the sentence that says what to do when too many files are open; an empty string for other errors."""
    if error.errno not in (errno.EMFILE, errno.ENFILE):
        return ""
    return "To raise the limit, run ulimit -n 4096 in a shell and start kimi-tui there."


class SoulError(Exception):
    """Base of all errors of this module. `advice` says in one sentence what to do; it may be empty."""

    def __init__(self, message: str, *, advice: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.advice = advice


class RunCancelled(SoulError):
    """A turn was stopped; the parts that were complete by then are kept."""

    def __init__(self) -> None:
        super().__init__("The turn was stopped.")


_CAN_CONTINUE = "No message was lost. The agent can continue from here."


class TurnFailed(SoulError):
    """A turn ended by a fault of the program, or by a system call that may succeed in a moment. The error is its `__cause__`."""

    def __init__(self, cause: Exception) -> None:
        if isinstance(cause, OSError) and cause.errno in TRANSIENT_ERRORS:
            super().__init__(
                f"A system call of kimi-tui failed: {os.strerror(cause.errno)}.",
                advice=f"{_CAN_CONTINUE} {lack_advice(cause)}".strip(),
            )
            return
        if words := lack_of_memory(cause):
            super().__init__(words, advice=_CAN_CONTINUE)
            return
        super().__init__(
            f"kimi-tui had an internal error ({type(cause).__name__}).",
            advice=f"No message was lost. {log_words()}",
        )


class MaxStepsReached(SoulError):
    """A turn used up its steps.

    Attributes:
        n_steps: the number of steps.
    """

    def __init__(self, n_steps: int) -> None:
        self.n_steps = n_steps
        super().__init__(
            f"The turn was stopped at its limit of {n_steps:,} step{'' if n_steps == 1 else 's'}.",
            advice="The agent can continue from here.",
        )


class BudgetSpent(SoulError):
    """A turn was stopped before its next step, because this run of the program had used up its tokens or its money."""


class RefusedByHook(SoulError):
    """A hook refused what the user asked for; nothing changed.

    Args:
        what: what was refused, as the object of a sentence.
        hook: the name of the hook.
        reason: its reason, clean.
    """

    def __init__(self, what: str, hook: str, reason: str) -> None:
        super().__init__(
            f"A hook refused {what}: {reason}", advice=f"It is the hook {hook}; /hooks lists hooks."
        )


class NothingToCompact(SoulError):
    """There is no older part that a summary could replace."""


class EmptySummary(SoulError):
    """The edited summary has no text, which would lose everything that it stands for."""

    def __init__(self) -> None:
        super().__init__("The summary is empty.", advice="Use /undo to remove the summary.")


class NothingToClear(SoulError):
    """The conversation is empty."""

    def __init__(self) -> None:
        super().__init__("There is nothing to clear.")


class CompactionFailed(SoulError):
    """There is no summary, or it did not help; if there is none, the context is unchanged."""


class UnknownCompaction(SoulError):
    """The configuration names a compaction strategy that cannot be used."""

    def __init__(self, name: str, why: str) -> None:
        short = name if len(name) <= 80 else name[:79] + "…"
        super().__init__(
            f"loop_control.compaction {short!r} cannot be used ({why}), so 'simple' is used."
        )


class FilesUnknown(SoulError):
    """The files of a checkpoint cannot be restored; nothing changed."""


class SoulBusy(Exception):
    """The engine is in the middle of a turn or an operation; the message says what to do."""

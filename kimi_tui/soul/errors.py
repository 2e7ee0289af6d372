"""What can stop a turn or an operation from within the engine, with sentences for the user."""

from __future__ import annotations

from collections.abc import Sequence


class SoulError(Exception):
    """Base of all errors here. `advice` says what to do, in one sentence, or is empty."""

    def __init__(self, message: str, *, advice: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.advice = advice


class ModelCannotSee(SoulError):
    """The model in use takes no images; nothing was sent or stored.

    Args:
        model: what it is called.
        seeing: configured models that do.
    """

    def __init__(self, model: str, seeing: Sequence[str]) -> None:
        names = ", ".join(seeing)
        super().__init__(
            f"{model} takes no images.",
            advice=f"These do, for /model: {names}."
            if names
            else "Choose a model that sees with /model, or add image_in to its capabilities in the configuration.",
        )

    def __str__(self) -> str:
        return f"{self.message} {self.advice}"


class MaxStepsReached(SoulError):
    """A turn used up its steps."""

    def __init__(self, n_steps: int) -> None:
        super().__init__(
            f"The agent took {n_steps:,} steps in one turn and was stopped.",
            advice="Press Enter in an empty prompt to let it go on.",
        )


class NothingToCompact(SoulError):
    """There is no older part that a summary could replace."""


class EmptySummary(SoulError):
    """A summary without words would lose everything it stands for."""

    def __init__(self) -> None:
        super().__init__("The summary is empty.", advice="Undo the compaction to be without it.")


class NothingToClear(SoulError):
    """The conversation is empty."""

    def __init__(self) -> None:
        super().__init__("There is nothing to clear.")


class CompactionFailed(SoulError):
    """The summary could not be had or did not help; where it could not be had, the context is as it was."""


class UnknownCompaction(SoulError):
    """The configuration names a way to compact that cannot be used."""

    def __init__(self, name: str, why: str) -> None:
        short = name if len(name) <= 80 else name[:79] + "…"
        super().__init__(
            f"loop_control.compaction {short!r} cannot be used ({why}); the simple one is used."
        )


class FilesUnknown(SoulError):
    """The files of a checkpoint cannot be brought back; nothing changed."""


class SoulBusy(Exception):
    """The engine is in the middle of a turn or an operation; the message says what to do."""


class CannotOpen(Exception):
    """The session asked for cannot be opened. `code` is the exit code where nothing else is left to do."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


class DiskRefuses(CannotOpen):
    """The disk does not take or give what the session needs, and may do so when it is asked again."""


class NoModelNamed(CannotOpen):
    """A server was named without a model. `listed` is false where it does not say either which ones it has."""

    def __init__(self, message: str, code: int, *, listed: bool) -> None:
        super().__init__(message, code)
        self.listed = listed

"""What can stop a turn from within the engine, with sentences for the person who reads them."""

from __future__ import annotations


class SoulError(Exception):
    """Base of all errors here. `advice` says what to do, in one sentence, or is empty."""

    def __init__(self, message: str, *, advice: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.advice = advice


class MaxStepsReached(SoulError):
    """A turn used up its steps."""

    def __init__(self, n_steps: int) -> None:
        super().__init__(
            f"The agent took {n_steps:,} steps in one turn and was stopped.",
            advice="Press Enter in an empty prompt to let it go on.",
        )


class NothingToCompact(SoulError):
    """There is no older part that a summary could replace."""


class CompactionFailed(SoulError):
    """The summary could not be had or did not help; where it could not be had, the context is as it was."""


class FilesUnknown(SoulError):
    """The files of a checkpoint cannot be brought back; nothing changed."""


class BackToTheFuture(Exception):
    """Ends a step: the context goes back to `checkpoint_id` and `letters` are put in there.

    `restore_files` asks that the working files go back too. This is how the loop is told, not an error.
    """

    def __init__(self, checkpoint_id: int, letters: tuple[str, ...], restore_files: bool) -> None:
        super().__init__(f"back to checkpoint {checkpoint_id}")
        self.checkpoint_id = checkpoint_id
        self.letters = letters
        self.restore_files = restore_files

"""Futures as they are shown: several continuations of one checkpoint that run beside the current conversation.

The values are plain, so that timeline, dialog and page can be imported before the engine. Times are seconds since 1970, sizes
in tokens unless stated otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from kimi_tui.foreign_text import one_line

FutureState = Literal[
    "preparing", "waiting", "running", "asking", "checking", "done", "failed", "stopped"
]
"""What a future does: its folder is being made, it waits for its turn at the server, it works, it waits for an answer of the
user, its check runs; or how it ended.
"""
ENDED = frozenset[FutureState]({"done", "failed", "stopped"})
LEAST_FUTURES = 2
MOST_FUTURES = 4
NAME_CHARS = 200


class CheckResult(NamedTuple):
    """The result of a future's check.

    Attributes:
        exit_code: the exit code of the command; 0 is a pass.
        changed_own: whether the future changed the tests, or the files of the build, that the check depends on.
        output: the last lines of the output.
        seconds: how long it took.
    """

    exit_code: int
    changed_own: bool = False
    output: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def has_passed(self) -> bool:
        """Whether the command ended with 0."""
        return self.exit_code == 0


class ChangedSize(NamedTuple):
    """The size of a difference: files, and lines added and removed."""

    files: int = 0
    added: int = 0
    removed: int = 0

    @property
    def lines(self) -> int:
        """The number of changed lines."""
        return self.added + self.removed


class ShownFuture(NamedTuple):
    """One future, as timeline and page show it.

    Attributes:
        number: its number in its set, from 1.
        name: the message that it began with, in one line.
        model: the name of its model.
        state: what it does, or how it ended.
        step: the number of its step.
        tokens: what its context holds.
        cost: what it has cost so far, in words; empty if no prices are set.
        spent: the same as a number, for comparing; None if it is not known.
        began_at, ended_at: when it began and ended; 0 for not yet.
        check: the result of the check; None if there is none yet, or no check.
        reason: why it failed, in a sentence.
        size: the size of its changes of files; None while it is not known.
        last_words: the end of what it said.
        world_line: the number of its world line in the session; 0 before it has one.
    """

    number: int
    name: str = ""
    model: str = ""
    state: FutureState = "preparing"
    step: int = 0
    tokens: int = 0
    cost: str = ""
    spent: float | None = None
    began_at: float = 0.0
    ended_at: float = 0.0
    check: CheckResult | None = None
    reason: str = ""
    size: ChangedSize | None = None
    last_words: str = ""
    world_line: int = 0

    @property
    def has_ended(self) -> bool:
        """Whether nothing of it runs any more."""
        return self.state in ENDED

    @property
    def short_name(self) -> str:
        """The name in one line, shortened to what a row may need."""
        return one_line(self.name)[:NAME_CHARS]


class FuturesAt(NamedTuple):
    """The futures of one checkpoint.

    Attributes:
        uid: the checkpoint before which they branch off; empty for the end of the conversation as it was.
        after: the uid of the checkpoint after which they branch off; empty if there is none.
        checkpoint_id: the number of the first; -1 for the end.
        futures: the futures, by number.
        asks: whether they have a check.
    """

    uid: str = ""
    after: str = ""
    checkpoint_id: int = -1
    futures: tuple[ShownFuture, ...] = ()
    asks: bool = False

    @property
    def has_ended(self) -> bool:
        """Whether all of them have ended."""
        return all(one.has_ended for one in self.futures)

    def get(self, number: int) -> ShownFuture | None:
        """Return the future with a number; None if there is none."""
        return next((one for one in self.futures if one.number == number), None)


def ranked(futures: Iterable[ShownFuture]) -> list[ShownFuture]:
    """Return futures, the best by the facts first: check passed, own check unchanged, smaller difference, less cost.

    No model has a say in this. A future that failed or was stopped comes after those that are done.
    """

    def key(one: ShownFuture) -> tuple[object, ...]:
        check = one.check
        return (
            check is None or not check.has_passed,
            one.state != "done",
            check is not None and check.changed_own,
            one.size.lines if one.size is not None else float("inf"),
            one.spent if one.spent is not None else float("inf"),
            one.number,
        )

    return sorted(futures, key=key)  # pyright: ignore[reportArgumentType]


def state_words(one: ShownFuture) -> str:
    """Return what a future does, or how it ended, in a few words: `step 4`, `asks`, `check passed`."""
    match one.state:
        case "preparing":
            return "copying files"
        case "waiting":
            return "waits for its turn"
        case "asking":
            return "asks you"
        case "checking":
            return "check runs"
        case "running":
            return f"step {one.step}" if one.step else "starts"
        case "failed":
            return "failed"
        case "stopped":
            return "stopped"
        case "done":
            if one.check is None:
                return "done"
            words = "check passed" if one.check.has_passed else f"check: exit {one.check.exit_code}"
            return f"{words}, changed" if one.check.changed_own else words


def news(before: FuturesAt | None, after: FuturesAt) -> Sequence[ShownFuture]:
    """Return the futures whose state has changed, by which a user may want to be told."""
    known: Mapping[int, FutureState] = (
        {one.number: one.state for one in before.futures} if before is not None else {}
    )
    return [one for one in after.futures if known.get(one.number) != one.state]

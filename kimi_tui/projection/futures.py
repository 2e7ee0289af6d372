"""Futures as they are shown: in which groups, in what words, and what is known of a group together.

A future is a continuation of the session that runs beside the current conversation; its state is `wire.events.FutureChanged`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from kimi_tui.foreign_text import one_line
from kimi_tui.wire.events import FutureChanged

NAME_CHARS = 200


def future_name(one: FutureChanged) -> str:
    """Return the name of a future in one line: a name of its own, else the message that it began with."""
    own = "" if one.name.lower() == f"future {one.number}" else one.name
    return one_line(own or one.message)[:NAME_CHARS] or f"Future {one.number}"


def model_words(one: FutureChanged) -> str:
    """Return the model of a future, without the name of who made it."""
    return one_line(one.model).rpartition("/")[2]


def state_words(one: FutureChanged) -> str:
    """Return what a future does, or how it ended, in a few words: `step 4`, `waiting for you`, `check passed`."""
    match one.state:
        case "preparing":
            return "preparing"
        case "waiting":
            return "waiting"
        case "asking":
            return "waiting for you"
        case "checking":
            return "check is running"
        case "running":
            return f"step {one.step}" if one.step else "starting"
        case _:
            return check_words(one) or ("done" if one.state == "done" else one.state)


def check_words(one: FutureChanged) -> str:
    """Return the result of a future's check: `check passed`, `check failed (exit 2)`; empty for none."""
    match one.check:
        case "passed":
            return "check passed"
        case "failed":
            return f"check failed (exit {one.check_exit})"
        case "not run":
            return "check not run"
        case _:
            return ""


class FutureGroup(NamedTuple):
    """The futures that were started together, by number."""

    futures: tuple[FutureChanged, ...]

    @property
    def is_over(self) -> bool:
        """Whether all of them have ended."""
        return all(one.is_over for one in self.futures)

    @property
    def has_check(self) -> bool:
        """Whether the result of a check is known of one of them."""
        return any(one.check for one in self.futures)

    @property
    def words(self) -> str:
        """The sentence about their ends: `2 of 3 passed the check`, `3 futures have ended`."""
        count = len(self.futures)
        if self.has_check:
            passed = sum(one.check == "passed" for one in self.futures)
            return f"{passed} of {count} passed the check"
        done = sum(one.state == "done" for one in self.futures)
        return f"{done} of {count} are done" if done < count else "all are done"


def groups(futures: Iterable[FutureChanged]) -> Sequence[FutureGroup]:
    """Return futures by group, in the order in which these were started."""
    found: dict[str, list[FutureChanged]] = {}
    for one in futures:
        found.setdefault(one.group, []).append(one)
    return [
        FutureGroup(tuple(sorted(group, key=lambda one: one.number))) for group in found.values()
    ]

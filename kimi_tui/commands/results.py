"""What an operation did, or would do: for scripts, for people, and as an exit code."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kimi_tui.commands.arguments import CONFLICTS, DONE
from kimi_tui.commands.output import complain, print_json, print_table, say
from kimi_tui.soul.protocol import (
    FileOutcome,
    FilesChoice,
    FilesPreview,
    RewindOutcome,
    RewindPreview,
)
from kimi_tui.tui.numbers import counted, tokens
from kimi_tui.wire.events import Event, FilesRestored

_LEFT_ALONE = "left alone: changed since, or no longer kept"


@dataclass(frozen=True, slots=True)
class Result:
    """An operation in figures. `applied` is false where it was only looked at."""

    checkpoint_id: int
    messages_dropped: int
    tokens_before: int
    tokens_after: int
    files: tuple[FileOutcome, ...] = ()
    applied: bool = True

    @property
    def conflicts(self) -> tuple[str, ...]:
        """The files that were left alone although they should have been brought back."""
        return tuple(one.path for one in self.files if one.fate == "conflict")

    def facts(self) -> dict[str, object]:
        """What scripts read."""
        return {
            "checkpoint_id": self.checkpoint_id if self.checkpoint_id >= 0 else None,
            "messages_dropped": self.messages_dropped,
            "tokens_before": self.tokens_before,
            "tokens_after": self.tokens_after,
            "files": [
                {"path": one.path, "change": one.fate, "reason": one.reason or None}
                for one in self.files
            ],
            "applied": self.applied,
        }


def of_outcome(outcome: RewindOutcome, more: Iterable[FileOutcome] = ()) -> Result:
    """The result of an operation that happened.

    Args:
        outcome: what the engine says.
        more: files that it had nothing to do with.
    """
    known = {one.path for one in outcome.files}
    return Result(
        checkpoint_id=outcome.checkpoint_id,
        messages_dropped=outcome.messages_dropped,
        tokens_before=outcome.tokens_before,
        tokens_after=outcome.tokens_after,
        files=(*outcome.files, *(one for one in more if one.path not in known)),
    )


def would_be(preview: RewindPreview, choice: FilesChoice) -> Result:
    """The result of a rewind that has not happened."""
    goes = choice != "only"
    return Result(
        checkpoint_id=preview.target.id,
        messages_dropped=preview.messages if goes else 0,
        tokens_before=preview.tokens_before,
        tokens_after=preview.tokens_after if goes else preview.tokens_before,
        files=() if choice == "keep" else planned(preview.files),
        applied=False,
    )


def planned(files: FilesPreview | None) -> tuple[FileOutcome, ...]:
    """What would become of each file."""
    if files is None:
        return ()
    return (
        *(FileOutcome(one.path, one.fate, one.reason) for one in files.files),
        *(FileOutcome(path, "skip", reason) for path, reason in files.not_covered),
    )


def left_alone(files: FilesPreview | None) -> tuple[FileOutcome, ...]:
    """The files that no restore has to do with."""
    return tuple(one for one in planned(files) if one.fate == "skip")


def restored(events: Iterable[Event]) -> tuple[FileOutcome, ...]:
    """What became of files, as it was told."""
    found: list[FileOutcome] = []
    for event in events:
        if isinstance(event, FilesRestored):
            made = frozenset(event.created)
            found += [
                FileOutcome(path, "create" if path in made else "restore")
                for path in event.restored
            ]
            found += [FileOutcome(path, "delete") for path in event.deleted]
            found += [FileOutcome(path, "conflict", _LEFT_ALONE) for path in event.conflicts]
    return tuple(found)


def tell(
    options: Namespace, result: Result, said: str, more: Mapping[str, object] | None = None
) -> int:
    """Print a result as the options want it; returns the exit code.

    Args:
        options: with `json`.
        result: what was done.
        said: the same in words: a sentence, or its beginning, to which the figures are added.
        more: further keys for scripts.
    """
    if options.json:
        print_json({**(more or {}), **result.facts()})
    elif said.endswith("."):
        say(said)
    else:
        say(f"{said}{_figures(result)}.")
        if result.files:
            print_table(
                ["file", "change", "why"],
                [[one.path, one.fate, one.reason] for one in result.files],
            )
    if not (result.applied and result.conflicts):
        return DONE
    complain(f"Left alone, not brought back: {', '.join(result.conflicts)}.")
    return CONFLICTS


def _figures(result: Result) -> str:
    """`: 9 messages left behind, 550 to 110 tokens`; nothing where the conversation stays what it is."""
    if not result.messages_dropped and result.tokens_before == result.tokens_after:
        return ""
    left = counted(result.messages_dropped, "message")
    return f": {left} left behind, {tokens(result.tokens_before)} to {tokens(result.tokens_after)} tokens"

"""The one plain form that the readers of other agents' sessions make, and the writer takes: what was said, as a tree.

Each entry follows an earlier one (`parent`). A fork is an entry with two that follow it; the current conversation is the
path to the entry `live`, and every other path is a world line. A summary of a compaction follows what it summarises.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

MOST_ENTRIES = 200_000
"""Entries of one session; what follows these is left out and counted as a loss."""
MOST_STEPS = 10_000_000
"""Steps back in the tree that a reader takes in all: a file that was made to ask for more is read, but not quadratically."""
MOST_TEXT_CHARS = 4_000_000
"""Characters of one text; the rest is left out and counted as a loss."""

Kind = Literal["said", "answer", "summary"]


class CannotRead(Exception):
    """A session cannot be imported at all; the text is a sentence for the user."""


@dataclass(frozen=True, slots=True)
class FoundSession:
    """A session of another agent that was found, and not read yet.

    Attributes:
        agent: The name of the agent, a key of `AGENTS`.
        id: The name that the agent gave it.
        path: Its file, or the database that has it.
        work_dir: The path of its work folder; empty if that is not known.
        title: A title or the beginning of the first message; may be empty.
        updated_at: Seconds since 1970 of the last write.
        size: Bytes; 0 if unknown.
    """

    agent: str
    id: str
    path: Path
    work_dir: str
    title: str
    updated_at: float
    size: int = 0


@dataclass(frozen=True, slots=True)
class PlainTokens:
    """Tokens of one model call: `sent` are all of its input, of which `cached` were read from a cache."""

    sent: int
    cached: int
    answered: int


@dataclass(slots=True)
class PlainCall:
    """One call of a tool with its result (None if it has none). `arguments` is JSON text, `images` are `data:` URLs.

    `at` is when it ended in seconds since 1970, 0 if unknown.
    """

    id: str
    name: str
    arguments: str
    result: str | None = None
    failed: bool = False
    at: float = 0.0
    images: list[str] = field(default_factory=list[str])


@dataclass(slots=True)
class PlainEntry:
    """A message of the user, an answer with its calls, or a summary.

    Attributes:
        kind: Which of these it is.
        parent: The place of the entry that it follows; -1 for none.
        at: Seconds since 1970; 0 if unknown.
        text: Its text.
        thinking: The reasoning before an answer.
        calls: The calls of an answer.
        images: The images of a message, as `data:` URLs.
        model: The model that answered.
        tokens: What the server counted for an answer.
        stopped: Whether the user stopped the answer.
        kept: The places of earlier entries that stay beside a summary.
    """

    kind: Kind
    parent: int
    at: float = 0.0
    text: str = ""
    thinking: str = ""
    calls: list[PlainCall] = field(default_factory=list[PlainCall])
    images: list[str] = field(default_factory=list[str])
    model: str = ""
    tokens: PlainTokens | None = None
    stopped: bool = False
    kept: tuple[int, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether nothing was said."""
        return not (self.text.strip() or self.thinking.strip() or self.calls or self.images)


@dataclass(slots=True)
class PlainSession:
    """A whole session of another agent.

    Attributes:
        found: Where it was found.
        title: The title that the user or the agent gave it; empty for none.
        version: The version of the agent; empty if unknown.
        window: The context size of its model in tokens; 0 if unknown.
        entries: What was said, every entry behind its parent.
        live: The place of the last entry of the current conversation; -1 for the newest.
        losses: What was not taken over: how many of a thing that a singular noun names.
    """

    found: FoundSession
    title: str = ""
    version: str = ""
    window: int = 0
    entries: list[PlainEntry] = field(default_factory=list[PlainEntry])
    live: int = -1
    losses: Counter[str] = field(default_factory=Counter[str])
    _steps: int = MOST_STEPS

    def add(self, entry: PlainEntry) -> int:
        """Append an entry and return its place; -1, and a loss, if there are too many."""
        if len(self.entries) >= MOST_ENTRIES:
            self.losses[f"message after the first {MOST_ENTRIES:,}"] += 1
            return -1
        if not -1 <= entry.parent < len(self.entries):
            entry.parent = len(self.entries) - 1
        self.entries.append(entry)
        return len(self.entries) - 1

    @property
    def last(self) -> int:
        """The place of the last entry of the current conversation; -1 if there is none."""
        return self.live if 0 <= self.live < len(self.entries) else len(self.entries) - 1

    def path_to(self, place: int) -> list[int]:
        """Return the places of the entries that lead to one, itself included, oldest first."""
        path: list[int] = []
        while place >= 0:
            path.append(place)
            place = self.entries[place].parent
        path.reverse()
        return path

    def back(self, place: int) -> Iterator[int]:
        """Yield the places of an entry and those before it, the newest first, for a reader: no more than `MOST_STEPS` in all."""
        while place >= 0 and self._steps > 0:
            self._steps -= 1
            yield place
            place = self.entries[place].parent

    def before(self, place: int) -> list[int]:
        """Return the same places, oldest first."""
        return list(self.back(place))[::-1]

    def without_turns(self, place: int, n_turns: int) -> int:
        """Return where a conversation stands after its last turns were undone; what a summary stands for is not undone."""
        for at in self.back(place):
            entry = self.entries[at]
            if n_turns <= 0 or entry.kind == "summary":
                return at
            n_turns -= entry.kind == "said"
        return -1

    def leaves(self) -> Sequence[int]:
        """Return the last entry of each path that is not the current one."""
        parents = {entry.parent for entry in self.entries}
        current = set(self.path_to(self.last))
        return [
            place
            for place in range(len(self.entries))
            if place not in parents and place not in current
        ]

    def counts(self) -> tuple[int, int, int]:
        """Return how many messages, calls and compactions it has, on all paths."""
        calls = sum(len(entry.calls) for entry in self.entries)
        summaries = sum(entry.kind == "summary" for entry in self.entries)
        return len(self.entries) - summaries, calls, summaries

    def calls(self) -> Iterator[PlainCall]:
        """Yield all calls."""
        for entry in self.entries:
            yield from entry.calls

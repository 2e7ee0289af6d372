"""What stands on the timeline: checkpoints, the tool calls of their steps, and the world lines left behind.

Plain records without a screen and without the wire, so that the widget can know them before the first paint.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

State = Literal["open", "done", "failed", "stopped"]
Key = tuple[str, int]
"""What a row is, stable while rows come and go: `("point", key)`, `("line", number)`, `("more", number)`, `("now", 0)`."""

NOW: Key = ("now", 0)


@dataclass(slots=True, eq=False)
class Call:
    """One tool call of a step. `size_chars` is how much the model got back, for the split of the step's cost."""

    name: str
    target: str = ""
    is_path: bool = False
    failed: bool = False
    size_chars: int = 0


@dataclass(slots=True, eq=False)
class Point:
    """A checkpoint. `index` is its position on its own line counted from the root, `key` is unique in the model.

    `tokens` is what was sent there, `tokens_end` what the next checkpoint starts with; both are estimates until
    their `measured` flag is set; the estimates were multiplied by `correction`. `saved` is the signed change that a
    D-Mail or compaction made.
    """

    key: int
    id: int
    uid: str
    kind: str
    index: int
    at: float
    words: str = ""
    calls: list[Call] | None = None
    tokens: int = 0
    tokens_end: int = 0
    measured: bool = False
    correction: float = 1.0
    end_measured: bool = False
    files: int = 0
    state: State = "open"
    ended_at: float = 0.0
    from_line: int = 0
    from_id: int = -1
    saved: int | None = None
    before: int = 0
    folded: bool = False
    bookmark: str = ""
    pinned: bool = False
    revision: int = 0
    _search: str = field(default="", repr=False)

    @property
    def is_heading(self) -> bool:
        """Whether a turn begins here."""
        return self.kind == "user"

    @property
    def is_summary(self) -> bool:
        """Whether everything before was replaced by a summary here."""
        return self.kind in ("compaction", "summary")

    @property
    def change(self) -> int:
        """By how much the context grew in this step."""
        return self.saved if self.saved is not None else self.tokens_end - self.tokens

    @property
    def change_measured(self) -> bool:
        """Whether `change` comes from the server's own figures."""
        return self.saved is not None or (self.measured and self.end_measured)

    @property
    def row_key(self) -> Key:
        """How selection names this checkpoint."""
        return ("point", self.key)

    def take_over(self, old: Point) -> None:
        """Be what `old` was, under another number: what happened there is the same."""
        self.at, self.ended_at, self.words = old.at, old.ended_at, old.words
        self.calls, self.files, self.state = old.calls, old.files, old.state
        self.from_line, self.from_id, self.folded = old.from_line, old.from_id, old.folded
        if old.from_id >= 0 and old.id != self.id:
            # The step that wrote the letter has no number on this line.
            self.from_id, self.words = -1, "D-Mail from an earlier step"
        self.saved, self.before = old.saved, old.before
        self.bookmark = old.bookmark or self.bookmark
        self.pinned = old.pinned or self.pinned

    def touch(self) -> None:
        """Note that something that is drawn has changed."""
        self.revision += 1
        self._search = ""

    def matches(self, needle: str) -> bool:
        """Whether the words, a tool or a target hold the (lower-case) text."""
        if not self._search:
            parts = [f"#{self.id}", self.words, self.bookmark, _KIND_WORDS.get(self.kind, "")]
            for call in self.calls or ():
                parts += (call.name, call.target)
            self._search = "\n".join(parts).lower()
        return needle in self._search


_KIND_WORDS = {"dmail": "D-Mail", "compaction": "Compacted", "summary": "Compacted"}


@dataclass(slots=True, eq=False)
class WorldLine:
    """A course of the conversation that was left. `points` are its own, after the place where it parted.

    `parent` is the key on which it is drawn: of the checkpoint below the parting, or of a root where it parted
    before everything. A line that does not go on from there, but begins anew, has a `root` of its own.
    """

    n: int
    reason: str
    at: float
    points: list[Point] = field(default_factory=list[Point])
    parent: int = 0
    root: int = 0
    is_base: bool = False
    """Drawn below the compaction that replaced it."""
    at_root: bool = False
    """Parted before everything: nothing is below it."""
    tokens_before: int = 0
    tokens_after: int = 0
    text: str = ""
    from_id: int = -1
    to_id: int = -1
    by_person: bool = False
    """Left by a letter that the person wrote."""
    is_open: bool = False
    is_whole: bool = False
    """Open, and drawn with every step, however many."""

    @property
    def row_key(self) -> Key:
        """How selection names the row that bears this line's name."""
        return ("line", self.n)


@dataclass(frozen=True, slots=True, eq=False)
class Future:
    """What is still to come where a session is played back: its checkpoints, and the uid of the fold that is next."""

    points: tuple[Point, ...]
    awaited: str = ""


@dataclass(frozen=True, slots=True)
class Fold:
    """The newest time that a part of the live line was taken away, for the motion that shows it."""

    reason: str
    line: WorldLine
    serial: int


def seconds_of(iso: str, otherwise: float) -> float:
    """An ISO time in seconds since 1970; `otherwise` where it is none."""
    try:
        return datetime.fromisoformat(iso).timestamp() if iso else otherwise
    except ValueError:
        return otherwise

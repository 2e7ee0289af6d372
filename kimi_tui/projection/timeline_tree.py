"""The checkpoints of a session: the live line and the world lines beside it, as a tree that reverts, compactions and jumps reshape.

Knows nothing of events or rows, and imports nothing of the wire, so that the widget can know it before the engine is
loaded. A world line is attached to the key of the checkpoint above which it branches off, so cutting a line never has to
move what is attached to it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

State = Literal["open", "done", "failed", "stopped"]
Key = tuple[str, int]
"""What a row is, stable while rows come and go: `("checkpoint", key)`, `("line", number)`, `("more", number)`, `("now", 0)`."""

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
class Checkpoint:
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
        return ("checkpoint", self.key)

    def take_over(self, old: Checkpoint) -> None:
        """Be what `old` was, under another number: what happened there is the same."""
        self.at, self.ended_at, self.words = old.at, old.ended_at, old.words
        self.calls, self.files, self.state = old.calls, old.files, old.state
        self.from_line, self.from_id, self.folded = old.from_line, old.from_id, old.folded
        if old.from_id >= 0 and old.id != self.id:
            # The step that sent the D-Mail has no number on this line.
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
    """A course of the conversation that was left. `checkpoints` are its own, after the place where it branches off.

    `parent` is the key that it is attached to: of the checkpoint above which it branches off, or of a root where it
    shares nothing with the live line. A line that does not go on from there, but begins anew, has a `root` of its own.
    """

    n: int
    reason: str
    at: float
    checkpoints: list[Checkpoint] = field(default_factory=list[Checkpoint])
    parent: int = 0
    root: int = 0
    is_base: bool = False
    """Drawn below the compaction that replaced it."""
    at_root: bool = False
    """Branches off before the first checkpoint: nothing is below it."""
    tokens_before: int = 0
    tokens_after: int = 0
    text: str = ""
    from_id: int = -1
    to_id: int = -1
    by_user: bool = False
    """Left by a D-Mail that the user wrote."""
    is_open: bool = False
    is_whole: bool = False
    """Open, and drawn with every step, however many."""

    @property
    def row_key(self) -> Key:
        """How selection names the row that bears this line's name."""
        return ("line", self.n)


@dataclass(frozen=True, slots=True, eq=False)
class Future:
    """What is still to come where a session is played back.

    Attributes:
        checkpoints: its checkpoints.
        awaited: the uid of the next D-Mail or compaction among them; empty for none.
    """

    checkpoints: tuple[Checkpoint, ...]
    awaited: str = ""


@dataclass(frozen=True, slots=True)
class Revert:
    """The newest time that a part of the live line was taken away, for the motion that shows it.

    Attributes:
        reason: what did it: `rewind`, `dmail`, `compaction`, ...
        line: what was taken away.
        serial: counts reverts.
    """

    reason: str
    line: WorldLine
    serial: int


class _Departure(NamedTuple):
    """How a line was left for the first time, and where it ended then."""

    tip: Checkpoint | None
    reason: str
    at: float
    text: str
    from_id: int
    to_id: int
    by_user: bool
    tokens_before: int
    tokens_after: int

    @classmethod
    def of(cls, line: WorldLine) -> _Departure:
        return cls(
            line.checkpoints[-1] if line.checkpoints else None,
            line.reason,
            line.at,
            line.text,
            line.from_id,
            line.to_id,
            line.by_user,
            line.tokens_before,
            line.tokens_after,
        )


class Tree:
    """Checkpoints by line.

    Attributes:
        live: the live line, oldest first.
        lines: the world lines that are drawn, by number.
        root: the key to which is attached what branches off before the live line's first checkpoint.
        changed: the keys to which something was attached or from which it was detached since this was last cleared.
    """

    def __init__(self) -> None:
        self.live: list[Checkpoint] = []
        self.lines: dict[int, WorldLine] = {}
        self.root = 1
        self.changed: set[int] = set()
        self._next_key = 2
        self._forks: dict[int, list[WorldLine]] = {}
        self._bases: dict[int, WorldLine] = {}
        self._replaced: dict[int, Checkpoint] = {}
        # The newest checkpoint of every line there ever was: it tells the line, wherever its checkpoints stand now.
        self._tips: dict[int, Checkpoint] = {}
        self._departures: dict[int, _Departure] = {}

    @property
    def head(self) -> Checkpoint | None:
        """The newest checkpoint of the live line."""
        return self.live[-1] if self.live else None

    def new_key(self) -> int:
        """A key that no checkpoint or root has."""
        key = self._next_key
        self._next_key += 1
        return key

    def forks(self, key: int) -> list[WorldLine]:
        """What branches off above this checkpoint (or root), oldest first."""
        return self._forks.get(key, [])

    def base(self, checkpoint: Checkpoint) -> WorldLine | None:
        """The line that this compaction replaced whole."""
        return self._bases.get(checkpoint.key)

    def key_below(self, index: int) -> int:
        """The key to which is attached what branches off before the live checkpoint at `index`."""
        return self.live[index - 1].key if index > 0 else self.root

    def find(self, uid: str, checkpoint_id: int) -> int | None:
        """The index on the live line of the checkpoint with this uid, or else with this id."""
        live = self.live
        if 0 <= checkpoint_id < len(live) and live[checkpoint_id].id == checkpoint_id:
            guess = checkpoint_id
            if not uid or live[guess].uid == uid:
                return guess
        by_id: int | None = None
        for index in range(len(live) - 1, -1, -1):
            if uid and live[index].uid == uid:
                return index
            if by_id is None and live[index].id == checkpoint_id:
                by_id = index
        return by_id

    def find_left(self, uid: str) -> Checkpoint | None:
        """The checkpoint with this uid on a line that was left, the newest of them first."""
        for line in reversed(self.lines.values()):
            found = next(
                (checkpoint for checkpoint in reversed(line.checkpoints) if checkpoint.uid == uid),
                None,
            )
            if found is not None:
                return found
        return None

    def append(self, checkpoint: Checkpoint) -> None:
        """A new checkpoint at the end of the live line."""
        checkpoint.index = len(self.live)
        self.live.append(checkpoint)

    def cut(self, index: int, line: WorldLine) -> None:
        """Take the live checkpoints from `index` on away; they become `line`.

        A line without a number is none of its own: it is the beginning of one that stands above it.
        """
        line.checkpoints = self.live[index:]
        del self.live[index:]
        self._leave(line, self.key_below(index), at_root=index == 0)

    def replace(self, line: WorldLine) -> None:
        """The whole live line becomes `line`, to stand below the compaction that is appended next."""
        line.checkpoints = self.live
        line.root = self.root
        line.is_base = True
        self.live = []
        self.root = self.new_key()
        self._store(line)

    def set_base(self, checkpoint: Checkpoint, line: WorldLine) -> None:
        """`checkpoint` is the compaction that replaced `line`."""
        self._bases[checkpoint.key] = line
        if line.checkpoints:
            self._replaced[checkpoint.key] = line.checkpoints[-1]

    def replaced(self, checkpoint: Checkpoint) -> list[Checkpoint]:
        """The checkpoints that this compaction replaced, oldest first; their line may have gone on after them."""
        line = self.base(checkpoint)
        path = self.path(line) if line is not None else []
        tip = self._replaced.get(checkpoint.key)
        end = next((place for place, one in enumerate(path) if one is tip), len(path) - 1)
        return path[: end + 1]

    def number_base(self, line: WorldLine, n: int) -> None:
        """Tell the line that a compaction replaced its number; 0 where it is the beginning of a longer one."""
        tip = line.checkpoints[-1] if line.checkpoints else None
        longer = self._longer(tip) if tip is not None else None
        if n == 0 and longer is not None:
            n = longer.n
        elif n == 0:
            n = next(
                (known for known, checkpoint in self._tips.items() if checkpoint is tip and known),
                0,
            )
        if n == line.n:
            return
        old = self.lines.get(n)
        if old is not None and old is longer:
            # It is the longer line that was left, then and for that reason; a compaction only began as it did.
            self._detach(old)
            line.checkpoints = line.checkpoints + old.checkpoints
        self.lines.pop(line.n, None)
        self._tips.pop(line.n, None)
        self._departures.pop(line.n, None)
        line.n = n
        self._store(line)

    def _longer(self, tip: Checkpoint) -> WorldLine | None:
        """The line that goes on where another one ends."""
        return next((fork for fork in reversed(self.forks(tip.key)) if not fork.root), None)

    def path(self, line: WorldLine) -> list[Checkpoint]:
        """The line's checkpoints from its root on, the shared ones included."""
        own = line.checkpoints
        current = line
        # No more turns than lines: a damaged record may have lines that are attached to one another.
        for _ in self.lines:
            if current.root:
                break
            place = self._place_of(current.parent)
            if place is None:
                break
            holder, checkpoints, index = place
            own = checkpoints[: index + 1] + own
            if holder is None:
                break
            current = holder
        return own

    def switch(self, to_line: int, left: WorldLine, before_uid: str = "") -> int | None:
        """Make world line `to_line` live (up to before `before_uid`, where it has that).

        Args:
            to_line: the number of the line.
            left: what the live line becomes; without a number it is the beginning of a line that stands above it.
            before_uid: the first checkpoint of the line that is not taken along.

        Returns:
            From which checkpoint of the live line on it, or what is attached to it, is another now; None if no such line is known.
        """
        self.changed.clear()
        tip = self._tips.get(to_line)
        place = self._place_of(tip.key) if tip is not None else None
        if place is None:
            return None
        holder, checkpoints, index = place
        path = checkpoints[: index + 1] if holder is None else self.path(holder)
        path = path[: len(path) - (len(checkpoints) - index - 1)] if holder is not None else path
        stop = next((i for i, p in enumerate(path) if before_uid and p.uid == before_uid), None)
        target = path[:stop]
        shared = 0
        for mine, theirs in zip(self.live, target, strict=False):
            if mine is not theirs:
                break
            shared += 1
        first = shared
        left.checkpoints = self.live[shared:]
        old_root, self.root = self.root, self.root if holder is None else self._root_of(holder)
        self._lift(target, shared)
        self._detach_bases()
        self.live = target
        for position, checkpoint in enumerate(target):
            checkpoint.index = position
        if self.root != old_root:
            left.root = old_root
            shared = len(target)
        self._leave(left, self.key_below(shared), at_root=shared == 0)
        reached = [checkpoint.index for checkpoint in target if checkpoint.key in self.changed]
        # Something else that changed is within a line that may be attached anywhere.
        return min([first, *reached]) if len(reached) == len(self.changed) else 0

    def _detach_bases(self) -> None:
        """A replaced line whose beginning is live again branches off from it, and stands below nothing."""
        for line in list(self.lines.values()):
            if line.root == self.root:
                self._detach(line)
                line.root = 0
                line.is_base = False
                self._attach(line, self.root, at_root=True)

    def _leave(self, line: WorldLine, parent: int, *, at_root: bool) -> None:
        """Attach what was live."""
        if not line.checkpoints:
            return
        tip = line.checkpoints[-1]
        if line.n == 0:
            # A longer line begins with this one: what that has more is attached to the newest checkpoint.
            longer = self._longer(tip)
            if longer is not None:
                self._detach(longer)
                longer.checkpoints = line.checkpoints + longer.checkpoints
                longer.root = line.root
                line = longer
            else:
                line.n = next((n for n, known in self._tips.items() if known is tip), 0)
        if line.n > 0:
            self._attach(line, parent, at_root=at_root)

    def _lift(self, target: list[Checkpoint], shared: int) -> None:
        """Take `target` out of the lines that hold it; what stood above stays as a line of its own."""
        wanted = {checkpoint.key for checkpoint in target[shared:]}
        for holder in list(self.lines.values()):
            taken = [checkpoint for checkpoint in holder.checkpoints if checkpoint.key in wanted]
            if not taken:
                continue
            self._detach(holder)
            holder.checkpoints = holder.checkpoints[len(taken) :]
            holder.is_base = False
            holder.root = 0
            if holder.checkpoints:
                self._attach(holder, taken[-1].key, at_root=False)

    def _attach(self, line: WorldLine, parent: int, *, at_root: bool) -> None:
        line.parent = parent
        line.at_root = at_root
        old = self.lines.get(line.n)
        if old is not None and old is not line:
            self._detach(old)
            if line.checkpoints and old.parent == line.checkpoints[-1].key:
                line.checkpoints = line.checkpoints + old.checkpoints
        self._store(line)
        self.changed.add(parent)
        self._forks.setdefault(parent, []).append(line)

    def _store(self, line: WorldLine) -> None:
        # A line that is left again, by an undo, say, is still the one that was left by a rewind.
        known = self._departures.setdefault(line.n, _Departure.of(line))
        line.reason = known.reason
        if line.checkpoints and known.tip is line.checkpoints[-1]:
            line.at, line.text = known.at, known.text
            line.from_id, line.to_id = known.from_id, known.to_id
            line.by_user = known.by_user
            line.tokens_before, line.tokens_after = known.tokens_before, known.tokens_after
        self.lines[line.n] = line
        if line.checkpoints:
            self._tips[line.n] = line.checkpoints[-1]

    def _detach(self, line: WorldLine) -> None:
        del self.lines[line.n]
        siblings = self._forks.get(line.parent, [])
        if line in siblings:
            siblings.remove(line)
            self.changed.add(line.parent)
        for key in [key for key, base in self._bases.items() if base is line]:
            del self._bases[key]
            self.changed.add(key)

    def _root_of(self, line: WorldLine) -> int:
        current = line
        for _ in self.lines:
            if current.root:
                break
            place = self._place_of(current.parent)
            if place is None:
                return current.parent
            if place[0] is None:
                return self.root
            current = place[0]
        return current.root

    def _place_of(self, key: int) -> tuple[WorldLine | None, list[Checkpoint], int] | None:
        """The line that holds a checkpoint (None: the live one), its checkpoints, and the index there."""
        for line in (None, *self.lines.values()):
            checkpoints = self.live if line is None else line.checkpoints
            for index, checkpoint in enumerate(checkpoints):
                if checkpoint.key == key:
                    return line, checkpoints, index
        return None

"""The live line and the world lines beside it, as a tree that reverts, compactions and jumps reshape.

Knows nothing of rows, folding or the screen. A world line hangs on the key of the checkpoint below the place where it
parted, so cutting a line never has to move what hangs on it.
"""

from __future__ import annotations

from typing import NamedTuple

from kimi_tui.tui.timeline.points import Point, WorldLine


class _Leaving(NamedTuple):
    """How a line was left for the first time, and where it ended then."""

    tip: Point | None
    reason: str
    at: float
    text: str
    from_id: int
    to_id: int
    by_person: bool
    tokens_before: int
    tokens_after: int

    @classmethod
    def of(cls, line: WorldLine) -> _Leaving:
        return cls(
            line.points[-1] if line.points else None,
            line.reason,
            line.at,
            line.text,
            line.from_id,
            line.to_id,
            line.by_person,
            line.tokens_before,
            line.tokens_after,
        )


class Tree:
    """Checkpoints by line.

    Attributes:
        live: the live line, oldest first.
        lines: the world lines that are drawn, by number.
        root: the key on which hangs what parted before the live line's first checkpoint.
        changed: the keys of which something was taken or at which something was hung, until somebody clears them.
    """

    def __init__(self) -> None:
        self.live: list[Point] = []
        self.lines: dict[int, WorldLine] = {}
        self.root = 1
        self.changed: set[int] = set()
        self._next_key = 2
        self._forks: dict[int, list[WorldLine]] = {}
        self._bases: dict[int, WorldLine] = {}
        self._replaced: dict[int, Point] = {}
        # The newest checkpoint of every line there ever was: it tells the line, wherever its checkpoints stand now.
        self._tips: dict[int, Point] = {}
        self._leavings: dict[int, _Leaving] = {}

    @property
    def head(self) -> Point | None:
        """The newest checkpoint of the live line."""
        return self.live[-1] if self.live else None

    def new_key(self) -> int:
        """A key that no checkpoint or root has."""
        key = self._next_key
        self._next_key += 1
        return key

    def forks(self, key: int) -> list[WorldLine]:
        """What parted above this checkpoint (or root), oldest first."""
        return self._forks.get(key, [])

    def base(self, point: Point) -> WorldLine | None:
        """The line that this compaction replaced whole."""
        return self._bases.get(point.key)

    def key_below(self, index: int) -> int:
        """The key on which hangs what parts before the live checkpoint at `index`."""
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

    def find_left(self, uid: str) -> Point | None:
        """The checkpoint with this uid on a line that was left, the newest of them first."""
        for line in reversed(self.lines.values()):
            found = next((point for point in reversed(line.points) if point.uid == uid), None)
            if found is not None:
                return found
        return None

    def append(self, point: Point) -> None:
        """A new checkpoint at the end of the live line."""
        point.index = len(self.live)
        self.live.append(point)

    def cut(self, index: int, line: WorldLine) -> None:
        """Take the live checkpoints from `index` on away; they become `line`.

        A line without a number is none of its own: it is the beginning of one that stands above it.
        """
        line.points = self.live[index:]
        del self.live[index:]
        self._leave(line, self.key_below(index), at_root=index == 0)

    def replace(self, line: WorldLine) -> None:
        """The whole live line becomes `line`, to stand below the compaction that is appended next."""
        line.points = self.live
        line.root = self.root
        line.is_base = True
        self.live = []
        self.root = self.new_key()
        self._store(line)

    def set_base(self, point: Point, line: WorldLine) -> None:
        """`point` is the compaction that replaced `line`."""
        self._bases[point.key] = line
        if line.points:
            self._replaced[point.key] = line.points[-1]

    def replaced(self, point: Point) -> list[Point]:
        """The checkpoints that this compaction replaced, oldest first; their line may have gone on after them."""
        line = self.base(point)
        path = self.path(line) if line is not None else []
        tip = self._replaced.get(point.key)
        end = next((place for place, one in enumerate(path) if one is tip), len(path) - 1)
        return path[: end + 1]

    def number_base(self, line: WorldLine, n: int) -> None:
        """Tell the line that a compaction replaced its number; 0 where it is the beginning of a longer one."""
        tip = line.points[-1] if line.points else None
        heir = self._heir(tip) if tip is not None else None
        if n == 0 and heir is not None:
            n = heir.n
        elif n == 0:
            n = next((known for known, point in self._tips.items() if point is tip and known), 0)
        if n == line.n:
            return
        old = self.lines.get(n)
        if old is not None and old is heir:
            # It is the longer line that was left, then and for that reason; a compaction only began as it did.
            self._unhang(old)
            line.points = line.points + old.points
        self.lines.pop(line.n, None)
        self._tips.pop(line.n, None)
        self._leavings.pop(line.n, None)
        line.n = n
        self._store(line)

    def _heir(self, tip: Point) -> WorldLine | None:
        """The line that goes on where another one ends."""
        return next((fork for fork in reversed(self.forks(tip.key)) if not fork.root), None)

    def path(self, line: WorldLine) -> list[Point]:
        """The line's checkpoints from its root on, the shared ones included."""
        own = line.points
        current = line
        # No more turns than lines: a damaged record may tell of lines that hang on one another.
        for _ in self.lines:
            if current.root:
                break
            place = self._place_of(current.parent)
            if place is None:
                break
            holder, points, index = place
            own = points[: index + 1] + own
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
            From which checkpoint of the live line on it, or what hangs on it, is another now; None if no such line is known.
        """
        self.changed.clear()
        tip = self._tips.get(to_line)
        place = self._place_of(tip.key) if tip is not None else None
        if place is None:
            return None
        holder, points, index = place
        path = points[: index + 1] if holder is None else self.path(holder)
        path = path[: len(path) - (len(points) - index - 1)] if holder is not None else path
        stop = next((i for i, p in enumerate(path) if before_uid and p.uid == before_uid), None)
        target = path[:stop]
        shared = 0
        for mine, theirs in zip(self.live, target, strict=False):
            if mine is not theirs:
                break
            shared += 1
        first = shared
        left.points = self.live[shared:]
        old_root, self.root = self.root, self.root if holder is None else self._root_of(holder)
        self._lift(target, shared)
        self._part_bases()
        self.live = target
        for position, point in enumerate(target):
            point.index = position
        if self.root != old_root:
            left.root = old_root
            shared = len(target)
        self._leave(left, self.key_below(shared), at_root=shared == 0)
        reached = [point.index for point in target if point.key in self.changed]
        # Something else that changed is within a line that may hang anywhere.
        return min([first, *reached]) if len(reached) == len(self.changed) else 0

    def _part_bases(self) -> None:
        """A replaced line whose beginning is live again has parted from it, and stands below nothing."""
        for line in list(self.lines.values()):
            if line.root == self.root:
                self._unhang(line)
                line.root = 0
                line.is_base = False
                self._hang(line, self.root, at_root=True)

    def _leave(self, line: WorldLine, parent: int, *, at_root: bool) -> None:
        """Hang up what was live."""
        if not line.points:
            return
        tip = line.points[-1]
        if line.n == 0:
            # A longer line begins with this one: what that has more hangs on the newest checkpoint.
            heir = self._heir(tip)
            if heir is not None:
                self._unhang(heir)
                heir.points = line.points + heir.points
                heir.root = line.root
                line = heir
            else:
                line.n = next((n for n, known in self._tips.items() if known is tip), 0)
        if line.n > 0:
            self._hang(line, parent, at_root=at_root)

    def _lift(self, target: list[Point], shared: int) -> None:
        """Take `target` out of the lines that hold it; what stood above stays as a line of its own."""
        wanted = {point.key for point in target[shared:]}
        for holder in list(self.lines.values()):
            taken = [point for point in holder.points if point.key in wanted]
            if not taken:
                continue
            self._unhang(holder)
            holder.points = holder.points[len(taken) :]
            holder.is_base = False
            holder.root = 0
            if holder.points:
                self._hang(holder, taken[-1].key, at_root=False)

    def _hang(self, line: WorldLine, parent: int, *, at_root: bool) -> None:
        line.parent = parent
        line.at_root = at_root
        old = self.lines.get(line.n)
        if old is not None and old is not line:
            self._unhang(old)
            if line.points and old.parent == line.points[-1].key:
                line.points = line.points + old.points
        self._store(line)
        self.changed.add(parent)
        self._forks.setdefault(parent, []).append(line)

    def _store(self, line: WorldLine) -> None:
        # A line that is left again, by an undo, say, is still the one that was left by a rewind.
        known = self._leavings.setdefault(line.n, _Leaving.of(line))
        line.reason = known.reason
        if line.points and known.tip is line.points[-1]:
            line.at, line.text = known.at, known.text
            line.from_id, line.to_id = known.from_id, known.to_id
            line.by_person = known.by_person
            line.tokens_before, line.tokens_after = known.tokens_before, known.tokens_after
        self.lines[line.n] = line
        if line.points:
            self._tips[line.n] = line.points[-1]

    def _unhang(self, line: WorldLine) -> None:
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

    def _place_of(self, key: int) -> tuple[WorldLine | None, list[Point], int] | None:
        """The line that holds a checkpoint (None: the live one), its checkpoints, and the index there."""
        for line in (None, *self.lines.values()):
            points = self.live if line is None else line.points
            for index, point in enumerate(points):
                if point.key == key:
                    return line, points, index
        return None

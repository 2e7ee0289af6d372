"""The world lines of a session: which there are (`WorldLines`), and what happens on the live one meanwhile.

A world line is the list of its checkpoints from its beginning on. There is one live line; every line that was left stays, by
its number. A D-Mail, a rewind and a clearing cut the live line, a compaction of all of it begins another one, and undo, redo
and jumps make a left line live again. Models that hold more than checkpoints (blocks, rows, files) apply the `LineEdit` that
each operation returns.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, Protocol, TypeVar

from kimi_tui.wire.events import (
    SUMMARIES,
    SWITCHES,
    CheckpointCreated,
    CompactionEnd,
    ContextReverted,
    Event,
    LineChanged,
    TurnBegin,
    TurnEnd,
    WorldLineAdded,
)


class CheckpointLike(Protocol):
    """The attributes that the reducer needs of a view's checkpoint. Checkpoints are compared by identity, as uids of imported
    lines may repeat.
    """

    @property
    def uid(self) -> str: ...
    @property
    def id(self) -> int: ...


P = TypeVar("P", bound=CheckpointLike)
FUTURE = "future"
"""The reason of a line that was never the live one: a future (`WorldLineAdded`)."""


@dataclass(slots=True, eq=False)
class CheckpointName:
    """A checkpoint without further data."""

    uid: str
    id: int


@dataclass(slots=True, eq=False)
class Path(Generic[P]):
    """The checkpoints of a world line, oldest first, with the path that a compaction replaced.

    Attributes:
        base: the path that the compaction at the line's beginning has replaced.
        origin: a number for the beginning, equal for lines with the same beginning: 0 for that of the session, another for
            each compaction.
    """

    points: list[P]
    base: Path[P] | None = None
    origin: int = 0

    def begins(self, other: Path[P]) -> bool:
        """Return whether this path is a prefix of the other one, or the same."""
        count = len(self.points)
        return 0 < count <= len(other.points) and other.points[count - 1] is self.points[-1]


@dataclass(slots=True, eq=False)
class LeftLine(Generic[P]):
    """A line that was left, and the operation that left it last; an undo or redo that leaves it unchanged does not count.

    Attributes:
        n: its number.
        reason: the operation.
        at: the time of the operation, in seconds since 1970.
        text: the D-Mail.
        from_id: its newest checkpoint at that time; `to_id` is the checkpoint to which the operation went back; -1 if it is unknown.
        by_user: whether a D-Mail of the user left it.
    """

    n: int
    path: Path[P]
    reason: str
    at: float = 0.0
    text: str = ""
    from_id: int = -1
    to_id: int = -1
    by_user: bool = False
    tokens_before: int = 0
    tokens_after: int = 0
    after_measured: bool = False


@dataclass(frozen=True, slots=True)
class LineEdit(Generic[P]):
    """The change of the live line by an operation.

    Attributes:
        kept: the number of its first checkpoints that are kept.
        gone: the checkpoints after these.
        left: the number of the line that holds the former live line; 0 if there is none.
        back: the number of the left line that is live now, completely or up to `stop` (exclusive); 0 if none is.
        is_known: false if the events do not determine the live line.
    """

    kept: int
    gone: Sequence[P] = ()
    left: int = 0
    back: int = 0
    stop: P | None = None
    is_known: bool = True


@dataclass(slots=True)
class WorldLines(Generic[P]):
    """The live line and those that were left.

    Attributes:
        live: the live line.
        left: the others by number, in the order in which they were left.
        replaced: the live line before a compaction that has not ended yet; None if none is running.
        is_lost: whether an operation named a checkpoint or a line that is in no earlier event.
    """

    live: Path[P] = field(default_factory=lambda: Path[P]([]))
    left: dict[int, LeftLine[P]] = field(default_factory=dict[int, LeftLine[P]])
    replaced: Path[P] | None = None
    is_lost: bool = False
    _n_origins: int = 0

    def add(self, event: CheckpointCreated, point: P) -> bool:
        """Append a checkpoint; return whether it begins a new line that replaces a compacted one."""
        live = self.live
        is_new = event.kind in SUMMARIES and event.id == 0 and bool(live.points)
        if is_new:
            self.replaced = live
            self._n_origins += 1
            self.live = Path([], live, self._n_origins)
        self.live.points.append(point)
        return is_new

    def add_line(self, event: WorldLineAdded, own: Sequence[P], at: float) -> None:
        """Add a line that was never the live one.

        Args:
            event: the event.
            own: the checkpoints that it has beyond those of the line that it begins with.
            at: the time of the event in seconds since 1970.
        """
        left = self.left.get(event.from_line)
        beginning = self.live if left is None else left.path
        points = beginning.points
        end = len(points)
        if event.uid:
            end = next((n for n, one in enumerate(points) if one.uid == event.uid), end)
        path = Path([*points[:end], *own], beginning.base, beginning.origin)
        to_id = own[0].id if own else -1
        self.left[event.n] = LeftLine(event.n, path, FUTURE, at, to_id=to_id)

    def apply(self, event: Event, at: float) -> LineEdit[P] | None:
        """Apply an operation and its time in seconds since 1970; return None if the lines stay unchanged."""
        match event:
            case ContextReverted():
                return self._reverted(event, at)
            case CompactionEnd():
                return self._compacted(event, at)
            case LineChanged(op=op, to_line=to_line) if op in SWITCHES and to_line:
                return self._switched(event, at)
            case _:
                return None

    def find(self, uid: str, number: int) -> int | None:
        """Return the index on the live line of the checkpoint with this uid, else of the one with this number; None if there
        is neither.
        """
        live = self.live.points
        guess = live[number] if 0 <= number < len(live) else None
        if guess is not None and guess.id == number and uid in ("", guess.uid):
            return number
        by_number: int | None = None
        for place in range(len(live) - 1, -1, -1):
            if uid and live[place].uid == uid:
                return place
            if by_number is None and live[place].id == number:
                by_number = place
        return by_number

    def before_now(self) -> list[P]:
        """Return the checkpoints that compactions of the live line have replaced, oldest first."""
        found: list[P] = []
        base = self.live.base
        while base is not None:
            found = base.points + found
            base = base.base
        return found

    def _reverted(self, event: ContextReverted, at: float) -> LineEdit[P] | None:
        if event.from_checkpoint < event.checkpoint_id and event.reason == "dmail":
            # A D-Mail at the end reverts nothing.
            return None
        was = self.live
        place = 0 if event.reason == "clear" else self.find(event.uid, event.checkpoint_id)
        if place is None:
            self.is_lost = True
            return None
        if event.reason == "compaction":
            if place == 0:
                # The checkpoint of the summary tells that the whole line was replaced.
                return None
            self.replaced = was
        left = self._leave(
            LeftLine(
                event.world_line,
                was,
                event.reason,
                at,
                event.text,
                event.from_checkpoint,
                event.checkpoint_id,
                event.author == "person",
                event.tokens_before,
                event.tokens_after,
            )
        )
        # After a clear the conversation does not continue the parts that were compacted before it.
        base = None if event.reason == "clear" else was.base
        is_empty = event.reason == "jump" and place == 0
        self.live = Path([]) if is_empty else Path(was.points[:place], base, was.origin)
        return LineEdit(place, was.points[place:], left)

    def _compacted(self, event: CompactionEnd, at: float) -> LineEdit[P] | None:
        was, self.replaced = self.replaced, None
        if event.error or was is None or self.live.base is not was:
            return None
        left = self._leave(
            LeftLine(
                event.world_line,
                was,
                "compaction",
                at,
                tokens_before=event.tokens_before,
                tokens_after=event.tokens_after,
            )
        )
        return LineEdit(0, was.points, left)

    def _switched(self, event: LineChanged, at: float) -> LineEdit[P]:
        was, target = self.live, self.left.get(event.to_line)
        newest = was.points[-1].id if was.points else -1
        left = self._leave(LeftLine(event.from_line, was, event.op, at, from_id=newest))
        if target is None:
            self.is_lost = True
            place = self.find(event.uid, -1) if event.uid else None
            kept = len(was.points) if place is None else place
            self.live = Path(was.points[:kept], was.base, was.origin)
            return LineEdit(kept, was.points[kept:], left, is_known=False)
        points = target.path.points
        stop = None
        if event.uid:
            stop = next((i for i, point in enumerate(points) if point.uid == event.uid), None)
        # If not even the summary is on the new line, it does not continue the compacted parts.
        self.live = (
            Path([]) if stop == 0 else Path(points[:stop], target.path.base, target.path.origin)
        )
        mine, other = was.points, self.live.points
        # If two lines share a checkpoint, they share everything before it.
        both = range(min(len(mine), len(other)))
        kept = bisect_left(both, True, key=lambda place: mine[place] is not other[place])
        last = None if stop is None else points[stop]
        return LineEdit(kept, was.points[kept:], left, event.to_line, last)

    def _leave(self, line: LeftLine[P]) -> int:
        """Store a line that is no longer live; return the number of the line with exactly its checkpoints, 0 if there is none."""
        known = self.left.get(line.n) or next(
            (
                one
                for one in reversed(self.left.values())
                if not line.n and line.path.begins(one.path)
            ),
            None,
        )
        if known is not None and line.path.begins(known.path):
            # The line was left before, or is the beginning of one that was.
            self.left[known.n] = self.left.pop(known.n)
            if len(known.path.points) > len(line.path.points):
                return 0
            if line.reason in ("undo", "redo") or not line.n:
                # The line is unchanged since it was left before (or came from a fork), so it keeps the reason for which it
                # was left then.
                return known.n
            line.n = known.n
        elif not line.n or not line.path.points:
            return 0
        self.left.pop(line.n, None)
        self.left[line.n] = line
        return line.n


class LiveLineActivity(NamedTuple):
    """The events on the live line while another line is shown, for the banner.

    Attributes:
        steps: the number of steps of the newest turn.
        dmail: the checkpoint at which the newest D-Mail was delivered, -1 for none.
        saved: the tokens that it freed.
        compacted: whether the context was compacted.
        ended: the way the newest turn ended; empty while it runs.
    """

    steps: int = 0
    dmail: int = -1
    saved: int = 0
    compacted: bool = False
    ended: str = ""


def names_in(event: WorldLineAdded) -> list[CheckpointName]:
    """Return the checkpoints that a line was added with."""
    return [CheckpointName(uid, number) for uid, number in zip(event.uids, event.ids, strict=False)]


def news_after(news: LiveLineActivity, event: Event) -> LiveLineActivity:
    """Return the activity after one more event."""
    match event:
        case TurnBegin():
            return news._replace(steps=0, ended="")
        case CheckpointCreated(kind="step", was=""):
            return news._replace(steps=news.steps + 1)
        case ContextReverted(reason="dmail") as cut:
            saved = max(0, cut.tokens_before - cut.tokens_after)
            return news._replace(dmail=cut.checkpoint_id, saved=saved)
        case CompactionEnd(error=""):
            return news._replace(compacted=True)
        case TurnEnd(reason=reason):
            return news._replace(ended=reason)
        case _:
            return news

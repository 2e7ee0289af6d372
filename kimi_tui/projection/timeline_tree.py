"""The timeline's tree: the checkpoints of the live line, and the places where world lines branch off from it and from one another.

`world_lines` decides which lines there are. This module imports nothing of the wire, so that the widget can import it before
the engine is loaded.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import TYPE_CHECKING, Literal

from kimi_tui.display_names import titled
from kimi_tui.foreign_text import one_line
from kimi_tui.tool_cards import PLAIN, Card
from kimi_tui.wire.events import SUMMARIES, FutureChanged

if TYPE_CHECKING:
    from kimi_tui.projection.world_lines import LeftLine, LineEdit, Path, WorldLines

TO_EARLIER = "to an earlier checkpoint"
"""The target of a D-Mail on a line whose checkpoints were renumbered since."""
NOT_SENT = "not sent"
"""The beginning of the target of a D-Mail that was not delivered."""
LABEL_LIMIT = 200
"""The largest number of characters of a label; more never fit on the screen."""
State = Literal["open", "done", "failed", "stopped"]
Trial = Literal["", "running", "good", "bad", "skipped"]
Key = tuple[str, int]
"""The identity of a row, stable while rows are added and removed: `("checkpoint", key)`, `("said", key)`, `("line", number)`, `("more", number)`,
`("future KEY", 0)`, `("now", 0)`."""

NOW: Key = ("now", 0)
_TEXT_CHARS = 20_000
"""The characters of a D-Mail or a summary that a filter searches."""
_MOST_SAID = 1 << 16
_TARGET = re.compile(r"(?:^|\n\n)To checkpoint \d+:\n\n")
"""The text that the program writes before each of several D-Mails (`prompts/dmail_of_several.md`)."""
_LOOKED_AT = 20
"""The number of first checkpoints of a line that are searched for its name."""


@dataclass(slots=True, eq=False)
class CallNode:
    """One tool call of a step. `size_chars` is the length of its result, by which the step's tokens are split among its calls.

    `agent_steps` are the steps of the sub-agent that the call started; -1 if it started none.
    """

    name: str
    card: Card = PLAIN
    target: str = ""
    agent_steps: int = -1
    failed: bool = False
    size_chars: int = 0


@dataclass(slots=True, eq=False)
class CheckpointNode:
    """A checkpoint. `index` is its position on its own line counted from the root, `key` is unique in the model.

    `tokens` are the tokens in the window there, `tokens_end` those at the next checkpoint; both are estimates until their
    `measured` flag is set. `saved` is the signed change of tokens that a D-Mail or compaction made (an
    estimate until `saved_measured`), `text` the D-Mail or summary. `said` are the user's messages after it that have no
    checkpoint of their own, each in one line; the first `n_carried` of them are before its D-Mail. `is_kept` is true for a
    checkpoint that was made before the summary that it follows now. `trial` is what a search has found out about the files there.
    """

    key: int
    id: int
    uid: str
    kind: str
    index: int
    at: float
    words: str = ""
    calls: list[CallNode] | None = None
    tokens: int = 0
    tokens_end: int = 0
    measured: bool = False
    end_measured: bool = False
    files: int = 0
    state: State = "open"
    ended_at: float = 0.0
    from_line: int = 0
    from_id: int = -1
    saved: int | None = None
    saved_measured: bool = False
    before: int = 0
    folded: bool = False
    bookmark: str = ""
    pinned: bool = False
    text: str = ""
    said: tuple[str, ...] = ()
    n_carried: int = 0
    is_kept: bool = False
    trial: Trial = ""
    revision: int = 0
    _search: str = field(default="", repr=False)

    @property
    def is_heading(self) -> bool:
        """Whether it is a message of the user that begins a turn."""
        return self.kind == "user"

    @property
    def sort(self) -> str:
        """The kind of the checkpoint, without how it ended."""
        return "step" if self.kind in ("interrupted", "error") else self.kind

    @property
    def begins_turn(self) -> bool:
        """Whether a turn begins here: the following checkpoints belong to this one."""
        return self.kind == "user" or self.n_carried > 0

    @property
    def main_call(self) -> CallNode | None:
        """The tool call that the label of the step names: a D-Mail, else a failed one, else the first that did some work."""
        calls = self.calls or []
        return (
            next((call for call in calls if call.card.is_letter), None)
            or next((call for call in calls if call.failed), None)
            or next((call for call in calls if call.card.shows != "list"), None)
            or next(iter(calls), None)
        )

    @property
    def is_summary(self) -> bool:
        """Whether this is the checkpoint of a summary, which replaced everything before."""
        return self.kind in SUMMARIES

    @property
    def change(self) -> int:
        """The tokens by which the context grew in this step; an estimate is at least 0."""
        if self.saved is not None:
            return self.saved
        if not (self.tokens or self.measured):
            # Nothing is known of the steps of a line that was never the current one.
            return 0
        grown = self.tokens_end - self.tokens
        return grown if self.change_measured else max(0, grown)

    @property
    def change_measured(self) -> bool:
        """Whether `change` is computed from figures of the server."""
        if self.saved is not None:
            return self.saved_measured
        return self.measured and self.end_measured

    @property
    def row_key(self) -> Key:
        """The key by which this checkpoint is selected."""
        return ("checkpoint", self.key)

    def said_key(self, number: int) -> Key:
        """Return the key by which a message of the user after this checkpoint is selected."""
        return ("said", self.key * _MOST_SAID + number)

    def say(self, words: Sequence[str], *, carried: bool = False, at: int = -1) -> None:
        """Add messages of the user after this checkpoint.

        Args:
            words: the messages.
            carried: whether they are before the D-Mail of the checkpoint.
            at: the index at which they are inserted (queued messages go before the one that the turn began with); -1 for
                the end.
        """
        room = _MOST_SAID - len(self.said)
        said = tuple(one_line(titled(text))[:LABEL_LIMIT] for text in words[:room])
        if 0 <= at <= len(self.said):
            before = (self.words, *self.said)
            self.words, *after = (*before[:at], *said, *before[at:])
            self.said = tuple(after)
        else:
            self.said += said
        if carried:
            self.n_carried = len(self.said)
        self.touch()

    def take_over(self, old: CheckpointNode) -> None:
        """Copy everything of `old`, which this checkpoint replaces under another number."""
        self.at, self.ended_at, self.words = old.at, old.ended_at, old.words
        self.calls, self.files, self.state = old.calls, old.files, old.state
        self.from_line, self.from_id, self.folded = old.from_line, old.from_id, old.folded
        if old.from_id >= 0 and old.id != self.id:
            # The step that sent the D-Mail has no number on this line.
            self.from_id, self.words = -1, "D-Mail from an earlier step"
        if old.calls and old.id != self.id:
            self.calls = [_renumbered(call) for call in old.calls]
        self.saved, self.saved_measured = old.saved, old.saved_measured
        self.before, self.text = old.before, old.text
        self.said, self.n_carried = old.said, old.n_carried
        self.bookmark = old.bookmark or self.bookmark
        self.pinned = old.pinned or self.pinned

    def keep_said(self, said: Sequence[str], n_carried: int) -> None:
        """Replace the messages of the user, of which `n_carried` are before the D-Mail; the first one begins the turn."""
        self.said, self.n_carried = (), n_carried
        self.say(said[self.is_heading :])

    def touch(self) -> None:
        """Increment the revision: something that is drawn has changed."""
        self.revision += 1
        self._search = ""

    def matches(self, needle: str) -> bool:
        """Return whether a text (in lower case) occurs in the label, a message, a tool, a target, the D-Mail or the summary."""
        if not self._search:
            parts = [f"#{self.id}", self.words, self.bookmark, _KIND_WORDS.get(self.kind, "")]
            parts.append(self.text[:_TEXT_CHARS])
            for call in self.calls or ():
                parts += (call.name, call.target)
            self._search = "\n".join(parts).lower()
        return needle in self._search


def _renumbered(call: CallNode) -> CallNode:
    """Return the call of a checkpoint that was renumbered: the number that its D-Mail names is from before."""
    if not call.card.is_letter or not call.target:
        return call
    is_unsent = call.target.startswith(NOT_SENT)
    return replace(call, target=f"{NOT_SENT}, {TO_EARLIER}" if is_unsent else TO_EARLIER)


_KIND_WORDS = {"dmail": "D-Mail", "compaction": "Compacted", "summary": "Compacted"}


@dataclass(slots=True, eq=False)
class WorldLineNode:
    """A world line that was left. `checkpoints` are its own, from where it branches off.

    `parent` is the key of the checkpoint after which it branches off, or of a root if it shares no checkpoint with the live
    line. A line that begins anew (after a compaction) has a `root` of its own.
    """

    n: int
    reason: str
    at: float
    checkpoints: list[CheckpointNode] = field(default_factory=list[CheckpointNode])
    parent: int = 0
    root: int = 0
    is_base: bool = False
    """Whether a compaction replaced the whole line, which is drawn below the compaction."""
    at_root: bool = False
    """Whether the line branches off before the first checkpoint."""
    tokens_before: int = 0
    text: str = ""
    from_id: int = -1
    to_id: int = -1
    by_user: bool = False
    """Whether a D-Mail of the user left the line."""
    is_open: bool = False
    is_whole: bool = False
    """Whether all steps of the line are shown while it is unfolded."""

    @property
    def mark(self) -> str:
        """The key of the line's name among the bookmarks; it is made from the line's beginning, as the line may still grow."""
        return f"line:{self.checkpoints[0].uid}" if self.checkpoints else ""

    @property
    def own_words(self) -> str:
        """The line's default name: the user's message at its beginning, else the agent's D-Mail that left it, else its first step."""
        begun = self.checkpoints[:_LOOKED_AT]
        # Messages that a summary or a D-Mail carried over belong to another line, which has its name from them.
        begun = [checkpoint for checkpoint in begun if not checkpoint.is_kept] or begun
        first = begun[0] if begun else None
        if first is not None and first.is_heading and first.words:
            return first.words
        # The agent wrote its D-Mail on this line; the user's D-Mail is on the line that followed.
        if self.reason == "dmail" and self.text and not self.by_user:
            return self.text
        for checkpoint in begun:
            if checkpoint.kind == "dmail":
                # A D-Mail's text is also the name of the line that it left.
                own = [*checkpoint.said[checkpoint.n_carried :]]
                own += [one.words for one in begun if one.is_heading and one.words]
                return (*own, one_line(checkpoint.text)[:LABEL_LIMIT])[0]
            if checkpoint.words:
                return checkpoint.words
            if checkpoint.calls:
                return f"{checkpoint.calls[0].name} {checkpoint.calls[0].target}".rstrip()
        return ""

    def holds(self, checkpoint: CheckpointNode) -> bool:
        """Return whether a checkpoint is one of its own."""
        own = self.checkpoints
        at = checkpoint.index - own[0].index if own else -1
        return 0 <= at < len(own) and own[at] is checkpoint

    @property
    def row_key(self) -> Key:
        """The key by which the row with this line's name is selected."""
        return ("line", self.n)


@dataclass(frozen=True, slots=True)
class Revert:
    """The newest revert of the live line, for its animation.

    Attributes:
        reason: the operation: `rewind`, `dmail`, `compaction`, ...
        line: the world line of the dropped checkpoints.
        serial: the number of reverts so far.
    """

    reason: str
    line: WorldLineNode
    serial: int


class Tree:
    """The world lines as a tree: the checkpoints of each that no line before it has, and where it branches off.

    The live line comes first, then the others, the one that was left last first. So the tree depends only on the set of
    lines, and not on the operations that made them.

    Args:
        world_lines: the lines.
        marks: the user's names of checkpoints and lines, by uid and by the `mark` of a line.

    Attributes:
        lines: the world lines that have checkpoints of their own, by number.
        root: the parent key of lines that branch off before the live line's first checkpoint.
    """

    def __init__(
        self, world_lines: WorldLines[CheckpointNode], marks: Mapping[str, str] | None = None
    ) -> None:
        self._all = world_lines
        self._marks: Mapping[str, str] = {} if marks is None else marks
        self.lines: dict[int, WorldLineNode] = {}
        self.root = _root(0)
        self._next_key = 1
        self._forks: dict[int, list[WorldLineNode]] = {}
        self._bases: dict[int, WorldLineNode] = {}
        self._held: dict[int, CheckpointNode] = {}
        """The checkpoints after which lines branch off, by key."""
        self._grown: dict[int, list[FutureChanged]] = {}
        self._grown_inside: dict[int, list[tuple[int, FutureChanged]]] = {}
        """The futures inside a world line, by its number, each with the key of the checkpoint or root there that leads to it."""

    @property
    def live(self) -> list[CheckpointNode]:
        """The live line, oldest first."""
        return self._all.live.points

    @property
    def head(self) -> CheckpointNode | None:
        """The newest checkpoint of the live line."""
        live = self._all.live.points
        return live[-1] if live else None

    def new_key(self) -> int:
        """Return a key that no checkpoint has."""
        key = self._next_key
        self._next_key += 1
        return key

    def name_of(self, line: WorldLineNode) -> str:
        """Return the name of a world line: the user's, else its own first words; empty if it has neither."""
        return self._marks.get(line.mark) or line.own_words

    def forks(self, key: int) -> list[WorldLineNode]:
        """Return the lines that branch off after a checkpoint or root, by its key, oldest first."""
        return self._forks.get(key, [])

    def growing(self, key: int) -> Sequence[FutureChanged]:
        """Return the futures that branch off after a checkpoint or root, by its key, and have no world line yet."""
        return self._grown.get(key, ())

    def growing_inside(self, line: WorldLineNode) -> Sequence[tuple[int, FutureChanged]]:
        """Return the futures that branch off inside a world line or a branch of it, each with the key of the checkpoint or root
        of the line that leads to it.
        """
        return self._grown_inside.get(line.n, ())

    def grow(
        self, futures: Iterable[tuple[FutureChanged, CheckpointNode | None]]
    ) -> frozenset[int]:
        """Have these futures, and no others, branch off, each after a checkpoint; None is before the first one of the live line.
        Where that is on no line any more, it is the end of the live line.

        Returns:
            the indexes of the live checkpoints before which the rows of the futures are.
        """
        self._grown, self._grown_inside = {}, {}
        places: set[int] = set()
        for future, after in futures:
            way = self._way_in(after)
            at = after if way is not None else self.head
            inside, place = way if way is not None else ((), len(self.live))
            places.add(place)
            self._grown.setdefault(at.key if at is not None else self.root, []).append(future)
            for n, through in inside:
                self._grown_inside.setdefault(n, []).append((through, future))
        return frozenset(places)

    def _way_in(self, after: CheckpointNode | None) -> tuple[Sequence[tuple[int, int]], int] | None:
        """Find a checkpoint from the live line inwards; None if it is on no line.

        Returns:
            the world lines around the checkpoint by number, innermost first, each with the key of the checkpoint or root that
            leads to it; and the index of the live checkpoint below which the outermost of them is.
        """
        ways: list[tuple[int, int]] = []
        at, line, is_below = after, None, False
        # In a damaged record lines may be attached to one another.
        for _ in range(2 * len(self.lines) + 1):
            if at is not None:
                if _is_on(self.live, at):
                    return ways, at.index if is_below else at.index + 1
                line = next((one for one in self.lines.values() if one.holds(at)), None)
                if line is None:
                    return None
                ways.append((line.n, at.key))
            if line is None:
                return ways, 0
            is_below = line.is_base
            if is_below:
                at = self._held.get(self._summary_above(line))
            elif (at := self._held.get(line.parent)) is None:
                root = line.parent
                line = next((one for one in self.lines.values() if one.root == root), None)
                if line is not None:
                    ways.append((line.n, root))
        return None

    def _summary_above(self, line: WorldLineNode) -> int:
        """Return the key of the summary that replaced a line completely; 0 if there is none."""
        return next((key for key, one in self._bases.items() if one is line), 0)

    def base(self, checkpoint: CheckpointNode) -> WorldLineNode | None:
        """Return the line that this compaction replaced completely; None if there is none."""
        return self._bases.get(checkpoint.key)

    def key_below(self, index: int) -> int:
        """Return the parent key of lines that branch off before the live checkpoint at `index`."""
        return self.live[index - 1].key if index > 0 else self.root

    def find_left(self, uid: str) -> CheckpointNode | None:
        """Return the checkpoint with this uid on the line that was left last among those that have it; None if none has."""
        replaced = self._all.replaced
        paths = [line.path for line in reversed(self._all.left.values())]
        for path in [*([replaced] if replaced is not None else []), *paths]:
            for checkpoint in reversed(path.points):
                if checkpoint.uid == uid:
                    return checkpoint
        return None

    def before_now(self) -> list[CheckpointNode]:
        """Return the checkpoints that compactions of the live line have replaced, oldest first."""
        return self._all.before_now()

    def attach(self, edit: LineEdit[CheckpointNode]) -> WorldLineNode | None:
        """Attach the line that a revert of the live line left; return it, or None if it is not a new line."""
        left = self._all.left.get(edit.left)
        if left is None or edit.left in self.lines or not edit.gone:
            return None
        line = self._drawn(left, list(edit.gone))
        line.parent, line.at_root = self.root, edit.kept == 0
        if edit.kept:
            self._hold(line, self.live[edit.kept - 1])
        self.lines[line.n] = line
        self._forks.setdefault(line.parent, []).append(line)
        return line

    def lay(self) -> int:
        """Compute anew where every line branches off.

        Returns:
            the first index of the live line at which the branching lines changed.
        """
        before, lines, held = self._outline(), self.lines, self._held
        self._forks, self._bases, self.lines, self._held = {}, {}, {}, {}
        live = self._all.live
        self.root = _root(live.origin)
        taken = _Taken(live)
        if live.base is not None and live.points:
            self._lay_base(live.points[0], live.base, taken, lines)
        for left in reversed(self._all.left.values()):
            if left.n not in self.lines:
                self._lay_line(left, taken, lines)
        for forks in self._forks.values():
            forks.reverse()
        after = self._outline()
        others = {key for key in {*before, *after} if before.get(key) != after.get(key)}
        held |= self._held
        places = [held[key].index for key in others if key in held and taken.is_live(held[key])]
        # Another change is inside a line that may be attached anywhere.
        return min(places, default=len(self.live)) if len(places) == len(others) else 0

    def _hold(self, line: WorldLineNode, checkpoint: CheckpointNode) -> None:
        """Note that a line branches off after this checkpoint."""
        line.parent = checkpoint.key
        self._held[checkpoint.key] = checkpoint

    def _lay_line(
        self, left: LeftLine[CheckpointNode], taken: _Taken, lines: Mapping[int, WorldLineNode]
    ) -> None:
        """Find where a line branches off, and its own checkpoints."""
        path = left.path
        own = taken.rest(path)
        if not own:
            return
        line = self._drawn(left, own, lines.get(left.n))
        if len(own) < len(path.points):
            self._hold(line, path.points[-len(own) - 1])
        elif path.origin in taken.origins:
            line.parent, line.at_root = _root(path.origin), True
        else:
            line.root = _root(path.origin)
            # The line was compacted, so it may branch off from the compacted part.
            base = path.base
            while base is not None and not taken.has(base.points[-1]):
                base = base.base
            line.parent, line.at_root = self.root, base is None
            if base is not None:
                self._hold(line, base.points[-1])
        taken.take(path, own)
        self.lines[line.n] = line
        self._forks.setdefault(line.parent, []).append(line)
        if len(own) == len(path.points) and path.base is not None:
            self._lay_base(own[0], path.base, taken, lines)

    def _lay_base(
        self,
        summary: CheckpointNode,
        base: Path[CheckpointNode],
        taken: _Taken,
        lines: Mapping[int, WorldLineNode],
    ) -> None:
        """Place the line that a compaction replaced below it, unless it branches off from another line itself."""
        if base.origin in taken.origins:
            return
        held = [one for one in reversed(self._all.left.values()) if base.begins(one.path)]
        # A line that ends there is preferred to one that continues.
        left = next((one for one in held if one.path.begins(base)), held[0] if held else None)
        if left is None:
            # The line has no number before the compaction has ended.
            line = WorldLineNode(0, "compaction", summary.at, list(base.points))
        else:
            line = self._drawn(left, list(left.path.points), lines.get(left.n))
        line.root, line.is_base = _root(base.origin), True
        taken.take(base, line.checkpoints)
        self.lines[line.n] = line
        self._bases[summary.key] = line
        self._held[summary.key] = summary
        if base.base is not None:
            self._lay_base(base.points[0], base.base, taken, lines)

    def _drawn(
        self,
        left: LeftLine[CheckpointNode],
        own: list[CheckpointNode],
        known: WorldLineNode | None = None,
    ) -> WorldLineNode:
        """Return the `WorldLineNode` of a line that was left: the same object each time, since rows refer to it."""
        line = known or WorldLineNode(left.n, left.reason, left.at)
        line.checkpoints, line.reason, line.at = own, left.reason, left.at
        line.parent = line.root = 0
        line.is_base = line.at_root = False
        # The events of an undo, a redo and a jump have no token figures.
        end = left.path.points[-1].tokens_end if left.path.points else 0
        line.tokens_before = left.tokens_before or end
        # Only the text of the first of several D-Mails is shown.
        line.text = one_line(next(filter(None, _TARGET.split(left.text)), ""))[:LABEL_LIMIT]
        line.from_id, line.to_id, line.by_user = left.from_id, left.to_id, left.by_user
        return line

    def _outline(self) -> dict[int, list[tuple[object, ...]]]:
        """Return, for each key, the lines that branch off there, as far as they determine the rows."""
        found: dict[int, list[tuple[object, ...]]] = {}
        bases = ((key, [line]) for key, line in self._bases.items())
        for key, lines in (*self._forks.items(), *bases):
            found.setdefault(key, []).extend(
                (line.n, line.is_base, line.root, len(line.checkpoints)) for line in lines
            )
        return found


def _root(origin: int) -> int:
    """Return the key of the root with an origin; it is never 0, and no checkpoint's key."""
    return -1 - origin


_KEY = attrgetter("key")
_LONG = 2_000
"""A line with at least so many checkpoints of its own is kept whole, without listing them; there are never many such lines."""


def _is_on(points: Sequence[CheckpointNode], checkpoint: CheckpointNode) -> bool:
    """Return whether a checkpoint is on a line; it has the same place on all lines that have it."""
    index = checkpoint.index
    return index < len(points) and points[index] is checkpoint


class _Taken:
    """The checkpoints and roots that were placed in the tree so far."""

    def __init__(self, live: Path[CheckpointNode]) -> None:
        self._live = live.points
        self._keys: set[int] = set()
        self._long: list[list[CheckpointNode]] = []
        """The lines with at least `_LONG` checkpoints of their own."""
        self.origins = {live.origin}

    def is_live(self, checkpoint: CheckpointNode) -> bool:
        """Return whether a checkpoint is on the live line."""
        return _is_on(self._live, checkpoint)

    def has(self, checkpoint: CheckpointNode) -> bool:
        """Return whether a checkpoint was placed."""
        return (
            _is_on(self._live, checkpoint)
            or checkpoint.key in self._keys
            or any(_is_on(points, checkpoint) for points in self._long)
        )

    def rest(self, path: Path[CheckpointNode]) -> list[CheckpointNode]:
        """Return the checkpoints at the end of a line that were not placed yet."""
        points = path.points
        # A checkpoint is placed together with all before it on its line, so those that were not placed are at the end.
        places = range(len(points))
        return points[bisect_left(places, True, key=lambda n: not self.has(points[n])) :]

    def take(self, path: Path[CheckpointNode], own: Sequence[CheckpointNode]) -> None:
        """Mark these checkpoints as placed."""
        if len(own) < _LONG:
            self._keys.update(map(_KEY, own))
        else:
            # A line that continues what a compaction replaced has more checkpoints than that path.
            self._long.append(max(path.points, list(own), key=len))
        self.origins.add(path.origin)

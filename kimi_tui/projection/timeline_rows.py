"""The rows of the timeline's tree: their order and lanes, folding, and the filter.

Rows are stored oldest first, so that a new checkpoint is an append and a rewind a truncation; the widget counts from the
other end. Every row has the `order` of its place on the live line, so that a place is found by bisection and only its own
rows are rebuilt when something there folds. After a change of the whole line rows are rebuilt when they are accessed, once
for any number of changes.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Literal

from kimi_tui.projection.futures import future_name
from kimi_tui.projection.timeline_tree import CheckpointNode, Key, Tree, WorldLineNode
from kimi_tui.wire.events import FutureChanged

RowKind = Literal["checkpoint", "said", "gap", "line", "foot", "base", "more", "future", "facts"]

MAX_DEPTH = 40
"""The deepest nesting of lines that is shown; in a damaged record lines may be attached to one another."""
SHORT = 6
"""The number of steps that an unfolded world line shows; the others are one row until that is unfolded as well."""


@dataclass(slots=True, eq=False)
class TimelineRow:
    """A row of the timeline: a checkpoint, a message of the user, or the name of a branch (an abandoned world line).

    `lanes` has a character for every lane left of the row's own: `l` a line that continues, `b` the line before a
    compaction. `is_tip` is true for the newest row of an unfolded world line, `hidden` is the number of folded checkpoints. A
    row of the kind `said` is the user's message with the index `said` after `checkpoint`. A future that has no world line yet has
    two rows: `future` with its name, and `facts` below it.
    """

    kind: RowKind
    order: int
    lanes: str = ""
    checkpoint: CheckpointNode | None = None
    line: WorldLineNode | None = None
    is_tip: bool = False
    hidden: int = 0
    said: int = -1
    future: FutureChanged | None = None

    @property
    def key(self) -> Key:
        """The key by which the row is selected; a gap, and the facts below a future, cannot be selected."""
        if self.future is not None:
            return (f"{self.kind} {self.future.key}", 0)
        if self.kind == "checkpoint" and self.checkpoint is not None:
            return self.checkpoint.row_key
        if self.kind == "said" and self.checkpoint is not None:
            return self.checkpoint.said_key(self.said)
        if self.line is not None:
            return ("more", self.line.n) if self.kind == "more" else self.line.row_key
        return ("gap", self.order)

    @property
    def is_words(self) -> bool:
        """Whether the row is a message of the user."""
        checkpoint = self.checkpoint
        is_heading = checkpoint is not None and checkpoint.is_heading
        return self.kind == "said" or (self.kind == "checkpoint" and is_heading)

    @property
    def names_line(self) -> bool:
        """Whether the row shows the name of a world line."""
        return self.kind in ("line", "foot", "base")

    @property
    def names_branch(self) -> bool:
        """Whether the row shows the name of a world line or of a future."""
        return self.names_line or self.kind == "future"

    @property
    def can_be_selected(self) -> bool:
        """Whether the row can be selected."""
        return self.kind not in ("gap", "facts")


class Builder:
    """Makes rows, oldest first. For a checkpoint that the filter hides it yields None, so that a caller can pause there.

    Args:
        tree: the checkpoints and lines.
        needle: text that a row must contain, in lower case; empty for no filter.
    """

    def __init__(self, tree: Tree, needle: str = "") -> None:
        self._tree = tree
        self.needle = needle

    def live(self, start: int, end: int) -> Iterator[TimelineRow | None]:
        """Yield the rows of the live checkpoints from `start` to `end` (exclusive), and of the lines that branch off above each."""
        tree = self._tree
        live = tree.live
        if start == 0:
            yield from self._forks(tree.root, "", -1)
        fold: CheckpointNode | None = None
        for index in range(start, min(end, len(live))):
            checkpoint = live[index]
            if checkpoint.begins_turn:
                fold = checkpoint if checkpoint.folded else None
            if self.needle:
                yield from self._filtered(checkpoint)
                continue
            if fold is not None and fold is not checkpoint:
                # The lines that branch off here stay visible.
                yield from self._forks(checkpoint.key, "", 2 * index + 1)
                continue
            if tree.base(checkpoint) is not None:
                yield from self._base(checkpoint, "", 2 * index - 1)
            yield from self.own(checkpoint)
            yield from self._forks(checkpoint.key, "", 2 * index + 1)

    def own(self, checkpoint: CheckpointNode) -> Iterator[TimelineRow | None]:
        """Yield the rows of a live checkpoint itself, without the lines that branch off."""
        index, live = checkpoint.index, self._tree.live
        is_first = index == 0 or live[index - 1].is_summary
        if not self.needle and checkpoint.is_heading and not is_first:
            yield TimelineRow("gap", 2 * index)
        is_folded = checkpoint.folded and checkpoint.begins_turn and not self.needle
        hidden = self.steps_of(index) if is_folded else 0
        yield from self._with_said(
            TimelineRow("checkpoint", 2 * index, checkpoint=checkpoint, hidden=hidden)
        )

    def _with_said(self, row: TimelineRow) -> Iterator[TimelineRow | None]:
        """Yield the row of a checkpoint and those of the user's messages before and after it, as far as the filter matches."""
        checkpoint, found = row.checkpoint, self.needle
        assert checkpoint is not None
        if not (found or checkpoint.said):
            yield row
            return
        said = [
            replace(row, kind="said", said=n, is_tip=False, hidden=0)
            if not found or found in checkpoint.said[n].lower()
            else None
            for n in range(len(checkpoint.said))
        ]
        yield from said[: checkpoint.n_carried]
        yield row if not found or checkpoint.matches(found) else None
        yield from said[checkpoint.n_carried :]

    def forks_at(self, index: int) -> Iterator[TimelineRow | None]:
        """Yield the rows of the lines directly below the live checkpoint `index`."""
        live = self._tree.live
        yield from self.branches_at(index)
        if index < len(live):
            yield from self._base(live[index], "", 2 * index - 1)

    def branches_at(self, index: int) -> Iterator[TimelineRow | None]:
        """Yield the lines that branch off before the live checkpoint `index`."""
        tree = self._tree
        key = tree.live[index - 1].key if index > 0 else tree.root
        yield from self._forks(key, "", 2 * index - 1)

    def _filtered(self, checkpoint: CheckpointNode) -> Iterator[TimelineRow | None]:
        order = 2 * checkpoint.index
        if checkpoint.is_summary:
            yield from self._base(checkpoint, "", order - 1)
        yield from self.own(checkpoint)
        yield from self._forks(checkpoint.key, "", order + 1)

    def steps_of(self, index: int) -> int:
        """Return the number of checkpoints of the turn that begins at a live index."""
        live = self._tree.live
        end = next((i for i in range(index + 1, len(live)) if live[i].begins_turn), len(live))
        return end - index - 1

    def _forks(self, key: int, lanes: str, order: int) -> Iterator[TimelineRow | None]:
        for line in self._tree.forks(key):
            if not self.needle and not line.is_open:
                yield TimelineRow("line", order, lanes, line=line)
                yield from self._named(self._inner(line), lanes, order)
                continue
            is_named = False
            for row in self._inside(line, lanes + "l", order):
                if row is not None and not is_named:
                    yield TimelineRow("foot", order, lanes, line=line)
                    is_named = True
                yield row
            if not is_named and self._finds(line):
                yield TimelineRow("line", order, lanes, line=line)
        yield from self._growing(key, lanes, order)

    def _growing(self, key: int, lanes: str, order: int) -> Iterator[TimelineRow]:
        """Yield the rows of the futures that branch off after a checkpoint or root, the first one at the top."""
        return self._named(self._tree.growing(key), lanes, order)

    def _inner(
        self, line: WorldLineNode, hidden: Sequence[CheckpointNode] | None = None
    ) -> list[FutureChanged]:
        """Return the futures inside a world line, or only those behind checkpoints that are not shown."""
        inside = self._tree.growing_inside(line)
        keys = {one.key for one in hidden} if inside and hidden is not None else set[int]()
        return [future for key, future in inside if hidden is None or key in keys]

    def _named(
        self, futures: Sequence[FutureChanged], lanes: str, order: int
    ) -> Iterator[TimelineRow]:
        """Yield the rows of futures, the first one at the top."""
        for future in reversed(futures):
            if self.needle in f"{future_name(future)}\n{future.model}".lower():
                yield TimelineRow("facts", order, lanes, future=future)
                yield TimelineRow("future", order, lanes, future=future)

    def _base(
        self, checkpoint: CheckpointNode, lanes: str, order: int
    ) -> Iterator[TimelineRow | None]:
        """Yield the rows of the line that a compaction replaced, below it: its name is the topmost."""
        line = self._tree.base(checkpoint)
        if line is None:
            return
        is_found = self._finds(line)
        if self.needle or line.is_open:
            for row in self._inside(line, lanes + "b", order):
                is_found = is_found or row is not None
                yield row
        else:
            yield from self._named(self._inner(line), lanes, order)
        if is_found:
            yield TimelineRow("base", order, lanes, line=line)

    def _finds(self, line: WorldLineNode) -> bool:
        """Return whether the filter matches the name of a line."""
        return self.needle in self._tree.name_of(line).lower()

    def _inside(self, line: WorldLineNode, lanes: str, order: int) -> Iterator[TimelineRow | None]:
        if len(lanes) > MAX_DEPTH:
            return
        checkpoints = line.checkpoints
        if line.root:
            yield from self._forks(line.root, lanes, order)
        shown = checkpoints
        hidden = 0
        inner: list[FutureChanged] = []
        if not self.needle and not line.is_whole and len(checkpoints) > SHORT:
            split = 1 - SHORT if line.is_base else SHORT - 1
            parts = checkpoints[:split], checkpoints[split:]
            rest, shown = parts if line.is_base else parts[::-1]
            hidden, inner = len(rest), self._inner(line, rest)
        if hidden and line.is_base:
            yield TimelineRow("more", order, lanes, line=line, hidden=hidden)
            yield from self._named(inner, lanes, order)
        for checkpoint in shown:
            yield from self._base(checkpoint, lanes, order)
            is_tip = not hidden and checkpoint is checkpoints[-1] and not line.is_base
            yield from self._with_said(
                TimelineRow(
                    "checkpoint", order, lanes, checkpoint=checkpoint, line=line, is_tip=is_tip
                )
            )
            yield from self._forks(checkpoint.key, lanes, order)
        if hidden and not line.is_base:
            yield from self._named(inner, lanes, order)
            yield TimelineRow("more", order, lanes, line=line, is_tip=True, hidden=hidden)


_order = attrgetter("order")
_HEADED_AT_ONCE = 100
_NEAR = 100
"""Rows around a known index that are searched before all others."""


class TimelineRows:
    """The rows of a tree. After a change of the tree the method for that change must be called."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._rows: list[TimelineRow] = []
        self._headings: list[int] = []
        """The indexes of the live checkpoints that begin a turn, among the first `_n_headed`."""
        self._n_headed = 0
        self._builder = Builder(tree)
        self._changes = 0
        # The live checkpoint from which on the rows are still to be built; None if all rows exist.
        self._missing: int | None = None
        self._last_found = 0
        self.typed = ""

    def __len__(self) -> int:
        return len(self._complete_rows())

    def __getitem__(self, index: int) -> TimelineRow:
        return self._complete_rows()[index]

    @property
    def built(self) -> Sequence[TimelineRow]:
        """The rows that exist already."""
        return self._rows

    @property
    def needle(self) -> str:
        """The text that rows are filtered by, in lower case; empty for no filter."""
        return self._builder.needle

    @property
    def n_found(self) -> int:
        """The number of matches: checkpoints, and lines of which only the name matches."""
        return sum(1 for row in self._complete_rows() if row.kind in ("checkpoint", "line"))

    @property
    def n_missing(self) -> int:
        """The number of checkpoints of the live line whose rows are not built yet."""
        return 0 if self._missing is None else len(self._tree.live) - self._missing

    # --- changes of the tree

    def reset(self, start: int = 0) -> None:
        """Rebuild the rows of the live line from the checkpoint at index `start` on, with the lines that branch off there."""
        self._changes += 1
        self._forget_headings(start)
        self._missing = start if self._missing is None else min(start, self._missing)

    def _forget_headings(self, start: int) -> None:
        del self._headings[bisect_left(self._headings, start) :]
        self._n_headed = min(self._n_headed, start)

    def _find_headings(self) -> bool:
        """Look at some more live checkpoints; return whether there were any."""
        live, start = self._tree.live, self._n_headed
        some = live[start : start + _HEADED_AT_ONCE]
        self._headings += [n for n, one in enumerate(some, start) if one.begins_turn]
        self._n_headed += len(some)
        return bool(some)

    def settle(self) -> Generator[None]:
        """Build the missing rows, as a generator that yields after each checkpoint; a change in between ends it early."""
        before = self._changes
        rows: list[TimelineRow] = []
        try:
            for row in self._rest():
                if row is not None:
                    rows.append(row)
                yield
                if before != self._changes or self._missing is None:
                    return
        except Exception:
            self._complete(rows)
            raise
        self._complete(rows)

    def _complete_rows(self) -> list[TimelineRow]:
        if self._missing is not None:
            rows: list[TimelineRow] = []
            try:
                rows += (row for row in self._rest() if row is not None)
            finally:
                self._complete(rows)
        return self._rows

    def _complete(self, rows: list[TimelineRow]) -> None:
        """Append the missing rows. Those that could not be built are left out from then on."""
        self._rows += rows
        self._missing = None

    def _rest(self) -> Iterator[TimelineRow | None]:
        """Yield the missing rows, after those that are kept."""
        start = self._missing
        if start is None:
            return
        live = self._tree.live
        while self._find_headings():
            yield None
        heading = self.heading_of(start - 1) if start else None
        if heading is not None and heading.folded:
            start = heading.index
        self._truncate(2 * start - 1)
        if start:
            yield from self._builder.branches_at(start)
        yield from self._builder.live(start, len(live))

    def appended(self, checkpoint: CheckpointNode) -> None:
        """Add the row of a checkpoint that was appended to the live line."""
        self._changes += 1
        # Each new checkpoint finds some more headings, so that those after a reset are found even if nobody asks for all rows.
        self._find_headings()
        if self._missing is not None:
            return
        heading = self.heading_of(checkpoint.index)
        if heading is not None and heading is not checkpoint and heading.folded and not self.needle:
            self._recount(heading)
            return
        if checkpoint.index == 0:
            self._rows.clear()
        self._rows.extend(_built(self._builder.live(checkpoint.index, checkpoint.index + 1)))

    def cut(self, index: int) -> None:
        """Remove the live rows from `index` on; the dropped checkpoints are a branch there now."""
        self._changes += 1
        self._forget_headings(index)
        if self._missing is not None:
            self._missing = min(index, self._missing)
            return
        self._truncate(2 * index - 1)
        self._rows.extend(_built(self._builder.forks_at(index)))
        heading = self.heading_of(index - 1)
        if heading is not None and heading.folded and not self.needle:
            self._recount(heading)

    def _recount(self, heading: CheckpointNode) -> None:
        """Update the row of the newest turn, which is folded, as its number of steps has changed."""
        at = self.index_of_checkpoint(heading)
        if at is not None:
            hidden = len(self._tree.live) - 1 - heading.index
            self._rows[at] = replace(self._rows[at], hidden=hidden)

    def _truncate(self, order: int) -> None:
        # Lines that branch off before everything belong to the rows of the first checkpoint.
        del self._rows[bisect_left(self._rows, order if order > 0 else -1, key=_order) :]

    def relabelled(self, checkpoint: CheckpointNode) -> None:
        """Update the row of a live checkpoint whose label changed, as the filter may match another text now."""
        heading = self.heading_of(checkpoint.index)
        is_hidden = heading is not None and heading is not checkpoint and heading.folded
        if self._missing is not None:
            self._missing = min(self._missing, checkpoint.index)
        elif self.needle or (checkpoint.said and not is_hidden):
            order = 2 * checkpoint.index
            self._splice(order, order, self._builder.own(checkpoint))
        self._changes += 1

    # --- folding

    def refold(self, heading: CheckpointNode) -> None:
        """Rebuild the rows of one turn."""
        end = heading.index + 1 + self._builder.steps_of(heading.index)
        first = 2 * heading.index
        self._splice(first or -1, 2 * end - 1, self._builder.live(heading.index, end))

    def reopen(self, row: TimelineRow) -> None:
        """Rebuild the rows of the world lines at the place of `row`, of which one was folded or unfolded."""
        order = row.order
        if order % 2:
            self._splice(order, order, self._builder.forks_at((order + 1) // 2))

    def regrow(self, index: int) -> None:
        """Rebuild the rows of the branches before the live checkpoint `index`: a future there has changed."""
        if self._missing is not None:
            return
        order = 2 * index - 1
        self._splice(order, order, self._builder.forks_at(index))

    def _splice(self, first: int, last: int, rows: Iterable[TimelineRow | None]) -> None:
        self._changes += 1
        whole = self._complete_rows()
        start = bisect_left(whole, first, key=_order)
        end = bisect_right(whole, last, key=_order)
        whole[start:end] = _built(rows)

    def filter(self, typed: str) -> None:
        """Filter the rows by a text; empty for no filter."""
        self.typed = typed
        self._builder = Builder(self._tree, typed.strip().lower())
        self.reset()

    def search(self, typed: str) -> Generator[None]:
        """Filter the rows by a text, as a generator that yields after each checkpoint: there may be ten thousand.

        Until it has ended, the rows are the former ones, and are kept up to date.
        """
        self.typed = typed
        before, builder = self._changes, Builder(self._tree, typed.strip().lower())
        rows: list[TimelineRow] = []
        for row in builder.live(0, len(self._tree.live)):
            if row is not None:
                rows.append(row)
            yield
            if before != self._changes:
                # The matching checkpoints may be gone. Most of the tree has been searched, so searching it at once is fast
                # enough.
                self.filter(typed)
                return
        self._builder, self._rows, self._missing = builder, rows, None
        self._changes += 1

    # --- finding rows

    def heading_of(self, index: int) -> CheckpointNode | None:
        """Return the checkpoint that begins the turn of the live checkpoint at `index`."""
        live = self._tree.live
        # Callers ask only for the newest turn of those that were not looked at yet.
        for place in range(min(index, len(live) - 1), self._n_headed - 1, -1):
            if live[place].begins_turn:
                return live[place]
        position = bisect_right(self._headings, index) - 1
        return live[self._headings[position]] if position >= 0 else None

    def index_of_order(self, order: int) -> int:
        """Return the index of the first row with this order or a later one; the number of rows if there is none."""
        return bisect_left(self._complete_rows(), order, key=_order)

    def index_of_checkpoint(self, checkpoint: CheckpointNode) -> int | None:
        """Return the index of the row of a checkpoint of the live line; None if it has none."""
        order, rows = 2 * checkpoint.index, self._complete_rows()
        at = bisect_left(rows, order, key=_order)
        while at < len(rows) and rows[at].order == order:
            if rows[at].checkpoint is checkpoint and rows[at].kind == "checkpoint":
                return at
            at += 1
        return None

    def words_near(self, index: int, step: int) -> int | None:
        """Return the index of the next message of the user on the live line before (`step` -1) or after (1) an index; None if
        there is none.
        """
        rows = self._complete_rows()
        while 0 <= (index := index + step) < len(rows):
            row = rows[index]
            if row.line is None and row.is_words:
                return index
        return None

    def expect(self, index: int) -> None:
        """Note the index of the row whose key is looked up next."""
        self._last_found = index

    def index_of(self, key: Key) -> int | None:
        """Return the index of the row with this key; None if there is none."""
        rows, last = self._complete_rows(), self._last_found
        if 0 <= last < len(rows) and rows[last].key == key:
            return last
        # The row is usually near the last one found, as keys and pages move by little.
        near = range(max(0, last - _NEAR), min(len(rows), last + _NEAR + 1))
        found = next((i for i in near if rows[i].key == key), None)
        if found is None:
            found = next((i for i, row in enumerate(rows) if row.key == key), None)
        self._last_found = self._last_found if found is None else found
        return found


def _built(rows: Iterable[TimelineRow | None]) -> list[TimelineRow]:
    return [row for row in rows if row is not None]

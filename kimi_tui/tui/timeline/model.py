"""The timeline as a person looks at it: the course of the session with what is folded, filtered, marked and pinned.

Nothing here draws.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from kimi_tui.foreign_text import one_line
from kimi_tui.tui.timeline.building import SHORT, Row
from kimi_tui.tui.timeline.course import Course
from kimi_tui.tui.timeline.points import Key, Point
from kimi_tui.wire.events import Record


class Arrangement(NamedTuple):
    """World lines that are open, by number, and whether they are shown whole; turns that are folded; the filter."""

    unfolded: frozenset[tuple[int, bool]]
    folded: frozenset[str]
    typed: str

    def __bool__(self) -> bool:
        return any(self)


class TimelineModel(Course):
    """What the timeline shows: questions about the course, and what the person does with it."""

    # Reading

    @property
    def n_steps(self) -> int:
        """Checkpoints on the live line, without a summary in place of older ones."""
        live = self.tree.live
        return len(live) - (1 if live and live[0].is_summary else 0)

    @property
    def n_lines(self) -> int:
        """World lines that were left."""
        return len(self.tree.lines)

    @property
    def knows_now(self) -> bool:
        """Whether the newest checkpoint is "now" itself; else a row of its own stands above it."""
        return self.running and bool(self.tree.live)

    def frees(self, point: Point) -> int:
        """How many tokens a rewind to this live checkpoint frees."""
        tokens = point.tokens
        if point.index == 0 and not point.measured:
            # Nothing but an estimate is before it, and what was learned since makes that a better one.
            tokens = round(tokens * self.correction / point.correction)
        return max(0, self.used - tokens)

    # Changing

    def rebuild(self, records: Iterable[Record]) -> None:
        """Forget everything but bookmarks and what the person unfolded, and apply these records."""
        kept = self.arrangement
        self.begin()
        for record in records:
            self.apply(record)
        self.arrange(kept)

    @property
    def arrangement(self) -> Arrangement:
        """What the person folded, unfolded and looks for."""
        lines = self.tree.lines.values()
        return Arrangement(
            frozenset((line.n, line.is_whole) for line in lines if line.is_open),
            frozenset(point.uid for point in self.tree.live if point.folded),
            self.rows.typed,
        )

    def arrange(self, kept: Arrangement) -> None:
        """Fold, unfold and filter as it was done elsewhere, as far as the same is here."""
        for n, is_whole in kept.unfolded:
            if n in self.tree.lines:
                self.tree.lines[n].is_open = True
                self.tree.lines[n].is_whole = is_whole
        for point in self.tree.live:
            point.folded = point.uid in kept.folded
        self.rows.filter(kept.typed)
        self.revision += 1

    def set_bookmark(self, uid: str, name: str) -> None:
        """Show a bookmark at a checkpoint, on whatever line it is; an empty name takes it away."""
        if name:
            self.bookmarks[uid] = one_line(name)
        else:
            self.bookmarks.pop(uid, None)
        for points in (self.tree.live, *(line.points for line in self.tree.lines.values())):
            for point in points:
                if point.uid == uid:
                    point.bookmark = self.bookmarks.get(uid, "")
                    point.touch()
        if self.rows.needle:
            self.rows.reset()
        self.revision += 1

    def set_pins(self, uids: frozenset[str]) -> None:
        """Show at which checkpoints a message is pinned."""
        self.pins = uids
        for points in (self.tree.live, *(line.points for line in self.tree.lines.values())):
            for point in points:
                if point.pinned != (point.uid in uids):
                    point.pinned = not point.pinned
                    point.touch()
        self.revision += 1

    def toggle(self, row: Row) -> Key | None:
        """Fold or unfold what this row stands for; returns the key of the row that should be selected then."""
        self.revision += 1
        if row.line is not None:
            line = row.line
            if row.kind == "more":
                line.is_whole = True
                self.rows.reopen(row)
                return line.row_key
            line.is_open = not line.is_open
            line.is_whole = line.is_whole and line.is_open
            self.rows.reopen(row)
            return line.row_key
        if row.point is None:
            return None
        heading = self.rows.heading_of(row.point.index)
        if heading is None:
            return None
        heading.folded = not heading.folded
        heading.touch()
        self.rows.refold(heading)
        return heading.row_key

    def reveal(self, point: Point) -> Key | None:
        """Unfold the compacted line as far as this checkpoint needs it; returns the key of the row that stands for it."""
        live = self.tree.live
        base = self.tree.base(live[0]) if live else None
        if base is None:
            return None
        if point not in base.points:
            return base.row_key
        if not (base.is_open and (base.is_whole or point in base.points[1 - SHORT :])):
            base.is_open = base.is_whole = True
            self.rows.reset()
            self.revision += 1
        return point.row_key

    def filter(self, needle: str) -> None:
        """Show only rows that hold the text."""
        self.rows.filter(needle)
        self.revision += 1

    def search(self, needle: str) -> Iterator[None]:
        """The same in small pieces, for as many checkpoints as there may be."""
        yield from self.rows.search(needle)
        self.revision += 1

"""Pictures of a screen that are made of the rows that changed and that nothing covers.

Textual has every widget of the screen make all of its rows for any picture, a typed letter or a turning spinner as
well, and those of what is wholly covered too: a screen, and each pane below another one. It writes those that changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

from textual._compositor import ChopsUpdate, Compositor
from textual.geometry import Region
from textual.screen import Screen
from textual.strip import Strip


class RowCompositor(Compositor):
    """Asks the widgets for no rows but those that are seen, and of them only those that changed."""

    def __init__(self) -> None:
        super().__init__()
        self._changed: tuple[Region, ...] = ()
        """Where it did; empty for everywhere."""

    def render_partial_update(self) -> ChopsUpdate | None:
        """The picture of what changed; None where nothing did."""
        self._changed = tuple(self._dirty_regions)
        try:
            return super().render_partial_update()
        finally:
            self._changed = ()

    def _get_renders(
        self, crop: Region | None = None
    ) -> Iterable[tuple[Region, Region, list[Strip]]]:
        """The rows of each widget, from the one in front: what was filled before is not filled again."""
        covered = [0] * self.size.height
        """A bit for each cell of each row of the screen."""
        for widget, (region, clip) in self.visible_widgets.items():
            seen = region.intersection(clip)
            cells = ((1 << seen.width) - 1) << seen.x
            for rows in _runs([y for y in self._changed_rows(seen) if cells & ~covered[y]]):
                within = Region(seen.x - region.x, rows.start - region.y, seen.width, len(rows))
                strips = widget.render_lines(within)
                for y in rows[: len(strips)]:
                    covered[y] |= cells
                yield Region(seen.x, rows.start, seen.width, len(rows)), clip, strips

    def _changed_rows(self, seen: Region) -> Sequence[int]:
        """The rows of the screen in which something of a region changed, from the top."""
        if not self._changed:
            return seen.line_range
        parts = (seen.intersection(one) for one in self._changed)
        return sorted({y for part in parts if part for y in part.line_range})


def _runs(rows: Sequence[int]) -> Iterator[range]:
    """Ascending numbers as runs without a gap."""
    for _, group in groupby(enumerate(rows), lambda pair: pair[1] - pair[0]):
        run = [y for _, y in group]
        yield range(run[0], run[-1] + 1)


def draw_changed_rows(screen: Screen[Any]) -> None:
    """Let a screen that was not shown yet be drawn so."""
    screen._compositor = RowCompositor()  # pyright: ignore[reportPrivateUsage]

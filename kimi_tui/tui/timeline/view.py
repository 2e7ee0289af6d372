"""Which line of the screen shows which row: the areas above, within and below the list, scrolling left aside.

Pure geometry and look-ups over the model; the widget draws what this says and asks it what a click means.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kimi_tui.tui.timeline.building import Row
from kimi_tui.tui.timeline.points import NOW, Key, Point, WorldLine

if TYPE_CHECKING:
    from kimi_tui.tui.timeline.model import TimelineModel


FACTS = 6
"""Lines for the facts about a row: an empty one above and below."""


@dataclass(frozen=True, slots=True)
class Areas:
    """How many lines stand above the list and below it, and how high the curve is (without its marks)."""

    title: int
    curve: int
    header: int
    footer: int

    @classmethod
    def of(
        cls,
        screen_height: int,
        height: int,
        *,
        n_rows: int,
        overlay: bool,
        filtering: bool,
        selecting: bool,
    ) -> Areas:
        """The areas for a screen and a widget of these heights.

        Args:
            screen_height: decides how much room the curve and the facts may take.
            height: of the widget.
            n_rows: of the list; 0 where nothing has happened yet.
            overlay: the title stands in the frame around it.
            filtering: the title row is the filter's.
            selecting: a row is selected, so its facts take their room; else only where nothing is hidden by them.
        """
        curve = 0 if n_rows == 0 else 3 if screen_height >= 32 else 2 if screen_height >= 24 else 0
        if height < curve + 12:
            curve = 0
        title = 1 if filtering or not overlay else 0
        header = title + (1 if title and (not overlay or curve) else 0)
        header += curve + 2 if curve else 0
        has_room = screen_height >= 32 and height >= 28 and n_rows > 0
        footer = FACTS if has_room and (selecting or header + n_rows + FACTS <= height) else 0
        return cls(title, curve, header, footer)

    def list_height(self, height: int) -> int:
        """Lines for rows."""
        return max(0, height - self.header - self.footer)


class Listing:
    """The model's rows counted from the newest, with the row for now where that is not a checkpoint itself.

    While a fold is shown in motion, `scene` holds what was taken away: those rows stand where they stood before.
    """

    def __init__(self, model: TimelineModel) -> None:
        self.model = model
        self.scene: WorldLine | None = None

    def __len__(self) -> int:
        return self._n_above + self._n_rows

    @property
    def _n_above(self) -> int:
        if self.scene is not None:
            return len(self.scene.points)
        return 0 if self.model.knows_now or self.model.rows.needle else 1

    @property
    def _n_rows(self) -> int:
        rows = self.model.rows
        if self.scene is None:
            return len(rows)
        # While it folds, what came after is not there yet, nor is the row of the new world line.
        first = self.scene.points[0].index if self.scene.points else 0
        at = rows.index_of_order(2 * first - 1)
        while (
            at < len(rows) and rows[at].order == 2 * first - 1 and rows[at].line is not self.scene
        ):
            at += 1
        return at

    def row(self, position: int) -> Row | None:
        """The row at a position from the top; None for now (and outside)."""
        above = self._n_above
        if position < above:
            if self.scene is None or position < 0:
                return None
            point = self.scene.points[above - 1 - position]
            return Row("point", 2 * point.index, point=point)
        index = self._n_rows - 1 - (position - above)
        return self.model.rows[index] if index >= 0 else None

    def key(self, position: int) -> Key | None:
        """What stands at a position; None for gaps and outside."""
        if not 0 <= position < len(self):
            return None
        row = self.row(position)
        if row is None:
            return NOW
        return None if row.kind == "gap" else row.key

    def position(self, key: Key | None, hint: int = -1) -> int | None:
        """Where a key stands; `hint` is what `from_oldest` said of it last."""
        if key is None:
            return None
        if key == NOW:
            return 0 if self._n_above and self.scene is None else None
        rows = self.model.rows
        index = rows.index_of(key, hint)
        return None if index is None else self._n_above + self._n_rows - 1 - index

    def from_oldest(self, position: int) -> int:
        """The same place counted from the oldest row, which stays as it is while rows arrive."""
        return self._n_rows - 1 - (position - self._n_above)

    def position_of_point(self, point: Point) -> int | None:
        """Where a checkpoint of the live line stands; a folded one where its turn does."""
        rows = self.model.rows
        index = rows.index_of_point(point)
        if index is None:
            heading = rows.heading_of(point.index)
            index = rows.index_of_point(heading) if heading is not None else None
        return None if index is None else self._n_above + self._n_rows - 1 - index

    def heading_below(self, position: int) -> tuple[int, Row] | None:
        """The heading of the turn that the row at a position belongs to, with where it stands."""
        row = self.row(position)
        if row is None:
            return None
        model = self.model
        index = row.order // 2
        if not 0 <= index < len(model.tree.live):
            return None
        heading = model.rows.heading_of(index)
        if heading is None:
            return None
        at = self.position_of_point(heading)
        found = self.row(at) if at is not None else None
        return (at, found) if at is not None and found is not None else None

    def turn(self, position: int, step: int) -> int | None:
        """The position of the next heading above (`step` -1) or below (1) a position."""
        live = self.model.tree.live
        headings = self.model.rows.headings
        row = self.row(position)
        order = row.order if row is not None else 2 * len(live)
        below = bisect_left(headings, order / 2) - 1
        at = below if step > 0 else bisect_right(headings, order / 2)
        if not 0 <= at < len(headings):
            return None
        return self.position_of_point(live[headings[at]])

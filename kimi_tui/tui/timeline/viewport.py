"""What a timeline shows at this moment: which row stands on which line of the widget, what is selected, how much room there is.

Plain state and geometry without Textual: the widget keeps it up to date, the painter reads it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kimi_tui.projection.timeline import TimelineModel
from kimi_tui.projection.timeline_rows import Row
from kimi_tui.projection.timeline_tree import NOW, Checkpoint, Future, Key, WorldLine
from kimi_tui.tui.glyphs import UNICODE, Glyphs
from kimi_tui.tui.timeline.rows import Columns

DETAILS = 6
"""Lines for the details of a row: an empty one above and below."""


@dataclass(frozen=True, slots=True)
class Areas:
    """How many lines stand above the list and below it, how many it has, and how high the curve is (without its marks)."""

    title: int
    curve: int
    header: int
    footer: int
    list_height: int

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
            screen_height: decides how much room the curve and the details may take.
            height: of the widget.
            n_rows: of the list; 0 where nothing has happened yet.
            overlay: the title stands in the frame around it.
            filtering: the title row is the filter's.
            selecting: a row is selected, so its details take their room; else only where nothing is hidden by them.
        """
        curve = 0 if n_rows == 0 else 3 if screen_height >= 32 else 2 if screen_height >= 24 else 0
        if height < curve + 12:
            curve = 0
        title = 1 if filtering or not overlay else 0
        header = title + (1 if title and (not overlay or curve) else 0)
        header += curve + 2 if curve else 0
        has_room = screen_height >= 32 and height >= 28 and n_rows > 0
        footer = DETAILS if has_room and (selecting or header + n_rows + DETAILS <= height) else 0
        return cls(title, curve, header, footer, max(0, height - header - footer))


class Listing:
    """A model's rows counted from the newest, with the row for now where that is not a checkpoint itself; none before the first.

    While a revert is shown in motion, `scene` is the line that it took away: its rows stand where they stood before.
    """

    def __init__(self, model: TimelineModel) -> None:
        self.model = model
        self.scene: WorldLine | None = None

    def __len__(self) -> int:
        return self._n_above + self._n_rows

    @property
    def _n_above(self) -> int:
        """Rows that are not among the model's."""
        if self.scene is not None:
            return len(self.scene.checkpoints)
        model = self.model
        if not (model.tree.live or model.tree.lines):
            return 0
        # While a turn runs its newest checkpoint is now itself.
        return 0 if (model.running and model.tree.live) or model.rows.needle else 1

    @property
    def _n_rows(self) -> int:
        rows = self.model.rows
        if self.scene is None:
            return len(rows)
        # While it is taken away, what came after is not there yet, nor is the row of the new world line.
        first = self.scene.checkpoints[0].index if self.scene.checkpoints else 0
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
            checkpoint = self.scene.checkpoints[above - 1 - position]
            return Row("checkpoint", 2 * checkpoint.index, checkpoint=checkpoint)
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

    def position(self, key: Key | None) -> int | None:
        """Where a key stands; None where it does not."""
        if key is None:
            return None
        if key == NOW:
            return 0 if self._n_above and self.scene is None else None
        index = self.model.rows.index_of(key)
        return None if index is None else self._n_above + self._n_rows - 1 - index

    def position_of(self, checkpoint: Checkpoint) -> int | None:
        """Where a checkpoint of the live line stands; a folded one where its turn does."""
        rows = self.model.rows
        index = rows.index_of_checkpoint(checkpoint)
        if index is None:
            heading = rows.heading_of(checkpoint.index)
            index = rows.index_of_checkpoint(heading) if heading is not None else None
        return None if index is None else self._n_above + self._n_rows - 1 - index

    def heading_below(self, position: int) -> tuple[int, Row] | None:
        """The heading of the turn that the row at a position belongs to, with where it stands."""
        row = self.row(position)
        if row is None:
            return None
        index = row.order // 2
        if not 0 <= index < len(self.model.tree.live):
            return None
        heading = self.model.rows.heading_of(index)
        at = self.position_of(heading) if heading is not None else None
        if at is None or heading is None:
            return None
        # What was said before a D-Mail stands below it.
        at += 1 if heading.n_carried and self.model.rows.needle == "" else 0
        found = self.row(at)
        return (at, found) if found is not None else None

    def turn(self, position: int, step: int) -> int | None:
        """The position of the next message of the user above (`step` -1) or below (1) a position."""
        newest = self._n_above + self._n_rows - 1
        found = self.model.rows.words_near(min(newest - position, self._n_rows), -step)
        return None if found is None else newest - found

    def branch(self, position: int, step: int) -> int | None:
        """The position of the next row above (`step` -1) or below (1) that bears a world line's name."""
        end = len(self) if step > 0 else -1
        rows = ((at, self.row(at)) for at in range(position + step, end, step))
        return next((at for at, row in rows if row is not None and row.names_line), None)

    def near(self, position: int, step: int) -> Key | None:
        """The first row that can be selected at or after a position, going by `step`, then the other way."""
        start = max(0, min(position, len(self) - 1))
        for direction in (step, -step):
            at = start
            while 0 <= at < len(self):
                key = self.key(at)
                if key is not None:
                    # It will be looked for next.
                    self.model.rows.expect(self._n_rows - 1 - (at - self._n_above))
                    return key
                at += direction
        return None


@dataclass(slots=True)
class Viewport:
    """The state of one timeline on the screen.

    Attributes:
        listing: the rows that are shown; empty before the session is open.
        selected, hovered: the keys of those rows.
        looking: whether the user looks at what a rewind to the selected row would take.
        filtering: the filter is being typed.
        shows_keys: the list of keys stands in place of the rows.
        overlay: it floats in a frame that bears its title.
        width, height: cells for drawing; `full_width` with the scrollbar's.
        screen_height: rows of the whole screen.
        scroll_y: how many rows are scrolled away at the top.
        revert_progress: how far the motion of a revert has come, from 0 to 1.
        title: stands beside the word Timeline in place of the number of steps.
        reading: stands in the empty list while a session is read; else that is a hint for new users.
        future: what is to come where a session is played back; None where the newest checkpoint is now.
    """

    listing: Listing = field(default_factory=lambda: Listing(TimelineModel()))
    selected: Key | None = None
    hovered: Key | None = None
    looking: bool = False
    filtering: bool = False
    shows_keys: bool = False
    has_focus: bool = False
    overlay: bool = False
    width: int = 0
    full_width: int = 0
    height: int = 0
    screen_height: int = 0
    scroll_y: int = 0
    revert_progress: float = 1.0
    glyphs: Glyphs = UNICODE
    title: str = ""
    reading: str = ""
    future: Future | None = None

    def show(self, model: TimelineModel) -> None:
        """Show another model, with nothing selected."""
        self.listing = Listing(model)
        self.selected = self.hovered = None
        self.filtering = self.shows_keys = self.looking = False

    @property
    def is_filtered(self) -> bool:
        """Whether the title row is the filter's."""
        return self.filtering or bool(self.listing.model.rows.needle)

    @property
    def areas(self) -> Areas:
        """What stands above and below the list."""
        return Areas.of(
            self.screen_height,
            self.height,
            n_rows=len(self.listing),
            overlay=self.overlay,
            filtering=self.is_filtered,
            selecting=self.selected is not None,
        )

    @property
    def columns(self) -> Columns:
        """Where things stand in a row."""
        head = self.listing.model.tree.head
        digits = len(str(head.id)) if head is not None else 2
        # The scrollbar stands in the margin of a wide row; a narrow one has to make room.
        width = self.full_width if self.full_width >= 35 else self.width
        return Columns.of(width, digits=digits, margin=1 if self.overlay else 2)

    def sticky(self, areas: Areas) -> tuple[int, Row] | None:
        """The heading of the lowest visible turn, where it is scrolled away: it is held on the lowest line."""
        height = areas.list_height
        last = self.scroll_y + height - 1
        if height < 3 or last >= len(self.listing) - 1:
            return None
        found = self.listing.heading_below(last)
        return found if found is not None and found[0] > last else None

    def position_at(self, y: int) -> int | None:
        """The position of the row on a line of the widget."""
        areas = self.areas
        height = areas.list_height
        line = y - areas.header
        if self.shows_keys or not 0 <= line < height:
            return None
        sticky = self.sticky(areas)
        if sticky is not None and line == height - 1:
            return sticky[0]
        position = line + self.scroll_y
        return position if position < len(self.listing) else None

    def selected_position(self) -> int | None:
        """Where the selected row stands now; None where nothing is selected, or it is gone."""
        return self.listing.position(self.selected)

    def selected_row(self) -> Row | None:
        """The selected row; None also where that is now."""
        position = self.selected_position()
        return self.listing.row(position) if position is not None else None

    def scroll_to_show(self, position: int) -> int:
        """The scroll offset at which a row is seen, as near to the present one as can be."""
        areas = self.areas
        height = max(1, areas.list_height)
        # The lowest line may be taken by a heading that is held there.
        last = self.scroll_y + height - (2 if self.sticky(areas) is not None else 1)
        if position < self.scroll_y:
            return position
        return position - height + 2 if position > last else self.scroll_y

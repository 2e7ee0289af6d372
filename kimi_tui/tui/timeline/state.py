"""What a timeline shows at this moment: its model, its size, what is selected, and where everything stands.

Plain state and geometry without Textual: the widget keeps it up to date, the drawing reads it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kimi_tui.tui.glyphs import UNICODE, Glyphs
from kimi_tui.tui.timeline.building import Row
from kimi_tui.tui.timeline.paint import Columns
from kimi_tui.tui.timeline.points import Future, Key
from kimi_tui.tui.timeline.view import Areas, Listing

if TYPE_CHECKING:
    from kimi_tui.tui.timeline.model import TimelineModel


@dataclass(slots=True)
class ViewState:
    """The state.

    Attributes:
        model, listing: what is shown; None before the session is open.
        selected, hovered: the keys of those rows.
        filtering: the filter is being typed.
        show_keys: the list of keys stands in place of the rows.
        overlay: it floats in a frame that bears its title.
        width, height: cells for drawing; `full_width` with the scrollbar's.
        screen_height: rows of the whole screen.
        scroll_y: how many rows are scrolled away at the top.
        fold_progress: how far the motion of a fold has come, from 0 to 1.
    """

    model: TimelineModel | None = None
    listing: Listing | None = None
    selected: Key | None = None
    hovered: Key | None = None
    filtering: bool = False
    show_keys: bool = False
    has_focus: bool = False
    overlay: bool = False
    width: int = 0
    full_width: int = 0
    height: int = 0
    screen_height: int = 0
    scroll_y: int = 0
    fold_progress: float = 1.0
    glyphs: Glyphs = UNICODE
    title: str = ""
    """Stands beside the word Timeline in place of the number of steps."""
    future: Future | None = None
    """What is to come where a session is played back; None where the newest checkpoint is now."""
    hint: int = -1
    """Where the selected row stood last, from the oldest."""

    def show(self, model: TimelineModel | None) -> None:
        """Show another model, with nothing selected."""
        self.model = model
        self.listing = Listing(model) if model is not None else None
        self.selected = self.hovered = None
        self.filtering = self.show_keys = False

    @property
    def is_empty(self) -> bool:
        """Whether nothing has happened yet."""
        model = self.model
        return model is None or not (model.tree.live or model.tree.lines)

    @property
    def is_filtered(self) -> bool:
        """Whether the title row is the filter's."""
        return self.filtering or bool(self.model is not None and self.model.rows.needle)

    @property
    def areas(self) -> Areas:
        """What stands above and below the list."""
        return Areas.of(
            self.screen_height,
            self.height,
            n_rows=0 if self.is_empty or self.listing is None else len(self.listing),
            overlay=self.overlay,
            filtering=self.is_filtered,
            selecting=self.selected is not None,
        )

    @property
    def list_height(self) -> int:
        """Lines for rows."""
        return self.areas.list_height(self.height)

    @property
    def columns(self) -> Columns:
        """Where things stand in a row."""
        head = self.model.head if self.model is not None else None
        digits = len(str(head.id)) if head is not None else 2
        # The scrollbar stands in the margin of a wide row; a narrow one has to make room.
        width = self.full_width if self.full_width >= 35 else self.width
        return Columns.of(width, digits=digits, margin=1 if self.overlay else 2)

    @property
    def curve_width(self) -> int:
        """Cells for the title and the curve, from column 1 on."""
        columns = self.columns
        return max(1, columns.level if columns.level >= 0 else columns.width - 1)

    def sticky(self, areas: Areas) -> tuple[int, Row] | None:
        """The heading of the lowest visible turn, where it is scrolled away."""
        height = areas.list_height(self.height)
        if self.listing is None or height < 3:
            return None
        last = self.scroll_y + height - 1
        if last >= len(self.listing) - 1:
            return None
        found = self.listing.heading_below(last)
        return found if found is not None and found[0] > last else None

    def position_at(self, y: int) -> int | None:
        """The position of the row on a line of the widget."""
        areas = self.areas
        height = areas.list_height(self.height)
        line = y - areas.header
        if self.listing is None or self.show_keys or not 0 <= line < height:
            return None
        sticky = self.sticky(areas)
        if sticky is not None and line == height - 1:
            return sticky[0]
        position = line + self.scroll_y
        return position if position < len(self.listing) else None

    def selected_position(self) -> int | None:
        """Where the selected row stands now."""
        if self.listing is None:
            return None
        position = self.listing.position(self.selected, self.hint)
        if position is not None:
            self.hint = self.listing.from_oldest(position)
        return position

    def start_position(self) -> int | None:
        """Where a selection begins: at the newest turn."""
        if self.listing is None or len(self.listing) == 0:
            return None
        found = self.listing.turn(-1, 1)
        return found if found is not None else 0

    def near(self, position: int, step: int) -> Key | None:
        """The first row that can be selected at or after a position, going by `step`, then the other way."""
        listing = self.listing
        if listing is None:
            return None
        start = max(0, min(position, len(listing) - 1))
        for direction in (step, -step):
            at = start
            while 0 <= at < len(listing):
                key = listing.key(at)
                if key is not None:
                    return key
                at += direction
        return None

    def scroll_to_show(self, position: int) -> int:
        """The scroll offset at which a row is seen, as near to the present one as can be."""
        areas = self.areas
        height = max(1, areas.list_height(self.height))
        # The lowest line may be taken by a heading that is held there.
        last = self.scroll_y + height - (2 if self.sticky(areas) is not None else 1)
        if position < self.scroll_y:
            return position
        if position > last:
            return position - height + 2
        return self.scroll_y

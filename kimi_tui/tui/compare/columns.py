"""Widgets that draw rows of spans and let one of them be selected: the two sides, and the files under them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.color import Color
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from kimi_tui.tui.app_of import app_of
from kimi_tui.tui.compare.model import Cell, Comparison, Sheet, Side, Span, file_rows
from kimi_tui.tui.glyphs import glyphs_of
from kimi_tui.tui.preview.words import fitted
from kimi_tui.tui.scrollbar import use_thin_scrollbar

if TYPE_CHECKING:
    from kimi_tui.soul.protocol import FilesPreview

SIDES: tuple[Side, Side] = ("other", "live")
_STYLES = (
    "page",
    "band",
    "select",
    "ink",
    "strong",
    "quiet",
    "accent",
    "tool",
    "dmail",
    "compaction",
    "error",
    "ok",
    "line",
    "added",
    "removed",
)


class Rows(ScrollView, can_focus=False):
    """Rows of spans, drawn as they are seen."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {f"compare--{name}" for name in _STYLES}

    class Clicked(Message):
        """A row was clicked."""

        def __init__(self, rows: Rows, x: int, row: int) -> None:
            super().__init__()
            self.rows = rows
            self.x = x
            self.row = row

    def __init__(self) -> None:
        super().__init__()
        self._styles: dict[str, Style] = {}

    def on_mount(self) -> None:
        """Take the thin scrollbar."""
        use_thin_scrollbar(self, glyphs_of(app_of(self)))

    @property
    def width(self) -> int:
        """Cells to draw on, the scrollbar's included."""
        return self.outer_size.width or app_of(self).size.width

    def spans_of(self, row: int) -> list[tuple[Span, str]]:
        """The spans of a row, each with the name of its ground."""
        raise NotImplementedError

    def notify_style_update(self) -> None:
        """Colours may have changed."""
        super().notify_style_update()
        self._styles.clear()

    def style(self, name: str, ground: str) -> Style:
        """A colour on a ground."""
        key = f"{name}@{ground}"
        if key not in self._styles:
            base = self.rich_style
            for part in (ground, name):
                base += self.get_component_rich_style(f"compare--{part}", partial=True)
            self._styles[key] = base
        return self._styles[key]

    def render_lines(self, crop: Region) -> list[Strip]:
        """The visible rows of a region, with the app's filters applied."""
        top, width = round(self.scroll_y), self.width
        filters = [one for one in self.get_line_filters() if one.enabled]
        page = self.style("ink", "page")
        back = Color(0, 0, 0) if page.bgcolor is None else Color.from_rich_color(page.bgcolor)
        strips: list[Strip] = []
        for y in range(crop.y, crop.bottom):
            spans = self.spans_of(top + y) if top + y < self.virtual_size.height else []
            strip = Strip([Segment(text, self.style(name, on)) for (text, name), on in spans])
            strip = strip.adjust_cell_length(width, page)
            for one in filters:
                strip = strip.apply_filter(one, back)
            strips.append(strip.crop(crop.x, crop.right))
        return strips

    def on_click(self, event: events.Click) -> None:
        """Tell where."""
        self.post_message(self.Clicked(self, event.x, round(self.scroll_y) + event.y))

    def show_rows(self, first: int, last: int) -> None:
        """Bring rows into view, the first of them above all."""
        height, top = self.size.height, round(self.scroll_y)
        if first < top:
            top = first
        elif last >= top + height:
            top = min(first, last - height + 1)
        self.scroll_to(y=top, animate=False)


class CompareSides(Rows):
    """The messages of both sides.

    Args:
        comparison: what is compared.

    Attributes:
        side: which side the keys act on.
        focused_here: whether they act here at all.
    """

    def __init__(self, comparison: Comparison) -> None:
        super().__init__()
        self.comparison = comparison
        self.side: Side = "other"
        self.focused_here = True
        self._selected: dict[Side, int] = {"other": 0, "live": 0}
        self._sheet = Sheet()

    @property
    def selected(self) -> int:
        """The index of the selected message on the side that the keys act on."""
        return self._selected[self.side]

    def on_resize(self) -> None:
        """Other widths have other rows."""
        self.lay_out()

    def column_width(self) -> int:
        """How wide each side is."""
        return (self.width - 1) // 2

    def lay_out(self) -> None:
        """Make the rows anew."""
        self._sheet = self.comparison.sheet(self.column_width(), glyphs_of(app_of(self)))
        self.virtual_size = Size(self.size.width, len(self._sheet.rows))
        self.refresh()

    def select(self, index: int) -> None:
        """Select a message of the side."""
        entries = self.comparison.sides[self.side]
        if entries:
            index = max(0, min(index, len(entries) - 1))
            self._selected[self.side] = index
            starts = self._sheet.starts[self.side]
            first = starts[index]
            last = starts[index + 1] - 1 if index + 1 < len(starts) else len(self._sheet.rows) - 1
            self.show_rows(first, min(last, first + max(0, self.size.height - 1)))
        self.refresh()

    def toggle(self) -> None:
        """Show the selected message whole, or short again."""
        key: tuple[Side, int] = (self.side, self.selected)
        self.comparison.unfolded.symmetric_difference_update([key])
        self.lay_out()
        self.select(self.selected)

    def choose_at(self, x: int, row: int) -> None:
        """Select what was clicked."""
        self.side = SIDES[x > self.column_width()]
        if 0 <= row < len(self._sheet.rows):
            index = self._sheet.rows[row][SIDES.index(self.side)].entry
            if index >= 0:
                self._selected[self.side] = index
        self.refresh()

    def spans_of(self, row: int) -> list[tuple[Span, str]]:
        """Both sides and the divider."""
        left, right = self._sheet.rows[row]
        width = self.column_width()
        glyphs = glyphs_of(app_of(self))
        return [
            *self._cell("other", left, row, width, glyphs.edge),
            ((glyphs.step, "line"), "page"),
            *self._cell("live", right, row, self.width - width - 1, glyphs.edge),
        ]

    def _cell(
        self, side: Side, cell: Cell, row: int, width: int, edge: str
    ) -> Iterable[tuple[Span, str]]:
        ground = "band" if cell.is_band else "page"
        spans = fitted(list(cell.spans), width)
        index = self._selected[side]
        is_first = cell.entry == index and row == self._sheet.starts[side][index]
        if is_first and side == self.side:
            ground = "select" if self.focused_here else "band"
            first, *rest = spans
            mark: Span = (edge, "accent" if self.focused_here else "quiet")
            spans = [mark, (first[0][1:], first[1]), *rest]
        return [(span, ground) for span in spans]


class CompareFiles(Rows):
    """The files that differ."""

    def __init__(self, files: FilesPreview) -> None:
        super().__init__()
        self._files = files
        self._unfolded: frozenset[int] = frozenset()
        self._rows: list[tuple[list[Span], int]] = []
        self.selected = 0
        self.focused_here = False

    @property
    def count(self) -> int:
        """How many files there are."""
        return len(self._files.files) if not self._files.reason else 0

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """As many rows as there are."""
        self._make()
        return len(self._rows)

    def _make(self) -> None:
        glyphs = glyphs_of(app_of(self))
        self._rows = file_rows(self._files, self._unfolded, self.width, glyphs)

    def on_resize(self) -> None:
        """Other widths have other rows."""
        self.lay_out()

    def lay_out(self) -> None:
        """Make the rows anew."""
        self._make()
        self.virtual_size = Size(self.size.width, len(self._rows))
        self.refresh()

    def select(self, index: int) -> None:
        """Select a file."""
        self.selected = max(0, min(index, self.count - 1))
        row = next((i for i, (_, at) in enumerate(self._rows) if at == self.selected), 0)
        self.show_rows(row, row)
        self.refresh()

    def toggle(self) -> None:
        """Show the diff of the selected file, or hide it."""
        self._unfolded ^= {self.selected}
        self.lay_out()
        self.refresh(layout=True)

    def choose_at(self, row: int) -> None:
        """Select what was clicked, and show its diff."""
        if 0 <= row < len(self._rows) and self._rows[row][1] >= 0:
            self.selected = self._rows[row][1]
            self.toggle()

    def spans_of(self, row: int) -> list[tuple[Span, str]]:
        """One row."""
        spans, index = self._rows[row]
        if index != self.selected or index < 0 or not self.focused_here:
            return [(span, "page") for span in spans]
        edge: Span = (glyphs_of(app_of(self)).edge, "accent")
        first, *rest = fitted(spans, self.width)
        return [(span, "select") for span in (edge, (first[0][1:], first[1]), *rest)]

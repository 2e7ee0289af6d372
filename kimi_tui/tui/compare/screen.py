"""The screen that compares a world line with the live line: messages from the fork on, and files. Its result is an action."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple, Protocol, Unpack

from rich.cells import cell_len
from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, VerticalScroll
from textual.geometry import Offset, Region, Size
from textual.message import Message
from textual.screen import ScreenResultType
from textual.scroll_view import ScrollView
from textual.selection import Selection
from textual.strip import Strip
from textual.widget import Widget

from kimi_tui.projection.blocks import Block, images_of
from kimi_tui.projection.comparison import Comparison, Side
from kimi_tui.tui import formatting
from kimi_tui.tui.compare.layout import ComparedFiles, ComparisonRows
from kimi_tui.tui.faults import blank_strips, reported
from kimi_tui.tui.frame import Footer, Header
from kimi_tui.tui.frame_rows import SHORT_BELOW, HeaderText, Hint, roomiest, timeline_width
from kimi_tui.tui.gauge import Gauge
from kimi_tui.tui.glyphs import Glyphs, glyphs_of
from kimi_tui.tui.keyboard import LetterGate
from kimi_tui.tui.notices import NoticeDetails, NoticingPane
from kimi_tui.tui.painter import PaintedWidget, Painter
from kimi_tui.tui.pictures import LoadImage, Thumbnails, draws_cells
from kimi_tui.tui.row_list import Look, PaintedRows, RowList, RowModel
from kimi_tui.tui.row_window import ListState, RowWindow
from kimi_tui.tui.rows import BLANK, LayoutRoom, Line, Span, fitted, sides, spans_width
from kimi_tui.tui.screens import AnswersOnce, app_of, sheets
from kimi_tui.tui.scrollbar import use_thin_scrollbar
from kimi_tui.tui.transcript.selection import select_piece, selected_text, with_selection
from kimi_tui.tui.transcript.transcript import LOW_ROWS, LOWEST_ROWS
from kimi_tui.tui.world_line_view import left_when

if TYPE_CHECKING:
    from kimi_tui.session.world_lines import WorldLine
    from kimi_tui.soul.world_line_reader import WorldLineComparison
    from kimi_tui.tool_cards import ImageBlock


MARGIN = 2
LONG_HINTS = (
    ("Tab", "other side"),
    ("n", "next difference"),
    ("Enter", "expand"),
    ("j", "switch here"),
    ("s", "copy message to current"),
    ("Esc", "back"),
)
_SHORT = {"n": "next", "s": "copy"}
HINTS = tuple((key, _SHORT.get(key, meaning)) for key, meaning in LONG_HINTS)
SLICE_S = 0.003
"""Seconds of a time slice of measuring, after which keys and frames are handled."""
LEAST_COLUMN = 24
"""Cells of a column below which not all sides of a comparison are shown."""


def _on(spans: Iterable[Span], ground: str) -> list[Span]:
    """Return the spans, with a background for those that have none of their own."""
    return [
        one if "@" in one.style else one._replace(style=f"{one.style}@{ground}") for one in spans
    ]


def _chosen(spans: Sequence[Span], edge: Span, ground: str) -> list[Span]:
    """Return the spans of a chosen row: an edge in the first cell, and the background of the choice instead of all others."""
    first, *rest = spans
    spans = (edge, first._replace(text=first.text[1:]), *rest)
    return [one._replace(style=f"{one.style.partition('@')[0]}@{ground}") for one in spans]


class CompareSides(PaintedWidget, ScrollView, can_focus=False):
    """The blocks of world lines in columns, from the fork on. Without room for all columns, those around the current side are shown.

    Args:
        comparison: the blocks of all sides.
        load_image: reads an image; None if images are only named.

    Attributes:
        side: the side that the keys act on.
        focused_here: whether the keys act on this pane.
    """

    ALLOW_SELECT = False
    """False: Textual's own text selection would span both columns; `get_selection` replaces it."""
    COMPONENT_CLASSES: ClassVar[set[str]] = PaintedRows.COMPONENT_CLASSES

    class Clicked(Message):
        """A row was clicked."""

        def __init__(self, x: int, row: int) -> None:
            super().__init__()
            self.x = x
            self.row = row

    def __init__(self, comparison: Comparison, load_image: LoadImage | None = None) -> None:
        super().__init__()
        self._painter = Painter(self, "rows", blank="ink")
        self._load_image = load_image
        self._thumbnails: Thumbnails | None = None
        self.comparison = comparison
        self.side: Side = comparison.names[0]
        self.focused_here = True
        # Nothing is chosen at first, so that a jump means the whole line.
        self._lists: dict[Side, ListState] = {side: ListState() for side in comparison.names}
        self._block_rows: ComparisonRows | None = None

    @property
    def selected(self) -> int:
        """The index of the selected message on the side that the keys act on; -1 for none."""
        chosen = self._lists[self.side].chosen
        return -1 if chosen is None else chosen

    def on_mount(self) -> None:
        """Use the thin scrollbar."""
        use_thin_scrollbar(self, glyphs_of(self))

    @property
    def width(self) -> int:
        """The width in cells, including the scrollbar."""
        return self.outer_size.width or app_of(self).size.width

    def on_resize(self) -> None:
        """Lay out the rows for the new width."""
        if self._block_rows is None or self._block_rows.width != self.column_width():
            self.lay_out()

    def show_comparison(self, comparison: Comparison) -> None:
        """Show other blocks of the same sides; the choice and the position stay."""
        self.comparison = comparison
        if self._block_rows is not None:
            self.lay_out(anew=True)

    @property
    def shown_sides(self) -> Sequence[Side]:
        """The sides that have a column, from the left."""
        names = self.comparison.names
        count = max(1, min(len(names), (self.width + 1) // (LEAST_COLUMN + 1)))
        first = max(0, min(names.index(self.side) - count // 2, len(names) - count))
        return names[first : first + count]

    def column_width(self) -> int:
        """Return the width of each column in cells; the last one may have some more."""
        count = len(self.shown_sides)
        return (self.width - count + 1) // count

    def column_of(self, side: Side) -> range:
        """Return the cells of the column of a side that is shown."""
        shown, width = self.shown_sides, self.column_width()
        at = shown.index(side)
        start = at * (width + 1)
        return range(start, self.width if at == len(shown) - 1 else start + width)

    def _side_of(self, x: int) -> Side:
        """Return the side whose column, or whose divider, is at a cell."""
        shown = self.shown_sides
        return shown[max(0, min(x // (self.column_width() + 1), len(shown) - 1))]

    def side_at(self, x: int) -> tuple[int, int]:
        """Return the column that contains a cell, without the divider and the edge of the selected block."""
        column = self.column_of(self._side_of(x))
        return (column.start + 1, column.stop)

    def lay_out(self, *, anew: bool = False) -> None:
        """Measure all rows again, in time slices, so that no key waits for a long conversation.

        Args:
            anew: whether the blocks are others, so that no height is known.
        """
        width, before = self.column_width(), None if anew else self._block_rows
        known = before.valid_heights() if before is not None and before.width == width else None
        picture = self._picture if self._load_image is not None and draws_cells(self) else None
        height = app_of(self).size.height
        room = LayoutRoom(width, height < LOW_ROWS, height < LOWEST_ROWS, glyphs_of(self), picture)
        rows = ComparisonRows(self.comparison, room, known)
        self.run_worker(
            reported(self, partial(self._measured, rows)), group="measure", exclusive=True
        )

    def _picture(self, image: ImageBlock, columns: int, rows: int) -> Sequence[tuple[Span, ...]]:
        if self._thumbnails is None and self._load_image is not None:
            self._thumbnails = Thumbnails(self, self._load_image)
        return self._thumbnails.rows(image, columns, rows) if self._thumbnails is not None else ()

    @on(Thumbnails.Ready)
    def _thumbnail_ready(self, event: Thumbnails.Ready) -> None:
        """Measure the blocks again whose image can be drawn now."""
        if self._block_rows is None:
            return
        for side in self.comparison.names:
            for index, entry in enumerate(self.comparison.sides[side]):
                if event.image in images_of(entry.block):
                    self._block_rows.outdated.add((side, index))
        self.lay_out()

    async def _measured(self, rows: ComparisonRows) -> None:
        old, selected = self._block_rows, self.selected
        top = round(self.scroll_y)
        until = time.perf_counter() + SLICE_S
        for _ in rows.measure():
            if time.perf_counter() >= until:
                # The old rows stay on the screen until as many of the new ones are known.
                if self._block_rows is rows or old is None or rows.height >= top + self.size.height:
                    self._show(rows)
                await asyncio.sleep(0)
                until = time.perf_counter() + SLICE_S
        self._show(rows)
        if selected >= 0:
            # After a change of the width or an unfolding, the selected block could extend beyond the edge.
            self.select(selected)

    def _show(self, rows: ComparisonRows) -> None:
        self._block_rows = rows
        if self.virtual_size.height != rows.height:
            self.virtual_size = Size(self.size.width, rows.height)
        self.refresh()

    def select(self, index: int) -> None:
        """Select a message of the current side; one that is not measured yet cannot be selected."""
        rows = self._block_rows
        if rows is not None and (starts := rows.starts[self.side]):
            shown = self._lists[self.side]
            shown.count = len(starts)
            shown.choose(index)
            show_rows(self, starts[self.selected], rows.last_row(self.side, self.selected))
        self.refresh()

    def toggle(self) -> None:
        """Fold or unfold the selected block."""
        side, index = self.side, self.selected
        if self._block_rows is None or index < 0:
            return
        block = self.comparison.sides[side][index].block
        block.unfolded = not block.unfolded
        self._block_rows.outdated.add((side, index))
        self.lay_out()

    def choose_at(self, x: int, row: int) -> None:
        """Select the clicked message."""
        self.side = self._side_of(x)
        if self._block_rows is not None and 0 <= row < self._block_rows.height:
            shown, index = self._lists[self.side], self._block_rows.cell(self.side, row).entry
            if index >= 0:
                shown.count = len(self._block_rows.starts[self.side])
                shown.choose(index)
        self.refresh()

    # --- drawing

    def render_lines(self, crop: Region) -> list[Strip]:
        """Return the visible rows of a region, with the app's filters applied."""
        try:
            return self._painted(crop)
        except Exception:
            return blank_strips("a comparison", crop)

    def _painted(self, crop: Region) -> list[Strip]:
        top, width = round(self.scroll_y), self.width
        strips: list[Strip] = []
        for row in range(top + crop.y, top + crop.bottom):
            strip = self._painter.strip(self._spans_of(row), width, "page")
            strips.append(with_selection(self, self._painter, strip, row, self._text_of))
        return [strip.crop(crop.x, crop.right) for strip in strips]

    def _spans_of(self, row: int) -> list[Span]:
        """Return the spans of a row: all columns, and the dividers, which extend to the end of the pane."""
        rows, divider = self._block_rows, Span(glyphs_of(self).step, "line")
        is_below = row >= self.virtual_size.height
        if rows is None and not is_below:
            return []
        spans: list[Span] = []
        for side in self.shown_sides:
            width = len(self.column_of(side))
            if spans:
                spans.append(divider)
            if rows is None or is_below:
                spans.append(Span(" " * width))
            else:
                spans += self._cell(side, rows, row, width)
        return spans

    def _cell(self, side: Side, rows: ComparisonRows, row: int, width: int) -> list[Span]:
        line, entry = rows.cell(side, row)
        spans = fitted(line.spans, width)
        if side == self.side and 0 <= entry == self.selected:
            ink, ground = ("accent", "select") if self.focused_here else ("quiet", "band")
            return _chosen(spans, Span(glyphs_of(self).edge, ink), ground)
        return _on(spans, line.fill)

    # --- the mouse

    def on_click(self, event: events.Click) -> None:
        """Post which row and cell were clicked; a second click selects the word, a third one the row."""
        at = Offset(event.x, round(self.scroll_y) + event.y)
        if not select_piece(self, event, self._text_of(at.y), at, self.side_at(at.x)):
            self.post_message(self.Clicked(at.x, at.y))

    def _text_of(self, row: int) -> str:
        spans = self._spans_of(row) if 0 <= row < self.virtual_size.height else ()
        return "".join(span.text for span in spans)

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """Return the selected text, for the clipboard."""
        return selected_text(selection, self._text_of)


def show_rows(pane: Widget, first: int, last: int) -> None:
    """Scroll rows of a pane into view; if not all fit, the first ones are shown."""
    window = RowWindow(pane.virtual_size.height, pane.size.height, round(pane.scroll_y))
    window.show(first, last)
    # Rows that have just been unfolded may have no scrollbar yet.
    pane.scroll_to(y=window.top, animate=False, force=True)


class DiffTable(RowModel, Protocol):
    """Files with diffs that can be unfolded.

    Attributes:
        unfolded: the indexes of the files whose diff is shown.
    """

    unfolded: frozenset[int]


class FileModel(RowModel):
    """The files that either side changed, each with its state on both, and the diffs that are unfolded.

    Args:
        found: the comparison.

    Attributes:
        unfolded: the indexes of the files whose diff is shown.
    """

    def __init__(self, found: WorldLineComparison) -> None:
        self._found = found
        self.unfolded: frozenset[int] = frozenset()
        self._below: list[list[Line]] = []

    def __len__(self) -> int:
        """Return the number of files."""
        files = self._found.files
        return len(files.files) if not files.reason else 0

    def table(self, width: int, glyphs: Glyphs) -> ComparedFiles:
        """Return the table for a width."""
        found = self._found
        return ComparedFiles(found.files, found.world_line, found.fork, width, glyphs)

    def rows(self, look: Look) -> Sequence[Sequence[Line]]:
        """Return the row of each file; its diff stands below it, and belongs to no entry."""
        rows: list[list[Line]] = []
        self._below = []
        for spans, index in self.table(look.width, look.glyphs).rows(self.unfolded):
            if index >= 0:
                rows.append([Line(tuple(spans))])
                self._below.append([])
            elif rows:
                self._below[-1].append(Line(tuple(spans)))
        return rows

    def below(self, index: int, look: Look) -> Sequence[Line]:
        """Return the diff of a file if it is unfolded, and the remarks below the last file."""
        del look
        return self._below[index]

    def empty(self, look: Look) -> Sequence[Line]:
        """Return the sentence in place of files."""
        rows = self.table(look.width, look.glyphs).rows(self.unfolded)
        return [Line(tuple(spans)) for spans, _ in rows]


class ComparedFileList(RowList, can_focus=False):
    """The list of the changed files."""

    ALLOW_SELECT = False
    """False: Textual's own text selection would span both columns; clicks select a word or a row."""

    model: DiffTable

    def __init__(self, model: DiffTable) -> None:
        super().__init__(model, most=max(1, len(model)))
        self.focused_here = False

    @property
    def is_focused(self) -> bool:
        """Whether the keys of the screen act on the list."""
        return self.focused_here

    def on_click(self, event: events.Click) -> None:
        """Pick the clicked file; a second click selects the word, a third one the row."""
        event.prevent_default()
        at = event.get_content_offset(self)
        if at is not None and not select_piece(self, event, self.text_of(at.y), at):
            super().on_click(event)


class CompareFiles(VerticalScroll, can_focus=False):
    """The files that either side changed, in a pane that scrolls over the diffs between them.

    Args:
        model: the files.
    """

    def __init__(self, model: DiffTable) -> None:
        super().__init__()
        self.list = ComparedFileList(model)

    def compose(self) -> ComposeResult:
        """Yield the list."""
        use_thin_scrollbar(self, glyphs_of(self))
        yield self.list

    @property
    def focused_here(self) -> bool:
        """Whether the keys of the screen act on the list."""
        return self.list.focused_here

    @focused_here.setter
    def focused_here(self, here: bool) -> None:
        self.list.focused_here = here
        self.list.refresh()

    @property
    def selected(self) -> int:
        """The index of the selected file; -1 for none."""
        chosen = self.list.state.chosen
        return -1 if chosen is None else chosen

    def select(self, index: int) -> None:
        """Select a file, and scroll to its row."""
        self.list.select(index)
        row = self.list.row_of(self.selected)
        show_rows(self, row, row)

    def toggle(self) -> None:
        """Show the diff of the selected file, or hide it."""
        model = self.list.model
        model.unfolded ^= {self.selected}
        self.set_class(bool(model.unfolded), "-open")
        self.list.refresh(layout=True)


class CompareAnswer(NamedTuple):
    """The result of the comparison screen: an action on the world line that was left.

    Attributes:
        action: `jump` makes that line live again, `send` sends one of its messages to the live line.
        block: the message to jump to before, or to send; None for the end of the line, or its newest text.
    """

    action: Literal["jump", "send"]
    block: Block | None


class CompareHead(PaintedRows):
    """Rows over the columns of a comparison: its title with a name over each side, or the heading of the files.

    Args:
        rows: makes the rows for a width in cells.
        widget_id: the widget's id.
    """

    def __init__(self, rows: Callable[[int], Sequence[Line]], widget_id: str) -> None:
        super().__init__(widget_id=widget_id)
        self._rows = rows

    def lay_out(self, width: int) -> Sequence[Line]:
        """Return the rows for a width."""
        return self._rows(width)


_LEAST_NAME = 8


class SidesScreen(AnswersOnce[ScreenResultType]):
    """The common part of screens that show messages in columns, and files below them.

    Args:
        sides: the messages.
        files: the files.
        write: called with text that is typed here and meant for the prompt.
    """

    def __init__(
        self, sides: CompareSides, files: DiffTable, write: Callable[[str], None] | None = None
    ) -> None:
        super().__init__()
        self._write = write
        self._letters = LetterGate(self, self._write_over)
        self._sides = sides
        self._pane = NoticingPane(sides)
        self._files = CompareFiles(files)
        self._footer = Footer()

    def _show(self) -> None:
        """Draw what depends on the part that the keys act on."""
        raise NotImplementedError

    def tell(self, text: str, **details: Unpack[NoticeDetails]) -> None:
        """Show a notice for a few seconds."""
        self._pane.tell(text, **details)

    def _write_over(self, text: str) -> None:
        if self._write is not None:
            self._write(text)
        self.dismiss(None)

    def action_move(self, step: int) -> None:
        """Select the message or file above or below."""
        here = self._files if self._files.focused_here else self._sides
        here.select(here.selected + step)

    def action_page(self, step: int) -> None:
        """Scroll by a page."""
        here = self._files if self._files.focused_here else self._sides
        here.scroll_relative(y=step * max(1, here.size.height - 1), animate=False)

    def action_unfold(self) -> None:
        """Show the whole message or diff, or fold it again."""
        (self._files if self._files.focused_here else self._sides).toggle()

    @on(CompareSides.Clicked)
    def _side_clicked(self, event: CompareSides.Clicked) -> None:
        """Select the clicked message, and give the keys to its side."""
        self._files.focused_here = False
        self._sides.choose_at(event.x, event.row)
        self._show()

    @on(ComparedFileList.Picked)
    def _file_picked(self) -> None:
        """Show the diff of the clicked file, and give the keys to the files."""
        self._files.focused_here = True
        self._files.toggle()
        self._show()


class CompareScreen(SidesScreen[CompareAnswer | None]):
    """Shows a world line beside the live line: messages, files, and the actions on it.

    Its result is a `CompareAnswer`; None if the user closed the screen.

    Args:
        found: the comparison as the engine computed it.
        comparison: the comparison of the blocks.
        info: facts about the line that was left.
        name: the name of that line; empty for none.
        used: tokens in the window of the live line.
        heading: the heading of the main screen.
        gauge: a gauge with the present state, shown as on the main screen.
        load_image: reads an image of a message; None if images are only named.
        write: called with text that is typed here and meant for the prompt.
        copies: whether a message of the other line can be copied to the current one.
    """

    HELP_TITLE = "Comparison"
    CSS_PATH = [*sheets("rows", "compare")]  # noqa: RUF012 - Textual declares it so
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "Row above", id="compare.up", show=False),
        Binding("down", "move(1)", "Row below", id="compare.down", show=False),
        Binding("pageup", "page(-1)", "Page up", id="compare.page_up", show=False),
        Binding("pagedown", "page(1)", "Page down", id="compare.page_down", show=False),
        Binding("tab", "side", "Other side", id="compare.side", show=False),
        Binding("n", "next", "Next difference", id="compare.next", show=False),
        Binding("enter,space", "unfold", "Unfold", id="compare.unfold", show=False),
        Binding("j", "answer('jump')", "Switch to it", id="compare.jump", show=False),
        Binding("J", "whole", "Switch to its end", id="compare.whole", show=False),
        Binding("s", "answer('send')", "Copy to current", id="compare.send", show=False),
        Binding("escape,q", "leave", "Back", id="compare.leave", show=False),
    ]

    def __init__(
        self,
        found: WorldLineComparison,
        comparison: Comparison,
        info: WorldLine,
        *,
        name: str = "",
        used: int,
        heading: HeaderText,
        gauge: Gauge | None = None,
        load_image: LoadImage | None = None,
        write: Callable[[str], None] | None = None,
        copies: bool = True,
    ) -> None:
        self._copies = copies
        self._table = FileModel(found)
        super().__init__(CompareSides(comparison, load_image), self._table, write)
        self._found = found
        self._info = info
        self._line_name = name
        self._used = used
        self._heading = heading
        self._gauge = gauge
        self._head = CompareHead(self._title, "sides-head")
        self._files_head = CompareHead(self._files_heading, "files-head")

    def compose(self) -> ComposeResult:
        """Yield the parts, from the top."""
        # The class is set before the parts are styled, so that they are styled only once.
        self.set_class(app_of(self).size.height < SHORT_BELOW, "-short", update=False)
        yield Header(self._heading)
        yield self._head
        yield self._pane
        yield self._files_head
        yield self._files
        if self._gauge is not None:
            yield Container(self._gauge, id="gauge-row")
        yield self._footer

    def on_resize(self) -> None:
        """Fit the head to the width, and show the keys in the footer."""
        app = app_of(self)
        self._name_keys()
        self.set_class(app.size.height < SHORT_BELOW, "-short")
        if self._gauge is not None:
            self._gauge.timeline_width = timeline_width(app.size.width)
        self._head.refresh()
        self._files_head.refresh()

    def _files_heading(self, width: int) -> Sequence[Line]:
        table = self._table.table(width, glyphs_of(self))
        return [Line(tuple(table.head()))]

    def _title(self, width: int) -> Sequence[Line]:
        glyphs = glyphs_of(self)
        info, fork = self._info, self._found.fork
        if fork < 0:
            # After a compaction the two lines differ from their beginning, but the messages that it kept stand side by side.
            is_beside = any(entry.same for entry in self._sides.comparison.sides["other"])
            shared = "no steps in common" if is_beside else "nothing in common"
        else:
            shared = "in common: #0" + (f" to #{fork}" if fork else "")
            if self._found.shared_tokens:
                shared += f", {formatting.tokens(self._found.shared_tokens)} tokens"
        left = [Span("  Compare", "strong")]
        if fork >= 0:
            left.append(Span(f"  from #{fork} on, where they diverge", "quiet"))
        if spans_width(left) + 3 + cell_len(shared) + 2 <= width:
            left = sides(left, [Span(shared, "quiet")], width - 2)
        column = (width - 1) // 2
        when = left_when(info, datetime.now(UTC))
        left_tokens = info.left_by.tokens_before
        divider = Span(glyphs.step, "line")
        tokens = f"{formatting.tokens(left_tokens)} tokens" if left_tokens else ""
        mark = Span(glyphs.lost, "lost")
        other = _side_head(
            glyphs, mark, f"World line {info.n}", self._line_name, when, tokens, column
        )
        mark = Span(glyphs.turn, "accent")
        used = formatting.tokens(self._used)
        live = _side_head(glyphs, mark, "Current", "", "", used, width - column - 1)
        names = Line((*other, divider, *live))
        rows = [Line(tuple(left)), names, Line((Span(" " * column), divider))]
        return rows if self.has_class("-short") else [BLANK, rows[0], BLANK, *rows[1:]]

    # --- keys

    def _show(self) -> None:
        self._sides.focused_here = not self._files.focused_here
        self._name_keys()
        self._sides.refresh()

    def _name_keys(self) -> None:
        wordings: list[tuple[Hint, ...]] = [
            tuple(hint for hint in hints if self._copies or hint[0] != "s")
            for hints in (LONG_HINTS, HINTS)
        ]
        if self._files.focused_here:
            wordings = [
                tuple((key, "file diff" if key == "Enter" else meaning) for key, meaning in one)
                for one in wordings
            ]
        room = app_of(self).size.width - 2 * MARGIN
        self._footer.hints = tuple(roomiest(wordings, room))

    async def on_key(self, event: events.Key) -> None:
        """Delay a letter until it is clear whether it is a key or begins text for the prompt."""
        if await self._letters.intercept(event):
            event.stop()

    def action_side(self) -> None:
        """Move the keyboard focus to the other side, then to the files, then back."""
        first, second = self._sides.comparison.names
        if self._files.focused_here:
            self._files.focused_here = False
            self._sides.side = first
        elif self._sides.side == first:
            self._sides.side = second
        elif self._files.list.state.count:
            self._files.focused_here = True
        else:
            self._sides.side = first
        self._show()

    def action_next(self) -> None:
        """Select the next message that the other side does not have."""
        sides = self._sides
        self._files.focused_here = False
        self._show()
        found = sides.comparison.next_difference(sides.side, sides.selected)
        if found is not None:
            sides.select(found)

    def action_answer(self, action: Literal["jump", "send"]) -> None:
        """Close the screen with an action on the selected message of the other line."""
        if action == "send" and not self._copies:
            return
        entries = self._sides.comparison.sides["other"]
        index = self._sides.selected if self._sides.side == "other" else -1
        block = entries[index].block if 0 <= index < len(entries) else None
        self.dismiss(CompareAnswer(action, block))

    def action_whole(self) -> None:
        """Close with a jump to the end of the other line, regardless of the selection."""
        self.dismiss(CompareAnswer("jump", None))

    def action_leave(self) -> None:
        """Close the comparison without an action."""
        self.dismiss(None)


def _side_head(
    glyphs: Glyphs, mark: Span, which: str, name: str, when: str, figure: str, width: int
) -> list[Span]:
    """Return the heading of one side: its line, its tokens, and as much as fits of its name and of the time at which it was left."""
    left = [Span("  "), mark, Span(" "), Span(which, "strong")]
    room = width - spans_width(left) - cell_len(figure) - 2 - 4
    if name and room >= _LEAST_NAME:
        name = formatting.cut(name, room, glyphs.cut)
        left += [Span("  "), Span(name)]
        room -= cell_len(name) + 2
    said = next((one for one in (when, when.removeprefix("created ")) if cell_len(one) <= room), "")
    if said:
        left += [Span("  "), Span(said, "quiet")]
    gap = " " * max(1, width - 2 - spans_width(left) - cell_len(figure))
    return [*left, Span(gap), Span(figure), Span("  ")]

"""Widgets that paint rows (`Line`), and the one list in which an entry is chosen with keys, clicks and the wheel.

`RowList` draws the rows that its `RowModel` gives of the entries on view (`row_window`), and tells what was chosen.
`PaintedRows` is what it has in common with widgets in which nothing is chosen: their colours, selecting text with the mouse,
and copying it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, NamedTuple, Protocol, Self

from textual import events
from textual.geometry import Region, Size
from textual.message import Message
from textual.selection import Selection
from textual.strip import Strip
from textual.widget import Widget

from kimi_tui.tui.faults import blank_strips
from kimi_tui.tui.glyphs import UNICODE, Glyphs, drawn, glyphs_of
from kimi_tui.tui.keyboard import TOO_EARLY, SeenQuestion
from kimi_tui.tui.painter import INKS, PaintedWidget, Painter
from kimi_tui.tui.row_window import ListState
from kimi_tui.tui.rows import BLANK, Line, Span, cells, wrap
from kimi_tui.tui.transcript.selection import select_piece, with_selection

ROW_STYLES = (
    *INKS,
    *("bright", "rule"),
    *("ok", "warn", "lost", "user", "line", "added", "removed", "add", "del"),
    *("code-keyword", "code-string", "code-comment"),
    *("page", "raised", "band", "select", "lost-bg", "dmail-bg", "add-bg", "del-bg"),
)
"""The styles of rows, in `rows.tcss`."""


class Look(NamedTuple):
    """The parameters by which a list is drawn.

    Attributes:
        width: cells of a row.
        glyphs: the set of signs.
        on_view: the entries to draw.
        chosen: the entry that stands out as the chosen one; None for none.
        focused: whether keys act on the list.
    """

    width: int
    glyphs: Glyphs
    on_view: range
    chosen: int | None
    focused: bool


class RowModel(Protocol):
    """The entries of a list. The list draws the edge of the chosen entry into the first cell of its rows, which is left free."""

    def __len__(self) -> int:
        """Return the number of entries."""
        ...

    def rows(self, look: Look) -> Sequence[Sequence[Line]]:
        """Return the rows of each entry on view."""
        ...

    def above(self, index: int, look: Look) -> Sequence[Line]:
        """Return the rows above an entry on view that belong to no entry, such as the title of a group."""
        del index, look
        return ()

    def below(self, index: int, look: Look) -> Sequence[Line]:
        """Return the rows under an entry on view that belong to no entry, such as its unfolded text."""
        del index, look
        return ()

    def heading(self, look: Look) -> str:
        """Return the text of a row over the entries; empty for none."""
        del look
        return ""

    def footing(self, look: Look) -> str:
        """Return the text of the rows below the entries; empty for none."""
        del look
        return ""

    def empty(self, look: Look) -> Sequence[Line]:
        """Return the rows in place of entries if there are none."""
        del look
        return ()


def plain(text: str, style: str = "ink") -> Line:
    """Return a row in one style."""
    return Line((Span(text, style),))


def drawn_line(line: Line, glyphs: Glyphs) -> Line:
    """Return a row with the signs of our sentences replaced by those of a set (`glyphs.drawn`)."""
    if all(span.text.isascii() for span in line.spans):
        return line
    return line._replace(
        spans=tuple(span._replace(text=drawn(span.text, glyphs)) for span in line.spans)
    )


class PaintedRows(PaintedWidget, Widget):
    """A widget that paints its visible rows. Their text can be selected with the mouse, and copied."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {f"rows--{name}" for name in ROW_STYLES}
    IS_EXACT: ClassVar[bool] = False
    """Whether the rows have texts that must be shown as they are: what is decided about, diffs, texts that are read."""

    def __init__(self, *, widget_id: str | None = None) -> None:
        super().__init__(id=widget_id)
        self._painter = Painter(self, "rows")
        self._laid_out: tuple[object, Sequence[Line]] = None, ()
        """The size and focus that the rows were made for, and the rows."""

    @property
    def room(self) -> int:
        """The number of rows that there is room for."""
        return self.content_size.height

    def lay_out(self, width: int) -> Sequence[Line]:
        """Make the rows for a width in cells: called again when they are refreshed, or the size or the focus has changed."""
        raise NotImplementedError

    def lines(self, width: int) -> Sequence[Line]:
        """Return the rows for a width."""
        made_for = width, self.room, self.has_focus
        if self._laid_out[0] != made_for:
            rows, glyphs = self.lay_out(width), glyphs_of(self)
            if not self.IS_EXACT and glyphs is not UNICODE:
                # Sentences and names are made and cut where the signs in use are not known.
                rows = [drawn_line(row, glyphs) for row in rows]
            self._laid_out = made_for, rows
        return self._laid_out[1]

    def refresh(
        self,
        *regions: Region,
        repaint: bool = True,
        layout: bool = False,
        recompose: bool = False,
    ) -> Self:
        """Make and draw the rows again."""
        self._laid_out = None, ()
        return super().refresh(*regions, repaint=repaint, layout=layout, recompose=recompose)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """Return the number of rows."""
        return len(self.lines(width))

    def render_line(self, y: int) -> Strip:
        """Return one row, its characters marked with their places for a selection with the mouse."""
        try:
            strip = self.painted(y, self.size.width)
            return with_selection(self, self._painter, strip, y, self.text_of).apply_offsets(0, y)
        except Exception:
            return blank_strips("a row", Region(0, y, self.size.width, 1))[0]

    def painted(self, y: int, width: int) -> Strip:
        """Return one row without its selection."""
        lines = self.lines(width)
        line = lines[y] if y < len(lines) else BLANK
        return self._painter.strip(line.spans, width, "" if line.fill == "page" else line.fill)

    def text_of(self, y: int) -> str:
        """Return the text of a row; empty if there is no such row."""
        lines = self.lines(self.content_size.width)
        return lines[y].text if 0 <= y < len(lines) else ""

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """Return the selected text, for the clipboard."""
        lines = self.lines(self.content_size.width)
        return selection.extract("\n".join(line.text.rstrip() for line in lines)), "\n"

    def on_click(self, event: events.Click) -> None:
        """Select the word at a second click, the row at a third."""
        event.prevent_default()
        at = event.get_content_offset(self)
        if at is not None:
            select_piece(self, event, self.text_of(at.y), at)


class Words(PaintedRows):
    """Text in a dialog or beside its fields, which breaks between words.

    Args:
        lines: the text, a `Line` for each of its paragraphs.
        widget_id: the widget's id.
        classes: its CSS classes.
    """

    def __init__(self, *lines: Line, widget_id: str | None = None, classes: str = "") -> None:
        super().__init__(widget_id=widget_id)
        self.set_class(bool(classes), *classes.split())
        self._lines = lines

    @property
    def has_text(self) -> bool:
        """Whether there is a text."""
        return bool(self._lines)

    def show(self, *lines: Line) -> None:
        """Show another text."""
        if lines != self._lines:
            self._lines = lines
            self.refresh(layout=True)

    def get_content_width(self, container: Size, viewport: Size) -> int:
        """Return the width of the longest line of the text."""
        texts = (text for line in self._lines for text in line.text.split("\n"))
        return max(map(cells, texts), default=0)

    def lay_out(self, width: int) -> Sequence[Line]:
        """Return the rows of the text; an empty one takes a row."""
        rows = [Line(tuple(row)) for line in self._lines for row in wrap(line.spans, width)]
        return rows or [BLANK]


class RowList(PaintedRows, can_focus=True):
    """A list in which one entry is chosen.

    Args:
        model: the entries, and how they look.
        most: entries on view at once; None for as many as the widget is high.
        seen: whether Enter, or a click, was pressed when the list could be seen; else it picks nothing. None: all counts.
        widget_id: the widget's id.

    Attributes:
        model: as above.
        most: as above.
        state: the choice, and what is on view.
    """

    LETTERS: ClassVar[bool] = False
    """Whether j and k move the choice."""
    SECOND_CLICK: ClassVar[bool] = False
    """Whether a click picks only the entry that is chosen already."""
    GAP: ClassVar[int] = 0
    """Blank rows between two entries."""
    KEEPS_LOOK: ClassVar[bool] = False
    """Whether the chosen entry has an edge and a background also while keys act elsewhere."""

    class Moved(Message):
        """The choice moved, or the offered entries changed."""

        def __init__(self, picks: RowList) -> None:
            super().__init__()
            self.picks = picks

        @property
        def control(self) -> RowList:
            """The list."""
            return self.picks

    class Picked(Moved):
        """An entry was picked by Enter or a click."""

    def __init__(
        self,
        model: RowModel,
        *,
        most: int | None = None,
        seen: SeenQuestion | None = None,
        widget_id: str | None = None,
    ) -> None:
        super().__init__(widget_id=widget_id)
        self.model = model
        self.most = most
        self.state = ListState(len(model), chosen=0 if len(model) else None)
        self._seen = seen
        self._came_early = False
        """Whether to say in the list that a key or click came too early."""
        self._hovered: int | None = None
        self._entries: list[int | None] = []
        """The index of the entry in each row; None in rows of no entry."""

    # --- choosing

    @property
    def room(self) -> int:
        """The largest number of visible entries."""
        return max(1, self.content_size.height if self.most is None else self.most)

    @property
    def page(self) -> int:
        """The number of entries that Page Up and Page Down move by."""
        return self.room

    @property
    def on_view(self) -> range:
        """The indices of the entries on view."""
        return self.state.window(self.room)

    def offered(self, chosen: int | None) -> None:
        """Draw the model again after its entries changed, with one of them chosen."""
        self.state.count = len(self.model)
        self.state.chosen = None
        if chosen is not None:
            self.state.choose(chosen)
        self._changed()

    def select(self, index: int) -> None:
        """Choose an entry, or the nearest one there is, and post `Moved`."""
        if self.state.choose(index):
            self.post_message(self.Moved(self))
        self._changed()

    def move(self, step: int) -> None:
        """Move the choice by so many entries."""
        self.select(self.state.moved(step))

    def press(self, key: str) -> bool:
        """Move the choice by a key; return False for any other key."""
        step = self.state.step_of(key, self.page, letters=self.LETTERS)
        if step is not None:
            self._hovered = None
            self.move(step)
        return step is not None

    def on_key(self, event: events.Key) -> None:
        """Move the choice, or pick an entry."""
        early, self._came_early = self._came_early, False
        if event.key == "enter":
            if self._accepts(event.time) and self.state.chosen is not None:
                self.post_message(self.Picked(self))
        elif not self.press(event.key):
            self._came_early = early
            return
        event.stop()
        event.prevent_default()

    def _accepts(self, at: float) -> bool:
        """Return whether a key or click of a monotonic time may pick an entry; if not, the list says so."""
        self._came_early = self._seen is not None and not self._seen.accepts(at)
        self._changed()
        return not self._came_early

    def refuses_click(self, event: events.MouseUp) -> bool:
        """Return whether a click comes too early, by when it was read."""
        return not self._accepts(event.time)

    def entry_at(self, y: int) -> int | None:
        """Return the index of the entry in a row of the content; None if there is none."""
        n_lines = len(self.lines(self.content_size.width))
        return self._entries[y] if 0 <= y < n_lines else None

    def row_of(self, index: int) -> int:
        """Return the first row of an entry; 0 if it is not on view."""
        self.lines(self.content_size.width)
        return self._entries.index(index) if index in self._entries else 0

    def on_click(self, event: events.Click) -> None:
        """Choose the entry under the pointer, and pick it. It may be clicked twice in a row: no word is selected then."""
        event.prevent_default()
        at = event.get_content_offset(self)
        index = self.entry_at(at.y) if at is not None else None
        if index is None:
            return
        event.stop()
        was_chosen = self.state.chosen == index
        self.select(index)
        if self.state.chosen == index and (was_chosen or not self.SECOND_CLICK):
            self.post_message(self.Picked(self))

    def on_mouse_move(self, event: events.MouseMove) -> None:
        """Highlight the entry under the pointer."""
        at = event.get_content_offset(self)
        self._hover(self.entry_at(at.y) if at is not None else None)

    def on_leave(self) -> None:
        """Highlight no entry any more: the pointer has left."""
        self._hover(None)

    def _hover(self, index: int | None) -> None:
        if index != self._hovered:
            self._hovered = index
            self.refresh()

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Choose the entry above."""
        self._wheel(event, -1)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Choose the entry below."""
        self._wheel(event, 1)

    def _wheel(self, event: events.MouseEvent, step: int) -> None:
        # A list whose entries are all on view stands in a pane that scrolls itself.
        if self.most is None or len(self.on_view) < self.state.count:
            event.stop()
            self._hovered = None
            self.move(step)

    # --- drawing

    @property
    def is_focused(self) -> bool:
        """Whether keys act on the list. The keys of a list without a focus of its own come from its screen."""
        return self.has_focus or not self.can_focus

    def on_focus(self) -> None:
        """Draw the chosen entry as the one that keys act on."""
        self._changed()

    def on_blur(self) -> None:
        """Draw the chosen entry without the sign that keys act on it."""
        self._changed()

    def _changed(self) -> None:
        self.refresh(layout=self.most is not None)

    def lay_out(self, width: int) -> Sequence[Line]:
        """Return the rows of the entries on view, and those over and below them."""
        on_view = self.on_view
        look = Look(width, glyphs_of(self), on_view, self.state.chosen, self.is_focused)
        heading = TOO_EARLY.capitalize() if self._came_early else self.model.heading(look)
        footing = self.model.footing(look)
        rows: list[tuple[int | None, Line]] = []
        if heading:
            rows.append((None, plain(f"  {heading}", "quiet")))
        if not on_view:
            rows += [(None, line) for line in self.model.empty(look)]
        for index, lines in zip(on_view, self.model.rows(look), strict=True):
            gap = self.GAP if index > on_view.start else 0
            rows += [(None, BLANK)] * gap
            rows += [(None, line) for line in self.model.above(index, look)]
            rows += [(index, line) for line in lines]
            rows += [(None, line) for line in self.model.below(index, look)]
        if footing:
            rows += [(None, plain(f"  {row}", "quiet")) for row in footing.split("\n")]
        self._entries = [index for index, _ in rows]
        return [line for _, line in rows]

    def painted(self, y: int, width: int) -> Strip:
        """Return one row, with its marks if it is chosen or under the pointer."""
        lines, index = self.lines(width), self.entry_at(y)
        spans = lines[y].spans if y < len(lines) else ()
        ground = edge = ""
        if index is not None and index == self.state.chosen:
            if self.is_focused:
                ground, edge = "select", "accent"
            elif self.KEEPS_LOOK:
                ground, edge = "band", "quiet"
        elif index is not None and index == self._hovered:
            ground = "band"
        strip = self._painter.strip(spans, width, ground)
        return self._painter.with_edge(strip, glyphs_of(self).edge, edge) if edge else strip

"""The row under the chat in which a text to look for is typed, with how many there are."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.content import Content
from textual.widgets import Input, Static

from kimi_tui.foreign_text import one_line
from kimi_tui.tui.app_of import app_of
from kimi_tui.tui.chat.found import Found
from kimi_tui.tui.glyphs import glyphs_of

if TYPE_CHECKING:
    from kimi_tui.tui.chat.searching import SearchedSurface

HINTS = (
    ("Enter", "next"),
    ("Shift+Enter", "before"),
    ("Esc", "end"),
    ("Tab", "to the text, n and N go on there"),
)
HINTS_IN_TEXT = (("n", "next"), ("N", "before"), ("Ctrl+F", "search"), ("Esc", "end"))


class SearchField(Input):
    """Where the text is typed."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+f", "select_all", "Select all", id="search.again", show=False),
    ]

    def __init__(self) -> None:
        super().__init__(placeholder="Search", compact=True, select_on_focus=False)
        self.cursor_blink = False


class SearchArrow(Static):
    """Goes to the match before or the next one with a click."""

    def __init__(self, surface: SearchedSurface, step: int) -> None:
        super().__init__(markup=False)
        self._surface = surface
        self._step = step

    def on_mount(self) -> None:
        """Take the sign."""
        glyphs = glyphs_of(app_of(self))
        self.update(Content(f" {glyphs.up if self._step < 0 else glyphs.down}"))

    def on_click(self, event: events.Click) -> None:
        """Go there."""
        event.stop()
        self._surface.action_next_match(self._step)


class SearchBar(Horizontal):
    """Field and count.

    Args:
        surface: what is searched.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("shift+enter,up", "go(-1)", "Match before", id="search.up", show=False),
        Binding("down", "go(1)", "Next match", id="search.down", show=False),
        Binding("pageup", "page(-1)", "Page up", id="search.page_up", show=False),
        Binding("pagedown", "page(1)", "Page down", id="search.page_down", show=False),
        Binding("tab", "to_text", "To the text", id="search.text", show=False),
        Binding("escape", "end", "End the search", id="search.end", show=False),
    ]

    def __init__(self, surface: SearchedSurface) -> None:
        super().__init__()
        self._surface = surface
        self._field = SearchField()
        self._count = Static(markup=False)

    def compose(self) -> ComposeResult:
        """From the left."""
        yield Static(Content("  / "), id="search-sign")
        yield self._field
        yield self._count
        yield SearchArrow(self._surface, -1)
        yield SearchArrow(self._surface, 1)

    def on_mount(self) -> None:
        """Follow the search."""
        self.watch(self._surface, "found", self._show)
        self._field.focus()

    def ask(self, query: str) -> None:
        """Give the field the keys; a query that is given takes the place of what stands there."""
        if query:
            self._field.value = query
        if self.is_mounted:
            self._field.focus()
            self._field.action_select_all()

    def _show(self, found: Found) -> None:
        self._count.update(Content(found.words))
        self.set_class(bool(found.query.strip()) and not found.total and found.complete, "-none")

    @on(Input.Changed)
    def _typed(self, event: Input.Changed) -> None:
        event.stop()
        # What is pasted may hold anything.
        text = event.value if event.value.isprintable() else one_line(event.value)
        if text != event.value:
            self._field.value = text
        else:
            self._surface.search(text)

    @on(Input.Submitted)
    def _entered(self, event: Input.Submitted) -> None:
        event.stop()
        self.action_go(1)

    def action_go(self, step: int) -> None:
        """Go to the match below or above."""
        self._surface.action_next_match(step)

    def action_page(self, direction: int) -> None:
        """Scroll what is searched."""
        if direction < 0:
            self._surface.action_page_up()
        else:
            self._surface.action_page_down()

    def action_to_text(self) -> None:
        """Give the rows the keys."""
        self._surface.focus()

    def action_end(self) -> None:
        """End the search."""
        self._surface.end_search()

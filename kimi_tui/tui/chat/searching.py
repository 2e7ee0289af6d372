"""A surface whose rows can be searched: marks the matches, goes from one to the next, unfolds what hides one.

Stands on the first screen, so what searches is imported with the first search.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from rich.style import Style
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.reactive import reactive
from textual.strip import Strip
from textual.widget import Widget
from textual.worker import Worker

from kimi_tui.tui.app_of import app_of
from kimi_tui.tui.chat.found import Found
from kimi_tui.tui.chat.lines import Line
from kimi_tui.tui.chat.moving import MovingSurface
from kimi_tui.tui.styles import add_sheets

if TYPE_CHECKING:
    from kimi_tui.tui.chat.blocks import Block
    from kimi_tui.tui.chat.finder import Finder, Origin, Place
    from kimi_tui.tui.chat.flow import View
    from kimi_tui.tui.chat.matching import Match
    from kimi_tui.tui.chat.search_bar import SearchBar

SLICE_S = 0.003
"""How long the search computes before keys and frames get their turn."""
TYPING_S = 0.08
"""The pause after a key before the search begins: the next one may come."""
AGAIN_S = 0.3
"""The pause before what has changed meanwhile is searched again."""
TOLD_S = 0.1


class SearchedSurface(MovingSurface):
    """Rows in which a text can be looked for."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {"transcript--found", "transcript--found-now"}
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("n", "next_match(1)", "Next match", id="search.next", show=False),
        Binding("N", "next_match(-1)", "Match before", id="search.before", show=False),
    ]

    found: reactive[Found] = reactive(Found(), init=False)
    """How far the search is."""

    _finder: Finder | None = None
    _bar: SearchBar | None = None
    _origin: Origin | None = None
    _opened: Block | None = None
    _scanning: Worker[None] | None = None
    _changed = False
    _marks: tuple[Style, Style] | None = None

    class SearchEnded(Message):
        """The person is done with the search."""

    # --- what others fill in

    @property
    def blocks(self) -> Sequence[Block]:
        """All that is shown."""
        return ()

    def toggle_fold(self, block: Block) -> None:
        """Fold or unfold a block."""
        raise NotImplementedError

    # --- the search

    @property
    def is_searched(self) -> bool:
        """Whether a search is under way."""
        return self._bar is not None

    def begin_search(self, query: str = "") -> None:
        """Show the bar under the rows and give it the keys; a query that is given is looked for at once."""
        if self._bar is None:
            from kimi_tui.tui.chat.search_bar import SearchBar

            add_sheets(app_of(self), "search")
            self._bar = SearchBar(self)
            if isinstance(self.parent, Widget):
                self.parent.mount(self._bar)
                self.parent.add_class("-searched")
        self._bar.ask(query)

    def end_search(self) -> None:
        """Take the bar and the marks away; what was gone to stays on view."""
        bar, self._bar = self._bar, None
        if bar is None:
            return
        self._stop_scanning()
        self._finder = self._origin = self._opened = None
        self.found = Found()
        if isinstance(self.parent, Widget):
            self.parent.remove_class("-searched")
        bar.remove()
        self.refresh(self.area)
        self.post_message(self.SearchEnded())

    def search(self, query: str) -> None:
        """Look for another text, from where the person was when the search began."""
        from kimi_tui.tui.chat.finder import Finder, Origin

        old = self._finder
        if old is not None and old.query == query:
            return
        if self._origin is None and self._flow is not None:
            index, row = self._flow.find(self.top)
            gap = self._flow.views[index].gap if self._flow.views else 0
            self._origin = Origin(index, max(0, row - gap))
        self._finder = Finder(query) if old is None else old.refined(query)
        self.refresh(self.area)
        self._scan(TYPING_S, goes=True)

    def searched_changed(self) -> None:
        """What is searched is not what it was."""
        if self._finder is None:
            return
        self._changed = True
        if self._scanning is None:
            self._scan(AGAIN_S, goes=False)

    def _stop_scanning(self) -> None:
        if self._scanning is not None:
            self._scanning.cancel()
            self._scanning = None

    def _scan(self, wait_s: float, *, goes: bool) -> None:
        self._stop_scanning()
        work = self._scanned(wait_s, goes=goes)
        self._scanning = self.run_worker(work, group="search", exit_on_error=False)

    async def _scanned(self, wait_s: float, *, goes: bool) -> None:
        """Count all matches in slices, and go to the nearest one where that is wanted."""
        self._changed = True
        while self._changed and (finder := self._finder) is not None:
            await asyncio.sleep(wait_s)
            self._changed = False
            told_at = until = 0.0
            origin = self._origin or self._origin_at(None)
            for place in finder.scan(self.blocks, self.room(), origin):
                if place is not None and goes:
                    goes = False
                    self._go_to(place)
                if (now := time.perf_counter()) >= until:
                    if now - told_at >= TOLD_S:
                        told_at = now
                        self.found = finder.told(self.blocks)
                    await asyncio.sleep(0)
                    until = time.perf_counter() + SLICE_S
            self._relocate()
            self.found = finder.told(self.blocks)
            wait_s = AGAIN_S
        self._scanning = None

    def _origin_at(self, index: int | None) -> Origin:
        """The current match, in the block of this index."""
        from kimi_tui.tui.chat.finder import Origin

        match = self._finder.match if self._finder is not None else ()
        return Origin(index or 0, match[0].row if match else 0)

    # --- going there

    def action_next_match(self, step: int) -> None:
        """Go to the match below or above, round the ends."""
        finder = self._finder
        if finder is None:
            return
        place = finder.next(self.blocks, step)
        if place is not None:
            self._go_to(place)
            # A query that is changed now is looked for from here on.
            self._origin = self._origin_at(self._view_of(place.key))
            self.found = finder.told(self.blocks)

    def _view_of(self, key: int) -> int | None:
        views = self._flow.views if self._flow is not None else []
        return next((i for i, view in enumerate(views) if view.block.key == key), None)

    def _go_to(self, place: Place) -> None:
        """Show a match, and unfold the block that hides it; what was unfolded for the one before is folded again."""
        finder, flow = self._finder, self._flow
        index = self._view_of(place.key)
        if finder is None or flow is None or index is None:
            return
        self.finish_motion()
        block = flow.views[index].block
        opened, self._opened = self._opened, None
        if opened is block:
            self._opened = block
        elif opened is not None and opened.unfolded and self._view_of(opened.key) is not None:
            self.toggle_fold(opened)
        if self._hides(index, place):
            self.toggle_fold(block)
            self._opened = block
        self._current = place.key
        finder.current = place
        finder.match = self._match(index, place)
        flow.ensure(index)
        view = flow.views[index]
        at = finder.match[0].row if finder.match else 0
        row = flow.start(index) + view.gap + at
        if not self.top < row < self.top + self.size.height - 1:
            self.show_row(max(0, row - self.size.height // 3))
        else:
            self.hold()
        self.refresh(self.area)

    def _hides(self, index: int, place: Place) -> bool:
        """Whether a match is not among the rows of its block as they are."""
        from kimi_tui.tui.chat.finder import drained
        from kimi_tui.tui.chat.matching import matches, unfolded_rows

        flow, finder = self._flow, self._finder
        if flow is None or finder is None or finder.pattern is None:
            return False
        flow.ensure(index)
        view = flow.views[index]
        if view.block.unfolded:
            return False
        whole = drained(unfolded_rows(view.block, flow.room)) if view.answer is None else view.lines
        found = matches(whole, finder.pattern)
        if place.number >= len(found):
            return False
        return any(
            part.row >= len(view.lines) or view.lines[part.row].text != whole[part.row].text
            for part in found[place.number]
        )

    def _match(self, index: int, place: Place) -> Match:
        """Where a match stands among the rows of its block."""
        from kimi_tui.tui.chat.matching import matches

        flow, finder = self._flow, self._finder
        if flow is None or finder is None or finder.pattern is None:
            return ()
        flow.ensure(index)
        found = matches(flow.views[index].lines, finder.pattern)
        return found[place.number] if place.number < len(found) else ()

    def _relocate(self) -> None:
        """Rows have changed: the current match may stand elsewhere in its block."""
        finder = self._finder
        place = finder.current if finder is not None else None
        if finder is None or place is None:
            return
        index = self._view_of(place.key)
        finder.match = self._match(index, place) if index is not None else ()
        self.refresh(self.area)

    # --- drawing

    def resized(self) -> None:
        """Another size: rows are wrapped anew."""
        super().resized()
        self._relocate()
        self.searched_changed()

    def notify_style_update(self) -> None:
        """Colours may have changed."""
        super().notify_style_update()
        self._marks = None

    def _block_strip(self, view: View, index: int, line: Line, row: int) -> Strip:
        strip = super()._block_strip(view, index, line, row)
        if self._finder is None:
            return strip
        if self._marks is None:
            names = ("transcript--found", "transcript--found-now")
            styles = (self.get_component_rich_style(name, partial=True) for name in names)
            usual, now = (self._painter.allowed(style) for style in styles)
            self._marks = (usual, now)
        for part, is_current in self._finder.parts(view.block.key, view.lines, index):
            style = self._marks[is_current]
            strip = self._painter.selected(strip, part.start, part.end, style)
        return strip

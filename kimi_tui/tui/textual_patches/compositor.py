"""Partial repaints: a Textual compositor that renders only rows that changed and that nothing covers.

For every frame, also for one typed letter, Textual's own compositor has each widget of the screen render all its rows,
those of covered screens and panes too, and then writes the ones that changed.
"""

# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from operator import attrgetter
from typing import TYPE_CHECKING, Any, cast

from rich.console import Console, RenderableType
from textual._compositor import ChopsUpdate, Compositor, ReflowResult
from textual.geometry import Region, Size
from textual.screen import Screen
from textual.strip import Strip, StripRenderable
from textual.widget import Widget

if TYPE_CHECKING:
    from textual.app import App
    from textual.reactive import Reactive

_app = attrgetter("app")
_VIRTUAL_SIZE = cast("Reactive[Size]", Widget.virtual_size)


class RowCompositor(Compositor):
    """A compositor that renders only the visible rows of each widget, and for an update only those that changed."""

    def __init__(self) -> None:
        super().__init__()
        self._is_resized = False
        """Whether the screen has a new size of which not all widgets know."""

    def reflow(self, parent: Widget, size: Size) -> ReflowResult:
        """Lay out all widgets without causing a second layout by the sizes that the first one gave them.

        Textual lays out the screen again whenever the virtual size of a widget has changed, also where a layout changed it:
        each row more in the prompt or a notice would cost two layouts and two frames of nearly the whole screen. Only where
        scrollbars appear or disappear is the second one needed.
        """
        screen = cast("Screen[Any]", parent)
        if size != self.size and screen.is_current:
            # Only the very first picture is drawn at once: users see it while it is still empty.
            is_first = cast("App[Any]", _app(screen)).screen_stack[0] is screen
            self._is_resized = bool(self.size) or not is_first
        result = super().reflow(parent, size)
        for widget, place in self._full_map.items():
            styles: Any = widget.styles
            is_moved = place.region.size != widget.outer_size or (
                place.container_size != widget.container_size
            )
            if is_moved and "auto" not in (styles.overflow_x, styles.overflow_y):
                widget.set_reactive(_VIRTUAL_SIZE, place.virtual_size)
        return result

    def render_update(
        self,
        full: bool = False,
        screen_stack: list[Screen[Any]] | None = None,
        simplify: bool = False,
    ) -> RenderableType | None:
        """Return what is to be written now; None for nothing.

        Textual draws a screen of another size in the same go in which it places its widgets, before these hear of their
        sizes: a picture with rows for the old width, and soon another whole one. Here the first picture has the new rows.
        """
        if full or not self._is_resized or self.root is None:
            return super().render_update(  # pyright: ignore[reportUnknownMemberType]
                full, screen_stack, simplify=simplify
            )
        # This runs after the screen has handled the message of its size, for which it places the widgets once more.
        self.root.call_later(self._draw)
        return None

    def _draw(self) -> None:
        self._is_resized = False
        if self.root is not None:
            self.root.refresh(repaint=False, layout=True)

    def update_widgets(self, widgets: set[Widget]) -> None:
        """Note what is to be drawn anew; of a screen that shows through another one, only the uncovered parts.

        Textual draws the whole window whenever a widget of such a screen has changed, also one that cannot be seen.
        """
        root = cast("Screen[Any] | None", self.root)
        stack = cast("App[Any]", _app(root)).screen_stack if root is not None else []
        above = stack[stack.index(root) + 1 :] if root is not None and root in stack else []
        if root is None or not above:
            super().update_widgets(widgets)
            return
        # After a change Textual names the screen in place of the widgets that have changed. If all of the screen is styled
        # anew, so is the screen above, which draws this one with itself.
        root._exchange_repaint_regions()
        changed = {one for one in self.visible_widgets if one._repaint_regions}
        super().update_widgets((widgets | changed) - {root})
        covers = [cover for screen in above for cover in _opaque_regions(screen)]
        self._dirty_regions = {
            region for region in self._dirty_regions if not any(region in cover for cover in covers)
        }

    def __rich__(self) -> StripRenderable:
        """Return the screen as it shows through the one above it; it is drawn anew itself if others show through it.

        Textual tells only the topmost screen what has changed below. One between them would stay as it was drawn, with what
        was below it then.
        """
        screen = cast("Screen[Any] | None", self.root)
        if screen is not None and screen.styles.background.a < 1:
            screen._set_dirty()
        return super().__rich__()

    def render_partial_update(self) -> ChopsUpdate | None:
        """Return the update that draws the changed rows; None if nothing changed."""
        changed = self._dirty_regions.copy()
        self._dirty_regions.clear()
        if not changed:
            return None
        spans = list(self._regions_to_spans(changed))
        return _RowsUpdate(self._parts(spans), spans, [cuts[1:] for cuts in self.cuts])

    def _parts(self, spans: Sequence[tuple[int, int, int]]) -> list[dict[int, Strip | None]]:
        """Return the strips of each row of the screen by column, cut where widgets end; None outside the given spans."""
        cuts = self.cuts
        parts: list[dict[int, Strip | None]] = [{} for _ in cuts]
        missing: dict[int, set[int]] = {}
        for y, start, end in spans:
            parts[y] = parts[y] or dict.fromkeys(cuts[y][:-1])
            columns = [x for x, next_x in pairwise(cuts[y]) if x < end and next_x > start]
            missing.setdefault(y, set()).update(columns)
        # The topmost widget comes first.
        for widget, (region, clip) in self._drawable():
            seen = region.intersection(clip)
            left, right = seen.column_span
            rows = [
                y
                for y, columns in missing.items()
                if seen.y <= y < seen.bottom and [x for x in columns if left <= x < right]
            ]
            for run in runs(rows):
                crop = Region(seen.x - region.x, run.start - region.y, seen.width, len(run))
                for y, strip in zip(run, widget.render_lines(crop), strict=False):
                    within = [x for x in cuts[y] if left <= x <= right]
                    row, columns = parts[y], missing[y]
                    is_whole = within == [left, right] and strip.cell_length == seen.width
                    pieces = (strip,) if is_whole else strip.divide([x - left for x in within[1:]])
                    for x, part in zip(within, pieces, strict=False):
                        if row[x] is None:
                            row[x] = part
                            columns.discard(x)
                    if not columns:
                        del missing[y]
        return parts

    def _drawable(self) -> Iterator[tuple[Widget, tuple[Region, Region]]]:
        """Yield the visible widgets with their regions and clips, topmost first, without those that have been removed.

        The children of a widget that is being removed, its scrollbars among them, leave the tree before the widget itself and
        before the next layout. A frame in between would have them render themselves without a parent.
        """
        for widget, place in self.visible_widgets.items():
            if widget is self.root or widget.has_parent:
                yield widget, place

    def _get_renders(
        self, crop: Region | None = None
    ) -> Iterable[tuple[Region, Region, list[Strip]]]:
        """Yield the rows of each widget for a full frame, front to back, without those that widgets in front cover."""
        covered = [0] * self.size.height
        """A bit for each cell of each row of the screen."""
        for widget, (region, clip) in self._drawable():
            seen = region.intersection(clip)
            cells = ((1 << seen.width) - 1) << seen.x
            for rows in runs([y for y in seen.line_range if cells & ~covered[y]]):
                within = Region(seen.x - region.x, rows.start - region.y, seen.width, len(rows))
                strips = widget.render_lines(within)
                for y in rows[: len(strips)]:
                    covered[y] |= cells
                yield Region(seen.x, rows.start, seen.width, len(rows)), clip, strips


def _opaque_regions(screen: Screen[Any]) -> Iterator[Region]:
    """Yield the regions of a screen through which the one below cannot be seen."""
    for widget, (region, clip) in screen._compositor.visible_widgets.items():
        if widget is not screen and widget.styles.background.a == 1 and widget.opacity == 1:
            yield region.intersection(clip)


def runs(rows: Sequence[int]) -> Iterator[range]:
    """Yield ascending numbers as runs without a gap."""
    start = end = -1
    for y in rows:
        if y != end:
            if end > start:
                yield range(start, end)
            start = y
        end = y + 1
    if end > start:
        yield range(start, end)


class _RowsUpdate(ChopsUpdate):
    """An update that writes the same output as Textual's, with a tenth of the objects."""

    def render_segments(self, console: Console) -> str:
        """Return the output for the terminal."""
        written: list[str] = []
        for y, start, end in self.spans:
            for next_x, (x, strip) in zip(self.chop_ends[y], self.chops[y].items(), strict=True):
                if strip is None or x >= end or next_x <= start:
                    continue
                part = (
                    strip if x >= start and next_x <= end else strip.crop(0, min(next_x, end) - x)
                )
                written += (f"\x1b[{y + 1};{x + 1}H", part.render(console))
        return "".join(written)


def draw_changed_rows(screen: Screen[Any]) -> None:
    """Use `RowCompositor` for a screen that was not shown yet."""
    screen._compositor = RowCompositor()


def draw_all(screen: Screen[Any], size: Size) -> None:
    """Make the next frame of a screen a full one, also where its size did not change."""
    # The compositor's own size counts: the screen reports the window's, which may have changed by now.
    if screen._compositor.size == size:
        screen._compositor._dirty_regions.add(size.region)


def drawn_strips(screen: Screen[Any]) -> list[Strip]:
    """Return the rows of a screen as they are drawn now."""
    return screen._compositor.render_strips()

"""Partial repaints: a Textual compositor that renders only rows that changed and that nothing covers.

For every frame, also for one typed letter, Textual's own compositor has each widget of the screen render all its rows,
those of covered screens and panes too, and then writes the ones that changed.
"""

# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any, cast

from rich.color import ColorSystem
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.style import Style
from textual._compositor import (
    Compositor,
    CompositorMap,
    CompositorUpdate,
    LayoutUpdate,
    ReflowResult,
)
from textual.geometry import Region, Size
from textual.screen import Screen
from textual.strip import Strip, StripRenderable
from textual.widget import Widget

from kimi_tui.tui.textual_patches.strips import make_caches_late

if TYPE_CHECKING:
    from textual.app import App
    from textual.reactive import Reactive

make_caches_late()

_app = attrgetter("app")
_PLACE = itemgetter(0, 1)
_NO_STYLE = Style()
_VIRTUAL_SIZE = cast("Reactive[Size]", Widget.virtual_size)


class RowCompositor(Compositor):
    """A compositor that renders only the visible rows of each widget, and for an update only those that changed."""

    def __init__(self) -> None:
        super().__init__()
        self._is_resized = False
        """Whether the screen has a new size of which not all widgets know."""
        self._drawn: list[tuple[Widget, tuple[Region, Region]]] = []
        """The widgets of the last update, topmost first, each with its region and clip."""
        self._owned: dict[int, list[tuple[int, int, Widget, Region]]] = {}
        """What `_owners` has found for these widgets, by row."""
        self._placed: CompositorMap = {}
        """The places that widgets know of: those of the last layout."""

    def clear(self) -> None:
        """Forget all widgets: the screen closes."""
        super().clear()
        self._drawn.clear()
        self._owned.clear()
        self._placed = {}

    @property
    def full_map(self) -> CompositorMap:
        """The places of all widgets. Textual may place them anew here, and would draw the next whole frame within the former borders."""
        if self._full_map_invalidated:
            self._cuts = None
        return super().full_map

    def reflow(self, parent: Widget, size: Size) -> ReflowResult:
        """Lay out all widgets without causing a second layout by the sizes that the first one gave them.

        Textual lays out the screen again whenever the virtual size of a widget has changed, also where a layout changed it:
        each row more in the prompt or a notice would cost two layouts and two frames of nearly the whole screen. Only where
        scrollbars appear or disappear is the second one needed.

        Textual may also place all widgets anew to find one of them, between two layouts. Then the next layout finds nothing
        changed, and tells no widget of its size. Here it compares with the last layout.
        """
        screen = cast("Screen[Any]", parent)
        if size != self.size and screen.is_current:
            # Only the very first picture is drawn at once: users see it while it is still empty.
            is_first = cast("App[Any]", _app(screen)).screen_stack[0] is screen
            self._is_resized = bool(self.size) or not is_first
        self._full_map = self._placed
        result = super().reflow(parent, size)
        self._placed = self._full_map
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

        While the app holds frames back (`batch_update`), Textual makes one and drops it. Here it is left to the next frame.
        """
        if self.root is not None and cast("App[Any]", _app(self.root))._batch_count and not full:
            return None
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

        Textual draws the whole window whenever a widget of such a screen has changed, also one that cannot be seen. And where
        only a part of a screen is to be drawn anew, as that below has changed there, Textual names the screen in place of its
        widgets that have changed, and forgets these.
        """
        root = cast("Screen[Any] | None", self.root)
        stack = cast("App[Any]", _app(root)).screen_stack if root is not None else []
        above = stack[stack.index(root) + 1 :] if root is not None and root in stack else []
        if root is not None and (above or root in widgets):
            widgets = widgets | {one for one in self.visible_widgets if one._repaint_regions}
        if root is None or not above:
            super().update_widgets(widgets)
            return
        # If all of the screen is styled anew, so is the screen above, which draws this one with itself.
        root._exchange_repaint_regions()
        super().update_widgets(widgets - {root})
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

    def render_partial_update(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
    ) -> RowsUpdate | None:
        """Return the update that draws the changed rows; None if nothing changed."""
        changed = self._dirty_regions | self._take_layout()
        self._dirty_regions.clear()
        return RowsUpdate(self._parts(self._regions_to_spans(changed))) if changed else None

    def render_full_update(self, simplify: bool = False) -> LayoutUpdate:
        """Return the update that draws all rows."""
        self._take_layout()
        return super().render_full_update(simplify)

    def _parts(self, spans: Iterable[tuple[int, int, int]]) -> list[tuple[int, int, Strip]]:
        """Return what is to be written over these spans: row, column and strip of each part, in this order."""
        runs_of: dict[tuple[Widget, int, int], _CellRun] = {}
        found: list[_CellRun] = []
        for y, start, end in spans:
            for left, right, widget, region in self._owners(y):
                if left >= end or right <= start:
                    continue
                key = widget, left, right
                if isinstance(widget, DrawsColumns):
                    key = widget, max(left, start), min(right, end)
                run = runs_of.get(key)
                if run is None or run.bottom < y:
                    run = runs_of[key] = _CellRun(*key, region, y)
                    found.append(run)
                run.bottom = y + 1
        parts: list[tuple[int, int, Strip]] = []
        for run in found:
            left, width = run.left, run.right - run.left
            crop = Region(left - run.region.x, run.top - run.region.y, width, run.bottom - run.top)
            for y, strip in enumerate(_drawn_by(run.widget, crop), run.top):
                parts.append(
                    (y, left, strip if strip.cell_length == width else strip.crop(0, width))
                )
        parts.sort(key=_PLACE)
        return parts

    def _take_layout(self) -> set[Region]:
        """Return the regions in which widgets come, go or move with this update; forget who owned the cells of the rows if there are any.

        These are all changes since the last update, however they came about. A layout names only those since the last layout,
        and may undo what was drawn between the two, such as a step of a scroll.
        """
        drawable, drawn = list(self._drawable()), self._drawn
        if drawable == drawn:
            return set()
        self._drawn = drawable
        self._owned.clear()
        moved = {*drawable} ^ {*drawn}
        places = [place for _, place in moved] or [(self.size.region, self.size.region)]
        seen = (region.intersection(clip) for region, clip in places)
        return {region for region in map(self.size.region.intersection, seen) if region}

    def _owners(self, y: int) -> Sequence[tuple[int, int, Widget, Region]]:
        """Return the runs of cells of a row of the screen of which one widget is seen: first column, end, the widget and its region."""
        owners = self._owned.get(y)
        if owners is not None:
            return owners
        owners = self._owned[y] = []
        free = [(0, self.size.width)]
        # The topmost widget comes first.
        for widget, (region, clip) in self._drawn:
            seen = region.intersection(clip)
            if not seen.y <= y < seen.bottom:
                continue
            rest: list[tuple[int, int]] = []
            for start, end in free:
                left, right = max(start, seen.x), min(end, seen.right)
                if left >= right:
                    rest.append((start, end))
                    continue
                owners.append((left, right, widget, region))
                rest += [(x, stop) for x, stop in ((start, left), (right, end)) if x < stop]
            free = rest
            if not free:
                break
        return owners

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
                strips = _drawn_by(widget, within)
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


class DrawsColumns:
    """A base of widgets of whose rows an update draws only the changed columns.

    Of the others it draws all that is seen: a column may be the second half of a wide character.
    """


class NotesDrawn:
    """A base of widgets that compare their rows with those on the screen.

    Rows are also rendered to look up the style under the pointer; then they are not drawn.
    """

    def note_drawn(self) -> None:
        """Note that the rows that were rendered last are drawn."""
        raise NotImplementedError


def _drawn_by(widget: Widget, crop: Region) -> list[Strip]:
    """Return the rows of a widget to be drawn."""
    strips = widget.render_lines(crop)
    if isinstance(widget, NotesDrawn):
        widget.note_drawn()
    return strips


class _CellRun:
    """Rows of which the same columns of one widget are drawn."""

    __slots__ = ("bottom", "left", "region", "right", "top", "widget")

    def __init__(self, widget: Widget, left: int, right: int, region: Region, top: int) -> None:
        self.widget, self.region = widget, region
        self.left, self.right, self.top = left, right, top
        self.bottom = top


class RowsUpdate(CompositorUpdate):
    """An update that writes strips at their places.

    Args:
        parts: row, column and strip of each.
    """

    def __init__(self, parts: Sequence[tuple[int, int, Strip]]) -> None:
        self.parts = parts

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the segments without their places, for a console that is no terminal."""
        for _, _, strip in self.parts:
            yield from strip

    def render_segments(self, console: Console) -> str:
        """Return the output for the terminal."""
        return "".join(
            [f"\x1b[{y + 1};{x + 1}H{_output(strip, console)}" for y, x, strip in self.parts]
        )


def _output(strip: Strip, console: Console) -> str:
    """Return the output of a strip, and have it keep that in place of Textual's, which names all colours of each segment anew: here
    only those that differ from the segment before.
    """
    known = strip._render_cache
    if known is not None:
        return known
    colours = console._color_system or ColorSystem.TRUECOLOR
    written: list[str] = []
    before = _NO_STYLE
    for text, own, _ in strip:
        style = own or _NO_STYLE
        if style is not before:
            if style.link:
                # A link is told in a sequence of its own, around its colours.
                written.append(_change(before, _NO_STYLE, colours))
                written.append(Strip.render_style(style, text, colours))
                before = _NO_STYLE
                continue
            written.append(_change(before, style, colours))
            before = style
        written.append(text)
    written.append(_change(before, _NO_STYLE, colours))
    known = strip._render_cache = "".join(written)
    return known


@lru_cache(maxsize=4_096)
def _change(before: Style, after: Style, colours: ColorSystem) -> str:
    """Return the sequence after which text is in another style; neither has a link."""
    if before == after:
        return ""
    drops = (before.color and not after.color) or (before.bgcolor and not after.bgcolor)
    codes: list[str] = []
    if drops or before._attributes & before._set_attributes != (
        after._attributes & after._set_attributes
    ):
        own = Strip.render_ansi(after, colours)
        codes += ("0", own) if own else ("0",)
    else:
        if after.color is not None and after.color != before.color:
            codes += after.color.downgrade(colours).get_ansi_codes()
        if after.bgcolor is not None and after.bgcolor != before.bgcolor:
            codes += after.bgcolor.downgrade(colours).get_ansi_codes(foreground=False)
    return f"\x1b[{';'.join(codes)}m" if codes else ""


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

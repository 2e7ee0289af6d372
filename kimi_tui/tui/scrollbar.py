"""The scrollbar of every pane: one cell wide, without a track, and changes of a pane's scroll height without a layout.

It stands beside rows that are painted many times a second, so it paints itself: of its cells there are three kinds, whose strips are
kept. Textual would render all of it for each row that changes.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil
from typing import TYPE_CHECKING, ClassVar, cast

from rich.color import Color
from rich.segment import Segment, Segments
from rich.style import Style
from textual import events
from textual.geometry import Region, Size
from textual.scroll_view import ScrollView
from textual.scrollbar import ScrollBar, ScrollBarRender
from textual.strip import Strip

from kimi_tui.tui.glyphs import ASCII, UNICODE, Glyphs
from kimi_tui.tui.textual_patches.compositor import runs

if TYPE_CHECKING:
    from textual.reactive import Reactive
    from textual.widget import Widget

_TRACK = Color.parse("#555555")
_BAR = Color.parse("bright_magenta")
_PRESSED = "@mouse.down"
_GRAB = "grab"
_FORWARD = "_forward_event"


class ThinScrollBar(ScrollBarRender):
    """Renders a scrollbar as `▐` for the visible part and nothing else; clicks above and below it scroll by a page."""

    GLYPH: ClassVar[str] = UNICODE.scrollbar

    @classmethod
    def render_bar(
        cls,
        size: int = 25,
        virtual_size: float = 50,
        window_size: float = 20,
        position: float = 0,
        thickness: int = 1,
        vertical: bool = True,
        back_color: Color = _TRACK,
        bar_color: Color = _BAR,
    ) -> Segments:
        """Return the bar's cells from top to bottom (a horizontal one is never shown here)."""
        width = thickness if vertical else 1
        up, bar, down, none = cls.cells(Style(color=bar_color, bgcolor=back_color), width)
        if not (window_size and size and virtual_size) or window_size >= virtual_size:
            cells = [none] * size
        else:
            start, length = _extent(size, virtual_size, window_size, position)
            cells = [up] * start + [bar] * length + [down] * (size - start - length)
        if vertical:
            return Segments(cells, new_lines=True)
        return Segments([*cells, Segment.line()], new_lines=False)

    @classmethod
    def cells(cls, style: Style, width: int = 1) -> tuple[Segment, Segment, Segment, Segment]:
        """Return the cell above the bar, the one of the bar, the one below it, and the one where all of the content is visible.

        Args:
            style: the colour of the bar, and of the background.
            width: how wide a cell is.
        """
        blank, back = " " * width, Style(bgcolor=style.bgcolor)
        return (
            Segment(blank, back + Style(meta={_PRESSED: "scroll_up"})),
            Segment(cls.GLYPH * width, style + Style(meta={_PRESSED: _GRAB})),
            Segment(blank, back + Style(meta={_PRESSED: "scroll_down"})),
            Segment(blank, back),
        )


class _Cells:
    """Paints the rows of one scrollbar, in place of its `render_lines`.

    Args:
        bar: the scrollbar.
        renderer: the form of its cells.
    """

    def __init__(self, bar: ScrollBar, renderer: type[ThinScrollBar]) -> None:
        self._bar = bar
        self._renderer = renderer
        self._made_for: tuple[Style, int] | None = None
        self._strips: tuple[Strip, ...] = ()

    def lines(self, crop: Region) -> list[Strip]:
        """Return the strips of a region of the bar."""
        bar = self._bar
        look = cast("ThinScrollBar", bar.render())
        style, size = cast("Style", look.style), bar.size
        if (style, size.width) != self._made_for:
            self._made_for = style, size.width
            self._strips = tuple(
                Strip([cell], size.width) for cell in self._renderer.cells(style, size.width)
            )
        ground = bar.background_colors[1]
        kinds: list[Strip] = []
        for strip in self._strips:
            painted = strip
            for one in bar.get_line_filters():
                painted = painted.apply_filter(one, ground)
            kinds.append(painted)
        up, grip, down, none = kinds
        start, length = _extent(
            size.height, look.virtual_size, look.window_size or look.virtual_size, look.position
        )
        if not length:
            return [none] * crop.height
        return [up if y < start else grip if y < start + length else down for y in crop.line_range]


def _extent(size: int, virtual_size: float, window_size: float, position: float) -> tuple[int, int]:
    """Return the first cell of the bar and its length; length 0 if all of the content is visible."""
    if not size or window_size >= virtual_size:
        return 0, 0
    length = min(size, max(1, round(size * window_size / virtual_size)))
    free = size - length
    share = min(1.0, max(0.0, position / (virtual_size - window_size)))
    start = round(free * share)
    # The ends are reached only if there is nothing more in that direction.
    if position > 0 and start == 0 and free:
        start = 1
    if share < 1 and start == free and free > 1:
        start = free - 1
    return min(start, ceil(free)), length


def move(bar: ScrollBar, virtual_size: int, position: float) -> None:
    """Set size and position of a vertical scrollbar; it is refreshed only where it looks different.

    Args:
        bar: the scrollbar.
        virtual_size: rows of the content.
        position: the first visible row.
    """

    width, height = bar.size

    def cells() -> tuple[int, int]:
        return _extent(height, bar.window_virtual_size, bar.window_size, bar.position)

    before = cells()
    bar.set_reactive(ScrollBar.window_virtual_size, virtual_size)
    bar.set_reactive(ScrollBar.position, position)
    if (now := cells()) != before:
        changed = {*range(before[0], sum(before))} ^ {*range(now[0], sum(now))}
        for rows in runs(sorted(changed)):
            bar.refresh(Region(0, rows.start, width, len(rows)))


def take_height(pane: ScrollView, height: int, top: float) -> bool:
    """Set the height of a pane's content without the layout of the whole screen that Textual would make of it.

    Args:
        pane: the pane.
        height: rows of its content.
        top: the first visible row, for the scrollbar.

    Returns:
        False, with nothing done, where the scrollbar appears or disappears, which needs a layout.
    """
    shows = pane.show_vertical_scrollbar
    if shows != (height > pane.container_size.height):
        return False
    pane.set_reactive(
        cast("Reactive[Size]", ScrollView.virtual_size), Size(pane.size.width, height)
    )
    if shows:
        move(pane.vertical_scrollbar, height, top)
    return True


class _AsciiScrollBar(ThinScrollBar):
    GLYPH: ClassVar[str] = ASCII.scrollbar


def use_thin_scrollbar(widget: Widget, glyphs: Glyphs = UNICODE) -> None:
    """Use the thin scrollbar for a widget's vertical scrollbar."""
    plain = glyphs.scrollbar == ASCII.scrollbar
    bar = widget.vertical_scrollbar
    # Textual intends this for a single scrollbar; its annotation allows only the class.
    renderer = _AsciiScrollBar if plain else ThinScrollBar
    setattr(bar, "renderer", renderer)  # noqa: B010
    setattr(bar, "render_lines", _Cells(bar, renderer).lines)  # noqa: B010
    if _FORWARD not in vars(bar):
        setattr(bar, _FORWARD, _grabbing(bar))


def _grabbing(bar: ScrollBar) -> Callable[[events.Event], None]:
    """Return an event handler for a scrollbar that captures the mouse as soon as the button is pressed.

    Textual captures it when the scrollbar has handled the press. By then events of the same read have gone elsewhere, so a
    fast drag would move nothing, and the mouse would stay captured after its release.
    """
    forward = cast("Callable[[events.Event], None]", getattr(bar, _FORWARD))

    def take(event: events.Event) -> None:
        if isinstance(event, events.MouseDown) and event.style.meta.get(_PRESSED) == _GRAB:
            bar.capture_mouse()
        forward(event)

    return take

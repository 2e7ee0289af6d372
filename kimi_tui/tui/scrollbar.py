"""The scrollbar of every pane: one cell wide, without a track, and changes of a pane's scroll height without a layout."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil
from typing import TYPE_CHECKING, ClassVar, cast

from rich.color import Color
from rich.segment import Segment, Segments
from rich.style import Style
from textual import events
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.scrollbar import ScrollBar, ScrollBarRender

from kimi_tui.tui.glyphs import ASCII, UNICODE, Glyphs

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
        blank = " " * (thickness if vertical else 1)
        if not (window_size and size and virtual_size) or window_size >= virtual_size:
            cells = [Segment(blank, Style(bgcolor=back_color))] * size
        else:
            start, length = _extent(size, virtual_size, window_size, position)
            up = Segment(blank, Style(bgcolor=back_color, meta={_PRESSED: "scroll_up"}))
            down = Segment(blank, Style(bgcolor=back_color, meta={_PRESSED: "scroll_down"}))
            bar = Segment(
                cls.GLYPH * (thickness if vertical else 1),
                Style(color=bar_color, bgcolor=back_color, meta={_PRESSED: _GRAB}),
            )
            cells = [up] * start + [bar] * length + [down] * (size - start - length)
        if vertical:
            return Segments(cells, new_lines=True)
        return Segments([*cells, Segment.line()], new_lines=False)


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

    def look() -> tuple[int, int]:
        size = bar.size.height
        return _extent(size, bar.window_virtual_size, bar.window_size, bar.position)

    before = look()
    bar.set_reactive(ScrollBar.window_virtual_size, virtual_size)
    bar.set_reactive(ScrollBar.position, position)
    if look() != before:
        bar.refresh()


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
    setattr(bar, "renderer", _AsciiScrollBar if plain else ThinScrollBar)  # noqa: B010
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

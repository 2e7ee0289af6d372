"""Turns rows of spans into strips, in the colours of the style sheet: for every widget that paints its rows itself.

A span of style `strong/b@band` has the colours of the component classes `PREFIX--strong` and `PREFIX--band` of its widget. Styles have
been through the app's line filters (no colours, no colours of the terminal's own), so whole strips can be handed to Textual past its
cache, which would make a new strip of every row at each refresh.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from itertools import pairwise

from rich.cells import cell_len
from rich.color import Color, blend_rgb
from rich.segment import Segment
from rich.style import Style
from textual.color import Color as TextualColor
from textual.strip import Strip
from textual.widget import Widget

from kimi_tui.foreign_text import clean
from kimi_tui.tui.faults import log_fault, not_shown
from kimi_tui.tui.rows import COLOUR, HIT_LINK, Span, style_parts
from kimi_tui.tui.textual_patches.widgets import LateStyled

FADED = "~"
"""The style flag of rows that are being undone: faded."""
FADE = 0.6
"""Share of the background in the colour of faded text."""

INKS = ("ink", "strong", "quiet", "accent", "tool", "dmail", "compaction", "error")
"""The names of the styles of text that every view of a conversation has."""
LINK_LIMIT = 2_000
"""Maximum length of an address that is sent to the terminal as a link (OSC 8); some terminals crash over longer ones."""


class Painter:
    """Paints the rows of one widget: converts their spans to strips in the colours of the style sheet.

    Styles are made when they are first asked for and kept until `clear`, which a `PaintedWidget` calls.

    Args:
        widget: the widget whose component classes have the colours. A style name that is none of them is painted as `ink`.
        prefix: the part of the class names before the two dashes.
        blank: the style of empty cells.
    """

    def __init__(self, widget: Widget, prefix: str, blank: str = "quiet") -> None:
        self._widget = widget
        self._prefix = prefix
        self._blank = blank
        self._styles: dict[str, dict[str, Style]] = {}
        """The styles by the name of the ground, then by their own names."""
        self._overlays: dict[str, Style] = {}
        self._links: dict[tuple[str, str, str], Style] = {}
        self._blanks: dict[tuple[int, str], Strip] = {}

    def clear(self) -> None:
        """Forget all colours: the theme or the filters have changed."""
        self._styles = {}
        self._overlays = {}
        self._links = {}
        self._blanks = {}

    # --- styles

    def style(self, name: str, ground: str = "") -> Style:
        """Return the style of a name: `ink/b`, on the background of `ground` unless the name has its own, as in `ink@raised`.

        Args:
            name: as `rows.style_parts` takes it apart.
            ground: the component class whose background is under it; empty for that of the widget.
        """
        known = self._styles.setdefault(ground, {})
        style = known.get(name)
        if style is None:
            if name.startswith(COLOUR):
                from kimi_tui.tui.pictures import cell_style

                # A picture has thousands of such styles, so they are not kept.
                return self.allowed(cell_style(name))
            style = known[name] = self.allowed(self._made(name, ground))
        return style

    def _made(self, name: str, ground: str) -> Style:
        ink, flags, own = style_parts(name)
        back = self._component(own) or self._component(ground) or Style()
        style = self._widget.rich_style + back
        # If the theme shows a selection by reversing colours, other colours on it would look like grounds of their own.
        if not back.reverse:
            style += self._component(ink) or self._component("ink") or Style()
        if flags:
            style += Style(
                bold="b" in flags or None,
                italic="i" in flags or None,
                underline="u" in flags or None,
                strike="s" in flags or None,
            )
        return faded(style) if FADED in flags else style

    def _component(self, name: str) -> Style | None:
        """Return the colours and weight that a component class itself sets; None if the widget has no such class."""
        whole = f"{self._prefix}--{name}"
        if whole not in self._widget.COMPONENT_CLASSES:
            return None
        try:
            return self._widget.get_component_rich_style(whole, partial=True)
        except KeyError:
            # The widget has no style sheet yet, or is being removed. Once it has colours it is painted again.
            return None

    def overlay(self, name: str) -> Style:
        """Return the style of a component class alone, to be laid over painted rows: a selection, a match, a cursor."""
        style = self._overlays.get(name)
        if style is None:
            style = self._overlays[name] = self.allowed(self._component(name) or Style())
        return style

    def allowed(self, style: Style) -> Style:
        """Return a style as the app's line filters leave it. A style that has been through the filters is not changed again."""
        segments = [Segment(" ", style)]
        ground: TextualColor | None = None
        for one in self._widget.get_line_filters():
            if one.enabled:
                colour = self._widget.rich_style.bgcolor
                ground = ground or (
                    TextualColor.from_rich_color(colour) if colour else TextualColor(0, 0, 0)
                )
                segments = one.apply(segments, ground)
        return segments[0].style or style

    def _linked(self, name: str, ground: str, url: str) -> Style:
        """Return a style whose text is a terminal hyperlink (OSC 8), with one id an address, so that the parts of a link in several
        rows belong together. Addresses that are not plain http(s) are left out.
        """
        style = self.style(name, ground)
        if not is_web_address(url):
            return style
        key = name, ground, url
        linked = self._links.get(key)
        if linked is None:
            if len(self._links) > 1_000:
                self._links.clear()
            linked = self._links[key] = style + Style(link=url)
        return linked

    # --- rows

    def strip(self, spans: Iterable[Span], width: int, ground: str = "") -> Strip:
        """Return a row of exactly `width` cells; one that cannot be painted is plain text.

        Args:
            spans: what stands in it.
            width: cells of the row; the rest is filled with blanks.
            ground: the background of spans that name none.
        """
        try:
            return self._strip(spans, width, ground)
        except Exception:
            log_fault("painting a row")
            return _plain(spans, width)

    def _strip(self, spans: Iterable[Span], width: int, ground: str) -> Strip:
        known = self._styles.setdefault(ground, {})
        segments: list[Segment] = []
        used = 0
        for written, name, hit in spans:
            text = written if written.isprintable() else _harmless(written)
            style = known.get(name)
            if style is None:
                style = self.style(name, ground)
            if hit.startswith(HIT_LINK):
                style = self._linked(name, ground, hit[len(HIT_LINK) :])
            segments.append(Segment(text, style))
            used += len(text) if text.isascii() else cell_len(text)
        if used < width:
            segments.append(Segment(" " * (width - used), self.style(self._blank, ground)))
        strip = Strip(segments, max(used, width))
        return strip.crop(0, width) if used > width else strip

    def blank(self, width: int, ground: str = "") -> Strip:
        """Return an empty row."""
        strip = self._blanks.get((width, ground))
        if strip is None:
            strip = self._blanks[width, ground] = self.strip((), width, ground)
        return strip

    # --- what stands out in rows that are painted

    def selected(self, strip: Strip, start: int, end: int, look: str) -> Strip:
        """Return the strip with some of its characters styled as a selection (`end` -1: to the end of its text)."""
        length = len(strip.text.rstrip())
        stop = length if end < 0 else min(end, length)
        if start >= stop:
            return strip
        style = self.overlay(look)
        out: list[Segment] = []
        position = 0
        for text, own, _ in strip:
            cuts = (0, max(0, start - position), max(0, stop - position), len(text))
            for part, (low, high) in enumerate(pairwise(cuts)):
                piece = text[low:high]
                if piece:
                    chosen = _over(own, style) if part == 1 else own
                    out.append(Segment(piece, chosen))
            position += len(text)
        return Strip(out, strip.cell_length)

    def with_cursor(self, strip: Strip, cell: int) -> Strip:
        """Return the strip with a cursor over the character in one of its cells."""
        before, under, after = strip.crop(0, cell), strip.crop(cell, cell + 2), strip.crop(cell + 1)
        text = under.text[:1] or " "
        width = max(1, cell_len(text))
        own = next((one.style for one in under if one.style), None)
        style = self.overlay("cursor")
        # Without colours the cursor is reversed if the text around it is not, and the other way round.
        over = _over(own, style) if style.reverse else style + _UPRIGHT
        return Strip.join(
            [before, Strip([Segment(text, over)], width), after.crop(width - 1)]
        ).adjust_cell_length(strip.cell_length)

    def with_edge(self, strip: Strip, edge: str, ink: str = "lost") -> Strip:
        """Return the strip with an edge in its first cell: of a row that the model is not sent, or in another ink."""
        first = next(iter(strip), None)
        if first is None:
            return strip
        ground = first.style.bgcolor if first.style is not None else None
        style = self.style(ink) + Style(bgcolor=ground)
        return Strip.join([Strip([Segment(edge, style)], 1), strip.crop(1)])

    def dropped(self, strip: Strip, edge: str) -> Strip:
        """Return the strip of a row that a rewind would drop: grey, with an edge in its first cell."""
        lost = self.style("lost@page")
        grey = lost + _PLAIN
        out = [
            Segment(text, _greyed(style, grey) if style else grey)
            for text, style, _ in strip.crop(1)
        ]
        return Strip([Segment(edge, lost), *out], strip.cell_length)

    def receded(self, strip: Strip) -> Strip:
        """Return the strip dimmed, for rows behind a floating pane; unchanged if the terminal's colours are unknown."""
        out = [Segment(text, _receding(style) if style else style) for text, style, _ in strip]
        return Strip(out, strip.cell_length)


def is_web_address(url: str) -> bool:
    """Return whether an address is http(s) and holds visible ASCII alone, so that no part of it ends its terminal sequence."""
    return (
        len(url) <= LINK_LIMIT
        and url.lower().startswith(("http://", "https://"))
        and all("!" <= char <= "~" for char in url)
    )


def _harmless(text: str) -> str:
    """Return the text without control characters: the last check before the terminal, whatever a layout let through."""
    return clean(text).replace("\n", " ").replace("\t", " ")


def _plain(spans: Iterable[Span], width: int) -> Strip:
    """Return a row without colours. Never raises."""
    try:
        text = _harmless("".join(span.text for span in spans))
    except Exception:
        text = not_shown()
    return Strip([Segment(text)]).adjust_cell_length(width)


def faded(style: Style) -> Style:
    """Return the style with its ink blended towards its background; with the terminal's own dim if colours are not known."""
    color, back = style.color, style.bgcolor
    if color is None or back is None or color.triplet is None or back.triplet is None:
        return style + Style(dim=True)
    return style + Style(
        color=Color.from_triplet(blend_rgb(color.triplet, back.triplet, FADE)), bold=False
    )


_UPRIGHT = Style(reverse=False)
_BRIGHT = Style(dim=False)
_PLAIN = Style(bold=False, reverse=False)


@lru_cache(maxsize=512)
def _over(own: Style | None, style: Style) -> Style:
    """Return a style laid over another one. Reversed over reversed is not reversed, so that the text stands out there too."""
    if own is None:
        return style
    both = own + style + _BRIGHT
    return both + _UPRIGHT if own.reverse and style.reverse else both


@lru_cache(maxsize=512)
def _greyed(own: Style, grey: Style) -> Style:
    """Return a style in another style's colours; links stay links, and struck out text stays struck out."""
    return own + grey


@lru_cache(maxsize=512)
def _receding(style: Style) -> Style:
    known = style.color is not None and style.color.triplet is not None
    return faded(style) if known else style


class PaintedWidget(LateStyled):
    """A widget that paints its rows with a painter, as the first base of its class."""

    _painter: Painter

    def notify_style_update(self) -> None:
        """Forget the colours of the painter. Textual calls this when they may have changed."""
        super().notify_style_update()
        self._painter.clear()

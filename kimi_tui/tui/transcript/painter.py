"""From rows to strips, in the colours of the style sheet.

Strips are cached where nothing but the scroll position changes, and made anew for the few rows that stand out: under
the pointer, selected, found, or covered by the motion of a revert.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING

from rich.color import Color, blend_rgb
from rich.segment import Segment
from rich.style import Style
from textual.color import Color as TextualColor
from textual.filter import LineFilter
from textual.strip import Strip

from kimi_tui.foreign_text import clean
from kimi_tui.tui.faults import NOTHING, log_fault
from kimi_tui.tui.rows import BLANK, COLOUR, HIT_LINK, Line, Span, cells, past_line, style_parts

if TYPE_CHECKING:
    from kimi_tui.tui.transcript.viewport import View


INKS = (
    "ink",
    "strong",
    "quiet",
    "accent",
    "tool",
    "dmail",
    "compaction",
    "lost",
    "error",
    "ok",
    "warn",
    "line",
    "add",
    "del",
    "code-keyword",
    "code-string",
    "code-comment",
)
GROUNDS = ("page", "raised", "band", "select", "lost-bg", "dmail-bg", "add-bg", "del-bg")

PREFIX = "transcript--"
CLASSES = frozenset(PREFIX + name for name in (*INKS, *GROUNDS))
"""The component classes that the style sheet colours."""

FADED = "~"
"""The flag of what is being undone."""
FADE = 0.6
"""How far what is being undone goes towards the background."""


_NO_STYLES = "COMPONENT_CLASSES"
"""What Textual's error says of a component class whose styles are not there (yet)."""
LINK_LIMIT = 2_000
"""The longest address that is told to the terminal; some end the program over longer ones."""


class Palette(dict[str, Style]):
    """A style for every name, `ink/b@raised` and the like, made when first asked for."""

    def __init__(self, component: Callable[[str], Style]) -> None:
        super().__init__()
        self._component = component
        self._links: dict[tuple[str, str], Style] = {}

    def __missing__(self, name: str) -> Style:
        ink, flags, ground = style_parts(name)
        if ink.startswith(COLOUR):
            from kimi_tui.tui.pictures import cell_style

            return cell_style(name)
        if ink not in INKS:
            ink = "ink"
        base = self._component(PREFIX + ink)
        back = self._component(PREFIX + (ground if ground in GROUNDS else "page"))
        style = Style(
            color=base.color,
            bgcolor=back.bgcolor,
            bold=base.bold or "b" in flags or None,
            dim=base.dim,
            italic=base.italic or "i" in flags or None,
            underline="u" in flags or None,
            strike="s" in flags or None,
            reverse=back.reverse,
        )
        if FADED in flags:
            style = faded(style)
        self[name] = style
        return style

    def strip(self, line: Line, width: int) -> Strip:
        """The row as Textual draws it, exactly `width` cells wide."""
        segments: list[Segment] = []
        used = 0
        fill = line.fill
        on_page = fill == "page"
        for raw, style, hit in line.spans:
            text = raw
            if not text:
                continue
            if not text.isprintable():
                text = _harmless(text)
            name = style if on_page or "@" in style else f"{style}@{fill}"
            ink = self[name]
            if hit and hit.startswith(HIT_LINK):
                ink = self.linked(name, hit[len(HIT_LINK) :])
            segments.append(Segment(text, ink))
            used += cells(text)
        if used < width:
            segments.append(
                Segment(" " * (width - used), self["ink" if on_page else f"ink@{fill}"])
            )
        strip = Strip(segments, max(used, width))
        return strip.crop(0, width) if used > width else strip

    def linked(self, name: str, url: str) -> Style:
        """A style that also tells the terminal (OSC 8) where its text leads: always the same one, so that the parts of
        a link in several rows belong together. Addresses that are not plain http(s) are not told.
        """
        key = name, url
        style = self._links.get(key)
        if style is None:
            if len(self._links) > 1_000:
                self._links.clear()
            style = self[name] + Style(link=url) if is_web_address(url) else self[name]
            self._links[key] = style
        return style


def is_web_address(url: str) -> bool:
    """Whether an address is http(s) and holds visible ASCII alone, so nothing in it ends the sequence that it is sent in."""
    return (
        len(url) <= LINK_LIMIT
        and url.lower().startswith(("http://", "https://"))
        and all("!" <= char <= "~" for char in url)
    )


def _harmless(text: str) -> str:
    """The last border before the terminal: whatever a layout let through, no control byte goes on from here."""
    return clean(text).replace("\n", " ").replace("\t", " ")


def faded(style: Style) -> Style:
    """The style with its ink blended towards its background; the terminal's own dim where colours are not known."""
    color, back = style.color, style.bgcolor
    if color is None or back is None or color.triplet is None or back.triplet is None:
        return style + Style(dim=True)
    return style + Style(
        color=Color.from_triplet(blend_rgb(color.triplet, back.triplet, FADE)), bold=False
    )


_UPRIGHT = Style(reverse=False)
_BRIGHT = Style(dim=False)


class Painter:
    """Makes strips of one width, in the colours of the moment, with Textual's line filters already applied.

    Args:
        component: the style of a component class.
        filters: the line filters of the app (no colour, ANSI colours).
    """

    def __init__(
        self, component: Callable[[str], Style], filters: Callable[[], Sequence[LineFilter]]
    ) -> None:
        self._component = component
        self._filters = filters
        self._palette = Palette(component)
        self._active: list[LineFilter] | None = None
        self._ground = TextualColor(0, 0, 0)
        self._blank: Strip | None = None
        self._lost: tuple[Segment, Style] | None = None
        self.width = 0

    def reset(self) -> None:
        """Colours or filters have changed."""
        self._palette = Palette(self._component)
        self._active = None
        self._blank = self._lost = None

    def resize(self, width: int) -> None:
        """Strips have another width from now on."""
        self.width = width
        self._blank = None

    def blank(self) -> Strip:
        """An empty row."""
        if self._blank is None:
            self._blank = self.paint(BLANK)
        return self._blank

    def paint(self, line: Line) -> Strip:
        """A row as it is sent to the terminal; one that cannot be painted is plain text."""
        try:
            return self._filtered(self._palette.strip(line, self.width))
        except Exception as error:
            # A pane that Textual asks before it has its style sheet has no colours; with them it is painted anew.
            if not (isinstance(error, KeyError) and _NO_STYLES in str(error)):
                log_fault("painting a row")
            return self._plain(line)

    def _plain(self, line: Line) -> Strip:
        try:
            text = clean(line.text).replace("\n", " ").replace("\t", " ")
        except Exception:
            text = NOTHING
        return Strip([Segment(text)]).adjust_cell_length(self.width)

    def view_strip(self, view: View, index: int) -> Strip:
        """A row of a block, from its cache where it is there."""
        strip = view.strips[index]
        if strip is None:
            line = view.lines[index]
            strip = self.paint(past_line(line) if view.block.is_past else line)
            view.strips[index] = strip
        return strip

    def hovered(self, line: Line) -> Strip:
        """A row under the pointer that a click would act on."""
        return self.paint(line._replace(fill="band") if line.fill == "page" else line)

    def current(self, line: Line, *, focused: bool, edge: str) -> Strip:
        """The row that the keys act on."""
        spans = line.spans
        first = spans[0] if spans else None
        rest = spans[1:]
        if first is not None and len(first.text) > 1:
            rest = (first._replace(text=first.text[1:]), *rest)
        lead = type(first)(edge, "accent" if focused else "quiet") if first is not None else None
        marked = (lead, *rest) if lead is not None else spans
        ground = "select" if focused else "band"
        return self.paint(line._replace(spans=marked, fill=ground))

    def selected(self, strip: Strip, start: int, end: int, style: Style) -> Strip:
        """The strip with some of its characters selected (`end` -1: to the end of its text)."""
        length = len(strip.text.rstrip())
        stop = length if end < 0 else min(end, length)
        if start >= stop:
            return strip
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

    def with_cursor(self, strip: Strip, cell: int, style: Style) -> Strip:
        """The strip with a cursor over the character in one of its cells."""
        before, under, after = strip.crop(0, cell), strip.crop(cell, cell + 2), strip.crop(cell + 1)
        text = under.text[:1] or " "
        width = max(1, cells(text))
        own = next((one.style for one in under if one.style), None)
        # Without colours it is the other way round than what is around it.
        over = _over(own, style) if style.reverse else style + _UPRIGHT
        return Strip.join(
            [before, Strip([Segment(text, over)], width), after.crop(width - 1)]
        ).adjust_cell_length(strip.cell_length)

    def with_edge(self, strip: Strip, edge: str, ink: str = "lost") -> Strip:
        """The strip with an edge in its first cell: of a row that the model is not sent, or with another ink."""
        first = next(iter(strip), None)
        lead = next(iter(self.paint(Line((Span(edge, ink),)))), None)
        if first is None or lead is None or lead.style is None:
            return strip
        ground = first.style.bgcolor if first.style is not None else None
        style = lead.style + Style(bgcolor=ground)
        return Strip.join([Strip([Segment(lead.text, style)], 1), strip.crop(1)])

    def dropped(self, strip: Strip, edge: str) -> Strip:
        """The strip of a row that a rewind would take: grey on the page, behind the edge of what is left."""
        if self._lost is None:
            lost = self.allowed(self._palette["lost@page"])
            self._lost = Segment(edge, lost), lost + Style(bold=False, reverse=False)
        lead, grey = self._lost
        out = [
            Segment(text, _greyed(style, grey) if style else grey)
            for text, style, _ in strip.crop(1)
        ]
        return Strip([lead, *out], strip.cell_length)

    def receded(self, strip: Strip) -> Strip:
        """The strip as it stands behind something that floats above it; as it is where colours are not known."""
        out = [Segment(text, _receding(style) if style else style) for text, style, _ in strip]
        return Strip(out, strip.cell_length)

    def allowed(self, style: Style) -> Style:
        """A style as the line filters leave it, for what is laid over strips that they have gone through."""
        return next(
            (s.style for s in self._filtered(Strip([Segment(" ", style)], 1)) if s.style), style
        )

    def with_mark(self, strip: Strip, line: Line) -> Strip:
        """The strip with a mark at its right end."""
        mark = self._filtered(self._palette.strip(line, line.width))
        return Strip.join([strip.crop(0, max(0, self.width - mark.cell_length)), mark])

    def _filtered(self, strip: Strip) -> Strip:
        if self._active is None:
            self._active = [one for one in self._filters() if one.enabled]
            ground = self._palette["ink"].bgcolor
            self._ground = (
                TextualColor(0, 0, 0) if ground is None else TextualColor.from_rich_color(ground)
            )
        for one in self._active:
            strip = strip.apply_filter(one, self._ground)
        return strip


@lru_cache(maxsize=512)
def _over(own: Style | None, style: Style) -> Style:
    """A style laid over another one; reversed twice is not reversed, so that it stands out there too."""
    if own is None:
        return style
    both = own + style + _BRIGHT
    return both + _UPRIGHT if own.reverse and style.reverse else both


@lru_cache(maxsize=512)
def _greyed(own: Style, grey: Style) -> Style:
    """A style in another one's colours; links stay links, and what is struck out stays so."""
    return own + grey


@lru_cache(maxsize=512)
def _receding(style: Style) -> Style:
    known = style.color is not None and style.color.triplet is not None
    return faded(style) if known else style

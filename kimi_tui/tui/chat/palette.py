"""From the names of styles to colours, which come from the style sheet alone."""

from __future__ import annotations

from collections.abc import Callable

from rich.color import Color, blend_rgb
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from kimi_tui.foreign_text import clean
from kimi_tui.tui.chat.lines import Line, cells, style_parts

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


class Palette(dict[str, Style]):
    """A style for every name, `ink/b@raised` and the like, made when first asked for."""

    def __init__(self, component: Callable[[str], Style]) -> None:
        super().__init__()
        self._component = component

    def __missing__(self, name: str) -> Style:
        ink, flags, ground = style_parts(name)
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
        for raw, style, _ in line.spans:
            text = raw
            if not text:
                continue
            if not text.isprintable():
                text = _harmless(text)
            name = style if on_page or "@" in style else f"{style}@{fill}"
            segments.append(Segment(text, self[name]))
            used += cells(text)
        if used < width:
            segments.append(
                Segment(" " * (width - used), self["ink" if on_page else f"ink@{fill}"])
            )
        strip = Strip(segments, max(used, width))
        return strip.crop(0, width) if used > width else strip


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

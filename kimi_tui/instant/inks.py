"""Paints rows of spans as output for the terminal, in the colours of the app's style sheets, without Textual or Rich's console."""

from __future__ import annotations

from collections.abc import Mapping

from kimi_tui.tui.palette import FEW, MANY
from kimi_tui.tui.rows import Line, fitted, style_parts

_COLOURS = {
    "ink": "ink",
    "strong": "ink-strong",
    "quiet": "ink-quiet",
    "accent": "accent",
    "line": "line-strong",
    "divider": "line",
    "dmail": "kind-dmail",
    "lost": "kind-lost",
    "error": "kind-error",
    "cursor": "on-accent",
}
"""The colours of the styles, as `chat.tcss`, `prompt.tcss`, `main.tcss` and `frame` have them; a test compares the cells."""
_BOLD = frozenset({"strong", "dmail"})
_DIM = frozenset({"quiet", "lost"})
"""The styles that are dim where the terminal's own colours are used, flagged `d`."""
_NAMED = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")


class Inks:
    """Paints rows for one terminal.

    Args:
        palette: the colours by name; None to paint with the terminal's own ink and page, as long as the theme is not known.
        colours: the number of colours of the terminal.
        grey: whether colours are replaced by greys (`NO_COLOR`).
        theme: the name of the palette; empty for none.

    Attributes:
        theme: as above.
    """

    def __init__(
        self,
        palette: Mapping[str, str] | None,
        colours: int,
        *,
        grey: bool,
        theme: str = "",
    ) -> None:
        self.theme = theme
        self._palette = palette
        self._colours = colours
        self._grey = grey
        self._known: dict[tuple[str, str], str] = {}

    def row(self, line: Line, width: int) -> str:
        """Return a row in exactly `width` cells, as text with its sequences."""
        written: list[str] = []
        before = ""
        for text, style, _ in fitted(line.spans, width):
            key = (style, line.fill)
            codes = self._known.get(key) or self._known.setdefault(key, self._codes(*key))
            if codes != before:
                written.append(f"\x1b[0{codes}m")
                before = codes
            written.append(text)
        written.append("\x1b[0m")
        return "".join(written)

    def _codes(self, style: str, fill: str) -> str:
        ink, flags, ground = style_parts(style)
        is_cursor = ink == "cursor"
        codes = ";1" if ink in _BOLD or "b" in flags else ""
        palette = self._palette
        if palette is None:
            return codes + (";7" if is_cursor else "")
        if "d" in flags:
            codes += ";2"
        if is_cursor and palette["page"] == "ansi_default":
            codes += ";7"  # as Textual's own style sheet has it for such a theme
        back = palette["accent" if is_cursor else ground or fill]
        return codes + self._colour(palette[_COLOURS[ink]], 38) + self._colour(back, 48)

    def _colour(self, colour: str, kind: int) -> str:
        """Return the codes of a colour, as text (`kind` 38) or background (48)."""
        if colour.startswith("ansi_"):
            name = colour.removeprefix("ansi_")
            if name == "default":
                return f";{kind + 1}"
            bright = name.removeprefix("bright_")
            return f";{kind - 8 + _NAMED.index(bright) + (60 if bright != name else 0)}"
        red, green, blue = bytes.fromhex(colour[1:])
        if self._grey:
            # This is the formula of Textual's `Color.monochrome`.
            red = green = blue = round(red * 0.2126 + green * 0.7152 + blue * 0.0722)
        if self._colours > MANY:
            return f";{kind};2;{red};{green};{blue}"
        return f";{kind};5;{_nearest(red, green, blue)}"


def _nearest(red: int, green: int, blue: int) -> int:
    """Return the number among 256 colours that Rich chooses for a colour (`rich.color.Color.downgrade`)."""
    high, low = max(red, green, blue) / 255, min(red, green, blue) / 255
    light, spread = (high + low) / 2, high - low
    divisor = high + low if light <= 0.5 else 2 - high - low
    if not spread or spread / divisor < 0.15:
        grey = round(light * 25.0)
        return 16 if not grey else 231 if grey == 25 else 231 + grey
    parts = [part / 95 if part < 95 else 1 + (part - 95) / 40 for part in (red, green, blue)]
    six_red, six_green, six_blue = map(round, parts)
    return 16 + 36 * six_red + 6 * six_green + six_blue


def dimmed(line: Line) -> Line:
    """Return a row of the chat as a theme of the terminal's own colours shows it: what is quiet is dim."""
    spans = (
        span._replace(style=f"{span.style}/d") if span.style in _DIM else span
        for span in line.spans
    )
    return line._replace(spans=tuple(spans))


def has_own_colours(colours: int) -> bool:
    """Return whether a terminal with this number of colours gets the theme of its own colours."""
    return colours <= FEW

"""A terminal's screen as an SVG picture: one rectangle per run of background, one text per run of equal style.

Used for the pictures in the README and to look at a failed whole-program test; nothing is compared by these bytes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from html import escape

from pyte.screens import Char

CELL_WIDTH = 9.6
CELL_HEIGHT = 20.0
FONT_SIZE = 16
_BASELINE = 15.0
_MARGIN = 12.0
FONTS = '"JetBrains Mono","DejaVu Sans Mono","Fira Code",Menlo,Consolas,monospace'

_NAMED = {
    "black": "#16191e",
    "red": "#f97f7a",
    "green": "#7ad19a",
    "brown": "#e7d26c",
    "blue": "#73bbf9",
    "magenta": "#c79feb",
    "cyan": "#6cabb2",
    "white": "#dadee5",
}

Row = Sequence[Char]


def svg_of(rows: Sequence[Row], *, ink: str = "#dadee5", page: str = "#101318") -> str:
    """Return the screen as a whole SVG file."""
    width, height = picture_size(rows)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{height:g}"'
        f' viewBox="0 0 {width:g} {height:g}">\n'
        f'<rect width="100%" height="100%" rx="8" fill="{page}"/>\n'
        f"{group_of(rows, ink=ink, page=page)}</svg>\n"
    )


def picture_size(rows: Sequence[Row]) -> tuple[float, float]:
    """Return width and height of the picture, with its margin."""
    columns = max(len(row) for row in rows)
    return columns * CELL_WIDTH + 2 * _MARGIN, len(rows) * CELL_HEIGHT + 2 * _MARGIN


def group_of(rows: Sequence[Row], *, ink: str = "#dadee5", page: str = "#101318") -> str:
    """Return the screen as one `<g>`, to stand alone or as a frame among others."""
    backgrounds: list[str] = []
    texts: list[str] = []
    for y, row in enumerate(rows):
        top = _MARGIN + y * CELL_HEIGHT
        for start, cells in _runs(row, lambda cell: _colours(cell, ink, page)[1]):
            colour = _colours(cells[0], ink, page)[1]
            if colour != page:
                backgrounds.append(
                    f'<rect x="{_MARGIN + start * CELL_WIDTH:g}" y="{top:g}"'
                    f' width="{len(cells) * CELL_WIDTH:g}" height="{CELL_HEIGHT:g}" fill="{colour}"/>'
                )
        for start, cells in _runs(row, lambda cell: _text_style(cell, ink, page)):
            style = _text_style(cells[0], ink, page)
            texts += [_text(start + at, top, piece, style) for at, piece in _pieces(cells)]
    return (
        f'<g font-family=\'{FONTS}\' font-size="{FONT_SIZE}" shape-rendering="crispEdges">\n'
        + "\n".join(backgrounds)
        + "\n"
        + "\n".join(texts)
        + "\n</g>\n"
    )


def _pieces(cells: Sequence[Char]) -> Iterator[tuple[int, Sequence[Char]]]:
    """Yield the parts between two or more spaces with their places: browsers collapse spaces in a text, `xml:space` or not."""
    row = "".join("x" if cell.data.strip() or not cell.data else " " for cell in cells)
    for found in re.finditer(r"x+(?: x+)*", row):
        yield found.start(), cells[found.start() : found.end()]


def _text(start: int, top: float, cells: Sequence[Char], style: tuple[str, ...]) -> str:
    fill, *attributes = style
    words = "".join(cell.data for cell in cells)
    # Fonts differ in width, and characters outside ASCII may come from another font: every run is made to fit its cells.
    at = f"{_MARGIN + start * CELL_WIDTH:.1f}"
    if words.isascii():
        attributes.append(f'textLength="{len(words) * CELL_WIDTH:.1f}"')
    else:
        at = " ".join(
            f"{_MARGIN + (start + i) * CELL_WIDTH:.1f}"
            for i, cell in enumerate(cells)
            for _ in cell.data
        )
    more = "".join(f" {attribute}" for attribute in attributes)
    return f'<text x="{at}" y="{top + _BASELINE:g}" fill="{fill}"{more}>{escape(words)}</text>'


def _runs(row: Row, key_of: Callable[[Char], object]) -> Iterator[tuple[int, list[Char]]]:
    start = 0
    while start < len(row):
        key = key_of(row[start])
        end = start + 1
        while end < len(row) and key_of(row[end]) == key:
            end += 1
        yield start, list(row[start:end])
        start = end


def _hex(name: str, default: str) -> str:
    if name == "default":
        return default
    if re.fullmatch(r"[0-9a-fA-F]{6}", name):
        return f"#{name}"
    return _NAMED.get(name.removeprefix("bright"), default)


def _colours(cell: Char, ink: str, page: str) -> tuple[str, str]:
    front, back = _hex(cell.fg, ink), _hex(cell.bg, page)
    return (back, front) if cell.reverse else (front, back)


def _text_style(cell: Char, ink: str, page: str) -> tuple[str, ...]:
    style = [_colours(cell, ink, page)[0]]
    if cell.bold:
        style.append('font-weight="bold"')
    if cell.italics:
        style.append('font-style="italic"')
    lines = [
        name
        for name, on in (("underline", cell.underscore), ("line-through", cell.strikethrough))
        if on
    ]
    if lines:
        style.append(f'text-decoration="{" ".join(lines)}"')
    return tuple(style)

"""pyte's screen and parser on shorter ways for what programs write most: plain text of single cells, and sequences of numbers.

pyte goes through a sequence character by character and makes a new cell of each letter; reading what the program draws
took several times as long as drawing it. All that is not on these ways goes through pyte's own.
"""

from __future__ import annotations

import functools
import re

import pyte
from pyte import charsets, modes
from pyte.screens import Char, wcwidth

_STEP = re.compile(r"\x1b\[([0-9;]*)([@-~])|" + pyte.Stream._text_pattern.pattern)  # pyright: ignore[reportPrivateUsage]


class _Cells(dict[str, Char]):
    """A dictionary of the cells of characters one cell wide, in one style."""

    def __init__(self, style: Char) -> None:
        super().__init__()
        self._style = style

    def __missing__(self, character: str) -> Char:
        if wcwidth(character) != 1:
            raise KeyError(character)
        cell = self[character] = self._style._replace(data=character)
        return cell


class QuickScreen(pyte.Screen):
    """A screen that caches the cells and styles it has drawn before."""

    def __init__(self, columns: int, rows: int) -> None:
        self._cells: dict[Char, _Cells] = {}
        self._styles: dict[tuple[Char, tuple[int, ...]], Char] = {}
        self._texts: dict[int, str] = {}
        super().__init__(columns, rows)

    def draw(self, data: str) -> None:
        """Write text at the cursor."""
        cursor = self.cursor
        x, end, style = cursor.x, cursor.x + len(data), cursor.attrs
        is_plain = not self.charset and self.g0_charset is charsets.LAT1_MAP
        if is_plain and end <= self.columns and modes.IRM not in self.mode:
            cells = self._cells.get(style)
            if cells is None:
                cells = self._cells[style] = _Cells(style)
            try:
                drawn = [*map(cells.__getitem__, data)]
            except KeyError:
                pass
            else:
                self.buffer[cursor.y].update(zip(range(x, end), drawn, strict=True))
                cursor.x = end
                self.dirty.add(cursor.y)
                return
        # A combining character may change any row.
        self.dirty.update(range(self.lines))
        super().draw(data)

    def select_graphic_rendition(self, *attrs: int) -> None:
        """Change the style of the text written next."""
        key = self.cursor.attrs, attrs
        known = self._styles.get(key)
        if known is None:
            super().select_graphic_rendition(*attrs)
            known = self._styles[key] = self.cursor.attrs
        self.cursor.attrs = known

    def rows_of_text(self) -> list[str]:
        """Return every row as wide as the screen; only rows that were written to since the last call are made again."""
        columns = range(self.columns)
        for y in self.dirty:
            row = self.buffer[y]
            self._texts[y] = "".join([cell.data for cell in map(row.__getitem__, columns)])
        self.dirty.clear()
        return [self._texts[y] for y in range(self.lines)]


class QuickStream(pyte.ByteStream):
    """Passes the bytes of a program to a `QuickScreen`."""

    def feed(self, data: bytes) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Draw some bytes on the screen."""
        screen = self.listener
        assert screen is not None
        text = self.utf8_decoder.decode(data)
        at = 0
        while at < len(text):
            found = _STEP.match(text, at) if self._taking_plain_text else None
            if found is None:
                pyte.Stream.feed(self, text[at])
                at += 1
                continue
            at = found.end()
            numbers, what = found.groups()
            if what is None:
                screen.draw(found[0])
            else:
                getattr(screen, self.csi.get(what, "debug"))(*_numbers(numbers))


@functools.cache
def _numbers(text: str) -> tuple[int, ...]:
    return tuple(min(int(one or 0), 9999) for one in text.split(";"))

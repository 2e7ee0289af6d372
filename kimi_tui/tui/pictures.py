"""Draws images in a terminal: as cells of two colours each, or by the terminal's graphics protocol (kitty's, or sixels).

Functions that decode take long and belong in a thread. Pillow is imported with the first image. `Thumbnails` has the images
of the chat drawn when their block is first laid out, and caches them. No library for terminal images is used: the one for
Textual queries the terminal at its import, which swallows keys, and writes past Textual's driver.
"""

from __future__ import annotations

import asyncio
import base64
import fcntl
import struct
import sys
import termios
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache, partial
from io import BytesIO
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from rich.style import Style
from textual.message import Message

from kimi_tui.tool_cards import ImageBlock
from kimi_tui.tui.faults import reported
from kimi_tui.tui.glyphs import ASCII, glyphs_of
from kimi_tui.tui.rows import Span
from kimi_tui.tui.screens import app_of

if TYPE_CHECKING:
    from PIL.Image import Image as Picture
    from textual.widget import Widget


UPPER_HALF = "▀"
MAX_PIXELS = 16_000_000
"""Maximum number of pixels of an image that is decoded. Our own have at most four millions; imported ones may be larger."""
_FORMATS = ("PNG", "JPEG", "WEBP", "GIF")
_CELL_COLOURS = 64
"""Number of colours of a picture of cells. Few colours make neighbours alike, so that rows have few runs."""
_SIXEL_COLOURS = 64
MOST_SIXELS = 500_000
"""Maximum number of pixels of a sixel picture, whose encoding takes half a second."""
_PIECE = 4_096
"""Maximum number of characters in a part of a kitty graphics sequence."""

CellRow = tuple[Span, ...]
KEPT = 64
"""Maximum number of cached thumbnails."""
_Key = tuple[str, int, int]
LoadImage = Callable[[ImageBlock], Awaitable[bytes | None]]
"""A function that reads an image; it returns None if the image is gone."""


class CellSize(NamedTuple):
    """Width and height of a character cell, in pixels."""

    width: int
    height: int


USUAL_CELL = CellSize(8, 16)


def draws_cells(node: Widget) -> bool:
    """Return whether images can be drawn by coloured cells: that needs more than sixteen colours, and one block character."""
    return glyphs_of(node) is not ASCII and not app_of(node).native_ansi_color


@lru_cache(maxsize=8_192)
def cell_style(name: str) -> Style:
    """Return the style for a run of cells with the colours `#d0a010@#20242a`: above, and below."""
    above, _, below = name.partition("@")
    return Style(color=above, bgcolor=below)


def cell_of_terminal() -> CellSize | None:
    """Return the size of a cell as the terminal reports it (TIOCGWINSZ); None if it reports none."""
    try:
        packed = fcntl.ioctl(sys.__stderr__ or 2, termios.TIOCGWINSZ, b"\0" * 8)
    except (OSError, ValueError):
        return None
    rows, columns, width, height = struct.unpack("HHHH", packed)
    found = CellSize(width // max(1, columns), height // max(1, rows))
    return found if all(found) else None


def fitted(
    width: int, height: int, columns: int, rows: int, cell: CellSize = USUAL_CELL
) -> tuple[int, int]:
    """Return the size in cells of an image fitted into a box.

    Args:
        width, height: of the image, in pixels.
        columns, rows: of the box, in cells.
        cell: the size of a cell in pixels.

    Returns:
        columns and rows; a small image is not enlarged beyond two pixels a cell.
    """
    width, height = max(1, width), max(1, height)
    shape = width * cell.height / (height * cell.width)
    n_rows = min(rows, -(-height // 2), max(1, round(columns / shape)))
    return max(1, min(columns, round(n_rows * shape))), max(1, n_rows)


def cell_rows(data: bytes, columns: int, rows: int) -> tuple[CellRow, ...]:
    """Return an image as rows of runs, with two pixels above each other in a cell. Takes long.

    Raises:
        ValueError: it cannot be decoded.
    """
    picture = _scaled(data, columns, 2 * rows).quantize(_CELL_COLOURS).convert("RGB")
    pixels = picture.tobytes()
    names = [f"#{pixels[at : at + 3].hex()}" for at in range(0, len(pixels), 3)]
    found: list[CellRow] = []
    for top in range(0, 2 * rows * columns, 2 * columns):
        upper, lower = names[top : top + columns], names[top + columns : top + 2 * columns]
        runs = groupby(f"{above}@{below}" for above, below in zip(upper, lower, strict=True))
        found.append(tuple(Span(UPPER_HALF * len(list(run)), style) for style, run in runs))
    return tuple(found)


def kitty_picture(data: bytes, number: int, columns: int, rows: int, cell: CellSize) -> str:
    """Return the kitty graphics sequence that draws an image at the cursor, which does not move. Takes long.

    Args:
        data: the bytes of the image's file.
        number: the id under which the terminal keeps the image.
        columns, rows: the size of the image in cells.
        cell: the size of a cell in pixels.

    Raises:
        ValueError: it cannot be decoded.
    """
    file = BytesIO()
    _scaled(data, columns * cell.width, rows * cell.height).save(file, "PNG")
    payload = base64.b64encode(file.getvalue()).decode("ascii")
    pieces = [payload[at : at + _PIECE] for at in range(0, len(payload), _PIECE)]
    head = f"a=T,f=100,i={number},p=1,c={columns},r={rows},C=1,q=2,"
    last = len(pieces) - 1
    return "".join(
        f"\x1b_G{'' if at else head}m={int(at < last)};{piece}\x1b\\"
        for at, piece in enumerate(pieces)
    )


def kitty_forget(number: int) -> str:
    """Return the terminal sequence (kitty graphics) that deletes an image."""
    return f"\x1b_Ga=d,d=I,i={number},q=2\x1b\\"


def sixel_picture(data: bytes, columns: int, rows: int, cell: CellSize) -> str:
    """Return the sixel sequence that draws an image at the cursor. Takes long.

    Raises:
        ValueError: it cannot be decoded.
    """
    width, height = columns * cell.width, rows * cell.height
    picture = _scaled(data, width, height).quantize(_SIXEL_COLOURS)
    palette = picture.getpalette() or []
    colours = [
        f"#{index};2;" + ";".join(str(round(value * 100 / 255)) for value in rgb)
        for index, rgb in enumerate(zip(*[iter(palette)] * 3, strict=False))
    ]
    pixels = picture.tobytes()
    bands = (
        "$".join(_band(pixels, width, top, min(6, height - top))) for top in range(0, height, 6)
    )
    return f'\x1bP0;1q"1;1;{width};{height}{"".join(colours)}{"-".join(bands)}\x1b\\'


def _band(pixels: bytes, width: int, top: int, depth: int) -> Iterator[str]:
    """Return the sixels of six rows of pixels, one colour after another."""
    bits: dict[int, bytearray] = {}
    for row in range(depth):
        start = (top + row) * width
        for column, colour in enumerate(pixels[start : start + width]):
            if colour not in bits:
                bits[colour] = bytearray(width)
            bits[colour][column] |= 1 << row
    for colour, columns in bits.items():
        runs = ((value, sum(1 for _ in run)) for value, run in groupby(columns.rstrip(b"\0")))
        drawn = "".join(
            f"!{n}{chr(63 + value)}" if n > 3 else chr(63 + value) * n for value, n in runs
        )
        yield f"#{colour}{drawn}"


def _scaled(data: bytes, width: int, height: int) -> Picture:
    """Return the image scaled to exactly this size in pixels, in plain colours, on white where it is transparent."""
    from PIL import Image as Pillow
    from PIL import ImageOps

    width, height = max(1, width), max(1, height)
    try:
        with Pillow.open(BytesIO(data), formats=_FORMATS) as found:
            if found.width * found.height > MAX_PIXELS:
                raise ValueError("too large")
            found.draft("RGB", (width, height))
            clear = found.convert("RGBA")
    except ValueError:
        raise
    except Exception as error:
        # Decoders raise errors of any type on forged bytes.
        raise ValueError(str(error)) from error
    clear = ImageOps.fit(clear, (width, height), Pillow.Resampling.BOX)
    plain = Pillow.new("RGB", clear.size, "white")
    plain.paste(clear, mask=clear.getchannel("A"))
    return plain


class Thumbnails:
    """A cache of images drawn as cells, by hash and size; missing ones are made in the background.

    Args:
        owner: the widget that shows them; its workers make them, and it gets the messages.
        load: reads an image; returns None if its file is gone.
    """

    class Ready(Message, bubble=False):
        """The rows of an image can be drawn now, or cannot be made."""

        def __init__(self, image: ImageBlock) -> None:
            super().__init__()
            self.image = image

    def __init__(self, owner: Widget, load: LoadImage) -> None:
        self._owner = owner
        self._load = load
        self._made: dict[_Key, Sequence[CellRow]] = {}
        """The rows of each image and size that was drawn; no rows for an image that cannot be shown."""
        self._making: set[_Key] = set()
        self._one = asyncio.Lock()
        """This lock lets one thread decode at a time: a second one would slow the first, and hold up keys."""

    def rows(self, image: ImageBlock, columns: int, rows: int) -> Sequence[CellRow]:
        """Return the image as rows of at most so many cells; without colours until it is decoded."""
        size = fitted(image.width, image.height, columns, rows)
        key = (image.sha256, *size)
        if (made := self._made.pop(key, None)) is not None:
            self._made[key] = made
            return made
        if key not in self._making:
            self._making.add(key)
            work = reported(self._owner, partial(self._make, image, key))
            self._owner.run_worker(work, group="thumbnails")
        return [()] * size[1]

    async def _make(self, image: ImageBlock, key: _Key) -> None:
        _, columns, rows = key
        async with self._one:
            data = await self._load(image)
            made: Sequence[CellRow] = ()
            if data is not None:
                with suppress(ValueError):
                    made = await asyncio.to_thread(cell_rows, data, columns, rows)
        self._making.discard(key)
        self._made[key] = made
        while len(self._made) > KEPT:
            del self._made[next(iter(self._made))]
        self._owner.post_message(self.Ready(image))

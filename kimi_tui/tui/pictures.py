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
"""The most pixels of an image that is decoded. Our own have at most four millions; imported ones may be larger."""
_FORMATS = ("PNG", "JPEG", "WEBP", "GIF")
_CELL_COLOURS = 64
"""Of a picture of cells: its neighbours become alike, so that rows have few runs."""
_SIXEL_COLOURS = 64
MOST_SIXELS = 500_000
"""Pixels: encoding them takes half a second."""
_PIECE = 4_096
"""Kitty takes no longer pieces."""

CellRow = tuple[Span, ...]
KEPT = 64
"""Thumbnails that are kept."""
_Key = tuple[str, int, int]
LoadImage = Callable[[ImageBlock], Awaitable[bytes | None]]
"""Reads an image; None where it is not there any more."""


class CellSize(NamedTuple):
    """The size of a character in pixels."""

    width: int
    height: int


USUAL_CELL = CellSize(8, 16)


def draws_cells(node: Widget) -> bool:
    """Whether images can be drawn by coloured cells: that needs more than sixteen colours, and one block character."""
    return glyphs_of(node) is not ASCII and not app_of(node).native_ansi_color


@lru_cache(maxsize=8_192)
def cell_style(name: str) -> Style:
    """The colours of a run of cells, `#d0a010@#20242a`: above, and below."""
    above, _, below = name.partition("@")
    return Style(color=above, bgcolor=below)


def cell_of_terminal() -> CellSize | None:
    """The size of a cell as the terminal reports it (TIOCGWINSZ); None where it does not."""
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
    """The size in cells of an image fitted into a box.

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
    """An image as rows of runs, two pixels above each other in a cell. Takes long.

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
    """The kitty graphics sequence that draws an image at the cursor, which does not move. Takes long.

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
    """The terminal sequence (kitty graphics) that deletes an image."""
    return f"\x1b_Ga=d,d=I,i={number},q=2\x1b\\"


def sixel_picture(data: bytes, columns: int, rows: int, cell: CellSize) -> str:
    """The sixel sequence that draws an image at the cursor. Takes long.

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
    """Six rows of pixels, a colour after another."""
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
    """The image in exactly so many pixels, in plain colours, on white where it is transparent."""
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
        # Decoders fail in any way on bytes that somebody made up.
        raise ValueError(str(error)) from error
    clear = ImageOps.fit(clear, (width, height), Pillow.Resampling.BOX)
    plain = Pillow.new("RGB", clear.size, "white")
    plain.paste(clear, mask=clear.getchannel("A"))
    return plain


class Thumbnails:
    """A cache of images drawn as cells, by hash and size; missing ones are made in the background.

    Args:
        owner: the widget that shows them; its workers make them, and it gets the messages.
        load: reads an image; returns None where its file is gone.
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
        """Empty for what cannot be shown."""
        self._making: set[_Key] = set()
        self._one = asyncio.Lock()
        """A second thread that decodes would slow the first one, and hold up keys."""

    def rows(self, image: ImageBlock, columns: int, rows: int) -> Sequence[CellRow]:
        """The image as rows of at most so many cells; without colours until it is decoded."""
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

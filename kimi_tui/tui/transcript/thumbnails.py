"""The small pictures of the chat: made in a thread when their block is first laid out, and kept while they are looked at."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress

from kimi_tui.projection.blocks import Block, ToolBlock, UserBlock
from kimi_tui.tui.pictures import CellRow, cell_rows, fitted
from kimi_tui.wire.display import ImageBlock

KEPT = 64
_Key = tuple[str, int, int]
LoadImage = Callable[[ImageBlock], Awaitable[bytes | None]]
"""Reads an image; None where it is not there any more."""


def images_of(block: Block) -> tuple[ImageBlock, ...]:
    """The images that a block shows."""
    match block:
        case UserBlock():
            return block.images
        case ToolBlock():
            return tuple(shown for shown in block.display if isinstance(shown, ImageBlock))
        case _:
            return ()


class Thumbnails:
    """Pictures by their hash and size.

    Args:
        load: reads an image; None where it is not there any more.
        start: runs what makes a picture.
        came: told of an image whose picture is there now, or cannot be had.
    """

    def __init__(
        self,
        load: LoadImage,
        start: Callable[[Coroutine[None, None, None]], object],
        came: Callable[[ImageBlock], None],
    ) -> None:
        self._load = load
        self._start = start
        self._came = came
        self._made: dict[_Key, Sequence[CellRow]] = {}
        """Empty for what cannot be shown."""
        self._making: set[_Key] = set()
        self._one = asyncio.Lock()
        """A second thread that decodes would slow the first one, and hold up keys."""

    def rows(self, image: ImageBlock, columns: int, rows: int) -> Sequence[CellRow]:
        """The picture in at most so many cells; rows without any until it is there."""
        size = fitted(image.width, image.height, columns, rows)
        key = (image.sha256, *size)
        if (made := self._made.pop(key, None)) is not None:
            self._made[key] = made
            return made
        if key not in self._making:
            self._making.add(key)
            self._start(self._make(image, key))
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
        self._came(image)

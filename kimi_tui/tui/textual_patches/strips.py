"""Replaces private parts of Textual's `Strip`: its caches are made when they are first used.

Textual makes seven of them for every strip, which are fourteen objects to allocate and to collect, and three quarters of its memory.
Most strips use one or none.
"""

# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Iterable
from types import MemberDescriptorType
from typing import Any, cast

from rich.segment import Segment
from textual.cache import FIFOCache
from textual.strip import Strip

SIZES = {
    "_divide_cache": 4,
    "_crop_cache": 16,
    "_style_cache": 16,
    "_filter_cache": 4,
    "_line_length_cache": 4,
    "_crop_extend_cache": 4,
    "_offsets_cache": 4,
}
"""The largest numbers of entries, as Textual has them."""


class _LateCache:
    """An attribute of strips that makes its cache when it is first read.

    Args:
        slot: the place of the cache in a strip.
        size: its largest number of entries.
    """

    def __init__(self, slot: MemberDescriptorType, size: int) -> None:
        self._slot, self._size = slot, size

    def __get__(self, strip: Strip | None, kind: type[Strip]) -> Any:
        if strip is None:
            return self
        try:
            return self._slot.__get__(strip, kind)
        except AttributeError:
            cache: FIFOCache[Any, Any] = FIFOCache(self._size)
            self._slot.__set__(strip, cache)
            return cache

    def __set__(self, strip: Strip, cache: object) -> None:
        self._slot.__set__(strip, cache)


def _begin(self: Strip, segments: Iterable[Segment], cell_length: int | None = None) -> None:
    self._segments = list(segments)
    self._cell_length = cell_length
    self._render_cache = None
    self._link_ids = None
    self._cell_count = None


def make_caches_late() -> None:
    """Have all strips from now on make their caches late; once, if it is called again."""
    for name, size in SIZES.items():
        slot = cast("object", vars(Strip)[name])
        if isinstance(slot, MemberDescriptorType):
            setattr(Strip, name, _LateCache(slot, size))
    Strip.__init__ = _begin

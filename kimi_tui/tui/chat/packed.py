"""Texts that are kept because they may be looked at, and hardly ever are: what tools gave back, of a whole session.

Logs and sources take a fifth of their room packed, and are unpacked quicker than they are drawn.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

_WORTH_CHARS = 1_000
_QUICKLY = 1


@dataclass(frozen=True, slots=True)
class PackedText:
    """One text. `line_ends` counts its line ends."""

    _held: str | bytes = ""
    line_ends: int = 0

    @classmethod
    def of(cls, text: str) -> PackedText:
        """Keep this text."""
        line_ends = text.count("\n")
        if len(text) < _WORTH_CHARS:
            return cls(text, line_ends)
        # What was never text holds lone surrogates, and must come back as it was.
        return cls(zlib.compress(text.encode("utf-8", "surrogatepass"), _QUICKLY), line_ends)

    def __bool__(self) -> bool:
        return bool(self._held)

    @property
    def text(self) -> str:
        """All of it."""
        held = self._held
        if isinstance(held, str):
            return held
        return zlib.decompress(held).decode("utf-8", "surrogatepass")


NOTHING_SAID = PackedText()

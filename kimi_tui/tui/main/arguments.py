"""Reads the numbers that are typed behind a command: `12`, `#12`, `2:12`."""

from __future__ import annotations

from kimi_tui.soul.protocol import Target


def number(text: str) -> int | None:
    """`12` or `#12`; None where it is neither."""
    digits = text.strip().removeprefix("#")
    return int(digits[:9]) if digits.isascii() and digits.isdigit() else None


def pair(text: str) -> Target | None:
    """`N` on the live line or `K:N` on world line K; None where it is neither."""
    line, colon, checkpoint = text.partition(":")
    if not colon:
        n = number(line)
        return Target(n) if n is not None else None
    k, n = number(line), number(checkpoint)
    return Target(n, k) if k is not None and n is not None else None

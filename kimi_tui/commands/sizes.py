"""How sizes on disk are written."""

from __future__ import annotations


def size_words(size_bytes: int) -> str:
    """`840 B`, `12 kB`, `3.4 MB`."""
    if size_bytes < 1_000:
        return f"{size_bytes} B"
    if size_bytes < 999_500:
        return f"{size_bytes / 1_000:.0f} kB"
    return f"{size_bytes / 1_000_000:.1f} MB"

"""Pieces of text with the names of their styles: what the drawing code that knows no widget hands to one that knows colours."""

from __future__ import annotations

from collections.abc import Iterable

Span = tuple[str, str]
"""Text and the name of its style."""


def joined(cells: Iterable[Span]) -> list[Span]:
    """Neighbouring pieces of one style as one."""
    spans: list[Span] = []
    for text, style in cells:
        if spans and spans[-1][1] == style:
            spans[-1] = (spans[-1][0] + text, style)
        else:
            spans.append((text, style))
    return spans

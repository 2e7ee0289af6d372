"""The row that cards have in common: glyph, name and target at the left, facts and `#N` at the right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kimi_tui.tui.chat.lines import HIT_CHECKPOINT, RIGHT, Line, Span, cells, pad, width_of
from kimi_tui.tui.glyphs import UNICODE, Glyphs
from kimi_tui.tui.numbers import MINUS, grouped

if TYPE_CHECKING:
    from kimi_tui.tui.chat.blocks import Block

FACT_GAP = 3


@dataclass(frozen=True, slots=True)
class Room:
    """What a layout is made for: the pane's width, whether the terminal is low, and the signs."""

    width: int
    low: bool = False
    lowest: bool = False
    glyphs: Glyphs = UNICODE


@dataclass(frozen=True, slots=True)
class Fact:
    """A fact at the right of a card; the lower its rank the longer it stays where room is short."""

    spans: tuple[Span, ...]
    rank: int


def number_span(checkpoint: int | None, *, live: bool, pin: str = "") -> Span | None:
    """`#12`, to be clicked, behind the sign of a pin; where there is no such point only that, or None."""
    if checkpoint is None or not live:
        return Span(pin, "quiet") if pin else None
    name = f"#{checkpoint}"
    return Span(f"{pin} {name}" if pin else name, "quiet", HIT_CHECKPOINT + str(checkpoint))


def title_row(
    room: Room,
    left: list[Span],
    facts: Sequence[Fact],
    number: Span | None,
    *,
    fill: str = "page",
    hit: str = "",
) -> Line:
    """Glyph, name and target at the left, facts and `#N` at the right edge."""
    right: list[Span] = []
    for fact in facts:
        if right:
            right.append(Span(" " * FACT_GAP))
        right.extend(
            span._replace(text=span.text.replace(MINUS, room.glyphs.minus)) for span in fact.spans
        )
    if number is not None:
        if right:
            right.append(Span(" " * (FACT_GAP + max(0, 3 - cells(number.text)))))
        right.append(number)
    spans = list(left)
    pad(spans, room.width - RIGHT - width_of(right))
    spans.extend(right)
    return Line(tuple(spans), fill=fill, hit=hit, margin=2)


def pin_of(block: Block, room: Room) -> str:
    """The sign of a pinned message; empty where it is not pinned."""
    return room.glyphs.pinned if block.pinned else ""


def fold_mark(count: int, word: str = "line") -> str:
    """`+38 lines`."""
    return f"+{grouped(count)} {word if count == 1 else word + 's'}"

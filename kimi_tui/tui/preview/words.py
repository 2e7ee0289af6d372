"""The sentences of the preview, in pieces with style names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.cells import cell_len, set_cell_size

from kimi_tui.foreign_text import one_line
from kimi_tui.tui import numbers
from kimi_tui.tui.chat.targets import short_name
from kimi_tui.tui.glyphs import Glyphs

if TYPE_CHECKING:
    from kimi_tui.soul.protocol import GoingMessage, RewindPreview

Span = tuple[str, str]
"""Text and the name of its style."""

_NAME_WIDTH = 5
_NOTHING_LOST = "Nothing is lost: what goes becomes a world line, and u brings it back."


def title(preview: RewindPreview) -> str:
    """The title in the border."""
    target = preview.target
    if target.world_line:
        return f"World line {target.world_line}, #{target.id}"
    return f"Rewind to #{target.id}"


def question(preview: RewindPreview, width: int, mark: str) -> list[Span]:
    """What stands at the checkpoint, in one row."""
    words = one_line(preview.label) or f"Checkpoint #{preview.target.id}"
    return [(numbers.cut(words, width, mark), "strong")]


def consequence(preview: RewindPreview, width: int, glyphs: Glyphs) -> list[Span]:
    """`Takes back 5 steps, 11 messages; frees 4.6k tokens`, and from how much to how much where there is room."""
    counts = [(preview.steps, "step"), (preview.messages, "message")]
    if preview.turns > 1:
        counts.insert(0, (preview.turns, "turn"))
    parts = [numbers.counted(count, noun) for count, noun in counts if count]
    freed = numbers.tokens(
        max(0, preview.tokens_before - preview.tokens_after), estimated=preview.estimated
    )
    left: list[Span] = [
        ("Takes back ", "quiet"),
        (", ".join(parts) or "nothing", "ink"),
        ("; frees ", "quiet"),
        (f"{freed} tokens", "ink"),
    ]
    after = numbers.tokens(preview.tokens_after, estimated=preview.estimated)
    right: list[Span] = [
        (f"{numbers.tokens(preview.tokens_before)} {glyphs.to} ", "quiet"),
        (after, "strong"),
    ]
    gap = width - spans_width(left) - spans_width(right)
    return [*left, (" " * gap, "quiet"), *right] if gap >= 3 else left


def stopped_first(glyphs: Glyphs) -> list[Span]:
    """Where a turn is running."""
    return [
        (f"{glyphs.caution} ", "warn"),
        ("The agent is working.", "ink"),
        (" It is stopped first.", "quiet"),
    ]


def nothing_lost(width: int) -> list[list[Span]]:
    """The way back, in as many rows as it takes."""
    words: list[Span] = [
        (word, "ink" if place < 3 or word == "u" else "quiet")
        for place, word in enumerate(_NOTHING_LOST.split())
    ]
    rows: list[list[Span]] = [[]]
    used = 0
    for word, style in words:
        size = cell_len(word)
        if rows[-1] and used + 1 + size > width:
            rows.append([])
            used = 0
        if rows[-1]:
            rows[-1].append((" ", "quiet"))
            used += 1
        rows[-1].append((word, style))
        used += size
    return rows


def going(message: GoingMessage, width: int, glyphs: Glyphs) -> list[Span]:
    """One thing that goes: its sign, what it is, and its tokens at the right."""
    cost = numbers.tokens(message.tokens) if message.tokens is not None else ""
    room = width - 2 - (cell_len(cost) + 2 if cost else 0)
    text = one_line(message.text)
    match message.kind:
        case "user":
            left = [(f"{glyphs.turn} ", "accent"), (numbers.cut(text, room, glyphs.cut), "ink")]
        case "tool":
            sign = (glyphs.failed, "error") if message.failed else (glyphs.done, "ok")
            name = short_name(message.name).ljust(_NAME_WIDTH)
            room -= cell_len(name) + 1
            left = [
                (f"{sign[0]} ", sign[1]),
                (f"{name} ", "tool"),
                (numbers.cut(text, room, glyphs.cut), "ink"),
            ]
        case "dmail":
            words = numbers.cut(f"D-Mail  {text}".rstrip(), room, glyphs.cut)
            left = [(f"{glyphs.dmail} ", "dmail"), (words, "dmail")]
        case "summary":
            words = numbers.cut(f"Summary  {text}".rstrip(), room, glyphs.cut)
            left = [(f"{glyphs.compaction} ", "compaction"), (words, "compaction")]
        case _:
            left = [("  ", "quiet"), (numbers.cut(text, room, glyphs.cut), "quiet")]
    gap = width - spans_width(left) - cell_len(cost)
    return [*left, (" " * max(0, gap), "quiet"), (cost, "ink")]


def keys(pairs: list[tuple[str, str]], width: int) -> list[Span]:
    """`Enter rewind   ↑↓ choose   Esc cancel`: whole pairs only."""
    spans: list[Span] = []
    used = 0
    for key, meaning in pairs:
        size = cell_len(key) + 1 + cell_len(meaning) + (3 if spans else 0)
        if used + size > width:
            break
        spans += [("   ", "quiet")] if spans else []
        spans += [(key, "ink"), (f" {meaning}", "quiet")]
        used += size
    return spans


def spans_width(spans: list[Span]) -> int:
    """Cells."""
    return sum(cell_len(text) for text, _ in spans)


def fitted(spans: list[Span], width: int) -> list[Span]:
    """Exactly `width` cells."""
    result: list[Span] = []
    used = 0
    for text, style in spans:
        size = cell_len(text)
        if used + size > width:
            result.append((set_cell_size(text, width - used), style))
            return result
        result.append((text, style))
        used += size
    if used < width:
        result.append((" " * (width - used), "quiet"))
    return result

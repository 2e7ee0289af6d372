"""The rows of what stands for other rows: a letter for what it undid, a summary for all before it."""

from __future__ import annotations

from kimi_tui.tui.chat.blocks import CompactionBlock, DMailBlock
from kimi_tui.tui.chat.lines import (
    HIT_FOLD,
    RIGHT,
    Line,
    Span,
    cells,
    pad,
    prose_width,
    width_of,
)
from kimi_tui.tui.chat.rows import Fact, Room, fold_mark, number_span, pin_of, title_row
from kimi_tui.tui.chat.wrapping import wrap
from kimi_tui.tui.numbers import change, counted, path, tokens

SUMMARY_ROWS = 3


def letter_card(block: DMailBlock, room: Room) -> list[Line]:
    """A letter that arrived, with what it folded away."""
    ground = "dmail-bg"
    edge = Span(room.glyphs.edge, f"dmail@{ground}")
    blank = Line((edge,), fill=ground)
    hit = HIT_FOLD if block.unfolds else ""
    left = [
        edge,
        Span(" "),
        Span(room.glyphs.dmail, "dmail"),
        Span(" "),
        Span("Your D-Mail" if block.author == "person" else "D-Mail", "dmail"),
        Span("  "),
        Span(_way(block), "ink"),
    ]
    saved = Span(change(-block.tokens_saved, estimated=block.estimated), "dmail")
    title = title_row(
        room,
        left,
        [Fact((saved,), 0)] if block.tokens_saved else [],
        number_span(block.checkpoint, live=block.live, pin=pin_of(block, room)),
        fill=ground,
        hit=hit,
    )
    rows = [blank, title, blank, *_edged(block.letter, "ink", edge, ground, room)]
    if block.unfolded and block.facts and block.unfolds:
        rows += [blank, *_edged(block.facts, "quiet", edge, ground, room)]
    if block.is_carried:
        rows += [blank, *_edged(_whose(block.facts), "quiet", edge, ground, room)]
    elif block.undid:
        rows += [blank, _folded_row(block, room, edge, ground)]
    return [*rows, blank]


def _way(block: DMailBlock) -> str:
    """Where it came from, where that is known and was another place, and where it went."""
    if block.is_carried:
        return "carried over from another world line"
    if block.undid and block.author == "agent" and block.from_checkpoint != block.checkpoint:
        source = "an earlier step" if block.is_moved else f"#{block.from_checkpoint}"
        return f"from {source} to #{block.checkpoint}"
    return f"to #{block.checkpoint}"


def _whose(source: str) -> str:
    return f"{source[:1].upper()}{source[1:]}"


def _edged(text: str, style: str, edge: Span, ground: str, room: Room) -> list[Line]:
    rows: list[Line] = []
    for part in text.split("\n"):
        wrapped = wrap([Span(part, style)], prose_width(room.width))
        last = len(wrapped) - 1
        rows.extend(
            Line((edge, Span("   "), *row), fill=ground, soft=index < last)
            for index, row in enumerate(wrapped)
        )
    return rows


def _folded_row(block: DMailBlock, room: Room, edge: Span, ground: str) -> Line:
    steps = counted(block.steps, "step")
    calls = block.tool_calls
    folded = f"{counted(calls, 'tool call')} folded away" if calls else "Folded away"
    spans = [
        edge,
        Span("   "),
        Span(folded, "quiet"),
        Span("  "),
        Span(f"{room.glyphs.minus if block.unfolded else '+'}{steps}", "ink"),
    ]
    if block.kept:
        edits = sum(count for _, count in block.kept)
        name = block.kept[0][0] if len(block.kept) == 1 else counted(len(block.kept), "file")
        fact = f" ({counted(edits, 'edit')})"
        free = room.width - RIGHT - width_of(spans) - cells(fact) - len("   kept: ")
        if free >= 8:
            name = path(name, free, room.glyphs.cut)
            kept = [Span("kept: ", "quiet"), Span(name, "ink"), Span(fact, "quiet")]
            pad(spans, max(width_of(spans) + 3, room.width - RIGHT - 2 - width_of(kept)))
            spans.extend(kept)
    return Line(tuple(spans), fill=ground, hit=HIT_FOLD)


def compaction_card(block: CompactionBlock, room: Room) -> list[Line]:
    """A summary that stands for what is above it."""
    edge = Span(room.glyphs.edge, "compaction")
    glyph = Span(room.glyphs.compaction, "compaction")
    if block.running:
        left = [edge, Span(" "), glyph, Span(" "), Span("Compacting", "compaction")]
        left += [Span("  "), Span(tokens(block.tokens_before), "ink")]
        return [Line(tuple(left))]
    before, after = _round(block.tokens_before), _round(block.tokens_after)
    sizes = f"{before} {room.glyphs.to} {after}"
    left = [
        edge,
        Span(" "),
        glyph,
        Span(" "),
        Span("Compacted", "compaction"),
        Span("  "),
        Span(sizes),
    ]
    if block.edited:
        left.append(Span("  edited by you", "quiet"))
    number = number_span(block.checkpoint, live=block.live, pin=pin_of(block, room))
    rows = [title_row(room, left, [], number, hit=HIT_FOLD)]
    lines: list[Line] = []
    for part in block.summary.split("\n"):
        if not part.strip() and not block.unfolded:
            continue
        wrapped = wrap([Span(part)], prose_width(room.width))
        last = len(wrapped) - 1
        lines.extend(
            Line((edge, Span("   "), *row), soft=index < last, hit=HIT_FOLD)
            for index, row in enumerate(wrapped)
        )
    hidden = len(lines) - SUMMARY_ROWS
    if hidden > 0 and not block.unfolded:
        lines = [
            *lines[:SUMMARY_ROWS],
            Line((edge, Span("   "), Span(fold_mark(hidden))), hit=HIT_FOLD),
        ]
    return rows + lines


def _round(count: int) -> str:
    """`21k`: a whole number of thousands needs no decimal beside another one."""
    return tokens(count).replace(".0k", "k")

"""The rows of everything that is neither prose nor a tool card: the person's words, letters, summaries, errors."""

from __future__ import annotations

import time

from kimi_tui.tui.chat.blocks import (
    CompactionBlock,
    DMailBlock,
    ErrorBlock,
    MarkBlock,
    NoticeBlock,
    RetryBlock,
    ThoughtBlock,
    UserBlock,
)
from kimi_tui.tui.chat.lines import (
    HIT_FOLD,
    MARGIN,
    RIGHT,
    Line,
    Span,
    cells,
    pad,
    prose_width,
    width_of,
)
from kimi_tui.tui.chat.rows import Fact, Room, fold_mark, number_span, pin_of, title_row
from kimi_tui.tui.chat.wrapping import ranges, wrap
from kimi_tui.tui.numbers import change, counted, cut, duration, path, tokens

USER_ROWS = 12
PASTE_LIMIT = 20_000
SUMMARY_ROWS = 3
INDENT = Span(" " * MARGIN)


def user_band(block: UserBlock, room: Room) -> list[Line]:
    """What the person said: a band with an edge."""
    edge = Span(room.glyphs.edge, "accent@band")
    text = block.text or " "
    if block.images:
        text += f"\n{counted(block.images, 'image')}"
    width = prose_width(room.width)
    # Of a pasted file only the beginning is laid out while it is folded; the rest is counted roughly.
    rest = 0 if block.unfolded else max(0, len(text) - PASTE_LIMIT)
    shown = text[:PASTE_LIMIT] if rest else text
    rows = wrap([Span(shown, "quiet" if block.queued else "strong")], width)
    hidden = (
        len(rows) - USER_ROWS + max(rest // width, text.count("\n", PASTE_LIMIT) if rest else 0)
    )
    if hidden > 1 and not block.unfolded:
        rows = rows[:USER_ROWS]
    else:
        hidden = 0
    number = (
        Span("queued", "quiet")
        if block.queued
        else number_span(block.checkpoint, live=block.live, pin=pin_of(block, room))
    )
    out: list[Line] = []
    foldable = hidden > 0 or len(rows) > USER_ROWS
    for index, row in enumerate(rows):
        spans = [edge, Span("   "), *row]
        if not index and number is not None:
            pad(spans, room.width - RIGHT - cells(number.text))
            spans.append(number)
        out.append(Line(tuple(spans), fill="band", hit=HIT_FOLD if foldable else ""))
    if hidden:
        out.append(
            Line((edge, Span("   "), Span(fold_mark(hidden), "ink")), fill="band", hit=HIT_FOLD)
        )
    return out


def thought(block: ThoughtBlock, room: Room) -> list[Line]:
    """`Thought for 6 s  +12 lines`, or all of it in italics."""
    width = prose_width(room.width)
    count = block.stream.line_ends + 1 + block.stream.size // (width * 2)
    words = "Thinking" if block.open else f"Thought for {_whole(block.seconds)}"
    head = [INDENT, Span(words, "quiet/i")]
    if not block.unfolded:
        text = "" if block.open else block.stream.text.strip()
        if text:
            count = len(ranges(text, width))
        return [Line((*head, Span(f"  {fold_mark(count)}", "quiet")), hit=HIT_FOLD)]
    rows = [Line(tuple(head), hit=HIT_FOLD)]
    for part in block.stream.text.strip().split("\n"):
        wrapped = wrap([Span(part, "quiet/i")], width)
        last = len(wrapped) - 1
        rows.extend(Line((INDENT, *row), soft=index < last) for index, row in enumerate(wrapped))
    return rows


def _whole(seconds: float) -> str:
    """Nobody needs tenths of a second of thinking."""
    return f"{max(1, round(seconds))} s" if seconds < 9.5 else duration(seconds)


def letter_card(block: DMailBlock, room: Room) -> list[Line]:
    """A letter that arrived, with what it folded away."""
    ground = "dmail-bg"
    edge = Span(room.glyphs.edge, f"dmail@{ground}")
    blank = Line((edge,), fill=ground)
    left = [
        edge,
        Span(" "),
        Span(room.glyphs.dmail, "dmail"),
        Span(" "),
        Span("D-Mail", "dmail"),
        Span("  "),
        Span(f"from #{block.from_checkpoint} to #{block.checkpoint}", "ink"),
    ]
    saved = Fact((Span(change(-block.tokens_saved, estimated=block.estimated), "dmail"),), 0)
    title = title_row(
        room,
        left,
        [saved],
        number_span(block.checkpoint, live=block.live, pin=pin_of(block, room)),
        fill=ground,
        hit=HIT_FOLD,
    )
    rows = [blank, title, blank]
    said = [(block.letter, "ink")]
    if block.unfolded and block.facts:
        said.append((f"\n{block.facts}", "quiet"))
    for text, style in said:
        for part in text.split("\n"):
            wrapped = wrap([Span(part, style)], prose_width(room.width))
            last = len(wrapped) - 1
            rows.extend(
                Line((edge, Span("   "), *row), fill=ground, soft=index < last)
                for index, row in enumerate(wrapped)
            )
    rows.append(blank)
    rows.append(_folded_row(block, room, edge, ground))
    rows.append(blank)
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


def error_card(block: ErrorBlock, room: Room) -> list[Line]:
    """What failed, why, and what to change."""
    head = [Span("  "), Span(room.glyphs.failed, "error"), Span(" "), Span(block.title, "strong")]
    number = number_span(block.checkpoint, live=block.live, pin=pin_of(block, room))
    free = room.width - RIGHT - width_of(head) - 3 - 6
    rows: list[Line] = []
    if block.reason and cells(block.reason) <= free:
        head += [Span("   "), Span(block.reason, "error")]
        rows.append(title_row(room, head, [], number))
    else:
        rows.append(title_row(room, head, [], number))
        rows.extend(_paragraph(block.reason, "error", room))
    rows.extend(_paragraph(block.advice, "ink", room))
    return rows


def _paragraph(text: str, style: str, room: Room) -> list[Line]:
    if not text:
        return []
    wrapped = wrap([Span(text, style)], prose_width(room.width))
    last = len(wrapped) - 1
    return [Line((INDENT, *row), soft=index < last) for index, row in enumerate(wrapped)]


def retry_card(block: RetryBlock, room: Room, now: float | None = None) -> list[Line]:
    """The countdown to the next attempt, with a thin bar."""
    now = time.time() if now is None else now
    left = max(0.0, block.due - now)
    head = [
        Span("  "),
        Span(room.glyphs.running, "warn"),
        Span(" "),
        Span(f"Trying again in {left:.0f} s" if left else "Trying again now", "strong"),
        Span("   "),
    ]
    attempt = f"{min(block.attempt, block.max_attempts)} of {block.max_attempts}"
    free = room.width - RIGHT - width_of(head) - cells(attempt) - 3
    head.append(Span(cut(block.reason, max(1, free), room.glyphs.cut), "quiet"))
    title = title_row(room, head, [Fact((Span(attempt, "quiet"),), 0)], None)
    size = min(36, max(8, room.width - 40))
    done = round(size * (1 - (left / block.wait_s if block.wait_s > 0 else 0)))
    bar = Line(
        (
            INDENT,
            Span(room.glyphs.used * done, "warn"),
            Span(room.glyphs.rule * (size - done), "line"),
            *((Span("   "), Span("Enter", "ink"), Span(" now", "quiet")) if left else ()),
            Span("   "),
            Span("Esc", "ink"),
            Span(" stop", "quiet"),
        )
    )
    return [title, bar]


def mark_row(block: MarkBlock, room: Room) -> list[Line]:
    """One quiet row."""
    glyph = {
        "stopped": Span(room.glyphs.stopped, "quiet"),
        "done": Span(room.glyphs.done, "ok"),
        "files": Span(room.glyphs.files, "quiet"),
        "none": Span(" "),
    }[block.glyph]
    text = cut(block.text, room.width - MARGIN - RIGHT, room.glyphs.cut)
    return [Line((Span("  "), glyph, Span(" "), Span(text, "quiet")), margin=2)]


def notice(block: NoticeBlock, room: Room) -> list[Line]:
    """Something to know: what happened, then what to do."""
    ink = {"info": "quiet", "warning": "warn", "error": "error"}[block.level]
    rows: list[Line] = []
    for index, row in enumerate(wrap([Span(block.text)], prose_width(room.width))):
        lead = (Span("  "), Span(room.glyphs.caution, ink), Span(" ")) if not index else (INDENT,)
        rows.append(Line((*lead, *row)))
    rows.extend(_paragraph(block.advice, "quiet", room))
    return rows

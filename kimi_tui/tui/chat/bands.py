"""The rows of the person's words, of thoughts, and of everything that went wrong or is only to be noted."""

from __future__ import annotations

import time

from kimi_tui.tui.chat.blocks import (
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
from kimi_tui.tui.numbers import counted, cut, duration

USER_ROWS = 12
PASTE_LIMIT = 20_000
INDENT = Span(" " * MARGIN)


def user_band(block: UserBlock, room: Room) -> list[Line]:
    """What the person said: a band with an edge."""
    edge = Span(room.glyphs.edge, "accent@band")
    text = block.text or " "
    if block.images:
        text += f"\n{counted(block.images, 'image')}"
    width = prose_width(room.width)
    # Of a pasted file only the beginning is laid out while it is folded.
    is_cut = not block.unfolded and len(text) > PASTE_LIMIT
    shown = text[:PASTE_LIMIT] if is_cut else text
    style = "quiet" if block.queued else "strong"
    rows: list[tuple[list[Span], bool]] = []
    for part in shown.split("\n"):
        wrapped = wrap([Span(part, style)], width)
        last = len(wrapped) - 1
        rows += [(row, index < last) for index, row in enumerate(wrapped)]
    hidden = ""
    if not block.unfolded and (is_cut or len(rows) > USER_ROWS + 1):
        rows = rows[:USER_ROWS]
        hidden = _hidden(text, rows, width)
    number = (
        Span("queued", "quiet")
        if block.queued
        else number_span(block.checkpoint, live=block.live, pin=pin_of(block, room))
    )
    out: list[Line] = []
    foldable = bool(hidden) or len(rows) > USER_ROWS
    for index, (row, soft) in enumerate(rows):
        spans = [edge, Span("   "), *row]
        if not index and number is not None:
            pad(spans, room.width - RIGHT - cells(number.text))
            spans.append(number)
        hit = HIT_FOLD if foldable else ""
        out.append(Line(tuple(spans), fill="band", hit=hit, soft=soft and index < len(rows) - 1))
    if hidden:
        out.append(Line((edge, Span("   "), Span(hidden, "ink")), fill="band", hit=HIT_FOLD))
    return out


def _hidden(text: str, rows: list[tuple[list[Span], bool]], width: int) -> str:
    """`+192 lines`: those of the text that are not whole in the rows; of a single one, what it goes on with."""
    wholly = sum(not goes_on for _, goes_on in rows)
    lines = text.count("\n") + 1
    if lines > 1:
        return fold_mark(lines - wholly)
    end = ranges(text[:PASTE_LIMIT], width)[len(rows) - 1][1]
    return fold_mark(len(text[end:].strip()), "character")


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


def retry_card(block: RetryBlock, room: Room) -> list[Line]:
    """The countdown to the next attempt, with a thin bar."""
    left = max(0.0, block.due - time.time())
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

"""The rows of every block but answers and tool calls: messages, thoughts, D-Mails, compactions, errors, notices."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from itertools import chain, islice

from kimi_tui.projection.blocks import (
    CompactionBlock,
    DMailBlock,
    ErrorBlock,
    MarkBlock,
    NoticeBlock,
    RetryBlock,
    ThoughtBlock,
    UserBlock,
)
from kimi_tui.tui.formatting import (
    MINUS,
    both_sizes,
    change,
    counted,
    cut,
    duration,
    path,
    size_words,
    spans_width,
    tokens,
)
from kimi_tui.tui.rows import (
    HIT_FOLD,
    HIT_IMAGE,
    MARGIN,
    RIGHT,
    Fact,
    Line,
    Room,
    Span,
    cells,
    fold_mark,
    iter_ranges,
    number_span,
    pad,
    paragraph,
    pin_of,
    prose_width,
    ranges,
    title_row,
)
from kimi_tui.wire.display import ImageBlock

USER_ROWS = 12
PICTURE_ROWS = 12
PICTURE_COLUMNS = 60
LEAST_NAME = 16
PASTE_LIMIT = 20_000
INDENT = Span(" " * MARGIN)


def user_message(block: UserBlock, room: Room) -> Iterator[Line]:
    """What the user said: a band with an edge."""
    edge = Span(room.glyphs.edge, "accent@band")
    text = block.text or " "
    width = prose_width(room.width)
    # Of a pasted file only the beginning is laid out while it is folded.
    is_cut = not block.unfolded and len(text) > PASTE_LIMIT
    rows = _soft_rows(text[:PASTE_LIMIT] if is_cut else text, width)
    shown = list(islice(rows, USER_ROWS + 2))
    hidden = ""
    if not block.unfolded and (is_cut or len(shown) > USER_ROWS + 1):
        rows, shown = iter(()), shown[:USER_ROWS]
        hidden = _hidden(text, shown, width)
        # Nothing goes on in the row that says how much is hidden.
        shown[-1] = (shown[-1][0], False)
    number = (
        Span("queued", "quiet")
        if block.queued
        else number_span(block.checkpoint, live=block.live, pin=pin_of(block, room))
    )
    style = "quiet" if block.queued else "strong"
    hit = HIT_FOLD if hidden or len(shown) > USER_ROWS else ""
    for index, (row, soft) in enumerate(chain(shown, rows)):
        spans = [edge, Span("   "), Span(row, style)]
        if not index and number is not None:
            pad(spans, room.width - RIGHT - cells(number.text))
            spans.append(number)
        yield Line(tuple(spans), fill="band", hit=hit, soft=soft)
    if hidden:
        yield Line((edge, Span("   "), Span(hidden, "ink")), fill="band", hit=HIT_FOLD)
    if block.attached:
        attached = cut(block.attached, room.width - RIGHT - 4, room.glyphs.cut)
        yield Line((edge, Span("   "), Span(attached, "quiet")), fill="band")
    yield from image_rows(block.images, room, (edge, Span("   ")), fill="band")


def picture_rows(room: Room) -> int:
    """How many rows an image takes in the chat at most, besides that of its name."""
    if room.picture is None or room.lowest:
        return 0
    return PICTURE_ROWS // 2 if room.low else PICTURE_ROWS


def image_rows(
    images: Sequence[ImageBlock], room: Room, lead: tuple[Span, ...], *, fill: str = "page"
) -> Iterator[Line]:
    """Images: the name of each, and under it a small picture where those are drawn. A click opens it."""
    margin = spans_width(lead)
    free = room.width - RIGHT - margin
    for image in images:
        hit = f"{HIT_IMAGE}{image.sha256}" if image.sha256 else ""
        size = f"{image.width}x{image.height}  {size_words(image.n_bytes)}" if image.width else ""
        name = path(image.name or "image", max(LEAST_NAME, free - cells(size) - 2), room.glyphs.cut)
        spans = (*lead, Span(name, "ink"), Span(f"  {size}", "quiet"))
        yield Line(spans, fill=fill, hit=hit, margin=margin)
        n_rows = picture_rows(room) if image.sha256 else 0
        if room.picture is not None and n_rows:
            for row in room.picture(image, min(free, PICTURE_COLUMNS), n_rows):
                # Nothing of it is text that can be copied.
                yield Line((*lead, *row), fill=fill, hit=hit, margin=room.width)


def _soft_rows(text: str, width: int) -> Iterator[tuple[str, bool]]:
    """The rows of a text, one after another, each with whether its line goes on in the next one."""
    text = text.replace("\t", "    ")
    before: tuple[int, int] | None = None
    for start, end in iter_ranges(text, max(2, width)):
        if before is not None:
            yield text[slice(*before)], text.find("\n", before[1], start) < 0
        before = start, end
    if before is not None:
        yield text[slice(*before)], False


def _hidden(text: str, rows: list[tuple[str, bool]], width: int) -> str:
    """`+192 lines`: those of the text that are not whole in the rows; of a single one, what it goes on with."""
    wholly = sum(not goes_on for _, goes_on in rows)
    lines = text.count("\n") + 1
    if lines > 1:
        return fold_mark(lines - wholly)
    end = ranges(text[:PASTE_LIMIT], width)[len(rows) - 1][1]
    return fold_mark(len(text[end:].strip()), "character")


def thought(block: ThoughtBlock, room: Room) -> Iterator[Line]:
    """`Thought for 6 s  +12 lines`, or all of it in italics."""
    width = prose_width(room.width)
    count = block.stream.line_ends + 1 + block.stream.size // (width * 2)
    words = "Thinking" if block.open else f"Thought for {_whole(block.seconds)}"
    head = [INDENT, Span(words, "quiet/i")]
    if not block.unfolded:
        # Of a very long one the rows are only guessed.
        is_short = not block.open and block.stream.size <= PASTE_LIMIT
        text = block.stream.text.strip() if is_short else ""
        if text:
            count = len(ranges(text, width))
        yield Line((*head, Span(f"  {fold_mark(count)}", "quiet")), hit=HIT_FOLD)
        return
    yield Line(tuple(head), hit=HIT_FOLD)
    for row, soft in _soft_rows(block.stream.text.strip(), width):
        yield Line((INDENT, Span(row, "quiet/i")), soft=soft)


class ThoughtStream:
    """An unfolded thought that is still growing: each row is made once.

    Attributes:
        lines: all of it so far.
        spent: characters that were laid out.
    """

    def __init__(self, block: ThoughtBlock, room: Room) -> None:
        self._width = max(2, prose_width(room.width))
        self._rest: str = ""
        """What the last row begins with: it may still change."""
        self._settled = 1
        self.spent = 0
        self.lines = list(islice(thought(block, room), 1))

    def feed(self, text: str, behind: int = 0) -> int:
        """Take more text; returns the first row that changed. What is known to come behind it changes nothing here."""
        del behind
        first = self._settled
        self.spent += len(text)
        del self.lines[first:]
        text = (self._rest + text).replace("\t", "    ")
        if first == 1:
            text = text.lstrip()
        places = list(iter_ranges(text, self._width))
        for place, (start, end) in enumerate(places):
            following = places[place + 1][0] if place + 1 < len(places) else len(text)
            soft = place + 1 < len(places) and text.find("\n", end, following) < 0
            self.lines.append(Line((INDENT, Span(text[start:end], "quiet/i")), soft=soft))
        self._settled = max(1, len(self.lines) - 1)
        self._rest = text[places[-1][0] :] if places else ""
        return first


def _whole(seconds: float) -> str:
    """Nobody needs tenths of a second of thinking."""
    return f"{max(1, round(seconds))} s" if seconds < 9.5 else duration(seconds)


def error_card(block: ErrorBlock, room: Room) -> list[Line]:
    """What failed, why, and what to change."""
    head = [Span("  "), Span(room.glyphs.failed, "error"), Span(" "), Span(block.title, "strong")]
    number = number_span(block.checkpoint, live=block.live, pin=pin_of(block, room))
    free = room.width - RIGHT - spans_width(head) - 3 - 6
    width = prose_width(room.width)
    rows: list[Line] = []
    if block.reason and cells(block.reason) <= free:
        head += [Span("   "), Span(block.reason, "error")]
        rows.append(title_row(room, head, [], number))
    else:
        rows.append(title_row(room, head, [], number))
        rows.extend(paragraph(block.reason, "error", width, (INDENT,)))
    rows.extend(paragraph(block.advice, "ink", width, (INDENT,)))
    return rows


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
    if block.gives_up:
        attempt = f"for {duration(max(0.0, block.gives_up - time.time()))} more"
    free = room.width - RIGHT - spans_width(head) - cells(attempt) - 3
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
        "line": Span(room.glyphs.lost, "quiet"),
        "none": Span(" "),
    }[block.glyph]
    text = cut(block.text, room.width - MARGIN - RIGHT, room.glyphs.cut)
    return [Line((Span("  "), glyph, Span(" "), Span(text, "quiet")), margin=2)]


def notice(block: NoticeBlock, room: Room) -> list[Line]:
    """Something to know: what happened, then what to do."""
    ink = {"info": "quiet", "warning": "warn", "error": "error"}[block.level]
    width = prose_width(room.width)
    lead = (Span("  "), Span(room.glyphs.caution, ink), Span(" "))
    rows = paragraph(block.text or " ", "ink", width, lead, (INDENT,))
    rows += paragraph(block.advice, "quiet", width, (INDENT,))
    return rows


SUMMARY_ROWS = 3


def dmail_card(block: DMailBlock, room: Room) -> list[Line]:
    """A D-Mail that arrived, with what it folded away."""
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
    size = change(block.tokens_changed, estimated=block.estimated)
    changed = Span(size.replace(MINUS, room.glyphs.minus), "dmail")
    title = title_row(
        room,
        left,
        [Fact((changed,), 0)] if block.tokens_changed else [],
        number_span(block.checkpoint, live=block.live, pin=pin_of(block, room)),
        fill=ground,
        hit=hit,
    )
    rows = [blank, title, blank, *_edged(block.text, "ink", edge, ground, room)]
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
    if block.checkpoint is None:
        # A summary stands for it: what it came from and went to has no number any more.
        return ""
    if block.undid and block.author == "agent" and block.from_checkpoint != block.checkpoint:
        source = "an earlier step" if block.is_moved else f"#{block.from_checkpoint}"
        return f"from {source} to #{block.checkpoint}"
    return f"to #{block.checkpoint}"


def _whose(source: str) -> str:
    return f"{source[:1].upper()}{source[1:]}"


def _edged(text: str, style: str, edge: Span, ground: str, room: Room) -> list[Line]:
    lead = (edge, Span("   "))
    return paragraph(text or " ", style, prose_width(room.width), lead, fill=ground)


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
        free = room.width - RIGHT - spans_width(spans) - cells(fact) - len("   kept: ")
        if free >= 8:
            name = path(name, free, room.glyphs.cut)
            kept = [Span("kept: ", "quiet"), Span(name, "ink"), Span(fact, "quiet")]
            pad(spans, max(spans_width(spans) + 3, room.width - RIGHT - 2 - spans_width(kept)))
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
    left = [edge, Span(" "), glyph, Span(" "), Span("Compacted", "compaction")]
    # Where the files do not tell what it replaced, both are what it takes itself.
    if block.tokens_before != block.tokens_after:
        sizes = both_sizes(
            block.tokens_before,
            block.tokens_after,
            f" {room.glyphs.to} ",
            estimated=block.estimated,
        )
        left += [Span("  "), Span(sizes.replace(MINUS, room.glyphs.minus))]
    if block.edited:
        left.append(Span("  edited by you", "quiet"))
    number = number_span(block.checkpoint, live=block.live, pin=pin_of(block, room))
    rows = [title_row(room, left, [], number, hit=HIT_FOLD)]
    parts = block.summary.split("\n")
    text = block.summary if block.unfolded else "\n".join(part for part in parts if part.strip())
    lead = (edge, Span("   "))
    lines = paragraph(text, "ink", prose_width(room.width), lead, hit=HIT_FOLD)
    hidden = len(lines) - SUMMARY_ROWS
    if hidden > 0 and not block.unfolded:
        lines = [
            *lines[:SUMMARY_ROWS],
            Line((*lead, Span(fold_mark(hidden))), hit=HIT_FOLD),
        ]
    return [*rows, *lines, *paragraph(_what_stays(block), "quiet", prose_width(room.width), lead)]


def _what_stays(block: CompactionBlock) -> str:
    """What the model is sent of the conversation around the card."""
    if block.is_past:
        return "No longer sent: a newer summary stands for it"
    above = "" if block.checkpoint else "Above: no longer sent"
    below = f"Below: {counted(block.kept, 'message')} kept" if block.kept else ""
    return "   ".join(part for part in (above, below) if part)

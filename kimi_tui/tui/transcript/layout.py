"""From a block to its rows, and how high it probably is before that is known.

Every kind of block has its function here: messages, thoughts, tool calls, D-Mails, compactions, errors, notices. What
an answer says is laid out by `markdown_stream`.
"""

from __future__ import annotations

import re
import time
from collections.abc import Generator, Iterator, Sequence
from itertools import chain, islice

from kimi_tui.foreign_text import clean, expand_tabs, one_line, shown_name
from kimi_tui.projection.blocks import (
    AgentBlock,
    Block,
    CompactionBlock,
    DMailBlock,
    ErrorBlock,
    MarkBlock,
    NoticeBlock,
    RetryBlock,
    ThoughtBlock,
    ToolBlock,
    ToolState,
    UserBlock,
)
from kimi_tui.projection.tool_calls import (
    argument,
    changed_words,
    iter_arguments,
    todo_summary,
)
from kimi_tui.tui.diff import band_rows, change_counts, common_indent
from kimi_tui.tui.faults import log_fault
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
from kimi_tui.tui.glyphs import UNICODE, Glyphs
from kimi_tui.tui.rows import (
    FACT_GAP,
    HANGING,
    HIT_FOLD,
    HIT_IMAGE,
    LINE_LIMIT,
    MARGIN,
    RIGHT,
    CardFact,
    LayoutRoom,
    Line,
    Span,
    cells,
    chop,
    fold_mark,
    iter_ranges,
    number_span,
    pad,
    paragraph,
    pin_of,
    plain_rows,
    prose_width,
    ranges,
    title_row,
    wrap,
)
from kimi_tui.tui.transcript.markdown_stream import whole_answer
from kimi_tui.wire.display import BriefBlock, DiffBlock, ImageBlock, ShellBlock, TodoBlock

USER_ROWS = 12
ATTACHED_ROWS = 3
PICTURE_ROWS = 12
PICTURE_COLUMNS = 60
LEAST_NAME = 16
PASTE_LIMIT = 20_000
INDENT = Span(" " * MARGIN)
TAIL_ROWS = 3
DIFF_ROWS = 12
UNFOLDED_ROWS = 1_000
ANSWER_ROWS = 24
"""Rows of questions and answers that a folded card shows: four of each are no more, unless they are very long."""
_WHY_CHARS = 200
"""Characters of a line in which a reason begins."""
_SAYS_WHY = re.compile(
    r"^\s*(?:FAILED|ERROR|FATAL|error(?:\[\w+\])?:|fatal:|panic:|E  +\S|[\w.]*(?:Error|Exception)\b:|npm ERR!)"
)
NAME_WIDTH = 6
NARROW = 70
SMALLEST_TARGET = 12
SLICE_ROWS = 500
"""Rows of a long block that are made in one go."""


# --- any block


def rows_of(block: Block, room: LayoutRoom) -> list[Line]:
    """All rows of a block, without the blank one above it. A block that cannot be laid out is plain text."""
    try:
        return list(iter_rows(block, room))
    except Exception:
        log_fault(f"laying out {type(block).__name__}")
        return plain_block(block, room)


def rows_in_slices(block: Block, room: LayoutRoom) -> Generator[None, None, list[Line]]:
    """The same; gives way whenever a slice of a long block is made."""
    lines: list[Line] = []
    try:
        rows = iter_rows(block, room)
        while piece := list(islice(rows, SLICE_ROWS)):
            lines += piece
            if len(piece) == SLICE_ROWS:
                yield
    except Exception:
        log_fault(f"laying out {type(block).__name__}")
        return plain_block(block, room)
    return lines


def plain_block(block: Block, room: LayoutRoom) -> list[Line]:
    """The rows of a block that could not be laid out. Never raises."""
    try:
        text = plain_text(block)
    except Exception:
        log_fault(f"reading {type(block).__name__}")
        text = ""
    return plain_rows(text, room.width, room.glyphs)


def plain_text(block: Block) -> str:
    """What a block says, without any layout."""
    match block:
        case ToolBlock():
            parts = (f"{block.tool} {block.target}".strip(), block.message, block.output)
            return "\n".join(part for part in parts if part)
        case AgentBlock() | ThoughtBlock():
            return block.stream.text
        case DMailBlock():
            return f"D-Mail\n{block.text}"
        case CompactionBlock():
            return block.summary
        case ErrorBlock():
            return "\n".join(part for part in (block.title, block.reason, block.advice) if part)
        case RetryBlock():
            return block.reason
        case NoticeBlock():
            return "\n".join(part for part in (block.text, block.advice) if part)
        case UserBlock() | MarkBlock():
            return block.text
        case _:
            return ""


def iter_rows(block: Block, room: LayoutRoom) -> Iterator[Line]:
    """The rows of a block, one after another: what is long is not laid out before it is asked for.

    An exception is a fault in a layout, see `plain_block`.
    """
    match block:
        case ToolBlock():
            return tool_card(block, room)
        case AgentBlock():
            rows = whole_answer(block.stream.text, room.width, room.glyphs)
            return iter(with_pin(rows, block, room) if block.pinned else rows)
        case UserBlock():
            return user_message(block, room)
        case ThoughtBlock():
            return thought(block, room)
        case DMailBlock():
            shows = block.unfolded and block.folded
            return chain(dmail_card(block, room), lost_rows(block.folded, room) if shows else ())
        case CompactionBlock():
            return iter(compaction_card(block, room))
        case ErrorBlock():
            return iter(error_card(block, room))
        case RetryBlock():
            return iter(retry_card(block, room))
        case MarkBlock():
            return iter(mark_row(block, room))
        case NoticeBlock():
            return iter(notice(block, room))
        case _:
            return iter(())


def with_pin(rows: list[Line], block: Block, room: LayoutRoom) -> list[Line]:
    """An answer with the sign of its pin at the right, and its number where there is room: prose has no title row."""
    pin = pin_of(block, room)
    sign = number_span(block.checkpoint, live=block.live, pin=pin) or Span(pin, "quiet")
    first = rows[0] if rows else Line()
    free = room.width - RIGHT - spans_width(first.spans)
    if cells(pin) >= free:
        # Code fills its rows to their end.
        rows, first = [Line(), *rows], Line()
    elif cells(sign.text) >= free:
        sign = sign._replace(text=pin)
    spans = list(first.spans)
    pad(spans, room.width - RIGHT - cells(sign.text))
    return [first._replace(spans=(*spans, sign)), *rows[1:]]


def follows_closely(before: Block, before_rows: int, block: Block) -> bool:
    """Whether no blank row parts two blocks: a tool card below a card of one row."""
    return (
        before_rows == 1
        and isinstance(before, ToolBlock)
        and isinstance(block, ToolBlock)
        and block.tool != "SendDMail"
    )


def lost_rows(blocks: tuple[Block, ...], room: LayoutRoom) -> Iterator[Line]:
    """Blocks of a line that was left behind, to be read only: an edge in grey down their side."""
    edge = Span(room.glyphs.edge, "lost")
    yield Line((edge,))
    before: Block | None = None
    height = 0
    for block in blocks:
        rows = rows_of(block, room)
        if before is not None and not follows_closely(before, height, block):
            yield Line((edge,))
        yield from (with_edge(line, edge) for line in rows)
        before, height = block, len(rows)
    yield Line((edge,))


def with_edge(line: Line, edge: Span) -> Line:
    """The row with its first cell replaced by an edge; clicks in it mean nothing any more."""
    spans = [edge]
    for index, (text, style, _) in enumerate(line.spans):
        shown = text if index else text[1:]
        if shown:
            spans.append(Span(shown, style))
    return line._replace(spans=tuple(spans), hit="")


def probable_height(block: Block, room: LayoutRoom) -> int:
    """About how many rows a block takes: cheap, and good enough for a scrollbar."""
    # Of cards there may be thousands.
    if not isinstance(block, ToolBlock):
        return _probable_height_of_text(block, room)
    if block.unfolded:
        return 2 + block.result.line_ends
    height = 1
    for shown in block.display:
        if isinstance(shown, DiffBlock):
            height += min(DIFF_ROWS, len(shown.lines))
        elif isinstance(shown, TodoBlock):
            height += len(shown.items)
        elif isinstance(shown, ImageBlock):
            height += 1 + picture_rows(room)
    if height == 1 and block.result:
        if block.state == "failed":
            return 4
        if block.state == "done" and block.tool == "Shell":
            return 2
    return height


def _probable_height_of_text(block: Block, room: LayoutRoom) -> int:
    width = prose_width(room.width)
    match block:
        case AgentBlock():
            return 1 + block.stream.line_ends + block.stream.size // (width + 1)
        case UserBlock():
            rows = 1 + block.text.count("\n") + len(block.text) // width
            images = len(block.images) * (1 + picture_rows(room))
            return min(13, rows) + min(len(block.attached), ATTACHED_ROWS) + images
        case DMailBlock():
            return 6 + len(block.text) // width
        case CompactionBlock():
            return 1 if block.running else 6
        case ErrorBlock() | RetryBlock():
            return 2
        case _:
            return 1


# --- each kind


def user_message(block: UserBlock, room: LayoutRoom) -> Iterator[Line]:
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
    free = room.width - RIGHT - 4
    attached = _in_rows(block.attached, free, room.glyphs.cut)
    hit = HIT_FOLD if len(attached) > ATTACHED_ROWS else ""
    if hit and not block.unfolded:
        attached = _in_rows(block.attached, free, room.glyphs.cut, most=ATTACHED_ROWS)
    for row in attached:
        yield Line((edge, Span("   "), Span(row, "quiet")), fill="band", hit=hit)
    yield from image_rows(block.images, room, (edge, Span("   ")), fill="band")


def _in_rows(parts: Sequence[str], width: int, sign: str, most: int = 0) -> list[str]:
    """A list in rows that break between its parts; those for which `most` rows (0: any) have no room are counted."""
    rows: list[str] = []
    for at, part in enumerate(parts):
        behind = len(parts) - at - 1
        is_last = len(rows) == most > 0
        # Room for what stands behind it in its row.
        after = cells(f", +{behind} more") if is_last and behind else bool(behind)
        if rows and cells(f"{rows[-1]}, {part}") + after <= width:
            rows[-1] += f", {part}"
        elif is_last:
            rows[-1] += f", +{behind + 1} more"
            break
        else:
            if rows:
                rows[-1] += ","
            after = cells(f", +{behind} more") if len(rows) + 1 == most and behind else bool(behind)
            rows.append(cut(part, max(LEAST_NAME, width - after), sign))
    return rows


def picture_rows(room: LayoutRoom) -> int:
    """How many rows an image takes in the chat at most, besides that of its name."""
    if room.picture is None or room.lowest:
        return 0
    return PICTURE_ROWS // 2 if room.low else PICTURE_ROWS


def image_rows(
    images: Sequence[ImageBlock], room: LayoutRoom, lead: tuple[Span, ...], *, fill: str = "page"
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


def thought(block: ThoughtBlock, room: LayoutRoom) -> Iterator[Line]:
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

    def __init__(self, block: ThoughtBlock, room: LayoutRoom) -> None:
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


def error_card(block: ErrorBlock, room: LayoutRoom) -> list[Line]:
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


def retry_card(block: RetryBlock, room: LayoutRoom) -> list[Line]:
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
    title = title_row(room, head, [CardFact((Span(attempt, "quiet"),), 0)], None)
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


def mark_row(block: MarkBlock, room: LayoutRoom) -> list[Line]:
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


def notice(block: NoticeBlock, room: LayoutRoom) -> list[Line]:
    """Something to know: what happened, then what to do."""
    ink = {"info": "quiet", "warning": "warn", "error": "error"}[block.level]
    width = prose_width(room.width)
    lead = (Span("  "), Span(room.glyphs.caution, ink), Span(" "))
    rows = paragraph(block.text or " ", "ink", width, lead, (INDENT,))
    rows += paragraph(block.advice, "quiet", width, (INDENT,))
    return rows


SUMMARY_ROWS = 3


def dmail_card(block: DMailBlock, room: LayoutRoom) -> list[Line]:
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
        [CardFact((changed,), 0)] if block.tokens_changed else [],
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


def _edged(text: str, style: str, edge: Span, ground: str, room: LayoutRoom) -> list[Line]:
    lead = (edge, Span("   "))
    return paragraph(text or " ", style, prose_width(room.width), lead, fill=ground)


def _folded_row(block: DMailBlock, room: LayoutRoom, edge: Span, ground: str) -> Line:
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


def compaction_card(block: CompactionBlock, room: LayoutRoom) -> list[Line]:
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


def tool_card(block: ToolBlock, room: LayoutRoom) -> Iterator[Line]:
    """All rows of a tool card."""
    body = body_rows(block, room)
    first = next(body, None)
    yield _title(block, room, foldable=first is not None or has_more(block))
    if first is not None:
        yield first
        yield from body


def _state_glyph(state: ToolState, glyphs: Glyphs) -> Span:
    match state:
        case "done":
            return Span(glyphs.done, "ok")
        case "failed":
            return Span(glyphs.failed, "error")
        case "stopped" | "rejected" | "unsent" | "recalled":
            return Span(glyphs.stopped, "quiet")
        case "running" | "waiting":
            return Span(glyphs.running, "accent")
        case "writing":
            return Span(glyphs.pending, "quiet")


def _title(block: ToolBlock, room: LayoutRoom, *, foldable: bool) -> Line:
    number = number_span(block.checkpoint, live=block.live, pin=pin_of(block, room))
    is_dmail = block.tool == "SendDMail"
    ink = "quiet" if block.state in {"unsent", "recalled"} else "dmail" if is_dmail else "tool"
    name = cut(block.name, max(NAME_WIDTH, room.width // 3), room.glyphs.cut)
    head = [
        Span("  "),
        Span(room.glyphs.dmail, ink) if is_dmail else _state_glyph(block.state, room.glyphs),
        Span(" "),
        Span(name, ink),
    ]
    if block.target or block.display:
        head.append(
            Span(" " * max(1, NAME_WIDTH - cells(name)) if cells(name) <= NAME_WIDTH else " ")
        )
        if is_dmail:
            head.append(Span(" "))
    facts = _facts(block)
    target = _target(block)
    if room.width < NARROW and facts:
        best = min(fact.rank for fact in facts)
        facts = [fact for fact in facts if fact.rank == best]
    wanted = min(cells(target), max(SMALLEST_TARGET, room.width // 4))
    while facts and _free(room, head, facts, number) < wanted:
        worst = max(facts, key=_rank)
        if worst.rank <= 1:
            break
        facts.remove(worst)
    free = _free(room, head, facts, number)
    is_path = block.tool in {"ReadFile", "WriteFile", "StrReplaceFile"}
    shown = path(target, free, room.glyphs.cut) if is_path else cut(target, free, room.glyphs.cut)
    return title_row(room, [*head, Span(shown)], facts, number, hit=HIT_FOLD if foldable else "")


def title_text(block: ToolBlock) -> str:
    """All that the card's first row may say."""
    facts = " ".join(span.text for fact in _facts(block) for span in fact.spans)
    return f"{block.name} {_target(block)} {facts} #{block.checkpoint}"


def _rank(fact: CardFact) -> int:
    return fact.rank


def _free(
    room: LayoutRoom, head: Sequence[Span], facts: Sequence[CardFact], number: Span | None
) -> int:
    taken = sum(spans_width(fact.spans) + FACT_GAP for fact in facts)
    taken += FACT_GAP + max(3, cells(number.text)) if number is not None else 0
    return max(1, room.width - RIGHT - spans_width(head) - taken)


def _target(block: ToolBlock) -> str:
    for shown in block.display:
        if isinstance(shown, TodoBlock):
            done = sum(1 for item in shown.items if item.status == "done")
            return todo_summary(done, len(shown.items))
        if isinstance(shown, DiffBlock) and not block.target:
            return shown_name(shown.path)
    return block.target


def _facts(block: ToolBlock) -> list[CardFact]:
    """Result, time, tokens: in this order, with what may go first ranked highest."""
    out: list[CardFact] = []
    failed = block.state == "failed"
    if block.state == "waiting":
        out.append(CardFact((Span("waits for you", "accent"),), 0))
    elif block.state == "rejected":
        out.append(CardFact((Span("you said no", "ink"),), 0))
    elif block.state == "stopped":
        out.append(CardFact((Span("stopped by you", "ink"),), 0))
    elif block.state == "unsent":
        out.append(CardFact((Span("not sent", "ink"),), 0))
    elif block.state == "recalled":
        out.append(CardFact((Span("taken back", "ink"),), 0))
    brief = ""
    seconds = 0.0
    shell: ShellBlock | None = None
    added = removed = 0
    has_diff = has_list = False
    for shown in block.display:
        match shown:
            case ShellBlock():
                shell = shown
                seconds = shown.duration_s
            case DiffBlock():
                has_diff = True
                added += shown.added
                removed += shown.removed
            case BriefBlock(text):
                brief = one_line(text)
            case TodoBlock():
                # The target says it already.
                has_list = True
            case ImageBlock():
                # Named below it, with its size.
                pass
    if shell is not None and shell.exit_code is not None:
        style, rank = ("error", 0) if shell.exit_code else ("quiet", 4)
        out.append(CardFact((Span(f"exit {shell.exit_code}", style),), rank))
        _, _, more = brief.partition(" · ")
        if more:
            out.append(CardFact((Span(more, style),), 0 if more != "sandbox" else 4))
    elif has_diff and not failed:
        counts = change_counts(added, removed, UNICODE, blank="ink") or [("+0", "ok")]
        out.append(CardFact(tuple(Span(*one) for one in counts), 1))
    elif brief and brief != block.target and not has_list and block.state in {"done", "failed"}:
        out.append(CardFact((Span(brief, "error" if failed else "quiet"),), 0 if failed else 3))
    elif failed:
        out.append(CardFact((Span("failed", "error"),), 0))
    if block.state == "stopped":
        seconds = seconds or block.duration_s
    # What was refused has not run: the time is the one that the user took.
    if block.state != "rejected" and (seconds or shell is not None or block.duration_s >= 2):
        out.append(CardFact((Span(duration(seconds or block.duration_s), "quiet"),), 5))
    if block.tokens:
        out.append(
            CardFact((Span(change(block.tokens, estimated=block.tokens_estimated), "quiet"),), 2)
        )
    return out


def has_more(block: ToolBlock) -> bool:
    """Whether unfolding would show something."""
    return bool(block.output.strip()) and block.tool not in {"SetTodoList", "AskUserQuestion"}


def body_rows(block: ToolBlock, room: LayoutRoom) -> Iterator[Line]:
    """The rows under the card's first one."""
    if block.tool == "SendDMail":
        yield from _dmail_rows(block, room)
        return
    if block.tool == "ExitPlanMode":
        yield from _plan_rows(block, room)
        return
    is_empty = True
    for shown in block.display:
        if isinstance(shown, TodoBlock) and (not room.low or block.unfolded):
            rows = _todo(shown, room)
        elif isinstance(shown, DiffBlock) and block.state != "failed":
            rows = _diff(shown, room, unfolded=block.unfolded)
        elif isinstance(shown, ImageBlock):
            rows = image_rows([shown], room, (Span(" " * HANGING),))
        else:
            continue
        for row in rows:
            is_empty = False
            yield row
    if is_empty:
        yield from _said(block, room)
    if words := changed_words(block):
        named = f"{words}: {', '.join(block.changed)}"
        named += f" {room.glyphs.cut}" if len(block.changed) < block.n_changed else ""
        shown = cut(named, room.width - HANGING - RIGHT, room.glyphs.cut)
        yield Line((Span(" " * HANGING), Span(shown, "quiet")), hit=HIT_FOLD, margin=HANGING)


def _said(block: ToolBlock, room: LayoutRoom) -> Iterator[Line]:
    """What the tool gave back, or gives back while it runs."""
    if not block.over:
        return _tail(list(block.live_output), block.live_count, TAIL_ROWS, room, block)
    if block.tool == "Shell":
        keep = TAIL_ROWS if block.state == "failed" else 1
        if room.lowest:
            keep = 1
        if block.state in {"stopped", "rejected"}:
            keep = 0
        return _output(block, keep, room)
    if block.state == "failed":
        return _output(block, TAIL_ROWS, room)
    if block.tool == "AskUserQuestion":
        return _answers(block, room)
    return _output(block, 0, room)


def _answers(block: ToolBlock, room: LayoutRoom) -> Iterator[Line]:
    """What was asked and answered, whole: what was chosen stands at the end of its line."""
    lead = Span(" " * HANGING)
    width = prose_width(room.width)
    asked = [one_line(question) for question in iter_arguments(block.arguments, "question")]
    rows: list[Line] = []
    for line in clean(block.output).strip().split("\n", UNFOLDED_ROWS)[:UNFOLDED_ROWS]:
        question = next((one for one in asked if line.startswith(f"{one} ")), "")
        spans = [Span(question, "quiet"), Span(line[len(question) : LINE_LIMIT], "ink")]
        wrapped = wrap([span for span in spans if span.text], width)
        last = len(wrapped) - 1
        rows += [
            Line((lead, *row), hit=HIT_FOLD, soft=index < last, margin=HANGING)
            for index, row in enumerate(wrapped)
        ]
    shown = rows[: UNFOLDED_ROWS if block.unfolded else ANSWER_ROWS]
    yield from shown
    if len(rows) > len(shown):
        mark = Span(fold_mark(len(rows) - len(shown)))
        yield Line((lead, mark), hit=HIT_FOLD, margin=HANGING)


def _output(block: ToolBlock, keep: int, room: LayoutRoom) -> Iterator[Line]:
    if not keep and not block.unfolded:
        return iter(())
    text = clean(block.output).strip("\n")
    if not text.strip() and block.state == "failed":
        text = clean(block.message).strip()
    lines = text.split("\n") if text else []
    if not block.unfolded:
        # A blank last line says nothing.
        lines = [line for line in lines if line.strip()] if keep < len(lines) else lines
    return _tail(lines, len(lines), keep, room, block)


def _tail(
    lines: list[str], count: int, keep: int, room: LayoutRoom, block: ToolBlock
) -> Iterator[Line]:
    if block.unfolded:
        return _unfolded(lines, count, room, block)
    while lines and not lines[-1].strip():
        lines = lines[:-1]
        count -= 1
    return iter(_last_rows(lines[-keep:] if keep else [], count, room, block))


def _unfolded(lines: list[str], count: int, room: LayoutRoom, block: ToolBlock) -> Iterator[Line]:
    indent = Span(" " * HANGING)
    wide = room.width - HANGING - RIGHT
    shown = lines[:UNFOLDED_ROWS]
    for line in shown:
        says_why = block.state == "failed" and _SAYS_WHY.match(line[:_WHY_CHARS])
        parts = chop([Span(expand_tabs(line[:LINE_LIMIT]), "error" if says_why else "quiet")], wide)
        last = len(parts) - 1
        for index, part in enumerate(parts):
            chopped = 0 if index < last else None
            yield Line((indent, *part), margin=HANGING, chopped=chopped)
    if count > len(shown):
        more = Span(f"{fold_mark(count - len(shown))} more", "quiet")
        yield Line((indent, more), margin=HANGING)


def _last_rows(shown: list[str], count: int, room: LayoutRoom, block: ToolBlock) -> list[Line]:
    indent = Span(" " * HANGING)
    wide = room.width - HANGING - RIGHT
    hidden = count - len(shown)
    why = (
        next((line for line in reversed(shown) if _SAYS_WHY.match(line[:_WHY_CHARS])), None)
        if block.state == "failed"
        else None
    )
    rows = [
        Line(
            (
                indent,
                Span(
                    cut(expand_tabs(line[:LINE_LIMIT]), wide, room.glyphs.cut),
                    "error" if line is why else "quiet",
                ),
            ),
            hit=HIT_FOLD,
            margin=HANGING,
        )
        for line in shown
    ]
    if hidden > 0 and rows:
        mark = Span(f"   {fold_mark(hidden)}", "ink" if block.over else "quiet")
        if spans_width(rows[-1].spans) + cells(mark.text) <= room.width - RIGHT:
            rows[-1] = rows[-1]._replace(spans=(*rows[-1].spans, mark))
        else:
            rows.append(
                Line((indent, Span(mark.text.strip(), "ink")), hit=HIT_FOLD, margin=HANGING)
            )
    return rows


def _todo(todo: TodoBlock, room: LayoutRoom) -> list[Line]:
    rows: list[Line] = []
    for item in todo.items:
        match item.status:
            case "done":
                mark, style = Span(room.glyphs.done, "ok"), "quiet"
            case "in_progress":
                mark, style = Span(room.glyphs.running, "accent"), "strong"
            case "pending":
                mark, style = Span(room.glyphs.pending, "quiet"), "ink"
        indent = Span(" " * HANGING)
        rows += paragraph(
            one_line(item.title) or " ",
            style,
            prose_width(room.width) - 4,
            (indent, mark, Span(" ")),
            (indent, Span("  ")),
            hit=HIT_FOLD,
            margin=HANGING,
        )
    return rows


def presented(block: ToolBlock) -> str:
    """What a call puts before the user in its arguments: a D-Mail, or a plan, which they may have changed; else nothing."""
    if block.tool == "SendDMail":
        return argument(block.arguments, "message")
    if block.tool != "ExitPlanMode":
        return ""
    was_changed = block.state == "done" and block.output
    return block.output if was_changed else argument(block.arguments, "plan")


def _dmail_rows(block: ToolBlock, room: LayoutRoom) -> list[Line]:
    width, lead = prose_width(room.width), (Span(" " * MARGIN),)
    rows = paragraph(clean(presented(block)).strip(), "ink", width, lead)
    if block.state == "rejected" and block.message:
        rows += paragraph(f"You: {block.message}", "quiet", width, lead)
    return rows


def _plan_rows(block: ToolBlock, room: LayoutRoom) -> Iterator[Line]:
    """The plan as it was presented, or as the user changed it; folded only its beginning."""
    lines = clean(presented(block)).strip().split("\n")
    lead = Span(" " * HANGING)
    shown = lines if block.unfolded else lines[:DIFF_ROWS]
    for line in shown[:UNFOLDED_ROWS]:
        if not line.strip():
            yield Line((lead,), margin=HANGING)
            continue
        rows = paragraph(line[:LINE_LIMIT], "ink", prose_width(room.width), (lead,))
        yield from (row._replace(hit=HIT_FOLD) for row in rows)
    if len(lines) > len(shown):
        mark = Span(fold_mark(len(lines) - len(shown)))
        yield Line((lead, mark), hit=HIT_FOLD, margin=HANGING)


def _diff(diff: DiffBlock, room: LayoutRoom, *, unfolded: bool) -> Iterator[Line]:
    lines = diff.lines
    limit = len(lines) if unfolded else DIFF_ROWS
    if room.lowest and not unfolded:
        lines = tuple(line for line in lines if line.sign != " ")
    shown = lines[:limit]
    dedent = common_indent(diff.lines)
    for line in shown:
        yield from band_rows(line, dedent, room.width - RIGHT, room.glyphs)
    hidden = max(len(lines), diff.added + diff.removed) - len(shown)
    if hidden > 0:
        yield Line((Span(" " * HANGING), Span(fold_mark(hidden))), hit=HIT_FOLD, margin=HANGING)

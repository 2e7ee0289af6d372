"""Lays a block of the transcript out as rows (`rows_of`), and estimates its height without that (`probable_height`).

Each kind of block has its function here: messages, thoughts, D-Mails, compactions, errors, notices. Tool calls are laid out
by `tool_card`, the text of an answer by `markdown_stream`.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Sequence
from itertools import chain, islice

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
    UserBlock,
)
from kimi_tui.tool_cards import DiffBlock, ImageBlock, TodoBlock
from kimi_tui.tui.faults import log_fault
from kimi_tui.tui.formatting import MINUS, both_sizes, change, counted, cut, duration, path, tokens
from kimi_tui.tui.rows import (
    HIT_FOLD,
    LEAST_NAME,
    MARGIN,
    RIGHT,
    CardFact,
    LayoutRoom,
    Line,
    Span,
    cells,
    fold_mark,
    image_rows,
    iter_ranges,
    number_span,
    pad,
    paragraph,
    picture_rows,
    pin_of,
    plain_rows,
    prose_width,
    ranges,
    spans_width,
    title_row,
)
from kimi_tui.tui.transcript.markdown import PARSE_LIMIT, MarkdownLayout, Parser
from kimi_tui.tui.transcript.markdown_stream import whole_answer
from kimi_tui.tui.transcript.tool_card import DIFF_ROWS, tool_card

USER_ROWS = 12
ATTACHED_ROWS = 3
PASTE_LIMIT = 20_000
INDENT = Span(" " * MARGIN)
SLICE_ROWS = 500
"""Rows of a long block that are made in one step."""
_LEAST_NAME = 8
"""Cells of the name of a kept file below which the row does not have it."""


# --- any block


def rows_of(block: Block, room: LayoutRoom) -> list[Line]:
    """Return all rows of a block, without the blank one above it; a block that cannot be laid out becomes plain text."""
    try:
        return list(iter_rows(block, room))
    except Exception:
        log_fault(f"laying out {type(block).__name__}")
        return plain_block(block, room)


def rows_in_slices(block: Block, room: LayoutRoom) -> Generator[None, None, list[Line]]:
    """Do the same as `rows_of` as a generator that yields after each slice of a long block; its return value is the rows."""
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
    """Return the rows of a block as plain text, for one that could not be laid out. Never raises."""
    try:
        text = plain_text(block)
    except Exception:
        log_fault(f"reading {type(block).__name__}")
        text = ""
    return plain_rows(text, room.width, room.glyphs)


def plain_text(block: Block) -> str:
    """Return the text of a block, without layout."""
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
    """Yield the rows of a block, each made when it is requested.

    An exception is a fault in a layout; the block is then shown by `plain_block`.
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
    """Return the rows of an answer with the sign of its pin at the right of the first one, and its number if there is room."""
    pin = pin_of(block, room)
    sign = number_span(block.checkpoint, live=block.live, pin=pin) or Span(pin, "quiet")
    first = rows[0] if rows else Line()
    free = room.width - RIGHT - spans_width(first.spans)
    if cells(pin) >= free:
        # Code fills its rows to the end, so the sign gets a row of its own.
        rows, first = [Line(), *rows], Line()
    elif cells(sign.text) >= free:
        sign = sign._replace(text=pin)
    spans = list(first.spans)
    pad(spans, room.width - RIGHT - cells(sign.text))
    return [first._replace(spans=(*spans, sign)), *rows[1:]]


def follows_closely(before: Block, before_rows: int, block: Block) -> bool:
    """Return whether there is no blank row between two blocks, as between a tool card and one of a single row above it."""
    return (
        before_rows == 1
        and isinstance(before, ToolBlock)
        and isinstance(block, ToolBlock)
        and not block.card.is_letter
    )


def lost_rows(blocks: tuple[Block, ...], room: LayoutRoom) -> Iterator[Line]:
    """Yield the rows of blocks of a world line that was left, with a grey edge at their left."""
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
    """Return the row with its first cell replaced by an edge that does nothing when clicked."""
    spans = [edge]
    for index, (text, style, _) in enumerate(line.spans):
        shown = text if index else text[1:]
        if shown:
            spans.append(Span(shown, style))
    return line._replace(spans=tuple(spans), hit="")


def probable_height(block: Block, room: LayoutRoom) -> int:
    """Return an estimate of the number of rows of a block without laying it out, for the scrollbar."""
    # There may be thousands of cards, so their height is estimated by a simple rule.
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
        if block.state == "done" and block.card.is_command:
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
    """Yield the rows of a user message, with a background and an edge."""
    edge = Span(room.glyphs.edge, "accent@band")
    text = block.text or " "
    width = prose_width(room.width)
    # Only the beginning of a pasted file is laid out while it is folded.
    is_cut = not block.unfolded and len(text) > PASTE_LIMIT
    rows = _soft_rows(text[:PASTE_LIMIT] if is_cut else text, width)
    shown = list(islice(rows, USER_ROWS + 2))
    hidden = ""
    if not block.unfolded and (is_cut or len(shown) > USER_ROWS + 1):
        rows, shown = iter(()), shown[:USER_ROWS]
        hidden = _hidden(text, shown, width)
        # The last row says how much is hidden, so it does not continue in another row.
        shown[-1] = (shown[-1][0], False)
    number = (
        Span(block.apart, "quiet")
        if block.apart
        else number_span(block.checkpoint, live=block.live, pin=pin_of(block, room))
    )
    style = "quiet" if block.apart else "strong"
    hit = HIT_FOLD if hidden or len(shown) > USER_ROWS else ""
    # The words "not sent" are wider than `#N`, for which the text leaves room, so they may stand in a later row.
    number_at = room.width - RIGHT - (cells(number.text) if number is not None else 0)
    for row, soft in chain(shown, rows):
        spans = [edge, Span("   "), Span(row, style)]
        has_number = number is not None and spans_width(spans) < number_at
        if number is not None and has_number:
            pad(spans, number_at)
            spans.append(number)
            number = None
        yield Line(tuple(spans), fill="band", hit=hit, soft=soft, labelled=has_number)
    last = [edge, Span("   "), Span(hidden, "ink")]
    if number is not None:
        pad(last, number_at)
        last.append(number)
    if hidden or number is not None:
        has_number = number is not None
        yield Line(tuple(last), fill="band", hit=HIT_FOLD if hidden else hit, labelled=has_number)
    free = room.width - RIGHT - 4
    attached = _in_rows(block.attached, free, room.glyphs.cut)
    hit = HIT_FOLD if len(attached) > ATTACHED_ROWS else ""
    if hit and not block.unfolded:
        attached = _in_rows(block.attached, free, room.glyphs.cut, most=ATTACHED_ROWS)
    for row in attached:
        yield Line((edge, Span("   "), Span(row, "quiet")), fill="band", hit=hit)
    yield from image_rows(block.images, room, (edge, Span("   ")), fill="band")


def _in_rows(parts: Sequence[str], width: int, sign: str, most: int = 0) -> list[str]:
    """Return a list in rows that break between its parts; parts that do not fit into `most` rows (0: any number) are counted."""
    rows: list[str] = []
    for at, part in enumerate(parts):
        behind = len(parts) - at - 1
        is_last = len(rows) == most > 0
        # Room is kept for the words that follow in the same row.
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


def _soft_rows(text: str, width: int) -> Iterator[tuple[str, bool]]:
    """Yield the rows of a text, made one after another, each with whether its line continues in the next one."""
    text = text.replace("\t", "    ")
    before: tuple[int, int] | None = None
    for start, end in iter_ranges(text, max(2, width)):
        if before is not None:
            yield text[slice(*before)], text.find("\n", before[1], start) < 0
        before = start, end
    if before is not None:
        yield text[slice(*before)], False


def _hidden(text: str, rows: list[tuple[str, bool]], width: int) -> str:
    """Return the words for the part that the rows of a text leave out, such as `+192 lines`; for a single line, its characters."""
    wholly = sum(not goes_on for _, goes_on in rows)
    lines = text.count("\n") + 1
    if lines > 1:
        return fold_mark(lines - wholly)
    end = ranges(text[:PASTE_LIMIT], width)[len(rows) - 1][1]
    return fold_mark(len(text[end:].strip()), "character")


def thought(block: ThoughtBlock, room: LayoutRoom) -> Iterator[Line]:
    """Yield the rows of a thought: folded as `Thought for 6 s  +12 lines`, unfolded the whole text in italics."""
    width = prose_width(room.width)
    count = block.stream.line_ends + 1 + block.stream.size // (width * 2)
    words = "Thinking" if block.open else f"Thought for {_whole_seconds(block.seconds)}"
    head = [INDENT, Span(words, "quiet/i")]
    if not block.unfolded:
        # The rows of a very long thought are only estimated.
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
    """Lays out an unfolded thought that is still streamed, each row once.

    Args:
        block: the thought.
        room: the width and options of the layout.

    Attributes:
        lines: the rows so far.
        spent: the number of characters that were laid out.
    """

    def __init__(self, block: ThoughtBlock, room: LayoutRoom) -> None:
        self._width = max(2, prose_width(room.width))
        self._rest: str = ""
        """The text of the last row, which may still change."""
        self._settled = 1
        self.spent = 0
        self.lines = list(islice(thought(block, room), 1))

    def feed(self, text: str, behind: int = 0) -> int:
        """Append text; return the index of the first row that changed. The size of the text to come (`behind`) is not used."""
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


def _whole_seconds(seconds: float) -> str:
    """Return a duration in whole seconds, in words."""
    return f"{max(1, round(seconds))} s" if seconds < 9.5 else duration(seconds)


def error_card(block: ErrorBlock, room: LayoutRoom) -> list[Line]:
    """Return the rows of an error: the failure, its cause, and the advice."""
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
    """Return the rows of a retry: the countdown to the next attempt, with a bar."""
    left = max(0.0, block.due - time.time())
    head = [
        Span("  "),
        Span(room.glyphs.running, "warn"),
        Span(" "),
        Span(f"Retrying in {left:.0f} s" if left else "Retrying now", "strong"),
        Span("   "),
    ]
    attempt = f"attempt {min(block.attempt, block.max_attempts)} of {block.max_attempts}"
    if block.gives_up:
        attempt = f"gives up in {duration(max(0.0, block.gives_up - time.time()))}"
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
    """Return the row of a `MarkBlock`: a sign and a few words; the sentences about a rule may take several rows."""
    glyph = {
        "stopped": Span(room.glyphs.stopped, "quiet"),
        "done": Span(room.glyphs.done, "ok"),
        "files": Span(room.glyphs.files, "quiet"),
        "rule": Span(room.glyphs.dmail, "dmail"),
        "line": Span(room.glyphs.lost, "quiet"),
        "none": Span(" "),
    }[block.glyph]
    lead, width = (Span("  "), glyph, Span(" ")), room.width - MARGIN - RIGHT
    if block.glyph == "rule":
        return paragraph(block.text, "quiet", prose_width(room.width), lead, (INDENT,), margin=2)
    return [Line((*lead, Span(cut(block.text, width, room.glyphs.cut), "quiet")), margin=2)]


def notice(block: NoticeBlock, room: LayoutRoom) -> list[Line]:
    """Return the rows of a `NoticeBlock`: its fact, then its advice."""
    ink = {"info": "quiet", "warning": "warn", "error": "error"}[block.level]
    width = prose_width(room.width)
    lead = (Span("  "), Span(room.glyphs.caution, ink), Span(" "))
    rows = paragraph(block.text or " ", "ink", width, lead, (INDENT,))
    rows += paragraph(block.advice, "quiet", width, (INDENT,))
    return rows


SUMMARY_ROWS = 3


def dmail_card(block: DMailBlock, room: LayoutRoom) -> list[Line]:
    """Return the rows of a D-Mail that arrived, with the blocks that it removed."""
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
        *([Span(f"  by the rule {block.rule}", "quiet")] if block.rule else []),
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
    """Return the checkpoints from which and to which a D-Mail was sent; only the latter if they are the same."""
    if block.is_carried:
        return "copied from another world line"
    if block.checkpoint is None:
        # A summary replaced the checkpoint, so both checkpoints of the D-Mail have no number any more.
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
    sign = "" if not block.folded else room.glyphs.minus if block.unfolded else "+"
    steps = f"{sign}{counted(block.steps, 'step')}"
    calls = counted(block.tool_calls, "tool call")
    removed, short = f"{calls} removed from the context", f"{calls} removed"
    if not block.tool_calls:
        removed, short = "Removed from the context", "Removed"
    lead, name, fact = "", "", ""
    if block.kept:
        edits = sum(count for _, count in block.kept)
        name = block.kept[0][0] if len(block.kept) == 1 else counted(len(block.kept), "file")
        lead, fact = "   kept: ", f" ({counted(edits, 'edit')})"
    free = room.width - RIGHT - cells(f"    {removed}  {steps}{lead}{fact}")
    gained = cells(removed) - cells(short)
    if cells(name) > free and free + gained >= _LEAST_NAME:
        # The name of a kept file says more than where the steps went.
        removed, free = short, free + gained
    spans = [edge, Span("   "), Span(removed, "quiet"), Span("  "), Span(steps, "ink")]
    if block.kept and free >= _LEAST_NAME:
        name = path(name, free, room.glyphs.cut)
        kept = [Span(lead.lstrip(), "quiet"), Span(name, "ink"), Span(fact, "quiet")]
        pad(spans, max(spans_width(spans) + 3, room.width - RIGHT - 2 - spans_width(kept)))
        spans.extend(kept)
    return Line(tuple(spans), fill=ground, hit=HIT_FOLD if block.unfolds else "")


def compaction_card(block: CompactionBlock, room: LayoutRoom) -> list[Line]:
    """Return the rows of a compaction: the tokens before and after, and the summary."""
    edge = Span(room.glyphs.edge, "compaction")
    glyph = Span(room.glyphs.compaction, "compaction")
    if block.running:
        left = [edge, Span(" "), glyph, Span(" "), Span("Compacting", "compaction")]
        left += [Span("  "), Span(tokens(block.tokens_before), "ink")]
        return [Line(tuple(left))]
    left = [edge, Span(" "), glyph, Span(" "), Span("Compacted", "compaction")]
    # If the files do not show what it replaced, both figures are the tokens of the summary itself.
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
    lead = (edge, Span("   "))
    lines = _summary_rows(block.summary, room, lead)
    if not block.unfolded:
        lines = [line for line in lines if line.text.strip() != edge.text]
    hidden = len(lines) - SUMMARY_ROWS
    if hidden > 0 and not block.unfolded:
        lines = [
            *lines[:SUMMARY_ROWS],
            Line((*lead, Span(fold_mark(hidden))), hit=HIT_FOLD),
        ]
    return [*rows, *lines, *paragraph(_what_stays(block), "quiet", prose_width(room.width), lead)]


def _summary_rows(text: str, room: LayoutRoom, lead: tuple[Span, ...]) -> list[Line]:
    """Return the rows of a summary, drawn from Markdown; a very long one is drawn as it is."""
    if len(text) > PARSE_LIMIT:
        return paragraph(text, "ink", prose_width(room.width), lead, hit=HIT_FOLD)
    drawn = MarkdownLayout(room.width, room.glyphs).elements(Parser().parse(text), lead, lead)
    return [line._replace(hit=HIT_FOLD) for line in drawn]


def _what_stays(block: CompactionBlock) -> str:
    """Return in words which messages before and after a compaction the model still gets."""
    if block.is_past:
        return "Out of date: the model now sees a newer summary instead."
    above = "" if block.checkpoint else "This summary replaces the messages above."
    below = (
        f"{counted(block.kept, 'message')} below {'is' if block.kept == 1 else 'are'} kept."
        if block.kept
        else ""
    )
    return " ".join(part for part in (above, below) if part)

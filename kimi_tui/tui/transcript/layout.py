"""From a block to its rows, and how high it probably is before that is known."""

from __future__ import annotations

from collections.abc import Generator, Iterator
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
from kimi_tui.tui.faults import log_fault
from kimi_tui.tui.formatting import spans_width
from kimi_tui.tui.rows import (
    RIGHT,
    LayoutRoom,
    Line,
    Span,
    cells,
    number_span,
    pad,
    pin_of,
    plain_rows,
    prose_width,
)
from kimi_tui.tui.transcript.cards import (
    ATTACHED_ROWS,
    DIFF_ROWS,
    compaction_card,
    dmail_card,
    error_card,
    mark_row,
    notice,
    picture_rows,
    retry_card,
    thought,
    tool_card,
    user_message,
)
from kimi_tui.tui.transcript.markdown_stream import whole_answer
from kimi_tui.wire.display import DiffBlock, ImageBlock, TodoBlock

SLICE_ROWS = 500
"""Rows of a long block that are made in one go."""


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
    width = prose_width(room.width)
    match block:
        case AgentBlock():
            return 1 + block.stream.line_ends + block.stream.size // (width + 1)
        case UserBlock():
            rows = 1 + block.text.count("\n") + len(block.text) // width
            images = len(block.images) * (1 + picture_rows(room))
            return min(13, rows) + min(len(block.attached), ATTACHED_ROWS) + images
        case ToolBlock():
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
                height += {"failed": 3, "done": int(block.tool == "Shell")}.get(block.state, 0)
            return height
        case DMailBlock():
            return 6 + len(block.text) // width
        case CompactionBlock():
            return 1 if block.running else 6
        case ErrorBlock() | RetryBlock():
            return 2
        case _:
            return 1

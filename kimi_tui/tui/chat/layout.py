"""From a block to its rows, and how high it probably is before that is known."""

from __future__ import annotations

from kimi_tui.tui.chat.answer import whole_answer
from kimi_tui.tui.chat.bands import (
    error_card,
    mark_row,
    notice,
    retry_card,
    thought,
    user_band,
)
from kimi_tui.tui.chat.blocks import (
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
from kimi_tui.tui.chat.cards import tool_card
from kimi_tui.tui.chat.folds import compaction_card, letter_card
from kimi_tui.tui.chat.hanging import DIFF_ROWS
from kimi_tui.tui.chat.lines import RIGHT, Line, Span, cells, pad, prose_width, width_of
from kimi_tui.tui.chat.rows import Room, number_span, pin_of
from kimi_tui.wire.display import DiffBlock, TodoBlock


def rows_of(block: Block, room: Room) -> list[Line]:
    """All rows of a block, without the blank one above it."""
    match block:
        case ToolBlock():
            return tool_card(block, room)
        case AgentBlock():
            rows = whole_answer(block.stream.text, room.width, room.glyphs)
            return _with_pin(rows, block, room) if block.pinned else rows
        case UserBlock():
            return user_band(block, room)
        case ThoughtBlock():
            return thought(block, room)
        case DMailBlock():
            rows = letter_card(block, room)
            shows = block.unfolded and block.folded
            return rows + lost_rows(block.folded, room) if shows else rows
        case CompactionBlock():
            return compaction_card(block, room)
        case ErrorBlock():
            return error_card(block, room)
        case RetryBlock():
            return retry_card(block, room)
        case MarkBlock():
            return mark_row(block, room)
        case NoticeBlock():
            return notice(block, room)
        case _:
            return []


def _with_pin(rows: list[Line], block: Block, room: Room) -> list[Line]:
    """An answer with the sign of its pin at the right, and its number where there is room: prose has no title row."""
    pin = pin_of(block, room)
    sign = number_span(block.checkpoint, live=block.live, pin=pin) or Span(pin, "quiet")
    first = rows[0] if rows else Line()
    free = room.width - RIGHT - width_of(first.spans)
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


def lost_rows(blocks: tuple[Block, ...], room: Room) -> list[Line]:
    """Blocks of a line that was left behind, to be read only: an edge in grey down their side."""
    edge = Span(room.glyphs.edge, "lost")
    out: list[Line] = [Line((edge,))]
    before: Block | None = None
    height = 0
    for block in blocks:
        rows = rows_of(block, room)
        if before is not None and not follows_closely(before, height, block):
            out.append(Line((edge,)))
        out.extend(with_edge(line, edge) for line in rows)
        before, height = block, len(rows)
    out.append(Line((edge,)))
    return out


def with_edge(line: Line, edge: Span) -> Line:
    """The row with its first cell replaced by an edge; clicks in it mean nothing any more."""
    spans = [edge]
    for index, (text, style, _) in enumerate(line.spans):
        shown = text if index else text[1:]
        if shown:
            spans.append(Span(shown, style))
    return line._replace(spans=tuple(spans), hit="")


def probable_height(block: Block, room: Room) -> int:
    """About how many rows a block takes: cheap, and good enough for a scrollbar."""
    width = prose_width(room.width)
    match block:
        case AgentBlock():
            return 1 + block.stream.line_ends + block.stream.size // (width + 1)
        case UserBlock():
            return min(13, 1 + block.text.count("\n") + len(block.text) // width)
        case ToolBlock():
            if block.unfolded:
                return 2 + block.result.line_ends
            height = 1
            for shown in block.display:
                if isinstance(shown, DiffBlock):
                    height += min(DIFF_ROWS, len(shown.lines))
                elif isinstance(shown, TodoBlock):
                    height += len(shown.items)
            if height == 1 and block.result:
                height += {"failed": 3, "done": int(block.tool == "Shell")}.get(block.state, 0)
            return height
        case DMailBlock():
            return 6 + len(block.letter) // width
        case CompactionBlock():
            return 1 if block.running else 5
        case ErrorBlock() | RetryBlock():
            return 2
        case _:
            return 1

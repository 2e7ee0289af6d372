"""What hangs under a tool card's row: the end of its output, a diff, a list, a letter."""

from __future__ import annotations

import re
from collections.abc import Sequence

from kimi_tui.foreign_text import clean, expand_tabs, one_line
from kimi_tui.tui.chat.blocks import ToolBlock
from kimi_tui.tui.chat.lines import (
    HANGING,
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
from kimi_tui.tui.chat.rows import Room, fold_mark
from kimi_tui.tui.chat.targets import argument
from kimi_tui.tui.chat.wrapping import chop, wrap
from kimi_tui.tui.numbers import cut
from kimi_tui.wire.display import DiffBlock, DiffLine, TodoBlock

TAIL_ROWS = 3
DIFF_ROWS = 12
UNFOLDED_ROWS = 1_000
LINE_LIMIT = 4_000
"""Characters of one line of output that are drawn."""

_SAYS_WHY = re.compile(
    r"^\s*(?:FAILED|ERROR|FATAL|error(?:\[\w+\])?:|fatal:|panic:|E  +\S|[\w.]*(?:Error|Exception)\b:|npm ERR!)"
)


def has_more(block: ToolBlock) -> bool:
    """Whether unfolding would show something."""
    return bool(block.output.strip()) and block.tool != "SetTodoList"


def hanging_rows(block: ToolBlock, room: Room) -> list[Line]:
    """The rows under the card's first one."""
    if block.tool == "SendDMail":
        return _letter(block, room)
    rows: list[Line] = []
    for shown in block.display:
        if isinstance(shown, TodoBlock) and (not room.low or block.unfolded):
            rows.extend(_todo(shown, room))
        elif isinstance(shown, DiffBlock) and block.state != "failed":
            rows.extend(_diff(shown, room, unfolded=block.unfolded))
    if rows:
        return rows
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
    return _output(block, 0, room)


def _output(block: ToolBlock, keep: int, room: Room) -> list[Line]:
    if not keep and not block.unfolded:
        return []
    text = clean(block.output).strip("\n")
    if not text.strip() and block.state == "failed":
        text = clean(block.message).strip()
    lines = text.split("\n") if text else []
    if not block.unfolded:
        # A blank last line says nothing.
        lines = [line for line in lines if line.strip()] if keep < len(lines) else lines
    return _tail(lines, len(lines), keep, room, block)


def _tail(lines: list[str], count: int, keep: int, room: Room, block: ToolBlock) -> list[Line]:
    indent = Span(" " * HANGING)
    wide = room.width - HANGING - RIGHT
    if block.unfolded:
        shown = lines[:UNFOLDED_ROWS]
        rows: list[Line] = []
        for line in shown:
            style = "error" if block.state == "failed" and _SAYS_WHY.match(line) else "quiet"
            parts = chop([Span(expand_tabs(line[:LINE_LIMIT]), style)], wide)
            rows += [
                Line((indent, *part), margin=HANGING, chopped=None if part is parts[-1] else 0)
                for part in parts
            ]
        if count > len(shown):
            rows.append(
                Line(
                    (indent, Span(f"{fold_mark(count - len(shown))} more", "quiet")), margin=HANGING
                )
            )
        return rows
    while lines and not lines[-1].strip():
        lines = lines[:-1]
        count -= 1
    shown = lines[-keep:] if keep else []
    hidden = count - len(shown)
    why = (
        next((line for line in reversed(shown) if _SAYS_WHY.match(line)), None)
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
        if width_of(rows[-1].spans) + cells(mark.text) <= room.width - RIGHT:
            rows[-1] = rows[-1]._replace(spans=(*rows[-1].spans, mark))
        else:
            rows.append(
                Line((indent, Span(mark.text.strip(), "ink")), hit=HIT_FOLD, margin=HANGING)
            )
    return rows


def _todo(todo: TodoBlock, room: Room) -> list[Line]:
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
        for index, row in enumerate(
            wrap([Span(one_line(item.title), style)], prose_width(room.width) - 4)
        ):
            lead = (indent, mark, Span(" ")) if not index else (indent, Span("  "))
            rows.append(Line((*lead, *row), hit=HIT_FOLD, margin=HANGING))
    return rows


def _letter(block: ToolBlock, room: Room) -> list[Line]:
    text = clean(argument(block.arguments, "message")).strip()
    rows: list[Line] = []
    for part in text.split("\n") if text else []:
        rows.extend(
            Line((Span(" " * MARGIN), *row)) for row in wrap([Span(part)], prose_width(room.width))
        )
    if block.state == "rejected" and block.message:
        said = wrap([Span(f"You: {block.message}", "quiet")], prose_width(room.width))
        rows.extend(Line((Span(" " * MARGIN), *row)) for row in said)
    return rows


def _diff(diff: DiffBlock, room: Room, *, unfolded: bool) -> list[Line]:
    lines = diff.lines
    limit = len(lines) if unfolded else DIFF_ROWS
    if room.lowest and not unfolded:
        lines = tuple(line for line in lines if line.sign != " ")
    shown = lines[:limit]
    dedent = _common_indent(diff.lines)
    rows: list[Line] = []
    for line in shown:
        rows.extend(_diff_row(line, dedent, room))
    hidden = max(len(lines), diff.added + diff.removed) - len(shown)
    if hidden > 0:
        rows.append(
            Line((Span(" " * HANGING), Span(fold_mark(hidden))), hit=HIT_FOLD, margin=HANGING)
        )
    return rows


def _common_indent(lines: Sequence[DiffLine]) -> int:
    indents = [
        len(text) - len(text.lstrip(" "))
        for line in lines
        if (text := expand_tabs(line.text)).strip()
    ]
    return min(indents, default=0)


def _diff_row(line: DiffLine, dedent: int, room: Room) -> list[Line]:
    ink, ground, sign = {
        "+": ("add", "add-bg", "+"),
        "-": ("del", "del-bg", room.glyphs.minus),
        " ": ("ink", "page", " "),
    }[line.sign]
    at = f"@{ground}"
    text = expand_tabs(clean(line.text[:LINE_LIMIT]).replace("\n", " "))[dedent:]
    lead = Span(f" {line.number:>3} ", ("quiet" if line.sign == " " else ink) + at)
    mark = Span(f"{sign} ", ink + at)
    width = room.width - RIGHT
    rows: list[Line] = []
    parts = chop([Span(text, ink + at)], max(8, width - MARGIN - 7))
    for index, part in enumerate(parts):
        head = (lead, mark) if not index else (Span(" " * 7, ink + at),)
        spans = [Span(" " * MARGIN), *head, *part]
        padding = max(0, width - width_of(spans))
        pad(spans, width, ink + at)
        chopped = None if index == len(parts) - 1 else padding
        rows.append(Line(tuple(spans), margin=MARGIN + 7, chopped=chopped))
    return rows

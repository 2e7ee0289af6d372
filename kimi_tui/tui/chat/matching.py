"""Where a searched text stands in the rows of the chat, also across the end of a row.

A match is looked for in what the person reads (rows, unfolded), not in its source: `**so**` is found as `so`.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from kimi_tui.tui.chat.answer import AnswerLayout
from kimi_tui.tui.chat.blocks import AgentBlock, Block, ThoughtBlock, ToolBlock
from kimi_tui.tui.chat.cards import title_text
from kimi_tui.tui.chat.copying import margin_of
from kimi_tui.tui.chat.layout import rows_of
from kimi_tui.tui.chat.lines import Line
from kimi_tui.tui.chat.rows import Room
from kimi_tui.wire.display import DiffBlock

QUERY_LIMIT = 200
"""Characters of a query that count."""
FEED = 2_000
"""Characters of an answer that are laid out before others get their turn."""
_BREAK = "\x00"
"""Stands between two rows of one line. No row can hold it."""
_NEAR = 8
"""Rows above and below that are looked at when one row is drawn: no match of `QUERY_LIMIT` reaches farther."""
_NO_WORD = re.compile(r"\W+")

Pattern = re.Pattern[str]


class Part(NamedTuple):
    """Characters of one row of a block that belong to a match."""

    row: int
    start: int
    end: int


Match = tuple[Part, ...]


def pattern_of(query: str) -> Pattern | None:
    """What a query matches: its letters in either case, its blanks as any blanks; None where it is empty."""
    words = query[:QUERY_LIMIT].split()
    if not words:
        return None
    joined = rf"[\s{_BREAK}]+".join(f"{_BREAK}?".join(re.escape(c) for c in word) for word in words)
    return re.compile(joined, re.IGNORECASE)


def matches(lines: Sequence[Line], pattern: Pattern) -> list[Match]:
    """All matches in the rows of a block, from the top."""
    found: list[Match] = []
    first = 0
    while first < len(lines):
        last = first
        while last + 1 < len(lines) and lines[last].goes_on:
            last += 1
        found += _in_line(lines, first, last, pattern)
        first = last + 1
    return found


def parts_in_row(lines: Sequence[Line], row: int, pattern: Pattern) -> Iterable[Part]:
    """What of a row belongs to matches."""
    first = last = row
    while first > max(0, row - _NEAR) and lines[first - 1].goes_on:
        first -= 1
    while last + 1 < len(lines) and last < row + _NEAR and lines[last].goes_on:
        last += 1
    for match in _in_line(lines, first, last, pattern):
        yield from (part for part in match if part.row == row)


def _in_line(lines: Sequence[Line], first: int, last: int, pattern: Pattern) -> list[Match]:
    """The matches in rows that are one line."""
    texts: list[str] = []
    starts: list[tuple[int, int]] = []
    for row in range(first, last + 1):
        text = lines[row].trimmed(lines[row].text)
        start = margin_of(text, lines[row].margin)
        starts.append((start, len(text) - start))
        texts.append(text[start:])
    found: list[Match] = []
    for hit in pattern.finditer(_BREAK.join(texts)):
        low, high = hit.span()
        parts: list[Part] = []
        offset = 0
        for row, (start, size) in enumerate(starts, first):
            begin, end = max(low - offset, 0), min(high - offset, size)
            if begin < end:
                parts.append(Part(row, start + begin, start + end))
            offset += size + 1
        if parts:
            found.append(tuple(parts))
    return found


def may_hold(block: Block, query: str) -> bool:
    """Whether a block can hold the query at all, told from its text without laying it out: most cannot."""
    word = _letters(query)
    if not word:
        return True
    match block:
        case AgentBlock() | ThoughtBlock():
            texts: Iterable[str] = _of_stream(block)
        case ToolBlock():
            texts = _of_tool(block)
        case _:
            return True
    return any(word in _letters(text) for text in texts)


def _letters(text: str) -> str:
    return _NO_WORD.sub("", text).replace("_", "").lower()


def _of_stream(block: AgentBlock | ThoughtBlock) -> Iterable[str]:
    text = block.stream.text
    yield text
    if "&" in text:
        from html import unescape

        yield unescape(text)
    if isinstance(block, ThoughtBlock):
        yield "Thinking Thought for"
        yield f"{block.seconds}"


def _of_tool(block: ToolBlock) -> Iterable[str]:
    yield title_text(block)
    yield block.output
    yield block.message
    for shown in block.display:
        if isinstance(shown, DiffBlock):
            yield from (line.text for line in shown.lines)
        else:
            yield str(shown)
    if block.tool == "SendDMail":
        yield block.arguments
    yield from block.live_output


def unfolded_rows(block: Block, room: Room) -> Generator[None, None, list[Line]]:
    """All rows of a block as if it were unfolded; a long answer in slices."""
    if not isinstance(block, AgentBlock):
        return rows_of(block if block.unfolded else replace(block, unfolded=True), room)
    answer = AnswerLayout(room.width, room.glyphs)
    for start in range(0, block.stream.size, FEED):
        answer.feed(block.stream.part(start, FEED))
        yield
    answer.finish()
    return answer.lines

"""The text that is copied for a selection: the source of its blocks and rows, with tabs, line ends and emoji as written.

A block that is selected whole yields its source. For any other block the selected characters are looked up in the source, row by row; rows
without a source (the title of a card) are copied as shown.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Generator, Sequence
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from kimi_tui.foreign_text import JOINERS, SELECTORS, clean_source, expand_tabs
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
from kimi_tui.tool_cards import DiffBlock
from kimi_tui.tui.rows import HIT_FOLD, Line
from kimi_tui.tui.transcript.layout import follows_closely, rows_in_slices
from kimi_tui.tui.transcript.text_position import TextPosition, extent_of, is_code, line_around
from kimi_tui.tui.transcript.tool_card import presented
from kimi_tui.tui.transcript.viewport import Flow, View

if TYPE_CHECKING:
    from markdown_it import MarkdownIt


_UNSHOWN = frozenset(SELECTORS + JOINERS)
_CODE_SIGNS = ("```", "~~~", "    ", "\t")
"""A Markdown text without any of these contains no code block."""
_NEIGHBOURS = 16
"""Characters of the word on either side by which a gap of several blanks is identified."""
_KINDS: tuple[tuple[type[Block], str], ...] = (
    (AgentBlock, "the answer"),
    (UserBlock, "your message"),
    (ThoughtBlock, "the thought"),
    (ToolBlock, "the output"),
    (DMailBlock, "the D-Mail"),
    (CompactionBlock, "the summary"),
)


# --- whole blocks


def source_of(block: Block) -> str:
    """Return the source text of a block; of a tool call its output, or its subject if there is none."""
    match block:
        case AgentBlock() | ThoughtBlock():
            return block.stream.source.strip("\n")
        case UserBlock():
            return block.written or block.text
        case ToolBlock():
            return _of_tool(block)
        case DMailBlock():
            return block.text
        case CompactionBlock():
            return block.summary
        case ErrorBlock():
            return "\n".join(part for part in (block.title, block.reason, block.advice) if part)
        case NoticeBlock():
            return "\n".join(part for part in (block.text, block.advice) if part)
        case MarkBlock():
            return block.text
        case RetryBlock():
            return block.reason
        case _:
            return ""


def _of_tool(block: ToolBlock) -> str:
    if words := presented(block):
        return clean_source(words)
    diffs = [shown for shown in block.display if isinstance(shown, DiffBlock)]
    if diffs and block.state != "failed":
        rows = [f"{line.sign}{clean_source(line.text)}" for one in diffs for line in one.lines]
        return "\n".join(rows)
    output = clean_source(block.output).strip("\n") or "\n".join(block.live_output)
    return output or clean_source(block.message).strip() or block.target


def kind_of(block: Block) -> str:
    """Return the kind of a block in words, for a notice: `the answer`, `your message`."""
    if isinstance(block, ToolBlock) and not block.output and not block.live_output:
        return "the call"
    return next((words for kind, words in _KINDS if isinstance(block, kind)), "the text")


def code_of(block: Block) -> list[tuple[str, str]]:
    """Return the code blocks in a block, each as its language and its text; of a Shell call its command."""
    if isinstance(block, AgentBlock):
        return [(language, "\n".join(lines)) for language, lines in _fences(block.stream.source)]
    if isinstance(block, ToolBlock):
        if block.card.is_command and block.target:
            return [("shell", block.target)]
        return [("", _of_tool(block))] if block.output or block.display else []
    if isinstance(block, UserBlock):
        return [(language, "\n".join(code)) for language, code in _fences(source_of(block))]
    return []


@cache
def _blocks_of_markdown() -> MarkdownIt:
    """Return a parser of blocks only: inline Markdown is not needed here, and takes the most time."""
    from markdown_it import MarkdownIt

    return MarkdownIt("commonmark", {"html": False}).disable(["inline", "text_join"])


def _fences(source: str) -> list[tuple[str, list[str]]]:
    """Return the code blocks of a Markdown text in order, each as its language and its lines."""
    if not any(sign in source for sign in _CODE_SIGNS):
        # Most answers contain no code block, and a search for code may go through a long conversation.
        return []
    tokens = _blocks_of_markdown().parse(source)
    return [
        ((token.info.split() or [""])[0], token.content.removesuffix("\n").split("\n"))
        for token in tokens
        if token.type in {"fence", "code_block"}
    ]


# --- what is selected


class RowPosition(NamedTuple):
    """A position in the rows of a block: the index of a row, and of a character in it."""

    row: int
    column: int


_JOINED = 500
"""Texts of blocks that are put together in one step."""


def selected_text(flow: Flow, start: TextPosition, end: TextPosition) -> Generator[None, None, str]:
    """Yield the source text between two positions; yields after every block, for `slices.in_slices`.

    Only the first and the last block keep their layout: the selection may be all of a long session.
    """
    start, end = held = replace(start), replace(end)
    # Laying the blocks out moves those positions with their text that are known to the flow.
    flow.positions += held
    try:
        for mark in held:
            if (index := flow.index_of(mark)) is not None:
                yield from flow.whole_in_steps(flow.views[index])
    finally:
        flow.positions = [mark for mark in flow.positions if not any(mark is one for one in held)]
    first, last = flow.index_of(start), flow.index_of(end)
    if first is None or last is None:
        return ""
    low = RowPosition(max(0, start.row), start.column)
    high = RowPosition(max(0, end.row), end.column)
    views = flow.views[first : last + 1]
    texts = [_of_view(views[0], low, high if first == last else None)]
    heads = [len(views[0].lines)]
    for view in views[1:-1]:
        yield
        rows: Sequence[Line] = ()
        if not isinstance(view.block, (AgentBlock, UserBlock)):
            is_laid = view.laid and view.version == view.block.version
            rows = view.lines if is_laid else (yield from rows_in_slices(view.block, flow.room))
        texts.append(_of_rows(view.block, rows, None, None))
        heads.append(len(rows))
    if first != last:
        texts.append("" if high == (0, 0) else _of_view(views[-1], None, high))
    whole = ""
    out: list[str] = []
    for at, text in enumerate(texts):
        if at % _JOINED == 0:
            # A string that nothing else refers to grows in place: joining tens of megabytes at once would take tens of milliseconds.
            whole += "".join(out)
            out.clear()
            yield
        if text:
            is_close = at and follows_closely(views[at - 1].block, heads[at - 1], views[at].block)
            out += ["\n" if is_close else "\n\n"] if out or whole else []
            out.append(text)
    whole += "".join(out)
    return whole


def _of_view(view: View, low: RowPosition | None, high: RowPosition | None) -> str:
    return _of_rows(view.block, view.lines, low, high)


def _of_rows(
    block: Block, lines: Sequence[Line], low: RowPosition | None, high: RowPosition | None
) -> str:
    """Return the source of a part of a block with these rows, from `low` (None: its beginning) to `high` (None: its end)."""
    is_written = isinstance(block, (AgentBlock, UserBlock))
    if is_written and low is None and high is None:
        return source_of(block)
    if not lines:
        return ""
    low = low or RowPosition(0, 0)
    high = high or RowPosition(len(lines) - 1, len(lines[-1].text))
    inked = [row for row, line in enumerate(lines) if extent_of(line).start < extent_of(line).end]
    if inked and is_written:
        begins = RowPosition(inked[0], extent_of(lines[inked[0]]).start)
        ends = RowPosition(inked[-1], extent_of(lines[inked[-1]]).end)
        if low <= begins and ends <= high:
            return source_of(block)
    return part_of(block, lines, low, high)


def part_of(block: Block, lines: Sequence[Line], low: RowPosition, high: RowPosition) -> str:
    """Return the source of the text between two positions in the rows of a block."""
    source = _SourceLines(block)
    out: list[str] = []
    row = 0
    while row < len(lines) and row <= high.row:
        last = line_around(lines, row)[1]
        text, starts = _joined(lines, row, last, source)
        written = source.next_line(text, lines[row])
        if last >= low.row:
            begin = _offset(lines, starts, row, low) if low.row >= row else 0
            stop = _offset(lines, starts, row, high) if high.row <= last else len(text)
            out.append(_source_part(text, written, begin, stop))
        row = last + 1
    return "\n".join(out).strip("\n")


def _joined(
    lines: Sequence[Line], first: int, last: int, source: _SourceLines
) -> tuple[str, list[int]]:
    """Return the line of text that is wrapped into these rows, and the index in it at which each row begins."""
    text = ""
    starts: list[int] = []
    for row in range(first, last + 1):
        line = lines[row]
        start, end = extent_of(line)
        if row == last and line.chopped is None and line.hit == HIT_FOLD:
            end = _without_fold_mark(line, end)
        part = line.text[start:end]
        if row > first and lines[row - 1].soft:
            text += source.joint(text, part)
        starts.append(len(text))
        text += part
    return text, starts


def _without_fold_mark(line: Line, end: int) -> int:
    """Return the index of the end of a row's text without the mark of a fold (`   +8 lines`)."""
    last = line.spans[-1].text if line.spans else ""
    if last.startswith("   +") and line.text[:end].endswith(last.rstrip()):
        return len(line.text[: end - len(last.rstrip())].rstrip())
    return end


def _offset(lines: Sequence[Line], starts: Sequence[int], first: int, place: RowPosition) -> int:
    """Return the index of a position in the line of text that begins with the row `first`."""
    start, end = extent_of(lines[place.row])
    return starts[place.row - first] + max(0, min(place.column, end) - start)


class _SourceLines:
    """The lines of the source of a block, read in the order in which the rows show them.

    Args:
        block: the block.
    """

    def __init__(self, block: Block) -> None:
        self._is_markdown = isinstance(block, AgentBlock)
        self._text = "" if isinstance(block, ToolBlock) else source_of(block)
        if self._is_markdown:
            self._lines = [line for _, code in _fences(self._text) for line in code]
        else:
            self._lines = _lines_of(block, self._text)
        self._at = 0
        """The index of the first line of the source that may come next."""
        self._read = 0
        """The number of characters of the text that have been passed."""
        self._places: dict[str, list[int]] = {}
        for at, line in enumerate(self._lines):
            self._places.setdefault(_squeezed(line), []).append(at)
        self._has_pictures = any(char in self._text for char in _UNSHOWN)
        self._gaps = _wide_gaps(self._text)

    def next_line(self, text: str, line: Line) -> str | None:
        """Return the line of the source for the next line of text, of which `line` is the first row; None if there is none."""
        if self._is_markdown and not is_code(line):
            return self._prose(text) if self._has_pictures else None
        places = self._places.get(_squeezed(text), [])
        found = bisect_left(places, self._at)
        if found == len(places):
            return None
        at = places[found]
        self._at = at + 1
        return self._lines[at]

    def _prose(self, text: str) -> str:
        """Running text with its emoji as in the source; Markdown marks are left out."""
        out: list[str] = []
        for char in text:
            out.append(char)
            if char.isascii():
                continue
            found = self._text.find(char, self._read)
            if found < 0:
                continue
            self._read = found + 1
            while self._read < len(self._text) and self._text[self._read] in _UNSHOWN:
                out.append(self._text[self._read])
                self._read += 1
        return "".join(out)

    def joint(self, before: str, after: str) -> str:
        """Return the blanks between two rows of running text: those of the source if they are found there, else one."""
        if not self._gaps:
            return " "
        if not after.strip(" "):
            # The text is a row of blanks, which are counted with the words after it.
            return ""
        left, right = before.rstrip(" ").rpartition(" ")[2], after.partition(" ")[0]
        return " " * self._gaps.get((left[-_NEIGHBOURS:], right[:_NEIGHBOURS]), 1)


def _wide_gaps(text: str) -> dict[tuple[str, str], int]:
    """Return the numbers of blanks between words where there are several, by the ends of the words on either side."""
    gaps: dict[tuple[str, str], int] = {}
    if "  " not in text:
        return gaps
    for line in text.split("\n"):
        left, run = "", 0
        for word in line.split(" "):
            if not word:
                run += 1
                continue
            if run:
                # `run` counts the empty words of the split: a line begins with as many blanks, and two words have one more
                # between them.
                gaps.setdefault((left, word[:_NEIGHBOURS]), run + bool(left))
            left, run = word[-_NEIGHBOURS:], 0
    return gaps


def _lines_of(block: Block, text: str) -> list[str]:
    """Return the lines of the source of a block in the order in which its rows show them."""
    match block:
        case ToolBlock():
            diffs = [shown for shown in block.display if isinstance(shown, DiffBlock)]
            lines = [clean_source(line.text) for one in diffs for line in one.lines]
            if presented(block):
                lines += _of_tool(block).split("\n")
            for raw in (block.output, block.message):
                lines += clean_source(raw).split("\n") if raw else []
            return [*lines, *block.live_output]
        case DMailBlock():
            lines = [*block.text.split("\n"), *block.facts.split("\n")]
            for one in block.folded if block.unfolded else ():
                lines += _lines_of(one, source_of(one))
            return lines
        case _:
            return text.split("\n")


def _squeezed(text: str) -> str:
    """Return the characters of a line that are the same in the source and as shown."""
    if not text.isascii():
        text = "".join(char for char in text if char not in _UNSHOWN)
    return "".join(text.split())


def _source_part(text: str, written: str | None, begin: int, stop: int) -> str:
    """Return the part of a line of the source that is shown from one index of a line of text to another.

    Args:
        text: the line as shown.
        written: the line of the source; None if there is none, so that the text itself is returned.
        begin, stop: indices into `text`, the second exclusive.
    """
    if begin >= stop:
        return ""
    if written is None or written == text:
        return text[begin:stop]
    low = 0 if begin <= 0 else _place_in(text, written, begin)
    high = len(written) if stop >= len(text) else _place_in(text, written, stop)
    return written[low:high]


def _place_in(text: str, written: str, at: int) -> int:
    """Return the index in a line of the source of the character with the index `at` in the line as shown."""
    done = text[:at]
    inked = len(done.rstrip())
    place = 0
    for char in done[:inked]:
        if char.isspace():
            continue
        found = written.find(char, place)
        if found < 0:
            return min(at, len(written))
        place = found + 1
    while place and place < len(written) and written[place] in _UNSHOWN:
        place += 1
    # The blanks after it count as the cells that they take.
    cells = len(expand_tabs(written[:place])) + at - inked if place else at
    if not place:
        cells += _dedent(text, written)
    while place < len(written) and written[place].isspace():
        if len(expand_tabs(written[: place + 1])) > cells:
            break
        place += 1
    return place


def _dedent(text: str, written: str) -> int:
    """Return the number of leading blanks of a line of the source that are not shown."""
    whole = expand_tabs(written)
    indent = len(whole) - len(whole.lstrip())
    return max(0, indent - (len(text) - len(text.lstrip())))

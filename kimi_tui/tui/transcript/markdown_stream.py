"""Markdown that is still being written, as rows: what is settled is laid out once, only its open end again.

However the text is cut into pieces on its way, the rows at the end are the same. Two things make an exception of
"laid out once": a link definition that comes after the link, for which what waits for that name is laid out again; and
the colours of a short fence, which are known for good when it ends. What comes faster than anybody reads is not laid out
at all before somebody looks: a piece with much text behind it is about as many empty rows until `show` is asked for them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from math import inf
from typing import NamedTuple

from kimi_tui.foreign_text import expand_tabs
from kimi_tui.tui.faults import log_fault
from kimi_tui.tui.glyphs import UNICODE, Glyphs
from kimi_tui.tui.rows import BLANK, Line, Span, plain_rows, prose_width
from kimi_tui.tui.transcript.code import INK, LEX_LIMIT, RELEX_CHARS, CodeStream, colour, is_short
from kimi_tui.tui.transcript.markdown import (
    CodeLine,
    Element,
    Item,
    Items,
    LateCode,
    Paragraph,
    Parser,
    Table,
    code_rows,
    column_widths,
    lay_out,
)
from kimi_tui.tui.transcript.markdown_splitter import Piece, Splitter

RESOLVE_CHARS = 3_000
"""Characters that are laid out again for late link definitions in one go."""
LATE_CHARS = 1_000
"""A piece with so many characters behind it, all of which have come, may have gone by before anybody sees it."""
PIECE_COST = 50
"""What laying out a piece costs besides its length, in characters."""
LATE_COST = 16
"""Characters of such pieces that are taken in the time in which one is laid out."""
HEAD_LIMIT = 2_000
"""Characters of the head of a table that can go on in another piece."""


class _Context(NamedTuple):
    """What a piece must know of those before it: the number of the last entry of a list, the width of its marker, and
    how the last piece ended where it goes on in the next one."""

    number: int = 0
    marker: str = ""
    is_text: bool = False
    head: str = ""
    widths: tuple[int, ...] = ()


class _Waiting(NamedTuple):
    """A settled piece that may be laid out anew: its links have no definitions, or nobody has seen it."""

    context: _Context
    has_gap: bool


class Shown(NamedTuple):
    """Rows that took the place of empty ones: which those were, from `start` to `end` (exclusive)."""

    start: int
    end: int
    rows: Sequence[Line]


class MarkdownStream:
    """Turns Markdown that arrives in pieces into rows. `lines` is always the whole answer so far.

    Args:
        width: cells of the pane.
        glyphs: the set of signs in use.
        numbered: whether a row may end with `#N`, for which prose leaves room.
        late: whether the colours of closed fences, and the rows of parts that were never visible, are made when first shown.

    Attributes:
        lines: all rows.
        spent: the approximate number of characters laid out so far.
    """

    def __init__(
        self,
        width: int,
        glyphs: Glyphs = UNICODE,
        *,
        numbered: bool = True,
        late: bool = False,
    ) -> None:
        self._width = width
        self._glyphs = glyphs
        self._numbered_rows = numbered
        self._is_late = late
        self._splitter = Splitter()
        self._parser = Parser()
        self._settled = 0
        """Pieces whose rows will not change but for late definitions."""
        self._starts: list[int] = []
        """The first rows of the settled pieces, and of an open fence."""
        self._kept = 0
        """Rows that are not made anew with more text."""
        self._context = _Context()
        self._fence: _OpenFence | None = None
        self._fence_gap = 0
        self._named: dict[str, list[int]] = {}
        """By a name without a definition: the pieces that want it."""
        self._waiting: dict[int, _Waiting] = {}
        self._stale: list[int] = []
        """A heap of the settled pieces that a definition has come for."""
        self._unseen: set[int] = set()
        """The pieces that have empty rows so far."""
        self._credit = 0
        self.spent = 0
        self.lines: list[Line] = []

    def feed(self, text: str, behind: int = 0) -> int:
        """Take more text; returns the first row that changed.

        Args:
            text: what comes next.
            behind: how many characters are known to come behind it.
        """
        was_code = self._fence is not None
        self._splitter.feed(text)
        self._credit += len(text)
        first = self._settle(behind)
        # As much as came since may be laid out again, so that all of it costs no more than twice the text.
        first = min(first, self._resolve(min(self._credit, RESOLVE_CHARS)))
        piece = self._splitter.open
        is_code = piece is not None and piece.kind == "fence"
        if is_code or behind <= LATE_CHARS:
            self._open_end()
        # Code is made row by row as it comes.
        self.spent += max(1, len(text) // (1 if was_code or is_code else LATE_COST))
        return first

    def finish(self, limit: int | None = None) -> int:
        """The answer is complete; returns the first row that changed.

        Args:
            limit: about how many characters may be laid out again; while it `is_behind`, call again.
        """
        self._splitter.finish()
        first = self._settle()
        return min(first, self._resolve(limit))

    @property
    def is_behind(self) -> bool:
        """Whether links wait to be laid out again with the definitions that have come."""
        return bool(self._stale)

    # --- what nobody has seen

    @property
    def n_late(self) -> int:
        """How many pieces have empty rows in place of their own."""
        return len(self._unseen)

    def is_late(self, row: int) -> bool:
        """Whether a row is empty so far."""
        return bisect_right(self._starts, row) - 1 in self._unseen

    def show(self, start: int, end: int, limit: float = inf) -> list[Shown]:
        """Lay out what is needed for the rows from `start` to `end` (exclusive); returns what changed, from the top.

        Args:
            start: the first row.
            end: the row behind the last one.
            limit: after about so many characters, and what pieces cost besides, it is enough for one go.
        """
        chosen: list[int] = []
        for index in self._late_in(start, end):
            if limit <= 0:
                break
            chosen.append(index)
            piece = self._splitter.pieces[index]
            limit -= piece.size + piece.n_marks + PIECE_COST
        return self._lay_out_again(chosen)

    def is_late_in(self, start: int, end: int) -> bool:
        """Whether any of the rows from `start` to `end` (exclusive) is empty so far."""
        return next(self._late_in(start, end), None) is not None

    def _late_in(self, start: int, end: int) -> Iterator[int]:
        """The pieces with empty rows that stand in these rows."""
        if not self._unseen or start >= end:
            return iter(())
        low = max(0, bisect_right(self._starts, start) - 1)
        high = bisect_right(self._starts, end - 1)
        return (index for index in range(low, high) if index in self._unseen)

    def show_next(self) -> list[Shown]:
        """Lay out the first piece that has empty rows; there is one."""
        return self._lay_out_again([min(self._unseen)])

    def _context_behind(self, piece: Piece) -> _Context | None:
        """What the piece behind this one must know, as far as it is known before this one is laid out; else None."""
        is_part = piece.continued or piece.joint is not None
        if not self._is_late or is_part or any("]:" in line for line in piece.lines):
            return None
        marker = piece.lead.strip()
        if not marker[:1].isdigit():
            return _Context()
        if len(piece.lines) > 1 or not marker.isascii():
            return None
        number = _number(self._context.number, int(marker[:-1]))
        return _Context(number, f"{number}{marker[-1]}")

    def _empty_rows(self, piece: Piece) -> list[Line]:
        """About as many as it will have."""
        count = 1 + piece.size // (prose_width(self._width, numbered=self._numbered_rows) + 1)
        if piece.kind != "prose" or piece.lines[0].lstrip().startswith("|"):
            count = max(count, len(piece.lines))
        return [BLANK] * count

    # --- what will not change

    def _settle(self, behind: int = 0) -> int:
        first = self._kept
        del self.lines[self._kept :]
        pieces = self._splitter.pieces
        if self._is_late:
            behind += sum(piece.size for piece in pieces[self._settled :])
        while self._settled < len(pieces) and pieces[self._settled].closed:
            piece = pieces[self._settled]
            behind -= piece.size
            if piece.kind == "fence":
                first = min(first, self._settle_fence(piece))
                self._context = _Context()
            elif behind > LATE_CHARS and (context := self._context_behind(piece)) is not None:
                self._put_off(piece)
                self._context = context
            else:
                self._settle_piece(piece)
            self._kept = len(self.lines)
            self._settled += 1
        return first

    def _put_off(self, piece: Piece) -> None:
        """Leave a piece to `show`."""
        self._starts.append(len(self.lines))
        has_gap = self._put(piece, self._empty_rows(piece))
        self._waiting[self._settled] = _Waiting(self._context, has_gap)
        self._unseen.add(self._settled)
        self.spent += PIECE_COST // LATE_COST

    def _settle_piece(self, piece: Piece) -> None:
        index = self._settled
        before = self._context
        rows, self._context = self._laid_out(piece, piece.text, before, keep=True)
        self._starts.append(len(self.lines))
        has_gap = self._put(piece, rows)
        self._wait_for_names(index, _Waiting(before, has_gap))
        for name in self._parser.references.added:
            for place in self._named.pop(name, ()):
                heappush(self._stale, place)

    def _put(self, piece: Piece, rows: list[Line]) -> bool:
        """Add the rows of a piece; returns whether a blank row parts them from those before."""
        has_gap = bool(rows and self.lines and not piece.glued)
        if has_gap:
            self.lines.append(BLANK)
        self.lines.extend(rows)
        return has_gap

    def _resolve(self, limit: int | None) -> int:
        """Lay out again what late definitions are for; returns the first row that changed."""
        chosen: list[int] = []
        while self._stale and (limit is None or limit > 0):
            index = heappop(self._stale)
            if chosen and chosen[-1] == index:
                continue
            spent = self._splitter.pieces[index].size + 1
            self._credit = max(0, self._credit - spent)
            limit = limit if limit is None else limit - spent
            chosen.append(index)
        before = self._kept
        changes = self._lay_out_again(chosen)
        return changes[0].start if changes else before

    def _lay_out_again(self, chosen: Sequence[int]) -> list[Shown]:
        """Make the rows of these pieces anew, given from the top."""
        changes: list[Shown] = []
        out: list[Line] = []
        done = shift = 0
        shifts: list[tuple[int, int]] = []
        for index in chosen:
            piece, waiting = self._splitter.pieces[index], self._waiting[index]
            rows, _ = self._laid_out(piece, piece.text, waiting.context, keep=False)
            if index in self._unseen:
                self._unseen.remove(index)
                self._wait_for_names(index, waiting)
            start = self._starts[index]
            end = self._starts[index + 1] if index + 1 < len(self._starts) else self._kept
            if waiting.has_gap:
                rows.insert(0, BLANK)
            out += self.lines[done:start]
            out += rows
            done = end
            shift += len(rows) - (end - start)
            shifts.append((index, shift))
            changes.append(Shown(start, end, rows))
        if changes:
            self.lines[:done] = out
            self._kept += shift
            self._shift(shifts)
        return changes

    def _wait_for_names(self, index: int, waiting: _Waiting) -> None:
        """Have a piece laid out again when the definitions come that its links lack."""
        missed = self._parser.references.missed
        if missed:
            self._waiting[index] = waiting
            for name in missed:
                self._named.setdefault(name, []).append(index)
        else:
            self._waiting.pop(index, None)

    def _shift(self, changed: list[tuple[int, int]]) -> None:
        """Move the pieces behind these down by so many rows."""
        changes = iter(changed)
        at, shift = next(changes)
        following = next(changes, None)
        for index in range(at + 1, len(self._starts)):
            self._starts[index] += shift
            if following is not None and index == following[0]:
                shift, following = following[1], next(changes, None)

    # --- one piece

    def _laid_out(
        self, piece: Piece, text: str, before: _Context, *, keep: bool
    ) -> tuple[list[Line], _Context]:
        """The rows of a piece, and what the next one must know."""
        self.spent += len(text) + PIECE_COST
        try:
            elements, context = self._elements(piece, text, before, keep=keep)
            if not elements:
                return [], context
            rows = lay_out(elements, self._width, self._glyphs, numbered=self._numbered_rows)
        except Exception:
            log_fault("laying out Markdown")
            return plain_rows(text, self._width, self._glyphs), _Context()
        if piece.joint is not None and context.is_text:
            end = {"soft": True} if piece.joint else {"chopped": 0}
            rows[-1] = rows[-1]._replace(**end)
        return rows, context

    def _elements(
        self, piece: Piece, text: str, before: _Context, *, keep: bool
    ) -> tuple[tuple[Element, ...], _Context]:
        goes_on = piece.continued and piece.kind == "prose"
        if piece.inline or (goes_on and before.is_text):
            elements, source = self._parser.running_text(text), ""
        elif goes_on and before.head:
            source = f"{before.head}\n{text}"
            elements = self._parser.parse(source, keep=keep)
            if elements and isinstance(elements[0], Table):
                table = elements[0]
                headless = Table(table.head, table.rows, table.aligns, table.line, before.widths)
                elements = (headless, *elements[1:])
        elif piece.continued and piece.kind == "item":
            first = text.partition("\n")[0]
            indent = len(first) - len(first.lstrip(" "))
            source = piece.lead + text[min(indent, len(piece.lead)) :]
            return self._more_of_item(self._parser.parse(source, keep=keep), before)
        else:
            source = text
            elements = self._parser.parse(source, keep=keep)
        elements, number, marker = _numbered(elements, before.number)
        context = _Context(number, marker)
        if piece.joint is not None and elements:
            context = self._joint(elements[-1], source, context)
        return elements, context

    def _more_of_item(
        self, elements: tuple[Element, ...], before: _Context
    ) -> tuple[tuple[Element, ...], _Context]:
        """An entry that goes on has no marker any more, but what stands under it."""
        first = elements[0] if elements else None
        if isinstance(first, Items):
            entry = first.items[0]
            blank = Item(" " * len(before.marker or entry.marker), entry.children, entry.tight)
            elements = (Items((blank, *first.items[1:])), *elements[1:])
        return elements, _Context(before.number, before.marker)

    def _joint(self, last: Element, source: str, context: _Context) -> _Context:
        """How a piece ends that goes on in the next one."""
        if isinstance(last, Paragraph):
            return context._replace(is_text=True)
        if isinstance(last, Table):
            head = "\n".join(source.split("\n")[last.line : last.line + 2])
            if len(head) <= HEAD_LIMIT:
                widths = last.widths or column_widths(last, self._width)
                return context._replace(head=head, widths=tuple(widths))
        return context

    # --- fences

    def _settle_fence(self, piece: Piece) -> int:
        """Returns the first row that changed."""
        fence, self._fence = self._fence, None
        if fence is None:
            self._begin_fence(piece)
            first = len(self.lines)
        else:
            first = self._kept
        start = self._starts[-1] + self._fence_gap
        is_small = piece.size - len(piece.lines) <= RELEX_CHARS
        lines = [expand_tabs(line) for line in piece.lines] if fence is None or is_small else []
        if fence is None or (is_small and is_short(lines)):
            del self.lines[start:]
            if self._is_late and is_short(lines):
                self.lines.extend(LateCode(lines, piece.language, self._width).rows())
            else:
                self.spent += piece.size
                for line in colour(lines, piece.language):
                    self.lines.extend(code_rows(line, self._width))
            first = start
        else:
            self._kept = len(self.lines)
            fence.take(piece.lines, self.lines)
        if len(self.lines) == start:
            self.lines.extend(code_rows([], self._width))
        return first

    def _begin_fence(self, piece: Piece) -> None:
        self._starts.append(len(self.lines))
        self._fence_gap = int(bool(self.lines) and not piece.glued)
        if self._fence_gap:
            self.lines.append(BLANK)

    def _open_fence(self, piece: Piece) -> None:
        if self._fence is None:
            self._begin_fence(piece)
            self._fence = _OpenFence(piece.language, self._width)
        fence = self._fence
        fence.take(piece.lines, self.lines)
        hidden = self._splitter.ends_fence()
        fence.take_tail(
            [] if hidden else self._splitter.tail, self._splitter.code_indent, self.lines
        )
        self._kept = len(self.lines)
        self.lines.extend(fence.last_rows())
        if len(self.lines) == self._starts[-1] + self._fence_gap:
            self.lines.extend(code_rows([], self._width))

    # --- the open end

    def _open_end(self) -> None:
        piece = self._splitter.open
        if piece is not None and piece.kind == "fence":
            self._open_fence(piece)
            return
        context = self._context
        for part in self._splitter.ahead():
            if part.kind == "fence":
                context = _Context()
                continue
            rows, context = self._laid_out(part, part.text.rstrip(), context, keep=False)
            self._put(part, rows)


class _OpenFence:
    """The code of a fence that is still being written. A line that grows long keeps the rows that it has."""

    def __init__(self, language: str, width: int) -> None:
        self._width = width
        self._stream = CodeStream(language)
        self._lines = 0
        """Whole lines that have their rows."""
        self._long: CodeLine | None = None
        self._parts = 0
        """Parts of the unfinished line that are in its rows already, where that is long."""
        self._taken = 0
        """Characters of them, without the indent that belongs to the fence."""
        self._column = 0
        self._short = ""

    def take(self, lines: list[str], out: list[Line]) -> None:
        """Add the rows of the lines that are complete now."""
        for index in range(self._lines, len(lines)):
            line = lines[index]
            if self._long is not None:
                self._more(line[self._taken :])
                out.extend(self._long.finished())
                self._long = None
            else:
                out.extend(code_rows(self._stream.feed(expand_tabs(line)), self._width))
        self._lines = len(lines)

    def take_tail(self, tail: list[str], indent: int, out: list[Line]) -> None:
        """Take more of the unfinished line; adds the rows of it that will not change any more."""
        self._short = ""
        if self._long is None:
            if not tail:
                return
            raw = "".join(tail)
            cut = min(indent, len(raw) - len(raw.lstrip(" ")))
            text = expand_tabs(raw[cut:])
            if len(text) <= LEX_LIMIT:
                self._short = text
                return
            self._long = CodeLine(self._width)
            self._long.feed(self._stream.peek(text[:LEX_LIMIT]))
            self._long.feed([Span(text[LEX_LIMIT:], INK)])
            self._taken, self._column = len(raw) - cut, len(text)
        else:
            self._more("".join(tail[self._parts :]))
        self._parts = len(tail)
        out.extend(self._long.settled())

    def last_rows(self) -> list[Line]:
        """The rows that will be made anew."""
        if self._long is not None:
            return [self._long.last_row()]
        return code_rows(self._stream.peek(self._short), self._width) if self._short else []

    def _more(self, raw: str) -> None:
        if self._long is None or not raw:
            return
        # A tab goes up to the next multiple of four from the beginning of the line.
        lead = " " * (self._column % 4)
        text = expand_tabs(lead + raw)[len(lead) :]
        self._long.feed([Span(text, INK)])
        self._taken += len(raw)
        self._column += len(text)


def _number(before: int, written: int) -> int:
    """The number of an entry: what is written, but more than that of the entry before."""
    return before + 1 if before and written <= before else written


def _numbered(elements: tuple[Element, ...], before: int) -> tuple[tuple[Element, ...], int, str]:
    """The elements with the numbers that a list of single entries would have, the last number, and its marker."""
    first = elements[0] if elements else None
    if not isinstance(first, Items):
        return elements, 0, ""
    entry = first.items[0]
    if not entry.marker[:-1].isdigit():
        return elements, 0, "-"
    number = _number(before, int(entry.marker[:-1]))
    renumbered = tuple(
        Item(f"{number + offset}{entry.marker[-1]}", item.children, item.tight)
        for offset, item in enumerate(first.items)
    )
    elements = (Items(renumbered), *elements[1:])
    return elements, number + len(first.items) - 1, renumbered[-1].marker


def whole_answer(text: str, width: int, glyphs: Glyphs = UNICODE) -> list[Line]:
    """The rows of a complete answer."""
    layout = MarkdownStream(width, glyphs)
    layout.feed(text)
    layout.finish()
    return layout.lines or [Line((Span("    "),))]

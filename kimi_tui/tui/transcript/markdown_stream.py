"""Markdown that is still being written, as rows: what is settled is laid out once, only its open end again.

However the text is cut into pieces on its way, the rows at the end are the same. Two things make an exception of
"laid out once": a link definition that comes after the link, for which what waits for that name is laid out again; and
the colours of a short fence, which are known for good when it ends.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import NamedTuple

from kimi_tui.foreign_text import expand_tabs
from kimi_tui.tui.faults import log_fault
from kimi_tui.tui.glyphs import UNICODE, Glyphs
from kimi_tui.tui.rows import BLANK, Line, Span, plain_rows
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
    """A settled piece with links whose definitions have not come."""

    context: _Context
    has_gap: bool


class MarkdownStream:
    """Turns Markdown that arrives in pieces into rows. `lines` is always the whole answer so far.

    Args:
        width: of the pane.
        glyphs: the signs in use.
        numbered: whether a row may end with `#N`, for which prose leaves room.
        late_colours: closed fences have theirs when they are shown.
    """

    def __init__(
        self,
        width: int,
        glyphs: Glyphs = UNICODE,
        *,
        numbered: bool = True,
        late_colours: bool = False,
    ) -> None:
        self._width = width
        self._glyphs = glyphs
        self._numbered_rows = numbered
        self._late_colours = late_colours
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
        self._credit = 0
        self.lines: list[Line] = []

    def feed(self, text: str) -> int:
        """Take more text; returns the first row that changed."""
        self._splitter.feed(text)
        self._credit += len(text)
        first = self._settle()
        # As much as came since may be laid out again, so that all of it costs no more than twice the text.
        first = min(first, self._resolve(min(self._credit, RESOLVE_CHARS)))
        self._open_end()
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

    # --- what will not change

    def _settle(self) -> int:
        first = self._kept
        del self.lines[self._kept :]
        pieces = self._splitter.pieces
        while self._settled < len(pieces) and pieces[self._settled].closed:
            piece = pieces[self._settled]
            if piece.kind == "fence":
                first = min(first, self._settle_fence(piece))
                self._context = _Context()
            else:
                self._settle_piece(piece)
            self._kept = len(self.lines)
            self._settled += 1
        return first

    def _settle_piece(self, piece: Piece) -> None:
        index = self._settled
        before = self._context
        rows, self._context = self._laid_out(piece, piece.text, before, keep=True)
        self._starts.append(len(self.lines))
        has_gap = self._put(piece, rows)
        references = self._parser.references
        if references.missed:
            self._waiting[index] = _Waiting(before, has_gap)
            for name in references.missed:
                self._named.setdefault(name, []).append(index)
        for name in references.added:
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
        first = self._kept
        out: list[Line] = []
        done = shift = 0
        changed: list[tuple[int, int]] = []
        while self._stale and (limit is None or limit > 0):
            index = heappop(self._stale)
            if changed and changed[-1][0] == index:
                continue
            piece = self._splitter.pieces[index]
            spent = piece.size + 1
            self._credit = max(0, self._credit - spent)
            limit = limit if limit is None else limit - spent
            waiting = self._waiting[index]
            rows, _ = self._laid_out(piece, piece.text, waiting.context, keep=False)
            start = self._starts[index]
            end = self._starts[index + 1] if index + 1 < len(self._starts) else self._kept
            first = min(first, start)
            out += self.lines[done:start]
            if waiting.has_gap:
                out.append(BLANK)
            out += rows
            done = end
            shift += len(rows) + waiting.has_gap - (end - start)
            changed.append((index, shift))
        if changed:
            self.lines[:done] = out
            self._kept += shift
            self._shift(changed)
        return first

    def _shift(self, changed: list[tuple[int, int]]) -> None:
        """The pieces behind these stand so many rows further down now."""
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
            if self._late_colours and is_short(lines):
                self.lines.extend(LateCode(lines, piece.language, self._width).rows())
            else:
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


def _numbered(elements: tuple[Element, ...], before: int) -> tuple[tuple[Element, ...], int, str]:
    """The elements with the numbers that a list of single entries would have, the last number, and its marker."""
    first = elements[0] if elements else None
    if not isinstance(first, Items):
        return elements, 0, ""
    entry = first.items[0]
    if not entry.marker[:-1].isdigit():
        return elements, 0, "-"
    written = int(entry.marker[:-1])
    number = before + 1 if before and written <= before else written
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

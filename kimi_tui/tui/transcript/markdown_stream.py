"""Markdown that is still being written, as rows: settled parts are laid out once, and only the open end again.

The text is split into top-level pieces by whole lines (`Splitter`): a paragraph, a heading, one list item, a quote, a table,
a fence. Only the last piece is open; those before it never change. No piece but a fence is ever longer than about
`PIECE_LIMIT` characters or `PIECE_LINES` lines, or has many more than `PIECE_MARKS` marks: a longer one continues in the next
piece; the place of the cut depends on the text alone, and not on the chunks in which it arrived. Lines are read by hand where
a pattern could backtrack: they are foreign text.

`MarkdownStream` has the rows. However the text is cut into chunks on its way, the rows at the end are the same. There are two
exceptions to "laid out once": a link definition that comes after the link, for which the pieces that need it are laid out
again; and the colours of a short fence, which are final only when it ends. Text that comes faster than anybody can read is
not laid out before it is visible: a piece followed by much text is represented by about as many empty rows until `show` is
called for them.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import inf
from typing import Literal, NamedTuple

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
    MarkdownLayout,
    Paragraph,
    Parser,
    Table,
    code_rows,
    column_widths,
)

PieceKind = Literal["prose", "heading", "item", "quote", "fence", "rule"]

PIECE_LIMIT = 4_000
"""Characters after which a piece or a line continues in another piece: the open piece is laid out with every frame, and some
of Markdown's rules take quadratic time on made-up input.
"""
PIECE_LINES = 120
"""Lines after which a piece continues in another: each line of a quote or a table costs as much as several rows of running text."""
PIECE_MARKS = 400
"""Marks of emphasis, or an equal cost of other marks, after which a piece continues in another: each costs as much as a line.
No real paragraph has nearly as many.
"""
ENTRY_COST = 8
"""The cost of the marker of an entry, in marks of emphasis: a list in a quote, or in a list, has all its entries in one piece."""
INFO_LIMIT = 100
"""The number of characters after the opening marks of a fence that count."""

_HEADING = re.compile(r"^ {0,3}#{1,6}(?:[ \t]|$)")
_ITEM = re.compile(r"^ {0,3}(?:[-*+]|(\d{1,9})[.)])(?:[ \t]+|$)")
_COSTS = {"*": 1, "_": 1, "~": 1, "`": 1, "[": 2, "<": 3}
"""The costs of marks, in marks of emphasis: for each bracket the parser searches its link, whether there is one or not."""
_MARK = re.compile(r"[*_~`\[<]")
_QUOTE = re.compile(r"^ {0,3}>")
_LONGEST_NUMBER = 9
_WIDEST_MARKER = 4
"""The largest number of blanks after the marker of an item that belong to it; more of them begin indented code."""


@dataclass(slots=True, eq=False)
class Piece:
    """One top-level piece. `glued` stands directly below the piece before it (the next item of a tight list).

    `lines` of a fence are its code alone; `language` is what stood after its opening marks. `continued` goes on with
    the piece before it, which was too long; `inline` begins within a line, so it is running text whatever it looks
    like. `joint` is what parts the piece from the one that goes on with it, None if none does. `lead` is the
    marker of an item with the blanks around it.
    """

    kind: PieceKind
    lines: list[str] = field(default_factory=list[str])
    glued: bool = False
    language: str = ""
    closed: bool = False
    continued: bool = False
    inline: bool = False
    joint: str | None = None
    lead: str = ""
    size: int = 0
    n_marks: int = 0

    @property
    def text(self) -> str:
        """The source of the piece."""
        return "\n".join(self.lines)

    def add(self, line: str) -> None:
        """Append a line."""
        self.lines.append(line)
        self.size += len(line) + 1
        self.n_marks += marks_in(line) + 1 + ENTRY_COST * _entries_in(line)

    def copy(self) -> Piece:
        """Return a copy, of which the lines can grow independently."""
        return Piece(
            self.kind,
            list(self.lines),
            self.glued,
            self.language,
            self.closed,
            self.continued,
            self.inline,
            self.joint,
            self.lead,
            self.size,
            self.n_marks,
        )


class Splitter:
    """Takes text in pieces of any size; `pieces` grows, its last one may still be open."""

    def __init__(self) -> None:
        self.pieces: list[Piece] = []
        self.tail: list[str] = []
        """The parts of the unfinished last line: joining a long one for every few characters would take quadratic time."""
        self._tail_size = self._tail_marks = 0
        self._fence = ""
        self._fence_indent = 0
        self._blank = False
        self._within = False
        """Whether the beginning of the unfinished line has been made a piece, as it was too long."""

    @property
    def open(self) -> Piece | None:
        """The piece that may still grow; None if the last one is closed."""
        return self.pieces[-1] if self.pieces and not self.pieces[-1].closed else None

    @property
    def partial(self) -> str:
        """The unfinished last line."""
        return "".join(self.tail)

    def feed(self, text: str) -> None:
        """Append text."""
        start = 0
        while (end := text.find("\n", start)) >= 0:
            self.tail.append(text[start:end])
            self._end_line(self._rest_of_line())
            start = end + 1
        if start < len(text):
            self.tail.append(text[start:])
            self._tail_size += len(text) - start
            self._tail_marks += marks_in(text[start:])
        is_long = self._tail_size > PIECE_LIMIT or self._tail_marks > PIECE_MARKS
        if is_long and not self._fence:
            rest = self._rest_of_line()
            self.tail = [rest] if rest else []
            self._tail_size, self._tail_marks = len(rest), marks_in(rest)

    def _rest_of_line(self) -> str:
        """Take out the unfinished last line, and make pieces of its beginning if it is too long; return the rest of the line."""
        line, self.tail = self.partial, []
        self._tail_size = self._tail_marks = 0
        if self._fence:
            return line
        while (limit := _longest(line)) < len(line):
            at = line.rfind(" ", limit // 2, limit) + 1 or limit
            chunk, line = line[:at], line[at:]
            if self._within:
                self._go_on(chunk)
            else:
                self._line(chunk, is_cut=True)
                self._within = True
            if (piece := self.open) is not None and chunk.strip():
                piece.joint = " " if chunk[-1] == " " else ""
                self._close()
        return line

    def finish(self) -> None:
        """End the text: complete the last line and close the last piece."""
        if self.tail or self._within:
            self._end_line(self._rest_of_line())
        if self.pieces:
            self._close()

    def ahead(self) -> list[Piece]:
        """Return the open piece and those after it, as they would be if the unfinished line ended here."""
        other = Splitter()
        known: Piece | None = None
        if self.open is not None:
            other.pieces.append(self.open.copy())
        elif self._within and self.pieces:
            known = self.pieces[-1].copy()
            other.pieces.append(known)
        other._blank, other._within = self._blank, self._within
        if self.tail and not self.starts_fence():
            line = self.partial
            if line.strip():
                other._end_line(line)
        return [piece for piece in other.pieces if piece is not known]

    def starts_fence(self) -> bool:
        """Return whether the unfinished line may become the beginning of a fence, so that it should not be shown as prose."""
        if self._fence or self._within or self._tail_size > INFO_LIMIT:
            return False
        line = self.partial
        text = line.lstrip(" ")
        if not text or len(line) - len(text) > 3 or text[0] not in "`~":
            return False
        info = text.lstrip(text[0])
        marks = len(text) - len(info)
        plain = all(char.isalnum() or char in "_+#.-" for char in info)
        return marks >= (1 if text[0] == "`" else 2) and plain

    def ends_fence(self) -> bool:
        """Return whether the unfinished line may become the end of the open fence."""
        if not self._fence or self._tail_size > INFO_LIMIT:
            return False
        mark = self.partial.strip()
        return bool(mark) and set(mark) == {self._fence[0]}

    def _end_line(self, line: str) -> None:
        """Complete a line, or the rest of one whose beginning was made a piece; it is not too long."""
        within, self._within = self._within, False
        if within:
            if line:
                self._go_on(line)
        else:
            self._line(line)

    def _go_on(self, chunk: str) -> None:
        """Add the continuation of a line whose beginning is in the piece before."""
        piece = self.pieces[-1] if self.pieces else None
        if piece is not None and piece.joint is not None:
            self._continue(piece, chunk, piece.joint, within=True)
        elif chunk.strip():
            if self.open is not None:
                self._close()
            self.pieces.append(
                Piece("prose", [chunk], inline=True, size=len(chunk), n_marks=marks_in(chunk))
            )

    def _continue(self, piece: Piece, line: str, joint: str, *, within: bool) -> None:
        """Close a piece that has become too long, and begin one that continues it."""
        kind: PieceKind = piece.kind if piece.kind in {"item", "quote"} else "prose"
        more = Piece(kind, glued=True, continued=True, lead=piece.lead)
        opener = unclosed_fence(piece) if kind != "prose" else ""
        if opener:
            more.add(f"> {opener}" if kind == "quote" else opener)
        more.add(f"> {line}" if kind == "quote" and within else line)
        more.inline = within and kind == "prose"
        self._close()
        piece.joint = joint
        self.pieces.append(more)

    def _close(self) -> None:
        piece = self.pieces[-1]
        piece.closed = True
        if piece.kind != "fence":
            while piece.lines and not piece.lines[-1].strip():
                piece.lines.pop()
        self._fence = ""
        self._blank = False

    def _line(self, line: str, *, is_cut: bool = False) -> None:
        if self._fence:
            self._code(line)
            return
        piece = self.open
        if not line.strip():
            # Only an item continues after a blank line.
            if piece is not None and piece.kind != "item":
                self._close()
            elif piece is not None and piece.size <= PIECE_LIMIT:
                piece.add("")
            self._blank = True
            return
        if piece is not None and self._goes_on(piece, line):
            self._blank = False
            is_full = len(piece.lines) >= PIECE_LINES or piece.n_marks > PIECE_MARKS
            if is_full or piece.size + len(line) > PIECE_LIMIT:
                self._continue(piece, line, " ", within=False)
            else:
                piece.add(line)
            return
        glued = (
            piece is not None
            and piece.kind == "item"
            and not self._blank
            and bool(_ITEM.match(line))
        )
        if piece is not None:
            self._close()
        self._begin(line, glued=glued, is_cut=is_cut)

    def _begin(self, line: str, *, glued: bool, is_cut: bool) -> None:
        self._blank = False
        fence = fence_of(line)
        if fence is not None and not is_cut:
            self._fence_indent, self._fence, info = fence
            self.pieces.append(Piece("fence", language=info[:INFO_LIMIT]))
            return
        kind: PieceKind = "prose"
        lead = ""
        if _HEADING.match(line):
            kind = "heading"
        elif is_rule(line):
            kind = "rule"
        elif (item := _ITEM.match(line)) is not None:
            kind = "item"
            marker = line[: item.end()].rstrip(" \t")
            blanks = item.end() - len(marker)
            lead = f"{marker}{' ' * (blanks if 0 < blanks <= _WIDEST_MARKER else 1)}"
        elif _QUOTE.match(line):
            kind = "quote"
        piece = Piece(kind, glued=glued, lead=lead, inline=fence is not None)
        piece.add(line)
        self.pieces.append(piece)

    def _goes_on(self, piece: Piece, line: str) -> bool:
        indent = len(line) - len(line.lstrip(" "))
        if line.startswith("\t"):
            indent = 4
        if piece.kind == "item" and indent >= 2:
            return True
        if piece.kind in {"heading", "rule", "fence"} or self._blank:
            return False
        if fence_of(line) is not None or _HEADING.match(line):
            return False
        if piece.kind == "item":
            return not (_ITEM.match(line) or is_rule(line) or _QUOTE.match(line))
        if piece.kind == "quote":
            return not _ITEM.match(line)
        item = _ITEM.match(line)
        # As in CommonMark, only a list that starts at 1 may interrupt a paragraph; `---` below one is a heading.
        return item is None or (item[1] or "1") != "1" or is_rule(line)

    def _code(self, line: str) -> None:
        stripped = line.strip()
        if (
            len(stripped) >= len(self._fence)
            and set(stripped) == {self._fence[0]}
            and len(line) - len(line.lstrip(" ")) <= 3
        ):
            self._close()
            return
        cut = 0
        while cut < self._fence_indent and line[cut : cut + 1] == " ":
            cut += 1
        self.pieces[-1].add(line[cut:])

    @property
    def code_indent(self) -> int:
        """The indent of the open fence's marks, by which its lines may be indented as well."""
        return self._fence_indent


def marks_in(text: str) -> int:
    """Return the cost of the marks in a text, in marks of emphasis."""
    # This runs three times for every line; a loop over the costs takes twice as long.
    n_of = text.count
    return n_of("*") + n_of("_") + n_of("~") + n_of("`") + 2 * n_of("[") + 3 * n_of("<")


def _entries_in(line: str) -> int:
    """Return the number of list entries that a line begins, also within quotes and other entries."""
    found = at = 0
    while at < len(line):
        mark, end = line[at], at + 1
        if mark in "0123456789":
            while line[end : end + 1].isdigit() and end - at < _LONGEST_NUMBER:
                end += 1
            is_entry = line[end : end + 1] in (".", ")")
            end += 1
        else:
            is_entry = mark in "-*+"
        if is_entry and line[end : end + 1] in ("", " ", "\t"):
            found += 1
        elif mark not in " \t>":
            break
        at = end
    return found


def _longest(line: str) -> int:
    """Return the most characters of a line that a piece may begin with."""
    end = min(len(line), PIECE_LIMIT)
    if marks_in(line[:end]) > PIECE_MARKS:
        left = PIECE_MARKS
        for found in _MARK.finditer(line):
            left -= _COSTS[found[0]]
            if left < 0:
                return found.start()
    return end


def fence_of(line: str) -> tuple[int, str, str] | None:
    """Return the indent, the marks and the info string of a line that opens a fence; None for any other line."""
    text = line.lstrip(" ")
    indent = len(line) - len(text)
    if indent > 3 or not text.startswith(("```", "~~~")):
        return None
    info = text.lstrip(text[0])
    if text[0] == "`" and "`" in info:
        return None
    return indent, text[: len(text) - len(info)], info.strip()


def is_rule(line: str) -> bool:
    """Return whether a line is a thematic break: three or more of one mark, and blanks."""
    if len(line) - len(line.lstrip(" ")) > 3:
        return False
    marks = line.replace(" ", "").replace("\t", "")
    return len(marks) >= 3 and marks[0] in "-*_" and marks.count(marks[0]) == len(marks)


def unclosed_fence(piece: Piece) -> str:
    """Return the line that opens a fence within an item or a quote, where the piece ends before that does; else nothing."""
    opener, marks = "", ""
    for line in piece.lines:
        text = line.lstrip(" >")
        while not opener and (item := _ITEM.match(text)) is not None and item.end():
            text = text[item.end() :].lstrip(" >")
        fence = fence_of(text)
        if not opener:
            if fence is not None:
                marks = fence[1]
                opener = text if piece.kind == "quote" else " " * len(piece.lead) + text
        else:
            end = text.strip()
            if len(end) >= len(marks) and set(end) == {marks[0]}:
                opener = ""
    return opener


RESOLVE_CHARS = 3_000
"""Characters that are laid out again for late link definitions in one go."""
LATE_CHARS = 1_000
"""A piece followed by this number of received characters may have scrolled past before anybody sees it."""
PIECE_COST = 50
"""The cost of laying out a piece besides its length, in characters."""
LATE_COST = 16
"""Characters of such pieces that are taken in the time in which one is laid out."""
HEAD_LIMIT = 2_000
"""Characters of the head of a table that can go on in another piece."""


class _Context(NamedTuple):
    """The facts about earlier pieces that a piece needs: the number of the last entry of a list, the width of its marker, and
    the end of the last piece if that continues in this one.
    """

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
    """Rows that replaced empty ones, which were those from `start` to `end` (exclusive)."""

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
        self._layout = MarkdownLayout(width, glyphs, numbered=numbered)
        self._is_late = late
        self._splitter = Splitter()
        self._parser = Parser()
        self._settled = 0
        """The number of settled pieces, whose rows change only with late link definitions."""
        self._starts: list[int] = []
        """The first rows of the settled pieces, and of an open fence."""
        self._kept = 0
        """The number of rows that are kept when text is added."""
        self._context = _Context()
        self._fence: _OpenFence | None = None
        self._fence_gap = 0
        self._named: dict[str, list[int]] = {}
        """The indices of the pieces with links to a name that has no definition, by name."""
        self._waiting: dict[int, _Waiting] = {}
        self._stale: list[int] = []
        """A heap of the indices of the settled pieces for which a definition was added."""
        self._unseen: set[int] = set()
        """The indices of the pieces that have empty rows."""
        self._credit = 0
        self.spent = 0
        self.lines: list[Line] = []

    def feed(self, text: str, behind: int = 0) -> int:
        """Append text; return the index of the first row that changed.

        Args:
            text: the text.
            behind: the number of characters after it that were received already.
        """
        was_code = self._fence is not None
        self._splitter.feed(text)
        self._credit += len(text)
        first = self._settle(behind)
        if self._stale:
            # At most as many characters as have come since are laid out again, so that the total cost is at most twice the text.
            first = min(first, self._resolve(min(self._credit, RESOLVE_CHARS)))
        piece = self._splitter.open
        is_code = piece is not None and piece.kind == "fence"
        if is_code or behind <= LATE_CHARS:
            self._open_end()
        # Rows of code are made one by one as they come.
        self.spent += max(1, len(text) // (1 if was_code or is_code else LATE_COST))
        return first

    def finish(self, limit: int | None = None) -> int:
        """End the answer; returns the index of the first row that changed.

        Args:
            limit: the most characters, about, that are laid out again; call it once more while `is_behind`.
        """
        self._splitter.finish()
        first = self._settle()
        return min(first, self._resolve(limit))

    @property
    def is_behind(self) -> bool:
        """Whether pieces must be laid out again for link definitions that were added."""
        return bool(self._stale)

    # --- rows that nobody has seen

    @property
    def n_late(self) -> int:
        """The number of pieces with empty rows."""
        return len(self._unseen)

    def is_late(self, row: int) -> bool:
        """Return whether a row belongs to a piece with empty rows."""
        return bisect_right(self._starts, row) - 1 in self._unseen

    def show(self, start: int, end: int, limit: float = inf) -> list[Shown]:
        """Lay out the pieces with empty rows between `start` and `end` (exclusive); returns the changes from the top.

        Args:
            start: the first row.
            end: the row after the last one.
            limit: the most characters, about, that are laid out, each piece counting `PIECE_COST` more.
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
        """Return whether any row from `start` to `end` (exclusive) belongs to a piece with empty rows."""
        return next(self._late_in(start, end), None) is not None

    def _late_in(self, start: int, end: int) -> Iterator[int]:
        """Return the indices of the pieces with empty rows between `start` and `end` (exclusive)."""
        if not self._unseen or start >= end:
            return iter(())
        low = max(0, bisect_right(self._starts, start) - 1)
        high = bisect_right(self._starts, end - 1)
        return (index for index in range(low, high) if index in self._unseen)

    def show_next(self) -> list[Shown]:
        """Lay out the first piece with empty rows; there must be one."""
        return self._lay_out_again([min(self._unseen)])

    def _context_behind(self, piece: Piece) -> _Context | None:
        """Return the context of the piece after this one, if it is known without laying this one out; else None."""
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
        """Empty rows, about as many as the piece will have."""
        count = 1 + piece.size // (self._layout.prose + 1)
        if piece.kind != "prose" or piece.lines[0].lstrip().startswith("|"):
            count = max(count, len(piece.lines))
        return [BLANK] * count

    # --- settled pieces

    def _settle(self, behind: int = 0) -> int:
        first = self._kept
        del self.lines[self._kept :]
        pieces = self._splitter.pieces
        if self._settled == len(pieces) or not pieces[self._settled].closed:
            return first
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
        """Add empty rows for a piece, which `show` lays out."""
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
        """Append the rows of a piece; returns whether a blank row was put before them."""
        has_gap = bool(rows and self.lines and not piece.glued)
        if has_gap:
            self.lines.append(BLANK)
        self.lines.extend(rows)
        return has_gap

    def _resolve(self, limit: int | None) -> int:
        """Lay out again the pieces for which definitions were added, at most `limit` characters; returns the first changed row."""
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
        """Lay out these pieces again, given in ascending order; returns the changes from the top."""
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
        """Register a piece to be laid out again when the definitions that its links lack are added."""
        missed = self._parser.references.missed
        if missed:
            self._waiting[index] = waiting
            for name in missed:
                self._named.setdefault(name, []).append(index)
        else:
            self._waiting.pop(index, None)

    def _shift(self, changed: list[tuple[int, int]]) -> None:
        """Move the starts of the pieces after these: each is given as its index and the rows by which the following ones move."""
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
        """Return the rows of a piece, and the context for the next one. A fault is logged, and the piece is plain text."""
        self.spent += len(text) + PIECE_COST
        try:
            elements, context = self._elements(piece, text, before, keep=keep)
            if not elements:
                return [], context
            rows = self._layout.elements(elements)
        except Exception:
            log_fault("laying out Markdown")
            return plain_rows(text, self._width, self._glyphs), _Context()
        if piece.joint is not None and context.is_text:
            last = rows[-1]
            rows[-1] = last._replace(soft=True) if piece.joint else last._replace(chopped=0)
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
        """Return the elements of the continuation of a list entry, which has blanks in place of its marker."""
        first = elements[0] if elements else None
        if isinstance(first, Items):
            entry = first.items[0]
            blank = Item(" " * len(before.marker or entry.marker), entry.children, entry.tight)
            elements = (Items((blank, *first.items[1:])), *elements[1:])
        return elements, _Context(before.number, before.marker)

    def _joint(self, last: Element, source: str, context: _Context) -> _Context:
        """Return the context for the next piece, if that continues this one."""
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
        """Settle a fence that ended; returns the first row that changed."""
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
    """The rows of a fence that is still being streamed. The finished rows of its last line are kept while that grows."""

    def __init__(self, language: str, width: int) -> None:
        self._width = width
        self._stream = CodeStream(language)
        self._lines = 0
        """The number of complete lines that have rows."""
        self._long: CodeLine | None = None
        self._parts = 0
        """The number of parts of a long unfinished line that are in its rows."""
        self._taken = 0
        """The characters of these parts, without the fence's indent."""
        self._column = 0
        self._short = ""

    def take(self, lines: list[str], out: list[Line]) -> None:
        """Append the rows of the lines that were completed."""
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
        """Update the unfinished line; append those of its rows that are final."""
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
        """Return the rows at the end that are made anew with more text."""
        if self._long is not None:
            return [self._long.last_row()]
        return code_rows(self._stream.peek(self._short), self._width) if self._short else []

    def _more(self, raw: str) -> None:
        if self._long is None or not raw:
            return
        # A tab extends to the next multiple of four from the beginning of the line.
        lead = " " * (self._column % 4)
        text = expand_tabs(lead + raw)[len(lead) :]
        self._long.feed([Span(text, INK)])
        self._taken += len(raw)
        self._column += len(text)


def _number(before: int, written: int) -> int:
    """Return the number of a list entry: as written, but greater than that of the entry before."""
    return before + 1 if before and written <= before else written


def _numbered(elements: tuple[Element, ...], before: int) -> tuple[tuple[Element, ...], int, str]:
    """Renumber a list that continues one whose last number was `before`; returns the elements, the last number and its marker."""
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


_UNSHOWN = re.compile(
    r"^[ \t]*(?:>[ \t]*)*(?:`{3,}|~{3,})[ \t]*(?:[\w+#.-]+[ \t]*)?$|^([ \t]*(?:[-*+]|\d+[.)])[ \t]+)\[[xX]\][ \t]",
    re.MULTILINE,
)
"""Matches the parts of Markdown whose letters are not drawn: the language after a fence, the cross of a task that is done."""
FAITHFUL_LIMIT = 10_000
"""The most characters of a text that `faithful_rows` lays out, which it does in one go."""


def faithful_rows(text: str, width: int, glyphs: Glyphs = UNICODE) -> list[Line] | None:
    """Return the rows of a text that is approved before anything is done with it; None if it must be shown as it is written.

    That is the case if a letter of it would not be drawn (such as those of a link definition, or of an address that is
    shortened), or if it is too long to be laid out at once.
    """
    if len(text) > FAITHFUL_LIMIT:
        return None
    rows = whole_answer(text, width, glyphs)
    written = Counter(filter(str.isalpha, _UNSHOWN.sub(r"\1", text)))
    drawn = Counter(filter(str.isalpha, "".join(row.text for row in rows)))
    return rows if written <= drawn else None


def whole_answer(text: str, width: int, glyphs: Glyphs = UNICODE) -> list[Line]:
    """Return the rows of a complete answer."""
    layout = MarkdownStream(width, glyphs)
    layout.feed(text)
    layout.finish()
    return layout.lines or [Line((Span("    "),))]

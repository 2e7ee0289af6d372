"""Splits a growing Markdown text into top-level pieces by whole lines, so that finished pieces never change.

A piece is a paragraph, a heading, one list item, a quote, a table, a fence. Only the last one is open; everything
before it can be laid out once and kept. No piece but a fence is ever longer than about `PIECE_LIMIT` characters or
`PIECE_LINES` lines, or has many more than `PIECE_MARKS` marks: a longer one goes on in the next piece, cut where the text
alone says, however it arrived. This is
a state machine over lines and knows nothing of layout. Lines are read by hand where a pattern could backtrack: they are
foreign text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal

PieceKind = Literal["prose", "heading", "item", "quote", "fence", "rule"]

PIECE_LIMIT = 4_000
"""Characters after which a piece or a line goes on in another piece: the open piece is laid out with every frame, and
some of Markdown's rules take quadratic time on made-up input."""
PIECE_LINES = 120
"""Lines after which it does so as well: of a quote or a table each costs as much as several rows of running text."""
PIECE_MARKS = 400
"""Marks of emphasis, or as much of others, after which it does so as well: each costs as much as a line. No real paragraph has
nearly as many."""
ENTRY_COST = 8
"""Of the marker of an entry, in marks of emphasis: a list in a quote, or in a list, has all its entries in one piece."""
INFO_LIMIT = 100
"""Characters of what stands after the opening marks of a fence that count."""

_HEADING = re.compile(r"^ {0,3}#{1,6}(?:[ \t]|$)")
_ITEM = re.compile(r"^ {0,3}(?:[-*+]|(\d{1,9})[.)])(?:[ \t]+|$)")
_COSTS = {"*": 1, "_": 1, "~": 1, "`": 1, "[": 2, "<": 3}
"""Of marks, in those of emphasis: a bracket is looked behind for its link, whether there is one or not."""
_MARK = re.compile(r"[*_~`\[<]")
_QUOTE = re.compile(r"^ {0,3}>")
_LONGEST_NUMBER = 9
_WIDEST_MARKER = 4
"""Blanks after the marker of an item that belong to it; more of them begin indented code."""


@dataclass(slots=True, eq=False)
class Piece:
    """One top-level piece. `glued` stands directly below the piece before it (the next item of a tight list).

    `lines` of a fence are its code alone; `language` is what stood after its opening marks. `continued` goes on with
    the piece before it, which was too long; `inline` begins within a line, so it is running text whatever it looks
    like. `joint` is what parts the piece from the one that goes on with it, None where none does. `lead` is the
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
        """Another one that can grow without this one."""
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
        """The unfinished last line, as it came: joining a long one for every few characters would be quadratic."""
        self._tail_size = self._tail_marks = 0
        self._fence = ""
        self._fence_indent = 0
        self._blank = False
        self._within = False
        """Whether the beginning of the unfinished line was long enough to be a piece already."""

    @property
    def open(self) -> Piece | None:
        """The piece that may still grow."""
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
            self._end_line(self._whole_line())
            start = end + 1
        if start < len(text):
            self.tail.append(text[start:])
            self._tail_size += len(text) - start
            self._tail_marks += marks_in(text[start:])
        is_long = self._tail_size > PIECE_LIMIT or self._tail_marks > PIECE_MARKS
        if is_long and not self._fence:
            rest = self._cut(self._whole_line())
            self.tail = [rest] if rest else []
            self._tail_size, self._tail_marks = len(rest), marks_in(rest)

    def _whole_line(self) -> str:
        """The unfinished last line, which is taken out."""
        line, self.tail = self.partial, []
        self._tail_size = self._tail_marks = 0
        return line

    def finish(self) -> None:
        """End the text: complete the last line and close the last piece."""
        if self.tail or self._within:
            self._end_line(self._whole_line())
        if self.pieces:
            self._close()

    def ahead(self) -> list[Piece]:
        """The open piece, and what the unfinished line makes of it or begins."""
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
        """Whether the unfinished line already is the beginning of a fence, which should not flash up as prose."""
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
        """Whether the unfinished line may become the end of the open fence."""
        if not self._fence or self._tail_size > INFO_LIMIT:
            return False
        mark = self.partial.strip()
        return bool(mark) and set(mark) == {self._fence[0]}

    def _end_line(self, line: str) -> None:
        """Complete a line, whose beginning may have been cut off already."""
        if not self._fence:
            line = self._cut(line)
        within, self._within = self._within, False
        if within:
            if line:
                self._go_on(line)
        else:
            self._line(line)

    def _cut(self, line: str) -> str:
        """Make pieces of the beginning of a line that is too long; returns what is left."""
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

    def _go_on(self, chunk: str) -> None:
        """Append to a line that began in the piece before."""
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
        """Close a piece that has become too long; a new one goes on with it."""
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
            # Only an item goes on after a blank line.
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
        """Blanks that every line of the open fence may begin with, because its marks do."""
        return self._fence_indent


def marks_in(text: str) -> int:
    """How much the marks cost, in those of emphasis."""
    # Every line is looked through for them, three times: a loop over what they cost takes twice as long.
    n_of = text.count
    return n_of("*") + n_of("_") + n_of("~") + n_of("`") + 2 * n_of("[") + 3 * n_of("<")


def _entries_in(line: str) -> int:
    """How many entries of lists the line begins, in whatever it stands in."""
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
    """How much of a line that begins a piece may be in it."""
    end = min(len(line), PIECE_LIMIT)
    if marks_in(line[:end]) > PIECE_MARKS:
        left = PIECE_MARKS
        for found in _MARK.finditer(line):
            left -= _COSTS[found[0]]
            if left < 0:
                return found.start()
    return end


def fence_of(line: str) -> tuple[int, str, str] | None:
    """The indent, the marks and the info of a line that opens a fence; None for any other."""
    text = line.lstrip(" ")
    indent = len(line) - len(text)
    if indent > 3 or not text.startswith(("```", "~~~")):
        return None
    info = text.lstrip(text[0])
    if text[0] == "`" and "`" in info:
        return None
    return indent, text[: len(text) - len(info)], info.strip()


def is_rule(line: str) -> bool:
    """Whether a line is a break between topics: three or more of one mark, and blanks."""
    if len(line) - len(line.lstrip(" ")) > 3:
        return False
    marks = line.replace(" ", "").replace("\t", "")
    return len(marks) >= 3 and marks[0] in "-*_" and marks.count(marks[0]) == len(marks)


def unclosed_fence(piece: Piece) -> str:
    """The line that opens a fence within an item or a quote, where the piece ends before that does; else nothing."""
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

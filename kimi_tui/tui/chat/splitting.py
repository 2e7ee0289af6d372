"""Cutting a growing Markdown text into top-level pieces that will not change any more, by whole lines.

A piece is a paragraph, a heading, one list item, a quote, a table, a fence. Only the last one is open; everything
before it can be laid out once and kept. This is a state machine over lines and knows nothing of layout.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal

PieceKind = Literal["prose", "heading", "item", "quote", "fence", "rule"]

_FENCE = re.compile(r"^( {0,3})(`{3,}|~{3,})[ \t]*([^`]*)$")
_HEADING = re.compile(r"^ {0,3}#{1,6}(?:[ \t]|$)")
_ITEM = re.compile(r"^ {0,3}(?:[-*+]|(\d{1,9})[.)])(?:[ \t]+|$)")
_QUOTE = re.compile(r"^ {0,3}>")
_RULE = re.compile(r"^ {0,3}([-*_])(?:[ \t]*\1){2,}[ \t]*$")


@dataclass(slots=True, eq=False)
class Piece:
    """One top-level piece. `glued` stands directly below the piece before it (the next item of a tight list).

    `lines` of a fence are its code alone; `language` is what stood after its opening marks.
    """

    kind: PieceKind
    lines: list[str] = field(default_factory=list[str])
    glued: bool = False
    language: str = ""
    closed: bool = False

    @property
    def text(self) -> str:
        """The source of the piece."""
        return "\n".join(self.lines)


class Splitter:
    """Takes text in pieces of any size; `pieces` grows, its last one may still be open."""

    def __init__(self) -> None:
        self.pieces: list[Piece] = []
        self.partial = ""
        """The unfinished last line."""
        self._fence = ""
        self._fence_indent = 0
        self._blank = False

    @property
    def open(self) -> Piece | None:
        """The piece that may still grow."""
        return self.pieces[-1] if self.pieces and not self.pieces[-1].closed else None

    def feed(self, text: str) -> None:
        """Take more text."""
        *whole, rest = text.split("\n")
        if not whole:
            self.partial += rest
            return
        whole[0] = self.partial + whole[0]
        self.partial = rest
        for line in whole:
            self._line(line)

    def finish(self) -> None:
        """The text has ended: the last line is whole and the last piece closed."""
        if self.partial:
            line, self.partial = self.partial, ""
            self._line(line)
        if self.pieces:
            self._close()

    def starts_fence(self) -> bool:
        """Whether the unfinished line already is the beginning of a fence, which should not flash up as prose."""
        return not self._fence and bool(re.match(r"^ {0,3}(?:`{1,}|~{2,})[\w+#.-]*$", self.partial))

    def ends_fence(self) -> bool:
        """Whether the unfinished line may become the end of the open fence."""
        mark = self.partial.strip()
        return bool(self._fence and mark) and set(mark) == {self._fence[0]}

    def _close(self) -> None:
        piece = self.pieces[-1]
        piece.closed = True
        if piece.kind != "fence":
            while piece.lines and not piece.lines[-1].strip():
                piece.lines.pop()
        self._fence = ""
        self._blank = False

    def _line(self, line: str) -> None:
        if self._fence:
            self._code(line)
            return
        if not line.strip():
            self._blank = True
            if self.open is not None:
                self.pieces[-1].lines.append("")
            return
        piece = self.open
        if piece is not None and self._goes_on(piece, line):
            piece.lines.append(line)
            self._blank = False
            return
        glued = (
            piece is not None
            and piece.kind == "item"
            and not self._blank
            and bool(_ITEM.match(line))
        )
        if piece is not None:
            self._close()
        self._begin(line, glued=glued)

    def _begin(self, line: str, *, glued: bool) -> None:
        self._blank = False
        fence = _FENCE.match(line)
        if fence is not None:
            self._fence_indent = len(fence[1])
            self._fence = fence[2]
            self.pieces.append(Piece("fence", language=fence[3].strip()))
            return
        kind: PieceKind = "prose"
        if _HEADING.match(line):
            kind = "heading"
        elif _RULE.match(line):
            kind = "rule"
        elif _ITEM.match(line):
            kind = "item"
        elif _QUOTE.match(line):
            kind = "quote"
        self.pieces.append(Piece(kind, [line], glued))

    def _goes_on(self, piece: Piece, line: str) -> bool:
        indent = len(line) - len(line.lstrip(" "))
        if line.startswith("\t"):
            indent = 4
        if piece.kind == "item" and indent >= 2:
            return True
        if piece.kind in {"heading", "rule", "fence"} or self._blank:
            return False
        if _FENCE.match(line) or _HEADING.match(line):
            return False
        if piece.kind == "item":
            return not (_ITEM.match(line) or _RULE.match(line) or _QUOTE.match(line))
        if piece.kind == "quote":
            return not _ITEM.match(line)
        item = _ITEM.match(line)
        # As in CommonMark, only a list that starts at 1 may interrupt a paragraph; `---` below one is a heading.
        return item is None or (item[1] or "1") != "1" or bool(_RULE.match(line))

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
        self.pieces[-1].lines.append(line[cut:])

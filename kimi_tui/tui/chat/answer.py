"""The rows of an answer that may still be growing: what is settled is laid out once, only its open end again."""

from __future__ import annotations

from kimi_tui.foreign_text import expand_tabs
from kimi_tui.tui.chat.code import RELEX_LINES, CodeStream, colour
from kimi_tui.tui.chat.lines import BLANK, Line, Span
from kimi_tui.tui.chat.markdown import Element, Items, Parser
from kimi_tui.tui.chat.prose import code_rows, lay_out
from kimi_tui.tui.chat.splitting import Piece, Splitter
from kimi_tui.tui.glyphs import UNICODE, Glyphs


class AnswerLayout:
    """Turns Markdown that arrives in pieces into rows. `lines` is always the whole answer so far.

    Args:
        width: of the pane.
        glyphs: the signs in use.
        numbered: whether a row may end with `#N`, for which prose leaves room.
    """

    def __init__(self, width: int, glyphs: Glyphs = UNICODE, *, numbered: bool = True) -> None:
        self._width = width
        self._glyphs = glyphs
        self._numbered_rows = numbered
        self._splitter = Splitter()
        self._parser = Parser()
        self._settled = 0
        """Pieces whose rows will not change."""
        self._kept = 0
        """Rows that will not change."""
        self._number = 0
        self._code: CodeStream | None = None
        self._code_lines = 0
        self._fence_rows = 0
        self.lines: list[Line] = []

    def feed(self, text: str) -> int:
        """Take more text; returns the first row that changed."""
        self._splitter.feed(text)
        return self._update(finished=False)

    def finish(self) -> int:
        """The answer is complete; returns the first row that changed."""
        self._splitter.finish()
        return self._update(finished=True)

    def _update(self, *, finished: bool) -> int:
        first = self._kept
        del self.lines[self._kept :]
        pieces = self._splitter.pieces
        while self._settled < len(pieces) and pieces[self._settled].closed:
            first = min(first, self._settle(self._settled))
            self._settled += 1
        if not finished:
            self._open_end()
        return first

    def _gap(self, piece: Piece) -> None:
        if self.lines and not piece.glued:
            self.lines.append(BLANK)

    def _settle(self, index: int) -> int:
        piece = self._splitter.pieces[index]
        first = len(self.lines)
        if piece.kind == "fence":
            first = self._settle_fence(piece)
        else:
            self._gap(piece)
            elements = self._numbered(self._parser.parse(piece.text), index)
            self.lines.extend(self._laid_out(elements))
        self._kept = len(self.lines)
        return first

    def _settle_fence(self, piece: Piece) -> int:
        stream = self._code
        if stream is None:
            self._gap(piece)
        start = len(self.lines)
        lines = [expand_tabs(line) for line in piece.lines]
        if len(lines) <= RELEX_LINES or stream is None:
            start -= self._fence_rows if stream is not None else 0
            del self.lines[start:]
            for line in colour(lines, piece.language):
                self.lines.extend(code_rows(line, self._width))
        else:
            for line in lines[self._code_lines :]:
                self.lines.extend(code_rows(stream.feed(line), self._width))
        if not lines:
            self.lines.extend(code_rows([], self._width))
        self._code = None
        return start

    def _open_end(self) -> None:
        piece = self._splitter.open
        partial = self._splitter.partial
        if piece is not None and piece.kind == "fence":
            self._open_fence(piece, partial)
            return
        if piece is None:
            if not partial.strip() or self._splitter.starts_fence():
                return
            piece, source = Piece("prose"), partial
        else:
            hidden = self._splitter.starts_fence() or not partial
            source = piece.text if hidden else f"{piece.text}\n{partial}"
        # The unfinished line may begin a new piece: it is split off with a copy of the rules.
        probe = Splitter()
        probe.feed(source + "\n")
        for index, part in enumerate(probe.pieces):
            part.glued = piece.glued if not index else part.glued
            self._gap(part)
            number = self._number
            if part.kind == "fence":
                elements: tuple[Element, ...] = ()
            else:
                elements = self._numbered(self._parser.parse(part.text.rstrip()), self._settled)
            self._number = number
            self.lines.extend(self._laid_out(elements))

    def _open_fence(self, piece: Piece, partial: str) -> None:
        if self._code is None:
            self._gap(piece)
            self._code = CodeStream(piece.language)
            self._code_lines = 0
            self._fence_rows = 0
        before = len(self.lines)
        for line in piece.lines[self._code_lines :]:
            self.lines.extend(code_rows(self._code.feed(expand_tabs(line)), self._width))
        self._code_lines = len(piece.lines)
        self._fence_rows += len(self.lines) - before
        self._kept = len(self.lines)
        if partial and not self._splitter.ends_fence():
            self.lines.extend(code_rows(self._code.peek(expand_tabs(partial)), self._width))
        elif not self._fence_rows:
            self.lines.extend(code_rows([], self._width))

    def _laid_out(self, elements: tuple[Element, ...]) -> list[Line]:
        if not elements:
            return []
        return lay_out(elements, self._width, self._glyphs, numbered=self._numbered_rows)

    def _numbered(self, elements: tuple[Element, ...], index: int) -> tuple[Element, ...]:
        """Numbers that a list of single entries would have: pieces are parsed one entry at a time."""
        first = elements[0] if elements else None
        if not isinstance(first, Items) or not first.items[0].marker[:-1].isdigit():
            self._number = 0
            return elements
        entry = first.items[0]
        written = int(entry.marker[:-1])
        previous = self._splitter.pieces[index - 1] if index else None
        goes_on = previous is not None and previous.kind == "item" and self._number
        number = self._number + 1 if goes_on and written <= self._number else written
        self._number = number + len(first.items) - 1
        renumbered = tuple(
            type(item)(f"{number + offset}{entry.marker[-1]}", item.children, item.tight)
            for offset, item in enumerate(first.items)
        )
        return (Items(renumbered), *elements[1:])


def whole_answer(text: str, width: int, glyphs: Glyphs = UNICODE) -> list[Line]:
    """The rows of a complete answer."""
    layout = AnswerLayout(width, glyphs)
    layout.feed(text)
    layout.finish()
    return layout.lines or [Line((Span("    "),))]

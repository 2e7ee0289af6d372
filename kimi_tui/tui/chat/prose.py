"""Laying Markdown elements out in rows of a given width."""

from __future__ import annotations

from collections.abc import Sequence

from kimi_tui.tui.chat.code import colour
from kimi_tui.tui.chat.lines import BLANK, MARGIN, RIGHT, Line, Span, cells, prose_width, width_of
from kimi_tui.tui.chat.markdown import (
    Code,
    Element,
    Heading,
    Items,
    Paragraph,
    Quote,
    Rule,
    Table,
)
from kimi_tui.tui.chat.wrapping import chop, wrap
from kimi_tui.tui.glyphs import UNICODE, Glyphs

RULE_WIDTH = 12
COLUMN_GAP = 3
SMALLEST_COLUMN = 4
MARGIN_SPAN = Span(" " * MARGIN)

Prefix = tuple[Span, ...]


def lay_out(
    elements: Sequence[Element], width: int, glyphs: Glyphs = UNICODE, *, numbered: bool = True
) -> list[Line]:
    """The rows of these elements in a pane of this width, a blank row between them."""
    layout = _Layout(width, glyphs, prose_width(width, numbered=numbered))
    return layout.elements(elements, (MARGIN_SPAN,), (MARGIN_SPAN,))


class _Layout:
    def __init__(self, width: int, glyphs: Glyphs, prose: int) -> None:
        self.width = width
        self.glyphs = glyphs
        self.prose = prose

    def elements(
        self, elements: Sequence[Element], first: Prefix, rest: Prefix, *, tight: bool = False
    ) -> list[Line]:
        """Elements below each other. `first` stands before the first row, `rest` before all others."""
        out: list[Line] = []
        blank = BLANK if rest == (MARGIN_SPAN,) else Line(rest)
        for element in elements:
            if out and not tight and not (isinstance(element, Items) and tight):
                out.append(blank)
            out.extend(self.element(element, rest if out else first, rest))
        return out or [Line(first)]

    def element(self, element: Element, first: Prefix, rest: Prefix) -> list[Line]:
        match element:
            case Paragraph(runs) | Heading(runs):
                return self.text(runs, first, rest)
            case Code(lines, language):
                return self.code(
                    [list(line) for line in colour(list(lines), language)], first, rest
                )
            case Rule():
                return [Line((*first, Span(self.glyphs.rule * RULE_WIDTH, "line")))]
            case Quote(children):
                bar = Span(f"{self.glyphs.step} ", "line")
                return [
                    _quiet(line, len(first))
                    for line in self.elements(children, (*first, bar), (*rest, bar))
                ]
            case Items(items):
                out: list[Line] = []
                for item in items:
                    if out and not item.tight:
                        out.append(BLANK if rest == (MARGIN_SPAN,) else Line(rest))
                    mark, style = self.marker(item.marker)
                    under = Span(" " * cells(mark))
                    out.extend(
                        self.elements(
                            item.children,
                            (*(rest if out else first), Span(mark, style)),
                            (*rest, under),
                            tight=item.tight,
                        )
                    )
                return out
            case Table():
                return self.table(element, first, rest)

    def marker(self, marker: str) -> tuple[str, str]:
        """What stands before an entry of a list, and its style."""
        if marker == "done":
            return f"{self.glyphs.done} ", "ok"
        if marker == "open":
            return f"{self.glyphs.pending} ", "quiet"
        return f"{marker} ", "quiet"

    def text(self, runs: Sequence[Span], first: Prefix, rest: Prefix) -> list[Line]:
        """Running text within the width of prose."""
        room = max(12, self.prose + MARGIN - width_of(rest))
        rows = wrap(runs, room)
        margin = width_of(rest)
        last = len(rows) - 1
        return [
            Line(
                (*(first if not index else rest), *row),
                soft=index < last,
                margin=margin if index else MARGIN,
            )
            for index, row in enumerate(rows)
        ]

    def code(self, lines: Sequence[list[Span]], first: Prefix, rest: Prefix) -> list[Line]:
        """A raised block up to the right edge; what is too long goes on in the next row."""
        out: list[Line] = []
        for line in lines:
            out.extend(code_rows(line, self.width, rest if out else first))
        return out

    def table(self, table: Table, first: Prefix, rest: Prefix) -> list[Line]:
        """Columns without frames; the head in strong above a light line."""
        count = max(len(table.head), 1)
        room = self.width - RIGHT - width_of(rest) - COLUMN_GAP * (count - 1)
        widths = _column_widths(table, room)
        out: list[Line] = []
        for index, row in enumerate((table.head, *table.rows)):
            height = 1
            columns: list[list[list[Span]]] = []
            empty: list[list[Span]] = [[]]
            for column, size in enumerate(widths):
                wrapped = wrap(row[column], size) if column < len(row) else empty
                columns.append(wrapped)
                height = max(height, len(wrapped))
            for at in range(height):
                spans: list[Span] = list(rest if out else first)
                for column, size in enumerate(widths):
                    cell = columns[column][at] if at < len(columns[column]) else []
                    free = max(0, size - width_of(cell))
                    align = table.aligns[column] if column < len(table.aligns) else ""
                    before = free if align == "right" else free // 2 if align == "center" else 0
                    if before:
                        spans.append(Span(" " * before))
                    spans.extend(cell)
                    after = free - before + (COLUMN_GAP if column < count - 1 else 0)
                    if after and column < count - 1:
                        spans.append(Span(" " * after))
                out.append(Line(tuple(spans)))
            if not index:
                line = (" " * COLUMN_GAP).join(self.glyphs.rule * size for size in widths)
                out.append(Line((*rest, Span(line, "line"))))
        return out


def code_rows(line: Sequence[Span], width: int, prefix: Prefix = (MARGIN_SPAN,)) -> list[Line]:
    """One line of code as raised rows."""
    start = width_of(prefix)
    room = max(8, width - RIGHT - start - 4)
    out: list[Line] = []
    rows = chop(line, room)
    for index, row in enumerate(rows):
        used = width_of(row)
        fill = max(0, width - RIGHT - start - 2 - used)
        out.append(
            Line(
                (*prefix, Span("  ", "ink@raised"), *row, Span(" " * fill, "ink@raised")),
                margin=start + 2,
                chopped=None if index == len(rows) - 1 else fill,
            )
        )
        prefix = (Span(" " * start),)
    return out


def _quiet(line: Line, skip: int) -> Line:
    """A quoted row: its plain ink is quiet."""
    spans = tuple(
        Span(span.text, "quiet" + span.style[3:], span.hit)
        if index > skip and (span.style == "ink" or span.style.startswith("ink/"))
        else span
        for index, span in enumerate(line.spans)
    )
    return line._replace(spans=spans)


def _column_widths(table: Table, room: int) -> list[int]:
    """The natural widths where they fit, else the widest columns give way first."""
    count = max(len(table.head), 1)
    natural = [1] * count
    for row in (table.head, *table.rows):
        for column, cell in enumerate(row[:count]):
            natural[column] = max(natural[column], width_of(cell))
    if sum(natural) <= room:
        return natural
    limit = max(natural)
    low = SMALLEST_COLUMN
    while low < limit:
        middle = (low + limit + 1) // 2
        if sum(min(size, middle) for size in natural) <= room:
            low = middle
        else:
            limit = middle - 1
    return [min(size, low) for size in natural]

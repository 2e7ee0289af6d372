"""Parses one piece of Markdown into elements, and lays elements out as rows of a width (lists, quotes, tables, code).

markdown-it-py parses CommonMark with tables and strike-through; HTML stays text, and only http(s) links become links. The
parser decodes entities, so that every text is cleaned of control characters once more here. The module is imported with the
first answer.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from kimi_tui.foreign_text import clean, expand_tabs
from kimi_tui.tui.glyphs import UNICODE, Glyphs
from kimi_tui.tui.rows import (
    BLANK,
    HIT_LINK,
    MARGIN,
    RIGHT,
    HardWrapper,
    Line,
    Span,
    cells,
    prose_width,
    spans_width,
    wrap,
)
from kimi_tui.tui.transcript.code import INK, colour

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token


PARSE_LIMIT = 20_000
"""The most characters of a piece; a longer one is plain text, since some rules take quadratic time on made-up input."""
NESTING_LIMIT = 12

_URL = re.compile(r"https?://[^\s<>\"'`\])}]*[^\s<>\"'`\])}.,;:!?]")
ADDRESS_CELLS = 60
"""The largest number of cells of an address that is shown after a link."""
_TASK = re.compile(r"^\[([ xX])\][ \t]+")


@dataclass(frozen=True, slots=True)
class Paragraph:
    """Running text."""

    runs: tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading; the levels differ only in the space above them."""

    runs: tuple[Span, ...]
    level: int


@dataclass(frozen=True, slots=True)
class Code:
    """A block of code."""

    lines: tuple[str, ...]
    language: str = ""


@dataclass(frozen=True, slots=True)
class Rule:
    """A horizontal rule."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table; every row has as many cells as the head.

    `line` is the line of the source at which it begins. `widths` are the widths of the columns of the table that it
    continues, whose head has been shown; empty if it begins a table.
    """

    head: tuple[tuple[Span, ...], ...]
    rows: tuple[tuple[tuple[Span, ...], ...], ...]
    aligns: tuple[str, ...]
    line: int = 0
    widths: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Quote:
    """A quotation."""

    children: tuple[Element, ...]


@dataclass(frozen=True, slots=True)
class Item:
    """One entry of a list. `marker` is `-`, `3.` or a task's sign (`done`, `open`)."""

    marker: str
    children: tuple[Element, ...]
    tight: bool = True


@dataclass(frozen=True, slots=True)
class Items:
    """A list."""

    items: tuple[Item, ...]


Element = Paragraph | Heading | Code | Rule | Table | Quote | Items


@cache
def _markdown() -> MarkdownIt:
    """Return the parser, shared: it keeps no state between texts, and compiling its rules takes longer than most texts."""
    from markdown_it import MarkdownIt

    options = {"html": False, "maxNesting": NESTING_LIMIT}
    return MarkdownIt("commonmark", options).enable(["table", "strikethrough"])


class References:
    """The link definitions of a text, as the mapping that the parser reads and writes; the first one of a name counts.

    Attributes:
        missed: the names that were looked up since `watch` and not found.
        added: the names that were defined since `watch`.
    """

    def __init__(self) -> None:
        self._kept: dict[str, Any] = {}
        self._passing: dict[str, Any] | None = None
        self.missed: set[str] = set()
        self.added: list[str] = []

    def watch(self, *, keep: bool) -> None:
        """Begin a piece; its definitions hold for later pieces only with `keep`."""
        self._passing = None if keep else {}
        self.missed = set()
        self.added = []

    def __contains__(self, name: str) -> bool:
        return name in self._kept or (self._passing is not None and name in self._passing)

    def __setitem__(self, name: str, definition: Any) -> None:
        if self._passing is not None:
            self._passing[name] = definition
        else:
            self._kept[name] = definition
            self.added.append(name)

    def get(self, name: str, default: Any = None) -> Any:
        """Return the definition of a name."""
        found = self._kept.get(name)
        if found is None and self._passing is not None:
            found = self._passing.get(name)
        if found is None:
            self.missed.add(name)
            return default
        return found


class Parser:
    """Parses pieces of one text; link definitions of earlier pieces hold in later ones."""

    def __init__(self) -> None:
        self.references = References()

    def parse(self, source: str, *, keep: bool = True) -> tuple[Element, ...]:
        """Return the elements of a piece. Never raises on content.

        Args:
            source: the Markdown.
            keep: whether its definitions hold from now on; those of an unfinished piece may be cut off.
        """
        self.references.watch(keep=keep)
        if len(source) > PARSE_LIMIT:
            return (Paragraph((Span(source),)),)
        # The dictionary is new each time, as the parser copies all known definitions into it.
        tokens = _markdown().parse(source, {"references": self.references})
        elements, _ = _elements(tokens, 0, "")
        return tuple(elements)

    def running_text(self, source: str) -> tuple[Element, ...]:
        """Return the elements of a piece as one paragraph, whatever its lines begin with."""
        self.references.watch(keep=False)
        if len(source) > PARSE_LIMIT:
            return (Paragraph((Span(source),)),)
        tokens = _markdown().parseInline(source, {"references": self.references})
        return tuple(Paragraph(inline(token)) for token in tokens)


def plain_text(text: str) -> str:
    """Return a line of Markdown without the marks of bold and italic text and of code; as it is if more would be left out."""
    if not any(mark in text for mark in "*_`"):
        return text
    runs = [one.runs for one in Parser().running_text(text) if isinstance(one, Paragraph)]
    plain = "".join(span.text for row in runs for span in row)
    return plain if [*filter(str.isalnum, plain)] == [*filter(str.isalnum, text)] else text


def _elements(tokens: Sequence[Token], index: int, until: str) -> tuple[list[Element], int]:
    out: list[Element] = []
    while index < len(tokens):
        token = tokens[index]
        kind = token.type
        if kind == until:
            return out, index
        if kind == "paragraph_open":
            out.append(Paragraph(inline(tokens[index + 1])))
            index += 2
        elif kind == "heading_open":
            out.append(Heading(inline(tokens[index + 1], "strong"), int(token.tag[1:])))
            index += 2
        elif kind in {"fence", "code_block"}:
            lines = [
                expand_tabs(line) for line in clean(token.content).removesuffix("\n").split("\n")
            ]
            out.append(Code(tuple(lines), clean(token.info).strip()))
        elif kind == "hr":
            out.append(Rule())
        elif kind == "blockquote_open":
            children, index = _elements(tokens, index + 1, "blockquote_close")
            out.append(Quote(tuple(children)))
        elif kind in {"bullet_list_open", "ordered_list_open"}:
            items, index = _items(tokens, index)
            out.append(items)
        elif kind == "table_open":
            table, index = _table(tokens, index)
            out.append(table)
        elif kind == "inline":
            out.append(Paragraph(inline(token)))
        index += 1
    return out, index


def _items(tokens: Sequence[Token], index: int) -> tuple[Items, int]:
    opening = tokens[index]
    ordered = opening.type == "ordered_list_open"
    closing = opening.type.replace("open", "close")
    start = opening.attrGet("start")
    number = int(start) if isinstance(start, (int, str)) else 1
    items: list[Item] = []
    index += 1
    while index < len(tokens) and tokens[index].type != closing:
        delimiter = tokens[index].markup or "."
        tight = not (index + 1 < len(tokens) and _is_loose(tokens, index))
        children, index = _elements(tokens, index + 1, "list_item_close")
        marker = f"{number}{delimiter}" if ordered else "-"
        first = children[0] if children else None
        if not ordered and isinstance(first, Paragraph) and first.runs:
            task = _TASK.match(first.runs[0].text)
            if task is not None:
                marker = "open" if task[1] == " " else "done"
                text, style, hit = first.runs[0]
                children[0] = Paragraph((Span(text[task.end() :], style, hit), *first.runs[1:]))
        items.append(Item(marker, tuple(children), tight))
        number += 1
        index += 1
    return Items(tuple(items)), index


def _is_loose(tokens: Sequence[Token], index: int) -> bool:
    following = tokens[index + 1]
    return following.type == "paragraph_open" and not following.hidden


def _table(tokens: Sequence[Token], index: int) -> tuple[Table, int]:
    rows: list[tuple[tuple[Span, ...], ...]] = []
    aligns: list[str] = []
    start = (tokens[index].map or [0])[0]
    row: list[tuple[Span, ...]] = []
    while index < len(tokens) and tokens[index].type != "table_close":
        token = tokens[index]
        if token.type == "tr_open":
            row = []
        elif token.type == "tr_close":
            rows.append(tuple(row))
        elif token.type in {"th_open", "td_open"}:
            is_head = token.type == "th_open"
            if is_head:
                aligns.append(str(token.attrGet("style") or "").removeprefix("text-align:"))
            row.append(inline(tokens[index + 1], "strong" if is_head else "ink"))
            index += 1
        index += 1
    head, *body = rows or [()]
    return Table(head, tuple(body), tuple(aligns), start), index


def inline(token: Token, base: str = "ink") -> tuple[Span, ...]:
    """Return the runs of an inline token, styled on top of `base`."""
    out: list[Span] = []
    strong = italic = struck = 0
    href = ""
    label: list[str] = []
    for child in token.children or ():
        kind = child.type
        if kind in {"text", "text_special", "html_inline"}:
            text = clean(child.content)
            style = "strong" if strong else "ink" if href else base
            if flags := ("i" if italic else "") + ("s" if struck else "") + ("u" if href else ""):
                style = f"{style}/{flags}"
            if href:
                label.append(text)
            elif "://" in text:
                out += _with_addresses(text, style)
                continue
            out.append(Span(text, style, HIT_LINK + href if href else ""))
        elif kind == "code_inline":
            text = clean(child.content).replace("\n", " ")
            label.append(text)
            out.append(Span(text, "ink@raised", HIT_LINK + href if href else ""))
        elif kind == "softbreak":
            out.append(Span(" ", base))
        elif kind == "hardbreak":
            out.append(Span("\n", base))
        elif kind == "image":
            source = clean(str(child.attrGet("src") or ""))
            out.append(Span(clean(child.content) or "image", base))
            out.append(Span(f" ({source})", "quiet"))
        elif kind == "link_open":
            href = clean(str(child.attrGet("href") or ""))
            label = []
            if not href.startswith(("http://", "https://")):
                href = ""
                label = [""]
                out.append(Span("", "link-target:" + clean(str(child.attrGet("href") or ""))))
        elif kind == "link_close":
            _end_link(out, href, "".join(label))
            href = ""
        elif kind.startswith("strong_"):
            strong += child.nesting
        elif kind.startswith("em_"):
            italic += child.nesting
        elif kind.startswith("s_"):
            struck += child.nesting
    return tuple(span for span in out if span.text) or (Span("", base),)


def _with_addresses(text: str, style: str) -> list[Span]:
    """Return the runs of a text, in which bare http(s) addresses are links."""
    out: list[Span] = []
    position = 0
    for found in _URL.finditer(text):
        out.append(Span(text[position : found.start()], style))
        separator = "" if "/" in style else "/"
        address = _markdown().normalizeLink(found.group())
        out.append(Span(found.group(), f"{style}{separator}u", HIT_LINK + address))
        position = found.end()
    out.append(Span(text[position:], style))
    return out


def _end_link(out: list[Span], href: str, label: str) -> None:
    """Append the address of a link to its text, unless the text is the address."""
    if href:
        if not _says(label.strip(), href):
            out.append(Span(f" ({shown_address(href)})", "quiet", HIT_LINK + href))
        return
    for index in range(len(out) - 1, -1, -1):
        if out[index].style.startswith("link-target:"):
            target = out[index].style.removeprefix("link-target:")
            text = "".join(span.text for span in out[index:])
            del out[index]
            if target and target != text:
                out.append(Span(f" ({target})", "quiet"))
            return


def _says(label: str, href: str) -> bool:
    """Return whether the text of a link is its address, apart from the encoding of blanks and non-ASCII letters."""
    return label == href or unquote(label) == unquote(href)


def shown_address(url: str) -> str:
    """Return an address for display, shortened to fit; its host is shortened last, and from the left.

    A part before the host (`user:password@`) is left out then, since it may look like another host.
    """
    if len(url) <= ADDRESS_CELLS and "@" not in url:
        return url
    scheme, mark, rest = url.partition("://")
    end = min((at for at in map(rest.find, "/?#\\") if at >= 0), default=len(rest))
    host, path = rest[:end], rest[end:]
    user, at, host = host.rpartition("@")
    if len(url) <= ADDRESS_CELLS and not user:
        return url
    before = "…@" if at else ""
    if len(host) > ADDRESS_CELLS // 2:
        before, host = "", "…" + host[-ADDRESS_CELLS // 2 :]
    shown = f"{scheme}{mark}{before}{host}{path}"
    return shown if len(shown) <= ADDRESS_CELLS else shown[: ADDRESS_CELLS - 1] + "…"


RULE_WIDTH = 12
COLUMN_GAP = 3
SMALLEST_COLUMN = 4
SMALLEST_TEXT = 14
"""The fewest cells that nested quotes and lists leave for their content."""
MARGIN_SPAN = Span(" " * MARGIN)
_CODE_LEAD = Span("  ", "ink@raised")

Prefix = tuple[Span, ...]


class MarkdownLayout:
    """Lays elements out as rows.

    Args:
        width: cells of the pane.
        glyphs: the set of signs in use.
        numbered: whether a row may end with `#N`, for which prose leaves room.

    Attributes:
        prose: cells of a row of running text.
    """

    def __init__(self, width: int, glyphs: Glyphs = UNICODE, *, numbered: bool = True) -> None:
        self.width = width
        self.glyphs = glyphs
        self.prose = prose_width(width, numbered=numbered)

    def elements(
        self,
        elements: Sequence[Element],
        first: Prefix = (MARGIN_SPAN,),
        rest: Prefix = (MARGIN_SPAN,),
        *,
        tight: bool = False,
    ) -> list[Line]:
        """Return the rows of elements below each other, parted by blank rows.

        Args:
            elements: the elements.
            first: the spans before the first row.
            rest: the spans before the other rows.
            tight: whether there are no blank rows between the elements.
        """
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
                    for line in self.elements(
                        children, self.deeper(first, bar), self.deeper(rest, bar)
                    )
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
                            self.deeper(rest if out else first, Span(mark, style)),
                            self.deeper(rest, under),
                            tight=item.tight,
                        )
                    )
                return out
            case Table():
                return self.table(element, first, rest)

    def deeper(self, prefix: Prefix, span: Span) -> Prefix:
        """Return the spans before rows one level deeper; those of the outermost level where too little room would be left."""
        if spans_width(prefix) + cells(span.text) > self.width - SMALLEST_TEXT:
            prefix = (MARGIN_SPAN,)
        return (*prefix, span)

    def marker(self, marker: str) -> tuple[str, str]:
        """Return the sign before an entry of a list, and its style."""
        if marker == "done":
            return f"{self.glyphs.done} ", "ok"
        if marker == "open":
            return f"{self.glyphs.pending} ", "quiet"
        return f"{marker} ", "quiet"

    def text(self, runs: Sequence[Span], first: Prefix, rest: Prefix) -> list[Line]:
        """Running text within the width of prose."""
        room = max(2, min(self.prose + MARGIN, self.width) - spans_width(rest))
        rows = wrap(runs, room)
        margin = spans_width(rest)
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
        """Code on a background up to the right edge; long lines are wrapped."""
        out: list[Line] = []
        for line in lines:
            out.extend(code_rows(line, self.width, rest if out else first))
        return out

    def table(self, table: Table, first: Prefix, rest: Prefix) -> list[Line]:
        """Columns without frames; the head in strong above a light line.

        Where the pane is too narrow for so many columns, every row is a list of what the columns hold.
        """
        count = max(len(table.head), 1)
        room = self.width - RIGHT - spans_width(rest) - COLUMN_GAP * (count - 1)
        if room < count * SMALLEST_COLUMN:
            return self.records(table, first, rest)
        widths = list(table.widths) or _column_widths(table, room)
        rows = table.rows if table.widths else (table.head, *table.rows)
        out: list[Line] = []
        for index, row in enumerate(rows):
            for spans in _table_row(row, widths, table.aligns):
                out.append(Line((*(rest if out else first), *spans)))
            if not index and not table.widths:
                line = (" " * COLUMN_GAP).join(self.glyphs.rule * size for size in widths)
                out.append(Line((*rest, Span(line, "line"))))
        return out

    def records(self, table: Table, first: Prefix, rest: Prefix) -> list[Line]:
        """Return the rows of a table below each other, each cell after the head of its column."""
        out: list[Line] = []
        for row in table.rows or ((),):
            if out:
                out.append(Line((*rest, Span(self.glyphs.rule * SMALLEST_COLUMN, "line"))))
            for column, head in enumerate(table.head):
                cell = row[column] if column < len(row) else ()
                runs = (*head, Span(" "), *cell) if row else head
                out.extend(self.text(runs, rest if out else first, rest))
        return out


def _table_row(
    row: Sequence[tuple[Span, ...]], widths: Sequence[int], aligns: Sequence[str]
) -> list[list[Span]]:
    """Return the rows on the screen of one row of a table."""
    empty: list[list[Span]] = [[]]
    columns = [
        wrap(row[column], size) if column < len(row) else empty
        for column, size in enumerate(widths)
    ]
    out: list[list[Span]] = []
    for at in range(max(map(len, columns), default=1)):
        spans: list[Span] = []
        for column, size in enumerate(widths):
            cell = columns[column][at] if at < len(columns[column]) else []
            free = max(0, size - spans_width(cell))
            align = aligns[column] if column < len(aligns) else ""
            before = free if align == "right" else free // 2 if align == "center" else 0
            if before:
                spans.append(Span(" " * before))
            spans.extend(cell)
            if column < len(widths) - 1:
                spans.append(Span(" " * (free - before + COLUMN_GAP)))
        out.append(spans)
    return out


class CodeLine:
    """Lays out one line of code that is still streamed, on the background of code.

    Args:
        width: cells of a row.
        prefix: the spans before each row.
    """

    def __init__(self, width: int, prefix: Prefix = (MARGIN_SPAN,)) -> None:
        self._width = width
        self._prefix = prefix
        self._start = spans_width(prefix)
        self._chopper = HardWrapper(max(2, width - RIGHT - self._start - 4))
        self._told = 0
        """The number of rows that were returned as final."""

    def feed(self, spans: Sequence[Span]) -> None:
        """Append text of the line."""
        self._chopper.feed(spans)

    def settled(self) -> list[Line]:
        """Return the rows that have become final since the last call."""
        end = len(self._chopper.rows) - 1
        rows = [self._row(index) for index in range(self._told, end)]
        self._told = max(self._told, end)
        return rows

    def last_row(self) -> Line:
        """Return the last row as it is now; it may still grow."""
        return self._row(len(self._chopper.rows) - 1)

    def finished(self) -> list[Line]:
        """Return the rows that `settled` has not returned: the line is complete."""
        return [*self.settled(), self.last_row()]

    def _row(self, index: int) -> Line:
        rows = self._chopper.rows
        fill = max(0, self._width - RIGHT - self._start - 2 - spans_width(rows[index]))
        prefix = (Span(" " * self._start),) if index else self._prefix
        return Line(
            (*prefix, _CODE_LEAD, *rows[index], Span(" " * fill, "ink@raised")),
            margin=self._start + 2,
            chopped=None if index == len(rows) - 1 else fill,
        )


def code_rows(line: Sequence[Span], width: int, prefix: Prefix = (MARGIN_SPAN,)) -> list[Line]:
    """Return the rows of one line of code, on the background of code. No two neighbouring spans of `line` have the same style."""
    room = width - RIGHT - spans_width(prefix) - 4
    size = 0
    for span in line:
        size += len(span.text) if span.text.isascii() else width
    if size <= room:
        # Nearly all lines end here, and one is made anew with every piece of text that arrives.
        fill = Span(" " * (room + 2 - size), "ink@raised")
        return [Line((*prefix, _CODE_LEAD, *line, fill), margin=width - RIGHT - room - 2)]
    rows = CodeLine(width, prefix)
    rows.feed(line)
    return rows.finished()


class LateCode:
    """Rows of code that are highlighted when one of them is first drawn: of a long answer few ever are.

    Args:
        lines: the lines of code; no more than are highlighted as a whole.
        language: the name of the language, as it follows the fence.
        width: cells of the pane.
    """

    def __init__(self, lines: Sequence[str], language: str, width: int) -> None:
        self._lines = lines
        self._language = language
        self._width = width
        self._shown: list[Line] = []

    def rows(self) -> list[Line]:
        """Return the rows, which are highlighted when one of them is drawn."""
        plain = [
            row
            for line in self._lines
            for row in code_rows([Span(line, INK)] if line else [], self._width)
        ]
        return [row._replace(late=partial(self._row, at)) for at, row in enumerate(plain)]

    def _row(self, at: int) -> Line:
        if not self._shown:
            lines = colour(self._lines, self._language)
            self._shown = [row for line in lines for row in code_rows(line, self._width)]
        return self._shown[at]


def column_widths(table: Table, width: int) -> list[int]:
    """Return the widths of the columns of a table in a pane of this width; empty if it is laid out without columns."""
    room = width - RIGHT - MARGIN - COLUMN_GAP * (max(len(table.head), 1) - 1)
    return _column_widths(table, room) if room >= max(len(table.head), 1) * SMALLEST_COLUMN else []


def _quiet(line: Line, skip: int) -> Line:
    """Return a quoted row: its text in the usual colour becomes quiet."""
    spans = tuple(
        Span(span.text, "quiet" + span.style[3:], span.hit)
        if index > skip and (span.style == "ink" or span.style.startswith("ink/"))
        else span
        for index, span in enumerate(line.spans)
    )
    return line._replace(spans=spans)


def _column_widths(table: Table, room: int) -> list[int]:
    """Return the natural widths where they fit; else the widest columns are narrowed first."""
    count = max(len(table.head), 1)
    natural = [1] * count
    for row in (table.head, *table.rows):
        for column, cell in enumerate(row[:count]):
            natural[column] = max(natural[column], spans_width(cell))
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

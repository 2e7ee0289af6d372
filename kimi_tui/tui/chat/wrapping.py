"""Breaking styled text into rows by cells: quick where all is ASCII, by character widths otherwise."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import get_character_cell_size

from kimi_tui.tui.chat.lines import Span


def ranges(text: str, width: int) -> list[tuple[int, int]]:
    """Where the rows of a text start and end; blanks at a break belong to no row.

    Words longer than a row are cut. A line feed always breaks.
    """
    out: list[tuple[int, int]] = []
    start = 0
    for part in text.split("\n"):
        if len(part) * 2 <= width or (len(part) <= width and part.isascii()):
            out.append((start, start + len(part)))
        elif part.isascii():
            _ascii(part, width, start, out)
        else:
            _wide(part, width, start, out)
        start += len(part) + 1
    return out


def _ascii(text: str, width: int, base: int, out: list[tuple[int, int]]) -> None:
    start = 0
    length = len(text)
    while length - start > width:
        cut = text.rfind(" ", start, start + width + 1)
        if cut <= start or not text[start:cut].strip():
            out.append((base + start, base + start + width))
            start += width
        else:
            end = cut
            while end > start and text[end - 1] == " ":
                end -= 1
            out.append((base + start, base + end))
            start = cut
        while start < length and text[start] == " ":
            start += 1
    if start < length or not length:
        out.append((base + start, base + length))


def _wide(text: str, width: int, base: int, out: list[tuple[int, int]]) -> None:
    start = index = column = 0
    # The newest place where this row may end (exclusive), and where the next row would start then.
    cut = resume = -1
    length = len(text)
    while index < length:
        char = text[index]
        size = 1 if char < "\u0300" else get_character_cell_size(char)
        if char == " ":
            if cut < 0 or resume != index:
                cut = index
            resume = index + 1
        elif size == 2 and index > start:
            cut = resume = index
        if column + size > width and char != " ":
            if cut <= start or not text[start:cut].strip():
                cut = resume = max(index, start + 1)
            out.append((base + start, base + cut))
            start = index = resume
            while start < length and text[start] == " ":
                start += 1
            index = start
            column = 0
            cut = resume = -1
            continue
        column += size
        index += 1
        if size == 2:
            cut = resume = index
    if start < length:
        out.append(
            (base + start, base + len(text.rstrip(" ")) if text[start:].strip() else base + length)
        )


def wrap(spans: Sequence[Span], width: int) -> list[list[Span]]:
    """Rows of at most `width` cells of these runs."""
    width = max(1, width)
    if any("\t" in span.text for span in spans):
        spans = [span._replace(text=span.text.replace("\t", "    ")) for span in spans]
    if len(spans) == 1:
        text, style, hit = spans[0]
        return [[Span(text[start:end], style, hit)] for start, end in ranges(text, width)]
    text = "".join(span.text for span in spans)
    rows: list[list[Span]] = []
    index = 0
    offset = 0
    for start, end in ranges(text, width):
        row: list[Span] = []
        while index < len(spans) and offset + len(spans[index].text) <= start:
            offset += len(spans[index].text)
            index += 1
        at, position = index, offset
        while at < len(spans) and position < end:
            piece, style, hit = spans[at]
            part = piece[max(0, start - position) : end - position]
            if part:
                row.append(Span(part, style, hit))
            position += len(piece)
            at += 1
        rows.append(row)
    return rows or [[]]


def chop(spans: Sequence[Span], width: int) -> list[list[Span]]:
    """Rows of exactly up to `width` cells, cut anywhere: for code and output, where blanks count."""
    width = max(2, width)
    rows: list[list[Span]] = [[]]
    column = 0
    for text, style, hit in spans:
        if text.isascii():
            position = 0
            while position < len(text):
                room = width - column
                if room <= 0:
                    rows.append([])
                    column = 0
                    room = width
                piece = text[position : position + room]
                rows[-1].append(Span(piece, style, hit))
                column += len(piece)
                position += len(piece)
            continue
        begin = 0
        for index, char in enumerate(text):
            size = get_character_cell_size(char)
            if column + size > width:
                if index > begin:
                    rows[-1].append(Span(text[begin:index], style, hit))
                rows.append([])
                begin = index
                column = 0
            column += size
        if begin < len(text):
            rows[-1].append(Span(text[begin:], style, hit))
    return rows

"""Rows of text as plain values (`Line`, `Span`): styles by name, what a click does, and word wrapping.

A style is a short text, `name/flags@background`: `ink`, `strong@band`, `ink/iu@raised` (b bold, i italic, u underline, s
struck through). A widget's `Painter` turns it into colours, so rows can be made and tested without a screen. Widths are in
cells. Long text can be wrapped a piece at a time: `iter_ranges` is lazy, and a `HardWrapper` takes text as it comes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby, islice
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from rich.cells import cell_len, get_character_cell_size, set_cell_size

from kimi_tui.app_paths import log_words
from kimi_tui.foreign_text import clean, expand_tabs
from kimi_tui.tui.formatting import MINUS, counted, cut, path, size_words
from kimi_tui.tui.glyphs import UNICODE, Glyphs

if TYPE_CHECKING:
    from kimi_tui.projection.blocks import Block
    from kimi_tui.tool_cards import ImageBlock


MARGIN = 4
"""The column at which text starts; the glyph of a row is two cells before it."""
HANGING = 6
"""The column at which the body of a card starts."""
RIGHT = 2
"""Cells left free at the right edge of the pane."""
PROSE_WIDTH = 88
"""The most cells of a row of prose."""
NUMBER_ROOM = 6
"""Cells at the right that prose leaves free for `#N` and the gap before it."""
LINE_LIMIT = 4_000
"""The most characters that are drawn of one line of a tool's output or a diff."""

HIT_FOLD = "fold"
HIT_CHECKPOINT = "#"
HIT_LINK = "link:"
HIT_IMAGE = "image:"
HIT_LINE = "line:"
HIT_AGENT = "agent"
"""The beginning of the action of a line of a diff: the place of the diff in its block and that of the line in it follow."""
COLOUR = "#"
"""The beginning of the style of a picture's cells: `#d0a010@#20242a`, the colours above and below."""


class Span(NamedTuple):
    """A run of text in one style. `hit` says what a click does: `#12` or `link:https://…`; empty for nothing."""

    text: str
    style: str = "ink"
    hit: str = ""


class Line(NamedTuple):
    """One row.

    `fill` is the background where there is no span; `hit` is the action of a click anywhere in the row. A `soft` row is
    continued by the next one after a blank, a `chopped` one without a blank, with so many cells of padding at its end: a
    copy joins both. The first `margin` cells are left out of a copy. A `late` row is coloured when it is first drawn:
    `shown` is what is drawn. The last span of a `labelled` row is no text, but a label at its right end such as `queued`.
    """

    spans: tuple[Span, ...] = ()
    fill: str = "page"
    hit: str = ""
    soft: bool = False
    margin: int = MARGIN
    chopped: int | None = None
    late: Callable[[], Line] | None = None
    labelled: bool = False

    @property
    def label_size(self) -> int:
        """The number of characters of the label or the checkpoint number at the right end, which is no text."""
        last = self.spans[-1] if self.spans else None
        is_label = last is not None and (self.labelled or last.hit.startswith(HIT_CHECKPOINT))
        return len(last.text) if last is not None and is_label else 0

    @property
    def shown(self) -> Line:
        """The row with its late colours applied, if colouring was deferred until it is shown."""
        return self if self.late is None else self.late()

    @property
    def text(self) -> str:
        """The characters of the row."""
        return "".join(span.text for span in self.spans)

    @property
    def width(self) -> int:
        """The width of the row in cells."""
        return spans_width(self.spans)

    @property
    def goes_on(self) -> bool:
        """Whether the next row continues the same line of the text."""
        return self.soft or self.chopped is not None

    def trimmed(self, text: str) -> str:
        """Return the text of the row, or of its beginning, without padding.

        Where it goes on below, a label or number at its right end does not belong to the text.
        """
        if self.chopped is not None:
            return text[: len(self.text) - self.chopped]
        if self.soft:
            text = text[: len(self.text) - self.label_size]
        return text.rstrip()


BLANK = Line()

_PAST_GROUNDS = {"band": "lost-bg", "dmail-bg": "lost-bg", "add-bg": "page", "del-bg": "page"}


def past_line(line: Line) -> Line:
    """Return the row in grey, for content that the model is no longer sent; the user's messages stay headings."""
    spans: list[Span] = []
    for span in line.spans:
        ink, flags, ground = style_parts(span.style)
        if ink.startswith(COLOUR):
            spans.append(span)
            continue
        flags = flags.replace("b", "") + ("b" if ink == "strong" else "")
        style = f"quiet/{flags}" if flags else "quiet"
        if ground:
            style += f"@{_PAST_GROUNDS.get(ground, ground)}"
        spans.append(span._replace(style=style))
    return line._replace(spans=tuple(spans), fill=_PAST_GROUNDS.get(line.fill, line.fill))


def cells(text: str) -> int:
    """Return the width of a text in cells."""
    return len(text) if text.isascii() else cell_len(text)


def joined(pieces: Iterable[Span]) -> list[Span]:
    """Neighbouring spans of one style as one."""
    return [
        Span("".join([piece.text for piece in run]), *look)
        for look, run in groupby(pieces, key=itemgetter(1, 2))
    ]


def spans_width(spans: Iterable[Span]) -> int:
    """Return how many cells the spans take together."""
    return sum(cells(span.text) for span in spans)


def fitted(spans: Iterable[Span], width: int) -> list[Span]:
    """Return the spans in exactly `width` cells: cut at the end, or filled with blanks in the style `quiet`."""
    result: list[Span] = []
    used = 0
    for span in spans:
        size = cells(span.text)
        if used + size > width:
            result.append(span._replace(text=set_cell_size(span.text, width - used)))
            return result
        result.append(span)
        used += size
    if used < width:
        result.append(Span(" " * (width - used), "quiet"))
    return result


def sides(left: Iterable[Span], right: Iterable[Span], width: int) -> list[Span]:
    """Spans at the left and at the right edge of `width` cells, with the blanks between them in the style `quiet`."""
    left, right = [*left], [*right]
    gap = width - spans_width(left) - spans_width(right)
    return [*left, Span(" " * max(0, gap), "quiet"), *right]


def style_parts(style: str) -> tuple[str, str, str]:
    """Return the ink, the flags and the ground that a style names; the last two may be empty."""
    name, _, ground = style.partition("@")
    ink, _, flags = name.partition("/")
    return ink, flags, ground


def prose_width(width: int, *, numbered: bool = True) -> int:
    """Return the width in cells of prose in a pane of this width; `numbered` rows may end with `#N`."""
    room = width - MARGIN - RIGHT - (NUMBER_ROOM if numbered else 0)
    return max(16, min(PROSE_WIDTH, room))


def pad(spans: list[Span], column: int, style: str = "ink") -> None:
    """Add blanks so that the next span starts at this column, unless the row is longer already."""
    missing = column - spans_width(spans)
    if missing > 0:
        spans.append(Span(" " * missing, style))


def hit_at(line: Line, column: int) -> str:
    """Return the action of a click in this column of the row; empty for none."""
    position = 0
    for span in line.spans:
        position += cells(span.text)
        if column < position:
            return span.hit or line.hit
    return line.hit


FACT_GAP = 3


class LayoutRoom(NamedTuple):
    """The parameters of a layout: the pane's width, whether the terminal is low, the set of signs, how images are drawn, keys."""

    width: int
    low: bool = False
    lowest: bool = False
    glyphs: Glyphs = UNICODE
    picture: Callable[[ImageBlock, int, int], Sequence[tuple[Span, ...]]] | None = None
    """Returns an image in at most so many columns and rows of cells, which are empty until it is decoded. None: images are only named."""
    unfold_keys: str = ""
    """The keys that unfold the newest block from the prompt on; empty for none."""
    currency: str = "$"
    """The sign of amounts."""


class CardFact(NamedTuple):
    """A fact at the right of a card; the lower its rank the longer it stays where room is short."""

    spans: tuple[Span, ...]
    rank: int


def number_span(checkpoint: int | None, *, live: bool, pin: str = "") -> Span | None:
    """Return `#12`, which can be clicked, after the sign of a pin; without a checkpoint only the sign, or None."""
    if checkpoint is None or not live:
        return Span(pin, "quiet") if pin else None
    name = f"#{checkpoint}"
    return Span(f"{pin} {name}" if pin else name, "quiet", HIT_CHECKPOINT + str(checkpoint))


def title_row(
    room: LayoutRoom,
    left: list[Span],
    facts: Sequence[CardFact],
    number: Span | None,
    *,
    fill: str = "page",
    hit: str = "",
) -> Line:
    """Return a row with glyph, name and target at the left, cut if there is no room for them, and facts and `#N` at the right edge."""
    right: list[Span] = []
    for fact in facts:
        if right:
            right.append(Span(" " * FACT_GAP))
        right.extend(
            span._replace(text=span.text.replace(MINUS, room.glyphs.minus)) for span in fact.spans
        )
    if number is not None:
        if right:
            right.append(Span(" " * (FACT_GAP + max(0, 3 - cells(number.text)))))
        right.append(number)
    spans = list(left)
    free = room.width - RIGHT - spans_width(right) - bool(right)
    if spans_width(spans) > free:
        cut = cells(room.glyphs.cut)
        spans = [*fitted(spans, max(1, free - cut)), Span(room.glyphs.cut, "quiet")]
    pad(spans, room.width - RIGHT - spans_width(right))
    spans.extend(right)
    return Line(tuple(spans), fill=fill, hit=hit, margin=2)


def pin_of(block: Block, room: LayoutRoom) -> str:
    """Return the sign of a pinned message; empty if it is not pinned."""
    return room.glyphs.pinned if block.pinned else ""


def fold_mark(count: int, word: str = "line") -> str:
    """Return the mark of folded lines: `+38 lines`."""
    return f"+{counted(count, word)}"


PLAIN_CHARS = 100_000
"""Characters of a text that are shown without a layout."""


def _plain_mark() -> str:
    return f"Shown as plain text: the layout failed. {log_words()}"


def ranges(text: str, width: int) -> list[tuple[int, int]]:
    """Return where the rows of a text start and end; blanks at a break belong to no row.

    Words longer than a row are cut. A line feed always breaks.
    """
    if len(text) <= width and text.isascii() and "\n" not in text:
        return [(0, len(text))]
    return list(iter_ranges(text, width))


def iter_ranges(text: str, width: int) -> Iterator[tuple[int, int]]:
    """Return the result of `ranges` as a lazy iterator."""
    start = 0
    while start <= len(text):
        end = text.find("\n", start)
        part = text[start:] if end < 0 else text[start:end]
        if len(part) * 2 <= width or (len(part) <= width and part.isascii()):
            yield start, start + len(part)
        elif part.isascii():
            yield from _ascii(part, width, start)
        else:
            yield from _wide(part, width, start)
        start += len(part) + 1


def in_rows(text: str, width: int, most: int, mark: str) -> list[str]:
    """Return a text in at most so many rows of whole words; if it is longer, the last row ends in the mark."""
    places = list(islice(iter_ranges(text, max(2, width)), most + 1)) if text else []
    rows = [text[start:end] for start, end in places[:most]]
    if len(places) > most > 0:
        rows[-1] = cut(text[places[most - 1][0] :].replace("\n", " "), width, mark)
    return rows


def _ascii(text: str, width: int, base: int) -> Iterator[tuple[int, int]]:
    start = 0
    length = len(text)
    while length - start > width:
        cut = text.rfind(" ", start, start + width + 1)
        if cut <= start or not text[start:cut].strip():
            yield base + start, base + start + width
            start += width
        else:
            end = cut
            while end > start and text[end - 1] == " ":
                end -= 1
            yield base + start, base + end
            start = cut
        while start < length and text[start] == " ":
            start += 1
    if start < length or not length:
        yield base + start, base + length


def _wide(text: str, width: int, base: int) -> Iterator[tuple[int, int]]:
    start = index = column = 0
    # `cut` is the newest place where this row may end (exclusive); `resume` is where the next row would start then.
    cut = resume = -1
    has_ink = False
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
        # Blanks at a break take no room; blanks at the beginning of a row do.
        if column + size > width and (char != " " or not has_ink):
            if cut <= start or not text[start:cut].strip(" "):
                cut = resume = max(index, start + 1)
            end = cut
            while end > start and text[end - 1] == " " and has_ink:
                end -= 1
            yield base + start, base + end
            start = resume
            while start < length and text[start] == " ":
                start += 1
            index = start
            column = 0
            cut = resume = -1
            has_ink = False
            continue
        has_ink = has_ink or char != " "
        column += size
        index += 1
        if size == 2:
            cut = resume = index
    if start < length:
        yield base + start, base + (len(text.rstrip(" ")) if has_ink else length)


def wrap(spans: Sequence[Span], width: int) -> list[list[Span]]:
    """Return rows of at most `width` cells of these runs."""
    width = max(2, width)
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


def paragraph(
    text: str,
    style: str,
    width: int,
    lead: tuple[Span, ...],
    rest: tuple[Span, ...] | None = None,
    *,
    fill: str = "page",
    hit: str = "",
    margin: int = MARGIN,
) -> list[Line]:
    """Return the rows of running text; no rows for an empty one.

    Args:
        text: the text, which breaks at its line feeds.
        style: the style of the text.
        width: cells of the text, without what comes before it.
        lead: the spans before the first row.
        rest: the spans before all other rows; the same if not given.
        fill: the background.
        hit: the action of a click.
        margin: leading cells that are left out of a copy.
    """
    out: list[Line] = []
    for part in text.split("\n") if text else ():
        wrapped = wrap([Span(part, style)], width)
        last = len(wrapped) - 1
        for index, row in enumerate(wrapped):
            before = lead if rest is None or not out else rest
            out.append(Line((*before, *row), fill, hit, index < last, margin))
    return out


class HardWrapper:
    """Cuts runs into rows of exactly up to `width` cells, anywhere: for code and output, where blanks count.

    Runs may come a piece at a time; neighbours that look alike become one, so the rows do not show how they came.
    """

    __slots__ = ("_column", "rows", "width")

    def __init__(self, width: int) -> None:
        self.width = max(2, width)
        self.rows: list[list[Span]] = [[]]
        """The rows so far; only the last one may still grow."""
        self._column = 0

    def feed(self, spans: Sequence[Span]) -> None:
        """Append text of the line."""
        for span in spans:
            if span.text.isascii():
                self._ascii(span)
            else:
                self._wide(span)

    def _ascii(self, span: Span) -> None:
        text, position = span.text, 0
        while position < len(text):
            if self._column >= self.width:
                self._break()
            piece = text[position : position + self.width - self._column]
            self._put(piece, span)
            self._column += len(piece)
            position += len(piece)

    def _wide(self, span: Span) -> None:
        text, begin = span.text, 0
        for index, char in enumerate(text):
            size = get_character_cell_size(char)
            if self._column + size > self.width:
                self._put(text[begin:index], span)
                self._break()
                begin = index
            self._column += size
        self._put(text[begin:], span)

    def _break(self) -> None:
        self.rows.append([])
        self._column = 0

    def _put(self, text: str, span: Span) -> None:
        if not text:
            return
        row = self.rows[-1]
        if row and row[-1][1:] == span[1:]:
            row[-1] = Span(row[-1].text + text, span.style, span.hit)
        else:
            row.append(Span(text, span.style, span.hit))


def chop(spans: Sequence[Span], width: int) -> list[list[Span]]:
    """Return rows of exactly up to `width` cells of these runs, cut anywhere."""
    chopper = HardWrapper(width)
    chopper.feed(spans)
    return chopper.rows


def plain_rows(text: str, width: int, glyphs: Glyphs = UNICODE) -> list[Line]:
    """Return the rows of a text that has no layout: cut anywhere, under a row that says so. Never raises."""
    try:
        return [_mark(_plain_mark(), width, glyphs), *_chopped(clean(text[:PLAIN_CHARS]), width)]
    except Exception:
        # The rows of the first frame are made before Textual is imported.
        from kimi_tui.tui.faults import log_fault, not_shown

        log_fault("showing plain text")
        return [Line((Span(f"  {not_shown()}"[:width]),))]


def _mark(words: str, width: int, glyphs: Glyphs) -> Line:
    free = max(1, width - MARGIN - RIGHT)
    return Line(
        (Span("  "), Span(glyphs.caution, "warn"), Span(" "), Span(words[:free], "quiet")), margin=2
    )


def _chopped(text: str, width: int) -> list[Line]:
    rows: list[Line] = []
    margin = Span(" " * MARGIN)
    for line in text.split("\n"):
        parts = chop([Span(expand_tabs(line))], width - MARGIN - RIGHT)
        last = len(parts) - 1
        rows += [
            Line((margin, *part), margin=MARGIN, chopped=0 if index < last else None)
            for index, part in enumerate(parts)
        ]
    return rows


PICTURE_ROWS = 12
PICTURE_COLUMNS = 60
HOW_TO_SEE = "  click to show it"
"""The words after the name of an image that is not drawn in the chat."""
LEAST_NAME = 16
"""Minimum number of cells for the name of a file, however narrow the pane is."""


def picture_rows(room: LayoutRoom) -> int:
    """Return the maximum rows of an image in the chat, besides the row of its name."""
    if room.picture is None or room.lowest:
        return 0
    return PICTURE_ROWS // 2 if room.low else PICTURE_ROWS


def image_rows(
    images: Sequence[ImageBlock], room: LayoutRoom, lead: tuple[Span, ...], *, fill: str = "page"
) -> Iterator[Line]:
    """Return the rows of images: the name of each, and under it a small picture if those are drawn. A click opens it."""
    margin = spans_width(lead)
    free = room.width - RIGHT - margin
    for image in images:
        hit = f"{HIT_IMAGE}{image.sha256}" if image.sha256 else ""
        size = f"{image.width}x{image.height}  {size_words(image.n_bytes)}" if image.width else ""
        n_rows = picture_rows(room) if image.sha256 else 0
        drawn: Sequence[tuple[Span, ...]] = ()
        if room.picture is not None and n_rows:
            drawn = room.picture(image, min(free, PICTURE_COLUMNS), n_rows)
        for_name = free - cells(size) - 2
        advice = HOW_TO_SEE if hit and not drawn else ""
        if for_name - len(advice) < min(LEAST_NAME, cells(image.name)):
            advice = ""
        cut = room.glyphs.cut
        name = path(image.name or "image", max(LEAST_NAME, for_name - len(advice)), cut)
        spans = (*lead, Span(name, "ink"), Span(f"  {size}", "quiet"))
        if advice:
            spans = (*spans, Span(advice, "quiet"))
        yield Line(spans, fill=fill, hit=hit, margin=margin)
        for row in drawn:
            # The row has no text that can be copied.
            yield Line((*lead, *row), fill=fill, hit=hit, margin=room.width)

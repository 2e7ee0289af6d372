"""The rows of a comparison of two world lines: their messages in two columns, and the files that differ.

A message that both sides have stands at the same height in both columns. Of messages only heights are kept, measured from
the top down and in time slices; rows are made when they are visible. No widget here.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from rich.cells import cell_len

from kimi_tui.foreign_text import clean, one_line, shown_name
from kimi_tui.tool_cards import BriefBlock, DiffBlock, ImageBlock, ShellBlock, short_name
from kimi_tui.tui import formatting
from kimi_tui.tui.diff import change_counts, diff_rows
from kimi_tui.tui.faults import log_fault
from kimi_tui.tui.formatting import StyledText, spans_width
from kimi_tui.tui.glyphs import Glyphs
from kimi_tui.tui.pictures import CellRow
from kimi_tui.tui.rows import LayoutRoom, Line, Span, image_rows, plain_rows, style_parts
from kimi_tui.tui.transcript.markdown_stream import MarkdownStream

if TYPE_CHECKING:
    from kimi_tui.projection.world_lines import Comparison, Side, WorldLineMessage
    from kimi_tui.soul.world_line_reader import ComparedFile, DivergedFiles, FileSide

TEXT_ROWS = 4
"""The most rows of a folded message."""
WHOLE_ROWS = 1_000
"""The most rows of an unfolded message."""
FOLDED_CHARS = 4_000
"""Characters of a text that are laid out while its message is folded."""
WHOLE_CHARS = 200_000
PIECE_CHARS = 1_500
"""Characters of an answer that are laid out in one step; most answers are shorter."""
NAME_WIDTH = 6
MARGIN = 4
FACT_GAP = 3
NUMBER_WIDTH = 3
SHORTEST_TARGET = 8
WIDEST_FACT = 24
ROOMY = 90
"""From this width in cells on, the columns of the files are aligned with those of the messages, and have no abbreviations."""
COLUMN_GAP = 3
KEPT = 200
"""The most messages whose rows are cached."""
Picture = Callable[[ImageBlock, int, int], Sequence[CellRow]]
Key = tuple["Side", int]
"""A message: its side, and its index there."""


class Cell(NamedTuple):
    """One side of a row of the comparison. `entry` is the index of its message, -1 for none."""

    spans: tuple[StyledText, ...] = ()
    entry: int = -1
    is_band: bool = False


BLANK = Cell()
AT_ITS_END = Cell(((f"{' ' * MARGIN}It ends at the fork.", "quiet"),))


class ComparisonRows:
    """The messages of two world lines as rows in two columns.

    Args:
        comparison: the messages, with which of them both lines have.
        width: cells of each column.
        glyphs: the set of signs in use.
        known: heights of messages that were measured before, for the same width.
        picture: makes the thumbnails of images; None where images are only named.

    Attributes:
        height: the number of rows measured so far.
        starts: the first row of each measured message.
        outdated: the messages whose rows have changed since; these rows stay on the screen until others are measured.
    """

    def __init__(
        self,
        comparison: Comparison,
        width: int,
        glyphs: Glyphs,
        known: Mapping[Key, int] | None = None,
        picture: Picture | None = None,
    ) -> None:
        self._comparison = comparison
        self._glyphs = glyphs
        self._picture = picture
        self._rows: dict[Key, list[list[StyledText]]] = {}
        self.width = width
        self.heights: dict[Key, int] = dict(known or {})
        self.outdated: set[Key] = set()
        self.height = 0
        self.starts: dict[Side, list[int]] = {"other": [], "live": []}

    def measure(self) -> Generator[None]:
        """Measure all messages from the top; yields after each."""
        for run in self._comparison.runs:
            top = self.height
            ends: dict[Side, int] = {"other": top, "live": top}
            next_of: dict[Side, int] = {"other": run.a, "live": run.c}
            last_of: dict[Side, int] = {"other": run.b, "live": run.d}
            while (side := _behind(ends, next_of, last_of)) is not None:
                ends[side] = self._put(side, next_of[side], ends[side])
                next_of[side] += 1
                self.height = max(self.height, ends[side])
                yield

    def _put(self, side: Side, index: int, end: int) -> int:
        entries = self._comparison.sides[side]
        message = entries[index].message
        before = entries[index - 1].message.kind if index else ""
        has_gap = end > 0 and not before == message.kind == "tool"
        start = end + 1 if has_gap else end
        self.starts[side].append(start)
        key: Key = (side, index)
        if key not in self.heights:
            self.heights[key] = len(self._make(key))
        return start + self.heights[key]

    def _make(self, key: Key) -> list[list[StyledText]]:
        side, index = key
        entry = self._comparison.sides[side][index]
        whole = key in self._comparison.unfolded
        try:
            return message_rows(
                entry.message,
                self.width,
                self._glyphs,
                same=entry.same,
                whole=whole,
                lost=side == "other",
            ) + self._images(entry.message, lost=side == "other")
        except Exception:
            log_fault("laying out a compared message")
            rows = plain_rows(entry.message.text, self.width, self._glyphs)
            return [[(span.text, span.style) for span in row.spans] for row in rows[:WHOLE_ROWS]]

    def _images(self, message: WorldLineMessage, *, lost: bool) -> list[list[StyledText]]:
        edge = self._glyphs.edge if message.kind == "user" else " "
        lead = Span(f"{edge}   ", "quiet" if lost else "accent")
        room = LayoutRoom(self.width, True, glyphs=self._glyphs, picture=self._picture)
        rows = image_rows(images_of(message), room, (lead,))
        return [[(span.text, span.style) for span in row.spans] for row in rows]

    def cell(self, side: Side, row: int) -> Cell:
        """One side of a row."""
        if row == 0 and not self._comparison.sides[side]:
            return AT_ITS_END
        index = bisect_right(self.starts[side], row) - 1
        if index < 0:
            return BLANK
        key: Key = (side, index)
        offset = row - self.starts[side][index]
        if offset >= self.heights[key]:
            return BLANK
        rows = self._rows.get(key)
        if rows is None:
            while len(self._rows) >= KEPT:
                del self._rows[next(iter(self._rows))]
            rows = self._rows[key] = self._make(key)
        if offset >= len(rows):
            return BLANK  # folded since it was measured
        message = self._comparison.sides[side][index].message
        return Cell(tuple(rows[offset]), index, message.kind == "user")

    def valid_heights(self) -> dict[Key, int]:
        """The heights that are valid for other rows of the same width: those of all messages that are not outdated."""
        return {key: height for key, height in self.heights.items() if key not in self.outdated}

    def last_row(self, side: Side, index: int) -> int:
        """The last row of a message."""
        return self.starts[side][index] + self.heights[(side, index)] - 1


def images_of(message: WorldLineMessage) -> list[ImageBlock]:
    """The images that a message shows."""
    return [shown for shown in message.display if isinstance(shown, ImageBlock)]


def _behind(
    ends: Mapping[Side, int], next_of: Mapping[Side, int], last_of: Mapping[Side, int]
) -> Side | None:
    """The side to measure next: the shorter one so far, so that both grow evenly; None where both are complete."""
    is_other_open, is_live_open = (
        next_of["other"] < last_of["other"],
        next_of["live"] < last_of["live"],
    )
    if is_other_open and (not is_live_open or ends["other"] <= ends["live"]):
        return "other"
    return "live" if is_live_open else None


def message_rows(
    message: WorldLineMessage,
    width: int,
    glyphs: Glyphs,
    *,
    same: bool,
    whole: bool,
    lost: bool = False,
) -> list[list[StyledText]]:
    """The rows of a message in a column.

    Args:
        message: what is drawn.
        width: of the column.
        glyphs: the signs in use.
        same: whether the other side has the message too.
        whole: whether it is unfolded; else only its beginning is shown.
        lost: whether it is on the world line that was left, not on the live one.
    """
    ink = "quiet" if same else "ink"
    number = f"#{message.checkpoint_id}"
    match message.kind:
        case "user":
            return _words(
                message, width, glyphs, "quiet" if same else "strong", number, whole, lost
            )
        case "tool":
            return _tool(message, width, glyphs, number, same=same, whole=whole)
        case "dmail":
            head: list[StyledText] = [
                ("  ", ink),
                (f"{glyphs.dmail} ", "dmail"),
                ("D-Mail", "dmail/b"),
            ]
            if message.sent_from >= 0:
                head.append((f" from #{message.sent_from}", ink))
            saved: list[StyledText] = []
            if message.saved:
                saved.append((f"{glyphs.minus}{formatting.tokens(message.saved)}", "dmail"))
            return [
                _with_number(head, number, width, saved),
                *_words(message, width, glyphs, ink, "", whole, lost),
            ]
        case "summary":
            head = [
                ("  ", ink),
                (f"{glyphs.compaction} ", "compaction"),
                ("Compacted", "compaction/b"),
            ]
            return [
                _with_number(head, number, width),
                *_words(message, width, glyphs, ink, "", whole, lost),
            ]
        case "agent":
            return _answer(message, width, glyphs, same=same, whole=whole)
        case _:
            return _words(message, width, glyphs, ink, "", whole, lost)


def _words(
    message: WorldLineMessage,
    width: int,
    glyphs: Glyphs,
    style: str,
    number: str,
    whole: bool,
    lost: bool,
) -> list[list[StyledText]]:
    room = max(8, width - MARGIN - 2 - (len(number) + 1 if number else 0))
    limit = WHOLE_CHARS if whole else FOLDED_CHARS
    text = clean(message.text[:limit]).strip()
    wrapped: list[str] = []
    for part in text.split("\n"):
        wrapped += formatting.wrap_words(part.replace("\t", "    "), room) or [""]
    # Of a very long text only the beginning is laid out; the rest is counted roughly.
    rest = max(0, len(message.text) - limit)
    lines = len(wrapped) + max(rest // room, message.text.count("\n", limit) if rest else 0)
    most = WHOLE_ROWS if whole else TEXT_ROWS
    shown = wrapped if lines - most <= 1 else wrapped[:most]
    edge = (f"{glyphs.edge if message.kind == 'user' else ' '}   ", "quiet" if lost else "accent")
    rows: list[list[StyledText]] = [
        [edge, (formatting.cut(text, room, glyphs.cut), style)] for text in shown
    ]
    if (hidden := lines - len(shown)) > 0:
        rows.append([edge, (f"+{formatting.grouped(hidden)} lines", "quiet")])
    if number:
        rows[0] = _with_number(rows[0], number, width)
    return rows


def _answer(
    message: WorldLineMessage, width: int, glyphs: Glyphs, *, same: bool, whole: bool
) -> list[list[StyledText]]:
    """What the agent said, with the rows that it has in the chat."""
    text = clean(message.text[:WHOLE_CHARS]).strip()
    most = WHOLE_ROWS if whole else TEXT_ROWS
    layout = MarkdownStream(width, glyphs, numbered=False)
    fed = 0
    while fed < len(text) and len(layout.lines) <= most + 1:
        layout.feed(text[fed : fed + PIECE_CHARS])
        fed += PIECE_CHARS
    if fed >= len(text):
        layout.finish()
    made = layout.lines or [Line()]
    # Of a long answer only the beginning is laid out; the rest is counted roughly.
    rest = max(0, len(text) - fed)
    lines = len(made) + max(rest // width, text.count("\n", fed) if rest else 0)
    shown = made if not rest and lines - most <= 1 else made[:most]
    while len(shown) < len(made) and not shown[-1].text.strip():
        shown = shown[:-1]
    rows: list[list[StyledText]] = [
        [(span.text, _quiet(span.style) if same else span.style) for span in line.spans]
        or [(" " * MARGIN, "quiet")]
        for line in shown
    ]
    if (hidden := lines - len(shown)) > 0:
        rows.append([(" " * MARGIN, "quiet"), (f"+{formatting.grouped(hidden)} lines", "quiet")])
    return rows


def _quiet(style: str) -> str:
    """The style in quiet ink, with the flags and the ground that it has."""
    return f"quiet{style.removeprefix(style_parts(style)[0])}"


def _tool(
    message: WorldLineMessage, width: int, glyphs: Glyphs, number: str, *, same: bool, whole: bool
) -> list[list[StyledText]]:
    sign = (glyphs.failed, "error") if message.failed else (glyphs.done, "ok")
    if same:
        sign = (sign[0], "quiet")
    name = f"{short_name(message.name, message.card)} ".ljust(NAME_WIDTH)
    fact = _fact(message, glyphs)
    if same:
        fact = [(text, "quiet") for text, _ in fact]
    room = width - MARGIN - cell_len(name) - max(NUMBER_WIDTH, len(number)) - 4
    if fact:
        taken = FACT_GAP + spans_width(fact)
        fact, room = (fact, room - taken) if room - taken >= SHORTEST_TARGET else ([], room)
    target = formatting.cut(one_line(message.target), max(1, room), glyphs.cut)
    rows = [
        _with_number(
            [
                ("  ", "quiet"),
                (f"{sign[0]} ", sign[1]),
                (name, "quiet" if same else "tool"),
                (target, "quiet" if same else "ink"),
            ],
            number,
            width,
            fact,
        )
    ]
    if whole:
        lines = clean(message.text[:WHOLE_CHARS]).strip().split("\n")
        rows += [
            [(" " * (MARGIN + 2), "quiet"), (formatting.cut(part, width - 8, glyphs.cut), "quiet")]
            for part in lines[:WHOLE_ROWS]
        ]
        if (hidden := message.text.count("\n") + 1 - len(rows)) > 0 and len(lines) > WHOLE_ROWS:
            rows.append(
                [(" " * (MARGIN + 2), "quiet"), (f"+{formatting.grouped(hidden)} lines", "quiet")]
            )
    return rows


def _fact(message: WorldLineMessage, glyphs: Glyphs) -> list[StyledText]:
    """What came of a call, in a word or two."""
    added = removed = 0
    is_diff, brief = False, ""
    for shown in message.display:
        match shown:
            case ShellBlock(exit_code=int(code)):
                return [(f"exit {code}", "error" if code else "quiet")]
            case DiffBlock():
                is_diff = True
                added, removed = added + shown.added, removed + shown.removed
            case BriefBlock(text):
                brief = one_line(text)
            case _:
                pass
    if is_diff and not message.failed:
        return change_counts(added, removed, glyphs, blank="error") or [("+0", "ok")]
    if brief and brief != message.target:
        brief = formatting.cut(brief, WIDEST_FACT, glyphs.cut)
        return [(brief, "error" if message.failed else "quiet")]
    return [("failed", "error")] if message.failed else []


def _with_number(
    spans: list[StyledText], number: str, width: int, fact: Sequence[StyledText] = ()
) -> list[StyledText]:
    """A row that ends with the number, and a fact before it where there is room."""
    left = spans_width(spans)
    size = spans_width(fact)
    number = number.rjust(NUMBER_WIDTH) if fact else number
    gap = width - 2 - left - len(number)
    if fact and gap - size - FACT_GAP >= 1:
        return [
            *spans,
            (" " * (gap - size - FACT_GAP), "quiet"),
            *fact,
            (" " * FACT_GAP + number, "quiet"),
        ]
    return [*spans, (" " * max(1, gap), "quiet"), (number, "quiet")]


class FileTable:
    """The files that either world line changed since the fork, as rows of a table with a column for each side.

    Args:
        files: the changed files.
        world_line: the number of the line that was left.
        fork: the id of the newest checkpoint that both lines have, -1 where they share none.
        width: cells of a row.
        glyphs: the set of signs in use.
    """

    def __init__(
        self, files: DivergedFiles, world_line: int, fork: int, width: int, glyphs: Glyphs
    ) -> None:
        self._files = files
        self._line = world_line
        self._fork = fork
        self._width = width
        self._glyphs = glyphs
        self._roomy = width >= ROOMY
        self._end = width - 2
        self._middle = (width - 1) // 2 - 2
        if not self._roomy:
            said = [self._now(one) for one in files.files]
            widest = max([len("now"), *(spans_width(words) for words in said)])
            self._middle = self._end - widest - COLUMN_GAP

    def head(self) -> list[StyledText]:
        """The heading over the columns."""
        title: list[StyledText] = [("  Files", "quiet")]
        if self._files.reason or not self._files.files:
            return title
        return self._row(title, [(f"world line {self._line}", "quiet")], [("now", "quiet")])

    def rows(self, unfolded: frozenset[int]) -> list[tuple[list[StyledText], int]]:
        """The rows, each with the index of its file (-1: a row of a diff, or a sentence).

        Args:
            unfolded: the indexes of the files whose diff is shown.
        """
        files = self._files
        if files.reason:
            return [(self._sentence(files.reason), -1)]
        rows: list[tuple[list[StyledText], int]] = []
        for index, one in enumerate(files.files):
            rows.append((self._file(one), index))
            if index in unfolded:
                rows += [(spans, -1) for spans in self._diffs(one)]
        if not rows:
            rows.append((self._sentence("Neither changed a file since they parted."), -1))
        return [*rows, *((self._sentence(words), -1) for words in files.remarks)]

    def _file(self, one: ComparedFile) -> list[StyledText]:
        other, now = self._side(one.other), self._now(one)
        room = max(8, self._middle - MARGIN - COLUMN_GAP - spans_width(other))
        name = formatting.path(shown_name(one.path), room, self._glyphs.cut)
        return self._row([(" " * MARGIN, "quiet"), (name, "ink")], other, now)

    def _row(
        self, left: list[StyledText], other: list[StyledText], now: list[StyledText]
    ) -> list[StyledText]:
        gap = self._middle - spans_width(left) - spans_width(other)
        spans = [*left, (" " * max(1, gap), "quiet"), *other]
        return [
            *spans,
            (" " * max(1, self._end - spans_width(spans) - spans_width(now)), "quiet"),
            *now,
        ]

    def _now(self, one: ComparedFile) -> list[StyledText]:
        if not one.alike:
            return self._side(one.live)
        return [(f"as on world line {self._line}" if self._roomy else "as there", "quiet")]

    def _side(self, side: FileSide) -> list[StyledText]:
        """The change of a file on one side, in a few words."""
        if side.state == "same":
            since = f"same as at #{self._fork}" if self._fork >= 0 else "as it was"
            return [(since if self._roomy else "same", "quiet")]
        fate = "" if side.state == "changed" else f"{side.state}  "
        if side.changed_by == "others":
            return [(f"{side.state} outside", "warn")]
        spans: list[StyledText] = [("also outside  ", "warn")] if side.changed_by == "both" else []
        if fate:
            spans.append((fate, "quiet"))
        return [*spans, *self._counts(side)]

    def _counts(self, side: FileSide) -> list[StyledText]:
        if not side.is_text:
            return [("not a text", "quiet")]
        spans = change_counts(side.added, side.removed, self._glyphs, blank="error")
        if spans:
            return spans
        return [("permissions" if side.state == "changed" else "empty", "quiet")]

    def _diffs(self, one: ComparedFile) -> Iterator[list[StyledText]]:
        since = f", since #{self._fork}" if self._fork >= 0 else ""
        sides = [(f"World line {self._line}", one.other), ("Now", one.live)]
        if one.alike:
            sides = [("On both", one.other)]
        for name, side in sides:
            if side.state != "same":
                yield [(" " * (MARGIN + 2), "quiet"), (f"{name}{since}", "quiet")]
                yield from self._diff(side)

    def _diff(self, side: FileSide) -> Iterator[list[StyledText]]:
        yield from diff_rows(
            side.rows, self._width - 2, self._glyphs, indent=MARGIN + 2, digits=4, context="quiet"
        )
        if not side.rows:
            yield [(" " * (MARGIN + 2), "quiet"), ("There is no diff to show.", "quiet")]

    def _sentence(self, words: str) -> list[StyledText]:
        text = formatting.cut(one_line(words), max(1, self._width - MARGIN - 2), self._glyphs.cut)
        return [(" " * MARGIN, "quiet"), (text, "quiet")]

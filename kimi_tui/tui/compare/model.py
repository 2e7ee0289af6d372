"""Two courses of a conversation as rows beside each other, from where they part. Knows no widget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Literal, NamedTuple

from rich.cells import cell_len

from kimi_tui.foreign_text import clean, one_line
from kimi_tui.tui import numbers
from kimi_tui.tui.chat.targets import short_name
from kimi_tui.tui.glyphs import Glyphs

if TYPE_CHECKING:
    from kimi_tui.soul.protocol import FilePreview, FilesPreview
    from kimi_tui.soul.travel_protocol import LineMessage

Span = tuple[str, str]
"""Text and the name of its style."""
Side = Literal["other", "live"]

MAX_PAIRS = 4_000_000
"""Beyond this many pairs of messages nothing is matched: all of both sides counts as different."""
TEXT_ROWS = 4
NAME_WIDTH = 6
MARGIN = 4


class Entry(NamedTuple):
    """A message of one side. `same` is true where the other side has it too, at that place."""

    message: LineMessage
    same: bool


class Cell(NamedTuple):
    """One side of a row. `entry` is the index of the message that it belongs to, -1 for none."""

    spans: tuple[Span, ...] = ()
    entry: int = -1
    is_band: bool = False


@dataclass(slots=True)
class Sheet:
    """Rows of both sides, and for every message the row where it begins."""

    rows: list[tuple[Cell, Cell]] = field(default_factory=list[tuple[Cell, Cell]])
    starts: dict[Side, list[int]] = field(
        default_factory=lambda: {"other": list[int](), "live": list[int]()}
    )


class Comparison:
    """What is compared.

    Args:
        other: the messages of the line that was left.
        live: those of the live line.

    Attributes:
        sides: the messages that are shown.
        unfolded: which of them are shown whole.
    """

    def __init__(self, other: Sequence[LineMessage], live: Sequence[LineMessage]) -> None:
        left, right = _shown(other), _shown(live)
        self._blocks = _blocks(left, right)
        same_left = {i for tag, i, j, _, _ in self._blocks if tag for i in range(i, j)}
        same_right = {i for tag, _, _, i, j in self._blocks if tag for i in range(i, j)}
        self.sides: dict[Side, list[Entry]] = {
            "other": [Entry(one, i in same_left) for i, one in enumerate(left)],
            "live": [Entry(one, i in same_right) for i, one in enumerate(right)],
        }
        self.unfolded: set[tuple[Side, int]] = set()

    def next_difference(self, side: Side, current: int) -> int | None:
        """The next message of a side that the other one has not; from the beginning again behind the last."""
        entries = self.sides[side]
        order = [*range(current + 1, len(entries)), *range(current + 1)]
        return next((i for i in order if not entries[i].same), None)

    def sheet(self, width: int, glyphs: Glyphs) -> Sheet:
        """All rows for two columns of `width` cells. What both sides have stands at the same height."""
        made = Sheet()
        for _, left, left_end, right, right_end in self._blocks:
            top = len(made.rows)
            columns = [
                self._column(made, "other", left, left_end, top, width, glyphs),
                self._column(made, "live", right, right_end, top, width, glyphs),
            ]
            height = max(len(column) for column in columns)
            for row in range(height):
                cells = [column[row] if row < len(column) else Cell() for column in columns]
                made.rows.append((cells[0], cells[1]))
        return made

    def _column(
        self, made: Sheet, side: Side, first: int, last: int, top: int, width: int, glyphs: Glyphs
    ) -> list[Cell]:
        cells: list[Cell] = []
        entries = self.sides[side]
        for index in range(first, last):
            entry = entries[index]
            before = entries[index - 1].message.kind if index else ""
            if (top or cells) and not (before == entry.message.kind == "tool"):
                cells.append(Cell())
            made.starts[side].append(top + len(cells))
            whole = (side, index) in self.unfolded
            cells += [
                Cell(tuple(spans), index, entry.message.kind == "user")
                for spans in _rows(entry, width, glyphs, whole=whole)
            ]
        return cells


def _shown(messages: Sequence[LineMessage]) -> list[LineMessage]:
    """Without reminders, and without what the agent did not say (its calls stand with their results)."""
    return [
        one
        for one in messages
        if one.kind != "reminder" and (one.text.strip() or one.kind != "agent")
    ]


def _blocks(
    left: Sequence[LineMessage], right: Sequence[LineMessage]
) -> list[tuple[bool, int, int, int, int]]:
    """Runs of messages: whether both sides have them, then where they stand on each."""
    if not left or not right or len(left) * len(right) > MAX_PAIRS:
        return [(False, 0, len(left), 0, len(right))]
    keys = [[(one.kind, one.name, one.target, one.text) for one in side] for side in (left, right)]
    codes = SequenceMatcher(None, keys[0], keys[1], autojunk=False).get_opcodes()
    return [(tag == "equal", a, b, c, d) for tag, a, b, c, d in codes]


def _rows(entry: Entry, width: int, glyphs: Glyphs, *, whole: bool) -> list[list[Span]]:
    message = entry.message
    ink = "quiet" if entry.same else "ink"
    number = f"#{message.checkpoint_id}"
    match message.kind:
        case "user":
            return _words(
                message, width, glyphs, "quiet" if entry.same else "strong", number, whole
            )
        case "tool":
            return _tool(entry, width, glyphs, number, whole=whole)
        case "dmail":
            head: list[Span] = [("  ", ink), (f"{glyphs.dmail} ", "dmail"), ("D-Mail", "dmail")]
            return [
                _with_number(head, number, width),
                *_words(message, width, glyphs, ink, "", whole),
            ]
        case "summary":
            head = [
                ("  ", ink),
                (f"{glyphs.compaction} ", "compaction"),
                ("Compacted", "compaction"),
            ]
            return [
                _with_number(head, number, width),
                *_words(message, width, glyphs, ink, "", whole),
            ]
        case _:
            return _words(message, width, glyphs, ink, "", whole)


def _words(
    message: LineMessage, width: int, glyphs: Glyphs, style: str, number: str, whole: bool
) -> list[list[Span]]:
    room = max(8, width - MARGIN - 2 - (len(number) + 1 if number else 0))
    wrapped: list[str] = []
    for part in clean(message.text).strip().split("\n"):
        wrapped += numbers.wrap_words(part.replace("\t", "    "), room) or [""]
    hidden = len(wrapped) - TEXT_ROWS
    shown = wrapped if whole or hidden <= 1 else wrapped[:TEXT_ROWS]
    edge = glyphs.edge if message.kind == "user" else " "
    rows: list[list[Span]] = [
        [(f"{edge}   ", "accent"), (numbers.cut(text, room, glyphs.cut), style)] for text in shown
    ]
    if len(shown) < len(wrapped):
        rows.append([(f"{edge}   ", "accent"), (f"+{hidden} lines", "quiet")])
    if number:
        rows[0] = _with_number(rows[0], number, width)
    return rows


def _tool(
    entry: Entry, width: int, glyphs: Glyphs, number: str, *, whole: bool
) -> list[list[Span]]:
    message = entry.message
    sign = (glyphs.failed, "error") if message.failed else (glyphs.done, "ok")
    if entry.same:
        sign = (sign[0], "quiet")
    name = f"{short_name(message.name)} ".ljust(NAME_WIDTH)
    room = width - MARGIN - cell_len(name) - len(number) - 4
    target = numbers.cut(one_line(message.target), max(1, room), glyphs.cut)
    rows = [
        _with_number(
            [
                ("  ", "quiet"),
                (f"{sign[0]} ", sign[1]),
                (name, "quiet" if entry.same else "tool"),
                (target, "quiet" if entry.same else "ink"),
            ],
            number,
            width,
        )
    ]
    if whole:
        rows += [
            [(" " * (MARGIN + 2), "quiet"), (numbers.cut(part, width - 8, glyphs.cut), "quiet")]
            for part in clean(message.text).strip().split("\n")
        ]
    return rows


def _with_number(spans: list[Span], number: str, width: int) -> list[Span]:
    gap = width - 2 - sum(cell_len(text) for text, _ in spans) - len(number)
    return [*spans, (" " * max(1, gap), "quiet"), (number, "quiet")]


# The files


def file_rows(
    files: FilesPreview, unfolded: frozenset[int], width: int, glyphs: Glyphs
) -> list[tuple[list[Span], int]]:
    """The files that differ now, with the index of each (-1: a row of a diff, or a sentence)."""
    if files.reason:
        return [
            ([("    ", "quiet"), (numbers.cut(files.reason, width - 6, glyphs.cut), "quiet")], -1)
        ]
    if not files.files:
        return [([("    ", "quiet"), ("They are the same on both.", "quiet")], -1)]
    rows: list[tuple[list[Span], int]] = []
    for index, one in enumerate(files.files):
        rows.append((_file_row(one, width, glyphs), index))
        if index in unfolded:
            rows += [(spans, -1) for spans in _diff_rows(one, width, glyphs)]
    return rows


def _file_row(one: FilePreview, width: int, glyphs: Glyphs) -> list[Span]:
    fact = "new  " if one.is_new else "gone  " if one.is_gone else ""
    counts = f"+{one.added} {glyphs.minus}{one.removed}" if one.is_text else "not a text"
    name = numbers.path(one_line(one.path), max(8, width - 8 - len(fact) - len(counts)), glyphs.cut)
    gap = width - MARGIN - 2 - cell_len(name) - len(fact) - cell_len(counts)
    return [
        (" " * MARGIN, "quiet"),
        (name, "ink"),
        (" " * max(1, gap), "quiet"),
        (fact, "quiet"),
        (counts, "ink"),
    ]


def _diff_rows(one: FilePreview, width: int, glyphs: Glyphs) -> list[list[Span]]:
    looks = {"+": ("+", "added"), "-": (glyphs.minus, "removed"), " ": (" ", "quiet")}
    rows: list[list[Span]] = []
    for line in one.rows:
        sign, style = looks[line.sign]
        text = numbers.cut(clean(line.text).replace("\t", "    "), max(1, width - 15), glyphs.cut)
        lead = f"{' ' * (MARGIN + 2)}{line.number:>4} "
        rows.append([(lead, "quiet"), (f"{sign} {text}", style)])
    return rows or [[(" " * (MARGIN + 2), "quiet"), ("There is no diff to show.", "quiet")]]

"""A message of one side as rows: short, or whole. Knows no widget."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.cells import cell_len

from kimi_tui.foreign_text import clean, one_line
from kimi_tui.tool_names import short_name
from kimi_tui.tui import numbers
from kimi_tui.tui.chat.answer import AnswerLayout
from kimi_tui.tui.chat.lines import Line, style_parts
from kimi_tui.tui.glyphs import Glyphs
from kimi_tui.tui.spans import Span
from kimi_tui.wire.display import BriefBlock, DiffBlock, ShellBlock

if TYPE_CHECKING:
    from kimi_tui.soul.travel_protocol import LineMessage

TEXT_ROWS = 4
WHOLE_ROWS = 1_000
FOLDED_CHARS = 4_000
"""Characters of a text that are laid out while only its beginning is shown."""
WHOLE_CHARS = 200_000
PIECE_CHARS = 1_500
"""Characters of an answer that are laid out in one go; most answers are shorter."""
NAME_WIDTH = 6
MARGIN = 4
FACT_GAP = 3
NUMBER_WIDTH = 3
SHORTEST_TARGET = 8
WIDEST_FACT = 24


def message_rows(
    message: LineMessage, width: int, glyphs: Glyphs, *, same: bool, whole: bool, lost: bool = False
) -> list[list[Span]]:
    """The rows of a message in a column.

    Args:
        message: what is drawn.
        width: of the column.
        glyphs: the signs in use.
        same: the other side has it too.
        whole: all of it is wanted.
        lost: it stands on the line that was left.
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
            head: list[Span] = [("  ", ink), (f"{glyphs.dmail} ", "dmail"), ("D-Mail", "dmail/b")]
            if message.sent_from >= 0:
                head.append((f" from #{message.sent_from}", ink))
            saved: list[Span] = []
            if message.saved:
                saved.append((f"{glyphs.minus}{numbers.tokens(message.saved)}", "dmail"))
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
    message: LineMessage,
    width: int,
    glyphs: Glyphs,
    style: str,
    number: str,
    whole: bool,
    lost: bool,
) -> list[list[Span]]:
    room = max(8, width - MARGIN - 2 - (len(number) + 1 if number else 0))
    limit = WHOLE_CHARS if whole else FOLDED_CHARS
    text = clean(message.text[:limit]).strip()
    wrapped: list[str] = []
    for part in text.split("\n"):
        wrapped += numbers.wrap_words(part.replace("\t", "    "), room) or [""]
    # Of a very long text only the beginning is laid out; the rest is counted roughly.
    rest = max(0, len(message.text) - limit)
    lines = len(wrapped) + max(rest // room, message.text.count("\n", limit) if rest else 0)
    most = WHOLE_ROWS if whole else TEXT_ROWS
    shown = wrapped if lines - most <= 1 else wrapped[:most]
    edge = (f"{glyphs.edge if message.kind == 'user' else ' '}   ", "quiet" if lost else "accent")
    rows: list[list[Span]] = [
        [edge, (numbers.cut(text, room, glyphs.cut), style)] for text in shown
    ]
    if (hidden := lines - len(shown)) > 0:
        rows.append([edge, (f"+{numbers.grouped(hidden)} lines", "quiet")])
    if number:
        rows[0] = _with_number(rows[0], number, width)
    return rows


def _answer(
    message: LineMessage, width: int, glyphs: Glyphs, *, same: bool, whole: bool
) -> list[list[Span]]:
    """What the agent said, with the rows that it has in the chat."""
    text = clean(message.text[:WHOLE_CHARS]).strip()
    most = WHOLE_ROWS if whole else TEXT_ROWS
    layout = AnswerLayout(width, glyphs, numbered=False)
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
    rows: list[list[Span]] = [
        [(span.text, _quiet(span.style) if same else span.style) for span in line.spans]
        or [(" " * MARGIN, "quiet")]
        for line in shown
    ]
    if (hidden := lines - len(shown)) > 0:
        rows.append([(" " * MARGIN, "quiet"), (f"+{numbers.grouped(hidden)} lines", "quiet")])
    return rows


def _quiet(style: str) -> str:
    """The style in quiet ink, with the flags and the ground that it has."""
    return f"quiet{style.removeprefix(style_parts(style)[0])}"


def _tool(
    message: LineMessage, width: int, glyphs: Glyphs, number: str, *, same: bool, whole: bool
) -> list[list[Span]]:
    sign = (glyphs.failed, "error") if message.failed else (glyphs.done, "ok")
    if same:
        sign = (sign[0], "quiet")
    name = f"{short_name(message.name)} ".ljust(NAME_WIDTH)
    fact = _fact(message, glyphs)
    if same:
        fact = [(text, "quiet") for text, _ in fact]
    room = width - MARGIN - cell_len(name) - max(NUMBER_WIDTH, len(number)) - 4
    if fact:
        taken = FACT_GAP + sum(cell_len(text) for text, _ in fact)
        fact, room = (fact, room - taken) if room - taken >= SHORTEST_TARGET else ([], room)
    target = numbers.cut(one_line(message.target), max(1, room), glyphs.cut)
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
            [(" " * (MARGIN + 2), "quiet"), (numbers.cut(part, width - 8, glyphs.cut), "quiet")]
            for part in lines[:WHOLE_ROWS]
        ]
        if (hidden := message.text.count("\n") + 1 - len(rows)) > 0 and len(lines) > WHOLE_ROWS:
            rows.append(
                [(" " * (MARGIN + 2), "quiet"), (f"+{numbers.grouped(hidden)} lines", "quiet")]
            )
    return rows


def _fact(message: LineMessage, glyphs: Glyphs) -> list[Span]:
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
        spans: list[Span] = []
        if added or not removed:
            spans.append((f"+{numbers.grouped(added)}", "ok"))
        if removed:
            lead = " " if spans else ""
            spans.append((f"{lead}{glyphs.minus}{numbers.grouped(removed)}", "error"))
        return spans
    if brief and brief != message.target:
        brief = numbers.cut(brief, WIDEST_FACT, glyphs.cut)
        return [(brief, "error" if message.failed else "quiet")]
    return [("failed", "error")] if message.failed else []


def _with_number(
    spans: list[Span], number: str, width: int, fact: Sequence[Span] = ()
) -> list[Span]:
    """A row that ends with the number, and a fact before it where there is room."""
    left = sum(cell_len(text) for text, _ in spans)
    size = sum(cell_len(text) for text, _ in fact)
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

"""What an approval shows, row by row, and when it may be answered; nothing here knows a widget.

Everything that will run, be written or be sent stands in these rows, whole: long lines are wrapped, never cut, and
every character that cannot be seen is written out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rich.cells import cell_len, chop_cells

from kimi_tui import foreign_text
from kimi_tui.tui.chat.wrapping import ranges
from kimi_tui.tui.glyphs import UNICODE, Glyphs
from kimi_tui.wire.display import DiffBlock
from kimi_tui.wire.events import ApprovalAnswer, ApprovalRequest

QUIET_S = 0.5
TAB = 4

RowKind = Literal["text", "same", "add", "delete", "path"]


@dataclass(frozen=True, slots=True)
class DetailRow:
    """One row of what will run or be written; `margin` stands before the text and is drawn quietly."""

    text: str
    kind: RowKind = "text"
    margin: str = ""


Writing = Literal["why", "instead"]
"""What the person writes before they answer: why not, or a letter or a command in the place of the agent's."""


@dataclass(frozen=True, slots=True)
class Choice:
    """An answer: its key, its words, and what it tells the engine, or what is to be written first."""

    key: str
    words: str
    then: ApprovalAnswer | Writing


@dataclass(frozen=True, slots=True)
class Field:
    """Where something is written: what stands in it while it is empty, and what Enter does then (`short` in the footer)."""

    placeholder: str
    verb: str
    short: str


_REASON = Field("Why not, and what to do instead", "Say no, and this", "send")
_LETTER = Field("What the agent should have known there", "Send it so", "send")
_COMMAND = Field("What to run", "Run it so", "run")


def field_of(request: ApprovalRequest, writing: Writing) -> Field:
    """The field in which that is written of this request."""
    if writing == "why":
        return _REASON
    return _LETTER if request.kind == "dmail" else _COMMAND


def choices(request: ApprovalRequest) -> tuple[Choice, ...]:
    """The answers to a request; a yes for the session only where one is offered."""
    if request.kind == "dmail":
        return (
            Choice("y", "Yes, send it", "once"),
            Choice("c", "Yes, but change it first", "instead"),
            Choice("n", "No", "no"),
            Choice("e", "No, and say why", "why"),
        )
    session = (
        (Choice("a", visible(request.session_offer), "session"),) if request.session_offer else ()
    )
    return (
        Choice("y", "Yes, once", "once"),
        *session,
        Choice("n", "No", "no"),
        Choice("e", "No, and say why", "why"),
    )


def may_be_changed(request: ApprovalRequest) -> bool:
    """Whether it is a command that a field would show as it is: nothing in it hides."""
    shown = request.detail.replace("\t", " ")
    return request.tool == "Shell" and visible(shown) == shown


def counts(request: ApprovalRequest) -> tuple[int, int] | None:
    """Lines added and removed by all edits of a request; None where it edits nothing."""
    diffs = [block for block in request.display if isinstance(block, DiffBlock)]
    if not diffs:
        return None
    return sum(diff.added for diff in diffs), sum(diff.removed for diff in diffs)


def detail_rows(
    request: ApprovalRequest, width: int, glyphs: Glyphs = UNICODE
) -> tuple[DetailRow, ...]:
    """All of what will run or be written, in rows of at most `width` cells."""
    diffs = [block for block in request.display if isinstance(block, DiffBlock)]
    if not diffs:
        shown = visible(request.detail)
        if request.kind == "dmail":
            return tuple(DetailRow(shown[start:end]) for start, end in ranges(shown, width))
        return tuple(
            DetailRow(piece) for line in shown.split("\n") for piece in wrapped(line, width)
        )
    rows: list[DetailRow] = []
    for diff in diffs:
        if len(diffs) > 1:
            rows += [DetailRow(piece, "path") for piece in wrapped(visible(diff.path), width)]
        rows += _diff_rows(diff, width, glyphs)
    return tuple(rows)


def said_instead(request: ApprovalRequest, written: str) -> str:
    """What the engine is told of a text that was open for changes: empty where it is as the agent wrote it."""
    return "" if written.strip() == request.detail.strip() else written.strip()


def _diff_rows(diff: DiffBlock, width: int, glyphs: Glyphs) -> list[DetailRow]:
    largest = max((line.number for line in diff.lines), default=0)
    digits = max(3, len(str(largest)))
    kinds: dict[str, RowKind] = {" ": "same", "+": "add", "-": "delete"}
    rows: list[DetailRow] = []
    for line in diff.lines:
        sign = glyphs.minus if line.sign == "-" else line.sign
        margin = f"{line.number:>{digits}} {sign} "
        pieces = wrapped(visible_code(line.text, glyphs), max(8, width - len(margin)))
        for index, piece in enumerate(pieces):
            rows.append(
                DetailRow(piece, kinds[line.sign], margin if not index else " " * len(margin))
            )
    if not diff.lines:
        rows.append(DetailRow("an empty file" if diff.created else "no line changes"))
    return rows


def visible_code(text: str, glyphs: Glyphs = UNICODE) -> str:
    """A line of a file with its tabs drawn as arrows up to the next stop, all else as `visible` shows it."""
    shown = ""
    for index, part in enumerate(text.split("\t")):
        if index:
            room = TAB - cell_len(shown) % TAB
            shown += glyphs.to + " " * (room - 1)
        shown += visible(part)
    return shown


def visible(text: str) -> str:
    """The text with every character that cannot be seen written out, also those that no font has (yet)."""
    text = foreign_text.visible(text)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else f"<U+{ord(c):04X}>" for c in text)


def wrapped(line: str, width: int) -> list[str]:
    """The line in pieces of at most `width` cells; nothing is dropped, not even blanks."""
    if cell_len(line) <= width:
        return [line]
    return chop_cells(line, width)


class QuietKeyboard:
    """Tells whether a key may answer: only when none was pressed for half a second.

    What the person types for the prompt while a request appears must not answer it, so keys that come too early are
    dropped and begin the wait anew.
    """

    def __init__(self, now: float, last_key_at: float) -> None:
        self._last = max(now, last_key_at)

    def remaining_s(self, now: float) -> float:
        """How long it must still be quiet."""
        return max(0.0, self._last + QUIET_S - now)

    def accepts(self, now: float) -> bool:
        """Whether a key pressed now counts; one that does not begins the wait anew."""
        ready = self.remaining_s(now) == 0.0
        if not ready:
            self._last = now
        return ready

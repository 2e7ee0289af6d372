"""The model of an approval: its answers, and the rows of what will run, be written or be sent. This module has no widget.

The rows contain the complete text: long lines are wrapped, never cut, and every invisible character is written out. `Detail`
is the part that may be long; it scrolls, and notes whether its last row has been on the screen.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Literal

from rich.cells import cell_len, chop_cells

from kimi_tui import foreign_text
from kimi_tui.agent_parts import LET_DECIDE
from kimi_tui.tool_cards import DiffBlock
from kimi_tui.tui.glyphs import UNICODE, Glyphs
from kimi_tui.tui.row_window import RowWindow
from kimi_tui.tui.rows import MARGIN, RIGHT, Span, iter_ranges, ranges
from kimi_tui.wire.events import ApprovalAnswer, ApprovalRequest, RequestKind

TAB = 4
PART_CHARS = 4_096
LAID_OUT_S = 0.005
"""Seconds of a time slice of laying out rows."""
LAID_OUT_ROWS = 200
"""The largest number of rows that are laid out in one time slice."""
CHANGE_KEY = "ctrl+g"
"""The key that edits the command in question before it is approved."""

_EXACT = frozenset[RequestKind]({"tool", "pause"})
"""The kinds of requests whose detail is no prose, so that rows may end within words."""

RowKind = Literal["text", "same", "add", "delete", "path"]


@dataclass(frozen=True, slots=True)
class DetailRow:
    """One row of what will run or be written. `margin` is drawn quietly before the text; `spans` are the text in its styles."""

    text: str
    kind: RowKind = "text"
    margin: str = ""
    spans: tuple[Span, ...] = ()


NOTE_GAP = "  "
"""The blanks between the words of an option and its explanation."""
Writing = Literal["why", "instead"]
"""The user's text with an answer: a reason for no, or a D-Mail or command in place of the agent's."""


@dataclass(frozen=True, slots=True)
class Choice:
    """An answer: its key and words, its value for the engine or the text that must be written first, and the feedback with it.

    `note` explains an option of the agent's. If several options may be chosen, choosing one checks or unchecks its box.
    """

    key: str
    words: str
    then: ApprovalAnswer | Writing | Literal["check"]
    says: str = ""
    note: str = ""

    @property
    def text(self) -> str:
        """The complete text of the answer, with its key."""
        return f"{self.key}  {self.words}{NOTE_GAP if self.note else ''}{self.note}"


@dataclass(frozen=True, slots=True)
class Field:
    """The text field of an approval: its placeholder, and the effect of Enter (`short` is the wording in the footer)."""

    placeholder: str
    verb: str
    short: str


_REASON = Field("The reason, and what to do instead", "Say no and send this", "send")
_LETTER = Field("What the agent should have known", "Send this D-Mail instead", "send")
_PLAN = Field("The plan", "Approve this plan", "approve")
_ANSWER = Field("Your answer", "Send this answer", "send")
_COMMAND = Field("The command to run", "Run this command", "run")
_TOLD = Field("What the agent should know", "Send this to the agent and let it continue", "send")


def field_of(request: ApprovalRequest, writing: Writing) -> Field:
    """Return the field for a kind of writing in a request."""
    if writing == "why":
        return _REASON
    fields = {"dmail": _LETTER, "plan": _PLAN, "question": _ANSWER, "pause": _TOLD}
    return fields.get(request.kind, _COMMAND)


THIS_FUTURE = "this future"
"""The words for a future that asks, in the sentences about what Esc or a no stops."""


def choices(request: ApprovalRequest, stops: str = "") -> tuple[Choice, ...]:
    """Return the answers to a request; a yes for the session or the project only if one is offered.

    Args:
        request: the request.
        stops: what a no without a reason stops; `THIS_FUTURE`, or the turn.
    """
    is_several = request.kind == "question" and request.multi_select
    notes = explanations(request)[0] if request.kind == "question" else {}
    no = "No, and stop this future" if stops == THIS_FUTURE else "No, and stop the turn"
    shown = _shown_options(request) if request.kind == "question" else {}
    keys = yes_no_keys(request)
    offered = tuple(
        Choice(
            keys.get(words) or str(number),
            shown.get(words) or visible(words),
            "check" if is_several else "once",
            words,
            notes.get(words, ""),
        )
        for number, words in enumerate(request.options[:9], 1)
    )
    if request.kind == "question":
        return (
            *offered,
            Choice("e", "Other (your own answer)", "instead"),
            Choice("l" if keys else "n", visible(request.no_offer) or LET_DECIDE, "once"),
        )
    if request.kind == "pause":
        told = (Choice("e", visible(request.words_offer), "instead"),)
        return (
            *offered,
            *(told if request.words_offer else ()),
            Choice("n", visible(request.no_offer), "no"),
        )
    change = (
        (Choice("c", "Yes, but let me edit it first", "instead"),)
        if fits_a_field(request.detail)
        else ()
    )
    if request.kind == "plan":
        return (
            *offered,
            *change,
            Choice("n", no, "no"),
            Choice("e", "No, keep planning: say what is missing", "why"),
        )
    if request.kind == "dmail":
        return (
            Choice("y", "Yes, send it", "once"),
            *change,
            Choice("n", "No", "no"),
            Choice("e", "No, and say why", "why"),
        )
    session = (
        (Choice("a", visible(request.session_offer), "session"),) if request.session_offer else ()
    )
    project = (
        (Choice("p", visible(request.project_offer), "project"),) if request.project_offer else ()
    )
    return (
        Choice("y", "Yes, once", "once"),
        *session,
        *project,
        Choice("n", no if request.stops else "No", "no"),
        Choice("e", "No, and say why", "why"),
    )


MOST_CHARS = 10_000
MOST_LINES = 1_000
LONGEST_LINE = 2_000
"""The largest number of characters of a line in the field: laying out more would delay every key."""


def fits_a_field(text: str) -> bool:
    """Return whether a text can be edited in a field."""
    if len(text) > MOST_CHARS or text.count("\n") >= MOST_LINES:
        return False
    return max(map(len, text.split("\n"))) <= LONGEST_LINE


def may_be_changed(request: ApprovalRequest) -> bool:
    """Return whether a request is about a command that can be edited in a field: it has no invisible characters."""
    shown = request.detail.replace("\t", " ")
    return request.changeable and fits_a_field(shown) and visible(shown) == shown


def counts(request: ApprovalRequest) -> tuple[int, int] | None:
    """Return the lines added and removed by all edits of a request; None if it edits nothing."""
    diffs = [block for block in request.display if isinstance(block, DiffBlock)]
    if not diffs:
        return None
    return sum(diff.added for diff in diffs), sum(diff.removed for diff in diffs)


def detail_rows(
    request: ApprovalRequest, width: int, glyphs: Glyphs = UNICODE
) -> Iterator[DetailRow]:
    """Yield the complete text that will run or be written, in rows of at most `width` cells, one after another."""
    diffs = [block for block in request.display if isinstance(block, DiffBlock)]
    if not diffs:
        shown = visible(request.detail)
        drawn = _drawn(shown, width, glyphs) if request.kind == "plan" else None
        if drawn is not None:
            yield from drawn
        elif shown and request.kind not in _EXACT:
            yield from (DetailRow(shown[start:end]) for start, end in iter_ranges(shown, width))
        elif shown:
            for line in shown.split("\n"):
                yield from map(DetailRow, wrapped(line, width))
        return
    for diff in diffs:
        if len(diffs) > 1:
            yield from (DetailRow(piece, "path") for piece in wrapped(visible(diff.path), width))
        yield from _diff_rows(diff, width, glyphs)


def _drawn(text: str, width: int, glyphs: Glyphs) -> list[DetailRow] | None:
    """Return the rows of a Markdown text; None if it must be shown as it is written."""
    # This module is imported before the first answer of the agent, which imports the parser.
    from kimi_tui.tui.transcript.markdown_stream import faithful_rows

    rows = faithful_rows(text, width + MARGIN + RIGHT, glyphs)
    if rows is None:
        return None
    made: list[DetailRow] = []
    for row in rows:
        spans = row.shown.spans
        if spans and spans[0].text == " " * MARGIN:
            spans = spans[1:]
        made.append(DetailRow("".join(span.text for span in spans), spans=spans or (Span(""),)))
    return made


def explanations(request: ApprovalRequest) -> tuple[dict[str, str], list[str]]:
    """Return the explanations of the options of the agent's question, and the lines that belong to no option."""
    from kimi_tui.tui.transcript.markdown import plain_text

    lines = request.detail.split("\n") if request.detail else []
    notes: dict[str, str] = {}
    for label in request.options[:9]:
        line = next((one for one in lines if one.startswith(f"{label}: ")), "")
        if line:
            lines.remove(line)
            notes[label] = plain_text(visible(line.removeprefix(f"{label}: ")))
    return notes, [visible(line) for line in lines]


def _shown_options(request: ApprovalRequest) -> dict[str, str]:
    """Return the options of the agent's question as they are drawn, without the marks of Markdown."""
    from kimi_tui.tui.transcript.markdown import plain_text

    return {label: plain_text(visible(label)) for label in request.options[:9]}


def yes_no_keys(request: ApprovalRequest) -> dict[str, str]:
    """Return the keys `y` and `n` by option, for a question of the agent with a yes and a no as its options; else nothing."""
    keys = {
        label: label.casefold()[:1]
        for label in request.options
        if label.casefold().split(",")[0].split(" ")[0].rstrip(".!") in ("yes", "no")
    }
    is_yes_no = sorted(keys.values()) == ["n", "y"] and len(request.options) == 2
    return keys if request.kind == "question" and is_yes_no and not request.multi_select else {}


ANSWER_WORDS = {"y": "y", "yes": "y", "ok": "y", "okay": "y", "n": "n", "no": "n"}
"""Words that are typed as an answer, and the key of that answer."""


def answer_of_word(offered: Sequence[Choice], word: str) -> Choice | None:
    """Return the answer that a typed word gives (`yes`, `ok`, `no`, or an option's own words); None if it gives none.

    Args:
        offered: the answers of the request.
        word: the typed word.
    """
    said = word.strip().casefold()
    if not said:
        return None
    key = ANSWER_WORDS.get(said, "")
    for one in offered:
        if one.says and said in (one.says.casefold(), one.words.casefold()):
            return one
        if (
            one.then in ("once", "no")
            and one.key == key
            and one.words.casefold().startswith(("yes", "no"))
        ):
            return one
    return None


SEVERAL = "; "
"""The separator of several chosen options."""


def said_instead(request: ApprovalRequest, written: str) -> str:
    """Return the text to send to the engine after the user could edit one; empty if it is as the agent wrote it."""
    if request.kind in ("question", "pause"):
        return written.strip()
    return "" if written.strip() == request.detail.strip() else written.strip()


def _diff_rows(diff: DiffBlock, width: int, glyphs: Glyphs) -> Iterator[DetailRow]:
    largest = max((line.number for line in diff.lines), default=0)
    digits = max(3, len(str(largest)))
    kinds: dict[str, RowKind] = {" ": "same", "+": "add", "-": "delete"}
    for line in diff.lines:
        sign = glyphs.minus if line.sign == "-" else line.sign
        margin = f"{line.number:>{digits}} {sign} "
        for piece in _code_pieces(line.text, max(8, width - len(margin)), glyphs):
            yield DetailRow(piece, kinds[line.sign], margin)
            margin = " " * len(margin)
    if not diff.lines:
        yield DetailRow("an empty file" if diff.created else "no line changes")


def _code_pieces(line: str, width: int, glyphs: Glyphs) -> Iterator[str]:
    """Yield a line of a file in pieces of at most `width` cells; a very long line is laid out part by part."""
    rest = ""
    for start in range(0, len(line) or 1, PART_CHARS):
        pieces = wrapped(rest + visible_code(line[start : start + PART_CHARS], glyphs), width)
        rest = pieces.pop() if start + PART_CHARS < len(line) else ""
        yield from pieces


def visible_code(text: str, glyphs: Glyphs = UNICODE) -> str:
    """Return a line of a file with its tabs drawn as arrows up to the next stop, and all other characters as `visible` shows them."""
    shown = ""
    for index, part in enumerate(text.split("\t")):
        if index:
            room = TAB - cell_len(shown) % TAB
            shown += glyphs.to + " " * (room - 1)
        shown += visible(part)
    return shown


def visible(text: str) -> str:
    """Return the text with every invisible character written out, also those that no font has (yet)."""
    text = foreign_text.visible(text)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else f"<U+{ord(c):04X}>" for c in text)


def wrapped(line: str, width: int) -> list[str]:
    """Return the line in pieces of at most `width` cells; nothing is dropped, not even spaces."""
    if cell_len(line) <= width:
        return [line]
    return chop_cells(line, width)


FEW_ROWS = 12
AROUND = 5
"""Rows of a small screen that are left for the rest of the screen, and for the line that says which rows are shown."""
AROUND_WHOLE = 12
"""Rows of a large screen that are left for the same if all of the detail is shown."""


class Detail:
    """The details of an approval (the whole command, diff or text), and the rows of it that are shown.

    For a question of the agent the rows are its options; `show_answer` and `has_shown_answer` take their index.

    Args:
        request: the request.

    Attributes:
        is_laid_out: whether all rows are laid out; else `lay_out` must be called again.
        seen_end: whether the last row has been on the screen.
        n_read: the number of rows from the first on that have all been on the screen.
    """

    def __init__(self, request: ApprovalRequest) -> None:
        self._request = request
        self._rows: list[DetailRow] = []
        self._coming: Iterator[DetailRow] = iter(())
        self.is_laid_out = True
        self._width = 0
        self._screen_height = 0
        self._beside = 0
        self._moved_here: tuple[str, ...] = ()
        self._window = RowWindow()
        self._is_whole = False
        self.seen_end = False
        self.n_read = 0
        self._answers: dict[int, range] = {}
        """The rows of each answer of a question, by the index of the answer."""
        self._asked = range(0)
        """The rows of the question itself, if it is too long for its place above."""
        self._shown: set[int] = set()
        """The rows of a question that have been on the screen."""

    def fit(
        self,
        width: int,
        screen_height: int,
        glyphs: Glyphs,
        *,
        beside: int,
        moved_here: tuple[str, ...] = (),
    ) -> None:
        """Set the sizes.

        Args:
            width: cells of a row.
            screen_height: rows of the screen.
            glyphs: the set of signs.
            beside: rows of the panel besides the details.
            moved_here: texts of the panel that were too long for their place; they come first in the details.
        """
        self._screen_height = screen_height
        self._beside = beside
        if (width, moved_here) != (self._width, self._moved_here):
            self._width = width
            self._moved_here = moved_here
            if self._request.kind == "question":
                self._coming = iter(())
                self._rows = self._offered(moved_here)
            else:
                self._coming = detail_rows(self._request, width, glyphs)
                self._rows = [
                    DetailRow(row, "path") for text in moved_here for row in self._broken(text)
                ]
            # The rows are other ones now; reading progress carries over only if all of them were read.
            self.n_read = sys.maxsize if self.n_read and not self.passed_over else 0
            self.is_laid_out = False
            self.lay_out()

    def _offered(self, moved_here: tuple[str, ...]) -> list[DetailRow]:
        """Return the rows of a question: texts that had no room above, and each answer that is longer than in its place below."""
        texts = [choice.text for choice in choices(self._request) if choice.says]
        _, others = explanations(self._request)
        rows = [
            DetailRow(row, "path")
            for text in moved_here
            if text not in texts
            for row in self._broken(text)
        ]
        self._answers.clear()
        self._shown.clear()
        self._asked = range(len(rows))
        for at, text in enumerate(texts):
            if text in moved_here:
                begin = len(rows)
                rows += [DetailRow(row) for row in self._broken(text)]
                self._answers[at] = range(begin, len(rows))
        return rows + [DetailRow(row) for text in others for row in self._broken(text)]

    def show_answer(self, at: int) -> None:
        """Scroll to the rows of one answer of a question, from its first row on; the rows of the question come before them."""
        if not self._shown.issuperset(self._asked):
            at_row = next(row for row in self._asked if row not in self._shown)
            self._turn_to(at_row)
        elif at in self._answers:
            self._turn_to(self._answers[at].start)

    def has_shown_answer(self, at: int) -> bool:
        """Return whether one answer of a question, and the question itself, have been on the screen to their last rows."""
        return self._shown.issuperset((*self._asked, *self._answers.get(at, ())))

    def lay_out(self) -> None:
        """Lay out more rows, for a bounded time."""
        end = time.perf_counter() + LAID_OUT_S
        while not self.is_laid_out:
            some = list(islice(self._coming, LAID_OUT_ROWS))
            self._rows += some
            self.is_laid_out = len(some) < LAID_OUT_ROWS
            if time.perf_counter() > end:
                return

    def note_shown(self) -> None:
        """Note that the rows in view have been on the screen."""
        if self._request.kind == "question":
            self._shown.update(self._view)
        if self._view.start <= self.n_read:
            self.n_read = max(self.n_read, self._view.stop)
        if self.at_end:
            self.seen_end = True

    @property
    def passed_over(self) -> bool:
        """Whether rows before the last one have not been on the screen."""
        return self.n_read < len(self._rows) or not self.is_laid_out

    def _broken(self, text: str) -> list[str]:
        """Return the rows of a text that came here: prose is broken between words, any other text at the end of a row."""
        if self._request.kind in _EXACT:
            return wrapped(text, self._width)
        return [text[start:end] for start, end in ranges(text, self._width)]

    @property
    def room(self) -> int:
        """The largest number of rows that may be shown."""
        if self._is_whole and self._whole_room > FEW_ROWS:
            return self._whole_room
        return min(FEW_ROWS, max(1, self._screen_height - AROUND - self._beside))

    @property
    def shows_all(self) -> bool:
        """Whether every row is shown at once."""
        return self.is_laid_out and self.room >= len(self._rows)

    @property
    def at_end(self) -> bool:
        """Whether the last row is shown."""
        return self.is_laid_out and self._view.stop == len(self._rows)

    @property
    def more_words(self) -> str:
        """The footer's words for `toggle_whole`; empty if it does nothing."""
        if len(self._rows) <= FEW_ROWS or self._whole_room <= FEW_ROWS:
            return ""
        if self._is_whole:
            return "less"
        if len(self._rows) > self._whole_room:
            return "more rows"
        return "full text" if counts(self._request) is None else "full diff"

    @property
    def shown(self) -> Sequence[DetailRow]:
        """The visible rows."""
        return self._rows[self._view.start : self._view.stop]

    @property
    def place_words(self) -> str:
        """The words that say which of how many rows are visible."""
        so_far = "" if self.is_laid_out else ", loading more"
        return f"rows {self._view.start + 1} to {self._view.stop} of {len(self._rows)}{so_far}"

    def toggle_whole(self) -> None:
        """Switch between a few rows and as many as fit on the screen; do nothing if that would not be more."""
        if self.more_words:
            self._is_whole = not self._is_whole

    def scroll(self, key: str, rows: int = 1) -> None:
        """Scroll the rows.

        Args:
            key: the pressed key: pageup, pagedown, home, end, ctrl+up or ctrl+down.
            rows: the number of rows for the last two keys.
        """
        step = self._window.step_of(key.removeprefix("ctrl+"), max(1, len(self._view) - 1))
        if step is not None:
            self._window.move(step * rows if key in ("ctrl+up", "ctrl+down") else step)

    def _turn_to(self, row: int) -> None:
        """Scroll so that a row is the first one on view, as far as there are rows below it."""
        self._window.move(row - self._view.start)

    @property
    def _view(self) -> range:
        """The indices of the visible rows, whose number grows while they are laid out."""
        return self._window.fit(len(self._rows), self.room)

    @property
    def _whole_room(self) -> int:
        return self._screen_height - AROUND_WHOLE - self._beside

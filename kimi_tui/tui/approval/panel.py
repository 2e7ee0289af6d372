"""The approval in the place of the prompt: the question, the complete text that will run or be written, and the answers.

No answer is selected at first. A letter answers once no other key follows it, Enter only after the arrows have chosen a row,
and yes only after the end of the text was on the screen. A question or answer that is too long for its own place stands in
full among the rows of the detail.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import ClassVar

from rich.cells import cell_len
from textual import events, on
from textual.app import ComposeResult
from textual.geometry import Region
from textual.message import Message
from textual.reactive import reactive
from textual.strip import Strip
from textual.timer import Timer
from textual.widget import Widget

from kimi_tui.foreign_text import clean, one_line
from kimi_tui.tui.approval.model import (
    ANSWER_WORDS,
    AROUND,
    CHANGE_KEY,
    NOTE_GAP,
    SEVERAL,
    Choice,
    Detail,
    DetailRow,
    RowKind,
    Writing,
    answer_of_word,
    choices,
    counts,
    field_of,
    fits_a_field,
    may_be_changed,
    said_instead,
    visible,
    wrapped,
)
from kimi_tui.tui.diff import change_counts
from kimi_tui.tui.formatting import Wordings, cut, cut_wording
from kimi_tui.tui.glyphs import Glyphs, glyphs_of
from kimi_tui.tui.key_names import key_of, keys_of, newline_keys
from kimi_tui.tui.key_sequences import CHORDS
from kimi_tui.tui.keyboard import LetterRun, QuietKeyboard, row_of_digit
from kimi_tui.tui.prompt.area import PromptArea
from kimi_tui.tui.row_list import PaintedRows, plain
from kimi_tui.tui.rows import BLANK, Line, Span, ranges, spans_width
from kimi_tui.tui.screens import app_of
from kimi_tui.tui.terminal_input import PaintWatch, has_extended_keys
from kimi_tui.wire.events import ApprovalAnswer, ApprovalRequest

EDGE = 1
"""Cells of the accent at the left of every row."""
SIDES = 6
"""Cells of a row that texts of a question or a place leave free."""
_INDENT = Span("   ")


def _question_rows(
    request: ApprovalRequest, waiting: int, width: int, glyphs: Glyphs
) -> list[Line]:
    """Return the question, with its changes in figures and the number of waiting requests at the right."""
    side = _beside(request, waiting, glyphs)
    sign = f"{glyphs.dmail} " if request.kind == "dmail" else ""
    room = max(10, width - SIDES - spans_width(side) - 2 - cell_len(sign))
    asked = visible(request.question).replace("\n", " ")
    if request.kind == "question":
        # This module is imported before the first answer of the agent, which imports the parser.
        from kimi_tui.tui.transcript.markdown import plain_text

        asked = plain_text(asked)
    # A question of the agent is prose, in which no space needs to be visible.
    pieces = _in_words(asked, room, is_prose=request.kind in ("question", "pause"))
    # A diff does not name its file, so the file is shown here, and never cut.
    target = visible(request.detail).replace("\n", " ") if counts(request) is not None else ""
    fits = len(pieces) == 1 and cell_len(pieces[0]) + 2 + cell_len(target) <= room
    named = (Span(f"  {target}"),) if target and fits else ()
    first = (_INDENT, Span(sign, "dmail"), Span(pieces[0], "strong"), *named)
    gap = " " * max(1, width - EDGE - 2 - spans_width(first) - spans_width(side))
    rows = [Line((*first, Span(gap), *side))]
    before = Span(" " * cell_len(sign))
    rows += [Line((_INDENT, before, Span(piece, "strong"))) for piece in pieces[1:]]
    if target and not fits:
        rows += [Line((_INDENT, Span(piece))) for piece in wrapped(target, width - SIDES)]
    return rows


def _in_words(text: str, width: int, *, is_prose: bool = False) -> list[str]:
    """Return the text in rows of whole words. Outside of prose, runs of spaces are kept even where a row ends."""
    if not is_prose and "  " in text:
        return wrapped(text, width)
    words = text.split(" ")
    if not is_prose and max(map(cell_len, words)) > width:
        # A path that is longer than a row begins right after the word before it, which would be alone in its row otherwise.
        rows = [""]
        for word in words:
            joined = f"{rows[-1]} {word}" if rows[-1] else word
            if cell_len(word) > width or cell_len(joined) <= width:
                rows[-1:] = wrapped(joined, width)
            else:
                rows.append(word)
        return rows
    return [text[start:end] for start, end in ranges(text, width)]


def _beside(request: ApprovalRequest, waiting: int, glyphs: Glyphs) -> list[Span]:
    changed = counts(request)
    parts = change_counts(*changed, glyphs) if changed is not None else []
    if waiting > 1:
        parts += [Span(f"{'   ' if parts else ''}1 of {waiting}", "quiet")]
    return parts


_DIFF_STYLES: Mapping[RowKind, str] = {
    "add": "add@add-bg",
    "delete": "del@del-bg",
    "path": "strong",
}


def detail_row(row: DetailRow, width: int) -> Line:
    """Return a row of the detail, with the background of the detail."""
    room = width - EDGE - 3 - 2
    # The numbers of a diff stand as in the chat, one cell to the left of other text here.
    text = f" {row.margin}{row.text}" if row.margin else f"  {row.text}"
    fill = " " * max(0, room - cell_len(text))
    if row.spans:
        runs = (
            span if "@" in span.style else span._replace(style=f"{span.style}@page")
            for span in row.spans
        )
        return Line((_INDENT, Span("  ", "ink@page"), *runs, Span(fill, "ink@page")))
    return Line((_INDENT, Span(text + fill, _DIFF_STYLES.get(row.kind, "ink@page"))))


def _place_rows(request: ApprovalRequest, width: int) -> list[Line]:
    """Return rows that say where it runs, and what that means."""
    where = request.where
    if request.kind in ("plan", "dmail") and not fits_a_field(request.detail):
        where = "too long to edit here"
    if not where:
        return []
    pieces = _in_words(visible(where).replace("\n", " "), max(10, width - SIDES))
    return [plain(f"   {piece}", "quiet") for piece in pieces]


Toll = Callable[[int, Glyphs], Sequence[Sequence[Span]]]
"""Returns in rows of a width in cells what a D-Mail would remove and keep, as in the preview of a rewind."""


def _answer_rows(
    choice: Choice, width: int, *, chosen: bool, accepts_keys: bool, box: str = "", cut: str = ""
) -> list[Line]:
    """Return an answer with its key, in as many rows as its words need.

    Args:
        choice: the answer.
        width: cells of the panel.
        chosen: whether the arrows have selected it.
        accepts_keys: whether a key would count now.
        box: the box before its words, if several options may be chosen; else empty.
        cut: the sign at the end of the only row, if there is no room for more; empty for all rows.
    """
    back = "@select" if chosen else ""
    key = f"accent/b{back}" if accepts_keys else f"quiet{back}"
    words = f"strong{back}" if chosen else f"ink{back}"
    rows: list[Line] = []
    room = max(10, width - 9 - cell_len(box))
    text = f"{choice.words}{NOTE_GAP}{choice.note}" if choice.note else choice.words
    pieces = wrapped(text, room)
    starts = [0] * len(pieces)
    # An option of the agent is prose. Another answer may name a command, whose spaces and long paths count.
    is_plain = "  " not in choice.words and max(map(cell_len, text.split(" "))) <= room
    if len(pieces) > 1 and (choice.says or is_plain):
        found = ranges(text, room)
        pieces, starts = [text[start:end] for start, end in found], [start for start, _ in found]
        if cut and choice.says:
            _, end = ranges(text, room - 2)[0]
            pieces, starts = [f"{text[:end]} {cut}"], [0]
    for number, (piece, start) in enumerate(zip(pieces, starts, strict=True)):
        sign, before = (choice.key, box) if not number else (" ", " " * cell_len(box))
        n_words = max(0, len(choice.words) - start) if choice.note else len(piece)
        row = (
            Span(f"  {sign}  ", key),
            Span(f"{before}{piece[:n_words]}", words),
            Span(piece[n_words:], f"quiet{back}"),
        )
        fill = " " * max(0, width - EDGE - 1 - 2 - spans_width(row))
        rows.append(Line((Span(" "), *row, Span(fill, f"ink{back}"))))
    return rows


def _key_hints(
    answers: tuple[Choice, ...],
    glyphs: Glyphs,
    *,
    can_change: bool,
    mode_key: str,
    reads_on: bool,
    tab_words: str,
    stops: str,
) -> tuple[tuple[str, str], ...]:
    """Return the footer's hints while answers are shown.

    Args:
        answers: the answers.
        glyphs: the set of signs.
        can_change: whether the request is about a command that can be edited.
        mode_key: the key that changes the approval mode; empty for none.
        reads_on: whether there are more rows than are visible.
        tab_words: the words for Tab; empty if Tab leads to the chat.
        stops: what Esc stops.
    """
    boxes = [choice.key for choice in answers if choice.then == "check"]
    others = "/".join(choice.key for choice in answers if choice.then != "check")
    several = (
        (f"{'/'.join(boxes)} Space", "check"),
        ("Enter", "send"),
        (others, "answer"),
        (f"{glyphs.up}{glyphs.down}", "choose"),
    )
    digits = "" if others[:1].isdecimal() else f"1-{len(answers)} "
    one = ((others, "answer"), (f"{digits}{glyphs.up}{glyphs.down} Enter", "choose"))
    return (
        *(several if boxes else one),
        *(((f"PageDown{glyphs.down}", "read more"),) if reads_on else ()),
        *((("Tab", tab_words),) if tab_words else ()),
        *((("Ctrl+G", "edit the command"),) if can_change else ()),
        *(((mode_key, "mode"),) if mode_key else ()),
        *(() if tab_words else (("Tab", "chat"),)),
        ("Esc", f"stop {stops}"),
    )


def keys_row(
    answers: Sequence[Choice],
    width: int,
    glyphs: Glyphs,
    *,
    chosen: int | None,
    accepts_keys: bool,
    checked: Collection[Choice] = (),
) -> Line:
    """Return the keys of all answers in one row, with the words of the selected one, if any; `key_at` finds them in it."""
    key = "accent/b" if accepts_keys else "quiet"
    row = [Span("  ")]
    row += [
        Span(
            f"{glyphs.done if one in checked else ' '}{one.key} ",
            f"{key}@select" if at == chosen else key,
        )
        for at, one in enumerate(answers)
    ]
    if chosen is None:
        return Line((*row,))
    box = _box(answers[chosen], checked, glyphs)
    words = cut(
        f"{box}{answers[chosen].text[len(answers[chosen].key) + 2 :]}",
        max(1, width - EDGE - 5 - spans_width(row)),
        glyphs.cut,
    )
    return Line((*row, _INDENT, Span(words, "strong")))


def _box(choice: Choice, checked: Collection[Choice], glyphs: Glyphs) -> str:
    """Return the box before the words of an answer that can be checked; empty for other answers."""
    if choice.then != "check":
        return ""
    return f"[{glyphs.done if choice in checked else ' '}] "


def key_at(answers: Sequence[Choice], x: int) -> Choice | None:
    """Return the answer whose key is at a cell of the panel, in the row that `keys_row` returns."""
    start = EDGE + 2
    for one in answers:
        end = start + len(one.key) + 2
        if start <= x < end:
            return one
        start = end
    return None


def _way_row(key: str, words: str) -> Line:
    """Return a row with a key and its effect while a text is written; a click on it has the same effect."""
    return Line((_INDENT, Span(f"{key:<7}", "accent/b"), Span(words)))


MOST_ROWS = 3
MOST_ROWS_LOW = 2
"""The largest number of rows of each part on a low screen."""
BLANK_ROWS = 2
"""Blank rows: one under the question, one over the answers."""
LOW_DETAIL = 7
"""If fewer rows than this can be read, the answers to a question are replaced by a row of their keys while one is selected."""
BESIDE_ROWS = 8
"""Rows that the detail leaves to the messages above while the panel does not have the keyboard focus."""
WITH_QUESTION = 6
"""Rows of the smallest screen on which a row of the question stands over its details, and not in them."""
LEAST_DETAIL = 3
"""The smallest number of rows of the detail, including the line that says which of them are shown."""


class PanelLayout:
    """The rows of an approval panel, fitted to its width and to the height of the screen: question, place, details and answers.

    Args:
        request: the request.
        answers: the answers to the request.
        width: cells of the panel.
        height: rows of the screen.
        glyphs: the set of signs.
        waiting: the number of waiting requests, including this one.
        chosen: the index of the answer that the arrows have selected.
        accepts_keys: whether a key would count now.
        toll: the rows of what a D-Mail would remove and keep, if that is known.
        folded: whether the answers are one row of keys, so that a low screen has more room for reading.
        checked: the answers that are checked.
        asker: who asks, if it is not the agent of the current conversation.

    Attributes:
        moved: the texts that were too long for their places, without invisible characters.
        n_blank: the number of rows that separate the parts: none if the screen has no room for them.
    """

    def __init__(
        self,
        request: ApprovalRequest,
        answers: Sequence[Choice],
        width: int,
        height: int,
        glyphs: Glyphs,
        *,
        waiting: int,
        chosen: int | None,
        accepts_keys: bool,
        toll: Toll | None = None,
        folded: bool = False,
        checked: Collection[Choice] = (),
        asker: str = "",
    ) -> None:
        self.keys: Line | None = None
        self.n_blank = BLANK_ROWS
        self._most = MOST_ROWS if height >= TALL else MOST_ROWS_LOW
        self.moved: list[str] = []
        target = [request.detail] if counts(request) is not None else []
        question = _question_rows(request, waiting, width, glyphs)
        self.question = self._fitted(question, request.question, *target)
        if asker:
            who = cut(one_line(asker), max(10, width - SIDES), glyphs.cut)
            self.question.insert(0, Line((_INDENT, Span(who, "accent"))))
        drops: Sequence[Sequence[Span]] = ()
        if toll is not None:
            drops = toll(max(10, width - SIDES), glyphs)
            self.question += [Line((_INDENT, *spans)) for spans in drops]
        self.place = self._fitted(_place_rows(request, width), request.where)
        room = height - AROUND - LEAST_DETAIL - len(self.question) - len(self.place) - BLANK_ROWS

        def drawn(cut: str) -> list[list[Line]]:
            return [
                _answer_rows(
                    choice,
                    width,
                    chosen=at == chosen,
                    accepts_keys=accepts_keys,
                    box=_box(choice, checked, glyphs),
                    cut=cut,
                )
                for at, choice in enumerate(answers)
            ]

        rows = drawn("")
        if sum(min(len(each), self._most) for each in rows) > room:
            # Every answer must be visible; the full texts of long ones are added to the rows to read.
            short = drawn(glyphs.cut)
            pairs = zip(answers, rows, short, strict=True)
            self.moved += [one.text for one, whole, cut in pairs if len(cut) < len(whole)]
            rows = short
        if self.moved:
            # The answers may become one row of keys, in which a long one is cut.
            least = width - EDGE - 8 - sum(len(one.key) + 2 for one in answers) - len("[x] ")
            long = [one.text for one in answers if one.says and cell_len(one.text) - 3 > least]
            self.moved += [text for text in long if text not in self.moved]
        self.answers = [
            (choice, self._fitted(each, choice.text if choice.says else choice.words))
            for choice, each in zip(answers, rows, strict=True)
        ]
        most_beside = height - AROUND - 2
        if (folded and chosen is not None) or self.n_rows > most_beside:
            self.answers = []
            self.keys = keys_row(
                answers, width, glyphs, chosen=chosen, accepts_keys=accepts_keys, checked=checked
            )
        if self.n_rows > most_beside:
            # The keys must stay on the screen, so the details get the other texts.
            rows = min(len(self.question), 1 if height >= WITH_QUESTION else 0)
            asked = [request.question, *target] if rows < len(self.question) else []
            tolls = ["".join(span.text for span in spans).strip() for spans in drops]
            said = [one.text for one in answers if one.says]
            texts = [asker] * (not rows) + [*asked, *tolls, request.where, *said]
            shown = (visible(text).replace("\n", " ") for text in texts if text)
            self.moved = [*dict.fromkeys((*self.moved, *shown))]
            self.question, self.place, self.n_blank = self.question[:rows], [], 0

    @property
    def n_rows(self) -> int:
        """The number of rows of the panel."""
        answers = sum(len(rows) for _, rows in self.answers)
        keys = 1 if self.keys is not None else 0
        return len(self.question) + len(self.place) + answers + keys + self.n_blank

    def _fitted(self, rows: list[Line], *texts: str) -> list[Line]:
        if len(rows) <= self._most:
            return rows
        self.moved += [visible(text).replace("\n", " ") for text in texts]
        note = plain("   cut here; the rows above have the full text", "quiet")
        return [*rows[: self._most - 1], note]


REASON_ROWS = 3
UNDER_FIELD = 3
"""Rows between the field and the end of the panel: hints, and blank rows."""
TALL = 30
PASSED = ("mode", "help", "quit", "timeline", "search", "commands", "suspend")
"""Commands whose keys are left to the screen. Keys pressed right after one of them are meant for the view that it opens."""
REST_S = 0.002
"""Seconds between two time slices in which a long text is laid out."""
_PAGES = {"pageup": -1, "pagedown": 1}
ENTER_ANSWERS = "Press Enter to confirm the selected answer."
NO_ANSWER = '"{}" is not an answer. Press one of the keys below.'
NONE_SELECTED = "No answer is selected. Press one of the keys below."
WHICH_YES = "Several answers mean yes. Choose one: {}."
NONE_CHECKED = "Nothing is checked. Space checks the selected row, Enter sends the checked rows."
NONE_CHECKED_SHORT = "Nothing is checked. Space checks a row."
WAITS_BEHIND = "Your text stays in the prompt. Answer first, then send it."
AWAY = "Press Esc to answer."
"""The hint over the answers while the panel does not have the keyboard focus."""


class ApprovalPanel(PaintedRows, can_focus=True):
    """The panel that asks the user to approve one request.

    Args:
        request: the request.
        last_key_at: monotonic time of the last key pressed anywhere.
        keys: the configured keys, by command.
        takes_keys: whether it takes the keyboard focus at first; if not, the widget that has it keeps it.
        write: called with prose, which is meant for the prompt.
        prompt: the prompt below the question, which gets the prose.
        typed_at: the monotonic time at which text was last typed that further keys may continue; 0 for never.
        asker: who asks, if it is not the agent of the current conversation: a future or a sub-agent, with its name.
        stops: what Esc stops.

    Attributes:
        request: as above; so is `asker`.
    """

    IS_EXACT: ClassVar[bool] = True

    class Answered(Message):
        """The user answered the request; `feedback` is the reason for a no, or the text to run or send instead."""

        def __init__(self, request_id: str, answer: ApprovalAnswer, feedback: str = "") -> None:
            super().__init__()
            self.request_id = request_id
            self.answer: ApprovalAnswer = answer
            self.feedback = feedback

    class TooEarly(Message):
        """The user answered before the panel had been visible for long enough."""

    class KeysChanged(Message):
        """The keys of the panel have other meanings now; the footer must list them again."""

    waiting: reactive[int] = reactive(1)
    """The number of waiting requests, including this one."""
    toll: reactive[Toll | None] = reactive[Toll | None](None, layout=True)
    """The rows of what a D-Mail would remove and keep, once that is known."""
    way_back: reactive[str] = reactive("", layout=True)
    """The key that leads back here from what is read in place of the chat; empty for the usual one."""
    hint: reactive[Wordings] = reactive("")
    """A hint over the answers, if the question leaves that row free; empty for none."""

    def __init__(
        self,
        request: ApprovalRequest,
        last_key_at: float,
        keys: Mapping[str, str],
        *,
        takes_keys: bool = True,
        write: Callable[[str], None] | None = None,
        prompt: PromptArea | None = None,
        typed_at: float = 0.0,
        asker: str = "",
        stops: str = "the turn",
    ) -> None:
        super().__init__()
        self.asker = asker
        self._stops = stops
        self._write_behind = write
        self._prompt = prompt
        self._is_behind = False
        """Whether typed text goes into the prompt, until Enter or Esc; its letters must not answer."""
        self._escaped_at = 0.0
        """When Esc was read that no text behind the question precedes; 0 for never."""
        self._word_counts = False
        """Whether the first letter of that text came when an answer would have counted."""
        self._starts_well = False
        """Whether the newest letter that may begin a text came when an answer would have counted."""
        self._letters = LetterRun(self, self._prose, typed_at)
        self.request = request
        self._keys = keys
        self._passed = [key for name in PASSED for key in keys_of(name, keys)]
        self._choices = choices(request, stops)
        self._quiet = QuietKeyboard(time.monotonic(), last_key_at)
        self._paint = PaintWatch(self, self.restart_wait)
        self._awaited: Timer | None = None
        """The timer that checks whether the keyboard is quiet."""
        self._chosen: int | None = None
        self._checked: tuple[Choice, ...] = ()
        """The checked options, in their order; Enter sends them."""
        self._to_show: int | None = None
        """The index of the answer whose rows are scrolled into view at the next frame."""
        self._detail = Detail(request)
        self._asked_early = False
        self._was_told = False
        """Whether the user was told, at a yes, that rows were passed over."""
        self._takes_keys = takes_keys
        self._has_been_left = not takes_keys
        self._laying_out: Timer | None = None
        self._clicks: dict[int, Callable[[int], None]] = {}
        self._places: tuple[object, ...] = ()
        """The clickable places as they were drawn last."""
        self._placing = PaintWatch(self)
        """Waits until these places have been painted."""
        self._turning = PaintWatch(self)
        """Waits until other rows of the detail have been painted."""
        self._opening = PaintWatch(self)
        """Waits until the opened field has been painted."""
        self._pressed_at = 0.0
        """The monotonic time at which the key or click that is being handled was read."""
        self._clicked_at = float("inf")
        """The monotonic time at which the click that will be handled next was read."""
        self._writing: Writing | None = None
        self._written: dict[Writing, str] = {}
        self._is_moved = False
        """Whether the words in the field came from the prompt, so that they must be visible before they are sent."""
        if request.kind not in ("question", "pause"):
            self._written["instead"] = request.detail
        self._field = PromptArea(is_answer=True)
        self._field.display = False

    def compose(self) -> ComposeResult:
        """Yield the field for texts; everything else is drawn."""
        yield self._field

    def on_mount(self) -> None:
        """Take the keys, and show when they begin to count."""
        if self._takes_keys:
            self.focus()
        self._turning.begin()
        self.ignore_early_keys()

    def ignore_early_keys(self) -> None:
        """Ignore keys until the question is on the terminal, and for half a second after that."""
        self._paint.begin()
        self.restart_wait()

    @property
    def key_target(self) -> Widget:
        """The widget that must have the focus if the question has the keys: the field while a text is written in it."""
        return self if self._writing is None else self._field

    def on_focus(self) -> None:
        """Restart the wait when the focus comes back: keys that were pressed elsewhere do not answer."""
        if self._writing is not None:
            # The user clicked beside the field; the text in the field is kept.
            self.screen.set_focus(self._field)
            return
        if self._has_been_left:
            self.restart_wait()
        self.refresh(layout=True)

    def on_blur(self) -> None:
        """Note that the focus is elsewhere, unless it is in the panel's field; leave rows to what is read there."""
        self._has_been_left = self._writing is None
        self.refresh(layout=True)

    def restart_wait(self) -> None:
        """Restart the wait before an answer counts: earlier keys may have been meant for something else."""
        self._letters.cancel()
        self._quiet.restart(time.monotonic())
        self._await_quiet()

    def on_resize(self) -> None:
        """Lay out the panel for the new width; the field may wrap into more or fewer rows."""
        self.call_after_refresh(self._place_field)
        self.post_message(self.KeysChanged())

    @property
    def accepts_keys(self) -> bool:
        """Whether a key would count now."""
        return (
            self.has_focus
            and not self._paint.waits
            and self._quiet.remaining_s(time.monotonic()) == 0.0
        )

    def _accepts(self, at: float) -> bool:
        """Return whether a key or click read at this monotonic time counts; if not, show when one will."""
        self._pressed_at = at
        if self._quiet.accepts(at) and not self._paint.waits:
            return True
        self._await_quiet()
        return False

    @property
    def hints(self) -> tuple[tuple[str, str], ...]:
        """The keys that the footer lists for the panel."""
        glyphs = glyphs_of(self)
        if self._is_behind:
            enter = "back to the answers"
            if answer_of_word(self._choices, self._typed_word) is not None:
                enter = "give this answer"
            elif self._takes_own_words:
                enter = "answer in your own words"
            back = "back to the answers"
            return (("Enter Esc", back),) if enter == back else (("Enter", enter), ("Esc", back))
        if self._writing is not None:
            does = field_of(self.request, self._writing).short
            extended = has_extended_keys(self)
            breaks = next(iter(newline_keys(self._keys, extended=extended)), "")
            line_break = ((breaks, "new line"),) if breaks else ()
            return (("Enter", does), *line_break, ("Esc", "back"))
        return _key_hints(
            self._choices,
            glyphs,
            can_change=may_be_changed(self.request),
            mode_key="" if self.asker else key_of("mode", self._keys),
            stops=self._stops,
            reads_on=not self._detail.shows_all,
            tab_words=self._detail.more_words,
        )

    # --- keys and clicks

    async def intercept(self, event: events.Key) -> bool:
        """Return whether the panel takes a key: a single letter answers, several in quick succession are prose for the prompt.

        Call this before the key is passed on, so that prose keeps its order.
        """
        letters = self._letters
        if letters.is_pending and not letters.follows(event.time):
            await letters.flush()
        if self._writing is not None:
            return False
        if self._is_behind and event.is_printable and not event.key.startswith(CHORDS):
            self.restart_wait()
            if self._write_behind is not None:
                self._write_behind(event.character or "")
            return True
        if event.key == "escape" and not self._is_behind:
            self._escaped_at = event.time
        if not event.is_printable or event.key.startswith(CHORDS) or event.key in self._passed:
            # Enter confirms a pending letter as an answer, unless both were pasted; any other key that follows at once makes it none.
            if event.key == "enter" and not letters.is_of_burst(event.time):
                await letters.flush()
            letters.pop_pending()
            return False
        letter = event.character or ""
        is_prose = letters.is_pending or letters.is_prose(event.time)
        if letter == " " and self._choices[0].then == "check" and not is_prose:
            return False  # the space acts on the row that the arrows have selected
        choice = next((one for one in self._choices if one.key == letter.lower()), None)
        checks = choice is not None and choice.then == "check"
        # An early letter restarts the wait at once; otherwise a held key would count as soon as the wait is over.
        counts = self._accepts(event.time)
        if not is_prose:
            self._starts_well = counts
        row = row_of_digit(letter, len(self._choices)) if choice is None else None
        if row is None:
            act = partial(self._settled, choice, letter, event.time)
        else:
            act = partial(self._point_at, row, event.time)
        # A checked box can be unchecked, so its letter acts at once, without waiting for the next key.
        if not letters.add(letter, event.time, act, moves=checks):
            act(1)
        if not letters.DEBOUNCE_S:
            await letters.flush()
        return True

    def pop_pending(self) -> str:
        """Cancel the answer by a letter that has not been given yet, and return the letter; empty for none."""
        return self._letters.pop_pending()

    def _settled(self, choice: Choice | None, letter: str, at: float, _: int) -> None:
        """Answer by a letter that was pressed alone at this time, if it counted then and the question still has the keys."""
        if not (self.has_focus and self.screen.is_current):
            return
        if not self._accepts(at):
            if choice is not None:
                self.post_message(self.TooEarly())
            return
        if choice is None:
            self.restart_wait()
            if letter.strip():
                self.hint = NO_ANSWER.format(letter)
        else:
            self._decide(choice)

    def _point_at(self, row: int, at: float, _: int) -> None:
        """Select the row of a digit that was pressed alone at this time and is no answer itself; Enter answers."""
        if not (self.has_focus and self.screen.is_current):
            return
        if not self._accepts(at):
            self.post_message(self.TooEarly())
            return
        self.hint = ENTER_ANSWERS
        self._chosen = None
        self._choose(row + 1)

    def _prose(self, text: str) -> None:
        self.restart_wait()
        left = self._prompt.text.strip().casefold() if self._prompt is not None else ""
        if self._prompt is not None and self._starts_well and left in ANSWER_WORDS:
            # The same word came too early before, and would be a part of this one.
            self._prompt.put("")
        self._word_counts = self._starts_well and self._prompt is not None and not self._prompt.text
        if self._write_behind is not None:
            self._write_behind(text)

    def note_behind(self) -> None:
        """Show the text that was typed or pasted for the prompt below the question, and send further text there too."""
        self._is_behind, self._chosen, self.hint = True, None, ""
        self.refresh(layout=True)
        self.post_message(self.KeysChanged())

    @property
    def _typed_word(self) -> str:
        """The typed word, if it is all the prompt holds and came when an answer would have counted; else empty."""
        return self._prompt.text if self._word_counts and self._prompt is not None else ""

    @property
    def _takes_own_words(self) -> bool:
        """Whether the typed words can be an answer that is none of the offered ones."""
        is_offered = any(one.then == "instead" for one in self._choices)
        is_asked = self.request.kind in ("question", "pause")
        return is_asked and is_offered and bool(self._typed_word.strip())

    def _end_behind(self) -> None:
        """Give the keys back to the answers; the text stays in the prompt."""
        self._is_behind, self.hint = False, WAITS_BEHIND
        self.restart_wait()
        self.post_message(self.KeysChanged())

    def _takes_behind(self, key: str) -> bool:
        """Return whether a key is about the text that is written into the prompt."""
        if key == "backspace" and self._prompt is not None:
            self._prompt.action_delete_left()
            self.refresh()
            return True
        if key not in ("enter", "escape"):
            self._is_behind, self.hint = False, WAITS_BEHIND
            self.post_message(self.KeysChanged())
            return False
        word = self._typed_word
        chosen = answer_of_word(self._choices, word) if key == "enter" else None
        is_own = key == "enter" and self._takes_own_words
        self._end_behind()
        if chosen is None and key == "enter" and ANSWER_WORDS.get(word.strip().casefold()) == "y":
            ways = [one.key for one in self._choices if one.words.startswith("Yes")]
            if len(ways) > 1 and self._prompt is not None:
                self._prompt.put("")
                self.hint = WHICH_YES.format(f"{', '.join(ways[:-1])} or {ways[-1]}")
        if chosen is not None and self._prompt is not None and not self._paint.waits:
            self.hint = ""
            self._prompt.put("")
            self._decide(chosen)
        elif is_own and self._prompt is not None:
            # The words are shown in the field of this answer first, as they may have been meant for the prompt.
            self.hint = ""
            self._written["instead"] = self._prompt.message
            self._is_moved = True
            self._prompt.put("")
            self._write("instead")
            self.post_message(self.KeysChanged())
        return True

    def on_key(self, event: events.Key) -> None:
        """Choose, answer with Enter, or scroll; Esc is left to the screen, which stops the turn. See `intercept` for letters."""
        if self._field.has_focus:
            if event.key == "escape":
                event.stop()
                self._leave_field()
            return
        # The Esc before the text was meant for the question: it gets here behind the letters that were typed right after it.
        is_before = event.key == "escape" and event.time == self._escaped_at
        if self._is_behind and not is_before and self._takes_behind(event.key):
            event.stop()
            event.prevent_default()
            return
        if event.key in ("escape", "ctrl+c"):
            return
        if event.key in self._passed or (event.key == "tab" and not self._detail.more_words):
            self._quiet.restart(event.time)
            self._await_quiet()
            return
        event.stop()
        event.prevent_default()
        if event.key in _PAGES and self._detail.shows_all:
            # The whole question is visible, so the key scrolls the chat.
            self.screen.post_message(PromptArea.Paged(_PAGES[event.key]))
            return
        if not self._accepts(event.time):
            return
        # The hint promises that Space checks a row; while the arrows have selected none, that is the first one.
        at = 0 if self._chosen is None and event.key == "space" else self._chosen
        chosen = None if at is None else self._choices[at]
        if event.key == "enter" and self._sends_several:
            self._send_checked()
        elif chosen is not None and event.key == ("space" if self._sends_several else "enter"):
            self._decide(chosen)
        elif event.key == "enter":
            self.hint = NONE_SELECTED
        elif event.key == CHANGE_KEY and may_be_changed(self.request):
            if self._has_read():
                self._write("instead")
        elif event.key == "tab":
            self._detail.toggle_whole()
            self._turn_to()
            self.refresh(layout=True)
            self.post_message(self.KeysChanged())
        elif event.key in ("up", "down"):
            self._choose(-1 if event.key == "up" else 1)
        elif event.key in ("pageup", "pagedown", "home", "end", "ctrl+up", "ctrl+down"):
            self._detail.scroll(event.key)
            self._turn_to()

    def refuses_click(self, event: events.MouseUp) -> bool:
        """Return whether a click on an answer comes too early, by the time at which it was read and the places painted by then.

        The app calls this with the release of the button, since the click made from it has a later time.
        """
        if event.screen_y - self.region.y not in self._clicks:
            return False
        self._letters.cancel()
        self._clicked_at = event.time
        # `_accepts` must be called first, because it restarts the wait after an early click.
        return not self._accepts(event.time) or event.time < self._placing.seen_at

    def on_click(self, event: events.Click) -> None:
        """Give the clicked answer, under the same conditions as by a key."""
        act = self._clicks.get(event.y) if event.widget is self else None
        if act is not None or event.widget is not self:
            # No word is selected by a second click.
            event.prevent_default()
        if act is not None:
            event.stop()
            # A key that was pressed before the click may have been handled only now.
            if self._accepts(self._clicked_at):
                act(event.x)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Scroll the details down by a row."""
        event.stop()
        self._detail.scroll("ctrl+down", 3)
        self._turn_to()

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Scroll the details up by a row."""
        event.stop()
        self._detail.scroll("ctrl+up", 3)
        self._turn_to()

    def _turn_to(self) -> None:
        """Draw other rows, which count as unread until they are painted."""
        self.refresh()
        self._turning.begin()

    def _decide(self, choice: Choice) -> None:
        match choice.then:
            case "why":
                self._write("why")
            case "instead":
                # An unchanged text is a yes to the agent's text.
                if self.request.kind in ("question", "pause") or self._has_read():
                    self._write("instead")
            case "no":
                self.post_message(self.Answered(self.request.id, "no"))
            case "check":
                if self._has_read_answer(choice) or self._has_read():
                    self._check(choice)
            case answer:
                if self._has_read_answer(choice) or self._has_read():
                    self.post_message(self.Answered(self.request.id, answer, choice.says))

    @property
    def _sends_several(self) -> bool:
        """Whether Enter sends the checked options, instead of answering by a row without a box."""
        first = self._choices[self._chosen or 0]
        return first.then == "check"

    def _check(self, choice: Choice) -> None:
        """Toggle the box of an answer."""
        checked = {*self._checked} ^ {choice}
        self._checked = tuple(one for one in self._choices if one in checked)
        self._chosen = self._choices.index(choice)
        self.hint = ""
        self.refresh(layout=True)

    def _send_checked(self) -> None:
        if self._checked:
            said = SEVERAL.join(one.says for one in self._checked)
            self.post_message(self.Answered(self.request.id, "once", said))
        else:
            roomy = len(NONE_CHECKED) <= self.size.width - EDGE - 3
            self.hint = NONE_CHECKED if roomy else NONE_CHECKED_SHORT

    def _decide_by_key(self, x: int) -> None:
        """Do what the clicked key of the key row does."""
        if (choice := key_at(self._choices, x)) is not None:
            self._decide(choice)

    def _has_read_answer(self, choice: Choice) -> bool:
        """Return whether an answer to a question has been read, regardless of the other answers; if not, scroll to it."""
        if self.request.kind != "question":
            return False
        if not choice.says:
            return True  # this answer leaves the decision to the agent
        if self._pressed_at < self._turning.seen_at:
            return False
        at = self._choices.index(choice)
        self._to_show = at
        return self._detail.has_shown_answer(at)

    def _has_read(self) -> bool:
        """Return whether all rows to the last one have been visible; if not, tell the user.

        A user who jumped to the end may still say yes after being told of the rows passed over.
        """
        detail = self._detail
        if self._pressed_at < self._turning.seen_at:
            self.restart_wait()
            self.post_message(self.TooEarly())
            return False
        if detail.seen_end and (self._was_told or not detail.passed_over):
            return True
        self._asked_early, self._was_told = True, detail.seen_end
        self.restart_wait()
        self.refresh(layout=True)
        return False

    def _choose(self, step: int) -> None:
        last = len(self._choices) - 1
        if self._chosen is None:
            self._chosen = min(step - 1, last) if step > 0 else last
        else:
            self._chosen = min(last, max(0, self._chosen + step))
        if self.request.kind == "question":
            # The rows of the selected answer are scrolled into view.
            self._to_show = self._chosen
        self.refresh(layout=True)

    def _await_quiet(self) -> None:
        remaining_s = self._quiet.remaining_s(time.monotonic())
        if self._awaited is not None:
            self._awaited.stop()  # a held key repeats thirty times a second
        if remaining_s > 0:
            self._awaited = self.set_timer(remaining_s + 0.01, self._await_quiet)
        self.refresh()

    # --- texts that are written before an answer

    def _write(self, what: Writing) -> None:
        # These letters were typed after the key that opens the field, before the field had the focus.
        behind = self._letters.pop_pending()
        self._writing = what
        self._field.placeholder = field_of(self.request, what).placeholder
        self._field.put(self._written.get(what, "") + behind)
        self._field.display = True
        self._field.focus()
        self._place_field()
        self._opening.begin()

    def _leave_field(self) -> None:
        """Return to the answers; the text is kept for the next time."""
        if self._is_moved and self._prompt is not None:
            # The words go back to where they were typed: an offered answer would leave them behind.
            self._prompt.put(self._field.text)
            self._written.pop("instead", None)
            self._is_moved, self.hint = False, WAITS_BEHIND
        elif self._writing is not None:
            self._written[self._writing] = self._field.text
        self._writing = None
        self._field.display = False
        self.focus()
        self.refresh(layout=True)

    @on(PromptArea.Sent)
    def _sent(self, event: PromptArea.Sent) -> None:
        event.stop()
        seen_at = self._paint.seen_at
        is_own = self.request.kind in ("question", "pause")
        if self._writing == "instead" and (self._is_moved or not is_own):
            # An unchanged text is a yes to the agent's text.
            seen_at = max(seen_at, self._opening.seen_at)
        if self._field.key_at < seen_at:
            self.post_message(self.TooEarly())
        else:
            self._hand_over()

    def _hand_over(self) -> None:
        text = clean(self._field.text).strip()
        if not text:
            return
        if self._writing == "why":
            self.post_message(self.Answered(self.request.id, "no", text))
        elif self._writing == "instead":
            instead = SEVERAL.join(
                (*(one.says for one in self._checked), said_instead(self.request, text))
            )
            self.post_message(self.Answered(self.request.id, "once", instead))

    @on(PromptArea.Changed)
    def _grown(self, event: PromptArea.Changed) -> None:
        """Fit the field to its number of rows; a slash opens no menu of commands here."""
        event.stop()
        self._place_field()

    @on(PromptArea.TabPressed)
    @on(PromptArea.RecallPressed)
    @on(PromptArea.Paged)
    def _not_the_prompt(self, event: Message) -> None:
        event.stop()

    # --- drawing

    @property
    def _is_tall(self) -> bool:
        return app_of(self).size.height >= TALL

    @property
    def room(self) -> int:
        """The number of rows of the screen, to which the panel is fitted."""
        return app_of(self).size.height

    def render_lines(self, crop: Region) -> list[Strip]:
        """Return rows of the panel, and note that those of the detail have been on the screen."""
        if self._writing is None and len(self.lines(self.size.width)) < self.room:
            self._detail.note_shown()
        places = (self.region.y, self._writing, *self._clicks)
        if places != self._places:
            self._places = places
            self._placing.begin()
        return super().render_lines(crop)

    def painted(self, y: int, width: int) -> Strip:
        """Return one row; the edge goes on below the last one."""
        if y < len(self.lines(width)):
            return super().painted(y, width)
        return self._painter.strip((self._edge,), width)

    @property
    def _edge(self) -> Span:
        return Span(glyphs_of(self).edge, "accent")

    def lay_out(self, width: int) -> list[Line]:
        """Return the rows, with the accent at their left edge."""
        edge = self._edge
        return [Line((edge, *line.spans)) for line in self._rows(width)]

    def _rows(self, width: int) -> list[Line]:
        """Return the rows without their edge; set the meaning of a click on each of them."""
        glyphs = glyphs_of(self)
        tall = self._is_tall
        beside = self._fit_detail(width, glyphs, folded=False)
        is_question = self.request.kind == "question" and self._chosen is not None
        if is_question and not self._detail.shows_all and self._detail.room < LOW_DETAIL:
            beside = self._fit_detail(width, glyphs, folded=True)
        if self._to_show is not None:
            self._detail.show_answer(self._to_show)
            self._to_show = None
        if not self._detail.is_laid_out and self._laying_out is None:
            self._laying_out = self.set_timer(REST_S, self._lay_out)
        self._clicks.clear()
        lines = [BLANK] if tall else []
        lines += beside.question
        detail = self._detail_lines(width) if self._writing != "instead" else []
        has_place = bool(beside.place) and self.request.kind != "pause"
        # Without anything between the question and the answers, one blank row is enough; the details of a question can be in
        # its answers alone.
        has_detail = self.request.detail and self.request.kind != "question"
        is_tight = beside.n_blank == 0 and self._writing is None
        if not is_tight and (detail or has_place or has_detail):
            lines.append(BLANK)
        lines += detail
        if self._writing is not None:
            self._add_field(lines, self._writing, tall=tall)
            return lines
        lines += beside.place
        room = width - EDGE - 3
        if not self.has_focus:
            away = f"Press {self.way_back} to answer." if self.way_back else AWAY
            lines.append(plain(f"   {away}", "accent/b"))
        elif self._is_behind and self._prompt is not None:
            said = "In the prompt: "
            written = one_line(self._prompt.text)
            tail = written[-max(0, room - len(said) - 1) :]
            shown = tail if tail == written else f"{glyphs.cut}{tail[1:]}"
            lines.append(Line((_INDENT, Span(said, "accent/b"), Span(visible(shown)))))
        elif self.hint and not is_tight:
            lines.append(plain(f"   {cut_wording(self.hint, room, glyphs.cut)}", "quiet"))
        elif not is_tight:
            lines.append(BLANK)
        if is_tight and (self._is_behind or not self.has_focus):
            return (
                lines  # that row says where the keys go; the keys of the answers do not count now
            )
        for choice, rows in beside.answers:
            for row in rows:
                self._clicks[len(lines)] = lambda _, choice=choice: self._decide(choice)
                lines.append(row)
        if beside.keys is not None:
            self._clicks[len(lines)] = self._decide_by_key
            lines.append(beside.keys)
        return [*lines, BLANK] if tall else lines

    def _fit_detail(self, width: int, glyphs: Glyphs, *, folded: bool) -> PanelLayout:
        """Return the parts beside the detail; the detail gets the remaining rows."""
        height = app_of(self).size.height
        beside = PanelLayout(
            self.request,
            self._choices,
            width,
            height,
            glyphs,
            waiting=self.waiting,
            chosen=self._chosen,
            accepts_keys=self.accepts_keys,
            toll=self.toll,
            folded=folded,
            checked=self._checked,
            asker=self.asker,
        )
        is_left = not self.has_focus and self._writing is None
        self._detail.fit(
            max(10, width - SIDES - 3),
            height - BESIDE_ROWS if is_left else height,
            glyphs,
            beside=beside.n_rows,
            moved_here=tuple(beside.moved),
        )
        return beside

    def _lay_out(self) -> None:
        """Lay out more rows of a long text."""
        self._laying_out = None
        self._detail.lay_out()
        if self._detail.is_laid_out:
            self.refresh(layout=True)
        else:
            self._laying_out = self.set_timer(REST_S, self._lay_out)

    def _detail_lines(self, width: int) -> list[Line]:
        detail = self._detail
        lines = [detail_row(row, width) for row in detail.shown]
        if not detail.shows_all:
            # The footer of a narrow screen has no room for this key.
            more = "" if detail.at_end else ". PageDown shows more"
            words, style = f"   {detail.place_words}{more}", "quiet"
            if self._asked_early and not detail.seen_end:
                words, style = f"   {detail.place_words}. Read to the end first: PageDown", "warn/b"
            elif self._was_told and detail.passed_over:
                read = f"you have seen only rows 1 to {detail.n_read}"
                words, style = f"   {read}. Press the same key again to answer", "warn/b"
            lines.append(plain(words, style))
        return lines

    def _add_field(self, lines: list[Line], writing: Writing, *, tall: bool) -> None:
        """Add room for the field, with rows below it for the keys that send and cancel."""
        if writing == "why":
            lines.append(BLANK)
        lines += [BLANK] * (self._field_rows(writing) + 1)
        verb = field_of(self.request, writing).verb
        if self._checked:
            verb += f", with the {len(self._checked)} checked answers"
        for key, words, act in (
            ("Enter", verb, self._hand_over),
            ("Esc", "Back to the answers", self._leave_field),
        ):
            self._clicks[len(lines)] = lambda _, act=act: act()
            lines.append(_way_row(key, words))
        if tall:
            lines.append(BLANK)

    def _field_rows(self, writing: Writing) -> int:
        most = REASON_ROWS if writing == "why" else self._detail.room
        least = 1 if writing == "why" else min(3, most)
        return max(least, min(most, self._field.wrapped_document.height))

    def _place_field(self) -> None:
        """Place the field over the rows that are reserved for it."""
        if self._writing is not None:
            self._field.styles.height = self._field_rows(self._writing)
            self._field.styles.margin = (0, 2, UNDER_FIELD + self._is_tall, 4)
            self.refresh(layout=True)

"""Notices: messages of one line over the last rows of a pane, for some seconds or until their cause is gone (`/notices` lists them).

`ShownNotice.of` makes one, cleaning its texts; `standing` and `Notices.tell` decide which older ones stay beside it;
`notice_rows` lays them out.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal, NamedTuple, Protocol, TypedDict, Unpack, runtime_checkable

from textual import events
from textual.containers import Container
from textual.message import Message
from textual.reactive import reactive
from textual.selection import Selection

from kimi_tui.foreign_text import one_line
from kimi_tui.tui.glyphs import Glyphs, glyphs_of
from kimi_tui.tui.row_list import PaintedRows
from kimi_tui.tui.rows import Line, Span, in_rows
from kimi_tui.tui.terminal_input import PaintWatch

Level = Literal["info", "warning", "error"]
STAYS_S = 6.0
"""Seconds that a notice without a topic stays."""
MAX_ROWS = 3
"""Rows that several notices take together."""
ROWS_ALONE = 4
"""Rows that the newest notice may take if it would be shortened otherwise (in narrow terminals)."""
LIST_ROWS = 6
"""The most rows of a notice that lists several."""
_EDGES = {"info": "accent", "warning": "warn", "error": "error"}


class NoticeDetails(TypedDict, total=False):
    """The fields of a `ShownNotice` besides its text, as keyword arguments of methods that show one."""

    level: Level
    advice: str
    topic: str
    more: Sequence[str]
    in_turn: bool


class ShownNotice(NamedTuple):
    """A notice: its text, level, advice, and how long it stays.

    Attributes:
        text: one line.
        level: the severity.
        advice: one line on what can be done; may be empty.
        topic: the name of the cause; the notice stays until that is dismissed. It is empty for a notice of some seconds.
        more: further notices that are shown with it as a list.
        in_turn: it is true only while the turn runs, so it is removed when that ends.
        at: the time of its creation, in seconds since 1970.
        until: the monotonic time until which it stays; infinite with a topic.
    """

    text: str
    level: Level = "info"
    advice: str = ""
    topic: str = ""
    more: tuple[str, ...] = ()
    in_turn: bool = False
    at: float = 0.0
    until: float = float("inf")

    @classmethod
    def of(cls, text: str, **details: Unpack[NoticeDetails]) -> ShownNotice:
        """Make a notice with the present time; with `more` it stays for as long as all of them would."""
        topic, more = details.get("topic", ""), tuple(map(one_line, details.get("more", ())))
        stays_s = float("inf") if topic else STAYS_S * (1 + len(more))
        return cls(
            one_line(text),
            details.get("level", "info"),
            one_line(details.get("advice", "")),
            topic,
            more,
            details.get("in_turn", False),
            at=time.time(),
            until=time.monotonic() + stays_s,
        )


@runtime_checkable
class ShowsNotices(Protocol):
    """The protocol of a screen that can show notices."""

    def tell(self, text: str, *, level: Level = "info", advice: str = "") -> None:
        """Show a notice for a few seconds."""
        ...


def standing(
    board: tuple[ShownNotice, ...], topic: str | None, now: float
) -> tuple[ShownNotice, ...]:
    """Return the notices that remain.

    Args:
        board: the notices shown so far.
        topic: a topic whose notices are removed; "" means all notices without a topic, None no topic.
        now: the monotonic time, for dropping expired notices.
    """
    return tuple(one for one in board if one.topic != topic and one.until > now)


@lru_cache(maxsize=2)
def notice_rows(board: tuple[ShownNotice, ...], width: int, glyphs: Glyphs) -> Sequence[Line]:
    """Return the rows of the newest notices that fit, each with its advice below it; one with a list is shown alone."""
    room = max(8, width - 6)
    rows: list[Line] = []
    for one in reversed(board):
        if one.more:
            return [*rows, *_list_rows(one, room, glyphs)]
        most = MAX_ROWS if rows else ROWS_ALONE
        advice = in_rows(one.advice, room, MAX_ROWS - 1, glyphs.cut)
        text = in_rows(one.text, room, most - len(advice), glyphs.cut)
        if len(rows) + len(text) + len(advice) > most:
            return rows
        signs = [f"{glyphs.caution} " if one.level != "info" else "  "] + ["  "] * most
        styled = [Span(row, "strong") for row in text] + [Span(row) for row in advice]
        edge = _EDGES[one.level]
        rows += [
            Line((Span(glyphs.edge, edge), Span(" "), Span(sign, f"{edge}/b"), row))
            for sign, row in zip(signs, styled, strict=False)
        ]
    return rows


def _list_rows(notice: ShownNotice, room: int, glyphs: Glyphs) -> list[Line]:
    """Return the rows of several notices, each with its sign; if not all fit, the last row names `/notices`."""
    texts = (notice.text, *notice.more)
    n_shown = len(texts) if len(texts) <= LIST_ROWS else LIST_ROWS - 1
    each = max(1, LIST_ROWS // len(texts))
    rows: list[Line] = []
    for text in texts[:n_shown]:
        sign = f"{glyphs.caution} " if notice.level != "info" else "  "
        for line in in_rows(text, room, each, glyphs.cut):
            head = Span(glyphs.edge, "warn"), Span(" "), Span(sign, "warn/b")
            rows.append(Line((*head, Span(line, "bright"))))
            sign = "  "
    if n_shown < len(texts):
        rest = f"   {len(texts) - n_shown} more. /notices lists all"
        rows.append(Line((Span(glyphs.edge, "warn"), Span(rest))))
    return rows


class Notices(PaintedRows):
    """The notices of a pane. The widget is hidden while there are none."""

    board: reactive[tuple[ShownNotice, ...]] = reactive((), layout=True, init=False)
    """The notices shown, newest last."""

    def __init__(self) -> None:
        super().__init__()
        self._paint = PaintWatch(self, self._seen)
        self._stays_s = STAYS_S
        """Seconds that the newest notice without a topic stays once it was painted."""
        self._posted_rows = 0
        """The `n_rows` of the newest `HeightChanged`."""

    class HeightChanged(Message):
        """The number of rows that the notices cover has changed."""

    @property
    def n_rows(self) -> int:
        """The number of rows that the notices cover; 0 while there are none."""
        return self.size.height if self.display else 0

    def tell(self, notice: ShownNotice) -> None:
        """Show a notice instead of an older one with its topic, or of those without a topic.

        The time that a notice without a topic stays counts from when the terminal has painted it.
        """
        now = time.monotonic()
        kept = standing(self.board, notice.topic, now)
        if not notice.topic:
            self._stays_s = notice.until - now
            notice = notice._replace(until=float("inf"))
            self._paint.begin()
        self.board = (*kept, notice)

    def _seen(self) -> None:
        until = time.monotonic() + self._stays_s
        # The notices need not be drawn anew for this.
        self.set_reactive(
            Notices.board,
            tuple(one if one.topic else one._replace(until=until) for one in self.board),
        )
        self.set_timer(self._stays_s + 0.05, self.dismiss)

    def dismiss(self, topic: str | None = None) -> None:
        """Remove the notice of a topic; "" removes those without a topic, None only those whose time has passed.

        One without a topic that the terminal has not drawn yet is not removed.
        """
        if topic or not self._paint.waits:
            self.board = standing(self.board, topic, time.monotonic())

    def end_turn(self) -> None:
        """Remove the notices that are true only in a turn, except for one that the terminal has not drawn yet."""
        if not self._paint.waits and any(one.in_turn for one in self.board):
            self.board = tuple(one for one in self.board if not one.in_turn)

    def watch_board(self, board: tuple[ShownNotice, ...]) -> None:
        """Show the widget while there are notices."""
        self.display = bool(board)
        self.set_class(any(one.level == "error" for one in board), "-grave")
        # A widget that is hidden, or shown again with its former size, gets no resize event.
        self.call_after_refresh(self.on_resize)

    def on_resize(self) -> None:
        """Post `HeightChanged` if the height has changed, as the widgets above the notices may have to move."""
        if self.n_rows != self._posted_rows:
            self._posted_rows = self.n_rows
            self.post_message(self.HeightChanged())

    def lay_out(self, width: int) -> Sequence[Line]:
        """Return the rows of all notices."""
        return notice_rows(self.board, width, glyphs_of(self))

    def on_click(self, event: events.Click) -> None:
        """Select all at a second click, and the same at a third: a notice is copied whole."""
        event.prevent_default()
        if event.chain > 1:
            self.text_select_all()

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """Return the selected text, without the edge and the signs before it."""
        found = super().get_selection(selection)
        if found is None:
            return None
        glyphs = glyphs_of(self)
        signs = f" {glyphs.edge}{glyphs.caution}"
        return "\n".join(row.lstrip(signs) for row in found[0].split("\n")), found[1]


class NoticingPane(Container):
    """A pane over whose last rows notices are shown."""

    notices: Notices | None = None
    """The widget, mounted with the first notice; None before."""

    def tell(self, text: str, **details: Unpack[NoticeDetails]) -> ShownNotice:
        """Show a notice."""
        notice = ShownNotice.of(text, **details)
        if self.notices is None:
            self.notices = Notices()
            self.mount(self.notices)
        self.notices.tell(notice)
        return notice

    def dismiss(self, topic: str = "") -> None:
        """Remove the notice of a topic; without one, those that pass after some seconds."""
        if self.notices is not None:
            self.notices.dismiss(topic)

    def end_turn(self) -> None:
        """Remove the notices that are true only while a turn runs."""
        if self.notices is not None:
            self.notices.end_turn()

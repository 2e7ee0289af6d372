"""Screens that show one text to be read: notices, statistics, jobs, a summary, and the help. They scroll, and Esc closes them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import ClassVar, NamedTuple

from rich.cells import cell_len
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen

from kimi_tui.foreign_text import clean, one_line
from kimi_tui.tui.dialogs.text_dialog import AROUND
from kimi_tui.tui.formatting import both_sizes, wrap_words
from kimi_tui.tui.frame import hint_row
from kimi_tui.tui.frame_label import frame_label
from kimi_tui.tui.frame_rows import SHORT_BELOW
from kimi_tui.tui.glyphs import ASCII, Glyphs, glyphs_of
from kimi_tui.tui.keyboard import TOO_EARLY, OneKeyScreen
from kimi_tui.tui.notices import ShownNotice
from kimi_tui.tui.row_list import PaintedRows, Words, plain
from kimi_tui.tui.rows import BLANK, RIGHT, Line, Span
from kimi_tui.tui.screens import AnswersOnce, app_of, sheets
from kimi_tui.tui.scrollbar import use_thin_scrollbar
from kimi_tui.tui.transcript.markdown import PARSE_LIMIT, MarkdownLayout, Parser

TIME_CELLS = 10
LOW_BELOW = 24
"""Rows below which the frame of a summary has none to spare."""
_MARGIN = 3

Wrap = Callable[[int], Sequence[Line]]
"""Makes the rows of a text, none wider than the given number of cells."""


class TextRows(PaintedRows):
    """Rows of text in a frame that scrolls; only the visible ones are painted."""

    def __init__(self, wrap: Wrap) -> None:
        super().__init__()
        self._wrap = wrap

    def lay_out(self, width: int) -> Sequence[Line]:
        """Return as many rows as the text needs."""
        return self._wrap(width)


class TextScreen(ModalScreen[None], AnswersOnce[None]):
    """Rows of text in a frame.

    Args:
        title: the title in the frame.
        wrap: makes the rows of the text.
        classes: the CSS classes of the screen.
    """

    HELP_TITLE = "Tasks, context, statistics, notices"
    CSS_PATH = sheets("rows", "text_screen")
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,enter", "dismiss", "Close", show=False),
    ]

    def __init__(self, title: str, wrap: Wrap, classes: str = "") -> None:
        super().__init__(classes=classes)
        self._title = title
        self._wrap = wrap

    @property
    def subject(self) -> object:
        """The title."""
        return self._title

    def compose(self) -> ComposeResult:
        """Yield one text that scrolls."""
        frame = self.scrolled()
        frame.border_title = frame_label(self, self._title)
        frame.border_subtitle = frame_label(self, "Esc close")
        yield frame

    def scrolled(self) -> VerticalScroll:
        """Return the text in a widget that scrolls it."""
        scroll = VerticalScroll(TextRows(self._wrap))
        use_thin_scrollbar(scroll, glyphs_of(self))
        return scroll


def notices_screen(told: Sequence[ShownNotice]) -> TextScreen:
    """Return the notices of this run, to be read again: the newest first, each with its time and its advice below it.

    Args:
        told: the notices, oldest first.
    """
    return TextScreen("Notices", partial(_notice_rows, tuple(reversed(told))))


def _notice_rows(told: Sequence[ShownNotice], width: int) -> list[Line]:
    if not told:
        return [plain("There were no notices in this run.", "quiet")]
    lines: list[Line] = []
    room = max(16, width - TIME_CELLS)
    indent = " " * TIME_CELLS
    for one in told:
        style = {"warning": "warn", "error": "error"}.get(one.level, "strong")
        at = f"{time.strftime('%H:%M:%S', time.localtime(one.at)):<{TIME_CELLS}}"
        # The last one of several notices that came at once is the newest, too.
        for text in reversed((one.text, *one.more)):
            first, *rest = wrap_words(text, room) or [""]
            lines.append(Line((Span(at, "quiet"), Span(first, style))))
            lines += [plain(indent + row, style) for row in rest]
        lines += [plain(indent + row) for row in wrap_words(one.advice, room) if row]
    return lines


Figures = Sequence[tuple[str, str | tuple[str, ...]]]
"""Names with their values: a sentence, or figures, which are shown in columns."""


def figures_screen(name: str, title: str, figures: Figures) -> TextScreen:
    """Return a screen of names and figures, as they were when they were requested.

    Args:
        name: the name of the screen.
        title: the first row.
        figures: the rows below the title.
    """
    return TextScreen(name, partial(figure_rows, title, figures), "-figures")


def figure_rows(title: str, figures: Figures, width: int) -> list[Line]:
    """Return the title, then a row for each name, and more if its sentence is long."""
    # The name of a tool comes from the model.
    columns = [said for _, said in figures if not isinstance(said, str)]
    widths = [max(map(len, column)) for column in zip(*columns, strict=True)]
    pairs = [
        (name, one_line(said) if isinstance(said, str) else _columns(said, widths))
        for name, said in figures
    ]
    column = max((cell_len(name) for name, _ in pairs), default=0) + _MARGIN
    lines = [plain(row, "strong") for row in wrap_words(one_line(title), width)]
    if lines:
        lines.append(BLANK)
    for name, text in pairs:
        room = max(16, width - column)
        first, *rest = [text] if cell_len(text) <= room else wrap_words(text, room)
        gap = " " * (column - cell_len(name))
        lines.append(Line((Span(name, "quiet"), Span(f"{gap}{first}"))))
        lines += [plain(" " * column + row) for row in rest]
    return lines


def _columns(figures: Sequence[str], widths: Sequence[int]) -> str:
    """Figures in columns of these widths, each right-aligned."""
    return "  ".join(one.rjust(width) for one, width in zip(figures, widths, strict=True))


class Summary(NamedTuple):
    """The summary that a compaction left, for its screen.

    Attributes:
        checkpoint_id: the checkpoint of the summary.
        text: the text of the summary.
        before, after: the tokens before and after, 0 if they are unknown; an estimate with `estimated`.
        can_edit: whether it is the newest summary, which can be edited.
    """

    checkpoint_id: int
    text: str
    before: int = 0
    after: int = 0
    can_edit: bool = True
    estimated: bool = False

    @property
    def answers(self) -> tuple[tuple[str, str, str], ...]:
        """Keys, their effects in words, and the results of the screen for them."""
        edit = (
            ("e", "edit", "edit"),
            ("u", "undo the compaction; later messages are kept", "undo"),
        )
        rewind = (("r", "rewind to before the compaction", "rewind"),)
        return (*(edit if self.can_edit else ()), *(rewind if self.checkpoint_id else ()))


def _drawn(text: str, glyphs: Glyphs, width: int) -> list[Line]:
    """Return the rows of a summary, drawn from Markdown; a very long one is drawn as it is."""
    if len(text) > PARSE_LIMIT:
        return [plain(row) for line in text.split("\n") for row in wrap_words(line, width) or [""]]
    layout = MarkdownLayout(width + RIGHT, glyphs, numbered=False)
    return [row._replace(margin=0) for row in layout.elements(Parser().parse(text), (), ())]


class SummaryFrame(Vertical):
    """The box in which a summary is shown."""


class SummaryScreen(ModalScreen[str | None], OneKeyScreen[str | None]):
    """Shows the summary of a compaction. Its result is `edit`, `undo` or `rewind`, or None if it was closed."""

    HELP_TITLE = "D-Mails and summaries"
    CSS_PATH = [*sheets("rows", "summary")]  # noqa: RUF012 - Textual declares it so
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,enter,q", "leave", "Close", id="summary.leave", show=False),
    ]

    def __init__(self, summary: Summary) -> None:
        super().__init__()
        self._summary = summary
        self._foot = Words()

    def compose(self) -> ComposeResult:
        """Return the frame."""
        summary, app = self._summary, app_of(self)
        glyphs = glyphs_of(app)
        size = ""
        if summary.before:
            to = f" {glyphs.to} "
            size = both_sizes(summary.before, summary.after, to, estimated=summary.estimated)
            size = f"  {size} tokens"
        said = Span("This summary replaces the older messages", "strong")
        head = Words(Line((said, Span(size, "quiet"))))
        text = VerticalScroll(TextRows(partial(_drawn, clean(summary.text), glyphs)))
        use_thin_scrollbar(text, glyphs)
        frame = SummaryFrame(head, text, self._foot)
        frame.border_title = frame_label(self, f"Summary at #{summary.checkpoint_id}")
        frame.set_class(glyphs is ASCII, "-ascii")
        yield frame

    def on_resize(self, event: events.Resize) -> None:
        """Keep the keys visible at every size; the text scrolls above them."""
        self.set_class(event.size.height < SHORT_BELOW, "-short")
        self.set_class(event.size.height < LOW_BELOW, "-low")
        self._foot.show(self._keys(event.size.width))

    def _keys(self, width: int) -> Line:
        keys = [(key, words) for key, words, _ in self._summary.answers]
        room = min(96, width * 96 // 100) - AROUND
        return hint_row([*keys, ("Esc", "close")], room)

    async def on_key(self, event: events.Key) -> None:
        """Answer by a letter that was pressed alone, after the summary had been on the screen for a while."""
        if not event.is_printable:
            return
        answers = {key: answer for key, _, answer in self._summary.answers}
        answer = answers.get(event.character or "")
        if answer is None:
            await self.seen.answer_with(event, None)
            return
        event.stop()
        event.prevent_default()
        if not await self.seen.answer_with(event, partial(self._answered, answer)):
            self.query_one(SummaryFrame).border_subtitle = frame_label(self, TOO_EARLY)

    def _answered(self, answer: str) -> None:
        self.dismiss(answer)

    def action_leave(self) -> None:
        """Close the screen without an action."""
        self.dismiss(None)

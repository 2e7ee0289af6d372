"""`DiffScreen`: changes of files, one file below the other, to be read, reviewed or committed.

A row is made when it is drawn, as there may be thousands.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Awaitable, Callable, Iterator, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, ClassVar, NamedTuple, overload

from rich.cells import cell_len
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.message import Message
from textual.screen import ModalScreen
from textual.strip import Strip

from kimi_tui.foreign_text import one_line, shown_name
from kimi_tui.tui.diff import change_counts, diff_rows
from kimi_tui.tui.faults import reported
from kimi_tui.tui.formatting import counted, wrap_words
from kimi_tui.tui.frame_label import frame_label
from kimi_tui.tui.frame_rows import Hint, fit_hints
from kimi_tui.tui.glyphs import Glyphs, glyphs_of
from kimi_tui.tui.keyboard import TOO_EARLY, AskingScreen
from kimi_tui.tui.row_list import PaintedRows, plain
from kimi_tui.tui.rows import BLANK, Line, Span
from kimi_tui.tui.screens import app_of, sheets
from kimi_tui.tui.scrollbar import use_thin_scrollbar
from kimi_tui.tui.transcript.selection import select_piece
from kimi_tui.workspace.diff import Changes, FileDifference

if TYPE_CHECKING:
    from kimi_tui.tool_cards import DiffLine

_WIDEST, _EDGES = 120, 6
"""Cells of the frame, and of its lower edge that a text cannot use."""
_STATES = {"new": "new", "gone": "deleted", "changed": ""}
_KINDS = {"others": "changed outside kimi-tui", "both": "changed by the agent and outside kimi-tui"}
_NO_TEXT = "not text, or too large to show"
_SECRET = "its contents are not shown, because it may contain secrets"


class ChosenLine(NamedTuple):
    """A line of a diff: its file, and the line."""

    path: str
    line: DiffLine


class DiffLines(Sequence[Line]):
    """The rows of changes, each made when it is asked for.

    Args:
        title: the first row.
        changes: the changes.
        width: cells of a row.
        glyphs: the signs in use.
        authors: whether to say who changed a file if it was not the agent alone.
    """

    def __init__(
        self, title: str, changes: Changes, width: int, glyphs: Glyphs, *, authors: bool
    ) -> None:
        self._files = changes.files
        self._width = width
        self._glyphs = glyphs
        self._authors = authors
        self._head = [plain(row, "strong") for row in wrap_words(title, max(16, width))]
        for words in filter(None, (changes.reason, *changes.remarks)):
            self._head += [plain(row, "warn") for row in wrap_words(words, max(16, width))]
        # A blank row and the name of the file come before its lines.
        sizes = (2 + max(1, _n_rows(one)) for one in self._files)
        self.starts = tuple(accumulate(sizes, initial=len(self._head)))

    def __len__(self) -> int:
        return self.starts[-1]

    @overload
    def __getitem__(self, index: int) -> Line: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Line]: ...

    def __getitem__(self, index: int | slice) -> Line | Sequence[Line]:
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(len(self)))]
        at = index + len(self) if index < 0 else index
        if not 0 <= at < len(self):
            raise IndexError(index)
        if at < len(self._head):
            return self._head[at]
        place = bisect_right(self.starts, at) - 1
        return self._row(self._files[place], at - self.starts[place])

    def __iter__(self) -> Iterator[Line]:
        return (self[at] for at in range(len(self)))

    def line_at(self, at: int) -> ChosenLine | None:
        """Return the line of a file that is in a row; None if it has none."""
        if not len(self._head) <= at < len(self):
            return None
        place = bisect_right(self.starts, at) - 1
        one, row = self._files[place], at - self.starts[place] - 2
        diff = None if one.is_secret else one.side.diff
        if diff is None or not 0 <= row < len(diff.rows):
            return None
        line = diff.rows[row]
        return ChosenLine(one.name_of(line.sign), line)

    def _row(self, one: FileDifference, at: int) -> Line:
        if at == 0:
            return BLANK
        side = one.side
        if at == 1:
            diff = side.diff
            facts = [_STATES.get(side.outcome, "")]
            if one.old_path:
                facts = [f"renamed from {shown_name(one.old_path)}"]
            facts += [_KINDS.get(side.authors, "")] if self._authors else []
            spans = [Span(shown_name(one.path), "strong")]
            spans += [Span(f"  {words}", "quiet") for words in facts if words]
            if diff is not None and (diff.added or diff.removed):
                spans += [Span("  "), *change_counts(diff.added, diff.removed, self._glyphs)]
            return Line(tuple(spans))
        if one.is_secret:
            return plain(_SECRET, "quiet")
        if side.diff is None:
            return plain(_NO_TEXT, "quiet")
        rows = side.diff.rows
        if at - 2 >= len(rows):
            return plain("no line changes" if not rows else "", "quiet")
        digits = len(str(max(rows[0].number, rows[-1].number, 100)))
        (spans,) = diff_rows(
            [rows[at - 2]], self._width, self._glyphs, indent=0, digits=digits, banded=True
        )
        return Line(tuple(spans))


def _n_rows(one: FileDifference) -> int:
    return 0 if one.is_secret or one.side.diff is None else len(one.side.diff.rows)


class DiffView(PaintedRows):
    """The rows in a frame that scrolls.

    Attributes:
        cursor: the row of the chosen line; None if none is chosen.
    """

    IS_EXACT: ClassVar[bool] = True

    class LineClicked(Message):
        """A line of a file was clicked."""

        def __init__(self, line: ChosenLine) -> None:
            super().__init__()
            self.line = line

    def __init__(self, title: str, changes: Changes, *, authors: bool) -> None:
        super().__init__()
        self.cursor: int | None = None
        self._title = title
        self._changes = changes
        self._authors = authors

    def lay_out(self, width: int) -> Sequence[Line]:
        """Return the rows, none of which is made yet."""
        return DiffLines(self._title, self._changes, width, glyphs_of(self), authors=self._authors)

    def line_at(self, y: int) -> ChosenLine | None:
        """Return the line of a file that is in a row; None if it has none."""
        lines = self.lines(self.content_size.width)
        return lines.line_at(y) if isinstance(lines, DiffLines) else None

    def next_line(self, start: int, step: int) -> int | None:
        """Return the nearest row with a line of a file, from a row on, down (1) or up (-1)."""
        rows = range(start, len(self.lines(self.content_size.width)) if step > 0 else -1, step)
        return next((y for y in rows if self.line_at(y) is not None), None)

    def painted(self, y: int, width: int) -> Strip:
        """Return one row; the chosen one stands out."""
        lines = self.lines(width)
        if y != self.cursor or y >= len(lines):
            return super().painted(y, width)
        return self._painter.strip(lines[y].spans, width, ground="select")

    def on_click(self, event: events.Click) -> None:
        """Choose the clicked line; further clicks select text."""
        event.prevent_default()
        offset = event.get_content_offset(self)
        if offset is None or select_piece(self, event, self.text_of(offset.y), offset):
            return
        if (line := self.line_at(offset.y)) is not None:
            self.post_message(self.LineClicked(line))


class DiffScreen(ModalScreen[bool | ChosenLine | None], AskingScreen[bool | ChosenLine | None]):
    """Shows changes. Its result is True if Enter was pressed for what `verb` says, the line of a file if one was chosen, None
    if it was closed.

    Args:
        name: the title in the frame.
        what: what the changes are, in words.
        changes: the changes.
        verb: what Enter does; empty if the screen is only read.
        authors: whether to say who changed a file if it was not the agent alone.
        chooses: whether a click on a line, or Enter, chooses it.
        patch: makes the changes a patch; None if they cannot be copied as one.
    """

    HELP_TITLE = "Changes"
    IS_EXPECTED = True
    CSS_PATH = sheets("rows", "text_screen")
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("n", "file(1)", "go to the next file", show=False),
        Binding("p", "file(-1)", "go to the file before", show=False),
        Binding("j", "line(1)", "choose the next line", show=False),
        Binding("k", "line(-1)", "choose the line before", show=False),
        Binding("y", "copy", "copy the changes as a patch", show=False),
        Binding("escape,q", "dismiss", "close", show=False),
    ]

    def __init__(
        self,
        name: str,
        what: str,
        changes: Changes,
        *,
        verb: str = "",
        authors: bool = True,
        chooses: bool = False,
        patch: Callable[[], Awaitable[str]] | None = None,
    ) -> None:
        super().__init__()
        self._patch = patch
        self._chooses = chooses
        self._titled = name
        self._verb = verb
        self._view = DiffView(heading(what, changes), changes, authors=authors)
        self._scroll = VerticalScroll(self._view)
        self._said = ""

    @property
    def subject(self) -> object:
        """The title."""
        return self._titled

    def compose(self) -> ComposeResult:
        """Return the changes in a frame."""
        use_thin_scrollbar(self._scroll, glyphs_of(self))
        self._scroll.border_title = frame_label(self, self._titled)
        self._say("")
        yield self._scroll

    def on_resize(self) -> None:
        """Name the keys that have room."""
        self._say(self._said)

    def _say(self, words: str) -> None:
        """Show a sentence, and the keys for which there is room beside it, in the lower edge of the frame."""
        self._said = words
        keys: list[Hint] = [("Enter", self._verb)] if self._verb else []
        keys += [("j, k", "line"), ("Enter", "who wrote it")] if self._chooses else []
        keys += [("n, p", "file")]
        keys += [("y", "copy patch")] if self._patch is not None else []
        width = min(app_of(self).size.width, _WIDEST) - _EDGES
        room = width - cell_len(words) - 3 if words else width
        named = [f"{key} {meaning}" for key, meaning in fit_hints([*keys, ("Esc", "close")], room)]
        self._scroll.border_subtitle = frame_label(
            self, "   ".join([*filter(None, [words]), *named])
        )

    def on_key(self, event: events.Key) -> None:
        """Do what Enter is for, if the screen has been visible for a moment."""
        if event.key != "enter":
            return
        event.stop()
        event.prevent_default()
        cursor = self._view.cursor
        chosen = self._view.line_at(cursor) if self._chooses and cursor is not None else None
        if chosen is not None or not self._verb:
            self.dismiss(chosen)
        elif self.seen.accepts(event.time):
            self.dismiss(True)
        else:
            self._say(TOO_EARLY)

    def on_diff_view_line_clicked(self, event: DiffView.LineClicked) -> None:
        """Answer with the clicked line."""
        event.stop()
        if self._chooses:
            self.dismiss(event.line)

    def action_line(self, step: int) -> None:
        """Choose the next line of a file, or the one before; the first one is the first on the screen."""
        if not self._chooses:
            self._scroll.scroll_relative(y=step, animate=False)
            return
        view, top = self._view, round(self._scroll.scroll_offset.y)
        start = top if view.cursor is None else view.cursor + step
        target = view.next_line(start, 1 if view.cursor is None else step)
        if target is None:
            return
        view.cursor = target
        view.refresh()
        height = self._scroll.scrollable_content_region.height
        if not top <= target < top + height:
            self._scroll.scroll_to(y=target - (height - 1 if step > 0 else 0), animate=False)

    def action_copy(self) -> None:
        """Copy the changes as a patch that `git apply` takes."""
        if self._patch is not None:
            self.run_worker(reported(self, self._copy), group="patch", exclusive=True)

    async def _copy(self) -> None:
        text = await self._patch() if self._patch is not None else ""
        if text:
            app_of(self).copy_to_clipboard(text)
            self._say("Copied the patch.")
        else:
            self._say("The patch cannot be copied. To print it, run kimi-tui diff in a shell.")

    def action_file(self, step: int) -> None:
        """Scroll to the next file, or the one before."""
        lines = self._view.lines(self._view.size.width)
        if not isinstance(lines, DiffLines):
            return
        # The name of a file is below its blank row.
        tops = [start + 1 for start in lines.starts[:-1]]
        at = round(self._scroll.scroll_offset.y)
        after = next((top for top in tops if top > at), None)
        before = next((top for top in reversed(tops) if top < at), 0)
        target = after if step > 0 else before
        if target is not None:
            self._scroll.scroll_to(y=target, animate=False)


def heading(what: str, changes: Changes) -> str:
    """Return the first row: how many files changed, and since when."""
    if changes.reason:
        return one_line(what)
    n_files = len(changes.files)
    if not n_files:
        return f"No file has changed {one_line(what)}."
    return f"{counted(n_files, 'file')} changed {one_line(what)}"

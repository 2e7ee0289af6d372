"""The preview of a rewind: a screen that shows what would be dropped. Its result is the action that the user chose."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.message import Message
from textual.screen import ModalScreen
from textual.strip import Strip

from kimi_tui.tui.faults import log_fault, reported
from kimi_tui.tui.frame_label import frame_label
from kimi_tui.tui.glyphs import ASCII, glyphs_of
from kimi_tui.tui.keyboard import (
    QUIET_S,
    LetterAction,
    LetterRun,
    QuietKeyboard,
    row_of_digit,
    unhandled,
)
from kimi_tui.tui.preview import layout
from kimi_tui.tui.preview.layout import (
    BOTH,
    CONVERSATION_ACTIONS,
    FILES,
    LETTERS,
    REWIND,
    WITH_A_WORD,
    PreviewAction,
    PreviewAnswer,
)
from kimi_tui.tui.row_list import PaintedRows
from kimi_tui.tui.rows import Line, Span, plain_rows
from kimi_tui.tui.screens import AnswersOnce, app_of, sheets
from kimi_tui.tui.terminal_input import PaintWatch
from kimi_tui.tui.transcript.selection import select_piece

if TYPE_CHECKING:
    from kimi_tui.soul.rewind_values import RewindPreview
    from kimi_tui.tool_cards import DiffLine

_WITH_FILES = frozenset({BOTH.name, FILES.name})
_MOVES = frozenset("jk ")
"""Letters that only move the selection."""


class PreviewSheet(PaintedRows):
    """The widget that draws the rows of a preview and reports which of them was clicked."""

    IS_EXACT: ClassVar[bool] = True
    ALLOW_SELECT = False
    """False: Textual's own selection would select all rows."""

    class Chosen(Message):
        """An action was clicked."""

        def __init__(self, index: int) -> None:
            super().__init__()
            self.index = index

    class FileClicked(Message):
        """A file was clicked, or the sign beside it, which shows whether it is restored."""

        def __init__(self, index: int, *, on_sign: bool) -> None:
            super().__init__()
            self.index = index
            self.on_sign = on_sign

    class LineClicked(Message):
        """A line of a whole diff was clicked."""

        def __init__(self, line: int) -> None:
            super().__init__()
            self.line = line

    def __init__(self, state: layout.PreviewState) -> None:
        super().__init__()
        self.state = state
        self.painted_at = float("inf")
        """The monotonic time at which the terminal painted it; infinite before."""
        self.sheet = layout.PreviewRows()
        """The rows of the last layout."""

    @property
    def room(self) -> int:
        """The largest number of rows on a screen of this height."""
        return layout.rows_for(app_of(self).size.height)

    def lay_out(self, width: int) -> Sequence[Line]:
        """Return the rows for the present state."""
        glyphs = glyphs_of(self)
        try:
            self.sheet = layout.preview_rows(self.state, width, self.room, glyphs)
        except Exception:
            # The actions stay visible and their keys work, even if the preview of their effect cannot be drawn.
            log_fault("laying out a preview")
            rows = [mark.spans for mark in plain_rows("", width, glyphs)[:1]]
            rows += [(Span(f"    {one.key}  {one.verb}", "ink"),) for one in self.state.actions]
            self.sheet = layout.PreviewRows([layout.Row(spans) for spans in rows])
        return [Line(tuple(row.spans)) for row in self.sheet.rows]

    def get_content_width(self, container: Size, viewport: Size) -> int:
        """Return the width inside the frame."""
        return layout.frame_width(viewport.width) - 2

    def refuses_click(self, event: events.MouseUp) -> bool:
        """Return whether a click was read before the terminal had painted this."""
        return event.time < self.painted_at

    def on_click(self, event: events.Click) -> None:
        """Choose the action or open the file in the clicked row; further clicks select text."""
        event.prevent_default()
        offset = event.get_content_offset(self)
        if offset is None or select_piece(self, event, self.text_of(offset.y), offset):
            return
        row, at = self._row(offset.y), self.sheet.files_at
        first, last = self.sheet.band
        if row.action is not None and first <= offset.x < last:
            self.post_message(self.Chosen(row.action))
        elif row.file is not None and offset.x >= at:
            self.post_message(self.FileClicked(row.file, on_sign=offset.x < at + 2))
        elif row.line is not None and offset.x >= at:
            self.post_message(self.LineClicked(row.line))

    def _row(self, y: int) -> layout.Row:
        rows = self.sheet.rows
        return rows[y] if 0 <= y < len(rows) else layout.Row()

    def painted(self, y: int, width: int) -> Strip:
        """Return one row; that of the selected action stands out among the choices."""
        strip = super().painted(y, width)
        row = self._row(y)
        if not row.is_selected:
            return strip
        first, last = self.sheet.band if row.line is None else (self.sheet.files_at, width)
        selected = self._painter.strip(row.spans, width, ground="select")
        return Strip.join([strip.crop(0, first), selected.crop(first, last), strip.crop(last)])


class RewindScreen(ModalScreen[PreviewAnswer | None], AnswersOnce[PreviewAnswer | None]):
    """The screen that previews a rewind. Its result is the chosen action, or None if it was closed.

    Arrows with Enter and the mouse answer at once; a letter answers once no other one has followed it. Letters in quick
    succession are prose, as is a letter that answers in no preview: they close the preview and go into the prompt. A letter
    that was read before the terminal had painted the preview only selects its row.

    Args:
        preview: what the engine computed.
        running: whether a turn is running; the preview then says that the turn is stopped first.
        actions: the choices; the first one, which loses least, is selected.
        title: the title in the border; empty for that of a rewind or a jump.
        line_name: the name of the target's world line, or of the line that the dropped messages will be on.
        pending: a fork or D-Mail that was chosen already, and waits for the choice whether files are restored.
        write: called with prose, which is meant for the prompt below.
        typed_at: the monotonic time at which text was last typed there.
        is_asked_for: whether the user opened the preview. If not, keys that are typed before it was painted were meant for
            the screen below.
        first: the name of the action that is selected at first, if it is offered; empty for the first one.
        who: says in a sentence who wrote a line of a file's diff; None if that is not asked here.
    """

    QUIET_S: ClassVar[float] = QUIET_S
    """Seconds without a key before Enter counts, and a letter in a preview that the user did not open."""
    HELP_TITLE = "Preview of a rewind"
    CSS_PATH = [*sheets("rows", "preview")]  # noqa: RUF012 - Textual declares it so
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "Choose", id="preview.up", show=False),
        Binding("down,j", "move(1)", "Choose", id="preview.down", show=False),
        Binding("pageup", "page(-1)", "Scroll", id="preview.page_up", show=False),
        Binding("pagedown", "page(1)", "Scroll", id="preview.page_down", show=False),
        Binding("tab", "details", "Details", id="preview.details", show=False),
        Binding(
            "space", "bring_back", "Restore or keep the file", id="preview.bring_back", show=False
        ),
        Binding("right", "line(1)", "Who wrote the next line", id="preview.line", show=False),
        Binding(
            "left", "line(-1)", "Who wrote the line before", id="preview.line_before", show=False
        ),
        Binding("enter", "choose", "Choose", id="preview.choose", show=False),
        Binding("escape", "cancel", "Cancel", id="preview.cancel", show=False),
    ]

    def __init__(
        self,
        preview: RewindPreview,
        *,
        running: bool = False,
        actions: Sequence[PreviewAction] = CONVERSATION_ACTIONS,
        title: str = "",
        line_name: str = "",
        pending: PreviewAction | None = None,
        write: Callable[[str], None] | None = None,
        typed_at: float = 0.0,
        is_asked_for: bool = True,
        first: str = "",
        who: Callable[[str, DiffLine], Awaitable[str]] | None = None,
    ) -> None:
        super().__init__()
        self._who = who
        self._write = write
        self._is_asked_for = is_asked_for
        self._paint = PaintWatch(self, self._painted)
        self._quiet: QuietKeyboard | None = None
        self._key_at = 0.0
        """The monotonic time at which the newest key was read."""
        self._letters = LetterRun(self, self._write_over, typed_at)
        self._has_early_letter = False
        """Whether the newest letter was read before the preview could be seen, or has been held down since."""
        self._is_looked_at = False
        """Whether the user has moved the selection or scrolled."""
        self._is_again = False
        """Whether this is a second question, or the preview was painted again after a suspension; then a click must wait, too."""
        self._is_second = False
        """Whether the question follows an answer: an early key is then no prose, but belongs to that answer."""
        self._state = layout.PreviewState(
            preview, actions, running, title=title, line_name=line_name
        )
        if pending is not None:
            self._wait_for_files(pending)
        if any(one.name == first for one in self._state.actions):
            self._state.select(first)
        self._sheet = PreviewSheet(self._state)

    def compose(self) -> ComposeResult:
        """Yield the frame."""
        self._sheet.set_class(glyphs_of(self) is ASCII, "-ascii")
        self._sheet.border_title = frame_label(self, layout.frame_title(self._state))
        yield self._sheet

    def on_mount(self) -> None:
        """Wait until the terminal has painted the preview: no key pressed before answers."""
        self._paint.begin()

    def _painted(self) -> None:
        seen_at = self._paint.seen_at
        self._quiet = QuietKeyboard(seen_at, 0.0, self.QUIET_S)
        # A second click is as early as a second Enter.
        self._sheet.painted_at = seen_at + self.QUIET_S if self._is_again else seen_at
        if self._letters.is_pending:
            self._letters.schedule(self._letters.DEBOUNCE_S)

    def ignore_early_keys(self) -> None:
        """Let no key or click count before the preview is on the terminal again, and half a second after that."""
        self._letters.cancel()
        self._quiet, self._is_asked_for, self._is_looked_at = None, False, False
        self._is_again, self._sheet.painted_at = True, float("inf")
        self._paint.begin()

    @property
    def accepts_keys(self) -> bool:
        """Whether Enter would count now."""
        return self._quiet is not None and self._quiet.remaining_s(time.monotonic()) == 0.0

    def _comes_early(self, event: events.Key, letter: str | None) -> bool:
        """Return whether Enter, or a letter in a preview that the user did not open, is too early to be an answer."""
        if self._is_looked_at:
            return False
        if event.key != "enter" and (letter is None or self._is_asked_for):
            return False
        is_early = self._quiet is None or not self._quiet.accepts(event.time)
        if is_early and (event.key == "enter" or self._is_second):
            self._tell_early("Enter" if event.key == "enter" else "The key")
        return is_early

    def _tell_early(self, what: str) -> None:
        self._sheet.border_subtitle = frame_label(
            self, f"{what} was pressed too early; press it again"
        )

    def _look(self, at: float) -> None:
        """Note that a key read at this monotonic time moves the selection: the user saw the preview, if that had been painted."""
        self._is_looked_at = at >= self._paint.seen_at

    def _show(self) -> None:
        self._sheet.border_title = frame_label(self, layout.frame_title(self._state))
        self._sheet.border_subtitle = ""
        self._sheet.refresh(layout=True)
        self._sheet.lines(layout.frame_width(app_of(self).size.width) - 2)

    def action_move(self, step: int) -> None:
        """Select another action, or scroll the dropped messages if they are listed."""
        state = self._state
        self._look(self._key_at)
        if state.files is not None and state.files.focused:
            state.files.move(step)
        elif state.details:
            state.messages.move(step)
        else:
            state.choices.choose(state.choices.moved(step))
        self._show()

    def action_page(self, step: int) -> None:
        """Scroll the list or diff on view by a page."""
        files = self._state.files
        if files is not None and files.focused:
            files.move(step * 10)
        else:
            self._state.messages.move(step * self._sheet.sheet.page)
        self._show()

    def action_details(self) -> None:
        """Move the focus of the arrows to the files, then to the dropped messages, then back to the choices."""
        state = self._state
        self._look(self._key_at)
        files = state.files if state.files is not None and state.files.can_focus else None
        if files is not None and not files.focused and not state.details:
            files.focused = True
        else:
            if files is not None:
                files.focused = files.whole = False
            state.details = not state.details and bool(state.preview.dropped)
        self._show()

    def action_line(self, step: int) -> None:
        """In a whole diff, choose the next line or the one before, and say who wrote it."""
        files = self._state.files
        self._look(self._key_at)
        if files is not None and files.focused:
            self._tell_writer(files.choose_line(step))

    def on_preview_sheet_line_clicked(self, event: PreviewSheet.LineClicked) -> None:
        """Say who wrote the clicked line."""
        files = self._state.files
        if files is not None and files.whole:
            files.line = event.line
            self._tell_writer(files.choose_line(0))

    def _tell_writer(self, line: DiffLine | None) -> None:
        files = self._state.files
        self._show()
        if line is None or files is None or files.current is None or self._who is None:
            return
        path, who = files.current.path, self._who

        async def tell() -> None:
            words = await who(path, line)
            if files.whole and files.current is not None and files.current.path == path:
                self._sheet.border_subtitle = frame_label(self, words)

        self.run_worker(reported(self, tell), group="who", exclusive=True)

    def action_bring_back(self) -> None:
        """Toggle whether the selected file is restored."""
        state = self._state
        if state.files is not None and state.files.focused:
            state.files.toggle()
            state.asked = ""
            state.refresh()
            self._show()

    def action_choose(self) -> None:
        """Answer with the selected action; among the files, show the whole diff, or the list again."""
        files = self._state.files
        if files is not None and files.focused:
            files.toggle_whole()
            self._show()
            return
        self._answer(self._state.selected)

    def action_cancel(self) -> None:
        """Go back from a whole diff or a question on the files; else close the preview without an answer."""
        state = self._state
        if state.files is not None and state.files.whole:
            state.files.whole = False
        elif state.pending is not None:
            name, state.pending = state.pending.name, None
            state.refresh()
            state.select(name)
        else:
            self.dismiss(None)
            return
        self._show()

    def _ask_anew(self) -> None:
        """Show the next question; keys pressed right after the answer to the one before do not answer it."""
        self._is_second = True
        self.ignore_early_keys()
        self._show()

    def _wait_for_files(self, pending: PreviewAction) -> None:
        """Ask whether a fork or a D-Mail restores files."""
        state = self._state
        state.pending, state.asked = pending, ""
        state.refresh()
        state.select(pending.name)

    def _answer(self, index: int) -> None:
        state = self._state
        action, files, pending = state.actions[index], state.files, state.pending
        name = action.name
        if files is not None and files.can_restore:
            if name in WITH_A_WORD and (pending is None or pending.name != name):
                self._wait_for_files(action)
                self._ask_anew()
                return
            if name in _WITH_FILES and name != state.asked and files.unasked:
                state.choices.choose(index)
                state.asked = name
                self._ask_anew()
                return
        chosen = files.answer() if files is not None else None
        if name == BOTH.name:
            self.dismiss(PreviewAnswer(pending.name if pending else REWIND.name, "restore", chosen))
        elif name == FILES.name:
            self.dismiss(PreviewAnswer(REWIND.name, "only", chosen))
        else:
            self.dismiss(PreviewAnswer(name))

    async def on_key(self, event: events.Key) -> None:
        """Answer by a letter that was pressed alone, or by Enter if it was pressed after the question could be seen."""
        letter, letters = event.character if event.is_printable else None, self._letters
        self._key_at = event.time
        if letters.is_pending and letter is not None and not letters.follows(event.time):
            await letters.flush()
        if not self.is_current and not letters.is_prose(event.time):
            # The preview was answered, so the key is for the screen below.
            app_of(self).post_message(unhandled(event, self))
        elif not self.is_current or self._comes_early(event, letter):
            if not (self.is_current and self._is_second):
                self._type(letter or "")
        elif letter is not None:
            if not self._takes(letter, event.time):
                return
            if not letters.DEBOUNCE_S:
                await letters.flush()
        elif letters.is_pending:
            # An Enter close after a letter may end a word as well; the chosen action is visible, and waits for another Enter.
            letters.cancel()
            if event.key != "enter":
                return
        else:
            return
        event.stop()
        event.prevent_default()

    def _takes(self, letter: str, at: float) -> bool:
        """Take a letter as part of an answer or of prose; return False if it only moves the selection."""
        index = next((i for i, one in enumerate(self._state.actions) if one.key == letter), None)
        letters, moves = self._letters, letter in _MOVES and index is None
        is_held = self._has_early_letter and letters.follows(at)
        self._has_early_letter = is_held or at < self._paint.seen_at
        row = None if index is not None else row_of_digit(letter, len(self._state.actions))
        act: LetterAction | None = None
        if row is not None:
            act = partial(self._point_at, row, at)
        elif letter in LETTERS or moves:
            act = partial(self._settled, index)
        if not letters.add(letter, at, act, moves=moves):
            return False
        chosen = row if index is None else index
        if letters.is_pending and chosen is not None:
            # The letter's action is shown at once, so that an Enter close after it is about that action.
            self._state.choices.choose(chosen)
            self._show()
        if self._quiet is None:
            letters.schedule(None)
        return True

    def _settled(self, index: int | None, _: int) -> None:
        """Answer by a letter, unless it was meant for another preview; an early letter only chooses its row."""
        if index is None:
            return
        if self._has_early_letter:
            self._tell_early("The key")
        else:
            self._answer(index)

    def _point_at(self, row: int, at: float, _: int) -> None:
        """Choose the row of a digit that was read at a monotonic time; Enter answers with it."""
        state = self._state
        self._look(at)
        if state.files is not None:
            state.files.focused = state.files.whole = False
        state.details = False
        state.choices.choose(row)
        self._show()

    def takes_typed(self, text: str) -> bool:
        """Return whether characters that came at once are prose: all but those that only move the selection."""
        return self.is_current and len(text) > 1 and not set(text) <= _MOVES

    def on_paste(self, event: events.Paste) -> None:
        """Close the preview and pass the paste to the prompt: it is prose."""
        event.stop()
        self._write_over(self._letters.pop_pending() + event.text)

    def _type(self, text: str) -> None:
        if text and self._write is not None:
            self._write(text)

    def _write_over(self, text: str) -> None:
        self._type(text)
        self.dismiss(None)

    def on_preview_sheet_chosen(self, event: PreviewSheet.Chosen) -> None:
        """Answer with the clicked action."""
        self._letters.cancel()
        self._answer(event.index)

    def on_preview_sheet_file_clicked(self, event: PreviewSheet.FileClicked) -> None:
        """Select the clicked file; a click on its sign also toggles whether it is restored."""
        files = self._state.files
        if files is None:
            return
        if event.on_sign and files.focused:
            files.entries.choose(event.index)
            self.action_bring_back()
            return
        files.select(event.index)
        self._show()

    def on_mouse_scroll_down(self) -> None:
        """Scroll the dropped messages, or the diff if that is shown."""
        self._wheel(1)

    def on_mouse_scroll_up(self) -> None:
        """Scroll the dropped messages, or the diff if that is shown."""
        self._wheel(-1)

    def _wheel(self, step: int) -> None:
        files = self._state.files
        if files is not None and files.focused:
            files.move(step)
        else:
            self._state.messages.move(step)
        self._show()

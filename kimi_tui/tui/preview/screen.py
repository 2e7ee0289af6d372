"""The preview of a rewind: says what goes before anything happens, and answers with what the person chose."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from rich.segment import Segment
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.geometry import Size
from textual.message import Message
from textual.screen import ModalScreen
from textual.strip import Strip
from textual.widget import Widget

from kimi_tui.tui.answering import AnswersOnce
from kimi_tui.tui.app_of import app_of
from kimi_tui.tui.glyphs import ASCII, glyphs_of
from kimi_tui.tui.preview import layout, words
from kimi_tui.tui.preview.actions import BOTH, CONVERSATION_ACTIONS, FILES, Action, PreviewAnswer
from kimi_tui.tui.styles import sheets

if TYPE_CHECKING:
    from kimi_tui.soul.protocol import RewindPreview

_STYLES = (
    "ink",
    "strong",
    "quiet",
    "accent",
    "tool",
    "dmail",
    "compaction",
    "error",
    "ok",
    "warn",
    "added",
    "removed",
)


_WITH_FILES = frozenset({BOTH.name, FILES.name})


class PreviewSheet(Widget):
    """The rows inside the frame."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        *(f"preview--{name}" for name in _STYLES),
        "preview--select",
    }

    class Chosen(Message):
        """An action was clicked."""

        def __init__(self, index: int) -> None:
            super().__init__()
            self.index = index

    class FileClicked(Message):
        """A file was clicked, or its sign, which says whether it comes back."""

        def __init__(self, index: int, *, on_sign: bool) -> None:
            super().__init__()
            self.index = index
            self.on_sign = on_sign

    def __init__(self, state: layout.State) -> None:
        super().__init__()
        self.state = state
        self._sheet = layout.Sheet()

    @property
    def sheet(self) -> layout.Sheet:
        """The rows as they were laid out last."""
        return self._sheet

    def lay_out(self) -> None:
        """Make the rows anew for the present size and state."""
        app = app_of(self)
        width = layout.frame_width(app.size.width) - 2
        self._sheet = layout.sheet(
            self.state, width, layout.rows_for(app.size.height), glyphs_of(app)
        )

    def get_content_width(self, container: Size, viewport: Size) -> int:
        """As wide as the frame allows."""
        return layout.frame_width(viewport.width) - 2

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """As many rows as were laid out."""
        self.lay_out()
        return len(self._sheet.rows)

    def on_click(self, event: events.Click) -> None:
        """A click on an action chooses it, on a file looks at it; the whole row is the target."""
        offset = event.get_content_offset(self)
        if offset is None:
            return
        index = self._sheet.actions.get(offset.y)
        first, last = self._sheet.band
        at = self._sheet.files_at
        if index is not None and first <= offset.x < last:
            self.post_message(self.Chosen(index))
        elif offset.y in self._sheet.files and offset.x >= at:
            file = self._sheet.files[offset.y]
            self.post_message(self.FileClicked(file, on_sign=offset.x < at + 2))

    def render_line(self, y: int) -> Strip:
        """One row."""
        sheet = self._sheet
        base = self.rich_style
        spans = sheet.rows[y] if y < len(sheet.rows) else []
        strip = Strip(
            [
                Segment(
                    text, base + self.get_component_rich_style(f"preview--{name}", partial=True)
                )
                for text, name in spans
            ]
        )
        strip = strip.adjust_cell_length(self.size.width, base)
        if y not in sheet.selected:
            return strip
        first, last = sheet.band
        ground = self.get_component_rich_style("preview--select", partial=True)
        before, within, after = strip.divide([first, last, self.size.width])
        marked = Strip(
            [Segment(text, (style or base) + ground) for text, style, _ in within],
            within.cell_length,
        )
        return Strip.join([before, marked, after])


class RewindScreen(ModalScreen[PreviewAnswer | None], AnswersOnce[PreviewAnswer | None]):
    """Shows what a rewind would take. Answers with the chosen action, or None for staying where we are.

    Args:
        preview: what the engine says would go.
        running: a turn is under way; the preview says that it is stopped first.
        actions: the choices; the first one, which loses least, is selected.
    """

    CSS_PATH = [*sheets("preview")]  # noqa: RUF012 - Textual declares it so
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "Choose", id="preview.up", show=False),
        Binding("down,j", "move(1)", "Choose", id="preview.down", show=False),
        Binding("pageup", "page(-1)", "Scroll", id="preview.page_up", show=False),
        Binding("pagedown", "page(1)", "Scroll", id="preview.page_down", show=False),
        Binding("tab", "details", "Details", id="preview.details", show=False),
        Binding("space", "bring_back", "Bring back", id="preview.bring_back", show=False),
        Binding("enter", "choose", "Choose", id="preview.choose", show=False),
        Binding("escape", "cancel", "Cancel", id="preview.cancel", show=False),
    ]

    def __init__(
        self,
        preview: RewindPreview,
        *,
        running: bool = False,
        actions: Sequence[Action] = CONVERSATION_ACTIONS,
    ) -> None:
        super().__init__()
        self._state = layout.State(preview, actions, running)
        self._sheet = PreviewSheet(self._state)

    def compose(self) -> ComposeResult:
        """The frame."""
        self._sheet.set_class(glyphs_of(app_of(self)) is ASCII, "-ascii")
        self._sheet.border_title = Content(words.title(self._state.preview))
        yield self._sheet

    def _show(self) -> None:
        self._sheet.lay_out()
        self._sheet.refresh(layout=True)

    def action_move(self, step: int) -> None:
        """Choose another action, or scroll what goes where that is shown."""
        state = self._state
        if state.files is not None and state.files.focused:
            state.files.move(step)
        elif state.details:
            state.scroll += step
        else:
            state.selected = max(0, min(len(state.actions) - 1, state.selected + step))
        self._show()

    def action_page(self, step: int) -> None:
        """Scroll what is long by a page."""
        files = self._state.files
        if files is not None and files.focused:
            files.move(step * 10)
        else:
            self._state.scroll += step * self._sheet.sheet.page
        self._show()

    def action_details(self) -> None:
        """Give the arrows to the files, then to what goes, then back to the choices."""
        state = self._state
        files = state.files if state.files is not None and state.files.can_focus else None
        if files is not None and not files.focused and not state.details:
            files.focused = True
        else:
            if files is not None:
                files.focused = files.whole = False
            state.details = not state.details and bool(state.preview.goes)
        self._show()

    def action_bring_back(self) -> None:
        """Bring the selected file back, or leave it alone."""
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
            files.whole, files.scroll = not files.whole, 0
            self._show()
            return
        self._answer(self._state.selected)

    def action_cancel(self) -> None:
        """Stay where we are."""
        self.dismiss(None)

    def _answer(self, index: int) -> None:
        state = self._state
        name, files = state.actions[index].name, state.files
        if files is not None and name in _WITH_FILES and name != state.asked and files.unasked:
            state.selected, state.asked = index, name
            self._show()
            return
        chosen = files.answer() if files is not None else None
        self.dismiss(PreviewAnswer(name, chosen))

    def on_key(self, event: events.Key) -> None:
        """The letter of an action answers at once."""
        for index, action in enumerate(self._state.actions):
            if event.character == action.key:
                event.stop()
                event.prevent_default()
                self._answer(index)
                return

    def on_preview_sheet_chosen(self, event: PreviewSheet.Chosen) -> None:
        """A click on an action answers with it."""
        self._answer(event.index)

    def on_preview_sheet_file_clicked(self, event: PreviewSheet.FileClicked) -> None:
        """A click on a file looks at it, one on its sign also says whether it comes back."""
        files = self._state.files
        if files is None:
            return
        if event.on_sign and files.focused:
            files.selected = event.index
            self.action_bring_back()
            return
        files.select(event.index)
        self._show()

    def on_mouse_scroll_down(self) -> None:
        """Scroll what goes, or the diff where that is shown."""
        self._wheel(1)

    def on_mouse_scroll_up(self) -> None:
        """Scroll what goes, or the diff where that is shown."""
        self._wheel(-1)

    def _wheel(self, step: int) -> None:
        files = self._state.files
        if files is not None and files.focused:
            files.move(step)
        else:
            self._state.scroll += step
        self._show()

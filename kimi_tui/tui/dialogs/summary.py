"""A summary to be read: what stands in place of an older part of the conversation, and what can be done about it."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from kimi_tui.foreign_text import clean
from kimi_tui.tui.dialogs.text_dialog import AROUND, SHORT_BELOW
from kimi_tui.tui.formatting import both_sizes
from kimi_tui.tui.frame.footer import hint_row
from kimi_tui.tui.glyphs import ASCII, glyphs_of
from kimi_tui.tui.screens import AnswersOnce, app_of, sheets
from kimi_tui.tui.scrollbar import use_thin_scrollbar

LOW_BELOW = 24


class Summary(NamedTuple):
    """A summary.

    Attributes:
        checkpoint_id: where it stands.
        text: what the agent knows of what it replaced.
        before, after: tokens, 0 where they are not known; an estimate with `estimated`.
        can_edit: it is the newest one.
    """

    checkpoint_id: int
    text: str
    before: int = 0
    after: int = 0
    can_edit: bool = True
    estimated: bool = False

    @property
    def answers(self) -> tuple[tuple[str, str, str], ...]:
        """Keys, what they do in words, and what the screen answers then."""
        edit = (("e", "edit", "edit"), ("u", "undo the compaction", "undo"))
        rewind = (("r", "rewind to before it", "rewind"),)
        return (*(edit if self.can_edit else ()), *(rewind if self.checkpoint_id else ()))


class SummaryFrame(Vertical):
    """The frame."""


class SummaryScreen(ModalScreen[str | None], AnswersOnce[str | None]):
    """Shows a summary. Answers with what is to be done: `edit`, `undo` or `rewind`; None for nothing."""

    HELP_TITLE = "D-Mails and summaries"
    CSS_PATH = [*sheets("summary")]  # noqa: RUF012 - Textual declares it so
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,enter,q", "leave", "Close", id="summary.leave", show=False),
    ]

    def __init__(self, summary: Summary) -> None:
        super().__init__()
        self._summary = summary
        self._foot = Static()

    def compose(self) -> ComposeResult:
        """The frame."""
        summary, app = self._summary, app_of(self)
        glyphs = glyphs_of(app)
        size = ""
        if summary.before:
            to = f" {glyphs.to} "
            size = both_sizes(summary.before, summary.after, to, estimated=summary.estimated)
            size = f"  {size}"
        head = Content.assemble(
            ("All that the agent still knows of what came before", "bold $ink-strong"),
            (size, "$ink-quiet"),
        )
        text = VerticalScroll(Static(Content(clean(summary.text))))
        use_thin_scrollbar(text, glyphs)
        frame = SummaryFrame(Static(head), text, self._foot)
        frame.border_title = Content(f"Summary at #{summary.checkpoint_id}")
        frame.set_class(glyphs is ASCII, "-ascii")
        yield frame

    def on_resize(self, event: events.Resize) -> None:
        """Its keys are on view at every size; the text scrolls above them."""
        self.set_class(event.size.height < SHORT_BELOW, "-short")
        self.set_class(event.size.height < LOW_BELOW, "-low")
        self._foot.update(self._keys(event.size.width))

    def _keys(self, width: int) -> Content:
        keys = [(key, words) for key, words, _ in self._summary.answers]
        room = min(96, width * 96 // 100) - AROUND
        return hint_row([*keys, ("Esc", "close")], room)

    def on_key(self, event: events.Key) -> None:
        """The letter of an answer answers at once."""
        for key, _, answer in self._summary.answers:
            if event.character == key:
                event.stop()
                event.prevent_default()
                self.dismiss(answer)

    def action_leave(self) -> None:
        """Nothing is to be done."""
        self.dismiss(None)

"""A dialog shown while another program has the session open that should be opened here: continue in a fork of it, or quit."""

from __future__ import annotations

from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import ModalScreen

from kimi_tui.foreign_text import clean, one_line
from kimi_tui.tui.dialogs.text_dialog import AROUND, DialogFrame, DialogWords
from kimi_tui.tui.formatting import session_words
from kimi_tui.tui.frame import hint_row
from kimi_tui.tui.frame_label import frame_label
from kimi_tui.tui.glyphs import ASCII, glyphs_of
from kimi_tui.tui.keyboard import TOO_EARLY, OneKeyScreen
from kimi_tui.tui.row_list import plain
from kimi_tui.tui.screens import app_of, sheets

HINTS = (("f", "continue in a copy of the session (a fork)"), ("Esc", "quit"))


class OpenElsewhereScreen(ModalScreen[bool | None], OneKeyScreen[bool | None]):
    """Asks whether to fork a session that is open in another program. Its result is True for yes, None for no.

    The caller closes it with None if the session is closed in the other program.

    Args:
        title: the title of the session.
        holder: the process that has it open.
    """

    CSS_PATH = sheets("rows", "text_dialog")
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", "Quit", show=False),
    ]

    def __init__(self, title: str, holder: str) -> None:
        super().__init__()
        self._title = session_words(one_line(title))
        self._holder = holder
        self._keys = DialogWords()

    def compose(self) -> ComposeResult:
        """Return the explanation, and the keys."""
        frame = DialogFrame(
            DialogWords(plain(clean(f"{self._title} is open in {self._holder}."), "strong")),
            DialogWords(plain("The session opens here once the other program closes it.", "quiet")),
            DialogWords(),
            self._keys,
        )
        frame.border_title = frame_label(app_of(self), "Session is open elsewhere")
        frame.set_class(glyphs_of(app_of(self)) is ASCII, "-ascii")
        yield frame

    def on_resize(self) -> None:
        """Show the keys that fit."""
        self._show_keys()

    def _show_keys(self, words: str = "") -> None:
        width = min(88, app_of(self).size.width * 96 // 100) - AROUND
        self._keys.show(plain(words, "warn") if words else hint_row(HINTS, width))

    async def on_key(self, event: events.Key) -> None:
        """Answer yes by the letter, if it was pressed alone after the dialog had been on the screen for a while."""
        if not event.is_printable:
            return
        event.stop()
        answer = self._fork if event.key in ("f", "F") else None
        if not await self.seen.answer_with(event, answer) and answer is not None:
            self._show_keys(f"{TOO_EARLY.capitalize()}.")

    def _fork(self) -> None:
        self.dismiss(True)

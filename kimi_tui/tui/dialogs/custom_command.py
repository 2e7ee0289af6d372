"""Shows a command that a repository brings, whole, before it is used for the first time."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from kimi_tui.foreign_text import visible
from kimi_tui.tui.glyphs import glyphs_of
from kimi_tui.tui.screens import AnswersOnce, sheets
from kimi_tui.tui.scrollbar import use_thin_scrollbar


class CustomCommandScreen(ModalScreen[bool | None], AnswersOnce[bool | None]):
    """Asks whether a command may be sent. Answers with True for yes.

    Args:
        name: its word.
        path: its file, as users write it.
        text: what it sends.
    """

    CSS_PATH = sheets("help")
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "send", "Send it", show=False),
        Binding("escape,n,q", "dismiss(None)", "Do not", show=False),
    ]

    def __init__(self, name: str, path: str, text: str) -> None:
        super().__init__()
        self._name = name
        self._path = path
        self._text = text

    def compose(self) -> ComposeResult:
        """The text, under where it is from."""
        words = Content.assemble(
            (
                "This folder brings this command. It tells the agent what stands here:",
                "$ink-strong",
            ),
            f"\n{visible(self._path)}\n\n",
            ("\n".join(visible(line) for line in self._text.split("\n")), "$ink"),
        )
        frame = VerticalScroll(Static(words))
        use_thin_scrollbar(frame, glyphs_of(self))
        frame.border_title = Content(f"/{self._name}")
        frame.border_subtitle = "y send it, now and from now on  Esc not"
        yield frame

    def action_send(self) -> None:
        """Yes, once the end of the text is on the screen; before, a page of it."""
        frame = self.query_one(VerticalScroll)
        if frame.scroll_offset.y < frame.max_scroll_y:
            frame.border_subtitle = "read to the end first: y or PageDown  Esc not"
            frame.scroll_page_down(animate=False)
        else:
            self.dismiss(True)

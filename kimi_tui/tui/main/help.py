"""The help: every key and every command, in one place that Esc closes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from rich.cells import cell_len
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.geometry import Size
from textual.screen import ModalScreen
from textual.widget import Widget

from kimi_tui.tui.answering import AnswersOnce
from kimi_tui.tui.app_of import app_of
from kimi_tui.tui.glyphs import Glyphs, glyphs_of
from kimi_tui.tui.main.commands import COMMANDS, key_of
from kimi_tui.tui.numbers import wrap_words
from kimi_tui.tui.scrollbar import use_thin_scrollbar
from kimi_tui.tui.styles import sheets

Pair = tuple[str, str]
COLUMN = 26


def sections(keys: Mapping[str, str], glyphs: Glyphs) -> tuple[tuple[str, tuple[Pair, ...]], ...]:
    """What the help says: a title and pairs of key and meaning for each area."""
    arrows = f"{glyphs.up}{glyphs.down}"
    return (
        (
            "Prompt",
            (
                ("Enter", "send; while the agent works: steer it before its next step"),
                ("Enter, prompt empty", "go on after a stop, an error or a rewind; try again now"),
                ("Shift+Enter, Ctrl+J", "new line (Alt+Enter does the same)"),
                (glyphs.up, "take back what is queued; else what was sent before"),
                ("Esc", "stop the agent; twice in an empty prompt: go back to a step"),
                ("Ctrl+C", "copy what is selected; stop; twice: quit"),
                ("Ctrl+D", "delete; twice in an empty prompt: quit"),
                ("Ctrl+_, Ctrl+Y", "undo and redo typing"),
                ("PageUp, PageDown", "read the chat"),
            ),
        ),
        (
            "Timeline",
            (
                (arrows, "choose a step"),
                ("[ ]", "go by turns"),
                ("Enter, click", "see what a rewind there takes, then decide"),
                ("Space", "fold or unfold a turn or a world line"),
                ("w, b, P", "read a world line; bookmark; pin"),
                ("u, U", "undo, redo"),
                ("/", "filter"),
                ("Esc", "back to the prompt"),
            ),
        ),
        (
            "Approvals",
            (
                ("y, a, n, e", "yes; yes for the session; no; no, and why"),
                (f"{arrows}, Enter", "choose an answer"),
                ("PageUp, PageDown", "read all of what will run"),
                ("Tab", "as many of its rows as the screen has room for, or fewer"),
                ("Ctrl+G", "edit a command before it runs; the agent is told"),
            ),
        ),
        (
            "Commands",
            tuple(
                (
                    f"/{command.name} {command.argument}".strip(),
                    _with_key(command.help, key_of(command.name, keys)),
                )
                for command in COMMANDS
            ),
        ),
    )


def _with_key(text: str, key: str) -> str:
    return f"{text}  {key}" if key else text


class HelpText(Widget):
    """The words of the help, wrapped for their width."""

    def __init__(self, keys: Mapping[str, str]) -> None:
        super().__init__()
        self._keys = keys

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """As many rows as the words need."""
        return len(self._lines(width))

    def render(self) -> Content:
        """All rows."""
        return Content("\n").join(self._lines(self.content_size.width))

    def _lines(self, width: int) -> list[Content]:
        lines: list[Content] = []
        for title, pairs in sections(self._keys, glyphs_of(app_of(self))):
            lines.append(Content.styled(title, "bold $ink-strong"))
            for key, meaning in pairs:
                gap = " " * max(2, COLUMN - cell_len(key))
                first, *rest = wrap_words(meaning, max(16, width - COLUMN - 2))
                lines.append(Content.assemble("  ", (key, "$accent"), gap, (first, "$ink")))
                lines += [Content.styled(" " * (COLUMN + 2) + row, "$ink") for row in rest]
            lines.append(Content(""))
        return lines[:-1]


class HelpScreen(ModalScreen[None], AnswersOnce[None]):
    """All keys and commands."""

    CSS_PATH = sheets("help")
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,f1", "dismiss", "Close", show=False),
    ]

    def __init__(self, keys: Mapping[str, str]) -> None:
        super().__init__()
        self._keys = keys

    def compose(self) -> ComposeResult:
        """One text that scrolls."""
        frame = VerticalScroll(HelpText(self._keys))
        use_thin_scrollbar(frame, glyphs_of(app_of(self)))
        frame.border_title = "Help"
        frame.border_subtitle = "Esc close"
        yield frame

"""The keys of vim in the prompt: the model has the commands, the field what stands there.

In insert mode the field takes its keys itself, with its menus and chips. In the others each command comes back as one
change of its text, so that it can be undone there, too. A chip is one character to the model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.widgets.text_area import Selection

from kimi_tui.tui.keyboard import CHORDS
from kimi_tui.tui.prompt.vim import Mode, Vim
from kimi_tui.tui.prompt.vim_text import WHOLES

if TYPE_CHECKING:
    from textual import events

    from kimi_tui.tui.prompt.area import PromptArea

NAMED = frozenset(("left", "right", "up", "down", "home", "end", "delete", "backspace", "space"))
WRITTEN = frozenset("/!#@")
"""What begins a command, a note or the name of a file: in the empty prompt it is written in any mode."""


class VimKeys:
    """The modes of a prompt.

    Args:
        area: the field.
    """

    def __init__(self, area: PromptArea) -> None:
        self._area = area
        self._vim = Vim()
        self._wholes: dict[str, str] = {}
        """The characters that stand for chips."""
        self._shown: tuple[str, Selection] | None = None
        """What stands in the field since the last command."""
        self._take_over()

    @property
    def mode(self) -> Mode:
        """What keys mean now."""
        return self._vim.mode

    @property
    def selected_text(self) -> str | None:
        """What is selected with `v` or `V`, where anything is."""
        if self.mode not in ("visual", "lines"):
            return None
        start, end = self._vim.selected
        return self._written(self._vim.text[start:end])

    def replaced(self) -> None:
        """Another text was put into the field."""
        self._take_over()
        self._vim.forget()

    def write(self) -> None:
        """What comes next is written."""
        if self.mode != "insert":
            self._take_over()
            self._vim.begin_insert()
            self._shown = None

    def takes(self, event: events.Key) -> bool:
        """Whether a key is a command, and was carried out."""
        area, vim, key = self._area, self._vim, event.key
        menu = area.menu
        is_choosing = menu is not None and menu.active
        if self.mode == "insert":
            # Most terminals send Esc and a letter right behind it as that letter with Alt.
            letter = event.character if key.startswith("alt+") and event.is_printable else None
            if is_choosing or area.is_searching or not (letter or key == "escape"):
                return False
            self._take_over()
            vim.leave_insert()
            self._act(letter)
            return True
        typed = event.character if event.is_printable and not key.startswith(CHORDS) else None
        if is_choosing and (key in ("up", "down", "escape")):
            return False
        if typed in WRITTEN and not area.text:
            self.write()
            return False
        if typed is None and key not in NAMED and key not in ("escape", "ctrl+r"):
            return False
        if self._shown != (area.text, area.selection):
            self._take_over()
        return self._act(key if key in NAMED or typed is None else typed)

    def _act(self, key: str | None) -> bool:
        """Carry out a key and show what came of it; False for one that is left to others."""
        outcome = self._vim.press(key) if key else ""
        if outcome == "escape":
            return False
        if outcome == "earlier":
            self._area.action_earlier()
            self._take_over()
        elif outcome == "later":
            self._area.action_later()
            self._take_over()
        self._show()
        return True

    # --- the field and the model

    def _take_over(self) -> None:
        """Have the model hold what stands in the field."""
        area = self._area
        for chip in area.chips:
            self._wholes.setdefault(chip, chr(WHOLES + len(self._wholes)))
        text = area.text
        row, column = area.selection.end
        at = sum(len(line) + 1 for line in text.split("\n")[:row]) + column
        for chip in area.chips:
            start = text.find(chip)
            if 0 <= start < at < start + len(chip):
                at = start
        self._vim.load(self._folded(text), len(self._folded(text[:at])))
        self._shown = None

    def _folded(self, text: str) -> str:
        for chip, char in self._wholes.items():
            if chip in self._area.chips:
                text = text.replace(chip, char)
        return text

    def _written(self, text: str) -> str:
        """A text of the model with its chips."""
        for chip, char in self._wholes.items():
            text = text.replace(char, chip)
        return text

    def _show(self) -> None:
        """Have the field show what the model holds."""
        area, vim = self._area, self._vim
        text = self._written(vim.text)
        area.change(text)
        at = len(self._written(vim.text[: vim.at]))
        first = last = at
        if vim.mode in ("visual", "lines"):
            # The character under the cursor belongs to it, too, and the cursor shows it.
            start, end = (len(self._written(vim.text[:one])) for one in vim.selected)
            if vim.mode == "lines":
                first, last = (start, end) if vim.at >= vim.anchor else (end, start)
            else:
                first = start if vim.at >= vim.anchor else end
        area.selection = Selection(area.place_in(text, first), area.place_in(text, last))
        area.record_cursor_width()
        self._shown = (area.text, area.selection)
        area.mode_changed()

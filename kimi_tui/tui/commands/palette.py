"""The command palette: type a part of what you want, Enter does it."""

from __future__ import annotations

from collections.abc import Mapping

from textual import events, on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input

from kimi_tui.tui.glyphs import glyphs_of
from kimi_tui.tui.keyboard import LineField
from kimi_tui.tui.prompt.command import Command, CommandTable
from kimi_tui.tui.prompt.menu import CommandMenu
from kimi_tui.tui.screens import AnswersOnce, sheets


def found(commands: CommandTable, words: str) -> tuple[Command, ...]:
    """The commands that hold every word in their name, title or help; those with it in the title, and used most, first.

    Where there is none, those whose titles hold the letters in their order.
    """
    parts = words.lower().split()
    rest = commands.by_use(command for command in commands if command.name != "commands")
    in_title = [c for c in rest if all(word in f"{c.name} {c.title}".lower() for word in parts)]
    in_help = [c for c in rest if all(word in f"{c.title} {c.help}".lower() for word in parts)]
    if in_title or in_help:
        return (*in_title, *(command for command in in_help if command not in in_title))
    from textual.fuzzy import Matcher

    score = Matcher(words).match
    scored = sorted(((score(c.name) + score(c.title), c) for c in rest), key=lambda one: -one[0])
    return tuple(command for points, command in scored if points > 0)


class PaletteScreen(ModalScreen[str | None], AnswersOnce[str | None]):
    """Asks for a command. Answers with its name, or None.

    Args:
        commands: all of them.
        keys: those of the configuration, by command.
    """

    HELP_TITLE = "Commands"
    CSS_PATH = sheets("palette")

    def __init__(self, commands: CommandTable, keys: Mapping[str, str]) -> None:
        super().__init__()
        self._commands = commands
        self._input = LineField(placeholder="Find a command")
        self._menu = CommandMenu(commands, keys, rows=14, found=found(commands, ""))

    def compose(self) -> ComposeResult:
        """A field over a list, in one frame."""
        frame = Vertical(self._input, self._menu)
        glyphs = glyphs_of(self)
        frame.border_title = "Commands"
        frame.border_subtitle = f"Enter choose  {glyphs.up}{glyphs.down} move  Esc close"
        yield frame

    def on_mount(self) -> None:
        """Give the field the keys."""
        self._input.focus()

    @on(Input.Changed)
    def _typed(self, event: Input.Changed) -> None:
        self._menu.show(found(self._commands, event.value))

    @on(Input.Submitted)
    def _submitted(self) -> None:
        if self._menu.chosen is not None:
            self.dismiss(self._menu.chosen.name)

    @on(CommandMenu.Clicked)
    def _clicked(self) -> None:
        self._submitted()

    def on_key(self, event: events.Key) -> None:
        """Arrows move in the list, Esc closes."""
        steps = {"up": -1, "down": 1, "pageup": -10, "pagedown": 10}
        if event.key in steps:
            self._menu.move(steps[event.key])
        elif event.key in ("escape", "ctrl+p"):
            self.dismiss(None)
        else:
            return
        event.stop()
        event.prevent_default()

"""A list to choose from with the arrows, and the command palette.

Over the prompt it lists commands, values behind one, files, or what was sent before; `completion.py` says what, and when.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from textual import events, on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.geometry import Size
from textual.message import Message
from textual.screen import ModalScreen
from textual.widget import Widget
from textual.widgets import Input, Static

from kimi_tui.tui.formatting import cut, path
from kimi_tui.tui.glyphs import drawn, glyphs_of
from kimi_tui.tui.keyboard import LineField, key_of
from kimi_tui.tui.prompt.command import Command, CommandTable
from kimi_tui.tui.screens import AnswersOnce, sheets

NAME_CELLS = 25


class MenuOffer(NamedTuple):
    """An entry of the menu that is no command: a file, or a message that was sent before.

    Attributes:
        text: the text that it puts into the prompt.
        shown: the text of its row.
        note: a few words at the end of the row.
        is_path: whether it is a path, of which the beginning is cut where it is too long.
    """

    text: str
    shown: str
    note: str = ""
    is_path: bool = False


class CommandMenu(Widget):
    """A list of commands or other offers; hidden while it is empty.

    Args:
        keys: those of the configuration, by command.
        rows: the most rows that are shown at once.
        found: the commands to begin with.
    """

    class Clicked(Message):
        """An entry was clicked, and is the chosen one now."""

    def __init__(
        self, keys: Mapping[str, str], rows: int = 8, found: Sequence[Command] = ()
    ) -> None:
        super().__init__()
        self._keys = keys
        self._rows = rows
        self._room = rows
        self._found: Sequence[Command | MenuOffer] = found
        self._chosen: int | None = 0
        self._is_moved = False
        """Whether the user has moved the choice with the arrows."""
        self._is_hint = False

    @property
    def active(self) -> bool:
        """Whether something can be chosen, so that the arrows, Enter, Tab and Esc act on the menu."""
        return bool(self._found) and not self._is_hint

    @property
    def chosen(self) -> Command | None:
        """The command that Enter would run; None where Enter sends the typed text."""
        chosen = self._current
        return chosen if isinstance(chosen, Command) else None

    @property
    def offer(self) -> MenuOffer | None:
        """The offer that Enter would put into the prompt; None while there is none."""
        chosen = self._current
        return chosen if isinstance(chosen, MenuOffer) else None

    @property
    def _current(self) -> Command | MenuOffer | None:
        return self._found[self._chosen] if self.active and self._chosen is not None else None

    @property
    def completion(self) -> Command | None:
        """The command that Tab would write out: the chosen one, else the first."""
        first = self._found[0] if self.active else None
        return self.chosen or (first if isinstance(first, Command) else None)

    def show(
        self,
        found: Sequence[Command | MenuOffer],
        *,
        is_first_chosen: bool = True,
        is_hint: bool = False,
        is_same_text: bool = False,
    ) -> None:
        """List commands or offers.

        Args:
            found: the entries in their order.
            is_first_chosen: whether the first is chosen; else none is until the arrows choose one.
            is_hint: whether the entry only shows how a command is used, and cannot be chosen.
            is_same_text: whether nothing was typed since: the entry chosen with the arrows stays chosen.
        """
        kept = self._current if is_same_text and self._is_moved else None
        self._is_moved &= is_same_text
        first = 0 if found and is_first_chosen else None
        chosen = found.index(kept) if kept in found else first
        if (found, is_hint, chosen) == (self._found, self._is_hint, self._chosen):
            return
        self._found, self._chosen, self._is_hint = found, chosen, is_hint
        self.display = bool(found)
        self.refresh(layout=True)

    def move(self, step: int) -> None:
        """Choose another command."""
        last = len(self._found) - 1
        if self._chosen is None:
            self._chosen = 0 if step > 0 else last
        else:
            self._chosen = max(0, min(last, self._chosen + step))
        self._is_moved = True
        self.refresh()

    @property
    def _shown_rows(self) -> int:
        return min(self._rows, self._room)

    @property
    def _top(self) -> int:
        rows = self._shown_rows
        return max(0, min((self._chosen or 0) - rows // 2, len(self._found) - rows))

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """A row for each entry up to a limit, and one that names the limit where there are more."""
        self._room = max(3, viewport.height - 9)
        return min(len(self._found), self._shown_rows) + self._is_cut

    @property
    def _is_cut(self) -> bool:
        """Whether there are more than are shown."""
        return len(self._found) > self._shown_rows

    def on_click(self, event: events.Click) -> None:
        """Choose the row under the pointer."""
        index = self._top + event.y
        if self.active and event.y < self._shown_rows and 0 <= index < len(self._found):
            self._chosen, self._is_moved = index, True
            self.refresh()
            self.post_message(self.Clicked())

    def render(self) -> Content:
        """The rows around the chosen entry."""
        width = self.content_size.width
        shown = self._found[self._top : self._top + self._shown_rows]
        rows = [
            self._row(one, width) if isinstance(one, Command) else self._offer_row(one, width)
            for one in shown
        ]
        if self._is_cut:
            last = self._top + len(shown)
            more = f"  {self._top + 1} to {last} of {len(self._found):,}"
            rows.append(Content.styled(cut(more, width, glyphs_of(self).cut), "$ink-quiet"))
        return Content("\n").join(rows)

    def _offer_row(self, offer: MenuOffer, width: int) -> Content:
        glyphs = glyphs_of(self)
        is_chosen = offer is self._current
        back = " on $select" if is_chosen else ""
        room = max(8, width - 4 - len(offer.note))
        fit = path if offer.is_path else cut
        shown = fit(drawn(offer.shown, glyphs), room, glyphs.cut)
        row = Content.assemble(
            (f"{glyphs.edge if is_chosen else ' '} ", f"$accent{back}"),
            (shown, f"bold $ink-strong{back}" if is_chosen else "$ink"),
        )
        gap = " " * max(1, width - row.cell_length - len(offer.note))
        return Content.assemble(row, (gap, f"$ink{back}"), (offer.note, f"$ink-quiet{back}"))

    def _row(self, command: Command, width: int) -> Content:
        glyphs = glyphs_of(self)
        is_chosen = command is self.chosen
        back = " on $select" if is_chosen else ""
        key = drawn(key_of(command.name, self._keys), glyphs)
        name = cut(drawn(command.usage, glyphs), NAME_CELLS, glyphs.cut)
        room = max(0, width - NAME_CELLS - 4 - len(key) - 2)
        row = Content.assemble(
            (f"{glyphs.edge if is_chosen else ' '} ", f"$accent{back}"),
            (f"{name:<{NAME_CELLS + 1}}", f"bold $ink-strong{back}" if is_chosen else "$ink"),
            (cut(command.help, room, glyphs.cut), f"$ink-quiet{back}"),
        )
        gap = " " * max(1, width - row.cell_length - len(key))
        return Content.assemble(row, (gap, f"$ink{back}"), (key, f"$ink-quiet{back}"))


def found(commands: CommandTable, words: str) -> tuple[Command, ...]:
    """The commands that hold every word in their name, title or help; those with it in the title, and used most, first.

    Where there is none, those whose titles hold the letters in their order.
    """
    words = words.lstrip().removeprefix("/")
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


NO_COMMAND = "No command matches."


class PaletteScreen(ModalScreen[str | None], AnswersOnce[str | None]):
    """The command palette. Its result is the name of a command, or None.

    Args:
        commands: all commands.
        keys: those of the configuration, by command.
    """

    HELP_TITLE = "Commands"
    CSS_PATH = sheets("palette")

    def __init__(self, commands: CommandTable, keys: Mapping[str, str]) -> None:
        super().__init__()
        self._commands = commands
        self._input = LineField(placeholder="Find a command")
        self._menu = CommandMenu(keys, rows=14, found=found(commands, ""))
        self._nothing = Static(NO_COMMAND, markup=False)
        self._nothing.display = False

    def compose(self) -> ComposeResult:
        """A field over a list, in one frame."""
        frame = Vertical(self._input, self._menu, self._nothing)
        glyphs = glyphs_of(self)
        frame.border_title = "Commands"
        frame.border_subtitle = f"Enter choose  {glyphs.up}{glyphs.down} move  Esc close"
        yield frame

    def on_mount(self) -> None:
        """Give the field the keys."""
        self._input.focus()

    @on(Input.Changed)
    def _typed(self, event: Input.Changed) -> None:
        shown = found(self._commands, event.value)
        self._menu.show(shown)
        self._nothing.display = not shown

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

"""A list to choose from with the arrows, and the command palette.

Over the prompt it lists commands, values for the argument of one, files, or sent messages; `completion.py` decides which, and when.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, NamedTuple

from rich.cells import cell_len
from textual import events, on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.geometry import Size
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from kimi_tui.tui.formatting import cut, path, wrap_words
from kimi_tui.tui.frame_label import frame_label
from kimi_tui.tui.glyphs import drawn
from kimi_tui.tui.key_names import key_of
from kimi_tui.tui.line_field import LineField
from kimi_tui.tui.prompt.command import Command, CommandTable
from kimi_tui.tui.row_list import Look, RowList, RowModel
from kimi_tui.tui.rows import Line, Span, spans_width
from kimi_tui.tui.screens import AnswersOnce, sheets

NAME_CELLS = 25


class MenuOffer(NamedTuple):
    """An entry of the menu that is no command: a file, or a message that was sent before.

    Attributes:
        text: the text that it puts into the prompt.
        shown: the text of its row.
        note: a few words at the end of the row.
        is_path: whether it is a path, which is shortened at its beginning if it is too long.
    """

    text: str
    shown: str
    note: str = ""
    is_path: bool = False


class MenuModel(RowModel):
    """Commands or other offers.

    Args:
        keys: the configured keys, by command.
        found: the entries.

    Attributes:
        found: as above.
        is_hint: whether the one entry only shows how a command is used.
    """

    def __init__(self, keys: Mapping[str, str], found: Sequence[Command | MenuOffer] = ()) -> None:
        self._keys = keys
        self.found = found
        self.is_hint = False

    def __len__(self) -> int:
        """Return the number of entries."""
        return len(self.found)

    def rows(self, look: Look) -> Sequence[Sequence[Line]]:
        """Return a row for each entry: the text that it puts into the prompt, its title, and at the right its key or a note."""
        return [[self._row(self.found[i], look, is_chosen=i == look.chosen)] for i in look.on_view]

    def _row(self, entry: Command | MenuOffer, look: Look, *, is_chosen: bool) -> Line:
        glyphs, style = look.glyphs, "strong" if is_chosen else "ink"
        if isinstance(entry, Command):
            note = drawn(key_of(entry.name, self._keys), glyphs)
            name = cut(drawn(entry.usage, glyphs), NAME_CELLS, glyphs.cut)
            room = self._title_room(look, note)
            words = (
                Span(f"  {name:<{NAME_CELLS + 1}}", style),
                Span(
                    cut(drawn(entry.title, glyphs), room, glyphs.cut),
                    style if is_chosen else "quiet",
                ),
            )
        else:
            note, fit = entry.note, path if entry.is_path else cut
            room = max(8, look.width - 4 - len(note))
            words = (Span("  "), Span(fit(drawn(entry.shown, glyphs), room, glyphs.cut), style))
        gap = " " * max(1, look.width - spans_width(words) - len(note))
        return Line((*words, Span(f"{gap}{note}", "quiet")))

    @staticmethod
    def _title_room(look: Look, note: str) -> int:
        return max(0, look.width - NAME_CELLS - 4 - len(note) - 2)

    def footing(self, look: Look) -> str:
        """Return the help of the chosen command, or its title if that is cut, and the place of the entries if not all are visible."""
        n_entries, on_view = len(self.found), look.on_view
        index = 0 if self.is_hint else look.chosen
        chosen = self.found[index] if index is not None and n_entries else None
        words = ""
        if isinstance(chosen, Command):
            title = drawn(chosen.title, look.glyphs)
            is_cut = cell_len(title) > self._title_room(
                look, drawn(key_of(chosen.name, self._keys), look.glyphs)
            )
            words = drawn(chosen.help, look.glyphs) or (title if is_cut else "")
        places = ""
        if len(on_view) < n_entries:
            places = f"{on_view.start + 1} to {on_view.stop} of {n_entries:,}"
        if not words:
            return places
        gap = look.width - 3 - cell_len(words) - len(places)
        if places and gap >= 2:
            return f"{words}{' ' * gap}{places}"
        return "\n".join(wrap_words(words, look.width - 3))


class CommandMenu(RowList, can_focus=False):
    """A list of commands or other offers; hidden while it is empty. A click on an entry chooses and picks it.

    Args:
        keys: the configured keys, by command.
        rows: the largest number of rows that are shown at once.
        found: the first commands.
    """

    ROWS_BESIDE: ClassVar[int] = 9
    """Rows of the screen that are not the menu's, with one for the help of an entry."""

    model: MenuModel

    def __init__(
        self, keys: Mapping[str, str], rows: int = 8, found: Sequence[Command] = ()
    ) -> None:
        super().__init__(MenuModel(keys, found), most=rows)
        self._free = rows
        """Rows that the screen leaves for the menu."""
        self._is_moved = False
        """Whether the user has moved the choice."""

    @property
    def active(self) -> bool:
        """Whether something can be chosen, so that the arrows, Enter, Tab and Esc act on the menu."""
        return bool(len(self.model)) and not self.model.is_hint

    @property
    def chosen(self) -> Command | None:
        """The command that Enter would run; None if Enter sends the typed text."""
        chosen = self._current
        return chosen if isinstance(chosen, Command) else None

    @property
    def offer(self) -> MenuOffer | None:
        """The offer that Enter would put into the prompt; None if there is none."""
        chosen = self._current
        return chosen if isinstance(chosen, MenuOffer) else None

    @property
    def _current(self) -> Command | MenuOffer | None:
        return self.model.found[self.state.chosen] if self.state.chosen is not None else None

    @property
    def completion(self) -> Command | None:
        """The command that Tab would write out: the chosen one, else the first."""
        first = self.model.found[0] if self.active else None
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
            is_first_chosen: whether the first is chosen; otherwise none is chosen until the arrows are used.
            is_hint: whether the entry only shows how a command is used, and cannot be chosen.
            is_same_text: whether nothing was typed since, so that the entry chosen with the arrows stays chosen.
        """
        kept = self._current if is_same_text and self._is_moved else None
        self._is_moved &= is_same_text
        first = 0 if found and is_first_chosen and not is_hint else None
        chosen = found.index(kept) if kept in found else first
        if (found, is_hint, chosen) == (self.model.found, self.model.is_hint, self.state.chosen):
            return
        self.model.found, self.model.is_hint = found, is_hint
        if not self._is_moved:
            self.state.top = 0
        self.display = bool(found)
        self.offered(chosen)

    def select(self, index: int) -> None:
        """Choose an entry, if any can be chosen: it stays chosen until something is typed."""
        if self.active:
            self._is_moved = True
            super().select(index)

    @property
    def room(self) -> int:
        """The largest number of rows for which the screen has room."""
        return min(super().room, self._free)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """Return the number of rows: one for each entry up to a limit, and one below them."""
        self._free = max(3, viewport.height - self.ROWS_BESIDE)
        return super().get_content_height(container, viewport, width)


def found(commands: CommandTable, words: str) -> tuple[Command, ...]:
    """Return the commands that contain every word in their name, title, help or aliases.

    The one with exactly this name comes first, then those whose names begin with it, then the others with the words in the
    title; among these those used most. If there is none, those whose titles contain the letters in their order.
    """
    words = words.lstrip().removeprefix("/")
    typed = words.lower().strip()
    parts = typed.split()
    rest = commands.by_use(command for command in commands if command.name != "commands")
    if typed:
        rest = sorted(rest, key=lambda c: (c.name != typed, not c.name.startswith(typed)))
    in_title = [c for c in rest if all(word in f"{c.name} {c.title}".lower() for word in parts)]
    in_help = [c for c in rest if all(word in _all_words(c) for word in parts)]
    if in_title or in_help:
        return (*in_title, *(command for command in in_help if command not in in_title))
    from textual.fuzzy import Matcher

    score = Matcher(words).match
    scored = sorted(((score(c.name) + score(c.title), c) for c in rest), key=lambda one: -one[0])
    return tuple(command for points, command in scored if points > 0)


def _all_words(command: Command) -> str:
    return " ".join((command.title, command.help, *command.aliases)).lower()


class PaletteMenu(CommandMenu):
    """The list of the palette, in whose frame the help of an entry may take three rows."""

    ROWS_BESIDE: ClassVar[int] = 11


NO_COMMAND = "No command matches. Backspace shows more."


class PaletteScreen(ModalScreen[str | None], AnswersOnce[str | None]):
    """The command palette. Its result is the name of a command, or None.

    Args:
        commands: all commands.
        keys: the configured keys, by command.
    """

    HELP_TITLE = "Commands"
    CSS_PATH = sheets("rows", "palette")

    def __init__(self, commands: CommandTable, keys: Mapping[str, str]) -> None:
        super().__init__()
        self._commands = commands
        self._input = LineField(placeholder="Find a command")
        self._menu = PaletteMenu(keys, rows=14, found=found(commands, ""))
        self._nothing = Static(NO_COMMAND, markup=False)
        self._nothing.display = False

    def compose(self) -> ComposeResult:
        """Yield a field over a list, in one frame."""
        frame = Vertical(self._input, self._menu, self._nothing)
        frame.border_title = frame_label(self, "Commands")
        frame.border_subtitle = frame_label(self, "Enter choose  ↑↓ move  Esc close")
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

    @on(CommandMenu.Picked)
    def _clicked(self) -> None:
        self._submitted()

    def on_key(self, event: events.Key) -> None:
        """Move in the list with the arrows, and close with Esc."""
        if event.key in ("escape", "ctrl+p"):
            self.dismiss(None)
        elif event.key in ("home", "end") or not self._menu.press(event.key):
            return
        event.stop()
        event.prevent_default()

"""A list of commands to choose from with the arrows: over the prompt while a `/word` is typed, and in the palette."""

from __future__ import annotations

from collections.abc import Mapping

from textual import events
from textual.content import Content
from textual.geometry import Size
from textual.message import Message
from textual.widget import Widget

from kimi_tui.tui.app_of import app_of
from kimi_tui.tui.glyphs import glyphs_of
from kimi_tui.tui.main.commands import Command, key_of, matching
from kimi_tui.tui.numbers import cut

NAME_CELLS = 25


class CommandMenu(Widget):
    """Some of the commands, one of them chosen; not there while nothing matches.

    Args:
        keys: those of the configuration, by command.
        rows: how many are shown at once.
        found: the commands to begin with.
    """

    class Clicked(Message):
        """A command was clicked; it is the chosen one."""

    def __init__(
        self, keys: Mapping[str, str], rows: int = 8, found: tuple[Command, ...] = ()
    ) -> None:
        super().__init__()
        self._keys = keys
        self._rows = rows
        self._room = rows
        self._found = found
        self._chosen = 0

    @property
    def active(self) -> bool:
        """Whether it is on the screen and has the arrows."""
        return bool(self._found)

    @property
    def chosen(self) -> Command | None:
        """The command that Enter would run."""
        return self._found[self._chosen] if self._found else None

    def follow(self, text: str) -> None:
        """Show what the text in the prompt may become."""
        word = text[1:].lower()
        is_word = text.startswith("/") and word.replace("-", "x").isalpha()
        self.show(matching(word) if is_word or text == "/" else ())

    def show(self, found: tuple[Command, ...]) -> None:
        """Offer these."""
        if found == self._found:
            return
        self._found, self._chosen = found, 0
        self.display = bool(found)
        self.refresh(layout=True)

    def move(self, step: int) -> None:
        """Choose another command."""
        self._chosen = max(0, min(len(self._found) - 1, self._chosen + step))
        self.refresh()

    @property
    def _shown_rows(self) -> int:
        return min(self._rows, self._room)

    @property
    def _top(self) -> int:
        rows = self._shown_rows
        return max(0, min(self._chosen - rows // 2, len(self._found) - rows))

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """A row a command, up to a limit."""
        self._room = max(3, viewport.height - 9)
        return min(len(self._found), self._shown_rows)

    def on_click(self, event: events.Click) -> None:
        """Choose the row under the pointer."""
        index = self._top + event.y
        if 0 <= index < len(self._found):
            self._chosen = index
            self.refresh()
            self.post_message(self.Clicked())

    def render(self) -> Content:
        """The window around the chosen command."""
        width = self.content_size.width
        shown = self._found[self._top : self._top + self._shown_rows]
        rows = [self._row(command, width) for command in shown]
        return Content("\n").join(rows)

    def _row(self, command: Command, width: int) -> Content:
        glyphs = glyphs_of(app_of(self))
        is_chosen = command is self.chosen
        back = " on $select" if is_chosen else ""
        key = key_of(command.name, self._keys)
        name = cut(f"/{command.name} {command.argument}".strip(), NAME_CELLS, glyphs.cut)
        room = max(0, width - NAME_CELLS - 4 - len(key) - 2)
        row = Content.assemble(
            (f"{glyphs.edge if is_chosen else ' '} ", f"$accent{back}"),
            (f"{name:<{NAME_CELLS + 1}}", f"bold $ink-strong{back}" if is_chosen else "$ink"),
            (cut(command.help, room, glyphs.cut), f"$ink-quiet{back}"),
        )
        gap = " " * max(1, width - row.cell_length - len(key))
        return Content.assemble(row, (gap, f"$ink{back}"), (key, f"$ink-quiet{back}"))

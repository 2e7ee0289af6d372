"""The list of sessions and the preview beside it, drawn a window at a time: thousands cost no more than a screenful."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from rich.cells import cell_len
from textual import events
from textual.content import Content
from textual.message import Message
from textual.widget import Widget

from kimi_tui.foreign_text import clean
from kimi_tui.image_names import titled
from kimi_tui.tui.formatting import cut, path, wrap_words
from kimi_tui.tui.glyphs import glyphs_of

if TYPE_CHECKING:
    from kimi_tui.session.listing import Said
    from kimi_tui.tui.sessions.shelf import Row

AGE_CELLS = 11
MESSAGES_CELLS = 11
FOLDER_CELLS = 24
MESSAGES_FROM = 56
"""Cells from which there is room for how many messages there are."""
FOLDERS_FROM = 68
BOTH_FROM = 76
SAID_ROWS = 8
"""Rows of one message in the preview."""


class SessionList(Widget, can_focus=True):
    """The sessions that match, one of them chosen.

    Attributes:
        rows: all that are known, newest first.
        chosen: the row that keys act on; None where none matches.
        parts: the words that are searched, in small letters.
        empty_words: what is said where nothing matches.
    """

    class Moved(Message):
        """Another session is chosen, or none."""

    class Picked(Message):
        """A click on the chosen one, or Enter."""

    def __init__(self, own_id: str, takes: Callable[[events.Key], bool]) -> None:
        super().__init__()
        self._own_id = own_id
        self._takes = takes
        """Whether a key is meant for the field, which may have been asked for a moment ago."""
        self.rows: list[Row] = []
        self._shown: list[Row] = []
        self.chosen: Row | None = None
        self.parts: tuple[str, ...] = ()
        self._found: set[Row] = set()
        """Those that hold the words in what was said."""
        self._shows_archived = False
        self._shows_folders = False
        self.empty_words = ""
        self._top = 0

    # --- what is shown

    def begin(self, *, folders: bool) -> None:
        """Hold nothing, until rows are added."""
        self.rows, self._shows_folders = [], folders
        self._match()

    def add(self, rows: Sequence[Row]) -> None:
        """Show more of them, older than those that are there."""
        self.rows += rows
        self._match()

    def drop(self, row: Row) -> None:
        """Show it no longer; the one below is chosen."""
        place = self._shown.index(row) if row in self._shown else 0
        self.rows.remove(row)
        self._match()
        if self._shown:
            self.choose(min(place, len(self._shown) - 1))

    def find(self, words: str) -> None:
        """Show only what holds all of these words in its name; what else is found is added by `also`."""
        self.parts = tuple(words.casefold().split())
        self._found = set()
        self._match()
        self.choose(0)

    def show_archived(self, shown: bool) -> None:
        """Show also what was put away, or not."""
        self._shows_archived = shown
        self._match()

    def also(self, found: Sequence[Row] = ()) -> None:
        """Show these, too; their names, or whether they are put away, may be others now."""
        self._found.update(found)
        self._match()

    @property
    def n_shown(self) -> int:
        """How many match."""
        return len(self._shown)

    def _match(self) -> None:
        self._shown = [
            row
            for row in self.rows
            if (self._shows_archived or not row.archived)
            and (row in self._found or all(part in row.name for part in self.parts))
        ]
        if self.chosen not in self._shown:
            self.chosen = self._shown[0] if self._shown else None
            self.post_message(self.Moved())
        self.refresh()

    # --- moving

    def choose(self, place: int) -> None:
        """Choose the row at a place of what is shown, or the nearest."""
        if self._shown:
            chosen = self._shown[max(0, min(place, len(self._shown) - 1))]
            if chosen is not self.chosen:
                self.chosen = chosen
                self.post_message(self.Moved())
            self.refresh()

    def move(self, key: str) -> bool:
        """Go where a key of movement leads; False where it is none."""
        page = max(1, self.size.height - 2)
        steps = {"up": -1, "down": 1, "pageup": -page, "pagedown": page}
        steps |= {"k": -1, "j": 1, "home": -len(self._shown), "end": len(self._shown)}
        if key not in steps:
            return False
        place = self._shown.index(self.chosen) if self.chosen in self._shown else 0
        self.choose(place + steps[key])
        return True

    def on_key(self, event: events.Key) -> None:
        """Arrows move, Enter picks."""
        if self._takes(event):
            pass
        elif event.key == "enter":
            if self.chosen is not None:
                self.post_message(self.Picked())
        elif not self.move(event.key):
            return
        event.stop()
        event.prevent_default()

    def on_click(self, event: events.Click) -> None:
        """A click chooses; one on the chosen row picks."""
        place = self._top + event.y - 1
        if event.y > 0 and place < len(self._shown):
            was_chosen = self._shown[place] is self.chosen
            self.choose(place)
            if was_chosen:
                self.post_message(self.Picked())

    def on_mouse_scroll_up(self) -> None:
        """The wheel moves, too."""
        self.move("up")

    def on_mouse_scroll_down(self) -> None:
        """The wheel moves, too."""
        self.move("down")

    def on_focus(self) -> None:
        """The chosen row stands out."""
        self.refresh()

    def on_blur(self) -> None:
        """The chosen row recedes."""
        self.refresh()

    # --- drawing

    def render(self) -> Content:
        """The names of the columns, and the rows around the chosen one."""
        width, room = self.content_size.width, self.content_size.height - 1
        if not self._shown:
            return Content.styled(f"\n    {self.empty_words}", "$ink-quiet")
        place = self._shown.index(self.chosen) if self.chosen in self._shown else 0
        self._top = max(place - room + 1, min(self._top, place))
        self._top = max(0, min(self._top, len(self._shown) - room))
        shown = self._shown[self._top : self._top + room]
        head = self._facts(width, "age", "messages", "folder")
        rows = [Content.styled(" " * max(0, width - cell_len(head)) + head, "$ink-quiet")]
        return Content("\n").join([*rows, *(self._row(row, width) for row in shown)])

    def _facts(self, width: int, age: str, messages: str, folder: str) -> str:
        cut_mark = glyphs_of(self).cut
        facts = f"{age:>{AGE_CELLS}}"
        has_folders = self._shows_folders and width >= FOLDERS_FROM
        if width >= (BOTH_FROM if has_folders else MESSAGES_FROM):
            facts += f"{messages:>{MESSAGES_CELLS}}"
        if has_folders:
            folder = path(folder, FOLDER_CELLS - 3, cut_mark)
            facts += "   " + folder + " " * (FOLDER_CELLS - 3 - cell_len(folder))
        return f"{facts}  "

    def _row(self, row: Row, width: int) -> Content:
        glyphs = glyphs_of(self)
        is_chosen = row is self.chosen
        back = "" if not is_chosen else " on $select" if self.has_focus else " on $band"
        sign, style = " ", "$ink-quiet"
        if row.id == self._own_id:
            sign, style = glyphs.turn, "$accent"
        elif row.forked_from:
            sign = glyphs.fork
        note = "open elsewhere" if row.held else "archived" if row.archived else ""
        facts = self._facts(width, row.age, row.messages, row.place)
        note = f"   {note}" if note else ""
        room = max(4, width - 4 - cell_len(facts) - cell_len(note))
        title = cut(row.title, room, glyphs.cut)
        gap = " " * max(0, width - 4 - cell_len(title) - cell_len(note) - cell_len(facts))
        edge = glyphs.edge if is_chosen else " "
        return Content.assemble(
            (edge, f"{'$accent' if self.has_focus else '$ink-quiet'}{back}"),
            (f" {sign} "[:3], f"{style}{back}"),
            (title, f"{'bold $ink-strong' if is_chosen else '$ink'}{back}"),
            (f"{note}{gap}{facts}", f"$ink-quiet{back}"),
        )


class SessionPreview(Widget):
    """What the chosen session is, and the last that was said in it."""

    def __init__(self) -> None:
        super().__init__()
        self._row: Row | None = None
        self._said: Sequence[Said] | None = None

    def show(self, row: Row | None, said: Sequence[Said] | None) -> None:
        """Show a session; `said` is None while its messages are read."""
        self._row, self._said = row, said
        self.refresh()

    def render(self) -> Content:
        """Title and facts, then as many of the last messages as there is room for, the newest lowest."""
        row, width = self._row, max(16, self.content_size.width)
        if row is None:
            return Content("")
        facts = [row.facts, row.place]
        if row.forked_from:
            facts.append(f"fork of {row.forked_from[:8]}")
        if row.held:
            facts.append(f"open in {row.held}")
        lines = [Content.styled(t, "bold $ink-strong") for t in wrap_words(row.title, width)[:2]]
        said_of_it = wrap_words(", ".join(fact for fact in facts if fact), width)
        lines += [Content.styled(row, "$ink-quiet") for row in said_of_it[:4]]
        lines.append(Content(""))
        room = self.content_size.height - len(lines)
        said: list[Content] = []
        for one in reversed(self._said or ()):
            rows = self._message(one, width)
            # Of the newest at least its beginning.
            if said and len(said) + len(rows) > room:
                break
            said = [*rows, *said][: max(1, room)]
        if not said and self._said is not None and room > 0:
            said = [Content.styled("Nothing was said in it.", "$ink-quiet")]
        return Content("\n").join([*lines, *said])

    def _message(self, one: Said, width: int) -> list[Content]:
        glyphs = glyphs_of(self)
        texts = clean(titled(one.text)).splitlines()
        rows = [row for text in texts for row in wrap_words(text, width - 2) or [""]]
        if len(rows) > SAID_ROWS:
            rows = [*rows[: SAID_ROWS - 1], glyphs.cut]
        style = "$ink"
        edge = "  "
        if one.role == "user":
            style, edge = "bold $ink-strong", f"{glyphs.edge} "
        return [
            *(Content.assemble((edge, "$kind-user"), (cut(r, width - 2), style)) for r in rows),
            Content(""),
        ]

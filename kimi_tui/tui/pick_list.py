"""`PickList`: a list widget in which one entry is chosen with the arrows, filtered by typing, in columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from textual import events

from kimi_tui.foreign_text import one_line
from kimi_tui.tui.formatting import cut, cut_middle
from kimi_tui.tui.keyboard import KeyList, SeenQuestion
from kimi_tui.tui.row_list import Look, RowList, RowModel
from kimi_tui.tui.rows import Line, Span

LIST_KEYS: Mapping[str, str] = {
    "up,down": "select the entry above or below",
    "pageup,pagedown": "move a page up or down",
    "home,end": "go to the first or the last entry",
    "backspace": "delete the last letter of the filter",
    "ctrl+u,escape": "clear the filter",
    "enter": "choose the entry, or change its value",
}
"""The keys of a list besides letters, which narrow it. The help lists them."""
SETTINGS_KEYS: Mapping[str, str] = {
    "left": "go to the previous value (a theme is previewed; Enter sets it)",
    "right": "go to the next value",
    "delete": "reset to the default",
    "escape": "clear the filter; close",
}
"""The effects of these keys in the list of settings, which a list leaves to its screen; `MODEL_KEYS` and `SERVER_KEYS` are
those of other screens. The help lists them.
"""
MODEL_KEYS: Mapping[str, str] = {
    "escape": "go back",
    "ctrl+s": "use the model in this folder only",
    "left": "lower the reasoning effort",
    "right": "raise the reasoning effort",
}
LISTED_KEYS: Mapping[str, str] = {
    "delete": "revoke the permission, or turn the entry on or off; Enter does the same",
    "escape": "close",
}
SERVER_KEYS: Mapping[str, str] = {"escape": "go back", "ctrl+r": "search for servers again"}


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of the list: its text, facts in further columns, and whether it is the present setting.

    A tuple of facts has a column for each, the most important first. `shortly` are the facts for a narrow list; None if
    the usual ones are cut instead. `group` is the title above the entries of a group, and `words` is another text by which
    typing finds the entry. `changed` marks a value that is not the default.
    """

    name: str
    facts: str | tuple[str, ...] = ""
    holds: bool = False
    shortly: str | tuple[str, ...] | None = None
    group: str = ""
    words: str = ""
    changed: bool = False


CHANGED = "*"
"""The mark of a changed value."""
LEAST_FACTS = 16
"""Cells below which the facts beside a name are left out."""
_GAP = 2
"""Cells between two columns of facts."""


class _Table:
    """Facts of several entries in columns; an empty column takes no room.

    Args:
        rows: the facts of each entry; a single text is not split into columns.
        room: cells for all columns together; the last columns are left out if they do not fit.
    """

    def __init__(self, rows: Sequence[str | tuple[str, ...]], room: int | None = None) -> None:
        parted = [row for row in rows if isinstance(row, tuple)]
        n_columns = max(map(len, parted), default=0)
        self._widths = [
            max((cell_len(one_line(row[at])) for row in parted if at < len(row)), default=0)
            for at in range(n_columns)
        ]
        while room is not None and self.width > room and self._widths:
            self._widths.pop()

    @property
    def width(self) -> int:
        """Cells of all columns."""
        widths = [width for width in self._widths if width]
        return sum(widths) + _GAP * max(0, len(widths) - 1)

    def row(self, facts: str | tuple[str, ...]) -> str:
        """Return the facts of one entry."""
        if isinstance(facts, str):
            return one_line(facts)
        cells: list[str] = []
        for width, fact in zip(self._widths, facts, strict=False):
            if width:
                words = one_line(fact)
                cells.append(words + " " * (width - cell_len(words)))
        return (" " * _GAP).join(cells).rstrip()


class PickModel(RowModel):
    """Entries, of which those are offered that contain the typed text.

    Args:
        entries: the entries.
        folds: whether only the chosen entry is shown while the list is not focused.

    Attributes:
        entries: as above.
        needle: the typed text.
        matching: the indexes of the entries that hold it.
        missed: whether text was typed since then that no entry holds.
    """

    def __init__(self, entries: Sequence[Entry] = (), *, folds: bool = False) -> None:
        self.entries = tuple(entries)
        self.folds = folds
        self.needle = ""
        self.matching = tuple(range(len(self.entries)))
        self.missed = False

    def __len__(self) -> int:
        """Return the number of entries that hold the typed text."""
        return len(self.matching)

    def type(self, needle: str, chosen: int) -> int:
        """Filter the entries by a text.

        A text that no entry holds is ignored and not shown: it was meant for another field, and may be a key.

        Args:
            needle: the text.
            chosen: the index of the entry that is chosen.

        Returns:
            the place among `matching` of the entry to choose: the one with exactly that name, else the chosen one, else the first.
        """
        folded = needle.lower()
        names = [(entry.name.lower(), entry.words.lower()) for entry in self.entries]
        matching = tuple(i for i, own in enumerate(names) if any(folded in name for name in own))
        self.missed = bool(needle) and not matching
        if not self.missed:
            self.needle, self.matching = needle, matching
        else:
            folded = ""
        named = next(
            (at for at, i in enumerate(self.matching) if folded and folded in names[i]), None
        )
        if named is not None:
            return named
        return self.matching.index(chosen) if chosen in self.matching else 0

    def heading(self, look: Look) -> str:
        """Return the typed text, or the number of entries if not all are visible."""
        if self.folds and not look.focused:
            return ""
        if self.missed:
            return "No entry has the typed text; Backspace removes it"
        if self.needle:
            return f"filter: {self.needle}"
        n_entries = len(self.entries)
        if len(look.on_view) == n_entries:
            return ""
        return f"{look.on_view.start + 1} to {look.on_view.stop} of {n_entries:,}; type to filter"

    def above(self, index: int, look: Look) -> Sequence[Line]:
        """Return the title of a group above its first entry on view."""
        group = self.entries[self.matching[index]].group
        is_first = index == look.on_view.start
        if not group or not (is_first or self.entries[self.matching[index - 1]].group != group):
            return ()
        return [Line((Span(f"  {group}", "accent"),))]

    def n_titles(self, on_view: range) -> int:
        """Return the number of titles of groups among some entries."""
        groups = [self.entries[self.matching[at]].group for at in on_view]
        return sum(
            bool(one) and (at == 0 or groups[at - 1] != one) for at, one in enumerate(groups)
        )

    def rows(self, look: Look) -> Sequence[Sequence[Line]]:
        """Return a row for each entry: its mark, its name, and its facts in columns."""
        glyphs, width, entries = look.glyphs, look.width, self.entries
        marks = any(entry.holds or entry.group for entry in entries)
        edges = 4 if marks else 2
        names = max((cell_len(one_line(e.name)) for e in entries), default=0) + 3
        # Names distinguish the entries, so the facts are shortened first.
        column = min(names, max(12, width * 2 // 3 - 3) + 3)
        room = max(0, width - column - edges - 1)
        facts = [entry.facts for entry in entries]
        table = _Table(facts)
        is_narrow = any(cell_len(table.row(one)) > room for one in facts)
        if is_narrow:
            facts = [one.facts if one.shortly is None else one.shortly for one in entries]
            if not any(isinstance(one, tuple) for one in facts) and room < LEAST_FACTS:
                facts = [""] * len(entries)  # there is no room for facts
        if is_narrow and table.width:
            # Names and columns share the room, so that neither takes everything.
            least = min(names, max(12, width * 2 // 5))
            table = _Table(facts, width - least - edges)
            column = max(least, min(names, width - table.width - edges))
            room = max(0, width - column - edges)
        rows: list[list[Line]] = []
        for place in look.on_view:
            index = self.matching[place]
            entry = entries[index]
            name = cut_middle(one_line(entry.name), column - _GAP, glyphs.cut)
            sign = glyphs.done if entry.holds else CHANGED if entry.changed else " "
            mark = f"{sign} " if marks else ""
            spans = (
                Span(f"  {mark}", "accent" if entry.changed else "ok"),
                Span(name, "strong" if place == look.chosen else "ink"),
                Span(" " * (column - cell_len(name))),
                Span(cut(table.row(facts[index]), room, glyphs.cut), "quiet"),
            )
            rows.append([Line(spans)])
        return rows


class PickList(RowList, KeyList):
    """A list to choose from.

    Args:
        seen: decides whether Enter, or a click, came when the list was visible; else it picks nothing.
        entries: the entries.
        rows: the number of entries shown at once.
        folds: whether only the chosen entry is shown while the list is not focused.
        chosen: the index of the entry that is chosen at first.
        narrows: whether typing filters the list even if all of it is visible.
        widget_id: the widget's id.
    """

    model: PickModel

    def __init__(
        self,
        seen: SeenQuestion,
        entries: Sequence[Entry] = (),
        *,
        rows: int = 8,
        folds: bool = False,
        chosen: int = 0,
        narrows: bool = False,
        widget_id: str | None = None,
    ) -> None:
        model = PickModel(entries, folds=folds)
        super().__init__(model, most=rows, seen=seen, widget_id=widget_id)
        self._narrows = narrows
        self.state.choose(chosen)

    @property
    def chosen(self) -> int:
        """The index of the chosen entry."""
        place = self.state.chosen
        return 0 if place is None else self.model.matching[place]

    @property
    def narrowed(self) -> bool:
        """Whether only some entries are offered because of the typed text."""
        return bool(self.model.needle)

    @property
    def on_view(self) -> range:
        """The visible entries; for a folded list the chosen one."""
        place = self.state.chosen
        if self.model.folds and not self.has_focus and place is not None:
            return range(place, place + 1)
        room = self.room
        found = self.state.window(room)
        # The titles of groups take rows of their own.
        while room > 1 and len(found) + self.model.n_titles(found) > self.room:
            room -= 1
            found = self.state.window(room)
        return found

    def choose(self, index: int) -> None:
        """Choose an entry; the typed filter is removed."""
        self.offered(self.model.type("", index))

    def show(self, entries: Sequence[Entry], chosen: int = 0) -> None:
        """Offer other entries; the typed text still filters them."""
        needle = self.model.needle if self._narrows else ""
        self.model = PickModel(entries, folds=self.model.folds)
        self.state.top = 0
        self.offered(self.model.type(needle, chosen))

    def on_key(self, event: events.Key) -> None:
        """Narrow the list by typing; Esc ends that first.

        The Enter behind text that no entry holds picks nothing: the text, such as a slash command, was meant for another field.
        """
        needle, missed = self.model.needle, self.model.missed
        is_text = bool(event.character) and event.is_printable
        if event.key == "enter" and missed:
            typed = needle
        elif event.key in ("backspace", "ctrl+u", "escape") and (needle or missed):
            typed = "" if event.key != "backspace" else needle if missed else needle[:-1]
        elif is_text and (self._narrows or self._is_long):
            typed = needle + (event.character or "")
        else:
            if missed and not is_text:
                self.model.missed = False
                self.offered(self.state.chosen or 0)
            return
        event.stop()
        event.prevent_default()
        self._came_early = False
        before = self.chosen, needle
        if not (is_text and missed):
            self.offered(self.model.type(typed, self.chosen))
        if (self.chosen, self.model.needle) != before:
            self.post_message(self.Moved(self))

    @property
    def _is_long(self) -> bool:
        return len(self.model.entries) > self.room

"""`PickList`: a list widget in which one entry is chosen with the arrows, filtered by typing, in columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from textual import events
from textual.content import Content
from textual.geometry import Size
from textual.message import Message

from kimi_tui.foreign_text import one_line
from kimi_tui.tui.formatting import cut, cut_middle
from kimi_tui.tui.glyphs import glyphs_of
from kimi_tui.tui.keyboard import TOO_EARLY, KeyList, SeenQuestion

LIST_KEYS: Mapping[str, str] = {
    "up,down": "the entry above, below",
    "pageup,pagedown": "a page of them up, down",
    "home,end": "the first; the last",
    "backspace": "without the last of the letters that narrow it",
    "ctrl+u,escape": "all of them again",
    "enter": "choose it, or change it",
}
"""What a list takes besides letters, which narrow it; no other key. The help reads them."""
_TAKEN = frozenset(key for keys in LIST_KEYS for key in keys.split(","))
SETTINGS_KEYS: Mapping[str, str] = {
    "left": "the value before, where there are some to choose from; a theme is only tried",
    "right": "the value after",
    "delete": "back to the default",
    "escape": "all settings again, where some were looked for; close",
}
"""What those keys do in the list of settings that a list leaves; `MODEL_KEYS` and `SERVER_KEYS` in the others. The help reads them."""
MODEL_KEYS: Mapping[str, str] = {
    "escape": "back",
    "ctrl+s": "use it in this folder",
    "left": "think less",
    "right": "think more",
}
SERVER_KEYS: Mapping[str, str] = {"escape": "back", "ctrl+r": "look again"}


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of the list: its text, facts in further columns, and whether it is the present setting.

    A tuple of facts has a column for each, the most important first. `shortly` are the facts for a narrow list; None where
    the usual ones are cut instead.
    """

    name: str
    facts: str | tuple[str, ...] = ""
    holds: bool = False
    shortly: str | tuple[str, ...] | None = None


@dataclass
class PickState:
    """The state of a pick list: entries, the typed filter, the chosen entry and the visible window."""

    entries: tuple[Entry, ...] = ()
    needle: str = ""
    chosen: int = 0
    top: int = 0

    @property
    def matching(self) -> tuple[int, ...]:
        """Indexes of the entries that hold what was typed."""
        needle = self.needle.lower()
        return tuple(i for i, entry in enumerate(self.entries) if needle in entry.name.lower())

    def move(self, step: int) -> None:
        """Move the choice by so many matching entries."""
        matching = self.matching
        if not matching:
            return
        place = matching.index(self.chosen) if self.chosen in matching else 0
        self.chosen = matching[max(0, min(len(matching) - 1, place + step))]

    def type(self, needle: str) -> None:
        """Filter the entries by a text, and choose the one of exactly that name.

        A text that no entry holds is ignored and not shown: it was meant for another field, and may be a key.
        """
        before, self.needle = self.needle, needle
        matching = self.matching
        if needle and not matching and len(needle) > len(before):
            self.needle = before
            return
        named = [i for i in matching if self.entries[i].name.lower() == needle.lower()]
        if named or (matching and self.chosen not in matching):
            self.chosen = (named or matching)[0]

    def window(self, rows: int) -> tuple[int, ...]:
        """Indexes of the entries to show in a number of rows, the chosen one among them."""
        matching = self.matching
        place = matching.index(self.chosen) if self.chosen in matching else 0
        self.top = max(place - rows + 1, min(self.top, place))
        self.top = max(0, min(self.top, len(matching) - rows))
        return matching[self.top : self.top + rows]


LEAST_FACTS = 16
"""Cells that words beside a name take, or they are left out."""
_GAP = 2
"""Cells between two columns of facts."""


class _Table:
    """Facts of several entries in columns; a column in which nothing stands takes no room.

    Args:
        rows: those of each entry; what is one text stands as it is.
        room: cells for all columns together; the last ones are left out where they have none.
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
        """The facts of one entry."""
        if isinstance(facts, str):
            return one_line(facts)
        cells: list[str] = []
        for width, fact in zip(self._widths, facts, strict=False):
            if width:
                words = one_line(fact)
                cells.append(words + " " * (width - cell_len(words)))
        return (" " * _GAP).join(cells).rstrip()


class PickList(KeyList):
    """A list to choose from.

    Args:
        seen: whether Enter, or a click, was pressed when the list could be seen; else it picks nothing.
        entries: the entries.
        rows: how many are shown at once.
        folds: whether only the chosen entry is shown while the list is not focused.
        chosen: the index of the entry that is chosen at first.
        narrows: whether typing filters the list also where all of it is visible.
        widget_id: the widget's id.

    Attributes:
        rows: how many are shown at once.
    """

    class Moved(Message):
        """The choice moved, or the offered entries changed."""

        def __init__(self, picks: PickList) -> None:
            super().__init__()
            self.picks = picks

        @property
        def control(self) -> PickList:
            """The list."""
            return self.picks

    class Picked(Moved):
        """An entry was picked by Enter or a click."""

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
        super().__init__(id=widget_id)
        self._seen = seen
        self._came_early = False
        """Whether it is to be said that something was pressed too early."""
        self._narrows = narrows
        self._state = PickState(tuple(entries), chosen=chosen)
        self.rows = rows
        self._folds = folds

    @property
    def chosen(self) -> int:
        """The index of the chosen entry."""
        return self._state.chosen

    @property
    def narrowed(self) -> bool:
        """Whether only some entries are offered, by what was typed."""
        return bool(self._state.needle)

    def choose(self, index: int) -> None:
        """Choose an entry, whatever was typed to find another."""
        self._state.needle, self._state.chosen = "", index
        self.refresh(layout=True)

    def show(self, entries: Sequence[Entry], chosen: int = 0) -> None:
        """Offer other entries; the typed text still filters them."""
        needle = self._state.needle if self._narrows else ""
        self._state = PickState(tuple(entries), chosen=chosen)
        self._state.type(needle)
        self.refresh(layout=True)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """As many rows as are shown."""
        return len(self._shown()) + bool(self._heading())

    def _heading(self) -> str:
        """What stands over the rows: what was typed, or how many there are where not all are to be seen."""
        if self._came_early:
            return TOO_EARLY.capitalize()
        if self._folds and not self.has_focus:
            return ""
        if self._state.needle:
            return f"only with: {self._state.needle}"
        n_entries = len(self._state.entries)
        if n_entries <= self.rows:
            return ""
        first = self._state.top + 1
        last = min(n_entries, self._state.top + self.rows)
        return f"{first} to {last} of {n_entries:,}; letters find one"

    def _shown(self) -> tuple[int, ...]:
        if self._folds and not self.has_focus:
            return (self._state.chosen,) if self._state.entries else ()
        return self._state.window(self.rows)

    def render(self) -> Content:
        """The visible rows."""
        glyphs = glyphs_of(self)
        width = self.content_size.width
        entries = self._state.entries
        marks = any(entry.holds for entry in entries)
        edges = 4 if marks else 2
        names = max((cell_len(one_line(e.name)) for e in entries), default=0) + 3
        # Names tell entries apart; what stands beside them gives way first.
        column = min(names, max(12, width * 2 // 3 - 3) + 3)
        room = max(0, width - column - edges - 1)
        facts = [entry.facts for entry in entries]
        table = _Table(facts)
        is_narrow = any(cell_len(table.row(one)) > room for one in facts)
        if is_narrow:
            facts = [one.facts if one.shortly is None else one.shortly for one in entries]
            if not any(isinstance(one, tuple) for one in facts) and room < LEAST_FACTS:
                facts = [""] * len(entries)  # of so little nothing can be told
        if is_narrow and table.width:
            # Names and columns share the room: none takes so much that nothing is left of the other.
            least = min(names, max(12, width * 2 // 5))
            table = _Table(facts, width - least - edges)
            column = max(least, min(names, width - table.width - edges))
            room = max(0, width - column - edges)
        lines: list[Content] = []
        shown = self._shown()
        if heading := self._heading():
            lines.append(Content.styled(f"  {heading}", "$ink-quiet"))
        for index in shown:
            entry = self._state.entries[index]
            name = cut_middle(one_line(entry.name), column - _GAP, glyphs.cut)
            words = cut(table.row(facts[index]), room, glyphs.cut)
            is_chosen = index == self._state.chosen
            back = " on $select" if is_chosen and self.has_focus else ""
            edge = glyphs.edge if is_chosen and self.has_focus else " "
            mark = (f"{glyphs.done if entry.holds else ' '} ") if marks else ""
            row = Content.assemble(
                (f"{edge} ", f"$accent{back}"),
                (mark, f"$ok{back}"),
                (name, f"{'bold $ink-strong' if is_chosen else '$ink'}{back}"),
                (" " * (column - cell_len(name)), f"$ink{back}"),
                (words, f"$ink-quiet{back}"),
            )
            fill = " " * max(0, width - row.cell_length)
            lines.append(Content.assemble(row, (fill, f"$ink{back}")))
        return Content("\n").join(lines)

    def on_key(self, event: events.Key) -> None:
        """Move, choose, or narrow the list by typing; Esc ends that first."""
        if not (event.is_printable or event.key in _TAKEN):
            return
        self._came_early = False
        state, before = self._state, (self._state.chosen, self._state.needle)
        steps = {"up": -1, "down": 1, "pageup": -self.rows, "pagedown": self.rows}
        if event.key in steps:
            state.move(steps[event.key])
        elif event.key in ("home", "end"):
            state.move(len(state.entries) * (1 if event.key == "end" else -1))
        elif event.key == "enter":
            if self._accepts(event.time) and state.matching:
                self.post_message(self.Picked(self))
        elif event.key in ("backspace", "ctrl+u", "escape") and state.needle:
            state.type(state.needle[:-1] if event.key == "backspace" else "")
        elif (
            event.is_printable
            and event.character
            and (self._narrows or len(state.entries) > self.rows)
        ):
            state.type(state.needle + event.character)
        else:
            return
        event.stop()
        event.prevent_default()
        if (state.chosen, state.needle) != before:
            self.post_message(self.Moved(self))
        self.refresh(layout=True)

    def _accepts(self, at: float) -> bool:
        """Whether what was pressed at a monotonic time may pick an entry; else that is said."""
        self._came_early = not self._seen.accepts(at)
        self.refresh(layout=True)
        return not self._came_early

    def refuses_click(self, event: events.MouseUp) -> bool:
        """Whether a click comes too early, by when it was read."""
        return not self._accepts(event.time)

    def on_click(self, event: events.Click) -> None:
        """Choose the row under the pointer."""
        shown = self._shown()
        y = event.y - bool(self._heading())
        if 0 <= y < len(shown):
            event.stop()
            self._state.chosen = shown[y]
            self.post_message(self.Moved(self))
            self.post_message(self.Picked(self))
            self.refresh(layout=True)

    def on_focus(self) -> None:
        """Unfold."""
        self.refresh(layout=True)

    def on_blur(self) -> None:
        """Fold."""
        self.refresh(layout=True)

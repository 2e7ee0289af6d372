"""Which of a number of rows are on view, and which is chosen: the one scrolling of everything that is painted row by row.

A `RowWindow` shows a part of rows that are only read: a command in question, a diff, dropped messages. A `ListState` shows a
part of entries of which one is chosen: menus, pickers, settings, sessions, the actions and files of a preview. Both leave the drawing to their users.
"""

from __future__ import annotations

from dataclasses import dataclass

_LETTER_STEPS = {"k": -1, "j": 1}


@dataclass(slots=True)
class RowWindow:
    """A window over rows; none of its room stays free while there are rows for it, once it was fitted.

    Attributes:
        count: the number of rows.
        room: the number of rows for which there is room.
        top: the index of the first row on view.
    """

    count: int = 0
    room: int = 1
    top: int = 0

    @property
    def on_view(self) -> range:
        """The indices of the rows on view."""
        return range(self.top, max(self.top, min(self.count, self.top + self.room)))

    @property
    def above(self) -> int:
        """The number of rows above those on view."""
        return self.top

    @property
    def below(self) -> int:
        """The number of rows below those on view."""
        return self.count - self.on_view.stop

    @property
    def shows_all(self) -> bool:
        """Whether every row is on view at once."""
        return self.count <= self.room

    def fit(self, count: int, room: int) -> range:
        """Set the number of rows and the room for them, and return the indices of those on view."""
        self.count, self.room = count, room
        self.move(0)
        return self.on_view

    def move(self, step: int) -> None:
        """Scroll by a number of rows, as far as there are rows."""
        self.top = max(0, min(self.top + step, self.count - self.room))

    def show(self, first: int, last: int) -> None:
        """Scroll rows into view, no further than needed; if not all fit, the first ones are on view."""
        if first < self.top:
            self.top = first
        elif last >= self.top + self.room:
            self.top = min(first, last - self.room + 1)

    def centre(self, row: int) -> None:
        """Scroll a row into the middle, as far as there are rows."""
        self.top = row - self.room // 2
        self.move(0)

    def step_of(self, key: str, page: int, *, letters: bool = False) -> int | None:
        """Return by how many rows a key scrolls, or moves the choice; None for any other key.

        Args:
            key: the name of the key.
            page: rows that Page Up and Page Down move by.
            letters: whether j and k move as well.
        """
        steps = {"up": -1, "down": 1, "pageup": -page, "pagedown": page}
        steps |= {"home": -self.count, "end": self.count}
        return (steps | _LETTER_STEPS if letters else steps).get(key)


@dataclass(slots=True)
class ListState(RowWindow):
    """A window over the entries of a list of which one is chosen.

    Attributes:
        chosen: the index of the chosen entry; None without one.
    """

    chosen: int | None = None

    def choose(self, index: int) -> bool:
        """Choose an entry, or the nearest one there is. Return whether the choice changed."""
        before = self.chosen
        self.chosen = max(0, min(index, self.count - 1)) if self.count else None
        return self.chosen != before

    def moved(self, step: int) -> int:
        """Return the index of the entry that many steps on (it may not exist); without a choice, the index of the first or last entry."""
        if self.chosen is None:
            return 0 if step > 0 else self.count - 1
        return self.chosen + step

    def window(self, room: int) -> range:
        """Return the entries on view if there is room for `room` entries. The chosen one is among them, and no usable room stays free."""
        self.room = room
        if self.chosen is not None:
            self.show(self.chosen, self.chosen)
        return self.fit(self.count, room)

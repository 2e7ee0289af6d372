"""`ListScreen`: a list of what is set up, such as permissions or hooks, in which the chosen entry can be revoked or switched."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import NamedTuple

from textual import events, on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.screen import ModalScreen

from kimi_tui.foreign_text import clean, visible
from kimi_tui.tui.faults import reported
from kimi_tui.tui.frame import Hint, hint_row
from kimi_tui.tui.frame_label import frame_label
from kimi_tui.tui.keyboard import TOO_EARLY, AskingScreen
from kimi_tui.tui.pick_list import LISTED_KEYS, Entry, PickList
from kimi_tui.tui.row_list import Words, plain
from kimi_tui.tui.screens import app_of, sheets

_ROWS_AROUND = 14
"""Rows of the frame, the details of the chosen entry, and the keys."""


class ListedItem(NamedTuple):
    """One entry.

    Attributes:
        entry: its row.
        about: sentences about it; nothing in them is shortened.
        verb: what Enter does, such as `revoke`; empty for nothing.
        act: does it, and returns a sentence about it.
        result: closes the screen with this result in place of an act; empty for none.
    """

    entry: Entry
    about: str = ""
    verb: str = ""
    act: Callable[[], Awaitable[str]] | None = None
    result: str = ""


class ListScreen(ModalScreen[str | None], AskingScreen[str | None]):
    """Shows the entries, and acts on the chosen one. Its result is that of the entry, or None if it was closed.

    Args:
        title: the title in the frame.
        items: returns the present entries; called again after each act.
        empty: the sentence in place of entries.
        about: a sentence below the entries that have none of their own.
        first: the entries to begin with.
    """

    HELP_TITLE = "Permissions"
    IS_EXPECTED = True
    CSS_PATH = sheets("rows", "settings")

    def __init__(
        self,
        title: str,
        items: Callable[[], Awaitable[Sequence[ListedItem]]],
        *,
        first: Sequence[ListedItem],
        empty: str,
        about: str = "",
    ) -> None:
        super().__init__()
        self._title = title
        self._items = tuple(first)
        self._renewed = items
        self._empty = empty
        self._default = about
        self._list = PickList(self.seen, [one.entry for one in first], narrows=True)
        self._about = Words(widget_id="about")
        self._status = Words(widget_id="outcome")
        self._keys = Words()

    @property
    def subject(self) -> object:
        """The title."""
        return self._title

    def compose(self) -> ComposeResult:
        """Return the list above the details of the chosen entry."""
        frame = Vertical(self._list, self._about, self._status, self._keys)
        frame.border_title = frame_label(self, self._title)
        yield frame

    def on_mount(self) -> None:
        """Focus the list."""
        self._fit()
        self._list.focus()

    def on_resize(self) -> None:
        """Show as many rows as fit."""
        self._fit()

    def _fit(self) -> None:
        self._list.most = max(3, app_of(self).size.height - _ROWS_AROUND)
        rows = min(self._list.most, max(1, len(self._items)))
        groups = len({one.entry.group for one in self._items if one.entry.group})
        self._list.most = min(self._list.most, rows + groups)
        self._list.styles.height = self._list.most + 1
        self._show()

    @property
    def _chosen(self) -> ListedItem | None:
        return self._items[self._list.chosen] if self._items else None

    def _show(self) -> None:
        item = self._chosen
        words = self._empty if item is None else item.about or self._default
        shown = "\n".join(visible(line) for line in words.split("\n"))
        self._about.show(plain(shown))
        hints: list[Hint] = [("Enter", item.verb)] if item is not None and item.verb else []
        hints.append(("Esc", "close"))
        self._keys.show(hint_row(hints, min(100, app_of(self).size.width) - 10))

    def _say(self, words: str, style: str = "quiet") -> None:
        self._status.show(plain(clean(words), style))

    @on(PickList.Moved)
    def _moved(self) -> None:
        self._say("")
        self._show()

    @on(PickList.Picked)
    def _picked(self) -> None:
        item = self._chosen
        if item is not None and item.result:
            self.dismiss(item.result)
        elif item is not None and item.act is not None:
            self.run_worker(
                reported(self, partial(self._act, item.act)), group="act", exclusive=False
            )

    async def _act(self, act: Callable[[], Awaitable[str]]) -> None:
        said = await act()
        self._items = tuple(await self._renewed())
        self._list.show([one.entry for one in self._items], self._list.chosen if self._items else 0)
        self._fit()
        self._say(said)

    def on_key(self, event: events.Key) -> None:
        """Act on the chosen entry by Delete as by Enter, and close."""
        if event.key not in LISTED_KEYS:
            return
        event.stop()
        event.prevent_default()
        if event.key == "delete":
            if self.seen.accepts(event.time):
                self._picked()
            else:
                self._say(f"{TOO_EARLY.capitalize()}.")
        else:
            self.dismiss(None)

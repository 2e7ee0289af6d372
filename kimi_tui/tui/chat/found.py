"""How far a search is: what the bar under the chat says. Plain, so that it can be known before the first paint."""

from __future__ import annotations

from typing import NamedTuple

from kimi_tui.tui.numbers import grouped


class Found(NamedTuple):
    """A search: its query, which match is the current one (from 1), of how many; `complete` once all are counted."""

    query: str = ""
    at: int = 0
    total: int = 0
    complete: bool = True

    @property
    def words(self) -> str:
        """`3 of 17`; `3 of 17, counting`; nothing without a query."""
        if not self.query.strip():
            return ""
        if not self.total:
            return "none" if self.complete else "searching"
        words = f"{grouped(self.at)} of {grouped(self.total)}"
        return words if self.complete else f"{words}, counting"

"""The last row: the keys of the focused area, most used first, whole pairs only."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from textual.content import Content
from textual.reactive import reactive
from textual.widget import Widget

Hint = tuple[str, str]
GAP = 3


def fit(hints: Sequence[Hint], width: int) -> tuple[Hint, ...]:
    """The hints that fit into `width` cells whole, from the first on."""
    used, shown = 0, list[Hint]()
    for key, meaning in hints:
        cells = cell_len(key) + 1 + cell_len(meaning) + (GAP if shown else 0)
        if used + cells > width:
            break
        used += cells
        shown.append((key, meaning))
    return tuple(shown)


class Footer(Widget):
    """The last row of a screen."""

    hints: reactive[tuple[Hint, ...]] = reactive(())

    def render(self) -> Content:
        """As many hints as fit."""
        parts: list[tuple[str, str] | str] = []
        for key, meaning in fit(self.hints, self.content_size.width):
            parts += [(" " * GAP, "") if parts else "", (key, "$ink"), " ", (meaning, "$ink-quiet")]
        return Content.assemble(*parts)

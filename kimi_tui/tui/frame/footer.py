"""The last row of a screen or a dialog: keys and what they do, whole pairs only."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from textual.content import Content
from textual.reactive import reactive
from textual.widget import Widget

Hint = tuple[str, str]
GAP = 3
WAY_OUT = "Esc"


def fit(hints: Sequence[Hint], width: int) -> tuple[Hint, ...]:
    """The hints that fit into `width` cells whole, from the first on; the way out is among them before any other."""
    shown = _from_first(hints, width)
    out = next((hint for hint in hints if hint[0] == WAY_OUT), None)
    if out is None or out in shown or not _from_first([out], width):
        return shown
    others = [hint for hint in hints if hint is not out]
    return (*_from_first(others, width - _cells(out) - GAP), out)


def roomiest(wordings: Sequence[Sequence[Hint]], width: int) -> Sequence[Hint]:
    """The first of the wordings of which every hint fits, else the last, which is the shortest."""
    return next((one for one in wordings if fit(one, width) == tuple(one)), wordings[-1])


def _from_first(hints: Sequence[Hint], width: int) -> tuple[Hint, ...]:
    used, shown = 0, list[Hint]()
    for hint in hints:
        used += _cells(hint) + (GAP if shown else 0)
        if used > width:
            break
        shown.append(hint)
    return tuple(shown)


def _cells(hint: Hint) -> int:
    return cell_len(hint[0]) + 1 + cell_len(hint[1])


def hint_row(hints: Sequence[Hint], width: int) -> Content:
    """A row of at most `width` cells with as many hints as fit."""
    parts: list[tuple[str, str] | str] = []
    for key, meaning in fit(hints, width):
        parts += [" " * GAP if parts else "", (key, "$ink"), " ", (meaning, "$ink-quiet")]
    return Content.assemble(*parts)


class Footer(Widget):
    """The last row of a screen."""

    hints: reactive[tuple[Hint, ...]] = reactive(())
    urgent: reactive[str] = reactive("")
    """What is said in the place of the hints for a moment."""

    def render(self) -> Content:
        """As many hints as fit."""
        if self.urgent:
            return Content.styled(self.urgent, "bold $ink-strong")
        return hint_row(self.hints, self.content_size.width)

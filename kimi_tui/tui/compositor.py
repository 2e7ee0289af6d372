"""Pictures of a screen that are made of the rows that changed.

Textual has every widget of the screen make all of its rows for any picture, a typed letter or a turning spinner as
well, and writes those that changed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from textual._compositor import ChopsUpdate, Compositor
from textual.geometry import Region
from textual.screen import Screen
from textual.strip import Strip


class RowCompositor(Compositor):
    """Asks the widgets for no rows but those between the first and the last one of theirs that changed."""

    def __init__(self) -> None:
        super().__init__()
        self._changed: tuple[Region, ...] = ()

    def render_partial_update(self) -> ChopsUpdate | None:
        """The picture of what changed; None where nothing did."""
        self._changed = tuple(self._dirty_regions)
        try:
            return super().render_partial_update()
        finally:
            self._changed = ()

    def _get_renders(
        self, crop: Region | None = None
    ) -> Iterable[tuple[Region, Region, list[Strip]]]:
        if not self._changed:
            yield from super()._get_renders(crop)
            return
        for widget, (region, clip) in self.visible_widgets.items():
            seen = region.intersection(clip)
            parts = [part for one in self._changed if (part := seen.intersection(one))]
            if parts:
                top = min(part.y for part in parts)
                height = max(part.bottom for part in parts) - top
                rows = Region(seen.x - region.x, top - region.y, seen.width, height)
                yield Region(seen.x, top, seen.width, height), clip, widget.render_lines(rows)


def draw_changed_rows(screen: Screen[Any]) -> None:
    """Let a screen that was not shown yet be drawn so."""
    screen._compositor = RowCompositor()  # pyright: ignore[reportPrivateUsage]

"""Pictures of a screen that are made of the rows that changed.

Textual has every widget of the screen make all of its rows for any picture, a typed letter or a turning spinner as
well, those that others cover too, and writes those that changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from rich.console import Console
from textual._compositor import ChopsUpdate, Compositor
from textual.geometry import Region
from textual.screen import Screen
from textual.strip import Strip


class RowCompositor(Compositor):
    """Asks the widgets for no rows but those between the first and the last one of theirs that changed and is seen."""

    def render_partial_update(self) -> ChopsUpdate | None:
        """The picture of what changed; None where nothing did."""
        changed = self._dirty_regions.copy()
        self._dirty_regions.clear()
        if not changed:
            return None
        spans = list(self._regions_to_spans(changed))
        return _RowsUpdate(self._parts(spans), spans, [cuts[1:] for cuts in self.cuts])

    def _parts(self, spans: Sequence[tuple[int, int, int]]) -> list[dict[int, Strip | None]]:
        """What is seen in each row of the screen, cut where widgets end, by column; nothing where no span is."""
        cuts = self.cuts
        parts: list[dict[int, Strip | None]] = [{} for _ in cuts]
        missing: dict[int, set[int]] = {}
        for y, start, end in spans:
            parts[y] = parts[y] or dict.fromkeys(cuts[y][:-1])
            columns = (x for x, next_x in pairwise(cuts[y]) if x < end and next_x > start)
            missing.setdefault(y, set()).update(columns)
        # The topmost comes first.
        for widget, (region, clip) in self.visible_widgets.items():
            seen = region.intersection(clip)
            left, right = seen.column_span
            rows = [
                y
                for y, columns in missing.items()
                if seen.y <= y < seen.bottom and any(left <= x < right for x in columns)
            ]
            if not rows:
                continue
            top = rows[0]
            crop = Region(seen.x - region.x, top - region.y, seen.width, rows[-1] + 1 - top)
            strips = widget.render_lines(crop)
            for y in rows:
                within = [x for x in cuts[y] if left <= x <= right]
                row, columns = parts[y], missing[y]
                for x, part in zip(
                    within, strips[y - top].divide([x - left for x in within[1:]]), strict=False
                ):
                    if row[x] is None:
                        row[x] = part
                        columns.discard(x)
                if not columns:
                    del missing[y]
        return parts


class _RowsUpdate(ChopsUpdate):
    """The same picture as Textual writes, in a tenth of the objects."""

    def render_segments(self, console: Console) -> str:
        """What the terminal is sent."""
        written: list[str] = []
        for y, start, end in self.spans:
            for next_x, (x, strip) in zip(self.chop_ends[y], self.chops[y].items(), strict=True):
                if strip is None or x >= end or next_x <= start:
                    continue
                part = (
                    strip if x >= start and next_x <= end else strip.crop(0, min(next_x, end) - x)
                )
                written += (f"\x1b[{y + 1};{x + 1}H", part.render(console))
        return "".join(written)


def draw_changed_rows(screen: Screen[Any]) -> None:
    """Let a screen that was not shown yet be drawn so."""
    screen._compositor = RowCompositor()  # pyright: ignore[reportPrivateUsage]

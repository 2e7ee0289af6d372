"""From the state of a timeline to strips, with a cache of those that were drawn.

Colours come from a function that the widget gives; everything else here is decided by the state.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from textwrap import wrap

from rich.segment import Segment
from rich.style import Style
from textual.color import Color
from textual.filter import LineFilter
from textual.strip import Strip

from kimi_tui.tui import numbers
from kimi_tui.tui.spans import Span
from kimi_tui.tui.timeline import facts
from kimi_tui.tui.timeline.building import Row
from kimi_tui.tui.timeline.curve import Column, columns_of, curve_spans, past_of, with_forecast
from kimi_tui.tui.timeline.paint import Look, now_spans, row_spans
from kimi_tui.tui.timeline.points import NOW, Key, Point
from kimi_tui.tui.timeline.state import ViewState
from kimi_tui.tui.timeline.view import Areas

CACHE_LIMIT = 1_000


class Drawing:
    """Draws one timeline.

    Args:
        state: what to draw; read anew for every frame.
        style_of: the style with this name on this ground (`page`, `band` or `select`).
        filters: what Textual wants applied to every line.
    """

    def __init__(
        self,
        state: ViewState,
        style_of: Callable[[str, str], Style],
        filters: Callable[[], Sequence[LineFilter]],
    ) -> None:
        self._state = state
        self._style_of = style_of
        self._filters = filters
        self._strips: dict[object, Strip] = {}
        self._curve_lines: list[Strip] = []
        self._curve_made_for: tuple[object, ...] = ()
        self._past: list[Point] = []
        self._past_of: Point | None = None
        self.curve: list[Column] = []

    def clear(self) -> None:
        """Forget every strip: colours or widths are others."""
        self._strips.clear()
        self._curve_made_for = ()

    def lines(self, start: int, end: int) -> list[Strip]:
        """The lines of the widget from `start` to before `end`."""
        state = self._state
        areas = state.areas
        sticky = state.sticky(areas)
        selected = state.selected_position()
        return [self._line(y, areas, sticky, selected) for y in range(start, end)]

    def _line(
        self, y: int, areas: Areas, sticky: tuple[int, Row] | None, selected: int | None
    ) -> Strip:
        state = self._state
        height = areas.list_height(state.height)
        line = y - areas.header
        if line < 0:
            return self._header_line(y, areas)
        if line >= height:
            return self._footer_line(line - height, areas)
        if state.show_keys:
            keys = facts.key_spans(state.glyphs)
            return self._plain([("  ", "quiet"), *keys[line]] if line < len(keys) else [])
        listing = state.listing
        if listing is None or state.is_empty:
            return self._empty_line(line)
        if sticky is not None and line == height - 1:
            return self._row_line(sticky[0], sticky[1], selected)
        position = line + state.scroll_y
        if position >= len(listing):
            return self._plain([])
        return self._row_line(position, listing.row(position), selected)

    # Rows

    def _row_line(self, position: int, row: Row | None, selected: int | None) -> Strip:
        state = self._state
        listing = state.listing
        assert listing is not None
        key = NOW if row is None else row.key
        look = self._look(position, row, selected)
        edge, ground = "", "page"
        if selected == position:
            edge, ground = ("accent", "select") if state.has_focus else ("line", "band")
        elif key == state.hovered:
            ground = "band"
        point = row.point if row is not None else None
        line = row.line if row is not None else None
        cache_key = (
            key,
            0 if row is None else (row.kind, row.lanes, row.hidden, row.is_tip),
            point.revision if point is not None else -1,
            line is not None and (line.is_open, len(line.points)),
            look,
            edge,
            ground,
        )
        strip = self._strips.get(cache_key)
        if strip is not None and listing.scene is None:
            return strip
        columns = state.columns
        if row is None:
            spans = now_spans(columns, state.glyphs, look)
        else:
            spans = row_spans(row, columns, state.glyphs, look)
        if listing.scene is not None:
            spans = self._with_arc(position, spans)
        mark = (state.glyphs.edge if edge else " ", edge or "quiet")
        strip = self._strip([mark, *spans], ground)
        if listing.scene is None:
            self._keep(cache_key, strip)
        return strip

    def _look(self, position: int, row: Row | None, selected: int | None) -> Look:
        state = self._state
        model, listing = state.model, state.listing
        assert model is not None
        assert listing is not None
        is_head = (
            model.running and row is not None and row.line is None and row.point is model.head
        ) and row.point is not None
        if listing.scene is not None:
            grey = position <= state.fold_progress * len(listing.scene.points)
        else:
            grey = selected is not None and position < selected and self._goes(position, selected)
        shows_used = row is None or is_head
        return Look(
            limit=model.limit,
            is_head=is_head,
            has_arc=row is not None and listing.scene is None and self._has_arc(row),
            is_grey=grey,
            used=model.used if shows_used else 0,
            estimated=shows_used and model.estimated,
            age=self._age(row),
        )

    def _age(self, row: Row | None) -> str:
        line = row.line if row is not None and row.kind in ("line", "foot", "base") else None
        if line is None:
            return ""
        age = numbers.short_age(time.time() - line.at)
        # "world line 1 now" would say that it is the one that is live.
        return "<1 min" if age == "now" else age

    def _goes(self, position: int, selected: int) -> bool:
        """Whether a rewind to the selected row would take this row above it."""
        listing = self._state.listing
        assert listing is not None
        chosen = listing.row(selected)
        if chosen is None or chosen.kind != "point":
            return False
        if chosen.line is None:
            return True
        row = listing.row(position)
        return row is not None and row.line is chosen.line

    def _has_arc(self, row: Row) -> bool:
        """Whether a D-Mail's row and its world line's row stand on one another and are joined."""
        model = self._state.model
        assert model is not None
        tree = model.tree
        if row.line is not None:
            index = (row.order + 1) // 2
            if row.kind != "line" or row.lanes or index >= len(tree.live):
                return False
            return tree.live[index].kind == "dmail" and tree.live[index].from_line == row.line.n
        point = row.point
        if point is None or point.kind != "dmail":
            return False
        forks = tree.forks(tree.key_below(point.index))
        return bool(forks) and forks[-1].n == point.from_line

    def _with_arc(self, position: int, spans: list[Span]) -> list[Span]:
        """The arc of a D-Mail on its way: from the newest row down as far as the motion has come."""
        state = self._state
        scene = state.listing.scene if state.listing is not None else None
        if scene is None or scene.reason != "dmail":
            return spans
        if position > state.fold_progress * len(scene.points) or len(spans) < 2:
            return spans
        head = spans[0] if position else (state.glyphs.turn, "dmail")
        blanks = spans[1][0]
        if len(blanks) < 2 or blanks.strip():
            return [head, *spans[1:]]
        mark = state.glyphs.step if position else state.glyphs.arc
        return [head, (" ", "line"), (mark, "dmail"), (blanks[2:], "line"), *spans[2:]]

    # Around the list

    def _header_line(self, y: int, areas: Areas) -> Strip:
        state = self._state
        model = state.model
        if y == 0 and areas.title:
            width = state.curve_width
            if state.is_filtered and model is not None:
                spans = facts.filter_spans(
                    model.rows.typed,
                    model.rows.n_points,
                    width,
                    state.glyphs,
                    is_open=state.filtering,
                )
            elif state.title:
                spans = facts.entitled_spans(state.title, width, state.glyphs)
            else:
                n_steps = model.n_steps if model is not None else 0
                n_lines = model.n_lines if model is not None else 0
                spans = facts.title_spans(n_steps, n_lines, width, state.glyphs)
            return self._plain([(" ", "quiet"), *spans])
        first = areas.header - areas.curve - 2
        if areas.curve and model is not None and first <= y < areas.header - 1:
            self._make_curve(areas.curve)
            return self._curve_lines[y - first]
        return self._plain([])

    def _make_curve(self, rows: int) -> None:
        state = self._state
        model = state.model
        assert model is not None
        width = state.curve_width
        made_for = (model.revision, width, rows, state.future)
        if self._curve_made_for == made_for:
            return
        first = model.tree.live[0] if model.tree.live else None
        if first is not self._past_of:
            self._past_of, self._past = first, past_of(model.tree)
        self.curve = columns_of(self._past, model.tree.live, width, state.future)
        lines = curve_spans(
            self.curve,
            width=width,
            rows=rows,
            limit=model.limit or self._fullest(),
            trigger=model.trigger,
            glyphs=state.glyphs,
        )
        if state.future is None:
            forms = facts.forecast_forms(model.used, model.trigger, model.per_step)
            lines[-1] = with_forecast(lines[-1], forms, len(self.curve), width)
        self._curve_lines = [
            self._strip(self._padded([(" ", "quiet"), *spans]), "page") for spans in lines
        ]
        self._curve_made_for = made_for

    def _fullest(self) -> int:
        """What the curve of a session played back is measured by, where nobody noted how large the window was."""
        if self._state.future is None:
            return 0
        return max((column.tokens for column in self.curve), default=0)

    def _footer_line(self, line: int, areas: Areas) -> Strip:
        lines = self.facts()
        # They stand at the lower edge, with an empty line under them.
        index = line - (areas.footer - 1 - len(lines))
        return self._plain([("  ", "quiet"), *lines[index]] if 0 <= index < len(lines) else [])

    def facts(self, key: Key | None = None) -> list[list[Span]]:
        """What there is to know about a row: the selected one where none is named, or else the one under the pointer."""
        state = self._state
        model, listing = state.model, state.listing
        if key is None:
            key = state.selected if state.selected is not None else state.hovered
        if model is None or listing is None or key is None or listing.scene is not None:
            return []
        if key == NOW:
            return facts.now_facts(model)
        position = listing.position(key, state.hint)
        row = listing.row(position) if position is not None else None
        if row is None:
            return []
        if row.kind == "point" and row.point is not None:
            return facts.point_facts(
                model,
                row.point,
                row.line,
                width=state.full_width - 4,
                rows=2,
                glyphs=state.glyphs,
            )
        return facts.line_facts(row.line, time.time()) if row.line is not None else []

    def _empty_line(self, line: int) -> Strip:
        if line == 0:
            turn = (self._state.glyphs.turn, "accent")
            return self._plain([(" ", "quiet"), turn, ("  ", "quiet"), ("now", "strong")])
        words = wrap(facts.EMPTY, min(30, max(10, self._state.full_width - 5)))
        return self._plain(
            [("    " + words[line - 2], "quiet")] if 0 <= line - 2 < len(words) else []
        )

    # Strips

    def _keep(self, key: object, strip: Strip) -> None:
        if len(self._strips) > CACHE_LIMIT:
            self._strips.clear()
        self._strips[key] = strip

    def _plain(self, spans: list[Span]) -> Strip:
        key = tuple(spans)
        strip = self._strips.get(key)
        if strip is None:
            strip = self._strip(self._padded(spans), "page")
            self._keep(key, strip)
        return strip

    def _padded(self, spans: list[Span]) -> list[Span]:
        return [*spans, (" " * self._state.full_width, "quiet")]

    def _strip(self, spans: list[Span], ground: str) -> Strip:
        segments = [Segment(text, self._style_of(name, ground)) for text, name in spans if text]
        base = self._style_of("quiet", ground)
        strip = Strip(segments).adjust_cell_length(self._state.full_width, base)
        background = Color.from_rich_color(base.bgcolor)
        for line_filter in self._filters():
            strip = strip.apply_filter(line_filter, background)
        return strip

"""From the viewport of a timeline to strips, with a cache of those that were drawn; the curve of its tokens over it.

Colours come from a function that the widget gives; everything else is decided here, so that tests can paint without a
screen.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import log10
from textwrap import wrap
from typing import TYPE_CHECKING

from textual.strip import Strip

from kimi_tui.projection.timeline_rows import Row
from kimi_tui.projection.timeline_tree import NOW, Checkpoint, Future, Key
from kimi_tui.tui import formatting as numbers
from kimi_tui.tui.formatting import StyledText, joined, rounded
from kimi_tui.tui.gauge import forecast
from kimi_tui.tui.glyphs import Glyphs
from kimi_tui.tui.timeline.rows import (
    EMPTY,
    NOTHING_FOUND,
    Columns,
    Look,
    checkpoint_details,
    entitled_spans,
    filter_spans,
    key_spans,
    line_details,
    now_details,
    now_spans,
    row_spans,
    title_spans,
)
from kimi_tui.tui.timeline.viewport import Areas, Viewport

if TYPE_CHECKING:
    from kimi_tui.projection.timeline import TimelineModel


CACHE_LIMIT = 1_000
STYLES = (
    # Grounds.
    "page",
    "band",
    "select",
    # Text.
    "ink",
    "strong",
    "quiet",
    "accent",
    "user",
    "tool",
    "dmail",
    "compaction",
    "lost",
    "error",
    "line",
    "past",
    "curve",
    "ahead",
    "mark-dim",
)
"""The names of styles: component classes of the widget, each behind `timeline--`."""
_STEPS = (1, 1.5, 2, 3, 4, 6, 8, 10)


@dataclass(frozen=True, slots=True)
class Column:
    """One column: the fullest the window was, and the checkpoint that a click here selects."""

    tokens: int
    checkpoint: Checkpoint
    is_past: bool
    mark: str = ""
    is_ahead: bool = False


def columns_of(
    past: Sequence[Checkpoint], live: Sequence[Checkpoint], width: int, future: Future | None = None
) -> list[Column]:
    """At most `width` columns. The live line has one a checkpoint as long as a third is left for the past.

    Where a session is played back, what is to come follows; without room for all, both have their share.
    """
    if future is None:
        return _until_now(past, live, width)
    n_here, n_ahead = len(past) + len(live), len(future.checkpoints)
    ahead = n_ahead
    if n_here + n_ahead > width:
        ahead = n_ahead * width // (n_here + n_ahead)
        ahead = min(max(ahead, min(1, n_ahead)), width - min(1, n_here))
    here = _until_now(past, live, width - ahead)
    if here:
        here[-1] = replace(here[-1], mark="playhead")
    return here + _ahead(future, ahead)


def _ahead(future: Future, count: int) -> list[Column]:
    columns = [
        replace(
            column,
            is_ahead=True,
            mark=f"{column.mark}-later" if column.mark and column.mark != "now" else column.mark,
        )
        for column in _sampled(future.checkpoints, count, is_past=False)
    ]
    for index, checkpoint in enumerate(future.checkpoints if future.awaited else ()):
        if checkpoint.uid == future.awaited:
            at = index * count // len(future.checkpoints)
            columns[at] = replace(columns[at], mark=_mark(checkpoint))
            break
    if columns and columns[-1].mark == "now":
        columns[-1] = replace(columns[-1], mark="end")
    return columns


def _until_now(past: Sequence[Checkpoint], live: Sequence[Checkpoint], width: int) -> list[Column]:
    n_past = min(len(past), max(width - len(live), width // 3))
    n_live = min(len(live), width - n_past)
    return _sampled(past, n_past, is_past=True) + _sampled(live, n_live, is_past=False)


def _sampled(checkpoints: Sequence[Checkpoint], count: int, *, is_past: bool) -> list[Column]:
    if count <= 0:
        return []
    size = len(checkpoints)
    if size == count:
        columns = [Column(p.tokens, p, is_past, _mark(p)) for p in checkpoints]
    else:
        tokens = [checkpoint.tokens for checkpoint in checkpoints]
        marks = {
            i * count // size: _mark(p)
            for i, p in enumerate(checkpoints)
            if p.saved is not None and _mark(p)
        }
        columns: list[Column] = []
        for column in range(count):
            start = -(-column * size // count)
            end = max(start + 1, -(-(column + 1) * size // count))
            largest = max(tokens[start:end])
            columns.append(Column(largest, checkpoints[start], is_past, marks.get(column, "")))
    if not is_past and columns:
        last = columns[-1]
        newest = checkpoints[-1]
        largest = max(last.tokens, newest.tokens_end)
        columns[-1] = Column(largest, newest if size == count else last.checkpoint, False, "now")
    return columns


def _mark(checkpoint: Checkpoint) -> str:
    return "dmail" if checkpoint.kind == "dmail" else "compaction" if checkpoint.is_summary else ""


def _scale_of(largest: int, limit: int, rows: int = 3) -> int:
    """How many tokens so many rows stand for: the whole window, or a round number that leaves the uppermost row free.

    It changes by steps, so that not every token moves all that is drawn.

    Args:
        largest: the fullest that the window was.
        limit: its size, 0 where that is not known.
        rows: of the picture.
    """
    least = largest * rows / max(1, rows - 1)
    if least <= 0:
        return limit
    unit = 10 ** int(log10(least))
    scale = next(round(step * unit) for step in _STEPS if step * unit >= least)
    return min(limit, scale) if limit > 0 else scale


def curve_spans(
    columns: Sequence[Column],
    *,
    width: int,
    rows: int,
    limit: int,
    trigger: int,
    glyphs: Glyphs,
) -> list[list[StyledText]]:
    """The rows of the curve from the top, and under them the row of marks.

    The broken line is where the window is compacted; where little of it is used it is the size of the window, which lies
    above, in figures.
    """
    scale = _scale_of(max((column.tokens for column in columns), default=0), limit, rows)
    heights = [_height(column.tokens, scale, rows) for column in columns]
    is_whole = scale == limit
    above = "" if is_whole or limit <= 0 else f" {glyphs.up} {rounded(limit)}"
    mark_row = 0 if above else -1
    if is_whole and trigger > 0:
        mark_row = rows - 1 - min(rows - 1, int(trigger / limit * rows))
    lines: list[list[StyledText]] = []
    for row in range(rows):
        below = 8 * (rows - 1 - row)
        empty = (glyphs.freed, "mark-dim") if row == mark_row else (" ", "quiet")
        cells: list[StyledText] = []
        for height, column in zip(heights, columns, strict=True):
            eighths = min(8, height - below)
            style = "ahead" if column.is_ahead else "past" if column.is_past else "curve"
            cells.append((glyphs.levels[eighths - 1], style) if eighths > 0 else empty)
        cells.extend([empty] * (width - len(cells)))
        if above and row == 0 and len(above) < width:
            cells[-len(above) :] = [(above, "quiet")]
        lines.append(joined(cells))
    marks = {
        "compaction": (glyphs.compaction, "compaction"),
        "dmail": (glyphs.dmail, "dmail"),
        "now": (glyphs.turn, "accent"),
        "playhead": (glyphs.playhead, "strong"),
        "compaction-later": (glyphs.compaction, "quiet"),
        "dmail-later": (glyphs.dmail, "quiet"),
        "end": (glyphs.turn, "quiet"),
    }
    foot = [marks.get(column.mark, (" ", "quiet")) for column in columns]
    foot.extend([(" ", "quiet")] * (width - len(foot)))
    return [*lines, joined(foot)]


def with_forecast(
    marks: list[StyledText], words: str, n_columns: int, width: int, glyphs: Glyphs
) -> list[StyledText]:
    """The row of marks with the forecast as the gauge has it, where there is room right of the curve."""
    room = width - len(words) - 2
    if not words or n_columns + 2 > room:
        return marks
    fitted: list[StyledText] = []
    for text, style in marks:
        fitted.append((text[:room], style))
        room -= len(text[:room])
    return [*fitted, (glyphs.compaction, "compaction"), (f" {words}", "quiet")]


def _height(tokens: int, scale: int, rows: int) -> int:
    """In eighths of a row; what is there is at least one."""
    if tokens <= 0 or scale <= 0:
        return 0
    return max(1, min(8 * rows, round(8 * rows * tokens / scale)))


class Painter:
    """Paints one timeline.

    Args:
        view: what to paint; read anew for every frame.
        strip: makes a line of spans, in so many cells, on this ground (`page`, `band` or `select`).

    Attributes:
        curve: the columns of the curve as it was painted last.
    """

    def __init__(
        self,
        view: Viewport,
        strip: Callable[[list[StyledText], int, str], Strip],
    ) -> None:
        self._view = view
        self._paint = strip
        self._strips: dict[object, Strip] = {}
        self._curve_lines: list[Strip] = []
        self._curve_made_for: tuple[object, ...] = ()
        self._past: list[Checkpoint] = []
        self._past_of: Checkpoint | None = None
        self._scaled_at: tuple[TimelineModel, int] | None = None
        self._scaled = 0
        self.curve: list[Column] = []

    def clear(self) -> None:
        """Forget every strip: colours or widths are others."""
        self._strips.clear()
        self._curve_made_for = ()

    def lines(self, start: int, end: int) -> list[Strip]:
        """The lines of the widget from `start` to before `end`."""
        view, listing = self._view, self._view.listing
        areas, columns = view.areas, view.columns
        height, first = areas.list_height, areas.header
        width = columns.curve_width
        strips = [self._header_line(y, areas, width) for y in range(start, min(end, first))]
        last = min(end, first + height)
        if view.shows_keys or not len(listing):
            words = self._words_for_rows()
            for line in range(max(0, start - first), last - first):
                strips.append(self._plain(words[line] if line < len(words) else []))
        else:
            sticky, selected = view.sticky(areas), view.selected_position()
            n_rows = len(listing)
            for line in range(max(0, start - first), last - first):
                position = line + view.scroll_y
                if sticky is not None and line == height - 1:
                    strips.append(self._row_line(*sticky, selected, columns))
                elif position < n_rows:
                    row = listing.row(position)
                    strips.append(self._row_line(position, row, selected, columns))
                else:
                    strips.append(self._plain([]))
        if end > first + height:
            shown = view.selected if view.selected is not None else view.hovered
            told = self.details(shown)
            # They stand at the lower edge, with an empty line under them.
            top = first + height + areas.footer - 1 - len(told)
            for y in range(max(start, first + height), end):
                is_told = 0 <= y - top < len(told)
                strips.append(self._plain([("  ", "quiet"), *told[y - top]] if is_told else []))
        return strips

    def _words_for_rows(self) -> list[list[StyledText]]:
        """What stands where the list would: the keys, what is read, or that there is nothing yet or nothing found."""
        view = self._view
        if view.shows_keys:
            return [[("  ", "quiet"), *keys] for keys in key_spans(view.glyphs)]
        if view.is_filtered:
            words = wrap(NOTHING_FOUND, max(10, view.full_width - 4))
            return [[(f"  {row}", "quiet")] for row in words]
        if view.reading:
            return [[(f"  {view.reading}", "quiet")]]
        turn = (view.glyphs.turn, "accent")
        words = wrap(EMPTY, min(30, max(10, view.full_width - 5)))
        return [
            [(" ", "quiet"), turn, ("  ", "quiet"), ("now", "strong")],
            [],
            *([(f"    {row}", "quiet")] for row in words),
        ]

    # --- rows

    def _row_line(
        self, position: int, row: Row | None, selected: int | None, columns: Columns
    ) -> Strip:
        view = self._view
        moves = view.listing.scene is not None
        key = NOW if row is None else row.key
        look = self._look(position, row, selected)
        edge, ground = "", "page"
        if selected == position:
            edge, ground = ("accent", "select") if view.has_focus else ("line", "band")
        elif key == view.hovered:
            ground = "band"
        checkpoint = row.checkpoint if row is not None else None
        line = row.line if row is not None else None
        cache_key = (
            key,
            0 if row is None else (row.kind, row.lanes, row.hidden, row.is_tip),
            checkpoint.revision if checkpoint is not None else -1,
            line is not None and (line.is_open, line.reason, len(line.checkpoints)),
            look,
            edge,
            ground,
        )
        strip = self._strips.get(cache_key)
        if strip is not None and not moves:
            return strip
        if row is None:
            spans = now_spans(columns, view.glyphs, look)
        else:
            spans = row_spans(row, columns, view.glyphs, look)
        if moves:
            spans = self._with_arc(position, spans)
        mark = (view.glyphs.edge if edge else " ", edge or "quiet")
        strip = self._strip([mark, *spans], ground)
        if not moves:
            self._keep(cache_key, strip)
        return strip

    def _look(self, position: int, row: Row | None, selected: int | None) -> Look:
        view, listing, model = self._view, self._view.listing, self._view.listing.model
        checkpoint = row.checkpoint if row is not None and row.line is None else None
        is_head = model.running and checkpoint is not None and checkpoint is model.tree.head
        if listing.scene is not None:
            grey = position <= view.revert_progress * len(listing.scene.checkpoints)
        else:
            grey = view.looking and selected is not None and position != selected
            grey = grey and self._goes(position, selected or 0)
        shows_used = row is None or is_head
        age = name = ""
        if row is not None and row.line is not None and row.names_line:
            name = model.tree.name_of(row.line)
            age = numbers.short_age(time.time() - row.line.at)
            # "world line 1 now" would say that it is the one that is live.
            age = "<1 min" if age == "now" else age
        return Look(
            scale=self._scale(model),
            is_head=is_head,
            has_arc=row is not None and listing.scene is None and self._has_arc(row),
            is_grey=grey,
            used=model.used if shows_used else 0,
            estimated=shows_used and model.estimated,
            name=name,
            age=age,
        )

    def _scale(self, model: TimelineModel) -> int:
        """The tokens of a whole bar: as in a curve of the live line."""
        if self._scaled_at != (model, model.revision):
            tokens = (max(one.tokens, one.tokens_end) for one in model.tree.live)
            self._scaled_at = (model, model.revision)
            self._scaled = _scale_of(max(tokens, default=0), model.limit)
        return self._scaled

    def _goes(self, position: int, selected: int) -> bool:
        """Whether a rewind to the selected row would take this row."""
        chosen = self._view.listing.row(selected)
        if chosen is None or chosen.kind not in ("checkpoint", "said"):
            return False
        row = self._view.listing.row(position)
        if position > selected:
            # What else was said behind the same checkpoint goes with it.
            return (
                row is not None and row.checkpoint is chosen.checkpoint and row.line is chosen.line
            )
        if chosen.line is None:
            return True
        return row is not None and row.line is chosen.line

    def _has_arc(self, row: Row) -> bool:
        """Whether a D-Mail's row and its world line's row stand on one another and are joined."""
        model = self._view.listing.model
        tree = model.tree
        if row.line is not None:
            index = (row.order + 1) // 2
            if row.kind != "line" or row.lanes or index >= len(tree.live):
                return False
            heading = model.rows.heading_of(index)
            is_hidden = heading is not None and heading.folded and heading.index < index
            arrived = tree.live[index]
            return not is_hidden and (arrived.kind, arrived.from_line) == ("dmail", row.line.n)
        checkpoint = row.checkpoint
        if checkpoint is None or checkpoint.kind != "dmail" or row.said >= checkpoint.n_carried:
            return False
        forks = tree.forks(tree.key_below(checkpoint.index))
        return bool(forks) and forks[-1].n == checkpoint.from_line

    def _with_arc(self, position: int, spans: list[StyledText]) -> list[StyledText]:
        """The arc of a D-Mail on its way: from the newest row down as far as the motion has come."""
        view, scene = self._view, self._view.listing.scene
        if scene is None or scene.reason != "dmail":
            return spans
        if position > view.revert_progress * len(scene.checkpoints) or len(spans) < 2:
            return spans
        head = spans[0] if position else (view.glyphs.turn, "dmail")
        blanks = spans[1][0]
        if len(blanks) < 2 or blanks.strip():
            return [head, *spans[1:]]
        mark = view.glyphs.step if position else view.glyphs.arc
        return [head, (" ", "line"), (mark, "dmail"), (blanks[2:], "line"), *spans[2:]]

    # --- around the list

    def _header_line(self, y: int, areas: Areas, width: int) -> Strip:
        view, model = self._view, self._view.listing.model
        if y == 0 and areas.title:
            if view.is_filtered:
                spans = filter_spans(
                    model.rows.typed,
                    model.rows.n_found,
                    width,
                    view.glyphs,
                    is_open=view.filtering,
                )
            elif view.title:
                spans = entitled_spans(view.title, width, view.glyphs)
            else:
                n_lines = len(model.tree.lines)
                spans = title_spans(model.n_steps, n_lines, width, view.glyphs)
            return self._plain([(" ", "quiet"), *spans])
        first = areas.header - areas.curve - 2
        if areas.curve and first <= y < areas.header - 1:
            self._make_curve(areas.curve, width)
            return self._curve_lines[y - first]
        return self._plain([])

    def _make_curve(self, rows: int, width: int) -> None:
        view, model = self._view, self._view.listing.model
        made_for = (model.revision, width, rows, view.future)
        if self._curve_made_for == made_for:
            return
        first = model.tree.live[0] if model.tree.live else None
        if first is not self._past_of:
            self._past_of, self._past = first, model.tree.before_now()
        self.curve = columns_of(self._past, model.tree.live, width, view.future)
        lines = curve_spans(
            self.curve,
            width=width,
            rows=rows,
            limit=model.limit,
            trigger=model.trigger,
            glyphs=view.glyphs,
        )
        if view.future is None:
            words = forecast(model.used, model.trigger, model.per_step)
            lines[-1] = with_forecast(lines[-1], words, len(self.curve), width, view.glyphs)
        self._curve_lines = [self._strip([(" ", "quiet"), *spans], "page") for spans in lines]
        self._curve_made_for = made_for

    def details(self, key: Key | None) -> list[list[StyledText]]:
        """What there is to know about a row, in lines; none while a revert moves."""
        view, model = self._view, self._view.listing.model
        if key is None or view.listing.scene is not None:
            return []
        if key == NOW:
            return now_details(model)
        position = view.listing.position(key)
        row = view.listing.row(position) if position is not None else None
        if row is None:
            return []
        if row.checkpoint is not None and row.kind in ("checkpoint", "said"):
            width = view.full_width - 4
            return checkpoint_details(
                model,
                row.checkpoint,
                row.line,
                width=width,
                rows=2,
                glyphs=view.glyphs,
                said=row.said,
            )
        if row.line is None:
            return []
        width, name = view.full_width - 4, model.tree.name_of(row.line)
        return line_details(row.line, time.time(), name, width, view.glyphs)

    # --- strips

    def _plain(self, spans: list[StyledText]) -> Strip:
        """A line that no row stands on."""
        key = tuple(spans)
        strip = self._strips.get(key)
        if strip is None:
            strip = self._strip(spans, "page")
            self._keep(key, strip)
        return strip

    def _keep(self, key: object, strip: Strip) -> None:
        if len(self._strips) > CACHE_LIMIT:
            self._strips.clear()
        self._strips[key] = strip

    def _strip(self, spans: list[StyledText], ground: str) -> Strip:
        """Spans as a line as wide as the widget."""
        return self._paint([span for span in spans if span[0]], self._view.full_width, ground)

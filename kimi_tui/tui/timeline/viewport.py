"""The visible part of a timeline: which row is on which line of the widget, selection, scrolling, and painted strips.

State, geometry and painting without a widget: a function given by the widget makes the strips, so that tests paint without a
screen. The widget keeps the sizes up to date; the text of the lines is made in `layout`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass

from textual.strip import Strip

from kimi_tui.projection.futures import state_words
from kimi_tui.projection.timeline import TimelineModel
from kimi_tui.projection.timeline_rows import TimelineRow
from kimi_tui.projection.timeline_tree import NOW, CheckpointNode, Key, WorldLineNode
from kimi_tui.projection.token_peaks import Future, TokenPeaks
from kimi_tui.tui import formatting as numbers
from kimi_tui.tui.gauge import forecast
from kimi_tui.tui.glyphs import UNICODE, drawn
from kimi_tui.tui.rows import Span
from kimi_tui.tui.timeline.layout import (
    EMPTY,
    NOTHING_FOUND,
    Column,
    Columns,
    RowSurroundings,
    checkpoint_details,
    columns_of,
    curve_spans,
    entitled_spans,
    filter_spans,
    future_details,
    key_spans,
    line_details,
    now_details,
    now_spans,
    row_spans,
    scale_of,
    title_spans,
    with_forecast,
)

DETAILS = 6
"""Lines of the details of a row, with an empty one above and below."""
CACHE_LIMIT = 300
"""The strips that are kept: several times what the largest screen shows. Each takes some 5 KB, and a running turn makes new ones."""


@dataclass(frozen=True, slots=True)
class TimelineAreas:
    """The heights in lines of title, token curve (without its marks), everything above the list, everything below it, and the list."""

    title: int
    curve: int
    header: int
    footer: int
    list_height: int

    @classmethod
    def of(
        cls,
        screen_height: int,
        height: int,
        *,
        n_rows: int,
        overlay: bool,
        filtering: bool,
        selecting: bool,
    ) -> TimelineAreas:
        """Return the areas for a screen and a widget of these heights.

        Args:
            screen_height: the height of the screen, which limits the curve and the details.
            height: the height of the widget.
            n_rows: the rows of the list; 0 before anything has happened.
            overlay: whether the title is in the frame around the widget.
            filtering: whether the title row is the filter's.
            selecting: whether a row is selected, so that its details have a place; else they have one only where no row is
                hidden by them.
        """
        curve = 0 if n_rows == 0 else 3 if screen_height >= 32 else 2 if screen_height >= 24 else 0
        if height < curve + 12:
            curve = 0
        title = 1 if filtering or not overlay else 0
        header = title + (1 if title and (not overlay or curve) else 0)
        header += curve + 2 if curve else 0
        has_room = screen_height >= 32 and height >= 28 and n_rows > 0
        footer = DETAILS if has_room and (selecting or header + n_rows + DETAILS <= height) else 0
        return cls(title, curve, header, footer, max(0, height - header - footer))


class Listing:
    """The rows of a model from the newest, after a row for now where the newest checkpoint is not now itself.

    While a revert is animated, `scene` is the line that it left, whose rows are in their former places.
    """

    def __init__(self, model: TimelineModel) -> None:
        self.model = model
        self.scene: WorldLineNode | None = None

    def __len__(self) -> int:
        return sum(self._extent())

    def _extent(self) -> tuple[int, int]:
        """Return the number of rows above those of the model, and the number of the model's."""
        model, scene, rows = self.model, self.scene, self.model.rows
        if scene is None:
            # While a turn runs, its newest checkpoint stands for now.
            is_now = (model.running and model.tree.live) or rows.needle
            has_now = (model.tree.live or model.tree.lines) and not is_now
            return (1 if has_now else 0), len(rows)
        # During the animation the rows of later checkpoints, and of the new world line, are not there yet.
        first = scene.checkpoints[0].index if scene.checkpoints else 0
        at = rows.index_of_order(2 * first - 1)
        while at < len(rows) and rows[at].order == 2 * first - 1 and rows[at].line is not scene:
            at += 1
        return len(scene.checkpoints), at

    def rows(self, start: int, end: int) -> list[TimelineRow | None]:
        """Return the rows between two positions from the top (the second exclusive), as far as there are any; None stands for now."""
        above, count = self._extent()
        found: list[TimelineRow | None] = []
        for position in range(max(0, start), min(end, above + count)):
            if position >= above:
                found.append(self.model.rows[above + count - 1 - position])
            elif self.scene is None:
                found.append(None)
            else:
                checkpoint = self.scene.checkpoints[above - 1 - position]
                found.append(TimelineRow("checkpoint", 2 * checkpoint.index, checkpoint=checkpoint))
        return found

    def row(self, position: int) -> TimelineRow | None:
        """Return the row at a position from the top; None for now, and outside of the list."""
        return next(iter(self.rows(position, position + 1)), None)

    def key(self, position: int) -> Key | None:
        """Return the key of the row at a position; None for one that cannot be selected, and outside of the list."""
        if not 0 <= position < len(self):
            return None
        row = self.row(position)
        if row is None:
            return NOW
        return row.key if row.can_be_selected else None

    def position(self, key: Key | None) -> int | None:
        """Return the position of the row with a key; None if there is none."""
        if key is None:
            return None
        if key == NOW:
            return 0 if self.scene is None and self._extent()[0] else None
        index = self.model.rows.index_of(key)
        return None if index is None else len(self) - 1 - index

    def position_of(self, checkpoint: CheckpointNode) -> int | None:
        """Return the position of a checkpoint of the live line, or of its folded turn; None if neither has a row."""
        rows = self.model.rows
        index = rows.index_of_checkpoint(checkpoint)
        if index is None:
            heading = rows.heading_of(checkpoint.index)
            index = rows.index_of_checkpoint(heading) if heading is not None else None
        return None if index is None else len(self) - 1 - index

    def heading_below(self, position: int) -> tuple[int, TimelineRow] | None:
        """Return the position and the row of the message that begins the turn of the row at a position; None if there is none."""
        row = self.row(position)
        if row is None:
            return None
        index = row.order // 2
        if not 0 <= index < len(self.model.tree.live):
            return None
        heading = self.model.rows.heading_of(index)
        at = self.position_of(heading) if heading is not None else None
        if at is None or heading is None:
            return None
        # The messages that were carried before a D-Mail stand below it.
        at += 1 if heading.n_carried and self.model.rows.needle == "" else 0
        found = self.row(at)
        return (at, found) if found is not None else None

    def turn(self, position: int, step: int) -> int | None:
        """Return the position of the next message of the user above (`step` -1) or below (1) a position."""
        above, count = self._extent()
        newest = above + count - 1
        found = self.model.rows.words_near(min(newest - position, count), -step)
        return None if found is None else newest - found

    def branch(self, position: int, step: int) -> int | None:
        """Return the position of the next row above (`step` -1) or below (1) that names a branch; None if there is none."""
        end = len(self) if step > 0 else -1
        rows = ((at, self.row(at)) for at in range(position + step, end, step))
        return next((at for at, row in rows if row is not None and row.names_branch), None)

    def near(self, position: int, step: int) -> Key | None:
        """Return the key of the nearest row that can be selected: from a position in the direction of `step`, then in the other one."""
        start = max(0, min(position, len(self) - 1))
        for direction in (step, -step):
            at = start
            while 0 <= at < len(self):
                key = self.key(at)
                if key is not None:
                    # The caller will look for this row next.
                    self.model.rows.expect(len(self) - 1 - at)
                    return key
                at += direction
        return None


class TimelineViewport:
    """The visible part of a timeline: scroll position, selection, and its rows as cached strips.

    Args:
        strip: makes the strip of a line from its spans, its width in cells and its background (`page`, `band`, `select`).

    Attributes:
        listing: the rows; empty before the session is open.
        selected, hovered: the keys of the selected row and of the one under the pointer; None for none.
        looking: whether the prospect of a rewind to the selected row is shown.
        filtering: whether the filter is being typed.
        shows_keys: whether the list of keys is shown in place of the rows.
        overlay: whether the timeline floats over the chat, in a frame with its title.
        width, height: size of the drawing area in cells; `full_width` includes the scrollbar.
        screen_height: rows of the whole screen.
        scroll_y: rows scrolled away at the top.
        revert_progress: progress of the animation of a revert, from 0 to 1.
        title: text beside the word Timeline in place of the number of steps; empty for that number.
        reading: text in the empty list while a session is being read, and nothing is counted; else a hint for new users is
            shown there.
        future: the checkpoints that a replay has not reached yet; None outside of a replay.
        currency: that of the costs of futures.
        curve: the columns of the token curve as painted last.
    """

    def __init__(self, strip: Callable[[list[Span], int, str], Strip]) -> None:
        self.listing = Listing(TimelineModel())
        self.selected: Key | None = None
        self.hovered: Key | None = None
        self.looking = self.filtering = self.shows_keys = False
        self.has_focus = self.overlay = False
        self.width = self.full_width = self.height = self.screen_height = 0
        self.scroll_y = 0
        self.revert_progress = 1.0
        self.glyphs = UNICODE
        self.title = self.reading = ""
        self.future: Future | None = None
        self.currency = "$"
        self.curve: Sequence[Column] = ()
        self._paint = strip
        self._strips: dict[object, Strip] = {}
        self._curve_spans: list[list[Span]] = []
        self._curve_made_for: tuple[object, ...] = ()
        self._past: list[CheckpointNode] = []
        self._past_of: CheckpointNode | None = None
        self._past_peaks = TokenPeaks()
        self._n_cuts = 0

    def show(self, model: TimelineModel) -> None:
        """Show another model, with nothing selected."""
        self.listing = Listing(model)
        self.selected = self.hovered = None
        self.filtering = self.shows_keys = self.looking = False
        self._curve_made_for = ()
        self.clear()

    @property
    def n_missing(self) -> int:
        """The number of checkpoints that the next painting has to look at beyond those on the screen."""
        self._find_past()
        return self.listing.model.rows.n_missing + self._past_peaks.n_missing(self._past)

    def settle(self) -> Generator[None]:
        """Compute what a painting needs of all checkpoints, as a generator that yields between small steps."""
        yield from self.listing.model.settle()
        self._find_past()
        yield from self._past_peaks.settle(self._past)

    @property
    def sizes(self) -> tuple[object, ...]:
        """The values that the widget sets before each painting: sizes, position and its own state."""
        return (
            self.width,
            self.full_width,
            self.height,
            self.screen_height,
            self.scroll_y,
            self.overlay,
            self.has_focus,
            self.revert_progress,
            self.glyphs,
        )

    @property
    def is_filtered(self) -> bool:
        """Whether the title row is the filter's."""
        return self.filtering or bool(self.listing.model.rows.needle)

    @property
    def areas(self) -> TimelineAreas:
        """The heights of the areas above and below the list."""
        return TimelineAreas.of(
            self.screen_height,
            self.height,
            n_rows=len(self.listing),
            overlay=self.overlay,
            filtering=self.is_filtered,
            selecting=self.selected is not None,
        )

    @property
    def columns(self) -> Columns:
        """The columns of a row for the present width."""
        head = self.listing.model.tree.head
        digits = len(str(head.id)) if head is not None else 2
        # The scrollbar stands in the margin of a wide row; a narrow one has to make room.
        width = self.full_width if self.full_width >= 35 else self.width
        return Columns.of(width, digits=digits, margin=1 if self.overlay else 2)

    def sticky(self, areas: TimelineAreas) -> tuple[int, TimelineRow] | None:
        """Return the position and the row of the message that begins the lowest visible turn, where that is below the visible rows: it is
        shown on the lowest line. None if it is visible anyway."""
        height = areas.list_height
        last = self.scroll_y + height - 1
        if height < 3 or last >= len(self.listing) - 1:
            return None
        found = self.listing.heading_below(last)
        return found if found is not None and found[0] > last else None

    def position_at(self, y: int) -> int | None:
        """Return the position of the row on a line of the widget; None if there is none."""
        areas = self.areas
        height = areas.list_height
        line = y - areas.header
        if self.shows_keys or not 0 <= line < height:
            return None
        sticky = self.sticky(areas)
        if sticky is not None and line == height - 1:
            return sticky[0]
        position = line + self.scroll_y
        return position if position < len(self.listing) else None

    def selected_position(self) -> int | None:
        """Return the position of the selected row; None if no row is selected, or it was removed."""
        return self.listing.position(self.selected)

    def selected_row(self) -> TimelineRow | None:
        """Return the selected row; None if there is none, and for now."""
        position = self.selected_position()
        return self.listing.row(position) if position is not None else None

    def scroll_to_show(self, position: int) -> int:
        """Return the scroll offset, nearest to the present one, at which a row is visible."""
        areas = self.areas
        height = max(1, areas.list_height)
        # A heading that is held at the lowest line may cover it.
        last = self.scroll_y + height - (2 if self.sticky(areas) is not None else 1)
        if position < self.scroll_y:
            return position
        return position - height + 2 if position > last else self.scroll_y

    # --- painting

    def clear(self) -> None:
        """Drop all strips: colours or widths have changed."""
        self._strips.clear()

    def lines(self, start: int, end: int) -> list[Strip]:
        """Return the strips of the lines of the widget from `start` to `end` (exclusive)."""
        areas, columns = self.areas, self.columns
        first, last = areas.header, areas.header + areas.list_height
        if areas.curve and start < first:
            self._update_curve(areas.curve, columns.curve_width)
        strips = [self._header_line(y, areas, columns) for y in range(start, min(end, first))]
        in_list = range(max(0, start - first), min(end, last) - first)
        if self.shows_keys or not len(self.listing):
            words = self._words_for_rows()
            strips += [self._line(words[y] if y < len(words) else []) for y in in_list]
        else:
            strips += self._row_lines(in_list, areas, columns)
        if end > last:
            told = self.details(self.selected if self.selected is not None else self.hovered)
            # The details stand at the lower edge, with an empty line under them.
            top = last + areas.footer - 1 - len(told)
            for y in range(max(start, last), end):
                is_told = 0 <= y - top < len(told)
                strips.append(self._line([Span("  ", "quiet"), *told[y - top]] if is_told else []))
        return strips

    def _line(self, spans: list[Span], ground: str = "page", key: object = None) -> Strip:
        """Return the strip of spans, as wide as the widget; cached under a key, else under the spans themselves."""
        key = key or (ground, *spans)
        strip = self._strips.get(key)
        if strip is None:
            shown = [
                span._replace(text=drawn(span.text, self.glyphs)) for span in spans if span.text
            ]
            strip = self._paint(shown, self.full_width, ground)
            if len(self._strips) > CACHE_LIMIT:
                self._strips.clear()
            self._strips[key] = strip
        return strip

    def _row_lines(self, lines: range, areas: TimelineAreas, columns: Columns) -> list[Strip]:
        """Return the strips of lines of the list, counted from its first line."""
        listing, model = self.listing, self.listing.model
        sticky, selected = self.sticky(areas), self.selected_position()
        chosen = None
        if self.looking and selected is not None and listing.scene is None:
            chosen = listing.row(selected)
        # The bars have the scale of a curve of the live line.
        scale = scale_of(model.most_tokens(), model.limit)
        start = self.scroll_y + lines.start
        shown = list(enumerate(listing.rows(start, self.scroll_y + lines.stop), start))
        if sticky is not None and shown and lines.stop == areas.list_height:
            shown[-1] = sticky
        strips: list[Strip] = []
        for position, row in shown:
            goes = False
            if selected is not None and chosen is not None and position != selected:
                goes = _goes(row, chosen, is_above=position < selected)
            look = self._look(position, row, scale, is_grey=goes)
            strips.append(self._row_line(position, row, look, columns, selected == position))
        return strips + [self._line([])] * (len(lines) - len(strips))

    def _row_line(
        self,
        position: int,
        row: TimelineRow | None,
        look: RowSurroundings,
        columns: Columns,
        is_selected: bool,
    ) -> Strip:
        key, checkpoint, line = NOW, None, None
        if row is not None:
            key, checkpoint, line = row.key, row.checkpoint, row.line
        edge, ground = "", "page"
        if is_selected:
            edge, ground = ("accent", "select") if self.has_focus else ("line", "band")
        elif key == self.hovered:
            ground = "band"
        scene = self.listing.scene
        # The arc of a D-Mail on its way goes from the newest row down as far as the animation has come.
        has_arc = (
            scene is not None
            and scene.reason == "dmail"
            and position <= self.revert_progress * len(scene.checkpoints)
        )
        cache_key = (
            key,
            0 if row is None else (row.kind, row.lanes, row.hidden, row.is_tip),
            checkpoint.revision if checkpoint is not None else -1,
            line is not None and (line.is_open, line.reason, len(line.checkpoints)),
            row.future if row is not None else None,
            look,
            edge,
            ground,
            has_arc and ("head" if position == 0 else "shaft"),
        )
        if (strip := self._strips.get(cache_key)) is not None:
            return strip
        if row is None:
            spans = now_spans(columns, self.glyphs, look)
        else:
            spans = row_spans(row, columns, self.glyphs, look)
        if has_arc:
            spans = self._with_arc(spans, is_head=position == 0)
        mark = Span(self.glyphs.edge if edge else " ", edge or "quiet")
        return self._line([mark, *spans], ground, cache_key)

    def _look(
        self, position: int, row: TimelineRow | None, scale: int, *, is_grey: bool
    ) -> RowSurroundings:
        listing, model = self.listing, self.listing.model
        checkpoint = row.checkpoint if row is not None and row.line is None else None
        is_head = model.running and checkpoint is not None and checkpoint is model.tree.head
        if listing.scene is not None:
            is_grey = position <= self.revert_progress * len(listing.scene.checkpoints)
        shows_used = row is None or is_head
        age = name = result = ""
        if row is not None and row.line is not None and row.names_line:
            name = model.tree.name_of(row.line)
            age = numbers.short_age(time.time() - row.line.at)
            if (was := model.future_of(row.line.n)) is not None:
                result = state_words(was)
            # "world line 1 now" would say that this line is the live one.
            age = "<1 min" if age == "now" else age
        return RowSurroundings(
            scale=scale,
            is_head=is_head,
            has_arc=row is not None and listing.scene is None and self._has_arc(row),
            is_grey=is_grey,
            used=model.used if shows_used else 0,
            estimated=shows_used and model.estimated,
            name=name,
            age=age,
            result=result,
            currency=self.currency,
        )

    def _has_arc(self, row: TimelineRow) -> bool:
        """Return whether an arc joins the row to its neighbour: one is a D-Mail, the other the line that it left."""
        model = self.listing.model
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

    def _with_arc(self, spans: list[Span], *, is_head: bool) -> list[Span]:
        """Return the spans of a row with the arc of a D-Mail while its revert is animated: the arc's head, or a part of its shaft."""
        if len(spans) < 2:
            return spans
        head = Span(self.glyphs.turn, "dmail") if is_head else spans[0]
        blanks = spans[1].text
        if len(blanks) < 2 or blanks.strip():
            return [head, *spans[1:]]
        mark = self.glyphs.arc if is_head else self.glyphs.step
        return [head, Span(" ", "line"), Span(mark, "dmail"), Span(blanks[2:], "line"), *spans[2:]]

    # --- around the list

    def _words_for_rows(self) -> list[list[Span]]:
        """Return the lines in place of the list: the keys, what is being read, or that there is nothing yet or no match."""
        if self.shows_keys:
            return [[Span("  ", "quiet"), *keys] for keys in key_spans(self.glyphs)]
        if self.is_filtered:
            words = numbers.wrap_words(NOTHING_FOUND, max(10, self.full_width - 4))
            return [[Span(f"  {row}", "quiet")] for row in words]
        if self.reading:
            return [[Span(f"  {self.reading}", "quiet")]]
        turn = Span(self.glyphs.turn, "accent")
        words = numbers.wrap_words(EMPTY, min(30, max(10, self.full_width - 5)))
        return [
            [Span(" ", "quiet"), turn, Span("  ", "quiet"), Span("now", "strong")],
            [],
            *([Span(f"    {row}", "quiet")] for row in words),
        ]

    def _header_line(self, y: int, areas: TimelineAreas, columns: Columns) -> Strip:
        model, width = self.listing.model, columns.curve_width
        if y == 0 and areas.title:
            if self.is_filtered:
                spans = filter_spans(
                    model.rows.typed,
                    model.rows.n_found,
                    width,
                    self.glyphs,
                    is_open=self.filtering,
                )
            elif self.title:
                spans = entitled_spans(self.title, width, self.glyphs)
            elif self.reading:
                # The counts are known once the whole session is read.
                spans = entitled_spans("", width, self.glyphs)
            else:
                n_lines = len(model.tree.lines)
                spans = title_spans(model.n_steps, n_lines, width, self.glyphs)
            return self._line([Span(" ", "quiet"), *spans])
        first = areas.header - areas.curve - 2
        if areas.curve and first <= y < areas.header - 1:
            return self._line([Span(" ", "quiet"), *self._curve_spans[y - first]])
        return self._line([])

    def _find_past(self) -> None:
        """Find the checkpoints that compactions have replaced, and forget what is known of their figures where these have changed."""
        model = self.listing.model
        first = model.tree.live[0] if model.tree.live else None
        if first is not self._past_of:
            self._past_of, self._past = first, model.tree.before_now()
            self._past_peaks.cut()
        if self._n_cuts != model.peaks.n_cuts:
            # Figures have changed, maybe those of checkpoints before a compaction.
            self._n_cuts = model.peaks.n_cuts
            self._past_peaks.cut()

    def _update_curve(self, rows: int, width: int) -> None:
        """Make the spans of the token curve in so many rows and cells, unless model and size are those of the last call."""
        model = self.listing.model
        made_for = (model.revision, width, rows, self.future, self.glyphs)
        if self._curve_made_for == made_for:
            return
        self._find_past()
        peaks = (self._past_peaks, model.peaks)
        self.curve = columns_of(self._past, model.tree.live, width, self.future, peaks)
        self._curve_spans = curve_spans(
            self.curve,
            width=width,
            rows=rows,
            limit=model.limit,
            trigger=model.trigger,
            glyphs=self.glyphs,
        )
        if self.future is None:
            words = forecast(model.used, model.trigger, model.per_step)
            marks = with_forecast(self._curve_spans[-1], words, len(self.curve), width, self.glyphs)
            self._curve_spans[-1] = marks
        self._curve_made_for = made_for

    def details(self, key: Key | None) -> list[list[Span]]:
        """Return the details of a row, in lines; empty while a revert is animated."""
        model = self.listing.model
        if key is None or self.listing.scene is not None:
            return []
        if key == NOW:
            return now_details(model)
        position = self.listing.position(key)
        row = self.listing.row(position) if position is not None else None
        if row is None:
            return []
        if row.checkpoint is not None and row.kind in ("checkpoint", "said"):
            width = self.full_width - 4
            return checkpoint_details(
                model,
                row.checkpoint,
                row.line,
                width=width,
                rows=2,
                glyphs=self.glyphs,
                said=row.said,
            )
        if row.future is not None:
            width = self.full_width - 4
            return future_details(row.future, time.time(), width, self.glyphs, self.currency)
        if row.line is None:
            return []
        width, name = self.full_width - 4, model.tree.name_of(row.line)
        was = model.future_of(row.line.n)
        return line_details(row.line, time.time(), name, width, self.glyphs, was)


def _goes(row: TimelineRow | None, chosen: TimelineRow, *, is_above: bool) -> bool:
    """Return whether a rewind to the chosen row would drop this one, which is above or below it."""
    if chosen.kind not in ("checkpoint", "said") or (row is not None and row.future is not None):
        return False
    if is_above and chosen.line is None:
        return True
    if row is None or row.line is not chosen.line:
        return False
    # Other messages that the user sent at the same checkpoint are dropped with it.
    return is_above or row.checkpoint is chosen.checkpoint

"""The text of the timeline: rows (lanes, number, label, tokens, level), title, token curve, details, forecast and keys.

Pure functions from the model to spans of styled text; `viewport` paints them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache
from math import ceil, log10
from typing import TYPE_CHECKING

from rich.cells import cell_len

from kimi_tui.foreign_text import one_line
from kimi_tui.projection.futures import future_name, model_words, state_words
from kimi_tui.projection.timeline_rows import TimelineRow
from kimi_tui.projection.timeline_tree import (
    NOT_SENT,
    CallNode,
    CheckpointNode,
    Trial,
    WorldLineNode,
)
from kimi_tui.projection.token_peaks import Future, PeaksFrom, TokenPeaks
from kimi_tui.tui import formatting as numbers
from kimi_tui.tui.gauge import forecast
from kimi_tui.tui.glyphs import Glyphs
from kimi_tui.tui.rows import Span, fitted, in_rows, joined, sides, spans_width

if TYPE_CHECKING:
    from kimi_tui.projection.timeline import TimelineModel
    from kimi_tui.wire.events import FutureChanged

MAX_LANES = 3
_LEAST_NAME = 8
_LEAST_LABEL = 12
"""Minimum cells of a label for the noun to be shown beside it after the number of folded steps."""
_NAME_BY_AGE = 12
"""Minimum cells of a world line's name for its age to be shown beside it."""
_LEAST_FIGURE = 5
_STEPS = (1, 1.5, 2, 3, 4, 6, 8, 10)
"""The round numbers for the scale of bar and curve, to be multiplied by a power of ten."""


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of the parts of a row of `width` cells; ends are exclusive. `level` is -1 if there is no room for it.

    Title and curve have `curve_width` cells, from column 1 on.
    """

    width: int
    lanes: int
    number: int
    number_width: int
    figure_end: int
    level: int
    curve_width: int

    @classmethod
    def of(cls, width: int, *, digits: int = 2, margin: int = 2) -> Columns:
        """Return the columns for a width.

        Args:
            width: all cells of the row.
            digits: the number of digits of the largest checkpoint id.
            margin: empty cells at the right end of a wide row.
        """
        number_width = max(3, digits + 1)
        if width >= 35:
            level = width - margin - 1
            return cls(width, 3, 5, number_width, level - 1, level, level)
        lanes, number = (3, 5) if width >= 27 else (1, 3)
        return cls(width, lanes, number, number_width, width, -1, max(1, width - 1))


@dataclass(frozen=True, slots=True)
class RowSurroundings:
    """The surroundings of a row that its drawing depends on."""

    scale: int = 0
    """Tokens of a whole bar."""
    is_head: bool = False
    """Whether the row is the newest checkpoint and the agent works on it."""
    has_arc: bool = False
    """Whether an arc joins the row to a neighbour.

    It joins a D-Mail (or what was carried over) to the world line below, and a world line to the D-Mail above.
    """
    is_grey: bool = False
    """Whether a rewind to the selected row would drop it."""
    used: int = 0
    estimated: bool = False
    name: str = ""
    """The name of the world line; empty if it has none."""
    age: str = ""
    """The time since the world line was left, in words."""
    result: str = ""
    """The last state of the future that the world line was; empty if it was none."""
    currency: str = "$"
    """The currency of the cost of a future."""


def row_spans(
    row: TimelineRow, columns: Columns, glyphs: Glyphs, look: RowSurroundings
) -> list[Span]:
    """Return the whole row, from column 1 on (column 0 is the selection's)."""
    lanes = _lanes(row, columns, glyphs, look)
    if row.kind == "gap":
        spans = lanes
    elif row.checkpoint is not None and row.kind in ("checkpoint", "said"):
        spans = _checkpoint_spans(row, row.checkpoint, columns, glyphs, look, lanes)
    elif row.line is not None:
        spans = _line(row, row.line, columns, glyphs, look, lanes)
    elif row.future is not None:
        spans = _future(row, row.future, columns, glyphs, look, lanes)
    else:
        spans = lanes
    return fitted(spans, columns.width - 1)


def now_spans(columns: Columns, glyphs: Glyphs, look: RowSurroundings) -> list[Span]:
    """Return the row above all checkpoints while nothing runs."""
    label_at = columns.number + columns.number_width + 1
    is_told = look.scale > 0 or look.used > 0
    label_at = label_at if is_told else columns.number - 1
    figure = numbers.tokens(look.used, estimated=look.estimated) if is_told else ""
    spans: list[Span] = [Span(glyphs.turn, "accent"), Span(" " * (label_at - 2), "quiet")]
    style = "quiet" if look.is_grey else "strong"
    spans += sides([Span("now", style)], [Span(figure, style)], columns.figure_end - label_at)
    spans += _level_spans(look.used, columns, glyphs, look, is_now=True)
    return fitted(spans, columns.width - 1)


def _lanes(row: TimelineRow, columns: Columns, glyphs: Glyphs, look: RowSurroundings) -> list[Span]:
    """Return the lanes, from column 1 to before the text."""
    own = _own_lane(row, glyphs, look)
    if columns.lanes == 1:
        if row.future is not None:
            sign = future_sign(row.future, glyphs) if row.kind == "future" else own[0]
            return [sign, Span(" ", "line")]
        spans = (
            own[:1]
            if row.kind in ("checkpoint", "said", "gap", "more")
            else [Span(glyphs.lost, "lost")]
        )
        return [*spans, Span(" ", "line")]
    outer: list[Span] = []
    for lane in row.lanes[1 - MAX_LANES :] if row.lanes else "":
        is_base = lane == "b"
        outer.append(
            Span(glyphs.before if is_base else glyphs.step, "compaction" if is_base else "line")
        )
        outer.append(Span(" ", "line"))
    return outer + own


def _own_lane(row: TimelineRow, glyphs: Glyphs, look: RowSurroundings) -> list[Span]:
    line = row.line
    match row.kind:
        case "gap" | "facts":
            return [Span(glyphs.step, "line")]
        case "future":
            sign = Span(glyphs.lost, "lost")
            if row.future is not None:
                sign = future_sign(row.future, glyphs)
            return [Span(glyphs.fork, "line"), Span(glyphs.rule, "line"), sign]
        case "more":
            return [Span(glyphs.lost, "lost") if row.is_tip else Span(glyphs.step, "lost")]
        case "line" | "foot":
            corner = glyphs.corner_bottom if line is not None and line.at_root else glyphs.fork
            if row.kind == "foot":
                return [Span(corner, "line"), Span(glyphs.rule + glyphs.foot, "lost")]
            rule = "dmail" if look.has_arc else "line"
            return [Span(corner, "line"), Span(glyphs.rule, rule), Span(glyphs.lost, "lost")]
        case "said":
            spans: list[Span] = [Span(glyphs.turn, "lost" if line is not None else "user")]
            return (
                [*spans, Span(" ", "line"), Span(glyphs.step, "dmail")] if look.has_arc else spans
            )
        case "base":
            return [Span(glyphs.before, "compaction"), Span(" ", "line"), Span(glyphs.lost, "lost")]
        case _:
            return _checkpoint_lane(row, glyphs, look)


def _checkpoint_lane(row: TimelineRow, glyphs: Glyphs, look: RowSurroundings) -> list[Span]:
    checkpoint = row.checkpoint
    assert checkpoint is not None
    in_line = row.line is not None
    if look.is_head and not in_line:
        return [Span(glyphs.turn, "accent")]
    if checkpoint.kind == "dmail":
        mark = [Span(glyphs.dmail, "lost" if in_line else "dmail")]
        if look.has_arc and not in_line:
            mark.append(Span(glyphs.rule + glyphs.arc, "dmail"))
        return mark
    if checkpoint.is_summary:
        return [Span(glyphs.compaction, "lost" if in_line else "compaction")]
    if row.is_tip:
        return [Span(glyphs.lost, "lost")]
    if checkpoint.is_heading:
        return [Span(glyphs.turn, "lost" if in_line else "user")]
    if checkpoint.state == "failed":
        return [Span(glyphs.failed, "lost" if in_line else "error")]
    if checkpoint.state == "stopped":
        return [Span(glyphs.stopped, "lost" if in_line else "ink")]
    return [Span(glyphs.step, "lost" if in_line else "line")]


def _checkpoint_spans(
    row: TimelineRow,
    checkpoint: CheckpointNode,
    columns: Columns,
    glyphs: Glyphs,
    look: RowSurroundings,
    lanes: list[Span],
) -> list[Span]:
    quiet = look.is_grey or row.line is not None
    is_said = row.kind == "said"
    is_now = look.is_head and not (is_said or checkpoint.calls or checkpoint.is_heading)
    number_at = _text_column(lanes, columns)
    number_width = columns.number_width - (number_at - columns.number)
    number = f"#{checkpoint.id}".rjust(max(number_width, len(str(checkpoint.id)) + 1))
    if is_said:
        # A number is on one row only: that of its checkpoint.
        number = " " * len(number)
    spans: list[Span] = [
        *lanes,
        Span(" " * max(0, number_at - spans_width(lanes) - 1), "line"),
        Span(number + " ", "quiet"),
    ]
    label_at = number_at + len(number) + 1
    # A message that has no checkpoint of its own has no figure either.
    shown = Span("", "quiet") if is_said else figure_of(checkpoint, glyphs)
    if is_now:
        shown = Span(numbers.tokens(look.used, estimated=look.estimated), "strong")
    if quiet:
        shown = shown._replace(style="quiet")
    width = max(0, columns.figure_end - max(_LEAST_FIGURE, cell_len(shown.text)) - 1 - label_at)
    suffix = _folded_words(row.hidden, width)
    room = width - (len(suffix) + 1 if suffix else 0)
    words = [Span("now", "strong")] if is_now else label_of(checkpoint, room, glyphs)
    if is_said:
        words = [Span(numbers.cut(checkpoint.said[row.said], room, glyphs.cut), "strong")]
    elif checkpoint.files and not suffix and columns.level >= 0:
        # The tool and its file tell more than the number of files, which is shown only beside them.
        files = f"{glyphs.files}{checkpoint.files}"
        suffix = files if spans_width(words) + 1 + len(files) <= width else ""
    if quiet:
        words = [word._replace(style="quiet") for word in words]
    if suffix:
        words = sides(words, [Span(suffix, "quiet")], width)
    spans += sides(words, [shown], columns.figure_end - label_at)
    if row.line is None:
        tokens = look.used if is_now else max(checkpoint.tokens, checkpoint.tokens_end)
        if checkpoint.is_heading:
            tokens = checkpoint.tokens
        spans += _level_spans(tokens, columns, glyphs, look, is_now=look.is_head)
    return spans


_REASONS = {
    "rewind": "rewind",
    "clear": "clear",
    "jump": "switch",
    "undo": "undo",
    "redo": "redo",
    "compaction": "compacted",
    "future": "future",
}


def _line(
    row: TimelineRow,
    line: WorldLineNode,
    columns: Columns,
    glyphs: Glyphs,
    look: RowSurroundings,
    lanes: list[Span],
) -> list[Span]:
    at = _text_column(lanes, columns)
    spans: list[Span] = [*lanes, Span(" " * max(0, at - spans_width(lanes) - 1), "line")]
    if row.kind == "more":
        words = f"+{numbers.counted(row.hidden, 'step')}"
        indent = max(0, columns.number + columns.number_width + 1 - at)
        return [*spans, Span(" " * indent, "line"), Span(words, "lost")]
    is_open = row.kind == "foot" or (row.kind == "base" and line.is_open)
    figure = numbers.counted(len(line.checkpoints), "step")
    # The arc or the mark of a compaction already says why such a line was left.
    reason = "" if line.is_base else look.result or _REASONS.get(line.reason, "")
    number = f"{line.n} ".ljust(columns.number_width + 1 if columns.lanes > 1 else 0)
    room = columns.figure_end - at - len(number) - len(figure) - 1
    if room < _LEAST_NAME:
        room += len(figure) - len(str(len(line.checkpoints)))
        figure = str(len(line.checkpoints))
    name = look.name or "world line"
    facts = [" ".join(word for word in (reason, look.age) if word), look.age or reason]
    rest = next((one for one in facts if one and cell_len(name) + 2 + len(one) <= room), "")
    if not rest and look.age and room - 2 - len(look.age) >= _NAME_BY_AGE:
        rest = look.age
    name = numbers.cut(name, max(0, room - (len(rest) + 2 if rest else 0)), glyphs.cut)
    label: list[Span] = [
        Span(number, "lost"),
        Span(name, "quiet" if look.is_grey else "ink" if is_open else "lost"),
    ]
    if rest:
        label.append(Span(f"  {rest}", "lost"))
    return spans + sides(label, [Span(figure, "lost")], columns.figure_end - at)


def future_sign(future: FutureChanged, glyphs: Glyphs) -> Span:
    """Return the sign of what a future does, or how it ended."""
    match future.state:
        case "preparing" | "waiting":
            return Span(glyphs.pending, "quiet")
        case "asking":
            return Span(glyphs.caution, "warn")
        case "running" | "checking":
            return Span(glyphs.running, "accent")
        case "failed":
            return Span(glyphs.failed, "error")
        case "stopped":
            return Span(glyphs.stopped, "ink")
        case "done":
            if future.check == "failed":
                return Span(glyphs.failed, "error")
            return Span(glyphs.done, "ok" if future.check == "passed" else "quiet")


def _future(
    row: TimelineRow,
    future: FutureChanged,
    columns: Columns,
    glyphs: Glyphs,
    look: RowSurroundings,
    lanes: list[Span],
) -> list[Span]:
    """Return the row of a future's name with its tokens, or the one below it: what it does, its model, its cost."""
    at = _text_column(lanes, columns)
    spans: list[Span] = [*lanes, Span(" " * max(0, at - spans_width(lanes) - 1), "line")]
    number = f"{future.number} ".ljust(columns.number_width + 1 if columns.lanes > 1 else 0)
    room = columns.figure_end - at - len(number)
    if row.kind == "facts":
        does = state_words(future)
        style = "quiet"
        if not look.is_grey and future.state == "asking":
            style = "strong"
        words = [Span(numbers.cut(does, room, glyphs.cut), style)]
        left = room - cell_len(does)
        cost = _money(future, look.currency)
        for fact in (cost, model_words(future)):
            # The name of a model may be cut; an amount may not.
            least = cell_len(fact) if fact is cost else min(_LEAST_NAME, cell_len(fact))
            if not fact or left < least + 2:
                continue
            shown = numbers.cut(fact, left - 2, glyphs.cut)
            words.append(Span(f"  {shown}", "quiet"))
            left -= 2 + cell_len(shown)
        return [*spans, Span(" " * len(number), "line"), *words]
    figure = numbers.tokens(future.tokens) if future.tokens else ""
    name = future_name(future)
    name = numbers.cut(name, max(0, room - max(_LEAST_FIGURE, len(figure)) - 1), glyphs.cut)
    label = [Span(number, "quiet"), Span(name, "quiet" if look.is_grey else "ink")]
    return spans + sides(label, [Span(figure, "quiet")], columns.figure_end - at)


def _folded_words(n_hidden: int, width: int) -> str:
    """Return `+11 steps` for so many folded steps; without the noun where it would leave too little of the label."""
    if not n_hidden:
        return ""
    words = f"+{numbers.counted(n_hidden, 'step')}"
    return words if width - len(words) - 1 >= _LEAST_LABEL else words.partition(" ")[0]


def _text_column(lanes: list[Span], columns: Columns) -> int:
    """Return the column of the text: that of the number, or two cells further for each lane beyond the second."""
    return max(columns.number, spans_width(lanes) + 2) if columns.lanes > 1 else columns.number


def _level_spans(
    tokens: int, columns: Columns, glyphs: Glyphs, look: RowSurroundings, *, is_now: bool
) -> list[Span]:
    """Return the one-cell bar: how full the window was."""
    if columns.level < 0:
        return []
    bar = " "
    if look.scale > 0 and tokens > 0:
        bar = glyphs.levels[min(8, ceil(8 * tokens / look.scale)) - 1]
    return [Span(" ", "quiet"), Span(bar, "curve" if is_now else "past")]


def label_of(checkpoint: CheckpointNode, room: int, glyphs: Glyphs) -> list[Span]:
    """Return the label of a checkpoint, in at most `room` cells."""
    mark: list[Span] = []
    if checkpoint.trial:
        sign, style = _trial_sign(checkpoint.trial, glyphs)
        mark = [Span(f"{sign} ", style)]
        room -= 2
    if checkpoint.pinned:
        mark = [*mark, Span(f"{glyphs.pinned} ", "accent")]
        room -= 2
    if checkpoint.bookmark:
        mark = [*mark, Span(f"{glyphs.bookmark} ", "accent")]
        room -= 2
        return [*mark, Span(numbers.cut(checkpoint.bookmark, room, glyphs.cut), "ink")]
    if checkpoint.kind == "dmail":
        return [*mark, Span(numbers.cut(_dmail_words(checkpoint), room, glyphs.cut), "dmail")]
    if checkpoint.is_summary:
        return [*mark, Span(numbers.cut("Compacted", room, glyphs.cut), "compaction")]
    if checkpoint.is_heading:
        return [
            *mark,
            Span(numbers.cut(checkpoint.words or "Continue", room, glyphs.cut), "strong"),
        ]
    if not checkpoint.calls:
        words = checkpoint.words or _STATE_WORDS[checkpoint.state]
        return [*mark, Span(numbers.cut(words, room, glyphs.cut), "ink")]
    return mark + _call_label(checkpoint, room, glyphs)


def _trial_sign(trial: Trial, glyphs: Glyphs) -> tuple[str, str]:
    match trial:
        case "good":
            return glyphs.done, "ok"
        case "bad":
            return glyphs.failed, "error"
        case "skipped":
            return glyphs.pending, "quiet"
        case _:
            return glyphs.running, "accent"


_STATE_WORDS = {
    "open": "now",
    "done": "Answer",
    "failed": "Model request failed",
    "stopped": "Stopped",
}


_LEAST_TASK = 12
"""The cells that the name of the tool leaves to the task of a sub-agent."""


def _agent_label(agents: Sequence[CallNode], more: str, room: int, glyphs: Glyphs) -> list[Span]:
    """Return the label of a step that started sub-agents: `Agent find the callers · 12 steps`, `3 sub-agents · 30 steps`.

    Where room is short, the steps stay, and the task before the name of the tool; where it is very short, the task alone.
    """
    name, task = agents[0].name, agents[0].target
    steps = f" · {numbers.counted(sum(each.agent_steps for each in agents), 'step')}"
    if len(agents) > 1:
        task, more = numbers.counted(len(agents), "sub-agent"), ""
        task = task if cell_len(task + steps) <= room else numbers.counted(len(agents), "agent")
    left = room - cell_len(steps)
    more = more if left - cell_len(more) >= _LEAST_TASK else ""
    left -= cell_len(more)
    is_named = len(agents) == 1 and left - cell_len(name) - 1 >= _LEAST_TASK
    head = [Span(f"{name} ", "tool")] if is_named else []
    left -= spans_width(head)
    if left < min(cell_len(task), _LEAST_NAME):
        return [Span(numbers.cut(task, room, glyphs.cut), "tool")]
    style = "ink" if head else "tool"
    return [*head, Span(numbers.cut(task, left, glyphs.cut), style), Span(steps + more, "quiet")]


def _call_label(checkpoint: CheckpointNode, room: int, glyphs: Glyphs) -> list[Span]:
    assert checkpoint.calls
    call = checkpoint.main_call or checkpoint.calls[0]
    more = f" +{len(checkpoint.calls) - 1}" if len(checkpoint.calls) > 1 else ""
    whole = NOT_SENT if call.target.startswith(NOT_SENT) else call.target
    if call.card.kind == "path":
        whole = whole.rsplit("/", 1)[-1]
    agents = [each for each in checkpoint.calls if each.agent_steps >= 0]
    if agents and call.name == agents[0].name:
        return _agent_label(agents, more, room, glyphs)
    # The tool and its file tell more than the number of the other calls.
    if call.card.kind == "path" or whole == NOT_SENT:
        more = more if cell_len(f"{call.name} {whole}{more}") <= room else ""
    name = numbers.cut(call.name, room - len(more), glyphs.cut)
    style = "dmail" if call.card.is_letter else "tool"
    left = room - len(more) - cell_len(name) - 1
    if call.card.kind == "path":
        target = numbers.path(call.target.rsplit("/", 1)[-1], left, glyphs.cut)
    else:
        target = call.target
        if target.startswith(NOT_SENT) and cell_len(target) > left:
            target = NOT_SENT
        target = numbers.cut(target, left, glyphs.cut)
    spans: list[Span] = [Span(name, style)]
    if target and left > 0:
        spans.append(Span(f" {target}", "dmail" if style == "dmail" else "ink"))
    if more:
        spans.append(Span(more, "quiet"))
    return spans


def figure_of(checkpoint: CheckpointNode, glyphs: Glyphs) -> Span:
    """Return the tokens at a heading, the change of a step, the ratio of a compaction."""
    if checkpoint.is_summary and checkpoint.before:
        after = checkpoint.before + (checkpoint.saved or 0)
        is_guess = not checkpoint.saved_measured
        sizes = numbers.both_sizes(checkpoint.before, after, glyphs.to, estimated=is_guess)
        return Span(sizes.replace(numbers.MINUS, glyphs.minus), "compaction")
    if checkpoint.is_heading and not (checkpoint.tokens or checkpoint.measured):
        return Span("", "quiet")
    if checkpoint.is_heading:
        return Span(numbers.tokens(checkpoint.tokens, estimated=not checkpoint.measured), "ink")
    if checkpoint.change == 0 and not checkpoint.change_measured:
        return Span("", "quiet")
    style = "dmail" if checkpoint.kind == "dmail" else "quiet"
    change = numbers.change(checkpoint.change, estimated=not checkpoint.change_measured)
    return Span(change.replace(numbers.MINUS, glyphs.minus), style)


# --- the curve


@dataclass(frozen=True, slots=True)
class Column:
    """One column of the token curve: the most tokens in the window, and the checkpoint that a click selects."""

    tokens: int
    checkpoint: CheckpointNode
    is_past: bool
    mark: str = ""
    is_ahead: bool = False


def columns_of(
    past: Sequence[CheckpointNode],
    live: Sequence[CheckpointNode],
    width: int,
    future: Future | None = None,
    peaks: tuple[TokenPeaks, TokenPeaks] | None = None,
) -> list[Column]:
    """Return at most `width` columns. The live line has one for each checkpoint as long as a third is left for the past.

    If a session is played back, the checkpoints to come follow; without room for all, both have their share.

    Args:
        past: the checkpoints that compactions of the live line have replaced, oldest first.
        live: those of the live line.
        width: the number of columns at most.
        future: what follows, if a session is played back.
        peaks: what is known of the figures of `past` and of `live` from an earlier call.
    """
    peaks = peaks or (TokenPeaks(), TokenPeaks())
    if future is None:
        return _until_now(past, live, width, peaks)
    n_here, n_ahead = len(past) + len(live), len(future.checkpoints)
    ahead = n_ahead
    if n_here + n_ahead > width:
        ahead = n_ahead * width // (n_here + n_ahead)
        ahead = min(max(ahead, min(1, n_ahead)), width - min(1, n_here))
    here = _until_now(past, live, width - ahead, peaks)
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
        for column in _sampled(
            future.checkpoints, count, future.peaks or TokenPeaks(), is_past=False
        )
    ]
    for index, checkpoint in enumerate(future.checkpoints if future.awaited else ()):
        if checkpoint.uid == future.awaited:
            at = index * count // len(future.checkpoints)
            columns[at] = replace(columns[at], mark=_mark(checkpoint))
            break
    if columns and columns[-1].mark == "now":
        columns[-1] = replace(columns[-1], mark="end")
    return columns


def _until_now(
    past: Sequence[CheckpointNode],
    live: Sequence[CheckpointNode],
    width: int,
    peaks: tuple[TokenPeaks, TokenPeaks],
) -> list[Column]:
    n_past = min(len(past), max(width - len(live), width // 3))
    n_live = min(len(live), width - n_past)
    then = _sampled(past, n_past, peaks[0], is_past=True)
    return then + _sampled(live, n_live, peaks[1], is_past=False)


def _sampled(
    checkpoints: Sequence[CheckpointNode],
    count: int,
    peaks: TokenPeaks | PeaksFrom,
    *,
    is_past: bool,
) -> list[Column]:
    if count <= 0:
        return []
    size = len(checkpoints)
    if size == count:
        columns = [Column(p.tokens, p, is_past, _mark(p)) for p in checkpoints]
    else:
        marks = {
            i * count // size: mark
            for i in peaks.savings(checkpoints)
            if (mark := _mark(checkpoints[i]))
        }
        columns: list[Column] = []
        for column in range(count):
            start = -(-column * size // count)
            end = max(start + 1, -(-(column + 1) * size // count))
            largest = peaks.largest(checkpoints, start, end)
            columns.append(Column(largest, checkpoints[start], is_past, marks.get(column, "")))
    if not is_past and columns:
        last = columns[-1]
        newest = checkpoints[-1]
        largest = max(last.tokens, newest.tokens_end)
        columns[-1] = Column(largest, newest if size == count else last.checkpoint, False, "now")
    return columns


def _mark(checkpoint: CheckpointNode) -> str:
    return "dmail" if checkpoint.kind == "dmail" else "compaction" if checkpoint.is_summary else ""


def scale_of(largest: int, limit: int, rows: int = 3) -> int:
    """Return the number of tokens at the top of the curve: the whole window, or a round number that leaves the uppermost row free.

    The number changes in steps, so that not every token redraws the whole curve.

    Args:
        largest: the largest number of tokens in the curve.
        limit: the size of the window in tokens; 0 if unknown.
        rows: the rows of the curve.
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
) -> list[list[Span]]:
    """Return the rows of the curve from the top, and under them the row of marks.

    The broken line is at the level of compaction. If little of the window is used, its size lies above the curve, and is
    given in figures.
    """
    scale = scale_of(max((column.tokens for column in columns), default=0), limit, rows)
    drawn = tuple(
        (
            _height(column.tokens, scale, rows),
            "ahead" if column.is_ahead else "past" if column.is_past else "curve",
            column.mark,
        )
        for column in columns
    )
    is_whole = scale == limit
    above = "" if is_whole or limit <= 0 else f" {glyphs.up} {numbers.rounded(limit)}"
    mark_row = 0 if above else -1
    if is_whole and trigger > 0:
        mark_row = rows - 1 - min(rows - 1, int(trigger / limit * rows))
    return [*_curve(drawn, width, rows, above, mark_row, glyphs)]


@lru_cache(maxsize=8)
def _curve(
    drawn: Sequence[tuple[int, str, str]],
    width: int,
    rows: int,
    above: str,
    mark_row: int,
    glyphs: Glyphs,
) -> Sequence[list[Span]]:
    """Return the rows of `curve_spans`, which are the same for many steps.

    Args:
        drawn: the height in eighths of a row, the style and the mark of each column.
        width: cells of each row.
        rows: how many rows there are above the one of marks.
        above: what stands at the right end of the first row.
        mark_row: the row of the broken line; -1 for none.
        glyphs: the signs to use.
    """
    lines: list[list[Span]] = []
    for row in range(rows):
        below = 8 * (rows - 1 - row)
        empty = Span(glyphs.freed, "mark-dim") if row == mark_row else Span(" ", "quiet")
        cells: list[Span] = []
        for height, style, _ in drawn:
            eighths = min(8, height - below)
            cells.append(Span(glyphs.levels[eighths - 1], style) if eighths > 0 else empty)
        cells.extend([empty] * (width - len(cells)))
        if above and row == 0 and len(above) < width:
            cells[-len(above) :] = [Span(above, "quiet")]
        lines.append(joined(cells))
    marks = {
        "compaction": Span(glyphs.compaction, "compaction"),
        "dmail": Span(glyphs.dmail, "dmail"),
        "now": Span(glyphs.turn, "accent"),
        "playhead": Span(glyphs.playhead, "strong"),
        "compaction-later": Span(glyphs.compaction, "quiet"),
        "dmail-later": Span(glyphs.dmail, "quiet"),
        "end": Span(glyphs.turn, "quiet"),
    }
    foot = [marks.get(mark, Span(" ", "quiet")) for _, _, mark in drawn]
    foot.extend([Span(" ", "quiet")] * (width - len(foot)))
    return [*lines, joined(foot)]


def with_forecast(
    marks: list[Span], words: str, n_columns: int, width: int, glyphs: Glyphs
) -> list[Span]:
    """Return the row of marks with the forecast of the gauge, if there is room right of the curve."""
    room = width - len(words) - 2
    if not words or n_columns + 2 > room:
        return marks
    fitted: list[Span] = []
    for mark in marks:
        fitted.append(mark._replace(text=mark.text[:room]))
        room -= len(fitted[-1].text)
    return [*fitted, Span(glyphs.compaction, "compaction"), Span(f" {words}", "quiet")]


def _height(tokens: int, scale: int, rows: int) -> int:
    """Return the height of tokens in eighths of a row; at least one if there are any."""
    if tokens <= 0 or scale <= 0:
        return 0
    return max(1, min(8 * rows, round(8 * rows * tokens / scale)))


# --- around the list


EMPTY = "The steps of the agent appear here. Select one to rewind to it."


NOTHING_FOUND = "No step, tool or file matches. Press Esc to show all steps."


def title_spans(n_steps: int, n_lines: int, width: int, glyphs: Glyphs) -> list[Span]:
    """Return the title row, such as `Timeline   16 steps · 3 world lines`, shortened if there is less room."""
    if n_steps == 0 and n_lines == 0:
        return [Span("Timeline", "quiet")]
    steps = numbers.counted(n_steps, "step")
    forms = [steps]
    if n_lines:
        forms = [
            f"{steps} {glyphs.pending} {numbers.counted(n_lines, 'world line')}",
            f"{steps} {glyphs.pending} {n_lines} {glyphs.lost}",
            steps,
        ]
    for form in forms:
        gap = width - len("Timeline") - cell_len(form)
        if gap >= 2:
            return [Span("Timeline" + " " * gap + form, "quiet")]
    return [Span(numbers.cut(f"Timeline  {steps}", width, glyphs.cut), "quiet")]


def entitled_spans(words: str, width: int, glyphs: Glyphs) -> list[Span]:
    """Return the title row with these words at its right end."""
    gap = max(2, width - len("Timeline") - cell_len(words))
    return [Span(numbers.cut("Timeline" + " " * gap + words, width, glyphs.cut), "quiet")]


def filter_spans(
    needle: str, n_found: int, width: int, glyphs: Glyphs, *, is_open: bool
) -> list[Span]:
    """Return the title row while the list is filtered."""
    found = f"{numbers.grouped(n_found)} found"
    room = width - len(found) - 5
    # The user looks at the end of the typed text.
    shown = needle if cell_len(needle) <= room else needle[-room:]
    cursor = glyphs.edge if is_open else " "
    gap = width - 2 - cell_len(shown) - 1 - len(found)
    return [
        Span("/ ", "accent"),
        Span(shown, "strong"),
        Span(cursor, "accent"),
        Span(" " * max(1, gap), "quiet"),
        Span(found, "quiet"),
    ]


def checkpoint_details(
    model: TimelineModel,
    checkpoint: CheckpointNode,
    line: WorldLineNode | None,
    *,
    width: int,
    rows: int,
    glyphs: Glyphs,
    said: int = -1,
) -> list[list[Span]]:
    """Return the details of a checkpoint: time and duration, its complete label in at most `rows` rows, and the effect of a rewind."""
    first: list[Span] = [Span(f"{_local(checkpoint.at):%H:%M:%S}", "ink")]
    if said >= 0:
        words = (
            "Your message, kept by the D-Mail"
            if said < checkpoint.n_carried
            else "Sent while the agent worked"
        )
        first = [Span(words, "quiet")]
    else:
        first += _circumstances(model, checkpoint)
    facts = [first]
    label = whole_label(checkpoint) if said < 0 else checkpoint.said[said]
    facts += [[Span(text, "quiet")] for text in in_rows(label, width, rows, glyphs.cut)]
    if line is not None:
        where = numbers.line_words(line.n, model.tree.name_of(line), width - 18)
        facts.append([Span(f"On {where}", "quiet")])
    elif checkpoint.before:
        after = checkpoint.before + (checkpoint.saved or 0)
        facts.append(
            [
                Span("Compacted ", "quiet"),
                Span(numbers.tokens(checkpoint.before), "ink"),
                Span(" to ", "quiet"),
                Span(numbers.tokens(after, estimated=not checkpoint.saved_measured), "ink"),
                Span(" tokens", "quiet"),
            ]
        )
    elif not checkpoint.is_summary and (checkpoint.tokens or checkpoint.measured):
        freed = numbers.tokens(
            model.frees(checkpoint), estimated=model.estimated or not checkpoint.measured
        )
        facts.append(
            [Span("Rewinding here frees ", "quiet"), Span(freed, "ink"), Span(" tokens", "quiet")]
        )
    return facts


def _circumstances(model: TimelineModel, checkpoint: CheckpointNode) -> list[Span]:
    """Return spans on the origin of a D-Mail, the duration, and how the step ended."""
    facts: list[Span] = []
    if checkpoint.kind == "dmail" and checkpoint.from_id >= 0:
        facts.append(Span(f"  sent from #{checkpoint.from_id}", "quiet"))
    if checkpoint.ended_at > checkpoint.at:
        facts.append(Span(f"  {numbers.duration(checkpoint.ended_at - checkpoint.at)}", "quiet"))
    elif model.running and checkpoint is model.tree.head:
        facts.append(Span("  still running", "quiet"))
    if checkpoint.state == "stopped":
        facts.append(Span("  stopped", "quiet"))
    if checkpoint.folded:
        facts.append(Span("  folded", "quiet"))
    return facts


def whole_label(checkpoint: CheckpointNode) -> str:
    """Return everything that happened at a checkpoint; if it has several tools, the cost of each result."""
    name = f"{checkpoint.bookmark}: " if checkpoint.bookmark else ""
    if checkpoint.kind == "dmail":
        return name + _dmail_words(checkpoint)
    if checkpoint.is_summary:
        return f"{name}Compacted"
    if checkpoint.is_heading or not checkpoint.calls:
        return name + checkpoint.words
    calls = checkpoint.calls
    total = sum(call.size_chars for call in calls)
    parts: list[str] = []
    # The calls that cost most come first, since there may not be room for all.
    for call in sorted(calls, key=lambda call: -call.size_chars):
        text = f"{call.name} {call.target}".rstrip()
        if call.agent_steps >= 0:
            text += f" · {numbers.counted(call.agent_steps, 'step')}"
        if len(calls) > 1 and total and checkpoint.change > 0:
            cost = round(checkpoint.change * call.size_chars / total)
            text += f" {numbers.tokens(cost, estimated=True)}{'' if parts else ' tokens'}"
        parts.append(text)
    return name + ", ".join(parts)


def _dmail_words(checkpoint: CheckpointNode) -> str:
    if checkpoint.from_id >= 0:
        return f"D-Mail from #{checkpoint.from_id}"
    return checkpoint.words or "D-Mail"


_KEYS = (
    ("[ ]", "previous or next turn"),
    ("Home End", "newest or oldest step"),
    ("Enter", "preview a rewind"),
    ("Space", "expand or collapse"),
    ("w", "read the chat up to there"),
    ("{ }", "previous or next world line"),
    ("b P", "bookmark or pin a step"),
    ("/", "filter: text, tool, file"),
    ("u U", "undo or redo"),
    ("p", "replay the session"),
    ("F1", "help, with a legend"),
    ("Esc", "back to the prompt"),
)
_LEFT_BY = {
    "rewind": "your rewind",
    "dmail": "a D-Mail",
    "compaction": "a compaction",
    "clear": "your /clear",
    "jump": "your switch",
    "undo": "your undo",
    "redo": "your redo",
    "future": "a future",
}


def left_by(reason: str) -> str:
    """Return the reason why a line was left, in words for the user: `your rewind`."""
    return _LEFT_BY.get(reason, "another operation")


def line_details(
    line: WorldLineNode,
    now: float,
    name: str,
    width: int,
    glyphs: Glyphs,
    was: FutureChanged | None = None,
) -> list[list[Span]]:
    """Return the details of a world line: its name, and why and when it was left, or what became of the future that it was."""
    age = numbers.age(_local(line.at), _local(now))
    why = left_by(line.reason)
    where = ""
    if line.by_user and line.reason == "dmail":
        why = "your D-Mail"
    if line.reason == "dmail" and line.from_id >= 0 and not line.by_user:
        where = f" from #{line.from_id}"
    elif line.reason in ("rewind", "dmail") and line.to_id >= 0:
        where = f" to #{line.to_id}"
    steps = numbers.counted(len(line.checkpoints), "step")
    if line.tokens_before:
        # The figure is shown as an estimate, like in the gauge, which cannot know how the server would count the line.
        steps += f", {numbers.tokens(line.tokens_before, estimated=True)} tokens"
    origin = f"created by {why}{where}"
    if was is not None:
        origin = f"future {was.number}: {state_words(was)}"
    return [
        *([Span(row, "ink")] for row in in_rows(name, width, 2, glyphs.cut)),
        [Span(f"World line {line.n}", "ink"), Span(f"  {numbers.ago(age)}", "quiet")],
        [Span(numbers.cut(origin, width, glyphs.cut), "quiet")],
        [Span(steps, "quiet")],
    ]


def _money(future: FutureChanged, currency: str) -> str:
    """Return the cost of a future so far; empty if no prices are set."""
    return numbers.money(future.cost, currency) if future.cost > 0 else ""


def future_details(
    future: FutureChanged, now: float, width: int, glyphs: Glyphs, currency: str
) -> list[list[Span]]:
    """Return the details of a future: its name, what it does, and what it has cost."""
    name = future_name(future)
    title = f"Future {future.number}"
    if future.began_at:
        title += f"  {numbers.duration((future.ended_at or now) - future.began_at)}"
    does = state_words(future)
    if future.why and future.state in ("failed", "waiting", "stopped", "preparing"):
        does = f"{does}: {one_line(future.why)}"
    facts: list[str] = []
    if future.step and future.state != "running":
        facts.append(numbers.counted(future.step, "step"))
    facts += [f"{numbers.tokens(future.tokens)} tokens"] if future.tokens else []
    facts += list(filter(None, [_money(future, currency)]))
    rows = [
        *([Span(row, "ink")] for row in in_rows(name, width, 2, glyphs.cut)),
        [Span(title, "ink"), Span(f"  {model_words(future)}".rstrip(), "quiet")],
        [Span(does[:1].upper() + does[1:], "quiet")],
        [Span(", ".join(facts), "quiet")],
    ]
    return [joined(fitted(row, width)) for row in rows]


def now_details(model: TimelineModel) -> list[list[Span]]:
    """Return the details of the present: the use of the window, and the level at which it is compacted."""
    if model.limit <= 0:
        return [[Span(f"{numbers.tokens(model.used)} tokens", "ink")]] if model.used > 0 else []
    words = forecast(model.used, model.trigger, model.per_step)
    words += " tokens" if words.startswith("at ") else ""
    return [
        [
            Span(numbers.tokens(model.used, estimated=model.estimated), "ink"),
            Span(f" of {numbers.tokens(model.limit)} tokens", "quiet"),
        ],
        [Span(f"Compaction {words.replace('next', 'before the next')}", "quiet")] if words else [],
    ]


def key_spans(glyphs: Glyphs) -> list[list[Span]]:
    """Return the keys and their meanings, a row each."""
    keys = ((f"{glyphs.up} {glyphs.down}", "move"), *_KEYS)
    widest = max((cell_len(key) for key, _ in keys), default=0)
    return [[Span(key.ljust(widest + 2), "ink"), Span(meaning, "quiet")] for key, meaning in keys]


def _local(seconds: float) -> datetime:
    try:
        return datetime.fromtimestamp(seconds, UTC).astimezone()
    except (OverflowError, OSError, ValueError):
        return datetime.fromtimestamp(0, UTC)

"""The token curve above the list: a column a checkpoint, resampled by maximum where there are more checkpoints than columns.

Pure: checkpoints in, rows of text with style names out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import log10

from kimi_tui.projection.timeline_tree import Checkpoint, Future
from kimi_tui.tui.formatting import Span, joined, rounded
from kimi_tui.tui.glyphs import Glyphs

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


def scale_of(largest: int, limit: int, rows: int = 3) -> int:
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
) -> list[list[Span]]:
    """The rows of the curve from the top, and under them the row of marks.

    The broken line is where the window is compacted; where little of it is used it is the size of the window, which lies
    above, in figures.
    """
    scale = scale_of(max((column.tokens for column in columns), default=0), limit, rows)
    heights = [_height(column.tokens, scale, rows) for column in columns]
    is_whole = scale == limit
    above = "" if is_whole or limit <= 0 else f" {glyphs.up} {rounded(limit)}"
    mark_row = 0 if above else -1
    if is_whole and trigger > 0:
        mark_row = rows - 1 - min(rows - 1, int(trigger / limit * rows))
    lines: list[list[Span]] = []
    for row in range(rows):
        below = 8 * (rows - 1 - row)
        empty = (glyphs.freed, "mark-dim") if row == mark_row else (" ", "quiet")
        cells: list[Span] = []
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
    marks: list[Span], words: str, n_columns: int, width: int, glyphs: Glyphs
) -> list[Span]:
    """The row of marks with the forecast as the gauge has it, where there is room right of the curve."""
    room = width - len(words) - 2
    if not words or n_columns + 2 > room:
        return marks
    fitted: list[Span] = []
    for text, style in marks:
        fitted.append((text[:room], style))
        room -= len(text[:room])
    return [*fitted, (glyphs.compaction, "compaction"), (f" {words}", "quiet")]


def _height(tokens: int, scale: int, rows: int) -> int:
    """In eighths of a row; what is there is at least one."""
    if tokens <= 0 or scale <= 0:
        return 0
    return max(1, min(8 * rows, round(8 * rows * tokens / scale)))

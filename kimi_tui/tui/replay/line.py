"""The scrubber's three rows as pieces of text with style names: what is where in a given width. Nothing here draws.

The line is the playing time; the further from its left end, the later.
"""

from __future__ import annotations

from datetime import UTC, datetime

from rich.cells import cell_len

from kimi_tui.tui import numbers
from kimi_tui.tui.glyphs import Glyphs
from kimi_tui.tui.replay.course import Course, Mark
from kimi_tui.tui.replay.playing import Player
from kimi_tui.tui.spans import Span, joined

_RANK = {"turn": 0, "rewind": 1, "compaction": 2, "dmail": 3}
_STYLES = {"turn": "user", "rewind": "lost", "compaction": "compaction", "dmail": "dmail"}


def column_of(course: Course, time_s: float, width: int) -> int:
    """Where a time stands on the line."""
    if course.length_s <= 0 or width <= 1:
        return 0
    return max(0, min(width - 1, round(time_s / course.length_s * (width - 1))))


def time_at(course: Course, column: int, width: int) -> float:
    """The time of a column; the ends are the beginning and the end."""
    if width <= 1:
        return 0.0
    return max(0.0, min(1.0, column / (width - 1))) * course.length_s


def line_spans(course: Course, player: Player, width: int, glyphs: Glyphs) -> list[Span]:
    """The line: what was played, the playhead, what lies ahead."""
    if width <= 0:
        # While it goes away, or in a screen that is being resized.
        return []
    head = column_of(course, player.time_s, width)
    cells: list[Span] = [
        (glyphs.used, "played") if column < head else (glyphs.rule, "ahead")
        for column in range(width)
    ]
    following = course.next_fold(player.position)
    for column, mark in _shown(course, width).items():
        was = mark.position <= player.position
        coloured = was or mark is following
        style = _STYLES[mark.kind] if coloured else "later"
        cells[column] = (_glyph(mark, glyphs), style)
    if following is not None:
        # Among later events in the same cell the next fold is the one that is waited for.
        column = column_of(course, following.time_s, width)
        cells[column] = (_glyph(following, glyphs), _STYLES[following.kind])
    cells[head] = (glyphs.levels[-1], "head")
    return joined(cells)


def label_spans(course: Course, player: Player, width: int, checkpoint: int | None) -> list[Span]:
    """Over the playhead: the checkpoint, and what the clock said."""
    at = course.clock_at(player.position)
    number = f"#{checkpoint}" if checkpoint is not None else ""
    clock = _clock_time(at) if at else ""
    gap = "  " if number and clock else ""
    head = column_of(course, player.time_s, width)
    # The number stands to the left of the playhead, the clock to its right, where there is room.
    size = cell_len(number + gap + clock)
    start = max(0, min(head - cell_len(number), width - size))
    return [(" " * start, "quiet"), (number, "strong"), (gap, "quiet"), (clock, "quiet")]


def state_spans(course: Course, player: Player, width: int, glyphs: Glyphs) -> list[Span]:
    """Under the line: playing or not, the speed, the time, and at the right what comes next."""
    at_end = player.position == course.end
    word = "playing" if player.is_playing else "at the end" if at_end else "paused"
    left: list[Span] = [
        (word, "ink"),
        ("  ", "quiet"),
        (f"{player.speed}x", "accent"),
        ("    ", "quiet"),
        (_time(player.time_s), "ink"),
        (f" of {_time(course.length_s)}", "quiet"),
    ]
    used = _size(left)
    following = course.next_fold(player.position)
    if following is None:
        return left
    style = _STYLES[following.kind]
    for words in _next_words(following, player.seconds_to(following.time_s), glyphs):
        gap = width - used - cell_len(words)
        if gap >= 3:
            return [*left, (" " * gap, "quiet"), (words, style)]
    return left


def _next_words(mark: Mark, seconds: float, glyphs: Glyphs) -> tuple[str, ...]:
    when = numbers.duration(seconds) if seconds >= 59.5 else f"{max(0, round(seconds))} s"
    source = f" from #{mark.from_id}" if mark.from_id >= 0 and mark.kind != "compaction" else ""
    return (
        f"next: {mark.name}{source} in {when}",
        f"next: {mark.name} in {when}",
        f"{_glyph(mark, glyphs)} in {when}",
    )


def _shown(course: Course, width: int) -> dict[int, Mark]:
    """One mark a column: of several the weightiest, and of equals the last."""
    shown: dict[int, Mark] = {}
    for mark in course.marks:
        column = column_of(course, mark.time_s, width)
        other = shown.get(column)
        if other is None or _RANK[mark.kind] >= _RANK[other.kind]:
            shown[column] = mark
    return shown


def _glyph(mark: Mark, glyphs: Glyphs) -> str:
    return {
        "turn": glyphs.turn,
        "dmail": glyphs.dmail,
        "compaction": glyphs.compaction,
        "rewind": glyphs.lost,
    }[mark.kind]


def _time(seconds: float) -> str:
    text = numbers.clock(seconds)
    return text.zfill(5)


def _clock_time(seconds: float) -> str:
    try:
        return datetime.fromtimestamp(seconds, UTC).astimezone().strftime("%H:%M:%S")
    except (OverflowError, OSError, ValueError):
        return ""


def _size(spans: list[Span]) -> int:
    return sum(cell_len(text) for text, _ in spans)

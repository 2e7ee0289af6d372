"""What a checkpoint says in one row: its label as short as it must be, and its figure.

Pure: where they stand is decided in `paint`.
"""

from __future__ import annotations

from rich.cells import cell_len

from kimi_tui.tui import numbers
from kimi_tui.tui.glyphs import Glyphs
from kimi_tui.tui.spans import Span
from kimi_tui.tui.timeline.points import Call, Point


def label_of(point: Point, room: int, glyphs: Glyphs) -> list[Span]:
    """What happened, in at most `room` cells."""
    mark: list[Span] = []
    if point.pinned:
        mark = [(f"{glyphs.pinned} ", "accent")]
        room -= 2
    if point.bookmark:
        mark = [*mark, (f"{glyphs.bookmark} ", "accent")]
        room -= 2
        return [*mark, (numbers.cut(point.bookmark, room, glyphs.cut), "ink")]
    if point.kind == "dmail":
        words = f"D-Mail from #{point.from_id}" if point.from_id >= 0 else point.words or "D-Mail"
        return [*mark, (numbers.cut(words, room, glyphs.cut), "dmail")]
    if point.is_summary:
        return [*mark, (numbers.cut("Compacted", room, glyphs.cut), "compaction")]
    if point.is_heading:
        return [*mark, (numbers.cut(point.words or "Go on", room, glyphs.cut), "strong")]
    if not point.calls:
        words = point.words or _STATE_WORDS[point.state]
        return [*mark, (numbers.cut(words, room, glyphs.cut), "ink")]
    return mark + _call_label(point, room, glyphs)


_STATE_WORDS = {
    "open": "now",
    "done": "Answer",
    "failed": "Model call failed",
    "stopped": "Stopped",
}


def _main_call(calls: list[Call]) -> Call:
    """Of several calls the one that tells most: a letter, what failed, then the first that did some work."""
    return (
        next((call for call in calls if call.name == "D-Mail"), None)
        or next((call for call in calls if call.failed), None)
        or next((call for call in calls if call.name != "Todo"), calls[0])
    )


def _call_label(point: Point, room: int, glyphs: Glyphs) -> list[Span]:
    assert point.calls
    call = _main_call(point.calls)
    more = f" +{len(point.calls) - 1}" if len(point.calls) > 1 else ""
    name = numbers.cut(call.name, room - len(more), glyphs.cut)
    style = "dmail" if call.name == "D-Mail" else "tool"
    left = room - len(more) - cell_len(name) - 1
    if call.is_path:
        target = numbers.path(call.target.rsplit("/", 1)[-1], left, glyphs.cut)
    else:
        target = numbers.cut(call.target, left, glyphs.cut)
    spans: list[Span] = [(name, style)]
    if target and left > 0:
        spans.append((f" {target}", "dmail" if style == "dmail" else "ink"))
    if more:
        spans.append((more, "quiet"))
    return spans


def figure_of(point: Point, glyphs: Glyphs) -> Span:
    """The tokens at a heading, the change of a step, the ratio of a compaction."""
    if point.is_summary and point.before:
        after = _short(point.before + (point.saved or 0))
        return f"{_short(point.before)}{glyphs.to}{after}", "compaction"
    if point.is_heading:
        return numbers.tokens(point.tokens, estimated=not point.measured), "ink"
    if point.change == 0 and not point.change_measured:
        return "", "quiet"
    style = "dmail" if point.kind == "dmail" else "quiet"
    change = numbers.change(point.change, estimated=not point.change_measured)
    return change.replace(numbers.MINUS, glyphs.minus), style


def _short(tokens: int) -> str:
    """A ratio needs no decimals."""
    return f"{round(tokens / 1_000)}k" if 9_950 <= tokens < 999_500 else numbers.tokens(tokens)

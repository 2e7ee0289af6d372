"""What the banner over a world line says: its name, why it was left, the keys, and what happens on the live line meanwhile.

Nothing here draws.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from rich.cells import cell_len

from kimi_tui.tui import formatting
from kimi_tui.tui.formatting import Span, spans_width
from kimi_tui.tui.frame.footer import GAP, fit
from kimi_tui.tui.glyphs import Glyphs
from kimi_tui.tui.timeline.details import left_by

if TYPE_CHECKING:
    from kimi_tui.projection.world_lines import News
    from kimi_tui.soul.world_line_reader import WorldLineInfo


_READ_ONLY = "   read only"
_LEAST_NAME = 16
_ENDS = {"done": "is done", "interrupted": "was stopped", "rejected": "stopped at your no"}
KEYS = (
    ("j", "jump back to here"),
    ("c", "compare"),
    ("s", "send to now"),
    ("Esc", "back to now"),
)
GLANCE_KEYS = (("w", "read it"), ("Esc", "back to now"))
"""Those of the timeline, while one of the line's rows is selected there."""


def left_words(info: WorldLineInfo, now: datetime) -> str:
    """`left by your rewind to #4, 2 h ago`."""
    why = left_by(info.reason)
    where = ""
    if info.reason in ("rewind", "dmail") and info.checkpoint_id >= 0:
        where = f" to #{info.checkpoint_id}"
    ago = _ago(info.at, now)
    return f"left by {why}{where}{', ' if ago else ''}{ago}"


def left_when(info: WorldLineInfo, now: datetime) -> str:
    """`left 2 h ago`; empty where that is not known."""
    ago = _ago(info.at, now)
    return f"left {ago}" if ago else ""


def _ago(at: str, now: datetime) -> str:
    then = formatting.time_of(at)
    return formatting.ago(formatting.age(then.astimezone(), now.astimezone())) if then else ""


def banner_spans(
    info: WorldLineInfo,
    name: str,
    width: int,
    glyphs: Glyphs,
    now: datetime,
    said: Sequence[tuple[str, str]] = KEYS,
) -> tuple[list[Span], list[Span]]:
    """The two rows over a world line: what it is called and why it was left, and the keys."""
    edge: Span = (f"{glyphs.edge} ", "lost")
    left: list[Span] = [
        edge,
        (f"{glyphs.lost} ", "lost"),
        (f"World line {info.n}", "strong"),
    ]
    why = f"   {left_words(info, now)}"
    room = width - spans_width(left) - 4
    least = min(cell_len(name), _LEAST_NAME)
    forms = ((_READ_ONLY, why), ("", why), (_READ_ONLY, ""))
    rest = (form for form in forms if cell_len("".join(form)) + least <= room)
    read_only, why = next(rest, ("", ""))
    name = formatting.cut(name, room - cell_len(read_only + why), glyphs.cut)
    left += [(f"  {name}" if name else "", "ink"), (read_only, "quiet")]
    left.append((why.rjust(width - 2 - spans_width(left)) if why else "", "quiet"))
    keys: list[Span] = [edge, ("  ", "quiet")]
    for place, (key, meaning) in enumerate(fit(said, width - 6)):
        keys += [(" " * GAP if place else "", "quiet"), (key, "ink"), (f" {meaning}", "quiet")]
    return left, keys


def within_margin(spans: Sequence[Span], width: int) -> list[Span]:
    """A row's spans without those at its end for which there is no room in front of the margin."""
    shown: list[Span] = []
    used = 0
    for text, colour in spans:
        used += cell_len(text)
        if used > width - 2:
            break
        shown.append((text, colour))
    return shown


def news_spans(news: News, glyphs: Glyphs, *, running: bool, asks: bool) -> list[Span]:
    """What the banner says of it; nothing where nothing happens.

    Args:
        news: what happened.
        glyphs: the signs in use.
        running: whether the agent works.
        asks: whether it waits for an answer of the user.
    """
    parts: list[list[Span]] = []
    if asks:
        parts.append([("!", "accent"), (" the agent waits for your answer", "ink")])
    if news.dmail >= 0:
        saved = f", {glyphs.minus}{formatting.tokens(news.saved)}" if news.saved else ""
        parts.append([(glyphs.dmail, "dmail"), (f" D-Mail to #{news.dmail}{saved}", "ink")])
    if news.compacted:
        parts.append([(glyphs.compaction, "compaction"), (" compacted", "ink")])
    steps = f", {news.steps} step{'s' if news.steps != 1 else ''}" if news.steps else ""
    if running and not asks:
        parts.append([(glyphs.running, "accent"), (f" the agent works{steps}", "quiet")])
    elif news.ended and not running:
        how = _ENDS.get(news.ended, "stopped at an error")
        parts.append([(glyphs.turn, "accent"), (f" the agent {how}{steps}", "quiet")])
    if not parts:
        return []
    spans: list[Span] = [("Now", "quiet")]
    for part in parts:
        spans += [(" " * GAP, "quiet"), *part]
    return spans

"""What happens on the live line while another one is read, in the few words that the banner has for it. Knows no widget."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kimi_tui.tui import numbers
from kimi_tui.tui.glyphs import Glyphs
from kimi_tui.tui.spans import Span
from kimi_tui.wire.events import (
    CheckpointCreated,
    CompactionEnd,
    ContextReverted,
    TurnBegin,
    TurnEnd,
)

if TYPE_CHECKING:
    from kimi_tui.wire.events import Event

GAP: Span = ("   ", "quiet")
_ENDS = {"done": "is done", "interrupted": "was stopped", "rejected": "stopped at your no"}


class News(NamedTuple):
    """What happened since the line was opened.

    `letter` is where the newest D-Mail arrived (-1: there was none), `saved` the tokens that went with it, `steps` counts
    those of the newest turn, `ended` says how it ended.
    """

    steps: int = 0
    letter: int = -1
    saved: int = 0
    compacted: bool = False
    ended: str = ""


def heard(news: News, event: Event) -> News:
    """The news after one more event."""
    match event:
        case TurnBegin():
            return news._replace(steps=0, ended="")
        case CheckpointCreated(kind="step", was=""):
            return news._replace(steps=news.steps + 1)
        case ContextReverted(reason="dmail") as cut:
            saved = max(0, cut.tokens_before - cut.tokens_after)
            return news._replace(letter=cut.checkpoint_id, saved=saved)
        case CompactionEnd(error=""):
            return news._replace(compacted=True)
        case TurnEnd(reason=reason):
            return news._replace(ended=reason)
        case _:
            return news


def words(news: News, glyphs: Glyphs, *, running: bool, asks: bool) -> list[Span]:
    """What the banner says of it; nothing where nothing happens.

    Args:
        news: what happened.
        glyphs: the signs in use.
        running: whether the agent works.
        asks: whether it waits for the person's answer.
    """
    parts: list[list[Span]] = []
    if asks:
        parts.append([("!", "accent"), (" the agent waits for your answer", "ink")])
    if news.letter >= 0:
        saved = f", {glyphs.minus}{numbers.tokens(news.saved)}" if news.saved else ""
        parts.append([(glyphs.dmail, "dmail"), (f" D-Mail to #{news.letter}{saved}", "ink")])
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
        spans += [GAP, *part]
    return spans

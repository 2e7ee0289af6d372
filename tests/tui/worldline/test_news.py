"""What the banner over a world line says of the line that goes on meanwhile."""

from __future__ import annotations

import pytest

from kimi_tui.tui.glyphs import ASCII, UNICODE
from kimi_tui.tui.worldline.model import fitted
from kimi_tui.tui.worldline.news import News, heard, words
from kimi_tui.wire.events import (
    CheckpointCreated,
    CompactionEnd,
    ContextReverted,
    Event,
    TurnBegin,
    TurnEnd,
)

STEP = CheckpointCreated(5, "u5", "step")
LETTER = ContextReverted("dmail", 8, "u8", 12, 3, 9, 4, 60_000, 41_600, "a letter")


def said(*events: Event, running: bool = False, asks: bool = False) -> str:
    """The words after some events."""
    news = News()
    for event in events:
        news = heard(news, event)
    return "".join(text for text, _ in words(news, UNICODE, running=running, asks=asks))


@pytest.mark.parametrize(
    ("events", "running", "asks", "wanted"),
    [
        ((), False, False, ""),
        ((), True, False, "Now   • the agent works"),
        ((TurnBegin("x"), STEP, STEP), True, False, "Now   • the agent works, 2 steps"),
        ((STEP,), True, True, "Now   ! the agent waits for your answer"),
        ((STEP, TurnEnd("done")), False, False, "Now   ● the agent is done, 1 step"),
        ((TurnEnd("interrupted"),), False, False, "Now   ● the agent was stopped"),
        ((TurnEnd("error"),), False, False, "Now   ● the agent stopped at an error"),
        ((TurnEnd("done"), TurnBegin("x")), True, False, "Now   • the agent works"),
        ((LETTER,), False, False, "Now   ◆ D-Mail to #8, −18.4k"),
        ((LETTER, STEP), True, False, "Now   ◆ D-Mail to #8, −18.4k   • the agent works, 1 step"),
        ((CompactionEnd(9, 1),), False, False, "Now   ≡ compacted"),
        ((CompactionEnd(9, 1, error="no"),), False, False, ""),
    ],
)
def test_what_is_said(events: tuple[Event, ...], running: bool, asks: bool, wanted: str) -> None:
    assert said(*events, running=running, asks=asks) == wanted


def test_what_does_not_fit_is_left_out_whole() -> None:
    news = heard(News(), LETTER)
    spans = [("[ ", "lost"), ("  ", "quiet"), *words(news, ASCII, running=True, asks=True)]
    for width in range(6, 90):
        row = "".join(text for text, _ in fitted(spans, width))
        assert len(row) <= width - 2
        assert row.isascii()
    assert fitted(spans, 200) == spans

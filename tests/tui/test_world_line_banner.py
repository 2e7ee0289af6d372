"""The banner over a world line: its words on that line, and on the live line meanwhile."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from support.cases import each
from support.left_line import left_line

from kimi_tui.projection.world_lines import LiveLineActivity, news_after
from kimi_tui.session.world_lines import WorldLine
from kimi_tui.tui.glyphs import ASCII, UNICODE
from kimi_tui.tui.rows import Span
from kimi_tui.tui.world_line_view import (
    banner_spans,
    left_when,
    left_words,
    news_spans,
    within_margin,
)
from kimi_tui.wire.events import (
    CheckpointCreated,
    CompactionEnd,
    ContextReverted,
    Event,
    TurnBegin,
    TurnEnd,
)

NOW = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
NAME = "fix the quotes in one regex"


def info(reason: str = "rewind", checkpoint_id: int = 4, at: str = "") -> WorldLine:
    """Return a line that was left two hours ago."""
    at = at or (NOW - timedelta(hours=2)).isoformat()
    return left_line(2, reason, checkpoint_id, at=at, tokens_before=47_200, messages=9, shared=4)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (info(), "created by your rewind to #4, 2 h ago"),
        (info("dmail"), "created by a D-Mail to #4, 2 h ago"),
        (info("undo"), "created by your undo, 2 h ago"),
        (info("foreign", at="nonsense"), "created by another operation"),
        (info(at=NOW.isoformat()), "created by your rewind to #4, just now"),
    ],
)
def test_why_a_line_was_left(line: WorldLine, words: str) -> None:
    assert left_words(line, NOW) == words


@pytest.mark.parametrize("width", [30, 40, 60, 81, 120])
def test_the_banner_fits(width: int) -> None:
    for row in banner_spans(info(), NAME, width, UNICODE, NOW):
        assert sum(len(span.text) for span in row) <= width
    first, second = banner_spans(info(), NAME, 81, UNICODE, NOW)
    assert "created by your rewind" in str(first)
    assert "Esc" in str(second)


@pytest.mark.parametrize(
    ("width", "name", "shown"),
    [
        (120, NAME, f"World line 2  {NAME}   read-only"),
        (81, NAME, "World line 2  fix the quotes in on…   created"),
        (60, NAME, "World line 2  fix the quotes in one regex"),
        (60, "", "World line 2     created by your rewind"),
        (30, NAME, "World line 2  fix the q…"),
    ],
)
def test_the_banner_says_first_what_was_tried_there(width: int, name: str, shown: str) -> None:
    first, _ = banner_spans(info(), name, width, UNICODE, NOW)
    assert shown in "".join(span.text for span in first)


@pytest.mark.parametrize("width", [30, 60, 81])
def test_the_banner_names_the_way_back_at_every_width(width: int) -> None:
    _, keys = banner_spans(info(), NAME, width, UNICODE, NOW)
    assert "".join(span.text for span in keys).endswith("Esc back to current")


# --- the live line

STEP = CheckpointCreated(5, "u5", "step")
DMAIL = ContextReverted("dmail", 8, "u8", 12, 3, 9, 4, 60_000, 41_600, "a D-Mail")


def said(*events: Event, running: bool = False, asks: bool = False) -> str:
    """Return the words after some events."""
    news = LiveLineActivity()
    for event in events:
        news = news_after(news, event)
    return "".join(span.text for span in news_spans(news, UNICODE, running=running, asks=asks))


@each(
    "events, running, asks, wanted",
    [
        ((), False, False, ""),
        ((), True, False, "Current   • the agent works"),
        ((TurnBegin("x"), STEP, STEP), True, False, "Current   • the agent works, 2 steps"),
        ((STEP,), True, True, "Current   ! the agent is waiting for your answer"),
        ((STEP, TurnEnd("done")), False, False, "Current   ● the agent is done, 1 step"),
        ((TurnEnd("interrupted"),), False, False, "Current   ● the agent was stopped"),
        ((TurnEnd("error"),), False, False, "Current   ● the agent stopped at an error"),
        ((TurnEnd("done"), TurnBegin("x")), True, False, "Current   • the agent works"),
        ((DMAIL,), False, False, "Current   ◆ D-Mail to #8, −18.4k tokens"),
        (
            (DMAIL, STEP),
            True,
            False,
            "Current   ◆ D-Mail to #8, −18.4k tokens   • the agent works, 1 step",
        ),
        ((CompactionEnd(9, 1),), False, False, "Current   ≡ compacted"),
        ((CompactionEnd(9, 1, error="no"),), False, False, ""),
    ],
)
def test_what_is_said(events: tuple[Event, ...], running: bool, asks: bool, wanted: str) -> None:
    assert said(*events, running=running, asks=asks) == wanted


def test_what_does_not_fit_is_left_out_whole() -> None:
    news = news_after(LiveLineActivity(), DMAIL)
    spans = [
        Span("[ ", "lost"),
        Span("  ", "quiet"),
        *news_spans(news, ASCII, running=True, asks=True),
    ]
    for width in range(6, 90):
        row = "".join(span.text for span in within_margin(spans, width))
        assert len(row) <= width - 2
        assert row.isascii()
    assert within_margin(spans, 200) == spans


@pytest.mark.parametrize(
    ("at", "words"),
    [
        ("2026-03-02T10:00:00+00:00", "created 2 h ago"),
        ("2026-03-02T11:59:50", "created just now"),
        ("0001-01-01T00:00:00+14:00", ""),
        ("9999-12-31T23:59:59-12:00", ""),
        ("long ago", ""),
        ("", ""),
    ],
)
def test_when_it_was_left_is_told_where_it_is_a_time(at: str, words: str) -> None:
    info = left_line(2, "rewind", 4, at=at, tokens_before=47_200, messages=14, shared=4)
    assert left_when(info, NOW) == words

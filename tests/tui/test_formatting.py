"""Words for figures and times."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from kimi_tui.soul.usage import CompactionTokens, Statistics
from kimi_tui.tui.formatting import age, grapheme_after, grapheme_before, statistics_pairs
from kimi_tui.tui.rows import Span, sides, spans_width


@pytest.mark.parametrize(
    ("waits", "said"),
    [
        ((9.0, 6.0, 10.0), "the model 9.0 s, tools 6.0 s, you 10 s"),
        ((9.0, 6.0, 0.0), "the model 9.0 s, tools 6.0 s"),
        ((9.0, 0.04, 0.01), "the model 9.0 s"),
        ((0.0, 0.0, 0.0), None),
    ],
)
def test_who_was_not_waited_for_is_not_named(
    waits: tuple[float, float, float], said: str | None
) -> None:
    model_s, tools_s, user_s = waits
    figures = Statistics(model_s=model_s, tools_s=tools_s, user_s=user_s)
    assert dict(statistics_pairs(figures)).get("waiting time") == said


def test_tools_are_called_as_everywhere_else() -> None:
    figures = Statistics(tool_calls={"StrReplaceFile": 2, "mcp__web__get": 1})
    assert dict(statistics_pairs(figures))["tool calls"] == "Edit 2, web/get 1"
    # Which of them failed is not said, so it stands with all of them.
    figures = Statistics(tool_calls={"WriteFile": 72, "SendDMail": 15}, tool_failures=5)
    assert dict(statistics_pairs(figures))["tool calls"] == "87, 5 failed: Write 72, D-Mail 15"


def test_what_a_compaction_left_is_an_estimate_until_it_was_measured() -> None:
    figures = Statistics(
        compactions=(CompactionTokens(20_000, 8_900), CompactionTokens(9_000, 4_500, True))
    )
    said = dict(statistics_pairs(figures))["compactions"]
    assert said == "20.0k to ~8.9k (44%), 9.0k to 4.5k (50%)"


def test_two_hours_are_two_hours_also_soon_after_midnight() -> None:
    now = datetime(2026, 3, 2, 0, 30, tzinfo=UTC)
    assert age(now - timedelta(hours=2), now) == "2 h"
    assert age(now - timedelta(hours=7), now) == "yesterday"


def test_what_stands_at_the_right_ends_at_the_edge() -> None:
    left, right = [Span("日本", "ink")], [Span("12k", "strong")]
    assert sides(left, right, 10) == [*left, Span("   ", "quiet"), *right]
    assert spans_width(sides(left, (), 10)) == 10
    # Without room nothing is cut, and nothing is between them.
    assert "".join(span.text for span in sides(left, right, 5)) == "日本12k"


def test_a_character_is_one_as_it_is_seen() -> None:
    seen = [
        "a",
        "👍🏽",
        "b",
        "🇩🇪",
        "🇫🇷",
        "e\u0301",
        "👨\u200d👩\u200d👧",
        "한",
        "❤\ufe0f",
        "\u0928\u093f",
        "z",
        "🇩🇪",
    ]
    text, ends = "".join(seen), [0]
    for one in seen:
        ends.append(ends[-1] + len(one))
    for start, end in pairwise(ends):
        assert grapheme_after(text, start) == end
        assert grapheme_before(text, end) == start
    # At the ends, and in half a flag.
    assert (grapheme_before(text, 0), grapheme_after(text, len(text))) == (0, len(text))
    assert grapheme_before("🇩🇪🇫", 3) == 2
    assert grapheme_after("🇩", 0) == 1

"""Rows are never too wide, and nothing but blanks at their ends is lost."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from kimi_tui.tui import rows as wrapping
from kimi_tui.tui.formatting import spans_width
from kimi_tui.tui.rows import Span, cells, chop, ranges, wrap

texts = st.text(alphabet="ab c中é\u0301👍 \n", max_size=60)
ascii_texts = st.text(alphabet="abc  d\n", max_size=60)
runs = st.lists(st.builds(Span, texts, st.sampled_from(["ink", "strong"])), min_size=1, max_size=5)


@given(texts, st.integers(2, 20))
def test_rows_fit_and_keep_every_character(text: str, width: int) -> None:
    rows = [text[start:end] for start, end in ranges(text, width)]
    assert all(cells(row) <= width for row in rows)
    assert "".join("".join(rows).split()) == "".join(text.split())
    ends = ranges(text, width)
    assert all(before[1] <= after[0] for before, after in pairwise(ends))


@given(ascii_texts, st.integers(2, 20))
def test_the_quick_way_breaks_like_the_other(text: str, width: int) -> None:
    line = text.replace("\n", " ").strip()
    quick = list(wrapping._ascii(line, width, 0))
    other = list(wrapping._wide(line, width, 0))
    assert [line[a:b].rstrip() for a, b in quick if line[a:b].strip()] == [
        line[a:b].rstrip() for a, b in other if line[a:b].strip()
    ]


def test_breaks_at_blanks_and_within_long_words() -> None:
    text = "one two three fourfivesix"
    assert [text[a:b] for a, b in ranges(text, 8)] == ["one two", "three", "fourfive", "six"]


def test_wide_characters_break_anywhere() -> None:
    text = "Use 中文文本中文"
    assert [text[a:b] for a, b in ranges(text, 8)] == ["Use 中文", "文本中文"]


@given(runs, st.integers(4, 20))
def test_styles_stay_with_their_characters(spans: list[Span], width: int) -> None:
    def styled(parts: list[Span]) -> list[tuple[str, str]]:
        return [(char, part.style) for part in parts for char in part.text if not char.isspace()]

    rows = wrap(spans, width)
    assert [pair for row in rows for pair in styled(row)] == styled(spans)


@given(runs, st.integers(2, 20))
def test_chopping_keeps_blanks(spans: list[Span], width: int) -> None:
    spans = [span._replace(text=span.text.replace("\n", " ")) for span in spans]
    rows = chop(spans, width)
    assert "".join(span.text for row in rows for span in row) == "".join(
        span.text for span in spans
    )
    assert all(spans_width(row) <= width for row in rows)

"""Rows are never too wide, and nothing but blanks at their ends is lost."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimi_tui.tool_cards import ImageBlock
from kimi_tui.tui import rows as wrapping
from kimi_tui.tui.rows import (
    HIT_IMAGE,
    HOW_TO_SEE,
    LayoutRoom,
    Line,
    Span,
    cells,
    chop,
    image_rows,
    ranges,
    spans_width,
    wrap,
)

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


@pytest.mark.exhaustive
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


SHOT = ImageBlock(
    "Screenshot 2026-03-02 at 10.11.12.png", "image/png", 1280, 800, 190_000, "0" * 64
)
DRAWN = ((Span("▀▀"),),)


def how_to_see_is_said(line: Line) -> bool:
    return "".join(span.text for span in line.spans).endswith(HOW_TO_SEE)


@pytest.mark.parametrize(
    ("room", "is_said"),
    [
        # A pane without pictures; one in a terminal of too few colours, or while they are made; no room for any.
        pytest.param(LayoutRoom(100), True, id="none"),
        pytest.param(LayoutRoom(100, picture=lambda *_: ()), True, id="not drawn"),
        pytest.param(LayoutRoom(100, True, True, picture=lambda *_: DRAWN), True, id="lowest"),
        pytest.param(LayoutRoom(100, picture=lambda *_: DRAWN), False, id="drawn"),
        pytest.param(LayoutRoom(60), True, id="60 columns"),
        pytest.param(LayoutRoom(40), False, id="no room for the words"),
    ],
)
def test_a_picture_that_is_not_drawn_says_how_to_see_it(room: LayoutRoom, is_said: bool) -> None:
    rows = list(image_rows((SHOT,), room, (Span("  "),)))
    assert how_to_see_is_said(rows[0]) is is_said
    assert spans_width(rows[0].spans) <= room.width
    assert rows[0].spans[1].text.endswith(".png")
    # A click opens it, wherever it is named or drawn.
    assert {row.hit for row in rows} == {HIT_IMAGE + SHOT.sha256}


def test_a_picture_whose_file_was_never_kept_offers_nothing() -> None:
    (row,) = image_rows((replace(SHOT, sha256=""),), LayoutRoom(100), ())
    assert not row.hit
    assert not how_to_see_is_said(row)

"""A diff shows what is written, in rows of one width, whatever that is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from kimi_tui.tool_cards import DiffLine
from kimi_tui.tui.diff import change_counts, diff_rows
from kimi_tui.tui.glyphs import ASCII, UNICODE
from kimi_tui.tui.rows import spans_width


def texts(*lines: DiffLine) -> list[str]:
    rows = diff_rows(lines, 40, UNICODE, indent=2)
    return ["".join(span.text for span in row) for row in rows]


def test_a_change_of_blanks_alone_can_be_seen() -> None:
    old, new = texts(DiffLine("-", 7, "\tx = 1  # old"), DiffLine("+", 7, "\tx = 1 # old"))
    assert old == "  7 −     x = 1  # old"
    assert new == "  7 +     x = 1 # old"


def test_a_line_stays_a_line() -> None:
    assert texts(DiffLine(" ", 1, "a\rb\x1b[2Jc\n")) == ["  1   a bc "]


def test_numbers_stand_below_each_other() -> None:
    assert texts(DiffLine(" ", 9, "a"), DiffLine("+", 10, "b")) == ["   9   a", "  10 + b"]


@given(st.text(max_size=80), st.integers(20, 60), st.integers(1, 10_000))
def test_a_banded_row_fills_its_width(text: str, width: int, number: int) -> None:
    for glyphs in (UNICODE, ASCII):
        for sign in (" ", "-", "+"):
            (row,) = diff_rows([DiffLine(sign, number, text)], width, glyphs, indent=2, banded=True)
            assert spans_width(row) == width
            assert not any(char in "\n\r\t\x1b" for span in row for char in span.text)


@pytest.mark.parametrize(
    ("added", "removed", "words"),
    [(0, 0, ""), (3, 0, "+3"), (0, 1_200, "−1,200"), (3, 1, "+3 −1")],
)
def test_how_much_it_is(added: int, removed: int, words: str) -> None:
    spans = change_counts(added, removed, UNICODE)
    assert "".join(span.text for span in spans) == words
    assert spans_width(spans) == cell_len(words)

"""A line that a program printed for a terminal: its colours stay, and nothing else of it reaches the terminal."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimi_tui.tui.ansi_line import MOST_CHARS, ansi_spans
from kimi_tui.tui.rows import Span


@pytest.mark.parametrize(
    ("line", "spans"),
    [
        ("plain", [Span("plain", "ink")]),
        ("\x1b[31mred\x1b[0m none", [Span("red", "error"), Span(" none", "ink")]),
        ("\x1b[1;4;36mbold", [Span("bold", "user/bu")]),
        ("\x1b[1mstrong\x1b[22m\x1b[2mdim", [Span("strong", "strong/b"), Span("dim", "quiet")]),
        ("\x1b[38;2;255;160;0mtrue", [Span("true", "#ffa000@")]),
        ("\x1b[38:5:208;48;5;232mcube", [Span("cube", "#ff8700@#080808")]),
        ("\x1b[38;5;9mnamed\x1b[39m back", [Span("named", "error"), Span(" back", "ink")]),
        ("\x1b[38;2;999;0;0;1mkept", [Span("kept", "strong/b")]),
        ("\x1b[38;5mtorn\x1b[m", [Span("torn", "ink")]),
        ("\x1b[999999999mhuge", [Span("huge", "ink")]),
        ("a\tb\rc", [Span("a b c", "ink")]),
    ],
)
def test_colours_and_weight(line: str, spans: list[Span]) -> None:
    assert ansi_spans(line) == spans


@pytest.mark.parametrize(
    "sequence",
    [
        "\x1b[2J",
        "\x1b[H",
        "\x1b]0;title\x07",
        "\x1b]52;c;ZXZpbA==\x1b\\",
        "\x1b]8;;https://example.org\x1b\\",
        "\x1bP+q\x1b\\",
        "\x1b[?1049l",
        "\x9b5A",
    ],
)
def test_every_other_sequence_is_dropped(sequence: str) -> None:
    assert ansi_spans(f"a{sequence}b") == [Span("ab", "ink")]


def test_a_string_without_an_end_takes_the_rest_along() -> None:
    assert ansi_spans("a\x1b]52;c;\x1b[31mZXZpbA==") == [Span("a", "ink")]


@given(
    st.text(st.sampled_from("\x1b[];:0123459mHJ\x07\x9b\x9d\\ab\u202e\u0301日\r\n\t"), max_size=60)
)
def test_no_text_brings_a_control_character(line: str) -> None:
    text = "".join(span.text for span in ansi_spans(line))
    assert text.isprintable() or not text


def test_a_long_line_is_read_to_a_limit() -> None:
    assert sum(len(span.text) for span in ansi_spans("\x1b[31mx" * 1_000_000)) < MOST_CHARS

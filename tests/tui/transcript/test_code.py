"""Colours of code: the same line by line as at once, and three of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from kimi_tui.tui.rows import Span
from kimi_tui.tui.transcript import markdown_stream
from kimi_tui.tui.transcript.code import (
    COMMENT,
    INK,
    KEYWORD,
    STRING,
    CodeStream,
    colour,
    lexer_for,
)


@pytest.mark.exhaustive
def test_line_by_line_as_at_once() -> None:
    lines = Path(markdown_stream.__file__).read_text().split("\n")
    stream = CodeStream("python")
    streamed = [stream.feed(line) for line in lines]
    assert streamed == colour(lines, "python")
    assert {span.style for line in streamed for span in line} == {INK, KEYWORD, STRING, COMMENT}


def test_pygments_still_has_the_rules_that_the_stream_reads() -> None:
    for name in ("python", "bash", "javascript", "rust", "c"):
        assert "root" in getattr(lexer_for(name), "_tokens")  # noqa: B009


def test_a_state_goes_on_over_lines() -> None:
    stream = CodeStream("python")
    stream.feed('x = """one')
    assert stream.feed("two") == [Span("two", STRING)]


def test_peeking_changes_nothing() -> None:
    stream = CodeStream("python")
    assert stream.peek('x = """one')[-1].style == STRING
    assert stream.feed("two")[0].style == INK


@pytest.mark.parametrize("language", ["", "nosuchlanguage", "text", "\x00"])
def test_without_a_lexer_it_is_plain(language: str) -> None:
    assert CodeStream(language).feed("if x") == [Span("if x", INK)]
    assert colour(["if x", ""], language) == [[Span("if x", INK)], []]


@pytest.mark.parametrize("language", ["python", "html", "json", "diff", "console", "md"])
def test_every_character_stays(language: str) -> None:
    lines = ["", "  <a b='c'>", '{"x": [1]}', "+ add", "$ ls", "", "```", "\u00e9中", ""]
    assert ["".join(span.text for span in line) for line in colour(lines, language)] == lines
    stream = CodeStream(language)
    assert ["".join(span.text for span in stream.feed(line)) for line in lines] == lines

"""Loops that foreign text goes through: twice the text takes twice the steps, counted and not timed.

`tui/transcript/test_markdown.py` does the same for growing answers.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from support.cases import first_only
from support.effort import n_steps

from kimi_tui import lenient_json
from kimi_tui.foreign_text import Cleaner, clean, one_line
from kimi_tui.llm.stream import SSEDecoder, ThinkTags, ToolCallMerger
from kimi_tui.llm.transport import whole_chunks
from kimi_tui.projection.blocks import StreamedText
from kimi_tui.projection.transcript import TranscriptModel
from kimi_tui.tools.process import LiveText
from kimi_tui.tui.rows import HardWrapper, Line, Span, chop, iter_ranges, wrap
from kimi_tui.tui.transcript.code import CodeStream, colour
from kimi_tui.tui.transcript.markdown_stream import Splitter
from kimi_tui.tui.transcript.search import matches, pattern_of
from kimi_tui.wire.events import (
    EventRecord,
    StepBegin,
    ToolCall,
    ToolResult,
    ToolStarted,
    TurnBegin,
)
from kimi_tui.workspace.diff import diff_lines

SIZE = 5_000
"""Characters; more than the pieces into which the longest of these texts are cut."""
MOST = 2.4
"""The largest ratio to the steps of half the text: 2, and an allowance for cuts in the text."""
BY = 61
"""The number of characters that arrive at a time."""

PROSE = "a word, *some* more `words` and **others** of [it](https://a.example/b) "
WORST = {
    "prose": PROSE,
    "one word": "x",
    "wide": "漢",
    "stars": "*a",
    "brackets": "[a](",
    "ticks": "`a``",
    "lines": "- a\n  b\n",
    "blanks": "a\n\n",
    "quotes": "> a\n",
    "cells": "| a | b |\n",
    "braces": '{"a":"',
    "sequences": "\x1b[1;",
    "returns": "a\rb",
    "marks": "e\u0301\u0301",
}


def in_pieces(text: str, take: Callable[[str], object]) -> None:
    for start in range(0, len(text), BY):
        take(text[start : start + BY])


def split(text: str) -> None:
    splitter = Splitter()
    in_pieces(text, splitter.feed)
    splitter.finish()


def events(text: str) -> None:
    decoder = SSEDecoder()
    in_pieces(f"data: {text}\n\n", lambda piece: decoder.feed(piece.encode()))


def arguments(text: str) -> None:
    calls = ToolCallMerger()
    calls.feed({"index": 0, "id": "a", "function": {"name": "Run", "arguments": '{"a":"'}})
    in_pieces(text, lambda piece: calls.feed({"index": 0, "function": {"arguments": piece}}))
    calls.all_complete()


def thought(text: str) -> None:
    tags = ThinkTags()
    in_pieces(f"<think>{text}", tags.feed)
    tags.finish()


def streamed(text: str) -> None:
    stream = StreamedText()
    in_pieces(text, stream.add)
    stream.end()
    for start in range(0, stream.size, 3_000):
        stream.part(start, 3_000)


def output(text: str) -> None:
    live = LiveText()
    in_pieces(text, lambda piece: (live.feed(piece.encode("utf-8", "replace")), live.take()))


def cleaned(text: str) -> None:
    cleaner = Cleaner()
    in_pieces(text, cleaner.feed)
    clean(text)
    one_line(text)


def chopped(text: str) -> None:
    chopper = HardWrapper(80)
    in_pieces(text, lambda piece: chopper.feed([Span(piece)]))
    chop([Span(text)], 80)


def wrapped(text: str) -> None:
    list(iter_ranges(text, 80))
    wrap([Span(text[start : start + BY], f"s{start % 2}") for start in range(0, len(text), BY)], 80)


def lexed(text: str) -> None:
    # Every rule is tried at every place, so a part of the text is enough.
    lines = text[: len(text) // 32].split("\n")
    colour(lines, "python")
    stream = CodeStream("python")
    for line in lines:
        stream.feed(line)


def found(text: str) -> None:
    pattern = pattern_of("a b")
    assert pattern is not None
    rows = [Line((Span(text[start : start + BY]),), soft=True) for start in range(0, len(text), BY)]
    matches(rows, pattern)


def compared(text: str) -> None:
    lines = text.replace("\n", " ")
    before = "\n".join(lines[start : start + 7] for start in range(0, len(lines), 7))
    diff_lines(before, before[::-1])


def chunks(text: str) -> None:
    pieces = (
        text[start : start + BY].encode("utf-8", "replace") for start in range(0, len(text), BY)
    )
    whole_chunks(b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces), 0)


def parsed(text: str) -> None:
    for value in (text, f'{{"a":"{text}', f"[{text}]"):
        try:
            lenient_json.parse(value)
        except ValueError:
            continue


LOOPS: dict[str, Callable[[str], object]] = {
    "the splitter": split,
    "wrapping": wrapped,
    "chopping": chopped,
    "lexing": lexed,
    "the search": found,
    "a diff": compared,
    "the cleaner": cleaned,
    "a tool's output": output,
    "streamed text": streamed,
    "events": events,
    "arguments": arguments,
    "a thought": thought,
    "chunks": chunks,
    "JSON": parsed,
}


@pytest.mark.sample(8)
@pytest.mark.parametrize("every", first_only([3, 1]))
@pytest.mark.parametrize("name", LOOPS)
def test_twice_the_text_takes_twice_the_steps(name: str, every: int) -> None:
    loop = LOOPS[name]
    loop(PROSE)
    # Each loop gets a different selection of texts, and together the loops get all of them.
    first = [*LOOPS].index(name) % every
    for kind, piece in [*WORST.items()][first::every]:
        text = piece * (2 * SIZE // len(piece))
        half, whole = text[: len(text) // 2], text
        before, after = n_steps(partial(loop, half)), n_steps(partial(loop, whole))
        assert after < MOST * before + 500, f"{kind}: {before:,} and {after:,} steps"


def a_step_of(count: int) -> None:
    model = TranscriptModel()
    events = [
        TurnBegin("Go on."),
        StepBegin(1),
        *(ToolCall(f"k{n}", "Glob", "{}") for n in range(count)),
        *(ToolStarted(f"k{n}", "Glob", "{}") for n in range(count)),
        *(ToolResult(f"k{n}", False, "", "") for n in range(count)),
    ]
    for n, event in enumerate(events):
        model.apply(EventRecord(n, 0.0, event))


def test_twice_the_calls_of_a_step_take_twice_the_steps() -> None:
    assert n_steps(lambda: a_step_of(400)) < MOST * n_steps(lambda: a_step_of(200))

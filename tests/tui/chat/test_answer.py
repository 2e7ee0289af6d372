"""Markdown: what comes in pieces ends as what comes whole, and nothing in it can harm."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.effort import n_calls

from kimi_tui.foreign_text import clean
from kimi_tui.tui.chat.answer import AnswerLayout, whole_answer
from kimi_tui.tui.chat.lines import HIT_LINK, Line, cells

WIDTH = 60

markdown = st.lists(
    st.sampled_from(
        [
            "# Title\n", "text ", "more **bold** ", "`code` ", "*it* ", "\n", "\n\n", "- item\n", "  - nested\n",
            "1. one\n", "1. two\n", "7) seven\n", "- [x] done\n", "> quote\n", "```python\n", "```\n", "~~~\n",
            "    indented\n", "x = 1  # c\n", '"""doc\n', "| a | b |\n", "|---|--:|\n", "| 1 | 2 |\n", "---\n", "===\n",
            "[l](http://a.b)", "<b>", "&#x202e;", "https://x.y/z. ", "\t", "中文", "  ", "* * *\n", "``", "`", "+ plus\n",
        ]
    ),
    max_size=25,
).map("".join)  # fmt: skip


def rows(text: str, width: int = WIDTH) -> list[str]:
    return [line.text.rstrip() for line in whole_answer(text, width)]


@given(markdown, st.lists(st.integers(0, 200), max_size=8))
@example("```python\nx = 1\n```\nafter", [3, 12, 18])
@example("1. one\n\n1. two\n", [4, 9])
def test_pieces_end_as_the_whole(text: str, cuts: list[int]) -> None:
    layout = AnswerLayout(WIDTH)
    start = 0
    for cut in sorted(cut for cut in cuts if cut < len(text)):
        layout.feed(text[start:cut])
        start = cut
    layout.feed(text[start:])
    layout.finish()
    assert (layout.lines or [Line()])[0:] == (
        (layout.lines and whole_answer(text, WIDTH)) or [Line()]
    )


@given(markdown, st.lists(st.integers(0, 200), max_size=8))
def test_rows_before_the_first_changed_one_stay(text: str, cuts: list[int]) -> None:
    layout = AnswerLayout(WIDTH)
    shown: list[Line] = []
    start = 0
    for cut in [*sorted(cut for cut in cuts if cut < len(text)), len(text)]:
        first = layout.feed(text[start:cut])
        assert layout.lines[:first] == shown[:first]
        shown = list(layout.lines)
        start = cut
    first = layout.finish()
    assert layout.lines[:first] == shown[:first]


@given(st.text(max_size=200) | markdown, st.integers(20, 100))
def test_rows_fit_and_hold_nothing_unclean(text: str, width: int) -> None:
    for line in whole_answer(clean(text), width):
        assert cells(line.text.rstrip()) <= width
        assert not re.search(r"[\x00-\x1f\x7f-\x9f\u202a-\u202e\u200b]", line.text)


def test_lists_keep_their_numbers_and_depth() -> None:
    assert rows("1. one\n2. two\n   - deep\n3. three") == [
        "    1. one",
        "    2. two",
        "       - deep",
        "    3. three",
    ]
    assert rows("1. one\n1. two\n1. three")[-1] == "    3. three"
    assert rows("5. five\n\n6. six") == ["    5. five", "", "    6. six"]


def test_tasks() -> None:
    assert rows("- [x] done\n- [ ] open") == ["    ✓ done", "    · open"]


def test_tables_align_and_shrink() -> None:
    table = "| a | b |\n|---|--:|\n| one | 2 |\n| three | 400 |"
    assert rows(table) == [
        "    a         b",
        "    ─────   ───",
        "    one       2",
        "    three   400",
    ]
    long = "| a | b |\n|---|---|\n| " + "word " * 40 + "| x |"
    assert all(cells(row) <= 40 for row in rows(long, 40))


def test_code_is_raised_and_goes_on_in_the_next_row() -> None:
    lines = whole_answer("```python\nif a:\n    return '" + "x" * 80 + "'\n```", WIDTH)
    assert [span.style for span in lines[0].spans[1:]].count("code-keyword@raised") == 1
    assert all(cells(line.text) == WIDTH - 2 for line in lines)
    assert len(lines) == 3


def test_an_open_fence_never_shows_its_end() -> None:
    layout = AnswerLayout(WIDTH)
    layout.feed("```py\nx = 1\n``")
    assert [line.text.strip() for line in layout.lines] == ["x = 1"]
    layout.feed("`\n")
    assert [line.text.strip() for line in layout.lines] == ["x = 1"]


def test_colours_that_the_end_of_a_fence_mends_are_told() -> None:
    layout = AnswerLayout(WIDTH)
    layout.feed("```js\n/* one\n")
    layout.feed("two */\n")
    before = list(layout.lines)
    first = layout.feed("```\n")
    assert layout.lines != before
    assert layout.lines[:first] == before[:first]


def test_a_beginning_fence_does_not_flash_up() -> None:
    layout = AnswerLayout(WIDTH)
    layout.feed("Look:\n\n```pyt")
    assert [line.text.strip() for line in layout.lines] == ["Look:"]


def links(text: str) -> list[tuple[str, str]]:
    return [
        (span.text, span.hit.removeprefix(HIT_LINK))
        for line in whole_answer(text, 200)
        for span in line.spans
        if span.hit
    ]


def test_only_web_links_are_links() -> None:
    assert links(
        "[a](http://x.y) [b](javascript:alert(1)) [c](file:///etc) [d](ftp://e) https://z.w/q."
    ) == [
        ("a", "http://x.y"),
        ("https://z.w/q", "https://z.w/q"),
    ]


def test_a_link_that_looks_like_another_address_says_where_it_goes() -> None:
    assert "(https://evil.example/)" in rows("[good.example](https://evil.example/)", 200)[0]
    assert rows("[docs](https://a.b/)", 200) == ["    docs"]


def test_entities_cannot_smuggle() -> None:
    assert (
        rows("a &#x202e;b &#27;[31m") == ["    a <U+202E>b \ufffd[31m"]
        or "<U+202E>" in rows("a &#x202e;b")[0]
    )


def test_html_and_markup_are_text() -> None:
    assert rows("<b>x</b> [@click=app.quit]y[/]") == ["    <b>x</b> [@click=app.quit]y[/]"]


def test_quotes_bear_a_bar() -> None:
    assert rows("> one\n> two\n>\n> three") == ["    │ one two", "    │", "    │ three"]


@pytest.mark.parametrize(
    "text", ["*" * 30_000, "[" * 30_000, "> " * 10_000, "`" * 30_000, "- " * 9_000]
)
def test_made_up_input_costs_as_much_as_its_length(text: str) -> None:
    # Quadratic would be thousands for each character.
    assert n_calls(lambda: whole_answer(text, 80)) < 300 * len(text)


def test_the_open_end_costs_no_more_when_the_answer_is_long() -> None:
    def spent(layout: AnswerLayout) -> int:
        return n_calls(lambda: [layout.feed("word ") for _ in range(50)])

    short, long = AnswerLayout(80), AnswerLayout(80)
    short.feed("A paragraph.\n\n")
    long.feed("A paragraph.\n\n" * 5_000)
    assert spent(long) < 2 * spent(short)

"""Markdown: what comes in pieces ends as what comes whole, and nothing in it can harm."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from support.cases import first_only
from support.effort import n_calls

from kimi_tui.foreign_text import clean
from kimi_tui.tui.rows import HIT_LINK, Line, cells
from kimi_tui.tui.transcript import code, markdown_stream
from kimi_tui.tui.transcript.markdown_stream import MarkdownStream, whole_answer

WIDTH = 60

markdown = st.lists(
    st.sampled_from(
        [
            "# Title\n", "text ", "more **bold** ", "`code` ", "*it* ", "\n", "\n\n", "- item\n", "  - nested\n",
            "1. one\n", "1. two\n", "7) seven\n", "- [x] done\n", "> quote\n", "```python\n", "```\n", "~~~\n",
            "    indented\n", "x = 1  # c\n", '"""doc\n', "| a | b |\n", "|---|--:|\n", "| 1 | 2 |\n", "---\n", "===\n",
            "[l](http://a.b)", "<b>", "&#x202e;", "https://x.y/z. ", "\t", "中文", "  ", "* * *\n", "``", "`", "+ plus\n",
            "[one] ", "[two][one] ", "![pic][one] ", "[Two][] ", "[one]: https://o.ne/1\n", "[two]: <http://t.wo> 'T'\n",
            "[one]: https://other.one\n", "  [two]:\n", "https://o.ne/x\n", "- [x]: http://x.x\n", "> [one]: http://q.q\n",
            "```yaml\n", "key: [a, b]\n", "word" * 9, "a_very_long_name = 'text text' # and more", "\\", "**", "_", "\r",
        ]
    ),
    max_size=25,
).map("".join)  # fmt: skip
cuts = st.lists(st.integers(0, 300), max_size=8)


def rows(text: str, width: int = WIDTH) -> list[str]:
    return [line.text.rstrip() for line in whole_answer(text, width)]


def streamed(text: str, cuts: list[int], width: int = WIDTH) -> list[Line]:
    layout = MarkdownStream(width)
    start = 0
    for cut in [*sorted(cut for cut in cuts if cut < len(text)), len(text)]:
        layout.feed(text[start:cut])
        start = cut
    layout.finish()
    return layout.lines or whole_answer("", width)


@pytest.fixture(params=["as it is", "tight"])
def _limits(request: pytest.FixtureRequest) -> Iterator[None]:
    """Once with every limit so low that short texts meet it, too."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "tight":
            patch.setattr(markdown_stream, "PIECE_LIMIT", 40)
            patch.setattr(markdown_stream, "PIECE_MARKS", 4)
            patch.setattr(markdown_stream, "RESOLVE_CHARS", 10)
            patch.setattr(markdown_stream, "LEX_LIMIT", 12)
            patch.setattr(code, "LEX_LIMIT", 12)
            patch.setattr(code, "RELEX_CHARS", 60)
            patch.setattr(markdown_stream, "RELEX_CHARS", 60)
        yield


@pytest.mark.sample
@pytest.mark.usefixtures("_limits")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(markdown, cuts, st.integers(20, 120))
@example("```python\nx = 1\n```\nafter", [3, 12, 18], 60)
@example("1. one\n\n1. two\n", [4, 9], 60)
@example("[1]: https://example.org/page\n\nSee [ref][1]", list(range(60)), 60)
@example("See [ref][1] and [1].\n\n- [x] [1]\n\n> [1]\n\n[1]: https://example.org/page", [20], 60)
@example(
    "| a | b |\n|---|--:|\n" + "| one | 2 |\n" * 9 + "| [x] | 4 |\n\n[x]: http://a.b", [30], 60
)
@example("- item\n  ```python\n" + "  x = 'y'\n" * 9 + "  ```\n  end", [33], 60)
@example("12. " + "word " * 30 + "\n    more\n13. next", [20, 50], 60)
@example("> " + "word " * 30 + "\n> ```\n> code\n> more code of it\n> ```", [20, 50], 60)
@example("```\n" + "\tx" * 30, [7, 20, 50], 60)
@example("```ruby\nx = <<A\ntext\nA\n", [20], 60)
def test_pieces_end_as_the_whole(text: str, cuts: list[int], width: int) -> None:
    whole = whole_answer(text, width)
    assert streamed(text, cuts, width) == whole
    assert streamed(text, list(range(len(text))), width) == whole


@pytest.mark.usefixtures("_limits")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(markdown, cuts)
def test_rows_before_the_first_changed_one_stay(text: str, cuts: list[int]) -> None:
    layout = MarkdownStream(WIDTH)
    shown: list[Line] = []
    start = 0
    for cut in [*sorted(cut for cut in cuts if cut < len(text)), len(text)]:
        first = layout.feed(text[start:cut])
        assert layout.lines[:first] == shown[:first]
        shown = list(layout.lines)
        start = cut
    first = layout.finish()
    assert layout.lines[:first] == shown[:first]


@pytest.mark.usefixtures("_limits")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(markdown, cuts, st.lists(st.tuples(st.integers(0, 40), st.integers(0, 20)), max_size=9))
@example("[one] is\n\nlate\n\n[one]: http://o.ne\n\nend of it", [], [(0, 1)])
@example("- a\n- b\n\n| [x] | 4 |\n\n1. one\n\n1. two\n\n" * 3, [20], [(3, 9)])
@example(" 4. one\n 1. two\n  1) three\n   - four\n1. five\n2. six\n   7. seven\n" * 3, [], [])
def test_what_goes_by_unseen_has_its_rows_when_somebody_looks(
    text: str, cuts: list[int], looks: list[tuple[int, int]]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(markdown_stream, "LATE_CHARS", 9)
        layout = MarkdownStream(WIDTH, late=True)
        start, rest = 0, iter(looks)
        for cut in [*sorted(cut for cut in cuts if cut < len(text)), len(text)]:
            layout.feed(text[start:cut], len(text) - cut)
            start = cut
            for first, count in islice(rest, 2):
                before = list(layout.lines)
                for low, high, made in reversed(layout.show(first, first + count)):
                    before[low:high] = made
                assert before == layout.lines
        layout.finish()
    layout.show(0, len(layout.lines))
    assert not layout.n_late
    shown = [line.shown for line in layout.lines]
    assert (shown or whole_answer("", WIDTH)) == whole_answer(text, WIDTH)


wide = st.text(alphabet="ab 中é\u0301👍\u1161\n|-`>*#", max_size=200)


@given(st.text(max_size=200) | markdown | wide, st.integers(20, 100))
@example("> " * 12 + "deep words in it", 20)
@example("123456789. " * 9 + "deep words in it", 20)
@example("- " * 12 + "```\n" + "- " * 12 + "code", 24)
@example("| a | b | c | d | e | f |\n|---|---|---|---|---|---|\n| 1 | 2 | 3 | 4 | 5 | 6 |", 20)
@example("é" + " " * 90 + "é", 20)
@example(" " * 90 + "中" * 40, 21)
def test_rows_fit_and_hold_nothing_unclean(text: str, width: int) -> None:
    for line in whole_answer(clean(text), width):
        assert line.width <= width
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
    layout = MarkdownStream(WIDTH)
    layout.feed("```py\nx = 1\n``")
    assert [line.text.strip() for line in layout.lines] == ["x = 1"]
    layout.feed("`\n")
    assert [line.text.strip() for line in layout.lines] == ["x = 1"]


def test_colours_that_the_end_of_a_fence_mends_are_told() -> None:
    layout = MarkdownStream(WIDTH)
    layout.feed("```js\n/* one\n")
    layout.feed("two */\n")
    before = list(layout.lines)
    first = layout.feed("```\n")
    assert layout.lines != before
    assert layout.lines[:first] == before[:first]


def test_a_beginning_fence_does_not_flash_up() -> None:
    layout = MarkdownStream(WIDTH)
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
        (" (http://x.y)", "http://x.y"),
        ("https://z.w/q", "https://z.w/q"),
    ]


def test_a_link_says_where_it_goes_unless_its_text_does() -> None:
    assert rows("[good.example](https://evil.example/)", 200) == [
        "    good.example (https://evil.example/)"
    ]
    assert rows("[docs](https://a.b/)", 200) == ["    docs (https://a.b/)"]
    assert rows("[**docs**, `so`](https://a.b/)", 200) == ["    docs, so (https://a.b/)"]
    for same in ("<https://a.b/c>", "https://a.b/c", "[https://a.b/c](https://a.b/c)"):
        assert rows(same, 200) == ["    https://a.b/c"]
    assert rows("[https://a.b/ä](https://a.b/ä)", 200) == ["    https://a.b/ä"]
    assert rows("[a](https://bäd.example)", 200) == ["    a (https://xn--bd-via.example)"]


def test_a_long_address_shows_whose_it_is() -> None:
    long = f"https://user:{'x' * 80}@{'good.example.' * 9}evil.example/{'path/' * 30}?a=1"
    (shown,) = rows(f"[l]({long})", 300)
    assert len(shown) < 80
    assert "evil.example/" in shown
    assert "user" not in shown
    (shown,) = rows(f"[l](https://a.b/{'path/' * 30})", 300)
    assert shown.startswith("    l (https://a.b/path/path/")
    assert shown.endswith("…)")
    assert links(f"[l]({long})")[0] == ("l", long)


def test_entities_cannot_smuggle() -> None:
    assert (
        rows("a &#x202e;b &#27;[31m") == ["    a <U+202E>b \ufffd[31m"]
        or "<U+202E>" in rows("a &#x202e;b")[0]
    )


def test_html_and_markup_are_text() -> None:
    assert rows("<b>x</b> [@click=app.quit]y[/]") == ["    <b>x</b> [@click=app.quit]y[/]"]


def test_quotes_bear_a_bar() -> None:
    assert rows("> one\n> two\n>\n> three") == ["    │ one two", "    │", "    │ three"]


@pytest.mark.sample
@pytest.mark.parametrize(
    "text", ["> " * 4_000, "- " * 4_000, *first_only(["*" * 10_000, "[" * 10_000, "`" * 10_000])]
)
def test_made_up_input_costs_as_much_as_its_length(text: str) -> None:
    # Quadratic would be thousands for each character.
    assert n_calls(lambda: whole_answer(text, 80)) < 300 * len(text)


@pytest.mark.exhaustive
def test_the_open_end_costs_no_more_when_the_answer_is_long() -> None:
    def spent(layout: MarkdownStream) -> int:
        return n_calls(lambda: [layout.feed("word ") for _ in range(50)])

    short, long = MarkdownStream(80), MarkdownStream(80)
    short.feed("A paragraph.\n\n")
    long.feed("A paragraph.\n\n" * 5_000)
    assert spent(long) < 2 * spent(short)


def spent_on(text: str, pieces: int, delta: int = 50) -> int:
    """Return the work for so many pieces of a text after so many earlier ones."""
    layout = MarkdownStream(80)
    layout.feed(text)
    more = (text[-delta * pieces :][at : at + delta] for at in range(0, delta * pieces, delta))
    return n_calls(lambda: [layout.feed(piece) for piece in more])


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("head", "body"),
    [
        ("```\n", "a\tb"),
        ("", "word word\n"),
        ("", "word "),
        ("", "x"),
        ("> ", "word "),
        ("- ", "word\n  "),
        ("", "see [one][r]. "),
        *first_only(
            [
                ("```yaml\n", "- a: [b, c]\n"),
                ("```python\n", "x="),
                ("```python\n", "x = 'y'\n"),
                ("| a | b |\n|---|---|\n", "| one | two |\n"),
            ],
            2,
        ),
    ],
)
def test_what_comes_next_costs_no_more_when_much_has_come(head: str, body: str) -> None:
    # The open end is laid out again with every piece: it is as long as it may be in both.
    short = head + body * (9_000 // len(body))
    long = head + body * (45_000 // len(body))
    assert spent_on(long, 8) < 2.5 * spent_on(short, 8)


@pytest.mark.exhaustive
def test_of_a_long_line_of_code_only_the_beginning_is_lexed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lexed = 0
    lex = code.CodeStream._lex

    def counted(self: code.CodeStream, text: str, stack: list[str]) -> Iterator[object]:
        nonlocal lexed
        lexed += len(text)
        return lex(self, text, stack)

    monkeypatch.setattr(code.CodeStream, "_lex", counted)
    layout = MarkdownStream(80)
    layout.feed("```python\n")
    for _ in range(2_000):
        layout.feed("x=1;" * 8)
    layout.finish()
    # While it is short, the line is coloured with every piece of it.
    assert lexed < 40 * code.LEX_LIMIT
    assert layout.lines[0].spans[3].style == "code-string@raised"
    assert layout.lines[-1].spans[2].style == "ink@raised"


@pytest.mark.exhaustive
def test_a_large_table_stays_a_table() -> None:
    head = "| name | figure |\n|---|--:|\n"
    lines = rows(head + "| some name | 1,234 |\n" * 3_000)
    assert len(lines) == 3_002
    assert {len(line) for line in lines} == {len(lines[0])}
    assert not any("|" in line for line in lines)


def test_what_is_too_long_for_one_piece_reads_on() -> None:
    words = " ".join(f"word{n}" for n in range(3_000))
    text = " ".join(row.strip() for row in rows(words))
    assert text == words
    listed = rows("7. " + words.replace(" ", "\n   ", 10) + "\n8. next")
    assert " ".join(row.strip() for row in listed) == f"7. {words} 8. next"
    assert {row[:7] for row in listed[1:-1]} == {" " * 7}
    quoted = rows("> " + words)
    assert " ".join(row.strip(" │") for row in quoted) == words
    fenced = rows("- see\n  ```python\n" + "  x = 'y'\n" * 900 + "  ```\n  end")
    assert {row.strip() for row in fenced} == {"- see", "x = 'y'", "end"}


def test_definitions_hold_everywhere() -> None:
    text = "See [one], [two][2] and [three].\n\n- in a [list][one]\n\n[one]: https://a.b/c\n\n"
    assert links(text + "[2]: <https://d.e>\n[one]: https://late.r") == [
        ("one", "https://a.b/c"),
        (" (https://a.b/c)", "https://a.b/c"),
        ("two", "https://d.e"),
        (" (https://d.e)", "https://d.e"),
        ("list", "https://a.b/c"),
        (" (https://a.b/c)", "https://a.b/c"),
    ]
    layout = MarkdownStream(WIDTH)
    for char in text:
        layout.feed(char)
    # The text has not ended, but enough of it has come since to pay for it.
    layout.feed("word " * 20)
    assert [span.text for span in layout.lines[0].spans if span.hit] == ["one", " (https://a.b/c)"]
    assert layout.lines[0].spans[-1].text == ", [two][2] and [three]."


@pytest.mark.parametrize("language", ["yaml", "ruby", "terraform", "console", "psql", "haml"])
def test_every_lexer_can_be_streamed(language: str) -> None:
    text = f"```{language}\nkey: <<A\n  - x\nA\n$ ls; #{{y}}\nlast one\n```"
    assert streamed(text, list(range(len(text)))) == whole_answer(text, WIDTH)
    assert rows(text)[-1].strip() == "last one"


def test_a_lexer_that_fails_leaves_the_code_plain(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> object:
        raise RuntimeError("a broken lexer")

    text = "```python\nif x:\n    y\n```"
    monkeypatch.setattr(type(code.lexer_for("python")), "get_tokens", broken)
    monkeypatch.setattr(code.CodeStream, "_lex", broken)
    assert [row.strip() for row in rows(text)] == ["if x:", "y"]
    assert streamed(text, list(range(len(text)))) == whole_answer(text, WIDTH)
    assert "a broken lexer" in caplog.text


def test_a_piece_that_cannot_be_laid_out_is_plain_text(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from kimi_tui.tui import faults
    from kimi_tui.tui.transcript import markdown

    def broken(*_: object) -> object:
        raise RuntimeError("a broken rule")

    monkeypatch.setattr(faults, "_logged", set[tuple[str, str, str]]())
    monkeypatch.setattr(markdown, "_table", broken)
    shown = "\n".join(rows("Before\n\n| a |\n|---|\n| b |\n\nAfter"))
    assert shown.count("| b |") == 1
    assert "Shown as plain text" in shown
    assert "Before" in shown
    assert "After" in shown
    assert [record.exc_info is not None for record in caplog.records] == [True]

"""Blocks as HTML: words without signs of Markdown are written as a parser would, and code has classes of its own."""

from __future__ import annotations

import re
from importlib.resources import files

from hypothesis import given, settings
from hypothesis import strategies as st
from pygments.token import STANDARD_TYPES

from kimi_tui.export import markup

PIECES = st.sampled_from(
    [
        "a",
        "b c",
        " ",
        "\n",
        "\n\n",
        ".",
        ",",
        "-",
        "_",
        "*",
        "1",
        "2)",
        "3.",
        "    ",
        "\t",
        "'",
        '"',
        "(",
        "/",
        "%",
        "&",
        "<",
        "é",
        "=",
    ]
)


@settings(max_examples=min(1_000, 8 * settings().max_examples))
@given(st.lists(PIECES, max_size=8).map("".join))
def test_plain_words_are_written_as_a_parser_writes_them(text: str) -> None:
    def same(html: str) -> str:
        return html.replace("&#x27;", "'").replace("&quot;", '"')

    parsed = markup._parser(has_tables=True).render(text)
    assert same(markup._rendered(text)) == same(parsed)


def test_no_class_of_the_page_is_one_of_a_token_of_code() -> None:
    folder = files("kimi_tui.export")
    sources = "".join(folder.joinpath(one).read_text() for one in ("markup.py", "page.py"))
    named = {word for one in re.findall(r'class="([^"{]*)', sources) for word in one.split()}
    assert "point" in named
    assert not named & set(STANDARD_TYPES.values())


def test_the_language_of_code_may_be_unknown() -> None:
    html = markup._rendered("```python\nname = 1\n```\n\n```nonsense\n<b>\n```\n")
    assert '<span class="n">name</span>' in html
    assert "&lt;b&gt;" in html

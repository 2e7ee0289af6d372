"""Stored pictures of screens: all that is seen is in their text, a change of it is told by its rows, and none is left over."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support import pictures
from support.pictures import FOLDER, Pictures, picture_of
from textual.app import App, ComposeResult
from textual.content import Content
from textual.widgets import Static

from kimi_tui.tui.theme import KIMI_DARK, KIMI_SIXTEEN

WORDS = "[bold $ink-strong]Two words[/] and [$accent on $band]一 [/][$ink]more[/]"


class Page(App[None]):
    """A page with one row of words."""

    CSS = "Screen { background: $page; color: $ink; }"

    def __init__(self, words: str = WORDS) -> None:
        super().__init__()
        for one in (KIMI_DARK, KIMI_SIXTEEN):
            self.register_theme(one)
        self.theme = KIMI_DARK.name
        self.words = words

    def compose(self) -> ComposeResult:
        yield Static(self.words)


async def shown(words: str, letters: dict[str, str] | None = None) -> list[str]:
    """Return the stored picture of these words, without the rows in which nothing stands."""
    app = Page(words)
    async with app.run_test(size=(40, 3)):
        return [line for line in picture_of(app, letters).splitlines() if line != "|"]


def files(folder: Path) -> list[Path]:
    """Return the stored files."""
    return sorted(folder.rglob("*.*"))


async def test_the_text_has_every_character_and_every_style_that_is_seen() -> None:
    assert await shown(WORDS) == [
        "40x3 kimi-dark, unmarked is ink on page",
        "a accent on band",
        "S ink-strong bold",
        "b on band",
        "|Two words and 一 more",
        ":SSSSSSSSS     aab",
    ]


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "other",
    [
        WORDS.replace("Two", "Ten"),
        WORDS.replace("bold ", ""),
        WORDS.replace("bold", "italic"),
        WORDS.replace("$accent", "$warn"),
        WORDS.replace("$accent", "#73bbf8"),
        WORDS.replace("$band", "$raised"),
        WORDS.replace(" [/]", "[/] "),
        WORDS.replace("more", "[reverse]more[/]"),
        WORDS.replace(" and ", " [u]and[/] "),
        WORDS.replace(" and ", " [u] [/]and "),
        WORDS.replace(" and ", " [dim]and[/] "),
        WORDS.replace(" and ", " [s]and[/] "),
        WORDS + "[on $select] [/]",
    ],
)
async def test_each_difference_that_is_seen_is_in_the_text(other: str) -> None:
    assert await shown(other) != await shown(WORDS)


async def test_no_difference_that_cannot_be_seen_is_in_the_text() -> None:
    unseen = WORDS.replace(" and ", "[$warn] [/]and[bold $ok] [/]").replace(
        "Two words", "Two[/] [bold $ink-strong]words"
    )
    assert await shown(unseen) == await shown(WORDS)


async def test_a_blank_at_the_end_of_a_row_belongs_to_no_words() -> None:
    assert (await shown("[$accent]" + "x" * 39 + "[/]"))[-1] == ":" + "a" * 39


async def test_a_style_keeps_the_letter_that_it_has() -> None:
    has = {"accent on band": "x", "warn": "b"}
    assert (await shown(WORDS, has))[1:4] == ["x accent on band", "S ink-strong bold", "b on band"]
    more = WORDS + "[$warn] w[/]"
    assert (await shown(more, has))[1:5] == [
        "x accent on band",
        "S ink-strong bold",
        "a on band",
        "b warn",
    ]


async def test_the_terminal_s_own_colours_have_their_names() -> None:
    app = Page("[$accent]blue[/] [$kind-error on $selection]red[/]")
    app.theme = KIMI_SIXTEEN.name
    async with app.run_test(size=(40, 1)):
        text = picture_of(app)
    assert text.splitlines()[0] == "40x1 kimi-16, unmarked is default on default"
    assert "bright-blue" in text
    assert "bright-red on bright-blue" in text


async def test_what_differs_is_told_by_its_rows_and_stored_on_demand(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pictures, "FOLDER", tmp_path)
    compares, stores = Pictures(request.node), Pictures(request.node)
    stores._updates = True
    app = Page()
    async with app.run_test(size=(40, 3)) as pilot:
        with pytest.raises(
            AssertionError, match="No picture is stored as tui/test_stored_pictures/"
        ):
            compares(app)
        stores(app)
        stores(app, "other")
        compares(app)
        drawing = next(file for file in files(tmp_path) if "[other]" in file.stem)
        drawing = drawing.with_suffix(".svg")
        drawing.touch()
        with pytest.raises(AssertionError, match="drawn for another text"):
            compares(app, "other")
        stores(app, "other")
        drawn = drawing.read_text("utf-8")
        assert drawn.startswith("<svg")
        compares(app, "other")

        app.query_one(Static).update(Content.from_markup(WORDS.replace("$accent", "$warn")))
        await pilot.pause()
        with pytest.raises(pytest.fail.Exception) as failed:
            compares(app)
        told = str(failed.value).splitlines()
        assert told[1:-1] == [
            "- a accent on band",
            "+ w warn on band",
            "-   0 |Two words and 一 more",
            "-   0 :SSSSSSSSS     aab",
            "+   0 |Two words and 一 more",
            "+   0 :SSSSSSSSS     wwb",
        ]
        assert (
            told[-1] == "`make snapshots TESTS=tests/tui/test_stored_pictures.py` stores it anew."
        )
        stores(app, "other")
        compares(app, "other")
        assert drawing.read_text("utf-8") != drawn

    left_over = Pictures(request.node)
    with pytest.raises(AssertionError, match="is compared with nothing"):
        left_over.end()
    left_over._updates = True
    left_over.end()
    assert not files(tmp_path)


_DEFINED = re.compile(r"def (test_\w+)")


@pytest.mark.slow  # as the tests that are compared with them, which have to be chosen with it
def test_each_stored_picture_belongs_to_a_test(request: pytest.FixtureRequest) -> None:
    # A file of which only some tests were chosen has pictures of the others.
    if request.config.getoption("keyword") or any("::" in one for one in request.config.args):
        pytest.skip("only some tests were chosen")
    tests: dict[Path, list[str]] = {}
    for item in request.session.items:
        folder = FOLDER / item.path.parent.name / item.path.stem
        # Those of `make test-all` alone are found by their source.
        named = tests.setdefault(folder, _DEFINED.findall(item.path.read_text("utf-8")))
        named.append(item.name)
    for file in files(FOLDER):
        if known := tests.get(file.parent):
            assert any(file.stem.startswith(name) for name in known), f"{file} is no test's"

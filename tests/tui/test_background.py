"""The terminal's answer about its background is removed from the typed text, however it comes."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from support.cases import each
from textual import events

from kimi_tui.config.settings import Config
from kimi_tui.launch import Launch
from kimi_tui.tui.app import KimiApp
from kimi_tui.tui.palette import guess_light, is_light
from kimi_tui.tui.terminal_input import (
    CUT_S,
    BackgroundAnswers,
    BackgroundTold,
    Incoming,
    KeyParser,
)

WHITE = "\x1b]11;rgb:ffff/ffff/ffff\x1b\\"
BLACK = "\x1b]11;rgb:00/00/00\x07"


@each(
    "colour, light",
    [
        ("rgb:ffff/ffff/ffff", True),
        ("rgb:fd/f6/e3", True),
        ("rgba:ffff/ffff/ffff/ffff", True),
        ("#fbfaf7", True),
        ("#ffffffffffff", True),
        ("rgb:0/0/0", False),
        ("rgb:2e2e/3434/4040", False),
        ("rgb:00/2b/36", False),
        ("#101318", False),
        ("rgb:00/00", None),
        ("#12345", None),
        ("#", None),
        ("", None),
    ],
)
def test_a_colour_is_light_or_dark(colour: str, light: bool | None) -> None:
    assert is_light(colour) is light


def test_a_variable_tells_before_the_terminal_does() -> None:
    assert [guess_light({"COLORFGBG": value}) for value in ("0;15", "0;default;7", "15;0", "")] == [
        True,
        True,
        False,
        None,
    ]


def keys(*pieces: str) -> tuple[str, list[bool]]:
    """Return the characters that are typed by pieces of input, and what the terminal said of itself."""
    told: list[bool] = []
    answers = BackgroundAnswers()
    incoming, parser = Incoming(answers, told.append), KeyParser()
    found = [
        message
        for piece in pieces
        if (text := incoming.text(piece.encode()))
        for message in parser.feed(text)
    ]
    return "".join(m.character or m.key for m in found if isinstance(m, events.Key)), told


@each("size", [1, 2, 3, 5, 9, 100])
@each(
    "answer, light",
    [(WHITE, [True]), (BLACK, [False]), ("\x1b[?997;2n", [True]), ("\x1b[?997;1n", [False])],
)
def test_an_answer_in_pieces_is_no_key_and_swallows_none(
    answer: str, light: list[bool], size: int
) -> None:
    data = f"ab{answer}cd"
    assert keys(*(data[at : at + size] for at in range(0, len(data), size))) == ("abcd", light)


def test_a_broken_answer_is_no_key_and_what_follows_it_is_typed() -> None:
    assert keys("\x1b]11;rgb:ff/", "hello") == ("hello", [])
    assert keys("\x1b]11;", "\x1b[Ax") == ("upx", [])
    assert keys("\x1b]10;rgb:ffff/ffff/ffff\x07x") == ("x", [])


def test_what_waits_is_let_go_in_time() -> None:
    answers = BackgroundAnswers()
    assert answers.take("a\x1b]", 0.0) == ("a", None)
    assert answers.let_go(0.1) == "\x1b]"
    assert answers.take("\x1b", 10.0) == ("", None)
    assert answers.let_go(10.1) == "\x1b"
    assert answers.take("\x1b]11;rgb:ff", 20.0) == ("", None)
    for at, still in ((20.1, True), (20.0 + CUT_S, False)):
        assert (answers.let_go(at), answers.is_holding) == ("", still)


@given(
    st.lists(
        st.sampled_from(["a", "\x1b", "]", "11;", "rgb:f/f/f", "\x07", "\\", "[", "?997;", "2n"])
    )
)
def test_whatever_comes_nothing_is_made_up(pieces: list[str]) -> None:
    answers = BackgroundAnswers()
    left = "".join(answers.take(piece, 0.0)[0] for piece in pieces) + answers.let_go(9.0)
    rest = iter("".join(pieces))
    assert all(char in rest for char in left), "in its order"


async def test_the_colours_follow_only_where_nothing_else_was_chosen(tmp_path: Path) -> None:
    for theme, after in (("auto", "kimi-light"), ("dark", "kimi-dark")):
        app = KimiApp(Launch(tmp_path, tmp_path / "config.toml", Config(theme=theme)))
        async with app.run_test() as pilot:
            assert app.theme == "kimi-dark"
            app.post_message(BackgroundTold(light=True))
            await pilot.pause()
            assert app.theme == after
            app.show_theme("auto")
            assert app.theme == "kimi-light"

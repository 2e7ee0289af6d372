"""The themes: which one a terminal gets by the colours it has."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.color import Color, ColorSystem
from textual.color import Color as TextualColor

from kimi_tui.config.model import Config
from kimi_tui.launch import Launch
from kimi_tui.tui.app import KimiApp
from kimi_tui.tui.theme import FEW, MANY, TRUE_COLOUR, colours_of, themes_for

TINTS = ("page", "raised", "band", "select")


@pytest.mark.parametrize(
    ("term", "colorterm", "colours"),
    [
        ("xterm-256color", "truecolor", TRUE_COLOUR),
        ("linux", "24bit", TRUE_COLOUR),
        ("screen-256color", "", MANY),
        ("xterm-kitty", "", MANY),
        ("xterm", "", FEW),
        ("xterm-16color", "yes", FEW),
        ("linux", "", FEW),
        ("", "", FEW),
    ],
)
def test_the_variables_say_how_many_colours_there_are(
    term: str, colorterm: str, colours: int
) -> None:
    assert colours_of({"TERM": term, "COLORTERM": colorterm}) == colours
    assert colours_of({}) == FEW


@pytest.mark.parametrize("name", ["dark", "light"])
def test_with_256_colours_the_tints_stay_apart(name: str) -> None:
    palette = themes_for(MANY)[name].variables
    shown = [
        Color.from_rgb(*TextualColor.parse(palette[tint]).rgb).downgrade(ColorSystem.EIGHT_BIT)
        for tint in TINTS
    ]
    assert len({colour.number for colour in shown}) == len(TINTS)


@pytest.mark.parametrize("configured", ["dark", "light", "16"])
def test_with_few_colours_the_terminals_own_are_used(tmp_path: Path, configured: str) -> None:
    launch = Launch(tmp_path, tmp_path / "config.toml", Config(theme=configured))
    assert KimiApp(launch, colours=FEW).theme == "kimi-16"
    assert KimiApp(launch, colours=MANY).theme == f"kimi-{configured}"

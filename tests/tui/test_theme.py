"""The themes: which one a terminal gets by the colours it has."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from rich.color import Color, ColorSystem
from rich.style import Style
from support.cases import each
from support.chat_app import ChatApp, is_drawn
from support.conversation import quoted_fields
from support.story import whole_story
from support.time_travel_app import TimeTravelApp
from textual.app import App
from textual.color import Color as TextualColor
from textual.theme import BUILTIN_THEMES

from kimi_tui.config.settings import AUTO, THEMES, Config
from kimi_tui.launch import Launch
from kimi_tui.tui.app import KimiApp
from kimi_tui.tui.palette import FEW, MANY, TRUE_COLOUR, colours_of
from kimi_tui.tui.theme import (
    DARK,
    LIGHT,
    OURS,
    theme_of,
    themes_for,
)

TINTS = ("page", "raised", "band", "select")
GROUNDS = (*TINTS, "lost-bg", "dmail-bg", "diff-add-bg", "diff-del-bg")
INKS = tuple(
    name
    for name in DARK
    if name.startswith(("ink", "kind-", "code-", "accent", "ok", "warn")) or name.endswith("-fg")
)


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


def contrast(one: Color, other: Color) -> float:
    """Return the ratio of the lightness of two colours, from 1 to 21."""
    shades: list[float] = []
    for colour in (one, other):
        parts = [part / 255 for part in colour.get_truecolor()]
        linear = [p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        shades.append(0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2])
    return (max(shades) + 0.05) / (min(shades) + 0.05)


def rgb(name: str) -> Color:
    return Color.from_rgb(*TextualColor.parse(name).rgb)


@pytest.mark.parametrize("colours", [MANY, TRUE_COLOUR])
@pytest.mark.parametrize("name", ["dark", "light"])
def test_selected_text_can_be_read_and_stands_out(name: str, colours: int) -> None:
    palette = themes_for(colours)[name].variables
    pairs = (
        ("selection", "on-selection"),
        ("screen-selection-background", "screen-selection-foreground"),
    )
    for ground, ink in pairs:
        shown = [rgb(palette[one]) for one in (ground, ink)]
        if colours == MANY:
            shown = [one.downgrade(ColorSystem.EIGHT_BIT) for one in shown]
        assert contrast(*shown) >= 4.5
    for tint in GROUNDS:
        assert contrast(rgb(palette["selection"]), rgb(palette[tint])) >= 1.5


@pytest.mark.sample(3)
@pytest.mark.parametrize("look", ["dark", "light", "16", "none"])
async def test_every_selected_cell_of_the_chat_can_be_read(
    look: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if look == "none":
        monkeypatch.setenv("NO_COLOR", "1")
    theme = "kimi-dark" if look == "none" else f"kimi-{look}"
    app = ChatApp(theme=theme, ansi=look == "16")
    async with app.run_test(size=(81, 37)) as pilot:
        app.transcript.apply(quoted_fields().take())
        while not is_drawn(app.transcript):
            await pilot.pause()
        app.transcript.focus()
        await pilot.press("k")
        plain = [list(app.transcript.render_line(y)) for y in range(36)]
        await pilot.press("ctrl+a")
        await pilot.pause()
        changed = 0
        for y in range(36):
            before = [(char, own) for text, own, _ in plain[y] for char in text]
            after = [(c, own) for text, own, _ in app.transcript.render_line(y) for c in text]
            for (_, old), (char, new) in zip(before, after, strict=True):
                if old == new or char == " ":
                    continue
                changed += 1
                assert old is not None
                assert new is not None
                assert not new.dim
                assert new.color is not None
                assert new.bgcolor is not None
                if look in ("16", "none"):
                    # The other way round than it was.
                    assert bool(new.reverse) != bool(old.reverse)
                if look == "16":
                    assert new.color.is_default
                    assert new.bgcolor.is_default
                else:
                    assert contrast(new.color, new.bgcolor) >= 4.5
        assert changed > 500


def test_every_theme_of_textual_is_offered() -> None:
    plain = {"textual-dark", "textual-light", "ansi-dark", "ansi-light"}
    assert {*THEMES} - {*OURS, AUTO} == {*BUILTIN_THEMES} - plain


@each("name", [name for name in THEMES if name not in (AUTO, "16")])
def test_every_text_colour_can_be_read_on_every_ground(name: str) -> None:
    palette = theme_of(name, themes_for(TRUE_COLOUR)).variables
    assert palette.keys() >= DARK.keys()
    ratios = {
        (ink, ground): contrast(rgb(palette[ink]), rgb(palette[ground]))
        for ink in INKS
        for ground in GROUNDS
    }
    assert len(ratios) > 100
    assert {pair: ratio for pair, ratio in ratios.items() if ratio < 4.5} == {}


Cell = tuple[str, Style]


async def cells_of(app: App[None], size: tuple[int, int]) -> list[Cell]:
    """Return every cell that the app shows with a conversation."""
    async with app.run_test(size=size) as pilot:
        if isinstance(app, ChatApp):
            app.transcript.apply(quoted_fields().records)
            while not is_drawn(app.transcript):
                await pilot.pause()
        elif isinstance(app, TimeTravelApp):
            app.timeline.focus()
        await pilot.pause()
        strips = app.screen._compositor.render_strips(app.size)
        return [
            (sign, style or Style())
            for strip in strips
            for text, style, _ in strip
            for sign in text
        ]


def colours(cells: list[Cell]) -> list[tuple[str, str]]:
    """Ink and ground of each cell, as `#rrggbb`."""

    def named(colour: Color | None) -> str:
        return "" if colour is None else colour.get_truecolor().hex

    return [(named(style.color), named(style.bgcolor)) for _, style in cells]


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", [ChatApp, TimeTravelApp])
async def test_the_themes_differ_in_their_colours_alone(
    kind: Callable[..., App[None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def made(theme: str) -> App[None]:
        if kind is TimeTravelApp:
            return TimeTravelApp(whole_story().records, theme=theme)
        return ChatApp(theme=theme)

    size = (120, 40)
    dark = await cells_of(made("kimi-dark"), size)
    light = await cells_of(made("kimi-light"), size)
    assert [sign for sign, _ in light] == [sign for sign, _ in dark]
    # The table: what has one colour in the dark has the one of the same name in the light.
    twins = {(DARK[name], LIGHT[name]) for name in DARK} | {("", "")}
    for one, other in zip(colours(dark), colours(light), strict=True):
        assert {*zip(one, other, strict=True)} <= twins
    monkeypatch.setenv("NO_COLOR", "1")
    grey = await cells_of(made("kimi-dark"), size)
    # The parts of the gauge, which are told apart by their colours else, are drawn with signs of their own.
    changed = {
        (one, other) for (one, _), (other, _) in zip(dark, grey, strict=True) if one != other
    }
    assert changed <= {("━", sign) for sign in "┅═"}
    for pair in colours(grey):
        assert all(colour[1:3] == colour[3:5] == colour[5:] for colour in pair)

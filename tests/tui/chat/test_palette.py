"""Names of styles become colours, and no row brings a control byte to the terminal."""

from __future__ import annotations

from rich.style import Style

from kimi_tui.tui.chat.lines import Line, Span
from kimi_tui.tui.chat.palette import GROUNDS, INKS, PREFIX, Palette, faded


def component(name: str) -> Style:
    short = name.removeprefix(PREFIX)
    if short in GROUNDS:
        return Style(bgcolor=f"rgb({GROUNDS.index(short)},0,0)")
    return Style(color=f"rgb(200,{INKS.index(short)},0)", bold=short == "strong")


def test_names() -> None:
    palette = Palette(component)
    style = palette["strong/iu@band"]
    assert (style.color, style.bgcolor) == (
        component(PREFIX + "strong").color,
        component(PREFIX + "band").bgcolor,
    )
    assert (style.bold, style.italic, style.underline, style.strike) == (True, True, True, None)
    assert palette["ink"].bgcolor == component(PREFIX + "page").bgcolor
    assert palette["nonsense@nowhere"] == palette["ink"]


def test_rows_are_as_wide_as_the_pane() -> None:
    palette = Palette(component)
    for text in ("", "short", "中" * 30, "x" * 30):
        strip = palette.strip(Line((Span(text),), fill="band"), 20)
        assert strip.cell_length == 20
        assert all(segment.style is not None and segment.style.bgcolor for segment in strip)


def test_the_last_border() -> None:
    strip = Palette(component).strip(Line((Span("a\x1b[2Jb\tc\nd\x9b6n\u202e"),)), 40)
    assert strip.text.rstrip() == "ab c d<U+202E>"


def test_fading_goes_towards_the_ground() -> None:
    style = faded(Style(color="rgb(200,0,0)", bgcolor="rgb(0,0,0)", bold=True))
    assert style.color is not None
    assert style.color.triplet is not None
    assert 60 < style.color.triplet.red < 100
    assert not style.bold
    assert faded(Style(color="default")).dim

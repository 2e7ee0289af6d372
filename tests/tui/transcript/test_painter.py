"""Names of styles become colours, and no row brings a control byte to the terminal."""

from __future__ import annotations

import pytest
from rich.console import Console
from rich.style import Style

from kimi_tui.tui.rows import HIT_LINK, Line, Span
from kimi_tui.tui.transcript.painter import GROUNDS, INKS, PREFIX, Palette, faded


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


def written(line: Line) -> str:
    """What goes to the terminal for a row."""
    return Palette(component).strip(line, 60).render(Console(color_system="truecolor"))


def test_links_are_told_to_the_terminal() -> None:
    url = "https://example.org/a_b?c=d;e"
    sent = written(Line((Span("see ", "ink"), Span("docs", "ink/u", HIT_LINK + url), Span("!"))))
    assert sent.count(f";{url}\x1b\\") == 1
    assert sent.count("\x1b]8;;\x1b\\") == 1
    assert sent.index(url) < sent.index("docs") < sent.index("\x1b]8;;\x1b\\") < sent.index("!")


def test_the_parts_of_a_link_belong_together() -> None:
    hit = HIT_LINK + "https://a.b"
    palette = Palette(component)
    strips = [palette.strip(Line((Span(text, "ink/u", hit),)), 20) for text in "ab"]
    ids = {
        part.style.link_id for strip in strips for part in strip if part.style and part.style.link
    }
    assert len(ids) == 1


@pytest.mark.parametrize(
    "url",
    [
        "https://a.b/\x1b]52;c;eA==\x07", "https://a.b/\x07", "https://a.b/\x9c", "https://a.b/c d", "file:///etc/passwd",
        "javascript:alert(1)", "https://a.b/\n", "https://\u202ea.b", "https://b\u00e4d.example", "https://a.b/" + "x" * 9_000,
    ],
)  # fmt: skip
def test_no_other_address_is_told(url: str) -> None:
    sent = written(Line((Span("docs", "ink/u", HIT_LINK + url),)))
    assert "\x1b]" not in sent
    assert "\x9c" not in sent
    assert "\x07" not in sent


def test_a_checkpoint_is_no_link() -> None:
    assert "\x1b]8" not in written(Line((Span("#3", "quiet", "#3"),)))

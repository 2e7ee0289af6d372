"""Names of styles become colours, and no row brings a control byte to the terminal."""

from __future__ import annotations

from typing import ClassVar

from rich.console import Console
from rich.style import Style
from support.cases import each
from textual.filter import LineFilter, NoColor
from textual.widget import Widget

from kimi_tui.tui.painter import Painter, faded
from kimi_tui.tui.rows import HIT_LINK, Span

INKS = ("ink", "strong", "quiet")
GROUNDS = ("page", "band", "select", "tinted")


class Painted(Widget):
    """A widget whose colours no style sheet gives; `select` is told by reversing."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {f"painted--{name}" for name in (*INKS, *GROUNDS)}
    filters: tuple[LineFilter, ...] = ()

    @property
    def rich_style(self) -> Style:
        return Style(color="rgb(9,9,9)", bgcolor="rgb(0,0,9)")

    def get_component_rich_style(
        self, *names: str, partial: bool = False, default: Style | None = None
    ) -> Style:
        short = names[0].removeprefix("painted--")
        if short in GROUNDS:
            reverse = short == "select" or None
            return Style(bgcolor=f"rgb({GROUNDS.index(short)},0,0)", reverse=reverse)
        return Style(color=f"rgb(200,{INKS.index(short)},0)", bold=short == "strong" or None)

    def get_line_filters(self) -> tuple[LineFilter, ...]:
        return self.filters


def painter() -> Painter:
    return Painter(Painted(), "painted")


def colour(name: str) -> Style:
    return Painted().get_component_rich_style(f"painted--{name}")


def test_names() -> None:
    made = painter()
    style = made.style("strong/iu@band")
    assert (style.color, style.bgcolor) == (colour("strong").color, colour("band").bgcolor)
    assert (style.bold, style.italic, style.underline, style.strike) == (True, True, True, None)
    assert made.style("ink", "page").bgcolor == colour("page").bgcolor
    assert made.style("ink").bgcolor == Painted().rich_style.bgcolor
    assert made.style("ink@band", "page").bgcolor == colour("band").bgcolor
    assert made.style("nonsense@nowhere", "page") == made.style("ink", "page")


def test_on_a_reversed_ground_inks_are_no_grounds_of_their_own() -> None:
    style = painter().style("strong", "select")
    assert style.reverse
    assert style.color == Painted().rich_style.color


def test_colours_and_filters_are_those_of_now_after_a_change() -> None:
    widget = Painted()
    made = Painter(widget, "painted")
    spans = [Span("text"), Span("shown", "ink@band", HIT_LINK + "https://example.org")]
    widget.filters = (NoColor(),)

    def shown() -> list[Style | None]:
        strips = made.strip(spans, 20), made.blank(20)
        return [made.overlay("band"), *(part.style for strip in strips for part in strip)]

    made.clear()
    plain = shown()
    assert all(style and style.color and style.color.is_default for style in plain)
    widget.filters = ()
    assert shown() == plain
    made.clear()
    assert all(one != other for one, other in zip(shown(), plain, strict=True))


def test_rows_are_as_wide_as_the_pane() -> None:
    for text in ("", "short", "中" * 30, "x" * 30):
        strip = painter().strip([Span(text)], 20, "band")
        assert strip.cell_length == 20
        assert all(segment.style is not None and segment.style.bgcolor for segment in strip)


def test_the_last_border() -> None:
    strip = painter().strip([Span("a\x1b[2Jb\tc\nd\x9b6n\u202e")], 40)
    assert strip.text.rstrip() == "ab c d<U+202E>"


def test_fading_goes_towards_the_ground() -> None:
    style = faded(Style(color="rgb(200,0,0)", bgcolor="rgb(0,0,0)", bold=True))
    assert style.color is not None
    assert style.color.triplet is not None
    assert 60 < style.color.triplet.red < 100
    assert not style.bold
    assert faded(Style(color="default")).dim


def written(*spans: Span) -> str:
    """What goes to the terminal for a row."""
    return painter().strip(spans, 60).render(Console(color_system="truecolor"))


def test_links_are_told_to_the_terminal() -> None:
    url = "https://example.org/a_b?c=d;e"
    sent = written(Span("see ", "ink"), Span("docs", "ink/u", HIT_LINK + url), Span("!"))
    assert sent.count(f";{url}\x1b\\") == 1
    assert sent.count("\x1b]8;;\x1b\\") == 1
    assert sent.index(url) < sent.index("docs") < sent.index("\x1b]8;;\x1b\\") < sent.index("!")


def test_the_parts_of_a_link_belong_together() -> None:
    hit = HIT_LINK + "https://a.b"
    made = painter()
    strips = [made.strip([Span(text, "ink/u", hit)], 20) for text in "ab"]
    ids = {
        part.style.link_id for strip in strips for part in strip if part.style and part.style.link
    }
    assert len(ids) == 1


@each(
    "url",
    [
        "https://a.b/\x1b]52;c;eA==\x07", "https://a.b/\x07", "https://a.b/\x9c", "https://a.b/c d", "file:///etc/passwd",
        "javascript:alert(1)", "https://a.b/\n", "https://\u202ea.b", "https://b\u00e4d.example", "https://a.b/" + "x" * 9_000,
    ],
)  # fmt: skip
def test_no_other_address_is_told(url: str) -> None:
    sent = written(Span("docs", "ink/u", HIT_LINK + url))
    assert "\x1b]" not in sent
    assert "\x9c" not in sent
    assert "\x07" not in sent


def test_a_checkpoint_is_no_link() -> None:
    assert "\x1b]8" not in written(Span("#3", "quiet", "#3"))


def test_a_widget_that_has_no_styles_yet_is_painted_without_colours() -> None:
    class Unstyled(Painted):
        def get_component_rich_style(
            self, *names: str, partial: bool = False, default: Style | None = None
        ) -> Style:
            raise KeyError(f"No {names[0]!r} key in COMPONENT_CLASSES")

    made = Painter(Unstyled(), "painted")
    row = made.strip([Span("a row", "strong")], 8)
    for strip in (
        row,
        made.with_edge(row, "|"),
        made.dropped(row, "|"),
        made.selected(row, 0, 2, "band"),
        made.with_cursor(row, 0),
    ):
        assert (strip.cell_length, strip.text[1:]) == (8, " row   ")

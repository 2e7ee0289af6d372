# pyright: reportPrivateUsage=false
from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Sequence
from typing import Any

import pyte
import pytest
from rich.console import Console, RenderableType
from rich.segment import Segment
from rich.style import Style
from support.drawn import text_of
from support.watching import until
from textual._compositor import Compositor, ReflowResult
from textual.app import App, ComposeResult
from textual.containers import VerticalScroll
from textual.events import Resize
from textual.geometry import Region, Size
from textual.screen import ModalScreen, Screen
from textual.strip import Strip
from textual.widget import Widget

from kimi_tui.tui.scrollbar import use_thin_scrollbar
from kimi_tui.tui.textual_patches.compositor import (
    DrawsColumns,
    NotesDrawn,
    RowCompositor,
    RowsUpdate,
    draw_changed_rows,
)


class Rows(Widget):
    """Writes its letter and the row's number; knows which rows were asked for."""

    def __init__(self, letter: str) -> None:
        super().__init__(id=letter)
        self.asked: set[int] = set()
        self.told: Size | None = None
        self.drawn_at: list[tuple[Size, Size | None]] = []
        """The sizes at which it was drawn, each with the one that it was told."""

    def on_resize(self, event: Resize) -> None:
        self.told = event.size

    def render_lines(self, crop: Region) -> list[Strip]:
        self.asked |= set(range(crop.y, crop.bottom))
        self.drawn_at.append((self.size, self.told))
        rows = (Segment(f"{self.id}{y}" * 40) for y in range(crop.y, crop.bottom))
        return [Strip([row]).crop(crop.x, crop.right) for row in rows]


class Sheet(Screen[None]):
    def __init__(self) -> None:
        super().__init__()
        self.n_asked = 0
        draw_changed_rows(self)

    def render_lines(self, crop: Region) -> list[Strip]:
        self.n_asked += 1
        return super().render_lines(crop)

    def compose(self) -> ComposeResult:
        yield Rows("a")
        yield Rows("b")
        yield Rows("o")


class Desk(App[None]):
    CSS = """
    Screen { layers: base over; }
    #a { width: 10; dock: left; }
    #o { layer: over; width: 6; height: 3; offset: 7 4; }
    """


async def test_a_picture_is_made_of_the_rows_that_changed_and_are_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app = Desk()
    async with app.run_test(size=(30, 12)) as pilot:
        sheet = Sheet()
        await app.push_screen(sheet)
        await pilot.pause()
        compositor = app.screen._compositor
        assert isinstance(compositor, RowCompositor)
        nothing: set[int] = set()
        with monkeypatch.context() as its_own:
            its_own.setattr(RowCompositor, "_get_renders", Compositor._get_renders)
            whole = compositor._render_chops(app.size.region, lambda _: True)
        sheet.n_asked = 0
        assert compositor._render_chops(app.size.region, lambda _: True) == whole
        assert not sheet.n_asked
        sheet.query_one("#b").display = False
        await pilot.pause()
        assert sheet.n_asked
        sheet.query_one("#b").display = True
        await pilot.pause()
        compositor.render_full_update()
        for changed, asked in (
            ({Region(0, 2, 10, 1)}, {"a": {2}, "b": nothing, "o": nothing}),
            ({Region(12, 5, 4, 2)}, {"a": nothing, "b": {5, 6}, "o": {1, 2}}),
            (
                {Region(0, 1, 3, 1), Region(0, 6, 8, 1)},
                {"a": {1, 6}, "b": nothing, "o": {2}},
            ),
            # Widgets behind another one are not rendered.
            ({Region(8, 5, 3, 2)}, {"a": nothing, "b": nothing, "o": {1, 2}}),
        ):
            rows = {one.id: one for one in app.screen.query(Rows)}
            for one in rows.values():
                one.asked.clear()
            compositor._dirty_regions = set(changed)
            update = compositor.render_partial_update()
            assert isinstance(update, RowsUpdate)
            assert {name: one.asked for name, one in rows.items()} == asked
            spans = {
                (y, x)
                for region in changed
                for y in region.line_range
                for x in range(*region.column_span)
            }
            drawn = cells_of(update.parts)
            assert spans <= drawn.keys()
            wanted = cells_of(
                [(y, x, part) for y, row in enumerate(whole) for x, part in row.items()]
            )
            assert drawn.items() <= wanted.items()


def cells_of(parts: Sequence[tuple[int, int, Strip]]) -> dict[tuple[int, int], str]:
    """Return the characters of strips at rows and columns, by their places."""
    return {(y, x + at): char for y, x, strip in parts for at, char in enumerate(strip.text)}


class Columns(Rows, DrawsColumns):
    """Rows of which only the changed columns are drawn."""


async def test_of_rows_that_draw_columns_only_the_changed_ones_are_drawn() -> None:
    app = App[None]()
    async with app.run_test(size=(30, 4)) as pilot:
        screen = Screen[None]()
        draw_changed_rows(screen)
        await app.push_screen(screen)
        await screen.mount(Columns("c"))
        await pilot.pause()
        compositor = screen._compositor
        compositor.render_full_update()
        compositor._dirty_regions = {Region(4, 1, 3, 2), Region(10, 2, 2, 1)}
        update = compositor.render_partial_update()
        assert isinstance(update, RowsUpdate)
        places = [(y, x, strip.text) for y, x, strip in update.parts]
        assert places == [(1, 4, "c1c"), (2, 4, "c2c"), (2, 10, "c2")]


STYLES = (
    None,
    "red on blue",
    "bold red on blue",
    "red on green",
    "on green",
    "underline",
    "white",
    "red on blue link https://a.example",
    "#102030 on #405060",
    "#102030 on #405061",
    "reverse #aabbcc",
)


def test_a_row_looks_as_textual_writes_it_and_names_only_colours_that_change() -> None:
    console, chance = Console(color_system="truecolor", force_terminal=True), random.Random(5)
    ours = theirs = 0
    for _ in range(300):
        parts = [
            Segment(f"{n}ab", None if style is None else Style.parse(style))
            for n, style in enumerate(chance.choices(STYLES, k=8))
        ]
        written = RowsUpdate([(0, 0, Strip(parts))]).render_segments(console)
        wanted = "\x1b[1;1H" + Strip(parts).render(console)
        looks: list[list[object]] = []
        for output in (written, wanted):
            screen = pyte.Screen(40, 2)
            # A link is a sequence of its own, which this terminal does not know.
            pyte.Stream(screen).feed(re.sub(r"\x1b\]8;[^\x1b]*\x1b\\", "", output))
            screen.draw("z")
            looks.append([screen.buffer[0][x] for x in range(40)])
        assert looks[0] == looks[1]
        assert re.findall(r"\]8;[^\x1b]*", written) == re.findall(r"\]8;[^\x1b]*", wanted)
        ours, theirs = ours + len(written), theirs + len(wanted)
    assert ours < 0.95 * theirs


async def test_a_widget_that_grows_is_one_layout(monkeypatch: pytest.MonkeyPatch) -> None:
    app = Desk()
    async with app.run_test(size=(30, 12)) as pilot:
        await app.push_screen(Sheet())
        await pilot.pause()
        layouts = 0
        reflow = Compositor.reflow

        def count(compositor: Compositor, parent: Widget, size: Size) -> ReflowResult:
            nonlocal layouts
            layouts += 1
            return reflow(compositor, parent, size)

        monkeypatch.setattr(Compositor, "reflow", count)
        app.screen.query_one("#a").styles.width = 12
        for _ in range(3):
            await pilot.pause()
        assert app.screen.query_one("#a").virtual_size.width == 12
        assert layouts == 1


async def test_a_screen_of_another_size_is_drawn_once_its_widgets_know_of_it() -> None:
    app = Desk()
    async with app.run_test(size=(30, 12)) as pilot:
        await app.push_screen(Sheet())
        await pilot.pause()
        rows = app.screen.query_one("#b", Rows)
        rows.drawn_at.clear()
        await pilot.resize_terminal(40, 14)
        await pilot.pause()
        assert rows.drawn_at
        assert {told for _, told in rows.drawn_at} == {Size(30, 14)}
        assert {size for size, _ in rows.drawn_at} == {Size(30, 14)}


async def test_a_widget_that_was_placed_anew_between_two_layouts_is_drawn_and_told_its_size() -> (
    None
):
    app = Desk()
    async with app.run_test(size=(30, 12)) as pilot:
        await app.push_screen(screen := Sheet())
        await pilot.pause()
        compositor, rows = screen._compositor, screen.query_one("#b", Rows)
        compositor.render_full_update()
        screen.query_one("#a").styles.width = 12
        # This is what a click or the pointer does while a widget has changed that cannot be seen.
        screen._clear_arrangement_cache()
        compositor.update_widgets({Widget()})
        assert len(compositor.cuts) == 12
        assert compositor.find_widget(rows).region == Region(12, 0, 18, 12)
        assert compositor.render_strips()[0].text == "a0" * 6 + "b0" * 9
        screen._refresh_layout()
        await pilot.pause()
        assert rows.told == Size(18, 12)
        update = compositor.render_partial_update()
        assert isinstance(update, RowsUpdate)
        drawn = cells_of(update.parts)
        assert drawn[0, 10] == "a"
        assert drawn[0, 12] == "b"


async def test_what_was_scrolled_and_is_scrolled_back_by_a_layout_is_drawn() -> None:
    app = App[None]()
    async with app.run_test(size=(30, 4)) as pilot:
        screen = Screen[None]()
        draw_changed_rows(screen)
        await app.push_screen(screen)
        await screen.mount(pane := VerticalScroll(*[Rows(letter) for letter in "pqrs"]))
        for one in pane.children:
            one.styles.height = 4
        await pilot.pause()
        compositor = screen._compositor
        compositor.render_full_update()
        for y in (4, 0):
            pane.scroll_to(y=y, animate=False, immediate=True)
            screen._scroll_required = False
            screen._refresh_layout(scroll=y > 0)
            update = compositor.render_partial_update()
            assert isinstance(update, RowsUpdate)
            assert cells_of(update.parts)[0, 0] == ("q" if y else "p")


async def test_a_frame_that_the_app_holds_back_is_drawn_later() -> None:
    app = App[None]()
    async with app.run_test(size=(30, 4)) as pilot:
        screen = Screen[None]()
        draw_changed_rows(screen)
        await app.push_screen(screen)
        await pilot.pause()
        compositor = screen._compositor
        for changed in (Region(4, 1, 3, 2), app.size.region):
            compositor._dirty_regions = {changed}
            with app.batch_update():
                assert compositor.render_update() is None
            assert compositor._dirty_regions == {changed}


class Noting(Rows, NotesDrawn):
    """Knows which rows it was asked for when it was told that they are drawn."""

    def __init__(self) -> None:
        super().__init__("n")
        self.drawn: list[set[int]] = []

    def note_drawn(self) -> None:
        self.drawn.append({*self.asked})
        self.asked.clear()


async def test_rows_count_as_drawn_in_an_update_alone_and_not_when_a_style_is_looked_up() -> None:
    app = App[None]()
    async with app.run_test(size=(30, 4)) as pilot:
        screen = Screen[None]()
        draw_changed_rows(screen)
        await app.push_screen(screen)
        await screen.mount(one := Noting())
        await pilot.pause()
        compositor = screen._compositor
        compositor.render_full_update()
        one.drawn.clear()
        compositor.get_style_at(3, 2)
        assert not one.drawn
        one.asked.clear()
        compositor._dirty_regions = {Region(0, 1, 5, 1)}
        assert compositor.render_partial_update() is not None
        assert one.drawn == [{1}]


class Cover(ModalScreen[None]):
    """Covers the rows `a` of a `Sheet` and lets the others shine through."""

    CSS = """
    Cover { background: black 50%; }
    #cover { width: 10; height: 100%; background: black; }
    """

    def __init__(self) -> None:
        super().__init__()
        draw_changed_rows(self)

    def compose(self) -> ComposeResult:
        yield Widget(id="cover")


def regions_drawn(monkeypatch: pytest.MonkeyPatch) -> list[set[Region]]:
    """Return a list that gets the regions drawn by each frame from now on."""
    drawn: list[set[Region]] = []
    update = RowCompositor.render_update

    def note(
        self: RowCompositor,
        full: bool = False,
        screen_stack: list[Screen[Any]] | None = None,
        simplify: bool = False,
    ) -> RenderableType | None:
        drawn.append(set(self._dirty_regions))
        return update(self, full, screen_stack, simplify)

    monkeypatch.setattr(RowCompositor, "render_update", note)
    return drawn


@pytest.mark.exhaustive
async def test_of_a_screen_below_only_what_can_be_seen_and_has_changed_is_drawn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app = Desk()
    async with app.run_test(size=(30, 12)) as pilot:
        below = Sheet()
        await app.push_screen(below)
        await app.push_screen(Cover())
        for _ in range(3):
            await pilot.pause()
        drawn = regions_drawn(monkeypatch)
        covered, seen = below.query_one("#a"), below.query_one("#b")
        for row in range(1, 4):
            drawn.clear()
            covered.refresh(Region(0, row, 4, 1))
            seen.refresh(Region(0, row, 4, 1))
            while not drawn:
                await pilot.pause()
            assert drawn == [{Region(10, row, 4, 1)}]


@pytest.mark.exhaustive
async def test_what_changes_below_two_screens_is_seen_through_both(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app = Desk()
    async with app.run_test(size=(30, 12)) as pilot:
        below = Sheet()
        for screen in (below, Cover(), Cover()):
            await app.push_screen(screen)
            for _ in range(3):
                await pilot.pause()
        drawn = regions_drawn(monkeypatch)
        seen = below.query_one("#b", Rows)
        for row in range(1, 4):
            drawn.clear()
            seen.asked.clear()
            seen.refresh(Region(0, row, 4, 1))
            while not drawn:
                await pilot.pause()
            assert row in seen.asked


async def test_a_widget_is_drawn_that_changes_together_with_the_screen_below(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app = Desk()
    async with app.run_test(size=(30, 12)) as pilot:
        below, above = Sheet(), Cover()
        for screen in (below, above):
            await app.push_screen(screen)
            for _ in range(3):
                await pilot.pause()
        cover, drawn = above.query_one("#cover"), regions_drawn(monkeypatch)
        cover.refresh(Region(0, 5, 4, 1))
        await pilot.app.wait_for_refresh()
        for row in range(1, 4):
            drawn.clear()
            # Both are noted before the frame: the screen is named for what has changed below.
            above._dirty_widgets.add(cover)
            cover.refresh(Region(2, row, 4, 1))
            above.refresh(Region(20, row, 4, 1))
            while not drawn:
                await pilot.pause()
            assert {Region(2, row, 4, 1), Region(20, row, 4, 1)} <= set().union(*drawn)


async def test_the_text_of_a_screen_has_what_shows_through_a_dialog_before_a_frame_is_drawn() -> (
    None
):
    app = Desk()
    async with app.run_test(size=(30, 12)) as pilot:
        for screen in (Sheet(), Cover()):
            await app.push_screen(screen)
        await pilot.pause()
        # The first reading takes the screens below that the last frame may have left to it.
        for _ in range(2):
            app.screen.refresh()
            assert "b2b2" in text_of(app)


class LeavesLate(Widget):
    """Leaves the screen when it is told to, taller than the screen until then."""

    DEFAULT_CSS = "LeavesLate { height: 40; }"

    def __init__(self) -> None:
        super().__init__()
        self.may_leave = asyncio.Event()

    async def on_unmount(self) -> None:
        await self.may_leave.wait()


async def test_a_frame_while_a_pane_is_removed_leaves_out_what_has_been_removed() -> None:
    app = App[None]()
    async with app.run_test(size=(30, 12)) as pilot:
        screen = Screen[None]()
        draw_changed_rows(screen)
        await app.push_screen(screen)
        pane, late = VerticalScroll(), LeavesLate()
        use_thin_scrollbar(pane)
        await screen.mount(pane)
        await pane.mount(late)
        await pilot.pause()
        bar = pane.vertical_scrollbar
        compositor = screen._compositor
        assert bar in compositor.visible_widgets
        leaving = pane.remove()
        try:
            assert await until(lambda: not bar.has_parent)
            assert bar in compositor.visible_widgets
            assert [strip.cell_length for strip in compositor.render_strips(app.size)] == [30] * 12
            compositor._dirty_regions = {app.size.region}
            update = compositor.render_partial_update()
            assert update is not None
            assert isinstance(update, RowsUpdate)
            assert len(cells_of(update.parts)) == app.size.width * app.size.height
        finally:
            late.may_leave.set()
            await leaving

"""The scrollbar that every pane has, as the mouse drags it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from textual import events
from textual.app import App, ComposeResult
from textual.containers import VerticalScroll
from textual.geometry import Region, Size
from textual.pilot import Pilot
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widgets import Static

from kimi_tui.tui.scrollbar import take_height, use_thin_scrollbar

N_ROWS = 200
HEIGHT = 20


class Rows(App[None]):
    """A pane of more rows than there is room for."""

    CSS = "VerticalScroll { scrollbar-size-vertical: 1; }"

    def compose(self) -> ComposeResult:
        pane = VerticalScroll(Static("\n".join(f"row {n}" for n in range(N_ROWS))))
        use_thin_scrollbar(pane)
        yield pane

    @property
    def pane(self) -> VerticalScroll:
        return self.query_one(VerticalScroll)


class Blank(ScrollView):
    def render_line(self, y: int) -> Strip:
        return Strip.blank(self.size.width)


class Heights(App[None]):
    """A pane that knows only how high its content is."""

    CSS = "ScrollView { scrollbar-size-vertical: 1; overflow-x: hidden; overflow-y: auto; }"

    def compose(self) -> ComposeResult:
        yield Blank()


def mouse(kind: type[events.MouseEvent], y: int) -> events.MouseEvent:
    """Return an event of the mouse in the last column."""
    return kind(None, 39, y, 0, 0, 1, shift=False, meta=False, ctrl=False, screen_x=39, screen_y=y)


async def until(pilot: Pilot[None], condition: Callable[[], bool]) -> None:
    """Let the app work until something holds."""
    async with asyncio.timeout(30):
        while not condition():
            await pilot.pause()


@pytest.mark.sample
@pytest.mark.parametrize("to", [[10], [2, 6, 10]])
async def test_a_drag_that_comes_in_one_read_moves_it_and_lets_go(to: list[int]) -> None:
    app = Rows()
    async with app.run_test(size=(40, HEIGHT)) as pilot:
        # All of it is in the queue before anything of it is handled.
        for event in (
            mouse(events.MouseDown, 0),
            *(mouse(events.MouseMove, y) for y in to),
            mouse(events.MouseUp, to[-1]),
        ):
            app.post_message(event)
        await until(pilot, lambda: app.pane.scroll_y == to[-1] * N_ROWS / HEIGHT)
        await until(pilot, lambda: app.mouse_captured is None)
        # Nothing hangs on the pointer any more.
        app.post_message(mouse(events.MouseMove, 15))
        await pilot.pause()
        assert app.pane.scroll_y == to[-1] * N_ROWS / HEIGHT


@pytest.mark.exhaustive
async def test_a_slow_drag_moves_it_too() -> None:
    app = Rows()
    async with app.run_test(size=(40, HEIGHT)) as pilot:
        for event in (
            mouse(events.MouseDown, 0),
            mouse(events.MouseMove, 5),
            mouse(events.MouseUp, 5),
        ):
            app.post_message(event)
            await pilot.pause()
        await until(pilot, lambda: app.pane.scroll_y == 5 * N_ROWS / HEIGHT)
        await until(pilot, lambda: app.mouse_captured is None)


async def test_beside_the_bar_a_click_moves_it_by_a_page() -> None:
    app = Rows()
    async with app.run_test(size=(40, HEIGHT)) as pilot:
        app.pane.scroll_to(y=0, animate=False)
        app.post_message(mouse(events.MouseDown, 15))
        app.post_message(mouse(events.MouseUp, 15))
        await until(pilot, lambda: app.pane.scroll_y > 0)
        await until(pilot, lambda: app.mouse_captured is None)


async def test_a_pane_takes_another_height_without_a_layout_as_long_as_its_bar_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app = Heights()
    async with app.run_test(size=(40, HEIGHT)) as pilot:
        pane = app.query_one(Blank)
        assert not take_height(pane, N_ROWS, 0)  # the bar comes
        pane.virtual_size = Size(39, N_ROWS)
        await pilot.pause()
        painted: list[tuple[int, list[int]]] = []
        bar = pane.vertical_scrollbar

        def note(region: Region) -> None:
            painted.append((bar.window_virtual_size, [*region.line_range]))

        with monkeypatch.context() as patched:
            patched.setattr(bar, "refresh", note)
            assert take_height(pane, N_ROWS + 1, N_ROWS + 1 - HEIGHT)
            # At the end of what grows slowly the bar looks the same.
            assert take_height(pane, N_ROWS + 2, N_ROWS + 2 - HEIGHT)
        assert pane.max_scroll_y == N_ROWS + 2 - HEIGHT
        # Of the two cells of the bar at the top, and of those at the end.
        assert painted == [(N_ROWS + 1, [0, 1]), (N_ROWS + 1, [18, 19])]
        assert not take_height(pane, HEIGHT, 0)  # it goes

# pyright: reportPrivateUsage=false
from __future__ import annotations

import asyncio
from typing import ClassVar

from support.watching import until
from textual.app import App
from textual.screen import Screen
from textual.widget import Widget

from kimi_tui.tui.faults import Callbacks, report_of
from kimi_tui.tui.textual_patches.frames import FrameTimer, draw_when_wanted


class Counted(Screen[None]):
    """Knows when its frames were drawn, in seconds."""

    def __init__(self) -> None:
        super().__init__()
        self.drawn_at: list[float] = []
        draw_when_wanted(self, Callbacks(report_of(self)).call_at)

    def _on_timer_update(self) -> None:
        self.drawn_at.append(asyncio.get_running_loop().time())
        super()._on_timer_update()


async def test_a_frame_is_drawn_when_one_is_wanted_and_no_timer_runs_between() -> None:
    app = App[None]()
    async with app.run_test(size=(30, 4)) as pilot:
        screen = Counted()
        await app.push_screen(screen)
        await screen.mount(one := Widget())
        await pilot.pause()
        assert await until(lambda: screen._update_timer._handle is None)  # type: ignore[attr-defined]
        assert isinstance(screen._update_timer, FrameTimer)
        assert not screen._timers
        n_drawn = len(screen.drawn_at)
        one.refresh()
        assert await until(lambda: len(screen.drawn_at) > n_drawn)
        assert screen._update_timer._handle is None


async def test_two_frames_are_a_period_apart_and_a_paused_one_is_not_drawn() -> None:
    app = App[None]()
    async with app.run_test(size=(30, 4)) as pilot:
        screen = Counted()
        await app.push_screen(screen)
        await pilot.pause()
        timer = FrameTimer(screen, Callbacks(report_of(screen)).call_at, period_s=0.03)
        screen.drawn_at.clear()
        timer.resume()
        timer.resume()
        assert await until(lambda: len(screen.drawn_at) == 1)
        timer.resume()
        timer.pause()
        timer.resume()
        assert await until(lambda: len(screen.drawn_at) == 2)
        first, second = screen.drawn_at
        assert second - first >= 0.03


async def test_an_error_while_a_frame_is_drawn_is_reported_and_the_next_one_is_drawn() -> None:
    class Broken(Counted):
        is_broken = False

        def _on_timer_update(self) -> None:
            if self.is_broken:
                self.is_broken = False
                raise ValueError("no frame")
            super()._on_timer_update()

    class Reporting(App[None]):
        seen: ClassVar[list[str]] = []

        def report(self, error: Exception) -> None:
            self.seen.append(str(error))

    app = Reporting()
    async with app.run_test(size=(30, 4)) as pilot:
        screen = Broken()
        await app.push_screen(screen)
        await pilot.pause()
        screen.is_broken = True
        screen.refresh()
        assert await until(lambda: app.seen == ["no frame"])
        n_drawn = len(screen.drawn_at)
        screen.refresh()
        assert await until(lambda: len(screen.drawn_at) > n_drawn)
    assert app._exception is None

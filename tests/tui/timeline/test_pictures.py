"""Pictures of the timeline and the gauge: in a wide and a narrow pane, in ASCII and sixteen colours."""

from __future__ import annotations

import time

import pytest
from support.pictures import Pictures
from support.story import until_arrived, whole_story
from support.time_travel_app import TimeTravelApp

from kimi_tui.tui.glyphs import ASCII


@pytest.fixture(autouse=True)
def _utc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()


async def test_the_story(picture: Pictures) -> None:
    app = TimeTravelApp(whole_story().records)
    async with app.run_test(size=(120, 40)) as pilot:
        app.timeline.focus()
        await pilot.pause()
        picture(app)


async def test_a_d_mail_and_its_world_line(picture: Pictures) -> None:
    app = TimeTravelApp(until_arrived().records)
    async with app.run_test(size=(120, 40)) as pilot:
        model = app.timeline.model
        assert model is not None
        app.timeline.focus()
        app.timeline.select_checkpoint(model.tree.live[8])
        await pilot.press("down", "space", "home", "down")
        await pilot.pause()
        picture(app)


async def test_a_narrow_pane(picture: Pictures) -> None:
    app = TimeTravelApp(whole_story().records, timeline_width=24)
    async with app.run_test(size=(104, 40)):
        picture(app)


async def test_ascii(picture: Pictures) -> None:
    app = TimeTravelApp(whole_story().records, glyphs=ASCII)
    async with app.run_test(size=(120, 40)):
        picture(app)


@pytest.mark.exhaustive
async def test_sixteen_colours(picture: Pictures) -> None:
    app = TimeTravelApp(whole_story().records, theme="kimi-16")
    async with app.run_test(size=(120, 40)) as pilot:
        app.timeline.focus()
        await pilot.pause()
        picture(app)


async def test_nothing_has_happened_yet(picture: Pictures) -> None:
    app = TimeTravelApp()
    async with app.run_test(size=(120, 40)):
        picture(app)

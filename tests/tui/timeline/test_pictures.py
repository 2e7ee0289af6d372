"""Pictures of the timeline and the gauge: in a wide and a narrow pane, in ASCII and sixteen colours."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from support.pictures import Pictures
from support.story import until_arrived, whole_story
from support.time_travel_app import TimeTravelApp

from kimi_tui.tui.glyphs import ASCII
from kimi_tui.wire.events import FutureChanged


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


async def test_futures_that_run(picture: Pictures) -> None:
    app = TimeTravelApp(whole_story().records)
    async with app.run_test(size=(120, 40)) as pilot:
        live = app.timeline.model.tree.live
        begins = {"group": "g", "checkpoint_id": live[-3].id, "uid": live[-3].uid}
        one = FutureChanged("a", number=1, name="Use a set", state="running", step=4, **begins)
        used = {"input": 18_000, "output": 400, "cost": 0.02, "model": "moonshot/kimi-k2"}
        asks = {"number": 2, "name": "Rewrite it", "state": "asking", "asks": ("r1",)}
        app.timeline.model.show_futures(
            (
                replace(one, **used),
                replace(one, key="b", **asks),
                replace(one, key="c", number=3, state="done", check="passed"),
                replace(one, key="d", number=4, state="done", check="failed", check_exit=1),
            )
        )
        app.timeline.changed(motion=False)
        app.timeline.focus()
        app.timeline.select(("future b", 0))
        await pilot.pause()
        picture(app)

"""How the timeline and the gauge look: in a wide and a narrow pane, in ASCII and sixteen colours."""

from __future__ import annotations

import time

import pytest
from support.story import until_arrived, whole_story
from support.time_travel_app import TimeTravelApp
from syrupy.assertion import SnapshotAssertion

from kimi_tui.tui.glyphs import ASCII


@pytest.fixture(autouse=True)
def _utc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()


async def test_the_story(picture: SnapshotAssertion) -> None:
    app = TimeTravelApp(whole_story().records)
    async with app.run_test(size=(120, 40)) as pilot:
        app.timeline.focus()
        await pilot.pause()
        assert app.export_screenshot() == picture


async def test_a_d_mail_and_its_world_line(picture: SnapshotAssertion) -> None:
    app = TimeTravelApp(until_arrived().records)
    async with app.run_test(size=(120, 40)) as pilot:
        model = app.timeline.model
        assert model is not None
        app.timeline.focus()
        app.timeline.select_checkpoint(model.tree.live[8])
        await pilot.press("down", "space", "home", "down")
        await pilot.pause()
        assert app.export_screenshot() == picture


async def test_a_narrow_pane(picture: SnapshotAssertion) -> None:
    app = TimeTravelApp(whole_story().records, timeline_width=24)
    async with app.run_test(size=(104, 40)):
        assert app.export_screenshot() == picture


async def test_ascii(picture: SnapshotAssertion) -> None:
    app = TimeTravelApp(whole_story().records, glyphs=ASCII)
    async with app.run_test(size=(120, 40)):
        assert app.export_screenshot() == picture


async def test_sixteen_colours(picture: SnapshotAssertion) -> None:
    app = TimeTravelApp(whole_story().records, theme="kimi-16")
    async with app.run_test(size=(120, 40)) as pilot:
        app.timeline.focus()
        await pilot.pause()
        assert app.export_screenshot() == picture


async def test_nothing_has_happened_yet(picture: SnapshotAssertion) -> None:
    app = TimeTravelApp()
    async with app.run_test(size=(120, 40)):
        assert app.export_screenshot() == picture

"""A fault in the timeline is told, and the timeline goes on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.story import many_turns
from support.time_travel_app import TimeTravelApp, press, selected_row

from kimi_tui.projection.timeline_rows import Builder, TimelineRow
from kimi_tui.tui.timeline import timeline


class ReportingApp(TimeTravelApp):
    """Keeps what is reported."""

    def __init__(self, *args: object, **options: object) -> None:
        super().__init__(*args, **options)  # type: ignore[arg-type]
        self.reported: list[str] = []

    def report(self, error: Exception) -> None:
        """Take an error that ends nothing."""
        self.reported.append(str(error))


class Fault:
    """Rows cannot be built from a checkpoint of the live line on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.at = -1
        live = Builder.live

        def broken(builder: Builder, start: int, end: int) -> Iterator[TimelineRow | None]:
            if start <= self.at < end:
                yield from live(builder, start, self.at)
                raise RuntimeError("this row is broken")
            yield from live(builder, start, end)

        monkeypatch.setattr(Builder, "live", broken)


@pytest.fixture
def fault(monkeypatch: pytest.MonkeyPatch) -> Fault:
    """None so far."""
    return Fault(monkeypatch)


@pytest.mark.exhaustive
@pytest.mark.parametrize("at_once", [500, 20], ids=["at once", "in slices"])
async def test_a_filter_that_fails_is_told_and_can_be_changed(
    fault: Fault, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr(timeline, "_AT_ONCE", at_once)
    monkeypatch.setattr(timeline, "_SLICE_S", 0.0)
    app = ReportingApp(many_turns(60).records)
    async with app.run_test(size=(120, 40)) as pilot:
        app.timeline.focus()
        await press(pilot, "slash")
        fault.at = 150
        await press(pilot, "t")
        while len(app.workers) or not app.reported:
            await pilot.pause()
        assert app.reported == ["this row is broken"]
        fault.at = -1
        await press(pilot, "u", "r", "n")
        while len(app.workers):
            await pilot.pause()
        await pilot.pause()
        assert "60 found" in app.rows[0]
        await press(pilot, "escape", "down")
        assert selected_row(app)
        assert len(app.reported) == 1


@pytest.mark.sample
@pytest.mark.parametrize("at_once", [10_000, 20], ids=["at once", "in slices"])
async def test_rows_that_cannot_be_built_are_told_of_and_passed_over(
    fault: Fault, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr(timeline, "_AT_ONCE", at_once)
    story = many_turns(60)
    app = ReportingApp(story.records)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        n_told = len(story.records)
        left = story.rewind(3)
        story.jump(left, op="undo")
        fault.at = 150
        app.feed(story.records[n_told:])
        while len(app.workers) or not app.reported:
            await pilot.pause()
        fault.at = -1
        n_told = len(story.records)
        story.turn("What comes now")
        app.feed(story.records[n_told:])
        await pilot.pause()
        assert app.reported == ["this row is broken"]
        # The rows before the fault are there, and so are later ones.
        assert any("What comes now" in row for row in app.rows)
        app.timeline.focus()
        await press(pilot, "end", "up", "space", "space")
        assert selected_row(app)
        assert app.reported == ["this row is broken"]

"""Filtering the timeline, and what is selected on it while the line changes."""

from __future__ import annotations

import pytest
from support.effort import n_calls
from support.story import Teller, many_turns, whole_story
from support.time_travel_app import TimeTravelApp, press, selected_row
from textual import events

from kimi_tui.projection.timeline import TimelineModel
from kimi_tui.tui.timeline import timeline
from kimi_tui.tui.timeline.timeline import Timeline


@pytest.mark.exhaustive
async def test_the_filter_shows_what_matches_on_every_line() -> None:
    app = TimeTravelApp(whole_story().records)
    async with app.run_test(size=(120, 40)) as pilot:
        app.timeline.focus()
        await press(pilot, "slash", *"import")
        title = app.rows[0]
        assert title.startswith(" / import▌")
        # Four checkpoints on the live line, four on world line 3 and 1.
        assert any("#11 Read import.log" in row for row in app.rows)
        assert any("3   Use re.find" in row for row in app.rows)
        assert not any("git diff" in row for row in app.rows)
        found = sum("#" in row for row in app.rows[2:])
        assert f"{found} found" in title
        await press(pilot, "backspace", "enter")
        assert app.rows[0].startswith(" / impor ")
        await press(pilot, "escape")
        assert any("git diff" in row for row in app.rows)
        assert not any(isinstance(m, Timeline.Left) for m in app.posted)
        await press(pilot, "escape")
        assert any(isinstance(m, Timeline.Left) for m in app.posted)
        assert selected_row(app) == ""


@pytest.mark.exhaustive
async def test_a_long_session_is_looked_through_while_keys_are_typed() -> None:
    teller = Teller()
    teller.turn("A long day")
    for number in range(2_500):
        teller.step(("Shell", {"command": f"make part{number}"}), cost=1)
    app = TimeTravelApp(teller.records)
    async with app.run_test(size=(120, 40)) as pilot:
        app.timeline.focus()
        await pilot.pause()
        await pilot.press("slash", *"part1999")
        # The words are there at once, what holds them a little later: the newest word wins.
        assert "part1999" in app.rows[0]
        while len(app.workers):
            await pilot.pause()
        await pilot.pause()
        assert "1 found" in app.rows[0]
        assert "#2000 Shell make part" in selected_row(app)
        await press(pilot, "escape", "space", "slash")
        # Two keys at once: what the first one looked for must not come back after the second.
        app.timeline.on_key(events.Key("p", "p"))
        app.timeline.on_key(events.Key("escape", None))
        await pilot.pause()
        while len(app.workers):
            await pilot.pause()
        assert "found" not in app.rows[0]


async def test_letters_typed_into_the_filter_are_no_keys() -> None:
    app = TimeTravelApp(whole_story().records)
    async with app.run_test(size=(120, 40)) as pilot:
        app.timeline.focus()
        await press(pilot, "slash", "u", "j", "k", "space", "U")
        assert app.timeline.model is not None
        assert app.rows[0].startswith(" / ujk U▌")
        assert app.commands == []


async def test_a_key_that_is_none_of_the_filter_moves_among_what_it_found() -> None:
    app = TimeTravelApp(whole_story().records)
    async with app.run_test(size=(120, 40)) as pilot:
        app.timeline.focus()
        await press(pilot, "slash", "g", "r", "e", "p")
        assert "#9 Grep" in selected_row(app)
        await press(pilot, "end")
        assert app.rows[0].split() == ["/", "grep▌", "2", "found"]
        assert "#9 Grep" not in selected_row(app)


@pytest.mark.exhaustive
async def test_a_filter_typed_in_one_go_misses_no_letter() -> None:
    app = TimeTravelApp(whole_story().records)
    async with app.run_test(size=(120, 40)) as pilot:
        app.timeline.focus()
        await pilot.pause()
        for key, character in (("slash", "/"), ("g", "g"), ("r", "r"), ("e", "e"), ("p", "p")):
            app.post_message(events.Key(key, character))
        await pilot.pause()
        assert app.rows[0].split() == ["/", "grep▌", "2", "found"]
        assert "#9 Grep" in selected_row(app)


async def test_what_is_pasted_belongs_to_the_filter_while_one_is_typed() -> None:
    app = TimeTravelApp(whole_story().records)
    async with app.run_test(size=(120, 40)) as pilot:
        app.timeline.focus()
        await pilot.pause()
        app.post_message(events.Paste("grep"))
        await pilot.pause()
        assert app.rows[0].startswith(" Timeline")
        await press(pilot, "slash", "g")
        app.post_message(events.Paste("rep\n \x1b[31m"))
        await pilot.pause()
        assert app.rows[0].split() == ["/", "grep▌", "2", "found"]


@pytest.mark.exhaustive
async def test_a_long_line_that_is_live_again_is_built_in_slices(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(timeline, "_SLICE_S", 0.0)
    monkeypatch.setattr(timeline, "_AT_ONCE", 100)
    story = many_turns(200)
    app = TimeTravelApp(story.records)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        model = app.timeline.model
        assert model is not None
        n_told, n_rows = len(story.records), len(model.rows)
        left = story.rewind(3)
        app.feed(story.records[n_told:])
        await pilot.pause()
        n_told = len(story.records)
        story.jump(left, op="undo")
        app.feed(story.records[n_told:])
        # Nothing is built in the callback that tells of it, and every later one does a part.
        assert model.rows.n_missing > 2 * timeline._AT_ONCE  # pyright: ignore[reportPrivateUsage]
        while model.rows.n_missing:
            await pilot.pause()
        assert len(model.rows) == n_rows
        await pilot.pause()
        assert any("Turn 199" in row for row in app.rows)


async def test_a_selected_row_that_is_taken_away_is_selected_no_more() -> None:
    story = many_turns(10)
    app = TimeTravelApp(story.records)
    async with app.run_test(size=(120, 40)) as pilot:
        app.timeline.focus()
        await pilot.pause()
        assert app.timeline._view.selected is not None
        n_told = len(story.records)
        story.rewind(5)
        app.feed(story.records[n_told:])
        assert app.timeline._view.selected is None
        await press(pilot, "down")
        assert "Turn" in selected_row(app)


@pytest.mark.exhaustive
def test_a_row_is_looked_for_where_one_was_before() -> None:
    model = TimelineModel()
    for record in many_turns(200).records:
        model.apply(record)
    rows = model.rows
    for at in (0, 3, 500, len(rows) - 1):
        for before in (0, at - 40, min(at + 40, len(rows) - 1)):
            assert rows.index_of(rows[before].key) == before % len(rows)
            assert rows.index_of(rows[at].key) == at
    assert rows.index_of(("checkpoint", -7)) is None
    rows.index_of(rows[0].key)
    whole = n_calls(lambda: rows.index_of(rows[900].key))
    one_step = n_calls(lambda: rows.index_of(rows[880].key))
    assert one_step < whole / 3


@pytest.mark.exhaustive
async def test_a_filter_that_finds_nothing_says_so_and_gives_the_selection_back() -> None:
    app = TimeTravelApp(whole_story().records)
    async with app.run_test(size=(120, 40)) as pilot:
        app.timeline.focus()
        await press(pilot, "left_square_bracket", "up")
        before = selected_row(app)
        assert "#7 Glob" in before
        await press(pilot, "slash", *"importer")
        assert selected_row(app) != before
        await press(pilot, *"zz")
        assert "0 found" in app.rows[0]
        # There is nothing to go to: Enter leaves the text to be changed.
        await press(pilot, "enter", "down")
        assert app.timeline.filter_state == "missed"
        assert any("No step, tool or file" in row for row in app.rows)
        await press(pilot, "escape")
        assert selected_row(app) == before
        # A kept filter with matches keeps the selection; one without matches leaves the old selection.
        await press(pilot, "slash", *"grep", "enter", "escape")
        assert "#9 Grep" in selected_row(app)
        await press(pilot, "slash", *"zz", "enter", "escape")
        assert "#9 Grep" in selected_row(app)
        await press(pilot, "slash")
        assert app.timeline.filter_state == "begun"
        await press(pilot, "enter")
        assert app.timeline.filter_state == ""
        assert "#9 Grep" in selected_row(app)
        await press(pilot, "home")
        await press(pilot, "escape")


@pytest.mark.exhaustive
async def test_a_folded_turn_keeps_its_branches_in_sight() -> None:
    app = TimeTravelApp(whole_story().records)
    async with app.run_test(size=(120, 40)) as pilot:
        app.timeline.focus()
        await press(pilot, "left_square_bracket", "space")
        assert "#6 Why" in selected_row(app)
        assert "+4" in selected_row(app)
        assert any("├─◊" in row for row in app.rows[5:15])
        assert not any("#7 Glob" in row or "◆" in row for row in app.rows[6:])

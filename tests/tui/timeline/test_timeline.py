"""The timeline under keys and mouse."""

from __future__ import annotations

import pytest
from support.story import many_turns, until_arrived, until_folding, whole_story
from support.time_travel_app import TimeTravelApp, line_of, press, selected_row

from kimi_tui.tui.timeline.timeline import Timeline
from kimi_tui.wire.events import TextPart


async def test_focus_selects_the_newest_turn_and_arrows_go_up_and_down() -> None:
    app = TimeTravelApp(whole_story().records)
    async with app.run_test(size=(120, 40)) as pilot:
        assert selected_row(app) == ""
        app.timeline.focus()
        await pilot.pause()
        assert "#11 Fields" in selected_row(app)
        await press(pilot, "up", "up")
        assert "#13 Read" in selected_row(app)
        # Down over the heading and the gap between the turns.
        await press(pilot, "down", "down", "down")
        assert "#10 Shell" in selected_row(app)
        await press(pilot, "home")
        assert "#16 now" in selected_row(app)
        await press(pilot, "end")
        assert "1   Build an" in selected_row(app)
        await press(pilot, "enter")
        assert app.chosen == []
        await press(pilot, "space")
        assert any("#63" in row for row in app.rows)


@pytest.mark.exhaustive
async def test_brackets_go_by_turn() -> None:
    app = TimeTravelApp(whole_story().records)
    async with app.run_test(size=(120, 40)) as pilot:
        app.timeline.focus()
        await press(pilot, "left_square_bracket")
        assert "#6 Why" in selected_row(app)
        await press(pilot, "left_square_bracket", "left_square_bracket")
        assert "#1 Add" in selected_row(app)
        await press(pilot, "left_square_bracket")
        assert "#1 Add" in selected_row(app)
        await press(pilot, "right_square_bracket", "right_square_bracket", "up")
        assert "#7 Glob" in selected_row(app)


async def test_braces_go_from_branch_to_branch() -> None:
    app = TimeTravelApp(whole_story().records)
    async with app.run_test(size=(120, 40)) as pilot:
        app.timeline.focus()
        await press(pilot, "left_curly_bracket")
        assert "◊ 3   Use re" in selected_row(app)
        await press(pilot, "left_curly_bracket", "left_curly_bracket")
        assert "◊ 1   Build" in selected_row(app)
        await press(pilot, "left_curly_bracket", "right_curly_bracket")
        assert "◊ 2   Use a" in selected_row(app)


@pytest.mark.exhaustive
async def test_enter_and_a_click_choose_a_checkpoint() -> None:
    app = TimeTravelApp(whole_story().records)
    async with app.run_test(size=(120, 40)) as pilot:
        app.timeline.focus()
        await press(pilot, "enter")
        assert app.chosen == [(11, 0)]
        await pilot.click(Timeline, offset=(20, line_of(app, "#7 Glob")))
        await pilot.pause()
        assert app.chosen == [(11, 0), (7, 0)]
        assert "#7 Glob" in selected_row(app)


@pytest.mark.exhaustive
async def test_a_click_unfolds_a_world_line_and_its_steps_can_be_chosen() -> None:
    app = TimeTravelApp(whole_story().records)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.click(Timeline, offset=(10, line_of(app, "Use re.find")))
        await pilot.pause()
        assert "#12 D-Mail to #8" in app.rows[line_of(app, "D-Mail to")]
        await pilot.click(Timeline, offset=(15, line_of(app, "#11 Read")))
        await pilot.pause()
        assert app.chosen == [(11, 3)]
        app.timeline.focus()  # a click leaves the focus unchanged
        await press(pilot, "space")
        assert not any("#12 D-Mail to" in row for row in app.rows)
        assert "Use re.find" in selected_row(app)


@pytest.mark.exhaustive
async def test_a_turn_folds_by_space_and_by_a_click_on_its_mark() -> None:
    app = TimeTravelApp(whole_story().records)
    async with app.run_test(size=(120, 40)) as pilot:
        app.timeline.focus()
        await press(pilot, "up", "space")
        assert "#11 Fields" in selected_row(app)
        assert "+5" in selected_row(app)
        assert not any("#13" in row for row in app.rows)
        await press(pilot, "space")
        assert any("#13" in row for row in app.rows)
        await pilot.click(Timeline, offset=(1, line_of(app, "#6 Why")))
        await pilot.pause()
        assert not any("#7 Glob" in row for row in app.rows)
        assert app.chosen == []


async def test_a_folded_turn_counts_new_steps() -> None:
    story = whole_story()
    app = TimeTravelApp(story.records)
    async with app.run_test(size=(120, 40)) as pilot:
        app.timeline.focus()
        await press(pilot, "space")
        first = len(story.records)
        story.step(("Shell", {"command": "ls"}))
        app.feed(story.records[first:])
        await pilot.pause()
        assert "+6" in selected_row(app)


@pytest.mark.exhaustive
async def test_what_a_rewind_takes_goes_grey() -> None:
    app = TimeTravelApp(whole_story().records)
    async with app.run_test(size=(120, 40)) as pilot:
        strips = app.timeline.render_lines(app.timeline.size.region)
        before = strips[line_of(app, "#14 Edit")]
        below = strips[line_of(app, "#10 Shell")]
        app.timeline.focus()
        await pilot.pause()
        strips = app.timeline.render_lines(app.timeline.size.region)
        styles = {s.style for s in strips[line_of(app, "#14 Edit")] if s.text.strip("│ ▁▂▃▄▅▆▇█")}
        assert len(styles) == 1
        assert len({s.style for s in before if s.text.strip("│ ▁▂▃▄▅▆▇█")}) > 1
        assert strips[line_of(app, "#10 Shell")] == below


async def test_undo_redo_replay_and_keys() -> None:
    app = TimeTravelApp(whole_story().records)
    async with app.run_test(size=(120, 40)) as pilot:
        app.timeline.focus()
        await press(pilot, "u", "U", "p")
        assert app.commands == ["undo", "redo", "replay"]
        await press(pilot, "question_mark")
        assert any("preview a rewind" in row for row in app.rows)
        await press(pilot, "x")
        assert any("#16 now" in row for row in app.rows)


async def test_a_click_on_the_curve_selects_there() -> None:
    app = TimeTravelApp(whole_story().records)
    async with app.run_test(size=(120, 40)) as pilot:
        marks = next(row for row in app.rows if "≡" in row and "◆" in row)
        y = app.rows.index(marks)
        await pilot.click(Timeline, offset=(marks.index("◆"), y - 1))
        await pilot.pause()
        assert "#8 D-Mail" in selected_row(app)
        await pilot.click(Timeline, offset=(5, y - 1))
        await pilot.pause()
        # The part that a compaction replaced is unfolded as far as necessary.
        assert selected_row(app).startswith("▌┆ │ #15 Shell make check")
        await pilot.click(Timeline, offset=(1, y - 1))
        await pilot.pause()
        assert selected_row(app).startswith("▌┆ ●  #0 ")
        assert app.chosen == []


async def test_hover_has_a_band_and_its_facts() -> None:
    app = TimeTravelApp(whole_story().records)
    async with app.run_test(size=(120, 46)) as pilot:
        await pilot.hover(Timeline, offset=(20, line_of(app, "#6 Why")))
        await pilot.pause()
        assert any("Why is the import slow?" in row for row in app.rows)
        assert any("Rewinding here frees 16.5k" in row for row in app.rows)
        await pilot.hover("#chat", offset=(1, 1))
        await pilot.pause()
        assert not any("Rewinding here" in row for row in app.rows)


@pytest.mark.exhaustive
async def test_where_the_foot_has_no_room_the_facts_float_at_the_pointer() -> None:
    app = TimeTravelApp(whole_story().records)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.hover(Timeline, offset=(20, line_of(app, "#6 Why")))
        await pilot.pause()
        assert not any("Rewinding here" in row for row in app.rows)
        assert "Rewinding here frees 16.5k" in str(app.timeline.tooltip)
        await pilot.hover("#chat", offset=(1, 1))
        await pilot.pause()
        assert app.timeline.tooltip is None


@pytest.mark.exhaustive
async def test_with_a_row_selected_the_facts_of_another_float_at_the_pointer() -> None:
    app = TimeTravelApp(whole_story().records)
    async with app.run_test(size=(120, 40)) as pilot:
        app.timeline.focus()
        await pilot.pause()
        await pilot.hover(Timeline, offset=(20, line_of(app, "#7 Glob")))
        assert "Glob src/csv/*" in str(app.timeline.tooltip)
        assert any("Fields with" in row for row in app.rows[-6:])
        await pilot.hover(Timeline, offset=(20, line_of(app, "#11 Fields")))
        assert app.timeline.tooltip is None


async def test_the_heading_of_the_lowest_turn_is_held_at_the_edge() -> None:
    app = TimeTravelApp(many_turns(30).records)
    async with app.run_test(size=(120, 30)) as pilot:
        app.timeline.scroll_to(y=5, animate=False)
        await pilot.pause()
        last = app.rows[-1]
        position = next(
            i
            for i in range(len(app.rows) - 2, 0, -1)
            if "run" in app.rows[i] or "Turn" in app.rows[i]
        )
        lowest = app.rows[position]
        number = lowest.split("run ")[1].split(".")[0] if "run" in lowest else None
        assert number is not None
        assert f"Turn {number}" in last
        await pilot.click(Timeline, offset=(20, len(app.rows) - 1))
        await pilot.pause()
        assert f"Turn {number}" in selected_row(app)


async def test_what_is_looked_at_stays_in_place_while_steps_arrive() -> None:
    story = many_turns(30)
    app = TimeTravelApp(story.records)
    async with app.run_test(size=(120, 30)) as pilot:
        app.timeline.scroll_to(y=20, animate=False)
        await pilot.pause()
        before = app.rows[8:-1]
        first = len(story.records)
        story.turn("More")
        story.step(("Shell", {"command": "new"}), cost=10)
        app.feed(story.records[first:])
        await pilot.pause()
        assert app.rows[8:-1] == before
        app.timeline.scroll_to(y=0, animate=False)
        await pilot.pause()
        assert any("run new" in row or "Shell new" in row for row in app.rows)


async def test_going_down_scrolls_and_keeps_the_selection_in_view() -> None:
    app = TimeTravelApp(many_turns(30).records)
    async with app.run_test(size=(80, 24)) as pilot:
        app.timeline.focus()
        await press(pilot, *["down"] * 12)
        assert selected_row(app)
        await press(pilot, "pagedown", "pagedown", "end")
        assert "#0 Turn 0" in selected_row(app)
        await press(pilot, "home")
        assert "now" in selected_row(app)


@pytest.mark.parametrize(
    ("width", "words"),
    [
        (38, ["The steps of the agent appear", "here. Select one to rewind to", "it."]),
        (30, ["The steps of the agent", "appear here. Select one", "to rewind to it."]),
    ],
)
async def test_before_the_session_is_open_it_says_what_will_stand_here(
    width: int, words: list[str]
) -> None:
    app = TimeTravelApp(timeline_width=width)
    async with app.run_test(size=(120, 40)):
        assert app.rows[:4] == [" Timeline", "", " ●  now", ""]
        assert app.rows[4:7] == [f"    {line}" for line in words]


async def test_a_d_mail_is_shown_in_motion_and_ends_at_the_first_word() -> None:
    story = until_folding()
    app = TimeTravelApp(story.records, motion=True)
    async with app.run_test(size=(120, 40)) as pilot:
        first = len(story.records)
        story.dmail(8)
        story.begin_step()
        app.feed(story.records[first:])
        assert app.timeline.revert_progress < 1.0
        # The model is final; the drawing lags, and rows that are removed are still where they were.
        assert app.timeline.model is not None
        assert [p.id for p in app.timeline.model.tree.live] == list(range(10))
        assert any("#11 Read import.log" in row for row in app.rows)
        assert not any("Use re.find" in row for row in app.rows)
        first = len(story.records)
        story.tell(TextPart("I go straight"))
        app.feed(story.records[first:])
        await pilot.pause()
        assert app.timeline.revert_progress == 1.0
        assert any("Use re.find" in row for row in app.rows)
        assert any("#9 now" in row for row in app.rows)


@pytest.mark.exhaustive
async def test_a_key_ends_the_motion_and_reduced_motion_has_none() -> None:
    for motion in (True, False):
        story = until_folding()
        app = TimeTravelApp(story.records, motion=motion)
        async with app.run_test(size=(120, 40)) as pilot:
            app.timeline.focus()
            first = len(story.records)
            story.dmail(8)
            app.feed(story.records[first:])
            assert any("Use re.find" in row for row in app.rows) is not motion
            await press(pilot, "up")
            assert any("Use re.find" in row for row in app.rows)


@pytest.mark.exhaustive
async def test_the_motion_ends_by_itself() -> None:
    story = until_folding()
    app = TimeTravelApp(story.records, motion=True)
    async with app.run_test(size=(120, 40)) as pilot:
        first = len(story.records)
        story.rewind(6)
        app.feed(story.records[first:])
        assert not any("◊ 3   Why is" in row for row in app.rows)
        await pilot.wait_for_animation()
        await pilot.pause()
        assert any("◊ 3   Why is" in row for row in app.rows)


@pytest.mark.exhaustive
@pytest.mark.parametrize("theme", ["kimi-dark", "kimi-light"])
async def test_the_style_of_every_piece_follows_the_theme(theme: str) -> None:
    app = TimeTravelApp(until_arrived().records, theme="kimi-dark")
    async with app.run_test(size=(120, 40)) as pilot:
        app.theme = theme
        await pilot.pause()
        y = line_of(app, "D-Mail from")
        strip = app.timeline.render_lines(app.timeline.size.region)[y]
        amber = next(s.style for s in strip if "D-Mail" in s.text)
        assert amber is not None
        expected = app.get_css_variables()["kind-dmail"]
        assert amber.color is not None
        assert amber.color.get_truecolor().hex == expected


@pytest.mark.exhaustive
async def test_a_narrow_row_makes_room_for_the_scrollbar() -> None:
    app = TimeTravelApp(many_turns(30).records)
    async with app.run_test(size=(120, 30)) as pilot:
        app.timeline.styles.width = 30
        await pilot.pause()
        assert app.timeline.show_vertical_scrollbar
        now = next(row for row in app.rows if " now " in row)
        assert now[:29].rstrip().endswith("k")
        assert not now[29:].strip(" ▐")


@pytest.mark.exhaustive
@pytest.mark.parametrize("selects", [False, True], ids=["scrolled", "selected"])
async def test_other_sizes_in_between_leave_it_where_it_stood(selects: bool) -> None:
    app = TimeTravelApp(many_turns(30).records)
    async with app.run_test(size=(120, 40)) as pilot:
        app.timeline.scroll_to(y=40, animate=False)
        if selects:
            app.timeline.focus()
            await press(pilot, *["left_square_bracket"] * 12, "up")
        await pilot.pause()
        before, y = app.rows, app.timeline.scroll_offset.y
        assert y > 0
        for size in ((60, 20), (200, 160), (80, 16), (120, 40)):
            await pilot.resize_terminal(*size)
            await pilot.pause()
            if selects:
                assert selected_row(app)
        assert app.timeline.scroll_offset.y == y
        assert app.rows == before
        # A position that is scrolled to with less room stays from then on.
        await pilot.resize_terminal(120, 20)
        app.timeline.scroll_to(y=y + 7, animate=False)
        await pilot.pause()
        await pilot.resize_terminal(120, 40)
        await pilot.pause()
        assert app.timeline.scroll_offset.y == y + 7

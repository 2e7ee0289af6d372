"""The list in which an entry is chosen: by keys, clicks and the wheel, the chosen entry is always on view, and told when it changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from textual import events
from textual.app import App, ComposeResult

from kimi_tui.tui.keyboard import TOO_EARLY, SeenQuestion
from kimi_tui.tui.row_list import Look, RowList, RowModel, plain
from kimi_tui.tui.row_window import ListState, RowWindow
from kimi_tui.tui.rows import Line
from kimi_tui.tui.screens import sheets
from kimi_tui.tui.theme import KIMI_DARK


class ListMachine(RuleBasedStateMachine):
    """Any keys, any changes of what there is, any heights: one entry is chosen, on view, and no row is left free."""

    def __init__(self) -> None:
        super().__init__()
        self.state = ListState()
        self.room = 3

    @rule(count=st.integers(0, 12), chosen=st.integers(-2, 14))
    def offer(self, count: int, chosen: int) -> None:
        self.state.count = count
        self.state.choose(chosen)
        assert self.state.chosen == (min(max(chosen, 0), count - 1) if count else None)

    @rule()
    def choose_none(self) -> None:
        self.state.chosen = None

    @rule(room=st.integers(1, 9))
    def resize(self, room: int) -> None:
        self.room = room

    @rule(key=st.sampled_from(["up", "down", "pageup", "pagedown", "home", "end", "j", "k", "x"]))
    def press(self, key: str) -> None:
        state, before, last = self.state, self.state.chosen, self.state.count - 1
        step = state.step_of(key, self.room, letters=True)
        if step is None:
            assert key == "x"
            return
        changed = state.choose(state.moved(step))
        assert changed == (state.chosen != before)
        if last >= 0:
            at = {"up": -1, "k": -1, "down": 1, "j": 1, "pageup": -self.room, "pagedown": self.room}
            if key in ("home", "end") and before is not None:
                assert state.chosen == (last if key == "end" else 0)
            elif before is not None:
                assert state.chosen == min(max(before + at[key], 0), last)
            else:
                assert state.chosen == (0 if key in ("down", "j", "pagedown", "end") else last)

    @invariant()
    def the_choice_is_on_view(self) -> None:
        top = self.state.top
        shown = self.state.window(self.room)
        assert len(shown) == min(self.room, self.state.count)
        if self.state.chosen is not None:
            assert self.state.chosen in shown
        kept = range(top, top + self.room)
        if self.state.chosen in kept and kept.stop <= self.state.count:
            assert shown.start == top, "it moves no further than it must"
        assert self.state.window(self.room) == shown


TestListMachine = ListMachine.TestCase
TestListMachine.settings = settings(
    max_examples=min(400, 4 * settings().max_examples), stateful_step_count=25
)


def test_a_window_shows_rows_moves_no_further_than_needed_and_leaves_no_room_free() -> None:
    window = RowWindow()
    assert list(window.fit(10, 4)) == [0, 1, 2, 3]
    assert (window.above, window.below, window.shows_all) == (0, 6, False)
    window.show(5, 6)
    assert list(window.on_view) == [3, 4, 5, 6]
    window.show(2, 9)  # more rows than fit: the first ones
    assert list(window.on_view) == [2, 3, 4, 5]
    window.move(99)
    assert (window.top, window.below) == (6, 0)
    window.centre(4)
    assert list(window.on_view) == [2, 3, 4, 5]
    window.centre(0)
    assert window.top == 0
    window.move(5)
    assert list(window.fit(3, 4)) == [0, 1, 2]
    assert window.shows_all


class Numbers(RowModel):
    """Entries of two rows."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def rows(self, look: Look) -> Sequence[Sequence[Line]]:
        return [[plain(f"  entry {i}"), plain(f"  about {i}", "quiet")] for i in look.on_view]

    def heading(self, look: Look) -> str:
        return f"from {look.on_view.start}"

    def empty(self, look: Look) -> Sequence[Line]:
        return [plain("  none")]


class ListApp(App[None]):
    """A list of three entries at once, and what it told."""

    CSS_PATH = [*sheets("rows")]  # noqa: RUF012 - Textual declares it so
    CSS = "RowList { height: auto; }"

    def __init__(self, count: int) -> None:
        super().__init__()
        self.register_theme(KIMI_DARK)
        self.theme = KIMI_DARK.name
        self.list = RowList(Numbers(count), most=3)
        self.told: list[tuple[str, int | None]] = []

    def compose(self) -> ComposeResult:
        yield self.list

    def on_row_list_moved(self) -> None:
        self.told.append(("moved", self.list.state.chosen))

    def on_row_list_picked(self) -> None:
        self.told.append(("picked", self.list.state.chosen))

    def rows(self) -> list[str]:
        return [self.list.render_line(y).text.rstrip() for y in range(self.list.size.height)]


async def test_keys_clicks_and_the_wheel_choose_and_pick() -> None:
    app = ListApp(9)
    async with app.run_test() as pilot:
        app.list.focus()
        await pilot.press("down", "enter", "end", "down")
        assert app.told == [("moved", 1), ("picked", 1), ("moved", 8)]
        await pilot.pause()
        edge = app.rows()[5][0]
        assert app.rows()[:3] == ["  from 6", "  entry 6", "  about 6"]
        assert app.rows()[5:] == [f"{edge} entry 8", f"{edge} about 8"]
        app.told.clear()
        await pilot.click(app.list, offset=(4, 4))
        assert app.told == [("moved", 7), ("picked", 7)]
        await pilot.click(app.list, offset=(4, 0))
        assert len(app.told) == 2, "a heading is no entry"
        await pilot.hover(app.list, offset=(4, 0))
        app.told.clear()
        for wheel in (events.MouseScrollDown, events.MouseScrollUp, events.MouseScrollUp):
            app.list.post_message(wheel(app.list, 4, 4, 0, 0, 0, False, False, False))
            await pilot.pause()
        assert app.told == [("moved", 8), ("moved", 7), ("moved", 6)]
        await pilot.hover(app.list, offset=(4, 3))
        ground: Any = next(iter(app.list.render_line(3))).style
        below: Any = next(iter(app.list.render_line(5))).style
        assert ground.bgcolor != below.bgcolor, "the entry under the pointer stands out"


class Unseen(SeenQuestion):
    """A question that the terminal has not drawn yet."""

    def __init__(self) -> None:
        """It has no screen."""

    def accepts(self, at: float) -> bool:
        return False


async def test_what_is_pressed_before_it_was_drawn_picks_nothing() -> None:
    app = ListApp(3)
    app.list = RowList(Numbers(3), most=3, seen=Unseen())
    async with app.run_test() as pilot:
        app.list.focus()
        await pilot.press("enter")
        await pilot.pause()
        assert app.told == []
        assert app.rows()[0] == f"  {TOO_EARLY.capitalize()}"
        await pilot.press("down")
        await pilot.pause()
        assert app.told == [("moved", 1)]
        assert app.rows()[0] == "  from 0"


async def test_without_entries_it_says_so_and_picks_nothing() -> None:
    app = ListApp(0)
    async with app.run_test() as pilot:
        app.list.focus()
        await pilot.press("down", "enter", "home")
        assert app.told == []
        assert app.rows() == ["  from 0", "  none"]
        app.list.model = Numbers(2)
        app.list.offered(1)
        await pilot.pause()
        assert [row[2:] for row in app.rows()] == [
            "from 0",
            "entry 0",
            "about 0",
            "entry 1",
            "about 1",
        ]


async def test_text_that_is_dragged_over_is_copied() -> None:
    app = ListApp(3)
    async with app.run_test() as pilot:
        await pilot.mouse_down(app.list, offset=(2, 1))
        await pilot.hover(app.list, offset=(6, 2))
        assert (app.screen.get_selected_text() or "").startswith("entry 0\n  about")
        await pilot.mouse_up(app.list, offset=(6, 2))

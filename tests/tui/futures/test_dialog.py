"""The dialog that starts futures, under keys: nothing starts whose cost was not on the screen."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import ClassVar

import pytest
from support.fake_futures import FakeFutures, estimated
from support.pictures import Pictures
from support.screens import keys_count
from textual.app import App

from kimi_tui.futures.values import Estimate, FuturesPlan, NoFutures, Variant
from kimi_tui.soul.rewind_values import Target
from kimi_tui.tui.futures.dialog import FuturesDialog
from kimi_tui.tui.futures.form import FuturesForm
from kimi_tui.tui.glyphs import UNICODE
from kimi_tui.tui.screens import sheets
from kimi_tui.tui.theme import KIMI_DARK, KIMI_LIGHT
from kimi_tui.wire.queue import Wire


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("kimi_tui.tui.futures.dialog.WAIT_S", 0.0)
    with keys_count():
        yield


class DialogApp(App[None]):
    """An app with the dialog over an empty screen; remembers its results."""

    CSS_PATH: ClassVar = sheets("app", "rows")

    def __init__(
        self,
        estimate: Callable[[FuturesPlan], Awaitable[Estimate]],
        *,
        theme: str = "kimi-dark",
    ) -> None:
        super().__init__()
        for one in (KIMI_DARK, KIMI_LIGHT):
            self.register_theme(one)
        self.theme = theme
        self.glyphs = UNICODE
        self.animation_level = "none"
        self.form = FuturesForm(Target(12), ("", "gpt-5.2"))
        self.form.messages[0] = "Use a set"
        self.dialog = FuturesDialog(self.form, estimate, title="Futures from #12", model="kimi-k2")
        self.plans: list[FuturesPlan | None] = []

    def on_mount(self) -> None:
        self.push_screen(self.dialog, self.plans.append)

    def text(self) -> str:
        """Return what is on the screen."""
        rows = self.dialog._compositor.render_strips()  # pyright: ignore[reportPrivateUsage]
        return "\n".join(strip.text for strip in rows)


async def test_enter_starts_a_plan_whose_cost_is_shown() -> None:
    app = DialogApp(FakeFutures(Wire()).estimate)
    async with app.run_test(size=(120, 40)) as pilot:
        await app.workers.wait_for_complete()
        await pilot.pause()
        assert "72.3k tokens" in app.text()
        assert "Not isolated:" in app.text()
        await pilot.press("enter")
        await app.workers.wait_for_complete()
        await pilot.pause()
    assert app.plans == [FuturesPlan(Target(12), (Variant("Use a set"),) * 3)]


async def test_keys_choose_how_many_and_each_gets_its_message_and_model() -> None:
    app = DialogApp(FakeFutures(Wire()).estimate)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("up", "right", "up", "7")
        await pilot.pause()
        assert "The number of futures must be from 2 to 4, not 7." in app.text()
        await pilot.press("2", "left", "left", "tab", "tab", "down", "d", "o", "down", "right")
        await pilot.press("down", "down", "right", "shift+tab")
        await app.workers.wait_for_complete()
        await pilot.press("enter")
        await app.workers.wait_for_complete()
        await pilot.pause()
    variants = (Variant("Use a set", ""), Variant("do", "gpt-5.2"))
    assert app.plans == [FuturesPlan(Target(12), variants)]


async def test_what_is_wrong_is_said_in_place_and_enter_does_not_start_it() -> None:
    fake = FakeFutures(Wire())
    app = DialogApp(fake.estimate)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("shift+tab", "shift+tab", "shift+tab")
        await pilot.press(*"much", "enter")
        await app.workers.wait_for_complete()
        await pilot.pause()
        assert '"much" is not a limit.' in app.text()
        await pilot.press("ctrl+u", "enter")
        fake.refused = NoFutures("The work folder has no file snapshot.", "target")
        await pilot.press("enter")
        await app.workers.wait_for_complete()
        await pilot.pause()
        assert "The work folder has no file snapshot." in app.text()
        assert app.plans == []
        await pilot.press("escape")
        await pilot.pause()
    assert app.plans == [None]


async def test_a_cost_that_has_changed_is_shown_before_it_is_paid() -> None:
    factor = 1

    async def estimate(plan: FuturesPlan) -> Estimate:
        return estimated(plan, past=1_000 * factor)

    app = DialogApp(estimate)
    async with app.run_test(size=(120, 40)) as pilot:
        await app.workers.wait_for_complete()
        app.dialog._computed = None  # pyright: ignore[reportPrivateUsage]
        factor = 50
        await pilot.press("enter")
        await app.workers.wait_for_complete()
        await pilot.pause()
        assert "The cost has changed. Press Enter again to start." in app.text()
        assert "150k tokens" in app.text()
        assert app.plans == []
        await pilot.press("enter")
        await app.workers.wait_for_complete()
        await pilot.pause()
    assert len(app.plans) == 1


async def test_a_change_that_leaves_the_cost_on_the_screen_as_it_is_starts_at_the_first_enter() -> (
    None
):
    app = DialogApp(FakeFutures(Wire()).estimate)
    async with app.run_test(size=(120, 40)) as pilot:
        await app.workers.wait_for_complete()
        await pilot.pause()
        await pilot.press(*["shift+tab"] * 4, *"make", "enter")
        await app.workers.wait_for_complete()
        await pilot.pause()
        assert "Press Enter again" not in app.text()
    assert [plan and plan.check for plan in app.plans] == ["make"]


async def test_the_keys_below_are_those_of_the_field_that_has_the_focus() -> None:
    app = DialogApp(FakeFutures(Wire()).estimate)
    async with app.run_test(size=(120, 40)) as pilot:
        await app.workers.wait_for_complete()
        await pilot.pause()
        assert "new line" in app.text()
        assert "change   " not in app.text()
        await pilot.press("up")
        await pilot.pause()
        assert "new line" not in app.text()
        assert "change   " in app.text()


async def test_the_cost_follows_the_messages_and_the_work_of_the_agent() -> None:
    fake = FakeFutures(Wire())
    app = DialogApp(fake.estimate)
    app.form.messages[0] = ""
    fake.refused = NoFutures("You wrote no message.", "message")
    async with app.run_test(size=(120, 40)) as pilot:
        await app.workers.wait_for_complete()
        await pilot.pause()
        assert "The cost is not known yet." in app.text()
        fake.refused = None
        await pilot.press("x")
        await app.workers.wait_for_complete()
        await pilot.pause()
        assert "72.3k tokens" in app.text()
        fake.refused = NoFutures("The agent is working.", "target")
        app.dialog.compute_again()
        await app.workers.wait_for_complete()
        await pilot.pause()
        assert "The agent is working." in app.text()
        assert "The cost is not known yet." in app.text()
        fake.refused = None
        app.dialog.compute_again()
        await app.workers.wait_for_complete()
        await pilot.pause()
        assert "The agent is working." not in app.text()
        assert "72.3k tokens" in app.text()


async def test_a_small_terminal_has_room_for_all_that_is_said_and_the_keys() -> None:
    fake = FakeFutures(Wire())
    app = DialogApp(fake.estimate)
    async with app.run_test(size=(60, 20)) as pilot:
        await app.workers.wait_for_complete()
        await pilot.pause()
        assert "Optional: a command " in app.text()
        assert "exit code" not in app.text()
        words = "The agent is working, so futures cannot begin at the end of the conversation. Choose a checkpoint, or wait until it finishes."
        fake.refused = NoFutures(words, "target")
        await pilot.press("enter")
        await app.workers.wait_for_complete()
        await pilot.pause()
        await pilot.pause()
        assert "wait until it finishes." in app.text()
        assert "Esc cancel" in app.text()


@pytest.mark.parametrize("size", [(60, 20), pytest.param((80, 24), marks=pytest.mark.exhaustive)])
async def test_up_and_down_lead_to_every_field_while_the_form_scrolls(
    size: tuple[int, int],
) -> None:
    app = DialogApp(FakeFutures(Wire()).estimate)
    async with app.run_test(size=size) as pilot:
        await app.workers.wait_for_complete()
        await pilot.pause()
        await pilot.press("up", "right", "down", *"first", "down", *"second", "down", *"third")
        await pilot.press("down", "right", "down", "right")
        await pilot.pause()
        assert app.dialog.scrolls
        assert app.form.messages[:3] == ["Use a setfirst", "second", "third"]
        assert not app.form.has_one_model
        assert app.form.chosen[:3] == [1, 0, 0]
        await pilot.press("up", "up", "up", "up", "up", "up", "2")
        await pilot.pause()
        assert app.form.count == 2


async def test_a_narrow_terminal_shows_the_values_below_their_labels() -> None:
    app = DialogApp(FakeFutures(Wire()).estimate)
    async with app.run_test(size=(80, 24)) as pilot:
        await app.workers.wait_for_complete()
        await pilot.resize_terminal(20, 6)
        await pilot.press("up", "up")
        await pilot.pause()
        rows = [row.strip("│ ▐▆▇█") for row in app.text().splitlines()]
        assert rows[rows.index("Futures") + 1] == "← 3 →"
        assert "the sa…" in rows
        await pilot.resize_terminal(80, 24)
        await pilot.pause()
        assert "Futures    ← 3 →" in app.text()


async def test_the_form_scrolls_no_longer_once_there_is_room() -> None:
    async def estimate(plan: FuturesPlan) -> Estimate:
        # These lines fit the form exactly, and break once more beside a scrollbar.
        lines = ("x" * 40 + " " + "y" * 43, "z" * 40 + " " + "w" * 43)
        return estimated(plan)._replace(remarks=lines)

    app = DialogApp(estimate)
    async with app.run_test(size=(120, 40)) as pilot:
        await app.workers.wait_for_complete()
        await pilot.pause()
        assert not app.dialog.scrolls
        await pilot.resize_terminal(60, 20)
        await pilot.pause()
        assert app.dialog.scrolls
        await pilot.resize_terminal(120, 40)
        await pilot.pause()
        assert not app.dialog.scrolls
        assert "PageDown" not in app.text()


@pytest.mark.exhaustive
async def test_a_key_in_the_check_is_refused() -> None:
    app = DialogApp(FakeFutures(Wire()).estimate)
    app.form.check = f"curl -H sk-{'a1B2' * 12}"
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("enter")
        await app.workers.wait_for_complete()
        await pilot.pause()
        assert "looks like an API key" in app.text()
    assert app.plans == []


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("theme", "size", "each"),
    [
        ("kimi-dark", (120, 40), False),
        ("kimi-light", (80, 24), True),
        ("kimi-dark", (60, 20), False),
        ("kimi-light", (120, 40), True),
        ("kimi-dark", (80, 24), False),
        ("kimi-light", (60, 20), True),
    ],
)
async def test_pictures(theme: str, size: tuple[int, int], each: bool, picture: Pictures) -> None:
    app = DialogApp(FakeFutures(Wire()).estimate, theme=theme)
    app.form.has_one_message = app.form.has_one_model = not each
    app.form.check = "make test" if each else ""
    async with app.run_test(size=size) as pilot:
        await app.workers.wait_for_complete()
        await pilot.pause()
        picture(app)

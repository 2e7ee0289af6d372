"""The watchdog of the tests: it tells what holds the loop up, and nothing else."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import Any, ClassVar

import pytest
from support import watchdog
from support.watchdog import held_up
from textual.app import App
from textual.css.stylesheet import Stylesheet
from textual.screen import Screen

LIMIT_S = watchdog.LIMIT_S / 3
"""The limit here: what is held up takes many times as long, and nothing but processor time."""
LONG_S = LIMIT_S * 6


@pytest.fixture(autouse=True)
def limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tell of less than usual."""
    monkeypatch.setattr(watchdog, "LIMIT_S", LIMIT_S)


def burn(cpu_s: float) -> None:
    """Compute for so long."""
    end = time.thread_time() + cpu_s
    while time.thread_time() < end:
        pass


class Burning(App[None]):
    """Computes when a key is pressed."""

    cpu_s = LONG_S

    def on_key(self) -> None:
        burn(self.cpu_s)


@pytest.mark.exhaustive
async def test_a_handler_that_computes_for_long_is_told_of() -> None:
    app = Burning()
    async with app.run_test() as pilot:
        assert not held_up
        await pilot.press("x")
    assert len(held_up) == 1
    assert "message pump" in held_up[0] or "App" in held_up[0]
    held_up.clear()


async def test_short_ones_and_waiting_are_not() -> None:
    app = Burning()
    app.cpu_s = LIMIT_S / 10
    async with app.run_test() as pilot:
        await pilot.press("x")
        asyncio.get_running_loop().call_soon(partial(time.sleep, LIMIT_S * 1.2))
        await pilot.press("y")
    assert not held_up


class Styled(App[None]):
    """Has style sheets that take long, and a second screen in a mode of its own."""

    MODES: ClassVar = {"second": Screen}
    CSS = "Screen { color: red; }"

    async def on_key(self) -> None:
        await self.switch_mode("second")


@pytest.mark.exhaustive
async def test_the_first_parse_of_style_sheets_and_that_of_a_switch_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parse_rules = Stylesheet._parse_rules  # pyright: ignore[reportPrivateUsage]
    parsed: list[str] = []

    def slow(self: Stylesheet, css: str, *rest: Any, **named: Any) -> Any:
        if css == Styled.CSS:
            parsed.append(css)
            burn(LONG_S)
        return parse_rules(self, css, *rest, **named)

    monkeypatch.setattr(Stylesheet, "_parse_rules", slow)
    app = Styled()
    async with app.run_test() as pilot:
        assert len(parsed) == 1
        app._css_update_count += 1  # pyright: ignore[reportPrivateUsage]
        await pilot.press("x")
        assert len(parsed) >= 2
        assert not held_up
        app.call_later(app.refresh_css)
        # Not Pilot's pause: the screen that was left answers nothing any more.
        async with asyncio.timeout(30):
            while not held_up:  # noqa: ASYNC110 - nothing tells of it
                await asyncio.sleep(0.01)
        assert len(held_up) == 1
    held_up.clear()


async def test_what_a_test_computes_itself_is_not() -> None:
    burn(LIMIT_S * 1.2)
    await asyncio.sleep(0)
    assert not held_up

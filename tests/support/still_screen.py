"""The program with the story of the pictures on its main screen and no engine: for pictures of panes over or in that screen."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from unittest.mock import patch

from textual.pilot import Pilot

from kimi_tui.config.model_choice import ModelChoice
from kimi_tui.config.settings import Config
from kimi_tui.launch import Launch
from kimi_tui.tui.app import KimiApp
from kimi_tui.tui.main.screen import MainScreen
from kimi_tui.wire.events import EventRecord
from support.screens import Desk, keys_count
from support.story import whole_story


async def show_records(
    running: KimiApp,
    pilot: Pilot[None],
    records: Sequence[EventRecord],
    title: str = "Fix quoted fields",
) -> MainScreen:
    """Show these events on the main screen as the history of an idle session; return that screen."""
    screen = running.screen
    assert isinstance(screen, MainScreen)
    conversation = screen.conversation
    conversation._show(records)  # pyright: ignore[reportPrivateUsage]
    screen.bench.views.history_told()
    idle = screen.bench.views.session.state._replace(
        title=title, running=False, ready=True, approvals=()
    )
    conversation._change(idle)  # pyright: ignore[reportPrivateUsage]
    await pilot.pause()
    return screen


def _furnish(screen: MainScreen) -> None:
    assert screen.bench.views


@asynccontextmanager
async def still_screen(home: Path, *, size: tuple[int, int] = (120, 40)) -> AsyncIterator[Desk]:
    """Run the program; its log is below `home`."""
    launch = Launch(
        work_dir=home,
        config_path=home / "config.toml",
        config=Config(reduced_motion=True, hints=False),
        choice=ModelChoice("moonshot", "http://127.0.0.1:9/v1", "kimi-k2"),
    )
    with (
        patch.dict(os.environ, {"KIMI_TUI_HOME": str(home)}),
        patch.object(MainScreen, "_open", _furnish),
        keys_count(),
    ):
        app = KimiApp(launch)
        async with app.run_test(size=size) as pilot:
            one = Desk(app, pilot)
            one.screen.conversation._show(whole_story().records)  # pyright: ignore[reportPrivateUsage]
            one.screen.bench.views.history_told()
            await pilot.pause()
            yield one

"""The whole app on a screen of its own, against a model server on the loopback."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from textual.pilot import Pilot

from kimi_tui.config.choosing import Choice
from kimi_tui.config.model import Config
from kimi_tui.launch import Launch
from kimi_tui.tui.app import KimiApp
from kimi_tui.tui.main.screen import MainScreen

TIMEOUT_S = 60.0
"""Long: it only ends what hangs, and other programs may have the machine for a while."""


@dataclass
class Desk:
    """A running app and what a test does with it."""

    app: KimiApp
    pilot: Pilot[None]

    @property
    def screen(self) -> MainScreen:
        """The main screen, also while something floats over it."""
        return next(s for s in reversed(self.app.screen_stack) if isinstance(s, MainScreen))

    def text(self) -> str:
        """What a person sees."""
        size = self.app.size
        strips = self.app.screen._compositor.render_strips(size)  # pyright: ignore[reportPrivateUsage]
        return "\n".join("".join(segment.text for segment in strip).rstrip() for strip in strips)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Let the app work until something holds."""
        async with asyncio.timeout(TIMEOUT_S):
            while not condition():
                broken = self.app._exception  # pyright: ignore[reportPrivateUsage]
                if broken is not None:
                    raise AssertionError("the app has crashed") from broken
                await self.pilot.pause(0.01)

    async def sees(self, words: str) -> str:
        """Wait until the words are on the screen; returns all of it."""
        try:
            await self.until(lambda: words in self.text())
        except TimeoutError:
            raise AssertionError(f"{words!r} is not on the screen:\n{self.text()}") from None
        return self.text()

    async def ready(self) -> None:
        """Wait for the session to be open."""
        await self.until(lambda: self.screen.conversation.state.ready)

    async def idle(self) -> None:
        """Wait for the agent to stop."""
        await self.until(lambda: not self.screen.conversation.engine.running)
        await self.until(lambda: not self.screen.conversation.state.running)

    async def say(self, text: str) -> None:
        """Put a message into the prompt and send it."""
        self.screen.prompt.area.put(text)
        await self.pilot.press("enter")


@asynccontextmanager
async def desk(
    home: Path,
    base_url: str,
    *,
    size: tuple[int, int] = (120, 40),
    resume: str | None = None,
    config: Config | None = None,
    window: int | None = 32_000,
    dialect: str | None = None,
) -> AsyncIterator[Desk]:
    """The app in a folder of its own, with a model that the server plays."""
    work = home / "app"
    work.mkdir(exist_ok=True)
    launch = Launch(
        work_dir=work,
        config_path=home / "config.toml",
        config=config or Config(),
        choice=Choice("test", base_url, "kimi-test", window=window, dialect=dialect),
        resume=resume,
    )
    app = KimiApp(launch)
    async with app.run_test(size=size) as pilot:
        yield Desk(app, pilot)
        for screen in app.screen_stack:
            if isinstance(screen, MainScreen):
                await screen.end()

"""Runs the whole app on a screen of its own, against a model server on the loopback."""

from __future__ import annotations

import asyncio
import atexit
import os
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from textual.pilot import Pilot

from kimi_tui.config.model_choice import ModelChoice
from kimi_tui.config.settings import Config
from kimi_tui.launch import Launch
from kimi_tui.llm.models import LocalServer
from kimi_tui.session.store import SessionStore
from kimi_tui.soul.approval import Mode
from kimi_tui.tui import notices as notices_module
from kimi_tui.tui.app import KimiApp
from kimi_tui.tui.dialogs.text_dialog import TextDialog
from kimi_tui.tui.keyboard import AskingScreen, LetterRun, SeenQuestion
from kimi_tui.tui.main.beside import BesideViewer
from kimi_tui.tui.main.screen import MainScreen
from kimi_tui.tui.main.world_line_viewer import WorldLineViewer
from kimi_tui.tui.preview.screen import RewindScreen
from kimi_tui.tui.terminal_input import PaintWatch
from support.chat_server import ChatServer, Request, say
from support.drawn import text_of

TIMEOUT_S = 50.0
"""Long: it only ends what hangs, and other programs may have the machine for a while. Less than pytest gives, so that it is
said what was waited for."""
LOOK_S = 0.02
LONGEST_S = 1.0
STAYS_S = notices_module.STAYS_S
"""How long a notice stays for a person. Here it stays longer: on a loaded machine it would be gone before a test looks again."""


async def no_servers() -> list[LocalServer]:
    """Return no servers, in place of `local_servers`."""
    return []


@dataclass
class Desk:
    """A running app, and what a test does with it."""

    app: KimiApp
    pilot: Pilot[None]

    @property
    def screen(self) -> MainScreen:
        """Return the main screen, also while something floats over it."""
        return next(s for s in reversed(self.app.screen_stack) if isinstance(s, MainScreen))

    def text(self) -> str:
        """Return the text that the user sees."""
        return text_of(self.app)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Let the app work until a condition holds."""
        give_up = time.monotonic() + TIMEOUT_S
        while True:
            start = time.thread_time()
            if condition():
                return
            cost_s = time.thread_time() - start
            broken = self.app._exception  # pyright: ignore[reportPrivateUsage]
            if broken is not None:
                raise AssertionError("the app has crashed") from broken
            assert time.monotonic() < give_up, f"in vain on {self.app.screen}:\n{self.text()}"
            # The pilot's pause would keep every widget of a working app busy. Expensive conditions, such as those on the
            # screen's text, are checked less often, to leave the app time.
            await asyncio.sleep(max(LOOK_S, min(16 * cost_s, LONGEST_S)))

    async def sees(self, words: str) -> str:
        """Wait until the words are on the screen; return its text."""
        shown = ""

        def is_there() -> bool:
            nonlocal shown
            shown = self.text()
            return words in shown

        await self.until(is_there)
        return shown

    async def ready(self) -> None:
        """Wait for the session to be open."""
        await self.until(lambda: self.screen.conversation.state.ready)

    async def idle(self) -> None:
        """Wait for the agent to stop, also where what was said has only just been sent."""
        conversation = self.screen.conversation

        def has_taken() -> bool:
            return not (conversation._n_coming or conversation.inbox.due)  # pyright: ignore[reportPrivateUsage]

        await self.until(lambda: conversation.running or has_taken())
        await self.until(lambda: not conversation.running and has_taken())
        await self.until(lambda: not self.screen.conversation.state.running)

    async def shown(self) -> None:
        """Wait until the screen shows everything that the engine has published."""
        feed = self.screen.conversation._feed  # pyright: ignore[reportPrivateUsage]
        if feed is not None:
            waiting, pending = feed._waiting, feed._subscription._pending  # pyright: ignore[reportPrivateUsage]
            await self.until(lambda: not waiting and not pending)

    async def say(self, text: str) -> None:
        """Put a message into the prompt and send it, once the screen shows everything published before."""
        await self.shown()
        conversation = self.screen.conversation
        wire = conversation.soul.wire if conversation.soul is not None else None
        told = wire._next_seq if wire is not None else 0  # pyright: ignore[reportPrivateUsage]
        begins = conversation.state.ready and not text.startswith("/") and bool(text.strip())
        begins = begins and not conversation.running
        self.screen.prompt.area.put(text)
        await self.pilot.press("enter")
        if begins and wire is not None:
            # Enter goes from the prompt to the screen, and from there to the engine: on a loaded machine, later.
            await self.until(lambda: wire._next_seq > told)  # pyright: ignore[reportPrivateUsage]

    async def asked(self, kind: type[AskingScreen[Any]]) -> None:
        """Wait until a screen of this class is on top, something on it has the keys, and one would answer: its text is there before."""

        def is_asking() -> bool:
            screen = self.app.screen
            return isinstance(screen, kind) and screen.focused is not None and screen.seen.is_open

        await self.until(is_asking)

    async def confirm(self, key: str, words: str = "") -> None:
        """Wait for the preview of an operation, with these words, and answer it."""

        def is_asking() -> bool:
            screen = self.app.screen
            return isinstance(screen, RewindScreen) and screen.accepts_keys

        await self.until(is_asking)
        await self.sees(words)
        await self.pilot.press(key)


_accepts = SeenQuestion.accepts


def _accepts_at_once(seen: SeenQuestion, at: float) -> bool:
    """Accept like `SeenQuestion.accepts`, but what the user has opened need not have been drawn if no quiet is asked for."""
    return (seen._is_expected and not seen.QUIET_S) or _accepts(seen, at)  # pyright: ignore[reportPrivateUsage]


class _Painted(PaintWatch):
    """A stand-in that takes a question for painted before any key was pressed."""

    def begin(self) -> None:
        self.seen_at = float("-inf")
        self._painted()


_comes_early = WorldLineViewer.comes_early
_KEY_TIMES = {
    RewindScreen: "QUIET_S",
    LetterRun: "DEBOUNCE_S",
    WorldLineViewer: "QUIET_S",
    BesideViewer: "QUIET_S",
    TextDialog: "QUIET_S",
    SeenQuestion: "QUIET_S",
}
_USUAL = [getattr(owner, name) for owner, name in _KEY_TIMES.items()]


def changed_key_times() -> list[str]:
    """Return the times of keys that a test has left changed for those behind it.

    `monkeypatch` does so where it is used within `keys_count`: what it restores in the end is what that had put there.
    A test assigns them, as `keys_count` restores all.
    """
    return [
        f"{owner.__name__}.{name}"
        for (owner, name), usual in zip(_KEY_TIMES.items(), _USUAL, strict=True)
        if getattr(owner, name) != usual
    ]


@contextmanager
def keys_count(after_s: float = 0.0) -> Iterator[None]:
    """Let a preview and a world line take keys once the keyboard was quiet for so many seconds; 0: at once, even undrawn."""
    paint = PaintWatch if after_s else _Painted
    with (
        patch("kimi_tui.tui.preview.screen.PaintWatch", paint),
        patch("kimi_tui.tui.dialogs.text_dialog.PaintWatch", paint),
        patch.object(
            WorldLineViewer,
            "comes_early",
            lambda viewer, event: bool(after_s) and _comes_early(viewer, event),  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
        ),
        patch.object(RewindScreen, "QUIET_S", after_s),
        patch.object(LetterRun, "DEBOUNCE_S", after_s and max(after_s, LetterRun.DEBOUNCE_S)),
        patch.object(WorldLineViewer, "QUIET_S", after_s),
        patch.object(BesideViewer, "QUIET_S", after_s),
        patch.object(TextDialog, "QUIET_S", after_s),
        patch.object(SeenQuestion, "QUIET_S", after_s),
        patch.object(SeenQuestion, "accepts", _accepts_at_once),
    ):
        yield


@asynccontextmanager
async def desk(
    home: Path,
    base_url: str,
    *,
    size: tuple[int, int] = (120, 40),
    resume: str | None = None,
    config: Config | None = None,
    window: int | None = 32_000,
    dialect: str | None = "generic",
    quiet_s: float = 0.0,
    mode: Mode = "ask",
    sandbox: bool = False,
    work: Path | None = None,
    notices: tuple[str, ...] = (),
    capabilities: tuple[str, ...] | None = None,
    hints: bool = False,
    external_agent: tuple[str, ...] = (),
) -> AsyncIterator[Desk]:
    """Run the app in a folder of its own, with a model that the server plays.

    `quiet_s` is how long the keyboard must be quiet before a preview or a world line takes letters: tests press keys at once.
    With a `dialect` the server is not asked what it is. Without `hints` nothing is said where something happens for the first time, as in most sessions.
    """
    work = work or home / "app"
    work.mkdir(exist_ok=True)
    launch = Launch(
        work_dir=work,
        config_path=home / "config.toml",
        config=(config or Config())._replace(hints=hints),
        choice=ModelChoice(
            "test",
            base_url,
            "kimi-test",
            window=window,
            dialect=dialect,
            capabilities=capabilities,
        ),
        resume=resume,
        mode=mode,
        sandbox=sandbox,
        notices=notices,
        external_agent=external_agent,
    )
    app = KimiApp(launch)
    # A test that gives notices a time of its own means it.
    stays_s = 60.0 if notices_module.STAYS_S == STAYS_S else notices_module.STAYS_S
    with keys_count(quiet_s), patch.object(notices_module, "STAYS_S", stays_s):
        async with app.run_test(size=size) as pilot:
            yield Desk(app, pilot)
            await _answered(app)
            for screen in app.screen_stack:
                if isinstance(screen, MainScreen):
                    await screen.end()


async def _answered(app: KimiApp) -> None:
    """Wait until the app has handled its messages: screens must not be removed while it goes to another session."""
    handled, task = asyncio.Event(), app._task
    assert task is not None
    app.call_later(handled.set)
    waits = asyncio.create_task(handled.wait())
    await asyncio.wait([waits, task], return_when=asyncio.FIRST_COMPLETED)
    waits.cancel()


async def two_turns(one: Desk, server: ChatServer) -> None:
    """Hold a conversation of two turns."""
    server.script(say("The apple is red."), say("The pear is green."))
    await one.ready()
    await one.say("Tell me of apples")
    await one.sees("The apple is red.")
    await one.idle()
    await one.say("Tell me of pears")
    await one.sees("The pear is green.")
    await one.idle()


Telling = Callable[[Desk, ChatServer], Awaitable[None]]
"""A function that holds a conversation in a new session."""


@dataclass(frozen=True)
class _Told:
    """A conversation in a new session: its home, its id, and the requests that the server got."""

    home: Path
    session_id: str
    requests: Sequence[Request]

    def copy(self, home: Path) -> None:
        """Copy the session into another home, for the work folder there."""
        work, told = home / "app", self.home / "app"
        shutil.copytree(told, work)
        (dir_,) = self.home.glob("sessions/*/*")
        copied = SessionStore(home).bucket(work) / dir_.name
        copied.parent.mkdir(parents=True)
        shutil.copytree(dir_, copied)
        for path in (*copied.glob("*.json*"), *copied.glob("files/*.jsonl")):
            path.write_text(path.read_text().replace(str(told), str(work)))


_told: dict[Telling, _Told] = {}
"""The conversations that this process has held, each once."""


async def _tell(begin: Telling) -> _Told:
    if begin not in _told:
        home = Path(tempfile.mkdtemp(prefix="kimi-tui-told-"))
        atexit.register(shutil.rmtree, home)
        with patch.dict(os.environ, {"KIMI_TUI_HOME": str(home)}):
            async with ChatServer() as server, desk(home, server.base_url) as one:
                await begin(one, server)
                soul = one.screen.conversation.soul
                assert soul is not None
                session_id = soul.session.id
        _told[begin] = _Told(home, session_id, server.requests)
    return _told[begin]


@asynccontextmanager
async def talk(
    home: Path,
    begin: Telling = two_turns,
    *,
    size: tuple[int, int] = (120, 40),
    config: Config | None = None,
    quiet_s: float = 0.0,
) -> AsyncIterator[tuple[Desk, ChatServer]]:
    """Run the app with its model's server, once `begin` has held a conversation.

    It says so once in a process, in an app of its own; here that session is opened again, in a copy. With a configuration
    of its own it is said anew. `quiet_s` is as for `desk`.
    """
    async with ChatServer() as server:
        if config is not None:
            async with desk(
                home, server.base_url, size=size, config=config, quiet_s=quiet_s
            ) as one:
                await begin(one, server)
                yield one, server
            return
        told = await _tell(begin)
        told.copy(home)
        server.requests += told.requests
        async with desk(
            home, server.base_url, size=size, resume=told.session_id, quiet_s=quiet_s
        ) as one:
            await one.ready()
            await one.shown()
            # Events after the history, such as the figures of the window, are drawn too, as in a running session.
            await one.pilot.pause()
            yield one, server

"""The session that the main screen shows: opens it off the event loop, runs its turns, closes it in order.

Everything heavy (the engine, pydantic, the client) is imported here in a thread, after the first paint.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from kimi_tui.demo.suggestions import Suggestions
    from kimi_tui.launch import Launch
    from kimi_tui.llm.provider import ChatProvider
    from kimi_tui.soul.kimi_soul import KimiSoul
    from kimi_tui.tui.prompt.history import History
    from kimi_tui.wire.events import Record

log = logging.getLogger(__name__)


class CannotOpen(Exception):
    """The session asked for cannot be opened. `code` is the exit code where nothing else is left to do."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


class NoModelNamed(CannotOpen):
    """A server was named without a model. `listed` is false where it does not say either which ones it has."""

    def __init__(self, message: str, code: int, *, listed: bool) -> None:
        super().__init__(message, code)
        self.listed = listed


class Opened(NamedTuple):
    """An open session: its engine, what its wire told so far, and what the person should know.

    `suggestions` are the demo's, and so is `leave`: what is done about its folder in the end (told whether the program
    ended as it should), with a sentence on where it is if it stays.
    """

    soul: KimiSoul
    history: Sequence[Record]
    past: History
    title: str
    provider: ChatProvider
    folder: Path
    branch: str
    suggestions: Suggestions | None = None
    leave: Callable[[bool], str] | None = None
    notices: tuple[str, ...] = ()


_OpenSession = Callable[["Launch", Callable[[Sequence["Record"]], None]], Awaitable[Opened]]


class Engine:
    """Owns the soul and every task that awaits it.

    Args:
        failed: told of an error that no event has told of; with the sentence for the person.
    """

    def __init__(self, failed: Callable[[str], None]) -> None:
        self._failed = failed
        self._soul: KimiSoul | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def soul(self) -> KimiSoul | None:
        """The open soul; None while there is none."""
        return self._soul

    @property
    def running(self) -> bool:
        """Whether a turn or an operation is under way."""
        return self._soul is not None and self._soul.running

    async def open(self, launch: Launch, glance: Callable[[Sequence[Record]], None]) -> Opened:
        """Open what the command line asked for.

        Args:
            launch: that.
            glance: given the end of a session that is long, before it is open.

        Raises:
            CannotOpen: with one line for the person.
        """
        # Importing takes half a second and would block the loop.
        opening = await asyncio.to_thread(import_module, "kimi_tui.tui.main.opening")
        open_session: _OpenSession = opening.open_session
        opened = await open_session(launch, glance)
        self._soul = opened.soul
        return opened

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run something that the person asked for; it is awaited at the end, and its failure is told."""
        task = asyncio.get_running_loop().create_task(self._guarded(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except asyncio.CancelledError:
            raise
        except KeyError as error:
            self._failed(str(error.args[0]) if error.args else str(error))
        except OSError as error:
            log.warning("operation failed", exc_info=error)
            if type(error).__module__.startswith("kimi_tui."):
                self._failed(f"{error} Nothing was changed.")
                return
            self._failed(f"The disk refused: {error.strerror or error}. Nothing was changed.")
        except Exception as error:
            if type(error).__module__.startswith("kimi_tui."):
                self._failed(str(error))
            else:
                log.exception("operation failed")
                self._failed("That failed, and the log file says why. Nothing was lost.")

    async def unsaved(self) -> str:
        """Save; a sentence on what the disk does not take, empty if it takes all."""
        return "" if self._soul is None else await self._soul.save()

    async def close(self) -> str:
        """Stop what runs, save and release the session; returns a sentence on what could not be saved."""
        soul, self._soul = self._soul, None
        lost = ""
        if soul is not None:
            try:
                await soul.interrupt()
            finally:
                await soul.aclose()
            lost = await soul.save()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        return lost

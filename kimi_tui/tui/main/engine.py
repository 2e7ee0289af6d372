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

from kimi_tui.tui.callbacks import Callbacks, Report, closed_after

if TYPE_CHECKING:
    from kimi_tui.demo.demo import Demo
    from kimi_tui.launch import Launch
    from kimi_tui.llm.provider import ChatProvider
    from kimi_tui.soul.kimisoul import KimiSoul
    from kimi_tui.tui.prompt.history import History
    from kimi_tui.wire.events import EventRecord

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
    """An open session: its engine, what its wire told so far, and what the user should know.

    `demo` is the one that it belongs to, None elsewhere.
    """

    soul: KimiSoul
    history: Sequence[EventRecord]
    past: History
    title: str
    provider: ChatProvider
    folder: Path
    branch: str
    demo: Demo | None = None
    notices: tuple[str, ...] = ()


class Found(NamedTuple):
    """A session that was there before, as far as it is known while it is still read.

    `n_messages` is None where only reading it through would tell. `end` is how it ended, once that was read.
    """

    session_id: str
    title: str
    n_messages: int | None
    folder: Path
    branch: str
    end: Sequence[EventRecord] = ()


_OpenSession = Callable[["Launch", Callable[[Found], None]], Awaitable[Opened]]


class Engine:
    """Owns the soul and every task that awaits it.

    Args:
        failed: told of an error that no event has told of; with the sentence for the user.
        report: told of an error of the program.
    """

    def __init__(self, failed: Callable[[str], None], report: Report) -> None:
        self._failed = failed
        self._soul: KimiSoul | None = None
        self._callbacks = Callbacks(report)

    @property
    def soul(self) -> KimiSoul | None:
        """The open soul; None while there is none."""
        return self._soul

    @property
    def running(self) -> bool:
        """Whether a turn or an operation is under way."""
        return self._soul is not None and self._soul.running

    async def open(self, launch: Launch, found: Callable[[Found], None]) -> Opened:
        """Open what the command line asked for.

        Args:
            launch: that.
            found: told what is known of a session that was there before, while it is read.

        Raises:
            CannotOpen: with one line for the user.
        """
        # Importing takes half a second and would block the loop.
        opening = await asyncio.to_thread(import_module, "kimi_tui.tui.main.opening")
        open_session: _OpenSession = opening.open_session
        opened = await open_session(launch, found)
        self._soul = opened.soul
        return opened

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run something that the user set off; it is awaited at the end, and its failure is told."""
        return closed_after(self._callbacks.start(self._guarded(work)), work)

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
        await self._callbacks.close()
        return lost

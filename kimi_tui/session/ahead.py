"""The beginning of the live line, copied and synced while the person looks at what a rewind there would take.

It is a guess that saves time and promises nothing: a switch takes it where the live file is still the one that was
copied and the cut is just there; else it is thrown away, and the switch copies for itself. It does not outlive what is
said next.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from kimi_tui.session.line_files import line_holding, live_path
from kimi_tui.session.new_file import Identity, identity_of
from kimi_tui.session.storage import COPY_CHUNK_BYTES, Storage, copy_bytes

# Lines begin at 1, so nobody else writes this one; `line_files.tidy` clears it away after a crash.
_NAME = ".context_0.jsonl.tmp"
# A guess must not take the room that what is said needs.
SPARE_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Copied:
    """A file that holds the first `keep` bytes of the live line and is on the disk.

    `held_by` is a world line that begins with the whole live line of `live_size` bytes, if there is one.
    """

    path: Path
    identity: Identity
    keep: int
    live_size: int
    held_by: int | None

    def still_there(self, storage: Storage) -> bool:
        """Whether it is as it was left."""
        try:
            status = storage.stat(self.path)
        except OSError:
            return False
        return identity_of(status) == self.identity and status.st_size == self.keep


class AheadCopy:
    """At most one such copy, and all that is left of it when it is not wanted any more.

    Args:
        storage: The disk.
        folder: The session's folder.
    """

    def __init__(self, storage: Storage, folder: Path) -> None:
        self._storage = storage
        self._folder = folder
        self._wanted: tuple[Identity, int] | None = None
        self._stop = threading.Event()
        self._task: asyncio.Task[Copied | None] | None = None
        # While a switch uses the name, and after the end, nothing may be written under it.
        self._held = False

    def begin(self, live: Identity, keep: int, live_size: int) -> None:
        """Copy in a thread; what was copied before is thrown away.

        Args:
            live: Which file the live one is.
            keep: How much of it; all of that must be on the disk.
            live_size: How long it is now.
        """
        if not self._held and self._wanted != (live, keep):
            copy = partial(self._copy, live, keep, live_size)
            self._next((live, keep), copy)

    def forget(self) -> None:
        """Throw it away, in a thread: the conversation went on, or the room that it takes is needed."""
        if not self._held and self._wanted is not None:
            self._next(None, lambda _stop: self._unlink())

    @asynccontextmanager
    async def taken(self, live: Identity | None, keep: int) -> AsyncGenerator[Copied | None]:
        """The copy for a switch, when it is ready; None where another one is wanted.

        Nothing is left of it afterwards but what the switch has given another name, and meanwhile none is begun.
        """
        task, wanted = self._task, self._wanted
        self._held = True
        try:
            if task is not None and wanted != (live, keep):
                self._stop.set()
            copied = await task if task is not None else None
            if wanted != (live, keep):
                await self._cleared(copied)
                copied = None
            try:
                yield copied
            finally:
                await self._cleared(copied)
        finally:
            self._task = self._wanted = None
            self._held = False

    async def close(self) -> None:
        """Throw it away, and begin none any more."""
        async with self.taken(None, 0):
            pass
        self._held = True

    async def _cleared(self, copied: Copied | None) -> None:
        if copied is not None:
            await asyncio.to_thread(self._unlink)

    def _next(
        self,
        wanted: tuple[Identity, int] | None,
        work: Callable[[threading.Event], Copied | None],
    ) -> None:
        self._stop.set()
        self._wanted, self._stop = wanted, threading.Event()
        # One after the other: they write to the same name.
        self._task = asyncio.create_task(
            self._after(self._task, partial(work, self._stop)), name="copy ahead"
        )

    async def _after(
        self, before: asyncio.Task[Copied | None] | None, work: Callable[[], Copied | None]
    ) -> Copied | None:
        if before is not None:
            await before
        return await asyncio.to_thread(work)

    def _copy(
        self, live: Identity, keep: int, live_size: int, stop: threading.Event
    ) -> Copied | None:
        try:
            copied = self._copied(live, keep, live_size, stop)
        except OSError:
            # The switch will meet it too, and say so.
            copied = None
        if copied is None:
            self._unlink()
        return copied

    def _copied(
        self, live: Identity, keep: int, live_size: int, stop: threading.Event
    ) -> Copied | None:
        storage, path = self._storage, self._folder / _NAME
        source = storage.open(live_path(self._folder), os.O_RDONLY)
        try:
            if identity_of(storage.fstat(source)) != live:
                return None
            if storage.free_bytes(path.parent) < keep + SPARE_BYTES:
                return None
            fd = storage.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
            try:
                for offset in range(0, keep, COPY_CHUNK_BYTES):
                    if stop.is_set():
                        return None
                    copy_bytes(storage, source, fd, min(COPY_CHUNK_BYTES, keep - offset), offset)
                storage.fsync(fd)
                held_by = line_holding(storage, self._folder, live_size)
                return Copied(path, identity_of(storage.fstat(fd)), keep, live_size, held_by)
            finally:
                storage.close(fd)
        finally:
            storage.close(source)

    def _unlink(self) -> None:
        """A name that is not there any more is as good."""
        with contextlib.suppress(OSError):
            self._storage.unlink(self._folder / _NAME)

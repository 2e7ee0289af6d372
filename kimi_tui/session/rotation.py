"""Rotation: `rotate` replaces `context.jsonl` by another one and keeps the old one as `context_N.jsonl`; `recover` repairs.

`context.jsonl` is the live file, `context_N.jsonl` are the world lines. Nothing here parses them. Everything blocks.

The order of `rotate` is what makes it atomic: (1) the live file is synced, (2) the new one is written to a temporary file and
synced, (3) the intent is journaled and synced, (4) the live file gets its second name as a world line, (5) the temporary file
is renamed over the live one, (6) the folder is synced, (7) the journal is told. Killed before (5) the session opens as before:
a second name, or a copy, of what still is the live file is dropped by `recover`. Killed after (5) it opens as after. The live
name exists at every moment.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from kimi_tui.filesystem import COPY_CHUNK_BYTES, Identity, Storage, identity_of
from kimi_tui.session.context_file import ContextFile
from kimi_tui.session.context_index import ContextIndex
from kimi_tui.session.errors import StorageTrouble
from kimi_tui.session.journal import Journal, JournalEntry

LIVE_NAME = "context.jsonl"
STORED_NAME = re.compile(r"context_([1-9][0-9]{0,8})\.jsonl")

# What was being written when a process died; nobody else can be writing it, for the session is locked.
_UNFINISHED = re.compile(r"\.(context(_[0-9]+)?\.jsonl|state\.json|marks\.json)\.tmp")


# World lines begin at 1, so nobody else writes this one; `recover` clears it away after a crash.
_PREFIX_NAME = ".context_0.jsonl.tmp"
# A guess must not take the room that what is said needs.
SPARE_BYTES = 64 << 20


def live_path(folder: Path) -> Path:
    """The live file."""
    return folder / LIVE_NAME


def world_line_path(folder: Path, n: int) -> Path:
    """The file of world line `n`; 0 is the live file."""
    return folder / (f"context_{n}.jsonl" if n else LIVE_NAME)


def stored_world_lines(folder: Path) -> dict[int, int]:
    """Every world line's number and size, in order of number. A second name of the live file is none."""
    found: dict[int, int] = {}
    live = _status(live_path(folder))
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                match = STORED_NAME.fullmatch(entry.name)
                if match and entry.is_file(follow_symlinks=False):
                    status = entry.stat(follow_symlinks=False)
                    if live is None or (status.st_dev, status.st_ino) != (
                        live.st_dev,
                        live.st_ino,
                    ):
                        found[int(match[1])] = status.st_size
    except OSError:
        return {}
    return dict(sorted(found.items()))


def next_number(folder: Path, journal: Journal) -> int:
    """A number that no world line has or was ever meant to have."""
    with contextlib.suppress(OSError):
        names = os.listdir(folder)
        numbers = [int(match[1]) for name in names if (match := STORED_NAME.fullmatch(name))]
        return 1 + max([journal.largest_line, *numbers])
    return 1 + journal.largest_line


def number_if_left(storage: Storage, folder: Path, journal: Journal, size: int) -> int:
    """The world line that the live file (of `size` bytes) is or would be part of, were it left now. Reads files."""
    return _holder(storage, folder, size) or next_number(folder, journal)


def _holder(storage: Storage, folder: Path, size: int) -> int | None:
    """The world line that begins with the whole live file (its first `size` bytes), so that it need not be kept twice."""
    for n, stored_size in sorted(stored_world_lines(folder).items(), reverse=True):
        if stored_size >= size:
            with contextlib.suppress(OSError):
                if storage.same_bytes(live_path(folder), world_line_path(folder, n), size):
                    return n
    return None


def recover(
    storage: Storage, folder: Path, journal: Journal, remark: Callable[[str], None]
) -> None:
    """Finish or take back what a crash left between two calls, before anything is read or appended. Never raises.

    Args:
        storage: The disk.
        folder: The session's folder.
        journal: Its journal, loaded.
        remark: Called with what the user should know.
    """
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            if _UNFINISHED.fullmatch(name):
                storage.unlink(folder / name)
    was_missing = _status(live_path(folder)) is None
    _restore_missing_live(storage, folder, remark)
    _drop_second_names(storage, folder)
    entries = journal.entries
    if entries and not entries[-1].done:
        _close_last(storage, folder, journal, entries[-1], keep_stored=was_missing)


def _restore_missing_live(storage: Storage, folder: Path, remark: Callable[[str], None]) -> None:
    # kimi-cli renames the live file away first; killed there, it leaves none. We never do.
    if _status(live_path(folder)) is not None:
        return
    stored = stored_world_lines(folder)
    if not stored:
        return
    newest = max(stored)
    source, temporary = world_line_path(folder, newest), folder / f".{LIVE_NAME}.tmp"
    with contextlib.suppress(OSError):
        try:
            status = storage.copy_file(source, temporary)
            # Lists go by the time of the last write.
            os.utime(temporary, ns=(status.st_atime_ns, status.st_mtime_ns))
        except OSError:
            # A full disk: all that is said is in the one file then, under the other name.
            with contextlib.suppress(OSError):
                storage.unlink(temporary)
            storage.replace(source, live_path(folder))
        else:
            storage.replace(temporary, live_path(folder))
        storage.sync_folder(folder)
        remark(f"The live line was missing; the conversation goes on from world line {newest}.")


def _drop_second_names(storage: Storage, folder: Path) -> None:
    # Killed between link and rename: the world line is the live file itself.
    live = _status(live_path(folder))
    if live is None or live.st_nlink < 2:
        return
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            if STORED_NAME.fullmatch(name):
                status = _status(folder / name)
                if status and (status.st_dev, status.st_ino) == (live.st_dev, live.st_ino):
                    storage.unlink(folder / name)
        storage.sync_folder(folder)


def _close_last(
    storage: Storage, folder: Path, journal: Journal, entry: JournalEntry, *, keep_stored: bool
) -> None:
    """Find out from the files whether the newest operation happened.

    Args:
        storage: The disk.
        folder: The session's folder.
        journal: Its journal, loaded.
        entry: The newest operation.
        keep_stored: The live file was made from a world line just now, so that an equal one is no copy of a crash.
    """
    if not entry.changes_line:
        return
    stored = _status(world_line_path(folder, entry.n))
    live = _status(live_path(folder))
    if live is None:
        return
    happened = stored is not None and live.st_size != entry.size
    if stored is not None and live.st_size == entry.size:
        try:
            same = storage.same_bytes(
                live_path(folder), world_line_path(folder, entry.n), entry.size
            )
        except OSError:
            return
        # The live file still is the one to be left, so the operation did not come to its rename; unless it meant to leave
        # it for one of the same size (a jump), which then is another one.
        happened = not same
        if same and entry.stored and not keep_stored:
            # The copy that was made where there are no hard links.
            with contextlib.suppress(OSError):
                storage.unlink(world_line_path(folder, entry.n))
    elif not entry.stored:
        # What was left was in that file all along, so only the size that was meant tells.
        happened = live.st_size == entry.to_size
    if happened:
        journal.finish(entry)
    else:
        journal.void(entry)


def _status(path: Path) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except OSError:
        return None


@dataclass(frozen=True, slots=True)
class PrefixFile:
    """A file that holds the first `keep` bytes of the live one, synced.

    `held_by` is a world line that begins with the whole live file of `live_size` bytes, if there is one.
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


class PrefetchedPrefix:
    """The beginning of the live file, copied in a thread while the preview of a rewind is shown.

    It only saves time: a switch uses it if the live file is still the one copied and the cut is at the same place; else it is
    deleted, and the switch copies the file itself. It is deleted with the next append. There is at most one.

    Args:
        storage: The disk.
        folder: The session's folder.
    """

    def __init__(self, storage: Storage, folder: Path) -> None:
        self._storage = storage
        self._folder = folder
        self._wanted: tuple[Identity, int] | None = None
        self._stop = threading.Event()
        self._task: asyncio.Task[PrefixFile | None] | None = None
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
    async def taken(self, live: Identity | None, keep: int) -> AsyncGenerator[PrefixFile | None]:
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

    async def _cleared(self, copied: PrefixFile | None) -> None:
        if copied is not None:
            await asyncio.to_thread(self._unlink)

    def _next(
        self,
        wanted: tuple[Identity, int] | None,
        work: Callable[[threading.Event], PrefixFile | None],
    ) -> None:
        self._stop.set()
        self._wanted, self._stop = wanted, threading.Event()
        # One after the other: they write to the same name.
        self._task = asyncio.create_task(
            self._after(self._task, partial(work, self._stop)), name="copy ahead"
        )

    async def _after(
        self, before: asyncio.Task[PrefixFile | None] | None, work: Callable[[], PrefixFile | None]
    ) -> PrefixFile | None:
        if before is not None:
            await before
        return await asyncio.to_thread(work)

    def _copy(
        self, live: Identity, keep: int, live_size: int, stop: threading.Event
    ) -> PrefixFile | None:
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
    ) -> PrefixFile | None:
        storage, path = self._storage, self._folder / _PREFIX_NAME
        with storage.opened(live_path(self._folder)) as source:
            if identity_of(storage.fstat(source)) != live:
                return None
            if storage.free_bytes(path.parent) < keep + SPARE_BYTES:
                return None
            with storage.opened(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC) as fd:
                for offset in range(0, keep, COPY_CHUNK_BYTES):
                    if stop.is_set():
                        return None
                    storage.copy_bytes(source, fd, min(COPY_CHUNK_BYTES, keep - offset), offset)
                storage.fsync(fd)
                held_by = _holder(storage, self._folder, live_size)
                return PrefixFile(path, identity_of(storage.fstat(fd)), keep, live_size, held_by)

    def _unlink(self) -> None:
        """Delete the file; it may be gone already."""
        with contextlib.suppress(OSError):
            self._storage.unlink(self._folder / _PREFIX_NAME)


@dataclass(frozen=True, slots=True)
class RotationPlan:
    """What the live file is to become: the first `keep` bytes of `source` (0 = the live file itself), then `extra`.

    `index` is the index of that, `entry` what the journal says about it. `shared` is how many bytes it has in common with
    the file that is left, from the beginning.
    """

    source: int
    keep: int
    extra: bytes
    index: ContextIndex
    entry: JournalEntry
    shared: int

    @property
    def size(self) -> int:
        """Its size in bytes."""
        return self.keep + len(self.extra)


def rotate(
    live: ContextFile,
    journal: Journal,
    plan: RotationPlan,
    held_by: int | None,
    prefix: PrefixFile | None,
) -> JournalEntry:
    """Replace the live file as planned, and keep the old one as `context_N.jsonl`. Returns the journal entry.

    Args:
        live: The live file, with all of it written.
        journal: The journal.
        plan: What to do.
        held_by: A world line that is known to begin with the whole live file.
        prefix: What is to be kept of the live file, where that was copied already. It has another name afterwards, or is
            left to the caller to clear away.

    Raises:
        StorageTrouble: The disk refused; nothing changed.
        ChangedByOthers: The live file is not as we left it; nothing changed.
    """
    storage, folder = live.storage, live.path.parent
    doing = "change the conversation"
    if live.unsaved_bytes or live.must_rewrite:
        raise live.trouble or StorageTrouble("Could not save the conversation.")
    live.sync()
    temporary = folder / f".{live.path.name}.tmp"
    intended: JournalEntry | None = None
    stored_anew = False
    try:
        live.check()
        if prefix is not None and prefix.still_there(storage):
            temporary = prefix.path
            identity = _completed(storage, prefix, plan.extra)
        else:
            identity = _written(storage, folder, temporary, plan)
        holder = held_by
        if holder is None or stored_world_lines(folder).get(holder, -1) < live.size:
            holder = _holder(storage, folder, live.size)
        intended = journal.intend(
            replace(
                plan.entry,
                n=next_number(folder, journal) if holder is None else holder,
                size=live.size,
                stored=holder is None,
                to_size=plan.size,
            )
        )
        if holder is None:
            storage.link_or_copy(live.path, world_line_path(folder, intended.n))
            stored_anew = True
        live.release()
        storage.replace(temporary, live.path)
    except OSError as error:
        with contextlib.suppress(OSError):
            storage.unlink(temporary)
        if intended is not None:
            if stored_anew:
                with contextlib.suppress(OSError):
                    storage.unlink(world_line_path(folder, intended.n))
            journal.void(intended)
        if isinstance(error, StorageTrouble):
            raise
        raise StorageTrouble.of(doing, error) from error
    if plan.source == 0:
        live.switched(identity, plan.size, plan.keep, plan.extra)
    else:
        live.adopt(plan.size)
    try:
        storage.sync_folder(folder)
    except OSError as error:
        # Which of the two files the name leads to after a power cut is not known: it is written anew at the next sync.
        live.mark_unsafe(error, doing)
    journal.finish(intended)
    return intended


def _completed(storage: Storage, prefix: PrefixFile, extra: bytes) -> Identity:
    if extra:
        with storage.opened(prefix.path, os.O_RDWR | os.O_APPEND) as fd:
            storage.write_all(fd, extra)
            storage.fsync(fd)
    return prefix.identity


def _written(storage: Storage, folder: Path, temporary: Path, plan: RotationPlan) -> Identity:
    if not plan.keep:
        return storage.write_file(temporary, plan.extra)
    with storage.opened(world_line_path(folder, plan.source)) as source:
        return storage.write_file(temporary, plan.extra, source=source, size=plan.keep)

"""Rotation: `rotate` replaces `context.jsonl` by another one and keeps the old one as `context_N.jsonl`; `recover` repairs.

`context.jsonl` is the live file, `context_N.jsonl` are the world lines. Nothing here parses them. Everything blocks.

The order of `rotate` is what makes it atomic: (1) the live file is synced, (2) the new one is written to a temporary file and
synced, (3) the intent is journaled and synced, (4) the live file gets its second name as a world line, (5) the temporary file
is renamed over the live one, (6) the folder is synced, (7) the journal is told. After a kill before (5) the session opens
with the old line: `recover` drops the second name, or the copy, of the file that is still live. After a kill behind (5) it
opens with the new line. The live name exists at every moment.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import threading
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from kimi_tui.filesystem import COPY_CHUNK_BYTES, Identity, Storage, identity_of
from kimi_tui.session.context_file import ContextFile
from kimi_tui.session.context_index import ContextIndex
from kimi_tui.session.errors import SessionLocked, StorageTrouble
from kimi_tui.session.journal import Journal, JournalEntry
from kimi_tui.session.lock import SessionLock

log = logging.getLogger(__name__)

LIVE_NAME = "context.jsonl"
STORED_NAME = re.compile(r"context_([1-9][0-9]{0,8})\.jsonl")
_LAST_NUMBER = 999_999_999

# These files were being written when a process died; the session is locked, so no other process is writing them.
_UNFINISHED = re.compile(r"\.(context(_[0-9]+)?\.jsonl|state\.json|marks\.json)\.tmp")


# World lines begin at 1, so no world line has this name; `recover` removes the file after a crash.
_PREFIX_NAME = ".context_0.jsonl.tmp"
# A prefetched copy must not take the room that new messages need.
SPARE_BYTES = 64 << 20


def live_path(folder: Path) -> Path:
    """Return the path of the live file."""
    return folder / LIVE_NAME


def world_line_path(folder: Path, n: int) -> Path:
    """Return the path of world line `n`; 0 is the live file."""
    return folder / (f"context_{n}.jsonl" if n else LIVE_NAME)


def stored_world_lines(folder: Path) -> dict[int, int]:
    """Return every world line's number and size, ordered by number. A second name of the live file does not count."""
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
    """Return a number that no world line has or was ever intended to have."""
    # A damaged journal may name numbers that no file of a world line can have; a line stored under such a one would be lost.
    taken = {n for n in journal.numbers if n <= _LAST_NUMBER}
    with contextlib.suppress(OSError):
        names = os.listdir(folder)
        taken.update(int(match[1]) for name in names if (match := STORED_NAME.fullmatch(name)))
    largest = max(taken, default=0)
    if largest < _LAST_NUMBER:
        return largest + 1
    return next(n for n in range(_LAST_NUMBER, 0, -1) if n not in taken)


def number_if_left(storage: Storage, folder: Path, journal: Journal, size: int) -> int:
    """Return the world line of which the live file (of `size` bytes) is or would be a part if it were left now. Reads files."""
    return _holder(storage, folder, size) or next_number(folder, journal)


def _holder(storage: Storage, folder: Path, size: int) -> int | None:
    """Return the world line that begins with the whole live file (its first `size` bytes), so that it need not be stored twice."""
    for n, stored_size in sorted(stored_world_lines(folder).items(), reverse=True):
        if stored_size >= size:
            with contextlib.suppress(OSError):
                if storage.same_bytes(live_path(folder), world_line_path(folder, n), size):
                    return n
    return None


def recover(
    storage: Storage, folder: Path, journal: Journal, remark: Callable[[str], None]
) -> None:
    """Finish or revert an operation that a crash interrupted, before anything is read or appended. Never raises.

    Args:
        storage: The disk.
        folder: The session's folder.
        journal: Its journal, loaded.
        remark: Called with a sentence for the user.
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


def repaired_entries(folder: Path) -> Sequence[JournalEntry]:
    """Return the operations of a session that is not open here, its interrupted one finished or reverted as when it is opened.

    It blocks. A session that is gone has none. If another process has it open, that one has repaired it.
    """
    if not folder.is_dir():
        return ()
    journal, lock = Journal(folder), SessionLock(folder)
    with contextlib.suppress(SessionLocked, StorageTrouble):
        lock.acquire()
    try:
        journal.load()
        if lock.held:
            recover(Storage(), folder, journal, log.warning)
    finally:
        with contextlib.suppress(OSError):
            journal.file.close()
        lock.release()
    return journal.entries


def _restore_missing_live(storage: Storage, folder: Path, remark: Callable[[str], None]) -> None:
    # kimi-cli first renames the live file away; if it is killed there, no live file is left. kimi-tui never does that.
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
            # Lists are ordered by the time of the last write, so the copy keeps it.
            os.utime(temporary, ns=(status.st_atime_ns, status.st_mtime_ns))
        except OSError:
            # The disk is full, so the file is renamed: the whole conversation has one name, the live one.
            with contextlib.suppress(OSError):
                storage.unlink(temporary)
            storage.replace(source, live_path(folder))
        else:
            storage.replace(temporary, live_path(folder))
        storage.sync_folder(folder)
        remark(
            f"The file of the current world line was missing; the conversation continues from world line {newest}."
        )


def _drop_second_names(storage: Storage, folder: Path) -> None:
    # After a kill between link and rename the world line is the live file itself.
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
    """Find out from the files whether the newest operation happened, and close it in the journal.

    Args:
        storage: The disk.
        folder: The session's folder.
        journal: Its journal, loaded.
        entry: The newest operation.
        keep_stored: The live file was made from a world line just now, so an equal world line is no left-over copy.
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
        # The live file is still the one to be left, so the rename did not happen; unless the operation was a jump to a line
        # of the same size, whose file is another one.
        happened = not same
        if same and entry.stored and not keep_stored:
            # This is the copy that was made because the file system has no hard links.
            with contextlib.suppress(OSError):
                storage.unlink(world_line_path(folder, entry.n))
    elif not entry.stored:
        # The line left was part of that world line before, so only the intended size shows whether the operation happened.
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

    `held_by` is a world line that begins with the whole live file of `live_size` bytes; None if there is none.
    """

    path: Path
    identity: Identity
    keep: int
    live_size: int
    held_by: int | None

    def still_there(self, storage: Storage) -> bool:
        """Return whether the file is unchanged."""
        try:
            status = storage.stat(self.path)
        except OSError:
            return False
        return identity_of(status) == self.identity and status.st_size == self.keep


class PrefetchedPrefix:
    """The beginning of the live file, copied in a thread while the preview of a rewind is shown.

    The copy only saves time: a switch uses it if the live file is still the copied one and the cut is at the same place; else
    the copy is deleted, and the switch copies the file itself. The next append deletes the copy. There is at most one.

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
        # While this is set (a switch uses the name, or the end has come), nothing may be written under the name.
        self._held = False

    def begin(self, live: Identity, keep: int, live_size: int) -> None:
        """Start copying in a thread; an earlier copy is deleted.

        Args:
            live: The identity of the live file.
            keep: The number of bytes to copy; all of them must be on the disk.
            live_size: The present size of the live file.
        """
        if not self._held and self._wanted != (live, keep):
            copy = partial(self._copy, live, keep, live_size)
            self._next((live, keep), copy)

    def forget(self) -> None:
        """Delete the copy in a thread: the conversation continued, or the room is needed."""
        if not self._held and self._wanted is not None:
            self._next(None, lambda _stop: self._unlink())

    @asynccontextmanager
    async def taken(self, live: Identity | None, keep: int) -> AsyncGenerator[PrefixFile | None]:
        """Yield the copy for a switch when it is ready; None if it is not the copy that the switch needs.

        Afterwards the copy is deleted unless the switch renamed it. No copy is started meanwhile.
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
        """Delete the copy, and start none any more."""
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
        # Copies run one after the other, as they write to the same name.
        self._task = asyncio.create_task(
            self._after(self._task, partial(work, self._stop)), name="copy the conversation"
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
            # The switch will meet the same error and report it.
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
        """Delete the file, which may be gone already."""
        with contextlib.suppress(OSError):
            self._storage.unlink(self._folder / _PREFIX_NAME)


@dataclass(frozen=True, slots=True)
class RotationPlan:
    """The planned live file: the first `keep` bytes of `source` (0 = the live file itself), then `extra`.

    `index` is the index of the planned file, `entry` its journal entry. `shared` is the number of first bytes that it has in
    common with the file that is left.
    """

    source: int
    keep: int
    extra: bytes
    index: ContextIndex
    entry: JournalEntry
    shared: int

    @property
    def size(self) -> int:
        """The size of the planned file in bytes."""
        return self.keep + len(self.extra)


def rotate(
    live: ContextFile,
    journal: Journal,
    plan: RotationPlan,
    held_by: int | None,
    prefix: PrefixFile | None,
) -> JournalEntry:
    """Replace the live file as planned, and keep the old one as `context_N.jsonl`. Return the journal entry.

    Args:
        live: The live file, completely written.
        journal: The journal.
        plan: The plan.
        held_by: A world line that is known to begin with the whole live file.
        prefix: The copy of the kept part, if there is one. Afterwards it has another name, or the caller must delete it.

    Raises:
        StorageTrouble: The disk refused; nothing changed.
        ChangedByOthers: Another program changed the live file; nothing changed.
    """
    storage, folder = live.storage, live.path.parent
    doing = "change the conversation"
    if live.unsaved_bytes:
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
        # After a power cut the name may lead to either file, so the file is written anew at the next sync.
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

"""The files behind a context: the live one, its index and its journal, and the order in which anything may happen to them.

Appends happen on the event loop, one write each. Whatever waits for the disk (syncs, mending, operations) happens in threads,
and is carried through even if the caller is cancelled: half of it would leave memory and disk apart. Opening repairs what a
crash left; it needs no free byte, and never raises on content.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from kimi_tui.filesystem import READ_ONLY, Storage
from kimi_tui.session.context_index import ContextIndex, MessageCache, MessageList
from kimi_tui.session.durable_file import ChangedByOthers, DurableFile
from kimi_tui.session.errors import StorageTrouble
from kimi_tui.session.journal import Entry, Journal
from kimi_tui.session.rotation import (
    Plan,
    PrefetchedPrefix,
    PrefixFile,
    live_path,
    next_number,
    recover,
    switch,
    world_line_path,
)
from kimi_tui.session.schema import Addition, Checkpoint, encode_additions

_PRELOAD_BYTES = 4 << 20
# Shorter ones are copied in no time.
WORTH_COPYING_BYTES = 4 << 20

_T = TypeVar("_T")


def scan(storage: Storage, fd: int) -> ContextIndex:
    """The index of an open file; blocks.

    Raises:
        OSError: It cannot be read, or is too large to be a conversation.
    """
    storage.readable_size(fd)
    return ContextIndex.scan(lambda size, offset: storage.pread(fd, size, offset))


def scan_world_line(storage: Storage, folder: Path, n: int) -> ContextIndex:
    """The index of a world line (0 = the live one) as it is on the disk; blocks.

    Raises:
        OSError: It cannot be read.
    """
    with storage.opened(world_line_path(folder, n)) as fd:
        return scan(storage, fd)


def read_world_line(storage: Storage, folder: Path, n: int, size: int, offset: int) -> bytes:
    """`size` bytes of a world line (0 = the live one) as it is on the disk; blocks.

    Raises:
        OSError: They cannot be read.
    """
    with storage.opened(world_line_path(folder, n)) as fd:
        return storage.read_exactly(fd, size, offset)


class ContextStore:
    """The live file of one session, its index and its journal.

    Args:
        folder: The session's folder.
        storage: The disk.
        make_folder: Makes the folder again if it is gone.

    Attributes:
        live: The file; only looked at from outside.
        index: Where things stand in it; another object after each switch.
        messages: Its messages, parsed when looked at; another object after each switch.
        on_trouble: Called on the event loop when the disk begins to refuse, and with None when all is saved again.
        on_remark: Called on the event loop with a sentence for the user when something was found that nobody expected.
    """

    def __init__(self, folder: Path, storage: Storage, make_folder: Callable[[], None]) -> None:
        self.folder = folder
        self.storage = storage
        self.journal = Journal(folder, storage)
        self.live = DurableFile(live_path(folder), storage, self._make_folder)
        self._take_over(ContextIndex(), MessageCache())
        self.on_trouble: Callable[[StorageTrouble | None], None] = lambda _trouble: None
        self.on_remark: Callable[[str], None] = lambda _text: None
        self._make = make_folder
        self._published: StorageTrouble | None = None
        self._remarks: list[str] = []
        # Another program's version stands under our name, to be set aside before ours is written anew.
        self._foreign = False
        # A world line that the live file is the beginning of, while it has this size.
        self._held_by = (0, 0)
        self._prefix = PrefetchedPrefix(storage, folder)
        # Appends and switches take `_lock`; a sync works beside appends but never beside a switch. In this order:
        self._sync_lock = asyncio.Lock()
        self._lock = asyncio.Lock()
        self._running: set[asyncio.Future[Any]] = set()

    async def open(self) -> list[str]:
        """Read what is on the disk. Returns sentences for the user on what had to be repaired.

        Raises:
            StorageTrouble: The file cannot be opened at all.
        """
        remarks: list[str] = []
        async with self._sync_lock, self._lock:
            try:
                await asyncio.to_thread(self._load, remarks.append)
            except OSError as error:
                raise StorageTrouble.of("open the session", error) from error
        self._notify()
        return remarks

    async def append(self, additions: Sequence[Addition]) -> Sequence[Checkpoint]:
        """Add records, in one write. Never raises for the disk's sake: what it refuses is kept and written later.

        Returns:
            The checkpoints among them.
        """
        async with self._lock:
            self.live.settle_tail()
            before = self._index_appended()
            first = len(before.checkpoints)
            data = encode_additions(additions, before.n_checkpoints)
            if not data:
                return ()
            self._held_by = (0, 0)
            self._prefix.forget()
            try:
                self.live.append(data)
            except ChangedByOthers:
                # Ours is kept in memory; the other's file is set aside and ours written anew below.
                self._foreign = True
            made = self._index_appended().checkpoints[first:]
        if self._foreign or (self.live.must_rewrite and self._published is None):
            await self.run_to_completion(self._mend())
        else:
            self._notify()
        return made

    @asynccontextmanager
    async def exclusive(self) -> AsyncGenerator[None]:
        """Nothing else happens to the files within this, and all that was appended is written. For `switch`.

        Raises:
            StorageTrouble: The disk refused, before or within.
        """
        async with self._sync_lock, self._lock:
            self.live.settle_tail()
            self._foreign = self._foreign or await asyncio.to_thread(self.live.is_foreign)
            await asyncio.to_thread(self._save)
            self._index_appended()
            if self.live.unsaved_bytes or self.live.must_rewrite:
                self._notify()
                raise self.live.trouble or StorageTrouble("Could not save the conversation.")
            try:
                yield
            except StorageTrouble:
                raise
            except OSError as error:
                raise StorageTrouble.of("change the conversation", error) from error

    async def switch(self, plan: Plan) -> Entry:
        """Carry out an operation; only within `exclusive`. Returns it as journaled.

        Raises:
            StorageTrouble: The disk refused; nothing changed.
        """
        live = None if plan.source else self.live.identity
        try:
            async with self._prefix.taken(live, plan.keep) as prefix:
                entry = await asyncio.to_thread(
                    switch, self.live, self.journal, plan, self._holder(prefix), prefix
                )
        except ChangedByOthers as error:
            # In the moment since it was looked at; the next one finds it set aside.
            self._foreign = True
            raise StorageTrouble(
                "Another program is writing to this session's file. Nothing was changed."
            ) from error
        finally:
            self._notify()
        self._cache.cut(plan.shared)
        self._take_over(plan.index, self._cache)
        # A file that was only cut, or taken over from a stored one, is the beginning of that one until it grows.
        # Its size alone would not tell: records of other names are as long.
        self._held_by = (0, 0) if plan.extra else (plan.source or entry.n, plan.size)
        return entry

    def prefetch(self, keep: int) -> None:
        """The file may soon be cut to its first `keep` bytes: do now, in a thread, what would be waited for then."""
        live = self.live
        if live.identity is None or live.must_rewrite or keep < WORTH_COPYING_BYTES:
            return
        if keep <= live.size - live.unsynced_bytes:
            self._prefix.begin(live.identity, keep, live.size)

    async def sync(self) -> bool:
        """Bring everything to the disk; False if it refuses (then `live.trouble` says why)."""
        return await self.run_to_completion(self._sync())

    async def aclose(self) -> None:
        """Save what there is and let go of the files."""
        while self._running:
            await asyncio.wait(self._running)
        await self.sync()
        async with self._sync_lock, self._lock:
            await self._prefix.close()
            await asyncio.to_thread(self._close)
        self._notify()

    async def run_to_completion(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Await `work`, which goes on to its end if the caller is cancelled; `aclose` waits for it."""
        task = asyncio.ensure_future(work)
        self._running.add(task)
        task.add_done_callback(self._ended)
        return await asyncio.shield(task)

    def _ended(self, task: asyncio.Future[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            # The caller may be gone, and with it the one who would have looked.
            task.exception()

    def _load(self, remark: Callable[[str], None]) -> None:
        """Repair, read the live file through and take it over. In a thread, under both locks.

        Raises:
            OSError: There is nothing that can be opened.
        """
        self.journal.load()
        recover(self.storage, self.folder, self.journal, remark)
        try:
            fd = self.storage.open(self.live.path, os.O_RDWR | os.O_CREAT)
        except OSError as error:
            if error.errno not in READ_ONLY:
                raise
            fd = self.storage.open(self.live.path, os.O_RDONLY)
        refused: OSError | None = None
        try:
            try:
                index = scan(self.storage, fd)
            except OSError as error:
                error.filename = error.filename or str(self.live.path)
                raise
            try:
                # What a killed process wrote may be in the kernel's memory only; from here on it counts as saved.
                self.storage.fsync(fd)
                if index.size == 0:
                    self.storage.sync_folder(self.folder)
            except OSError as error:
                refused = error
        finally:
            self.storage.close(fd)
        self.live.adopt(index.size, index.torn)
        if refused is not None and refused.errno not in READ_ONLY:
            self.live.distrust(refused, "save the conversation")
        self.live.salvage_tail()
        self._take_over(index, MessageCache())
        self._held_by = (0, 0)
        self.messages.preload(_PRELOAD_BYTES)

    def _take_over(self, index: ContextIndex, cache: MessageCache) -> None:
        """The live file has this index now; `cache` holds only messages that are in it."""
        self.index, self._cache = index, cache
        self.messages = MessageList(index, self.live.read, cache)

    def _index_appended(self) -> ContextIndex:
        """Take in what was appended: more than was meant to be, where a torn end could only be closed."""
        missing = self.live.size - self.index.size
        if missing:
            self.index.add(self.live.read(missing, self.index.size))
        return self.index

    def _holder(self, prefix: PrefixFile | None) -> int | None:
        """A world line that is known to begin with the whole live file."""
        n, size = self._held_by
        if prefix is not None and prefix.held_by is not None:
            n, size = prefix.held_by, prefix.live_size
        return n if n and size == self.live.size else None

    async def _mend(self) -> None:
        async with self._sync_lock, self._lock:
            await asyncio.to_thread(self._save)
            self._notify()

    async def _sync(self) -> bool:
        live = self.live
        async with self._sync_lock:
            async with self._lock:
                if live.unsaved_bytes or live.must_rewrite or self._foreign:
                    await asyncio.to_thread(self._save)
            # A thread for nothing would be most of what it costs.
            if live.unsynced_bytes or live.must_rewrite or not self.journal.is_synced:
                try:
                    await asyncio.to_thread(self._sync_files)
                except StorageTrouble:
                    async with self._lock:
                        await asyncio.to_thread(self._save)
                    await asyncio.to_thread(self._sync_journal)
            live.trim()
        self._notify()
        return self.live.trouble is None

    def _sync_files(self) -> None:
        """Bring what is written to the disk. In a thread.

        Raises:
            StorageTrouble: The live file must be written anew; nothing was done about the journal.
        """
        self.live.sync()
        self._sync_journal()

    def _sync_journal(self) -> None:
        with contextlib.suppress(StorageTrouble):
            self.journal.sync()

    def _save(self) -> None:
        """Write what is not written, anew if need be. In a thread, under `_lock`; refusals become `live.trouble`."""
        with contextlib.suppress(StorageTrouble):
            if not self.live.must_rewrite and not self._foreign:
                try:
                    self.live.flush()
                except ChangedByOthers:
                    self._foreign = True
            if self._foreign or self.live.must_rewrite:
                self.live.rewrite(self._set_aside)
                self._foreign = False

    def _set_aside(self) -> None:
        """Keep what another program made of our file as a world line: nothing of theirs or ours is lost."""
        if not self.live.is_foreign():
            return
        n = next_number(self.folder, self.journal)
        self.storage.link_or_copy(self.live.path, world_line_path(self.folder, n))
        self.journal.note({"op": "foreign", "n": n})
        self._remarks.append(
            f"Another program changed this session's file; its version is kept as world line {n}."
        )

    def _make_folder(self) -> None:
        self._make()
        self._remarks.append(
            "The session's folder was gone. The conversation is written again; the lines that were left and the record "
            "were only there."
        )

    def _close(self) -> None:
        self.live.release()
        if self.live.must_rewrite:
            with contextlib.suppress(StorageTrouble):
                self.live.rewrite(self._set_aside)
        with contextlib.suppress(StorageTrouble):
            self.journal.close()

    def _notify(self) -> None:
        trouble, before = self.live.trouble, self._published
        # Of another kind, it needs another remedy.
        is_news = trouble is not before and (
            trouble is None or before is None or trouble.errno != before.errno
        )
        self._published = trouble
        if is_news:
            self.on_trouble(trouble)
        while self._remarks:
            self.on_remark(self._remarks.pop(0))

"""Keeps one live line: its bytes, their index and its journal, and the order in which anything may happen to them.

Appends happen on the event loop, one write each. Whatever waits for the disk (syncs, mending, operations) happens in threads,
and is carried through even if the caller is cancelled: half of it would leave memory and disk apart.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from kimi_tui.session.ahead import AheadCopy, Copied
from kimi_tui.session.errors import StorageTrouble
from kimi_tui.session.journal import Entry, Journal
from kimi_tui.session.line import LineIndex
from kimi_tui.session.line_files import keep_live_as, live_path, next_number
from kimi_tui.session.live_file import ChangedByOthers, LiveFile
from kimi_tui.session.message_list import MessageCache, MessageList
from kimi_tui.session.opening import open_line
from kimi_tui.session.storage import Storage
from kimi_tui.session.switching import NewLine, switch
from kimi_tui.session.tokens import LineTokens

_T = TypeVar("_T")
_PRELOAD_BYTES = 4 << 20
# Shorter ones are copied in no time.
WORTH_COPYING_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class Plan:
    """What the live line is to become: its bytes, their index, and what the journal says about it.

    `shared` is how many bytes the two lines have in common at their beginning.
    """

    new: NewLine
    index: LineIndex
    entry: Entry
    shared: int


MakePlan = Callable[[], Coroutine[Any, Any, Plan]]


class LineKeeper:
    """The live line of one session.

    Args:
        folder: The session's folder.
        storage: The disk.
        make_folder: Makes the folder again if it is gone.
    """

    def __init__(self, folder: Path, storage: Storage, make_folder: Callable[[], None]) -> None:
        self.folder = folder
        self.storage = storage
        self.journal = Journal(folder, storage)
        self.live = LiveFile(live_path(folder), storage, self._make_folder)
        self._make = make_folder
        self.index = LineIndex()
        self.cache = MessageCache()
        self.tokens = LineTokens()
        self.on_trouble: Callable[[StorageTrouble | None], None] = lambda _trouble: None
        self.on_remark: Callable[[str], None] = lambda _text: None
        self._told: StorageTrouble | None = None
        self._foreign = False
        # A world line that the live line is the beginning of, while it has this size.
        self._held_by = (0, 0)
        self._remarks: list[str] = []
        self._ahead = AheadCopy(storage, folder)
        # Appends and switches take `_lock`; a sync works beside appends but never beside a switch. In this order:
        self._sync_lock = asyncio.Lock()
        self._lock = asyncio.Lock()
        self._running: set[asyncio.Future[Any]] = set()

    @property
    def messages(self) -> MessageList:
        """The messages of the line, parsed when looked at."""
        return MessageList(self.index, self.live.read, self.cache)

    async def open(self, remark: Callable[[str], None]) -> LineIndex:
        """Read what is on the disk.

        Raises:
            StorageTrouble: The file cannot be opened at all.
        """

        def read() -> LineIndex:
            index = open_line(self.storage, self.folder, self.live, self.journal, remark)
            self.index, self.cache, self.tokens = index, MessageCache(), LineTokens()
            self._held_by = (0, 0)
            self.messages.preload(_PRELOAD_BYTES)
            return index

        async with self._sync_lock, self._lock:
            try:
                index = await asyncio.to_thread(read)
            except OSError as error:
                raise StorageTrouble.of("open the session", error) from error
        self._tell()
        return index

    async def append(self, make: Callable[[], bytes]) -> None:
        """Add the records that `make` gives once it is their turn. Never raises for the disk's sake."""
        async with self._lock:
            data = make()
            if not data:
                return
            self._held_by = (0, 0)
            self._ahead.forget()
            try:
                self.live.append(data)
            except ChangedByOthers:
                # Ours is kept in memory; the other's file is set aside and ours written anew below.
                self._foreign = True
            # More than our data where a torn end could only be closed.
            missing = self.live.size - self.index.size
            self.index.add(self.live.read(missing, self.index.size))
        if self._foreign or (self.live.must_rewrite and self._told is None):
            await self._whole(self._mend())
        else:
            self._tell()

    async def change(self, make_plan: MakePlan) -> tuple[Entry, LineIndex]:
        """Carry out an operation, planned while nothing else can happen to the line.

        Returns:
            The operation as journaled, and the index of the line left.

        Raises:
            StorageTrouble: The disk refused; nothing changed.
        """
        return await self._whole(self._change(make_plan))

    def prepare_cut(self, keep: int) -> None:
        """The line may soon be cut to its first `keep` bytes: do now, in a thread, what would be waited for then."""
        live = self.live
        if live.identity is None or live.must_rewrite or keep < WORTH_COPYING_BYTES:
            return
        if keep <= live.size - live.unsynced_bytes:
            self._ahead.begin(live.identity, keep, live.size)

    async def sync(self) -> bool:
        """Bring everything to the disk; False if it refuses (then `live.trouble` says why)."""
        return await self._whole(self._sync())

    async def aclose(self) -> None:
        """Save what there is and let go of the files."""
        while self._running:
            await asyncio.wait(self._running)
        await self.sync()
        async with self._sync_lock, self._lock:
            await self._ahead.close()
            await asyncio.to_thread(self._close)
        self._tell()

    async def _change(self, make_plan: MakePlan) -> tuple[Entry, LineIndex]:
        async with self._sync_lock, self._lock:
            self.live.settle_torn()
            self._foreign = self._foreign or await asyncio.to_thread(self.live.is_foreign)
            await asyncio.to_thread(self._save)
            missing = self.live.size - self.index.size
            self.index.add(self.live.read(missing, self.index.size))
            if self.live.unsaved_bytes or self.live.must_rewrite:
                self._tell()
                raise self.live.trouble or StorageTrouble("Could not save the conversation.")
            try:
                plan = await make_plan()
            except OSError as error:
                if isinstance(error, StorageTrouble):
                    raise
                raise StorageTrouble.of("change the conversation", error) from error
            left = self.index
            entry = await self._switch(plan)
            self.index = plan.index
            # A line that was only cut, or taken over from a stored one, is the beginning of that stored one until it grows.
            # Its size alone would not tell: records of other names are as long.
            whole = not plan.new.extra
            self._held_by = (plan.new.source or entry.n, plan.new.size) if whole else (0, 0)
            self.cache.cut(plan.shared)
            self.tokens.cut(plan.index.messages_before(plan.shared))
        return entry, left

    async def _switch(self, plan: Plan) -> Entry:
        live = None if plan.new.source else self.live.identity
        try:
            async with self._ahead.taken(live, plan.new.keep) as copied:
                return await asyncio.to_thread(
                    switch,
                    self.storage,
                    self.folder,
                    self.live,
                    self.journal,
                    plan.new,
                    plan.entry,
                    known_holder=self._holder(copied),
                    copied=copied,
                )
        except ChangedByOthers as error:
            # In the moment since it was looked at; the next one finds it set aside.
            self._foreign = True
            raise StorageTrouble(
                "Another program is writing to this session's file. Nothing was changed."
            ) from error
        finally:
            self._tell()

    def _holder(self, copied: Copied | None) -> int | None:
        n, size = self._held_by
        if copied is not None and copied.held_by is not None:
            n, size = copied.held_by, copied.live_size
        return n if n and size == self.live.size else None

    async def _mend(self) -> None:
        async with self._sync_lock, self._lock:
            await asyncio.to_thread(self._save)
            self._tell()

    async def _sync(self) -> bool:
        async with self._sync_lock:
            async with self._lock:
                await asyncio.to_thread(self._save)
            try:
                await asyncio.to_thread(self.live.sync)
            except StorageTrouble:
                async with self._lock:
                    await asyncio.to_thread(self._save)
            self.live.trim()
            with contextlib.suppress(StorageTrouble):
                await asyncio.to_thread(self.journal.sync)
        self._tell()
        return self.live.trouble is None

    def _save(self) -> None:
        """Write what is not written, anew if need be. In a thread, under both locks; refusals become `trouble`."""
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
        keep_live_as(self.storage, self.folder, n)
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

    async def _whole(self, work: Coroutine[Any, Any, _T]) -> _T:
        task = asyncio.ensure_future(work)
        self._running.add(task)
        task.add_done_callback(self._ended)
        return await asyncio.shield(task)

    def _ended(self, task: asyncio.Future[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            # The caller may be gone, and with it the one who would have looked.
            task.exception()

    def _tell(self) -> None:
        trouble = self.live.trouble
        if (trouble is None) != (self._told is None):
            self.on_trouble(trouble)
        self._told = trouble
        while self._remarks:
            self.on_remark(self._remarks.pop(0))

"""`Context`, the live world line in `context.jsonl`: messages and checkpoints, appending, reverting, and switching lines.

Appends happen on the event loop, one write each; an operation replaces the whole line by another one. Syncs, repairs and
operations run in threads, and are completed even if the caller is cancelled, so that memory and disk agree. Opening repairs
what a crash left, without needing free disk space, and never raises on content. No message is lost while a `Context` lives:
records that cannot be written are kept in memory and written later, and `trouble` says so meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from kimi_tui.daemon_threads import in_daemon_thread
from kimi_tui.filesystem import READ_ONLY, Storage
from kimi_tui.llm.tokens import message_tokens
from kimi_tui.session.context_file import ChangedByOthers, ContextFile
from kimi_tui.session.context_index import (
    ContextIndex,
    MessageCache,
    MessageList,
    TokenEstimate,
    TokenScale,
    WorldLineContent,
)
from kimi_tui.session.errors import AlreadyThere, StorageTrouble
from kimi_tui.session.journal import Journal, JournalEntry
from kimi_tui.session.jsonl import SkippedLine
from kimi_tui.session.rotation import (
    PrefetchedPrefix,
    PrefixFile,
    RotationPlan,
    live_path,
    next_number,
    recover,
    rotate,
    stored_world_lines,
    world_line_path,
)
from kimi_tui.session.schema import (
    AddedLine,
    Addition,
    Checkpoint,
    NewCheckpoint,
    Operation,
    SystemPrompt,
    added_lines,
)

_COMPARED_BYTES = 1 << 20
_PRELOAD_BYTES = 4 << 20
# A shorter prefix is copied in no time.
WORTH_COPYING_BYTES = 4 << 20

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class OpeningReport:
    """The damage found when opening a session.

    `skipped` are unreadable lines, which stay in the file; `n_skipped` is their number. `torn_bytes` is the size of an
    incomplete last record. `remarks` are sentences for the user.
    """

    skipped: Sequence[SkippedLine] = ()
    n_skipped: int = 0
    torn_bytes: int = 0
    remarks: Sequence[str] = ()

    def sentences(self) -> list[str]:
        """Sentences for the user; none if all is in order."""
        said = list(self.remarks)
        if self.n_skipped:
            lines = "line" if self.n_skipped == 1 else "lines"
            named = "; ".join(str(line) for line in self.skipped[:3])
            more = f"; and {self.n_skipped - 3} more" if self.n_skipped > 3 else ""
            said.append(
                f"{self.n_skipped} {lines} of the session could not be read; they stay in the file: {named}{more}."
            )
        if self.torn_bytes:
            said.append(
                f"The last record of the session is incomplete ({self.torn_bytes} bytes); it is kept in context.jsonl.torn."
            )
        return said


@dataclass(frozen=True, slots=True)
class KnownTokens:
    """The token figures that the user sees when an operation begins, for the journal; None for an estimate from the file.

    Attributes:
        before: The tokens of the live line.
        kept: The tokens of the part before the target checkpoint.
    """

    before: int | None = None
    kept: int | None = None


NO_FIGURES = KnownTokens()
"""No figure is known."""


@dataclass(frozen=True, slots=True)
class ContextChange:
    """A requested operation on the live line.

    The new line begins with the part of world line `source` (0 is the live line itself) before checkpoint `before`, or with
    its first `size` bytes; with neither it is a whole world line, or begins anew with the live line's system prompt. The
    records `then` follow. `entry` is the journal entry; the target of `before`, the dropped part and the token figures are
    filled in, the latter from `tokens` where these are known.
    """

    entry: JournalEntry
    source: int = 0
    before: int | None = None
    size: int | None = None
    then: Sequence[Addition] = ()
    tokens: KnownTokens = NO_FIGURES


@dataclass(frozen=True, slots=True)
class Reverted:
    """The result of an operation on the live line.

    Attributes:
        entry: The operation as journaled: world line `entry.n` holds the line left.
        world_line: The number of the line left; 0 if it is only the beginning of a longer world line that exists already.
        left: The index of the line left.
        messages_kept: The number of its first messages that are still on the live line.
    """

    entry: JournalEntry
    world_line: int
    left: ContextIndex
    messages_kept: int


def scan(storage: Storage, fd: int) -> ContextIndex:
    """Read the index of an open file; blocks.

    Raises:
        OSError: The file cannot be read, or is too large to be a conversation.
    """
    storage.readable_size(fd)
    return ContextIndex.scan(lambda size, offset: storage.pread(fd, size, offset))


def scan_world_line(storage: Storage, folder: Path, n: int) -> ContextIndex:
    """Read the index of a world line (0 = the live one) from the disk; blocks.

    Raises:
        OSError: The file cannot be read.
    """
    with storage.opened(world_line_path(folder, n)) as fd:
        return scan(storage, fd)


def read_world_line(storage: Storage, folder: Path, n: int, size: int, offset: int) -> bytes:
    """Read `size` bytes of a world line (0 = the live one) from the disk; blocks.

    Raises:
        OSError: They cannot be read.
    """
    with storage.opened(world_line_path(folder, n)) as fd:
        return storage.read_exactly(fd, size, offset)


class Context:
    """The live world line of a session as `context.jsonl` stores it: its messages and checkpoints, and how they change.

    Args:
        folder: The session's folder.
        storage: The disk.
        make_folder: Makes the folder again if it is gone.

    Attributes:
        journal: The journal of operations.
        index: The index of the live line; another object after each switch. Do not change it.
        messages: The messages of the live line, parsed when accessed; another object after each switch.
        scale: The correction of token estimates; the engine updates it with each answer of the model.
        sync_first: Called in a thread before the conversation is synced, and when it is closed: syncs what its records tell of.
    """

    def __init__(
        self,
        folder: Path,
        storage: Storage | None = None,
        make_folder: Callable[[], None] | None = None,
    ) -> None:
        self.folder = folder
        self.storage = storage or Storage()
        self.scale = TokenScale()
        self.sync_first: Callable[[], None] = lambda: None
        self.journal = Journal(folder, self.storage)
        self._live = ContextFile(live_path(folder), self.storage, self._make_folder)
        self._set_index(ContextIndex(), MessageCache())
        self._on_trouble: Callable[[StorageTrouble | None], None] = lambda _trouble: None
        self._on_remark: Callable[[str], None] = lambda _text: None
        self._make = make_folder or (lambda: self.storage.make_folder(folder))
        self._published: StorageTrouble | None = None
        self._remarks: list[str] = []
        # Another program replaced our file: it must be set aside before ours is written anew.
        self._foreign = False
        # The live file is the beginning of this world line as long as it has this size: (number, size).
        self._held_by = (0, 0)
        self._prefix = PrefetchedPrefix(self.storage, folder)
        # Appends and switches take `_lock`; a sync runs beside appends but never beside a switch. The locks are taken in this
        # order:
        self._sync_lock = asyncio.Lock()
        self._lock = asyncio.Lock()
        self._running: set[asyncio.Future[Any]] = set()
        self._due: asyncio.TimerHandle | None = None
        self._tokens = TokenEstimate()

    # -- contents --------------------------------------------------------------------------------------

    @property
    def world_line(self) -> WorldLineContent:
        """The live line as it can be read."""
        return WorldLineContent(self.index, self.messages)

    @property
    def system_prompt(self) -> str | None:
        """The system prompt with which this session began."""
        return self.index.system_prompt

    @property
    def checkpoints(self) -> Sequence[Checkpoint]:
        """The checkpoints of the live line, oldest first. Do not change them."""
        return self.index.checkpoints

    @property
    def n_checkpoints(self) -> int:
        """The id of the next checkpoint."""
        return self.index.n_checkpoints

    @property
    def size_bytes(self) -> int:
        """The size of the live line."""
        return self._live.size

    def find_uid(self, uid: str) -> Checkpoint | None:
        """Return the checkpoint with this uid on the live line, by its present name or its name before a compaction."""
        return next((point for point in self.checkpoints if uid in (point.uid, point.was)), None)

    def read(self, size: int, offset: int) -> bytes:
        """Read bytes of the live line.

        Raises:
            OSError: The bytes are not in memory, and the disk cannot be read.
        """
        return self._live.read(size, offset)

    # -- tokens ----------------------------------------------------------------------------------------

    @property
    def token_count(self) -> int:
        """The last usage in the live line's file, plus an estimate of the messages after it."""
        return self._tokens_of(
            self.index, self._tokens.before(self.index, self.size_bytes, self.messages)
        )

    def _tokens_of(self, index: ContextIndex, estimate: int) -> int:
        """Return the tokens of a line from its `TokenEstimate`: only the part after its last usage is corrected."""
        usage = index.usage_before(index.size)
        if usage is None:
            return self.scale.corrected_request(estimate)
        return usage[0] + self.scale.corrected(estimate - usage[0])

    # -- what is saved ---------------------------------------------------------------------------------

    @property
    def trouble(self) -> StorageTrouble | None:
        """The reason why new records are not saved; None if they are."""
        return self._live.trouble

    @property
    def unsaved_bytes(self) -> int:
        """The number of bytes that are in memory only."""
        return self._live.unsaved_bytes

    @property
    def unsaved_messages(self) -> int:
        """The number of messages that are, at least in part, in memory only; markers do not count."""
        safe = self.size_bytes - self.unsaved_bytes
        first = self.index.messages_before(safe)
        return self.index.counts(first)[0]

    @property
    def unsaved_words(self) -> str:
        """A sentence about the records that are in memory only; empty if there are none."""
        count = self.unsaved_messages
        if not count:
            return ""
        what = "1 message is" if count == 1 else f"{count:,} messages are"
        why = f" {self.trouble.message}" if self.trouble else ""
        return f"{what} not saved.{why}"

    def listen(
        self,
        on_trouble: Callable[[StorageTrouble | None], None],
        on_remark: Callable[[str], None],
    ) -> None:
        """Set the functions that are called about the disk, on the event loop.

        Args:
            on_trouble: Called when writing begins to fail, and with None when everything is saved again.
            on_remark: Called with a sentence for the user on an unexpected state of the files.
        """
        self._on_trouble, self._on_remark = on_trouble, on_remark
        if self.trouble is not None:
            on_trouble(self.trouble)

    def remark(self, text: str) -> None:
        """Pass a sentence for the user on to `on_remark`."""
        self._on_remark(text)

    async def sync(self) -> bool:
        """Write and fsync everything, in a thread; return False if that fails (`trouble` says why)."""
        self._cancel_due()
        return await self._run_to_completion(self._sync())

    def sync_soon(self, within_s: float = 0.0) -> None:
        """Begin to write and fsync everything, in a thread; a later `sync` waits for that, too, and syncs only what has come since.

        Args:
            within_s: begin so many seconds later, once for all calls until then.
        """
        if not within_s:
            self._cancel_due()
            self._begun(self._sync())
        elif self._due is None:
            self._due = asyncio.get_running_loop().call_later(within_s, self.sync_soon)

    def _cancel_due(self) -> None:
        if self._due is not None:
            self._due.cancel()
            self._due = None

    async def aclose(self) -> None:
        """Save everything unsaved and close the files. Read `trouble` afterwards."""
        while self._running:
            await asyncio.wait(self._running)
        await self.sync()
        async with self._sync_lock, self._lock:
            await self._prefix.close()
            await asyncio.to_thread(self._close)
        self._notify()

    # -- appending -------------------------------------------------------------------------------------

    async def restore(self) -> OpeningReport:
        """Read the context from the disk. Never raises on content.

        Raises:
            StorageTrouble: The file cannot be opened at all.
        """
        remarks: list[str] = []
        async with self._sync_lock, self._lock:
            try:
                await asyncio.to_thread(self._recover, remarks.append)
                index, refused = await in_daemon_thread(self._scan)
                await asyncio.to_thread(self._adopt, index, refused)
                await in_daemon_thread(self.messages.preload, _PRELOAD_BYTES)
            except OSError as error:
                raise StorageTrouble.of("open the session", error) from error
        self._notify()
        self._tokens = TokenEstimate()
        index = self.index
        return OpeningReport(
            skipped=tuple(index.skipped),
            n_skipped=index.n_skipped,
            torn_bytes=len(index.torn),
            remarks=tuple(remarks),
        )

    async def checkpoint(self, add_user_message: bool) -> Checkpoint:
        """Make a checkpoint.

        Args:
            add_user_message: Also add the message that names it to the model.
        """
        made = await self.append([NewCheckpoint(marker=add_user_message)])
        return made[0]

    async def append(self, additions: Sequence[Addition]) -> Sequence[Checkpoint]:
        """Add records in one write: messages, checkpoints, token counts; the system prompt only once, before anything else.

        Never raises because of the disk: records that it refuses are kept and written later.

        Returns:
            The checkpoints among the records.
        """
        async with self._lock:
            self._settle_tail()
            index = self.index
            first = len(index.checkpoints)
            # Encoding an answer with thousands of calls takes tens of milliseconds.
            encode = partial(added_lines, additions, index.n_checkpoints)
            lines = await asyncio.to_thread(encode) if _is_long(additions) else encode()
            if not lines:
                return ()
            self._held_by = (0, 0)
            self._prefix.forget()
            try:
                self._live.append(b"".join([line.data for line in lines]))
            except ChangedByOthers:
                # Our records are kept in memory; the other program's file is set aside and ours written anew below.
                self._foreign = True
            offset = index.size
            for data, message, _ in lines:
                if message is not None:
                    self._cache.put(offset, message, len(data) - 1)
                offset += len(data)
            index.add(lines)
            made = index.checkpoints[first:]
        if self._foreign or (self._live.must_rewrite and self._published is None):
            await self._run_to_completion(self._mend())
        else:
            self._notify()
        return made

    # -- replacing the line ----------------------------------------------------------------------------

    async def revert_to(
        self,
        checkpoint_id: int,
        *,
        reason: Operation,
        text: str = "",
        then: Sequence[Addition] = (),
        files: JournalEntry | None = None,
        tokens: KnownTokens = NO_FIGURES,
    ) -> Reverted:
        """Cut the line back to before a checkpoint; the line left becomes a world line. The operation happens completely or not at all.

        Args:
            checkpoint_id: The checkpoint that is dropped with everything after it.
            reason: The kind of operation.
            text: The text of a D-Mail, or the like, for the journal.
            then: The records that follow the cut on the new line (a D-Mail's checkpoint and message).
            files: An entry whose snapshots and paths the journal keeps with this operation.
            tokens: The figures that the user sees.

        Raises:
            UnknownCheckpoint: No checkpoint has that id.
            StorageTrouble: The disk refused; nothing changed.
        """
        entry = replace(files or JournalEntry(op=reason), op=reason, text=text)
        return await self.change(
            ContextChange(entry, before=checkpoint_id, then=then, tokens=tokens)
        )

    async def clear(
        self,
        *,
        reason: Operation,
        text: str = "",
        then: Sequence[Addition] = (),
        tokens: KnownTokens = NO_FIGURES,
    ) -> Reverted:
        """Begin a new line with the same system prompt; the line left becomes a world line. The operation happens completely
        or not at all.

        Args:
            reason: The kind of operation.
            text: The summary of a compaction, for the journal.
            then: The records of the new line (a compaction's checkpoint, summary, kept messages and token count).
            tokens: The figures that the user sees.

        Raises:
            StorageTrouble: The disk refused; nothing changed.
        """
        entry = JournalEntry(op=reason, text=text)
        return await self.change(ContextChange(entry, then=then, tokens=tokens))

    async def change(self, change: ContextChange) -> Reverted:
        """Carry out an operation while nothing else can change the line. A cancellation does not split it.

        Raises:
            UnknownCheckpoint: The line has no such checkpoint.
            AlreadyThere: A jump leads to the line that is live already.
            StorageTrouble: The disk refused; nothing changed.
        """
        return await self._run_to_completion(self._change(change))

    def prepare_revert(self, checkpoint_id: int) -> None:
        """Copy in advance the part that a revert to this checkpoint would keep, while its preview is shown.

        Raises:
            UnknownCheckpoint: No checkpoint has that id.
        """
        live, keep = self._live, self.index.checkpoint(checkpoint_id).offset
        if live.identity is None or live.must_rewrite or keep < WORTH_COPYING_BYTES:
            return
        if keep <= live.size - live.unsynced_bytes:
            self._prefix.begin(live.identity, keep, live.size)

    async def _change(self, change: ContextChange) -> Reverted:
        # Nothing else changes the files while both locks are held, and all appended records are written first.
        async with self._sync_lock, self._lock:
            live = self._live
            self._settle_tail()
            self._foreign = self._foreign or await asyncio.to_thread(live.is_foreign)
            await asyncio.to_thread(self._save_all)
            try:
                before = change.tokens.before
                entry = replace(
                    change.entry,
                    from_checkpoint=self.n_checkpoints - 1,
                    tokens_before=self.token_count if before is None else before,
                )
                # Planning may read most of a long line for its index, which takes as long as opening it.
                plan = await asyncio.to_thread(self._planned, change, entry)
                wanted = None if plan.source else live.identity
                # Messages that are parsed meanwhile are not in this copy and are parsed again, which loses only time.
                shared = await asyncio.to_thread(self._cache.before, plan.shared)
                async with self._prefix.taken(wanted, plan.keep) as prefix:
                    holder = self._holder(prefix)
                    entry = await asyncio.to_thread(
                        rotate, live, self.journal, plan, holder, prefix
                    )
            except ChangedByOthers as error:
                # Another program wrote in the moment since the check; the next operation sets its file aside.
                self._foreign = True
                raise StorageTrouble(
                    "Another program is writing to this session's file. Nothing was changed."
                ) from error
            except StorageTrouble:
                raise
            except OSError as error:
                raise StorageTrouble.of("change the conversation", error) from error
            finally:
                self._notify()
            left, kept = self.index, self.index.messages_before(plan.shared)
            cache = self._cache
            self._set_index(plan.index, shared)
            # A file that was only cut, or copied from a world line, is the beginning of that world line until it grows. Its
            # size alone would not tell: other records may be as long.
            self._held_by = (0, 0) if plan.extra else (plan.source or entry.n, plan.size)
            self._tokens.cut(kept)
            await asyncio.to_thread(cache.clear)
            n = entry.n
            if not entry.stored:
                sizes = await asyncio.to_thread(stored_world_lines, self.folder)
                n = n if sizes.get(n) == entry.size else 0
        return Reverted(entry, n, left, kept)

    def _planned(self, change: ContextChange, entry: JournalEntry) -> RotationPlan:
        """Plan the new line, and count the part it drops. Call it in a thread, while nothing else changes the line.

        Raises:
            OSError: A world line cannot be read.
        """
        source = change.source
        base = scan_world_line(self.storage, self.folder, source) if source else self.index
        keep, next_id, then = base.size, base.n_checkpoints, change.then
        point: Checkpoint | None = None
        if change.before is not None:
            point = base.checkpoint(change.before)
            keep, next_id = point.offset, point.id
            entry = replace(entry, checkpoint_id=point.id, uid=point.uid)
        elif change.size is not None:
            keep = change.size
        elif not source:
            keep = next_id = 0
            first = self.checkpoints[0].uid if self.checkpoints else ""
            entry = replace(entry, checkpoint_id=0, uid=first)
            if self.system_prompt is not None:
                then = [SystemPrompt(self.system_prompt), *then]
        lines = added_lines(then, next_id)
        extra = b"".join([line.data for line in lines])
        index = base.prefix(keep)
        index.add(lines)
        shared = self._shared_bytes(source, index) if source else keep
        if entry.op == "jump" and shared == index.size == self.size_bytes:
            raise AlreadyThere("The conversation is already at this checkpoint.")

        def read(size: int, offset: int) -> bytes:
            if offset >= keep:
                return extra[offset - keep :][:size]
            if not source:
                return self.read(size, offset)
            return read_world_line(self.storage, self.folder, source, size, offset)

        messages, calls = self.index.counts(self.index.messages_before(shared))
        all_messages = MessageList(index, read, MessageCache())
        after = entry.tokens_after or None
        if after is None and point is not None and not index.usages_between(keep, index.size):
            added = sum(map(message_tokens, all_messages[index.messages_before(keep) :]))
            if change.tokens.kept is not None:
                after = change.tokens.kept + self.scale.corrected(added)
        if after is None:
            after = self._tokens_of(index, TokenEstimate().before(index, index.size, all_messages))
        entry = replace(
            entry,
            tokens_after=after,
            messages_dropped=messages,
            tool_calls_dropped=calls,
        )
        return RotationPlan(source, keep, extra, index, entry, shared)

    def _shared_bytes(self, n: int, index: ContextIndex) -> int:
        """Return the size of the whole records that the live line and the beginning of world line `n` have in common."""
        position = 0
        for mine, other in zip(self.checkpoints, index.checkpoints, strict=False):
            if (mine.uid, mine.offset) != (other.uid, other.offset):
                break
            position = mine.offset
        end = min(self.size_bytes, index.size)
        while position < end:
            size = min(_COMPARED_BYTES, end - position)
            mine = self.read(size, position)
            other = read_world_line(self.storage, self.folder, n, size, position)
            if mine != other:
                same = next(
                    at
                    for at, pair in enumerate(zip(mine, other, strict=True))
                    if pair[0] != pair[1]
                )
                return position + mine.rfind(b"\n", 0, same) + 1
            position += size
        return position

    # -- the files -------------------------------------------------------------------------------------

    async def _run_to_completion(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Await `work`, which continues to its end even if the caller is cancelled; `aclose` waits for it."""
        return await asyncio.shield(self._begun(work))

    def _begun(self, work: Coroutine[Any, Any, _T]) -> asyncio.Task[_T]:
        task = asyncio.ensure_future(work)
        self._running.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Future[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            # A cancelled caller reads no exception, so it is read here.
            task.exception()

    def _recover(self, remark: Callable[[str], None]) -> None:
        """Complete or undo what a killed program began. Call it in a thread, under both locks."""
        self.journal.load()
        recover(self.storage, self.folder, self.journal, remark)

    def _scan(self) -> tuple[ContextIndex, OSError | None]:
        """Read the live file through; return its index, and why its records could not be synced. Call it in a thread, under both locks.

        Raises:
            OSError: There is no file that can be opened.
        """
        try:
            fd = self.storage.open(self._live.path, os.O_RDWR | os.O_CREAT)
        except OSError as error:
            if error.errno not in READ_ONLY:
                raise
            fd = self.storage.open(self._live.path, os.O_RDONLY)
        refused: OSError | None = None
        try:
            try:
                index = scan(self.storage, fd)
            except OSError as error:
                error.filename = error.filename or str(self._live.path)
                raise
            try:
                # Records of a killed process may be in the kernel's memory only; after this sync they count as saved.
                self.storage.fsync(fd)
                if index.size == 0:
                    self.storage.sync_folder(self.folder)
            except OSError as error:
                refused = error
        finally:
            self.storage.close(fd)
        return index, refused

    def _adopt(self, index: ContextIndex, refused: OSError | None) -> None:
        """Use the live file that was read through, with a torn end salvaged. Call it in a thread, under both locks."""
        self._live.adopt(index.size, index.torn)
        if refused is not None and refused.errno not in READ_ONLY:
            self._live.mark_unsafe(refused, "save the conversation")
        self._live.salvage_tail()
        self._set_index(index, MessageCache())
        self._held_by = (0, 0)

    def _set_index(self, index: ContextIndex, cache: MessageCache) -> None:
        """Set the index of the live file; `cache` holds only messages of that file."""
        self.index, self._cache = index, cache
        self.messages = MessageList(index, self._live.read, cache)

    def _settle_tail(self) -> None:
        """Salvage a torn end; if it could only be closed, the index takes it for an unreadable record."""
        if self._live.torn and (closed := self._live.settle_tail()):
            self.index.add([AddedLine(closed)])

    def _holder(self, prefix: PrefixFile | None) -> int | None:
        """Return a world line that is known to begin with the whole live file."""
        n, size = self._held_by
        if prefix is not None and prefix.held_by is not None:
            n, size = prefix.held_by, prefix.live_size
        return n if n and size == self._live.size else None

    async def _mend(self) -> None:
        async with self._sync_lock, self._lock:
            await asyncio.to_thread(self._save)
            self._notify()

    async def _sync(self) -> bool:
        live = self._live
        async with self._sync_lock:
            async with self._lock:
                if live.unsaved_bytes or live.must_rewrite or self._foreign:
                    await asyncio.to_thread(self._save)
            # If there is nothing to sync, starting a thread would cost most of the time.
            if live.unsynced_bytes or live.must_rewrite or not self.journal.file.is_synced:
                try:
                    await asyncio.to_thread(self._sync_files)
                except StorageTrouble:
                    async with self._lock:
                        await asyncio.to_thread(self._save)
                    await asyncio.to_thread(self._sync_journal)
            live.trim()
        self._notify()
        return live.trouble is None

    def _sync_files(self) -> None:
        """Sync the written records to the disk. Call it in a thread.

        Raises:
            StorageTrouble: The live file must be written anew; nothing was done about the journal.
        """
        self.sync_first()
        self._live.sync()
        self._sync_journal()

    def _sync_journal(self) -> None:
        with contextlib.suppress(StorageTrouble):
            self.journal.file.sync()

    def _save_all(self) -> None:
        """Sync what the records tell of, before an operation syncs them in another file; then write the unwritten ones."""
        self.sync_first()
        self._save()

    def _save(self) -> None:
        """Write the unwritten records, rewriting the file if necessary. Call it in a thread, under `_lock`; refusals become
        `live.trouble`.
        """
        with contextlib.suppress(StorageTrouble):
            if not self._live.must_rewrite and not self._foreign:
                try:
                    self._live.flush()
                except ChangedByOthers:
                    self._foreign = True
            if self._foreign or self._live.must_rewrite:
                self._live.rewrite(self._set_aside)
                self._foreign = False

    def _set_aside(self) -> None:
        """Keep a file with which another program replaced ours as a world line, so that nothing is lost."""
        if not self._live.is_foreign():
            return
        n = next_number(self.folder, self.journal)
        self.storage.link_or_copy(self._live.path, world_line_path(self.folder, n))
        self.journal.note({"op": "foreign", "n": n})
        self._remarks.append(
            f"Another program changed this session's file. What that program wrote is kept as world line {n}."
        )

    def _make_folder(self) -> None:
        self._make()
        self._remarks.append(
            "The session's storage folder was deleted. The conversation is saved to a new one, but its world lines and "
            "its event log (wire.jsonl) are lost."
        )

    def _close(self) -> None:
        # A change of files that no record tells of has been left by `_sync`.
        self.sync_first()
        self._live.release()
        if self._live.must_rewrite:
            with contextlib.suppress(StorageTrouble):
                self._live.rewrite(self._set_aside)
        with contextlib.suppress(StorageTrouble):
            self.journal.file.close()

    def _notify(self) -> None:
        trouble, before = self._live.trouble, self._published
        # A trouble of another kind needs another remedy, so it is reported too.
        is_news = trouble is not before and (
            trouble is None or before is None or trouble.errno != before.errno
        )
        self._published = trouble
        if is_news:
            self._on_trouble(trouble)
        while self._remarks:
            self._on_remark(self._remarks.pop(0))


def _is_long(additions: Sequence[Addition]) -> bool:
    """Return whether encoding these records takes longer than the event loop may be blocked."""
    from kimi_tui.llm.message import Message

    return any(isinstance(one, Message) and one.is_long for one in additions)

"""`Session`, one session on disk: its folder, lock, context, record, images, title and marks.

A session object is cheap until it is opened; opening takes the lock and reads the context.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from kimi_tui.filesystem import Storage
from kimi_tui.session.context import Context, OpeningReport
from kimi_tui.session.context_index import WorldLineContent
from kimi_tui.session.errors import StorageTrouble
from kimi_tui.session.jsonl import RECORD_NAME, JsonlLog
from kimi_tui.session.listing import first_title, records_a_turn
from kimi_tui.session.lock import LOCK_NAME, SessionLock
from kimi_tui.session.metadata import (
    STATE_NAME,
    Marks,
    SessionMetadata,
    SessionSummary,
    folder_inode,
    read_marks,
    read_state,
    title_of,
    write_marks,
    write_state,
)
from kimi_tui.session.rotation import LIVE_NAME
from kimi_tui.session.world_lines import StoredWorldLines

if TYPE_CHECKING:
    from kimi_tui.session.images import ImageStore

AGENTS_NAME = "subagents"
"""The folder in a session's folder with those of its sub-agents, as kimi-cli has it."""
# An empty session consists of these files.
_EMPTY_NAMES = frozenset({LIVE_NAME, LOCK_NAME, STATE_NAME, RECORD_NAME})


class Session:
    """A session on disk: its folder, lock, context, record and title.

    Args:
        folder: The absolute path of its folder.
        work_dir: The absolute path of its work folder.
        storage: The disk.
    """

    def __init__(self, folder: Path, work_dir: Path, storage: Storage | None = None) -> None:
        self.dir = folder
        self.work_dir = work_dir
        self.storage = storage or Storage()
        self.lock = SessionLock(folder)
        self.context = Context(folder, self.storage, self._make_folder)
        self.record = JsonlLog(folder / RECORD_NAME, self.storage)
        self.state = SessionMetadata(work_dir=str(work_dir))
        self.marks = Marks()
        self.report: OpeningReport | None = None
        self.notes: list[str] = []
        """Further sentences for the user, from readers of those parts of the session that are not read here."""
        self._world_lines: StoredWorldLines | None = None
        self._made = False

    @cached_property
    def images(self) -> ImageStore:
        """The images of the session. Their module is imported when first needed, so that reading a session's end does not wait for it."""
        from kimi_tui.session.images import ImageStore

        return ImageStore(self.dir, self.storage)

    @property
    def id(self) -> str:
        """The name of the session."""
        return self.dir.name

    @property
    def title(self) -> str:
        """The title that the user set, else the beginning of the first message, else empty."""
        return self.state.title or self._beginning

    @property
    def _beginning(self) -> str:
        # A compacted context begins in the middle of the conversation, so its title comes from the stored figures for lists
        # or from the oldest line.
        return title_of(self.context.messages) or self.state.summary.title or first_title(self.dir)

    @property
    def world_lines(self) -> StoredWorldLines:
        """The lines that were left. Its methods read files, so call them in a thread."""
        if self._world_lines is None:
            self._world_lines = StoredWorldLines(self.dir, self.context.journal, self.storage)
        return self._world_lines

    def world_line(self, n: int) -> WorldLineContent:
        """Return a world line; 0 is the live one. For any other it reads a file, so call it in a thread.

        Raises:
            UnknownWorldLine: No line has that number, or it cannot be read.
        """
        return self.world_lines.read(n) if n else self.context.world_line

    @property
    def remarks(self) -> list[str]:
        """Sentences for the user about problems at opening; empty if there were none."""
        said = self.report.sentences() if self.report else []
        return [*said, *([self.lock.remark] if self.lock.remark else []), *self.notes]

    async def open(self) -> OpeningReport:
        """Take the lock and read the context.

        Raises:
            SessionLocked: Another process has it open; the text says who.
            StorageTrouble: The session cannot be opened at all.
        """
        try:
            await asyncio.to_thread(self._lock_folder)
        except OSError as error:
            if isinstance(error, StorageTrouble):
                raise
            raise StorageTrouble.of("open the session", error) from error
        try:
            self.report = await self.context.restore()
        except BaseException:
            self.lock.release()
            raise
        self.state = await asyncio.to_thread(self._read_state)
        self.marks = read_marks(self.dir)
        if not self.state.work_dir:
            self.state = replace(self.state, work_dir=str(self.work_dir))
            if self._made:
                # After a crash the session may be opened by its name from another folder, so the work folder is written now.
                with contextlib.suppress(StorageTrouble):
                    self._write_state(self.state)
        return self.report

    def _read_state(self) -> SessionMetadata:
        state = read_state(self.dir)
        if state.work_dir in ("", str(self.work_dir)) and (inode := folder_inode(self.work_dir)):
            # The inode is written with the next change: merely reading a session leaves its files unchanged.
            return replace(state, folder_inode=inode)
        return state

    def is_stored(self) -> bool:
        """Return whether any part of the conversation is on the disk. It blocks, so call it in a thread."""
        with contextlib.suppress(OSError):
            return (self.dir / LIVE_NAME).stat().st_size > 0
        return False

    async def sync(self) -> bool:
        """Write and fsync everything; return False if that fails (`context.trouble` says why)."""
        saved = await self.context.sync()
        if words := await asyncio.to_thread(self._sync_record):
            self.context.remark(words)
        return saved and self.record.trouble is None

    def _sync_record(self) -> str:
        """Sync the record to the disk, and changed files of which the conversation does not tell; return a sentence for the user about the lock, if there is one. Call it in a thread."""
        self.context.sync_first()
        with contextlib.suppress(StorageTrouble):
            self.record.sync()
        return self.lock.check()

    async def aclose(self, tokens: int | None = None) -> None:
        """Save, store the figures for lists of sessions, and release the lock. A session without messages is deleted.

        Args:
            tokens: The tokens of the live line as the user sees them; None for an estimate from the file.
        """
        if not self.lock.held:
            return
        try:
            await self.context.aclose()
            with contextlib.suppress(StorageTrouble):
                await asyncio.to_thread(self.record.close)
            await asyncio.to_thread(self._leave, tokens)
        finally:
            self.lock.release()

    async def fork(
        self,
        checkpoint_id: int | None = None,
        world_line: int = 0,
        *,
        after: int | None = None,
        name: str = "",
    ) -> Session:
        """Copy a line of this session (up to before a checkpoint) with its world lines into a new one, not yet opened.

        It also works on a session that another process has open.

        Args:
            checkpoint_id: The checkpoint at which the copy ends, not included; None for the whole line.
            world_line: The line to copy; 0 is the live one.
            after: The last checkpoint of the copy, for the title; None to name the first one that is not copied.
            name: The name of the copy's folder; empty for a new id.

        Raises:
            UnknownCheckpoint: The line has no checkpoint with that id.
            UnknownWorldLine: No line has that number.
            StorageTrouble: The disk refused; nothing was made.
        """
        from kimi_tui.session.fork import fork_session

        if self.lock.held:
            await self.sync()
        folder = await asyncio.to_thread(
            fork_session, self.storage, self.dir, checkpoint_id, world_line, after, name
        )
        return Session(folder, self.work_dir, self.storage)

    def rename(self, title: str) -> None:
        """Set the title; an empty one resets it to the beginning of the first message.

        Raises:
            StorageTrouble: The title could not be written.
        """
        self._write_state(replace(self.state, title=" ".join(title.split())))

    def give_to(self, external_agent: str) -> None:
        """Note the external agent that the session belongs to from now on, by its name.

        Arguments for its program are not stored: a session that came from elsewhere must not give any.

        Raises:
            StorageTrouble: The state could not be written.
        """
        if self.state.external_agent != external_agent:
            self._write_state(replace(self.state, external_agent=external_agent))

    def archive(self, archived: bool = True) -> None:
        """Archive the session, so that the usual list leaves it out, or bring it back.

        Raises:
            StorageTrouble: The state could not be written.
        """
        self._write_state(replace(self.state, archived=archived))

    def bookmark(self, uid: str, name: str) -> None:
        """Give a checkpoint a name; an empty name removes its bookmark.

        Raises:
            StorageTrouble: The bookmarks could not be written.
        """
        names = {known: text for known, text in self.marks.bookmarks.items() if known != uid}
        if name:
            names[uid] = name
        self._write_marks(replace(self.marks, bookmarks=names))

    def change_pins(self, pins: Iterable[tuple[str, int]], pinned: bool = True) -> None:
        """Pin messages, so that no compaction drops them, or unpin them, in one write.

        Args:
            pins: Pairs of a checkpoint's uid and the number of the message after it.
            pinned: Whether to pin or to unpin them.

        Raises:
            StorageTrouble: The pins could not be written.
        """
        known, changed = self.marks.pins, frozenset(pins)
        after = known | changed if pinned else known - changed
        if after != known:
            self._write_marks(replace(self.marks, pins=after))

    def _lock_folder(self) -> None:
        self._made = not self.dir.exists()
        if self._made:
            self._make_folders()
        self.lock.acquire()

    def _make_folders(self) -> None:
        self.storage.make_folder(self.dir)
        for folder in (self.dir.parent, self.dir.parent.parent):
            with contextlib.suppress(OSError):
                self.storage.sync_folder(folder)

    def _make_folder(self) -> None:
        # The folder was deleted while the session was open: it is made again and locked again, as the old lock has no name
        # any more.
        self._make_folders()
        self.lock.renew()
        # State and marks are never needed to continue, so a refusal is no trouble.
        with contextlib.suppress(OSError):
            write_state(self.storage, self.dir, self.state)
            if self.marks != Marks():
                write_marks(self.storage, self.dir, self.marks)

    def _leave(self, tokens: int | None) -> None:
        if self._made and self._is_empty():
            self.remove_traces()
            return
        if self.context.trouble is None and self.context.index.n_messages:
            summary = SessionSummary(
                size=self.context.size_bytes,
                messages=self.context.index.counts(0)[0],
                tokens=self.context.token_count if tokens is None else tokens,
                title=self._beginning,
            )
            if summary != self.state.summary:
                with contextlib.suppress(StorageTrouble):
                    self._write_state(replace(self.state, summary=summary))

    def _is_empty(self) -> bool:
        if self.context.index.n_messages or self.context.trouble or self.state.title:
            return False
        if records_a_turn(self.dir / RECORD_NAME):
            return False
        with contextlib.suppress(OSError):
            return {entry.name for entry in self.dir.iterdir()} <= _EMPTY_NAMES
        return False

    def remove_traces(self) -> None:
        """Delete the files of an empty session, and the folder unless it holds other files."""
        with contextlib.suppress(OSError):
            for name in sorted(_EMPTY_NAMES):
                (self.dir / name).unlink(missing_ok=True)
            self.dir.rmdir()
            self.dir.parent.rmdir()

    def _write_state(self, state: SessionMetadata) -> None:
        try:
            write_state(self.storage, self.dir, state)
        except OSError as error:
            raise StorageTrouble.of("save the session's title", error) from error
        self.state = state

    def _write_marks(self, marks: Marks) -> None:
        try:
            write_marks(self.storage, self.dir, marks)
        except OSError as error:
            raise StorageTrouble.of("save the bookmarks", error) from error
        self.marks = marks

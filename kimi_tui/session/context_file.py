"""`context.jsonl` as bytes: appended one write at a time, kept in memory until they are known to be on the disk.

The invariant: `_kept` holds every byte of the file from `_kept_from` on, and `_kept_from` is never beyond the end of the last
good fsync. So whatever the disk does (short writes, no room, a failed fsync, the folder gone, another program writing into
the file), the file can be written anew, and no message is ever only in a place where it may be lost.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path

from kimi_tui.filesystem import READ_ONLY, Identity, Storage, identity_of
from kimi_tui.session.errors import StorageTrouble

# Files up to this size are kept in memory whole; of longer ones only the bytes that are not known to be on the disk.
WHOLE_IN_MEMORY_BYTES = 16 << 20
_APPEND = os.O_RDWR | os.O_APPEND
_DOING = "save the conversation"


class ChangedByOthers(Exception):
    """The file at our path is not in the state in which we left it: another program wrote to it, cut it or replaced it."""


class ContextFile:
    """The file `context.jsonl`, which only grows. Appends never raise when the disk refuses them: `trouble` says why.

    Appends belong on the event loop, `sync`, `rewrite` and `is_foreign` in a thread; `read` may be called from any thread.

    Args:
        path: The path of the file.
        storage: The disk.
        make_folder: Called if the folder is gone, to create it (and its lock) again.

    Attributes:
        size: The bytes of the file, including those in memory only.
        torn: The bytes after the last whole record on the disk; not included in `size`.
        trouble: The reason why not everything is saved; None if it is.
        must_rewrite: Whether the bytes after the last sync cannot be trusted: only writing the file anew (`rewrite`) repairs it.
    """

    def __init__(self, path: Path, storage: Storage, make_folder: Callable[[], None]) -> None:
        self.path = path
        self.trouble: StorageTrouble | None = None
        self.size = 0
        self.torn = b""
        self.storage = storage
        self._make_folder = make_folder
        self._fd: int | None = None
        self._writable = True
        self._identity: Identity | None = None
        self._kept = bytearray()
        self._kept_from = 0
        # Threads read while the event loop appends and drops saved bytes, so `_kept` and `_kept_from` change together under
        # this lock.
        self._memory = threading.Lock()
        # Under this lock no thread closes the descriptor from which another one reads. It is taken before `_memory`.
        self._reading = threading.Lock()
        self._written = 0
        self._synced = 0
        # A failed write that could not be cut back may have reached this size.
        self._attempted = 0
        self.must_rewrite = False

    @property
    def unsaved_bytes(self) -> int:
        """The number of bytes that are in memory only."""
        return self.size - (self._synced if self.must_rewrite else self._written)

    @property
    def unsynced_bytes(self) -> int:
        """The number of bytes that a power cut might lose."""
        return self.size - self._synced

    @property
    def identity(self) -> Identity | None:
        """The identity of the file, which changes when another file takes its place."""
        return self._identity

    def adopt(self, size: int, torn: bytes = b"") -> None:
        """Use the file as it is: `size` good bytes, then the `torn` ones.

        A read-only file is used too; then nothing can be saved, and `trouble` says so.

        Raises:
            OSError: The file cannot be opened at all.
        """
        self.release()
        self._identity = None
        self._point_at(size)
        self.torn = torn
        fd = self._open_somehow()
        self._identity = identity_of(self.storage.fstat(fd))
        if 0 < size <= WHOLE_IN_MEMORY_BYTES:
            # If the bytes are not in memory, they are read from the disk when they are needed, which may fail.
            with contextlib.suppress(OSError):
                whole = bytearray(self.storage.read_exactly(fd, size, 0))
                with self._memory:
                    self._kept, self._kept_from = whole, 0

    def switched(self, identity: Identity, size: int, keep: int, extra: bytes) -> None:
        """Note that the file was replaced by a file of `size` bytes: the first `keep` bytes of the old one, then `extra`."""
        whole = self._kept_from == 0 and size <= WHOLE_IN_MEMORY_BYTES
        kept = self._kept[:keep] + extra if whole else bytearray()
        self._point_at(size)
        self._identity = identity
        if whole:
            with self._memory:
                self._kept, self._kept_from = kept, 0

    def _point_at(self, size: int) -> None:
        with self._memory:
            self._kept, self._kept_from = bytearray(), size
        self.size = self._written = self._synced = self._attempted = size
        self.torn = b""
        self.must_rewrite = False

    def read(self, size: int, offset: int) -> bytes:
        """Return up to `size` bytes from `offset` on, from memory or from the disk.

        Raises:
            OSError: The bytes are not in memory, and the disk cannot be read.
        """
        with self._memory:
            size = max(0, min(size, self.size - offset))
            if offset >= self._kept_from:
                begin = offset - self._kept_from
                return bytes(self._kept[begin : begin + size])
            on_disk = min(size, self._kept_from - offset)
            rest = bytes(self._kept[: size - on_disk])
        with self._reading:
            return self.storage.read_exactly(self._open(), on_disk, offset) + rest

    def append(self, data: bytes) -> None:
        """Add whole records after a settled end (`settle_tail`) and try to write them at once.

        Raises:
            ChangedByOthers: Another program changed the file; nothing was written, but the records are kept.
        """
        with self._memory:
            self._kept += data
            self.size += len(data)
        self.flush()

    def flush(self) -> None:
        """Write the unwritten bytes. A refusal becomes `trouble`.

        Raises:
            ChangedByOthers: Another program changed the file.
        """
        if self.must_rewrite or self._written == self.size:
            return
        fd: int | None = None
        try:
            fd = self.check()
            # The bytes are copied, because a view of the bytearray in a traceback would keep it from growing.
            self._attempted = self.size
            self.storage.write_all(fd, bytes(self._kept[self._written - self._kept_from :]))
            self._written = self.size
        except OSError as error:
            self._failed(_DOING, error)
            if fd is not None:
                self._cut_back(fd)
        else:
            self.trouble = None

    def sync(self) -> None:
        """Sync the written bytes to the disk.

        Raises:
            StorageTrouble: The sync failed; the file must be written anew.
        """
        if self.must_rewrite:
            raise self.trouble or StorageTrouble("Could not save the conversation.")
        written = self._written
        if written > self._synced:
            try:
                self.storage.fsync(self._open())
            except OSError as error:
                # The kernel forgets a failed write-back and marks the pages clean, so another fsync would report success.
                self.must_rewrite = True
                raise self._failed(_DOING, error) from error
            self._synced = written

    def rewrite(self, set_aside: Callable[[], None] | None = None) -> None:
        """Write the whole file anew and rename it over the old one.

        Args:
            set_aside: Called when the new file is ready, to keep the present file under another name.

        Raises:
            StorageTrouble: The disk refused; nothing changed.
        """
        self.must_rewrite = True
        temporary = self.path.with_name(f".{self.path.name}.tmp")
        storage = self.storage
        try:
            if not self.path.parent.is_dir():
                self._make_folder()
            source = self._open() if self._kept_from else None
            identity = storage.write_file(
                temporary, bytes(self._kept), source=source, size=self._kept_from
            )
            if set_aside is not None:
                set_aside()
            self.release()
            storage.replace(temporary, self.path)
            self._identity = identity
            storage.sync_folder(self.path.parent)
        except OSError as error:
            with contextlib.suppress(OSError):
                storage.unlink(temporary)
            raise self._failed(_DOING, error) from error
        self.must_rewrite = False
        self._written = self._synced = self.size
        self.torn = b""
        self.trouble = None

    def mark_unsafe(self, error: OSError, doing: str) -> StorageTrouble:
        """Treat the file as unsafe until it is rewritten; `error` refused `doing`. Return the trouble."""
        self.must_rewrite = True
        return self._failed(doing, error)

    def release(self) -> None:
        """Close the descriptor; after a failure the file is not trusted."""
        with self._reading:
            fd, self._fd = self._fd, None
        if fd is not None:
            try:
                self.storage.close(fd)
            except OSError as error:
                # NFS and quotas report errors late, so bytes that were not synced before may be lost.
                self.must_rewrite = self.must_rewrite or self._synced < self.size
                self._failed(_DOING, error)

    def is_foreign(self) -> bool:
        """Return whether another program changed the file: it is another file, or longer or shorter than ours."""
        try:
            status = self.storage.stat(self.path)
        except OSError:
            return False
        if self._identity != identity_of(status):
            return True
        expected = self._written + len(self.torn)
        return not expected <= status.st_size <= max(expected, self._attempted)

    def check(self) -> int:
        """Check that nobody else changed the file; return its descriptor.

        Raises:
            ChangedByOthers: Another program changed it.
            OSError: The file cannot be examined.
        """
        status = self.storage.stat(self.path)
        if self._identity != identity_of(status):
            raise ChangedByOthers
        if status.st_size != self._written + len(self.torn):
            raise ChangedByOthers
        if not self._writable:
            self.release()
        return self._open()

    def _open(self) -> int:
        if self._fd is None:
            fd = self.storage.open(self.path, _APPEND)
            if self._identity not in (None, identity_of(self.storage.fstat(fd))):
                self.storage.close(fd)
                raise OSError(errno.ESTALE, "another file has replaced it")
            self._fd = fd
            self._writable = True
        return self._fd

    def _open_somehow(self) -> int:
        try:
            return self._open()
        except OSError as error:
            if error.errno not in READ_ONLY:
                raise
            self._fd = self.storage.open(self.path, os.O_RDONLY)
            self._writable = False
            self._failed("open the session for writing", error)
            return self._fd

    def _cut_back(self, fd: int) -> None:
        # The next record must never be joined to half a record.
        try:
            if self.storage.fstat(fd).st_size > self._written:
                self.storage.ftruncate(fd, self._written)
        except OSError:
            self.must_rewrite = True

    def trim(self) -> None:
        """Drop the bytes that are safe on the disk, if the file is too long to be kept in memory."""
        if (
            self.size > WHOLE_IN_MEMORY_BYTES
            and not self.must_rewrite
            and self._synced > self._kept_from
        ):
            with self._memory:
                del self._kept[: self._synced - self._kept_from]
                self._kept_from = self._synced

    def salvage_tail(self) -> bool:
        """Move a torn end to `context.jsonl.torn` and cut it off; return False if that fails."""
        if not self.torn:
            return True
        beside = self.path.with_name(f"{self.path.name}.torn")
        try:
            fd = self.check()
            with self.storage.opened(beside, os.O_WRONLY | os.O_APPEND | os.O_CREAT) as kept:
                self.storage.append(kept, self.torn + b"\n", sync=True)
            self.storage.sync_folder(beside.parent)
            self.storage.ftruncate(fd, self.size)
        except (OSError, ChangedByOthers):
            return False
        self.torn = b""
        return True

    def settle_tail(self) -> bytes:
        """Salvage a torn end. If that fails, close it with a line feed and return the unreadable record that results."""
        if not self.torn or self.salvage_tail():
            return b""
        closed = self.torn + b"\n"
        with self._memory:
            self._kept += closed
            self._written += len(self.torn)
            self.size += len(closed)
        self.torn = b""
        return closed

    def _failed(self, doing: str, error: OSError) -> StorageTrouble:
        if error.errno == errno.ENOENT:
            # The file or its folder is gone: bytes written to the descriptor would have no name.
            self.must_rewrite = True
        trouble = StorageTrouble.of(doing, error)
        self.trouble = trouble
        return trouble

"""The bytes of the live line: appended one write at a time, kept in memory until they are known to be on the disk.

The invariant: `_kept` holds every byte of the line from `_kept_from` on, and `_kept_from` is never beyond what the last
good fsync covered. So whatever the disk does (short writes, no room, a failed fsync, the folder gone, another program
writing into the file), the line can be written anew, and what was said is never only where it may be lost.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable
from pathlib import Path

from kimi_tui.session.errors import StorageTrouble
from kimi_tui.session.new_file import Identity, identity_of, write_new
from kimi_tui.session.storage import Storage, read_exactly, write_all
from kimi_tui.session.torn import keep_beside

# Lines up to this size are kept in memory whole; of longer ones only what is not yet known to be on the disk.
WHOLE_IN_MEMORY_BYTES = 16 << 20
_APPEND = os.O_RDWR | os.O_APPEND


class ChangedByOthers(Exception):
    """The file under our name is not as we left it: another program wrote to it, cut it or put another in its place."""


class LiveFile:
    """`context.jsonl`, as bytes.

    Args:
        path: Where it is.
        storage: The disk.
        make_folder: Called when the folder is gone, to make it (and its lock) again.
    """

    def __init__(self, path: Path, storage: Storage, make_folder: Callable[[], None]) -> None:
        self.path = path
        self.trouble: StorageTrouble | None = None
        self.size = 0
        self.torn = b""
        self._storage = storage
        self._make_folder = make_folder
        self._fd: int | None = None
        self._writable = True
        self._identity: Identity | None = None
        self._kept = bytearray()
        self._kept_from = 0
        self._written = 0
        self._synced = 0
        # How far a write that failed and could not be cut back may have come.
        self._attempted = 0
        # The bytes in the file beyond `_synced` cannot be trusted: only writing it anew makes it good.
        self._suspect = False

    @property
    def unsaved_bytes(self) -> int:
        """How much of the line is in memory only."""
        return self.size - (self._synced if self._suspect else self._written)

    @property
    def unsynced_bytes(self) -> int:
        """How much of the line a power cut might take."""
        return self.size - self._synced

    @property
    def identity(self) -> Identity | None:
        """Which file it is, as long as nobody puts another in its place."""
        return self._identity

    @property
    def must_rewrite(self) -> bool:
        """Whether only writing the file anew (`rewrite`, in a thread) makes it good again."""
        return self._suspect

    def adopt(self, size: int, torn: bytes = b"") -> None:
        """Take the file as it is: `size` good bytes, then `torn` ones that are no part of the line.

        A file that may only be read is taken too; then nothing can be saved, and `trouble` says so.

        Raises:
            OSError: It cannot be opened at all.
        """
        self.release()
        self._identity = None
        self._point_at(size)
        self.torn = torn
        fd = self._open_somehow()
        self._identity = identity_of(self._storage.fstat(fd))
        if 0 < size <= WHOLE_IN_MEMORY_BYTES:
            # Without them in memory they are read from the disk when they are needed, and may fail then.
            with contextlib.suppress(OSError):
                self._kept += read_exactly(self._storage, fd, size, 0)
                self._kept_from = 0

    def switched(self, identity: Identity, size: int, keep: int, extra: bytes) -> None:
        """Another file stands under the name: the first `keep` bytes of this line, then `extra`."""
        whole = self._kept_from == 0 and size <= WHOLE_IN_MEMORY_BYTES
        kept = self._kept
        self._point_at(size)
        self._identity = identity
        if whole:
            del kept[keep:]
            kept += extra
            self._kept = kept
            self._kept_from = 0

    def _point_at(self, size: int) -> None:
        self._kept = bytearray()
        self._kept_from = size
        self.size = self._written = self._synced = self._attempted = size
        self.torn = b""
        self._suspect = False

    def read(self, size: int, offset: int) -> bytes:
        """Bytes of the line.

        Raises:
            OSError: They are not in memory, and the disk does not give them.
        """
        size = max(0, min(size, self.size - offset))
        if offset >= self._kept_from:
            begin = offset - self._kept_from
            return bytes(self._kept[begin : begin + size])
        on_disk = min(size, self._kept_from - offset)
        data = read_exactly(self._storage, self._open(), on_disk, offset)
        return data + bytes(self._kept[: size - on_disk])

    def append(self, data: bytes) -> int:
        """Add records and try to write them at once; returns where they begin. Never raises for the disk's sake.

        Raises:
            ChangedByOthers: The file is not as we left it; nothing was written, but the records are in the line.
        """
        self.settle_torn()
        offset = self.size
        self._kept += data
        self.size += len(data)
        self.flush()
        return offset

    def flush(self) -> None:
        """Write what is not yet written. A refusal becomes `trouble`.

        Raises:
            ChangedByOthers: The file is not as we left it.
        """
        if self._suspect or self._written == self.size:
            return
        fd: int | None = None
        try:
            fd = self._checked()
            # A copy: a view of it in a traceback would keep the bytearray from growing.
            self._attempted = self.size
            write_all(self._storage, fd, bytes(self._kept[self._written - self._kept_from :]))
            self._written = self.size
        except OSError as error:
            self._failed("save the conversation", error)
            if fd is not None:
                self._cut_back(fd)
        else:
            self.trouble = None

    def sync(self) -> int:
        """Bring what is written to the disk; call it in a thread. Returns the size that is now safe.

        Raises:
            StorageTrouble: It could not; the file must be written anew.
        """
        if self._suspect:
            raise self.trouble or StorageTrouble("Could not save the conversation.")
        written = self._written
        if written > self._synced:
            try:
                self._storage.fsync(self._open())
            except OSError as error:
                # The kernel forgets a failed write-back and calls the pages clean: another fsync would lie.
                self._suspect = True
                raise self._failed("save the conversation", error) from error
            self._synced = written
        return written

    def rewrite(self, set_aside: Callable[[], None] | None = None) -> None:
        """Write the whole line anew and put it under the name; call it in a thread.

        Args:
            set_aside: Called when the new file is ready, to keep what now stands under the name.

        Raises:
            StorageTrouble: The disk refused; nothing changed.
        """
        self._suspect = True
        temporary = self.path.with_name(f".{self.path.name}.tmp")
        storage = self._storage
        try:
            if not self.path.parent.is_dir():
                self._make_folder()
            source = self._open() if self._kept_from else None
            identity = write_new(storage, temporary, source, self._kept_from, bytes(self._kept))
            if set_aside is not None:
                set_aside()
            self.release()
            storage.replace(temporary, self.path)
            self._identity = identity
            storage.sync_folder(self.path.parent)
        except OSError as error:
            with contextlib.suppress(OSError):
                storage.unlink(temporary)
            raise self._failed("save the conversation", error) from error
        self._suspect = False
        self._written = self._synced = self.size
        self.torn = b""
        self.trouble = None

    def distrust(self, error: OSError, doing: str) -> StorageTrouble:
        """Call the file unsafe until it is written anew."""
        self._suspect = True
        return self._failed(doing, error)

    def release(self) -> None:
        """Close the descriptor; a failure makes the file suspect."""
        fd, self._fd = self._fd, None
        if fd is not None:
            try:
                self._storage.close(fd)
            except OSError as error:
                # NFS and quotas report late: what was not synced before may be gone.
                self._suspect = self._suspect or self._synced < self.size
                self._failed("save the conversation", error)

    def is_foreign(self) -> bool:
        """Whether another program's doing stands under our name: another file, or more or less than we wrote."""
        try:
            status = self._storage.stat(self.path)
        except OSError:
            return False
        if self._identity != identity_of(status):
            return True
        expected = self._written + len(self.torn)
        return not expected <= status.st_size <= max(expected, self._attempted)

    def check(self) -> None:
        """Look whether the file is as we left it.

        Raises:
            ChangedByOthers: It is not.
            OSError: It cannot be looked at.
        """
        self._checked()

    def _checked(self) -> int:
        status = self._storage.stat(self.path)
        if self._identity != identity_of(status):
            raise ChangedByOthers
        if status.st_size != self._written + len(self.torn):
            raise ChangedByOthers
        if not self._writable:
            self.release()
        return self._open()

    def _open(self) -> int:
        if self._fd is None:
            fd = self._storage.open(self.path, _APPEND)
            if self._identity not in (None, identity_of(self._storage.fstat(fd))):
                self._storage.close(fd)
                raise OSError(errno.ESTALE, "another file stands in its place")
            self._fd = fd
            self._writable = True
        return self._fd

    def _open_somehow(self) -> int:
        try:
            return self._open()
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
                raise
            self._fd = self._storage.open(self.path, os.O_RDONLY)
            self._writable = False
            self._failed("open the session for writing", error)
            return self._fd

    def _cut_back(self, fd: int) -> None:
        # Half a record must never be joined by the next one.
        try:
            if self._storage.fstat(fd).st_size > self._written:
                self._storage.ftruncate(fd, self._written)
        except OSError:
            self._suspect = True

    def move_torn(self) -> bool:
        """Move a torn end to its own file beside this one and cut it off; False where that cannot be."""
        if not self.torn:
            return True
        try:
            fd = self._checked()
            keep_beside(self._storage, self.path, self.torn)
            self._storage.ftruncate(fd, self.size)
        except (OSError, ChangedByOthers):
            return False
        self.torn = b""
        return True

    def trim(self) -> None:
        """Let go of what is safe on the disk, where the line is too long to be kept in memory."""
        if (
            self.size > WHOLE_IN_MEMORY_BYTES
            and not self._suspect
            and self._synced > self._kept_from
        ):
            del self._kept[: self._synced - self._kept_from]
            self._kept_from = self._synced

    def settle_torn(self) -> None:
        """Move a torn end to its own file; where that cannot be, end its line, so that it is merely unreadable."""
        if self.move_torn():
            return
        self._kept += self.torn + b"\n"
        self._written += len(self.torn)
        self.size += len(self.torn) + 1
        self.torn = b""

    def _failed(self, doing: str, error: OSError) -> StorageTrouble:
        if error.errno == errno.ENOENT:
            # The file or its folder is gone: what the descriptor still takes has no name.
            self._suspect = True
        trouble = error if isinstance(error, StorageTrouble) else StorageTrouble.of(doing, error)
        self.trouble = trouble
        return trouble

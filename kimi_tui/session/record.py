"""An append-only file of JSON objects that is never cut: `wire.jsonl`, and the journal of operations.

A record that the disk does not take stays in memory and is written before the next one; a torn end is closed by a line
feed, so that it is merely one unreadable line.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kimi_tui.session.errors import StorageTrouble
from kimi_tui.session.jsonl import encode, lines, parse
from kimi_tui.session.storage import Storage, write_all

RECORD_NAME = "wire.jsonl"
METADATA = {"type": "metadata", "protocol_version": "1.10"}


class RecordFile:
    """Plain objects, one a line, in the order in which they were appended.

    Args:
        path: Where the file is; it is made by the first append.
        storage: The disk.
        metadata: The first line of a new file, if it has one.
    """

    def __init__(
        self,
        path: Path,
        storage: Storage | None = None,
        metadata: Mapping[str, Any] | None = METADATA,
    ) -> None:
        self.path = path
        self.trouble: StorageTrouble | None = None
        self._storage = storage or Storage()
        self._metadata = metadata
        self._fd: int | None = None
        self._pending = bytearray()
        # Written since the last good sync: written again if a sync fails.
        self._unsynced = bytearray()
        # Appends come from the event loop while a thread syncs.
        self._lock = threading.Lock()

    def append(self, record: Mapping[str, Any]) -> None:
        """Add one record; written at once, and if the disk refuses, before the next. Never raises for its sake."""
        data = encode(record)
        with self._lock:
            self._pending += data
            self._flush()

    def flush(self) -> bool:
        """Write what is still to be written; False while the disk refuses (`trouble` says why)."""
        with self._lock:
            return self._flush()

    def _flush(self) -> bool:
        if not self._pending:
            return True
        data = bytes(self._pending)
        try:
            fd = self._open()
            before = self._storage.fstat(fd).st_size
            prefix = self._prefix(fd, before)
            try:
                write_all(self._storage, fd, prefix + data)
            except OSError:
                with contextlib.suppress(OSError):
                    self._storage.ftruncate(fd, before)
                raise
        except OSError as error:
            self.trouble = StorageTrouble.of(f"write {self.path.name}", error)
            return False
        self._unsynced += data
        self._pending.clear()
        self.trouble = None
        return True

    def sync(self) -> None:
        """Bring everything to the disk; may be called in a thread.

        Raises:
            StorageTrouble: It could not; what is missing is written again by the next attempt.
        """
        if not self.flush():
            raise self.trouble or StorageTrouble(f"Could not write {self.path.name}.")
        with self._lock:
            written, fd = len(self._unsynced), self._fd
        if not written or fd is None:
            return
        try:
            self._storage.fsync(fd)
        except OSError as error:
            with self._lock:
                # Nothing says how much of it arrived; a reader passes over what stands there twice (`seq`, ids).
                self._pending[:0] = self._unsynced
                self._unsynced.clear()
                self.trouble = StorageTrouble.of(f"write {self.path.name}", error)
                raise self.trouble from error
        with self._lock:
            del self._unsynced[:written]

    @property
    def unsaved_bytes(self) -> int:
        """How much is in memory only."""
        return len(self._pending)

    @property
    def size(self) -> int:
        """The size of the file, nothing if there is none."""
        try:
            return self._storage.stat(self.path).st_size
        except OSError:
            return 0

    def read(self, start: int = 0) -> Iterator[dict[str, Any]]:
        """Every readable record from an offset (the beginning of a line) on; the rest is passed over."""
        for _, record in self.read_with_offsets(start):
            yield record

    def read_with_offsets(self, start: int = 0) -> Iterator[tuple[int, dict[str, Any]]]:
        """The same, each with the offset of its line."""
        try:
            fd = self._storage.open(self.path, os.O_RDONLY)
        except OSError:
            return
        try:
            for line in lines(lambda size, offset: self._storage.pread(fd, size, offset), start):
                record = parse(line.data)
                if isinstance(record, dict):
                    yield line.offset, record
        except OSError:
            return
        finally:
            self._storage.close(fd)

    def tail_start(self, size_bytes: int) -> int:
        """Where the first whole line within the last `size_bytes` begins, for `read`."""
        try:
            fd = self._storage.open(self.path, os.O_RDONLY)
        except OSError:
            return 0
        try:
            position = max(0, self._storage.fstat(fd).st_size - size_bytes)
            if position == 0:
                return 0
            position -= 1
            while chunk := self._storage.pread(fd, 65_536, position):
                end = chunk.find(b"\n")
                if end >= 0:
                    return position + end + 1
                position += len(chunk)
            return position
        except OSError:
            return 0
        finally:
            self._storage.close(fd)

    def close(self) -> None:
        """Write what is left and close.

        Raises:
            StorageTrouble: Something could not be written.
        """
        try:
            self.sync()
        finally:
            fd, self._fd = self._fd, None
            if fd is not None:
                try:
                    self._storage.close(fd)
                except OSError as error:
                    self.trouble = StorageTrouble.of(f"write {self.path.name}", error)

    def _open(self) -> int:
        if self._fd is not None:
            held = self._storage.fstat(self._fd)
            with contextlib.suppress(FileNotFoundError):
                named = self._storage.stat(self.path)
                if (named.st_dev, named.st_ino) == (held.st_dev, held.st_ino):
                    return self._fd
            # What the old descriptor takes has no name any more.
            fd, self._fd = self._fd, None
            with contextlib.suppress(OSError):
                self._storage.close(fd)
        self._fd = self._storage.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
        return self._fd

    def _prefix(self, fd: int, size: int) -> bytes:
        if size == 0:
            return encode(self._metadata) if self._metadata is not None else b""
        return b"" if self._storage.pread(fd, 1, size - 1) == b"\n" else b"\n"

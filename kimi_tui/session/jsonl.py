"""JSON Lines as bytes: split at line feeds only, read as leniently as possible, written so that every line is one object.

U+2028, U+0085 and similar characters inside strings are data. An unreadable line raises no exception; the caller decides what
to do about it. `JsonlLog` is a file of such lines that is only appended to: `wire.jsonl`, and the journal of operations.
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, cast

from pydantic_core import from_json

from kimi_tui.filesystem import Storage
from kimi_tui.session.errors import StorageTrouble

RECORD_NAME = "wire.jsonl"
METADATA = {"type": "metadata", "protocol_version": "1.10"}
"""The first line of `wire.jsonl`, as kimi-cli writes it."""
CHUNK_BYTES = 1 << 18
"""Bytes to read in one go. A larger block would not stay in the processor's cache until it is split into lines."""
MAX_LINE_BYTES = 256 << 20
"""A longer line is damage: the hole of a sparse file has no line feed, and would fill the memory."""
MAX_UNSYNCED_BYTES = 4 << 20
"""Bytes that are not known to be on the disk are kept in memory, so they are synced before there are more than these."""
_BOM = b"\xef\xbb\xbf"
_MAX_DEPTH = 100
_AT_ONCE = 500
"""Items of a list that are written in one go: the encoder holds the interpreter, and so the event loop, even from a thread."""
_MAX_BITS = 4_000


class RawLine(NamedTuple):
    """A line of a file: its offset, its bytes without the line feed, and whether it had a line feed."""

    number: int
    offset: int
    data: bytes
    complete: bool

    @property
    def end(self) -> int:
        """The offset of the next line."""
        return self.offset + len(self.data) + self.complete


@dataclass(frozen=True, slots=True)
class SkippedLine:
    """A line that could not be read; it stays in its file."""

    line: int
    byte: int
    reason: str

    def __str__(self) -> str:
        return f"line {self.line} (byte {self.byte}): {self.reason}"


def lines(read: Callable[[int, int], bytes], start: int = 0) -> Iterator[RawLine]:
    """Yield every line of a file; the last one is marked as incomplete if its line feed is missing.

    Args:
        read: Returns up to `size` bytes at `offset`, nothing at the end: `read(size, offset)`.
        start: The offset to start at, which must be the beginning of a line.

    Raises:
        OSError: A line is too long (EFBIG), or `read` raises it.
    """
    number = 1
    offset = start
    position = start
    parts: list[bytes] = []
    while chunk := read(CHUNK_BYTES, position):
        position += len(chunk)
        begin = 0
        while (end := chunk.find(b"\n", begin)) >= 0:
            data = chunk[begin:end]
            if parts:
                parts.append(data)
                data = b"".join(parts)
                parts.clear()
            # By position: a session has tens of thousands of lines, and naming an argument doubles the time.
            yield RawLine(number, offset, data, True)
            number += 1
            offset += len(data) + 1
            begin = end + 1
        if begin < len(chunk):
            parts.append(chunk[begin:] if begin else chunk)
            if position - offset > MAX_LINE_BYTES:
                size = f"{MAX_LINE_BYTES >> 20} MB"
                raise OSError(errno.EFBIG, f"line {number} is longer than {size}")
    if parts:
        yield RawLine(number, offset, b"".join(parts), complete=False)


def parse(data: bytes) -> dict[str, Any] | str | None:
    """Parse one line: return its object, None for a blank line, or the reason why it cannot be read."""
    try:
        value = from_json(data)
    except ValueError:
        # Bytes that were never written are zeros after a power cut; a good record may follow them.
        stripped = data.removeprefix(_BOM).strip(b"\0 \t\r\n")
        if not stripped:
            return None if not data.strip() else "only NUL bytes"
        try:
            value = json.loads(stripped.decode("utf-8", errors="replace"), strict=False)
        except RecursionError:
            return "nested too deeply"
        except ValueError:
            return "not JSON"
    if isinstance(value, dict):
        return cast("dict[str, Any]", value)
    return "not an object"


_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def encode(record: Mapping[str, Any]) -> bytes:
    """Return one line of JSON with its line feed. Values that JSON cannot hold (NaN, infinite numbers) become null."""
    try:
        return encode_exactly(record)
    except UnicodeEncodeError:
        pass
    except (ValueError, TypeError, RecursionError):
        record = cast("dict[str, Any]", _plain(record, 0))
        with contextlib.suppress(UnicodeEncodeError):
            return encode_exactly(record)
    # A lone surrogate has no UTF-8 form, but JSON can escape it.
    return json.dumps(record, ensure_ascii=True, separators=(",", ":")).encode() + b"\n"


def encode_exactly(record: Mapping[str, Any]) -> bytes:
    """Return one line of JSON with its line feed.

    Raises:
        ValueError, TypeError, RecursionError: JSON or UTF-8 has no form for a value in it.
    """
    dumps = _ENCODER.encode
    long = {
        key: cast("list[object]", value)
        for key, value in record.items()
        if isinstance(value, list) and len(cast("list[object]", value)) > _AT_ONCE
    }
    if not long:
        return dumps(record).encode() + b"\n"
    pieces: list[str] = []
    for key, value in record.items():
        text = dumps(value) if key not in long else ""
        if items := long.get(key):
            some = (items[at : at + _AT_ONCE] for at in range(0, len(items), _AT_ONCE))
            text = f"[{','.join(dumps(part)[1:-1] for part in some)}]"
        pieces.append(f"{dumps(key)}:{text}")
    return f"{{{','.join(pieces)}}}\n".encode()


def _plain(value: object, depth: int) -> object:
    if depth > _MAX_DEPTH:
        return None
    if isinstance(value, Mapping):
        items = cast("Mapping[object, object]", value).items()
        return {str(key): _plain(item, depth + 1) for key, item in items}
    if isinstance(value, (list, tuple)):
        return [_plain(item, depth + 1) for item in cast("list[object]", value)]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, int) and not isinstance(value, bool):
        return value if value.bit_length() < _MAX_BITS else None
    return value if value is None or isinstance(value, (str, bool)) else str(value)


class JsonlLog:
    """An append-only file of JSON objects, one per line. Appends belong in a thread, and several threads may append and sync.

    A record that the disk refuses stays in memory and is written before the next one; a torn end is closed with a line feed,
    so that it becomes one unreadable line.

    Args:
        path: The path of the file, which the first append creates.
        storage: The disk.
        metadata: The first line of a new file, if it has one.

    Attributes:
        trouble: The reason why the newest records are in memory only; None if they are not.
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
        # These bytes were written since the last good sync; they are written again if a sync fails.
        self._unsynced = bytearray()
        # Appends come from the event loop while a thread syncs. Under the second lock, which is taken first, one thread syncs:
        # two would both take what they had found unsynced for their own.
        self._lock = threading.Lock()
        self._syncing = threading.Lock()

    def append(self, *records: Mapping[str, Any]) -> None:
        """Add records. They are written at once or, if the disk refuses, before the next ones. Never raises because of the disk.

        After `MAX_UNSYNCED_BYTES` everything is synced.
        """
        data = b"".join(map(encode, records))
        with self._lock:
            self._pending += data
            self._flush()
            is_much = len(self._unsynced) > MAX_UNSYNCED_BYTES
        if is_much:
            with contextlib.suppress(StorageTrouble):
                self.sync()

    def flush(self) -> bool:
        """Write the pending records; return False while the disk refuses (`trouble` says why)."""
        with self._lock:
            return self._flush()

    def _flush(self) -> bool:
        if not self._pending:
            return True
        data = bytes(self._pending)
        try:
            fd = self._open()
            self._storage.append(fd, self._prefix(fd) + data)
        except OSError as error:
            self.trouble = StorageTrouble.of(f"write {self.path.name}", error)
            return False
        self._unsynced += data
        self._pending.clear()
        self.trouble = None
        return True

    def sync(self) -> None:
        """Sync everything to the disk.

        Raises:
            StorageTrouble: The sync failed; the next attempt writes the missing records again.
        """
        with self._syncing:
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
                    # Nobody knows how much arrived; readers ignore records that are there twice (by `seq` or id).
                    self._pending[:0] = self._unsynced
                    self._unsynced.clear()
                    self.trouble = StorageTrouble.of(f"write {self.path.name}", error)
                    raise self.trouble from error
            with self._lock:
                del self._unsynced[:written]

    @property
    def is_synced(self) -> bool:
        """Whether everything is synced to the disk."""
        return not (self._pending or self._unsynced)

    def read(self, start: int = 0) -> Iterator[dict[str, Any]]:
        """Yield every readable record from an offset (the beginning of a line) on; other lines are ignored."""
        for _, record in self.read_with_offsets(start):
            yield record

    def read_with_offsets(self, start: int = 0) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield every readable record from an offset on, each with the offset of its line."""
        with contextlib.suppress(OSError), self._storage.opened(self.path) as fd:
            for line in lines(lambda size, offset: self._storage.pread(fd, size, offset), start):
                record = parse(line.data)
                if isinstance(record, dict):
                    yield line.offset, record

    def tail_start(self, size_bytes: int) -> int:
        """Return where the first whole line within the last `size_bytes` begins, for `read`."""
        with contextlib.suppress(OSError), self._storage.opened(self.path) as fd:
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
        return 0

    def close(self) -> None:
        """Write the pending records and close the file.

        Raises:
            StorageTrouble: A record could not be written.
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
            # The old descriptor's file has no name any more.
            fd, self._fd = self._fd, None
            with contextlib.suppress(OSError):
                self._storage.close(fd)
        self._fd = self._storage.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
        return self._fd

    def _prefix(self, fd: int) -> bytes:
        size = self._storage.fstat(fd).st_size
        if size == 0:
            return encode(self._metadata) if self._metadata is not None else b""
        return b"" if self._storage.pread(fd, 1, size - 1) == b"\n" else b"\n"

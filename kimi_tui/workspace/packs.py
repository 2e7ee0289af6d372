"""Packs: files that hold many contents by their SHA-256, written once and never changed.

Each body stands behind a head with its name and size, and an index of all of them stands at the end. A pack whose index is
damaged is walked head by head, so damage costs no more than what it hit.
"""

from __future__ import annotations

import contextlib
import os
import struct
import uuid
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

SUFFIX = ".pack"
_MAGIC = b"KTPACK1\n"
_HEAD = struct.Struct(">32sI")
_ROW = struct.Struct(">32sQI")
_FOOT = struct.Struct(">QII8s")
_BUFFER_BYTES = 1 << 20


class Place(NamedTuple):
    """Where a body stands in a pack."""

    offset: int
    size: int


class PackWriter:
    """One pack while it is written. Nothing of it exists before `finish`.

    Args:
        folder: where the pack will be.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / f"{uuid.uuid4().hex}{SUFFIX}"
        self._temporary = self.path.with_suffix(".tmp")
        handle = os.open(self._temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        self._file = os.fdopen(handle, "w+b", buffering=_BUFFER_BYTES)
        self._file.write(_MAGIC)
        self.size_bytes = len(_MAGIC)
        self.places: dict[bytes, Place] = {}

    def add(self, name: bytes, body: bytes) -> None:
        """Append a body.

        Raises:
            OSError: the disk refused; the pack must be dropped.
        """
        self._file.write(_HEAD.pack(name, len(body)))
        self._file.write(body)
        self.places[name] = Place(self.size_bytes + _HEAD.size, len(body))
        self.size_bytes += _HEAD.size + len(body)

    def read(self, place: Place) -> bytes:
        """A body that was added.

        Raises:
            OSError: the disk refused.
        """
        self._file.flush()
        return os.pread(self._file.fileno(), place.size, place.offset)

    def finish(self) -> None:
        """Write the index, bring everything to the disk and give it its name.

        Raises:
            OSError: the disk refused; the pack must be dropped.
        """
        index = b"".join(_ROW.pack(name, *place) for name, place in self.places.items())
        foot = _FOOT.pack(self.size_bytes, len(self.places), zlib.crc32(index), _MAGIC)
        self._file.write(index + foot)
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        self._temporary.rename(self.path)
        sync_folder(self.path.parent)
        self.size_bytes += len(index) + len(foot)

    def drop(self) -> None:
        """Leave no trace."""
        # Closing writes what is buffered, which a full disk refuses again.
        with contextlib.suppress(OSError):
            self._file.close()
        with contextlib.suppress(OSError):
            self._temporary.unlink(missing_ok=True)


def read_index(path: Path) -> dict[bytes, Place]:
    """What a pack holds; as much as can be found where it is damaged.

    Raises:
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size >= _FOOT.size:
            file.seek(size - _FOOT.size)
            start, count, checksum, magic = _FOOT.unpack(file.read(_FOOT.size))
            if magic == _MAGIC and start + count * _ROW.size + _FOOT.size == size:
                file.seek(start)
                index = file.read(count * _ROW.size)
                if zlib.crc32(index) == checksum:
                    return {
                        name: Place(offset, length)
                        for name, offset, length in _ROW.iter_unpack(index)
                    }
        found: dict[bytes, Place] = {}
        for name, place in _walked(path, size):
            # Rows of the damaged index read like heads as well; the first of a name is the true one.
            found.setdefault(name, place)
        return found


def read_body(path: Path, place: Place) -> bytes:
    """A body of a pack; shorter where the pack was cut.

    Raises:
        OSError: it cannot be read.
    """
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.pread(handle, place.size, place.offset)
    finally:
        os.close(handle)


def packs_in(folder: Path) -> list[Path]:
    """The packs of a folder; none where there is no folder."""
    with contextlib.suppress(OSError), os.scandir(folder) as listing:
        return sorted(Path(item.path) for item in listing if item.name.endswith(SUFFIX))
    return []


def sync_folder(folder: Path) -> None:
    """Bring a folder's names to the disk; some mounts refuse, and the files in it are safe all the same."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _walked(path: Path, size: int) -> Iterator[tuple[bytes, Place]]:
    with path.open("rb") as file:
        position = len(_MAGIC)
        while position + _HEAD.size <= size:
            file.seek(position)
            name, length = _HEAD.unpack(file.read(_HEAD.size))
            position += _HEAD.size
            if position + length > size:
                return
            yield name, Place(position, length)
            position += length

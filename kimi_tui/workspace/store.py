"""A store of file contents by their SHA-256: written once, never changed, shared by all world lines of a session.

What one look at the files finds new goes into one pack, so that a tree of fifty thousand files costs one file and one fsync.
Contents that a neighbouring session of the same folder has are linked, not stored again.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
import zlib
from collections.abc import Sequence
from pathlib import Path

from kimi_tui.workspace import packs
from kimi_tui.workspace.packs import PackWriter, Place

_RAW = b"r"
_ZLIB = b"z"
_PIECE = 1 << 20
# Setting up the compressor costs more than it can save below this.
_COMPRESSED_FROM_BYTES = 160


class StoreFull(Exception):
    """The disk budget of the store is used up; the message is for the person."""


class BlobDamaged(Exception):
    """A blob is missing or does not hold what its name says."""


class BlobStore:
    """Contents by hash below `root`. Methods block and may be called from any thread.

    Args:
        root: the store's folder, made when first needed (0700).
        max_bytes: the disk budget.
        neighbours: the folders of other stores, whose packs are linked where they hold what is put here.
    """

    def __init__(self, root: Path, max_bytes: int, neighbours: Sequence[Path] = ()) -> None:
        self._root = root
        self._max_bytes = max_bytes
        self._neighbours = tuple(neighbours)
        self._places: dict[bytes, tuple[Path, Place]] = {}
        self._near: dict[bytes, Path] = {}
        self._writer: PackWriter | None = None
        self._used = 0
        self._is_loaded = False
        self._lock = threading.RLock()

    def put(self, content: bytes, name: str = "") -> str:
        """Keep these bytes; returns their name. On disk for good only after `flush`.

        Args:
            content: the bytes.
            name: their name, where it is known.

        Raises:
            StoreFull: the budget does not allow it.
            OSError: the disk refused.
        """
        name = name or hash_of(content)
        with self._lock:
            self._put(bytes.fromhex(name), content)
        return name

    def limit(self, max_bytes: int) -> None:
        """Change the disk budget."""
        with self._lock:
            self._max_bytes = max_bytes

    def flush(self) -> None:
        """Make all that was put safe.

        Raises:
            OSError: the disk refused; what was put since the last flush does not exist.
        """
        with self._lock:
            writer, self._writer = self._writer, None
            if writer is None:
                return
            before = writer.size_bytes
            try:
                writer.finish()
            except OSError:
                writer.drop()
                self._used -= before
                raise
            self._used += writer.size_bytes - before
            self._places |= {name: (writer.path, place) for name, place in writer.places.items()}

    def get(self, name: str) -> bytes:
        """The contents of that name, verified.

        Raises:
            BlobDamaged: not there, or not what its name says.
        """
        try:
            with self._lock:
                body = self._body(bytes.fromhex(name))
            content = zlib.decompress(body[1:]) if body[:1] == _ZLIB else body[1:]
        except (OSError, ValueError, KeyError, zlib.error) as error:
            raise BlobDamaged("its saved contents cannot be read") from error
        if hashlib.sha256(content).hexdigest() != name:
            raise BlobDamaged("its saved contents are damaged")
        return content

    def has(self, name: str) -> bool:
        """Whether these contents are kept; what a neighbour has is kept from now on."""
        with self._lock:
            return self._has(bytes.fromhex(name))

    def used_bytes(self) -> int:
        """The size of the store on disk, in bytes."""
        with self._lock:
            self._load()
            return self._used

    # -- below: how, all with the lock held ------------------------------------------------------

    def _put(self, digest: bytes, content: bytes) -> None:
        if self._has(digest):
            return
        body = _packed(content)
        if self._used + len(body) > self._max_bytes:
            raise StoreFull(
                f"The file snapshots have used their {self._max_bytes >> 20} MiB of disk."
            )
        if self._writer is None:
            self._root.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._writer = PackWriter(self._root)
            self._used += self._writer.size_bytes
        before = self._writer.size_bytes
        try:
            self._writer.add(digest, body)
        except OSError:
            # Half a body may stand at its end now: the pack is given up.
            self._writer.drop()
            self._writer = None
            self._used -= before
            raise
        self._used += self._writer.size_bytes - before

    def _has(self, digest: bytes) -> bool:
        self._load()
        if digest in self._places or (self._writer and digest in self._writer.places):
            return True
        pack = self._near.get(digest)
        return pack is not None and self._link(pack) and digest in self._places

    def _body(self, digest: bytes) -> bytes:
        self._load()
        if self._writer is not None and digest in self._writer.places:
            return self._writer.read(self._writer.places[digest])
        path, place = self._places[digest]
        return packs.read_body(path, place)

    def _load(self) -> None:
        if self._is_loaded:
            return
        self._is_loaded = True
        for path in packs.packs_in(self._root):
            self._add(path)
        for stale in self._root.glob("*.tmp"):
            with contextlib.suppress(OSError):
                stale.unlink()
        own = {path.name for path in packs.packs_in(self._root)}
        for folder in self._neighbours:
            for path in packs.packs_in(folder):
                if path.name not in own:
                    with contextlib.suppress(OSError):
                        self._near |= dict.fromkeys(packs.read_index(path), path)

    def _add(self, path: Path) -> None:
        with contextlib.suppress(OSError):
            self._places |= {name: (path, at) for name, at in packs.read_index(path).items()}
            self._used += path.stat().st_size

    def _link(self, pack: Path) -> bool:
        """Make a neighbour's pack ours too; False where that cannot be."""
        target = self._root / pack.name
        try:
            self._root.mkdir(parents=True, exist_ok=True, mode=0o700)
            os.link(pack, target)
        except OSError:
            # Gone meanwhile, or a file system without links: then the contents are stored here.
            self._near = {name: path for name, path in self._near.items() if path != pack}
            return False
        packs.sync_folder(self._root)
        self._add(target)
        self._near = {name: path for name, path in self._near.items() if path != pack}
        return True


def disk_usage(stores: Sequence[Path]) -> int:
    """How much several stores take on the disk, a pack that they share counted once."""
    sizes: dict[tuple[int, int], int] = {}
    for folder in stores:
        for path in packs.packs_in(folder):
            with contextlib.suppress(OSError):
                status = path.stat()
                sizes[status.st_dev, status.st_ino] = status.st_size
    return sum(sizes.values())


def hash_of(content: bytes) -> str:
    """The name that these contents have in a store."""
    return hashlib.sha256(content).hexdigest()


def read_whole(handle: int, size_bytes: int) -> bytes:
    """Everything from an open file of about that size, in few reads."""
    pieces: list[bytes] = []
    while piece := os.read(handle, max(_PIECE, size_bytes + 1)):
        pieces.append(piece)
    return b"".join(pieces)


def _packed(content: bytes) -> bytes:
    if len(content) >= _COMPRESSED_FROM_BYTES:
        small = zlib.compress(content, 1)
        if len(small) * 10 <= len(content) * 9:
            return _ZLIB + small
    return _RAW + content

"""A store of file contents by their SHA-256: written once, never changed, shared by all world lines of a session.

The new contents of one scan go into one pack, or into a few if they are very many, so that a tree of fifty thousand files
needs one file and one fsync. In a pack each body follows a header with its name and size, and an index of all bodies is at the end; a pack with a damaged index is
read header by header, so only the damaged bodies are lost. Contents that a neighbouring session of the same folder has are
linked, not stored again.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import heapq
import os
import shutil
import struct
import threading
import time
import uuid
import zlib
from array import array
from bisect import bisect_left
from collections.abc import Generator, Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple, TypeVar

from kimi_tui.filesystem import fsync, open_regular, sync_folder, write_all

SUFFIX = ".pack"
_MAGIC = b"KTPACK1\n"
_HEAD = struct.Struct(">32sI")
_ROW = struct.Struct(">32sQI")
_KEYS = struct.Struct(">Q36x")
"""The beginning of the name in a row."""
_FOOT = struct.Struct(">QII8s")
_BUFFER_BYTES = 1 << 20
Item = TypeVar("Item", str, bytes)


_RAW = b"r"
_ZLIB = b"z"
_PIECE = 1 << 20
_SMALL_PIECE = 1 << 14
_SMALL_BODY = 1 << 17
"""zlib packs at most 1,032 to 1, so that a body of at most so many bytes cannot fill the memory, whatever it holds."""
_GROWTH_BYTES = 16 << 20
"""Bytes by which a file may have grown while it is read."""
_MOST_BODIES = 65_536
"""A pack with so many bodies is finished; its index has 3 MB then."""
_LARGE = 4096
"""The index of a pack with so many bodies is kept as it is on the disk, sorted: a dict of them takes six times as much memory."""
_KEY_BYTES = 8
_SORTED = 10_000
# For smaller bodies, setting up the compressor takes more time than it can save.
_COMPRESSED_FROM_BYTES = 160
_RECENT_BYTES = 64 << 10
_MOST_RECENT = 16
"""So many contents of at most so many bytes are in memory, as their texts are compared right after a scan."""
_FRESH_NS = 120_000_000_000
"""A pack that is older than this has been written by the kernel, which waits for half a minute."""


class PackPlace(NamedTuple):
    """The place of a body in a pack."""

    offset: int
    size: int


class PackIndex:
    """The places of the bodies in one pack.

    Args:
        path: the pack.
        rows: name, offset and size of each, as in the pack.
    """

    def __init__(self, path: Path, rows: bytes) -> None:
        self.path = path
        self.rows = rows
        self._keys = array("Q")

    def __len__(self) -> int:
        return len(self.rows) // _ROW.size

    def __iter__(self) -> Iterator[tuple[bytes, PackPlace]]:
        return ((name, PackPlace(*place)) for name, *place in _ROW.iter_unpack(self.rows))

    def sort(self) -> None:
        """Sort the rows, as `find` needs them."""
        self._keys = array("Q", (key for (key,) in _KEYS.iter_unpack(self.rows)))
        if any(one >= other for one, other in pairwise(self._keys)):
            size = _ROW.size
            rows = [self.rows[start : start + size] for start in range(0, len(self.rows), size)]
            self.rows = b"".join(in_order(rows))
            self._keys = array("Q", (key for (key,) in _KEYS.iter_unpack(self.rows)))

    def find(self, name: bytes) -> PackPlace | None:
        """Return the place of a body; None if it is not in the pack."""
        key = int.from_bytes(name[:_KEY_BYTES], "big")
        at = bisect_left(self._keys, key)
        while at < len(self._keys) and self._keys[at] == key:
            found, offset, length = _ROW.unpack_from(self.rows, at * _ROW.size)
            if found == name:
                return PackPlace(offset, length)
            at += 1
        return None


class PackIndices:
    """The places of the bodies in many packs, in little memory."""

    def __init__(self) -> None:
        self._few: dict[bytes, tuple[Path, PackPlace]] = {}
        self._large: list[PackIndex] = []

    def add(self, index: PackIndex) -> None:
        """Add the bodies of a pack."""
        if len(index) < _LARGE:
            self._few |= {name: (index.path, place) for name, place in index}
        else:
            index.sort()
            self._large.append(index)

    def find(self, name: bytes) -> tuple[Path, PackPlace] | None:
        """Return the pack and the place of a body; None if it is in none of them."""
        found = self._few.get(name)
        if found is not None:
            return found
        for index in self._large:
            if (place := index.find(name)) is not None:
                return index.path, place
        return None

    def names_in(self, path: Path) -> Iterator[bytes]:
        """Yield the names of the bodies that are to be read from a pack."""
        yield from [name for name, (pack, _) in self._few.items() if pack == path]
        for index in self._large:
            if index.path == path:
                yield from (name for name, _ in index)

    def forget(self, path: Path) -> None:
        """Forget the bodies of a pack."""
        self._few = {name: one for name, one in self._few.items() if one[0] != path}
        self._large = [index for index in self._large if index.path != path]


class PackWriter:
    """One pack while it is written. It has no name before `finish`.

    Args:
        folder: the folder of the finished pack, created if it is missing.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / f"{uuid.uuid4().hex}{SUFFIX}"
        self._temporary = self.path.with_suffix(".tmp")
        handle = _created(self._temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        self._handle = handle
        # A file object would take a third of the time of a pack with one small body.
        self._waiting = [_MAGIC]
        self._n_waiting = len(_MAGIC)
        self.size_bytes = len(_MAGIC)
        self.places: dict[bytes, PackPlace] = {}

    def add(self, name: bytes, body: bytes) -> None:
        """Append a body.

        Raises:
            OSError: the disk refused; the pack must be dropped.
        """
        self._append(_HEAD.pack(name, len(body)))
        self._append(body)
        self.places[name] = PackPlace(self.size_bytes + _HEAD.size, len(body))
        self.size_bytes += _HEAD.size + len(body)

    def read(self, place: PackPlace) -> bytes:
        """Return the body of a blob that was added.

        Raises:
            OSError: the disk refused.
        """
        self._flush()
        return os.pread(self._handle, place.size, place.offset)

    def _append(self, data: bytes) -> None:
        self._waiting.append(data)
        self._n_waiting += len(data)
        if self._n_waiting >= _BUFFER_BYTES:
            self._flush()

    def _flush(self) -> None:
        waiting, self._waiting, self._n_waiting = self._waiting, [], 0
        write_all(self._handle, b"".join(waiting))

    def index(self) -> PackIndex:
        """Return the places of the bodies so far."""
        rows = in_order([_ROW.pack(name, *place) for name, place in self.places.items()])
        return PackIndex(self.path, b"".join(rows))

    def finish(self, *, later: bool = False) -> PackIndex:
        """Write the index, sync everything, and give the pack its name; return the index.

        Args:
            later: leave the syncs to the caller (`sync_pack`, and the names of the folder).

        Raises:
            OSError: the disk refused; the pack must be dropped.
        """
        index = self.index()
        foot = _FOOT.pack(self.size_bytes, len(self.places), zlib.crc32(index.rows), _MAGIC)
        self._append(index.rows + foot)
        self._flush()
        if not later:
            fsync(self._handle)
        self._close()
        os.rename(self._temporary, self.path)
        if not later:
            _sync_names(self.path.parent)
        self.size_bytes += len(index.rows) + len(foot)
        return index

    def drop(self) -> None:
        """Delete the unfinished pack."""
        with contextlib.suppress(OSError):
            self._close()
        with contextlib.suppress(OSError):
            self._temporary.unlink(missing_ok=True)

    def _close(self) -> None:
        handle, self._handle = self._handle, -1
        if handle >= 0:
            os.close(handle)


def _created(path: Path, flags: int, mode: int) -> int:
    """Open a new file, whose folder is created if it is missing; return its descriptor."""
    try:
        return os.open(path, flags, mode)
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        return os.open(path, flags, mode)


def read_index(path: Path) -> PackIndex:
    """Return the index of a pack; for a damaged pack, as much as can be found.

    Raises:
        OSError: the pack cannot be read.
    """
    with open(open_regular(path), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size >= _FOOT.size:
            file.seek(size - _FOOT.size)
            start, count, checksum, magic = _FOOT.unpack(file.read(_FOOT.size))
            if magic == _MAGIC and start + count * _ROW.size + _FOOT.size == size:
                file.seek(start)
                index = file.read(count * _ROW.size)
                if zlib.crc32(index) == checksum:
                    return PackIndex(path, index)
        found: dict[bytes, PackPlace] = {}
        for name, place in _walked(path, size):
            # Rows of a damaged index look like headers as well; the first one with a name is the true one.
            found.setdefault(name, place)
        return PackIndex(path, b"".join(_ROW.pack(name, *place) for name, place in found.items()))


def read_body(path: Path, place: PackPlace) -> bytes:
    """Read a body of a pack; it is shorter if the pack was cut off.

    Raises:
        OSError: the pack cannot be read.
    """
    handle = open_regular(path)
    try:
        return os.pread(handle, place.size, place.offset)
    finally:
        os.close(handle)


def sync_pack(path: Path) -> None:
    """Sync a finished pack.

    Raises:
        OSError: the disk refused.
    """
    handle = open_regular(path)
    try:
        fsync(handle)
    finally:
        os.close(handle)


def _write_again(path: Path, names: set[bytes]) -> None:
    """Replace a finished pack by a synced copy.

    Args:
        path: the pack.
        names: the names of the bodies in it.

    Raises:
        BlobDamaged: a body can no longer be read as it was written.
        OSError: the disk refused; the pack is as before.
    """
    copy = path.with_suffix(".tmp")
    try:
        # The file system's own copy would share what is on the disk, which lacks the bytes that are in memory.
        with open(open_regular(path), "rb") as source, copy.open("xb") as target:
            os.fchmod(target.fileno(), 0o600)
            shutil.copyfileobj(source, target, _PIECE)
            target.flush()
            fsync(target.fileno())
        index = read_index(copy)
        if not names.issubset(name for name, _ in index):
            raise BlobDamaged("its snapshot is damaged")
        for name, place in index:
            _content_of(read_body(copy, place), name.hex())
        os.replace(copy, path)
    except BaseException:
        with contextlib.suppress(OSError):
            copy.unlink(missing_ok=True)
        raise


def packs_in(folder: Path) -> list[Path]:
    """Return the packs of a folder; none if there is no folder."""
    with contextlib.suppress(OSError), os.scandir(folder) as listing:
        return sorted(Path(item.path) for item in listing if item.name.endswith(SUFFIX))
    return []


def _written_at(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def _sync_names(folder: Path) -> None:
    """Sync a folder's names; some mounts refuse, but the packs in it are safe all the same."""
    with contextlib.suppress(OSError):
        sync_folder(folder)


def _walked(path: Path, size: int) -> Iterator[tuple[bytes, PackPlace]]:
    with open(open_regular(path), "rb") as file:
        position = len(_MAGIC)
        while position + _HEAD.size <= size:
            file.seek(position)
            name, length = _HEAD.unpack(file.read(_HEAD.size))
            position += _HEAD.size
            # No body is empty: zeros are left by a power cut or a hole, and there may be gigabytes of them.
            if not length or position + length > size:
                return
            yield name, PackPlace(position, length)
            position += length


class _OpenPacks:
    """Packs that stay open.

    Args:
        stack: closes them at its end.
    """

    def __init__(self, stack: contextlib.ExitStack) -> None:
        self._stack = stack
        self._handles: dict[Path, int] = {}

    def handle(self, path: Path) -> int:
        """Return a descriptor of a pack.

        Raises:
            OSError: it cannot be opened.
        """
        found = self._handles.get(path)
        if found is None:
            found = self._handles[path] = open_regular(path)
            self._stack.callback(os.close, found)
        return found


class StoreFull(Exception):
    """The disk budget of the store is used up; the message is for the user."""


class BlobDamaged(Exception):
    """A blob is missing, or its contents do not have the hash in its name."""


class BlobStore:
    """Contents by hash below `root`. Methods block and may be called from any thread.

    Args:
        root: the store's folder, created when first needed (0700).
        max_bytes: the disk budget in bytes.
        neighbours: the folders of other stores, whose packs are linked if they hold contents that are put here.
    """

    def __init__(self, root: Path, max_bytes: int, neighbours: Sequence[Path] = ()) -> None:
        self._root = root
        self._max_bytes = max_bytes
        self._neighbours = tuple(neighbours)
        self._places = PackIndices()
        self._near = PackIndices()
        self._writer: PackWriter | None = None
        # The error for which a pack was given up that had contents of others than the caller who was told.
        self._refused: OSError | None = None
        self._used = 0
        self._is_loaded = False
        self._is_clean = False
        self._opened: _OpenPacks | None = None
        self._recent: dict[str, bytes] = {}
        self._lock = threading.RLock()
        # Finished packs that are to be synced later, and whether a sync of each has failed. A thread that syncs them holds the second
        # lock, so that the contents are on the disk for everyone who has held it after them.
        self._unsynced: dict[Path, bool] = {}
        self._syncing = threading.Lock()

    def put(self, content: bytes, name: str = "", *, again: bool = False) -> str:
        """Store these bytes; return their name. They are durable only after `flush`.

        Args:
            content: the bytes.
            name: their name, if it is known already.
            again: store them also if they are stored, since what is stored is damaged.

        Raises:
            StoreFull: the budget does not allow it.
            OSError: the disk refused.
        """
        name = name or hash_of(content)
        with self._lock:
            if again or not self._has(bytes.fromhex(name)):
                self._put(bytes.fromhex(name), content)
                self._remember(name, content)
        return name

    def limit(self, max_bytes: int) -> None:
        """Change the disk budget, in bytes."""
        with self._lock:
            self._max_bytes = max_bytes

    def flush(self, *, later: bool = False) -> None:
        """Make all contents durable that were put.

        Args:
            later: only write them: a killed program loses none, and a power cut may until the next `sync`, or `flush` without this.

        Raises:
            OSError: the disk refused; contents put since the last flush are lost.
        """
        with self._lock:
            try:
                self._finish(later=later)
            finally:
                refused, self._refused = self._refused, None
            if refused is not None:
                raise refused
        if not later:
            self.sync()

    @property
    def is_synced(self) -> bool:
        """Whether all flushed contents are durable."""
        return not self._unsynced

    def sync(self) -> None:
        """Make all contents durable that were flushed. It may be called beside other methods.

        Raises:
            OSError: the disk refused; a power cut may lose contents until the next call writes them again.
        """
        with self._syncing:
            with self._lock:
                waiting = dict(self._unsynced)
            refused: OSError | None = None
            for path, has_failed in waiting.items():
                try:
                    self._sync_pack(path, has_failed=has_failed)
                except OSError as error:
                    refused = refused or error
            if waiting:
                _sync_names(self._root)
            if refused is not None:
                raise refused

    def _sync_pack(self, path: Path, *, has_failed: bool) -> None:
        """Make a pack durable; if a sync of it fails, or has failed, by a copy: the kernel reports the failure only once and takes
        the pages for written from then on.
        """
        try:
            if not has_failed:
                with contextlib.suppress(OSError):
                    sync_pack(path)
                    return
                with self._lock:
                    self._unsynced[path] = has_failed = True
            with self._lock:
                names = set(self._places.names_in(path))
            _write_again(path, names)
            has_failed = False
        except (OSError, BlobDamaged) as error:
            if isinstance(error, OSError) and os.path.lexists(path):
                raise
            # The contents are gone. They count as not stored, so that a scan that reads them again stores them.
            has_failed = False
            with self._lock:
                self._places.forget(path)
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path)) from error
        finally:
            if not has_failed:
                with self._lock:
                    self._unsynced.pop(path, None)

    def get(self, name: str, size: int | None = None) -> bytes:
        """Return the verified contents with that name.

        Args:
            name: their name.
            size: their size in bytes, if it is known: they are read faster then, and a body that holds more takes no more memory.

        Raises:
            BlobDamaged: the contents are missing, or do not have that hash.
        """
        try:
            with self._lock:
                body = self._body(bytes.fromhex(name))
        except (OSError, ValueError, KeyError) as error:
            raise BlobDamaged("its snapshot cannot be read") from error
        return _content_of(body, name, size)

    def recall(self, name: str, size: int | None = None) -> bytes:
        """Return contents as `get` does; small ones that were put or recalled lately come from memory, whatever is on the disk."""
        with self._lock:
            found = self._recent.pop(name, None)
        if found is None:
            found = self.get(name, size)
        self._remember(name, found)
        return found

    def _remember(self, name: str, content: bytes) -> None:
        if len(content) > _RECENT_BYTES:
            return
        with self._lock:
            self._recent[name] = content
            if len(self._recent) > _MOST_RECENT:
                del self._recent[next(iter(self._recent))]

    @contextlib.contextmanager
    def reading(self) -> Generator[None]:
        """Keep each pack open from its first use until the end of the context, for many contents."""
        with contextlib.ExitStack() as stack:
            with self._lock:
                before, self._opened = self._opened, _OpenPacks(stack)
            try:
                yield
            finally:
                with self._lock:
                    self._opened = before

    def has(self, name: str) -> bool:
        """Return whether the store has these contents; a neighbour's pack that has them is linked."""
        with self._lock:
            return self._has(bytes.fromhex(name))

    def has_digest(self, digest: bytes) -> bool:
        """Return whether the store has the contents with this SHA-256; neighbours are not asked."""
        with self._lock:
            self._load()
            return self._places.find(digest) is not None

    # The methods below are called with the lock held.

    def _put(self, digest: bytes, content: bytes) -> None:
        body = _packed(content)
        if self._used + len(body) > self._max_bytes:
            raise StoreFull(
                f"The file snapshots of this session have reached their limit of {self._max_bytes >> 20} MB, so later changes of files cannot be undone."
            )
        if self._writer is None:
            self._delete_unfinished()
            self._writer = PackWriter(self._root)
            self._used += self._writer.size_bytes
        before = self._writer.size_bytes
        try:
            self._writer.add(digest, body)
        except OSError as error:
            # The pack may end with half a body now.
            self._give_up(self._writer, error, before)
            raise
        self._used += self._writer.size_bytes - before
        if len(self._writer.places) >= _MOST_BODIES:
            self._finish()

    def _give_up(self, writer: PackWriter, error: OSError, n_counted: int) -> None:
        """Delete the unfinished pack, of which so many bytes count as used; `flush` tells everyone who has put something into it."""
        writer.drop()
        self._writer = None
        self._used -= n_counted
        if writer.places:
            self._refused = error

    def _finish(self, *, later: bool = False) -> None:
        writer, self._writer = self._writer, None
        if writer is None:
            return
        before = writer.size_bytes
        try:
            index = writer.finish(later=later)
        except OSError as error:
            self._give_up(writer, error, before)
            raise
        self._used += writer.size_bytes - before
        if later:
            self._unsynced[writer.path] = False
        self._places.add(index)

    def _delete_unfinished(self) -> None:
        """Delete packs that a killed program left. Only a writer does: a reader may be beside another program that writes."""
        if self._is_clean:
            return
        self._is_clean = True
        for stale in self._root.glob("*.tmp"):
            with contextlib.suppress(OSError):
                stale.unlink()

    def _has(self, digest: bytes) -> bool:
        self._load()
        if self._writer is not None and digest in self._writer.places:
            return True
        if self._places.find(digest) is not None:
            return True
        near = self._near.find(digest)
        return near is not None and self._link(near[0]) and self._places.find(digest) is not None

    def _body(self, digest: bytes) -> bytes:
        self._load()
        if self._writer is not None and digest in self._writer.places:
            try:
                return self._writer.read(self._writer.places[digest])
            except OSError as error:
                # What was to be written may be there in part, so later bodies would not lie where the index says.
                self._give_up(self._writer, error, self._writer.size_bytes)
                raise
        found = self._places.find(digest)
        if found is None:
            raise KeyError(digest)
        path, place = found
        if self._opened is None:
            return read_body(path, place)
        return os.pread(self._opened.handle(path), place.size, place.offset)

    def _load(self) -> None:
        if self._is_loaded:
            return
        self._is_loaded = True
        # The newest pack with some contents counts: contents that were damaged have been stored again.
        own = sorted(packs_in(self._root), key=_written_at)
        now_ns = time.time_ns()
        for path in own:
            self._add(path)
            if abs(now_ns - _written_at(path)) < _FRESH_NS:
                # A process that was killed may not have synced this pack.
                self._unsynced[path] = False
        known = {path.name for path in own}
        for folder in self._neighbours:
            for path in packs_in(folder):
                if path.name not in known:
                    known.add(path.name)
                    with contextlib.suppress(OSError):
                        self._near.add(read_index(path))

    def _add(self, path: Path) -> None:
        with contextlib.suppress(OSError):
            self._places.add(read_index(path))
            self._used += path.stat().st_size

    def _link(self, pack: Path) -> bool:
        """Link a neighbour's pack into this store; return False if that is not possible."""
        target = self._root / pack.name
        self._near.forget(pack)
        try:
            self._root.mkdir(parents=True, exist_ok=True, mode=0o700)
            os.link(pack, target)
        except OSError:
            # The pack is gone by now, or the file system has no links: the contents are stored here then.
            return False
        # The neighbour may not have synced it yet.
        self._unsynced[target] = False
        self._add(target)
        return True


class ScratchStore(BlobStore):
    """The contents of a store, which is only read, with further ones that are kept in memory.

    Args:
        root: the folder of the store.
        max_bytes: the most bytes to keep in memory.
    """

    def __init__(self, root: Path, max_bytes: int) -> None:
        super().__init__(root, 0)
        self._room = max_bytes
        self._new: dict[str, bytes] = {}

    def put(self, content: bytes, name: str = "", *, again: bool = False) -> str:
        """Keep these bytes; return their name.

        Raises:
            StoreFull: there is no room for them.
        """
        name = name or hash_of(content)
        if again or not self.has(name):
            if len(content) > self._room:
                raise StoreFull("There are too many new files to be compared.")
            self._room -= len(content)
            self._new[name] = content
        return name

    def has(self, name: str) -> bool:
        """Return whether the contents are here or in the store."""
        return name in self._new or super().has(name)

    def get(self, name: str, size: int | None = None) -> bytes:
        """Return the contents with that name.

        Raises:
            BlobDamaged: they are missing, or do not have that hash.
        """
        found = self._new.get(name)
        return super().get(name, size) if found is None else found


def _content_of(body: bytes, name: str, size: int | None = None) -> bytes:
    """Return the contents that a body holds.

    Raises:
        BlobDamaged: the body has other contents than its name says.
    """
    try:
        content = _unpacked(body[1:], size) if body[:1] == _ZLIB else body[1:]
    except zlib.error as error:
        raise BlobDamaged("its snapshot cannot be read") from error
    if hashlib.sha256(content).hexdigest() != name:
        raise BlobDamaged("its snapshot is damaged")
    return content


def _unpacked(body: bytes, size: int | None) -> bytes:
    if size is None:
        return zlib.decompress(body)
    if len(body) <= _SMALL_BODY:
        return zlib.decompress(body, bufsize=max(1, min(size, _SMALL_BODY * 8)))
    return zlib.decompressobj().decompress(body, size + 1)


def disk_usage(stores: Sequence[Path]) -> int:
    """Return the disk use of several stores in bytes; a shared pack counts once."""
    sizes: dict[tuple[int, int], int] = {}
    for folder in stores:
        for path in packs_in(folder):
            with contextlib.suppress(OSError):
                status = path.stat()
                sizes[status.st_dev, status.st_ino] = status.st_size
    return sum(sizes.values())


def hash_of(content: bytes) -> str:
    """Return the name of these contents in a store."""
    return hashlib.sha256(content).hexdigest()


def in_order(items: list[Item]) -> Iterable[Item]:
    """Return the items sorted, one part at a time: sorting a million at once would block every other thread for a second."""
    parts = [sorted(items[start : start + _SORTED]) for start in range(0, len(items), _SORTED)]
    return parts[0] if len(parts) == 1 else heapq.merge(*parts)


def read_whole(handle: int, size_bytes: int) -> bytes:
    """Read everything from an open file of about that size, in few reads.

    Raises:
        OSError: the file cannot be read, or grows while it is read.
    """
    pieces: list[bytes] = []
    room = 2 * size_bytes + _GROWTH_BYTES
    # A buffer of a megabyte takes longer to get and to give back than a small file takes to read.
    size = size_bytes + 1
    while piece := os.read(handle, size):
        pieces.append(piece)
        room -= len(piece)
        size = _SMALL_PIECE if size_bytes < _PIECE else _PIECE
        if room < 0:
            raise OSError(errno.EFBIG, "The file grows while it is read")
    return b"".join(pieces)


def _packed(content: bytes) -> bytes:
    if len(content) >= _COMPRESSED_FROM_BYTES:
        small = zlib.compress(content, 1)
        if len(small) * 10 <= len(content) * 9:
            return _ZLIB + small
    return _RAW + content

"""`ManifestTable`: the manifest of a scan in little memory, with the stamps of the files, and its form on the disk.

A tree of half a million files needs about 120 bytes for each: the name, and a row with entry and stamp. The rows of a folder
are one bytes object, which is never changed: tables of different times share the folders that are the same in both.

On the disk a table is a file with a checksum (`write_table`, `read_table`). A stamp in it was old enough when it was taken
that a later change shows; a table from another device, or a damaged one, is not used.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import struct
import zlib
from bisect import bisect_left
from collections.abc import Callable, Collection, ItemsView, Iterable, Iterator, Mapping, ValuesView
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from functools import cached_property
from io import BufferedReader
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

from kimi_tui.filesystem import fsync, open_regular, sync_folder
from kimi_tui.workspace.ignore import IgnoreStack, is_of_version_control
from kimi_tui.workspace.manifest import Kind, ManifestEntry, ScanExtent, ancestors, permission_bits

_KINDS: Final[tuple[Kind, ...]] = (
    *("file", "link", "ignored", "large", "unreadable", "special", "over", "folder", "secret"),
)
_NUMBERS: Final = {kind: number for number, kind in enumerate(_KINDS)}
_REMARKS: Final[dict[str, Kind]] = {kind: kind for kind in _KINDS if kind not in ("file", "link")}
_STAMPED: Final = 0x80
_KEPT: Final = (0, 1)
# The kind, the permission bits, the size, and the SHA-256 of an entry; then the stamp: times of change of contents and of
# status, size, inode and mode.
_ROW: Final = struct.Struct("<BHQ32sqqQQI")
_HEADS: Final = struct.Struct("<BHQ68x")
"""The kind, the permission bits and the size of a row alone."""
_ENTRIES: Final = struct.Struct("<B42s36x")
"""The kind of a row, and the rest of its entry."""
_NO_STAMP: Final = (0, 0, 0, 0, 0)
_FEW: Final = 32
_NO_NAMES: Final = frozenset({"", ".", ".."})
_NO_RULES: Final = IgnoreStack()


class Stamp(NamedTuple):
    """The system's facts about a file that needs no reading; equal stamps (not too young) mean equal contents."""

    mtime_ns: int
    ctime_ns: int
    size: int
    inode: int
    mode: int


class FileRow(NamedTuple):
    """A file in a table: its entry, and its stamp if that can be trusted."""

    entry: ManifestEntry
    stamp: Stamp | None = None


def _packed(row: FileRow) -> bytes:
    entry, stamp = row
    number = _NUMBERS[entry.kind] | (0 if stamp is None else _STAMPED)
    blob = bytes.fromhex(entry.blob)
    return _ROW.pack(number, entry.mode, entry.size, blob, *(stamp or _NO_STAMP))


def _entry(number: int, mode: int, size: int, blob: bytes) -> ManifestEntry:
    number &= ~_STAMPED
    return ManifestEntry(
        _KINDS[number], blob.hex() if number in _KEPT else "", permission_bits(mode), size
    )


@dataclass(frozen=True, slots=True)
class FileRows:
    """The files of one folder: their names in order, and a row for each."""

    names: tuple[str, ...] = ()
    data: bytes = b""

    @staticmethod
    def of(rows: Mapping[str, FileRow]) -> FileRows:
        """Return these rows; the names need not be in order."""
        names = tuple(sorted(rows))
        return FileRows(names, b"".join(_packed(rows[name]) for name in names))

    def get(self, name: str) -> FileRow | None:
        """Return the row of a name; None if it has none."""
        place = bisect_left(self.names, name)
        if self.names[place : place + 1] != (name,):
            return None
        return self._at(place)

    def _at(self, place: int) -> FileRow:
        number, mode, size, blob, *stamp = _ROW.unpack_from(self.data, place * _ROW.size)
        entry = _entry(number, mode, size, blob)
        return FileRow(entry, Stamp(*stamp) if number & _STAMPED else None)

    def stamp(self, name: str) -> Stamp | None:
        """Return the stamp of a name; None if it has none."""
        row = self.get(name)
        return None if row is None else row.stamp

    def entries(self) -> Iterator[tuple[str, ManifestEntry]]:
        """Yield all names with their entries."""
        for name, row in zip(self.names, _ROW.iter_unpack(self.data), strict=True):
            yield name, _entry(*row[:4])

    def modes(self) -> Iterator[tuple[str, int | None]]:
        """Yield the names whose contents are in the store, with the permission bits of the file; None for a link."""
        for name, (mark, mode, _) in zip(self.names, _HEADS.iter_unpack(self.data), strict=True):
            number = mark & ~_STAMPED
            if number in _KEPT:
                yield name, None if number else permission_bits(mode)

    def stamps(self) -> Iterator[tuple[str, tuple[int, ...] | None]]:
        """Yield all names with their stamps."""
        for name, row in zip(self.names, _ROW.iter_unpack(self.data), strict=True):
            yield name, row[4:] if row[0] & _STAMPED else None

    def edited(self, rows: Mapping[str, FileRow | None]) -> FileRows:
        """Return the rows with some set, or removed (None)."""
        if not rows:
            return self
        if not self.names:
            return FileRows.of({name: row for name, row in rows.items() if row is not None})
        if len(rows) > _FEW:
            every = {name: self._at(place) for place, name in enumerate(self.names)}
            merged: dict[str, FileRow | None] = {**every, **rows}
            return FileRows.of({name: row for name, row in merged.items() if row is not None})
        names, data = self.names, self.data
        for name, row in rows.items():
            place = bisect_left(names, name)
            behind = place + (names[place : place + 1] == (name,))
            new = () if row is None else (name,)
            if len(new) != behind - place:
                names = (*names[:place], *new, *names[behind:])
            packed = b"" if row is None else _packed(row)
            data = b"".join((data[: place * _ROW.size], packed, data[behind * _ROW.size :]))
        return FileRows(names, data)

    def blobs(self) -> Iterator[tuple[str, bytes]]:
        """Yield the names of the files that have a stamp, with the SHA-256 of their contents; without one if there was no room."""
        for name, row in zip(self.names, _ROW.iter_unpack(self.data), strict=True):
            if row[0] & _STAMPED:
                yield name, row[3] if row[0] & ~_STAMPED in _KEPT else b""

    def unstamped(self, names: Iterable[str]) -> FileRows:
        """Return the rows with those of these names without a stamp, so that these files are read again."""
        found = {name: FileRow(row.entry) for name in names if (row := self.get(name)) is not None}
        return self.edited(found)

    def restamped(self, stamp: Callable[[str], tuple[int, ...] | None]) -> FileRows:
        """Return the rows with other stamps.

        Args:
            stamp: returns the stamp of a name, None for one that is to be read again. One of another size than in its row is not taken.
        """
        rows: list[bytes] = []
        for name, row in zip(self.names, _ROW.iter_unpack(self.data), strict=True):
            found, number = stamp(name), row[0] & ~_STAMPED
            if found is None or found[2] != row[2]:
                rows.append(_ROW.pack(number, *row[1:4], *_NO_STAMP))
            else:
                rows.append(_ROW.pack(number | _STAMPED, *row[1:4], *found))
        return FileRows(self.names, b"".join(rows))

    def differing(self, other: FileRows) -> set[str]:
        """Return the names whose entry is another one in other rows, or that those lack."""
        own = zip(self.names, self._unstamped(), strict=True)
        if other.names == self.names:
            both = zip(own, other._unstamped(), strict=True)
            return {name for (name, row), entry in both if entry != row}
        entries = dict(zip(other.names, other._unstamped(), strict=True))
        return {name for name, row in own if entries.get(name) != row}

    def _unstamped(self) -> Iterator[tuple[int, bytes]]:
        return ((mark & ~_STAMPED, rest) for mark, rest in _ENTRIES.iter_unpack(self.data))

    @property
    def has_unreadable(self) -> bool:
        """Whether one of the files could not be read."""
        return _NUMBERS["unreadable"] in self.data[:: _ROW.size]

    @property
    def are_kept(self) -> bool:
        """Whether the contents of all files are in the store."""
        return self.n_kept == len(self.names)

    @property
    def n_kept(self) -> int:
        """The number of files whose contents are in the store."""
        kinds = self.data[:: _ROW.size]
        return sum(kinds.count(number | mark) for number in _KEPT for mark in (0, _STAMPED))

    @property
    def kept_bytes(self) -> int:
        """The sum of the sizes of the files whose contents are in the store."""
        heads = _HEADS.iter_unpack(self.data)
        return sum(size for number, _, size in heads if number & ~_STAMPED in _KEPT)

    @property
    def n_large(self) -> int:
        """The number of files that are too large to be kept."""
        return self.data[:: _ROW.size].count(_NUMBERS["large"])

    @property
    def n_over(self) -> int:
        """The number of files for which there was no room."""
        kinds = self.data[:: _ROW.size]
        return sum(kinds.count(_NUMBERS["over"] | mark) for mark in (0, _STAMPED))


_NO_ROWS: Final = FileRows()


@dataclass(slots=True)
class Folder:
    """The known contents of a folder. `rows` are its files; `folders` the names of scanned folders in it; `remarks` the entries
    of all other names, such as ignored ones and empty folders.

    The rest says whether the folder must be listed again: its own stamp, whether that can be trusted, and the ignore rules.
    """

    rows: FileRows = _NO_ROWS
    folders: tuple[str, ...] = ()
    remarks: dict[str, ManifestEntry] = field(default_factory=dict[str, ManifestEntry])
    stamp: tuple[int, int, int] = (0, 0, 0)
    trusted: bool = False
    rules_stamp: Stamp | None = None
    above: IgnoreStack = _NO_RULES
    inside: IgnoreStack = _NO_RULES

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing in it, not even something that is left out."""
        return not self.rows.names and not self.folders and not self.remarks

    def get(self, name: str) -> ManifestEntry | None:
        """Return the entry of a name; None if it has none."""
        remark = self.remarks.get(name)
        if remark is not None:
            return remark
        row = self.rows.get(name)
        return None if row is None else row.entry

    def entries(self) -> Iterator[tuple[str, ManifestEntry]]:
        """Yield all names that have an entry, with it."""
        yield from self.rows.entries()
        yield from self.remarks.items()


Folders = dict[str, Folder]
"""Folders by their paths; the work folder itself has an empty one."""


class ManifestTable(Mapping[str, ManifestEntry]):
    """A manifest that is read from folders.

    Args:
        folders: the folders; they are not copied.
    """

    def __init__(self, folders: Folders) -> None:
        self.folders = folders

    def __getitem__(self, path: str) -> ManifestEntry:
        above, _, name = path.rpartition("/")
        folder = self.folders.get(above)
        entry = None if folder is None else folder.get(name)
        if entry is None:
            raise KeyError(path)
        return entry

    def __iter__(self) -> Iterator[str]:
        for path, folder in self.folders.items():
            prefix = f"{path}/" if path else ""
            for name in chain(folder.rows.names, folder.remarks):
                yield prefix + name

    def __len__(self) -> int:
        return sum(len(one.rows.names) + len(one.remarks) for one in self.folders.values())

    def pairs(self) -> Iterator[tuple[str, ManifestEntry]]:
        """Yield all paths with their entries."""
        for path, folder in self.folders.items():
            prefix = f"{path}/" if path else ""
            for name, row in zip(
                folder.rows.names, _ROW.iter_unpack(folder.rows.data), strict=True
            ):
                yield prefix + name, _entry(*row[:4])
            for name, entry in folder.remarks.items():
                yield prefix + name, entry

    def omitted(self) -> Iterator[tuple[str, ManifestEntry]]:
        """Yield the paths whose state is not known, with their entries."""
        for path, folder in self.folders.items():
            prefix = f"{path}/" if path else ""
            entries = folder.remarks.items() if folder.rows.are_kept else folder.entries()
            for name, entry in entries:
                if not entry.is_known:
                    yield prefix + name, entry

    def items(self) -> ItemsView[str, ManifestEntry]:
        """Return all paths with their entries."""
        return _Items(self)

    def values(self) -> ValuesView[ManifestEntry]:
        """Return all entries."""
        return _Values(self)

    def extent(self) -> ScanExtent:
        """Return the number of files, including those that are too large to be kept."""
        n_files = n_over = 0
        for folder in self.folders.values():
            n_files += folder.rows.n_kept + folder.rows.n_large
            n_over += folder.rows.n_over
            for entry in folder.remarks.values():
                n_files += entry.kind in ("large", "secret")
                n_over += entry.kind == "over"
        return ScanExtent(n_files, n_over > 0)

    def as_it_is(self) -> ManifestTable:
        """Return the table as it is now, whatever becomes of this one; the folders are shared."""
        return ManifestTable(dict(self.folders))


class _Items(ItemsView[str, ManifestEntry]):
    _mapping: ManifestTable | Layered

    def __iter__(self) -> Iterator[tuple[str, ManifestEntry]]:
        return self._mapping.pairs()


class _Values(ValuesView[ManifestEntry]):
    _mapping: ManifestTable | Layered

    def __iter__(self) -> Iterator[ManifestEntry]:
        return (entry for _, entry in self._mapping.pairs())


class StoredTable(Mapping[str, ManifestEntry]):
    """A manifest in a file, which is read when it is first needed.

    Args:
        path: the file.
        like: returns folders that are in memory; those of the table that are the same are not kept twice.
    """

    def __init__(self, path: Path, like: Callable[[], Folders] = dict) -> None:
        self.path = path
        self._like = like

    @cached_property
    def _read(self) -> tuple[dict[str, Any], ManifestTable]:
        try:
            facts, folders = read_table(self.path, self._like())
        except ValueError as error:
            raise OSError(errno.EIO, f"the first file snapshot is damaged ({error})") from error
        return facts, ManifestTable(folders)

    @property
    def table(self) -> ManifestTable:
        """The table.

        Raises:
            OSError: the file cannot be read, or is damaged.
        """
        return self._read[1]

    @property
    def facts(self) -> dict[str, Any]:
        """The facts about the table.

        Raises:
            OSError: the file cannot be read, or is damaged.
        """
        return self._read[0]

    def __getitem__(self, path: str) -> ManifestEntry:
        return self.table[path]

    def __iter__(self) -> Iterator[str]:
        return iter(self.table)

    def __len__(self) -> int:
        return len(self.table)

    def items(self) -> ItemsView[str, ManifestEntry]:
        """Return all paths with their entries."""
        return self.table.items()

    def values(self) -> ValuesView[ManifestEntry]:
        """Return all entries."""
        return self.table.values()


class Layered(Mapping[str, ManifestEntry]):
    """A manifest and the changes to it.

    Args:
        base: the manifest, which must not change.
        changes: the new entries by path, None for a path that is gone.
    """

    def __init__(
        self,
        base: Mapping[str, ManifestEntry],
        changes: Mapping[str, ManifestEntry | None] | None = None,
    ) -> None:
        self.base = base
        self.changes: dict[str, ManifestEntry | None] = dict(changes or {})

    def __getitem__(self, path: str) -> ManifestEntry:
        if path not in self.changes:
            return self.base[path]
        entry = self.changes[path]
        if entry is None:
            raise KeyError(path)
        return entry

    def __iter__(self) -> Iterator[str]:
        yield from (path for path in self.base if path not in self.changes)
        yield from (path for path, entry in self.changes.items() if entry is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def pairs(self) -> Iterator[tuple[str, ManifestEntry]]:
        """Yield all paths with their entries."""
        changes = self.changes
        yield from (pair for pair in self.base.items() if pair[0] not in changes)
        for path, entry in changes.items():
            if entry is not None:
                yield path, entry

    def items(self) -> ItemsView[str, ManifestEntry]:
        """Return all paths with their entries."""
        return _Items(self)

    def values(self) -> ValuesView[ManifestEntry]:
        """Return all entries."""
        return _Values(self)

    def has_any_in(self, path: str, folders: Collection[str]) -> bool:
        """Return whether anything is left of a folder of the manifest below: an entry in it, its own, or one of `folders`."""
        table = self.base.table if isinstance(self.base, StoredTable) else self.base
        own = self.get(path)
        if not isinstance(table, ManifestTable) or (own is not None and own.kind == "folder"):
            return True
        folder = table.folders[path]
        prefix = f"{path}/" if path else ""
        return any(prefix + name in folders for name in folder.folders) or any(
            self.changes.get(prefix + name, entry) is not None for name, entry in folder.entries()
        )


def folders_of(manifest: Mapping[str, ManifestEntry]) -> AbstractSet[str]:
    """Return the folders that a manifest has entries in, and the empty ones that it names."""
    if isinstance(manifest, ManifestTable):
        return manifest.folders.keys()
    if isinstance(manifest, StoredTable):
        return manifest.table.folders.keys()
    if not isinstance(manifest, Layered):
        return _with_folders(set(), manifest.items())
    found = set(folders_of(manifest.base))
    changed = set(manifest.changes).union(*map(ancestors, manifest.changes))
    # The longest first: a folder comes after those in it.
    for path in sorted(found & changed, key=len, reverse=True):
        if not manifest.has_any_in(path, found):
            found.discard(path)
    return _with_folders(found, ((path, one) for path, one in manifest.changes.items() if one))


def table_of(manifest: Mapping[str, ManifestEntry]) -> Folders:
    """Return the folders of a manifest; their stamps are nobody's."""
    if isinstance(manifest, ManifestTable):
        return manifest.folders
    if isinstance(manifest, StoredTable):
        return manifest.table.folders
    if not isinstance(manifest, Layered):
        return edited({}, manifest)
    folders = table_of(manifest.base)
    return edited(folders, manifest.changes) if manifest.changes else folders


def _with_folders(found: set[str], entries: Iterable[tuple[str, ManifestEntry]]) -> set[str]:
    for path, entry in entries:
        if entry.kind == "folder":
            found.add(path)
        for folder in ancestors(path):
            if folder in found:
                break
            found.add(folder)
    return found


def edited(folders: Folders, changes: Mapping[str, ManifestEntry | None]) -> Folders:
    """Return folders with the entries of some paths changed. They are to be listed again, and what was changed has no stamp."""
    by_folder: dict[str, dict[str, ManifestEntry | None]] = {}
    for path, entry in changes.items():
        above, _, name = path.rpartition("/")
        by_folder.setdefault(above, {})[name] = entry
    found = dict(folders)
    found.setdefault("", Folder())
    empty: list[str] = []
    for path, entries in by_folder.items():
        folder = found.get(path, Folder())
        rows: dict[str, FileRow | None] = dict.fromkeys(entries)
        remarks = {name: one for name, one in folder.remarks.items() if name not in entries}
        for name, entry in entries.items():
            if entry is not None and entry.kept:
                rows[name] = FileRow(entry)
            elif entry is not None:
                remarks[name] = entry
                if entry.kind == "folder":
                    inner = f"{path}/{name}" if path else name
                    found.setdefault(inner, Folder())
                    empty.append(inner)
        rows = {name: row for name, row in rows.items() if row or folder.rows.get(name)}
        found[path] = replace(folder, rows=folder.rows.edited(rows), remarks=remarks, trusted=False)
    for path in (*by_folder, *empty):
        _link(path, found)
    return found


def with_contents(folders: Folders, has: Callable[[bytes], bool]) -> Folders:
    """Return the folders of an earlier process; files whose contents are not stored by now are to be read again.

    Among these are the files for which there was no room.

    Args:
        folders: the folders.
        has: returns whether the contents with a SHA-256 are stored.
    """
    found = dict(folders)
    for path, folder in folders.items():
        lacking = [name for name, blob in folder.rows.blobs() if not has(blob)]
        if lacking:
            found[path] = replace(folder, rows=folder.rows.unstamped(lacking))
    return found


def _link_all(folders: Folders) -> None:
    names: dict[str, list[str]] = {}
    for path in folders:
        if path:
            above, _, name = path.rpartition("/")
            names.setdefault(above, []).append(name)
    for path, found in names.items():
        folder = folders.get(path)
        if folder is None:
            raise ValueError("a folder is missing in the list of files")
        folder.folders = tuple(sorted(found))


def _link(path: str, folders: Folders) -> None:
    """Note a folder in the one above it, which is created if it is missing."""
    while path:
        above, _, name = path.rpartition("/")
        folder = folders.get(above, Folder())
        if name in folder.folders:
            return
        folders[above] = replace(folder, folders=tuple(sorted((*folder.folders, name))))
        path = above


def without_stamps(folders: Folders, paths: Iterable[str] | None = None) -> Folders:
    """Return folders of which some files have to be read again.

    Args:
        folders: the folders.
        paths: these files; all if None.
    """
    found = dict(folders)
    if paths is None:
        for path, folder in folders.items():
            rows = folder.rows.restamped(lambda _: None)
            found[path] = replace(folder, rows=rows, trusted=False)
        return found
    by_folder: dict[str, list[str]] = {}
    for path in paths:
        above, _, name = path.rpartition("/")
        by_folder.setdefault(above, []).append(name)
    for path, names in by_folder.items():
        if (folder := found.get(path)) is not None:
            found[path] = replace(folder, rows=folder.rows.unstamped(names))
    return found


# -- on the disk -------------------------------------------------------------------------------------

_MAGIC: Final = b"KTTREE1\n"
_HEAD: Final = struct.Struct("<IIII")
_MOST_BYTES: Final = 4 << 30
_ODD: Final = (ValueError, TypeError, OverflowError)
_DEEPEST: Final = 400
"""No scan goes deeper than half of this."""
_UNFINISHED: Final = ".table.tmp"


def write_table(path: Path, folders: Folders, facts: Mapping[str, Any], *, sync: bool) -> None:
    """Write folders to a file under its final name, or leave the former file there.

    Args:
        path: the file.
        folders: the folders.
        facts: what is to be known about the table (JSON).
        sync: whether the file must survive a power cut; one that does not is noticed.

    Raises:
        OSError: the disk refused.
    """
    # All tables have one temporary name, so the next write removes a file that a kill has left.
    temporary = path.with_name(_UNFINISHED)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    checksum = zlib.crc32(_MAGIC)
    try:
        temporary.unlink(missing_ok=True)
        with os.fdopen(os.open(temporary, flags, 0o600), "wb", buffering=1 << 20) as file:
            file.write(_MAGIC)
            head = json.dumps(dict(facts)).encode()
            for piece in chain((struct.pack("<I", len(head)), head), _pieces(folders)):
                checksum = zlib.crc32(piece, checksum)
                file.write(piece)
            file.write(struct.pack("<I", checksum))
            file.flush()
            if sync:
                fsync(file.fileno())
        temporary.rename(path)
        if sync:
            sync_folder(path.parent)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def _pieces(folders: Folders) -> Iterator[bytes]:
    for path, folder in folders.items():
        name = os.fsencode(path)
        names = os.fsencode("\0".join(folder.rows.names))
        remarks = b""
        if folder.remarks:
            listed = [
                [one, entry.kind, entry.mode, entry.size] for one, entry in folder.remarks.items()
            ]
            remarks = json.dumps(listed).encode()
        data = folder.rows.data
        yield _HEAD.pack(len(name), len(names), len(remarks), len(data))
        yield name + names + remarks
        yield data


def read_table(path: Path, like: Folders | None = None) -> tuple[dict[str, Any], Folders]:
    """Return the facts about a table and its folders.

    Args:
        path: the file.
        like: folders that are in memory; those of the table that are the same are not kept twice.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is damaged, or no table.
    """
    with open(open_regular(path), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size > _MOST_BYTES or file.read(len(_MAGIC)) != _MAGIC:
            raise ValueError("the list of files does not begin as expected, so it may be damaged")
        _check(file, size)
        file.seek(len(_MAGIC))
        reader = _TableReader(file, size - 4, like or {})
        try:
            facts = reader.facts()
            folders = reader.folders()
        except (struct.error, LookupError, *_ODD) as error:
            raise ValueError("the list of files is damaged") from error
    return facts, folders


def _check(file: BufferedReader, size: int) -> None:
    checksum, left = zlib.crc32(_MAGIC), size - len(_MAGIC) - 4
    while left > 0:
        piece = file.read(min(left, 1 << 20))
        if not piece:
            break
        checksum, left = zlib.crc32(piece, checksum), left - len(piece)
    if left or file.read(4) != struct.pack("<I", checksum):
        raise ValueError("the list of files is damaged")


class _TableReader:
    """Reads a table. The file is not trusted: its paths must be ones that a scan can find below the work folder.

    Args:
        file: the open file, at the facts.
        end: the place of the checksum.
        like: as for `read_table`.
    """

    def __init__(self, file: BufferedReader, end: int, like: Folders) -> None:
        self._file = file
        self._end = end
        self._like = like
        self._shared: dict[str, str] = {}

    def facts(self) -> dict[str, Any]:
        """Read what is known about the table."""
        (length,) = struct.unpack("<I", self._exactly(4))
        facts = _json(self._exactly(length))
        if not isinstance(facts, dict):
            raise TypeError("the table has no facts")
        return cast("dict[str, Any]", facts)

    def folders(self) -> Folders:
        """Read all folders."""
        folders: Folders = {}
        while self._file.tell() < self._end:
            path, folder = self._folder()
            folders[path] = folder
        _link_all(folders)
        return folders

    def _exactly(self, count: int) -> bytes:
        if count > self._end - self._file.tell():
            raise ValueError("the end of the list of files is missing")
        return self._file.read(count)

    def _folder(self) -> tuple[str, Folder]:
        n_path, n_names, n_remarks, n_data = _HEAD.unpack(self._exactly(_HEAD.size))
        path = os.fsdecode(self._exactly(n_path))
        joined = os.fsdecode(self._exactly(n_names))
        listed: Any = _json(self._exactly(n_remarks)) if n_remarks else []
        data = self._exactly(n_data)
        if path.count("/") > _DEEPEST or not all(map(_is_name, path.split("/") if path else ())):
            raise ValueError("a path leads outside the work folder")
        remarks = {
            str(name): ManifestEntry(_REMARKS[kind], "", permission_bits(int(mode)), int(size))
            for name, kind, mode, size in listed
        }
        if any("/" in name or "\0" in name or name in ("", "..") for name in remarks):
            raise ValueError("a path leads outside the work folder")
        return path, Folder(self._rows(path, joined, data), (), remarks)

    def _rows(self, path: str, joined: str, data: bytes) -> FileRows:
        known = self._like.get(path)
        names: tuple[str, ...] | None = None
        if known is not None and "\0".join(known.rows.names) == joined:
            if known.rows.data == data:
                return known.rows
            names = known.rows.names
        if names is None:
            share = self._shared.setdefault
            names = tuple(share(one, one) for one in joined.split("\0")) if joined else ()
        kinds = {number & ~_STAMPED for number in set(data[:: _ROW.size])}
        if len(names) * _ROW.size != len(data) or any(number >= len(_KINDS) for number in kinds):
            raise ValueError("the list of files is damaged")
        if any(one >= other for one, other in pairwise(names)):
            raise ValueError("the list of files is not sorted")
        if not all(map(_is_name, names)):
            raise ValueError("a path leads outside the work folder")
        return FileRows(names, data)


def _json(content: bytes) -> object:
    try:
        return json.loads(content)
    except RecursionError as error:
        raise ValueError("the list of files is nested too deeply") from error


def _is_name(name: str) -> bool:
    return name not in _NO_NAMES and "/" not in name and not is_of_version_control(name)

"""Scans the work folder: its files, the changes since the last scan, and the omitted files with the reasons.

A folder whose time stamp did not change is not listed again, and only the time stamps of its known files are read; a file is
read only if its stamp changed or is too young to be trusted. Contents go into the store as far as the limits of one snapshot
allow. No link is followed, and no other program is run. Everything blocks.
"""

from __future__ import annotations

import errno
import heapq
import os
import stat
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from kimi_tui.filesystem import is_temporary_name
from kimi_tui.workspace.ignore import RULES_NAME, IgnoreStack, outer_rules, read_rules
from kimi_tui.workspace.protected_names import secrets
from kimi_tui.workspace.snapshots import (
    REST,
    Limits,
    Manifest,
    ManifestEntry,
    ancestors,
    permission_bits,
)
from kimi_tui.workspace.store import BlobStore, StoreFull, hash_of, read_whole

_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


# A file written in the same clock tick as the scan can change again without changing its stamp, so a stamp younger
# than this is not trusted. Two seconds is the coarsest clock in use (FAT).
_TRUST_AFTER_NS = 2_000_000_000
# No real tree is deeper, and every level needs a descriptor and a frame of the interpreter.
_DEEPEST = 200
_SORTED_NAMES = 10_000
_CHECKED_FILES = 4096
_GONE = "the work folder is gone"
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_IGNORED, _OVER, _UNREADABLE = (
    ManifestEntry("ignored"),
    ManifestEntry("over"),
    ManifestEntry("unreadable"),
)
_EMPTY = ManifestEntry("folder")
_SECRET = ManifestEntry("secret")
_LEFT_OUT = (_IGNORED, _SECRET)
"""Entries that are known as soon as a folder is listed."""


class Stamp(NamedTuple):
    """The system's facts about a file that needs no reading; equal stamps (not too young) mean equal contents."""

    mtime_ns: int
    ctime_ns: int
    size: int
    inode: int
    mode: int


@dataclass(slots=True)
class _Budget:
    """The amount that one snapshot has stored so far. `full` says why it may store no more; empty while it may."""

    stored_bytes: int = 0
    full: str = ""


class _FileReader:
    """Turns a name in an open folder into an entry.

    Args:
        store: the store of new contents.
        limits: the limits of one snapshot.
    """

    def __init__(self, store: BlobStore, limits: Limits) -> None:
        self._store = store
        self._limits = limits

    def may_keep(self, stamp: Stamp) -> bool:
        """Return whether the contents can be kept at all; others do not count as files."""
        if stat.S_ISREG(stamp.mode):
            return stamp.size <= self._limits.max_file_bytes
        return stat.S_ISLNK(stamp.mode)

    def entry(self, name: str, folder: int, stamp: Stamp, budget: _Budget) -> ManifestEntry:
        """Read the entry of a name. If it cannot be kept, the entry is a remark, never an error.

        Args:
            name: the name in the folder.
            folder: a descriptor of the folder.
            stamp: the stamp of the name before it is read.
            budget: the budget of this snapshot.

        Raises:
            OSError: the store's disk refused.
        """
        try:
            if stat.S_ISLNK(stamp.mode):
                content, mode = os.fsencode(os.readlink(name, dir_fd=folder)), 0
            elif not stat.S_ISREG(stamp.mode):
                return ManifestEntry("special")
            elif stamp.size > self._limits.max_file_bytes:
                return ManifestEntry("large", size=stamp.size)
            else:
                content, mode = _content(name, folder, stamp), permission_bits(stamp.mode)
        except OSError:
            return ManifestEntry("unreadable", size=stamp.size)
        return self._keep("link" if stat.S_ISLNK(stamp.mode) else "file", content, mode, budget)

    def _keep(
        self, kind: Literal["file", "link"], content: bytes, mode: int, budget: _Budget
    ) -> ManifestEntry:
        entry = ManifestEntry(kind, hash_of(content), mode, len(content))
        if self._store.has(entry.blob):
            return entry
        if budget.stored_bytes + len(content) > self._limits.max_snapshot_bytes:
            megabytes = self._limits.max_snapshot_bytes >> 20
            budget.full = budget.full or f"More than {megabytes} MiB changed at once."
        if budget.full:
            return ManifestEntry("over", size=len(content))
        try:
            self._store.put(content, entry.blob)
        except StoreFull as error:
            budget.full = str(error)
            return ManifestEntry("over", size=len(content))
        budget.stored_bytes += len(content)
        return entry


def _content(name: str, folder: int, stamp: Stamp) -> bytes:
    handle = os.open(name, _FLAGS, dir_fd=folder)
    try:
        return read_whole(handle, stamp.size)
    finally:
        os.close(handle)


@dataclass(slots=True)
class Folder:
    """The known contents of a folder, so that it need not be listed again.

    `entries` are its files, and remarks for omitted ones; `stamps` are the stamps that can be trusted.
    """

    stamp: tuple[int, int, int]
    trusted: bool
    rules_stamp: Stamp | None
    above: IgnoreStack
    inside: IgnoreStack
    files: tuple[str, ...]
    folders: tuple[str, ...]
    entries: dict[str, ManifestEntry]
    stamps: dict[str, Stamp] = field(default_factory=dict[str, Stamp])


@dataclass(frozen=True, slots=True)
class Scan:
    """The changes since the previous scan."""

    changed: tuple[str, ...]
    full: str = ""
    """The reason why some contents could not be kept (the budget, the number of files); empty if all were."""


@dataclass(slots=True)
class ScanPass:
    """The findings of one scan; they count only if the scan is completed."""

    started_ns: int
    room: int
    """The number of further files that may be kept."""
    also: frozenset[str] = frozenset()
    """Paths, and the folders above them, that are scanned even if there is no room for more files."""
    folders: dict[str, Folder] = field(default_factory=dict[str, Folder])
    changed: dict[str, ManifestEntry | None] = field(
        default_factory=dict[str, ManifestEntry | None]
    )
    gone: list[str] = field(default_factory=list[str])
    budget: _Budget = field(default_factory=_Budget)
    too_many: str = ""
    """A sentence that says that files were omitted, as there are too many; known files are kept all the same."""

    def trusts(self, *times_ns: int) -> bool:
        """Return whether a file with these times had not changed for a while before this scan began."""
        return max(times_ns) + _TRUST_AFTER_NS <= self.started_ns


def stamp_of(name: str, folder: int) -> Stamp | None:
    """Return the stamp of a name in an open folder, None if it does not exist."""
    try:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except OSError:
        return None
    return Stamp(
        status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino, status.st_mode
    )


class Scanner:
    """Scans one work folder repeatedly; belongs in one thread.

    Args:
        root: the absolute path of the work folder.
        store: the store of new contents.
        limits: the limits of one snapshot.
        own: folders of the program itself, which are never listed.
        cancelled: called between folders and inside large ones; if it returns True, the scan ends early and incomplete.
    """

    def __init__(
        self,
        root: str,
        store: BlobStore,
        limits: Limits,
        *,
        own: Iterable[str] = (),
        cancelled: Callable[[], bool] = lambda: False,
    ) -> None:
        self._root = root
        self._store = store
        self._limits = limits
        self._reader = _FileReader(store, limits)
        self._own = tuple(own)
        self._own_ids: frozenset[tuple[int, int]] = frozenset()
        self._cancelled = cancelled
        self._outer = IgnoreStack()
        self._folders: dict[str, Folder] = {}
        self._manifest: dict[str, ManifestEntry] = {}
        self._adopted = False
        self._n_kept = 0

    @property
    def manifest(self) -> Manifest:
        """Every path of the last scan; it changes with the next."""
        return self._manifest

    def scan(self, also: Collection[str] = ()) -> Scan:
        """Scan now. When it returns, new contents are in the store and synced.

        Args:
            also: paths that are scanned even if there are too many files: other files may have taken their room meanwhile.

        Raises:
            OSError: the work folder itself cannot be opened, or the store's disk refused.
        """
        also = frozenset(also).union(*map(ancestors, also))
        now = ScanPass(time.time_ns(), self._limits.max_files - self._n_kept, also)
        outer = outer_rules(self._root)
        if outer != self._outer:
            self._outer = outer
        self._own_ids = frozenset(_ids(self._own))
        try:
            top = os.open(self._root, _FOLDER_FLAGS & ~os.O_NOFOLLOW)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise FileNotFoundError(errno.ENOENT, _GONE) from error
        try:
            done = self._folder("", top, self._outer, now)
        finally:
            os.close(top)
            self._store.flush()
        if not done:
            return Scan(())
        self._take(now)
        return Scan(tuple(sorted(now.changed)), full=now.budget.full or now.too_many)

    def adopt(self, manifest: Mapping[str, ManifestEntry]) -> None:
        """Use a stored manifest as the previous scan, so that the next scan reports only changes since then."""
        self._folders = {}
        self._manifest = dict(manifest)
        self._adopted = True
        self._n_kept = sum(1 for entry in manifest.values() if entry.kept)

    def _take(self, now: ScanPass) -> None:
        for path in now.gone:
            self._folders.pop(path, None)
        self._folders |= now.folders
        if self._adopted:
            self._adopted = False
            seen = {
                f"{path}/{name}" if path else name
                for path, folder in self._folders.items()
                for name in folder.entries
            }
            now.changed |= {
                path: None
                for path in self._manifest
                if path not in seen and path not in now.changed
            }
        for path, entry in now.changed.items():
            before = self._manifest.get(path)
            self._n_kept += int(entry is not None and entry.kept)
            self._n_kept -= int(before is not None and before.kept)
            if entry is None:
                self._manifest.pop(path, None)
            else:
                self._manifest[path] = entry

    # -- folders ---------------------------------------------------------------------------------

    def _folder(self, path: str, handle: int, above: IgnoreStack, now: ScanPass) -> bool:
        if self._cancelled():
            return False
        status = os.fstat(handle)
        stamp = (status.st_mtime_ns, status.st_ctime_ns, status.st_ino)
        known = self._folders.get(path)
        if (
            known is None
            or not known.trusted
            or known.stamp != stamp
            or (known.above is not above and known.above != above)
            or (known.rules_stamp and known.rules_stamp != stamp_of(RULES_NAME, handle))
        ):
            folder = self._listed(path, handle, above, stamp, now)
        else:
            folder = Folder(
                stamp,
                known.trusted,
                known.rules_stamp,
                known.above,
                known.inside,
                known.files,
                known.folders,
                {name: entry for name, entry in known.entries.items() if entry in _LEFT_OUT},
            )
        now.folders[path] = folder
        if not self._files(path, folder, known, handle, now):
            return False
        prefix = f"{path}/" if path else ""
        for name in folder.folders:
            if not self._inner(prefix + name, name, folder, handle, now):
                return False
        if not folder.files and not folder.folders and not folder.entries and path:
            self._note(path, _EMPTY, folder, now)
        self._compare(prefix, folder, known, now)
        return True

    def _inner(self, path: str, name: str, folder: Folder, handle: int, now: ScanPass) -> bool:
        if path.count("/") >= _DEEPEST:
            folder.entries[name] = _OVER
            return True
        try:
            inner = os.open(name, _FOLDER_FLAGS, dir_fd=handle)
        except OSError:
            folder.entries[name] = _UNREADABLE
            self._forget(path, now)
            return True
        try:
            status = os.fstat(inner)
            if (status.st_dev, status.st_ino) in self._own_ids:
                folder.entries[name] = _IGNORED
                self._forget(path, now)
                return True
            is_new = path not in self._folders and not self._adopted
            if is_new and now.room <= 0 and path not in now.also:
                self._leave_out(name, folder, now)
                return True
            return self._folder(path, inner, folder.inside, now)
        finally:
            os.close(inner)

    def _listed(
        self, path: str, handle: int, above: IgnoreStack, stamp: tuple[int, int, int], now: ScanPass
    ) -> Folder:
        rules_stamp = stamp_of(RULES_NAME, handle)
        rules = read_rules(RULES_NAME, handle, above.room) if rules_stamp else None
        inside = above.entered(path, rules)
        prefix = f"{path}/" if path else ""
        files: list[str] = []
        folders: list[str] = []
        left_out: dict[str, ManifestEntry] = {}
        secret = secrets()
        with os.scandir(handle) as listing:
            for item in listing:
                try:
                    is_folder = item.is_dir(follow_symlinks=False)
                except OSError:
                    left_out[item.name] = _UNREADABLE
                    continue
                if not is_folder and is_temporary_name(item.name):
                    continue
                if inside.ignores(prefix + item.name, is_folder=is_folder):
                    left_out[item.name] = _IGNORED
                elif secret.ends_in(prefix + item.name, is_folder=is_folder):
                    left_out[item.name] = _SECRET
                elif is_folder:
                    folders.append(item.name)
                else:
                    files.append(item.name)
        return Folder(
            stamp,
            now.trusts(stamp[0], stamp[1]) and _UNREADABLE not in left_out.values(),
            rules_stamp,
            above,
            inside,
            _in_order(files),
            _in_order(folders),
            left_out,
        )

    def _note(self, path: str, entry: ManifestEntry, folder: Folder, now: ScanPass) -> None:
        """Record an entry for a folder itself, among the entries of the folder above."""
        above, _, name = path.rpartition("/")
        now.folders[above].entries[name] = entry

    def _leave_out(self, name: str, folder: Folder, now: ScanPass) -> None:
        folder.entries[name] = _OVER
        # The folder is listed again next time, when there may be room.
        folder.trusted = False
        now.too_many = f"There are more than {self._limits.max_files:,} files."

    def _compare(self, prefix: str, folder: Folder, known: Folder | None, now: ScanPass) -> None:
        """Find the differences from the previous scan."""
        if known is None:
            manifest = self._manifest
            for name, entry in folder.entries.items():
                if manifest.get(prefix + name) != entry:
                    now.changed[prefix + name] = entry
            return
        before = known.entries
        for name, entry in folder.entries.items():
            old = before.get(name)
            if old is not entry and old != entry:
                now.changed[prefix + name] = entry
        for name in before.keys() - folder.entries.keys():
            now.changed[prefix + name] = None
        if known.folders is not folder.folders:
            for name in set(known.folders).difference(folder.folders):
                self._forget(prefix + name, now)

    def _forget(self, path: str, now: ScanPass) -> None:
        """Forget everything below a folder that is gone, or not scanned any more."""
        known = self._folders.get(path)
        if known is None:
            return
        now.gone.append(path)
        for name in known.entries:
            now.changed.setdefault(f"{path}/{name}", None)
        for name in known.folders:
            self._forget(f"{path}/{name}", now)

    # -- files -----------------------------------------------------------------------------------

    def _files(
        self, path: str, folder: Folder, known: Folder | None, handle: int, now: ScanPass
    ) -> bool:
        # This loop runs fifty thousand times per scan, so unchanged files cost only system calls.
        prefix = f"{path}/" if path else ""
        stamps, entries = folder.stamps, folder.entries
        old_stamps = known.stamps if known else {}
        old_entries = known.entries if known else {}
        ask = os.stat
        for number, name in enumerate(folder.files, start=1):
            if not number % _CHECKED_FILES and self._cancelled():
                return False
            try:
                status = ask(name, dir_fd=handle, follow_symlinks=False)
            except FileNotFoundError:
                continue
            except OSError:
                # The name exists but cannot be examined, so it must not count as missing.
                entries[name] = _UNREADABLE
                continue
            stamp = (
                status.st_mtime_ns,
                status.st_ctime_ns,
                status.st_size,
                status.st_ino,
                status.st_mode,
            )
            old = old_stamps.get(name)
            if old is not None and old == stamp:
                stamps[name] = old
                entries[name] = old_entries[name]
            else:
                self._file(prefix + name, name, Stamp(*stamp), folder, handle, now)
        return True

    def _file(
        self, path: str, name: str, stamp: Stamp, folder: Folder, handle: int, now: ScanPass
    ) -> None:
        before = self._manifest.get(path)
        is_new = before is None or not before.kept
        if is_new and now.room <= 0 and path not in now.also and self._reader.may_keep(stamp):
            self._leave_out(REST, folder, now)
            return
        if is_new and (now.budget.full or self._cancelled()):
            # The budget is used up or the scan is cancelled: a file is not read only to be omitted.
            entry = ManifestEntry("over", size=stamp.size)
        else:
            entry = self._reader.entry(name, handle, stamp, now.budget)
        now.room -= int(is_new and entry.kept)
        folder.entries[name] = entry
        if (entry.kept or entry.kind == "over") and now.trusts(stamp.mtime_ns, stamp.ctime_ns):
            folder.stamps[name] = stamp


def _in_order(names: list[str]) -> tuple[str, ...]:
    """Sort the names, one part at a time: sorting a million at once would block every other thread for a second."""
    parts = [
        sorted(names[start : start + _SORTED_NAMES])
        for start in range(0, len(names), _SORTED_NAMES)
    ]
    return tuple(parts[0]) if len(parts) == 1 else tuple(heapq.merge(*parts))


def _ids(folders: Iterable[str]) -> Iterable[tuple[int, int]]:
    for folder in folders:
        try:
            status = os.stat(folder)
        except OSError:
            continue
        yield status.st_dev, status.st_ino

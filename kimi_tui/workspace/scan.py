"""Scans the work folder: its files, the changes since the last scan, and the omitted files with the reasons.

Where the kernel tells what changed (`TreeWatch`), a scan looks only at the names that it told. Else, and the first time, it
walks: a folder whose time stamp did not change is not listed again, and only the time stamps of its known files are read; a
file is read only if its stamp changed or is too young to be trusted. Contents go into the store as far as the limits of one
snapshot allow. No link is followed, and no other program is run. Everything blocks.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal, NamedTuple

from kimi_tui.filesystem import (
    SETTLED_NS,
    all_is_read,
    is_temporary_name,
    open_folder,
    raise_lack,
)
from kimi_tui.workspace.file_table import (
    FileRow,
    FileRows,
    Folder,
    Folders,
    ManifestTable,
    Stamp,
)
from kimi_tui.workspace.ignore import RULES_NAME, IgnoreStack, outer_rules, read_rules
from kimi_tui.workspace.manifest import (
    REST,
    Limits,
    ManifestEntry,
    ancestors,
    permission_bits,
)
from kimi_tui.workspace.protected_names import folded, secrets
from kimi_tui.workspace.store import BlobStore, StoreFull, hash_of, in_order, read_whole
from kimi_tui.workspace.tree_watch import AS_FOLDER, CONTENT, Told, TreeWatch, held_files

_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


# No real tree is deeper, and every level needs a descriptor and a frame of the interpreter.
_DEEPEST = 200
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


@dataclass(slots=True)
class _Budget:
    """The amount that one snapshot has stored so far, and the most that it may store (0: as much as the store takes). `full`
    says why it may store no more; empty while it may.
    """

    stored_bytes: int = 0
    most_bytes: int = 0
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
        except OSError as error:
            raise_lack(error)
            return ManifestEntry("unreadable", size=stamp.size)
        return self._keep("link" if stat.S_ISLNK(stamp.mode) else "file", content, mode, budget)

    def _keep(
        self, kind: Literal["file", "link"], content: bytes, mode: int, budget: _Budget
    ) -> ManifestEntry:
        entry = ManifestEntry(kind, hash_of(content), mode, len(content))
        if self._store.has(entry.blob):
            return entry
        if budget.most_bytes and budget.stored_bytes + len(content) > budget.most_bytes:
            megabytes = budget.most_bytes >> 20
            budget.full = (
                budget.full
                or f"More than {megabytes} MB changed at once, so some files have no snapshot."
            )
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


class Scan:
    """The changes since the previous scan.

    Args:
        changed: the entries of the changed paths, None for a path that is gone; for the first scan of all, everything.
        full: see below.
        is_first: whether there was no previous scan.

    Attributes:
        full: the reason why some contents could not be kept (the budget, the number of files); empty if all were.
        is_first: as above.
    """

    def __init__(
        self,
        changed: Collection[str] = (),
        full: str = "",
        *,
        is_first: bool = False,
    ) -> None:
        self._changed = changed
        self.full = full
        self.is_first = is_first

    @cached_property
    def changed(self) -> tuple[str, ...]:
        """The paths, in order. The first scan of a large folder has very many."""
        return tuple(sorted(self._changed))


class Links(NamedTuple):
    """The links of a file: its device and inode, and their number."""

    file: tuple[int, int]
    number: int


@dataclass(slots=True)
class ScanPass:
    """The findings of one scan; they count only if the scan is completed."""

    started_ns: int
    room: int
    """The number of further files that may be kept."""
    also: frozenset[str] = frozenset()
    """Paths, and the folders above them, that are scanned even if there is no room for more files."""
    folders: Folders = field(default_factory=dict[str, Folder])
    changed: dict[str, ManifestEntry | None] = field(
        default_factory=dict[str, ManifestEntry | None]
    )
    gone: set[str] = field(default_factory=set[str])
    budget: _Budget = field(default_factory=_Budget)
    too_many: str = ""
    """A sentence that says that files were omitted, as there are too many; known files are kept all the same."""
    walked: set[str] = field(default_factory=set[str])
    """The folders that were walked; in the other ones of `folders` only the names in `edited` were looked at."""
    edited: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    linked: dict[str, Links] = field(default_factory=dict[str, "Links"])
    """The files with more than one link."""
    left_out_links: dict[str, Links] = field(default_factory=dict[str, "Links"])
    """The same for told files of which nothing is read because of their names: one of the others may be a link of such a file."""
    is_first: bool = False
    """Whether nothing was scanned before, so that everything is new."""
    done: float = 0.0
    """The part of the work folder that was scanned, as far as it can be told: all folders in a folder count as equally large."""
    span: float = 1.0
    """The part that the folder being scanned is taken for."""
    names: dict[str, str] = field(default_factory=dict[str, str])
    """The names met so far: a name that many folders have is kept once."""

    def trusts(self, *times_ns: int) -> bool:
        """Return whether a file with these times had not changed for a while before this scan began."""
        return max(times_ns) + SETTLED_NS <= self.started_ns


def stamp_of(name: str, folder: int) -> Stamp | None:
    """Return the stamp of a name in an open folder, None if it does not exist."""
    try:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except OSError:
        return None
    return stamp_from(status)


def settled_stamp(name: str, folder: int) -> Stamp | None:
    """Return the stamp of a name in an open folder if every later change gives it another one; None if that is not certain."""
    now_ns = time.time_ns()
    stamp = stamp_of(name, folder)
    return stamp if stamp is not None and is_settled(stamp, now_ns) else None


def is_settled(stamp: Stamp, now_ns: int) -> bool:
    """Return whether every change of a file after a stamp of it was taken gives it another one.

    Args:
        stamp: the stamp.
        now_ns: the time before it was taken, in nanoseconds since the epoch.
    """
    return max(stamp.mtime_ns, stamp.ctime_ns) + SETTLED_NS <= now_ns


def _links(status: os.stat_result) -> Links:
    return Links((status.st_dev, status.st_ino), status.st_nlink)


def stamp_from(status: os.stat_result) -> Stamp:
    """Return the stamp of a file from its status."""
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
        watch: tells what changed; None to walk every time.
        cancelled: called between folders and inside large ones; if it returns True, the scan ends early and incomplete.

    Attributes:
        done: the part of the work folder that the scan has been through, from 0 to 1.
        n_scans: the number of scans.
        n_walks: the number of those that walked through all folders.
        n_lost: the number of those that the kernel made necessary, because it had dropped events.
        untold: the paths in which the last scan found a change that a check had suspected and the kernel had not told.
        n_untold: the number of all such changes.
    """

    def __init__(
        self,
        root: str,
        store: BlobStore,
        limits: Limits,
        *,
        own: Iterable[str] = (),
        watch: TreeWatch | None = None,
        cancelled: Callable[[], bool] = lambda: False,
    ) -> None:
        self._root = root
        self._real = os.path.realpath(root)
        self._store = store
        self._limits = limits
        self._reader = _FileReader(store, limits)
        self._own = tuple(own)
        self._own_ids: frozenset[tuple[int, int]] = frozenset()
        self._secret = secrets()
        self._cancelled = cancelled
        self._outer = IgnoreStack()
        self._folders: Folders = {}
        self._n_kept = 0
        self._watch = watch
        # Whether all folders are watched and nothing happened that the last scan cannot know of.
        self._is_told = False
        self._root_id = (0, 0)
        # Files that had several links once, as a process may still write through a name that is gone. The device and inode
        # are None if there is one link by now.
        self._linked: dict[str, tuple[int, int] | None] = {}
        # Files that had several links when they were told, but whose names are ignored or protected.
        self._left_out_links: dict[str, Links] = {}
        # The number of links that the last walk did not find in the work folder.
        self._links_elsewhere: dict[tuple[int, int], int] = {}
        # Files and folders that may be read next time, though nothing tells: the rights of a folder above may change.
        self._unreadable: set[str] = set()
        self._left_over: set[str] = set()
        self._too_many = ""
        # Names that were told or suspected and not looked at yet.
        self._waiting = Told()
        self._suspects: set[str] = set()
        self._unchecked: list[str] = []
        self.n_scans = self.n_walks = self.n_lost = self.n_untold = 0
        self.untold: tuple[str, ...] = ()
        self.done = 0.0

    @property
    def manifest(self) -> ManifestTable:
        """Every path of the last scan; it changes with the next."""
        return ManifestTable(self._folders)

    def scan(self, also: Collection[str] = (), *, whole: bool = False, later: bool = False) -> Scan:
        """Scan now. When it returns, new contents are in the store and synced.

        Args:
            also: paths that are scanned even if there are too many files: other files may have taken their room meanwhile.
            whole: walk through all folders, whatever the kernel has told.
            later: leave the sync of new contents to a later flush of the store.

        Raises:
            OSError: the work folder itself cannot be opened, or the store's disk refused.
        """
        also = frozenset(also).union(*map(ancestors, also))
        now = self._pass(also)
        outer = outer_rules(self._root)
        if outer != self._outer:
            self._outer = outer
            whole = True
        self._own_ids = frozenset(_ids(self._own))
        try:
            top = os.open(self._root, _FOLDER_FLAGS & ~os.O_NOFOLLOW)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise FileNotFoundError(errno.ENOENT, _GONE) from error
        self.n_scans += 1
        try:
            # Until the end of this scan nothing that was told may be lost by an error.
            is_told, self._is_told = self._is_told and not whole, False
            told = self._told(top)
            suspects, self._suspects = self._suspects, set()
            done = is_walk = False
            if told is not None and is_told:
                done = self._look(told, top, now)
                # The watch told of a new link, but not of its file, whose links were not looked for until now.
                is_walk = done and self._has_unknown_links(now)
                if is_walk:
                    left_out_links = now.left_out_links
                    now = self._pass(also)
                    now.left_out_links = left_out_links
            if told is None or not is_told or is_walk:
                self.n_walks += 1
                is_walk = True
                done = self._folder("", top, self._outer, now)
        finally:
            os.close(top)
            self._store.flush(later=later)
        if not done:
            return Scan()
        self._take(now)
        self._take_links(now, is_walk=is_walk)
        self._is_told = self._watch is not None and self._watch.is_open
        if not self._left_over:
            self._too_many = ""
        self._too_many = now.too_many or self._too_many
        self.untold = tuple(sorted(suspects.intersection(now.changed)))
        self.n_untold += len(self.untold)
        return Scan(
            self.manifest.as_it_is() if now.is_first else now.changed,
            now.budget.full or self._too_many,
            is_first=now.is_first,
        )

    def _pass(self, also: frozenset[str]) -> ScanPass:
        now = ScanPass(time.time_ns(), self._limits.max_files - self._n_kept, also)
        now.is_first = not self._folders
        if not now.is_first:
            now.budget.most_bytes = self._limits.max_snapshot_bytes
        self.done = 0.0
        return now

    def _told(self, top: int) -> Told | None:
        """Return the names that have to be looked at; None if only a walk finds what changed."""
        if self._watch is None or not self._watch.is_open:
            return None
        waiting, self._waiting = self._waiting, Told()
        told = Told()
        self._watch.tell(told)
        self._suspects = {path for path in self._suspects if not told.has(path)}
        told.merge(waiting)
        status = os.fstat(top)
        is_same = self._root_id == (status.st_dev, status.st_ino)
        self._root_id = (status.st_dev, status.st_ino)
        self.n_lost += told.is_lost
        if (
            told.is_lost
            or not is_same
            or (self._left_over and self._limits.max_files > self._n_kept)
        ):
            return None
        with all_is_read():
            held = held_files(self._real)
        if held.is_unknown:
            return None
        for path in held.mapped:
            told.add_path(path, CONTENT)
        for path in (*held.opened, *self._linked):
            told.add_path(path)
        for path in self._unreadable:
            told.add_path(path, AS_FOLDER)
        return told

    def adopt(self, folders: Folders) -> None:
        """Use stored folders as the previous scan, so that the next scan reports only changes since then."""
        self._folders = folders if "" in folders else {**folders, "": Folder()}
        self._n_kept = sum(one.rows.n_kept for one in folders.values())
        for path, folder in folders.items():
            self._remember_in(path, folder)

    def _take(self, now: ScanPass) -> None:
        for path in now.gone:
            known = self._folders.pop(path, None)
            self._n_kept -= 0 if known is None else known.rows.n_kept
            if self._watch is not None and path not in now.folders:
                self._watch.forget(path)
        for path, folder in now.folders.items():
            known = self._folders.get(path)
            if known is None or known.rows is not folder.rows:
                self._n_kept += folder.rows.n_kept - (0 if known is None else known.rows.n_kept)
            if now.is_first:
                self._remember_in(path, folder)
        self._folders |= now.folders
        for path, entry in now.changed.items():
            self._remember(path, entry)

    def _remember_in(self, path: str, folder: Folder) -> None:
        prefix = f"{path}/" if path else ""
        for name, entry in folder.remarks.items():
            self._remember(prefix + name, entry)
        if folder.rows.has_unreadable:
            for name, entry in folder.rows.entries():
                self._remember(prefix + name, entry)

    def _remember(self, path: str, entry: ManifestEntry | None) -> None:
        self._unreadable.discard(path)
        self._left_over.discard(path)
        if entry not in _LEFT_OUT:
            self._left_out_links.pop(path, None)
        if entry is None:
            self._linked.pop(path, None)
        elif entry.kind == "unreadable":
            self._unreadable.add(path)
        elif entry == _OVER and path.count("/") < _DEEPEST:
            self._left_over.add(path)

    def _has_unknown_links(self, now: ScanPass) -> bool:
        """Return whether a told file has more links than those that are known, in the work folder or elsewhere."""
        told = now.left_out_links | now.linked
        if not told:
            return False
        known = self._linked | {
            path: links.file for path, links in (self._left_out_links | told).items()
        }
        found = Counter(known.values())
        return any(
            links.number - found[links.file] > self._links_elsewhere.get(links.file, 0)
            for links in told.values()
        )

    def _take_links(self, now: ScanPass, *, is_walk: bool) -> None:
        left_out = {
            path: links
            for path, links in (self._left_out_links | now.left_out_links).items()
            if links.number > 1
        }
        self._left_out_links = left_out
        if not self._linked and not now.linked and not left_out:
            return
        known = dict.fromkeys(self._linked) if is_walk else self._linked
        self._linked = known | {
            path: links.file if links.number > 1 else None for path, links in now.linked.items()
        }
        found = Counter(self._linked.values())
        found.update(links.file for links in left_out.values())
        # A walk asks for no status of a file that is left out, so what another path says of the same file goes first.
        numbers = {links.file: links.number for links in (*left_out.values(), *now.linked.values())}
        elsewhere = {
            file: number - found[file] for file, number in numbers.items() if number > found[file]
        }
        if not is_walk:
            elsewhere |= {
                file: count for file, count in self._links_elsewhere.items() if found[file]
            }
        self._links_elsewhere = elsewhere

    # -- checks ----------------------------------------------------------------------------------

    @property
    def is_told(self) -> bool:
        """Whether the next scan can rely on what the kernel tells."""
        return self._is_told and self._watch is not None and self._watch.is_open

    def suspect(self, paths: Iterable[str]) -> None:
        """Have the next scan read these files, even if nothing tells of a change."""
        for path in paths:
            self._waiting.add_path(path, CONTENT)
            above, _, name = path.rpartition("/")
            folder = self._folders.get(above)
            row = None if folder is None else folder.rows.get(name)
            if folder is not None and row is not None:
                # A walk looks at the stamp.
                folder.rows = folder.rows.edited({name: row._replace(stamp=None)})

    @property
    def has_suspects(self) -> bool:
        """Whether a check found names that the next scan has to look at."""
        return bool(self._suspects)

    def begin_check(self) -> None:
        """Begin to compare all folders with what is known of them."""
        self._unchecked = list(self._folders) if self.is_told else []

    def check(self, seconds: float) -> bool:
        """Go on with the check for some time; return whether there is more to do. The next scan looks at what it suspects.

        Args:
            seconds: how long, at most; one folder is always checked.
        """
        ends = time.monotonic() + seconds
        watch = self._watch
        if watch is None or not self._unchecked:
            return False
        started_ns = time.time_ns()
        suspects: set[str] = set()
        top = os.open(self._root, _FOLDER_FLAGS & ~os.O_NOFOLLOW)
        try:
            while self._unchecked and not self._cancelled():
                suspects.update(self._suspected(self._unchecked.pop(), top, started_ns))
                if time.monotonic() > ends:
                    break
        finally:
            os.close(top)
        # Paths that the kernel has told of by now are no surprise.
        watch.tell(self._waiting)
        suspects = {path for path in suspects if not self._waiting.has(path)}
        for path in suspects:
            self._waiting.add_path(path, AS_FOLDER)
        self._suspects |= suspects
        return bool(self._unchecked)

    def _suspected(self, path: str, top: int, started_ns: int) -> Iterator[str]:
        """Yield the paths in a folder that are not as they are known."""
        known = self._folders.get(path)
        if known is None:
            return
        try:
            handle = _opened(path, top)
        except OSError:
            if path and path not in self._unreadable:
                yield path
            return
        prefix = f"{path}/" if path else ""
        try:
            status = os.fstat(handle)
            if path and status.st_ino != known.stamp[2]:
                yield path
                return
            if (status.st_mtime_ns, status.st_ctime_ns) != known.stamp[:2] or not known.trusted:
                names = {*known.rows.names, *known.folders, *known.remarks}
                with os.scandir(handle) as listing:
                    found = {one.name for one in listing if not is_temporary_name(one.name)}
                yield from (prefix + name for name in names ^ found)
                if names == found:
                    known.stamp = (status.st_mtime_ns, status.st_ctime_ns, status.st_ino)
                    known.trusted = max(known.stamp[:2]) + SETTLED_NS <= started_ns
            for name, before in known.rows.stamps():
                stamp = stamp_of(name, handle)
                if stamp is not None and before != stamp:
                    entry = known.get(name)
                    if entry is not None and (entry.kept or entry.kind == "over"):
                        yield prefix + name
        finally:
            os.close(handle)

    # -- told names ------------------------------------------------------------------------------

    def _look(self, told: Told, top: int, now: ScanPass) -> bool:
        """Look at the told names; return False if it was cancelled."""
        # A folder comes before those below it: when it was walked, they have been looked at.
        for path in sorted(told.names):
            if self._cancelled():
                return False
            known = self._folders.get(path)
            if known is None or path in now.walked or path in now.gone:
                continue
            try:
                handle = _opened(path, top)
            except OSError as error:
                raise_lack(error)
                # The folder was removed or made unreadable; the watch told of that as well.
                continue
            try:
                if not self._names(path, told.names[path], known, handle, now):
                    return False
            finally:
                os.close(handle)
        for path in sorted({*now.edited, *now.walked}):
            if path and path in now.folders and path not in now.gone:
                self._note_if_empty(path, now)
        for path, names in now.edited.items():
            self._compare_names(path, names, now)
        return True

    def _names(
        self, path: str, names: Mapping[str, int], known: Folder, handle: int, now: ScanPass
    ) -> bool:
        status = os.fstat(handle)
        if known.stamp[2] != status.st_ino:
            # Another folder stands here by now, which is told with the next scan at the latest.
            return True
        if RULES_NAME in names:
            known.trusted = False
            return self._folder(path, handle, known.above, now)
        folder = self._editable(path, now)
        folder.stamp = (status.st_mtime_ns, status.st_ctime_ns, status.st_ino)
        folder.trusted = (
            now.trusts(*folder.stamp[:2]) and _UNREADABLE not in folder.remarks.values()
        )
        prefix = f"{path}/" if path else ""
        rows: dict[str, FileRow | None] = {}
        for name, how in names.items():
            now.edited[path].add(name)
            if not self._name(prefix + name, how, folder, rows, handle, now):
                return False
        folder.rows = folder.rows.edited(rows)
        return True

    def _name(
        self,
        path: str,
        how: int,
        folder: Folder,
        rows: dict[str, FileRow | None],
        handle: int,
        now: ScanPass,
    ) -> bool:
        """Look at one told path in a folder, and note its row in `rows`; return False if the scan was cancelled."""
        name = path.rpartition("/")[2]
        remark, row = folder.remarks.pop(name, None), folder.rows.get(name)
        if row is not None:
            rows[name] = None
        is_folder = left_out = None
        try:
            status = os.stat(name, dir_fd=handle, follow_symlinks=False)
        except FileNotFoundError:
            status = None
        except OSError as error:
            raise_lack(error)
            folder.remarks[name] = _UNREADABLE
            return True
        if status is not None:
            is_folder = stat.S_ISDIR(status.st_mode)
            above = _folded(path.rpartition("/")[0])
            left_out = self._left_out(name, path, above, folder.inside, is_folder=is_folder)
            if left_out is not None:
                folder.remarks[name] = left_out
                if not is_folder and (status.st_nlink > 1 or path in self._left_out_links):
                    now.left_out_links[path] = _links(status)
            if left_out is not None or (not is_folder and is_temporary_name(name)):
                status = None
        if status is None or not is_folder:
            folder.folders = _without(name, folder.folders)
            self._forget(path, now)
        if status is None:
            return True
        if not is_folder:
            stamp = stamp_from(status)
            if status.st_nlink > 1 or path in self._linked:
                now.linked[path] = _links(status)
            if row is not None and row.stamp == stamp and not how & CONTENT:
                del rows[name]
            else:
                rows[name] = self._file(path, name, stamp, folder, handle, now)
            return True
        folder.folders = _with(name, folder.folders)
        if path not in self._folders or how & AS_FOLDER:
            return self._inner(path, name, folder, handle, now)
        if remark is not None:
            folder.remarks[name] = remark
        return True

    def _editable(self, path: str, now: ScanPass) -> Folder:
        """Return a known folder as this scan may change it."""
        folder = now.folders.get(path)
        if folder is None:
            known = self._folders[path]
            folder = now.folders[path] = replace(known, remarks=dict(known.remarks))
        if path not in now.walked:
            now.edited.setdefault(path, set())
        return folder

    def _note_if_empty(self, path: str, now: ScanPass) -> None:
        above, _, name = path.rpartition("/")
        is_empty = now.folders[path].is_empty
        around = now.folders.get(above) or self._folders[above]
        if is_empty is (around.remarks.get(name) == _EMPTY) or above in now.walked:
            return
        around = self._editable(above, now)
        now.edited[above].add(name)
        if is_empty:
            around.remarks[name] = _EMPTY
        else:
            del around.remarks[name]

    def _compare_names(self, path: str, names: Iterable[str], now: ScanPass) -> None:
        """Find the differences of some names in a folder from the previous scan."""
        prefix = f"{path}/" if path else ""
        known, folder = self._folders[path], now.folders[path]
        for name in names:
            entry = folder.get(name)
            if known.get(name) != entry:
                now.changed[prefix + name] = entry

    # -- folders ---------------------------------------------------------------------------------

    def _folder(self, path: str, handle: int, above: IgnoreStack, now: ScanPass) -> bool:
        if self._cancelled():
            return False
        status = os.fstat(handle)
        stamp = (status.st_mtime_ns, status.st_ctime_ns, status.st_ino)
        known = self._folders.get(path)
        now.walked.add(path)
        now.edited.pop(path, None)
        if self._watch is not None:
            # The watch comes first: what changes after the listing is told.
            self._watch.add(path, handle, status.st_dev)
        if (
            known is None
            or not known.trusted
            or known.stamp != stamp
            or (known.above is not above and known.above != above)
            or (known.rules_stamp and known.rules_stamp != stamp_of(RULES_NAME, handle))
        ):
            folder, names = self._listed(path, handle, above, stamp, now)
        else:
            kept = {name: entry for name, entry in known.remarks.items() if entry in _LEFT_OUT}
            folder = replace(known, stamp=stamp, remarks=kept)
            names = known.rows.names
            if len(kept) != len(known.remarks):
                again = set(known.remarks) - kept.keys() - set(known.folders) - {REST}
                names = tuple(sorted({*names, *again}))
        now.folders[path] = folder
        if not self._files(path, names, folder, known, handle, now):
            return False
        prefix = f"{path}/" if path else ""
        begins, span = now.done, now.span
        for number, name in enumerate(folder.folders):
            now.done = begins + span * number / len(folder.folders)
            now.span = span / len(folder.folders)
            self.done = now.done
            if not self._inner(prefix + name, name, folder, handle, now):
                return False
        now.done, now.span = begins, span
        if folder.is_empty and path:
            self._note(path, _EMPTY, now)
        self._compare(prefix, folder, known, now)
        return True

    def _inner(self, path: str, name: str, folder: Folder, handle: int, now: ScanPass) -> bool:
        if path.count("/") >= _DEEPEST:
            folder.remarks[name] = _OVER
            return True
        try:
            inner = os.open(name, _FOLDER_FLAGS, dir_fd=handle)
        except OSError as error:
            raise_lack(error)
            folder.remarks[name] = _UNREADABLE
            self._forget(path, now)
            return True
        try:
            status = os.fstat(inner)
            if (status.st_dev, status.st_ino) in self._own_ids:
                folder.remarks[name] = _IGNORED
                self._forget(path, now)
                return True
            is_new = path not in self._folders
            if is_new and now.room <= 0 and path not in now.also:
                self._leave_out(name, folder, now)
                return True
            return self._folder(path, inner, folder.inside, now)
        finally:
            os.close(inner)

    def _listed(
        self, path: str, handle: int, above: IgnoreStack, stamp: tuple[int, int, int], now: ScanPass
    ) -> tuple[Folder, tuple[str, ...]]:
        """List a folder; return it without its files, and their names."""
        rules_stamp = stamp_of(RULES_NAME, handle)
        rules = read_rules(RULES_NAME, handle, above.room) if rules_stamp else None
        inside = above.entered(path, rules)
        prefix = f"{path}/" if path else ""
        files: list[str] = []
        folders: list[str] = []
        left_out: dict[str, ManifestEntry] = {}
        # Later scans find few new names.
        known_names = now.names if now.is_first else {}
        above_it = _folded(path)
        with os.scandir(handle) as listing:
            for item in listing:
                try:
                    is_folder = item.is_dir(follow_symlinks=False)
                except OSError:
                    left_out[item.name] = _UNREADABLE
                    continue
                if not is_folder and is_temporary_name(item.name):
                    continue
                entry = self._left_out(
                    item.name, prefix + item.name, above_it, inside, is_folder=is_folder
                )
                if entry is not None:
                    left_out[item.name] = entry
                else:
                    (folders if is_folder else files).append(
                        known_names.setdefault(item.name, item.name)
                    )
        folder = Folder(
            folders=tuple(in_order(folders)),
            remarks=left_out,
            stamp=stamp,
            trusted=now.trusts(stamp[0], stamp[1]) and _UNREADABLE not in left_out.values(),
            rules_stamp=rules_stamp,
            above=above,
            inside=inside,
        )
        return folder, tuple(in_order(files))

    def _left_out(
        self, name: str, path: str, above: list[str], rules: IgnoreStack, *, is_folder: bool
    ) -> ManifestEntry | None:
        """Return the entry of a name that is not looked at for its name alone; None if it is.

        Args:
            name: the name.
            path: its path.
            above: the folded names of the folders above it.
            rules: the ignore rules in its folder.
            is_folder: whether it is a folder.
        """
        if rules.ignores(path, is_folder=is_folder):
            return _IGNORED
        if self._secret.covers([*above, folded(name)], is_folder=is_folder):
            return _SECRET
        return None

    def _note(self, path: str, entry: ManifestEntry, now: ScanPass) -> None:
        """Record an entry for a folder itself, among the remarks of the folder above."""
        above, _, name = path.rpartition("/")
        self._editable(above, now).remarks[name] = entry
        if above in now.edited:
            now.edited[above].add(name)

    def _leave_out(self, name: str, folder: Folder, now: ScanPass) -> None:
        folder.remarks[name] = _OVER
        # The folder is listed again next time, when there may be room.
        folder.trusted = False
        now.too_many = (
            f"There are more than {self._limits.max_files:,} files, so some have no snapshot."
        )

    def _compare(self, prefix: str, folder: Folder, known: Folder | None, now: ScanPass) -> None:
        """Find the differences from the previous scan."""
        if now.is_first:
            return
        if known is None:
            now.changed |= {prefix + name: entry for name, entry in folder.entries()}
            return
        if known.rows is not folder.rows or known.remarks != folder.remarks:
            before, after = dict(known.entries()), dict(folder.entries())
            for name, entry in after.items():
                if before.get(name) != entry:
                    now.changed[prefix + name] = entry
            for name in before.keys() - after.keys():
                now.changed[prefix + name] = None
        if known.folders is not folder.folders:
            for name in set(known.folders).difference(folder.folders):
                self._forget(prefix + name, now)

    def _forget(self, path: str, now: ScanPass) -> None:
        """Forget everything below a folder that is gone, or not scanned any more."""
        known = self._folders.get(path)
        if known is None:
            return
        now.gone.add(path)
        for name in (*known.rows.names, *known.remarks):
            now.changed.setdefault(f"{path}/{name}", None)
        for name in known.folders:
            self._forget(f"{path}/{name}", now)

    # -- files -----------------------------------------------------------------------------------

    def _files(
        self,
        path: str,
        names: Iterable[str],
        folder: Folder,
        known: Folder | None,
        handle: int,
        now: ScanPass,
    ) -> bool:
        # This loop runs for every file of a walk, so unchanged files cost only system calls.
        prefix = f"{path}/" if path else ""
        stamps = dict(known.rows.stamps()) if known else {}
        rows: dict[str, FileRow | None] = dict.fromkeys(stamps.keys() - set(names))
        ask = os.stat
        for number, name in enumerate(names, start=1):
            if not number % _CHECKED_FILES and self._cancelled():
                return False
            try:
                status = ask(name, dir_fd=handle, follow_symlinks=False)
            except OSError as error:
                if name in stamps:
                    rows[name] = None
                if not isinstance(error, FileNotFoundError):
                    raise_lack(error)
                    # The name exists but cannot be examined, so it must not count as missing.
                    folder.remarks[name] = _UNREADABLE
                continue
            stamp = (
                status.st_mtime_ns,
                status.st_ctime_ns,
                status.st_size,
                status.st_ino,
                status.st_mode,
            )
            if status.st_nlink > 1:
                now.linked[prefix + name] = _links(status)
            if stamps.get(name) != stamp:
                rows[name] = self._file(prefix + name, name, Stamp(*stamp), folder, handle, now)
        folder.rows = (known.rows if known else FileRows()).edited(rows)
        return True

    def _file(
        self, path: str, name: str, stamp: Stamp, folder: Folder, handle: int, now: ScanPass
    ) -> FileRow | None:
        before = None if now.is_first else self.manifest.get(path)
        is_new = before is None or not before.kept
        if is_new and now.room <= 0 and path not in now.also and self._reader.may_keep(stamp):
            self._leave_out(REST, folder, now)
            return None
        if is_new and (now.budget.full or self._cancelled()):
            # The budget is used up or the scan is cancelled: a file is not read only to be omitted.
            entry = ManifestEntry("over", size=stamp.size)
        else:
            entry = self._reader.entry(name, handle, stamp, now.budget)
        now.room -= int(is_new and entry.kept)
        is_trusted = now.trusts(stamp.mtime_ns, stamp.ctime_ns)
        return FileRow(
            entry, stamp if is_trusted and (entry.kept or entry.kind == "over") else None
        )


def try_watch(root: str, own: Iterable[str], seconds: float) -> tuple[int, str]:
    """Try to watch all folders that a scan would cover; return their number, and why that is not possible (empty if it is).

    Args:
        root: the work folder.
        own: folders of the program itself.
        seconds: after this time the rest is taken for possible.

    Raises:
        OSError: the system has no inotify, or the work folder cannot be read.
    """
    watch = TreeWatch()
    ends = time.monotonic() + seconds
    own_ids = frozenset(_ids(own))
    top = os.open(root, _FOLDER_FLAGS & ~os.O_NOFOLLOW)
    count = 0
    try:
        waiting = [("", outer_rules(root))]
        while waiting and time.monotonic() < ends:
            path, above = waiting.pop()
            with contextlib.suppress(OSError), _closing(_opened(path, top)) as folder:
                status = os.fstat(folder)
                if (status.st_dev, status.st_ino) in own_ids:
                    continue
                if not watch.add(path, folder, status.st_dev):
                    break
                count += 1
                inside = above.entered(path, read_rules(RULES_NAME, folder, above.room))
                prefix = f"{path}/" if path else ""
                with os.scandir(folder) as listing:
                    waiting += [
                        (prefix + item.name, inside)
                        for item in listing
                        if item.is_dir(follow_symlinks=False)
                        and not inside.ignores(prefix + item.name, is_folder=True)
                    ]
        return count, watch.trouble
    finally:
        os.close(top)
        watch.close()


@contextlib.contextmanager
def _closing(handle: int) -> Generator[int]:
    try:
        yield handle
    finally:
        os.close(handle)


def _opened(path: str, top: int) -> int:
    """Open a folder below an open one without following links, for reading.

    Raises:
        OSError: it is gone or cannot be read.
    """
    *above, name = path.split("/")
    if not name:
        return os.dup(top)
    folder = open_folder(top, above)
    try:
        return os.open(name, _FOLDER_FLAGS, dir_fd=folder)
    finally:
        os.close(folder)


def _folded(path: str) -> list[str]:
    """Return the names of a folder's path in the form in which protected names are compared."""
    return [folded(name) for name in path.split("/")] if path else []


def _with(name: str, names: tuple[str, ...]) -> tuple[str, ...]:
    """Return sorted names with one more."""
    place = bisect_left(names, name)
    return names if names[place : place + 1] == (name,) else (*names[:place], name, *names[place:])


def _without(name: str, names: tuple[str, ...]) -> tuple[str, ...]:
    """Return sorted names without one."""
    place = bisect_left(names, name)
    return (*names[:place], *names[place + 1 :]) if names[place : place + 1] == (name,) else names


def _ids(folders: Iterable[str]) -> Iterable[tuple[int, int]]:
    for folder in folders:
        try:
            status = os.stat(folder)
        except OSError:
            continue
        yield status.st_dev, status.st_ino

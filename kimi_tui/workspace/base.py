"""`Base`: the files of one snapshot as a folder of this program's own, moved from snapshot to snapshot by their differences.

Making it takes two thirds of a second of processor time for 20,000 files, five sixths of it in the system calls, moving it to a near
snapshot some milliseconds. It is the lower layer of every view of the past, so nothing but `Base.move` ever writes to it, and only while no view is open.

    PLACE/lock        held by the process that uses the base
    PLACE/base        the files
    PLACE/old         a base while another one is made in its place
    PLACE/base.json   which snapshot they are; missing while they are changed, so that a killed move is not taken for one

The base is a cache: it is not synced, and made anew after a start of the machine, after a killed move, and if a file in it is
not as it was left. Files that are the same in the work folder have the times of those, all others new ones: a build that
compares times takes results for done only if they were made from the same contents. `write_files` writes the files of a
snapshot into a folder for the user.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import stat
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from kimi_tui.app_paths import make_private, reason_of
from kimi_tui.display_names import some_of
from kimi_tui.filesystem import (
    SETTLED_NS,
    Storage,
    enter_folder,
    identity_of,
    new_temporary_name,
    open_folder,
    remove_tree,
    spread,
    write_all,
)
from kimi_tui.workspace.diff import (
    FileDifference,
    SideChange,
    diff_lines,
    former_names,
    shown_text,
)
from kimi_tui.workspace.file_table import FileRows, Folders, Layered, table_of, with_contents
from kimi_tui.workspace.manifest import REST, Kind, Limits, Manifest, ManifestEntry, ancestors
from kimi_tui.workspace.restore import as_file, why_not
from kimi_tui.workspace.scan import Scanner, stamp_from
from kimi_tui.workspace.snapshots import Snapshot
from kimi_tui.workspace.store import BlobDamaged, BlobStore
from kimi_tui.workspace.tracker import STORE_NAME, stored_snapshots

_FOLDER, _OLD, _LOCK = "base", "old", "lock"
FACTS = "base.json"
"""The name of the file that says which files a base has; it is there only while the base is whole."""
_LEFT_FREE = 64 << 20
"""Bytes of the disk that stay free."""
_PER_FILE = 4096
_TOLD_EVERY = 512
_ASKED_EVERY = 32
_MOST_NAMED = 3
_MOST_COMPARED = 300
_MOST_ROWS = 5000
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_BOOT = "/proc/sys/kernel/random/boot_id"


class NoBase(Exception):
    """The files of a snapshot cannot be written out; the message is a sentence for the user."""


@dataclass(frozen=True, slots=True, eq=False)
class FileState:
    """The files at one time: those of a snapshot, but for the changes in `further`, which no snapshot has."""

    snapshot: Snapshot
    further: Mapping[str, ManifestEntry | None] = field(
        default_factory=dict[str, "ManifestEntry | None"]
    )


class Progress(NamedTuple):
    """The files of a base that are written, and all of them."""

    done: int
    of: int


class Past:
    """The states of a session's files, read from the disk; the session may be open elsewhere. Its methods block.

    Args:
        folder: the folder of the session's snapshots.
        root: the work folder.

    Attributes:
        log: the snapshots.
        now: the files as they are now, once `scan` was called; else None.
    """

    def __init__(self, folder: Path, root: Path) -> None:
        self.log = stored_snapshots(folder)[0]
        self.root = root
        self._packs = folder / STORE_NAME
        self._store = BlobStore(self._packs, 0)
        self._more: BlobStore | None = None
        self._stamped: Folders | None = None
        self.now: FileState | None = None

    def scan(self, scratch: Path, own: Iterable[str], cancelled: Callable[[], bool]) -> FileState:
        """Return the files as they are now, without a trace in the session.

        Args:
            scratch: a folder for the contents that the store of the session lacks.
            own: folders of the program itself, which are never listed.
            cancelled: called now and then; if it returns True, the scan ends.

        Raises:
            OSError: the work folder cannot be read, or the disk refused.
            NoBase: there are no snapshots, or it was cancelled.
        """
        last = self.last
        limits = Limits()
        self._more = BlobStore(scratch, limits.max_store_bytes, [self._packs])
        scanner = Scanner(str(self.root), self._more, limits, own=own, cancelled=cancelled)
        # Files that look as they did at the newest snapshot are not read.
        scanner.adopt(with_contents(dict(self.stamped), self._store.has_digest))
        scanner.scan()
        if cancelled():
            raise NoBase("The scan of the work folder was stopped.")
        latest, found = dict(self.log.latest.items()), scanner.manifest
        self._stamped = found.folders
        changed = {path: entry for path, entry in found.items() if latest.pop(path, None) != entry}
        self.now = FileState(last, changed | dict.fromkeys(latest))
        return self.now

    @property
    def stamped(self) -> Folders:
        """The files of the newest state, with the stamps that are known.

        Raises:
            OSError: the work folder is not there.
        """
        if self._stamped is None:
            self._stamped = self.log.folders(identity_of(os.stat(self.root)))
        return self._stamped

    @property
    def last(self) -> Snapshot:
        """The newest snapshot.

        Raises:
            NoBase: there are no snapshots.
        """
        if self.log.last is None:
            raise NoBase("This session has no file snapshots.")
        return self.log.last

    @property
    def newest(self) -> FileState:
        """The newest state that is known."""
        return self.now or FileState(self.last)

    def files(self, state: FileState) -> Manifest:
        """Return all files of a state."""
        found = self.log.manifest_at(state.snapshot)
        return Layered(found, state.further) if state.further else found

    def entries(self, state: FileState, paths: Collection[str]) -> dict[str, ManifestEntry | None]:
        """Return the entries of some paths in a state."""
        changed, further = state.snapshot.changed, state.further
        found = self.log.manifest_before(state.snapshot, paths)
        found |= {path: changed[path] for path in paths if path in changed}
        return found | {path: further[path] for path in paths if path in further}

    def differing(self, one: FileState, other: FileState) -> dict[str, ManifestEntry | None]:
        """Return the paths that differ between two states, with their entries in the second one."""
        first, last = one.snapshot, other.snapshot
        if self.log.later(first, last) is first:
            first, last = last, first
        paths = {*self.log.changed_since(first, last), *one.further, *other.further}
        before, after = self.entries(one, paths), self.entries(other, paths)
        return {path: after[path] for path in paths if before[path] != after[path]}

    def differences(self, one: FileState, other: FileState) -> list[FileDifference]:
        """Return the differences between two states as they are shown, sorted; secrets are only named."""
        changed = self.differing(one, other)
        before = self.entries(one, changed.keys())
        found: list[FileDifference] = []
        names = former_names(
            {path: (before[path], entry) for path, entry in changed.items()}, self.content
        )
        for path in sorted(changed.keys() - names.values()):
            former = names.get(path, "")
            old, new = as_file(before[former or path]), as_file(changed[path])
            if any(entry is not None and entry.kind == "secret" for entry in (old, new)):
                found.append(FileDifference(path, SideChange("changed"), is_secret=True))
            elif any(entry is not None and entry.kept for entry in (old, new)):
                texts = [shown_text(entry, self.content) for entry in (old, new)]
                was, now = texts if len(found) < _MOST_COMPARED else (None, None)
                diff = None if was is None or now is None else diff_lines(was, now, _MOST_ROWS)
                outcome = "new" if old is None else "gone" if new is None else "changed"
                side = SideChange(outcome, diff=diff)
                found.append(FileDifference(path, side, old_path=former))
        return found

    def content(self, entry: ManifestEntry) -> bytes:
        """Return the contents of a file.

        Raises:
            BlobDamaged: they are missing or damaged.
        """
        if self._more is not None and not self._store.has(entry.blob):
            return self._more.get(entry.blob, entry.size)
        return self._store.get(entry.blob, entry.size)

    def reading(self) -> contextlib.AbstractContextManager[None]:
        """Return a context in which many contents are read faster."""
        return self._store.reading()

    def gaps(self, state: FileState) -> str:
        """Say in a sentence which files no snapshot of this state has although they were covered; empty if it has all."""
        missing = [
            (path, entry)
            for path, entry in self.files(state).items()
            if entry.kind in ("large", "unreadable", "over")
        ]
        notes = " ".join(self.log.notes_at(state.snapshot))
        if not missing:
            return notes
        kinds: Counter[Kind] = Counter(entry.kind for _, entry in missing)
        why = ", ".join(f"{count:,} {why_not(kind)}" for kind, count in kinds.most_common())
        named = some_of(
            [path.removesuffix(REST).rstrip("/") or "." for path, _ in missing], _MOST_NAMED
        )
        return f"The snapshot is incomplete ({why}): {named}. {notes}".strip()


class Base:
    """The files of one state at a time. Everything blocks, and belongs in one thread.

    Args:
        place: the folder of the base and its lock, which is made if it is missing.
        past: the states.

    Raises:
        NoBase: another process uses it.
        OSError: the disk refused.
    """

    def __init__(self, place: Path, past: Past) -> None:
        make_private(place)
        self.place = place
        self.folder = place / _FOLDER
        self.past = past
        self._facts = place / FACTS
        self._lock = locked(place)
        self._shown: FileState | None = None
        self._is_looked_at = False

    def move(
        self,
        state: FileState,
        told: Callable[[Progress], None] = lambda _: None,
        cancelled: Callable[[], bool] = lambda: False,
    ) -> None:
        """Make the base the files of a state.

        Args:
            state: the state.
            told: called while a new base is made.
            cancelled: called now and then; if it returns True, it is given up.

        Raises:
            NoBase: it cannot be made: the disk is full, or contents are missing; or it was cancelled.
        """
        try:
            before = self._shown or self._stored_state()
            self._shown = None
            self._facts.unlink(missing_ok=True)
            # These files differ from those in the work folder.
            own = self.past.differing(self.past.newest, state).keys()
            if before is None:
                self._make(state, own, told, cancelled)
            else:
                self._change(self.past.differing(before, state), own, cancelled)
                self._renew(state, own)
            self._is_looked_at = True
            shows = "" if state.further else state.snapshot.id
            # The time by the clock of the file system, which runs behind the system's.
            os.utime(self.folder)
            left_ns = os.stat(self.folder).st_ctime_ns
            facts = {"shows": shows, "boot": _boot(), "left_ns": left_ns}
            self._facts.write_text(json.dumps(facts))
        except (BlobDamaged, OSError) as error:
            self._drop()
            raise NoBase(refused(error)) from error
        except BaseException:
            self._drop()
            raise
        self._shown = state

    def take(self, place: Path) -> None:
        """Take the files of the base in another place if nothing uses that one now, so that they need not be made.

        Raises:
            OSError: the disk refused.
        """
        with contextlib.suppress(NoBase):
            other = Base(place, self.past)
            try:
                if self._shown is None and (state := other._stored_state()) is not None:
                    other._facts.unlink()
                    other.folder.rename(self.folder)
                    self._shown = state
            finally:
                other.close()

    def leave(self, place: Path) -> None:
        """Leave the files to the base in another place, for its next use, if that one has none and nothing uses it now.

        Raises:
            OSError: the disk refused.
        """
        state, self._shown = self._shown, None
        with contextlib.suppress(NoBase):
            other = Base(place, self.past)
            try:
                if state is not None and not os.path.lexists(other.folder):
                    facts = self._facts.read_bytes()
                    self.folder.rename(other.folder)
                    other._facts.write_bytes(facts)
            finally:
                other.close()

    def close(self) -> None:
        """Let other processes use it; what it holds stays for them."""
        lock, self._lock = self._lock, -1
        if lock >= 0:
            os.close(lock)

    def _drop(self) -> None:
        for folder in (self.folder, self.place / _OLD):
            with contextlib.suppress(OSError):
                remove_tree(folder)

    def _stored_state(self) -> FileState | None:
        """Return the state that an earlier process left, if every file is as it left it."""
        try:
            facts = json.loads(self._facts.read_bytes())
            left_ns = int(facts["left_ns"])
            snapshot = self.past.log.get(str(facts["shows"]))
            if snapshot is None or facts["boot"] != _boot():
                return None
            state = FileState(snapshot)
            return state if _is_as_left(self.folder, self.past.files(state), left_ns) else None
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None

    def _make(
        self,
        state: FileState,
        own: Collection[str],
        told: Callable[[Progress], None],
        cancelled: Callable[[], bool],
    ) -> None:
        files = self.past.files(state)
        old = self.place / _OLD
        if os.path.lexists(old):
            remove_tree(old)
        # ext4 looks at every inode that was freed in the last minutes before it gives a new file one, so that making files
        # behind the removal of as many takes ten times as long: the removal comes last, if the disk has room.
        if os.path.lexists(self.folder):
            self.folder.rename(old)
        try:
            try:
                check_room(self.place, files)
            except NoBase:
                if not os.path.lexists(old):
                    raise
                remove_tree(old)
                check_room(self.place, files)
            os.mkdir(self.folder, 0o755)
            spread(self.folder)
            self._write(files, own, told, cancelled)
        finally:
            if os.path.lexists(old):
                remove_tree(old)

    def _change(
        self,
        changed: Mapping[str, ManifestEntry | None],
        own: Collection[str],
        cancelled: Callable[[], bool],
    ) -> None:
        emptied: set[str] = set()
        with _Walk(self.folder) as walk:
            for path in sorted(changed, key=_by_folder, reverse=True):
                entry = changed[path]
                if entry is None or not entry.is_known:
                    emptied.update(ancestors(path))
                with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                    _remove(path.rpartition("/")[2], walk.folder(path.rpartition("/")[0]))
        with _Walk(self.folder) as walk:
            for path in sorted(emptied, key=lambda one: one.count("/"), reverse=True):
                with contextlib.suppress(OSError):
                    above, _, name = path.rpartition("/")
                    os.rmdir(name, dir_fd=walk.folder(above))
        present = {path: entry for path, entry in changed.items() if entry is not None}
        self._write(present, own, lambda _: None, cancelled)

    def _write(
        self,
        files: Manifest,
        own: Collection[str],
        told: Callable[[Progress], None],
        cancelled: Callable[[], bool],
    ) -> None:
        with _WorkFolder(self.past, own) as live, self.past.reading():
            write_files(self.folder, files, self.past.content, live, told, cancelled)

    def _renew(self, state: FileState, own: Collection[str]) -> None:
        """Give new times to the files that differ from those in the work folder, from which build results may come."""
        past = self.past
        renewed = set(own)
        if not self._is_looked_at and past.now is None:
            until = int(past.last.at * 1e9) - SETTLED_NS
            renewed |= set(_changed_after(str(past.root), past.files(state), until))
        with _Walk(self.folder) as walk:
            for path in sorted(renewed, key=_by_folder):
                above, _, name = path.rpartition("/")
                with contextlib.suppress(OSError):
                    os.utime(name, dir_fd=walk.folder(above), follow_symlinks=False)


class _WorkFolder:
    """The work folder as a source of files that are the same in a state, which is faster than to unpack them.

    A file is the same if its stamp is the one of the newest state when it was copied.

    Args:
        past: the states of the files.
        differing: the paths that differ from the newest state.
    """

    def __init__(self, past: Past, differing: Collection[str]) -> None:
        self._until = int(past.last.at * 1e9) - SETTLED_NS
        self._differing: dict[str, set[str]] = {}
        for path in differing:
            above, _, name = path.rpartition("/")
            self._differing.setdefault(above, set()).add(name)
        self._files: Folders = {}
        self._walk: _Walk | None = None
        self._folder: int | None = None
        self._excepted: Collection[str] = ()
        self._stamps: dict[str, tuple[int, ...] | None] = {}
        with contextlib.suppress(OSError):
            self._files = past.stamped
            self._walk = _Walk(past.root)
        self._storage = Storage()

    def __enter__(self) -> _WorkFolder:
        return self

    def __exit__(self, *_: object) -> None:
        if self._walk is not None:
            self._walk.__exit__()

    def enter(self, above: str) -> None:
        """Go to the folder of the next files."""
        known = self._files.get(above)
        self._stamps = {} if known is None else dict(known.rows.stamps())
        self._excepted = self._differing.get(above, ())
        for name in self._excepted:
            self._stamps.pop(name, None)
        self._folder = None
        with contextlib.suppress(OSError):
            self._folder = None if self._walk is None else self._walk.folder(above)

    def copied(self, name: str, handle: int) -> bool:
        """Return whether a file was copied, with its time; if it is not the one that is meant, the new one is empty.

        Args:
            name: the name of the file in the folder.
            handle: the new file, which is empty.

        Raises:
            OSError: the disk refused.
        """
        stamp = self._stamps.get(name)
        if stamp is None or self._folder is None:
            return False
        try:
            source = os.open(name, _READ, dir_fd=self._folder)
        except OSError:
            return False
        try:
            size, done = stamp[2], 0
            try:
                while done < size:
                    n_copied = self._storage.copy_range(source, handle, size - done, done)
                    if not n_copied:
                        break
                    done += n_copied
            except OSError:
                if stamp_from(os.fstat(source)) == stamp:
                    raise
            # A change of the file before or while it was copied has changed its stamp.
            if done == size and stamp_from(os.fstat(source)) == stamp:
                os.utime(handle, ns=(stamp[0], stamp[0]))
                return True
        finally:
            os.close(source)
        os.ftruncate(handle, 0)
        os.lseek(handle, 0, os.SEEK_SET)
        return False

    def give_time(self, name: str, handle: int) -> None:
        """Give a file whose contents come from the store the time of the one in the work folder, if that is the same."""
        if self._folder is None or name in self._excepted:
            return
        with contextlib.suppress(OSError):
            status = os.stat(name, dir_fd=self._folder, follow_symlinks=False)
            if max(status.st_mtime_ns, status.st_ctime_ns) < self._until:
                os.utime(handle, ns=(status.st_mtime_ns, status.st_mtime_ns))


def _by_folder(path: str) -> tuple[str, str]:
    above, _, name = path.rpartition("/")
    return above, name


def locked(place: Path) -> int:
    """Return a descriptor of the lock of a base, which this process has now.

    Raises:
        NoBase: another process has it.
        OSError: it cannot be opened.
    """
    lock = os.open(place / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise NoBase(
            "Another bisect or run-at is running in this session. Wait until it ends."
        ) from None
    except OSError:
        os.close(lock)
        raise
    return lock


def write_files(
    top: Path,
    files: Manifest,
    content: Callable[[ManifestEntry], bytes],
    source: _WorkFolder | None = None,
    told: Callable[[Progress], None] = lambda _: None,
    cancelled: Callable[[], bool] = lambda: False,
) -> None:
    """Write files into a folder in which none of them exists. No link in it is followed.

    Args:
        top: the folder.
        files: the files, by their paths in it; entries without contents are passed over.
        content: returns the contents of a file, or the target of a link.
        source: a folder that has some of the files.
        told: called now and then.
        cancelled: called now and then; if it returns True, `NoBase` is raised.

    Raises:
        NoBase: it was cancelled.
        BlobDamaged: contents are missing.
        OSError: the disk refused.
    """
    folders = table_of(files)
    n_done, n_files = 0, sum(one.rows.n_kept for one in folders.values())
    masked = _mask(top)
    with _Walk(top, create=True) as walk:
        for above, folder in sorted(folders.items(), key=lambda one: one[0]):
            for name, entry in folder.remarks.items():
                if entry.kind == "folder":
                    walk.folder(f"{above}/{name}" if above else name)
            if not folder.rows.n_kept:
                continue
            there = walk.folder(above)
            if source is not None:
                source.enter(above)
            for name, mode in folder.rows.modes():
                if n_done % _ASKED_EVERY == 0:
                    if n_done % _TOLD_EVERY == 0:
                        told(Progress(n_done, n_files))
                    if cancelled():
                        raise NoBase("The command was stopped.")
                n_done += 1
                try:
                    if mode is None:
                        os.symlink(_contents(content, folder.rows, name), name, dir_fd=there)
                        continue
                    handle = os.open(name, _NEW, mode, dir_fd=there)
                    try:
                        if source is None:
                            write_all(handle, _contents(content, folder.rows, name))
                        elif not source.copied(name, handle):
                            write_all(handle, _contents(content, folder.rows, name))
                            source.give_time(name, handle)
                        if mode & masked:
                            os.fchmod(handle, mode)
                    finally:
                        os.close(handle)
                except BlobDamaged as error:
                    path = f"{above}/{name}" if above else name
                    raise BlobDamaged(f"{path}: {error}") from error
    told(Progress(n_files, n_files))


def _contents(content: Callable[[ManifestEntry], bytes], rows: FileRows, name: str) -> bytes:
    row = rows.get(name)
    assert row is not None
    return content(row.entry)


def _mask(top: Path) -> int:
    """Return the permission bits that new files below a folder may lack, by the process's mask or an access list."""
    probe = top / new_temporary_name("mode")
    handle = os.open(probe, _NEW, 0o777)
    try:
        return 0o777 & ~os.fstat(handle).st_mode
    finally:
        os.close(handle)
        probe.unlink()


class _Walk:
    """Opens folders below a folder, one after another; those on the way to the last one stay open. A context that closes them.

    Args:
        top: the folder.
        create: whether missing folders are made.
    """

    def __init__(self, top: Path, *, create: bool = False) -> None:
        self._create = create
        self._open = [("", open_folder(top, ()))]

    def __enter__(self) -> _Walk:
        return self

    def __exit__(self, *_: object) -> None:
        while self._open:
            os.close(self._open.pop()[1])

    def folder(self, path: str) -> int:
        """Return the descriptor of a folder; it is open until the next call.

        Raises:
            OSError: it is missing, or no folder; no link is followed.
        """
        while (known := self._open[-1][0]) != path:
            if not known or path.startswith(f"{known}/"):
                name = path[len(known) + 1 if known else 0 :].partition("/")[0]
                inner = enter_folder(name, self._open[-1][1], create=self._create)
                self._open.append((f"{known}/{name}" if known else name, inner))
            else:
                os.close(self._open.pop()[1])
        return self._open[-1][1]


def _remove(name: str, folder: int) -> None:
    """Remove a file, or a folder if it is empty."""
    try:
        os.unlink(name, dir_fd=folder)
    except IsADirectoryError:
        with contextlib.suppress(OSError):
            os.rmdir(name, dir_fd=folder)


def _is_as_left(folder: Path, files: Manifest, left_ns: int) -> bool:
    """Return whether a folder has exactly these files, and none was touched since a time."""
    known = dict(files.items())
    n_left = sum(1 for entry in known.values() if entry.kept)
    for path, status in _below(str(folder)):
        entry = known.get(path)
        kind = "link" if stat.S_ISLNK(status.st_mode) else "file"
        if entry is None or entry.kind != kind or status.st_size != entry.size:
            return False
        if status.st_ctime_ns > left_ns or not (
            kind == "link" or stat.S_IMODE(status.st_mode) == entry.mode
        ):
            return False
        n_left -= 1
    return n_left == 0


def _below(top: str) -> Iterator[tuple[str, os.stat_result]]:
    waiting = [""]
    while waiting:
        above = waiting.pop()
        with os.scandir(f"{top}/{above}") as listing:
            for item in listing:
                path = above + item.name
                if item.is_dir(follow_symlinks=False):
                    waiting.append(f"{path}/")
                else:
                    yield path, item.stat(follow_symlinks=False)


def _changed_after(root: str, files: Iterable[str], since_ns: int) -> Iterator[str]:
    """Yield the files that changed in the work folder after a time, or are gone."""
    for path in files:
        try:
            status = os.lstat(f"{root}/{path}")
        except OSError:
            yield path
            continue
        if max(status.st_mtime_ns, status.st_ctime_ns) >= since_ns:
            yield path


def check_room(place: Path, files: Manifest) -> None:
    """Check that the files fit on the disk of a folder.

    Raises:
        NoBase: they do not.
        OSError: the disk cannot be asked.
    """
    rows = [folder.rows for folder in table_of(files).values()]
    needed = sum(one.kept_bytes + _PER_FILE * one.n_kept for one in rows)
    found = os.statvfs(place)
    if needed + _LEFT_FREE > (free := found.f_bavail * found.f_frsize):
        raise NoBase(
            f"A copy of the files needs {needed / 1e6:,.0f} MB on the disk of {place}, and {_LEFT_FREE / 1e6:,.0f} MB must stay free there. "
            f"Only {free / 1e6:,.0f} MB are free. Free some space."
        )


def refused(error: OSError | BlobDamaged) -> str:
    """Return the sentence for files that could not be written out."""
    if isinstance(error, BlobDamaged):
        return f"The files cannot be written out: {error}."
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "The disk is full, so the files cannot be written out. Free some space."
    return f"The files cannot be written out: {reason_of(error)}."


def _boot() -> str:
    with contextlib.suppress(OSError):
        return Path(_BOOT).read_text().strip()
    return ""

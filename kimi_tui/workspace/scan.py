"""One look at the work folder: what is there, what changed since the last look, and what was left out and why.

A folder whose time stamp did not change is not listed again, only its known files are asked for theirs; a file is read
only where its stamp changed or is too young to be trusted. Nothing follows a link, and no other program is run.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Collection, Iterable, Mapping

from kimi_tui.workspace.entries import REST, Entry, Limits, Manifest, Stamp, ancestors
from kimi_tui.workspace.findings import Folder, Pass, Scan, stamp_of
from kimi_tui.workspace.ignore import IgnoreFile, IgnoreStack
from kimi_tui.workspace.reading import Reader
from kimi_tui.workspace.rules import RULES_NAME, outer_rules, read_rules
from kimi_tui.workspace.store import BlobStore

# Deeper than any real tree; every level holds a descriptor and a frame of the interpreter.
_DEEPEST = 200
_GONE = "the work folder is gone"
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_IGNORED, _OVER, _UNREADABLE = Entry("ignored"), Entry("over"), Entry("unreadable")
_EMPTY = Entry("folder")


class Scanner:
    """Looks at one work folder again and again. Methods block: call them in one thread.

    Args:
        root: the work folder, absolute.
        store: where new contents go.
        limits: how much one snapshot may hold.
        own: folders of the program itself, never looked into.
        cancelled: asked between folders; a scan that is no longer wanted ends early and is not complete.
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
        self._reader = Reader(store, limits)
        self._own = tuple(own)
        self._own_ids: frozenset[tuple[int, int]] = frozenset()
        self._cancelled = cancelled
        self._outer = IgnoreStack()
        self._folders: dict[str, Folder] = {}
        self._manifest: dict[str, Entry] = {}
        self._adopted = False
        self._n_kept = 0

    @property
    def manifest(self) -> Manifest:
        """Every path of the last look; it changes with the next."""
        return self._manifest

    def scan(self, also: Collection[str] = ()) -> Scan:
        """Look now. New contents are in the store, and safe on disk, when it returns.

        Args:
            also: paths that are followed even where there are too many files: others may have taken their room meanwhile.

        Raises:
            OSError: the work folder itself cannot be opened, or the store's disk refused.
        """
        also = frozenset(also).union(*map(ancestors, also))
        now = Pass(time.time_ns(), self._limits.max_files - self._n_kept, also)
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
            return Scan(self._manifest, (), now.budget.stored_bytes, complete=False)
        self._take(now)
        return Scan(
            self._manifest,
            tuple(sorted(now.changed)),
            now.budget.stored_bytes,
            complete=True,
            full=now.budget.full or now.too_many,
        )

    def adopt(self, manifest: Mapping[str, Entry]) -> None:
        """Take a stored manifest as what was there before, so that the next scan names only what changed since."""
        self._folders = {}
        self._manifest = dict(manifest)
        self._adopted = True
        self._n_kept = sum(1 for entry in manifest.values() if entry.kept)

    def _take(self, now: Pass) -> None:
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

    def _folder(self, path: str, handle: int, above: IgnoreStack, now: Pass) -> bool:
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
                {name: entry for name, entry in known.entries.items() if entry is _IGNORED},
            )
        now.folders[path] = folder
        self._files(path, folder, known, handle, now)
        prefix = f"{path}/" if path else ""
        for name in folder.folders:
            if not self._inner(prefix + name, name, folder, handle, now):
                return False
        if not folder.files and not folder.folders and not folder.entries and path:
            self._note(path, _EMPTY, folder, now)
        self._compare(prefix, folder, known, now)
        return True

    def _inner(self, path: str, name: str, folder: Folder, handle: int, now: Pass) -> bool:
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
        self, path: str, handle: int, above: IgnoreStack, stamp: tuple[int, int, int], now: Pass
    ) -> Folder:
        rules_stamp = stamp_of(RULES_NAME, handle)
        rules: IgnoreFile | None = read_rules(RULES_NAME, handle) if rules_stamp else None
        inside = above.entered(path, rules)
        prefix = f"{path}/" if path else ""
        files: list[str] = []
        folders: list[str] = []
        left_out: dict[str, Entry] = {}
        with os.scandir(handle) as listing:
            for item in listing:
                is_folder = item.is_dir(follow_symlinks=False)
                if inside.ignores(prefix + item.name, is_folder=is_folder):
                    left_out[item.name] = _IGNORED
                elif is_folder:
                    folders.append(item.name)
                else:
                    files.append(item.name)
        return Folder(
            stamp,
            now.trusts(stamp[0], stamp[1]),
            rules_stamp,
            above,
            inside,
            tuple(sorted(files)),
            tuple(sorted(folders)),
            left_out,
        )

    def _note(self, path: str, entry: Entry, folder: Folder, now: Pass) -> None:
        """Say something of a folder itself; it is kept with the entries of the folder above."""
        above, _, name = path.rpartition("/")
        now.folders[above].entries[name] = entry

    def _leave_out(self, name: str, folder: Folder, now: Pass) -> None:
        folder.entries[name] = _OVER
        # Asked again next time: there may be room then.
        folder.trusted = False
        now.too_many = f"There are more than {self._limits.max_files:,} files."

    def _compare(self, prefix: str, folder: Folder, known: Folder | None, now: Pass) -> None:
        """Find what differs from the look before."""
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

    def _forget(self, path: str, now: Pass) -> None:
        """Everything below a folder that is gone, or not looked into any more."""
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
        self, path: str, folder: Folder, known: Folder | None, handle: int, now: Pass
    ) -> None:
        # The one loop that runs fifty thousand times a scan: no calls but the system's where nothing changed.
        prefix = f"{path}/" if path else ""
        stamps, entries = folder.stamps, folder.entries
        old_stamps = known.stamps if known else {}
        old_entries = known.entries if known else {}
        ask = os.stat
        for name in folder.files:
            try:
                status = ask(name, dir_fd=handle, follow_symlinks=False)
            except OSError:
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

    def _file(
        self, path: str, name: str, stamp: Stamp, folder: Folder, handle: int, now: Pass
    ) -> None:
        before = self._manifest.get(path)
        is_new = before is None or not before.kept
        if is_new and now.room <= 0 and path not in now.also and self._reader.may_keep(stamp):
            self._leave_out(REST, folder, now)
            return
        if is_new and (now.budget.full or self._cancelled()):
            # The budget is used up, or nobody waits any more: nothing new is read only to be left out.
            entry = Entry("over", size=stamp.size)
        else:
            entry = self._reader.entry(name, handle, stamp, now.budget)
        now.room -= int(is_new and entry.kept)
        folder.entries[name] = entry
        if (entry.kept or entry.kind == "over") and now.trusts(stamp.mtime_ns, stamp.ctime_ns):
            folder.stamps[name] = stamp


def _ids(folders: Iterable[str]) -> Iterable[tuple[int, int]]:
    for folder in folders:
        try:
            status = os.stat(folder)
        except OSError:
            continue
        yield status.st_dev, status.st_ino

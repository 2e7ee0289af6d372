"""`QuietFolders`: which folders of a large tree hold the same names as when they were last looked at, as the kernel tells.

Asking every folder for its times costs some microseconds each, which is more than all else around a command where there are
thousands. A watched folder that nothing was told of needs no look. A watch goes with the folder, not with its path, so a path
leads to the watched folder only as long as all folders above it are watched too: these tell when one of them is moved. Where
the kernel does not tell (other systems, network file systems, too few watches) no folder is quiet.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable

from kimi_tui.tools.sandbox.mount_watch import MountWatch
from kimi_tui.workspace.protected_names import folded
from kimi_tui.workspace.tree_watch import AS_FOLDER, MOVED, NAMES, Told, TreeWatch

_FROM_FOLDERS = 100
"""Each folder saves 8 µs a command; with fewer that is not worth an instance of inotify, of which a user has few."""
_PART_OF_LIMIT = 8
"""This part of the folders that a user may watch is left to the sandbox; snapshots of files and other programs need more."""
_MOST_MOVED = 20
"""After more moved and deleted folders all are looked at again, because what is below each is found among all."""
_MOST_AGE_S = 60.0
"""Each folder is looked at again after this time, whatever was told."""


class QuietFolders:
    """The quiet folders of one tree. Used by one thread at a time.

    Attributes:
        folders: their absolute paths; only read from outside.
    """

    def __init__(self) -> None:
        self._top = ""
        self._watch: TreeWatch | None = None
        self._mounts = MountWatch()
        self._is_tried = False
        self.folders: set[str] = set()
        self._restless: set[str] = set()
        """The other folders that were watched. With each folder of both, the one above it is in one of them, but for the top."""
        self._gone: list[str] = []
        self._looked_at = 0.0

    def __bool__(self) -> bool:
        return bool(self.folders)

    def begin(self, top: str, n_folders: int, inner: Callable[[str], Iterable[str]]) -> None:
        """Hear what was told since the last call, before the tree is looked at.

        Args:
            top: the path of the tree; `clear` is called before another one begins.
            n_folders: the number of folders in the tree, as far as it is known.
            inner: returns the paths of the folders in a folder, as the last look found them.
        """
        self._top = top
        if not self._is_tried and n_folders >= _FROM_FOLDERS:
            self._is_tried = True
            self._open()
        if self._watch is None:
            return
        told = Told()
        self._watch.tell(told)
        now = time.monotonic()
        if told.is_lost or not self._watch.is_open or self._mounts.changed():
            self.clear()
            self._looked_at = now
            return
        if now - self._looked_at > _MOST_AGE_S:
            self._restless |= self.folders
            self.folders.clear()
            self._looked_at = now
        for folder in told.names:
            self.unsettle(folder)
        moved = self._gone
        for folder, names in told.names.items():
            if some := [name for name, how in names.items() if how & MOVED]:
                moved += self._known(folder, some, inner)
            if some := [name for name, how in names.items() if how & AS_FOLDER]:
                for path in self._known(folder, some, inner):
                    self.unsettle(path)
        self._gone = []
        if len(moved) > _MOST_MOVED:
            self.clear()
        else:
            for path in moved:
                self._forget_all(path, self._watch)

    def _open(self) -> None:
        with contextlib.suppress(OSError):
            self._watch = TreeWatch(part_of_limit=_PART_OF_LIMIT, kinds=NAMES)

    def _has(self, path: str) -> bool:
        return path in self.folders or path in self._restless

    def _known(
        self, folder: str, names: list[str], inner: Callable[[str], Iterable[str]]
    ) -> list[str]:
        """Return the folders that were watched below these names of a folder."""
        found = [path for name in names if self._has(path := f"{folder}/{name}")]
        if len(found) < len(names) and self._has(folder):
            # The kernel tells the name by which a program asked for the folder, in another spelling where case is ignored.
            spelled = {folded(name) for name in names}
            found += [
                path
                for path in inner(folder)
                if self._has(path) and folded(path.rpartition("/")[2]) in spelled
            ]
        return list(dict.fromkeys(found))

    def _forget_all(self, path: str, watch: TreeWatch) -> None:
        """Forget a folder that was created, moved or deleted, and everything below it."""
        for one in (path, *watch.below(path)):
            self.folders.discard(one)
            self._restless.discard(one)
            watch.forget(one)

    def watch(self, path: str) -> None:
        """Watch a folder from now on, unless it is watched; call it before the look after which the folder may be quiet, and for
        the folders above it first.
        """
        watch = self._watch
        if watch is None or not watch.is_open or self._has(path):
            return
        if path != self._top and not self._has(path.rpartition("/")[0]):
            return
        # A folder that cannot be read cannot be watched.
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        with contextlib.suppress(OSError):
            folder = os.open(path, flags)
            try:
                if watch.add(path, folder, os.fstat(folder).st_dev):
                    self._restless.add(path)
            finally:
                os.close(folder)

    def add(self, path: str) -> None:
        """Take a watched folder as quiet: a look that began after `watch` found it unchanged."""
        if path in self._restless:
            self._restless.discard(path)
            self.folders.add(path)

    def unsettle(self, path: str) -> None:
        """Take a folder as not quiet, as it was found changed; it stays watched."""
        if path in self.folders:
            self.folders.discard(path)
            self._restless.add(path)

    def forget(self, path: str) -> None:
        """Stop watching a folder that cannot be listed any more, and all below it, with the next `begin`."""
        if self._has(path):
            self.unsettle(path)
            self._gone.append(path)

    def clear(self) -> None:
        """Stop watching all folders."""
        self.folders.clear()
        self._restless.clear()
        self._gone.clear()
        if self._watch is not None and len(self._watch):
            # The kernel would tell the end of each single watch, and lose events of more than 16,384.
            self._watch.close()
            self._watch = None
            self._open()

"""`QuietFolders`: which folders of a large tree hold the same names as when they were last looked at, as the kernel tells.

Asking every folder for its times costs some microseconds each, which is more than all else around a command where there are
thousands. A watched folder that nothing was told of needs no look. Where the kernel does not tell (other systems, network file
systems, too few watches) no folder is quiet. A mount is not told: each folder is looked at again after `_MOST_AGE_S`.
"""

from __future__ import annotations

import contextlib
import os
import time

from kimi_tui.workspace.tree_watch import AS_FOLDER, NAMES, Told, TreeWatch

_FROM_FOLDERS = 500
"""With fewer folders the watches cost more than they save."""
_PART_OF_LIMIT = 8
"""This part of the folders that a user may watch is left to the sandbox; snapshots of files and other programs need more."""
_MOST_MOVED = 20
"""After more moved and deleted folders all are looked at again, because what is below each is found among all."""
_MOST_AGE_S = 60.0


class QuietFolders:
    """The quiet folders of one tree. Used by one thread at a time.

    Attributes:
        folders: their absolute paths; only read from outside.
    """

    def __init__(self) -> None:
        self._watch: TreeWatch | None = None
        self._is_tried = False
        self.folders: set[str] = set()
        self._looked_at = 0.0

    def __bool__(self) -> bool:
        return bool(self.folders)

    def begin(self, n_folders: int) -> None:
        """Hear what was told since the last call, before the tree is looked at.

        Args:
            n_folders: the number of folders in the tree, as far as it is known.
        """
        if not self._is_tried and n_folders >= _FROM_FOLDERS:
            self._is_tried = True
            with contextlib.suppress(OSError):
                self._watch = TreeWatch(part_of_limit=_PART_OF_LIMIT, kinds=NAMES)
        if self._watch is None:
            return
        told = Told()
        self._watch.tell(told)
        now = time.monotonic()
        if told.is_lost or not self._watch.is_open or now - self._looked_at > _MOST_AGE_S:
            self.folders.clear()
            self._looked_at = now
            return
        self.folders.difference_update(told.names)
        moved: list[str] = []
        for folder, names in told.names.items():
            paths = (os.path.join(folder, name) for name, how in names.items() if how & AS_FOLDER)
            moved += [path for path in paths if path in self.folders or self._watch.has(path)]
        if len(moved) > _MOST_MOVED:
            self.clear()
        else:
            for path in moved:
                self._forget_all(path, self._watch)

    def _forget_all(self, path: str, watch: TreeWatch) -> None:
        """Forget a folder that was created, moved or deleted, and everything below it."""
        self.folders.discard(path)
        for one in watch.below(path):
            self.forget(one)

    def watch(self, path: str) -> None:
        """Watch a folder from now on, unless it is watched; call it before the look after which the folder may be quiet."""
        watch = self._watch
        if watch is None or not watch.is_open or watch.has(path):
            return
        flags = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        with contextlib.suppress(OSError):
            folder = os.open(path, flags)
            try:
                watch.add(path, folder, os.fstat(folder).st_dev)
            finally:
                os.close(folder)

    def add(self, path: str) -> None:
        """Take a watched folder as quiet: a look that began after `watch` found it unchanged."""
        if self._watch is not None and self._watch.has(path):
            self.folders.add(path)

    def forget(self, path: str) -> None:
        """Stop watching a folder, which is another one now or gone."""
        self.folders.discard(path)
        if self._watch is not None:
            self._watch.forget(path)

    def clear(self) -> None:
        """Stop watching all folders."""
        self.folders.clear()
        if self._watch is not None:
            for path in self._watch.below(""):
                self._watch.forget(path)

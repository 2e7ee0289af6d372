"""`Remembered`: keeps results about folders outside the work folder from one command to the next, as long as these are unchanged.

The view of the home folder, the caches and the known places of secrets are the same for nearly every command, and finding them
takes hundreds of system calls. Such a result depends on names that it looked up and on folders and files that it read, all of
which are noted (`filesystem.note_path`). A name appears, vanishes or becomes something else only with a new change time of its
folder, which no command can set. So a result holds while inode and times of those folders and files are the same. A folder that
changed so recently that an equal time proves nothing (`/tmp` always has) cannot tell of its names: these are looked at themselves,
but with many that are missing there, or if the folder changed while the result was computed, the result is not kept. No result
holds once something was mounted or unmounted. A change that nothing shows is seen after `_MOST_AGE_S` at the latest.
"""

from __future__ import annotations

import os
import stat
import sys
import threading
import time
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from kimi_tui.filesystem import SETTLED_NS, links_to, noted_paths
from kimi_tui.tools.sandbox.mount_watch import MountWatch

T = TypeVar("T")

_MOST_AGE_S = 60.0
_MOST_MISSING = 24
"""The largest number of missing names that are looked at themselves: looking at hundreds takes as long as computing most results."""
_MOST_KEPT = 256
"""The largest number of results; with one more all are computed again."""
_CLOCK_OF_CHANGES = 5
"""Linux's `CLOCK_REALTIME_COARSE`, which Python does not name."""
_TICK_NS = (
    int(time.clock_getres(_CLOCK_OF_CHANGES) * 1e9) if sys.platform == "linux" else 10_000_000
)
"""Nanoseconds between the times that the kernel gives to changes, which are those of its last tick."""
_COARSE_NS = 10_000_000
"""Nanoseconds. File systems whose clock has larger steps (FAT, exFAT, ext3) give no time that is not a multiple of this."""

_Stamp = tuple[int, ...]


class _Result(NamedTuple):
    """A result: the arguments that it was computed for, the stamps of what it depends on, and when it was computed (monotonic)."""

    key: Hashable
    value: Any
    stamps: dict[str, _Stamp | None]
    at: float


@dataclass(frozen=True, slots=True)
class OutsideLook:
    """One look at the file system, for one policy: each folder and file is asked for its stamp once, and each result found once.

    Attributes:
        results: the results that are kept, by their names.
        stamps: the stamps seen in this look; None for what does not exist. A path with a slash at its end is a folder, or a file
            that was read, and one without is a name.
        found: the results that were found in this look, by their names, each with its key.
    """

    results: dict[str, _Result]
    stamps: dict[str, _Stamp | None]
    found: dict[str, tuple[Hashable, Any]]

    def at(self, name: str, key: Hashable, compute: Callable[[], T]) -> T:
        """Return the kept result with a name if it was computed for the same key and nothing changed; else compute and keep it. In one
        look both are done once.

        Args:
            name: the name; of each, one result is kept.
            key: everything that the result depends on, except the file system.
            compute: computes the result, which nobody may change afterwards; it notes the paths that it looks at.
        """
        seen = self.found.get(name)
        if seen is not None and seen[0] == key:
            value: T = seen[1]
            return value
        found = self.results.get(name)
        if found is not None and found.key == key and self._holds(found):
            value = found.value
        else:
            value = self._computed(name, key, compute)
        self.found[name] = key, value
        return value

    def _computed(self, name: str, key: Hashable, compute: Callable[[], T]) -> T:
        self.results.pop(name, None)
        began, began_ns = time.monotonic(), time.time_ns()
        with noted_paths() as noted:
            value = compute()
        stamps = _stamps_of(noted.paths, began_ns) if noted.is_whole else None
        if stamps is not None:
            if len(self.results) >= _MOST_KEPT:
                self.results.clear()
            self.results[name] = _Result(key, value, stamps, began)
        return value

    def _holds(self, result: _Result) -> bool:
        if time.monotonic() - result.at > _MOST_AGE_S:
            return False
        for path, stamp in result.stamps.items():
            if path not in self.stamps:
                self.stamps[path] = _stamp_of(path)
            if self.stamps[path] != stamp:
                return False
        return True


class Remembered:
    """The kept results of one sandbox. Used from threads."""

    def __init__(self) -> None:
        self._results: dict[str, _Result] = {}
        self._mounts = MountWatch()
        self._lock = threading.Lock()

    def look(self) -> OutsideLook:
        """Begin a look at the file system; a result that holds is checked once in it."""
        with self._lock:
            if self._mounts.changed():
                # A look that has begun already goes on with its own, and what it finds is not kept.
                self._results = {}
        return OutsideLook(self._results, {}, {})


def _stamp_of(path: str) -> _Stamp | None:
    """Return what tells that a name is still the same kind of thing, a link with the same target; or, for a path with a slash at its
    end, that what the folder or file holds is unchanged. The first number is the time of the last change, in nanoseconds. None if
    it is missing. Of a folder or file the third is the time that nobody can set.
    """
    try:
        if not path.endswith("/"):
            found = os.lstat(path)
            is_link = stat.S_ISLNK(found.st_mode)
            same = (found.st_ctime_ns, found.st_dev, found.st_ino) if is_link else (0, 0, 0)
            return *same, stat.S_IFMT(found.st_mode)
        found = os.stat(path[:-1] or "/")
    except OSError:
        return None
    times = found.st_mtime_ns, found.st_ctime_ns
    return max(times), *times, found.st_dev, found.st_ino, found.st_size


def _stamps_of(paths: Iterable[str], began_ns: int) -> dict[str, _Stamp | None] | None:
    """Return the stamps that tell whether anything changed about these paths, None for one that is missing; None if they cannot
    tell: a folder or file itself has changed so recently that its stamp proves nothing; names may have changed between the look at
    them and this one; or many are missing in folders that have just changed.

    Args:
        paths: the paths.
        began_ns: the time before the first look at them, in nanoseconds. A change since has a later time, and so is not settled
            either.
    """
    settled_ns = began_ns - SETTLED_NS
    found: dict[str, _Stamp | None] = {}
    folders: dict[str, _Stamp | None] = {}
    n_missing = 0
    waiting = [*paths]
    while waiting:
        path = waiting.pop()
        folder = path[: path.rfind("/") + 1]
        while True:
            if folder not in folders:
                folders[folder] = _stamp_of(folder)
                if folders[folder] is None and os.path.lexists(folder[:-1]):
                    # No folder above tells when the target of this link appears.
                    links, end = links_to(folder[:-1])
                    waiting += [*links, end]
            told = folders[folder]
            if told is not None or folder == "/":
                break
            # The folder above tells that this one is missing.
            folder = folder[: folder.rfind("/", 0, -1) + 1]
        by = folder
        if told is not None and told[0] >= settled_ns and path != folder:
            changed_ns = told[2]
            if changed_ns >= began_ns - _step_ns(changed_ns):
                return None
            by, told = path, _stamp_of(path)
            n_missing += told is None
            if n_missing > _MOST_MISSING:
                return None
        elif told is None:
            return None
        if told is not None and told[0] >= settled_ns:
            return None
        found[by] = told
    return found


def _step_ns(changed_ns: int) -> int:
    """Return the nanoseconds by which a change may be later than its time says, for the file system that gave this time."""
    return 2 * _TICK_NS if changed_ns % _COARSE_NS else SETTLED_NS

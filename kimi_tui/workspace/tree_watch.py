"""`TreeWatch`: the kernel tells what changed in the folders of a tree since it was asked last (inotify, Linux only).

There is no thread: events wait in the kernel's queue until `told` reads it dry. An event is queued by the system call that
makes the change, so on a local file system everything that a process did before its end is told after it. Not told are
changes through a shared mapping while it exists and writes through a hard link in a folder without a watch; `held_files`
finds files that processes still hold, and the scanner asks for the status of files with several links.

If the queue overflowed, nothing is known until everything was scanned again. Where events are not complete (network and FUSE
file systems, too few watches), no folder is watched at all, and `trouble` says why.
"""

from __future__ import annotations

import contextlib
import os
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, Protocol

from kimi_tui.filesystem import note_unread, unread_is_empty
from kimi_tui.workspace import inotify
from kimi_tui.workspace.inotify import Inotify, file_system_kind, most_watches

_KINDS: Final = (
    inotify.MODIFY
    | inotify.ATTRIB
    | inotify.CLOSE_WRITE
    | inotify.MOVED_FROM
    | inotify.MOVED_TO
    | inotify.CREATE
    | inotify.DELETE
)
NAMES: Final = (
    inotify.ATTRIB | inotify.MOVED_FROM | inotify.MOVED_TO | inotify.CREATE | inotify.DELETE
)
"""The events of names that appear in a folder or vanish, or may be readable or not from now on."""
_READ_BYTES: Final = 8192
_SHORT_BYTES: Final = 2048
_PART_OF_LIMIT: Final = 3
_LOCAL: Final = frozenset(
    {
        0xEF53,  # ext2, ext3, ext4
        0x58465342,  # XFS
        0x9123683E,  # Btrfs
        0x01021994,  # tmpfs
        0x858458F6,  # ramfs
        0xF2F52010,  # F2FS
        0x2FC12FC1,  # ZFS
        0xCA451A4E,  # bcachefs
        0x794C7630,  # overlayfs
        0x3153464A,  # JFS
        0x4D44,  # FAT
        0x2011BAB0,  # exFAT
        0x7366746E,  # ntfs3
    }
)
"""File systems that only this machine changes, so that its kernel sees every change."""

PLAIN: Final = 0
AS_FOLDER: Final = 1
"""The name is or was a folder that was created, moved or deleted, or has other rights: everything below it has to be scanned again."""
CONTENT: Final = 2
"""The contents may have changed without a change of the file's times."""
MOVED: Final = 4
"""The folder was created, moved or deleted, so that another one may be at its path."""


@dataclass(slots=True)
class Told:
    """Names that have to be looked at: for each folder its names, each with `PLAIN` or a union of the others.

    `is_lost` says that events were lost, so that anything may have changed.
    """

    names: dict[str, dict[str, int]] = field(default_factory=dict[str, dict[str, int]])
    is_lost: bool = False

    def add(self, folder: str, name: str, how: int = PLAIN) -> None:
        """Add a name, unless it is there."""
        names = self.names.get(folder)
        if names is None:
            names = self.names[folder] = {}
        names[name] = names.get(name, PLAIN) | how

    def has(self, path: str) -> bool:
        """Return whether a path relative to the top of the tree was added, or a folder above it."""
        while path:
            folder, _, name = path.rpartition("/")
            if name in self.names.get(folder, ()):
                return True
            path = folder
        return False

    def merge(self, other: Told) -> None:
        """Add all that another one has."""
        self.is_lost |= other.is_lost
        for folder, names in other.names.items():
            for name, how in names.items():
                self.add(folder, name, how)

    def add_path(self, path: str, how: int = PLAIN) -> None:
        """Add a path relative to the top of the tree."""
        folder, _, name = path.rpartition("/")
        self.add(folder, name, how)


class TreeWatch:
    """Watches folders of one tree; belongs in one thread.

    Args:
        most: the largest number of folders, if it is less than the part of the limit.
        part_of_limit: the divisor of the user's limit, which an editor needs too, that gives the largest number of folders.
        kinds: the events to hear of, joined by `|`.

    Attributes:
        trouble: why the folders cannot be watched, as a part of a sentence; empty if they are.

    Raises:
        OSError: the system has no inotify, or the user has too many instances.
    """

    def __init__(
        self,
        most: int | None = None,
        *,
        part_of_limit: int = _PART_OF_LIMIT,
        kinds: int = _KINDS,
    ) -> None:
        self._inotify = Inotify()
        self._kinds = kinds
        limit = most_watches() // part_of_limit
        self._most = limit if most is None else min(most, limit)
        self._numbers: dict[str, int] = {}
        # One folder may be found by two paths: by both names of a bind mount, or by the old and the new one while it moves.
        self._paths: dict[int, tuple[str, ...]] = {}
        self._is_local: dict[int, bool] = {}
        self.trouble = ""

    def __len__(self) -> int:
        return len(self._numbers)

    @property
    def is_open(self) -> bool:
        """Whether folders are watched."""
        return self._inotify.descriptor >= 0

    def add(self, path: str, folder: int, device: int) -> bool:
        """Watch a folder; return whether it is watched now. If it cannot be, no folder is watched any more.

        Args:
            path: its path in the tree; empty for the top.
            folder: its descriptor.
            device: the number of its file system's device.
        """
        if not self.is_open:
            return False
        if not self._is_complete_on(device, folder):
            self._give_up("the file system does not report all changes")
        elif path not in self._numbers and len(self._numbers) >= self._most:
            self._give_up(f"more than {self._most:,} folders would have to be watched")
        elif (number := self._inotify.add(folder, self._kinds)) < 0:
            self._give_up("the system does not allow more watched folders")
        else:
            self._note(path, number)
        return self.is_open

    def has(self, path: str) -> bool:
        """Return whether a folder is watched."""
        return path in self._numbers

    def below(self, path: str) -> list[str]:
        """Return the watched folders at a path and below it; all of them for an empty path."""
        if not path:
            return [*self._numbers]
        return [one for one in self._numbers if one == path or one.startswith(f"{path}/")]

    def _is_complete_on(self, device: int, folder: int) -> bool:
        is_local = self._is_local.get(device)
        if is_local is None:
            is_local = self._is_local[device] = file_system_kind(folder) in _LOCAL
        return is_local

    def _note(self, path: str, number: int) -> None:
        if self._numbers.get(path) == number:
            return
        self.forget(path)
        self._numbers[path] = number
        self._paths[number] = (*self._paths.get(number, ()), path)

    def forget(self, path: str) -> None:
        """Stop watching a folder, which is gone or not scanned any more."""
        number = self._numbers.pop(path, None)
        if number is None:
            return
        others = tuple(one for one in self._paths.pop(number, ()) if one != path)
        if others:
            self._paths[number] = others
        else:
            self._inotify.remove(number)

    def tell(self, told: Told) -> None:
        """Read the queue dry, and add the names that changed since the last call."""
        while events := list(self._inotify.read()):
            for number, kinds, name in events:
                if kinds & (inotify.OVERFLOW | inotify.UNMOUNT):
                    told.is_lost = True
                elif kinds & inotify.IGNORED:
                    self._drop(number, told)
                elif name:
                    how = PLAIN
                    if kinds & inotify.IS_FOLDER:
                        how = AS_FOLDER if kinds & inotify.ATTRIB else AS_FOLDER | MOVED
                    for path in self._paths.get(number, ()):
                        told.add(path, os.fsdecode(name), how)

    def _drop(self, number: int, told: Told) -> None:
        """Note that the kernel has ended a watch: its folder was deleted."""
        for path in self._paths.pop(number, ()):
            self._numbers.pop(path, None)
            if path:
                told.add_path(path, AS_FOLDER | MOVED)
            else:
                told.is_lost = True

    def _give_up(self, why: str) -> None:
        self.trouble = why
        self.close()

    def close(self) -> None:
        """Stop watching."""
        self._inotify.close()
        self._numbers.clear()
        self._paths.clear()


@dataclass(slots=True)
class HeldFiles:
    """Files below a folder that this process's descendants hold: `mapped` are those with a shared writable mapping, `opened`
    the others. `is_unknown` says that one holds a file under a name that is gone, so that any other name may be its.
    """

    mapped: set[str] = field(default_factory=set[str])
    opened: set[str] = field(default_factory=set[str])
    is_unknown: bool = False


_GONE: Final = " (deleted)"


def held_files(root: str) -> HeldFiles:
    """Return the files below a folder that descendants of this process can change without an event, relative to it.

    Args:
        root: the absolute path of the folder, without links.
    """
    held = HeldFiles()
    at_rest: dict[int, bytes] = {}
    for process in _descendants(os.getpid()):
        own = _without_files.get(process)
        if own is not None and own.poll() is None:
            continue
        # The stamp is taken before the look: what a process does meanwhile changes it.
        stamp = _stamp_at_rest(process)
        if stamp and _at_rest.get(process) == stamp:
            at_rest[process] = stamp
            continue
        opened, mapped = [*_opened(process)], [*_mapped(process)]
        for path, descriptor in opened:
            _add(path, root, held.opened, held, descriptor)
        for path in mapped:
            _add(path, root, held.mapped, held, "")
        if stamp and not opened and not any(map(_is_file, mapped)):
            at_rest[process] = stamp
    _at_rest.clear()
    _at_rest.update(at_rest)
    return held


class ProcessOfOurs(Protocol):
    """A descendant of this program that executes nothing but the program's own code."""

    @property
    def pid(self) -> int:
        """Its process id, which no other process gets while it runs."""
        ...

    def poll(self) -> int | None:
        """Return None while it runs."""
        ...


_without_files: weakref.WeakValueDictionary[int, ProcessOfOurs] = weakref.WeakValueDictionary()


def holds_no_files(process: ProcessOfOurs) -> None:
    """Note that a process never writes to a file of the user: `held_files` looks only at what it starts.

    Args:
        process: the process; it counts as long as the caller keeps it and it runs.
    """
    _without_files[process.pid] = process


_at_rest: dict[int, bytes] = {}
"""The processes that held no files when they were looked at last, each with its stamp: a look takes a tenth of a millisecond, and most of
these processes wait for the next command.
"""


def _stamp_at_rest(process: int) -> bytes:
    """Return a stamp that stays the same as long as a process executes nothing, and so opens and maps nothing. It is empty if the
    process runs or has several threads, or if the kernel does not count the nanoseconds.
    """
    try:
        told = _told_in(f"/proc/{process}/stat").rpartition(b")")[2].split()
        ran = _told_in(f"/proc/{process}/schedstat").split()[0]
    except (OSError, IndexError):
        return b""
    # These are the fields 3, 20 and 22 of the manual, which counts from the process and its name.
    if len(told) < 20 or told[0] != b"S" or told[17] != b"1" or ran == b"0":
        return b""
    return told[19] + b" " + ran


def _told_in(path: str) -> bytes:
    """Return the content of a file in `/proc`. Dozens are read, and a file object takes twice as many system calls.

    Raises:
        OSError: the process has ended.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        found = data = os.read(descriptor, _READ_BYTES)
        # The kernel ends a read before a line that its page has no room for, which only the map of a process has.
        while len(data) > _SHORT_BYTES or (data and path.endswith("/maps")):
            data = os.read(descriptor, _READ_BYTES)
            found += data
        return found
    finally:
        os.close(descriptor)


_NO_FILES = ("/dev/null", "/dev/pts/", "/dev/ptmx", "/dev/tty", "/memfd:")


def _is_file(path: str) -> bool:
    """Return whether an open file of a process has a name, so that somebody may move it into the folder."""
    return path.startswith("/") and not path.startswith(_NO_FILES)


def _add(path: str, root: str, found: set[str], held: HeldFiles, descriptor: str) -> None:
    if not path.startswith(f"{root}/"):
        return
    if not path.endswith(_GONE):
        found.add(path[len(root) + 1 :])
        return
    with contextlib.suppress(OSError):
        held.is_unknown |= not descriptor or os.stat(descriptor).st_nlink > 0


def _descendants(process: int) -> Iterator[int]:
    waiting = [process]
    while waiting:
        tasks = f"/proc/{waiting.pop()}/task"
        try:
            names = os.listdir(tasks)
        except OSError as error:
            note_unread(error)
            continue
        for task in names:
            try:
                told = _told_in(f"{tasks}/{task}/children")
            except OSError as error:
                note_unread(error)
                continue
            if told:
                children = [int(one) for one in told.split()]
                waiting += children
                yield from children


def _opened(process: int) -> Iterator[tuple[str, str]]:
    """Yield the files that a process can write to, with the names of their descriptors."""
    with unread_is_empty():
        for name in os.listdir(f"/proc/{process}/fd"):
            descriptor = f"/proc/{process}/fd/{name}"
            with contextlib.suppress(OSError):
                path = os.readlink(descriptor)
                # Most descriptors are pipes and sockets. The mode of the link is that of the descriptor.
                if _is_file(path) and os.lstat(descriptor).st_mode & 0o200:
                    yield path, descriptor


_SHARED: Final = tuple(b"%cw%cs " % (r, x) for r in b"r-" for x in b"x-")
"""The rights of a shared writable mapping, as the kernel writes them."""


def _mapped(process: int) -> Iterator[str]:
    with unread_is_empty():
        told = _told_in(f"/proc/{process}/maps")
        # Almost no process has one, and the file has hundreds of lines.
        for line in told.split(b"\n") if any(rights in told for rights in _SHARED) else ():
            fields = line.split(None, 5)
            if len(fields) == 6 and fields[1] + b" " in _SHARED:
                yield os.fsdecode(fields[5])

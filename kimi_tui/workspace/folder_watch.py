"""`FolderWatch`: the kernel reports which names in a set of folders are created, renamed or written (inotify, Linux only).

One inotify instance with a thread of its own, which waits for events and hands them over in batches. A watch belongs to the
folder that was opened, not to its path: a folder that is renamed meanwhile is still reported under the path with which it was
added, so a receiver of events must look at the file system again. Not reported are events in folders below, writes through
another hard link or a shared mapping, and changes by other machines on a network file system.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from kimi_tui.workspace import inotify
from kimi_tui.workspace.inotify import Inotify


class NameEvent(NamedTuple):
    """An event of a name in a watched folder.

    Attributes:
        folder: the path with which the folder was added; empty if events were lost, so that anything may have happened.
        name: the name in the folder.
        is_folder: whether the name is a folder.
    """

    folder: str
    name: str
    is_folder: bool


LOST = NameEvent("", "", is_folder=False)
"""Stands for events that the kernel dropped because too many were waiting."""


class FolderWatch:
    """Watches folders. `add` and `remove` may be called from any thread.

    Args:
        on_events: called in the watch's own thread with each batch of events.
        most: the largest number of folders to watch; it is also limited to half of the user's limit (`max_user_watches`),
            which other programs, such as an editor, share.

    Raises:
        OSError: the system has no inotify, or the user has too many instances.
    """

    def __init__(self, on_events: Callable[[Sequence[NameEvent]], None], *, most: int) -> None:
        self._inotify = Inotify()
        self._most = min(most, inotify.most_watches() // 2)
        self._on_events = on_events
        self._lock = threading.Lock()
        self._paths: dict[int, str] = {}
        self._numbers: dict[str, int] = {}
        self._wake_read, self._wake_write = os.pipe()
        self._thread = threading.Thread(target=self._listen, name="folder-watch", daemon=True)
        self._thread.start()

    @property
    def paths(self) -> frozenset[str]:
        """The watched folders, by the paths with which they were added."""
        with self._lock:
            return frozenset(self._numbers)

    def add(self, path: str, folder: int, *, writes: bool = False) -> bool:
        """Watch a folder; return False if there is no room for one more, or if the kernel refuses.

        Args:
            path: the path under which its events are reported.
            folder: its descriptor (`O_PATH` suffices), which may be closed afterwards.
            writes: whether writes to its files are reported, besides new names.
        """
        kinds = inotify.CREATE | inotify.MOVED_TO | inotify.EXCLUDE_UNLINKED
        kinds |= (inotify.MODIFY | inotify.CLOSE_WRITE) if writes else 0
        with self._lock:
            is_known = path in self._numbers
            is_open = self._inotify.descriptor >= 0
            if not is_open or (not is_known and len(self._numbers) >= self._most):
                return False
            number = self._inotify.add(folder, kinds)
            if number < 0:
                return False
            if self._numbers.get(path) != number:
                # The path leads to another folder by now, or the folder was added with another path, whose watch number it has.
                self._forget(path)
                self._numbers.pop(self._paths.get(number, ""), None)
                self._paths[number] = path
                self._numbers[path] = number
            return True

    def remove(self, path: str) -> None:
        """Stop watching a folder."""
        with self._lock:
            self._forget(path)

    def close(self) -> None:
        """Stop watching all folders. It may wait for the events that are being handled."""
        with self._lock:
            self._most = 0
            with contextlib.suppress(OSError):
                os.write(self._wake_write, b"x")
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _forget(self, path: str) -> None:
        number = self._numbers.pop(path, None)
        if number is not None:
            self._paths.pop(number, None)
            self._inotify.remove(number)

    def _listen(self) -> None:
        waiter = select.poll()
        waiter.register(self._inotify.descriptor, select.POLLIN)
        waiter.register(self._wake_read, select.POLLIN)
        while True:
            if any(ready == self._wake_read for ready, _ in waiter.poll()):
                break
            if events := self._parsed(self._inotify.read()):
                self._on_events(events)
        with self._lock:
            self._inotify.close()
            for descriptor in (self._wake_read, self._wake_write):
                os.close(descriptor)

    def _parsed(self, found: Iterable[tuple[int, int, bytes]]) -> list[NameEvent]:
        events: list[NameEvent] = []
        with self._lock:
            for number, kinds, name in found:
                if kinds & inotify.OVERFLOW:
                    events.append(LOST)
                elif kinds & inotify.IGNORED:
                    self._numbers.pop(self._paths.pop(number, ""), None)
                elif (folder := self._paths.get(number)) is not None:
                    event = NameEvent(folder, os.fsdecode(name), bool(kinds & inotify.IS_FOLDER))
                    # A file written in many pieces is reported once per batch.
                    if not events or events[-1] != event:
                        events.append(event)
        return events

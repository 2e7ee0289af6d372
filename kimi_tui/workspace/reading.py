"""Reads what a scan found changed, and keeps it in the store as far as the limits of one snapshot allow."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from typing import Literal

from kimi_tui.workspace.entries import Entry, Limits, Stamp, permission_bits
from kimi_tui.workspace.store import BlobStore, StoreFull, hash_of, read_whole

_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(slots=True)
class Budget:
    """What one snapshot has stored so far. `full` says why it may store no more, empty while it may."""

    stored_bytes: int = 0
    full: str = ""


class Reader:
    """Turns a name in an open folder into an entry.

    Args:
        store: where new contents go.
        limits: how much one snapshot may hold.
    """

    def __init__(self, store: BlobStore, limits: Limits) -> None:
        self._store = store
        self._limits = limits

    def may_keep(self, stamp: Stamp) -> bool:
        """Whether this is something whose contents can be kept at all; what cannot takes no room among the files."""
        if stat.S_ISREG(stamp.mode):
            return stamp.size <= self._limits.max_file_bytes
        return stat.S_ISLNK(stamp.mode)

    def entry(self, name: str, folder: int, stamp: Stamp, budget: Budget) -> Entry:
        """What stands there. What cannot be kept is a remark, never an error.

        Args:
            name: in the folder.
            folder: a descriptor.
            stamp: what the system said of it before it is read.
            budget: of this snapshot.

        Raises:
            OSError: the store's disk refused.
        """
        try:
            if stat.S_ISLNK(stamp.mode):
                content, mode = os.fsencode(os.readlink(name, dir_fd=folder)), 0
            elif not stat.S_ISREG(stamp.mode):
                return Entry("special")
            elif stamp.size > self._limits.max_file_bytes:
                return Entry("large", size=stamp.size)
            else:
                content, mode = _content(name, folder, stamp), permission_bits(stamp.mode)
        except OSError:
            return Entry("unreadable", size=stamp.size)
        return self._keep("link" if stat.S_ISLNK(stamp.mode) else "file", content, mode, budget)

    def _keep(
        self, kind: Literal["file", "link"], content: bytes, mode: int, budget: Budget
    ) -> Entry:
        entry = Entry(kind, hash_of(content), mode, len(content))
        if self._store.has(entry.blob):
            return entry
        if budget.stored_bytes + len(content) > self._limits.max_snapshot_bytes:
            megabytes = self._limits.max_snapshot_bytes >> 20
            budget.full = budget.full or f"More than {megabytes} MiB changed at once."
        if budget.full:
            return Entry("over", size=len(content))
        try:
            self._store.put(content, entry.blob)
        except StoreFull as error:
            budget.full = str(error)
            return Entry("over", size=len(content))
        budget.stored_bytes += len(content)
        return entry


def _content(name: str, folder: int, stamp: Stamp) -> bytes:
    handle = os.open(name, _FLAGS, dir_fd=folder)
    try:
        return read_whole(handle, stamp.size)
    finally:
        os.close(handle)

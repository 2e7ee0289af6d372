"""What a look at the work folder finds, and what it remembers of each folder for the next."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from kimi_tui.workspace.entries import Entry, Manifest, Stamp
from kimi_tui.workspace.ignore import IgnoreStack
from kimi_tui.workspace.reading import Budget

# A file written in the same clock tick as the scan can change again without changing its stamp, so a stamp younger
# than this is not trusted. Two seconds is the coarsest clock in use (FAT).
_TRUST_AFTER_NS = 2_000_000_000


@dataclass(slots=True)
class Folder:
    """What is remembered of a folder, so that it need not be listed again.

    `entries` are its files and what is said of what was left out in it, `stamps` those of them that can be trusted.
    """

    stamp: tuple[int, int, int]
    trusted: bool
    rules_stamp: Stamp | None
    above: IgnoreStack
    inside: IgnoreStack
    files: tuple[str, ...]
    folders: tuple[str, ...]
    entries: dict[str, Entry]
    stamps: dict[str, Stamp] = field(default_factory=dict[str, Stamp])


@dataclass(frozen=True, slots=True)
class Scan:
    """The outcome: every path there is (until the next scan), what of it changed since the scan before, and whether it is all."""

    manifest: Manifest
    changed: tuple[str, ...]
    stored_bytes: int
    complete: bool
    full: str = ""
    """Why contents could not be kept (the budget, the number of files), empty if they were."""


@dataclass(slots=True)
class Pass:
    """What one scan finds; it counts only once the scan has come to its end."""

    started_ns: int
    room: int
    """How many more files may be kept."""
    also: frozenset[str] = frozenset()
    """What is followed even where there is no room for more: paths, and the folders above them."""
    folders: dict[str, Folder] = field(default_factory=dict[str, Folder])
    changed: dict[str, Entry | None] = field(default_factory=dict[str, Entry | None])
    gone: list[str] = field(default_factory=list[str])
    budget: Budget = field(default_factory=Budget)
    too_many: str = ""
    """Says so where files were passed over; what is followed already is kept all the same."""

    def trusts(self, *times_ns: int) -> bool:
        """Whether something with these times was at rest before this scan began."""
        return max(times_ns) + _TRUST_AFTER_NS <= self.started_ns


def stamp_of(name: str, folder: int) -> Stamp | None:
    """The stamp of a name in an open folder, None where it is not there."""
    try:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except OSError:
        return None
    return Stamp(
        status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino, status.st_mode
    )

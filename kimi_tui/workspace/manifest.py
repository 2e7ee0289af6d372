"""Manifests: what a scan found at each path of the work folder, and the limits of a snapshot.

A `ManifestEntry` describes one path; a `Manifest` holds all entries of one scan, possibly half a million.
"""

from __future__ import annotations

import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

Kind = Literal[
    "file", "link", "ignored", "large", "unreadable", "special", "over", "folder", "secret"
]
"""The contents of `file` and `link` are kept; the other kinds are remarks on omitted paths: ignored by a rule, over the size
limit, unreadable, neither file nor link nor folder, with secrets, or beyond the number of files or bytes that one snapshot
may hold. `folder` is an empty folder, noted so that a restore leaves it there.
"""

KEPT: frozenset[str] = frozenset({"file", "link"})


REST = "."
"""The name of a manifest's entry in a folder some of whose files were not scanned."""


class ManifestEntry(NamedTuple):
    """One path at one time. `blob` is the SHA-256 of the contents (for a link: of its target's text), `mode` the permission
    bits, `size` the number of bytes.
    """

    kind: Kind
    blob: str = ""
    mode: int = 0
    size: int = 0

    @property
    def kept(self) -> bool:
        """Whether the contents are in the store."""
        return self.kind in KEPT

    @property
    def is_known(self) -> bool:
        """Whether the state is known completely: nothing was omitted."""
        return self.kind in KEPT or self.kind == "folder"


Manifest = Mapping[str, ManifestEntry]
"""All paths of a scan, relative to the work folder with `/`: kept ones, and the top-most of the omitted ones. If files of a
folder were omitted because there are too many, `REST` stands in that folder.
"""


class ScanExtent(NamedTuple):
    """The number of files that a scan met; `is_more` is true if it omitted some because they are too many or too large in sum."""

    n_files: int
    is_more: bool


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a snapshot: files, bytes per file, bytes newly stored per later snapshot, and bytes of all sessions' stores."""

    max_files: int = 2_000_000
    max_file_bytes: int = 64 * 1024 * 1024
    max_snapshot_bytes: int = 512 * 1024 * 1024
    max_store_bytes: int = 4 * 1024 * 1024 * 1024


def permission_bits(mode: int) -> int:
    """Return the part of a file's mode that a restore sets again."""
    return stat.S_IMODE(mode) & 0o777


def ancestors(path: str) -> Iterator[str]:
    """Yield the folders above a relative path, from the nearest to the top-most."""
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path


class Omitted(NamedTuple):
    """The changed paths of which contents were omitted, sorted: those that cannot be restored to their former state, and the new ones
    that a rule ignores, of which nothing is lost.
    """

    lost: list[str]
    ignored: list[str]


def omitted(
    before: Mapping[str, ManifestEntry | None], now: Mapping[str, ManifestEntry | None]
) -> Omitted:
    """Return which of some changed paths were omitted.

    Args:
        before: the former states of all these paths, None for one that was not there.
        now: their new states.
    """
    # A folder that is ignored from now on may have had files that were not.
    above = {folder for path, entry in before.items() if entry for folder in ancestors(path)}
    lost: list[str] = []
    ignored: list[str] = []
    for path, entry in now.items():
        was = before[path]
        if was is None and entry is not None and entry.kind == "ignored" and path not in above:
            ignored.append(path)
        elif not all(one is None or one.is_known for one in (was, entry)):
            lost.append(path)
    return Omitted(sorted(lost), sorted(ignored))


def was_looked_for(manifest: Manifest, path: str) -> bool:
    """Return whether the scan of `manifest` would have found `path` if it had existed.

    Only then does its absence in the manifest mean that it did not exist, so that a restore may delete it.
    """
    own = manifest.get(path)
    if own is not None:
        return own.is_known
    folder, slash, _ = path.rpartition("/")
    if folder + slash + REST in manifest:
        return False
    return all(
        above is None or above.is_known
        for above in (manifest.get(folder) for folder in ancestors(path))
    )

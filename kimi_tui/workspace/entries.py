"""The values of a scan: one small entry for each path, of which there may be fifty thousand."""

from __future__ import annotations

import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

Kind = Literal[
    "file", "link", "ignored", "large", "unreadable", "special", "over", "folder", "secret"
]
"""`file` and `link` are kept; the others are remarks on what was not: left out by rule, over the size limit, not to be
read, neither file nor link nor folder, holding secrets, or beyond the number of files or bytes that one snapshot may hold. `folder` is an
empty one, noted so that a restore leaves it there."""

KEPT: frozenset[str] = frozenset({"file", "link"})


REST = "."
"""Under this name in a folder stands that not all files of the folder were looked at."""


class Stamp(NamedTuple):
    """What the system says of a file without reading it; equal stamps (not too young) mean equal contents."""

    mtime_ns: int
    ctime_ns: int
    size: int
    inode: int
    mode: int


@dataclass(frozen=True, slots=True)
class Entry:
    """One path at one time. `blob` is the SHA-256 of the contents (of a link: of its target's text), `mode` the permission
    bits, `size` bytes."""

    kind: Kind
    blob: str = ""
    mode: int = 0
    size: int = 0

    @property
    def kept(self) -> bool:
        """Whether its contents are in the store."""
        return self.kind in KEPT

    @property
    def is_known(self) -> bool:
        """Whether all that there is to say of it is said: nothing was left out."""
        return self.kind in KEPT or self.kind == "folder"


Manifest = Mapping[str, Entry]
"""Every path that a scan met, relative to the work folder with `/`: kept ones, and the top-most of what was left out. Where
files of a folder were passed over because there are too many, `REST` stands in that folder."""


class Extent(NamedTuple):
    """How many files a scan met; `is_more` where it passed over some because there are too many or too much in them."""

    n_files: int
    is_more: bool


def extent(manifest: Manifest) -> Extent:
    """How many files stand in a manifest, also those that are too large to be kept."""
    kinds = [entry.kind for entry in manifest.values()]
    n_files = sum(1 for kind in kinds if kind in KEPT or kind in ("large", "secret"))
    return Extent(n_files, "over" in kinds)


@dataclass(frozen=True, slots=True)
class Limits:
    """How much a snapshot may hold: files, bytes a file, bytes newly stored a snapshot, bytes of all sessions' stores."""

    max_files: int = 50_000
    max_file_bytes: int = 64 * 1024 * 1024
    max_snapshot_bytes: int = 512 * 1024 * 1024
    max_store_bytes: int = 4 * 1024 * 1024 * 1024


def permission_bits(mode: int) -> int:
    """The part of a file's mode that a restore sets again."""
    return stat.S_IMODE(mode) & 0o777


def ancestors(path: str) -> Iterator[str]:
    """The folders above a relative path, from the nearest to the top-most."""
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path


def was_looked_for(manifest: Manifest, path: str) -> bool:
    """Whether the scan behind `manifest` would have seen `path` had it been there.

    Only then does its absence mean that it did not exist; a restore deletes nothing on any other ground.
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

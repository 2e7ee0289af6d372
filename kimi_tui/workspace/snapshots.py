"""Snapshots of the working files: the values in them, and `SnapshotLog`, a session's list of them in `snapshots.jsonl`.

A `ManifestEntry` says what stands under one path; a `Manifest` holds all of one scan, of which there may be fifty thousand. In the
log the first record is complete, every other one has only the changes. A record says who made the change: the agent's tools,
or others in between. Marks between the records say which checkpoint was made after which snapshot. The contents are in the
store. `Tracker.take_snapshot` takes one. Everything blocks and belongs in one thread.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

from kimi_tui.filesystem import Storage, read_regular
from kimi_tui.workspace.ignore import ALWAYS, is_of_version_control

Kind = Literal[
    "file", "link", "ignored", "large", "unreadable", "special", "over", "folder", "secret"
]
"""`file` and `link` are kept; the others are remarks on what was not: left out by rule, over the size limit, not to be
read, neither file nor link nor folder, holding secrets, or beyond the number of files or bytes that one snapshot may hold. `folder` is an
empty one, noted so that a restore leaves it there."""

KEPT: frozenset[str] = frozenset({"file", "link"})


REST = "."
"""The name under which a manifest records for a folder that not all of its files were looked at."""


@dataclass(frozen=True, slots=True)
class ManifestEntry:
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
        """Whether its state is known completely: nothing was left out."""
        return self.kind in KEPT or self.kind == "folder"


Manifest = Mapping[str, ManifestEntry]
"""Every path that a scan met, relative to the work folder with `/`: kept ones, and the top-most of what was left out. Where
files of a folder were passed over because there are too many, `REST` stands in that folder."""


class ScanExtent(NamedTuple):
    """How many files a scan met; `is_more` where it passed over some because there are too many or too much in them."""

    n_files: int
    is_more: bool


def extent(manifest: Manifest) -> ScanExtent:
    """How many files stand in a manifest, also those that are too large to be kept."""
    kinds = [entry.kind for entry in manifest.values()]
    n_files = sum(1 for kind in kinds if kind in KEPT or kind in ("large", "secret"))
    return ScanExtent(n_files, "over" in kinds)


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


By = Literal["first", "agent", "other", "job", "rescue", "restore"]
"""Who changed what a snapshot adds. `first` is the starting point, `rescue` what stood before a restore, `job` what changed while
a command of the agent ran in the background: it or someone else."""

FOREIGN: frozenset[By] = frozenset({"other", "job", "rescue"})
"""Changes that are not certainly the agent's nor a restore's: what a rescue finds, someone else changed."""

_MAX_LOG_BYTES = 1 << 30
_BLOB = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One record. `changed` maps a path to its new entry, or to None where it is gone.

    `note` says why the snapshot is not whole, empty if it is. `author` is which agent made the change, of several in a session;
    empty for the session's own, and for everyone else.
    """

    id: str
    at: float
    by: By
    changed: Mapping[str, ManifestEntry | None]
    note: str = ""
    author: str = ""


def new_id() -> str:
    """A name for a snapshot."""
    return uuid.uuid4().hex


def delta(
    before: Manifest, after: Manifest, paths: Iterable[str]
) -> dict[str, ManifestEntry | None]:
    """What changed among `paths` from one manifest to the next."""
    return {path: after.get(path) for path in paths if before.get(path) != after.get(path)}


class SnapshotLog:
    """The append-only list of a session's snapshots.

    Args:
        path: the `snapshots.jsonl` of a session; made when the first snapshot is added.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._storage = Storage()
        self._snapshots: list[Snapshot] = []
        self._position: dict[str, int] = {}
        self._marks: dict[str, int] = {}
        self._latest: dict[str, ManifestEntry] = {}
        self._joins_line = False
        self.root = ""
        """The folder that the snapshots are of; nothing is ever restored into another."""
        self._read()

    def __len__(self) -> int:
        return len(self._snapshots)

    @property
    def latest(self) -> Manifest:
        """The files as the newest snapshot has them."""
        return self._latest

    @property
    def last(self) -> Snapshot | None:
        """The newest snapshot."""
        return self._snapshots[-1] if self._snapshots else None

    def get(self, snapshot_id: str) -> Snapshot | None:
        """The snapshot of that id."""
        index = self._position.get(snapshot_id)
        return None if index is None else self._snapshots[index]

    def begin(self, root: str, *, moved: bool = False) -> None:
        """Record which folder the snapshots are of: once, or again where that folder was `moved`.

        Raises:
            OSError: the disk refused.
        """
        if not self.root or (moved and self.root != root):
            self._append({"root": root}, sync=True)
            self.root = root

    def mark(self, uid: str) -> None:
        """Note a checkpoint. It is written but not synced: the next snapshot does that."""
        position = len(self._snapshots) - 1
        self._marks[uid] = position
        after = self._snapshots[position].id if self._snapshots else ""
        # Without its mark a checkpoint only has no files to go back to; what is said must not stop for that.
        with contextlib.suppress(OSError):
            self._append({"mark": uid, "after": after}, sync=False)

    def at_checkpoint(self, uid: str) -> Snapshot | None:
        """How the files stood at a checkpoint: the last snapshot before the agent changed something after it.

        What someone else changed in between is part of it: it is not known whether that was before or after.
        """
        position = self._marks.get(uid)
        if position is None:
            return None
        while position + 1 < len(self._snapshots):
            following = self._snapshots[position + 1].by
            if following not in FOREIGN and following != "first":
                break
            position += 1
        return self._snapshots[position] if position >= 0 else None

    def known_at(self, uid: str) -> float:
        """When the last snapshot before a checkpoint was taken, in seconds since the epoch; 0 where there is none."""
        position = self._marks.get(uid, -1)
        return self._snapshots[position].at if position >= 0 else 0.0

    def at_first_of(self, uids: Collection[str]) -> Snapshot | None:
        """How the files stood at the one of these checkpoints that was made first."""
        first = next((uid for uid in self._marks if uid in uids), None)
        return None if first is None else self.at_checkpoint(first)

    def after_checkpoint(self, uid: str) -> Snapshot | None:
        """How the files stood when the step of a checkpoint was done.

        What the agent changed until the next checkpoint, on whatever line that is, belongs to this step. What someone else
        or a restore changed after that does not.
        """
        position = self._marks.get(uid)
        if position is None:
            return None
        order = iter(self._marks)
        following = next((after for one in order if one == uid for after in order), None)
        limit = len(self._snapshots) - 1 if following is None else self._marks[following]
        for place in range(position + 1, limit + 1):
            by = self._snapshots[place].by
            if by == "restore":
                break
            if by not in FOREIGN:
                position = place
        return self._snapshots[position] if position >= 0 else None

    def later(self, one: Snapshot, other: Snapshot) -> Snapshot:
        """The later one of two."""
        return max(one, other, key=lambda snapshot: self._position[snapshot.id])

    def add(
        self,
        changed: Mapping[str, ManifestEntry | None],
        *,
        by: By,
        at: float,
        note: str = "",
        snapshot_id: str = "",
        author: str = "",
    ) -> Snapshot:
        """Append a snapshot and make it safe on disk.

        Raises:
            OSError: the disk refused; the log is as before.
        """
        snapshot = Snapshot(snapshot_id or new_id(), at, by, dict(changed), note, author)
        self._append(_stored(snapshot), sync=True)
        self._take(snapshot)
        return snapshot

    def manifest_at(self, snapshot: Snapshot) -> dict[str, ManifestEntry]:
        """The files as that snapshot has them."""
        manifest: dict[str, ManifestEntry] = {}
        for one in self._snapshots[: self._position[snapshot.id] + 1]:
            _apply(manifest, one.changed)
        return manifest

    def manifest_before(
        self, snapshot: Snapshot, paths: Iterable[str]
    ) -> dict[str, ManifestEntry | None]:
        """What some paths were before that snapshot."""
        found: dict[str, ManifestEntry | None] = dict.fromkeys(paths)
        wanted = set(found)
        for one in reversed(self._snapshots[: self._position[snapshot.id]]):
            known = one.changed.keys() & wanted
            found |= {path: one.changed[path] for path in known}
            wanted -= known
        return found

    def changed_since(
        self, snapshot: Snapshot, until: Snapshot | None = None
    ) -> dict[str, list[By]]:
        """Every path that changed after that snapshot (and not after `until`), and who did it, one after another."""
        found: dict[str, list[By]] = {}
        end = len(self._snapshots) if until is None else self._position[until.id] + 1
        for one in self._snapshots[self._position[snapshot.id] + 1 : end]:
            for path in one.changed:
                found.setdefault(path, []).append(one.by)
        return found

    def made_by_others(self, snapshot: Snapshot) -> frozenset[str]:
        """Of the paths that were no files at that snapshot those which someone else made since, whoever changed them then."""
        there: set[str] = set()
        found: set[str] = set()
        for one in self._snapshots[self._position[snapshot.id] + 1 :]:
            kept = {path for path, entry in one.changed.items() if entry and entry.kept}
            if one.by in FOREIGN:
                found |= kept - there
            there = (there | kept) - (one.changed.keys() - kept)
        return frozenset(found)

    def notes_at(self, snapshot: Snapshot) -> list[str]:
        """The reasons why that snapshot may be incomplete: the notes up to it."""
        said = [one.note for one in self._snapshots[: self._position[snapshot.id] + 1] if one.note]
        return list(dict.fromkeys(said))

    def _append(self, record: Mapping[str, Any], *, sync: bool) -> None:
        line = json.dumps(record, ensure_ascii=True).encode() + b"\n"
        if self._joins_line:
            line = b"\n" + line
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND
        with self._storage.opened(self._path, flags) as handle:
            self._storage.append(handle, line, sync=sync)
        self._joins_line = False

    def _take(self, snapshot: Snapshot) -> None:
        self._position[snapshot.id] = len(self._snapshots)
        self._snapshots.append(snapshot)
        _apply(self._latest, snapshot.changed)

    def _read(self) -> None:
        try:
            content = read_regular(self._path, _MAX_LOG_BYTES)
        except OSError:
            return
        self._joins_line = bool(content) and not content.endswith(b"\n")
        for line in content.split(b"\n"):
            # What cannot be read is passed over: it costs that one snapshot or mark.
            if line.strip():
                self._take_line(line)

    def _take_line(self, line: bytes) -> None:
        try:
            value: object = json.loads(line)
        except (ValueError, RecursionError):
            return
        if not isinstance(value, dict):
            return
        record = cast("dict[str, Any]", value)
        root, uid = record.get("root"), record.get("mark")
        if isinstance(root, str):
            # The last one counts: the folder was moved.
            self.root = root
        elif isinstance(uid, str):
            after = str(record.get("after", ""))
            position = self._position.get(after) if after else -1
            if position is not None:
                self._marks[uid] = position
        elif (snapshot := _parsed(record)) is not None:
            self._take(snapshot)


def _apply(manifest: dict[str, ManifestEntry], changed: Mapping[str, ManifestEntry | None]) -> None:
    for path, entry in changed.items():
        if entry is None:
            manifest.pop(path, None)
        else:
            manifest[path] = entry


def _stored(snapshot: Snapshot) -> dict[str, Any]:
    return {
        "id": snapshot.id,
        "at": snapshot.at,
        "by": snapshot.by,
        # Versions that know one agent alone read `by`.
        **({"author": snapshot.author} if snapshot.author else {}),
        "note": snapshot.note,
        "changed": {
            path: None if entry is None else stored_entry(entry)
            for path, entry in snapshot.changed.items()
        },
    }


def stored_entry(entry: ManifestEntry) -> list[object]:
    """An entry as it is stored."""
    return [entry.kind, entry.blob, entry.mode, entry.size]


def parse_entry(value: object) -> ManifestEntry:
    """A stored entry.

    Raises:
        ValueError: it cannot be one.
        TypeError: it cannot be one.
    """
    kind, blob, mode, size = cast("list[Any]", value)
    entry = ManifestEntry(cast("Kind", str(kind)), str(blob), permission_bits(int(mode)), int(size))
    if entry.kept and not _BLOB.fullmatch(entry.blob):
        raise ValueError("a content has no name")
    return entry


def parse_path(value: object, *said: ManifestEntry | None) -> str:
    """A stored path. It is not trusted, so it is checked like one from a model.

    Args:
        value: what stands there.
        said: what is said to be there.

    Raises:
        ValueError: it does not lead to what a scan finds below the work folder.
    """
    path = str(value)
    *folders, name = path.split("/")
    # Only to be named as left out: what belongs to version control, and what was passed over in a folder.
    is_named_only = not any(one is not None and one.is_known for one in said)
    names = folders if is_named_only and name in (REST, *ALWAYS) else [*folders, name]
    if "\0" in path or not {"", ".", ".."}.isdisjoint(names):
        raise ValueError("a path leads elsewhere")
    if any(map(is_of_version_control, names)):
        raise ValueError("a path belongs to version control")
    return path


def _parsed(record: Mapping[str, Any]) -> Snapshot | None:
    """A record of the file, or None where it cannot be one."""
    try:
        changed = {
            parse_path(path, entry): entry
            for path, value in cast("dict[str, object]", record["changed"]).items()
            for entry in [None if value is None else parse_entry(value)]
        }
        return Snapshot(
            str(record["id"]),
            float(record["at"]),
            cast("By", str(record["by"])),
            changed,
            str(record.get("note", "")),
            str(record.get("author", "")),
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return None

"""Snapshots of the working files: the values in them, and `SnapshotLog`, a session's list of them.

The first record of the log is complete, and every other one has only the changes. A record says who made the change: the agent's tools, or others
in between. Marks between the records say which checkpoint was made after which snapshot. The contents are in the store.
`Tracker.take_snapshot` takes one. Everything blocks and belongs in one thread.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import threading
import uuid
from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

from kimi_tui.filesystem import READ_ONLY, Storage, read_regular
from kimi_tui.workspace.file_table import (
    Folders,
    Layered,
    ManifestTable,
    StoredTable,
    edited,
    read_table,
    without_stamps,
    write_table,
)
from kimi_tui.workspace.ignore import ALWAYS, is_of_version_control
from kimi_tui.workspace.manifest import REST, Kind, Manifest, ManifestEntry, permission_bits

By = Literal["first", "agent", "other", "job", "rescue", "restore"]
"""The author of the changes in a snapshot. `first` is the starting point, `rescue` the state before a restore, `job` a change
while a command of the agent ran in the background, made by it or by somebody else.
"""

_AGAIN = "#again"
"""Stands for the agent of checkpoints that were made anew: their steps do not end those of others."""
FOREIGN: frozenset[By] = frozenset({"other", "job", "rescue"})
"""Changes that are not certainly the agent's nor a restore's. A rescue snapshot finds changes of somebody else."""

ANY_ROOT = (0, 0)
"""Device and inode in place of those of a work folder that does not exist yet: an overlay that has the files with these stamps."""

_MAX_LOG_BYTES = 1 << 30
_log = logging.getLogger(__name__)
_BLOB = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One record. `changed` maps a path to its new entry, or to None if it is gone.

    `note` says why the snapshot is incomplete; empty if it is complete. `author` is the agent that made the change if a
    session has several; empty for the session's own agent and for everyone else.
    """

    id: str
    at: float
    by: By
    changed: Mapping[str, ManifestEntry | None]
    note: str = ""
    author: str = ""


class CheckpointMark(NamedTuple):
    """A checkpoint in a log.

    Attributes:
        uid: its name.
        agent: the agent beside the session's own that made it; empty for the session's own.
        after: the id of the last snapshot before it; empty for the newest one.
    """

    uid: str
    agent: str = ""
    after: str = ""


def new_id() -> str:
    """Return a unique name for a snapshot."""
    return uuid.uuid4().hex


def delta(
    before: Manifest, after: Manifest, paths: Iterable[str]
) -> dict[str, ManifestEntry | None]:
    """Return the changes of `paths` from one manifest to the next."""
    return {path: after.get(path) for path in paths if before.get(path) != after.get(path)}


_NEW_NAME = "snapshots-2.jsonl"
_TABLE = re.compile(r"first-[0-9a-f]{32}\.table")
_LATEST_NAME = "latest.table"


class SnapshotLog:
    """The append-only list of a session's snapshots.

    The complete first snapshot is in a table of its own (`ManifestTable`). Earlier versions have it in the log, which has another
    name, so that they do not take the new form for a session without files; such a log is continued as it is. If an earlier
    version has begun one beside the new one, both are read, and the former is continued.

    Args:
        path: the `snapshots.jsonl` of a session; if there is none, the log is `snapshots-2.jsonl` beside it, which is created
            when the first snapshot is added.
    """

    def __init__(self, path: Path) -> None:
        self._path = path if path.exists() else path.with_name(_NEW_NAME)
        self._storage = Storage()
        self._snapshots: list[Snapshot] = []
        self._position: dict[str, int] = {}
        self._marks: dict[str, int] = {}
        self._next_marks: dict[str, str] = {}
        self._last_marks: dict[str, str] = {}
        """The newest checkpoint of each agent."""
        self._agents: dict[str, str] = {}
        """The agents of the checkpoints that the session's own did not make."""
        self._order: list[tuple[int, str]] = []
        self._latest = Layered({})
        self._base_place = -1
        """The place of the snapshot whose files the base of `_latest` has; -1 if it has none."""
        self._joins_line = False
        self._lost_line = False
        # These lines were written since the last good sync, after so many bytes of the file; so many of them are to be synced.
        # If a sync fails, the file is written anew: the kernel takes the lines for written from then on.
        self._unsynced = bytearray()
        self._synced_size = 0
        self._n_owed = 0
        self._must_rewrite = False
        # Under the first lock one thread syncs, under the second one the file is written. The locks are taken in this order.
        self._syncing = threading.Lock()
        self._writing = threading.Lock()
        self._root_id: list[int] = []
        self.root = ""
        """The folder of the snapshots; they are never restored into another one."""
        self._load()

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

    @property
    def snapshots(self) -> Sequence[Snapshot]:
        """All snapshots, oldest first."""
        return self._snapshots

    def get(self, snapshot_id: str) -> Snapshot | None:
        """Return the snapshot with this id."""
        index = self._position.get(snapshot_id)
        return None if index is None else self._snapshots[index]

    def begin(self, root: str, *, moved: bool = False) -> None:
        """Record the folder of the snapshots: once, or again if that folder was `moved`. The present log is synced.

        Raises:
            OSError: the disk refused.
        """
        if not self.root or (moved and self.root != root):
            self._append({"root": root}, sync=True)
            self.root = root
            return
        with self._syncing:
            size = 0
            try:
                # Records of a killed process may be in the kernel's memory only.
                with self._storage.opened(self._path) as handle:
                    size = self._storage.fstat(handle).st_size
                    self._storage.fsync(handle)
            except FileNotFoundError:
                return
            except OSError as error:
                if error.errno not in READ_ONLY:
                    with self._writing:
                        self._is_all_synced(size)
                        self._must_rewrite = size > 0

    def mark(self, uid: str, agent: str = "") -> None:
        """Note a checkpoint. The mark is written but not synced: the next snapshot syncs it.

        Args:
            uid: the checkpoint.
            agent: the agent beside the session's own that made it; empty for the session's own.
        """
        position = len(self._snapshots) - 1
        self._set_mark(uid, position, agent)
        self._order.clear()
        after = self._snapshots[position].id if self._snapshots else ""
        # Without its mark a checkpoint has no files to restore, which must not stop the conversation.
        with contextlib.suppress(OSError):
            line = {"mark": uid, "after": after} | ({"agent": agent} if agent else {})
            self._append(line, sync=False)

    def mark_again(self, uid: str, like: str) -> None:
        """Note a checkpoint with the place of an earlier one, which was made anew by another name."""
        position = self._marks.get(like)
        if position is None:
            return
        self._set_mark(uid, position, _AGAIN)
        self._order.clear()
        after = self._snapshots[position].id if position >= 0 else ""
        with contextlib.suppress(OSError):
            self._append({"mark": uid, "after": after, "agent": _AGAIN}, sync=False)

    def _set_mark(self, uid: str, position: int, agent: str) -> None:
        # A step lasts until the same agent's next one.
        if uid not in self._marks:
            if last := self._last_marks.get(agent):
                self._next_marks[last] = uid
            self._last_marks[agent] = uid
            if agent:
                self._agents[uid] = agent
        self._marks[uid] = position

    def at_checkpoint(self, *uids: str) -> Snapshot | None:
        """Return the files' state at a checkpoint: the last snapshot before the agent changed a file after it.

        Changes of others in between are part of it: whether they came before or after the checkpoint is not known.

        Args:
            uids: the names of the checkpoint; the first that has a snapshot counts. An empty one has none.
        """
        found = (self._at_checkpoint(uid) for uid in uids if uid)
        return next((snapshot for snapshot in found if snapshot is not None), None)

    def _at_checkpoint(self, uid: str) -> Snapshot | None:
        position = self._marks.get(uid)
        if position is None:
            return None
        while position + 1 < len(self._snapshots):
            following = self._snapshots[position + 1].by
            if following not in FOREIGN and following != "first":
                break
            position += 1
        return self._snapshots[position] if position >= 0 else None

    @property
    def first(self) -> Snapshot | None:
        """The first snapshot: the files as the session found them; None if there is none yet."""
        return self._snapshots[0] if self._snapshots else None

    def known_at(self, uid: str) -> float:
        """Return the time of the last snapshot before a checkpoint, in seconds since the epoch; 0 if there is none."""
        position = self._marks.get(uid, -1)
        return self._snapshots[position].at if position >= 0 else 0.0

    def at_first_of(self, uids: Collection[str]) -> Snapshot | None:
        """Return the files' state at that of these checkpoints that was made first."""
        first = next((uid for uid in self._marks if uid in uids), None)
        return None if first is None else self.at_checkpoint(first)

    def after_checkpoint(self, *uids: str) -> Snapshot | None:
        """Return the files' state at the end of the step that a checkpoint began.

        The agents' changes until its agent's next checkpoint, on any line, belong to this step. Later changes of others or of a
        restore do not.

        Args:
            uids: the names of the checkpoint; the first that has a snapshot counts. An empty one has none.
        """
        found = (self._after_checkpoint(uid) for uid in uids if uid)
        return next((snapshot for snapshot in found if snapshot is not None), None)

    def _after_checkpoint(self, uid: str) -> Snapshot | None:
        position = self._marks.get(uid)
        if position is None:
            return None
        following = self._next_marks.get(uid)
        limit = len(self._snapshots) - 1 if following is None else self._marks[following]
        for place in range(position + 1, limit + 1):
            by = self._snapshots[place].by
            if by == "restore":
                break
            if by not in FOREIGN:
                position = place
        return self._snapshots[position] if position >= 0 else None

    def checkpoint_before(self, position: int) -> str:
        """Return the uid of the checkpoint that was made last before the snapshot at a place of the log; empty if there is none.

        A change of the agent belongs to the step that this checkpoint began.
        """
        if len(self._order) != len(self._marks):
            self._order = [(after, uid) for uid, after in self._marks.items()]
            self._order.sort(key=lambda one: one[0])
        at = bisect_left(self._order, position, key=lambda one: one[0])
        return self._order[at - 1][1] if at else ""

    def step_places(self, uid: str) -> range | None:
        """Return the places in the log of the files before the step that a checkpoint began, and after each change in it; None if
        the checkpoint is not known, or no snapshot was before it.
        """
        first, last = self._marks.get(uid, -1), self.after_checkpoint(uid)
        if first < 0 or last is None:
            return None
        return range(first, self._position[last.id] + 1)

    def place(self, snapshot: Snapshot) -> int:
        """Return the place of a snapshot in the log."""
        return self._position[snapshot.id]

    def marked_at(self, uid: str) -> int:
        """Return the place of the last snapshot before a checkpoint; -1 if there is none, or the checkpoint is not known."""
        return self._marks.get(uid, -1)

    def next_mark(self, uid: str) -> str | None:
        """Return the checkpoint, on any line, that was made next after one; None if there is none."""
        return self._next_marks.get(uid)

    def later(self, one: Snapshot, other: Snapshot) -> Snapshot:
        """Return the later one of two snapshots."""
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
        later: bool = False,
    ) -> Snapshot:
        """Append a snapshot and sync it; with `later`, the next `sync` does, or the next snapshot without that.

        Raises:
            OSError: the disk refused; the log is as before.
        """
        snapshot = Snapshot(snapshot_id or new_id(), at, by, dict(changed), note, author)
        self._append(_stored(snapshot), sync=not later, owes=later)
        self._take(snapshot)
        return snapshot

    @property
    def is_synced(self) -> bool:
        """Whether no snapshot waits for `sync`."""
        return not (self._n_owed or self._must_rewrite)

    def sync(self) -> None:
        """Sync the snapshots that were added without it. It may be called from another thread than all else.

        Raises:
            OSError: the disk refused; the next call writes again what may be missing.
        """
        with self._syncing:
            if self.is_synced:
                return
            if not self._must_rewrite:
                with self._writing:
                    n_written = len(self._unsynced)
                with contextlib.suppress(OSError), self._storage.opened(self._path) as handle:
                    self._storage.fsync(handle)
                    self._is_on_disk(n_written)
                    return
                self._must_rewrite = True
            with self._writing:
                self._write_again()

    def _is_on_disk(self, n_bytes: int) -> None:
        """Note that the first bytes since the last good sync are on the disk."""
        with self._writing:
            del self._unsynced[:n_bytes]
            self._synced_size += n_bytes
            self._n_owed = max(0, self._n_owed - n_bytes)

    def _write_again(self) -> None:
        """Replace the file by a synced one. Called under both locks.

        Raises:
            OSError: the disk refused; the file is as before.
        """
        try:
            before = read_regular(self._path, _MAX_LOG_BYTES)[: self._synced_size]
            self._storage.replace_file(self._path, before + self._unsynced)
        except FileNotFoundError:
            # The log was deleted: nothing of it can be synced any more.
            self._is_all_synced(0)
            raise
        self._is_all_synced(len(before) + len(self._unsynced))

    def _is_all_synced(self, size: int) -> None:
        self._synced_size = size
        self._unsynced.clear()
        self._n_owed = 0
        self._must_rewrite = False

    def add_all(self, records: Sequence[Snapshot | CheckpointMark]) -> None:
        """Append snapshots, and checkpoints between them, in one write, and sync it: all of them or none.

        Raises:
            OSError: the disk refused; the log is as before.
        """
        lines: list[Mapping[str, Any]] = []
        last = self._snapshots[-1].id if self._snapshots else ""
        for one in records:
            if isinstance(one, Snapshot):
                lines.append(_stored(one))
                last = one.id
            else:
                agent = {"agent": one.agent} if one.agent else {}
                lines.append({"mark": one.uid, "after": one.after or last} | agent)
        self._append(*lines, sync=True)
        for one in records:
            if isinstance(one, Snapshot):
                self._take(one)
            else:
                place = self._position[one.after] if one.after else len(self._snapshots) - 1
                self._set_mark(one.uid, place, one.agent)
                self._order.clear()

    @property
    def marks(self) -> list[tuple[int, CheckpointMark]]:
        """The checkpoints, each with the place of the last snapshot before it, by these places and as they were made."""
        ids = [one.id for one in self._snapshots]
        marks = sorted(self._marks.items(), key=lambda one: one[1])
        agents = self._agents
        return [
            (place, CheckpointMark(uid, agents.get(uid, ""), ids[place] if place >= 0 else ""))
            for uid, place in marks
        ]

    def add_first(
        self, folders: Folders, root: Sequence[int], *, at: float, note: str = ""
    ) -> Snapshot:
        """Append the snapshot with all files, and sync it.

        Args:
            folders: the files, which are not changed any more.
            root: device and inode of the work folder.
            at: the time, in seconds since the epoch.
            note: why it is incomplete; empty if it is complete.

        Raises:
            OSError: the disk refused; the log is as before.
        """
        table = ManifestTable(folders)
        snapshot = Snapshot(new_id(), at, "first", table, note)
        path = self._path.with_name(f"first-{snapshot.id}.table")
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_table(path, folders, {"root": list(root)}, sync=True)
        self._append({**_head(snapshot), "table": path.name}, sync=True)
        self._take(snapshot)
        self._latest = Layered(table)
        self._base_place = self._position[snapshot.id]
        return snapshot

    def keep_stamps(self, folders: Folders, root: Sequence[int]) -> None:
        """Store the stamps of the newest snapshot's files, so that the next process need not read them again.

        Args:
            folders: the files as the newest snapshot has them.
            root: device and inode of the work folder.

        Raises:
            OSError: the disk refused.
        """
        if self._snapshots:
            facts = {"after": self._snapshots[-1].id, "root": list(root)}
            write_table(self._path.with_name(_LATEST_NAME), folders, facts, sync=False)

    def folders(self, root: Sequence[int]) -> Folders:
        """Return the files as the newest snapshot has them, with the stamps that are known.

        Args:
            root: device and inode of the work folder; stamps of another one do not count.
        """
        base = self._latest.base
        if not isinstance(base, ManifestTable):
            return edited({}, dict(self._latest))
        is_same = self._root_id in (list(root), list(ANY_ROOT))
        folders = base.folders if is_same else without_stamps(base.folders)
        return edited(folders, self._latest.changes) if self._latest.changes else folders

    def manifest_at(self, snapshot: Snapshot) -> Manifest:
        """Return the files as that snapshot has them.

        Raises:
            OSError: the first snapshot cannot be read.
        """
        first, *others = self._snapshots[: self._position[snapshot.id] + 1]
        files = first.changed
        if isinstance(files, ManifestTable | StoredTable):
            manifest = Layered(files)
        else:
            manifest = Layered({}, files)
        for one in others:
            manifest.changes |= one.changed
        return manifest

    def manifest_before(
        self, snapshot: Snapshot, paths: Iterable[str]
    ) -> dict[str, ManifestEntry | None]:
        """Return the entries of some paths before that snapshot."""
        found: dict[str, ManifestEntry | None] = dict.fromkeys(paths)
        wanted = set(found)
        for place in range(self._position[snapshot.id] - 1, -1, -1):
            if not wanted:
                break
            if place == self._base_place:
                # The table of the first snapshot would have to be read; this one is in memory.
                found |= {path: self._latest.base.get(path) for path in wanted}
                break
            changed = self._snapshots[place].changed
            for path in [path for path in wanted if path in changed]:
                found[path] = changed[path]
                wanted.discard(path)
        return found

    def changed_since(
        self, snapshot: Snapshot, until: Snapshot | None = None
    ) -> dict[str, list[By]]:
        """Return every path that changed after that snapshot (and not after `until`), with the authors of the changes in
        order of time.
        """
        found: dict[str, list[By]] = {}
        end = len(self._snapshots) if until is None else self._position[until.id] + 1
        for one in self._snapshots[self._position[snapshot.id] + 1 : end]:
            for path in one.changed:
                found.setdefault(path, []).append(one.by)
        return found

    def made_by_others(self, snapshot: Snapshot) -> frozenset[str]:
        """Return the paths that were no files at that snapshot and that somebody else created since, whoever changed them later."""
        there: set[str] = set()
        found: set[str] = set()
        for one in self._snapshots[self._position[snapshot.id] + 1 :]:
            kept = {path for path, entry in one.changed.items() if entry and entry.kept}
            if one.by in FOREIGN:
                found |= kept - there
            there = (there | kept) - (one.changed.keys() - kept)
        return frozenset(found)

    def notes_at(self, snapshot: Snapshot) -> list[str]:
        """Return the reasons why that snapshot may be incomplete: the notes up to it."""
        said = [one.note for one in self._snapshots[: self._position[snapshot.id] + 1] if one.note]
        return list(dict.fromkeys(said))

    def _append(self, *records: Mapping[str, Any], sync: bool, owes: bool = False) -> None:
        line = b"".join(json.dumps(one, ensure_ascii=True).encode() + b"\n" for one in records)
        if self._joins_line:
            line = b"\n" + line
        if not sync:
            self._write(line, owes=owes)
        else:
            with self._syncing:
                if self._must_rewrite:
                    with self._writing:
                        self._write_again()
                self._write(line, sync=True)
        self._joins_line = False

    def _write(self, line: bytes, *, owes: bool = False, sync: bool = False) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND
        with self._writing:
            try:
                handle = self._storage.open(self._path, flags)
            except FileNotFoundError:
                self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                handle = self._storage.open(self._path, flags)
            try:
                size = self._storage.fstat(handle).st_size
                self._storage.append(handle, line)
                try:
                    if sync:
                        self._storage.fsync(handle)
                except OSError:
                    self._must_rewrite = bool(self._unsynced)
                    with contextlib.suppress(OSError):
                        self._storage.ftruncate(handle, size)
                    raise
            finally:
                self._storage.close(handle)
            if sync:
                self._is_all_synced(size + len(line))
                return
            if not self._unsynced:
                self._synced_size = size
            self._unsynced += line
            if owes:
                self._n_owed = len(self._unsynced)

    def _take(self, snapshot: Snapshot) -> None:
        self._position[snapshot.id] = len(self._snapshots)
        self._snapshots.append(snapshot)
        if snapshot.by != "first":
            self._latest.changes |= snapshot.changed

    def _load(self) -> None:
        for path in dict.fromkeys((self._path.with_name(_NEW_NAME), self._path)):
            try:
                content = read_regular(path, _MAX_LOG_BYTES)
            except OSError:
                continue
            self._joins_line = bool(content) and not content.endswith(b"\n")
            for line in content.split(b"\n"):
                # An unreadable line is ignored; it affects only that one snapshot or mark.
                if line.strip():
                    self._take_line(line)
        self._read_latest()

    def _read_latest(self) -> None:
        """Read the files as the newest snapshot has them; without the table of the first one, there are no snapshots."""
        self._latest = Layered({})
        if not self._snapshots:
            return
        place = self._read_stamped()
        if place is None:
            first = self._snapshots[0]
            if isinstance(first.changed, StoredTable):
                try:
                    self._latest = Layered(first.changed.table)
                    self._root_id = _identity(first.changed.facts)
                except OSError as error:
                    _log.warning("the first file snapshot cannot be read", exc_info=error)
                    self._forget_all()
                    return
                place = 0
            else:
                place = -1
        self._base_place = place
        for one in self._snapshots[place + 1 :]:
            self._latest.changes |= one.changed

    def _read_stamped(self) -> int | None:
        """Read the files with their stamps; return the place of the snapshot that they belong to. None if that is impossible."""
        with contextlib.suppress(OSError, ValueError, LookupError):
            facts, folders = read_table(self._path.with_name(_LATEST_NAME))
            place = self._position[str(facts["after"])]
            self._root_id = _identity(facts)
            self._latest = Layered(ManifestTable(folders))
            return place
        return None

    def _forget_all(self) -> None:
        self._snapshots.clear()
        self._position.clear()
        self._marks.clear()
        self._next_marks.clear()
        self._last_marks.clear()
        self._order.clear()
        self._latest = Layered({})
        self._base_place = -1

    def _take_line(self, line: bytes) -> None:
        try:
            value: object = json.loads(line)
        except (ValueError, RecursionError):
            self._lost_line = True
            return
        if not isinstance(value, dict):
            return
        record = cast("dict[str, Any]", value)
        root, uid = record.get("root"), record.get("mark")
        if isinstance(root, str):
            # The last root counts: the folder was moved.
            self.root = root
        elif isinstance(uid, str):
            after = str(record.get("after", ""))
            position = self._position.get(after)
            if not after or (position is None and self._lost_line):
                # If a power cut took the snapshot before it, the next scan finds its changes and adds them here.
                position = len(self._snapshots) - 1
            if position is not None:
                self._set_mark(uid, position, str(record.get("agent", "")))
        elif (snapshot := self._parsed_first(record) or _parsed(record)) is not None:
            self._take(self._continued(snapshot))
            self._lost_line = False

    def _continued(self, snapshot: Snapshot) -> Snapshot:
        """Return a snapshot as it follows those so far: a complete one has the changes since them."""
        if snapshot.by != "first" or not self._snapshots:
            return snapshot
        try:
            before = self.manifest_at(self._snapshots[-1])
            gone = dict.fromkeys(path for path in before if path not in snapshot.changed)
        except OSError:
            self._forget_all()
            return snapshot
        changed = {path: one for path, one in snapshot.changed.items() if before.get(path) != one}
        return replace(snapshot, by="other", changed=gone | changed)

    def _parsed_first(self, record: Mapping[str, Any]) -> Snapshot | None:
        """Parse the record of a first snapshot with its files in a table; None if it is none."""
        name = record.get("table")
        if not isinstance(name, str) or not _TABLE.fullmatch(name):
            return None
        with contextlib.suppress(ValueError, KeyError, TypeError):
            said = (str(record["id"]), float(record["at"]))
            table = StoredTable(self._path.with_name(name), self._in_memory)
            # The records before this one could not be read.
            self._forget_all()
            return Snapshot(*said, "first", table, str(record.get("note", "")))
        return None

    def _in_memory(self) -> Folders:
        base = self._latest.base
        return base.folders if isinstance(base, ManifestTable) else {}


def share_stamps(log: Path, other: Path) -> bool:
    """Give a log the stored stamps of another one, which has the same records if both are copies of one; return whether it could.

    Args:
        log: the path of the log with the stamps.
        other: the path of the other one, which no process has open.
    """
    try:
        if not all(
            _content(log.with_name(name)) == _content(other.with_name(name))
            for name in dict.fromkeys((_NEW_NAME, log.name))
        ):
            return False
        table = other.with_name(_LATEST_NAME)
        table.unlink(missing_ok=True)
        # A table is never written again, only replaced.
        os.link(log.with_name(_LATEST_NAME), table)
    except OSError:
        return False
    return True


def _content(path: Path) -> bytes:
    try:
        return read_regular(path, _MAX_LOG_BYTES)
    except FileNotFoundError:
        return b""


def _identity(facts: Mapping[str, Any]) -> list[int]:
    """Return device and inode of a table's work folder; nothing if they are not known."""
    root: object = facts.get("root")
    if not isinstance(root, list):
        return []
    return [one for one in cast("list[object]", root) if isinstance(one, int)]


def _head(snapshot: Snapshot) -> dict[str, Any]:
    return {
        "id": snapshot.id,
        "at": snapshot.at,
        "by": snapshot.by,
        # Versions that know only one agent read `by`.
        **({"author": snapshot.author} if snapshot.author else {}),
        "note": snapshot.note,
    }


def _stored(snapshot: Snapshot) -> dict[str, Any]:
    return {
        **_head(snapshot),
        "changed": {
            path: None if entry is None else stored_entry(entry)
            for path, entry in snapshot.changed.items()
        },
    }


def stored_entry(entry: ManifestEntry) -> list[object]:
    """Return an entry as it is stored."""
    return [entry.kind, entry.blob, entry.mode, entry.size]


def parse_entry(value: object) -> ManifestEntry:
    """Parse a stored entry.

    Raises:
        ValueError: the value is no entry.
        TypeError: the value is no entry.
    """
    kind, blob, mode, size = cast("list[Any]", value)
    entry = ManifestEntry(cast("Kind", str(kind)), str(blob), permission_bits(int(mode)), int(size))
    if entry.kept and not _BLOB.fullmatch(entry.blob):
        raise ValueError("the name of a stored file is missing")
    return entry


def parse_path(value: object, *said: ManifestEntry | None) -> str:
    """Parse a stored path. It is not trusted, so it is checked like a path from a model.

    Args:
        value: the stored value.
        said: the entries of the path.

    Raises:
        ValueError: the path leads to nothing that a scan could find below the work folder.
    """
    path = str(value)
    *folders, name = path.split("/")
    # Paths of version control, and `REST`, may only occur as remarks.
    is_named_only = not any(one is not None and one.is_known for one in said)
    names = folders if is_named_only and name in (REST, *ALWAYS) else [*folders, name]
    if "\0" in path or not {"", ".", ".."}.isdisjoint(names):
        raise ValueError("a path leads outside the work folder")
    if any(map(is_of_version_control, names)):
        raise ValueError("a path belongs to version control")
    return path


def _parsed(record: Mapping[str, Any]) -> Snapshot | None:
    """Parse a record of the file; None if it is no snapshot."""
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

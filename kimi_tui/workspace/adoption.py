"""Takes the snapshots of a copy of a session into the session itself, as a detour of its log: there to the files of the copy, and back.

A log is one chain of differences whose last state is the work folder, so the states of a future cannot simply follow. `detour`
puts them between two snapshots: the first goes from the present files to those with which the future began, the last one back. Both
are called a restore, since the files are not touched and the changes are nobody's. So every reader of the log, also of an earlier
version, finds the files of each checkpoint of the future, and a restore of them tells the changes of others from the agent's.

`difference_plan` and `steps_onto` are for copies that are no line of their own, as those of several agents that write at once: each
difference is applied when its copy ends, in order, and what differs by then is a conflict. The log is then as if the agent had worked
in the folder itself, after the differences that came before its own.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from pathlib import Path

from kimi_tui.filesystem import open_folder
from kimi_tui.workspace.file_table import FileRows, Folders, folders_of, table_of
from kimi_tui.workspace.manifest import Manifest, ManifestEntry, ancestors
from kimi_tui.workspace.restore import CHANGED_OUTSIDE_TOO, FileChange, FileFate, as_file
from kimi_tui.workspace.scan import stamp_from
from kimi_tui.workspace.snapshots import (
    ANY_ROOT,
    FOREIGN,
    By,
    CheckpointMark,
    Snapshot,
    SnapshotLog,
    delta,
    new_id,
    share_stamps,
)


def detour(log: SnapshotLog, copied: SnapshotLog, since: str) -> list[Snapshot | CheckpointMark]:
    """Return the records to add to a log: the snapshots and checkpoints that only a copy of it has, and the way back.

    Args:
        log: the log; its newest snapshot has the files as they are.
        copied: the log of the copy, which went on by itself.
        since: the snapshot of the files with which the copy began.

    Returns:
        nothing if the log has them already, or the copy has nothing of its own.
    """
    common = next((one for one in reversed(copied.snapshots) if log.get(one.id) is not None), None)
    if common is None or log.last is None:
        return []
    place = copied.place(common)
    own = list(copied.snapshots[place + 1 :])
    new = [one for one in copied.marks if one[0] >= 0 and log.marked_at(one[1].uid) < 0]
    # A step that was made again has the files of one that the log knows, too.
    again: list[Snapshot | CheckpointMark] = [
        mark for at, mark in new if at < place and log.get(mark.after) is not None
    ]
    marks = [one for one in new if one[0] >= place]
    if not marks:
        return again
    now, files = log.latest, dict(copied.manifest_at(common).items())
    # Files that no snapshot has (ignored folders, secrets) look different where only a part of them is shared, and are not restored.
    unseen = {path for path, entry in now.items() if not entry.is_known}
    first = min(after for after, _ in marks)
    begun = own[: first - place]
    for one in begun:
        _apply(files, one.changed)
    paths = {*log.changed_since(common), *(path for one in begun for path in one.changed)}
    there = delta(now, files, paths - unseen)
    records = [*again, Snapshot(new_id(), time.time(), "restore", there)]
    changed = set(there)
    waiting = list(marks)
    for at in range(first, len(copied.snapshots)):
        if at > first:
            one = copied.snapshots[at]
            seen = {path: e for path, e in one.changed.items() if path not in unseen}
            records.append(replace(one, changed=seen))
            changed.update(seen)
            _apply(files, seen)
        while waiting and waiting[0][0] == at:
            records.append(waiting.pop(0)[1]._replace(after=""))
    back = delta(files, now, changed)
    return [*records, *_way_back(log, log.get(since) or common, back)]


def _way_back(
    log: SnapshotLog, begun: Snapshot, back: Mapping[str, ManifestEntry | None]
) -> list[Snapshot]:
    """Return the snapshots that lead back to the present files, in which the changes of others since the beginning are theirs."""
    authors = log.changed_since(begun)
    made_by_others = log.made_by_others(begun)
    of: dict[By, dict[str, ManifestEntry | None]] = {"restore": {}}
    for path, entry in back.items():
        by = authors.get(path, ["restore"])[-1]
        if by not in FOREIGN:
            by = "other" if path in made_by_others else "restore"
        of.setdefault(by, {})[path] = entry
    # An empty one is needed too: it ends the last step of the future.
    return [Snapshot(new_id(), time.time(), by, changed) for by, changed in of.items()]


def _apply(files: dict[str, ManifestEntry], changed: Mapping[str, ManifestEntry | None]) -> None:
    for path, entry in changed.items():
        if entry is None:
            files.pop(path, None)
        else:
            files[path] = entry


def difference_plan(copied: SnapshotLog, begun: Snapshot, now: Manifest) -> list[FileChange]:
    """Plan to bring what a copy changed since its beginning, and nothing else, into the work folder; ordered by path.

    Args:
        copied: the log of the copy.
        begun: the snapshot with whose files it began.
        now: a fresh scan of the work folder. A file that differs there from its beginning is a conflict, unless it is as the
            copy has it already.
    """
    before, end = copied.manifest_at(begun), copied.latest
    changes: list[FileChange] = []
    folders: AbstractSet[str] | None = None
    for path in sorted(copied.changed_since(begun)):
        was, then, there = (as_file(files.get(path)) for files in (before, end, now))
        if _is_new_folder(path, before, end, now):
            changes.append(FileChange(path, "create", None, end[path]))
            continue
        kept = [one for one in (was, then, there) if one is not None]
        if was == then or then == there or not all(one.kept for one in kept):
            continue
        would: FileFate = "create" if there is None else "delete" if then is None else "restore"
        stays = ""
        if then is None and "/" in path:
            folders = folders if folders is not None else folders_of(end)
            stays = next((folder for folder in ancestors(path) if folder in folders), "")
        if there == was:
            changes.append(FileChange(path, would, there, then, stays=stays))
        else:
            why = CHANGED_OUTSIDE_TOO
            changes.append(FileChange(path, "conflict", there, then, why, would, stays))
    return changes


def _is_new_folder(path: str, before: Manifest, end: Manifest, now: Manifest) -> bool:
    """Return whether a copy made an empty folder where there is nothing."""
    entry = end.get(path)
    is_made = entry is not None and entry.kind == "folder"
    return is_made and path not in before and path not in now and path not in folders_of(now)


def steps_onto(
    log: SnapshotLog, copied: SnapshotLog, begun: Snapshot, taken: Collection[str], agent: str
) -> list[Snapshot | CheckpointMark]:
    """Return the records to add to a log for the steps of a copy whose difference was applied: its checkpoints, and between them its
    snapshots with the paths that were taken.

    What an interrupted application brought before is taken back first, in the log alone, so that the checkpoints have it as changes.

    Args:
        log: the log; its newest snapshot has the files without the difference.
        copied: the log of the copy.
        begun: the snapshot with whose files the copy began.
        taken: the paths that are in the work folder as the copy left them.
        agent: the agent that worked in the copy.
    """
    place, before, now = copied.place(begun), copied.manifest_at(begun), log.latest
    records: list[Snapshot | CheckpointMark] = []
    if reset := delta(now, before, taken):
        records.append(Snapshot(new_id(), time.time(), "restore", reset))
    new = (one for one in copied.marks if log.marked_at(one[1].uid) < 0)
    waiting = [one for one in new if one[0] >= place]
    for at in range(place, len(copied.snapshots)):
        one = copied.snapshots[at]
        changed = {path: entry for path, entry in one.changed.items() if path in taken}
        if at > place and changed:
            # In a copy nobody but its agent changes anything.
            records.append(replace(one, by="agent", changed=changed, author=agent))
        while waiting and waiting[0][0] == at:
            records.append(CheckpointMark(waiting.pop(0)[1].uid, agent))
    return records


def hand_over_stamps(copies: Sequence[Path], base: Path, files: Manifest) -> None:
    """Store the stamps of a frozen folder for the logs of copies, so that their first scans read only what differs.

    An overlay shows the files of its lower folder with their own times and inodes.

    Args:
        copies: the paths of the copies' logs, which no process has open.
        base: the frozen folder; `files` are its files.

    Raises:
        OSError: the disk refused.
    """
    frozen = table_of(files)
    # Copies of one session have the same rows, for which the folder is read once.
    known: dict[str, tuple[FileRows, FileRows]] = {}
    for place, path in enumerate(copies):
        if place and share_stamps(copies[0], path):
            continue
        copied = SnapshotLog(path)
        found: Folders = {}
        for above, folder in table_of(copied.latest).items():
            rows, stamped = known.get(above, (None, folder.rows))
            if rows != folder.rows:
                there = frozen[above].rows if above in frozen else FileRows()
                differing = folder.rows.differing(there)
                stamped = _restamped(folder.rows, base / above, differing)
                known[above] = folder.rows, stamped
            found[above] = replace(folder, rows=stamped, trusted=False)
        copied.keep_stamps(found, ANY_ROOT)


def _restamped(rows: FileRows, folder: Path, differing: Collection[str]) -> FileRows:
    """Return rows with the stamps of the files in a folder, but for those that differ there."""
    try:
        there = open_folder(folder, ())
    except OSError:
        return rows.restamped(lambda _: None)

    def stamp(name: str) -> tuple[int, ...] | None:
        if name in differing:
            return None
        try:
            return stamp_from(os.stat(name, dir_fd=there, follow_symlinks=False))
        except OSError:
            return None

    try:
        return rows.restamped(stamp)
    finally:
        os.close(there)


def contents_of(records: Iterable[Snapshot | CheckpointMark]) -> dict[str, ManifestEntry]:
    """Return the entries with contents in some records, by the names of the contents."""
    return {
        entry.blob: entry
        for one in records
        if isinstance(one, Snapshot)
        for entry in one.changed.values()
        if entry is not None and entry.kept
    }

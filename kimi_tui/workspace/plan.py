"""What it takes to make the files what they were, path by path: a plan that can be shown before anything is touched."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from kimi_tui.workspace.entries import Entry, Kind, Manifest, ancestors, was_looked_for
from kimi_tui.workspace.snapshots import FOREIGN, By

Change = Literal["restore", "create", "delete", "conflict", "skip"]

CHANGED_OUTSIDE = "also changed outside"
CHANGED_AFTERWARDS = "changed again since"

_WHY_NOT: Mapping[Kind, str] = {
    "file": "",
    "link": "",
    "folder": "",
    "ignored": "ignored",
    "large": "too large",
    "unreadable": "cannot be read",
    "special": "not a regular file",
    "over": "over the limits",
}


@dataclass(frozen=True, slots=True)
class FileChange:
    """What a restore would do to one path. `now` and `then` are None where there is no file.

    `reason` is for the person, in a few words. `would` is what a `conflict` becomes if the person chooses it. `stays` is the
    deepest folder above it that was there then: no folder from there upwards goes with a deleted file.
    """

    path: str
    change: Change
    now: Entry | None
    then: Entry | None
    reason: str = ""
    would: Change = "skip"
    stays: str = ""


@dataclass(frozen=True, slots=True)
class RestorePlan:
    """What a restore would do. `reason` says why nothing can be brought back at all, empty where it can.

    `not_covered` are paths that no snapshot holds, each with the reason; `remarks` are sentences for the person.
    """

    changes: tuple[FileChange, ...] = ()
    not_covered: tuple[tuple[str, str], ...] = ()
    remarks: tuple[str, ...] = ()
    reason: str = ""


def why_not(kind: Kind) -> str:
    """Why a path of this kind is not covered, in a few words."""
    return _WHY_NOT[kind]


def plan_to(
    then: Manifest, now: Manifest, changed_by: Mapping[str, Collection[By]]
) -> list[FileChange]:
    """What it takes to make the files of `now` those of `then`, path by path in order.

    Args:
        then: the manifest to go back to.
        now: a fresh scan.
        changed_by: who changed each path since (paths not in it are the same); anyone but the agent makes it a conflict.
    """
    changes: list[FileChange] = []
    folders: frozenset[str] | None = None
    for path in sorted(changed_by):
        before, after = _file(now.get(path)), _file(then.get(path))
        if before == after:
            continue
        reason = _not_covered(path, before, after, then, now)
        if reason is not None:
            if reason:
                changes.append(FileChange(path, "skip", before, after, reason))
            continue
        stays = ""
        if after is None and "/" in path:
            folders = folders if folders is not None else _folders_of(then)
            stays = next((folder for folder in ancestors(path) if folder in folders), "")
        would = _would(before, after)
        if FOREIGN.isdisjoint(changed_by[path]):
            changes.append(FileChange(path, would, before, after, stays=stays))
        else:
            changes.append(
                FileChange(path, "conflict", before, after, CHANGED_OUTSIDE, would, stays)
            )
    return changes


def plan_back(
    before_it: Manifest, after_it: Manifest, now: Manifest, paths: Iterable[str]
) -> list[FileChange]:
    """What it takes to reverse a restore: its own paths, and only where they still hold what it wrote.

    Args:
        before_it: the files before the restore.
        after_it: the files after it.
        now: a fresh scan.
        paths: what the restore touched.
    """
    changes: list[FileChange] = []
    folders = _folders_of(before_it)
    for path in sorted(set(paths)):
        then, wrote, found = (_file(manifest.get(path)) for manifest in (before_it, after_it, now))
        if then in (wrote, found):
            continue
        reason = _not_covered(path, found, then, before_it, now)
        if reason is not None:
            changes.append(FileChange(path, "skip", found, then, reason or "not covered"))
            continue
        stays = next((folder for folder in ancestors(path) if folder in folders), "")
        would = _would(found, then)
        if found == wrote:
            changes.append(FileChange(path, would, found, then, stays=stays))
        else:
            changes.append(
                FileChange(path, "conflict", found, then, CHANGED_AFTERWARDS, would, stays)
            )
    return changes


def _not_covered(
    path: str, before: Entry | None, after: Entry | None, then: Manifest, now: Manifest
) -> str | None:
    """Why nothing can be done about a path: a reason to name, empty for one that nobody misses; None where it can."""
    remark = next((one for one in (after, before) if one is not None and not one.kept), None)
    if remark is not None:
        is_missed = (before is not None and before.kept) or (after is not None and after.kept)
        return why_not(remark.kind) if is_missed else ""
    if after is None and not was_looked_for(then, path):
        return "was not covered then"
    if before is None and not was_looked_for(now, path):
        return "is not covered now"
    return None


def _would(before: Entry | None, after: Entry | None) -> Change:
    if after is None:
        return "delete"
    return "create" if before is None else "restore"


def _file(entry: Entry | None) -> Entry | None:
    """An empty folder is no file."""
    return None if entry is None or entry.kind == "folder" else entry


def _folders_of(manifest: Manifest) -> frozenset[str]:
    folders = {path for path, entry in manifest.items() if entry.kind == "folder"}
    for path in manifest:
        for folder in ancestors(path):
            if folder in folders:
                break
            folders.add(folder)
    return frozenset(folders)

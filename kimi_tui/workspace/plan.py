"""What it takes to make the files what they were, path by path: a plan that can be shown before anything is touched."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from kimi_tui.workspace.entries import REST, Entry, Kind, Manifest, ancestors, was_looked_for
from kimi_tui.workspace.ignore import ALWAYS
from kimi_tui.workspace.snapshots import FOREIGN, By

Change = Literal["restore", "create", "delete", "conflict", "skip"]

CHANGED_OUTSIDE = "also changed outside"
CHANGED_OUTSIDE_BEFORE = "also changed outside before"
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

    `reason` is for the person, in a few words; where it is given the person is asked, also where it is no conflict: someone
    else had changed the file, and then the agent. `would` is what a `conflict` becomes if the person chooses it. `stays` is
    the deepest folder above it that was there then: no folder from there upwards goes with a deleted file.
    """

    path: str
    change: Change
    now: Entry | None
    then: Entry | None
    reason: str = ""
    would: Change = "skip"
    stays: str = ""

    @property
    def only_rights(self) -> bool:
        """Whether the contents are the same, and only the permission bits differ."""
        now, then = self.now, self.then
        return (
            now is not None
            and then is not None
            and (now.kind, now.blob) == (then.kind, then.blob)
            and now.mode != then.mode
        )


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
    then: Manifest,
    now: Manifest,
    changed_by: Mapping[str, Sequence[By]],
    made_by_others: Collection[str],
) -> list[FileChange]:
    """What it takes to make the files of `now` those of `then`, path by path in order.

    Args:
        then: the manifest to go back to.
        now: a fresh scan.
        changed_by: who changed each path since, in that order (paths not in it are the same). A file that someone else
            changed after the agent is a conflict.
        made_by_others: what is not deleted unasked: the files that someone else made since.
    """
    changes: list[FileChange] = []
    folders: frozenset[str] | None = None
    for path in sorted(changed_by):
        before, after = as_file(now.get(path)), as_file(then.get(path))
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
        by = changed_by[path]
        if by[-1] in FOREIGN or (after is None and path in made_by_others):
            changes.append(
                FileChange(path, "conflict", before, after, CHANGED_OUTSIDE, would, stays)
            )
        else:
            said = "" if FOREIGN.isdisjoint(by) else CHANGED_OUTSIDE_BEFORE
            changes.append(FileChange(path, would, before, after, said, stays=stays))
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
        then, wrote, found = (
            as_file(manifest.get(path)) for manifest in (before_it, after_it, now)
        )
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


def left_out(root: Path, now: Manifest) -> tuple[tuple[str, str], ...]:
    """Where nobody looked, as a person reads it, each with the reason.

    Args:
        root: the work folder.
        now: a fresh scan of it.
    """
    found: list[tuple[str, str]] = []
    for path, entry in now.items():
        name = path.rpartition("/")[2]
        if entry.is_known or name in ALWAYS:
            continue
        shown = f"{path[: -len(REST)]}…" if name == REST else path
        if name != REST and (root / path).is_dir():
            shown += "/"
        found.append((shown, why_not(entry.kind)))
    return tuple(sorted(found))


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


def as_file(entry: Entry | None) -> Entry | None:
    """What a path holds as a file: an empty folder is none."""
    return None if entry is None or entry.kind == "folder" else entry


def _folders_of(manifest: Manifest) -> frozenset[str]:
    folders = {path for path, entry in manifest.items() if entry.kind == "folder"}
    for path in manifest:
        for folder in ancestors(path):
            if folder in folders:
                break
            folders.add(folder)
    return frozenset(folders)

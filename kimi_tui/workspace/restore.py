"""Restores files from snapshots: makes a plan for each path, which can be previewed, and carries it out.

Each file is checked before and after it is changed; a file that differs from what the plan saw is not overwritten. The
intent is on the disk before the first write, so that an interrupted restore is finished at the next start.
"""

from __future__ import annotations

import contextlib
import errno
import hmac
import json
import os
import stat
from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

from kimi_tui.app_paths import bare_reason
from kimi_tui.filesystem import (
    Storage,
    create_file,
    discard,
    open_folder,
    open_regular,
    publish,
    read_regular,
    restoring_name,
    sync_folder,
)
from kimi_tui.workspace.file_table import ManifestTable, Stamp, folders_of
from kimi_tui.workspace.ignore import is_of_version_control
from kimi_tui.workspace.manifest import (
    REST,
    Kind,
    Limits,
    Manifest,
    ManifestEntry,
    ancestors,
    permission_bits,
    was_looked_for,
)
from kimi_tui.workspace.protected_names import secrets
from kimi_tui.workspace.scan import settled_stamp, stamp_of
from kimi_tui.workspace.snapshots import FOREIGN, By, new_id, parse_entry, parse_path, stored_entry
from kimi_tui.workspace.store import BlobDamaged, BlobStore, hash_of, read_whole

FileFate = Literal["restore", "create", "delete", "conflict", "skip"]
"""The effect of a restore on one file: it gets its old contents, is created again, is deleted, or stays unchanged: as a
`conflict` because somebody else changed it too, or as a `skip` because no snapshot has it.
"""

CHANGED_OUTSIDE = "changed outside kimi-tui"
CHANGED_OUTSIDE_TOO = "also changed outside kimi-tui"
CHANGED_BESIDE_JOB = "changed during a background task"
CHANGED_BESIDE_JOB_BEFORE = "also changed during a background task"
CHANGED_AFTERWARDS = "changed again since then"

_WHY_NOT: Mapping[Kind, str] = {
    "file": "",
    "link": "",
    "folder": "",
    "ignored": "ignored",
    "large": "too large",
    "unreadable": "cannot be read",
    "special": "not a regular file",
    "over": "over the size limit",
    "secret": "may contain secrets",
}


_MAX_INTENT_BYTES = 64 << 20
_MAX_FILE_BYTES = Limits().max_file_bytes
CHANGED_MEANWHILE = "changed during the restore; kept"
SECRET = "not restored, because it may contain secrets; to restore it, choose it in the preview of a rewind"
RUN_BY_OTHERS = "not restored, because other programs run it or read settings from it; to restore it, choose it in the preview of a rewind"
_KEY_BYTES = 32
_CLOCK_S = 2.0
"""Seconds by which the times of files may be behind the clock: FAT stores only even seconds."""


@dataclass(frozen=True, slots=True)
class FileChange:
    """The planned change of one path. `now` and `then` are None if there is no file.

    `reason` tells the user in a few words why the path needs attention; with a reason the user is asked, even without a
    conflict (somebody else had changed the file before the agent did). `would` is the change that a `conflict` becomes if the
    user chooses it. `stays` is the deepest folder above the path that existed then: deleting the file removes neither this
    folder nor any above it.
    """

    path: str
    change: FileFate
    now: ManifestEntry | None
    then: ManifestEntry | None
    reason: str = ""
    would: FileFate = "skip"
    stays: str = ""

    @property
    def only_rights(self) -> bool:
        """Whether only the permission bits differ, and the contents are the same."""
        now, then = self.now, self.then
        return (
            now is not None
            and then is not None
            and (now.kind, now.blob) == (then.kind, then.blob)
            and now.mode != then.mode
        )


@dataclass(frozen=True, slots=True)
class RestorePlan:
    """The planned restore. `reason` says why nothing can be restored at all; empty if something can.

    `not_covered` are paths that no snapshot holds, each with its reason; `remarks` are sentences for the user.
    """

    changes: tuple[FileChange, ...] = ()
    not_covered: tuple[tuple[str, str], ...] = ()
    remarks: tuple[str, ...] = ()
    reason: str = ""


def why_not(kind: Kind) -> str:
    """Say in a few words why a path of this kind is not covered."""
    return _WHY_NOT[kind]


def plan_to(
    then: Manifest,
    now: Manifest,
    changed_by: Mapping[str, Sequence[By]],
    made_by_others: Collection[str],
) -> list[FileChange]:
    """Plan the changes that turn the files of `now` into those of `then`, ordered by path.

    Args:
        then: the manifest to restore.
        now: a fresh scan.
        changed_by: who changed each path since, in order of time (paths not in it are unchanged). A file that somebody else
            changed after the agent is a conflict.
        made_by_others: the files that somebody else created since, which are not deleted without asking.
    """
    changes: list[FileChange] = []
    folders: AbstractSet[str] | None = None
    present = folders_of(now)
    for path in sorted(changed_by):
        before, after = as_file(now.get(path)), as_file(then.get(path))
        if before is None and path not in present and _was_empty_folder(path, then):
            after = then[path]
        if before == after:
            continue
        reason = _not_covered(path, before, after, then, now)
        if reason is not None:
            # The folder's files were left out then and are scanned now, so they are planned one by one.
            reason = reason or ("" if path in present else _lost(path, before, after))
            if reason:
                changes.append(FileChange(path, "skip", before, after, reason))
            continue
        stays = ""
        if after is None and "/" in path:
            folders = folders if folders is not None else folders_of(then)
            stays = next((folder for folder in ancestors(path) if folder in folders), "")
        would = _would(before, after)
        by = changed_by[path]
        if by[-1] in FOREIGN or (after is None and path in made_by_others):
            said = CHANGED_OUTSIDE if FOREIGN.issuperset(by) else CHANGED_OUTSIDE_TOO
            if all(one == "job" for one in by if one in FOREIGN):
                said = CHANGED_BESIDE_JOB
            changes.append(FileChange(path, "conflict", before, after, said, would, stays))
        else:
            said = "" if FOREIGN.isdisjoint(by) else CHANGED_OUTSIDE_TOO
            if said and all(one == "job" for one in by if one in FOREIGN):
                said = CHANGED_BESIDE_JOB_BEFORE
            changes.append(FileChange(path, would, before, after, said, stays=stays))
    return changes


def plan_back(
    before_it: Manifest, after_it: Manifest, now: Manifest, paths: Iterable[str]
) -> list[FileChange]:
    """Plan the reversal of a restore: only its own paths, and only if they still have the contents that it wrote.

    Args:
        before_it: the files before the restore.
        after_it: the files after it.
        now: a fresh scan.
        paths: the paths that the restore changed.
    """
    changes: list[FileChange] = []
    folders = folders_of(before_it)
    for path in sorted(set(paths)):
        then, wrote, found = (
            as_file(manifest.get(path)) for manifest in (before_it, after_it, now)
        )
        if then in (wrote, found):
            continue
        reason = _not_covered(path, found, then, before_it, now)
        if reason is not None:
            changes.append(FileChange(path, "skip", found, then, reason or "no snapshot"))
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


def left_out(root: Path, now: ManifestTable, since: float) -> tuple[tuple[str, str], ...]:
    """Return the paths that were not scanned, in readable form, each with its reason. It looks at files.

    Files that are unchanged since are not listed; a folder is always listed, as changes in it are not known.

    Args:
        root: the work folder.
        now: a fresh scan of it.
        since: the time of the state to be restored, in seconds since the epoch.
    """
    found: list[tuple[str, str]] = []
    for path, entry in now.omitted():
        name = path.rpartition("/")[2]
        if is_of_version_control(name):
            continue
        shown = f"{path[: -len(REST)]}…" if name == REST else path
        if name != REST:
            try:
                status = os.lstat(root / path)
            except OSError:
                continue
            if stat.S_ISDIR(status.st_mode):
                shown += "/"
            elif max(status.st_mtime, status.st_ctime) < since - _CLOCK_S:
                continue
        found.append((shown, why_not(entry.kind)))
    return tuple(sorted(found))


def _not_covered(
    path: str,
    before: ManifestEntry | None,
    after: ManifestEntry | None,
    then: Manifest,
    now: Manifest,
) -> str | None:
    """Say why a path cannot be restored: the reason (empty if it need not be shown); None if it can be restored."""
    remark = next((one for one in (after, before) if one is not None and not one.is_known), None)
    if remark is None and after is not None and secrets().rule_in(path.split("/")):
        # The file may have been kept before its name was on a list, or by another program; a scan would not see it once it
        # is restored.
        remark = ManifestEntry("secret")
    if remark is not None:
        is_missed = (before is not None and before.kept) or (after is not None and after.kept)
        return why_not(remark.kind) if is_missed else ""
    if after is None and not was_looked_for(then, path):
        return "there was no snapshot of it at that time"
    if before is None and not was_looked_for(now, path):
        return "there is no snapshot of its current content"
    return None


def _lost(path: str, before: ManifestEntry | None, after: ManifestEntry | None) -> str:
    """Say why a file is gone or was replaced although no snapshot ever held its contents; empty if neither is so."""
    if after is None or after.is_known or path.rpartition("/")[2] == REST:
        return ""
    if is_of_version_control(path.rpartition("/")[2]):
        return ""
    if before is None:
        return f"deleted; {why_not(after.kind)}"
    return why_not(after.kind) if before.kind == after.kind == "large" else ""


def _was_empty_folder(path: str, then: Manifest) -> bool:
    entry = then.get(path)
    is_of_git = any(map(is_of_version_control, path.split("/")))
    return entry is not None and entry.kind == "folder" and not is_of_git


def stands(entry: ManifestEntry | None, then: ManifestEntry | None) -> bool:
    """Return whether a scan found the state at a path that a restore should bring there."""
    return entry == then or as_file(entry) == then


def _would(before: ManifestEntry | None, after: ManifestEntry | None) -> FileFate:
    if after is None:
        return "delete"
    return "create" if before is None else "restore"


def as_file(entry: ManifestEntry | None) -> ManifestEntry | None:
    """Return the entry of a path if it is a file; an empty folder is not one."""
    return None if entry is None or entry.kind == "folder" else entry


@dataclass(frozen=True, slots=True)
class Intent:
    """A restore that is about to happen. `before` and `after` name the snapshots around it.

    `session` is the folder of the session whose journal names the restore, relative to that of the snapshots; empty if these
    are its own.
    """

    before: str
    after: str
    changes: tuple[FileChange, ...]
    session: str = ""
    seal: str = ""
    """The proof that this program noted the intent, see `seal_of`; in an intent that was read, the seal found in the file."""

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths that the restore changes."""
        return tuple(one.path for one in self.changes)

    @property
    def created(self) -> frozenset[str]:
        """The paths that do not exist before the restore."""
        return frozenset(one.path for one in self.changes if one.now is None)


@dataclass(frozen=True, slots=True)
class PreparedRestore:
    """A restore whose intent is on the disk. `left` are conflicts that were not chosen, `stale` the paths that changed since the plan."""

    intent: Intent
    left: tuple[str, ...] = ()
    stale: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Restored:
    """The result of a restore. `failed` maps a path to the reason why it is not as planned; the restore succeeded if it is empty."""

    restored: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
    failed: Mapping[str, str] | None = None

    @property
    def failures(self) -> Mapping[str, str]:
        """The paths that are not as planned, with the reasons."""
        return self.failed or {}


def carry_out(root: Path, store: BlobStore, changes: Collection[FileChange]) -> Restored:
    """Carry out the plan. Each path either gets its planned state or stays unchanged, with a reason.

    Args:
        root: the work folder.
        store: the store of the contents.
        changes: the planned changes; `skip` and `conflict` are ignored.
    """
    wanted = [one for one in changes if one.change in ("restore", "create", "delete")]
    restored: list[str] = []
    deleted: list[str] = []
    failed: dict[str, str] = {}
    # Deletions come first: a file may stand in the place of a needed folder, or a folder in that of a file.
    for one in sorted(wanted, key=lambda one: (one.then is not None, one.path)):
        try:
            _bring(root, store, one)
        except OSError as error:
            failed[one.path] = bare_reason(error).lower()
        except BlobDamaged as error:
            failed[one.path] = str(error)
        except _ChangedSince:
            failed[one.path] = CHANGED_MEANWHILE
        else:
            (deleted if one.then is None else restored).append(one.path)
    for folder in {os.path.dirname(root / one.path) for one in wanted}:
        # Some mounts refuse to sync folders; the files are safe even then.
        with contextlib.suppress(OSError):
            sync_folder(folder)
    return Restored(tuple(restored), tuple(deleted), failed)


class _ChangedSince(Exception):
    """The path no longer has the state that the plan saw."""


def _bring(root: Path, store: BlobStore, one: FileChange) -> None:
    with _parent(root, one.path, create=one.then is not None) as folder:
        name = one.path.rpartition("/")[2]
        if folder is None:
            return
        if one.then is not None and one.then.kind == "folder":
            _make_folder(name, folder)
            return
        temporary = restoring_name(one.then.blob) if one.then else ""
        if temporary:
            # An interrupted restore may have left its temporary file.
            discard(temporary, folder)
        if one.now is None and one.then is not None:
            # An empty folder in the file's place is removed; removing any other folder fails.
            with contextlib.suppress(OSError):
                os.rmdir(name, dir_fd=folder)
        stamp = settled_stamp(name, folder)
        found = current(name, folder)
        if found == one.then:
            return
        if found != one.now:
            raise _ChangedSince
        if one.then is None:
            _check_still(name, folder, stamp, one)
            os.unlink(name, dir_fd=folder)
            _drop_empty_folders(root, one)
            return
        _write(name, temporary, store.get(one.then.blob, one.then.size), one, folder, stamp)
        if current(name, folder) != one.then:
            raise OSError(
                errno.EIO,
                "after the restore the file has other contents; another program may have changed it",
            )


def _make_folder(name: str, folder: int) -> None:
    """Create an empty folder; one that exists already may stay."""
    try:
        os.mkdir(name, dir_fd=folder)
    except FileExistsError as error:
        if not stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            raise _ChangedSince from error


def _check_still(name: str, folder: int, stamp: Stamp | None, one: FileChange) -> None:
    """Check that a path still has the state that the plan saw, just before it is replaced: what somebody wrote since it was read
    would be lost.

    Args:
        name: the name in the open folder.
        folder: the folder.
        stamp: its `settled_stamp` before it was read.
        one: the planned change.

    Raises:
        _ChangedSince: it has another one.
    """
    if (stamp is None or stamp_of(name, folder) != stamp) and current(name, folder) != one.now:
        raise _ChangedSince


def _write(
    name: str, temporary: str, content: bytes, one: FileChange, folder: int, stamp: Stamp | None
) -> None:
    if one.then is not None and one.then.kind == "link":
        os.symlink(os.fsdecode(content), temporary, dir_fd=folder)
    else:
        mode = one.then.mode if one.then else 0o600
        replaces = name if one.now is not None and one.now.kind == "file" else ""
        create_file(temporary, folder, content, mode=mode, replaces=replaces)
    try:
        _check_still(name, folder, stamp, one)
    except BaseException:
        discard(temporary, folder)
        raise
    try:
        publish(temporary, name, folder, replace=one.now is not None)
    except FileExistsError as error:
        raise _ChangedSince from error


def current(name: str, folder: int | None = None) -> ManifestEntry | None:
    """Read the entry of a name in an open folder; None if there is nothing.

    Raises:
        OSError: the name cannot be read.
    """
    return current_content(name, folder)[0]


def current_content(name: str, folder: int | None = None) -> tuple[ManifestEntry | None, bytes]:
    """Read the entry of a name, and its contents; None for the entry of contents that are too large to be kept.

    Raises:
        OSError: the name cannot be read.
    """
    try:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None, b""
    if stat.S_ISLNK(status.st_mode):
        target = os.fsencode(os.readlink(name, dir_fd=folder))
        return ManifestEntry("link", hash_of(target), 0, len(target)), target
    if not stat.S_ISREG(status.st_mode):
        return ManifestEntry("special"), b""
    if status.st_size > _MAX_FILE_BYTES:
        return ManifestEntry("large", size=status.st_size), b""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    handle = os.open(name, flags, dir_fd=folder)
    try:
        content = read_whole(handle, status.st_size)
    finally:
        os.close(handle)
    entry = ManifestEntry("file", hash_of(content), permission_bits(status.st_mode), len(content))
    return entry, content


@contextlib.contextmanager
def _parent(root: Path, path: str, *, create: bool) -> Generator[int | None]:
    """Open the folder of a path, name by name without following links; None if it does not exist and must not be created."""
    try:
        folder = open_folder(root, path.split("/")[:-1], create=create)
    except (FileNotFoundError, NotADirectoryError) as error:
        if create or error.filename == str(root):
            raise
        # A folder of the path is gone, or a file stands in its place, so the path itself is gone.
        yield None
        return
    try:
        yield folder
    finally:
        os.close(folder)


def _drop_empty_folders(root: Path, one: FileChange) -> None:
    # A folder is only removed if nothing at all is left in it, not even ignored files, and if it did not exist then.
    path = one.path
    while "/" in path:
        path = path.rpartition("/")[0]
        if path == one.stays:
            return
        try:
            with _parent(root, path, create=False) as folder:
                if folder is None:
                    return
                os.rmdir(path.rpartition("/")[2], dir_fd=folder)
        except OSError:
            return


def write_intent(path: Path, intent: Intent) -> None:
    """Write an intent to the disk and sync it.

    Raises:
        OSError: the disk refused.
    """
    body = json.dumps({**_record(intent), "seal": intent.seal})
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    Storage().replace_file(path, body.encode())


def seal_of(intent: Intent, key: bytes, places: Sequence[str]) -> str:
    """Return a message authentication code of an intent, which only the holder of the key can compute.

    Args:
        intent: the intent.
        key: from `seal_key`.
        places: the paths of the intent's file and of the work folder; the code is valid only for these.
    """
    body = json.dumps([*places, _record(intent)])
    return hmac.new(key, body.encode("utf-8", "surrogatepass"), "sha256").hexdigest()


def seal_key(path: Path, *, create: bool) -> bytes:
    """Return the key with which this account seals intents: a file that only its owner can read.

    Args:
        path: the path of the file.
        create: whether to create a missing file.

    Raises:
        OSError: the file is missing, others can read or write it, or the disk refused.
    """
    if create and not os.path.lexists(path):
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            temporary = f"{path.name}.{new_id()}"
            create_file(temporary, folder, os.urandom(_KEY_BYTES), mode=0o600)
            try:
                publish(temporary, path.name, folder, replace=False)
            except FileExistsError:
                discard(temporary, folder)
        finally:
            os.close(folder)
    with open(open_regular(path), "rb") as file:
        status = os.fstat(file.fileno())
        key = file.read(_KEY_BYTES)
    if status.st_uid != os.geteuid() or status.st_mode & 0o077 or len(key) < _KEY_BYTES:
        raise OSError(
            errno.EPERM, "the file is incomplete, or other users could have written it", str(path)
        )
    return key


def _record(intent: Intent) -> dict[str, Any]:
    named = {"session": intent.session} if intent.session else {}
    return named | {
        "before": intent.before,
        "after": intent.after,
        "changes": [
            [
                one.path,
                one.change,
                None if one.now is None else stored_entry(one.now),
                None if one.then is None else stored_entry(one.then),
                one.stays,
            ]
            for one in intent.changes
        ],
    }


def read_intent(path: Path) -> Intent | None:
    """Read the intent of an interrupted restore; None if there is none."""
    try:
        record = cast("dict[str, Any]", json.loads(read_regular(path, _MAX_INTENT_BYTES)))
        changes = tuple(_change_in(row) for row in cast("list[list[Any]]", record["changes"]))
        session, seal = str(record.get("session", "")), str(record.get("seal", ""))
        return Intent(str(record["before"]), str(record["after"]), changes, session, seal)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        # The intent is missing or incomplete, and nothing had been changed then, or it leads to another place.
        return None


def _change_in(row: Sequence[Any]) -> FileChange:
    name, change, *entries, stays = row
    now, then = (None if entry is None else parse_entry(entry) for entry in entries)
    path = parse_path(name, now, then)
    return FileChange(path, cast("FileFate", change), now, then, stays=str(stays))

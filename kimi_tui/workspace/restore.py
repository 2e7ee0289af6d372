"""Carrying out a plan: what is on the disk is looked at once more before it is touched, and again afterwards.

Nothing is overwritten that is not what the plan saw. The intent is on disk before the first write, so a restore that was cut
off is finished at the next start.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
from collections.abc import Collection, Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from kimi_tui.workspace.entries import Entry, permission_bits
from kimi_tui.workspace.packs import sync_folder
from kimi_tui.workspace.plan import Change, FileChange
from kimi_tui.workspace.snapshots import entry_in, entry_out
from kimi_tui.workspace.store import BlobDamaged, BlobStore, hash_of, read_whole

_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NO_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK})
CHANGED_MEANWHILE = "changed meanwhile; left alone"


@dataclass(frozen=True, slots=True)
class Intent:
    """A restore that is about to happen. `before` and `after` name the snapshots around it."""

    before: str
    after: str
    changes: tuple[FileChange, ...]

    @property
    def paths(self) -> tuple[str, ...]:
        """What it touches."""
        return tuple(one.path for one in self.changes)

    @property
    def created(self) -> frozenset[str]:
        """What of it is not there yet."""
        return frozenset(one.path for one in self.changes if one.now is None)


@dataclass(frozen=True, slots=True)
class Prepared:
    """A restore whose intent is on the disk. `left` are conflicts that were not chosen, `stale` what changed since the plan."""

    intent: Intent
    left: tuple[str, ...] = ()
    stale: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Restored:
    """What a restore did. `failed` maps a path to why it is not as planned; the restore succeeded where it is empty."""

    restored: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
    failed: Mapping[str, str] | None = None

    @property
    def failures(self) -> Mapping[str, str]:
        """The paths that are not as planned, and why."""
        return self.failed or {}


def carry_out(root: Path, store: BlobStore, changes: Collection[FileChange]) -> Restored:
    """Do what was planned. Each path either becomes what it should or stays what it is, with the reason.

    Args:
        root: the work folder.
        store: where the contents are.
        changes: what to do; `skip` and `conflict` are passed over.
    """
    wanted = [one for one in changes if one.change in ("restore", "create", "delete")]
    restored: list[str] = []
    deleted: list[str] = []
    failed: dict[str, str] = {}
    # Deletions first: a file may stand where a folder has to be, or the other way round.
    for one in sorted(wanted, key=lambda one: (one.then is not None, one.path)):
        try:
            _bring(root, store, one)
        except OSError as error:
            failed[one.path] = (error.strerror or str(error)).lower()
        except BlobDamaged as error:
            failed[one.path] = str(error)
        except _ChangedSince:
            failed[one.path] = CHANGED_MEANWHILE
        else:
            (deleted if one.then is None else restored).append(one.path)
    for folder in {os.path.dirname(root / one.path) for one in wanted}:
        sync_folder(Path(folder))
    return Restored(tuple(restored), tuple(deleted), failed)


class _ChangedSince(Exception):
    """The path no longer holds what the plan saw."""


def _bring(root: Path, store: BlobStore, one: FileChange) -> None:
    with _parent(root, one.path, create=one.then is not None) as folder:
        name = one.path.rpartition("/")[2]
        if folder is None:
            return
        temporary = f".{one.then.blob[:24]}.restore" if one.then else ""
        if temporary:
            # What a restore that was cut off left behind.
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary, dir_fd=folder)
        if one.now is None and one.then is not None:
            # An empty folder in its place gives way; any other does not let itself be removed.
            with contextlib.suppress(OSError):
                os.rmdir(name, dir_fd=folder)
        found = current(name, folder)
        if found == one.then:
            return
        if found != one.now:
            raise _ChangedSince
        if one.then is None:
            os.unlink(name, dir_fd=folder)
            _drop_empty_folders(root, one)
            return
        _write(name, temporary, store.get(one.then.blob), one, folder)
        if current(name, folder) != one.then:
            raise OSError(errno.EIO, "it does not hold what was written")


def _write(name: str, temporary: str, content: bytes, one: FileChange, folder: int) -> None:
    if one.then is not None and one.then.kind == "link":
        os.symlink(os.fsdecode(content), temporary, dir_fd=folder)
    else:
        _write_new(temporary, content, one.then.mode if one.then else 0o600, folder)
    try:
        if one.now is None and _linked(temporary, name, folder):
            os.unlink(temporary, dir_fd=folder)
        else:
            os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary, dir_fd=folder)
        raise


def _linked(temporary: str, name: str, folder: int) -> bool:
    """Give a new file its name without replacing one that appeared this very moment; False where that is not possible."""
    try:
        os.link(temporary, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
    except FileExistsError as error:
        raise _ChangedSince from error
    except (OSError, NotImplementedError) as error:
        if isinstance(error, OSError) and error.errno not in _NO_LINKS:
            raise
        return False
    return True


def _write_new(name: str, content: bytes, mode: int, folder: int) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    handle = os.open(name, flags, 0o600, dir_fd=folder)
    try:
        view = memoryview(content)
        while view:
            view = view[os.write(handle, view) :]
        os.fchmod(handle, mode)
        os.fsync(handle)
    except OSError:
        os.unlink(name, dir_fd=folder)
        raise
    finally:
        os.close(handle)


def current(name: str, folder: int | None = None) -> Entry | None:
    """The entry of a name in an open folder as it is at this moment, read anew; None where there is nothing.

    Raises:
        OSError: it cannot be read.
    """
    try:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if stat.S_ISLNK(status.st_mode):
        target = os.fsencode(os.readlink(name, dir_fd=folder))
        return Entry("link", hash_of(target), 0, len(target))
    if not stat.S_ISREG(status.st_mode):
        return Entry("special")
    handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    try:
        content = read_whole(handle, status.st_size)
    finally:
        os.close(handle)
    return Entry("file", hash_of(content), permission_bits(status.st_mode), len(content))


@contextlib.contextmanager
def _parent(root: Path, path: str, *, create: bool) -> Generator[int | None]:
    """The folder of a path, opened part by part without following links; None if it is not there and not wanted."""
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in path.split("/")[:-1]:
            try:
                inner = os.open(part, _FOLDER_FLAGS, dir_fd=folder)
            except FileNotFoundError:
                if not create:
                    yield None
                    return
                os.mkdir(part, 0o777, dir_fd=folder)
                inner = os.open(part, _FOLDER_FLAGS, dir_fd=folder)
            except NotADirectoryError:
                if not create:
                    # A file where its folder was: the path itself is gone.
                    yield None
                    return
                raise
            os.close(folder)
            folder = inner
        yield folder
    finally:
        os.close(folder)


def _drop_empty_folders(root: Path, one: FileChange) -> None:
    # A folder is only gone if nothing at all is left in it, also nothing ignored, and if it was not there then.
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
    """Bring an intent to the disk.

    Raises:
        OSError: the disk refused.
    """
    body = json.dumps(
        {
            "before": intent.before,
            "after": intent.after,
            "changes": [
                [
                    one.path,
                    one.change,
                    None if one.now is None else entry_out(one.now),
                    None if one.then is None else entry_out(one.then),
                    one.stays,
                ]
                for one in intent.changes
            ],
        }
    )
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    temporary = path.with_suffix(".tmp")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        view = memoryview(body.encode())
        while view:
            view = view[os.write(handle, view) :]
        os.fsync(handle)
    finally:
        os.close(handle)
    temporary.replace(path)
    sync_folder(path.parent)


def read_intent(path: Path) -> Intent | None:
    """The intent of a restore that was cut off, if there is one."""
    try:
        record = cast("dict[str, Any]", json.loads(path.read_bytes()))
        changes = tuple(
            FileChange(
                str(name),
                cast("Change", change),
                None if now is None else entry_in(now),
                None if then is None else entry_in(then),
                stays=str(stays),
            )
            for name, change, now, then, stays in cast("list[list[Any]]", record["changes"])
        )
        return Intent(str(record["before"]), str(record["after"]), changes)
    except (OSError, ValueError, KeyError, TypeError):
        # None, or cut off while it was being written: then nothing had been touched yet.
        return None

"""Sessions whose work folder was renamed or moved: which folders that are gone may be this one, and taking their sessions along.

Sessions are kept by the path of their work folder, as kimi-cli keeps them, so that another name leaves them behind. A session
therefore notes the inode of its folder too. Everything here blocks: for a thread.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from kimi_tui.session.errors import SessionLocked, StorageTrouble
from kimi_tui.session.lock import SessionLock
from kimi_tui.session.metadata import folder_inode, read_state, write_state
from kimi_tui.session.session import Session
from kimi_tui.session.store import SessionStore


class FormerFolder(NamedTuple):
    """A work folder that does not exist any more.

    Attributes:
        path: where it was.
        sessions: the folders of its sessions, the newest first.
        is_same: whether the inode says that it is the folder that was asked about; else its name or its place does.
    """

    path: str
    sessions: tuple[Path, ...]
    is_same: bool


def former_folders(store: SessionStore, work_dir: Path) -> list[FormerFolder]:
    """The folders that are gone and may be `work_dir` under a former name; only those of its inode, where there are any."""
    by_path: dict[str, list[Path]] = {}
    inodes: dict[str, int] = {}
    for folder in store.newest_first():
        state = read_state(folder)
        if store.is_of(folder, state.work_dir):
            by_path.setdefault(state.work_dir, []).append(folder)
            inodes.setdefault(state.work_dir, state.folder_inode)
    here = folder_inode(work_dir)
    found: list[FormerFolder] = []
    for path, sessions in by_path.items():
        former = Path(path)
        is_same = here != 0 and inodes[path] == here
        # A folder that was moved keeps its name, one that was renamed its place.
        is_alike = former.name == work_dir.name or (
            not inodes[path] and former.parent == work_dir.parent
        )
        if (is_same or is_alike) and not os.path.lexists(former):
            found.append(FormerFolder(path, tuple(sessions), is_same))
    same = [one for one in found if one.is_same]
    return same or found


def take_along(store: SessionStore, former: FormerFolder, work_dir: Path) -> list[Session]:
    """Give a folder's sessions a new work folder; returns those that were moved, the newest first.

    A session that is open in another process, or that the disk refuses to move, stays where it was. Killed in between, a
    session has its new place and its old note: it is listed and opened in the new folder.

    Raises:
        SessionLocked, StorageTrouble: not one could be moved, and that is why.
    """
    moved: list[Session] = []
    trouble: Exception | None = None
    for folder in former.sessions:
        target = store.bucket(work_dir) / folder.name
        lock = SessionLock(folder)
        try:
            lock.acquire()
            try:
                store.storage.make_folder(target.parent)
                if os.path.lexists(target):
                    continue
                store.storage.replace(folder, target)
                state = replace(
                    read_state(target),
                    work_dir=str(work_dir),
                    moved_from=former.path,
                    folder_inode=folder_inode(work_dir),
                )
                write_state(store.storage, target, state)
            finally:
                lock.release()
        except SessionLocked as error:
            trouble = error
        except OSError as error:
            trouble = StorageTrouble.of("move the session to its folder's new name", error)
        else:
            moved.append(store.at(target, work_dir))
    with contextlib.suppress(OSError):
        store.bucket(Path(former.path)).rmdir()
    if trouble is not None and not moved:
        raise trouble
    return moved

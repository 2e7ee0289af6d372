"""Sessions whose work folder was renamed or moved: finds former names of a folder, and moves the sessions to the present one.

Sessions are stored by the path of their work folder, as kimi-cli stores them, so a renamed folder loses its sessions. A
session therefore notes the inode of its folder too. Everything here blocks, so call it in a thread.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from kimi_tui.session.errors import SessionLocked, StorageTrouble
from kimi_tui.session.metadata import folder_inode, read_state
from kimi_tui.session.session import Session
from kimi_tui.session.store import SessionStore


class FormerFolder(NamedTuple):
    """A work folder that does not exist any more.

    Attributes:
        path: the former path.
        sessions: the folders of its sessions, the newest first.
        is_same: whether the inode shows that it is the requested folder; if not, only its name or its parent suggests it.
    """

    path: str
    sessions: tuple[Path, ...]
    is_same: bool


def former_folders(store: SessionStore, work_dir: Path) -> list[FormerFolder]:
    """Return the missing folders that may be `work_dir` under a former name; only those with its inode, if there are any."""
    by_bucket: dict[Path, list[Path]] = {}
    for folder in store.newest_first():
        by_bucket.setdefault(folder.parent, []).append(folder)
    here = folder_inode(work_dir)
    found: list[FormerFolder] = []
    for sessions in by_bucket.values():
        # All sessions of a bucket have one work folder, so the newest one that notes it is enough.
        states = ((folder, read_state(folder)) for folder in sessions)
        state = next((one for folder, one in states if store.is_of(folder, one.work_dir)), None)
        if state is None:
            continue
        former = Path(state.work_dir)
        is_same = here != 0 and state.folder_inode == here
        # A moved folder keeps its name, a renamed one its parent.
        is_alike = former.name == work_dir.name or (
            not state.folder_inode and former.parent == work_dir.parent
        )
        if (is_same or is_alike) and not os.path.lexists(former):
            found.append(FormerFolder(state.work_dir, tuple(sessions), is_same))
    same = [one for one in found if one.is_same]
    return same or found


def take_along(store: SessionStore, former: FormerFolder, work_dir: Path) -> list[Session]:
    """Give a folder's sessions a new work folder; return those that were moved, the newest first.

    A session that is open in another process, or that the disk refuses to move, keeps its place.

    Raises:
        SessionLocked, StorageTrouble: no session could be moved, for this reason.
    """
    moved: list[Session] = []
    trouble: Exception | None = None
    for folder in former.sessions:
        try:
            moved.append(store.move(store.at(folder, Path(former.path)), work_dir))
        except (SessionLocked, StorageTrouble) as error:
            trouble = error
    if trouble is not None and not moved:
        raise trouble
    return moved

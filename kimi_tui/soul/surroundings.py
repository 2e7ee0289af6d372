"""Where a session keeps its file snapshots, and what else shares the disk and the folder with them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

from kimi_tui.session.session import Session
from kimi_tui.workspace.coverage import Surroundings
from kimi_tui.workspace.tracker import STORE_NAME

FILES_NAME = "files"
_MOST_NEIGHBOURS = 3


def surroundings(session: Session, environ: Mapping[str, str]) -> Surroundings:
    """What is around a session's snapshots. Lists folders: call it in a thread."""
    bucket = session.dir.parent
    sessions = bucket.parent
    others = [
        folder / FILES_NAME / STORE_NAME
        for some in _folders(sessions)
        for folder in _folders(some)
        if folder != session.dir
    ]
    near = [store for store in others if store.parent.parent.parent == bucket and store.is_dir()]
    near.sort(key=_age, reverse=True)
    return Surroundings(
        neighbours=near[:_MOST_NEIGHBOURS],
        others=others,
        own=(str(sessions), str(sessions.parent / "logs")),
        homes=(environ.get("HOME", ""),),
    )


def _folders(folder: Path) -> list[Path]:
    with contextlib.suppress(OSError), os.scandir(folder) as listing:
        return [Path(item.path) for item in listing if item.is_dir(follow_symlinks=False)]
    return []


def _age(folder: Path) -> float:
    try:
        return folder.stat().st_mtime
    except OSError:
        return 0.0

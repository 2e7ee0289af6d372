"""All sessions under one data folder: made, found, listed, copied and deleted.

`<root>/sessions/<md5 of the absolute work folder>/<uuid>/`. Nothing here is derived from an index: what is there is there, and
one damaged session never hides another.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import uuid
from pathlib import Path

from kimi_tui.session.errors import SessionNotFound, StorageTrouble
from kimi_tui.session.line_files import LIVE_NAME
from kimi_tui.session.listing import SessionInfo, describe
from kimi_tui.session.lock import SessionLock
from kimi_tui.session.session import Session
from kimi_tui.session.side_files import read_state
from kimi_tui.session.storage import Storage

SESSIONS_NAME = "sessions"


class SessionStore:
    """The sessions under `root`, the application's data folder.

    Args:
        root: The data folder; made when something is written.
        storage: The disk.
    """

    def __init__(self, root: Path, storage: Storage | None = None) -> None:
        # Absolute once and for all: a later change of the current folder must not lead elsewhere.
        self.root = Path(os.path.abspath(root))
        self.storage = storage or Storage()

    def create(self, work_dir: Path) -> Session:
        """A new session; nothing is on the disk before it is opened."""
        return self._session(self.bucket(work_dir) / str(uuid.uuid4()), work_dir)

    def find(self, name: str, work_dir: Path | None = None) -> Session:
        """The session of that id, or of the only id that begins so.

        Args:
            name: The id or its beginning.
            work_dir: Where to look first; elsewhere an id must be whole or unique too.

        Raises:
            SessionNotFound: There is none, or more than one; the text says which.
        """
        found = [folder for folder in self._folders(None) if folder.name.startswith(name)]
        exact = [folder for folder in found if folder.name == name]
        here = [folder for folder in found if work_dir and folder.parent == self.bucket(work_dir)]
        for some in (exact, here, found):
            if name and len(some) == 1:
                return self.at(some[0], work_dir)
        if len(found) > 1 and name:
            raise SessionNotFound(
                f"{len(found)} sessions begin with {name!r}; give more of the id."
            )
        raise SessionNotFound(f"There is no session {name!r}.")

    def newest(self, work_dir: Path) -> Session | None:
        """The session of this folder that was written to last, if there is one that is not empty."""
        infos = self.list(work_dir)
        return self.at(infos[0].dir, work_dir) if infos else None

    def list(self, work_dir: Path | None = None, *, archived: bool = False) -> list[SessionInfo]:
        """Sessions that are not empty, the newest first. Does not read them through.

        Args:
            work_dir: Only those of this folder.
            archived: Also those put away.
        """
        infos = [info for folder in self._folders(work_dir) if (info := describe(folder))]
        shown = [info for info in infos if archived or not info.archived]
        return sorted(shown, key=lambda info: (info.updated_at, info.id), reverse=True)

    def at(self, folder: Path, work_dir: Path | None = None) -> Session:
        """The session in a folder; its work folder is what it noted, else the one given."""
        noted = read_state(folder).work_dir
        if noted:
            return self._session(folder, Path(noted))
        return self._session(folder, work_dir or Path.cwd())

    def delete(self, session: Session) -> None:
        """Delete a session for good.

        Raises:
            SessionHeld: It is open somewhere.
            StorageTrouble: Some of it could not be deleted.
        """
        lock = SessionLock(session.dir)
        lock.acquire()
        try:
            # Out of sight in one step, so that no half of it is ever listed.
            doomed = session.dir.with_name(f".deleted-{session.id}")
            self.storage.replace(session.dir, doomed)
            shutil.rmtree(doomed)
            with contextlib.suppress(OSError):
                session.dir.parent.rmdir()
        except OSError as error:
            raise StorageTrouble.of("delete the session", error) from error
        finally:
            lock.release()

    def bucket(self, work_dir: Path) -> Path:
        """The folder that holds the sessions of a work folder."""
        name = os.path.abspath(work_dir).encode(errors="surrogateescape")
        return self.root / SESSIONS_NAME / hashlib.md5(name, usedforsecurity=False).hexdigest()

    def _session(self, folder: Path, work_dir: Path) -> Session:
        return Session(folder, Path(os.path.abspath(work_dir)), self.storage)

    def _folders(self, work_dir: Path | None) -> list[Path]:
        if work_dir is not None:
            buckets = [self.bucket(work_dir)]
        else:
            buckets = _subfolders(self.root / SESSIONS_NAME)
        folders = [folder for bucket in buckets for folder in _subfolders(bucket)]
        return [folder for folder in folders if os.path.lexists(folder / LIVE_NAME)]


def _subfolders(folder: Path) -> list[Path]:
    try:
        with os.scandir(folder) as entries:
            return [
                folder / entry.name
                for entry in entries
                if not entry.name.startswith(".") and entry.is_dir(follow_symlinks=False)
            ]
    except OSError:
        return []

"""`SessionStore`, all sessions under one data folder: creating, finding, listing, archiving, trash, pruning, disk use.

Their folders are `<root>/sessions/<md5 of the absolute work folder>/<uuid>/`. There is no index beside the folders, so that
one damaged session never hides another. Sessions are deleted only by the user, and stay in `<root>/trash/<day>/<md5>/<uuid>/`
for `TRASH_DAYS`.
"""

from __future__ import annotations

import asyncio
import builtins
import contextlib
import errno
import hashlib
import os
import shutil
import uuid
from collections.abc import AsyncGenerator, Collection, Generator
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

from kimi_tui.app_paths import reason_of
from kimi_tui.filesystem import Storage, open_regular, temporary_of
from kimi_tui.session.aside import DELETED, at_work
from kimi_tui.session.errors import SessionLocked, SessionNotFound, StorageTrouble, UnknownWorldLine
from kimi_tui.session.journal import PRUNE
from kimi_tui.session.jsonl import RECORD_NAME
from kimi_tui.session.listing import SessionInfo, describe
from kimi_tui.session.lock import SessionLock
from kimi_tui.session.metadata import (
    MARKS_NAME,
    STATE_NAME,
    folder_inode,
    read_state,
    write_state,
)
from kimi_tui.session.rotation import LIVE_NAME, STORED_NAME, stored_world_lines, world_line_path
from kimi_tui.session.session import Session
from kimi_tui.temporary_folders import TemporaryFolder

SESSIONS_NAME = "sessions"
TRASH_NAME = "trash"
TRASH_DAYS = 30


class SessionStore:
    """The sessions under `root`, the application's data folder.

    Args:
        root: The data folder, created by the first write.
        storage: The disk.
    """

    def __init__(self, root: Path, storage: Storage | None = None) -> None:
        # The path is made absolute once, because a later change of the current folder must not change it.
        self.root = Path(os.path.abspath(root))
        self.storage = storage or Storage()

    def create(self, work_dir: Path) -> Session:
        """Return a new session; nothing is on the disk before it is opened."""
        return self._session(self.bucket(work_dir) / str(uuid.uuid4()), work_dir)

    def find(self, name: str, work_dir: Path | None = None) -> Session:
        """Return the session with that id, or with the only id that begins so.

        Args:
            name: The id or its beginning.
            work_dir: The work folder to search first; in others an id must be complete or unique too.

        Raises:
            SessionNotFound: No session matches, or more than one; the text says which.
        """
        found = [folder for folder in self._folders(None) if folder.name.startswith(name)]
        exact = [folder for folder in found if folder.name == name]
        here = [folder for folder in found if work_dir and folder.parent == self.bucket(work_dir)]
        for some in (exact, here, found):
            if name and len(some) == 1:
                return self.at(some[0], work_dir)
        if len(found) > 1 and name:
            raise SessionNotFound(
                f"The id {name!r} is ambiguous: {len(found)} sessions begin with it. Type more of it."
            )
        raise SessionNotFound(f"There is no session {name!r}.")

    def newest(self, work_dir: Path) -> Session | None:
        """Return the session of this folder with the latest write, if there is one that is not empty."""
        infos = self.list(work_dir)
        return self.at(infos[0].dir, work_dir) if infos else None

    def list(
        self, work_dir: Path | None = None, *, archived: bool = False, counted: bool = False
    ) -> builtins.list[SessionInfo]:
        """List the sessions that are not empty, the newest first.

        Args:
            work_dir: Only sessions of this folder; None for all.
            archived: Whether to include archived sessions.
            counted: Whether to read whole contexts if the number of messages is not known otherwise.
        """
        folders = self._folders(work_dir)
        infos = [info for folder in folders if (info := describe(folder, counted=counted))]
        shown = [info for info in infos if archived or not info.archived]
        return sorted(shown, key=lambda info: (info.updated_at, info.id), reverse=True)

    def newest_first(self, work_dir: Path | None = None) -> builtins.list[Path]:
        """Return the folders of sessions ordered by the last write of their contexts, so that a list can describe them one by one."""

        def written_at(folder: Path) -> float:
            try:
                return os.stat(folder / LIVE_NAME, follow_symlinks=False).st_mtime
            except OSError:
                return 0.0

        return sorted(self._folders(work_dir), key=written_at, reverse=True)

    def passed_over(self, work_dir: Path | None = None) -> builtins.list[str]:
        """Return a sentence for each session that is not listed because its conversation cannot be opened."""
        found: list[str] = []
        for folder in self._folders(work_dir):
            if describe(folder) is None:
                try:
                    os.close(open_regular(folder / LIVE_NAME))
                except OSError as error:
                    what = reason_of(error, named_in_text=folder / LIVE_NAME)
                    found.append(f"{folder / LIVE_NAME}: {what}; this session is skipped.")
        return found

    def at(self, folder: Path, work_dir: Path | None = None) -> Session:
        """Return the session in a folder. Its work folder is the one that it noted, if its folder is in that one's bucket,
        else the given one.
        """
        noted = read_state(folder).work_dir
        if self.is_of(folder, noted):
            return self._session(folder, Path(noted))
        return self._session(folder, work_dir or Path.cwd())

    def is_of(self, folder: Path, work_dir: str) -> bool:
        """Return whether a session's folder is in the bucket of a work folder; the session's own note is not proof."""
        return bool(work_dir) and self.bucket(Path(work_dir)) == folder.parent

    def take_over(self, session: Session, name: str, *more: str) -> bool:
        """Move a file, such as a draft, from an empty session of the same work folder into this one, and delete that session.

        The source is the newest other session that has such a file (or the temporary file of a killed process), has no
        messages and is not open in any process.

        Args:
            session: The session that gets the file.
            name: The name of the file.
            more: Names of files and folders to move too, if they exist.

        Returns:
            Whether there was such a session.
        """
        names = (name, temporary_of(Path(name)).name)
        held: list[tuple[float, Path]] = []
        for folder in _subfolders(session.dir.parent):
            times = [
                os.lstat(path).st_mtime for one in names if os.path.lexists(path := folder / one)
            ]
            held += [(max(times), folder)] if times else []
        for _, folder in sorted(held, reverse=True):
            if folder == session.dir or describe(folder) is not None:
                continue
            other = self._session(folder, session.work_dir)
            with contextlib.suppress(SessionLocked, OSError), _held(other):
                for one in (*names, *more):
                    with contextlib.suppress(FileNotFoundError if one == name else OSError):
                        self.storage.replace(folder / one, session.dir / one)
                other.remove_traces()
                return True
        return False

    def note(
        self, session: Session, *, title: str | None = None, archived: bool | None = None
    ) -> None:
        """Rename a session, or archive or unarchive it, without reading its context.

        Raises:
            SessionLocked: The session is open in another process.
            StorageTrouble: The state could not be written.
        """
        lock = SessionLock(session.dir)
        lock.acquire()
        try:
            state = read_state(session.dir)
            if title is not None:
                state = replace(state, title=" ".join(title.split()))
            if archived is not None:
                state = replace(state, archived=archived)
            write_state(self.storage, session.dir, state)
        except OSError as error:
            raise StorageTrouble.of("save the session's title", error) from error
        finally:
            lock.release()

    def move(self, session: Session, work_dir: Path) -> Session:
        """Give a session another work folder: the one to which its own was renamed. It blocks, so call it in a thread.

        After a kill in between, the session has its new place and its old note: it is listed and opened in the new folder.

        Raises:
            SessionLocked: The session is open in another process.
            StorageTrouble: The session could not be moved, or its new work folder could not be noted.
        """
        target = self.bucket(work_dir) / session.id
        with _taking_away(session, "move the session along with its renamed work folder"):
            self.storage.make_folder(target.parent)
            if os.path.lexists(target):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target))
            self.storage.replace(session.dir, target)
            state = replace(
                read_state(target),
                work_dir=str(work_dir),
                moved_from=str(session.work_dir),
                folder_inode=folder_inode(work_dir),
            )
            write_state(self.storage, target, state)
        return self.at(target, work_dir)

    @property
    def trash(self) -> Path:
        """The folder of deleted sessions."""
        return self.root / TRASH_NAME

    def move_to_trash(self, session: Session) -> Path:
        """Move a session to the trash, and delete everything that has been there for longer than `TRASH_DAYS`; return its new folder.

        Raises:
            SessionLocked: The session is open in another process.
            StorageTrouble: The session could not be moved; it keeps its place.
        """
        today = datetime.now(UTC).date()
        thrown = self.trash / today.isoformat() / session.dir.parent.name / session.id
        with _taking_away(session, "move the session into the trash"):
            self.storage.make_folder(thrown.parent)
            self.storage.replace(session.dir, thrown)
        self._empty_trash(today - timedelta(days=TRASH_DAYS))
        return thrown

    def restore(self, name: str) -> Session:
        """Move a session out of the trash: the one with that id, or the only one whose id begins so.

        Raises:
            SessionNotFound: No session matches, or more than one.
            StorageTrouble: The session could not be moved.
        """
        found = [
            folder
            for day in _subfolders(self.trash)
            for bucket in _subfolders(day)
            for folder in _subfolders(bucket)
            if folder.name.startswith(name)
        ]
        if len(found) != 1 or not name:
            many = f"{len(found)} sessions in the trash begin with" if found else "The trash has no"
            raise SessionNotFound(f"{many} {name!r}.")
        place = self.root / SESSIONS_NAME / found[0].parent.name / found[0].name
        try:
            if os.path.lexists(place):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(place))
            self.storage.make_folder(place.parent)
            self.storage.replace(found[0], place)
        except OSError as error:
            raise StorageTrouble.of("take the session out of the trash", error) from error
        return self.at(place)

    def _empty_trash(self, until: date) -> None:
        for day in _subfolders(self.trash):
            with contextlib.suppress(ValueError):
                if date.fromisoformat(day.name) < until:
                    shutil.rmtree(day, ignore_errors=True)

    def delete(self, session: Session) -> None:
        """Delete a session permanently.

        Raises:
            SessionLocked: The session is open in another process.
            StorageTrouble: Some of its files could not be deleted.
        """
        with _taking_away(session, "delete the session"), at_work(session.dir.parent):
            # The folder is renamed first, so that half a session is never listed.
            doomed = session.dir.with_name(f"{DELETED}{session.id}")
            self.storage.replace(session.dir, doomed)
            shutil.rmtree(doomed)

    def bucket(self, work_dir: Path) -> Path:
        """Return the folder that holds the sessions of a work folder."""
        name = os.path.abspath(work_dir).encode(errors="surrogateescape")
        return self.root / SESSIONS_NAME / hashlib.md5(name, usedforsecurity=False).hexdigest()

    def _session(self, folder: Path, work_dir: Path) -> Session:
        return Session(folder, Path(os.path.abspath(work_dir)), self.storage)

    def _folders(self, work_dir: Path | None) -> builtins.list[Path]:
        if work_dir is not None:
            buckets = [self.bucket(work_dir)]
        else:
            buckets = _subfolders(self.root / SESSIONS_NAME)
        folders = [folder for bucket in buckets for folder in _subfolders(bucket)]
        return [folder for folder in folders if _holds_session(folder)]


def _holds_session(folder: Path) -> bool:
    """Return whether a folder has a live line, or a line that was left: the newest of those becomes live when the session is opened."""
    return os.path.lexists(folder / LIVE_NAME) or bool(stored_world_lines(folder))


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


@contextlib.contextmanager
def _taking_away(session: Session, doing: str) -> Generator[None]:
    """Hold a session's lock while its folder is removed, and remove the folder above it if that is empty then.

    Raises:
        SessionLocked: The session is open in another process.
        StorageTrouble: The disk refused to remove it.
    """
    lock = SessionLock(session.dir)
    lock.acquire()
    try:
        yield
        with contextlib.suppress(OSError):
            session.dir.parent.rmdir()
    except OSError as error:
        raise StorageTrouble.of(doing, error) from error
    finally:
        lock.release()


@contextlib.contextmanager
def _held(session: Session) -> Generator[None]:
    session.lock.acquire()
    try:
        yield
    finally:
        session.lock.release()


@contextlib.asynccontextmanager
async def opened(session: Session) -> AsyncGenerator[Session]:
    """Open the session, and close it afterwards.

    Raises:
        SessionLocked: another process has it open.
        StorageTrouble: the session cannot be opened at all.
    """
    await session.open()
    try:
        yield session
    finally:
        await session.aclose()


@contextlib.asynccontextmanager
async def read_only_copy(session: Session) -> AsyncGenerator[Session]:
    """Open a copy of the session as it is on the disk now, without its lock. Changes to the copy are discarded.

    Another process may have the session open: apparent damage may be an unfinished write, and is not repaired.

    Args:
        session: A session that this process has not opened.

    Raises:
        StorageTrouble: The session cannot be read at all.
    """
    with TemporaryFolder("copy") as folder:
        copy = Path(folder.path) / session.id
        await asyncio.to_thread(_copy, session.storage, session.dir, copy)
        copied = Session(copy, session.work_dir)
        report = await copied.open()
        # Only the copy was repaired. The session's files were not, and another process may still be writing their end.
        copied.report = replace(report, torn_bytes=0, remarks=())
        try:
            yield copied
        finally:
            await copied.aclose()


def _copy(storage: Storage, folder: Path, copy: Path) -> None:
    copy.mkdir()
    for path in [*sorted(folder.glob("*.jsonl")), folder / STATE_NAME, folder / MARKS_NAME]:
        try:
            storage.copy_file(path, copy / path.name, sync=False)
        except FileNotFoundError:
            continue
        except OSError as error:
            # Without the other files there is still a conversation to read.
            if path.name == LIVE_NAME:
                raise StorageTrouble.of("read the session", error) from error


@dataclass(frozen=True, slots=True)
class DiskUse:
    """Bytes by their purpose; `other` is everything else (snapshots, side files)."""

    live: int = 0
    world_lines: int = 0
    record: int = 0
    other: int = 0

    @property
    def total(self) -> int:
        """The sum of all of them."""
        return self.live + self.world_lines + self.record + self.other


def disk_use(folder: Path) -> DiskUse:
    """Return the disk use of a session."""
    live = world_lines = record = other = 0
    for root, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                size = os.lstat(os.path.join(root, name)).st_size
                if root != str(folder):
                    other += size
                elif name == LIVE_NAME:
                    live = size
                elif STORED_NAME.fullmatch(name):
                    world_lines += size
                elif name == RECORD_NAME:
                    record = size
                else:
                    other += size
    return DiskUse(live, world_lines, record, other)


def prune(
    session: Session, lines: Collection[int] | None = None, agents: Collection[str] = ()
) -> int:
    """Delete world lines of an open session; return the bytes freed. The operations that left them cannot be undone any more.

    Args:
        session: An open session.
        lines: The numbers of the world lines; None for all. The live line is never deleted.
        agents: The keys of the sub-agents that go with them, for the note in the journal; the caller deletes them.

    Raises:
        UnknownWorldLine: One of them does not exist; nothing was deleted.
        StorageTrouble: A world line could not be deleted, or the journal could not be written; then nothing was.
    """
    there = stored_world_lines(session.dir)
    chosen = sorted(there if lines is None else set(lines))
    for n in chosen:
        if n not in there:
            raise UnknownWorldLine(f"There is no world line {n}.")
    if not chosen:
        return 0
    # The journal is written first, because a missing world line without an entry would look like damage.
    more = {"agents": sorted(agents)} if agents else {}
    session.context.journal.note({"op": PRUNE, "lines": chosen, **more})
    session.context.journal.file.sync()
    try:
        for n in chosen:
            session.storage.unlink(world_line_path(session.dir, n))
        session.storage.sync_folder(session.dir)
    except OSError as error:
        raise StorageTrouble.of("delete the world lines", error) from error
    return sum(there[n] for n in chosen)

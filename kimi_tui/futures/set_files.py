"""`SetFiles`: the files of a set of processes that begin with the same snapshot, each with files of its own over one frozen copy."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kimi_tui.app_paths import make_private
from kimi_tui.filesystem import remove_tree
from kimi_tui.session.metadata import read_state, write_state
from kimi_tui.session.session import Session
from kimi_tui.soul.folder_snapshots import FILES_NAME
from kimi_tui.tools.past_command import cache_of, place_of, set_place
from kimi_tui.tools.sandbox.view import PastView, Tier, opened_view
from kimi_tui.workspace.adoption import hand_over_stamps
from kimi_tui.workspace.base import Base, FileState, NoBase, Past, Progress
from kimi_tui.workspace.manifest import Manifest
from kimi_tui.workspace.snapshots import SnapshotLog
from kimi_tui.workspace.tracker import LOG_NAME

if TYPE_CHECKING:
    from kimi_tui.futures.planning import Ground


class SetFiles:
    """The files of one set. They are removed by `close`, also those of an `open` that failed.

    Args:
        session: the session whose snapshots they come from.
        group: the name of the set.
        environ: the environment of the program.

    Attributes:
        tier: the way in which each gets files of its own; known once it is open.
    """

    def __init__(self, session: Session, group: str, environ: Mapping[str, str]) -> None:
        self.tier: Tier = "overlay"
        self._session = session
        self._environ = environ
        self._place = set_place(session.dir, group, environ)
        self._stack = ExitStack()
        self._view: Callable[[], contextlib.AbstractContextManager[PastView]] | None = None
        self._base_folder = Path()
        self._files: Manifest = {}

    async def open(
        self,
        since: str,
        ground: Callable[[Past], Coroutine[Any, Any, Ground]],
        told: Callable[[Progress], None],
        are_stopped: Callable[[], bool],
    ) -> None:
        """Write the frozen files.

        Args:
            since: the snapshot.
            ground: returns how files of their own are made on this machine.
            told: called in another thread while they are written.
            are_stopped: asked in another thread whether nobody wants them any more.

        Raises:
            NoBase: they cannot be made.
            OSError: the disk refused.
        """
        session, environ = self._session, self._environ
        past = await asyncio.to_thread(Past, session.dir / FILES_NAME, session.work_dir)
        found = past.log.get(since)
        if found is None:
            raise NoBase("There is no file snapshot of that checkpoint.")
        on = await ground(past)
        base = await asyncio.to_thread(Base, self._place, past)
        self._stack.callback(base.close)
        # One base is moved from set to set, and to the states that `bisect` tries.
        kept = place_of(session.dir, environ)
        await asyncio.to_thread(base.take, kept)
        self._stack.callback(_left, base, kept)
        await asyncio.to_thread(base.move, FileState(found), told, are_stopped)
        self.tier, self._base_folder = on.tier, base.folder
        self._files = await asyncio.to_thread(past.files, FileState(found))
        run_place = self._place
        if on.tier == "elsewhere":
            # The sandbox hides the data folder from commands.
            run_place = cache_of(self._place, environ)
            await asyncio.to_thread(make_private, run_place)
            self._stack.callback(_removed, run_place)
        work = await asyncio.to_thread(session.work_dir.resolve)
        self._view = lambda: opened_view(
            on.tier, base.folder, run_place, work, on.shares, is_confined=on.is_confined
        )

    async def stamp(self, sessions: Sequence[Path]) -> None:
        """Tell copies of the session's snapshots which files the frozen folder has; without that their first scans read all of them.

        Args:
            sessions: the folders of the sessions with the copies.
        """
        if self.tier == "overlay":
            await asyncio.to_thread(_stamped, sessions, self._base_folder, self._files)

    async def view(self) -> PastView:
        """Make files of one member's own.

        Raises:
            OSError: the disk refused.
        """
        assert self._view is not None
        return await asyncio.to_thread(self._stack.enter_context, self._view())

    async def close(self) -> None:
        """Remove all of them; the frozen ones are left to the next set."""
        await asyncio.to_thread(_cleared, self._stack, self._place)


def move_to(session: Session, before: Path, now: Path) -> None:
    """Give the session of a process another work folder: that of a copy. It writes files.

    Args:
        session: the session, not open, with its own log of snapshots.
        before: the work folder that it had; empty to bring it back to `now`.
        now: the folder.

    Raises:
        OSError: the disk refused.
    """
    moved_from = "" if before == Path() else str(before)
    state = replace(read_state(session.dir), work_dir=str(now), moved_from=moved_from)
    write_state(session.storage, session.dir, state)
    log = SnapshotLog(session.dir / FILES_NAME / LOG_NAME)
    if log.last is not None:
        log.begin(os.path.realpath(now), moved=True)


def move_back(session: Session) -> None:
    """Give a session that worked in a copy at another path its own work folder again. It writes files; a disk that refuses is passed over."""
    with contextlib.suppress(OSError):
        move_to(session, Path(), session.work_dir)


def free_ports(count: int) -> list[int]:
    """Return as many TCP ports of this machine that nothing uses now; 0 where there is none."""
    found: list[int] = []
    with ExitStack() as stack:
        for _ in range(count):
            one = stack.enter_context(socket.socket())
            with contextlib.suppress(OSError):
                one.bind(("127.0.0.1", 0))
            found.append(one.getsockname()[1])
    return found


def _stamped(sessions: Sequence[Path], base: Path, files: Manifest) -> None:
    with contextlib.suppress(OSError):
        logs = [SnapshotLog(one / FILES_NAME / LOG_NAME) for one in sessions]
        hand_over_stamps(logs, base, files)


def _left(base: Base, place: Path) -> None:
    """Leave the frozen files of a set to the next one."""
    with contextlib.suppress(OSError):
        base.leave(place)


def _removed(folder: Path) -> None:
    with contextlib.suppress(OSError):
        remove_tree(folder)


def _cleared(stack: ExitStack, place: Path) -> None:
    """Remove the files of a set."""
    with contextlib.suppress(OSError):
        stack.close()
    _removed(place)

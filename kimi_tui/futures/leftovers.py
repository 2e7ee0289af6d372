"""Takes up the futures of a program that was killed: their finished steps become world lines when their session is opened again.

Only their sessions are left then: a process of a future ends with the program, mounts end with their process, and what was written
over the work folder is removed by the sweep of every start (`tools.past_command.sweep`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from kimi_tui.filesystem import remove_tree
from kimi_tui.futures import places_of
from kimi_tui.futures.comparing import differences, with_changes
from kimi_tui.futures.world_line import (
    FutureNote,
    adopt,
    has_step,
    is_running,
    left_behind,
)
from kimi_tui.session.errors import SessionError
from kimi_tui.session.metadata import read_state
from kimi_tui.session.store import TRASH_NAME
from kimi_tui.soul.errors import SoulBusy
from kimi_tui.soul.folder_snapshots import FILES_NAME
from kimi_tui.tools.past_command import place_of
from kimi_tui.wire.events import Notice
from kimi_tui.workspace.base import NoBase, locked

if TYPE_CHECKING:
    from kimi_tui.soul.kimisoul import KimiSoul

log = logging.getLogger(__name__)

KILLED = "kimi-tui exited while this future was running."
_WAIT_S = 10.0
"""Seconds that the processes of futures have to end after the program, which they do in order."""
_ASKED_S = 0.2


async def take_up(soul: KimiSoul) -> int:
    """Make the futures that a killed program left to a session its world lines, and remove those without a step.

    Those of sessions that do not exist any more are removed too.

    Args:
        soul: the engine of the session; a notice on its wire says so.

    Returns:
        the number of new world lines.
    """
    session, n_taken = soul.session, 0
    found = await asyncio.to_thread(
        lambda: [one for place in places_of(session) for one in left_behind(place)]
    )
    for folder, note in found:
        try:
            # A future without a note may be one that another program is starting.
            parent = note.parent if note is not None else await asyncio.to_thread(_origin, folder)
            if parent != session.id and await asyncio.to_thread(_is_there, folder, parent):
                continue
            if note is None or parent != session.id:
                if not await asyncio.to_thread(_is_running, folder, wait=False):
                    await asyncio.to_thread(remove_tree, folder)
            elif not await asyncio.to_thread(_is_running, folder, wait=True):
                n_taken += await _taken(soul, folder, note)
        except SoulBusy:
            break
        except (OSError, SessionError) as error:
            log.warning("a future of a killed program could not be taken up", exc_info=error)
    if n_taken:
        soul.wire.publish(Notice("info", taken_words(n_taken)))
    return n_taken


def _origin(folder: Path) -> str:
    """Return the id of the session of which a future is a copy; empty if that is unknown."""
    return read_state(folder).forked_from


def _is_there(folder: Path, parent: str) -> bool:
    """Return whether the session of a future is there, or can be brought back out of the trash.

    It may have moved to another folder with its work folder.
    """
    sessions = folder.parent.parent
    days = _folders(sessions.parent / TRASH_NAME)
    buckets = [*_folders(sessions), *(bucket for day in days for bucket in _folders(day))]
    return bool(parent) and any((bucket / parent).exists() for bucket in buckets)


def _folders(folder: Path) -> list[Path]:
    try:
        return [one for one in folder.iterdir() if one.is_dir()]
    except FileNotFoundError:
        return []


def remove_left_to(session: Path, environ: Mapping[str, str]) -> None:
    """Remove what killed programs have left of the futures of a session that was deleted, and the frozen copy of its files.

    What a process still uses, or the disk refuses to remove, stays. It removes folders, so call it in a thread.

    Args:
        session: the folder that the session had.
        environ: the environment.
    """
    for bucket in _folders(session.parent.parent):
        for folder, note in left_behind(bucket):
            # The session may have a copy of the same name, whose futures these are as well.
            with contextlib.suppress(OSError):
                if (
                    note is not None
                    and note.parent == session.name
                    and not _is_there(folder, session.name)
                    and not is_running(folder)
                ):
                    remove_tree(folder)
    place = place_of(session, environ)
    if place.is_dir():
        with contextlib.suppress(OSError, NoBase):
            lock = locked(place)
            try:
                remove_tree(place)
            finally:
                os.close(lock)


def taken_words(n_taken: int) -> str:
    """Return the sentence about the futures that `take_up` has made world lines."""
    kept = (
        "1 future is kept as a world line"
        if n_taken == 1
        else f"{n_taken} futures are kept as world lines"
    )
    return f"kimi-tui exited while futures were running: {kept}, up to the last finished step."


def _is_running(folder: Path, *, wait: bool) -> bool:
    until = time.monotonic() + (_WAIT_S if wait else 0.0)
    while is_running(folder):
        if time.monotonic() >= until:
            return True
        time.sleep(_ASKED_S)
    return False


async def _taken(soul: KimiSoul, folder: Path, note: FutureNote) -> bool:
    """Make one future a world line; return false if it has no step, so that it was removed."""
    if not await asyncio.to_thread(has_step, folder, note.n_before, note.first_line):
        await asyncio.to_thread(remove_tree, folder)
        return False
    state = note.state
    if not state.is_over:
        state = replace(state, state="failed", why=KILLED, ended_at=time.time(), asks=())
    await soul.files_ready()
    with contextlib.suppress(OSError, NoBase):
        files, work = folder / FILES_NAME, soul.session.work_dir
        found = await asyncio.to_thread(differences, files, work, note.since)
        # The command of the check is not known any more.
        state = with_changes(state, found, "")
    soul.wire.publish(await adopt(soul, folder, state, note.since))
    return True

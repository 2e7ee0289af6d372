"""The futures of a program that was killed, when a session is opened again: which are taken up, which are removed, and which stay."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from support.soul import Ear

from kimi_tui.futures import PREFIX
from kimi_tui.futures.leftovers import KILLED, take_up
from kimi_tui.futures.world_line import NOTE_NAME, FutureNote, write_note
from kimi_tui.session.fork import fork_session
from kimi_tui.session.lock import SessionLock
from kimi_tui.session.rotation import stored_world_lines
from kimi_tui.session.session import Session
from kimi_tui.session.store import TRASH_NAME
from kimi_tui.wire.events import FutureChanged, FutureStatus

from .conftest import Scene


def left(session: Session, parent: str, name: str, state: FutureStatus = "running") -> Path:
    """Leave a future with one step to a session."""
    folder = fork_session(session.storage, session.dir, None, name=f"{PREFIX}{name}")
    told = FutureChanged(name, "group", 1, name, state, step=1)
    write_note(session.storage, folder, FutureNote(parent, "", 0, 0, told))
    return folder


async def test_only_what_belongs_to_a_session_that_is_there_is_kept(scene: Scene) -> None:
    soul, session, ear = scene.soul, scene.soul.session, Ear(scene.soul.wire)
    assert scene.futures.states == ()
    other = await session.fork()
    killed = left(session, session.id, "killed")
    ended = left(session, session.id, "ended", "done")
    others = left(session, other.id, "others")
    orphan = left(session, "no-session", "orphan")
    in_use = left(session, "no-session", "in-use")
    bucket = session.dir.parent
    unreadable, file = bucket / f"{PREFIX}unreadable", bucket / f"{PREFIX}file"
    unreadable.mkdir()
    (unreadable / NOTE_NAME).write_text("[" * 9_000)
    stateless = left(session, session.id, "stateless")
    note = json.loads((stateless / NOTE_NAME).read_text())
    (stateless / NOTE_NAME).write_text(json.dumps({**note, "state": {}}))
    # Neither another work folder nor what somebody put beside the folders is in the way.
    (bucket.parent / "another").mkdir()
    for stray in (bucket.parent, bucket.parent.parent / TRASH_NAME):
        stray.mkdir(exist_ok=True)
        (stray / "stray.txt").write_text("mine")
    file.write_text("mine")
    link = bucket / f"{PREFIX}link"
    outside = left(session, session.id, "outside").rename(scene.home / "outside")
    link.symlink_to(outside)
    lock = SessionLock(in_use)
    lock.acquire()
    try:
        assert await asyncio.wait_for(take_up(soul), 30) == 2
    finally:
        lock.release()

    every = (killed, ended, others, orphan, in_use, unreadable, stateless, other.dir)
    assert [one for one in every if one.exists()] == [others, in_use, other.dir]
    assert file.read_text() == "mine"
    assert link.is_symlink()
    assert (outside / NOTE_NAME).exists()
    # Who asked before they were world lines knows them too.
    states = {one.key: (one.state, one.why, bool(one.ended_at)) for one in scene.futures.states}
    assert states == {"killed": ("failed", KILLED, True), "ended": ("done", "", False)}
    assert {one.world_line for one in scene.futures.states} == {*stored_world_lines(session.dir)}
    assert "2 futures are kept as world lines" in ear.notices()[-1].text
    assert await take_up(soul) == 0

"""The futures of a program that was killed, when a session is opened again: which are taken up, which are removed, and which stay."""

from __future__ import annotations

import asyncio
import errno
import json
import shutil
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from support.soul import Ear

from kimi_tui import filesystem
from kimi_tui.filesystem import Storage, open_regular
from kimi_tui.futures import PREFIX
from kimi_tui.futures.leftovers import KILLED, remove_left_to, take_up
from kimi_tui.futures.world_line import NOTE_NAME, FutureNote, write_note
from kimi_tui.session import lock as lock_module
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


@pytest.mark.parametrize("name", [NOTE_NAME, "context.jsonl", "lock"])
async def test_a_future_whose_file_cannot_be_opened_at_the_moment_waits_for_the_next_start(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    folder = left(scene.soul.session, scene.soul.session.id, "killed")
    orphan = left(scene.soul.session, "no-session", "orphan")
    real = Storage.opened

    def lacking(path: Path) -> None:
        if path.name == name and path.parent in (folder, orphan):
            raise OSError(errno.EMFILE, "Too many open files", str(path))

    def opened(self: Storage, path: Path) -> AbstractContextManager[int]:
        lacking(path)
        return real(self, path)

    def opened_file(path: Path, *args: int, **kwargs: bool) -> int:
        lacking(path)
        return open_regular(path, *args, **kwargs)

    with monkeypatch.context() as patched:
        patched.setattr(Storage, "opened", opened)
        patched.setattr(filesystem, "open_regular", opened_file)
        patched.setattr(lock_module, "open_regular", opened_file)
        patched.setattr("kimi_tui.futures.leftovers._WAIT_S", 0.0)
        assert await asyncio.wait_for(take_up(scene.soul), 30) == 0
    assert folder.exists()
    # What has no session any more is not looked into.
    assert orphan.exists() == (name != "context.jsonl")
    assert await asyncio.wait_for(take_up(scene.soul), 30) == 1
    assert not folder.exists()
    assert not orphan.exists()


async def test_the_deletion_of_a_copy_of_a_session_leaves_the_futures_of_the_other(
    scene: Scene,
) -> None:
    soul, session = scene.soul, scene.soul.session
    folder = left(session, session.id, "killed")
    await soul.aclose()
    copy = session.dir.parent.with_name("0" * 32) / session.id
    shutil.copytree(session.dir, copy)
    mine = left(Session(copy, session.work_dir), session.id, "mine")
    shutil.rmtree(copy)
    await asyncio.to_thread(remove_left_to, copy, {"KIMI_TUI_HOME": str(scene.home)})
    assert folder.exists()
    assert mine.exists()
    shutil.rmtree(session.dir)
    await asyncio.to_thread(remove_left_to, session.dir, {"KIMI_TUI_HOME": str(scene.home)})
    assert not folder.exists()
    assert not mine.exists()

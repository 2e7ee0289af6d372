"""The disk refuses: one notice, the conversation goes on, and what was missed is written when it is back."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest
from support.chat_server import calls, say
from support.faulty_storage import WatchedStorage, failing
from support.soul import Ear, stage

from kimi_tui.filesystem import Storage
from kimi_tui.session.errors import StorageTrouble
from kimi_tui.session.session import Session
from kimi_tui.soul.assembly import open_soul
from kimi_tui.soul.rewind_values import Target
from kimi_tui.wire import events as ev


class Full(Storage):
    """A disk that has no room while `full` is true."""

    full = False

    def write(self, fd: int, data: bytes | memoryview) -> int:
        if self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().write(fd, data)


async def test_a_full_disk_in_the_middle_of_a_conversation(tmp_path: Path) -> None:
    disk = Full()
    async with stage(tmp_path, storage=disk) as on:
        on.server.script(say("one"))
        await on.soul.run("first")
        disk.full = True
        on.server.script(say("two"), say("three"))
        await on.soul.run("second")
        await on.soul.run("third")
        assert [e.reason for e in on.ear.of(ev.TurnEnd)] == ["done"] * 3
        assert ("assistant", "two") in on.sent()
        notices = on.ear.notices()
        assert [(n.level, n.topic, n.solved) for n in notices] == [("error", "disk", False)]
        assert "space" in notices[0].advice
        with pytest.raises(StorageTrouble):
            await on.soul.travel.rewind(Target(0))
        assert on.session.context.n_checkpoints == 6
        # A D-Mail cannot go off; the model reads so, and the turn goes on.
        on.server.script(calls([("SendDMail", {"message": "m", "checkpoint_id": 0})]), say("ok"))
        await on.soul.run("fourth")
        assert "NOT sent" in on.sent()[-1][1]
        assert on.ear.of(ev.TurnEnd)[-1].reason == "done"
        disk.full = False
        on.server.script(say("five"))
        await on.soul.run("fifth")
        assert on.ear.notices()[-1].solved
        await on.reopen()
        said = [m.text for m in on.session.context.messages if m.role == "user"]
        assert [t for t in said if not t.startswith("<")] == [
            "first",
            "second",
            "third",
            "fourth",
            "fifth",
        ]


WRITING = {"open", "write", "fsync", "sync_folder", "ftruncate", "replace", "make_folder"}


@pytest.mark.sample(12)
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES, errno.EROFS, errno.EIO])
@pytest.mark.parametrize("good_calls", range(12))
async def test_a_start_on_a_disk_that_refuses_is_refused_or_told(
    tmp_path: Path, number: int, good_calls: int
) -> None:
    disk = WatchedStorage()
    disk.before = failing(WRITING, number, skip=good_calls)
    try:
        async with stage(tmp_path, storage=disk) as on:
            context = on.session.context
            on.server.script(say("one"), say("two"))
            await on.soul.run("first")
            heard = Ear(on.soul.wire).notices()
            assert context.trouble is not None
            assert context.unsaved_bytes
            assert [(n.topic, n.solved) for n in heard if n.topic] == [("disk", False)]
            disk.before = lambda _name, _arguments: None
            await on.soul.run("second")
            assert on.ear.notices()[-1].solved
            assert [n for n in Ear(on.soul.wire).notices() if n.topic] == []
            assert not context.unsaved_bytes
    except StorageTrouble as trouble:
        refused = str(trouble)
        assert refused.startswith("Could not")


async def test_trouble_that_was_there_first_is_heard_by_whoever_listens_later(
    tmp_path: Path,
) -> None:
    async with stage(tmp_path) as on:
        on.server.script(say("one"))
        await on.soul.run("first")
        await on.soul.aclose()
        live = on.session.dir / "context.jsonl"
        disk = WatchedStorage()

        def read_only(name: str, arguments: tuple[Any, ...]) -> None:
            if name == "open" and arguments[0] == live and arguments[1] & os.O_RDWR:
                raise OSError(errno.EACCES, os.strerror(errno.EACCES), str(live))

        disk.before = read_only
        session = Session(on.session.dir, on.session.work_dir, disk)
        soul = await open_soul(session=session, provider=None, follow_files=False)
        for _ in range(2):
            (notice,) = Ear(soul.wire).notices()
            assert (notice.level, notice.topic) == ("error", "disk")
            assert "Permission denied" in notice.text
            assert "context.jsonl" in notice.text
        await soul.aclose()

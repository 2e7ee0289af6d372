"""The disk refuses: one notice, the conversation goes on, and what was missed is written when it is back."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from support.chat_server import calls, say
from support.soul import stage

from kimi_tui.session.errors import StorageTrouble
from kimi_tui.session.storage import Storage
from kimi_tui.soul.protocol import Target
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
            await on.soul.rewind(Target(0))
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

"""A yes for the session to a command, from the model's call to the next one that it covers."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from support.chat_server import call, say
from support.soul import stage

from kimi_tui.tools.command_groups import find_shfmt
from kimi_tui.wire import events as ev


@pytest.mark.exhaustive
async def test_a_yes_for_the_session_covers_commands_like_it(tmp_path: Path) -> None:
    if find_shfmt(os.environ, tmp_path) is None:
        pytest.skip("there is no shfmt")
    commands = ["ls -a", "ls", "ls; id", "ls /", "wc -l notes"]
    async with stage(tmp_path, mode="ask") as on:
        (on.work / "notes").write_text("one\n")
        on.server.script(
            *(call("Shell", {"command": command}) for command in commands), say("Done.")
        )
        turn = asyncio.create_task(on.soul.run("Go"))
        seen: list[str] = []
        async for record in on.soul.wire.subscribe():
            if isinstance(record.event, ev.ApprovalRequest):
                seen.append(record.event.detail)
                on.soul.answer(record.event.id, "session")
            if isinstance(record.event, ev.TurnEnd):
                break
        await turn
        # The second is like the first; of the others none may be, nor is there a yes that stands for two of them.
        assert seen == ["ls -a", "ls; id", "ls /", "wc -l notes"]
        assert [words.split()[3] for words in on.soul.allowed] == ["ls", "wc"]
        results = [result.output for result in on.ear.of(ev.ToolResult)]
        assert (results[1], results[4]) == ("notes\n", "1 notes\n")

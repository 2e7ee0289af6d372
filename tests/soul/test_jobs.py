"""Commands in the background in a conversation: when the model hears of them, what a rewind says, and their end."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from support.chat_server import call, say
from support.soul import next_event, stage
from support.watching import until

from kimi_tui.soul.rewind_values import Target
from kimi_tui.wire import events as ev

WAITS = "mkfifo go; echo begun; read x < go; exit 3"


def is_alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


@pytest.mark.exhaustive
async def test_the_model_is_told_once_that_a_command_has_ended(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:

        def told() -> int:
            return json.dumps(on.server.requests[-1].messages).count("has ended. Exit code 3")

        heard = on.soul.wire.subscribe()
        on.server.script(call("Shell", {"command": WAITS, "background": True}), say("It runs."))
        await on.soul.run("start it")
        assert (await next_event(heard, ev.JobsChanged)).running == 1
        result = next(r for r in on.ear.of(ev.ToolResult))
        assert "id 1" in result.message
        on.server.script(say("still"))
        await on.soul.run("and?")
        assert told() == 0
        assert "run in the background, by id" not in json.dumps(on.server.requests[-1].messages)
        (on.work / "go").write_text("\n")
        assert (await next_event(heard, ev.JobsChanged)).running == 0
        assert (
            "Background task 1 has ended, exit 3: mkfifo go;"
            in (await next_event(heard, ev.Notice)).text
        )
        on.server.script(say("I see."), say("Yes."))
        await on.soul.run("now?")
        assert told() == 1
        await on.soul.run("sure?")
        assert told() == 1
        # The event belongs to this run alone.
        await on.soul.flush()
        assert "JobsChanged" not in (on.session.dir / "wire.jsonl").read_text()


async def test_a_rewind_says_what_runs_on_and_the_past_is_told(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        on.server.script(
            say("fine"),
            call("Shell", {"command": "echo $$ >pid; sleep 600", "background": True}),
            say("It runs."),
        )
        await on.soul.run("hello")
        await on.soul.run("start it")
        pid = int((on.work / "pid").read_text())
        found = await on.soul.travel.preview(Target(2))
        assert found.run_on == ("echo $$ >pid; sleep 600",)
        await on.soul.travel.rewind(Target(2))
        assert is_alive(pid)
        on.server.script(say("I know."), say("Still."))
        await on.soul.run("what runs?")
        assert "- 1: `echo $$ >pid; sleep 600`" in json.dumps(on.server.requests[-1].messages)
        await on.soul.run("and now?")
        assert json.dumps(on.server.requests[-1].messages).count("- 1: `echo") == 1
        # The command ends with the session.
        await on.soul.aclose()
        assert await until(lambda: not is_alive(pid))


async def test_what_changes_while_one_runs_is_left_alone_and_said_so(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        (on.work / "built").write_text("before\n")
        (on.work / "edited").write_text("before\n")
        await on.soul.files_ready()
        heard = on.soul.wire.subscribe()
        # Each reader has a FIFO of its own: a writer that has not closed yet would end a second read of the same one.
        command = "mkfifo go end; read x < go; echo after > built; read x < end"
        on.server.script(
            say("fine"), call("Shell", {"command": command, "background": True}), say("It runs.")
        )
        await on.soul.run("hello")
        await on.soul.run("build it")
        (on.work / "go").write_text("\n")
        assert await until(lambda: (on.work / "built").read_text() == "after\n")
        # Changes that the agent makes meanwhile count as its own.
        on.server.script(
            call("ReadFile", {"path": "edited"}),
            call("WriteFile", {"path": "edited", "content": "after\n"}),
            say("written"),
        )
        await on.soul.run("and edit")
        (on.work / "end").write_text("\n")
        await next_event(heard, ev.JobsChanged, lambda event: not event.running)
        await on.soul.aclose()
        await on.open()
        await on.soul.files_ready()
        (on.work / "theirs").write_text("mine\n")
        found = await on.soul.travel.preview(Target(2))
        assert found.files is not None
        assert {one.path: (one.fate, one.reason) for one in found.files.files} == {
            "built": ("conflict", "changed during a background task"),
            "edited": ("restore", ""),
            "theirs": ("conflict", "changed outside kimi-tui"),
        }


async def test_the_user_stops_one_and_sends_one_to_the_background(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        heard = on.soul.wire.subscribe()
        on.server.script(
            call("Shell", {"command": "echo $$ >pid; sleep 600"}),
            say("I go on."),
        )
        turn = asyncio.create_task(on.soul.run("run it"))
        await next_event(heard, ev.ToolStarted)
        assert await until(lambda: on.soul.tasks.move_to_background())
        await turn
        assert on.ear.of(ev.TurnEnd) == [ev.TurnEnd("done")]
        assert "The user moved it" in on.sent()[-1][1]
        assert [job.id for job in on.soul.tasks.all] == [1]
        assert not on.soul.tasks.move_to_background()
        await on.soul.tasks.stop(1)
        on.server.script(say("I see."))
        await on.soul.run("now?")
        assert "has ended. It was stopped." in json.dumps(on.server.requests[-1].messages)

"""Sessions without D-Mails and without tools: nothing of them in any request, and nothing lost when they come back."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from support.chat_server import call, gate, say
from support.soul import Stage, stage

from kimi_tui.config.settings import DMailConfig
from kimi_tui.session.schema import is_marker
from kimi_tui.soul.dmail import DMailOff
from kimi_tui.soul.model_slot import LoopLimits
from kimi_tui.soul.rewind_values import END, Target
from kimi_tui.wire import events as ev

OFF = LoopLimits(dmail=DMailConfig(enabled=False, nudge_tokens=10))
WORDS = ("dmail", "d-mail", "checkpoint", "past self")


def names(on: Stage, number: int = -1) -> list[str]:
    """Return the tools of a request."""
    return [tool["function"]["name"] for tool in on.server.requests[number].body.get("tools", [])]


def everything(on: Stage, number: int = -1) -> str:
    """Return all that a request says, in one text."""
    body: dict[str, Any] = on.server.requests[number].body
    whole = str(body["messages"]) + str(body.get("tools", ""))
    return whole.replace(str(on.work), "")


async def test_without_dmails_no_request_has_a_word_of_them(tmp_path: Path) -> None:
    async with stage(tmp_path, limits=OFF) as on:
        (on.work / "a.txt").write_text("word " * 2_000)
        on.server.script(call("ReadFile", {"path": "a.txt"}), say("done"), say("more"))
        await on.soul.run("hi")
        await on.soul.run("and on")
        for number in range(3):
            assert "SendDMail" not in names(on, number)
            assert "ReadFile" in names(on, number)
            assert not [word for word in WORDS if word in everything(on, number).lower()]
        assert not [record for record in on.file() if is_marker(record)]
        assert "d-mail" not in on.file()[0]["content"].lower()
        assert not on.soul.dmails.enabled
        # Checkpoints are there all the same: for the user.
        assert len(on.session.context.checkpoints) == 5
        outcome = await on.soul.travel.rewind(Target(3))
        assert outcome.prompt == "and on"
        await on.soul.travel.undo()
        with pytest.raises(DMailOff, match=r"\[dmail\] enabled"):
            await on.soul.dmails.send(Target(1), "do not")
        on.server.script(call("SendDMail", {"message": "x", "checkpoint_id": 1}), say("well"))
        await on.soul.run("try it")
        assert "There is no tool" in on.sent()[-1][1]


@pytest.mark.exhaustive
async def test_dmails_turned_off_and_on_between_two_runs(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        on.server.script(say("one"), say("two"), say("three"))
        await on.soul.run("first")
        begun = everything(on)
        assert "CHECKPOINT 1" in begun
        stored = (on.session.dir / "context.jsonl").read_bytes()
        on.options["limits"] = OFF
        await on.reopen()
        assert (on.session.dir / "context.jsonl").read_bytes() == stored
        await on.soul.run("second")
        assert "SendDMail" not in names(on)
        assert not [word for word in WORDS if word in everything(on).lower()]
        assert on.sent() == [("user", "first"), ("assistant", "one"), ("user", "second")]
        del on.options["limits"]
        await on.reopen()
        await on.soul.run("third")
        assert "SendDMail" in names(on)
        # The old markers are back, for those checkpoints that have one.
        assert "CHECKPOINT 1" in everything(on)
        assert "CHECKPOINT 5" in everything(on)
        assert on.server.requests[-1].messages[0] == on.server.requests[0].messages[0]


async def test_tools_off_from_the_next_call_on(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        on.server.script(
            gate(2, call("Glob", {"pattern": "*"})), call("Glob", {"pattern": "*"}), say("done")
        )
        turn = asyncio.create_task(on.soul.run("hi"))
        await on.server.at_gate.wait()
        assert on.soul.tools_form == "on"
        used = on.soul.used
        on.soul.use_tools("off")
        assert on.soul.used < used
        on.server.release()
        await turn
        assert names(on, 0)
        for number in (1, 2):
            assert "tools" not in on.server.requests[number].body
            system = str(on.server.requests[number].messages[0])
            assert "In this session you have no tools" in system
            assert "SendDMail" not in system
            assert "CHECKPOINT" not in everything(on, number)
        # A model that calls all the same is told, and nothing runs.
        assert "you have no tools" in on.sent()[-1][1]
        assert on.soul.tools_form == "off"
        assert "Glob" in on.soul.tools
        on.soul.use_tools("on")
        on.server.script(say("again"))
        await on.soul.run("now with tools")
        assert on.server.requests[-1].body["tools"] == on.server.requests[0].body["tools"]
        assert on.server.requests[-1].messages[0] == on.server.requests[0].messages[0]
        assert on.ear.of(ev.TurnEnd)[-1].reason == "done"


async def test_without_tools_before_anything_was_said(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        on.soul.use_tools("off")
        on.server.script(say("one"))
        await on.soul.run("hi")
        assert "tools" not in on.server.requests[-1].body
        assert on.sent() == [("user", "hi")]
        assert not [word for word in WORDS if word in everything(on).lower()]


async def test_the_prompt_is_that_of_the_line_that_is_live(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        on.server.script(say("one"), say("two"), say("three"))
        await on.soul.run("hi")
        await on.soul.travel.rewind(Target(0))
        await on.soul.aclose()
        # A line that another program wrote may have another prompt.
        left = on.session.dir / "context_1.jsonl"
        first, rest = left.read_bytes().split(b"\n", 1)
        prompt = json.dumps({**json.loads(first), "content": "Another prompt."}).encode()
        left.write_bytes(prompt + b"\n" + rest)
        await on.reopen()
        await on.soul.run("on the live line")
        assert "You are the agent of kimi-tui" in str(on.server.requests[-1].messages[0])
        await on.soul.travel.rewind(Target(END, 1))
        await on.soul.run("on the other one")
        assert on.server.requests[-1].messages[0]["content"] == "Another prompt."

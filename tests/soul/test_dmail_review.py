"""D-Mails that the person reads before they are sent: sent, changed, turned down, stopped."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from support.chat_server import call, calls, say
from support.soul import next_event, stage, until_end

from kimi_tui.config.settings import DMailConfig
from kimi_tui.soul.model_slot import LoopLimits
from kimi_tui.wire import events as ev
from kimi_tui.wire.codec import Decoder, encode_record

REVIEW = LoopLimits(dmail=DMailConfig(review=True))


def mail(message: str, checkpoint_id: int) -> tuple[str, dict[str, Any]]:
    return ("SendDMail", {"message": message, "checkpoint_id": checkpoint_id})


@pytest.mark.sample
@pytest.mark.parametrize("instead", ["", "Mine: look in src."])
async def test_it_is_sent_on_yes(tmp_path: Path, instead: str) -> None:
    async with stage(tmp_path, limits=REVIEW) as on:
        on.server.script(
            call("Glob", {"pattern": "*"}, text="I look."),
            calls([mail("one", 1), mail("two", 2)]),
            say("done"),
        )
        heard = on.soul.wire.subscribe()
        turn = asyncio.create_task(on.soul.run("go"))
        asked = await next_event(heard, ev.ApprovalRequest)
        letters = "To checkpoint 1:\n\none\n\nTo checkpoint 2:\n\ntwo"
        assert (asked.kind, asked.tool, asked.detail) == ("dmail", "SendDMail", letters)
        assert "#1" in asked.question
        assert not asked.session_offer
        assert not on.ear.of(ev.ContextReverted)
        foreseen = await on.soul.dmails.preview(asked.checkpoint_id, instead or asked.detail)
        record = ev.EventRecord(1, 1.0, asked)
        assert Decoder().decode_record(encode_record(record), 1) == record
        on.soul.answer(asked.id, "once", instead)
        await turn
        sent = str(on.sent())
        assert (instead or letters.replace("\n", "\\n")) in sent
        went = on.ear.of(ev.ContextReverted)[0]
        assert ("one" not in went.text) == bool(instead)
        # The text that the program adds to it takes room too.
        assert foreseen.tokens_before == went.tokens_before
        assert abs(foreseen.tokens_after - went.tokens_after) < 50
        assert "I look." not in [text for role, text in on.sent() if role == "assistant"]
        assert on.ear.of(ev.TurnEnd)[-1].reason == "done"


@pytest.mark.parametrize("why", ["", "wait with that"])
async def test_the_turn_goes_on_after_a_no(tmp_path: Path, why: str) -> None:
    async with stage(tmp_path, limits=REVIEW) as on:
        on.server.script(calls([mail("one", 0)]), say("done"))
        heard = on.soul.wire.subscribe()
        turn = asyncio.create_task(on.soul.run("go"))
        asked = await next_event(heard, ev.ApprovalRequest)
        on.soul.answer(asked.id, "no", why)
        await turn
        assert not on.ear.of(ev.ContextReverted)
        last = on.sent()[-1][1]
        assert "refused it" in last
        assert why in last
        assert [e.n for e in on.ear.of(ev.StepBegin)] == [1, 2]
        assert on.ear.of(ev.TurnEnd)[-1].reason == "done"
        assert not (on.session.dir / "context_1.jsonl").exists()


async def test_it_can_be_stopped_while_it_asks(tmp_path: Path) -> None:
    async with stage(tmp_path, limits=REVIEW) as on:
        on.server.script(calls([mail("one", 0)]), say("on"))
        heard = on.soul.wire.subscribe()
        turn = asyncio.create_task(until_end(on.soul.run("go")))
        await next_event(heard, ev.ApprovalRequest)
        await on.soul.interrupt()
        await turn
        assert on.ear.of(ev.TurnEnd)[-1].reason == "interrupted"
        assert not on.ear.of(ev.ContextReverted)
        await until_end(on.soul.run("what now"))
        assert on.sent()[-1] == ("user", "what now")


async def test_no_one_is_asked_by_default(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        on.server.script(calls([mail("one", 0)]), say("done"))
        await on.soul.run("go")
        assert not on.ear.of(ev.ApprovalRequest)
        assert on.ear.of(ev.ContextReverted)

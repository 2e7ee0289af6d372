"""An agent that goes in circles is noticed, and the user is asked how the turn goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from support.cases import each
from support.chat_server import Answer, call, calls, say
from support.soul import Stage, next_event, stage, until_end

from kimi_tui.config.settings import LoopControl
from kimi_tui.soul.circles import Circles
from kimi_tui.soul.denwarenji import DMail
from kimi_tui.soul.model_slot import LoopLimits
from kimi_tui.soul.tool_calls import Call, CallResult
from kimi_tui.tools.outcome import ToolOutcome
from kimi_tui.wire import events as ev

READ = ("ReadFile", '{"path": "a"}')


def done(
    name: str = READ[0], arguments: str = READ[1], output: str = "x", **more: Any
) -> CallResult:
    return CallResult(Call("k", "", name, arguments), ToolOutcome(output, **more))


CIRCLES: dict[str, tuple[Sequence[CallResult], bool]] = {
    "three": ([done()] * 3, True),
    "two": ([done()] * 2, False),
    "four, of which the first differs": ([done(output="y"), *[done()] * 3], True),
    "other arguments": ([done(), done(), done(arguments="{}")], False),
    "other results": ([done(), done(), done(output="y")], False),
    "something between": ([done(), done(), done("Glob"), done()], False),
    "for how long it ran": (
        [done(message=f"Exit code 1 after 0.{n} s.", is_error=True) for n in range(3)],
        True,
    ),
    "a running command": ([done("TaskOutput", '{"id": 1}', "", brief="still runs")] * 9, False),
    "reading a running command between": (
        [done(), done(), done("TaskOutput", "{}", brief="still runs"), done()],
        False,
    ),
    "a command that has ended": ([done("TaskOutput", '{"id": 1}', brief="exit 0")] * 3, True),
    "D-Mails are no calls": ([done("SendDMail")] * 3, False),
}


@each("name", CIRCLES)
@each("at_once", [True, False])
async def test_the_same_call_with_the_same_result(name: str, at_once: bool) -> None:
    results, is_circle = CIRCLES[name]
    circles = Circles(3, 3)
    steps = [results] if at_once else [[one] for one in results]
    found = [await circles.after_calls(step) for step in steps]
    assert (found[-1] is not None) is is_circle
    assert not any(found[:-1])
    if found[-1] is not None:
        assert found[-1][0].startswith("The agent made the same call 3 times in a row")
        assert found[-1][1].startswith(results[-1].call.name)


async def test_it_counts_anew_behind_what_the_user_says_and_never_where_the_limit_is_zero() -> None:
    circles = Circles(3, 3)
    assert await circles.after_calls([done()] * 2) is None
    circles.interrupted()
    assert await circles.after_calls([done()] * 2) is None
    assert await circles.after_calls([done()]) is not None
    circles.begin()
    assert await circles.after_calls([done()] * 2) is None
    never = Circles(0, 0)
    assert await never.after_calls([done()] * 9) is None
    for _ in range(9):
        assert never.before_dmails([DMail("again", 1)]) is None


async def test_dmails_without_a_new_result() -> None:
    circles = Circles(3, 3)

    def send(text: str) -> bool:
        return circles.before_dmails([DMail(text, 1)]) is not None

    assert [send("a"), send("b"), send("c")] == [False, False, True]
    circles.interrupted()
    # The same words again are one at once, whatever was done between them.
    assert not send("d")
    await circles.after_calls([done()])
    assert send(" d ")
    circles.interrupted()
    # A result that was there before the D-Mail took it back is no new one.
    assert [send("e"), send("f")] == [False, False]
    await circles.after_calls([done()])
    assert send("g")
    circles.interrupted()
    assert [send("h"), send("i")] == [False, False]
    await circles.after_calls([done(output="new")])
    assert [send("j"), send("k"), send("l")] == [False, False, True]


async def paused(on: Stage, said: str) -> tuple[asyncio.Task[None], ev.ApprovalRequest]:
    """Return a turn that was begun and has paused, and its question."""
    told = on.soul.wire.subscribe()
    turn = asyncio.create_task(until_end(on.soul.run(said)))
    return turn, await next_event(told, ev.ApprovalRequest)


NOWHERE = call("ReadFile", {"path": "nowhere.txt"})


@pytest.mark.sample
@pytest.mark.parametrize("mode", ["ask", "all"])
async def test_the_turn_goes_on_where_the_user_says_so(tmp_path: Path, mode: str) -> None:
    async with stage(tmp_path, mode=mode) as on:
        on.server.script(*[NOWHERE] * 4, say("found"))
        turn, request = await paused(on, "look")
        assert request.kind == "pause"
        assert request.options == ("Continue",)
        assert "the same call 3 times in a row" in request.question
        assert request.detail == "ReadFile nowhere.txt"
        assert len(on.server.requests) == 3
        on.soul.answer(request.id, "once")
        await turn
        assert on.ear.of(ev.TurnEnd) == [ev.TurnEnd("done")]


async def test_the_turn_stops_where_the_user_says_so(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        on.server.script(*[NOWHERE] * 3)
        turn, request = await paused(on, "look")
        on.soul.answer(request.id, "no")
        await turn
        assert on.ear.of(ev.TurnEnd) == [ev.TurnEnd("interrupted")]
        # Every call has its result: it goes on without a word.
        on.server.script(say("I give up"))
        await until_end(on.soul.resume())
        assert on.ear.of(ev.TurnEnd)[-1] == ev.TurnEnd("done")
        assert [role for role, _ in on.sent()].count("tool") == 3


async def test_the_agent_is_told_what_the_user_says(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        on.server.script(*[NOWHERE] * 3, say("I see"))
        turn, request = await paused(on, "look")
        on.soul.answer(request.id, "once", "It is in src.")
        await turn
        assert "It is in src." in on.sent()[-1][1]
        assert [taken.text for taken in on.ear.of(ev.SteerTaken)] == ["It is in src."]
        assert on.ear.of(ev.TurnEnd) == [ev.TurnEnd("done")]
        # The question is in the record, which opens again.
        await on.reopen()
        shown = await on.soul.history()
        requests = [one.event for one in shown if isinstance(one.event, ev.ApprovalRequest)]
        assert requests == [request]
        answers = [one.event for one in shown if isinstance(one.event, ev.ApprovalResolved)]
        assert answers == [ev.ApprovalResolved(request.id, "once", "It is in src.")]


def mail(text: str) -> Answer:
    return calls([("SendDMail", {"message": text, "checkpoint_id": 1})])


@pytest.mark.sample
@pytest.mark.parametrize("said", ["Continue", "Write the file.", ""])
async def test_dmails_in_a_circle_do_not_go_unasked(tmp_path: Path, said: str) -> None:
    async with stage(tmp_path) as on:
        on.server.script(mail("one"), mail("one"), say("well"))
        turn, request = await paused(on, "hi")
        assert "the same D-Mail" in request.question
        assert request.detail == "one"
        assert len(on.ear.of(ev.ContextReverted)) == 1
        on.soul.answer(request.id, "once" if said else "no", said)
        await turn
        assert len(on.ear.of(ev.ContextReverted)) == (2 if said == "Continue" else 1)
        end = on.ear.of(ev.TurnEnd)[-1]
        assert end == ev.TurnEnd("done" if said else "interrupted")


async def test_esc_at_the_question_stops_the_turn(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        on.server.script(*[NOWHERE] * 3)
        turn, request = await paused(on, "look")
        await on.soul.interrupt()
        await turn
        assert on.ear.of(ev.ApprovalResolved) == [ev.ApprovalResolved(request.id, "no", "stopped")]
        assert on.ear.of(ev.TurnEnd) == [ev.TurnEnd("interrupted")]


async def test_zero_is_never(tmp_path: Path) -> None:
    limits = LoopLimits(LoopControl(same_call_limit=0))
    async with stage(tmp_path, limits=limits) as on:
        on.server.script(*[NOWHERE] * 5, say("done"))
        await on.soul.run("look")
        assert on.ear.of(ev.ApprovalRequest) == []

"""Questions reach the wire one at a time, and answers reach those who asked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from dataclasses import replace

import pytest
from support.soul import next_event

from kimi_tui.soul import approval as approvals
from kimi_tui.soul.approval import Approval, Mode, QuestionNotShown
from kimi_tui.tool_cards import DisplayBlock
from kimi_tui.tools.base import (
    TO_EDIT,
    TO_EDIT_ELSEWHERE,
    TO_GO_OUTSIDE,
    TO_RUN,
    ApprovalQuestion,
    Asks,
)
from kimi_tui.tools.outcome import FileEdit, ToolProblem, ToolRejected
from kimi_tui.tools.session_tools import MODE_AFTER
from kimi_tui.wire.events import ApprovalAnswer, ApprovalRequest, ApprovalResolved, ModeChanged
from kimi_tui.wire.queue import Subscription, Wire

RUN = ApprovalQuestion(TO_RUN, "Run this command?", "make test")
EDIT = ApprovalQuestion(
    TO_EDIT,
    "Make this edit?",
    "a.py",
    edits=(FileEdit("a.py", "x\n", "y\n"),),
    session_key="edits",
    session_offer="Yes, all",
)
GUARDED = ApprovalQuestion(
    TO_EDIT_ELSEWHERE, "Make this edit?", ".git/config", session_key="k", protected=True
)


@pytest.fixture
def wire() -> Wire:
    return Wire()


@pytest.fixture
async def approval(wire: Wire) -> AsyncIterator[Approval]:
    approval = Approval(wire)
    yield approval
    approval.close()


async def asked(heard: Subscription) -> ApprovalRequest:
    return await next_event(heard, ApprovalRequest)


def ask(approval: Approval, question: ApprovalQuestion) -> asyncio.Task[str]:
    return asyncio.create_task(approval.ask(question, key="k:0", tool="Shell"))


async def test_yes_no_and_why(wire: Wire, approval: Approval) -> None:
    heard = wire.subscribe()
    answers: list[tuple[ApprovalAnswer, str]] = [("once", ""), ("no", ""), ("no", " use make ")]
    for answer, feedback in answers:
        waiting = ask(approval, RUN)
        request = await asked(heard)
        assert (request.key, request.tool, request.detail) == ("k:0", "Shell", "make test")
        assert not request.session_offer
        assert not waiting.done()
        assert approval.answer("other", "once") is False
        assert approval.answer(request.id, answer, feedback)
        assert approval.answer(request.id, "once") is False
        if answer == "once":
            await waiting
        else:
            with pytest.raises(ToolRejected) as caught:
                await waiting
            assert caught.value.feedback == feedback.strip()
        resolved = await next_event(heard, ApprovalResolved)
        assert (resolved.id, resolved.answer) == (request.id, answer)


async def test_where_each_yes_holds_once_no_other_is_offered(
    wire: Wire, approval: Approval
) -> None:
    approval.once_only = True
    heard = wire.subscribe()
    for _ in range(2):
        waiting = ask(approval, replace(RUN, session_key="k", session_offer="Yes, for all"))
        request = await asked(heard)
        assert (request.session_offer, request.project_offer) == ("", "")
        assert approval.answer(request.id, "session")
        await waiting
    assert approval.allowed == ()


async def test_a_yes_for_the_session_covers_what_waits_behind_it(
    wire: Wire, approval: Approval
) -> None:
    heard = wire.subscribe()
    first, second, third = ask(approval, EDIT), ask(approval, EDIT), ask(approval, GUARDED)
    request = await asked(heard)
    assert request.session_offer == "Yes, all"
    assert request.display
    approval.answer(request.id, "session")
    await asyncio.gather(first, second)
    # Only what is guarded is still asked for, and never gets more than one yes.
    request = await asked(heard)
    assert request.detail == ".git/config"
    approval.answer(request.id, "session")
    await third
    again = ask(approval, GUARDED)
    approval.answer((await asked(heard)).id, "once")
    await again
    await approval.ask(EDIT, key="k", tool="WriteFile")


@pytest.mark.parametrize(
    ("mode", "covered"), [("ask", ()), ("edits", (EDIT,)), ("all", (EDIT, RUN))]
)
async def test_modes(
    wire: Wire, approval: Approval, mode: Mode, covered: tuple[ApprovalQuestion, ...]
) -> None:
    approval.set_mode(mode)
    heard = wire.subscribe()
    for question in (EDIT, RUN, GUARDED):
        waiting = ask(approval, question)
        if question in covered:
            await waiting
            assert heard.drain() == []
        else:
            approval.answer((await asked(heard)).id, "once")
            await waiting
            await next_event(heard, ApprovalResolved)


async def test_what_is_read_outside_is_asked_for_in_every_mode(
    wire: Wire, approval: Approval
) -> None:
    heard = wire.subscribe()
    approval.set_mode("all")
    outside = ApprovalQuestion(
        TO_GO_OUTSIDE, "Read this file?", "~/a", session_key="k", session_offer="Yes, k"
    )
    waiting = ask(approval, outside)
    approval.answer((await asked(heard)).id, "session")
    await waiting
    await approval.ask(outside, key="k", tool="ReadFile")


async def test_leaving_the_sandbox_asks_in_every_mode_until_its_group_is_allowed(
    wire: Wire, approval: Approval
) -> None:
    heard = wire.subscribe()
    approval.set_mode("all")
    other = ApprovalQuestion(TO_GO_OUTSIDE, "Run this command?", "git push")
    known = ApprovalQuestion(
        TO_GO_OUTSIDE, "Run this command?", "git status", session_key="g", session_offer="Yes, g"
    )
    answers: list[tuple[ApprovalQuestion, ApprovalAnswer]]
    answers = [(other, "session"), (other, "once"), (known, "session")]
    for question, answer in answers:
        waiting = ask(approval, question)
        approval.answer((await asked(heard)).id, answer)
        await waiting
    await approval.ask(known, key="k", tool="Shell")
    assert approval.allowed == ("Yes, g",)
    approval.revoke("Yes, g")
    waiting = ask(approval, known)
    approval.answer((await asked(heard)).id, "once")
    await waiting


async def test_a_change_of_mode_answers_nothing_that_is_on_the_screen(
    wire: Wire, approval: Approval
) -> None:
    heard = wire.subscribe()
    waiting, behind, guarded = (ask(approval, one) for one in (RUN, RUN, GUARDED))
    request = await asked(heard)
    approval.set_mode("all")
    approval.set_mode("all")
    assert [record.event for record in heard.drain()] == [ModeChanged("all")]
    assert not waiting.done()
    assert approval.answer(request.id, "no")
    with pytest.raises(ToolRejected):
        await waiting
    # The next request is covered, unless it is one that is always asked.
    await behind
    approval.answer((await asked(heard)).id, "once")
    await guarded


async def test_a_yes_for_the_session_to_what_is_guarded_is_one_for_once(
    wire: Wire, approval: Approval
) -> None:
    heard = wire.subscribe()
    waiting = ask(approval, GUARDED)
    approval.answer((await asked(heard)).id, "session")
    await waiting
    assert (await next_event(heard, ApprovalResolved)).answer == "once"
    assert approval.allowed == ()
    # Nor does it cover an ordinary question that has the same key.
    waiting = ask(approval, replace(EDIT, session_key="k"))
    approval.answer((await asked(heard)).id, "once")
    await waiting


async def test_what_was_allowed_is_listed_and_ends_with_a_stricter_mode(
    wire: Wire, approval: Approval
) -> None:
    heard = wire.subscribe()

    async def is_asked() -> bool:
        waiting = ask(approval, EDIT)
        done, _ = await asyncio.wait([waiting], timeout=0.01)
        if not done:
            approval.answer((await asked(heard)).id, "session")
        await waiting
        return not done

    assert await is_asked()
    assert approval.allowed == ("Yes, all",)
    assert not await is_asked()
    # A mode that asks for less takes nothing away, but its end does, and so does the mode that is shown already.
    for mode in ("edits", "ask"):
        assert approval.allowed
        approval.set_mode(mode)
    assert await is_asked()
    approval.set_mode("ask")
    assert approval.allowed == ()
    assert await is_asked()
    approval.revoke("Yes, all")
    assert await is_asked()


async def test_a_cancelled_question_makes_room_for_the_next(wire: Wire, approval: Approval) -> None:
    heard = wire.subscribe()
    first, second, third = ask(approval, RUN), ask(approval, EDIT), ask(approval, GUARDED)
    request = await asked(heard)
    second.cancel()
    first.cancel()
    resolved = await next_event(heard, ApprovalResolved)
    assert (resolved.id, resolved.answer) == (request.id, "no")
    assert (await asked(heard)).detail == ".git/config"
    approval.close()
    with pytest.raises(asyncio.CancelledError):
        await third


@pytest.mark.parametrize("answer", ["once", "no"])
async def test_a_change_of_mode_right_after_an_answer(
    wire: Wire, approval: Approval, answer: ApprovalAnswer
) -> None:
    heard = wire.subscribe()
    waiting = ask(approval, EDIT)
    request = await asked(heard)
    approval.answer(request.id, answer)
    approval.set_mode("all")
    approval.set_mode("edits")
    if answer == "no":
        with pytest.raises(ToolRejected):
            await waiting
    else:
        await waiting
    told = [r.event for r in heard.drain() if isinstance(r.event, ApprovalResolved)]
    assert [(one.id, one.answer) for one in told] == [(request.id, answer)]


async def test_a_change_of_mode_right_after_a_stop(wire: Wire, approval: Approval) -> None:
    heard = wire.subscribe()
    waiting = ask(approval, EDIT)
    request = await asked(heard)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    approval.set_mode("all")
    resolved = await next_event(heard, ApprovalResolved)
    assert (resolved.id, resolved.answer) == (request.id, "no")


async def test_a_mode_that_covers_a_question_while_its_diff_is_made(
    wire: Wire, approval: Approval, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def change_the_mode(edits: Iterable[FileEdit]) -> tuple[DisplayBlock, ...]:
        approval.set_mode("edits")
        return await made(edits)

    made = approvals.diffs_of
    monkeypatch.setattr(approvals, "diffs_of", change_the_mode)
    heard = wire.subscribe()
    await ask(approval, EDIT)
    assert [record.event for record in heard.drain()] == [ModeChanged("edits")]


async def test_a_question_that_cannot_be_shown_is_a_no_and_the_next_is_put(
    wire: Wire, approval: Approval, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail_once(edits: Iterable[FileEdit]) -> tuple[DisplayBlock, ...]:
        if not failed:
            failed.append(True)
            raise RuntimeError("a fault of ours")
        return await made(edits)

    made, failed = approvals.diffs_of, list[bool]()
    monkeypatch.setattr(approvals, "diffs_of", fail_once)
    heard = wire.subscribe()
    first, second = ask(approval, EDIT), ask(approval, RUN)
    with pytest.raises(QuestionNotShown):
        await first
    request = await asked(heard)
    assert request.detail == RUN.detail
    approval.answer(request.id, "once")
    await second


async def test_a_change_that_nobody_can_read_is_not_asked_about(
    wire: Wire, approval: Approval
) -> None:
    text = "x\n" * approvals.MOST_LINES
    edits = (FileEdit("a.py", text, "y\n" + text[2:]), FileEdit("b.py", None, text))
    with pytest.raises(ToolProblem, match="in parts"):
        await asyncio.wait_for(ask(approval, replace(EDIT, edits=edits)), 30)
    # The request counts the changes, not the files.
    waiting = ask(approval, replace(EDIT, edits=edits[:1]))
    request = await asked(wire.subscribe())
    approval.answer(request.id, "once")
    await waiting


@pytest.mark.parametrize(
    ("answer", "words_offer", "said", "result", "resolved"),
    [
        ("once", "Tell the agent something", "Go on", "Go on", ("once", "Go on")),
        # Without a screen a bare yes is enough.
        ("once", "", "", "Go on", ("once", "Go on")),
        ("session", "", "", "Go on", ("once", "Go on")),
        ("once", "Tell the agent something", " read b.py ", "read b.py", ("once", "read b.py")),
        ("once", "", "read b.py", "Go on", ("once", "Go on")),
        ("no", "", "", None, ("no", "")),
    ],
)
async def test_the_program_pauses_a_turn_in_every_mode(
    wire: Wire,
    answer: ApprovalAnswer,
    words_offer: str,
    said: str,
    result: str | None,
    resolved: tuple[str, str],
) -> None:
    heard = wire.subscribe()
    approval = Approval(wire, "all")
    waiting = asyncio.create_task(
        approval.pause("It goes in circles.", ["Go on", "Wait"], words_offer=words_offer)
    )
    request = await asked(heard)
    assert (request.kind, request.key, request.options) == ("pause", "", ("Go on", "Wait"))
    assert request.no_offer == "Stop the turn"
    assert approval.answer(request.id, answer, said)
    assert await waiting == result
    told = await next_event(heard, ApprovalResolved)
    assert (told.answer, told.feedback) == resolved


async def test_a_pause_that_needs_no_answer_any_more_is_withdrawn(
    wire: Wire, approval: Approval
) -> None:
    heard = wire.subscribe()
    waiting = asyncio.create_task(approval.pause("Nothing comes.", ["Wait on"]))
    request = await asked(heard)
    waiting.cancel()
    told = await next_event(heard, ApprovalResolved)
    assert (told.id, told.answer, told.feedback) == (request.id, "no", "stopped")
    assert not approval.answer(request.id, "once")


@pytest.mark.parametrize(
    ("before", "after"), [("ask", "ask"), ("edits", "edits"), ("all", "edits")]
)
async def test_a_plan_that_was_edited_is_carried_out_in_the_mode_of_before(
    wire: Wire, approval: Approval, before: Mode, after: Mode
) -> None:
    heard = wire.subscribe()
    approval.set_mode(before)
    approval.set_mode("plan")
    offered = tuple(words for words, mode in MODE_AFTER.items() if mode != "sandboxed")
    plan = ApprovalQuestion(
        Asks("plan"), "Carry it out?", "1. Look", options=offered, protected=True
    )
    asking = ask(approval, plan)
    request = await asked(heard)
    approval.answer(request.id, "once", "1. Look twice")
    assert await asking == "1. Look twice"
    assert approval.mode == after

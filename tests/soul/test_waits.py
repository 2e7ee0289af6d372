"""Waiting: the user need not wait for titles, and is asked about answers that are overdue."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.chat_server import Answer, Chunk, Request, Stall, gate, reply, say, stall, status
from support.soul import Stage, next_event, stage, until_end

from kimi_tui.llm.openai_compatible import OpenAICompatible
from kimi_tui.soul.kimisoul import ASK_AGAIN, WAIT_ON
from kimi_tui.wire import events as ev

# --- an answer that is overdue


async def overdue(on: Stage, said: str = "hi") -> tuple[asyncio.Task[None], ev.ApprovalRequest]:
    """Return a turn that was begun and whose answer is overdue, and its question."""
    told = on.soul.wire.subscribe()
    turn = asyncio.create_task(until_end(on.soul.run(said)))
    return turn, await next_event(told, ev.ApprovalRequest)


async def patient(on: Stage, turn: Awaitable[object]) -> None:
    """Wait for a turn, and wait on where a slow machine is overdue once more."""
    told, going_on = on.soul.wire.subscribe(), asyncio.ensure_future(turn)
    asking = asyncio.ensure_future(next_event(told, ev.ApprovalRequest))
    while not going_on.done():
        await asyncio.wait({going_on, asking}, return_when=asyncio.FIRST_COMPLETED)
        if asking.done():
            on.soul.answer(asking.result().id, "once", WAIT_ON)
            asking = asyncio.ensure_future(next_event(told, ev.ApprovalRequest))
    asking.cancel()
    await going_on


@pytest.mark.parametrize("answer", [WAIT_ON, ""])
async def test_it_is_waited_on(tmp_path: Path, answer: str) -> None:
    async with stage(tmp_path, first_answer_timeout_s=0.1) as on:
        on.server.script(gate(0, say("at last")))
        turn, request = await overdue(on)
        assert (request.kind, request.options) == ("pause", (WAIT_ON,))
        on.soul.answer(request.id, "once", answer)
        on.server.release()
        await turn
        assert on.ear.of(ev.TurnEnd) == [ev.TurnEnd("done")]
        assert on.ear.of(ev.StepRetry) == []
        assert len(on.server.requests) == 1


async def test_it_is_stopped_as_by_esc(tmp_path: Path) -> None:
    async with stage(tmp_path, first_answer_timeout_s=0.1) as on:
        on.server.script(replace(say("never"), before=(Stall(),)))
        turn, request = await overdue(on)
        on.soul.answer(request.id, "no")
        await turn
        assert on.ear.of(ev.TurnEnd) == [ev.TurnEnd("interrupted")]
        assert len(on.ear.of(ev.StepInterrupted)) == 1
        on.server.script(say("now"))
        await patient(on, on.soul.resume())
        assert on.ear.of(ev.TurnEnd)[-1] == ev.TurnEnd("done")


@pytest.mark.usefixtures("far")
@pytest.mark.parametrize(
    "silent",
    [replace(say("never"), before=(Stall(),)), stall(3, say("A part that is never whole"))],
    ids=["before the answer", "within it"],
)
async def test_elsewhere_it_may_be_asked_for_again(tmp_path: Path, silent: Answer) -> None:
    async with stage(tmp_path, stream_timeout_s=0.1) as on:
        on.server.script(silent, say("now"))
        turn, request = await overdue(on)
        assert request.options == (WAIT_ON, ASK_AGAIN)
        on.soul.answer(request.id, "once", ASK_AGAIN)
        await patient(on, turn)
        assert on.ear.of(ev.TurnEnd) == [ev.TurnEnd("done")]
        assert len(on.server.requests) == 2
        assert len(on.ear.of(ev.StepRetry)) == 1
        assert "A part" not in str(on.file())


async def test_the_question_goes_when_the_answer_comes(tmp_path: Path) -> None:
    async with stage(tmp_path, first_answer_timeout_s=0.1) as on:
        on.server.script(gate(0, say("at last")))
        turn, request = await overdue(on)
        on.server.release()
        await turn
        assert on.ear.of(ev.ApprovalResolved) == [ev.ApprovalResolved(request.id, "no", "stopped")]
        assert on.ear.of(ev.TurnEnd) == [ev.TurnEnd("done")]


async def test_how_far_the_prompt_is_read_is_told_and_not_recorded(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        figures = {"total": 100, "cache": 0, "processed": 31}
        progress = Chunk({"choices": [{"delta": {}}], "prompt_progress": figures})
        answer = say("read")
        on.server.script(replace(answer, ops=(progress, *answer.ops)))
        await on.soul.run("hi")
        assert on.ear.of(ev.PromptProgress) == [ev.PromptProgress(31, 100)]
        await on.soul.flush()
        assert "PromptProgress" not in (on.session.dir / "wire.jsonl").read_text()


# --- the title


def title_asked(on: Stage) -> Request:
    return on.server.title_requests[-1]


async def spoken(on: Stage) -> None:
    on.server.script(say("Done."))
    await on.soul.run("Look at the keys")


async def test_the_stream_of_a_title_ends_at_its_first_line(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        await spoken(on)
        answer = say("Rotate the keys\n")
        on.server.title = replace(answer, ops=(*answer.ops[:-3], Stall()))
        assert await on.soul.name_session() == "Rotate the keys"
        async with asyncio.timeout(20):
            await on.server.client_gone.wait()
        assert title_asked(on).body["max_tokens"] == 64
        # The cost of the request is counted, if only as an estimate.
        assert on.soul.status.total_input > 20


async def test_a_title_that_never_ends_is_cut(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        await spoken(on)
        on.server.title = say("on and on " * 200)
        title = await on.soul.name_session()
        assert title
        assert title.startswith("on and on")


@pytest.mark.sample
@pytest.mark.parametrize("begins", ["turn", "compaction"])
async def test_a_title_gives_way_to_what_the_user_waits_for(tmp_path: Path, begins: str) -> None:
    async with stage(tmp_path) as on:
        await spoken(on)
        asked = asyncio.Event()

        def answer(request: Request) -> Answer:
            asked.set()
            return replace(say("late"), before=(Stall(),))

        on.server.title_answers = answer
        naming = asyncio.create_task(on.soul.name_session())
        async with asyncio.timeout(20):
            await asked.wait()
        on.server.script(say("Again."))
        if begins == "turn":
            await on.soul.run("More")
        else:
            await on.soul.compact()
        assert await naming is None
        async with asyncio.timeout(20):
            await on.server.client_gone.wait()
        # A later turn tries again.
        on.server.title_answers = None
        on.server.title = say("The keys")
        assert await on.soul.name_session() == "The keys"


async def test_a_model_that_thinks_has_room_for_it(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        known: dict[str, Any] = {
            "provider": "p",
            "base_url": on.server.base_url,
            "api_key": "",
            "model": "m",
        }
        on.soul.set_provider(OpenAICompatible(**known, dialect="qwen", thinking="on"))
        await spoken(on)
        on.server.title = say("Keys", think="Well.")
        assert await on.soul.name_session() == "Keys"
        assert title_asked(on).body["max_tokens"] == 2_112


async def test_one_that_nobody_knew_to_think_is_asked_again_with_room(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        await spoken(on)
        rooms: list[int] = []

        def answer(request: Request) -> Answer:
            rooms.append(request.body["max_tokens"])
            return say("", think="Well, now.", finish="length") if len(rooms) == 1 else say("Keys")

        on.server.title_answers = answer
        assert await on.soul.name_session() == "Keys"
        assert rooms == [64, 2_112]


async def test_the_other_name_of_the_limit_is_tried_where_one_is_refused(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        await spoken(on)
        words = "Unsupported parameter: 'max_tokens' is not supported. Use 'max_completion_tokens'."

        def answer(request: Request) -> Answer:
            refused = "max_tokens" in request.body
            return status(400, {"error": {"message": words}}) if refused else say("Keys")

        on.server.title_answers = answer
        assert await on.soul.name_session() == "Keys"
        assert title_asked(on).body["max_completion_tokens"] == 64


@pytest.mark.parametrize(
    ("routes", "is_asked"),
    [
        ({("GET", "/props"): {"default_generation_settings": {"n_ctx": 9_000}, "total_slots": 1}}, False),
        ({("GET", "/props"): {"default_generation_settings": {"n_ctx": 9_000}, "total_slots": 4}}, True),
        ({("GET", "/api/version"): {"version": "0.30"}, ("POST", "/api/show"): {"capabilities": ["tools"]}}, False),
        ({}, True),
    ],
    ids=["one slot", "four slots", "Ollama", "another"],
)  # fmt: skip
async def test_no_title_where_the_next_message_would_wait_for_it(
    tmp_path: Path, routes: dict[tuple[str, str], Any], is_asked: bool
) -> None:
    async with stage(tmp_path) as on:
        for (method, path), answer in routes.items():
            on.server.route(method, path, reply(answer))
        on.soul.set_provider(
            OpenAICompatible(
                provider="p", base_url=on.server.base_url, api_key="", model="stand-in"
            )
        )
        await spoken(on)
        on.server.title = say("Keys")
        assert await on.soul.name_session() == ("Keys" if is_asked else "")
        assert len(on.server.title_requests) == is_asked

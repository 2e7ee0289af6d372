"""The wait for an answer: limited by signs of life until it begins, by its pieces from then on, and by the user's decision after that."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from support.chat_server import (
    Answer,
    ChatServer,
    Chunk,
    Drop,
    Gate,
    Raw,
    Request,
    Stall,
    Wait,
    reply,
    say,
    stall,
)

from kimi_tui.llm.completion import AnswerItem, RetryNotice, RetryPolicy, complete, stream_answer
from kimi_tui.llm.errors import AnswerOverdueError
from kimi_tui.llm.message import user_message
from kimi_tui.llm.openai_compatible import OpenAICompatible
from kimi_tui.llm.provider import Completion, Overdue, PromptRead, TextDelta
from kimi_tui.llm.waiting import FIRST_ANSWER_S, WaitLimits
from kimi_tui.soul.model_slot import OnOverdue

Connect = Callable[..., OpenAICompatible]
SHORT_S = 0.1
"""The limit between two pieces; after `LONG_S`, which is more, the answer comes."""
LONG_S = 0.15
PING = Raw(b": keep-alive\n\n")
ONCE = RetryPolicy(max_attempts=1)
TWICE = RetryPolicy(max_attempts=2, initial_s=0.001, max_s=0.002, jitter_s=0.0)


async def ask(
    connect: Connect,
    policy: RetryPolicy = ONCE,
    *,
    piece_s: float = SHORT_S,
    first_s: float = 0.0,
    seen: list[AnswerItem] | None = None,
    notices: list[RetryNotice] | None = None,
    on_overdue: OnOverdue | None = None,
    **options: Any,
) -> Completion:
    def show(item: AnswerItem) -> None:
        if isinstance(item, Overdue):
            item.decision = on_overdue and asyncio.create_task(on_overdue(item))
        elif isinstance(item, RetryNotice):
            if notices is not None:
                notices.append(item)
        elif seen is not None:
            seen.append(item)

    provider = connect(stream_timeout_s=piece_s, first_answer_timeout_s=first_s)
    asked = stream_answer(provider, "", [], [user_message("hi")], policy=policy, **options)
    return await complete(asked, show)


def late(*ops: Any, answer: Answer | None = None) -> Answer:
    """Return an answer that something else precedes."""
    answer = answer or say("fine")
    return replace(answer, ops=(*ops, *answer.ops))


ALIVE = (PING, Wait(0.02)) * int(LONG_S / 0.02)
"""Comments that come in time, for longer than the limit between two pieces."""
EMPTY = Chunk({"choices": [{"delta": {"role": "assistant", "content": ""}}]})


def test_limits_by_where_the_server_is() -> None:
    far = WaitLimits("api.example.com", 120.0, 120.0, FIRST_ANSWER_S)
    assert WaitLimits.of("api.example.com", 120.0, 0.0) == far
    near = WaitLimits("127.0.0.1", 120.0, None, None, near=True)
    assert WaitLimits.of("127.0.0.1", 120.0, 0.0) == near
    # The user's settings hold for all servers.
    assert WaitLimits.of("127.0.0.1", 120.0, 60.0) == replace(near, first_s=60.0)
    assert WaitLimits.of("api.example.com", 120.0, 60.0) == replace(far, first_s=60.0)


@pytest.mark.parametrize(
    "answer",
    [
        replace(say("fine"), before=(Wait(LONG_S),)),
        late(Wait(LONG_S)),
        late(*ALIVE),
        late(EMPTY, Wait(LONG_S)),
        replace(reply({"choices": [{"message": {"content": "fine"}, "finish_reason": "stop"}]}), before=(Wait(LONG_S),)),
    ],
    ids=["no head", "no byte", "comments", "an empty piece", "in one piece"],
)  # fmt: skip
async def test_a_server_in_the_same_network_may_read_for_as_long_as_it_likes(
    answer: Answer, server: ChatServer, connect: Connect
) -> None:
    server.script(answer)
    assert (await ask(connect)).message.text == "fine"
    assert len(server.requests) == 1


@pytest.mark.usefixtures("far")
@pytest.mark.parametrize("sign", [PING, EMPTY])
async def test_elsewhere_every_byte_before_the_answer_is_a_sign_of_life(
    sign: Any, server: ChatServer, connect: Connect
) -> None:
    server.script(late(*(sign, Wait(0.02)) * 20))
    assert (await ask(connect, piece_s=0.3)).message.text == "fine"
    assert len(server.requests) == 1


@pytest.mark.usefixtures("far")
@pytest.mark.parametrize(
    ("answer", "first_s", "words"),
    [
        (late(Stall()), 0.0, r"sent nothing for 0\.1 s"),
        (replace(say("late"), before=(Stall(),)), 0.0, r"sent nothing for 0\.1 s"),
        (late(*ALIVE, Stall()), 0.0, r"sent nothing for 0\.1 s"),
        (late(*ALIVE * 90), 0.05, r"has not begun to answer for 0\.05 s"),
    ],
)
async def test_a_limit_that_nobody_extends_is_a_failure(
    answer: Answer, first_s: float, words: str, server: ChatServer, connect: Connect
) -> None:
    server.script(answer, say("begun anew"))
    with pytest.raises(AnswerOverdueError, match=words):
        await ask(connect, TWICE, first_s=first_s)
    # A repeated request would be read and paid for from its beginning. On a busy machine the server may not have heard of the first.
    assert len(server.requests) <= 1


@pytest.mark.usefixtures("far")
@pytest.mark.parametrize("sign", [PING, Raw(b"x"), Raw(b"\n")])
async def test_within_an_answer_bytes_without_an_event_are_no_sign_of_life(
    sign: Raw, server: ChatServer, connect: Connect
) -> None:
    first = say("a b c")
    server.script(replace(first, ops=(*first.ops[:2], *((sign, Wait(0.02)) * 3_000))))
    with pytest.raises(AnswerOverdueError, match=r"sent nothing for 0\.1 s"):
        await ask(connect)


@pytest.mark.usefixtures("far")
@pytest.mark.parametrize("before_head", [True, False])
async def test_it_is_waited_on_where_that_is_decided(
    before_head: bool, server: ChatServer, connect: Connect
) -> None:
    asked: list[str] = []

    async def wait_on(overdue: Overdue) -> bool:
        asked.append(overdue.text)
        if len(asked) == 2:
            server.release()
        return True

    answer = replace(say("fine"), before=(Gate(),)) if before_head else late(Gate())
    server.script(answer)
    assert (await ask(connect, on_overdue=wait_on)).message.text == "fine"
    assert asked == ["127.0.0.1 sent nothing for 0.1 s."] * 2
    assert len(server.requests) == 1


@pytest.mark.usefixtures("far")
@pytest.mark.parametrize("policy", [TWICE, replace(TWICE, patience_s=0.001)])
@pytest.mark.parametrize("n_begun", [0, 3])
async def test_the_request_is_made_again_as_often_as_that_is_decided(
    n_begun: int, policy: RetryPolicy, server: ChatServer, connect: Connect
) -> None:
    notices: list[RetryNotice] = []

    async def give_up(overdue: Overdue) -> bool:
        # A loaded machine may need more than the limit for the answer that comes.
        return len(notices) == 3

    def answer(_: Request) -> Answer:
        return say("fine") if len(notices) == 3 else stall(n_begun, say("a b c"))

    server.script(*[answer] * 4)
    done = await ask(connect, policy, on_overdue=give_up, notices=notices, known=True)
    assert done.message.text == "fine"
    # On a loaded machine a request may be given up before the server has read it.
    assert len(server.requests) <= 4
    assert [notice.wait_s for notice in notices] == [0.0] * 3


@pytest.mark.usefixtures("far")
@pytest.mark.parametrize("first_s", [0.0, 0.05])
async def test_a_question_is_withdrawn_when_the_answer_comes(
    first_s: float, server: ChatServer, connect: Connect
) -> None:
    withdrawn: list[Overdue] = []

    async def think(overdue: Overdue) -> bool:
        server.release()
        try:
            await asyncio.Event().wait()
        finally:
            withdrawn.append(overdue)
        return True

    # A comment is a sign of life where a byte was waited for, and none where the answer was.
    before = (*ALIVE, Gate(), PING, Wait(SHORT_S)) if first_s else (Gate(), PING)
    server.script(late(*before))
    assert (await ask(connect, on_overdue=think, first_s=first_s)).message.text == "fine"
    await asyncio.sleep(0)
    assert len(withdrawn) == 1
    assert len(server.requests) == 1


@pytest.mark.parametrize("is_near", [True, False])
async def test_a_pause_within_an_answer_is_waited_out_where_that_is_decided(
    is_near: bool, server: ChatServer, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kimi_tui.llm.waiting.is_near", lambda host: is_near)
    asked: list[tuple[str, bool]] = []

    async def wait_on(overdue: Overdue) -> bool:
        asked.append((overdue.text, overdue.near))
        server.release()
        return True

    broken = say("some words")
    server.script(replace(broken, ops=(*broken.ops[:2], Gate(), *broken.ops[2:])), say("again"))
    done = await ask(connect, TWICE, on_overdue=wait_on)
    assert done.message.text == "some words"
    assert asked == [("127.0.0.1 sent nothing for 0.1 s.", is_near)]
    assert len(server.requests) == 1


@pytest.mark.usefixtures("far")
async def test_a_connection_that_breaks_while_it_is_asked_is_made_again(
    server: ChatServer, connect: Connect
) -> None:
    withdrawn = asyncio.Event()

    async def think(overdue: Overdue) -> bool:
        server.release()
        try:
            await asyncio.Event().wait()
        finally:
            withdrawn.set()
        return True

    broken = say("some words")
    server.script(replace(broken, ops=(*broken.ops[:2], Gate(), Drop())), say("again"))
    assert (await ask(connect, TWICE, on_overdue=think)).message.text == "again"
    assert len(server.requests) == 2
    async with asyncio.timeout(5):
        await withdrawn.wait()


async def test_a_stop_ends_the_question_and_the_connection(
    server: ChatServer, connect: Connect, far: None
) -> None:
    asked = asyncio.Event()
    withdrawn = asyncio.Event()

    async def think(overdue: Overdue) -> bool:
        asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            withdrawn.set()
        return True

    server.script(late(Stall()))
    asking = asyncio.create_task(ask(connect, on_overdue=think))
    await asked.wait()
    asking.cancel()
    await asyncio.wait([asking])
    async with asyncio.timeout(5):
        await withdrawn.wait()
        await server.client_gone.wait()


async def test_how_far_the_prompt_is_read(server: ChatServer, connect: Connect) -> None:
    def progress(processed: Any, total: Any = 6_631, cache: Any = 24) -> Chunk:
        figures = {"total": total, "cache": cache, "processed": processed, "time_ms": 5}
        delta = {"role": "assistant", "content": None}
        return Chunk({"choices": [{"index": 0, "delta": delta}], "prompt_progress": figures})

    odd = [progress(None), progress("x"), progress(5, 9, 9), Chunk({"prompt_progress": [1]})]
    server.script(late(progress(24), progress(2_072), *odd, progress(9_999)))
    seen: list[AnswerItem] = []
    assert (await ask(connect, seen=seen)).message.text == "fine"
    read = [item for item in seen if isinstance(item, PromptRead)]
    assert read == [PromptRead(0, 6_607), PromptRead(2_048, 6_607), PromptRead(6_607, 6_607)]
    assert isinstance(seen[len(read)], TextDelta)

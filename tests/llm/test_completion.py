from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from support.cases import each

from kimi_tui.llm.completion import (
    AnswerItem,
    Collector,
    RetryNotice,
    RetryPolicy,
    complete,
    stream_answer,
)
from kimi_tui.llm.errors import APIConnectionError, APIStatusError, APIStreamError, LLMError
from kimi_tui.llm.message import Message, user_message
from kimi_tui.llm.provider import (
    ChatProvider,
    Completion,
    Finished,
    ModelInfo,
    StreamItem,
    TextDelta,
    ThinkDelta,
    ToolCallDelta,
    ToolSpec,
    Usage,
)
from kimi_tui.llm.tokens import estimate, message_tokens


def collected(*items: StreamItem) -> Collector:
    collector = Collector("p", "m")
    for item in items:
        collector.add(item)
    return collector


def test_an_answer_is_stored_in_order() -> None:
    found = collected(
        ThinkDelta("why"),
        TextDelta("a"),
        TextDelta("b"),
        ThinkDelta("more"),
        TextDelta("c"),
        ToolCallDelta(0, "x", "Run", '{"a"'),
        ToolCallDelta(1, "", "Read"),
        ToolCallDelta(0, arguments=":1}"),
        ToolCallDelta(1, "late"),
    ).message()
    assert found is not None
    assert [
        (part.type, getattr(part, "text", "") or getattr(part, "think", "")) for part in found.parts
    ] == [
        ("think", "why"),
        ("text", "ab"),
        ("think", "more"),
        ("text", "c"),
    ]
    assert [(c.id, c.function.name, c.function.arguments) for c in found.tool_calls or []] == [
        ("x", "Run", '{"a":1}'),
        ("late", "Read", ""),
    ]
    assert Message.model_validate(found.stored()) == found


def test_an_interrupted_answer_keeps_text_and_whole_calls() -> None:
    found = collected(
        TextDelta("half a sen"),
        ToolCallDelta(0, "x", "Run", "{}"),
        ToolCallDelta(1, "y", "Run", '{"a": "b'),
        ToolCallDelta(2, "z", "Run"),
    ).message(interrupted=True)
    assert found is not None
    assert found.interrupted
    assert found.text == "half a sen"
    assert [call.id for call in found.tool_calls or []] == ["x"]


def test_nothing_is_nothing() -> None:
    assert collected().message() is None
    assert collected().message(interrupted=True) is None
    assert collected(ThinkDelta("")).message(interrupted=True) is None
    assert collected(Usage(1, 1), Finished("stop")).message() is None
    assert collected(ToolCallDelta(0, "x", "Run", "{")).message(interrupted=True) is None


def test_lone_surrogates_never_get_stored() -> None:
    found = collected(TextDelta("a\ud83d"), TextDelta("\ude00b\ud800")).message()
    assert found is not None
    assert found.text == "a😀b\ufffd"


class Planned(ChatProvider):
    """Gives a planned list of items, or raises, one plan a call."""

    def __init__(self, *plans: list[StreamItem | BaseException]) -> None:
        self.plans = list(plans)

    @property
    def info(self) -> ModelInfo:
        return ModelInfo("p", "m", 1_000)

    async def generate(
        self,
        system: str,
        tools: Sequence[ToolSpec],
        history: Sequence[Message],
        *,
        most_tokens: int = 0,
    ) -> AsyncGenerator[StreamItem]:
        for item in self.plans.pop(0):
            if isinstance(item, BaseException):
                raise item
            yield item

    async def aclose(self) -> None:
        pass


async def run(
    provider: Planned,
    on_retry: Callable[[RetryNotice], None] = lambda notice: None,
    **options: Any,
) -> tuple[Completion, list[AnswerItem]]:
    seen: list[AnswerItem] = []

    def show(item: AnswerItem) -> None:
        if isinstance(item, RetryNotice):
            on_retry(item)
        seen.append(item)

    asked = stream_answer(provider, "system words", [], [user_message("hello there")], **options)
    return await complete(asked, show), seen


async def test_empty_reasoning_is_stored_but_not_shown() -> None:
    done, seen = await run(
        Planned(
            [TextDelta("a"), ThinkDelta("", "reasoning_content"), Usage(5, 1), Finished("stop")]
        )
    )
    assert [part.type for part in done.message.parts] == ["think", "text"]
    assert not any(isinstance(item, ThinkDelta) for item in seen)


async def test_waits_grow_and_have_a_limit() -> None:
    notices: list[RetryNotice] = []
    failing: list[list[StreamItem | BaseException]] = [
        [APIConnectionError("gone")] for _ in range(6)
    ]
    policy = RetryPolicy(max_attempts=6, initial_s=0.001, max_s=0.004, jitter_s=0.0)
    with pytest.raises(APIConnectionError):
        await run(Planned(*failing), policy=policy, on_retry=notices.append)
    assert [round(notice.wait_s, 4) for notice in notices] == [0.001, 0.002, 0.004, 0.004, 0.004]


async def test_what_a_failed_attempt_streamed_is_not_kept() -> None:
    provider = Planned(
        [TextDelta("half"), APIConnectionError("gone")], [TextDelta("whole"), Finished("stop")]
    )
    collector = Collector("p", "m")
    seen: list[str] = []

    def look(_: object) -> None:
        message = collector.message(interrupted=True)
        seen.append(message.text if message is not None else "")

    policy = RetryPolicy(max_attempts=2, initial_s=0.0, max_s=0.0, jitter_s=0.0)
    await complete(stream_answer(provider, "", [], [], policy=policy, collector=collector), look)
    assert seen == ["half", "", "whole", "whole"]


async def test_jitter_is_added() -> None:
    notices: list[RetryNotice] = []
    policy = RetryPolicy(max_attempts=2, initial_s=0.0, max_s=0.0, jitter_s=0.01)
    with pytest.raises(APIConnectionError):
        await run(
            Planned([APIConnectionError("x")], [APIConnectionError("x")]),
            policy=policy,
            on_retry=notices.append,
        )
    assert 0 < notices[0].wait_s <= 0.01


def overloaded(status: int = 503, wait_s: float | None = None) -> list[StreamItem | BaseException]:
    return [APIStatusError("busy", status=status, retry_after_s=wait_s, retryable=True)]


PATIENT = RetryPolicy(max_attempts=2, initial_s=0.001, max_s=0.002, jitter_s=0.0, patience_s=30.0)


async def test_an_overload_is_waited_out_by_time_and_other_failures_by_number() -> None:
    notices: list[RetryNotice] = []
    gone: list[StreamItem | BaseException] = [APIConnectionError("gone")]
    broken: list[StreamItem | BaseException] = [APIStreamError("broke")]
    fine: list[StreamItem | BaseException] = [TextDelta("fine"), Finished("stop")]
    plans = [overloaded(429), overloaded(529), gone, broken, overloaded(), fine]
    done, _ = await run(Planned(*plans), policy=PATIENT, on_retry=notices.append)
    assert done.message.text == "fine"
    # The waits of an overload grow for themselves, further than those of other failures.
    assert [round(notice.wait_s, 4) for notice in notices] == [0.001, 0.002, 0.004, 0.001, 0.008]
    assert [29 < notice.left_s <= 30 for notice in notices] == [True, True, True, False, True]
    # A second failure of another kind is one too many, however often the server was busy between.
    with pytest.raises(APIStreamError):
        await run(Planned(broken, overloaded(), overloaded(), broken, fine), policy=PATIENT)
    # A server that never answered most likely does not exist.
    with pytest.raises(APIConnectionError):
        await run(Planned(gone, gone, fine), policy=PATIENT, known=False)


async def test_patience_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    notices: list[RetryNotice] = []

    def wait(notice: RetryNotice) -> None:
        notices.append(notice)
        clock.now += notice.wait_s

    short = replace(PATIENT, initial_s=0.02, patience_s=0.1)
    failing = Planned(*[overloaded() for _ in range(50)])
    # A clock on which each wait takes its time and nothing else any.
    clock = SimpleNamespace(now=0.0, monotonic=lambda: clock.now)
    with monkeypatch.context() as patched:
        patched.setattr("kimi_tui.llm.completion.time", clock)
        with pytest.raises(APIStatusError, match="busy"):
            await run(failing, policy=short, on_retry=wait)
    # The last wait ends where the patience does.
    assert len(notices) == 3
    assert notices[-1].wait_s < 0.05
    # A longer wait than a minute is taken while there is the patience for it, and none that there is no time for.
    with pytest.raises(APIStatusError) as caught:
        await run(Planned(overloaded(429, 31.0)), policy=PATIENT)
    assert "The server asks to wait 31 s" in caught.value.advice
    retry_now = asyncio.Event()

    def hurry(notice: RetryNotice) -> None:
        assert notice.wait_s in (100.0, 0.0)
        asyncio.get_running_loop().call_soon(retry_now.set)

    patient = replace(PATIENT, patience_s=600.0)
    again = Planned(overloaded(429, 100.0), [TextDelta("fine"), Finished("stop")])
    await run(again, policy=patient, on_retry=hurry, retry_now=retry_now)


async def test_other_errors_are_not_tried_again() -> None:
    provider = Planned([LLMError("no")], [])
    with pytest.raises(LLMError):
        await run(provider)
    assert len(provider.plans) == 1


async def test_usage_is_estimated_where_none_came() -> None:
    done, _ = await run(Planned([TextDelta("four words are here"), Finished("stop")]))
    assert done.usage.estimated
    assert done.usage.input == estimate("system words") + message_tokens(
        user_message("hello there")
    )
    assert done.usage.output == 4 + 4


@each(
    "text, low, high",
    [
        ("", 0, 0),
        ("word", 1, 1),
        (" \n", 1, 1),
        ("hello world", 2, 2),
        ("123456", 2, 2),
        ("internationalization", 3, 5),
        ("日本語の文章です", 5, 8),
        ("def f(x):\n    return x + 1\n", 9, 13),
        ("🎉🎉", 2, 2),
        ("привет мир", 2, 4),
    ],
)
def test_estimates_are_of_the_right_size(text: str, low: int, high: int) -> None:
    assert low <= estimate(text) <= high

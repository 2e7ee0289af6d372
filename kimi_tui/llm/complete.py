"""One whole answer: collected, counted, and asked for again where asking again may help."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from kimi_tui.llm import tokens
from kimi_tui.llm.collect import Collector
from kimi_tui.llm.errors import (
    APIConnectionError,
    APIEmptyResponseError,
    APIStatusError,
    APIStreamError,
    APITimeoutError,
    ContextOverflowError,
    LLMError,
)
from kimi_tui.llm.provider import (
    ChatProvider,
    Completion,
    RetryNotice,
    RetryPolicy,
    StreamItem,
    ThinkDelta,
    ToolSpec,
    Usage,
)

if TYPE_CHECKING:
    from tenacity import RetryCallState

    from kimi_tui.llm.message import Message


def is_retryable(error: BaseException) -> bool:
    """Whether asking again may help."""
    if isinstance(error, APIStatusError):
        return error.retryable and not isinstance(error, ContextOverflowError)
    return isinstance(
        error, APIConnectionError | APITimeoutError | APIEmptyResponseError | APIStreamError
    )


async def complete(
    provider: ChatProvider,
    system: str,
    tools: Sequence[ToolSpec],
    history: Sequence[Message],
    *,
    on_item: Callable[[StreamItem], None],
    on_retry: Callable[[RetryNotice], None] = lambda notice: None,
    policy: RetryPolicy = RetryPolicy(),  # noqa: B008 - frozen
    retry_now: asyncio.Event | None = None,
) -> Completion:
    """Ask, and ask again after failures that may pass.

    Args:
        provider: the model.
        system: the system prompt.
        tools: what it may call.
        history: the stored messages.
        on_item: told of every item as it comes; after an `on_retry` what came before counts for nothing.
        on_retry: told before each wait, and again (no wait is left) when one is cut short.
        policy: how often and how patiently.
        retry_now: setting it ends a wait at once.

    Raises:
        LLMError: it failed for good.
        asyncio.CancelledError: cancelled; the connection is closed.
    """
    from tenacity import AsyncRetrying, RetryError, retry_if_exception, stop_after_attempt

    def wait_s(state: RetryCallState) -> float:
        error = _failure(state)
        grown = min(policy.max_s, policy.initial_s * 2.0 ** (state.attempt_number - 1))
        wished = error.retry_after_s if isinstance(error, APIStatusError) else None
        return max(grown, wished or 0.0) + random.uniform(0.0, policy.jitter_s)

    notices: list[RetryNotice] = []

    def before_sleep(state: RetryCallState) -> None:
        error = _failure(state)
        notice = RetryNotice(
            attempt=state.attempt_number + 1,
            max_attempts=policy.max_attempts,
            wait_s=state.upcoming_sleep,
            reason=error.message,
            status=error.status if isinstance(error, APIStatusError) else None,
        )
        notices.append(notice)
        on_retry(notice)

    async def sleep(seconds: float) -> None:
        if retry_now is None:
            await asyncio.sleep(seconds)
            return
        retry_now.clear()
        try:
            async with asyncio.timeout(seconds):
                await retry_now.wait()
        except TimeoutError:
            return
        on_retry(replace(notices[-1], wait_s=0.0))

    def worth_it(error: BaseException) -> bool:
        return is_retryable(error) and not _asks_too_much(error, policy)

    try:
        async for attempt in AsyncRetrying(
            stop=stop_after_attempt(max(1, policy.max_attempts)),
            wait=wait_s,
            retry=retry_if_exception(worth_it),
            before_sleep=before_sleep,
            sleep=sleep,
            reraise=True,
        ):
            with attempt:
                return await _once(provider, system, tools, history, on_item)
    except APIStatusError as error:
        if _asks_too_much(error, policy):
            raise _patience_ended(error) from None
        raise
    except RetryError as error:  # cannot happen with reraise, but says so to the type checker
        raise LLMError("The model could not be asked.") from error
    raise LLMError("The model could not be asked.")


def _failure(state: RetryCallState) -> LLMError:
    outcome = state.outcome
    error = outcome.exception() if outcome is not None else None
    return error if isinstance(error, LLMError) else LLMError("The call failed.")


def _asks_too_much(error: BaseException, policy: RetryPolicy) -> bool:
    return (
        isinstance(error, APIStatusError)
        and error.retryable
        and (error.retry_after_s or 0.0) > policy.longest_wait_s
    )


def _patience_ended(error: APIStatusError) -> APIStatusError:
    return APIStatusError(
        error.message,
        status=error.status,
        code=error.code,
        request_id=error.request_id,
        retry_after_s=error.retry_after_s,
        retryable=False,
        advice=f"It asks to wait {_duration(error.retry_after_s or 0.0)}; go on after that, "
        "or choose another model.",
    )


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{round(seconds)} s"
    if seconds < 7_200:
        return f"{round(seconds / 60)} min"
    return f"{round(seconds / 3_600)} h"


async def _once(
    provider: ChatProvider,
    system: str,
    tools: Sequence[ToolSpec],
    history: Sequence[Message],
    on_item: Callable[[StreamItem], None],
) -> Completion:
    info = provider.info
    collector = Collector(info.provider, info.model)
    stream = provider.generate(system, tools, history)
    try:
        async for item in stream:
            collector.add(item)
            # Reasoning that stayed empty is stored, but there is nothing to show.
            if not (isinstance(item, ThinkDelta) and not item.text):
                on_item(item)
    finally:
        # A generator that is merely dropped would keep its connection until it is collected.
        if hasattr(stream, "aclose"):
            await cast("AsyncGenerator[StreamItem, None]", stream).aclose()
    finish = collector.finish
    if finish is None:
        raise APIStreamError("The answer broke off before its end.")
    if not collector.has_text and not collector.has_calls:
        if finish.reason == "content_filter":
            raise APIStatusError(
                "The provider's filter held the answer back.",
                status=200,
                code="content_filter",
                advice="Say it in other words, or rewind to before the message.",
            )
        if finish.reason == "length":
            raise APIStatusError(
                "The output limit was reached before anything was said.",
                status=200,
                code="length",
                advice="Turn thinking off, or raise the model's output limit at the provider.",
            )
        raise APIEmptyResponseError("The model answered with nothing.")
    message = collector.message()
    assert message is not None
    usage = await _usage(collector.usage, system, tools, history, message)
    return Completion(message, usage, finish.reason)


async def _usage(
    told: Usage | None,
    system: str,
    tools: Sequence[ToolSpec],
    history: Sequence[Message],
    message: Message,
) -> Usage:
    """The server's figures, with estimates where it sent none (or zero, which cannot be)."""
    if told is not None and told.input and told.output:
        return told

    def count() -> Usage:
        if told is not None and told.input:
            return Usage(told.input, tokens.estimate_message(message), told.cached, estimated=True)
        estimated = tokens.estimate(system) + sum(map(tokens.estimate_message, history))
        estimated += sum(
            tokens.estimate(f"{tool.name} {tool.description} {tool.parameters}") for tool in tools
        )
        return Usage(estimated, tokens.estimate_message(message), estimated=True)

    # Megabytes of history take tens of milliseconds to count.
    return await asyncio.to_thread(count)

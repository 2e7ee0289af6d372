"""One whole answer of a model: its stream collected into a message, with its usage; failed attempts are repeated.

`complete` is the one way to ask a model. It fills a `Collector`, which a caller that may be interrupted passes in, so that
what was streamed until then can be stored.

Retried failures: a 429, 503 or 529 (and a server that cannot be reached, if it has answered before) for
`RetryPolicy.patience_s` seconds; every other temporary failure for a number of attempts. `Retry-After` is respected in both
cases.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, cast

from kimi_tui import lenient_json
from kimi_tui.llm import tokens
from kimi_tui.llm.errors import (
    AnswerOverdueError,
    APIConnectionError,
    APIEmptyResponseError,
    APIStatusError,
    APIStreamError,
    APITimeoutError,
    ContextOverflowError,
    LLMError,
)
from kimi_tui.llm.message import (
    MANY,
    ContentPart,
    FunctionCall,
    Message,
    TextPart,
    ThinkPart,
    ToolCall,
)
from kimi_tui.llm.provider import (
    ChatProvider,
    Completion,
    Finished,
    Overdue,
    PromptRead,
    StreamItem,
    TextDelta,
    TextWasThought,
    ThinkDelta,
    ToolCallDelta,
    ToolSpec,
    Usage,
)

if TYPE_CHECKING:
    from tenacity import AsyncRetrying, RetryCallState

_log = logging.getLogger(__name__)

_REASONING = 2_048
"""Tokens that a model may spend on reasoning before an answer of one line."""
_CHARS_OF_TOKEN = 8
"""More characters than a token has on average in any language."""

OnOverdue = Callable[[Overdue], Coroutine[Any, Any, bool]]
"""Decides whether an answer that is overdue is waited on."""


@dataclass(slots=True)
class _DetailDraft:
    """An entry of `reasoning_details` that is still growing."""

    _fields: dict[str, Any] = field(default_factory=dict[str, Any])
    # The texts are lists of pieces: joining them at every piece would copy a long thought once for each of its words.
    _texts: dict[str, list[str]] = field(default_factory=dict[str, list[str]])

    def continues(self, entry: Mapping[str, Any]) -> bool:
        """Whether the entry continues this one: it has the same type and index, and no other id."""
        known = self._fields
        return (
            known.get("type") == entry.get("type")
            and known.get("index") == entry.get("index")
            and (entry.get("id") in {None, known.get("id")} or known.get("id") is None)
        )

    def add(self, entry: Mapping[str, Any]) -> None:
        """Append the entry's texts and set its other fields."""
        for key, value in entry.items():
            if key in {"text", "summary", "data"} and isinstance(value, str):
                if not isinstance(self._fields.get(key), str):
                    self._texts[key] = []
                self._fields[key] = ""
                self._texts[key].append(value)
            elif value is not None or key not in self._fields:
                self._fields[key] = value

    def whole(self) -> dict[str, Any]:
        """The complete entry, to be stored and sent back."""
        joined = {key: "".join(self._texts[key]) for key in self._texts}
        return lenient_json.text_only(
            {
                key: joined[key] if value == "" and key in joined else value
                for key, value in self._fields.items()
            }
        )


@dataclass(slots=True)
class _PartDraft:
    """A part of the content that is still growing. `key` is None for text, else the field in which the reasoning came."""

    key: str | None
    pieces: list[str] = field(default_factory=list[str])
    details: list[_DetailDraft] = field(default_factory=list[_DetailDraft])

    def add_detail(self, entry: Mapping[str, Any]) -> None:
        """Join the entry to the last one if it continues that one, else start another."""
        if not self.details or not self.details[-1].continues(entry):
            self.details.append(_DetailDraft())
        self.details[-1].add(entry)


@dataclass(slots=True)
class _CallDraft:
    """A tool call that is still growing."""

    id: str = ""
    name: str = ""
    pieces: list[str] = field(default_factory=list[str])
    extras: dict[str, Any] = field(default_factory=dict[str, Any])


class Collector:
    """Joins the items of one answer into the message that is stored: reasoning, text and tool calls in order.

    Args:
        provider: stored with the reasoning, which is only sent back to the provider and model that wrote it.
        model: stored with the reasoning, as the provider is.

    Attributes:
        usage: the server's figures; None until they came.
        finish: the end of the stream; None until it came.
    """

    def __init__(self, provider: str = "", model: str = "") -> None:
        self._provider = provider or None
        self._model = model or None
        self.clear()

    def clear(self) -> None:
        """Forget everything that was collected, before another attempt."""
        self._parts: list[_PartDraft] = []
        self._calls: dict[int, _CallDraft] = {}
        self.usage: Usage | None = None
        self.finish: Finished | None = None

    def add(self, item: StreamItem) -> None:
        """Take one more item of the stream."""
        match item:
            case TextDelta(text):
                self._part(None).pieces.append(text)
            case ThinkDelta(text, key, details):
                part = self._part(key)
                part.pieces.append(text)
                for entry in details:
                    part.add_detail(entry)
            case TextWasThought():
                self._take_as_thought()
            case ToolCallDelta(position, call_id, name, arguments, extras):
                call = self._calls.setdefault(position, _CallDraft())
                call.id = call.id or call_id
                call.name = call.name or name
                call.pieces.append(arguments)
                call.extras.update(extras or {})
            case Usage():
                self.usage = item
            case Finished():
                self.finish = item
            case PromptRead() | Overdue():
                pass

    @property
    def thinking(self) -> str:
        """The reasoning so far."""
        return "".join(chain.from_iterable(part.pieces for part in self._parts if part.key))

    def _take_as_thought(self) -> None:
        """Turn all text so far into one part of reasoning, together with the reasoning that came before it."""
        whole = next((part for part in self._parts if part.key), _PartDraft("think_tag"))
        whole.pieces = [piece for part in self._parts for piece in part.pieces]
        whole.details = [one for part in self._parts for one in part.details]
        self._parts = [whole]

    def _part(self, key: str | None) -> _PartDraft:
        last = self._parts[-1] if self._parts else None
        if last is None or (last.key is None) != (key is None):
            last = _PartDraft(key)
            self._parts.append(last)
        elif key == "reasoning_details":
            last.key = key  # the details decide on the key, whichever chunk brought them
        return last

    async def whole(self, *, interrupted: bool = False) -> Message | None:
        """Return `message(...)`, in a thread if it is long: an answer with thousands of calls takes tens of milliseconds."""
        make = partial(self.message, interrupted)
        return await asyncio.to_thread(make) if len(self._calls) > MANY else make()

    def message(self, interrupted: bool = False) -> Message | None:
        """The message so far, or None if there is nothing to store.

        Args:
            interrupted: the stream was stopped; the message is marked, and calls with incomplete arguments are dropped.
        """
        parts: list[ContentPart] = []
        for part in self._parts:
            words = lenient_json.without_surrogates("".join(part.pieces))
            if part.key is None:
                if words:
                    parts.append(TextPart(text=words))
            elif not interrupted or words:
                parts.append(
                    ThinkPart(
                        think=words,
                        field=part.key,
                        provider=self._provider,
                        model=self._model,
                        details=[detail.whole() for detail in part.details] or None,
                    )
                )
        parts = _empty_thought_first(parts)
        calls: list[ToolCall] = []
        for _, call in sorted(self._calls.items()):
            arguments = lenient_json.without_surrogates("".join(call.pieces))
            if interrupted and not (call.name and lenient_json.is_object(arguments)):
                continue
            function = FunctionCall(name=call.name, arguments=arguments)
            calls.append(ToolCall(id=call.id, function=function, extras=call.extras or None))
        if not parts and not calls:
            return None
        return Message(
            role="assistant",
            content=parts,
            tool_calls=calls or None,
            interrupted=True if interrupted else None,
        )


def _empty_thought_first(parts: list[ContentPart]) -> list[ContentPart]:
    """Move an empty part of reasoning to the beginning: it is only known at the end of a stream."""
    empty = [part for part in parts if isinstance(part, ThinkPart) and not part.think]
    empty = [part for part in empty if not part.details]
    return [*empty, *(part for part in parts if part not in empty)] if empty else parts


@dataclass(frozen=True, slots=True)
class RetryNotice:
    """A failed attempt that will be tried again after `wait_s` seconds; its partial text is discarded.

    `left_s` is the number of seconds for which an overload is still waited out; 0 if attempts are counted instead.
    """

    attempt: int
    max_attempts: int
    wait_s: float
    reason: str
    status: int | None = None
    left_s: float = 0.0


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often a call is repeated, and the exponential backoff: from `initial_s` doubling to `max_s`, plus jitter to `jitter_s`.

    An overload is waited out for `patience_s` instead, with waits that grow to `longest_wait_s`. Where the server asks for a
    longer wait than `longest_wait_s`, or than the rest of `patience_s`, the call fails.
    """

    max_attempts: int = 3
    initial_s: float = 0.3
    max_s: float = 5.0
    jitter_s: float = 0.5
    longest_wait_s: float = 60.0
    patience_s: float = 0.0


def is_retryable(error: BaseException) -> bool:
    """Whether a failure may be temporary, so that the same request is worth repeating."""
    if isinstance(error, APIStatusError):
        return error.retryable and not isinstance(error, ContextOverflowError)
    if isinstance(error, AnswerOverdueError):
        return error.again
    return isinstance(
        error, APIConnectionError | APITimeoutError | APIEmptyResponseError | APIStreamError
    )


_OVERLOAD = frozenset({429, 503, 529})


def is_overload(error: BaseException, *, known: bool = True) -> bool:
    """Whether a failure is an overload (429, 503, 529, or a code with that word) or, of a `known` server, a lost connection."""
    if isinstance(error, APIStatusError):
        return is_retryable(error) and (error.status in _OVERLOAD or "overloaded" in error.code)
    is_lost = isinstance(error, APIConnectionError | APITimeoutError)
    return known and is_lost and not isinstance(error, AnswerOverdueError)


class Retries:
    """The failed attempts of one model call, and the rest of its retry policy.

    Args:
        policy: the number of attempts, and the waits between them.
        model: the name of the model, for the log.
        known: whether the server has answered before. A server that never did is not waited for if it cannot be reached.
        on_retry: called before each wait, and again with `wait_s` 0 where the wait is cut short.
        retry_now: setting it cuts a wait short.
    """

    def __init__(
        self,
        policy: RetryPolicy,
        model: str,
        known: bool,
        on_retry: Callable[[RetryNotice], None],
        retry_now: asyncio.Event | None,
    ) -> None:
        self._policy = policy
        self._model = model
        self._known = known
        self._on_retry = on_retry
        self._retry_now = retry_now or asyncio.Event()
        self._notice: RetryNotice | None = None
        self._n_overloads = 0
        self._n_others = 0
        self._until = 0.0

    def attempts(self) -> AsyncRetrying:
        """Return the attempts of the call, to be iterated with `async for`; the last error is raised unchanged."""
        from tenacity import AsyncRetrying, retry_if_exception

        return AsyncRetrying(
            retry=retry_if_exception(self._may_help),
            wait=self._wait_s,
            stop=self._are_over,
            before_sleep=self._announce,
            sleep=self._wait,
            reraise=True,
        )

    def final_error(self, error: APIStatusError) -> APIStatusError:
        """Return the error to raise for the last failure: unchanged, or not retryable and with the wait as its advice if the
        server asks for too long a wait.
        """
        if not self._is_wait_too_long(error):
            return error
        wait = _duration(error.retry_after_s or 0.0)
        return APIStatusError(
            error.message,
            status=error.status,
            code=error.code,
            request_id=error.request_id,
            retry_after_s=error.retry_after_s,
            retryable=False,
            advice=f"It asks to wait {wait}; go on after that, or choose another model.",
        )

    def _left_s(self, error: BaseException) -> float | None:
        """Return the seconds for which an overload is waited out from now on, counted from the first overload; None for any
        other failure.
        """
        if not self._policy.patience_s or not is_overload(error, known=self._known):
            return None
        now = time.monotonic()
        self._until = self._until or now + self._policy.patience_s
        return max(0.0, self._until - now)

    def _may_help(self, error: BaseException) -> bool:
        """Whether to repeat the call: the failure is temporary, and the server does not ask for too long a wait."""
        return is_retryable(error) and not self._is_wait_too_long(error)

    def _wait_s(self, state: RetryCallState) -> float:
        """Seconds to wait before the next attempt: doubled with each failure, at least what the server asked for.

        The wait is 0 if the user asked for the attempt; such an attempt is not counted.
        """
        error, policy = _failure(state), self._policy
        if isinstance(error, AnswerOverdueError):
            return 0.0
        left_s = self._left_s(error)
        if left_s is not None:
            self._n_overloads += 1
            n, most_s = self._n_overloads, min(policy.longest_wait_s, left_s)
        else:
            self._n_others += 1
            n, most_s = self._n_others, policy.max_s
        grown = policy.initial_s * 2.0 ** min(n - 1, 60)
        asked_for = error.retry_after_s if isinstance(error, APIStatusError) else None
        return max(min(most_s, grown), asked_for or 0.0) + random.uniform(0.0, policy.jitter_s)

    def _are_over(self, state: RetryCallState) -> bool:
        """Whether the policy allows no further attempt. tenacity asks this after `_wait_s`, which counts the failures."""
        error = _failure(state)
        if isinstance(error, AnswerOverdueError):
            return False
        left_s = self._left_s(error)
        return self._n_others >= self._policy.max_attempts if left_s is None else left_s <= 0

    def _announce(self, state: RetryCallState) -> None:
        """Log the failure and report it with the wait before the next attempt."""
        error = _failure(state)
        self._notice = notice = RetryNotice(
            attempt=state.attempt_number + 1,
            max_attempts=self._policy.max_attempts,
            wait_s=state.upcoming_sleep,
            reason=error.message,
            status=error.status if isinstance(error, APIStatusError) else None,
            left_s=self._left_s(error) or 0.0,
        )
        _log.warning(
            "asking %s failed (%s): %s; attempt %d of %d in %.1f s",
            self._model,
            notice.status or type(error).__name__,
            error.message,
            notice.attempt,
            notice.max_attempts,
            notice.wait_s,
        )
        self._on_retry(notice)

    async def _wait(self, seconds: float) -> None:
        """Wait so many seconds, or until `retry_now` is set."""
        self._retry_now.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._retry_now.wait()
            if self._notice is not None:
                self._on_retry(replace(self._notice, wait_s=0.0))

    def _is_wait_too_long(self, error: BaseException) -> bool:
        """Whether the server asks for a longer wait than the policy allows."""
        if not isinstance(error, APIStatusError) or not error.retryable:
            return False
        left_s = self._left_s(error)
        most_s = self._policy.longest_wait_s if left_s is None else left_s
        return (error.retry_after_s or 0.0) > most_s


def _failure(state: RetryCallState) -> LLMError:
    outcome = state.outcome
    error = outcome.exception() if outcome is not None else None
    return error if isinstance(error, LLMError) else LLMError("The call failed.")


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{round(seconds)} s"
    if seconds < 7_200:
        return f"{round(seconds / 60)} min"
    return f"{round(seconds / 3_600)} h"


async def complete(
    provider: ChatProvider,
    system: str,
    tools: Sequence[ToolSpec],
    history: Sequence[Message],
    *,
    on_item: Callable[[StreamItem], None],
    on_retry: Callable[[RetryNotice], None] = lambda notice: None,
    policy: RetryPolicy = RetryPolicy(),
    retry_now: asyncio.Event | None = None,
    collector: Collector | None = None,
    known: bool = True,
    on_overdue: OnOverdue | None = None,
) -> Completion:
    """Call the model, and retry after failures that may be temporary.

    Args:
        provider: the model.
        system: the system prompt.
        tools: the tools it may call.
        history: the stored messages.
        on_item: called with every item as it comes; a call of `on_retry` discards all items before it.
        on_retry: called before each wait, and again with `wait_s` 0 when one is cut short.
        policy: number of attempts, and the waits between them.
        retry_now: setting it ends a wait at once.
        collector: collects the items of the running attempt; after a cancellation it holds the items until then. It is empty
            between attempts.
        known: the server has answered before. A server that never did most likely has another address, so a failed connection
            to it is not waited out.
        on_overdue: decides whether an overdue answer is awaited further or asked for again; cancelled if the answer comes
            meanwhile. Without it an overdue answer fails the call.

    Raises:
        LLMError: the last attempt failed, or the failure is one that a retry does not help.
        asyncio.CancelledError: cancelled; the connection is closed.
    """
    info = provider.info
    answer = collector or Collector(info.provider, info.model)

    def forget(notice: RetryNotice) -> None:
        answer.clear()  # forget the failed attempt before the listener is called, as it may read the collector
        on_retry(notice)

    retries = Retries(policy, info.model, known, forget, retry_now)
    try:
        async for attempt in retries.attempts():
            with attempt:
                return await _ask_once(
                    provider, system, tools, history, answer, on_item, on_overdue
                )
    except APIStatusError as error:
        final = retries.final_error(error)
        if final is not error:
            raise final from None
        raise
    raise AssertionError  # the loop returns or raises


async def _ask_once(
    provider: ChatProvider,
    system: str,
    tools: Sequence[ToolSpec],
    history: Sequence[Message],
    answer: Collector,
    on_item: Callable[[StreamItem], None],
    on_overdue: OnOverdue | None,
) -> Completion:
    stream = provider.generate(system, tools, history)
    try:
        async for item in stream:
            if isinstance(item, Overdue):
                if on_overdue is not None:
                    item.decision = asyncio.create_task(on_overdue(item), name="overdue")
                continue
            answer.add(item)
            # Empty reasoning is stored, but there is nothing to show of it.
            if not (isinstance(item, ThinkDelta) and not item.text):
                on_item(item)
    finally:
        # A generator that is merely dropped keeps its connection until it is garbage-collected.
        if hasattr(stream, "aclose"):
            await cast("AsyncGenerator[StreamItem, None]", stream).aclose()
    finish = answer.finish
    if finish is None:
        raise APIStreamError("The answer broke off before its end.")
    message = await answer.whole()
    if message is None or not (message.tool_calls or message.text.strip()):
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
    usage = await _usage(answer.usage, system, tools, history, message)
    return Completion(message, usage, finish.reason)


async def first_line(
    provider: ChatProvider, system: str, question: Message, *, most_tokens: int
) -> tuple[str, Usage]:
    """Ask once, without tools, for an answer of one line; the stream is closed after the first line.

    A model that spends the whole limit on reasoning is asked once more, with a limit that has room for it.

    Args:
        provider: the model.
        system: the system prompt.
        question: what is asked.
        most_tokens: the limit of the answer.

    Returns:
        the line (empty if there is none), and its usage.

    Raises:
        LLMError: the model could not be asked.
    """
    thinks = provider.info.thinking
    line, usage, is_cut = await _line(provider, system, question, most_tokens + thinks * _REASONING)
    if line or thinks or not is_cut:
        return line, usage
    line, more, _ = await _line(provider, system, question, most_tokens + _REASONING)
    both = Usage(usage.input + more.input, usage.output + more.output, usage.cached + more.cached)
    return line, replace(both, estimated=usage.estimated or more.estimated)


async def _line(
    provider: ChatProvider, system: str, question: Message, most_tokens: int
) -> tuple[str, Usage, bool]:
    """Return the first line of an answer, its usage, and whether the limit cut the answer off."""
    info = provider.info
    answer = Collector(info.provider, info.model)
    line, n_chars = "", 0
    stream = cast(
        "AsyncGenerator[StreamItem]",
        provider.generate(system, (), (question,), most_tokens=most_tokens),
    )
    async with contextlib.aclosing(stream):
        async for item in stream:
            answer.add(item)
            if isinstance(item, TextDelta):
                line = (line + item.text).lstrip()
            if isinstance(item, TextDelta | ThinkDelta):
                # Some servers ignore the limit, so it is enforced here.
                n_chars += len(item.text)
            if "\n" in line or n_chars > most_tokens * _CHARS_OF_TOKEN:
                break
    message = await answer.whole() or Message(role="assistant", content="")
    usage = await _usage(answer.usage, system, (), (question,), message)
    is_cut = answer.finish is not None and answer.finish.reason == "length"
    return line.partition("\n")[0].strip(), usage, is_cut


async def _usage(
    reported: Usage | None,
    system: str,
    tools: Sequence[ToolSpec],
    history: Sequence[Message],
    message: Message,
) -> Usage:
    """The usage of one call, with estimates in the place of figures that the server did not send or sent as zero.

    Args:
        reported: the server's usage; None if it sent none.
        system: the system prompt of the request.
        tools: the tools of the request.
        history: the messages of the request.
        message: the answer.
    """
    if reported is not None and reported.input and reported.output:
        return reported

    def count() -> Usage:
        output = tokens.message_tokens(message)
        if reported is not None and reported.input:
            return Usage(reported.input, output, reported.cached, estimated=True)
        guess = tokens.estimate_request(system, tools, history)
        return Usage(guess, output, estimated=True, input_estimated=True)

    # Counting megabytes of history takes tens of milliseconds.
    return await asyncio.to_thread(count)

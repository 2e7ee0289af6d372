"""A complete answer of a model: its stream collected into a message, with its usage; failed attempts are repeated.

`stream_answer` is the one way to ask a model; a failed attempt that is repeated is an item among those of the answer. It fills a
`Collector`; a caller that may be interrupted passes its own in, so that it can store what was streamed until then.

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
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import Any

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

_log = logging.getLogger(__name__)

_REASONING = 2_048
"""Tokens that a model may spend on reasoning before an answer of one line."""
_CHARS_OF_TOKEN = 8
"""More characters than a token has on average in any language."""


@dataclass(slots=True)
class _DetailDraft:
    """An entry of `reasoning_details` that is still growing."""

    _fields: dict[str, Any] = field(default_factory=dict[str, Any])
    # The texts are lists of pieces: joining them at every piece would copy a long thought once for each of its words.
    _texts: dict[str, list[str]] = field(default_factory=dict[str, list[str]])

    def continues(self, entry: Mapping[str, Any]) -> bool:
        """Return whether the entry continues this one: it has the same type and index, and no other id."""
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
        """Return the complete entry, to be stored and sent back."""
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


@dataclass(slots=True)
class _Attempt:
    """What one attempt of a call has streamed. `n_chars` counts reasoning, text and arguments."""

    parts: list[_PartDraft] = field(default_factory=list[_PartDraft])
    calls: dict[int, _CallDraft] = field(default_factory=dict[int, _CallDraft])
    n_chars: int = 0


class Collector:
    """Joins the items of one answer into the message that is stored: reasoning, text and tool calls in order.

    Of the attempts that failed it keeps the one that brought most, for the case that none is completed.

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
        self._longest = _Attempt()
        self._attempt = _Attempt()
        self.usage: Usage | None = None
        self.finish: Finished | None = None

    def begin_again(self) -> None:
        """Begin another attempt, after the present one failed."""
        if self._attempt.n_chars >= self._longest.n_chars:
            self._longest = self._attempt
        self._attempt = _Attempt()
        self.usage = self.finish = None

    def take_longest(self) -> bool:
        """Go back to the earlier attempt that brought more than the present one; return whether there is one."""
        if self._longest.n_chars <= self._attempt.n_chars:
            return False
        self._attempt = self._longest
        return True

    def add(self, item: StreamItem) -> None:
        """Take one more item of the stream."""
        match item:
            case TextDelta(text):
                self._part(None).pieces.append(text)
                self._attempt.n_chars += len(text)
            case ThinkDelta(text, key, details):
                part = self._part(key)
                part.pieces.append(text)
                self._attempt.n_chars += len(text)
                for entry in details:
                    part.add_detail(entry)
            case TextWasThought():
                self._take_as_thought()
            case ToolCallDelta(position, call_id, name, arguments, extras):
                call = self._attempt.calls.setdefault(position, _CallDraft())
                call.id = call.id or call_id
                call.name = call.name or name
                call.pieces.append(arguments)
                self._attempt.n_chars += len(arguments)
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
        return "".join(chain.from_iterable(part.pieces for part in self._attempt.parts if part.key))

    def _take_as_thought(self) -> None:
        """Turn all text so far into one part of reasoning, together with the reasoning that came before it."""
        parts = self._attempt.parts
        whole = next((part for part in parts if part.key), _PartDraft("think_tag"))
        whole.pieces = [piece for part in parts for piece in part.pieces]
        whole.details = [one for part in parts for one in part.details]
        self._attempt.parts = [whole]

    def _part(self, key: str | None) -> _PartDraft:
        parts = self._attempt.parts
        last = parts[-1] if parts else None
        if last is None or (last.key is None) != (key is None):
            last = _PartDraft(key)
            parts.append(last)
        elif key == "reasoning_details":
            last.key = key  # the details decide on the key, whichever chunk brought them
        return last

    async def whole(self, *, interrupted: bool = False, broken: str = "") -> Message | None:
        """Return `message(...)`, in a thread if it is long: an answer with thousands of calls takes tens of milliseconds."""
        make = partial(self.message, interrupted, broken)
        return await asyncio.to_thread(make) if len(self._attempt.calls) > MANY else make()

    def message(self, interrupted: bool = False, broken: str = "") -> Message | None:
        """Return the message so far, or None if there is nothing to store.

        Args:
            interrupted: the stream ended early; the message is marked, and calls with incomplete arguments are dropped.
            broken: the failure that ended it; empty if the user did.
        """
        parts: list[ContentPart] = []
        for part in self._attempt.parts:
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
        for _, call in sorted(self._attempt.calls.items()):
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
            broken=broken or None,
        )


def _empty_thought_first(parts: list[ContentPart]) -> list[ContentPart]:
    """Move an empty part of reasoning to the beginning: it is only known at the end of a stream."""
    empty = [part for part in parts if isinstance(part, ThinkPart) and not part.think]
    empty = [part for part in empty if not part.details]
    return [*empty, *(part for part in parts if part not in empty)] if empty else parts


@dataclass(frozen=True, slots=True)
class RetryNotice:
    """A failed attempt that will be tried again after `wait_s` seconds; the next attempt's text takes the place of its text.

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


AnswerItem = StreamItem | RetryNotice | Completion


def is_retryable(error: BaseException) -> bool:
    """Return whether a failure may be temporary, so that the same request is worth repeating."""
    if isinstance(error, APIStatusError):
        return error.retryable and not isinstance(error, ContextOverflowError)
    if isinstance(error, AnswerOverdueError):
        return error.again
    return isinstance(
        error, APIConnectionError | APITimeoutError | APIEmptyResponseError | APIStreamError
    )


_OVERLOAD = frozenset({429, 503, 529})


def is_overload(error: BaseException, *, known: bool = True) -> bool:
    """Return whether a failure is an overload (429, 503, 529, or a code with that word) or, of a `known` server, a lost connection."""
    if isinstance(error, APIStatusError):
        return is_retryable(error) and (error.status in _OVERLOAD or "overloaded" in error.code)
    is_lost = isinstance(error, APIConnectionError | APITimeoutError)
    return known and is_lost and not isinstance(error, AnswerOverdueError)


class Retries:
    """Decides after each failed attempt of one model call whether and when the next one is made.

    Args:
        policy: the number of attempts, and the waits between them.
        known: whether the server has answered before. A server that never did is not waited for if it cannot be reached.

    Attributes:
        notice: what the last call of `after` returned; None before the first failure.
    """

    def __init__(self, policy: RetryPolicy, known: bool) -> None:
        self._policy = policy
        self._known = known
        self._n_overloads = 0
        self._n_others = 0
        self._until = 0.0
        self.notice: RetryNotice | None = None

    def after(self, error: LLMError, n_failed: int) -> RetryNotice:
        """Return the next attempt and the wait before it: doubled with each failure, at least what the server asked for.

        An attempt that the user asked for has no wait and is not counted.

        Args:
            error: the failure of the last attempt.
            n_failed: the number of failed attempts.

        Raises:
            LLMError: no further attempt is made. It is `error`, or if the server asks for too long a wait the same failure,
                not retryable and with the wait as its advice.
        """
        policy = self._policy
        if not is_retryable(error):
            raise error
        left_s = self._left_s(error)
        status = error if isinstance(error, APIStatusError) else None
        asked_for_s = (status and status.retry_after_s) or 0.0
        if status and asked_for_s > (policy.longest_wait_s if left_s is None else left_s):
            raise _not_now(status, asked_for_s) from None
        wait_s = 0.0
        if not isinstance(error, AnswerOverdueError):
            if left_s is None:
                self._n_others += 1
                n, most_s, is_over = (
                    self._n_others,
                    policy.max_s,
                    self._n_others >= policy.max_attempts,
                )
            else:
                self._n_overloads += 1
                n, most_s, is_over = (
                    self._n_overloads,
                    min(policy.longest_wait_s, left_s),
                    left_s <= 0,
                )
            if is_over:
                raise error
            grown_s = policy.initial_s * 2.0 ** min(n - 1, 60)
            wait_s = max(min(most_s, grown_s), asked_for_s) + random.uniform(0.0, policy.jitter_s)
        self.notice = RetryNotice(
            attempt=n_failed + 1,
            max_attempts=policy.max_attempts,
            wait_s=wait_s,
            reason=error.message,
            status=status.status if status else None,
            left_s=left_s or 0.0,
        )
        return self.notice

    def _left_s(self, error: LLMError) -> float | None:
        """Return the seconds for which an overload is waited out from now on, counted from the first overload; None for any
        other failure.
        """
        if not self._policy.patience_s or not is_overload(error, known=self._known):
            return None
        now = time.monotonic()
        self._until = self._until or now + self._policy.patience_s
        return max(0.0, self._until - now)


def _not_now(error: APIStatusError, wait_s: float) -> APIStatusError:
    """Return the error of a server that asks for a longer wait than the policy allows."""
    return APIStatusError(
        error.message,
        status=error.status,
        code=error.code,
        request_id=error.request_id,
        retry_after_s=error.retry_after_s,
        retryable=False,
        advice=f"The server asks to wait {_duration(wait_s)}. Try again after that, or choose another model.",
    )


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{round(seconds)} s"
    if seconds < 7_200:
        return f"{round(seconds / 60)} min"
    return f"{round(seconds / 3_600)} h"


async def stream_answer(
    provider: ChatProvider,
    system: str,
    tools: Sequence[ToolSpec],
    history: Sequence[Message],
    collector: Collector | None = None,
    *,
    policy: RetryPolicy = RetryPolicy(),
    retry_now: asyncio.Event | None = None,
    known: bool = True,
) -> AsyncGenerator[AnswerItem]:
    """Call the model, and retry after failures that may be temporary.

    Args:
        provider: the model.
        system: the system prompt.
        tools: the tools it may call.
        history: the stored messages.
        collector: collects the items of the running attempt; after a cancellation it holds the items until then. It is empty
            between attempts.
        policy: number of attempts, and the waits between them.
        retry_now: setting it ends a wait at once.
        known: the server has answered before. A server that never did most likely has another address, so a failed connection
            to it is not waited out.

    Yields:
        the items as they come; a `RetryNotice` before each wait, and again with `wait_s` 0 when one is cut short: it discards
        all items before it; the `Completion` at the end.

    Raises:
        LLMError: the last attempt failed, or the failure is one that a retry does not help.
        asyncio.CancelledError: cancelled; the connection is closed.
    """
    from tenacity import AsyncRetrying, TryAgain, retry_if_exception_type

    info = provider.info
    answer = collector or Collector(info.provider, info.model)
    hurry = retry_now or asyncio.Event()
    retries = Retries(policy, known)
    async for attempt in AsyncRetrying(
        retry=retry_if_exception_type(TryAgain),
        wait=lambda _: retries.notice.wait_s if retries.notice else 0.0,
        sleep=partial(_wait, hurry),
    ):
        with attempt:
            if retries.notice is not None and hurry.is_set():
                yield replace(retries.notice, wait_s=0.0)
            try:
                async with contextlib.aclosing(provider.generate(system, tools, history)) as items:
                    async for item in items:
                        answer.add(item)
                        # Empty reasoning is stored, but there is nothing to show of it.
                        if not (isinstance(item, ThinkDelta) and not item.text):
                            yield item
                yield await _completion(answer, system, tools, history)
            except LLMError as error:
                notice = retries.after(error, attempt.retry_state.attempt_number)
                _log.warning(
                    "asking %s failed (%s): %s; attempt %d of %d in %.1f s",
                    info.model,
                    notice.status or type(error).__name__,
                    notice.reason,
                    notice.attempt,
                    notice.max_attempts,
                    notice.wait_s,
                )
                # Before the notice is seen, as its reader may look into the collector.
                answer.begin_again()
                yield notice
                raise TryAgain from error


async def _wait(hurry: asyncio.Event, seconds: float) -> None:
    """Wait so many seconds, or until the event is set."""
    hurry.clear()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await hurry.wait()


async def complete(
    answer: AsyncGenerator[AnswerItem], show: Callable[[AnswerItem], object] = lambda item: None
) -> Completion:
    """Read an answer to its end, and show each item as it comes.

    Raises:
        LLMError: it failed.
    """
    async with contextlib.aclosing(answer) as items:
        async for item in items:
            if isinstance(item, Completion):
                return item
            show(item)
    raise AssertionError  # an answer ends with its completion, or raises


async def _completion(
    answer: Collector, system: str, tools: Sequence[ToolSpec], history: Sequence[Message]
) -> Completion:
    """Return the collected answer of a stream that has ended.

    Raises:
        LLMError: it is incomplete or empty.
    """
    finish = answer.finish
    if finish is None:
        raise APIStreamError("The answer ended before it was complete.")
    message = await answer.whole()
    if message is None or not (message.tool_calls or message.text.strip()):
        if finish.reason == "content_filter":
            raise APIStatusError(
                "The content filter of the provider blocked the answer.",
                status=200,
                code="content_filter",
                advice="Rephrase the message, or rewind to the step before it.",
            )
        if finish.reason == "length":
            raise APIStatusError(
                "The model reached its output limit before it answered.",
                status=200,
                code="length",
                advice="Turn reasoning off with /thinking off, or raise the output limit on the model's server.",
            )
        raise APIEmptyResponseError("The model sent an empty answer.")
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
    stream = provider.generate(system, (), (question,), most_tokens=most_tokens)
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
    """Return the usage of one call, with estimates in the place of figures that the server did not send or sent as zero.

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

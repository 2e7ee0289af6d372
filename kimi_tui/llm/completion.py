"""One whole answer of a model: its stream collected into a message, with its usage, retried after failures that pass (`retry`).

`complete` is the one way to ask a model. It fills a `Collector`, which a caller that may be interrupted brings along,
so that what was streamed until then can be stored.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

from kimi_tui import lenient_json
from kimi_tui.llm.errors import (
    APIEmptyResponseError,
    APIStatusError,
    APIStreamError,
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
    StreamItem,
    TextDelta,
    ThinkDelta,
    ToolCallDelta,
    ToolSpec,
    Usage,
)
from kimi_tui.llm.retry import Retries, RetryNotice, RetryPolicy
from kimi_tui.llm.usage import usage_or_estimate


@dataclass(slots=True)
class _DetailDraft:
    """An entry of `reasoning_details` that is still growing."""

    _fields: dict[str, Any] = field(default_factory=dict[str, Any])
    # Kept in pieces: joined at each of them, a long thought would be copied once for every word of it.
    _texts: dict[str, list[str]] = field(default_factory=dict[str, list[str]])

    def continues(self, entry: Mapping[str, Any]) -> bool:
        """Whether the entry is more of this one: same type and index, and no other id."""
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
        """The entry as it goes back."""
        joined = {key: "".join(self._texts[key]) for key in self._texts}
        return {
            key: joined[key] if value == "" and key in joined else value
            for key, value in self._fields.items()
        }


@dataclass(slots=True)
class _PartDraft:
    """A part of the content that is still growing. `key` is None for text, else what the reasoning came under."""

    key: str | None
    pieces: list[str] = field(default_factory=list[str])
    details: list[_DetailDraft] = field(default_factory=list[_DetailDraft])

    def add_detail(self, entry: Mapping[str, Any]) -> None:
        """Join the entry to the last one where it continues that, else begin another."""
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
        provider: name written on the reasoning, which only goes back to the one who wrote it.
        model: likewise.

    Attributes:
        usage: the server's figures, once they came.
        finish: the end of the stream, once it came.
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

    @property
    def n_calls(self) -> int:
        """How many tool calls have begun."""
        return len(self._calls)

    def _part(self, key: str | None) -> _PartDraft:
        last = self._parts[-1] if self._parts else None
        if last is None or (last.key is None) != (key is None):
            last = _PartDraft(key)
            self._parts.append(last)
        elif key == "reasoning_details":
            last.key = key  # the details decide, whichever chunk brought them
        return last

    async def whole(self, *, interrupted: bool = False) -> Message | None:
        """The `message`, once nothing is added any more: thousands of calls, which take tens of milliseconds, in a thread."""
        make = partial(self.message, interrupted)
        return await asyncio.to_thread(make) if self.n_calls > MANY else make()

    def message(self, interrupted: bool = False) -> Message | None:
        """The message so far, or None if there is nothing to store.

        Args:
            interrupted: the stream was stopped: the message is marked, and calls whose arguments are not whole are
                dropped.
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
    """Empty reasoning is only known at the end of a stream, but belongs at the beginning."""
    empty = [part for part in parts if isinstance(part, ThinkPart) and not part.think]
    empty = [part for part in empty if not part.details]
    return [*empty, *(part for part in parts if part not in empty)] if empty else parts


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
    collector: Collector | None = None,
    known: bool = True,
) -> Completion:
    """Ask, and ask again after failures that may pass.

    Args:
        provider: the model.
        system: the system prompt.
        tools: what it may call.
        history: the stored messages.
        on_item: called with every item as it comes; after an `on_retry` what came before counts for nothing.
        on_retry: called before each wait, and again (no wait is left) when one is cut short.
        policy: number of attempts, and the waits between them.
        retry_now: setting it ends a wait at once.
        collector: holds what the running attempt has streamed; a cancelled caller finds there what came until then.
            Empty while a retry is waited for.
        known: the server has answered before. One that never did most likely has another address, and is not waited for.

    Raises:
        LLMError: it failed for good.
        asyncio.CancelledError: cancelled; the connection is closed.
    """
    answer = collector or Collector(provider.info.provider, provider.info.model)

    def forget(notice: RetryNotice) -> None:
        answer.clear()  # of the failed attempt; before the listener, who may look into it
        on_retry(notice)

    retries = Retries(policy, provider.info.model, known, forget, retry_now)
    try:
        async for attempt in retries.attempts():
            with attempt:
                return await _ask_once(provider, system, tools, history, answer, on_item)
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
) -> Completion:
    stream = provider.generate(system, tools, history)
    try:
        async for item in stream:
            answer.add(item)
            # Reasoning that stayed empty is stored, but there is nothing to show.
            if not (isinstance(item, ThinkDelta) and not item.text):
                on_item(item)
    finally:
        # A generator that is merely dropped would keep its connection until it is collected.
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
    usage = await usage_or_estimate(answer.usage, system, tools, history, message)
    return Completion(message, usage, finish.reason)

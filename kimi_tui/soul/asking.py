"""One call of the model, told on the wire while it streams, with what was streamed at hand if it is stopped."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from kimi_tui.llm.collect import Collector
from kimi_tui.llm.complete import complete
from kimi_tui.llm.message import Message
from kimi_tui.llm.provider import (
    ChatProvider,
    Completion,
    RetryNotice,
    RetryPolicy,
    StreamItem,
    TextDelta,
    ThinkDelta,
    ToolCallDelta,
    ToolSpec,
)
from kimi_tui.wire.events import StepRetry, TextPart, ThinkPart, ToolCall, ToolCallPart
from kimi_tui.wire.queue import Wire


def call_key(checkpoint_uid: str, position: int) -> str:
    """The name of a call: unique in a session, and found again from the context alone."""
    return f"{checkpoint_uid}:{position}"


class Asking:
    """Asks the model for one step.

    Args:
        provider: the model.
        wire: where its words go.
        policy: how often it is asked again.
        retry_now: ends a wait before a retry.
        n: the step's number.
        checkpoint_uid: names its calls.
    """

    def __init__(
        self,
        provider: ChatProvider,
        wire: Wire,
        policy: RetryPolicy,
        retry_now: asyncio.Event,
        *,
        n: int,
        checkpoint_uid: str,
    ) -> None:
        self._provider = provider
        self._wire = wire
        self._policy = policy
        self._retry_now = retry_now
        self._n = n
        self._uid = checkpoint_uid
        self._begin()

    async def ask(
        self, system: str, tools: Sequence[ToolSpec], history: Sequence[Message]
    ) -> Completion:
        """The whole answer.

        Raises:
            LLMError: it failed for good.
            asyncio.CancelledError: stopped; `so_far` has what came.
        """
        return await complete(
            self._provider,
            system,
            tools,
            history,
            on_item=self._on_item,
            on_retry=self._on_retry,
            policy=self._policy,
            retry_now=self._retry_now,
        )

    def so_far(self) -> Message | None:
        """What was streamed before it was stopped, marked so; None if nothing came."""
        return self._collector.message(interrupted=True)

    def open_calls(self) -> list[tuple[str, str]]:
        """Keys and provider's ids of the calls that were told on the wire."""
        return [(call_key(self._uid, position), call.id) for position, call in self._told.items()]

    def _begin(self) -> None:
        info = self._provider.info
        self._collector = Collector(info.provider, info.model)
        self._told: dict[int, ToolCallDelta] = {}
        self._nameless: dict[int, ToolCallDelta] = {}

    def _on_item(self, item: StreamItem) -> None:
        self._collector.add(item)
        match item:
            case TextDelta(text) if text:
                self._wire.publish(TextPart(text))
            case ThinkDelta(text) if text:
                self._wire.publish(ThinkPart(text))
            case ToolCallDelta():
                self._on_call(item)
            case _:
                pass

    def _on_call(self, item: ToolCallDelta) -> None:
        position = item.position
        key = call_key(self._uid, position)
        if position in self._told:
            if item.arguments:
                self._wire.publish(ToolCallPart(key, item.arguments))
            return
        before = self._nameless.pop(position, None)
        if before is not None:
            item = ToolCallDelta(
                position,
                before.id or item.id,
                before.name or item.name,
                before.arguments + item.arguments,
            )
        if not item.name:
            self._nameless[position] = item
            return
        self._told[position] = item
        self._wire.publish(ToolCall(key, item.name, item.arguments, item.id))

    def _on_retry(self, notice: RetryNotice) -> None:
        self._begin()
        self._wire.publish(
            StepRetry(
                self._n,
                notice.attempt,
                notice.max_attempts,
                notice.wait_s,
                notice.reason,
                notice.status,
            )
        )

"""One step of a turn: a checkpoint, one call of the model, and the tools that its answer calls."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from kimi_tui.llm.completion import Collector
from kimi_tui.llm.message import Message, user_message
from kimi_tui.llm.provider import (
    ChatProvider,
    Completion,
    RetryNotice,
    StreamItem,
    TextDelta,
    ThinkDelta,
    ToolCallDelta,
    Usage,
)
from kimi_tui.llm.tokens import text_tokens
from kimi_tui.prompts import prompt
from kimi_tui.session.schema import Checkpoint
from kimi_tui.soul.conversation import Conversation
from kimi_tui.soul.errors import BackToTheFuture
from kimi_tui.soul.internal_messages import needs_a_word
from kimi_tui.soul.reminders import Reminders
from kimi_tui.soul.tasks import OrphanedTasks
from kimi_tui.soul.tool_calls import Call, CallResult, ToolBatch, ToolRuntime
from kimi_tui.soul.tool_results import NOT_BEGUN, call_key, tool_message, with_versions
from kimi_tui.tools.base import failure
from kimi_tui.wire.events import (
    Notice,
    StepInterrupted,
    TextPart,
    ThinkPart,
    ToolCall,
    ToolCallPart,
    ToolResult,
)


class ModelCall:
    """The call of one step: published while it streams, and at hand as far as it came if it is stopped.

    Args:
        conversation: what is sent, and where events are published.
        provider: the model, from `ModelSlot.call`.
        n: the step's number.
        checkpoint_uid: names the tool calls.
    """

    def __init__(
        self, conversation: Conversation, provider: ChatProvider, n: int, checkpoint_uid: str
    ) -> None:
        self._conversation = conversation
        self._wire = conversation.wire
        self._provider = provider
        self._n = n
        self._uid = checkpoint_uid
        self._collector = Collector(provider.info.provider, provider.info.model)
        self._begin()

    async def ask(self) -> Completion:
        """The whole answer.

        Raises:
            LLMError: it failed for good.
            asyncio.CancelledError: stopped; `so_far` has what came.
        """
        conversation = self._conversation
        return await conversation.model.ask(
            self._provider,
            conversation.system,
            conversation.toolset.specs(),
            conversation.sent,
            on_item=self._on_item,
            on_retry=self._on_retry,
            collector=self._collector,
        )

    def so_far(self) -> Message | None:
        """What was streamed before it was stopped, marked as interrupted; None if nothing came."""
        return self._collector.message(interrupted=True)

    def open_calls(self) -> list[tuple[str, str]]:
        """Keys and provider's ids of the tool calls that were published."""
        return [
            (call_key(self._uid, position), call.id) for position, call in self._published.items()
        ]

    def _begin(self) -> None:
        self._published: dict[int, ToolCallDelta] = {}
        self._nameless: dict[int, ToolCallDelta] = {}

    def _on_item(self, item: StreamItem) -> None:
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
        if position in self._published:
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
        self._published[position] = item
        self._wire.publish(ToolCall(key, item.name, item.arguments, item.id))

    def _on_retry(self, notice: RetryNotice) -> None:
        self._begin()
        self._conversation.publish_retry(self._n, notice)


StepEnd = Literal["go on", "done", "rejected"]

_ENDINGS = {
    "length": (
        "The answer was cut: the model reached its output limit.",
        "Ask it to go on, or in smaller parts.",
    ),
    "content_filter": ("The provider's filter cut the answer.", "Say it in other words."),
}


@dataclass(frozen=True, slots=True)
class ModelAnswer:
    """The first half of a step: its checkpoint, and the tool calls of the answer, which is in the context."""

    point: Checkpoint
    calls: Sequence[Call]


class StepRunner:
    """Takes the steps of turns.

    Args:
        tools: runs the tools; its conversation is the one that goes on.
        reminders: what the model is told with the results.
        orphans: takes over the tasks of stopped tools.
    """

    def __init__(self, tools: ToolRuntime, reminders: Reminders, orphans: OrphanedTasks) -> None:
        self._tools = tools
        self._reminders = reminders
        self._conversation = tools.conversation
        self._orphans = orphans
        self._published_cut = False

    async def ask(self, n: int, provider: ChatProvider) -> ModelAnswer:
        """The first half of step `n`: a checkpoint and the model's answer, which is in the context then.

        Raises:
            LLMError: the model could not be asked.
            asyncio.CancelledError: stopped; what is complete is in the context.
        """
        needs = needs_a_word(self._conversation.messages)
        point = await self._conversation.checkpoint("step", first=int(needs))
        if needs:
            # Behind the checkpoint: who goes back to it, goes back to before this word.
            await self._conversation.append([user_message(prompt("go_on"))])
        completion = await self._ask(n, provider, point)
        message = completion.message
        calls = _calls(message, point)
        try:
            await self._conversation.answered(message, completion.usage)
        except asyncio.CancelledError:
            await self._stop(ToolBatch(self._tools, calls))
            raise
        self._conversation.publish_status()
        self._publish_cut(completion.usage)
        if completion.finish in _ENDINGS:
            text, advice = _ENDINGS[completion.finish]
            self._conversation.wire.publish(Notice("warning", text, advice))
        return ModelAnswer(point, calls)

    async def act(self, asked: ModelAnswer) -> StepEnd:
        """The second half: run what the answer calls.

        Raises:
            BackToTheFuture: D-Mails were sent.
            asyncio.CancelledError: stopped; every call has its result in the context.
        """
        if not asked.calls:
            return "done"
        done = await self._run_tools(asked.calls, asked.point)
        self._conversation.publish_status()
        pending = self._conversation.denwa.fetch_pending()
        if any(each.rejected and not each.feedback for each in done):
            return "rejected"
        if pending:
            raise BackToTheFuture(
                min(mail.checkpoint_id for mail in pending),
                tuple(
                    prompt(
                        "dmail_of_several", CHECKPOINT=str(mail.checkpoint_id), TEXT=mail.message
                    )
                    if len(pending) > 1
                    else mail.message
                    for mail in pending
                ),
                any(mail.restore_files for mail in pending),
            )
        return "go on"

    def _publish_cut(self, usage: Usage) -> None:
        """Publish once that the server answers without having read the whole prompt, until it reads all of it again."""
        if usage.prompt_cut and not self._published_cut:
            self._conversation.wire.publish(
                Notice(
                    "warning",
                    f"The server cut the prompt without a word: it read {usage.input:,} tokens of it.",
                    "Compact with /compact, or give the model a larger window at the server "
                    "(at Ollama OLLAMA_CONTEXT_LENGTH).",
                )
            )
        self._published_cut = usage.prompt_cut

    async def _ask(self, n: int, provider: ChatProvider, point: Checkpoint) -> Completion:
        call = ModelCall(self._conversation, provider, n, point.uid)
        try:
            return await call.ask()
        except asyncio.CancelledError:
            await self._keep_partial(call, point)
            raise

    async def _keep_partial(self, call: ModelCall, point: Checkpoint) -> None:
        message = call.so_far()
        if message is not None:
            # Whole calls stay, and a call needs a result.
            calls = _calls(message, point)
            results = [tool_message(one.id, failure(NOT_BEGUN)) for one in calls]
            await self._conversation.append([message, *results])
        for key, call_id in call.open_calls():
            self._conversation.wire.publish(
                ToolResult(key, True, "", NOT_BEGUN, interrupted=True, id=call_id)
            )
        self._conversation.wire.publish(StepInterrupted())

    async def _run_tools(self, calls: Sequence[Call], point: Checkpoint) -> list[CallResult]:
        batch = ToolBatch(self._tools, calls)
        try:
            await self._conversation.remember()
            done = await batch.run()
            reminders = await self._reminders.of_folders(done)
        except asyncio.CancelledError:
            await self._stop(batch)
            raise
        messages = [*_results(done), *reminders]
        nudge = self._nudge(done, point)
        await self._conversation.append([*messages, nudge] if nudge is not None else messages)
        return done

    async def _stop(self, batch: ToolBatch) -> None:
        """Give every call a result, so that the history stays valid, and publish that the step was stopped."""
        self._orphans.adopt(await batch.stop())
        self._conversation.denwa.fetch_pending()
        await self._conversation.append(_results(batch.results))
        self._conversation.wire.publish(StepInterrupted())

    def _nudge(self, done: Sequence[CallResult], point: Checkpoint) -> Message | None:
        """A reminder that D-Mails exist, after results that take much room; None where there is no need for one."""
        if not self._conversation.marks:
            return None
        meter = self._conversation.meter
        sizes = [meter.estimated(text_tokens(each.outcome.output)) for each in done]
        if max(sizes, default=0) < self._conversation.limits.dmail_nudge_tokens:
            return None
        return user_message(
            prompt("dmail_nudge", TOKENS=f"{sum(sizes):,}", CHECKPOINT=str(point.id))
        )


def _calls(message: Message, point: Checkpoint) -> list[Call]:
    return [
        Call(call_key(point.uid, i), call.id, call.function.name, call.function.arguments or "")
        for i, call in enumerate(message.tool_calls or ())
    ]


def _results(done: Sequence[CallResult]) -> list[Message]:
    return [
        with_versions(tool_message(each.call.id, each.outcome), each.noted or {}) for each in done
    ]

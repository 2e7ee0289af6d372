"""One step: a checkpoint, one call of the model, and the tools it asked for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Literal

from kimi_tui.llm.message import Message, user_message
from kimi_tui.llm.provider import ChatProvider, Completion, RetryPolicy, Usage
from kimi_tui.prompts.load import prompt
from kimi_tui.session.records import Checkpoint
from kimi_tui.session.tokens import text_tokens
from kimi_tui.soul.asking import Asking, call_key
from kimi_tui.soul.errors import BackToTheFuture
from kimi_tui.soul.live_line import LiveLine
from kimi_tui.soul.memory import with_versions
from kimi_tui.soul.tool_batch import Call, Done, ToolBatch, ToolWorld
from kimi_tui.soul.tool_message import NOT_BEGUN, tool_message
from kimi_tui.tools.base import failure
from kimi_tui.wire.events import Notice, StepInterrupted, ToolResult

StepEnd = Literal["go on", "done", "rejected"]

_ENDINGS = {
    "length": (
        "The answer was cut: the model reached its output limit.",
        "Ask it to go on, or in smaller parts.",
    ),
    "content_filter": ("The provider's filter cut the answer.", "Say it in other words."),
}


class Stepper:
    """Takes steps on the live line.

    Args:
        line: the conversation.
        world: what tools need.
        policy: how often a failed call is repeated.
        retry_now: ends a wait before a retry.
        keep: takes tasks of stopped tools that are still ending what they started.
    """

    def __init__(
        self,
        line: LiveLine,
        world: ToolWorld,
        policy: RetryPolicy,
        retry_now: asyncio.Event,
        keep: Callable[[set[asyncio.Task[None]]], None],
    ) -> None:
        self._line = line
        self._world = world
        self._policy = policy
        self._retry_now = retry_now
        self._keep = keep
        self._told_cut = False

    async def step(self, n: int, provider: ChatProvider) -> StepEnd:
        """Take step `n`.

        Raises:
            BackToTheFuture: D-Mails were sent.
            LLMError: the model could not be asked.
            asyncio.CancelledError: stopped; what is complete is in the context.
        """
        point = await self._line.checkpoint("step")
        completion = await self._ask(n, provider, point)
        message = completion.message
        calls = _calls(message, point)
        try:
            await self._line.answered(message, completion.usage)
        except asyncio.CancelledError:
            await self._stop(ToolBatch(self._world, calls))
            raise
        self._line.tell_status()
        self._tell_cut(completion.usage)
        if completion.finish in _ENDINGS:
            text, advice = _ENDINGS[completion.finish]
            self._line.wire.publish(Notice("warning", text, advice))
        if not calls:
            return "done"
        done = await self._run_tools(calls, point)
        self._line.tell_status()
        pending = self._line.denwa.fetch_pending()
        if any(each.rejected and not each.feedback for each in done):
            return "rejected"
        if pending:
            raise BackToTheFuture(
                min(mail.checkpoint_id for mail in pending),
                tuple(mail.message for mail in pending),
                any(mail.restore_files for mail in pending),
            )
        return "go on"

    def _tell_cut(self, usage: Usage) -> None:
        """Say once that the server answers without having read everything, until it reads everything again."""
        if usage.prompt_cut and not self._told_cut:
            self._line.wire.publish(
                Notice(
                    "warning",
                    f"The server cut the prompt without a word: it read {usage.input:,} tokens of it.",
                    "Compact with /compact, or give the model a larger window at the server "
                    "(at Ollama OLLAMA_CONTEXT_LENGTH).",
                )
            )
        self._told_cut = usage.prompt_cut

    async def _ask(self, n: int, provider: ChatProvider, point: Checkpoint) -> Completion:
        line = self._line
        asking = Asking(
            provider,
            line.wire,
            self._policy,
            self._retry_now,
            n=n,
            checkpoint_uid=point.uid,
        )
        system = line.context.system_prompt or ""
        tools = self._world.toolset.specs() if provider.use_tools else ()
        try:
            return await asking.ask(system, tools, line.sent)
        except asyncio.CancelledError:
            await self._keep_partial(asking, point)
            raise

    async def _keep_partial(self, asking: Asking, point: Checkpoint) -> None:
        message = asking.so_far()
        if message is not None:
            # Whole calls stay, and a call needs a result.
            calls = _calls(message, point) if message.tool_calls else []
            results = [tool_message(call.id, failure(NOT_BEGUN)) for call in calls]
            await self._line.append([message, *results])
        for key, call_id in asking.open_calls():
            self._line.wire.publish(
                ToolResult(key, True, "", NOT_BEGUN, interrupted=True, id=call_id)
            )
        self._line.wire.publish(StepInterrupted())

    async def _run_tools(self, calls: Sequence[Call], point: Checkpoint) -> list[Done]:
        batch = ToolBatch(self._world, calls)
        try:
            await self._line.remember()
            done = await batch.run()
        except asyncio.CancelledError:
            await self._stop(batch)
            raise
        messages = _results(done)
        nudge = self._nudge(done, point)
        await self._line.append([*messages, nudge] if nudge is not None else messages)
        return done

    async def _stop(self, batch: ToolBatch) -> None:
        """Give every call a result, so that the history stays valid, and tell that the step was stopped."""
        self._keep(await batch.stop())
        self._line.denwa.fetch_pending()
        await self._line.append(_results(batch.results))
        self._line.wire.publish(StepInterrupted())

    def _nudge(self, done: Sequence[Done], point: Checkpoint) -> Message | None:
        """A reminder that D-Mails exist, after a result that takes much room."""
        if not self._line.marks or self._world.toolset.get("SendDMail") is None:
            return None
        accounting = self._line.accounting
        sizes = [accounting.estimated(text_tokens(each.outcome.output)) for each in done]
        if max(sizes, default=0) < self._line.limits.dmail_nudge_tokens:
            return None
        return user_message(
            prompt("dmail_nudge", TOKENS=f"{sum(sizes):,}", CHECKPOINT=str(point.id))
        )


def _calls(message: Message, point: Checkpoint) -> list[Call]:
    return [
        Call(call_key(point.uid, i), call.id, call.function.name, call.function.arguments or "")
        for i, call in enumerate(message.tool_calls or ())
    ]


def _results(done: Sequence[Done]) -> list[Message]:
    return [
        with_versions(tool_message(each.call.id, each.outcome), each.noted or {}) for each in done
    ]

"""The model in use: which one it is now, how it is asked, and `LoopLimits`, when the context is compacted for its window.

The user may exchange the model while a turn runs, so everyone asks `ModelSlot` at the time of a call.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from typing import Any, NamedTuple

from kimi_tui.config.settings import DMailConfig, LoopControl
from kimi_tui.llm.completion import AnswerItem, Collector, RetryPolicy, stream_answer
from kimi_tui.llm.errors import LLMNotSet
from kimi_tui.llm.message import Message
from kimi_tui.llm.provider import ChatProvider, Completion, ModelInfo, Overdue, ToolSpec
from kimi_tui.session.images import ImageStore

log = logging.getLogger(__name__)

NOT_SET = "No model is set."
NOT_SET_ADVICE = "Choose one with /model, or start with --model and --base-url."


class LoopLimits(NamedTuple):
    """How far a turn may go and when the context is compacted: as the user configured it, and what nobody configures.

    The reserve is kept free for an answer; it is never more than a quarter of the window, so that models with a window
    of a few thousand tokens work too.
    """

    control: LoopControl = LoopControl()
    dmail: DMailConfig = DMailConfig()
    dmails_to_one_checkpoint: int = 5
    tool_timeout_s: float = 660.0

    def reserve(self, window: int) -> int:
        """Tokens kept free in a window of this size."""
        return min(self.control.reserved_context_size, window // 4)

    def compaction_trigger(self, window: int) -> int:
        """The tokens from which on the context is compacted automatically (`Loop._compact_if_needed`)."""
        by_ratio = int(self.control.compaction_trigger_ratio * window)
        return max(1, min(by_ratio, window - self.reserve(window)))


OnOverdue = Callable[[Overdue], Coroutine[Any, Any, bool]]
"""Decides whether an answer that is overdue is waited on."""


class ModelSlot:
    """The model of the session, which can be replaced: one that is replaced is closed when its last call has returned.

    Args:
        provider: the first one; None while no model is set.
        policy: how often and how patiently a failed call is repeated.
        images: those that messages name; only a model that sees is sent them.

    Attributes:
        current: the provider in use; None while no model is set.
        on_overdue: decides whether an answer that is overdue is waited on; None for never.
    """

    def __init__(
        self, provider: ChatProvider | None, policy: RetryPolicy, images: ImageStore
    ) -> None:
        self.current = provider
        self.on_overdue: OnOverdue | None = None
        self._policy = policy
        self._images = images
        self._retry_now = asyncio.Event()
        self._calls: Counter[ChatProvider] = Counter()
        self._answered: ChatProvider | None = None
        self._closing: set[asyncio.Task[None]] = set()

    def require(self) -> ChatProvider:
        """The provider in use, which must be set.

        Raises:
            LLMNotSet: it is not.
        """
        if self.current is None:
            raise LLMNotSet(NOT_SET, advice=NOT_SET_ADVICE)
        return self.current

    @property
    def name(self) -> str:
        """The model in use, as its server calls it; empty while none is set."""
        info = self.info()
        return "" if info is None else info.model

    @property
    def sees(self) -> bool:
        """Whether the model in use takes images; while none is set nobody knows of one that does not."""
        info = self.info()
        return info is None or "image_in" in info.capabilities

    @asynccontextmanager
    async def call(self) -> AsyncGenerator[ChatProvider]:
        """The provider in use, which stays open within this, also where another one takes its place meanwhile.

        Raises:
            LLMNotSet: there is none.
        """
        provider = self.require()
        self._calls[provider] += 1
        try:
            yield provider
        finally:
            self._calls[provider] -= 1
            self._close_if_done(provider)

    async def ask(
        self,
        provider: ChatProvider,
        system: str,
        tools: Sequence[ToolSpec],
        history: Sequence[Message],
        collector: Collector | None = None,
        *,
        patient: bool = True,
    ) -> AsyncGenerator[AnswerItem]:
        """Ask a provider that `call` gave; see `stream_answer`.

        Args:
            provider: the provider.
            system: the system prompt.
            tools: what the model may call.
            history: the messages.
            collector: filled with what the running attempt has streamed, for a caller that may be cancelled.
            patient: whether an overload is waited out, and an overdue answer if the user wants that.

        Raises:
            LLMError: it failed for good.
        """
        if "image_in" in provider.info.capabilities:
            history = await asyncio.to_thread(self._images.expanded, history)
        answer = stream_answer(
            provider,
            system,
            tools,
            history,
            collector,
            policy=self._policy if patient else replace(self._policy, patience_s=0.0),
            retry_now=self._retry_now,
            known=self._answered is provider,
        )
        async with aclosing(answer) as items:
            async for item in items:
                if isinstance(item, Completion):
                    self._answered = provider
                elif isinstance(item, Overdue) and patient and self.on_overdue is not None:
                    item.decision = asyncio.create_task(self.on_overdue(item), name="overdue")
                yield item

    def retry_now(self) -> None:
        """End the wait before the next attempt of the call under way."""
        self._retry_now.set()

    def exchange(self, provider: ChatProvider | None) -> None:
        """Use another one from the next call on."""
        before, self.current = self.current, provider
        if before is not None:
            self._close_if_done(before)

    def info(self) -> ModelInfo | None:
        """What is known about the model now."""
        return self.current.info if self.current is not None else None

    async def aclose(self) -> None:
        """Close the one in use and wait for those that are being closed."""
        self.exchange(None)
        while self._closing:
            await asyncio.wait(self._closing)

    def _close_if_done(self, provider: ChatProvider) -> None:
        if provider is self.current or self._calls[provider] > 0:
            return
        del self._calls[provider]
        task = asyncio.get_running_loop().create_task(provider.aclose(), name="closing a model")
        self._closing.add(task)
        task.add_done_callback(self._closed)

    def _closed(self, task: asyncio.Task[None]) -> None:
        self._closing.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            # Its connections end with the program at the latest; the user can do nothing about it.
            log.warning("a model's connections could not be closed", exc_info=error)

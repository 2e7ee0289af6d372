"""The model in use: `ModelSlot` holds and asks it, and `LoopLimits` says when the context is compacted for its window.

The user may exchange the model while a turn runs, so every call gets it from `ModelSlot` at that time.
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

NOT_SET = "No model is configured."
NOT_SET_ADVICE = "Choose one with /model, or start with --model and --base-url."


class Budget(NamedTuple):
    """The most that one run of the program may use: tokens of all calls, input and output, and money; 0 for any amount."""

    tokens: int = 0
    cost: float = 0.0


class Spent(NamedTuple):
    """The use of one run of the program: tokens of all calls (`cached` is part of `input`), and money by the configured prices."""

    input: int = 0
    cached: int = 0
    output: int = 0
    cost: float = 0.0

    @property
    def tokens(self) -> int:
        """All tokens, input and output."""
        return self.input + self.output

    def since(self, before: Spent) -> Spent:
        """Return what was used since an earlier figure."""
        return Spent(
            self.input - before.input,
            self.cached - before.cached,
            self.output - before.output,
            self.cost - before.cost,
        )


class LoopLimits(NamedTuple):
    """The limits of a turn, and the point at which the context is compacted: from the configuration, and fixed ones.

    The reserve is kept free for an answer; it is never more than a quarter of the window, so that models with a window
    of a few thousand tokens work too.
    """

    control: LoopControl = LoopControl()
    dmail: DMailConfig = DMailConfig()
    dmails_to_one_checkpoint: int = 5
    tool_timeout_s: float = 660.0
    budget: Budget = Budget()
    compacts: bool = True
    """Whether the program compacts the context at all: an external agent does that itself."""

    def reserve(self, window: int) -> int:
        """Return the tokens that are kept free in a window of this size."""
        return min(self.control.reserved_context_size, window // 4)

    def compaction_trigger(self, window: int) -> int:
        """Return the tokens from which on the context is compacted automatically (`Loop._compact_if_needed`)."""
        by_ratio = int(self.control.compaction_trigger_ratio * window)
        return max(1, min(by_ratio, window - self.reserve(window)))


OnOverdue = Callable[[Overdue], Coroutine[Any, Any, bool]]
"""Decides whether an answer that is overdue is waited on."""


class ModelSlot:
    """The model of the session, which can be replaced: the old one is closed when its last call has returned.

    Args:
        provider: the first provider; None if no model is set yet.
        policy: the retry policy of failed calls.
        images: the store of images that messages name; only a model that accepts images gets them.

    Attributes:
        current: the provider in use; None while no model is set.
        on_overdue: decides whether to wait on for an overdue answer; None for never.
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
        """Return the provider in use, which must be set.

        Raises:
            LLMNotSet: no model is set.
        """
        if self.current is None:
            raise LLMNotSet(NOT_SET, advice=NOT_SET_ADVICE)
        return self.current

    @property
    def name(self) -> str:
        """The name of the model in use at its server; empty while none is set."""
        info = self.info()
        return "" if info is None else info.model

    @property
    def sees(self) -> bool:
        """Whether the model in use accepts images; true while none is set, as it is not known yet."""
        info = self.info()
        return info is None or "image_in" in info.capabilities

    @asynccontextmanager
    async def call(self) -> AsyncGenerator[ChatProvider]:
        """Yield the provider in use, which stays open within this context even if it is replaced meanwhile.

        Raises:
            LLMNotSet: no model is set.
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
            tools: the tools that the model may call.
            history: the messages.
            collector: filled with what the running attempt has streamed, for a caller that may be cancelled.
            patient: whether an overload is waited out, and an overdue answer if the user wants that.

        Raises:
            LLMError: the call failed finally.
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
        """Use another provider from the next call on."""
        before, self.current = self.current, provider
        if before is not None:
            self._close_if_done(before)

    def info(self) -> ModelInfo | None:
        """Return the known facts about the model in use."""
        return self.current.info if self.current is not None else None

    async def aclose(self) -> None:
        """Close the provider in use and wait for those that are being closed."""
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
            # The connections end with the program at the latest, and the user cannot do anything about it.
            log.warning("a model's connections could not be closed", exc_info=error)

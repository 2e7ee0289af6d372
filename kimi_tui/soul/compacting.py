"""Carries a compaction out: has the summary written, then changes the line in one operation, and tells of it.

Until the summary is there nothing changes; a failure or a stop leaves the context as it was.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from kimi_tui.llm.complete import complete
from kimi_tui.llm.errors import ContextOverflowError, LLMError
from kimi_tui.llm.message import Message
from kimi_tui.llm.provider import (
    ChatProvider,
    Completion,
    RetryNotice,
    RetryPolicy,
    StreamItem,
    ToolSpec,
    Usage,
)
from kimi_tui.session.errors import StorageTrouble
from kimi_tui.session.tokens import message_tokens, text_tokens
from kimi_tui.soul.compaction import Ask, Compacted, Compaction, Plan, plan_with
from kimi_tui.soul.errors import CompactionFailed, NothingToCompact, SoulError
from kimi_tui.soul.finishing import to_its_end
from kimi_tui.soul.live_line import LiveLine
from kimi_tui.soul.marks import PersonMarks, whole_groups
from kimi_tui.soul.replacing import WHOLE, Replacement, Span, replace_part
from kimi_tui.wire.events import CompactionBegin, CompactionEnd, StepRetry

_SMALLER = 0.6
_TRIES = 4


class Compactor:
    """Compacts the live line.

    Args:
        line: the conversation.
        marks: which messages stay in any case.
        compaction: what is kept and how the rest is summarised.
        policy: how often a failed call is repeated.
        retry_now: ends a wait before a retry.
    """

    def __init__(
        self,
        line: LiveLine,
        marks: PersonMarks,
        compaction: Compaction,
        policy: RetryPolicy,
        retry_now: asyncio.Event,
    ) -> None:
        self._line = line
        self._marks = marks
        self._compaction = compaction
        self._policy = policy
        self._retry_now = retry_now
        self._applied = False
        # The estimated size of the last request.
        self._asked = 0

    async def compact(
        self,
        provider: ChatProvider,
        *,
        automatic: bool,
        instructions: str = "",
        turn: Sequence[Message] = (),
        refused: bool = False,
        step: int = 0,
        span: Span = WHOLE,
    ) -> None:
        """Summarise the older part of the line, or exactly the part that is named.

        Args:
            provider: the model in use.
            automatic: by the rule, not by the person's wish.
            instructions: what the person wants kept.
            turn: what the person said in the running turn.
            refused: the server has just refused the context as too long.
            step: the running step's number, for events.
            span: the part; the whole line stands for the part that is older.

        Raises:
            NothingToCompact: no older part is there.
            CompactionFailed: there is no summary; the context is as it was.
            asyncio.CancelledError: stopped; the context is as it was.
        """
        # Reads the whole line.
        plan = await asyncio.to_thread(self._plan, turn, span)
        self._applied = False
        before = self._line.used
        self._line.wire.publish(CompactionBegin(before, automatic))
        budget = self._budget(provider, before, refused)
        try:
            compacted = await self._summary(plan, provider, instructions, budget, step)
            await to_its_end(self._apply(compacted, plan, span, before))
        except asyncio.CancelledError:
            self._failed(before, "Stopped. The conversation is as it was.")
            raise
        except (LLMError, SoulError, StorageTrouble) as error:
            message = f"The conversation was not compacted: {error.message}"
            self._failed(before, message)
            raise CompactionFailed(message, advice=error.advice) from error

    def _plan(self, turn: Sequence[Message], span: Span) -> Plan:
        messages = self._line.messages
        if span.is_whole:
            return self._compaction.plan(messages, turn, self._marks.pinned_places())
        first = span.start.message_index if span.start is not None else 0
        end = span.until.message_index if span.until is not None else len(messages)
        pinned = self._marks.pinned_places()
        stay = [place for place in whole_groups(messages, pinned) if first <= place < end]
        plan = plan_with(messages, range(first, end), stay, pinned)
        if plan is None:
            raise NothingToCompact("There is nothing to compact in this part.")
        return plan

    def _failed(self, before: int, error: str) -> None:
        # Stopped while it was being applied: it has happened, and was told.
        if not self._applied:
            self._line.wire.publish(CompactionEnd(before, before, error=error))

    def _budget(self, provider: ChatProvider, before: int, refused: bool) -> int:
        """Tokens (by estimate) for the request: room for the summary is left, and what was refused is not sent again."""
        window = provider.info.window
        room = window - self._line.limits.reserve(window)
        if refused:
            room = min(room, int(before * _SMALLER))
        return max(500, round(room / self._line.accounting.factor))

    async def _summary(
        self, plan: Plan, provider: ChatProvider, instructions: str, budget: int, step: int
    ) -> Compacted:
        for attempt in range(_TRIES):
            try:
                compacted = await self._compaction.compact(
                    plan,
                    provider,
                    self._asker(provider, step),
                    instructions=instructions,
                    budget=budget,
                )
            except ContextOverflowError:
                if attempt == _TRIES - 1:
                    raise
                budget = max(300, int(min(budget, self._asked) * _SMALLER))
            else:
                self._line.accounting.spent(
                    Usage(compacted.input_tokens, compacted.output_tokens, compacted.cached_tokens)
                )
                return compacted
        raise AssertionError  # the loop returns or raises

    def _asker(self, provider: ChatProvider, step: int) -> Ask:
        def on_retry(notice: RetryNotice) -> None:
            self._line.wire.publish(
                StepRetry(
                    step,
                    notice.attempt,
                    notice.max_attempts,
                    notice.wait_s,
                    notice.reason,
                    notice.status,
                )
            )

        async def ask(
            system: str, tools: Sequence[ToolSpec], history: Sequence[Message]
        ) -> Completion:
            self._asked = text_tokens(system) + sum(map(message_tokens, history))
            return await complete(
                provider,
                system,
                tools,
                history,
                on_item=_unseen,
                on_retry=on_retry,
                policy=self._policy,
                retry_now=self._retry_now,
            )

        return ask

    async def _apply(self, compacted: Compacted, plan: Plan, span: Span, before: int) -> None:
        # The summary stands before what is kept.
        lead = len(compacted.messages) - len(plan.kept)
        pinned = [place + lead for place in plan.pinned]
        by = Replacement(compacted.summary, compacted.messages, pinned)
        await replace_part(self._line, self._marks, span, by, before)
        self._applied = True


def _unseen(_item: StreamItem) -> None:
    """A summary is shown when it is whole."""

"""Has the model draft the person's D-Mail: one call without tools, of which nothing is kept."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kimi_tui.llm.complete import complete
from kimi_tui.llm.errors import ContextOverflowError, LLMNotSet
from kimi_tui.llm.message import Message
from kimi_tui.llm.provider import ChatProvider, Completion, RetryPolicy, StreamItem
from kimi_tui.llm.tokens import estimate
from kimi_tui.prompts.load import prompt
from kimi_tui.session.readable_line import known_checkpoint
from kimi_tui.session.worldlines import WorldLines
from kimi_tui.soul.errors import SoulError
from kimi_tui.soul.live_line import LiveLine
from kimi_tui.soul.protocol import Target
from kimi_tui.soul.provider_slot import ProviderSlot
from kimi_tui.soul.transcript import transcript
from kimi_tui.soul.turns import NOT_SET, NOT_SET_ADVICE

_TRIES = 3
_SMALLER = 0.6


class NoDraft(SoulError):
    """The model wrote nothing."""


@dataclass(frozen=True, slots=True)
class Drafting:
    """Drafts letters.

    Attributes:
        line: the conversation.
        world_lines: reads the lines that were left.
        provider: the model in use.
        policy: how often a failed call is repeated.
        retry_now: ends a wait before a retry.
    """

    line: LiveLine
    world_lines: Callable[[], WorldLines]
    provider: ProviderSlot
    policy: RetryPolicy
    retry_now: asyncio.Event

    async def draft(self, target: Target) -> str:
        """A letter to a checkpoint, about what followed it; nothing where it was stopped.

        Raises:
            KeyError: no such checkpoint or world line.
            LLMError: the model could not be asked.
            NoDraft: it wrote nothing.
        """
        provider = self.provider.current
        if provider is None:
            raise LLMNotSet(NOT_SET, advice=NOT_SET_ADVICE)
        undone = await asyncio.to_thread(self._undone, target)
        window = provider.info.window
        budget = round((window - self.line.limits.reserve(window)) / self.line.accounting.factor)
        try:
            completion = await self._ask(provider, undone, budget)
        except asyncio.CancelledError:
            return ""
        self.line.accounting.spent(completion.usage)
        self.line.tell_status()
        text = completion.message.text.strip()
        if not text:
            raise NoDraft("The model wrote no letter.", advice="Try again, or write it yourself.")
        return text

    def _undone(self, target: Target) -> Sequence[Message]:
        if target.world_line:
            lines = self.world_lines()
            point = known_checkpoint(lines.index(target.world_line), target.id)
            return lines.messages_of(target.world_line)[point.message_index :]
        return self.line.messages[self.line.reachable(target.id).message_index :]

    async def _ask(
        self, provider: ChatProvider, undone: Sequence[Message], budget: int
    ) -> Completion:
        system, task = prompt("dmail_draft_system"), prompt("dmail_draft")
        room = budget - estimate(system) - estimate(task)
        for attempt in range(_TRIES):
            text = await asyncio.to_thread(transcript, undone, max(500, room))
            question = Message(role="user", content=f"{text}\n\n---\n\n{task}")
            try:
                return await complete(
                    provider,
                    system,
                    (),
                    (question,),
                    on_item=_unseen,
                    policy=self.policy,
                    retry_now=self.retry_now,
                )
            except ContextOverflowError:
                if attempt == _TRIES - 1:
                    raise
                room = int(min(room, estimate(text)) * _SMALLER)
        raise AssertionError  # the loop returns or raises


def _unseen(_item: StreamItem) -> None:
    """A draft is shown when it is whole."""

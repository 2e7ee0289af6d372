"""Replaces the older part of a conversation by a summary that the model writes.

What is kept and what is summarised is settled here, and so is the request; the context is changed by the caller, and
only after the summary is there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from kimi_tui.llm.message import ImagePart, Message
from kimi_tui.llm.provider import ChatProvider, Completion, ToolSpec
from kimi_tui.llm.tokens import estimate
from kimi_tui.prompts.load import prompt
from kimi_tui.soul.errors import CompactionFailed, NothingToCompact
from kimi_tui.soul.internal_messages import internal_kind, is_said, summary_message
from kimi_tui.soul.marks import whole_groups
from kimi_tui.soul.transcript import transcript

KEPT_MESSAGES = 2
_MAX_IMAGES = 8

Ask = Callable[[str, Sequence[ToolSpec], Sequence[Message]], Awaitable[Completion]]
"""Asks the model once, with retries: system prompt, tools, history."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a compaction would do: `old` becomes the summary, `kept` follows it word for word.

    `pinned` are the places in `kept` that the person pinned.
    """

    old: tuple[Message, ...]
    kept: tuple[Message, ...]
    pinned: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Compacted:
    """The new beginning of the context: the summary's message, then what was kept."""

    summary: str
    messages: tuple[Message, ...]
    input_tokens: int
    cached_tokens: int
    output_tokens: int


class Compaction(Protocol):
    """A way to make a conversation shorter."""

    def plan(
        self, messages: Sequence[Message], turn: Sequence[Message], pinned: Collection[int] = ()
    ) -> Plan:
        """Settle what goes and what stays.

        Args:
            messages: the whole context.
            turn: what the person said in the running turn; it always stays.
            pinned: the places of messages that the person pinned; they stay too.

        Raises:
            NothingToCompact: no older part is there.
        """
        ...

    async def compact(
        self, plan: Plan, provider: ChatProvider, ask: Ask, *, instructions: str, budget: int
    ) -> Compacted:
        """Have the summary written.

        Args:
            plan: from `plan`.
            provider: the model in use.
            ask: how to ask it.
            instructions: what the person wants kept, may be empty.
            budget: how many (estimated) tokens the request may have.

        Raises:
            CompactionFailed: the model gave no summary.
            LLMError: it could not be asked.
        """
        ...


class SimpleCompaction:
    """Keeps the last two real messages and the running turn's words, and has the rest summarised in one call."""

    def plan(
        self, messages: Sequence[Message], turn: Sequence[Message], pinned: Collection[int] = ()
    ) -> Plan:
        """Settle what goes and what stays.

        Raises:
            NothingToCompact: no older part is there.
        """
        cut = _cut_before_last(messages, KEPT_MESSAGES)
        places = [*_places_of(turn, messages), *whole_groups(messages, pinned)]
        stay = sorted({place for place in places if place < cut})
        plan = plan_with(messages, range(cut), stay, pinned, tail=range(cut, len(messages)))
        if plan is None:
            raise NothingToCompact(
                "There is nothing to compact yet.",
                advice="Compacting replaces older messages; the newest ones always stay.",
            )
        return plan

    async def compact(
        self, plan: Plan, provider: ChatProvider, ask: Ask, *, instructions: str, budget: int
    ) -> Compacted:
        """Have the summary written.

        Raises:
            CompactionFailed: the model gave no summary.
            LLMError: it could not be asked.
        """
        wish = instructions.strip()
        focus = prompt("compaction_focus", INSTRUCTIONS=wish) if wish else ""
        task = "\n\n".join(part for part in (prompt("compaction"), focus) if part)
        system = prompt("compaction_system")
        with_images = "image_in" in provider.info.capabilities
        room = budget - estimate(task) - estimate(system)
        images = _images(plan.old) if with_images else []
        # Counting hundreds of thousands of characters would hold up the event loop.
        text = await asyncio.to_thread(transcript, plan.old, room - 1_000 * len(images))
        question = f"{text}\n\n---\n\n{task}"
        content = [{"type": "text", "text": question}, *images]
        request = (
            Message.model_validate({"role": "user", "content": content})
            if images
            else Message(role="user", content=question)
        )
        completion = await ask(system, (), (request,))
        summary = completion.message.text.strip()
        if not summary:
            raise CompactionFailed(
                "The model wrote no summary.",
                advice="The conversation is as it was. Try /compact again, or rewind to a smaller checkpoint.",
            )
        return Compacted(
            summary,
            (summary_message(summary), *plan.kept),
            completion.usage.input,
            completion.usage.cached,
            completion.usage.output,
        )


def plan_with(
    messages: Sequence[Message],
    old: range,
    stay: Sequence[int],
    pinned: Collection[int],
    tail: range = range(0),
) -> Plan | None:
    """The plan that summarises the messages of `old`; None where that would gain nothing.

    Args:
        messages: the whole context.
        old: which of them the summary replaces.
        stay: places among those whose messages stay all the same.
        pinned: the places that the person pinned.
        tail: which follow as they are.
    """
    kept = set(stay)
    rest = [internal_kind(messages[place]) for place in old if place not in kept]
    if all(kind in ("marker", "reminder", "compaction") for kind in rest):
        return None
    # Markers would name checkpoints that no longer exist, reminders have done their work.
    late = [place for place in tail if internal_kind(messages[place]) not in ("marker", "reminder")]
    places = [*stay, *late]
    return Plan(
        tuple(messages[old.start : old.stop]),
        tuple(messages[place] for place in places),
        tuple(order for order, place in enumerate(places) if place in pinned),
    )


def _cut_before_last(messages: Sequence[Message], count: int) -> int:
    """Where the last `count` messages that a person or the model said begin, with all that follows them."""
    seen = 0
    for index in range(len(messages) - 1, -1, -1):
        message = messages[index]
        if message.role == "assistant" or is_said(message):
            seen += 1
            if seen == count:
                return index
    return 0


def _places_of(turn: Sequence[Message], messages: Sequence[Message]) -> list[int]:
    """Where the words of the running turn stand; the same words of an earlier turn are others."""
    places: list[int] = []
    end = len(messages)
    for words in reversed(turn):
        for place in range(end - 1, -1, -1):
            if messages[place] == words:
                places.insert(0, place)
                end = place
                break
    return places


def _images(messages: Sequence[Message]) -> list[dict[str, object]]:
    found = [
        part.model_dump(mode="json", exclude_none=True)
        for message in messages
        for part in message.parts
        if isinstance(part, ImagePart)
    ]
    return found[-_MAX_IMAGES:]

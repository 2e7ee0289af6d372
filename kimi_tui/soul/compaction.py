"""Compaction: replaces an older part of the conversation by a summary that the model writes.

Three steps, each of which leaves the context as it was if it fails or is stopped:

1. a strategy (`Compaction`; `SimpleCompaction` is the default) plans which messages are summarised and which stay word for
word; fewer stay if they would not fit the window beside a summary;
2. the strategy has the summary written, from the conversation as one text (`conversation_text`), shortened to the model's
window;
3. `Compactor` replaces the part by the summary, in one operation on the context, and publishes the new world line. The former
line is kept completely, so that undo brings it back.

Messages that stay keep their checkpoints, renumbered after the summary, with token figures for the new context before them.
If only some of the messages after a checkpoint stay, they get a checkpoint of their own.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from itertools import accumulate, pairwise
from typing import NamedTuple, Protocol, cast

from kimi_tui.app_paths import log_words
from kimi_tui.hooks.runner import Hooks
from kimi_tui.llm.completion import Collector, RetryNotice
from kimi_tui.llm.errors import ContextOverflowError, LLMError
from kimi_tui.llm.message import ContentPart, Message, TextPart
from kimi_tui.llm.provider import (
    ChatProvider,
    Completion,
    PromptRead,
    TextDelta,
    ToolSpec,
    Usage,
)
from kimi_tui.llm.tokens import estimate, message_tokens, text_tokens
from kimi_tui.projection.tokens import TokenFigure
from kimi_tui.prompts import prompt
from kimi_tui.session.context import Context, Reverted
from kimi_tui.session.errors import StorageTrouble
from kimi_tui.session.journal import JournalEntry
from kimi_tui.session.jsonl import lines, parse
from kimi_tui.session.schema import (
    CHECKPOINT,
    USAGE,
    Addition,
    Checkpoint,
    NewCheckpoint,
    TokenCount,
    Verbatim,
    count_of,
    message_line,
    new_uid,
)
from kimi_tui.soul.bookmarks import Pin, UserMarks, root_of, whole_groups
from kimi_tui.soul.conversation import Conversation
from kimi_tui.soul.conversation_text import conversation_text
from kimi_tui.soul.errors import (
    CompactionFailed,
    NothingToCompact,
    RefusedByHook,
    SoulError,
    UnknownCompaction,
)
from kimi_tui.soul.messages import (
    answered_words,
    checkpoint_created,
    internal_kind,
    is_user_words,
    label_of_message,
    segment_at,
    summary_message,
)
from kimi_tui.soul.request_form import LEAN_BELOW, larger_words
from kimi_tui.soul.tasks import TimeSlices, clear_in_slices, shielded
from kimi_tui.wire.events import CheckpointCreated, CheckpointKind, CompactionBegin, CompactionEnd

log = logging.getLogger(__name__)

EDITED = "edit"
"""The journal's word for an operation that only edited the text of a summary."""
_MAX_IMAGES = 8
_PUBLISHED_AT_ONCE = 100
_SMALLER = 0.6
_TRIES = 4
# A compaction that leaves more than this share of the context is not worth its price.
_WORTH_IT = 0.9
_SUMMARY_SHARE = 8
_LEAST_SUMMARY_TOKENS = 150
_CUT_SUMMARY_AT = 1.5
"""The factor by which a summary in a small window may exceed the requested length before its stream is ended."""
_WORDS_A_TOKEN = 0.6
_LEAD_TOKENS = message_tokens(summary_message(""))

AskModel = Callable[[str, Sequence[ToolSpec], Sequence[Message]], Awaitable[Completion]]
"""Asks the model once, with retries; its arguments are system prompt, tools and history."""


@dataclass(frozen=True, slots=True)
class CompactionPlan:
    """The plan of a compaction: `old` becomes the summary, and `kept` follows it word for word.

    `pinned` are the places in `kept` that the user pinned.
    """

    old: tuple[Message, ...]
    kept: tuple[Message, ...]
    pinned: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Compacted:
    """The new beginning of the context: the summary's message, then the kept messages."""

    summary: str
    messages: tuple[Message, ...]
    input_tokens: int
    cached_tokens: int
    output_tokens: int


class Compaction(Protocol):
    """The protocol of a compaction strategy: it plans which messages are summarised, and has the summary written."""

    def plan(
        self, messages: Sequence[Message], turn: Sequence[Message], pinned: Collection[int] = ()
    ) -> CompactionPlan:
        """Decide which messages are replaced and which stay.

        Args:
            messages: the whole context.
            turn: the user's messages in the running turn, which always stay.
            pinned: the places of messages that the user pinned, which stay too.

        Raises:
            NothingToCompact: there is no older part.
        """
        ...

    async def compact(
        self,
        plan: CompactionPlan,
        provider: ChatProvider,
        ask: AskModel,
        *,
        instructions: str,
        budget: int,
    ) -> Compacted:
        """Have the summary written.

        Args:
            plan: the result of `plan`.
            provider: the model in use.
            ask: the function that asks it.
            instructions: the user's wishes for the summary; may be empty.
            budget: the largest number of (estimated) tokens of the request.

        Raises:
            CompactionFailed: the model gave no summary.
            LLMError: the model could not be asked.
        """
        ...


class SimpleCompaction:
    """Keeps the last real messages and the user's messages of the running turn, and has the rest summarised in one call.

    Args:
        max_preserved_messages: the number of messages of the user or the model that stay word for word, with everything that
            follows the first of them (the results of its calls, and queued messages).
    """

    def __init__(self, max_preserved_messages: int = 2) -> None:
        self._max_preserved = max(0, max_preserved_messages)

    def plan(
        self, messages: Sequence[Message], turn: Sequence[Message], pinned: Collection[int] = ()
    ) -> CompactionPlan:
        """Decide which messages are replaced and which stay.

        Raises:
            NothingToCompact: there is no older part.
        """
        cut = _cut_before_last(messages, self._max_preserved)
        places = [*_places_of(turn, messages), *whole_groups(messages, pinned)]
        stay = sorted({place for place in places if place < cut})
        plan = plan_with(messages, range(cut), stay, pinned, tail=range(cut, len(messages)))
        if plan is None:
            raise NothingToCompact(
                "There is nothing to compact yet.",
                advice="Compaction replaces older messages with a summary; there are only new ones.",
            )
        return plan

    async def compact(
        self,
        plan: CompactionPlan,
        provider: ChatProvider,
        ask: AskModel,
        *,
        instructions: str,
        budget: int,
    ) -> Compacted:
        """Have the summary written.

        Raises:
            CompactionFailed: the model gave no summary.
            LLMError: the model could not be asked.
        """
        wanted = instructions.strip()
        focus = prompt("compaction_focus", INSTRUCTIONS=wanted) if wanted else ""
        ask_for, system = prompt("compaction"), prompt("compaction_system")
        if most := summary_tokens(provider.info.window):
            ask_for = prompt("lean/compaction", WORDS=str(round(most * _WORDS_A_TOKEN)))
            system = prompt("lean/compaction_system")
        task = "\n\n".join(part for part in (ask_for, focus) if part)
        with_images = "image_in" in provider.info.capabilities
        room = budget - estimate(task) - estimate(system)
        # Reading and counting hundreds of thousands of characters would block the event loop.
        images = await asyncio.to_thread(_images, plan.old, room // 2) if with_images else []
        shown = message_tokens(Message(role="user", content=images))
        question = await asyncio.to_thread(_question, plan.old, room - shown, task)
        request = Message(
            role="user", content=[TextPart(text=question), *images] if images else question
        )
        completion = await ask(system, (), (request,))
        summary = completion.message.text.strip()
        if not summary:
            raise CompactionFailed(
                "The model wrote no summary.",
                advice=f"Try another model with /model. {_OTHERWISE}",
            )
        return Compacted(
            summary,
            (summary_message(summary), *plan.kept),
            completion.usage.input,
            completion.usage.cached,
            completion.usage.output,
        )


def _question(messages: Sequence[Message], room: int, task: str) -> str:
    """Return the conversation as one text of at most so many tokens, with what is asked about it."""
    return f"{conversation_text(messages, room)}\n\n---\n\n{task}"


def summary_tokens(window: int) -> int:
    """Return the tokens that a summary may take in a small window; 0 for no such limit."""
    if not 0 < window < LEAN_BELOW:
        return 0
    return max(_LEAST_SUMMARY_TOKENS, window // _SUMMARY_SHARE)


COMPACTIONS: dict[str, Callable[[], Compaction]] = {"simple": SimpleCompaction}
"""The built-in strategies, by their names in the configuration."""


def compaction_named(name: str) -> Compaction:
    """Return a strategy by its name: one of `COMPACTIONS`, or `package.module:Class` of the user's own Python.

    The class is instantiated without arguments. The import takes time, so call it in a thread. The configuration is the
    user's own file, so the class runs with the rights of the program.

    Raises:
        UnknownCompaction: no strategy has that name, or the class is not a strategy.
    """
    known = COMPACTIONS.get(name)
    if known is not None:
        return known()
    module, colon, attribute = name.partition(":")
    if not (module and colon and attribute):
        names = ", ".join(sorted(COMPACTIONS))
        raise UnknownCompaction(name, f"use {names}, or package.module:Class for your own")
    try:
        made: object = getattr(import_module(module), attribute)()
    except Exception as error:
        log.warning("the compaction %s cannot be used", name, exc_info=error)
        raise UnknownCompaction(name, f"{type(error).__name__}: {error}") from error
    if not (callable(getattr(made, "plan", None)) and callable(getattr(made, "compact", None))):
        raise UnknownCompaction(name, "the class lacks the methods plan and compact")
    return cast("Compaction", made)


def has_work(messages: Sequence[Message], old: range, stay: Collection[int]) -> bool:
    """Return whether a summary of `old` would replace anything but bookkeeping and summaries; it reads no more than necessary."""
    kept, bare = set(stay), ("marker", "reminder", "compaction")
    return any(place not in kept and internal_kind(messages[place]) not in bare for place in old)


def plan_with(
    messages: Sequence[Message],
    old: range,
    stay: Sequence[int],
    pinned: Collection[int],
    tail: range = range(0),
) -> CompactionPlan | None:
    """Return the plan that summarises the messages of `old`; None if that would gain nothing.

    Args:
        messages: the whole context.
        old: the places of the messages that the summary replaces.
        stay: places in `old` whose messages stay.
        pinned: the places that the user pinned.
        tail: the places of the messages that follow unchanged.
    """
    if not has_work(messages, old, stay):
        return None
    # Markers would name checkpoints that no longer exist, and reminders have served their purpose.
    late = [place for place in tail if internal_kind(messages[place]) not in ("marker", "reminder")]
    places = [*stay, *late]
    return CompactionPlan(
        tuple(messages[old.start : old.stop]),
        tuple(messages[place] for place in places),
        tuple(order for order, place in enumerate(places) if place in pinned),
    )


def _cut_before_last(messages: Sequence[Message], count: int) -> int:
    """Return the place where the last `count` messages of the user or the model begin, with everything that follows them."""
    if not count:
        return len(messages)
    seen = 0
    for index in range(len(messages) - 1, -1, -1):
        message = messages[index]
        if message.role == "assistant" or is_user_words(message):
            seen += 1
            if seen == count:
                return index
    return 0


def _places_of(turn: Sequence[Message], messages: Sequence[Message]) -> list[int]:
    """Return the places of the running turn's messages; equal messages of an earlier turn do not count."""
    places: list[int] = []
    end = len(messages)
    for words in reversed(turn):
        for place in range(end - 1, -1, -1):
            if messages[place] == words:
                places.insert(0, place)
                end = place
                break
    return places


def _images(messages: Sequence[Message], room: int) -> list[ContentPart]:
    """Return the newest images, in their order, that fit in that many tokens."""
    found: list[ContentPart] = []
    for part in reversed([part for message in messages for part in message.images]):
        room -= message_tokens(Message(role="user", content=[part]))
        if room < 0 or len(found) == _MAX_IMAGES:
            break
        found.insert(0, part)
    return found


@dataclass(frozen=True, slots=True)
class _Replacement:
    """The replacement that a compaction makes.

    Attributes:
        said: the summary's message, and other messages that a strategy adds.
        kept: the places of the messages that stay; those at `answered` are no longer followed by their answers.
        freed_tokens: the estimated tokens of the removed messages; `said_tokens` those of `said`.
    """

    said: tuple[Message, ...]
    kept: frozenset[int]
    answered: frozenset[int]
    freed_tokens: int
    said_tokens: int


@dataclass(frozen=True, slots=True)
class CompactionSpan:
    """The part that a compaction summarises: the live world line from before `start` to before `until`.

    None means the beginning or end of the line. With one of the two the compaction is partial: it summarises the part before
    or after a checkpoint.
    """

    start: Checkpoint | None = None
    until: Checkpoint | None = None

    @property
    def is_whole(self) -> bool:
        """Whether the span is the whole world line."""
        return self.start is None and self.until is None


WHOLE = CompactionSpan()

_REWIND = "Rewind to an earlier checkpoint"
_OTHERWISE = "Rewind to an earlier checkpoint, or use /clear: both free context without a summary."
_UNDO = "Undo the compaction with /undo and rewind to an earlier checkpoint"


def advice_when_full(conversation: Conversation) -> str:
    """Return the advice in the error about a full window; it names a rewind only if there is a checkpoint to go back to."""
    is_bare = conversation.begins_with_summary and len(conversation.context.checkpoints) < 2
    info = conversation.model.info()
    larger = larger_words(info) if info is not None and info.window < LEAN_BELOW else ""
    return f"{_UNDO if is_bare else _REWIND}, /clear, or choose a model with a larger window. {larger}".strip()


def figures_when_full(conversation: Conversation, window: int) -> str:
    """Return the tokens of a request and their parts in words: `about 5,235 of 2,048 tokens (system prompt 1,104, …)`."""
    used, fixed = conversation.meter.used, conversation.fixed_tokens
    parts = [f"system prompt {fixed['prompt']:,}", f"tools {fixed['tools']:,}"]
    parts = [
        *parts[: 2 if fixed["tools"] else 1],
        f"messages {max(0, used - sum(fixed.values())):,}",
    ]
    return f"about {used:,} of {window:,} tokens ({', '.join(parts)})"


def _at_sentence_end(text: str) -> str:
    """Return a text that was cut anywhere without its last incomplete sentence."""
    end = max(text.rfind("\n"), text.rfind(". ") + 1)
    return f"{text[:end] if end > len(text) // 2 else text} …"


class Compactor:
    """Compacts the live conversation.

    Args:
        conversation: the live conversation.
        marks: the pins, whose messages always stay.
        compaction: the strategy.

    Attributes:
        hooks: the hooks that are told before; None for none.
    """

    def __init__(
        self,
        conversation: Conversation,
        marks: UserMarks,
        compaction: Compaction,
    ) -> None:
        self._conversation = conversation
        self._marks = marks
        self._compaction = compaction
        self.hooks: Hooks | None = None
        self._applied = False
        # This is the estimated size of the last request in tokens.
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
        span: CompactionSpan = WHOLE,
    ) -> None:
        """Summarise the older part of the context, or exactly the named part.

        Args:
            provider: the model in use.
            automatic: whether the reason is that the context is nearly full, and not the user's request.
            instructions: the user's wishes for the summary.
            turn: the user's messages in the running turn.
            refused: the server has just refused the context as too long.
            step: the running step's number, for events.
            span: the part; `WHOLE` stands for the older part.

        Raises:
            NothingToCompact: no older part is there.
            CompactionFailed: there is no summary; the context is unchanged.
            RefusedByHook: a hook does not want one that the user asked for.
            asyncio.CancelledError: stopped; the context is unchanged.
        """
        if self.hooks is not None and self.hooks.has("PreCompact"):
            said = await self.hooks.before_compaction(
                "auto" if automatic else "manual", instructions
            )
            if said.by and not automatic:
                raise RefusedByHook("the compaction", said.by, said.reason)
            instructions = "\n".join(filter(None, (instructions, said.context)))
        # This reads the whole context, so it runs in a thread.
        messages = await asyncio.to_thread(list, self._conversation.context.messages)
        try:
            await self._compact(
                messages,
                provider,
                automatic=automatic,
                instructions=instructions,
                turn=turn,
                refused=refused,
                step=step,
                span=span,
            )
        finally:
            # These are the last references to the removed messages: the variables of `_compact` have ended with it, which is
            # why it is a function.
            await clear_in_slices(messages)

    async def _compact(
        self,
        messages: Sequence[Message],
        provider: ChatProvider,
        *,
        automatic: bool,
        instructions: str,
        turn: Sequence[Message],
        refused: bool,
        step: int,
        span: CompactionSpan,
    ) -> None:
        plan = await asyncio.to_thread(self._plan, messages, turn, span, provider.info.window)
        self._applied = False
        before = self._conversation.meter.used
        self._conversation.wire.publish(CompactionBegin(before, automatic))
        budget = self._budget(provider, before, refused)
        try:
            compacted = await self._summary(plan, provider, instructions, budget, step)
            part = await asyncio.to_thread(self._replacement, compacted, messages, turn, span)
            self._check_worth(part, provider.info.window if automatic else 0)
            await self._apply(compacted.summary, part, span, before)
        except asyncio.CancelledError:
            self._failed(before, "Compaction stopped. The conversation is unchanged.")
            raise
        except (LLMError, SoulError, StorageTrouble) as error:
            if self._applied:
                raise
            message = f"The conversation was not compacted: {error.message}"
            advice = error.advice or _OTHERWISE
            self._failed(before, message, advice)
            raise CompactionFailed(message, advice=advice) from error
        except Exception as error:
            if self._applied:
                raise
            # A strategy of the user's own may raise any exception.
            log.exception("a compaction failed")
            message = f"The conversation was not compacted: {type(error).__name__} in the compaction code."
            self._failed(before, message, log_words())
            raise CompactionFailed(message, advice=log_words()) from error

    def _replacement(
        self,
        compacted: Compacted,
        messages: Sequence[Message],
        turn: Sequence[Message],
        span: CompactionSpan,
    ) -> _Replacement:
        """Compute the replacement that the compaction makes, and its price. It reads the whole context, so call it in a thread."""
        places = {id(message): place for place, message in enumerate(messages)}
        first = span.start.message_index if span.start is not None else 0
        end = span.until.message_index if span.until is not None else len(messages)
        kept = {place for m in compacted.messages if (place := places.get(id(m))) is not None}
        # Messages that were pinned while the summary was written stay too.
        pinned = whole_groups(messages, self._marks.pinned_places())
        kept.update(place for place in pinned if first <= place < end)
        said = tuple(m for m in compacted.messages if id(m) not in places)
        is_marker = self._conversation.context.index.is_marker
        unmarked = [n for n in range(first, end) if not is_marker(n)]
        gone = [n for n in unmarked if n not in kept]
        answered = frozenset(
            place
            for place, following in pairwise(unmarked)
            if place in kept
            and following not in kept
            and is_user_words(messages[place])
            and messages[place] not in turn
        )
        return _Replacement(
            said,
            frozenset(kept),
            answered,
            sum(message_tokens(messages[place]) for place in gone),
            sum(map(message_tokens, said)),
        )

    def _check_worth(self, part: _Replacement, window: int) -> None:
        """Refuse a compaction that frees nothing, or next to nothing although the context stays too full.

        Args:
            part: the planned replacement.
            window: the model's window if the compaction must make room in it; else 0.

        Raises:
            CompactionFailed: the compaction is refused.
        """
        meter = self._conversation.meter
        before = meter.estimate()
        after = before - meter.scale.corrected(part.freed_tokens - part.said_tokens)
        # The program's introduction before every summary does not count in the comparison.
        if after - _LEAD_TOKENS >= before:
            raise CompactionFailed(
                "The summary is as long as the messages that it would replace, so compaction frees nothing.",
                advice=advice_when_full(self._conversation),
            )
        if (
            window
            and after >= self._conversation.limits.compaction_trigger(window)
            and after > _WORTH_IT * before
        ):
            raise CompactionFailed(
                f"The conversation takes {figures_when_full(self._conversation, window)}, and a summary of the older messages frees almost nothing.",
                advice=advice_when_full(self._conversation),
            )

    def _plan(
        self,
        messages: Sequence[Message],
        turn: Sequence[Message],
        span: CompactionSpan,
        window: int,
    ) -> CompactionPlan:
        if span.is_whole:
            pinned = self._marks.pinned_places()
            try:
                plan = self._compaction.plan(messages, turn, pinned)
            except NothingToCompact:
                if (plan := self._fitting(None, messages, turn, pinned, window)) is None:
                    raise
                return plan
            return self._fitting(plan, messages, turn, pinned, window) or plan
        old, stay, pinned = self._part(messages, span)
        plan = plan_with(messages, old, stay, pinned)
        if plan is None:
            raise NothingToCompact("There is nothing to compact in this part of the conversation.")
        return plan

    def _fitting(
        self,
        plan: CompactionPlan | None,
        messages: Sequence[Message],
        turn: Sequence[Message],
        pinned: Collection[int],
        window: int,
    ) -> CompactionPlan | None:
        """Return a plan that keeps fewer messages word for word, if those that `plan` keeps would not fit the window beside a summary.

        Args:
            plan: the strategy's plan; None if it found nothing to compact.
            messages: the whole context.
            turn: the user's messages in the running turn, which always stay.
            pinned: the places of messages that the user pinned, which stay too.
            window: the model's window in tokens.

        Returns:
            None if the messages that `plan` keeps fit, or if no plan exists whose messages do.
        """
        meter = self._conversation.meter
        trigger = self._conversation.limits.compaction_trigger(window)
        kept = messages if plan is None else plan.kept
        room = trigger - meter.scale.corrected(meter.fixed_uncorrected) - summary_tokens(window)

        def size(some: Sequence[Message]) -> int:
            return meter.scale.corrected(sum(map(message_tokens, some)))

        if size(kept) <= room:
            return None
        for count in (1, 0):
            cut = _cut_before_last(messages, count)
            places = [*_places_of(turn, messages), *whole_groups(messages, pinned)]
            stay = sorted({place for place in places if place < cut})
            tighter = plan_with(messages, range(cut), stay, pinned, tail=range(cut, len(messages)))
            if tighter is not None and size(tighter.kept) <= room:
                return tighter
        return None

    def has_work(self, span: CompactionSpan) -> bool:
        """Return whether there is anything to summarise in a part of the conversation."""
        messages = self._conversation.context.messages
        old, stay, _ = self._part(messages, span)
        return has_work(messages, old, stay)

    def _part(
        self, messages: Sequence[Message], span: CompactionSpan
    ) -> tuple[range, list[int], Collection[int]]:
        """Return the places that a summary of a part replaces, those among them that stay, and the pinned ones."""
        first = span.start.message_index if span.start is not None else 0
        end = span.until.message_index if span.until is not None else len(messages)
        pinned = self._marks.pinned_places()
        stay = [place for place in whole_groups(messages, pinned) if first <= place < end]
        return range(first, end), stay, pinned

    def _failed(self, before: int, error: str, advice: str = "") -> None:
        # If the compaction was stopped while it was applied, it has happened and was published.
        if not self._applied:
            self._conversation.wire.publish(
                CompactionEnd(before, before, error=error, advice=advice)
            )

    def _budget(self, provider: ChatProvider, before: int, refused: bool) -> int:
        """Return the estimated tokens that the request may have: with room for the summary, and fewer than were refused."""
        window = provider.info.window
        room = window - self._conversation.limits.reserve(window)
        if refused:
            room = min(room, int(before * _SMALLER))
        return max(500, round(room / self._conversation.meter.scale.factor))

    async def _summary(
        self,
        plan: CompactionPlan,
        provider: ChatProvider,
        instructions: str,
        budget: int,
        step: int,
    ) -> Compacted:
        for attempt in range(_TRIES):
            try:
                compacted = await self._compaction.compact(
                    plan,
                    provider,
                    partial(self._ask, provider, step),
                    instructions=instructions,
                    budget=budget,
                )
            except ContextOverflowError:
                if attempt == _TRIES - 1:
                    raise
                budget = max(300, int(min(budget, self._asked) * _SMALLER))
            else:
                self._conversation.meter.add_usage(
                    Usage(compacted.input_tokens, compacted.output_tokens, compacted.cached_tokens)
                )
                return compacted
        raise AssertionError  # the loop returns or raises

    async def _ask(
        self,
        provider: ChatProvider,
        step: int,
        system: str,
        tools: Sequence[ToolSpec],
        history: Sequence[Message],
    ) -> Completion:
        """Ask the model for a strategy (as `AskModel`); in a small window an answer that is too long is ended."""
        self._asked = text_tokens(system) + sum(map(message_tokens, history))
        collector = Collector(provider.info.provider, provider.info.model)
        most = round(summary_tokens(provider.info.window) * _CUT_SUMMARY_AT)
        said = 0
        asked = self._conversation.model.ask(provider, system, tools, history, collector)
        async with aclosing(asked) as items:
            async for item in items:
                match item:
                    case Completion():
                        return item
                    case RetryNotice():
                        said = 0
                        self._conversation.publish_retry(step, item)
                    case TextDelta() if most:
                        said += text_tokens(item.text)
                        if said > most:
                            break
                    case PromptRead():
                        self._conversation.publish_progress(item)
                    case _:
                        pass
        answer = await asyncio.to_thread(collector.message, True)
        text = "" if answer is None else answer.text
        # A quick server's pieces come many at once.
        text = _at_sentence_end(text[: len(text) * most // said])
        cut = Message(role="assistant", content=text)
        return Completion(cut, Usage(self._asked, said, estimated=True), "length")

    # -- changing the context --------------------------------------------------------------------

    @shielded
    async def _apply(
        self, summary: str, part: _Replacement, span: CompactionSpan, before: int
    ) -> None:
        """Replace the part by the summary, and publish the new world line.

        Args:
            summary: the text of the summary.
            part: the replacement.
            span: the replaced part.
            before: the tokens of the context before, as they were published.

        Raises:
            StorageTrouble: the disk refused; nothing changed.
        """
        conversation, context, meter = (
            self._conversation,
            self._conversation.context,
            self._conversation.meter,
        )
        start, until = span.start, span.until
        if start is None:
            base = meter.estimate(part.said_tokens)
        else:
            base = conversation.figure_before(start).tokens + meter.scale.corrected(
                part.said_tokens
            )
        # No server has counted messages that were kept without their surroundings.
        kept = await asyncio.to_thread(
            KeptTokens, context.messages, part.kept, base, meter.scale.corrected
        )
        tail = len(context.messages) if until is None else until.message_index
        saved = 0 if until is None else conversation.figure_before(until).tokens - kept.before(tail)
        rest = await asyncio.to_thread(
            renumbered,
            context,
            start.offset if start is not None else 0,
            lambda place, tokens: tokens - saved if place > tail else kept.before(place),
            keeps=lambda place: place >= tail or place in part.kept,
            whole_from=context.size_bytes if until is None else until.offset,
            answered=part.answered,
        )
        uid = new_uid()
        total = kept.before(tail) if until is None else max(base, before - saved)
        then: list[Addition] = [NewCheckpoint(uid=uid), *part.said, TokenCount(base)]
        then += [*rest.additions, TokenCount(total)] if rest.additions else []
        # The pins are written first: a pin on a uid that no checkpoint has is harmless, but a lost one is not.
        await self._marks.pin_all(rest.moved_pins(self._marks.pins))
        if start is None:
            reverted = await context.clear(
                reason="compaction", text=summary, then=then, tokens=conversation.known_tokens()
            )
        else:
            reverted = await context.revert_to(
                start.id,
                reason="compaction",
                text=summary,
                then=then,
                tokens=conversation.known_tokens(start),
            )
        stays = 0 if start is None else start.message_index
        self._applied = True
        await self._publish(reverted, stays, summary, before, Renamed(uid), rest.renamed)
        # Messages that were pinned since then have another name now.
        if late := set(rest.moved_pins(self._marks.pins)) - self._marks.pins:
            await self._marks.pin_all(late)

    async def edit_summary(self, text: str) -> None:
        """Replace the text of the newest summary on the live world line.

        Raises:
            NothingToCompact: there is no summary.
            StorageTrouble: the disk refused; nothing changed.
        """
        conversation, context = self._conversation, self._conversation.context
        before = conversation.meter.used
        place = await asyncio.to_thread(_newest_summary, conversation.context.messages)
        point = next((p for p in reversed(context.checkpoints) if p.message_index <= place), None)
        if place < 0 or point is None:
            raise NothingToCompact("The current world line has no summary.")
        new = summary_message(text)
        was, now = (
            conversation.meter.scale.corrected(message_tokens(message))
            for message in (conversation.context.messages[place], new)
        )
        anew = await asyncio.to_thread(
            renumbered,
            context,
            point.offset,
            lambda _, tokens: tokens - was + now,
            whole_from=point.offset,
            instead=(place, new),
        )
        reverted = await context.revert_to(
            point.id,
            reason="compaction",
            text=text,
            then=anew.additions,
            files=JournalEntry(op="compaction", reason=EDITED),
            tokens=conversation.known_tokens(point),
        )
        first, *rest = anew.renamed
        await self._publish(reverted, point.message_index, text, before, first, rest)

    async def _publish(
        self,
        reverted: Reverted,
        kept: int,
        summary: str,
        before: int,
        first: Renamed,
        renamed: Sequence[Renamed],
    ) -> None:
        """Update the conversation to the new context, and publish it.

        Args:
            reverted: the result of the operation.
            kept: the number of first messages that are unchanged.
            summary: the text of the summary.
            before: the tokens of the context before.
            first: the summary's checkpoint.
            renamed: the checkpoints after it.
        """
        conversation, world_line = self._conversation, reverted.world_line
        try:
            await conversation.refresh(kept)
            # The numbers belong to other checkpoints now.
            conversation.denwa.forget_deliveries()
            names = {one.uid: one for one in (first, *renamed)}
            points = list(conversation.context.checkpoints)
            place = next(i for i, point in enumerate(points) if point.uid == first.uid)
            if points[place].id:
                conversation.publish_reverted(reverted)
            slices = TimeSlices()
            for start in range(place, len(points), _PUBLISHED_AT_ONCE):
                some = points[start : start + _PUBLISHED_AT_ONCE]
                # This reads all messages after the summary except the results of tools.
                for created in await asyncio.to_thread(
                    _created, conversation, some, names, first.uid
                ):
                    conversation.publish_checkpoint(created)
                    await slices.yield_if_over()
        finally:
            # The operation has happened, whatever error kept its events from being published: listeners must not wait for its
            # end.
            conversation.publish(
                CompactionEnd(before, conversation.meter.used, summary, world_line)
            )
            conversation.publish_line_changed("compaction", world_line, 0, first.uid)


def _newest_summary(messages: Sequence[Message]) -> int:
    for place in range(len(messages) - 1, -1, -1):
        if internal_kind(messages[place]) == "compaction":
            return place
    return -1


def _created(
    conversation: Conversation,
    points: Sequence[Checkpoint],
    names: Mapping[str, Renamed],
    summary: str,
) -> list[CheckpointCreated]:
    """Return the events of some checkpoints of the live world line, with the messages that they began. It reads messages, so
    call it in a thread.

    Args:
        conversation: the live conversation.
        points: the checkpoints.
        names: their new and former names, by uid.
        summary: the uid of the summary's checkpoint.
    """
    line = conversation.context.world_line
    found: list[CheckpointCreated] = []
    for point in points:
        part, is_summary, name = segment_at(line, point), point.uid == summary, names[point.uid]
        summary_kind: CheckpointKind = "summary" if point.id else "compaction"
        found.append(
            checkpoint_created(
                point,
                summary_kind if is_summary else part.kind,
                "" if is_summary else part.label,
                TokenFigure(point.tokens, measured=False)
                if point.tokens
                else conversation.figure_before(point),
                was=name.was,
                kept=name.kept,
                said=tuple(map(label_of_message, part.words)) if name.kept else (),
                carried=len(part.carried) if name.kept else 0,
            )
        )
    return found


class Renamed(NamedTuple):
    """A checkpoint with its new and its former name (empty for a new checkpoint).

    `kept` are the numbers of the messages after the old checkpoint that stay; empty for all of them.
    """

    uid: str
    was: str = ""
    kept: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Renumbered:
    """Records to write after a summary, and the checkpoints among them."""

    additions: tuple[Addition, ...]
    renamed: tuple[Renamed, ...]

    def moved_pins(self, pins: Collection[Pin]) -> list[Pin]:
        """Return those pins whose message has another number now, by its new checkpoint and number."""
        return [
            (one.uid, order)
            for one in self.renamed
            if one.kept != tuple(range(len(one.kept)))
            for order, number in enumerate(one.kept)
            if (one.was, number) in pins
        ]


class KeptTokens:
    """Estimates the tokens before a message if only some of the messages before it stay.

    Args:
        messages: all messages of the world line so far.
        kept: the places of the messages that stay.
        base: the tokens before the first of them.
        estimated: turns a sum of sizes into an estimate.
    """

    def __init__(
        self,
        messages: Sequence[Message],
        kept: Collection[int],
        base: int,
        estimated: Callable[[int], int],
    ) -> None:
        self._places = sorted(kept)
        sizes = (message_tokens(messages[place]) for place in self._places)
        self._sums = list(accumulate(sizes, initial=0))
        self._base, self._estimated = base, estimated

    def before(self, place: int) -> int:
        """Return the tokens before the message at `place`."""
        return self._base + self._estimated(self._sums[bisect_left(self._places, place)])


class _Kept:
    """The kept part of a checkpoint and of the messages after it."""

    def __init__(self, point: Checkpoint | None, is_whole: bool) -> None:
        self.point = point
        self.is_whole = is_whole
        self.marker = False
        self.records: list[Addition] = []
        self.numbers: list[int] = []
        self.n_seen = 0
        self.n_dropped = 0

    def close(self) -> tuple[Sequence[Addition], Renamed | None]:
        """Return the records to write, and the checkpoint's name in them, if it has one."""
        point = self.point
        if not (self.numbers or (self.is_whole and point is not None)):
            return (), None
        if point is None:
            return self.records, None
        # If all messages stay, a message's number (which pins use) is still valid under the old name.
        is_same = self.numbers == list(range(len(self.numbers)))
        records = [one for one in self.records if is_same or not isinstance(one, TokenCount)]
        # Reminders are not shown, but one that was dropped between two messages changes the number of the second.
        kept = () if is_same and not self.n_dropped else tuple(self.numbers)
        renamed = Renamed(new_uid(), point.uid, kept)
        was = root_of(point) if is_same else None
        begin = NewCheckpoint(marker=self.marker, was=was, uid=renamed.uid, at=point.at)
        return [begin, *records], renamed


def renumbered(
    context: Context,
    offset: int,
    figure: Callable[[int, int], int],
    *,
    keeps: Callable[[int], bool] = lambda place: True,
    whole_from: int = 0,
    answered: Collection[int] = (),
    instead: tuple[int, Message] | None = None,
) -> Renumbered:
    """Return the records that stay, in the form that follows a summary: with new uids, numbers and token figures.

    Everything else in them stays byte for byte. It reads the file, so call it in a thread.

    Args:
        context: the live context.
        offset: the offset in its file from which on they are searched.
        figure: returns the tokens to write in a usage record, from the place of the next message and the former tokens.
        keeps: returns whether the message at a place stays.
        whole_from: the offset from which on everything stays, even a checkpoint that nothing follows.
        answered: the places of messages that are no longer followed by their answers.
        instead: the place of a message, and its replacement.
    """
    index = context.index
    points = {point.offset: point for point in context.checkpoints}
    place = index.messages_before(offset)
    groups = [_Kept(None, is_whole=False)]
    # The lines are read one by one, because reading megabytes at once would block other threads.
    for raw in lines(context.read, offset):
        at, line = raw.offset, raw.data
        record = parse(line) if line.strip() else None
        if not isinstance(record, dict):
            continue
        group = groups[-1]
        if at in points:
            groups.append(_Kept(points[at], is_whole=at >= whole_from))
        elif place < index.n_messages and at == index.place(place)[0]:
            place += 1
            if index.is_marker(place - 1):
                # The marker names a number that has changed; without its checkpoint it would name nothing.
                group.marker = group.marker or not (group.records or group.n_seen)
                continue
            if keeps(place - 1):
                group.numbers.append(group.n_seen)
                if instead is not None and instead[0] == place - 1:
                    line = message_line(instead[1]).rstrip(b"\n")
                elif place - 1 in answered:
                    line = message_line(answered_words(context.messages[place - 1])).rstrip(b"\n")
                group.records.append(Verbatim(line + b"\n"))
            elif internal_kind(context.messages[place - 1]) != "reminder":
                group.n_dropped += 1
            group.n_seen += 1
        elif record.get("role") == USAGE:
            tokens = count_of(record.get("token_count"))
            if tokens is not None:
                group.records.append(TokenCount(max(1, figure(place, tokens))))
        elif record.get("role") != CHECKPOINT and at >= whole_from:
            group.records.append(Verbatim(line + b"\n"))
    closed = [group.close() for group in groups]
    return Renumbered(
        tuple(record for records, _ in closed for record in records),
        tuple(renamed for _, renamed in closed if renamed is not None),
    )

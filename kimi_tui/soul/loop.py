"""The agent loop of a turn: steps until the model calls no more tools; compactions, D-Mails and steers between.

A steer is text that the user sends while the agent works; `Steering` queues it until the next step begins.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal
from uuid import uuid4

from kimi_tui.images import Image
from kimi_tui.llm.errors import ContextOverflowError
from kimi_tui.llm.message import Message
from kimi_tui.llm.provider import ChatProvider
from kimi_tui.soul.attachments import Attachments
from kimi_tui.soul.compaction import Compactor, advice_when_full
from kimi_tui.soul.conversation import Conversation
from kimi_tui.soul.dmail import DMailDelivery
from kimi_tui.soul.errors import (
    BackToTheFuture,
    CompactionFailed,
    MaxStepsReached,
    NothingToCompact,
)
from kimi_tui.soul.images import fact_of, facts_of
from kimi_tui.soul.reminders import Reminders
from kimi_tui.soul.segments import label_of_message
from kimi_tui.soul.step import ModelAnswer, StepEnd, StepRunner
from kimi_tui.soul.tasks import run_to_completion
from kimi_tui.wire.display import ImageBlock
from kimi_tui.wire.events import (
    FilesAttached,
    Notice,
    SteerQueued,
    SteerTaken,
    StepBegin,
    StepInterrupted,
    StepRetry,
)
from kimi_tui.wire.queue import Wire


@dataclass(frozen=True, slots=True)
class Steer:
    """One queued text, with the images pasted into it."""

    id: str
    text: str
    images: tuple[Image, ...] = ()

    @property
    def facts(self) -> tuple[ImageBlock, ...]:
        """What the wire tells of its images."""
        return tuple(map(facts_of, self.images))


class Steering:
    """The queue. What is not taken by the end of a turn stays for the next."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._queued: list[Steer] = []

    def __bool__(self) -> bool:
        return bool(self._queued)

    def queue(self, text: str, images: Sequence[Image] = ()) -> str:
        """Add one; returns its id."""
        steer = Steer(uuid4().hex[:12], text, tuple(images))
        self._queued.append(steer)
        self._wire.publish(SteerQueued(steer.id, steer.text, steer.facts))
        return steer.id

    def withdraw(self, steer_id: str) -> Steer | None:
        """Take one back; None if it has gone in already."""
        for steer in self._queued:
            if steer.id == steer_id:
                self._queued.remove(steer)
                taken = SteerTaken(steer.id, steer.text, withdrawn=True, images=steer.facts)
                self._wire.publish(taken)
                return steer
        return None

    def take(self) -> tuple[Steer, ...]:
        """Everything that is queued, oldest first, no longer queued: from here on it cannot be withdrawn."""
        taken = tuple(self._queued)
        self._queued.clear()
        return taken

    def went_in(self, steers: tuple[Steer, ...], place: int) -> None:
        """Tell that what was taken is in the context, the first of it at this place behind the newest checkpoint."""
        for number, steer in enumerate(steers, place):
            taken = SteerTaken(steer.id, steer.text, number=number, images=steer.facts)
            self._wire.publish(taken)

    def put_back(self, steers: tuple[Steer, ...]) -> None:
        """What was taken did not get into the context: it waits again, before what was queued since."""
        self._queued[:0] = steers


def publish_attached(wire: Wire, number: int, message: Message) -> None:
    """Tell what went with message `number` behind the newest checkpoint of what it names; nothing where there is none."""
    images = tuple(fact_of(part) for part in message.images if part.attached)
    if message.attached or images:
        wire.publish(FilesAttached(number, message.attached, images))


class AgentLoop:
    """Runs the steps of turns.

    Args:
        conversation: the live conversation.
        steps: takes one step.
        compactor: makes room.
        dmails: delivers what the agent sends.
        steering: what the user sent meanwhile.
        attachments: makes messages of it.
        reminders: what the model is told besides.
    """

    def __init__(
        self,
        conversation: Conversation,
        steps: StepRunner,
        compactor: Compactor,
        dmails: DMailDelivery,
        steering: Steering,
        attachments: Attachments,
        reminders: Reminders,
    ) -> None:
        self._attachments = attachments
        self._conversation = conversation
        self._steps = steps
        self._compactor = compactor
        self._dmails = dmails
        self._steering = steering
        self._reminders = reminders
        self._words: list[Message] = []
        self._published_full = False

    async def run(self, words: Sequence[Message]) -> Literal["done", "rejected"]:
        """Take steps until the agent stops.

        Args:
            words: what the user said in this turn; it survives every compaction as it is.

        Raises:
            LLMError: the model could not be asked.
            SoulError: a limit was reached.
            asyncio.CancelledError: stopped.
        """
        self._words = list(words)
        self._published_full = False
        n, n_calls = 1, 0
        while True:
            if n_calls >= self._conversation.limits.max_steps_per_turn:
                raise MaxStepsReached(n_calls)
            n_calls += 1
            await self.take_steers()
            if reminders := await self._reminders.due():
                await self._conversation.append(reminders)
            self._conversation.wire.publish(StepBegin(n))
            try:
                end = await self._step(n)
            except BackToTheFuture as back:
                if await self._dmails.send(back):
                    # The past self takes the step again; that this was a call counts all the same.
                    continue
                end = "go on"
            except Exception:
                # Every step that was begun has an end on the wire; that of a stop is published where it is carried out.
                self._conversation.wire.publish(StepInterrupted(failed=True))
                raise
            await self._conversation.context.sync()
            if end == "rejected":
                return "rejected"
            if end == "done" and not self._steering:
                return "done"
            n += 1

    async def take_steers(self, *, begin: bool = False) -> list[Message]:
        """Put queued texts into the context; returns them. With `begin` they begin a turn, behind a checkpoint."""
        # Taken before anything is awaited: what is withdrawn from here on has gone in.
        steers = self._steering.take()
        messages: list[Message] = []
        if steers:
            await run_to_completion(self._take(steers, messages, begin=begin))
        return messages

    async def _take(
        self, steers: tuple[Steer, ...], messages: list[Message], *, begin: bool
    ) -> None:
        try:
            messages += [await self._attachments.said(one.text, one.images) for one in steers]
            self._words += messages
            if begin:
                await self._conversation.checkpoint("user", label_of_message(messages[0]))
            place = self._conversation.messages_since_checkpoint
            await self._conversation.append(messages)
        except BaseException:
            self._steering.put_back(steers)
            raise
        self._steering.went_in(steers, place)
        for number, message in enumerate(messages, place):
            publish_attached(self._conversation.wire, number, message)

    async def _step(self, n: int) -> StepEnd:
        async with self._conversation.model.call() as provider:
            await self._make_room(provider, n)
            asked = await self._asked(n, provider)
        # The model has answered, and may be replaced while its tools run.
        return await self._steps.act(asked)

    async def _asked(self, n: int, provider: ChatProvider) -> ModelAnswer:
        try:
            return await self._steps.ask(n, provider)
        except ContextOverflowError as error:
            # Whatever it streamed before is gone; and the refusal may have named the real window.
            self._conversation.wire.publish(StepRetry(n, 2, 2, 0.0, error.message, error.status))
            self._conversation.publish_status()
            # Once: if the shorter context is refused as well, the user must decide.
            try:
                await self._compactor.compact(
                    provider, automatic=True, turn=self._words, refused=True, step=n
                )
            except NothingToCompact:
                raise CompactionFailed(
                    f"The context is too long for the model, and nothing older is left to compact. {error.message}",
                    advice=advice_when_full(self._conversation),
                ) from error
            return await self._steps.ask(n, provider)

    async def _make_room(self, provider: ChatProvider, n: int) -> None:
        window = provider.info.window
        trigger = self._conversation.limits.trigger(window)
        if self._conversation.used < trigger:
            return
        try:
            await self._compactor.compact(provider, automatic=True, turn=self._words, step=n)
        except NothingToCompact:
            # The newest messages alone are this long; what fits the window may still be answered.
            self._publish_full(window)
            return
        if self._conversation.used >= trigger:
            raise CompactionFailed(
                f"The conversation was compacted, but it still takes about {self._conversation.used:,} "
                f"of {window:,} tokens.",
                advice=advice_when_full(self._conversation),
            )

    def _publish_full(self, window: int) -> None:
        if self._conversation.used >= window:
            raise CompactionFailed(
                f"The newest messages alone take about {self._conversation.used:,} of {window:,} tokens, "
                "and nothing older is left to compact.",
                advice=advice_when_full(self._conversation),
            )
        if not self._published_full:
            self._published_full = True
            self._conversation.wire.publish(
                Notice(
                    "warning",
                    "The context is nearly full, and nothing older is left to compact.",
                    advice_when_full(self._conversation),
                )
            )

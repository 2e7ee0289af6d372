"""The agent loop of a turn: steps until the model calls no more tools, with compactions, D-Mails and steering between."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from kimi_tui.llm.errors import ContextOverflowError
from kimi_tui.llm.message import Message
from kimi_tui.llm.provider import ChatProvider
from kimi_tui.session.errors import StorageTrouble
from kimi_tui.soul.compacting import Compactor
from kimi_tui.soul.delivery import deliver
from kimi_tui.soul.errors import (
    BackToTheFuture,
    CompactionFailed,
    MaxStepsReached,
    NothingToCompact,
)
from kimi_tui.soul.finishing import to_its_end
from kimi_tui.soul.internal_messages import said
from kimi_tui.soul.letter_files import FilesOfLetter, LetterFiles
from kimi_tui.soul.letter_review import LetterReview
from kimi_tui.soul.limits import LoopLimits
from kimi_tui.soul.live_line import LiveLine
from kimi_tui.soul.marks import PersonMarks
from kimi_tui.soul.restoring import Restoring
from kimi_tui.soul.steering import Steer, Steering
from kimi_tui.soul.step import StepEnd, Stepper
from kimi_tui.wire.events import Notice, StepBegin, StepRetry

_STILL_FULL_ADVICE = "Rewind to an earlier checkpoint, or choose a model with a larger window."


class AgentLoop:
    """Runs turns on the live line.

    Args:
        line: the conversation.
        marks: which messages no D-Mail drops.
        stepper: takes the steps.
        compactor: makes room.
        steering: what the person typed meanwhile.
        limits: of the loop.
        restoring: brings files back.
        letter_files: asks for those of a D-Mail.
        review: shows D-Mails before they are sent.
    """

    def __init__(
        self,
        line: LiveLine,
        marks: PersonMarks,
        stepper: Stepper,
        compactor: Compactor,
        steering: Steering,
        limits: LoopLimits,
        restoring: Restoring,
        letter_files: LetterFiles,
        review: LetterReview,
    ) -> None:
        self._line = line
        self._marks = marks
        self._stepper = stepper
        self._compactor = compactor
        self._steering = steering
        self._limits = limits
        self._restoring = restoring
        self._letter_files = letter_files
        self._review = review
        self._words: list[Message] = []
        self._told_full = False

    async def run(
        self, provider: ChatProvider, words: Sequence[Message]
    ) -> Literal["done", "rejected"]:
        """Take steps until the agent stops.

        Args:
            provider: the model.
            words: what the person said in this turn; it survives every compaction as it is.

        Raises:
            LLMError: the model could not be asked.
            SoulError: a limit was reached.
            asyncio.CancelledError: stopped.
        """
        self._words = list(words)
        self._told_full = False
        n, n_calls = 1, 0
        while True:
            if n_calls >= self._limits.max_steps_per_turn:
                raise MaxStepsReached(n_calls)
            n_calls += 1
            await self.take_steers()
            self._line.wire.publish(StepBegin(n))
            await self._make_room(provider, n)
            try:
                end = await self._step(n, provider)
            except BackToTheFuture as back:
                letter = await self._review.reviewed(back)
                if letter is not None:
                    files = await self._files_of(letter)
                    await to_its_end(self._go_back(letter, files))
                    # The step is taken again by the past self; that it was a call counts all the same.
                    continue
                end = "go on"
            await self._line.context.sync()
            if end == "rejected":
                return "rejected"
            if end == "done" and not self._steering:
                return "done"
            n += 1

    async def take_steers(self) -> None:
        """Put queued texts into the context."""
        steers = self._steering.waiting()
        if steers:
            messages = [said(steer.text) for steer in steers]
            self._words += messages
            await to_its_end(self._take(steers, messages))

    async def _take(self, steers: tuple[Steer, ...], messages: Sequence[Message]) -> None:
        context = self._line.context
        place = context.index.counts(context.checkpoints[-1].message_index)[0]
        await self._line.append(messages)
        self._steering.taken(steers, place)

    async def _step(self, n: int, provider: ChatProvider) -> StepEnd:
        try:
            return await self._stepper.step(n, provider)
        except ContextOverflowError as error:
            # Whatever it streamed before is gone; and the refusal may have named the real window.
            self._line.wire.publish(StepRetry(n, 2, 2, 0.0, error.message, error.status))
            self._line.tell_status()
            # Once: if the shorter context is refused as well, the person must decide.
            try:
                await self._compactor.compact(
                    provider, automatic=True, turn=self._words, refused=True, step=n
                )
            except NothingToCompact:
                raise CompactionFailed(
                    f"The context is too long for the model, and nothing older is left to compact. {error.message}",
                    advice=_STILL_FULL_ADVICE,
                ) from error
            return await self._stepper.step(n, provider)

    async def _make_room(self, provider: ChatProvider, n: int) -> None:
        window = provider.info.window
        trigger = self._limits.trigger(window)
        if self._line.used < trigger:
            return
        try:
            await self._compactor.compact(provider, automatic=True, turn=self._words, step=n)
        except NothingToCompact:
            # The newest messages alone are this long; what fits the window may still be answered.
            self._tell_full(window)
            return
        if self._line.used >= trigger:
            raise CompactionFailed(
                f"The conversation was compacted, but it still takes about {self._line.used:,} of {window:,} tokens.",
                advice=_STILL_FULL_ADVICE,
            )

    def _tell_full(self, window: int) -> None:
        if self._line.used >= window:
            raise CompactionFailed(
                f"The newest messages alone take about {self._line.used:,} of {window:,} tokens, "
                "and nothing older is left to compact.",
                advice=_STILL_FULL_ADVICE,
            )
        if not self._told_full:
            self._told_full = True
            self._line.wire.publish(
                Notice(
                    "warning",
                    "The context is nearly full, and nothing older is left to compact.",
                    _STILL_FULL_ADVICE,
                )
            )

    async def _files_of(self, back: BackToTheFuture) -> FilesOfLetter:
        if not back.restore_files:
            return FilesOfLetter()
        return await self._letter_files.ask(self._line.context.checkpoint_of(back.checkpoint_id))

    async def _go_back(self, back: BackToTheFuture, files: FilesOfLetter) -> None:
        line = self._line
        try:
            await deliver(
                line, self._marks, back.checkpoint_id, back.letters, self._restoring, files
            )
        except StorageTrouble as trouble:
            # The model reads in the tool's result that the mail was not sent.
            line.wire.publish(
                Notice(
                    "error", f"A D-Mail could not be delivered. {trouble.message}", trouble.advice
                )
            )
            return
        line.denwa.delivered(back.checkpoint_id)

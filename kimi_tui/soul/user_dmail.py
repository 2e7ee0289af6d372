"""D-Mails of the user: to the agent's past self, and messages of other world lines that are sent to the present.

They take the same way into the context as the agent's own (`dmail`). The model may draft one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from kimi_tui.llm.errors import ContextOverflowError
from kimi_tui.llm.message import Message
from kimi_tui.llm.provider import ChatProvider, Completion
from kimi_tui.llm.tokens import estimate
from kimi_tui.prompts import prompt
from kimi_tui.session.context import known_checkpoint
from kimi_tui.session.errors import AlreadyThere, UnknownCheckpoint
from kimi_tui.session.schema import Checkpoint
from kimi_tui.session.undo import journaled_append
from kimi_tui.soul.compaction import transcript
from kimi_tui.soul.conversation import Conversation
from kimi_tui.soul.dmail import NO_FILES, DMailDelivery, restore_with
from kimi_tui.soul.errors import SoulError
from kimi_tui.soul.internal_messages import dmail_message, dmail_text, is_user_words, summary_text
from kimi_tui.soul.operations import Operations
from kimi_tui.soul.rewind import END, FilesChoice, RewindOutcome, Target
from kimi_tui.soul.segments import label_of, segments
from kimi_tui.soul.tool_results import outcome_of
from kimi_tui.wire.events import ContextReverted

_TRIES = 3
_SMALLER = 0.6
_MAX_CARRIED_TOKENS = 20_000


class NoDraft(SoulError):
    """The model wrote nothing."""


class EmptyDMail(SoulError):
    """There is nothing to send."""

    def __init__(self) -> None:
        super().__init__("The D-Mail is empty.", advice="Write what the agent should know there.")


class DMailOff(SoulError):
    """The user's configuration turns D-Mails off."""

    def __init__(self) -> None:
        super().__init__("D-Mails are off: [dmail] enabled is false in the configuration.")


@dataclass(frozen=True, slots=True)
class UserDMails:
    """The user's own D-Mails in one session. Nothing here may be called while something else runs."""

    conversation: Conversation
    operations: Operations
    delivery: DMailDelivery

    async def send(
        self,
        target: Target,
        text: str,
        files: FilesChoice = "keep",
        chosen: Collection[str] | None = None,
    ) -> RewindOutcome:
        """Go back to before a checkpoint and put the user's D-Mail there, with the files of that time or without.

        Raises:
            KeyError: no such checkpoint or world line.
            DMailOff: the configuration says that there are none.
            EmptyDMail: there is nothing to send.
            FilesUnknown: the files of that time cannot be brought back; nothing changed.
            StorageTrouble: the disk refused; nothing changed (of a target on another world line: that is live now).
        """
        conversation = self.conversation
        if not conversation.limits.dmail_enabled:
            raise DMailOff
        if not text.strip():
            raise EmptyDMail
        before = conversation.used
        # What was shown is what is brought back, also where another line becomes the live one first.
        plan = await self.operations.plan(target) if files == "restore" else None
        await self._jump_to_world_line(target)
        point = conversation.reachable(target.id)
        restore = NO_FILES
        if plan is not None:
            restore = restore_with(plan, await self.operations.restorer.prepare(plan, chosen))
        reverted, outcomes = await self.delivery.deliver(point.id, [text], restore, author="person")
        return RewindOutcome(
            checkpoint_id=reverted.entry.checkpoint_id,
            world_line=reverted.entry.n,
            messages_dropped=reverted.entry.messages_dropped,
            tokens_before=before,
            tokens_after=conversation.used,
            prompt="",
            files=outcomes,
        )

    async def _jump_to_world_line(self, target: Target) -> None:
        if not target.world_line:
            return
        index = await asyncio.to_thread(
            self.operations.session.world_lines.index, target.world_line
        )
        if index.checkpoint(target.id) is None:
            raise UnknownCheckpoint(
                f"World line {target.world_line} has no checkpoint #{target.id}."
            )
        try:
            await self.operations.rewind(Target(END, target.world_line))
        except AlreadyThere:
            return

    # -- messages of other world lines -----------------------------------------------------------

    async def carry(
        self, world_line: int, uid: str, number: int, note: str, to: Target | None
    ) -> RewindOutcome:
        """Put one message of another world line at the end of the live one, or at a checkpoint, as a D-Mail.

        Raises:
            KeyError: no such world line, checkpoint or message.
            StorageTrouble: the disk refused; nothing changed.
        """
        source, text = await asyncio.to_thread(self._message, world_line, uid, number)
        whole = "\n\n".join(part for part in (note.strip(), text) if part)
        if to is not None:
            return await self.send(to, f"From {source}:\n\n{whole}")
        conversation, before = self.conversation, self.conversation.used
        async with journaled_append(conversation.context, "dmail", whole):
            point = await self._append(source, whole)
        conversation.publish_line_changed("dmail", 0, 0, point.uid)
        return RewindOutcome(point.id, 0, 0, before, conversation.used, "")

    async def _append(self, source: str, whole: str) -> Checkpoint:
        """Put a message at the end of the live world line, published as a D-Mail that undoes nothing."""
        conversation = self.conversation
        before, newest = conversation.used, conversation.context.n_checkpoints
        conversation.wire.publish(
            ContextReverted(
                reason="dmail",
                checkpoint_id=newest,
                uid="",
                from_checkpoint=newest - 1,
                world_line=0,
                messages_dropped=0,
                tool_calls_dropped=0,
                tokens_before=before,
                tokens_after=before,
                text=whole,
                facts=source,
                author="person",
            )
        )
        point = await conversation.checkpoint("dmail", label_of(f"From {source}"))
        body = prompt("dmail_carried", SOURCE=source, TEXT=whole)
        await conversation.append([dmail_message(body, "person")])
        return point

    def _message(self, world_line: int, uid: str, number: int) -> tuple[str, str]:
        """What a message is called, and what it says."""
        lines = self.operations.session.world_lines
        index, messages = lines.index(world_line), lines.messages_of(world_line)
        points = index.checkpoints
        place = next((i for i, point in enumerate(points) if uid in (point.uid, point.was)), None)
        if place is None:
            raise UnknownCheckpoint(f"World line {world_line} has no such checkpoint.")
        part = segments(points[: place + 2], messages, place)[0]
        if not 0 <= number < len(part.messages):
            raise UnknownCheckpoint(
                f"#{part.point.id} of world line {world_line} has no such message."
            )
        message = part.messages[number]
        return (
            f"{_speaker(message)}, at checkpoint #{part.point.id} of world line {world_line}",
            _text(message),
        )

    # -- drafts ----------------------------------------------------------------------------------

    async def draft(self, target: Target) -> str:
        """Have the model write a D-Mail to a checkpoint about what followed it. Nothing of that is stored.

        Returns:
            the draft; empty where it was stopped.

        Raises:
            KeyError: no such checkpoint or world line.
            LLMError: the model could not be asked.
            NoDraft: it wrote nothing.
        """
        conversation = self.conversation
        async with conversation.model.call() as provider:
            undone = await asyncio.to_thread(self._undone, target)
            window = provider.info.window
            free = window - conversation.limits.reserve(window)
            budget = round(free / conversation.meter.factor)
            try:
                completion = await self._ask_for_draft(provider, undone, budget)
            except asyncio.CancelledError:
                return ""
        conversation.meter.spent(completion.usage)
        conversation.publish_status()
        text = completion.message.text.strip()
        if not text:
            raise NoDraft("The model wrote no D-Mail.", advice="Try again, or write it yourself.")
        return text

    def _undone(self, target: Target) -> Sequence[Message]:
        if target.world_line:
            world_lines = self.operations.session.world_lines
            point = known_checkpoint(world_lines.index(target.world_line), target.id)
            return world_lines.messages_of(target.world_line)[point.message_index :]
        conversation = self.conversation
        return conversation.messages[conversation.reachable(target.id).message_index :]

    async def _ask_for_draft(
        self, provider: ChatProvider, undone: Sequence[Message], budget: int
    ) -> Completion:
        system, task = prompt("dmail_draft_system"), prompt("dmail_draft")
        room = budget - estimate(system) - estimate(task)
        for attempt in range(_TRIES):
            text = await asyncio.to_thread(transcript, undone, max(500, room))
            question = Message(role="user", content=f"{text}\n\n---\n\n{task}")
            try:
                return await self.conversation.model.ask(provider, system, (), (question,))
            except ContextOverflowError:
                if attempt == _TRIES - 1:
                    raise
                room = int(min(room, estimate(text)) * _SMALLER)
        raise AssertionError  # the loop returns or raises


def _speaker(message: Message) -> str:
    if message.role == "tool":
        return "the result of a tool call"
    if dmail_text(message) is not None:
        return "a D-Mail"
    if summary_text(message) is not None:
        return "a summary"
    return "what the user said" if is_user_words(message) else "what the agent said"


def _text(message: Message) -> str:
    if message.role == "tool":
        text = outcome_of(message).output
    else:
        text = dmail_text(message) or summary_text(message) or message.text
    # Calls without words, results without output, and what would fill the window again.
    if not text.strip() or message.tool_calls or len(text) > 4 * _MAX_CARRIED_TOKENS:
        return transcript([message], _MAX_CARRIED_TOKENS)
    return text

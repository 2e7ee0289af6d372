"""What the person writes into the past or the present: letters to the agent's past self, messages of other lines.

Called while nothing else runs. The letters take the same way as the agent's own.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from kimi_tui.llm.message import Message
from kimi_tui.prompts.load import prompt
from kimi_tui.session.errors import UnknownCheckpoint
from kimi_tui.session.operations import AlreadyThere, growing
from kimi_tui.session.records import Checkpoint
from kimi_tui.soul.delivery import deliver
from kimi_tui.soul.dmail import letter_message
from kimi_tui.soul.errors import SoulError
from kimi_tui.soul.internal_messages import dmail_text, is_said, summary_text
from kimi_tui.soul.live_line import LiveLine
from kimi_tui.soul.marks import PersonMarks
from kimi_tui.soul.operations import Operations
from kimi_tui.soul.protocol import RewindOutcome, Target
from kimi_tui.soul.restoring import Restoring
from kimi_tui.soul.segments import label_of, segments
from kimi_tui.soul.tool_message import outcome_of
from kimi_tui.soul.transcript import transcript
from kimi_tui.wire.events import ContextReverted

_MAX_CARRIED_TOKENS = 20_000


class EmptyLetter(SoulError):
    """There is nothing to send."""

    def __init__(self) -> None:
        super().__init__("The letter is empty.", advice="Write what the agent should know there.")


@dataclass(frozen=True, slots=True)
class ByHand:
    """The person's own letters on one session's live line."""

    line: LiveLine
    marks: PersonMarks
    operations: Operations
    restoring: Restoring

    async def dmail(self, target: Target, text: str) -> RewindOutcome:
        """Go back to before a checkpoint and put the person's letter there.

        Raises:
            KeyError: no such checkpoint or world line.
            EmptyLetter: there is nothing to send.
            StorageTrouble: the disk refused; nothing changed (of a target on another line: that line is live now).
        """
        if not text.strip():
            raise EmptyLetter
        before = self.line.used
        await self._go_to_line(target)
        point = self.line.reachable(target.id)
        reverted = await deliver(
            self.line, self.marks, point.id, [text], self.restoring, author="person"
        )
        return RewindOutcome(
            checkpoint_id=reverted.checkpoint_id,
            world_line=reverted.world_line,
            messages_dropped=reverted.messages_dropped,
            tokens_before=before,
            tokens_after=self.line.used,
            prompt="",
        )

    async def carry(
        self, world_line: int, uid: str, number: int, note: str, to: Target | None
    ) -> RewindOutcome:
        """Put one message of a line that was left at the end of the live one, or at a checkpoint, as a letter.

        Raises:
            KeyError: no such world line, checkpoint or message.
            StorageTrouble: the disk refused; nothing changed.
        """
        source, text = await asyncio.to_thread(self._message, world_line, uid, number)
        whole = "\n\n".join(part for part in (note.strip(), text) if part)
        if to is not None:
            return await self.dmail(to, f"From {source}:\n\n{whole}")
        line, before = self.line, self.line.used
        async with growing(line.context, "dmail", whole):
            point = await self._arrive(source, whole)
        line.tell_changed("dmail", 0, 0, point.uid)
        return RewindOutcome(point.id, 0, 0, before, line.used, "")

    async def _arrive(self, source: str, whole: str) -> Checkpoint:
        """Put a message at the end of the live line, told as a letter."""
        line = self.line
        before, newest = line.used, line.context.n_checkpoints
        line.wire.publish(
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
        point = await line.checkpoint("dmail", label_of(f"From {source}"))
        body = prompt("dmail_carried", SOURCE=source, TEXT=whole)
        await line.append([letter_message(body, "person")])
        return point

    async def _go_to_line(self, target: Target) -> None:
        if not target.world_line:
            return
        index = await asyncio.to_thread(self.operations.world_lines().index, target.world_line)
        if index.checkpoint(target.id) is None:
            raise UnknownCheckpoint(
                f"World line {target.world_line} has no checkpoint #{target.id}."
            )
        try:
            await self.operations.jump(target.world_line)
        except AlreadyThere:
            return

    def _message(self, world_line: int, uid: str, number: int) -> tuple[str, str]:
        """What a message is called, and what it says."""
        lines = self.operations.world_lines()
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


def _speaker(message: Message) -> str:
    if message.role == "tool":
        return "the result of a tool call"
    if dmail_text(message) is not None:
        return "a D-Mail"
    if summary_text(message) is not None:
        return "a summary"
    return "what the person said" if is_said(message) else "what the agent said"


def _text(message: Message) -> str:
    if message.role == "tool":
        text = outcome_of(message).output
    else:
        text = dmail_text(message) or summary_text(message) or message.text
    # Calls without words, results without output, and what would fill the window again.
    if not text.strip() or message.tool_calls or len(text) > 4 * _MAX_CARRIED_TOKENS:
        return transcript([message], _MAX_CARRIED_TOKENS)
    return text

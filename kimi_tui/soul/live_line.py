"""The live line as the engine works on it: the context, and everything that must follow when it changes.

Whoever appends, makes a checkpoint or changes the line does it here, so that token figures, the mailbox, what tools
remember and the events never disagree with the context.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Literal

from kimi_tui.llm.message import Message
from kimi_tui.llm.provider import ModelInfo, Usage
from kimi_tui.session.context import Context
from kimi_tui.session.errors import UnknownCheckpoint
from kimi_tui.session.line_files import stored_lines
from kimi_tui.session.records import Checkpoint
from kimi_tui.session.reports import Reverted
from kimi_tui.soul.accounting import Accounting
from kimi_tui.soul.denwa_renji import DenwaRenji
from kimi_tui.soul.finishing import to_its_end
from kimi_tui.soul.internal_messages import ends_open, internal_kind
from kimi_tui.soul.limits import LoopLimits
from kimi_tui.soul.memory import LineMemory
from kimi_tui.soul.spending import Ledger
from kimi_tui.wire.events import (
    CheckpointCreated,
    CheckpointKind,
    ContextReverted,
    LineChanged,
    Operation,
)
from kimi_tui.wire.queue import Wire


class LiveLine:
    """One session's live line.

    Args:
        context: the messages.
        wire: where events go.
        accounting: token figures.
        memory: what tools remember.
        denwa: the mailbox; must know which checkpoints exist.
        limits: of the loop.
        info: the model in use, if one is set.
        on_checkpoint: told the uid of every checkpoint that is made.
        ledger: told what calls took.
        marks: whether checkpoints are named to the model (it has the tool to send D-Mails).
    """

    def __init__(
        self,
        context: Context,
        wire: Wire,
        accounting: Accounting,
        memory: LineMemory,
        denwa: DenwaRenji,
        limits: LoopLimits,
        info: Callable[[], ModelInfo | None],
        on_checkpoint: Callable[[str], None],
        ledger: Ledger,
        *,
        marks: bool,
    ) -> None:
        self.context = context
        self.wire = wire
        self.accounting = accounting
        self.memory = memory
        self.denwa = denwa
        self.limits = limits
        self.marks = marks
        self.ledger = ledger
        self._info = info
        self._on_checkpoint = on_checkpoint
        # The last figure for the line, how many messages it covers, and whether it is an estimate.
        self._base: tuple[int, int, bool] | None = None

    @property
    def messages(self) -> Sequence[Message]:
        """The messages of the live line."""
        return self.context.messages

    @property
    def sent(self) -> Sequence[Message]:
        """The messages that are sent: all, but for markers that name no checkpoint here (kimi-cli's compaction left some)."""
        context = self.context
        index, messages = context.index, context.messages
        if index.n_messages - index.counts(0)[0] <= len(context.checkpoints):
            return messages
        named = {point.message_index for point in context.checkpoints}
        return [m for n, m in enumerate(messages) if n in named or not index.is_marker(n)]

    @property
    def used(self) -> int:
        """Tokens of the context now: the last figure and an estimate of what came after it."""
        accounting = self.accounting
        accounting.estimates.follow(self.context.messages)
        if self._base is None:
            return accounting.whole_estimate()
        tokens, counted, _ = self._base
        return accounting.expected(tokens, counted)

    @property
    def estimated(self) -> bool:
        """Whether any of `used` is an estimate."""
        base = self._base
        return base is None or base[2] or base[1] < len(self.context.messages)

    @property
    def begins_with_summary(self) -> bool:
        """Whether a compaction made this line: its first checkpoint holds the summary."""
        checkpoints = self.context.checkpoints
        if not checkpoints:
            return False
        first = checkpoints[0].message_index
        return any(internal_kind(m) == "compaction" for m in self.messages[first : first + 2])

    @property
    def ends_open(self) -> bool:
        """Whether the line ends in the middle of something, so that the agent could go on from there."""
        return ends_open(self.context.messages)

    def tokens_before(self, checkpoint_id: int) -> int:
        """Tokens of what precedes a checkpoint: see `figure_before`."""
        return self.figure_before(checkpoint_id)[0]

    def figure_before(self, checkpoint_id: int) -> tuple[int, bool]:
        """Tokens of what precedes a checkpoint, and whether any of them are an estimate.

        What the server read in the step that begins there is known best, and is what the timeline shows.

        Raises:
            KeyError: there is no such checkpoint.
        """
        context = self.context
        point, index = context.checkpoint_of(checkpoint_id), context.index
        if point.tokens is not None:
            later = (one.offset for one in context.checkpoints if one.offset > point.offset)
            return point.tokens, index.is_estimated_before(next(later, index.size))
        usage = index.usage_before(point.offset)
        if usage is not None and any(
            c.tokens is not None for c in context.checkpoints if c.id < checkpoint_id
        ):
            is_whole = usage[1] >= point.message_index
            estimated = not is_whole or index.is_estimated_before(point.offset)
            return context.tokens_at(checkpoint_id), estimated
        self.accounting.estimates.follow(context.messages)
        return self.accounting.estimate_of_first(point.message_index), True

    def reachable(self, checkpoint_id: int) -> Checkpoint:
        """The checkpoint, unless it holds the summary of all: going back before that would leave nothing.

        Raises:
            UnknownCheckpoint: there is none, or it is that one; the text is for the person.
        """
        point = self.context.checkpoint_of(checkpoint_id)
        if point is self.context.checkpoints[0] and self.begins_with_summary:
            raise UnknownCheckpoint(
                f"#{point.id} holds the summary of a compaction; undo the compaction to get back before it."
            )
        return point

    # -- growing ---------------------------------------------------------------------------------

    async def checkpoint(self, kind: CheckpointKind, label: str = "") -> Checkpoint:
        """Make a checkpoint at the end and tell of it, also when cancelled meanwhile."""
        return await to_its_end(self._checkpoint(kind, label))

    async def _checkpoint(self, kind: CheckpointKind, label: str) -> Checkpoint:
        tokens = self.used
        point = await self.context.checkpoint(self.marks)
        if kind != "step":
            # A step's figure is told again by its answer; this one stays, so it is the one that a preview gives.
            tokens = self.tokens_before(point.id)
        self._tell_mailbox()
        self.tell_checkpoint(point, kind, label, tokens)
        return point

    async def append(self, messages: Sequence[Message]) -> None:
        """Add messages at the end, also when cancelled meanwhile."""
        await to_its_end(self.context.append_message(messages))

    async def answered(self, message: Message, usage: Usage) -> None:
        """A step's call returned: its figures and the answer, in the order in which they are read back."""
        await to_its_end(self._answered(message, usage))

    async def _answered(self, message: Message, usage: Usage) -> None:
        self.accounting.estimates.follow(self.context.messages)
        self.accounting.called(usage, len(self.context.messages))
        sent, estimated = usage.input, usage.estimated
        if usage.prompt_cut:
            # What the server read of it is no measure of what the context holds.
            sent, estimated = max(sent, self.accounting.whole_estimate()), True
        await self.context.update_token_count(sent, estimated=estimated)
        await self.context.append_message(message)
        total = sent + usage.output
        await self.context.update_token_count(total, estimated=estimated)
        self._base = (total, len(self.context.messages), estimated)

    # -- changing --------------------------------------------------------------------------------

    async def follow(self) -> None:
        """The line has become another one: compute anew what hangs on it."""
        self.accounting.cut()
        context = self.context
        self.memory.forget()
        # A long line would hold up the event loop.
        await asyncio.to_thread(
            self.accounting.estimates.follow_line, context.index, context.messages
        )
        if any(point.tokens is not None for point in reversed(context.checkpoints)):
            estimated = context.token_count_estimated
            self._base = (context.token_count, len(context.messages), estimated)
        else:
            self._base = None
        self._tell_mailbox()

    def ends_at(self, figure: tuple[int, bool]) -> None:
        """The line was cut at a checkpoint; keep the figure that was known of what precedes it."""
        self._base = (figure[0], len(self.context.messages), figure[1])

    async def remember(self) -> None:
        """Let the tools know what the line says; reads all of it, so only once somebody needs it."""
        if not self.memory.known:
            await asyncio.to_thread(self.memory.compute, self.context.messages)

    def kept(self, count: int) -> None:
        """Only the first `count` messages of the line are what they were; call before `follow`."""
        self.accounting.estimates.cut(count)

    def number_of(self, reverted: Reverted) -> int:
        """The world line that the line left is now; 0 where it is only the beginning of a longer one."""
        entry = reverted.entry
        size = stored_lines(self.context.folder).get(entry.n)
        return entry.n if size == entry.size else 0

    # -- telling ---------------------------------------------------------------------------------

    def tell_status(self) -> None:
        """Publish the figures as they are now."""
        status = self.accounting.status(
            self._info(), self.limits, self.used, estimated=self.estimated
        )
        self.ledger.follow(status)
        self.wire.publish(status)

    def tell_reverted(
        self,
        reverted: Reverted,
        reason: Operation,
        *,
        world_line: int,
        tokens_before: int,
        text: str = "",
        prompt: str = "",
        facts: str = "",
        carried: tuple[str, ...] = (),
        pinned: tuple[str, ...] = (),
        author: Literal["agent", "person"] = "agent",
    ) -> None:
        """Tell that the line was cut."""
        self.wire.publish(
            ContextReverted(
                reason=reason,
                checkpoint_id=reverted.checkpoint_id,
                uid=reverted.uid,
                from_checkpoint=reverted.from_checkpoint,
                world_line=world_line,
                messages_dropped=reverted.messages_dropped,
                tool_calls_dropped=reverted.tool_calls_dropped,
                tokens_before=tokens_before,
                tokens_after=self.used,
                text=text,
                prompt=prompt,
                facts=facts,
                carried=carried,
                pinned=pinned,
                author=author,
            )
        )

    def tell_newest_checkpoint(self, kind: CheckpointKind, label: str = "") -> None:
        """Tell of a checkpoint that was made as part of an operation."""
        point = self.context.checkpoints[-1]
        self.tell_checkpoint(point, kind, label, self.tokens_before(point.id))

    def tell_changed(self, op: Operation, from_line: int, to_line: int, uid: str) -> None:
        """Tell that an operation has ended, and the figures after it."""
        self.wire.publish(LineChanged(op, from_line, to_line, uid, self.ends_open))
        self.tell_status()

    def tell_checkpoint(
        self, point: Checkpoint, kind: CheckpointKind, label: str, tokens: int, was: str = ""
    ) -> None:
        """Tell of a checkpoint; `was` is the uid that it had before it was renumbered."""
        if not was:
            self._on_checkpoint(point.uid)
        created = CheckpointCreated(point.id, point.uid, kind, label, tokens, point.at, was)
        self.ledger.follow(created)
        self.wire.publish(created)

    def _tell_mailbox(self) -> None:
        first = 1 if self.begins_with_summary else 0
        self.denwa.set_n_checkpoints(self.context.n_checkpoints, first_target=first)

"""What a person does to the conversation from outside: rewind, jump, undo, redo, fork. Called while nothing else runs."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial

from kimi_tui.session import operations as session_operations
from kimi_tui.session.errors import UnknownCheckpoint
from kimi_tui.session.journal import Entry
from kimi_tui.session.records import Checkpoint
from kimi_tui.session.reports import Reverted
from kimi_tui.session.session import Session
from kimi_tui.session.worldlines import WorldLines
from kimi_tui.soul.checkpoint_rows import CheckpointRow, RowSource, checkpoint_rows
from kimi_tui.soul.delivery import deliver
from kimi_tui.soul.history import read_records
from kimi_tui.soul.live_line import LiveLine
from kimi_tui.soul.preview import preview_of, preview_of_jump, rewind_prompt
from kimi_tui.soul.protocol import RewindOutcome, RewindPreview, Target
from kimi_tui.soul.rebuild import pieces
from kimi_tui.soul.segments import Segment, segments
from kimi_tui.wire.events import Operation

_NAMES: dict[str, str] = {
    "rewind": "the rewind",
    "dmail": "the D-Mail",
    "compaction": "the compaction",
    "clear": "the clearing",
    "jump": "the jump",
    "files": "the restored files",
}


@dataclass(frozen=True, slots=True)
class Operations:
    """The operations on one session's live line."""

    session: Session
    line: LiveLine

    async def preview(self, target: Target, *, idle: bool) -> RewindPreview:
        """What a rewind there would do.

        Args:
            target: where to.
            idle: nothing else uses the context, so that it may be read in a thread.

        Raises:
            KeyError: no such checkpoint or world line.
        """
        if target.world_line:
            make = partial(preview_of_jump, self.line, self._world_lines(), target)
        else:
            self._reachable(target.id)
            make = partial(preview_of, self.line, target)
        return await asyncio.to_thread(make) if idle else make()

    async def rewind(self, target: Target) -> RewindOutcome:
        """Cut the conversation back to before the checkpoint, on the live line or on one that was left.

        Raises:
            KeyError: no such checkpoint or world line.
            StorageTrouble: the disk refused; nothing changed.
        """
        if target.world_line:
            return await self.jump(target.world_line, target.id)
        line = self.line
        point = self._reachable(target.id)
        before = line.used
        prompt = rewind_prompt(_segment_at(line, point))
        reverted = await line.context.revert_to(point.id, reason="rewind")
        left = self.line.number_of(reverted)
        await self._follow(point.message_index)
        line.tell_reverted(reverted, "rewind", world_line=left, tokens_before=before, prompt=prompt)
        line.tell_changed("rewind", left, 0, reverted.uid)
        return self._outcome(reverted, before, prompt)

    async def jump(self, world_line: int, checkpoint_id: int | None = None) -> RewindOutcome:
        """Make a line that was left the live one, up to before a checkpoint of it, or all of it. It stays.

        Raises:
            KeyError: no such checkpoint or world line.
            AlreadyThere: the live line is exactly that.
            StorageTrouble: the disk refused; nothing changed.
        """
        line = self.line
        index = await asyncio.to_thread(self._world_lines().index, world_line)
        before = line.used
        reverted = await session_operations.jump(line.context, world_line, checkpoint_id)
        left = line.number_of(reverted)
        point = None if checkpoint_id is None else index.checkpoint(checkpoint_id)
        prompt = ""
        if point is not None:
            messages = await asyncio.to_thread(self._world_lines().messages_of, world_line)
            place = index.checkpoints.index(point)
            prompt = rewind_prompt(segments(index.checkpoints[: place + 2], messages, place)[0])
        await self._follow(0)
        line.tell_changed("jump", left, world_line, reverted.uid)
        return self._outcome(reverted, before, prompt)

    async def dmail(self, checkpoint_id: int, text: str) -> RewindOutcome:
        """Send a letter of the person to the agent's past self. The agent reads it in its next turn.

        Raises:
            KeyError: no such checkpoint.
            StorageTrouble: the disk refused; nothing changed.
        """
        self._reachable(checkpoint_id)
        before = self.line.used
        reverted = await deliver(self.line, checkpoint_id, [text])
        return self._outcome(reverted, before, "")

    async def undo(self) -> str:
        """Reverse the newest operation that is not undone.

        Raises:
            NothingToUndo: there is none.
            StorageTrouble: the disk refused; nothing changed.
        """
        undone = await session_operations.undo(self.line.context)
        await self._brought_back("undo", undone.entry, undone.reverted)
        return f"Undone: {_named(undone.entry)}."

    async def redo(self) -> str:
        """Do again what was undone last.

        Raises:
            NothingToUndo: there is none.
            StorageTrouble: the disk refused; nothing changed.
        """
        context = self.line.context
        wanted = session_operations.next_redo(context)
        undoing = next(
            entry
            for entry in reversed(context.journal.entries)
            if entry.op == "undo" and entry.of == wanted.id
        )
        redone = await session_operations.redo(context)
        await self._brought_back("redo", undoing, redone.reverted)
        return f"Done again: {_named(redone.entry)}."

    async def fork(self, target: Target | None = None) -> str:
        """Copy the live line (up to before `target`) into a new session; returns its id.

        Raises:
            KeyError: no such checkpoint.
            StorageTrouble: the disk refused.
        """
        if target is None:
            forked = await self.session.fork()
        else:
            forked = await self.session.fork(target.id, target.world_line)
        return forked.id

    async def checkpoints(self, world_line: int = 0) -> list[CheckpointRow]:
        """The checkpoints of the live line, or of one that was left, oldest first.

        Raises:
            KeyError: no such world line.
        """
        return await asyncio.to_thread(self._rows, world_line)

    # -- below: how ------------------------------------------------------------------------------

    async def _brought_back(self, op: Operation, left: Entry, reverted: Reverted | None) -> None:
        """Tell that what the operation `left` left behind is live again."""
        if reverted is None:
            self.line.tell_changed(op, 0, 0, left.uid)
            return
        number = self.line.number_of(reverted)
        uid = await asyncio.to_thread(self._first_left_out, left.n)
        await self._follow(0)
        self.line.tell_changed(op, number, left.n, uid)

    def _first_left_out(self, n: int) -> str:
        """The first checkpoint of a world line that is not on the live line although all before it are."""
        live = self.line.context.checkpoints
        points = self._world_lines().index(n).checkpoints
        return points[len(live)].uid if len(points) > len(live) else ""

    def _rows(self, world_line: int) -> list[CheckpointRow]:
        context, accounting = self.line.context, self.line.accounting
        if world_line:
            lines = self._world_lines()
            index, messages = lines.index(world_line), lines.messages_of(world_line)
        else:
            index, messages = context.index, context.messages
        source = RowSource(
            told=pieces(read_records(self.session)),
            bookmarks=self.session.marks.bookmarks,
            estimate=lambda count: accounting.estimate_with(messages[:count]),
        )
        return checkpoint_rows(index, messages, source, world_line=world_line)

    def _reachable(self, checkpoint_id: int) -> Checkpoint:
        """The checkpoint, unless it holds the summary: going back before that would leave nothing at all."""
        point = self.line.context.checkpoint_of(checkpoint_id)
        if point is self.line.context.checkpoints[0] and self.line.begins_with_summary:
            raise UnknownCheckpoint(
                f"#{point.id} holds the summary of a compaction; undo the compaction to get back before it."
            )
        return point

    async def _follow(self, kept: int) -> None:
        self.line.kept(kept)
        await self.line.follow()

    def _outcome(self, reverted: Reverted, before: int, prompt: str) -> RewindOutcome:
        return RewindOutcome(
            checkpoint_id=reverted.checkpoint_id,
            world_line=reverted.world_line,
            messages_dropped=reverted.messages_dropped,
            tokens_before=before,
            tokens_after=self.line.used,
            prompt=prompt,
        )

    def _world_lines(self) -> WorldLines:
        context = self.line.context
        return WorldLines(context.folder, context.journal, context.storage)


def _segment_at(line: LiveLine, point: Checkpoint) -> Segment:
    checkpoints = line.context.checkpoints
    place = next(i for i, known in enumerate(checkpoints) if known.uid == point.uid)
    return segments(checkpoints[: place + 2], line.messages, place)[0]


def _named(entry: Entry) -> str:
    name = _NAMES.get(entry.op, "the last change")
    if entry.op in ("rewind", "dmail", "jump") and entry.checkpoint_id >= 0:
        return f"{name} to #{entry.checkpoint_id}"
    return name

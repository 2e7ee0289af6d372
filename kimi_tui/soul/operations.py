"""The user's operations on the conversation: rewind, jump, clear, undo, redo, fork. Nothing else runs meanwhile.

Each is one change of the context, journaled with what happens to the files; then the live conversation follows, the
files are restored, and the wire hears of it. `KimiSoul` says what each promises.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Collection
from dataclasses import dataclass, replace

from kimi_tui.session import undo as session_operations
from kimi_tui.session.context import Reverted, known_checkpoint
from kimi_tui.session.errors import UnknownCheckpoint
from kimi_tui.session.journal import Entry
from kimi_tui.session.schema import Checkpoint
from kimi_tui.session.session import Session
from kimi_tui.soul.compaction import EDITED, Span
from kimi_tui.soul.conversation import Conversation
from kimi_tui.soul.errors import FilesUnknown, NothingToClear
from kimi_tui.soul.file_restore import FileRestorer
from kimi_tui.soul.preview import preview_of, preview_of_jump, rewind_prompt
from kimi_tui.soul.rewind import FileOutcome, FilesChoice, RewindOutcome, RewindPreview, Target
from kimi_tui.soul.segments import Segment, segment_at
from kimi_tui.wire.events import Operation
from kimi_tui.workspace.restore import Prepared

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
    """The operations on one session."""

    session: Session
    conversation: Conversation
    restorer: FileRestorer

    async def preview(self, target: Target, *, idle: bool) -> RewindPreview:
        """What a rewind there would do.

        Args:
            target: where to.
            idle: nothing else uses the context, so that it may be read in a thread.

        Raises:
            KeyError: no such checkpoint or world line.
        """
        if target.world_line:
            preview = await preview_of_jump(self.conversation, self.session.world_lines, target)
        else:
            self.conversation.reachable(target.id)
            preview = await preview_of(self.conversation, target)
            if idle:
                self.conversation.context.prepare_revert(target.id)
        point = await self._point(target)
        files = await self.restorer.preview(point, ran_commands=preview.ran_commands, binding=idle)
        return replace(preview, files=files)

    async def rewind(
        self,
        target: Target,
        files: FilesChoice = "keep",
        chosen: Collection[str] | None = None,
    ) -> RewindOutcome:
        """Carry out `KimiSoul.rewind`."""
        prepared = await self._prepared(target, files, chosen)
        if files == "only":
            return await self._files_only(target, prepared)
        if target.world_line:
            return await self.jump(target.world_line, target.id, prepared, target.said)
        conversation = self.conversation
        point = self.conversation.reachable(target.id)
        before, figure = conversation.used, conversation.figure_before(point.id)
        prompt = rewind_prompt(_segment_of(conversation, point), target.said)
        async with self.restorer.journaled(prepared, "rewind") as entry:
            reverted = await conversation.context.revert_to(point.id, reason="rewind", files=entry)
        left = self.conversation.number_of(reverted)
        await self._follow(reverted, point.message_index)
        if point.tokens is not None:
            conversation.ends_at(figure)
        conversation.publish_reverted(
            reverted, "rewind", world_line=left, tokens_before=before, prompt=prompt
        )
        outcomes = await self.restorer.carry_out(prepared, reverted.entry.uid)
        conversation.publish_line_changed("rewind", left, 0, reverted.entry.uid)
        return self._outcome(reverted, before, prompt, outcomes)

    async def jump(
        self,
        world_line: int,
        checkpoint_id: int | None = None,
        prepared: Prepared | None = None,
        said: int = -1,
    ) -> RewindOutcome:
        """Carry out `KimiSoul.jump`; `prepared` is what comes back of the files with it, `said` is `Target.said`."""
        conversation = self.conversation
        index = await asyncio.to_thread(self.session.world_lines.index, world_line)
        before = conversation.used
        async with self.restorer.journaled(prepared, "jump") as entry:
            reverted = await session_operations.jump(
                conversation.context, world_line, checkpoint_id, files=entry
            )
        left = conversation.number_of(reverted)
        point = None if checkpoint_id is None else index.checkpoint(checkpoint_id)
        prompt = ""
        if point is not None:
            messages = await asyncio.to_thread(self.session.world_lines.messages_of, world_line)
            place = index.checkpoints.index(point)
            there = await asyncio.to_thread(segment_at, index.checkpoints, index, messages, place)
            prompt = rewind_prompt(there, said)
        await self._follow(reverted, reverted.messages_kept)
        outcomes = await self.restorer.carry_out(prepared, reverted.entry.uid)
        conversation.publish_line_changed("jump", left, world_line, reverted.entry.uid)
        return self._outcome(reverted, before, prompt, outcomes)

    async def clear(self) -> str:
        """Carry out `KimiSoul.clear`."""
        conversation = self.conversation
        if not conversation.messages:
            raise NothingToClear
        before = conversation.used
        reverted = await conversation.context.clear(reason="clear")
        await self._follow(reverted, 0)
        # The numbers mean other checkpoints now.
        conversation.denwa.forget_deliveries()
        left = conversation.number_of(reverted)
        conversation.publish_reverted(reverted, "clear", world_line=left, tokens_before=before)
        conversation.publish_line_changed("clear", left, 0, reverted.entry.uid)
        return "Cleared: the agent begins anew, and remembers nothing of what was said."

    def span(self, start: Target | None, until: Target | None) -> Span:
        """The part of the live world line between two of its checkpoints.

        Raises:
            KeyError: there is no such checkpoint, or no such part.
        """
        for target in (start, until):
            if target is not None and target.world_line:
                raise UnknownCheckpoint("Only a part of the live line can be compacted.")
        first = None if start is None else self.conversation.reachable(start.id)
        end = None if until is None else self.conversation.reachable(until.id)
        if first is not None and end is not None and end.offset <= first.offset:
            raise UnknownCheckpoint(f"#{end.id} does not come after #{first.id}.")
        return Span(first, end)

    async def undo(self) -> str:
        """Carry out `KimiSoul.undo`."""
        context = self.conversation.context
        wanted = session_operations.next_undo(context)
        before = self.conversation.used
        prepared = await self.restorer.prepare_back(wanted)
        async with self.restorer.journaled(prepared, "undo") as entry:
            undone = await session_operations.undo(context, files=entry)
        if undone.reverted is not None:
            await self._follow(undone.reverted, undone.reverted.messages_kept)
        outcomes = await self._back(prepared, wanted, undone.entry.uid)
        if undone.reverted is not None and wanted.grows_line:
            self._publish_taken_back(undone.reverted, before)
        else:
            await self._publish_brought_back("undo", undone.entry, undone.reverted)
        return f"Undone: {_named(undone.entry)}.{_files_sentence(outcomes)}"

    async def redo(self) -> str:
        """Carry out `KimiSoul.redo`."""
        context = self.conversation.context
        wanted = session_operations.next_redo(context)
        undoing = next(
            entry
            for entry in reversed(context.journal.entries)
            if entry.op == "undo" and entry.of == wanted.id
        )
        prepared = await self.restorer.prepare_back(undoing)
        async with self.restorer.journaled(prepared, "redo") as entry:
            redone = await session_operations.redo(context, files=entry)
        if redone.reverted is not None:
            await self._follow(redone.reverted, redone.reverted.messages_kept)
        outcomes = await self._back(prepared, undoing, undoing.uid)
        await self._publish_brought_back("redo", undoing, redone.reverted)
        return f"Done again: {_named(redone.entry)}.{_files_sentence(outcomes)}"

    async def fork(self, target: Target | None = None) -> str:
        """Carry out `KimiSoul.fork`."""
        if target is None:
            forked = await self.session.fork()
        else:
            forked = await self.session.fork(target.id, target.world_line)
        return forked.id

    # -- below: how ------------------------------------------------------------------------------

    def _publish_taken_back(self, reverted: Reverted, before: int) -> None:
        """Publish that what was only put at the end of the live world line is gone from it again."""
        left = self.conversation.number_of(reverted)
        self.conversation.publish_reverted(reverted, "undo", world_line=left, tokens_before=before)
        self.conversation.publish_line_changed("undo", left, 0, reverted.entry.uid)

    async def _publish_brought_back(
        self, op: Operation, left: Entry, reverted: Reverted | None
    ) -> None:
        """Publish that what the operation `left` left behind is live again."""
        if reverted is None:
            self.conversation.publish_line_changed(op, 0, 0, left.uid)
            return
        number = self.conversation.number_of(reverted)
        uid = await asyncio.to_thread(self._first_left_out, left.n)
        self.conversation.publish_line_changed(op, number, left.n, uid)

    async def _back(
        self, prepared: Prepared | None, entry: Entry, uid: str
    ) -> tuple[FileOutcome, ...]:
        """Reverse what an operation did to the files; what became of each."""
        if prepared is None:
            return await self.restorer.left_out(entry, uid)
        return await self.restorer.carry_out(prepared, uid)

    async def _prepared(
        self, target: Target, files: FilesChoice, chosen: Collection[str] | None
    ) -> Prepared | None:
        if files == "keep":
            return None
        plan = await self.restorer.plan(await self._point(target))
        if plan.reason:
            raise FilesUnknown(plan.reason)
        return await self.restorer.prepare(plan, chosen)

    async def _files_only(self, target: Target, prepared: Prepared | None) -> RewindOutcome:
        """Bring the files back and leave the conversation alone."""
        conversation, point = self.conversation, await self._point(target)
        if prepared is not None:
            async with self.restorer.journaled(prepared, "files") as entry:
                await self.restorer.record(entry, point.uid, point.id)
        outcomes = await self.restorer.carry_out(prepared, point.uid)
        if outcomes:
            conversation.publish_line_changed("files", 0, 0, point.uid)
        return RewindOutcome(point.id, 0, 0, conversation.used, conversation.used, "", outcomes)

    async def _point(self, target: Target) -> Checkpoint:
        if not target.world_line:
            return self.conversation.context.checkpoint_of(target.id)
        index = await asyncio.to_thread(self.session.world_lines.index, target.world_line)
        return known_checkpoint(index, target.id)

    def _first_left_out(self, n: int) -> str:
        """The first checkpoint of a world line that is not on the live line although all before it are."""
        live = self.conversation.context.checkpoints
        points = self.session.world_lines.index(n).checkpoints
        return points[len(live)].uid if len(points) > len(live) else ""

    async def _follow(self, reverted: Reverted, kept: int) -> None:
        if reverted.entry.stored:
            self.session.world_lines.remember(reverted.entry.n, reverted.left)
        self.conversation.kept(kept)
        await self.conversation.follow()

    def _outcome(
        self,
        reverted: Reverted,
        before: int,
        prompt: str,
        files: tuple[FileOutcome, ...] = (),
    ) -> RewindOutcome:
        return RewindOutcome(
            checkpoint_id=reverted.entry.checkpoint_id,
            world_line=reverted.entry.n,
            messages_dropped=reverted.entry.messages_dropped,
            tokens_before=before,
            tokens_after=self.conversation.used,
            prompt=prompt,
            files=files,
            is_open=self.conversation.ends_open,
        )


def _segment_of(conversation: Conversation, point: Checkpoint) -> Segment:
    context = conversation.context
    place = bisect_left(context.checkpoints, point.offset, key=lambda one: one.offset)
    return segment_at(context.checkpoints, context.index, context.messages, place)


def _named(entry: Entry) -> str:
    name = _NAMES.get(entry.op, "the last change")
    if entry.op == "compaction" and entry.reason == EDITED:
        return "the change of the summary"
    if entry.grows_line:
        return "what was sent to now"
    if entry.op in ("rewind", "dmail", "jump") and entry.checkpoint_id >= 0:
        return f"{name} to #{entry.checkpoint_id}"
    return name


def _files_sentence(files: tuple[FileOutcome, ...]) -> str:
    """What became of the files, as a sentence that begins with a blank; empty where there were none."""
    back = sum(1 for one in files if not one.reason)
    alone = [one.path for one in files if one.reason]
    said = f" {back} {'file' if back == 1 else 'files'} went with it." if back else ""
    if alone:
        names = ", ".join(alone[:3]) + (f" and {len(alone) - 3} more" if len(alone) > 3 else "")
        said += f" Left alone: {names}."
    return said

"""What a person does to the conversation from outside: rewind, jump, undo, redo, fork. Called while nothing else runs."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import partial

from kimi_tui.session import operations as session_operations
from kimi_tui.session.errors import UnknownCheckpoint
from kimi_tui.session.journal import Entry
from kimi_tui.session.readable_line import known_checkpoint
from kimi_tui.session.records import Checkpoint
from kimi_tui.session.reports import Reverted
from kimi_tui.session.session import Session
from kimi_tui.session.worldlines import WorldLines
from kimi_tui.soul.checkpoint_list import list_checkpoints
from kimi_tui.soul.checkpoint_rows import CheckpointRow
from kimi_tui.soul.errors import FilesUnknown
from kimi_tui.soul.live_line import LiveLine
from kimi_tui.soul.preview import preview_of, preview_of_jump, rewind_prompt
from kimi_tui.soul.protocol import FileOutcome, FilesChoice, RewindOutcome, RewindPreview, Target
from kimi_tui.soul.replacing import EDITED, Span
from kimi_tui.soul.restoring import Restoring
from kimi_tui.soul.segments import Segment, segments
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
    """The operations on one session's live line."""

    session: Session
    line: LiveLine
    restoring: Restoring

    async def preview(self, target: Target, *, idle: bool) -> RewindPreview:
        """What a rewind there would do.

        Args:
            target: where to.
            idle: nothing else uses the context, so that it may be read in a thread.

        Raises:
            KeyError: no such checkpoint or world line.
        """
        if target.world_line:
            make = partial(preview_of_jump, self.line, self.world_lines(), target)
        else:
            self.line.reachable(target.id)
            make = partial(preview_of, self.line, target)
        preview = await asyncio.to_thread(make) if idle else make()
        if idle and not target.world_line:
            self.line.context.prepare_revert(target.id)
        point = await self._point(target)
        commands = any(one.name == "Shell" for one in preview.goes)
        files = await self.restoring.preview(point, ran_commands=commands, binding=idle)
        return replace(preview, files=files)

    async def rewind(
        self,
        target: Target,
        files: FilesChoice = "keep",
        chosen: Collection[str] | None = None,
    ) -> RewindOutcome:
        """Cut the conversation back to before the checkpoint, bring the files of that time back, or both.

        Args:
            target: on the live line or on one that was left.
            files: what of it.
            chosen: the paths to bring back, conflicts among them; None for all that are no conflicts.

        Raises:
            KeyError: no such checkpoint or world line.
            FilesUnknown: the files of that time cannot be brought back; nothing changed.
            StorageTrouble: the disk refused; nothing changed.
        """
        prepared = await self._prepared(target, files, chosen)
        if files == "only":
            return await self._files_only(target, prepared)
        if target.world_line:
            return await self.jump(target.world_line, target.id, prepared)
        line = self.line
        point = self.line.reachable(target.id)
        before, figure = line.used, line.figure_before(point.id)
        prompt = rewind_prompt(_segment_at(line, point))
        reverted = await self.restoring.along(
            prepared,
            "rewind",
            lambda entry: line.context.revert_to(point.id, reason="rewind", files=entry),
        )
        left = self.line.number_of(reverted)
        await self._follow(point.message_index)
        if point.tokens is not None:
            line.ends_at(figure)
        line.tell_reverted(reverted, "rewind", world_line=left, tokens_before=before, prompt=prompt)
        became = await self.restoring.carry_out(prepared, reverted.uid)
        line.tell_changed("rewind", left, 0, reverted.uid)
        return self._outcome(reverted, before, prompt, became)

    async def jump(
        self,
        world_line: int,
        checkpoint_id: int | None = None,
        prepared: Prepared | None = None,
    ) -> RewindOutcome:
        """Make a line that was left the live one, up to before a checkpoint of it, or all of it. It stays.

        Raises:
            KeyError: no such checkpoint or world line.
            AlreadyThere: the live line is exactly that.
            StorageTrouble: the disk refused; nothing changed.
        """
        line = self.line
        index = await asyncio.to_thread(self.world_lines().index, world_line)
        before = line.used
        reverted = await self.restoring.along(
            prepared,
            "jump",
            lambda entry: session_operations.jump(
                line.context, world_line, checkpoint_id, files=entry
            ),
        )
        left = line.number_of(reverted)
        point = None if checkpoint_id is None else index.checkpoint(checkpoint_id)
        prompt = ""
        if point is not None:
            messages = await asyncio.to_thread(self.world_lines().messages_of, world_line)
            place = index.checkpoints.index(point)
            prompt = rewind_prompt(segments(index.checkpoints[: place + 2], messages, place)[0])
        await self._follow(reverted.messages_kept)
        became = await self.restoring.carry_out(prepared, reverted.uid)
        line.tell_changed("jump", left, world_line, reverted.uid)
        return self._outcome(reverted, before, prompt, became)

    def span(self, start: Target | None, until: Target | None) -> Span:
        """The part of the live line between two of its checkpoints.

        Raises:
            KeyError: there is no such checkpoint, or no such part.
        """
        for target in (start, until):
            if target is not None and target.world_line:
                raise UnknownCheckpoint("Only a part of the live line can be compacted.")
        first = None if start is None else self.line.reachable(start.id)
        end = None if until is None else self.line.reachable(until.id)
        if first is not None and end is not None and end.offset <= first.offset:
            raise UnknownCheckpoint(f"#{end.id} does not come after #{first.id}.")
        return Span(first, end)

    async def undo(self) -> str:
        """Reverse the newest operation that is not undone.

        Raises:
            NothingToUndo: there is none.
            StorageTrouble: the disk refused; nothing changed.
        """
        context = self.line.context
        wanted = session_operations.next_undo(context)
        before = self.line.used
        prepared = await self.restoring.prepare_back(wanted)
        undone = await self.restoring.along(
            prepared, "undo", lambda entry: session_operations.undo(context, files=entry)
        )
        if undone.reverted is not None:
            await self._follow(undone.reverted.messages_kept)
        became = await self._back(prepared, wanted, undone.entry.uid)
        if undone.reverted is not None and wanted.grows_line:
            self._tell_taken_back(undone.reverted, before)
        else:
            await self._tell_brought_back("undo", undone.entry, undone.reverted)
        return f"Undone: {_named(undone.entry)}.{_said_of(became)}"

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
        prepared = await self.restoring.prepare_back(undoing)
        redone = await self.restoring.along(
            prepared, "redo", lambda entry: session_operations.redo(context, files=entry)
        )
        if redone.reverted is not None:
            await self._follow(redone.reverted.messages_kept)
        became = await self._back(prepared, undoing, undoing.uid)
        await self._tell_brought_back("redo", undoing, redone.reverted)
        return f"Done again: {_named(redone.entry)}.{_said_of(became)}"

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
        return await asyncio.to_thread(
            list_checkpoints, self.session, world_line, self.line.accounting
        )

    # -- below: how ------------------------------------------------------------------------------

    def _tell_taken_back(self, reverted: Reverted, before: int) -> None:
        """Tell that what was only put at the end of the line is gone from it again."""
        left = self.line.number_of(reverted)
        self.line.tell_reverted(reverted, "undo", world_line=left, tokens_before=before)
        self.line.tell_changed("undo", left, 0, reverted.uid)

    async def _tell_brought_back(
        self, op: Operation, left: Entry, reverted: Reverted | None
    ) -> None:
        """Tell that what the operation `left` left behind is live again."""
        if reverted is None:
            self.line.tell_changed(op, 0, 0, left.uid)
            return
        number = self.line.number_of(reverted)
        uid = await asyncio.to_thread(self._first_left_out, left.n)
        self.line.tell_changed(op, number, left.n, uid)

    async def _back(
        self, prepared: Prepared | None, entry: Entry, uid: str
    ) -> tuple[FileOutcome, ...]:
        """Reverse what an operation did to the files; what became of each."""
        if prepared is None:
            return await self.restoring.left_out(entry, uid)
        return await self.restoring.carry_out(prepared, uid)

    async def _prepared(
        self, target: Target, files: FilesChoice, chosen: Collection[str] | None
    ) -> Prepared | None:
        if files == "keep":
            return None
        plan = await self.restoring.plan(await self._point(target))
        if plan.reason:
            raise FilesUnknown(plan.reason)
        return await self.restoring.prepare(plan, chosen)

    async def _files_only(self, target: Target, prepared: Prepared | None) -> RewindOutcome:
        """Bring the files back and leave the conversation alone."""
        line, point = self.line, await self._point(target)
        if prepared is not None:
            await self.restoring.along(
                prepared,
                "files",
                lambda entry: self.restoring.record(entry, point.uid, point.id),
            )
        became = await self.restoring.carry_out(prepared, point.uid)
        if became:
            line.tell_changed("files", 0, 0, point.uid)
        return RewindOutcome(point.id, 0, 0, line.used, line.used, "", became)

    async def _point(self, target: Target) -> Checkpoint:
        if not target.world_line:
            return self.line.context.checkpoint_of(target.id)
        index = await asyncio.to_thread(self.world_lines().index, target.world_line)
        return known_checkpoint(index, target.id)

    def _first_left_out(self, n: int) -> str:
        """The first checkpoint of a world line that is not on the live line although all before it are."""
        live = self.line.context.checkpoints
        points = self.world_lines().index(n).checkpoints
        return points[len(live)].uid if len(points) > len(live) else ""

    async def _follow(self, kept: int) -> None:
        self.line.kept(kept)
        await self.line.follow()

    def _outcome(
        self,
        reverted: Reverted,
        before: int,
        prompt: str,
        files: tuple[FileOutcome, ...] = (),
    ) -> RewindOutcome:
        return RewindOutcome(
            checkpoint_id=reverted.checkpoint_id,
            world_line=reverted.world_line,
            messages_dropped=reverted.messages_dropped,
            tokens_before=before,
            tokens_after=self.line.used,
            prompt=prompt,
            files=files,
            is_open=self.line.ends_open,
        )

    def world_lines(self) -> WorldLines:
        """The lines that were left. Its methods read files: call them in a thread."""
        context = self.line.context
        return WorldLines(context.folder, context.journal, context.storage)


def _segment_at(line: LiveLine, point: Checkpoint) -> Segment:
    checkpoints = line.context.checkpoints
    place = next(i for i, known in enumerate(checkpoints) if known.uid == point.uid)
    return segments(checkpoints[: place + 2], line.messages, place)[0]


def _named(entry: Entry) -> str:
    name = _NAMES.get(entry.op, "the last change")
    if entry.op == "compaction" and entry.reason == EDITED:
        return "the change of the summary"
    if entry.grows_line:
        return "what was sent to now"
    if entry.op in ("rewind", "dmail", "jump") and entry.checkpoint_id >= 0:
        return f"{name} to #{entry.checkpoint_id}"
    return name


def _said_of(files: tuple[FileOutcome, ...]) -> str:
    """What became of the files, in a sentence; nothing where there were none."""
    back = sum(1 for one in files if not one.reason)
    alone = [one.path for one in files if one.reason]
    said = f" {back} {'file' if back == 1 else 'files'} went with it." if back else ""
    if alone:
        names = ", ".join(alone[:3]) + (f" and {len(alone) - 3} more" if len(alone) > 3 else "")
        said += f" Left alone: {names}."
    return said

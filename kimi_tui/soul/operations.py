"""The user's operations on the conversation: rewind, jump, clear, undo, redo, fork. No turn runs meanwhile.

Each is one change of the context, journaled together with its change of the files; then the live conversation is updated,
the files are restored, and the events are published. The methods of `KimiSoul` document each operation.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, replace
from uuid import uuid4

from kimi_tui.daemon_threads import in_daemon_thread
from kimi_tui.display_names import counted, some_of
from kimi_tui.llm.message import Message
from kimi_tui.projection.tokens import TokenFigure
from kimi_tui.session import undo as session_operations
from kimi_tui.session.context import Reverted
from kimi_tui.session.context_index import WorldLineContent
from kimi_tui.session.errors import StorageTrouble, UnknownCheckpoint
from kimi_tui.session.journal import JournalEntry
from kimi_tui.session.schema import Addition, Checkpoint, NewCheckpoint, TokenCount
from kimi_tui.session.session import Session
from kimi_tui.soul.compaction import EDITED, CompactionSpan
from kimi_tui.soul.conversation import Conversation
from kimi_tui.soul.errors import FilesUnknown, NothingToClear, SoulError
from kimi_tui.soul.messages import checkpoint_created, segment_at, segments
from kimi_tui.soul.rebuilt_history import events_from_messages
from kimi_tui.soul.rewind_preview import (
    preview_of,
    preview_of_files,
    preview_of_jump,
    preview_of_undo,
    rewind_images,
    rewind_prompt,
)
from kimi_tui.soul.rewind_values import (
    FileOutcome,
    FilesChoice,
    Forked,
    Reversal,
    RewindOutcome,
    RewindPreview,
    Target,
)
from kimi_tui.tool_cards import BriefBlock, ImageBlock
from kimi_tui.wire.events import (
    NOTHING_LEFT,
    LeftBehind,
    LineChanged,
    Operation,
    ToolCall,
    ToolResult,
    ToolStarted,
    toll_words,
)
from kimi_tui.workspace.restore import FileChange, PreparedRestore, RestorePlan

_NAMES: dict[str, str] = {
    "rewind": "the rewind",
    "dmail": "the D-Mail",
    "compaction": "the compaction",
    "clear": "/clear",
    "jump": "the switch",
    "files": "the restore of files",
}


class NotForked(SoulError):
    """The copy of the session failed after the files had been restored."""

    def __init__(self, trouble: StorageTrouble) -> None:
        super().__init__(
            f"{trouble} The session was not forked, but its files were restored; /undo reverses that."
        )


@dataclass(frozen=True, slots=True)
class Operations:
    """The operations on one session.

    Attributes:
        session: the session.
        conversation: its conversation.
        flush: writes all published events into the record.
    """

    session: Session
    conversation: Conversation
    flush: Callable[[], Awaitable[None]]

    async def preview(self, target: Target, *, idle: bool) -> RewindPreview:
        """Compute what a rewind to a target would do.

        Args:
            target: the target.
            idle: whether nothing else uses the context, so that it may be read in a thread.

        Raises:
            KeyError: no such checkpoint or world line.
        """
        if target.world_line:
            preview = await preview_of_jump(self.conversation, self.session.world_lines, target)
        elif target.is_end:
            preview = preview_of_files(self.conversation)
        else:
            self.conversation.reachable(target.id)
            preview = await preview_of(self.conversation, target)
            if idle:
                self.conversation.context.prepare_revert(target.id)
        files = await self.conversation.files.preview(
            await self._point(target),
            after=target.is_end,
            ran_commands=preview.ran_commands,
            binding=idle,
            is_elsewhere=bool(target.world_line),
        )
        if preview.servers:
            named = some_of(preview.servers, 3)
            words = f"Not restored: what the MCP server{'s' * (len(preview.servers) > 1)} {named} did elsewhere."
            files = replace(files, remarks=(words, *files.remarks))
        return replace(preview, files=files)

    async def plan(self, target: Target) -> RestorePlan:
        """Return the plan that restores the files of a checkpoint: the previewed one, or a new one.

        Raises:
            KeyError: no such checkpoint or world line.
            FilesUnknown: the files cannot be restored.
        """
        plan = await self.conversation.files.plan(await self._point(target), after=target.is_end)
        if plan.reason:
            raise FilesUnknown(plan.reason)
        return plan

    async def preview_undo(self) -> RewindPreview:
        """Compute what happened since the newest operation that is not undone, as undo would take it along.

        Raises:
            NothingToUndo: there is no such operation.
        """
        wanted = session_operations.next_undo(self.conversation.context)
        lines = self.session.world_lines
        preview = await preview_of_undo(self.conversation, lines, wanted, _operation_name(wanted))
        stays = await self._stays(wanted, preview)
        return replace(preview, files=await self.conversation.files.preview_back(wanted, stays))

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
            return await self._jump(target, prepared)
        conversation = self.conversation
        point = self.conversation.reachable(target.id)
        figure = conversation.figure_before(point)
        prompt, images = await self.message_at(target)
        async with conversation.files.journaled(prepared, "rewind") as entry:
            reverted = await conversation.context.revert_to(
                point.id, reason="rewind", files=entry, tokens=conversation.known_tokens(point)
            )
        await self._refresh(reverted, figure)
        conversation.publish_reverted(reverted, prompt=prompt)
        outcomes = await conversation.files.carry_out(prepared, reverted.entry.uid)
        change = conversation.publish_line_changed(
            "rewind", reverted.world_line, 0, reverted.entry.uid
        )
        return self._outcome(reverted, change, prompt, outcomes, images)

    async def _jump(self, target: Target, prepared: PreparedRestore | None) -> RewindOutcome:
        """Make another world line live, and carry out the prepared restore of its files."""
        conversation, world_line = self.conversation, target.world_line
        checkpoint_id = None if target.is_end else target.id
        # The message is read before anything changes, so that an unreadable one stops the whole operation.
        prompt, images = ("", ()) if checkpoint_id is None else await self.message_at(target)
        point, figure = (
            (None, None) if checkpoint_id is None else await self._point_with_figure(target)
        )
        async with conversation.files.journaled(prepared, "jump") as entry:
            reverted = await session_operations.jump(
                conversation.context,
                world_line,
                checkpoint_id,
                files=entry,
                tokens=conversation.known_tokens(point),
            )
        await self._refresh(reverted, figure)
        # The line changes before the files do, so that the files' events belong to the new line.
        change = conversation.publish_line_changed(
            "jump", reverted.world_line, world_line, reverted.entry.uid
        )
        outcomes = await conversation.files.carry_out(prepared, "")
        return self._outcome(reverted, change, prompt, outcomes, images)

    async def bring_files(
        self, point: Checkpoint, chosen: Collection[str] | None = None
    ) -> RewindOutcome:
        """Bring back the files of a checkpoint of any agent of the session, and keep all conversations.

        Raises:
            FilesUnknown: they cannot be brought back; nothing changed.
            OSError: the disk refused.
        """
        plan = await self.conversation.files.plan(point)
        if plan.reason:
            raise FilesUnknown(plan.reason)
        return await self._files_at(point, await self.conversation.files.prepare(plan, chosen))

    async def back_into_call(
        self,
        key: str,
        point_of_files: Checkpoint | None,
        chosen: Collection[str] | None = None,
        shown: Callable[[str], tuple[str, float]] = lambda _: ("", 0.0),
    ) -> tuple[RewindOutcome, str]:
        """Go back to where a call at a step of the live world line had no result yet, which makes a new step with the same answer.

        The results of calls before it in that answer stay; those of later ones are dropped, as what followed them is.

        Args:
            key: the key of the call.
            point_of_files: the checkpoint, of any agent of the session, whose files to bring back; None for none.
            chosen: the paths to bring back; None for all that are no conflicts.
            shown: returns what the card of a call shows beside its result, and the seconds that it took.

        Returns:
            the outcome, and the new key of the call.

        Raises:
            UnknownCheckpoint: the step is not on the live world line.
            FilesUnknown: the files of that time cannot be brought back; nothing changed.
            OSError: the disk refused.
        """
        conversation, context = self.conversation, self.conversation.context
        uid, _, number = key.rpartition(":")
        points = context.checkpoints
        place = next((n for n, one in enumerate(points) if one.uid == uid), -1)
        if place < 0:
            raise UnknownCheckpoint(
                "The step that started this sub-agent is not on the current world line."
            )
        point = points[place]
        (segment,) = segments(context.world_line, place, place + 1)
        kept = _until_call(segment.messages, int(number) if number.isdecimal() else 0)
        prepared = None
        if point_of_files is not None:
            plan = await conversation.files.plan(point_of_files)
            if plan.reason:
                raise FilesUnknown(plan.reason)
            prepared = await conversation.files.prepare(plan, chosen)
        again = str(uuid4())
        end = points[place + 1].offset if place + 1 < len(points) else context.index.size
        then = _with_usage(
            kept,
            context.index.usages_between(point.offset, end),
            estimated=context.index.is_estimated_behind(point.offset),
        )
        figure = conversation.figure_before(point)
        async with conversation.files.journaled(prepared, "rewind") as entry:
            reverted = await context.revert_to(
                point.id,
                reason="rewind",
                then=[NewCheckpoint(conversation.marks_checkpoints, uid=again), *then],
                files=entry,
                tokens=conversation.known_tokens(point),
            )
        await self._refresh(reverted)
        conversation.files.mark_again(again, uid)
        conversation.publish_reverted(reverted)
        first = 0 if kept[0].role == "assistant" else 1
        made = next(one for one in context.checkpoints if one.uid == again)
        conversation.publish(checkpoint_created(made, "step", "", figure, first=first))
        for event in events_from_messages(kept, again):
            if isinstance(event, ToolCall):
                card = conversation.all_tools.card(event.name)
                conversation.publish(replace(event, card=card))
            elif isinstance(event, ToolResult):
                words, seconds = shown(f"{uid}:{event.key.rpartition(':')[2]}")
                display = (*event.display, BriefBlock(words)) if words else event.display
                conversation.publish(replace(event, display=display, duration_s=seconds))
            elif not isinstance(event, ToolStarted):
                conversation.publish(event)
        outcomes = await conversation.files.carry_out(prepared, "")
        change = conversation.publish_line_changed(
            "rewind", reverted.world_line, 0, reverted.entry.uid
        )
        return self._outcome(reverted, change, "", outcomes), f"{again}:{number}"

    async def clear(self) -> str:
        """Carry out `KimiSoul.clear`."""
        conversation = self.conversation
        if not conversation.context.messages:
            raise NothingToClear
        reverted = await conversation.context.clear(
            reason="clear", tokens=conversation.known_tokens()
        )
        await self._refresh(reverted)
        # The numbers belong to other checkpoints now.
        conversation.denwa.forget_deliveries()
        conversation.publish_reverted(reverted)
        conversation.publish_line_changed("clear", reverted.world_line, 0, reverted.entry.uid)
        return "Cleared. The agent no longer sees the conversation so far."

    def span(self, start: Target | None, until: Target | None) -> CompactionSpan:
        """Return the part of the live world line between two of its checkpoints.

        Raises:
            KeyError: there is no such checkpoint, or no such part.
        """
        for target in (start, until):
            if target is not None and target.world_line:
                raise UnknownCheckpoint("Only the current world line can be compacted.")
        first = None if start is None else self.conversation.reachable(start.id)
        end = None if until is None else self.conversation.reachable(until.id)
        if first is not None and end is not None and end.offset <= first.offset:
            raise UnknownCheckpoint(f"#{end.id} is not after #{first.id}.")
        return CompactionSpan(first, end)

    async def undo(self, line_name: str) -> Reversal:
        """Carry out `KimiSoul.undo`."""
        conversation, context = self.conversation, self.conversation.context
        wanted = session_operations.next_undo(context)
        toll = await preview_of_undo(self.conversation, self.session.world_lines, wanted, "")
        stays = await self._stays(wanted, toll)
        points = await self._points_of(wanted)
        prepared = await conversation.files.prepare_back(wanted)
        async with conversation.files.journaled(prepared, "undo") as entry:
            undone = await session_operations.undo(
                context, files=entry, tokens=conversation.known_tokens()
            )
        left = LeftBehind(toll.steps, toll.messages, tuple(one.path for one in stays), line_name)
        said = ""
        if undone.reverted is not None:
            await self._refresh(undone.reverted, _held(wanted))
            said = toll_words(left, undone.reverted.entry.n)
        if undone.reverted is not None and wanted.grows_line:
            # Records that were only appended to the live world line are removed from it again.
            conversation.publish_reverted(undone.reverted)
            conversation.publish_line_changed(
                "undo", undone.reverted.world_line, 0, undone.reverted.entry.uid, left
            )
        else:
            self._publish_brought_back("undo", wanted, points, undone.reverted, left)
        outcomes = await self._back(prepared, wanted)
        return Reversal(
            f"Undid {_operation_name(undone.entry)}.",
            f"{said}." if said else "",
            _files_sentence(outcomes),
        )

    async def redo(self) -> Reversal:
        """Carry out `KimiSoul.redo`."""
        context = self.conversation.context
        wanted = session_operations.next_redo(context)
        undoing = next(
            entry
            for entry in reversed(context.journal.entries)
            if entry.op == "undo" and entry.of == wanted.id
        )
        points = await self._points_of(undoing)
        prepared = await self.conversation.files.prepare_back(undoing)
        async with self.conversation.files.journaled(prepared, "redo") as entry:
            redone = await session_operations.redo(
                context, files=entry, tokens=self.conversation.known_tokens()
            )
        if redone.reverted is not None:
            await self._refresh(redone.reverted, _held(undoing))
        self._publish_brought_back("redo", undoing, points, redone.reverted)
        outcomes = await self._back(prepared, undoing)
        return Reversal(f"Redid {_operation_name(redone.entry)}.", files=_files_sentence(outcomes))

    async def fork(
        self,
        target: Target,
        files: FilesChoice = "keep",
        chosen: Collection[str] | None = None,
    ) -> Forked:
        """Carry out `KimiSoul.fork`."""
        point = None if target.is_end else await self._point(target)
        prompt, images = ("", ()) if point is None else await self.message_at(target)
        prepared = await self._prepared(target, files, chosen)
        outcomes: tuple[FileOutcome, ...] = ()
        if files != "keep":
            # The files are restored before the copy, so that the copy knows of it: its undo restores them as well as this
            # session's.
            outcomes = (await self._files_only(target, prepared)).files
        # The end of the copied record is told by what stands in it.
        await self.flush()
        try:
            forked = await self.session.fork(None if point is None else point.id, target.world_line)
        except StorageTrouble as trouble:
            if not outcomes:
                raise
            raise NotForked(trouble) from trouble
        return Forked(forked.id, prompt, outcomes, images)

    async def message_at(self, target: Target) -> tuple[str, tuple[ImageBlock, ...]]:
        """Return the message of the user with which a checkpoint began, and its images; empty if it began with none.

        Raises:
            KeyError: no such checkpoint or world line.
        """
        line = await self._line(target)
        point = line.index.checkpoint(target.id)
        there = await in_daemon_thread(segment_at, line, point)
        return rewind_prompt(there, target.said), rewind_images(there, target.said)

    # -- implementation --------------------------------------------------------------------------

    async def _line(self, target: Target) -> WorldLineContent:
        """Return the world line of a target. The live one is in memory; the file of another one is read completely."""
        if not target.world_line:
            return self.conversation.context.world_line
        return await in_daemon_thread(self.session.world_lines.read, target.world_line)

    def _publish_brought_back(
        self,
        op: Operation,
        left: JournalEntry,
        points: Sequence[Checkpoint],
        reverted: Reverted | None,
        behind: LeftBehind = NOTHING_LEFT,
    ) -> None:
        """Publish that the line that the operation `left` left, with these checkpoints, is live again."""
        if reverted is None:
            self.conversation.publish_line_changed(op, 0, 0, left.uid)
            return
        n_live = len(self.conversation.context.checkpoints)
        uid = points[n_live].uid if n_live < len(points) else ""
        self.conversation.publish_line_changed(op, reverted.world_line, left.n, uid, behind)

    async def _stays(self, undone: JournalEntry, toll: RewindPreview) -> tuple[FileChange, ...]:
        """Return the files created by the steps that an undo takes along, except those that the operation had restored."""
        if toll.target.is_end:
            return ()
        point = self.conversation.context.index.checkpoint(toll.target.id)
        return await self.conversation.files.staying(point, undone.paths)

    async def _back(
        self, prepared: PreparedRestore | None, entry: JournalEntry
    ) -> tuple[FileOutcome, ...]:
        """Reverse an operation's changes of files; return the outcome of each."""
        if prepared is None:
            return await self.conversation.files.left_out(entry, "")
        return await self.conversation.files.carry_out(prepared, "")

    async def _prepared(
        self, target: Target, files: FilesChoice, chosen: Collection[str] | None
    ) -> PreparedRestore | None:
        if files == "keep":
            return None
        return await self.conversation.files.prepare(await self.plan(target), chosen)

    async def _files_only(self, target: Target, prepared: PreparedRestore | None) -> RewindOutcome:
        """Restore the files and keep the conversation."""
        return await self._files_at(await self._point(target), prepared)

    async def _files_at(self, point: Checkpoint, prepared: PreparedRestore | None) -> RewindOutcome:
        conversation = self.conversation
        if prepared is not None:
            async with conversation.files.journaled(prepared, "files") as entry:
                await conversation.files.record(entry, point.uid, point.id)
        outcomes = await conversation.files.carry_out(prepared, point.uid)
        if prepared is not None:
            conversation.publish_line_changed("files", 0, 0, point.uid)
        used = conversation.meter.used
        return RewindOutcome(point.id, 0, used, used, "", outcomes)

    async def _point(self, target: Target) -> Checkpoint:
        """Return the checkpoint of a target; for the end of a line the newest one there."""
        line = await self._line(target)
        if target.is_end and line.checkpoints:
            return line.checkpoints[-1]
        return line.index.checkpoint(target.id)

    async def _points_of(self, left: JournalEntry) -> Sequence[Checkpoint]:
        """Return the checkpoints of the line that an operation left; none if it left no line.

        Call it before that line is live again, so that an unreadable line stops the whole operation.
        """
        if not left.changes_line:
            return ()
        index = await in_daemon_thread(self.session.world_lines.index, left.n)
        return index.checkpoints

    async def _point_with_figure(self, target: Target) -> tuple[Checkpoint, TokenFigure]:
        """Return a checkpoint of another world line, and the tokens before it."""
        line = await self._line(target)
        point = line.index.checkpoint(target.id)
        return point, await in_daemon_thread(self.conversation.figure_before, point, line)

    async def _refresh(self, reverted: Reverted, figure: TokenFigure | None = None) -> None:
        """Recompute everything that depends on the context; `figure` is that of the whole context."""
        if reverted.entry.stored:
            self.session.world_lines.remember(reverted.entry.n, reverted.left)
        count = self.conversation.context.index.n_messages
        await self.conversation.refresh(reverted.messages_kept, figure, count)

    def _outcome(
        self,
        reverted: Reverted,
        change: LineChanged,
        prompt: str,
        files: tuple[FileOutcome, ...] = (),
        images: tuple[ImageBlock, ...] = (),
    ) -> RewindOutcome:
        return RewindOutcome(
            checkpoint_id=reverted.entry.checkpoint_id,
            messages_dropped=reverted.entry.messages_dropped,
            tokens_before=reverted.entry.tokens_before,
            tokens_after=self.conversation.meter.used,
            prompt=prompt,
            files=files,
            is_open=self.conversation.ends_open,
            images=images,
            change=change,
        )


def _until_call(messages: Sequence[Message], number: int) -> list[Message]:
    """Return the messages of a step up to before the result of a call: the answer, and the results of the calls before it."""
    kept: list[Message] = []
    n_results = 0
    for message in messages:
        if message.role == "tool":
            if n_results >= number:
                break
            n_results += 1
        elif kept and kept[-1].role != "user":
            break
        kept.append(message)
    return kept


def _with_usage(
    messages: Sequence[Message], usages: Sequence[int], *, estimated: bool
) -> list[Addition]:
    """Return the messages of a step as they are written, with the figures before and after its answer."""
    if len(usages) < 2:
        return [*messages]
    records: list[Addition] = []
    for message in messages:
        if message.role != "assistant":
            records.append(message)
            continue
        records += [TokenCount(usages[0], estimated=estimated), message]
        records.append(TokenCount(usages[1], estimated=estimated))
    return records


def _held(left: JournalEntry) -> TokenFigure | None:
    """Return the tokens in the window when an operation left the line; None if the journal does not say."""
    return TokenFigure(left.tokens_before, measured=False) if left.tokens_before else None


def _operation_name(entry: JournalEntry) -> str:
    name = _NAMES.get(entry.op, "the last change")
    if entry.op == "compaction" and entry.reason == EDITED:
        return "the edit of the summary"
    if entry.grows_line:
        return "the copied messages"
    if entry.op in ("rewind", "dmail", "jump") and entry.checkpoint_id >= 0:
        return f"{name} to #{entry.checkpoint_id}"
    return name


def _files_sentence(files: tuple[FileOutcome, ...]) -> str:
    """Describe the outcome of the files in sentences; empty if there were none."""
    fates = [one.fate for one in files if not one.reason]
    deleted = fates.count("delete")
    back = len(fates) - deleted
    alone = [one.path for one in files if one.reason]
    said = ""
    if back:
        said = f"{counted(back, 'file')} restored{f', {deleted:,} deleted' if deleted else ''}."
    elif deleted:
        said = f"{counted(deleted, 'file')} deleted."
    if alone:
        said += f" Not restored: {some_of(alone, 3)}."
    return said.strip()

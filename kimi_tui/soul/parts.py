"""The parts of the engine beside its turns: time travel, the world lines, the user's D-Mails, commands in the background, and the
permissions that the user has given.

The user's marks are the sixth (`bookmarks`). A part holds the data that it works on. All of them run changes of the context
through one `OneAtATime`: their methods raise `SoulBusy` while a turn or another operation runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from kimi_tui.hooks.runner import Hooks
from kimi_tui.session.session import Session
from kimi_tui.soul.approval import Approval
from kimi_tui.soul.bookmarks import UserMarks
from kimi_tui.soul.conversation import Conversation
from kimi_tui.soul.dmail import UserDMails
from kimi_tui.soul.messages import Author
from kimi_tui.soul.operations import Operations
from kimi_tui.soul.rewind_values import (
    END,
    FilesChoice,
    Forked,
    Reversal,
    RewindOutcome,
    RewindPreview,
    Target,
)
from kimi_tui.soul.tasks import OneAtATime
from kimi_tui.tools.jobs import Job, Jobs
from kimi_tui.wire.events import EventRecord

if TYPE_CHECKING:
    from kimi_tui.mcp.permissions import Permissions as ServerPermissions
    from kimi_tui.mcp.servers import McpServers
    from kimi_tui.session.world_lines import WorldLine
    from kimi_tui.soul.world_line_reader import (
        StoredSummary,
        WorldLineComparison,
        WorldLineReader,
    )
    from kimi_tui.tool_cards import ImageBlock

T = TypeVar("T")
_SERVER = "server:"
"""The kind of a permission for the work folder that is an MCP server's."""


class Travel:
    """Time travel: rewinds, jumps, undo and redo, clearing and forks. All of these but a fork can be undone.

    Attributes:
        after: called when another world line became the live one, before anything else may run; None for nothing.
    """

    def __init__(self, operations: Operations, jobs: Jobs, alone: OneAtATime) -> None:
        self.after: Callable[[], Awaitable[None]] | None = None
        self._operations = operations
        self._jobs = jobs
        self._alone = alone

    async def preview(self, target: Target) -> RewindPreview:
        """Return the effects of a rewind to before the target. It may be called at any time.

        Raises:
            KeyError: no such checkpoint or world line; the text is for the user.
        """
        found = await self._operations.preview(target, idle=not self._alone.running)
        return replace(found, run_on=tuple(job.command for job in self._jobs.running))

    async def message_at(self, target: Target) -> tuple[str, tuple[ImageBlock, ...]]:
        """Return the message of the user with which a checkpoint began, and its images; empty if it began with none.

        Raises:
            KeyError: no such checkpoint or world line.
        """
        return await self._operations.message_at(target)

    async def rewind(
        self,
        target: Target,
        files: FilesChoice = "keep",
        chosen: Collection[str] | None = None,
    ) -> RewindOutcome:
        """Cut the conversation back to before the checkpoint, bring the files of that time back, or both.

        Args:
            target: a checkpoint of the live world line, or of another one or its end, which becomes the live one.
            files: which of the files of that time to bring back.
            chosen: the paths to bring back, conflicts among them; None for all that are no conflicts.

        Raises:
            KeyError: no such checkpoint or world line.
            FilesUnknown: the files of that time cannot be brought back; nothing changed.
            SessionError: the target is the live world line already.
            SoulBusy: something runs; interrupt it first.
            OSError: the disk refused.
        """
        return await self._alone.run(
            self._then(partial(self._operations.rewind, target, files, chosen))
        )

    async def _then(self, work: Callable[[], Awaitable[T]]) -> T:
        done = await work()
        if self.after is not None:
            await self.after()
        return done

    async def clear(self) -> str:
        """Start again with an empty context in the same session; return a sentence for the user.

        Published as `ContextReverted` and `LineChanged` with the reason `clear`. The old context stays as a world line.

        Raises:
            SoulError: there is nothing to clear.
            SoulBusy: something runs; interrupt it first.
            OSError: the disk refused.
        """
        return await self._alone.run(self._operations.clear())

    async def preview_undo(self) -> RewindPreview:
        """Return the preview of an undo: what happened since the newest operation not undone, and is dropped with that operation.

        Raises:
            SessionError: there is nothing to undo.
        """
        return await self._operations.preview_undo()

    async def undo(self, line_name: str = "") -> Reversal:
        """Reverse the newest operation that is not undone; return what that did.

        `line_name` is the name for the line that it leaves: see `RewindPreview.left_from`.

        Raises:
            SessionError: there is nothing to undo.
            SoulBusy: something runs; interrupt it first.
            OSError: the disk refused.
        """
        return await self._alone.run(self._then(partial(self._operations.undo, line_name)))

    async def redo(self) -> Reversal:
        """Do again the operation that was undone last; return what that did. Raises what `undo` raises."""
        return await self._alone.run(self._then(self._operations.redo))

    async def fork(
        self,
        target: Target | None = None,
        files: FilesChoice = "keep",
        chosen: Collection[str] | None = None,
    ) -> Forked:
        """Copy a world line (up to before `target`; None for all of the live one) into a new session.

        Files are brought back first, as an operation of this session, which the fork has too.

        Raises:
            KeyError: no such checkpoint or world line.
            FilesUnknown: the files of that time cannot be brought back; nothing changed.
            SoulBusy: something runs; interrupt it first.
            OSError: the disk refused.
        """
        return await self._alone.run(self._operations.fork(target or Target(END), files, chosen))


class Lines:
    """The world lines that were left, and all messages of each.

    Args:
        session: the session in which they are stored.
        conversation: the live world line.
        marks: the pins on their messages.
        flush: writes all published events into the record.
        alone: runs an operation that reads the complete live line.
    """

    def __init__(
        self,
        session: Session,
        conversation: Conversation,
        marks: UserMarks,
        flush: Callable[[], Awaitable[None]],
        alone: OneAtATime,
    ) -> None:
        self._session = session
        self._conversation = conversation
        self._marks = marks
        self._flush = flush
        self._alone = alone

    @cached_property
    def _reader(self) -> WorldLineReader:
        """The reader of world lines, imported when a line is looked at first."""
        from kimi_tui.soul.world_line_reader import WorldLineReader

        return WorldLineReader(self._session, self._conversation.files, self._conversation.figures)

    async def all(self) -> Sequence[WorldLine]:
        """Return the world lines that were left, in order of number. May be called at any time."""
        return await self._reader.world_lines()

    async def read(self, world_line: int) -> list[EventRecord]:
        """Return the events of one world line from its first checkpoint on, as a listener needs them to show it.

        Feed them to new models. They include D-Mails and summaries on the line, without the parts that these undid, and at
        the end the names and pins. It may be called at any time.

        Raises:
            KeyError: no such world line.
        """
        await self._flush()
        records = await self._reader.read(world_line)
        end = records[-1] if records else EventRecord(0, 0.0, self._marks.all)
        return [*records, end._replace(seq=end.seq + 1, event=self._marks.all)]

    async def summaries(self) -> Sequence[StoredSummary]:
        """Return the summaries on the live line, oldest first.

        Raises:
            SoulBusy: something runs.
        """
        return await self._alone.run(self._reader.summaries())

    async def compare(self, world_line: int) -> WorldLineComparison:
        """Compare another world line with the live one, from the fork on.

        Raises:
            KeyError: no such world line.
            SoulBusy: something runs.
        """
        await self._flush()
        return await self._alone.run(self._reader.compare(world_line))

    async def markdown(self, target: Target) -> str:
        """Return the conversation up to before the target as Markdown, with its tool calls; as stored, so clean it before it is shown.

        Raises:
            KeyError: no such checkpoint or world line.
        """
        return await self._reader.markdown(target)


class DMails:
    """D-Mails of the user to the agent's past self, and messages of other world lines sent to the present."""

    def __init__(self, user: UserDMails, alone: OneAtATime) -> None:
        self._user = user
        self._alone = alone

    @property
    def enabled(self) -> bool:
        """Whether the configuration lets D-Mails be sent in this session."""
        return self._user.conversation.limits.dmail.enabled

    async def preview(
        self, checkpoint_id: int, text: str, author: Author = "agent"
    ) -> RewindPreview:
        """Return what a D-Mail to a checkpoint of the live world line would drop; the user's messages and pins since then stay.

        Raises:
            KeyError: no such checkpoint.
        """
        return await self._user.delivery.preview(checkpoint_id, text, author)

    async def send(
        self,
        target: Target,
        text: str,
        files: FilesChoice = "keep",
        chosen: Collection[str] | None = None,
    ) -> RewindOutcome:
        """Send the user's D-Mail to the agent's past self: back to before `target`, with the D-Mail there.

        The user's messages since then, and pinned ones, come before it. Published as an agent's D-Mail is (`ContextReverted`
        with the author "person", `CheckpointCreated` of the kind "dmail", `LineChanged`). If the target is on another world
        line, that line becomes the live one first, in an operation of its own for undo.

        Args:
            target: the checkpoint whose place the D-Mail takes.
            text: the text of the D-Mail.
            files: whether the files of that time come back with it; `chosen` as for `rewind`.

        Raises:
            KeyError: no such checkpoint.
            SoulError: the text is empty, D-Mails are off, or the files of that time cannot be brought back.
            SoulBusy: something runs; interrupt it first.
            OSError: the disk refused.
        """
        return await self._alone.run(self._user.send(target, text, files, chosen))

    async def draft(self, target: Target) -> str:
        """Have the model draft a D-Mail to a checkpoint about what followed it; nothing of that is stored.

        Can be stopped by `interrupt`; returns an empty text then. The call counts in the session's totals.

        Raises:
            KeyError: no such checkpoint.
            LLMError, SoulError: there is no draft; `message` and `advice` are for the user.
            SoulBusy: something runs.
        """
        return await self._alone.run(self._user.draft(target), stoppable=True)

    async def carry(
        self, world_line: int, uid: str, number: int, *, note: str = ""
    ) -> RewindOutcome:
        """Send one message of another world line to the present: as a D-Mail at the end of the live one.

        Nothing is cut, and `ContextReverted` says so: its `from_checkpoint` is less than its `checkpoint_id`.

        Args:
            world_line: the number of the message's line.
            uid: its checkpoint.
            number: its number after that, markers not counted, as for a pin.
            note: a text of the user that comes before it.

        Raises:
            KeyError: no such message.
            SoulBusy: something runs; interrupt it first.
            OSError: the disk refused.
        """
        return await self._alone.run(self._user.carry(world_line, uid, number, note))


class Tasks:
    """The commands that run in the background."""

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs

    @property
    def all(self) -> tuple[Job, ...]:
        """The commands in the background: the running ones, and the newest of those that have ended."""
        return self._jobs.all

    async def stop(self, job_id: int) -> None:
        """Stop a background command; the model learns of it with the next message.

        Raises:
            KeyError: there is no command of that number.
        """
        job = self._jobs.get(job_id)
        if job is None:
            raise KeyError(f"There is no job {job_id}.")
        await self._jobs.stop(job)

    def move_to_background(self) -> bool:
        """Move the command that the agent waits for to the background, so that the turn goes on; return False if there is none."""
        return self._jobs.move_to_background()


class UserPermissions:
    """The permissions that the user has given: for the session, and for the work folder in every session.

    Args:
        approval: the approvals, which keep those of the session.
        work_dir: the work folder.
        servers: returns the MCP servers; None for none.
        hooks: the hooks of the session; None without hooks.
    """

    def __init__(
        self,
        approval: Approval,
        work_dir: Path,
        servers: Callable[[], McpServers | None],
        hooks: Hooks | None,
    ) -> None:
        self._approval = approval
        self._work_dir = work_dir
        self._servers = servers
        self._hooks = hooks

    @property
    def of_session(self) -> tuple[str, ...]:
        """The permissions given for the session, each in the words of the answer that gave it."""
        return self._approval.allowed

    def revoke(self, words: str) -> None:
        """Revoke one of the permissions in `of_session`."""
        self._approval.revoke(words)

    async def of_project(self) -> tuple[str, ...]:
        """Return the permissions for the work folder that hold in every session; `config.permissions.shown_rule` puts them
        in words. Those of the project's MCP servers are `server:NAME`.
        """
        servers = await asyncio.to_thread(lambda: self._stored_of_servers().allowed)
        return (*await self._approval.project_rules(), *(f"{_SERVER}{name}" for name in servers))

    async def revoke_for_project(self, rule: str) -> None:
        """Revoke one of `of_project`.

        Raises:
            OSError: the disk refused; it still holds.
            ValueError: the file of permissions is damaged.
        """
        if rule.startswith(_SERVER):
            name = rule.removeprefix(_SERVER)
            if (servers := self._servers()) is not None:
                await servers.revoke(name)
            else:
                await asyncio.to_thread(lambda: self._stored_of_servers().revoke(name))
            return
        await self._approval.revoke_for_project(rule)
        if rule.startswith("hooks:") and self._hooks is not None:
            self._hooks.folder_was_revoked()

    def _stored_of_servers(self) -> ServerPermissions:
        from kimi_tui.mcp.permissions import Permissions

        return Permissions(self._work_dir)

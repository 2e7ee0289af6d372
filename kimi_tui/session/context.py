"""The conversation as the model is sent it, and as `context.jsonl` holds it: how it grows and becomes another one.

Appends are one write each; operations are switches from one whole line to another. Nothing said is lost while this
object lives, whatever the disk does: what it refuses is kept and written later, and `trouble` says so meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from kimi_tui.llm.message import Message
from kimi_tui.session.errors import StorageTrouble
from kimi_tui.session.journal import Entry
from kimi_tui.session.line import LineIndex
from kimi_tui.session.line_files import line_path
from kimi_tui.session.line_keeper import LineKeeper, MakePlan, Plan
from kimi_tui.session.message_list import MessageCache, MessageList
from kimi_tui.session.opening import read_line
from kimi_tui.session.readable_line import ReadableLine
from kimi_tui.session.records import (
    Addition,
    Checkpoint,
    NewCheckpoint,
    Operation,
    encode_additions,
    message_line,
    system_prompt_line,
    usage_line,
)
from kimi_tui.session.reports import RestoreReport, Reverted
from kimi_tui.session.storage import Storage
from kimi_tui.session.stored_messages import StoredMessages
from kimi_tui.session.switching import NewLine
from kimi_tui.session.tokens import LineTokens


class Context(ReadableLine):
    """The live line of one session.

    Args:
        folder: The session's folder.
        storage: The disk.
        make_folder: Makes the folder again if it is gone.
    """

    def __init__(
        self,
        folder: Path,
        storage: Storage | None = None,
        make_folder: Callable[[], None] | None = None,
    ) -> None:
        disk = storage or Storage()
        make = make_folder or (lambda: disk.make_folder(folder))
        super().__init__(LineKeeper(folder, disk, make))

    def listen(
        self,
        on_trouble: Callable[[StorageTrouble | None], None],
        on_remark: Callable[[str], None],
    ) -> None:
        """Be told about the disk.

        Args:
            on_trouble: Called on the event loop when the disk begins to refuse, and with None when all is saved again.
            on_remark: Called with a sentence for the person when something was found that nobody expected.
        """
        self._keeper.on_trouble = on_trouble
        self._keeper.on_remark = on_remark
        if self.trouble is not None:
            on_trouble(self.trouble)

    async def restore(self) -> RestoreReport:
        """Read what is on the disk. Never raises on content.

        Raises:
            StorageTrouble: The file cannot be opened at all.
        """
        remarks: list[str] = []
        index = await self._keeper.open(remarks.append)
        return RestoreReport(
            messages=index.n_messages,
            checkpoints=len(index.checkpoints),
            skipped=tuple(index.skipped),
            n_skipped=index.n_skipped,
            n_unknown=index.n_unknown,
            torn_bytes=len(index.torn),
            remarks=tuple(remarks),
        )

    async def write_system_prompt(self, text: str) -> None:
        """Write the system prompt; once, before anything else."""
        await self._keeper.append(lambda: system_prompt_line(text))

    async def append_message(self, message: Message | Sequence[Message]) -> None:
        """Add messages, all in one write. What the disk refuses is kept and written later."""
        messages = [message] if isinstance(message, Message) else message
        data = b"".join(message_line(each) for each in messages)
        await self._keeper.append(lambda: data)

    async def checkpoint(self, add_user_message: bool) -> Checkpoint:
        """Make a checkpoint.

        Args:
            add_user_message: Also add the message that names it to the model.
        """
        made = 0

        def make() -> bytes:
            nonlocal made
            made = self.n_checkpoints
            return encode_additions([NewCheckpoint(marker=add_user_message)], made)

        await self._keeper.append(make)
        return self.checkpoint_of(made)

    async def update_token_count(self, tokens: int, *, estimated: bool = False) -> None:
        """Write what the server says the line holds, or an estimate where it says nothing."""
        await self._keeper.append(lambda: usage_line(tokens, estimated=estimated))

    async def revert_to(
        self,
        checkpoint_id: int,
        *,
        reason: Operation,
        text: str = "",
        then: Sequence[Addition] = (),
        files: Entry | None = None,
    ) -> Reverted:
        """Cut the line back to before a checkpoint; the line left becomes a world line. All of it happens, or nothing.

        Args:
            checkpoint_id: The first thing that goes.
            reason: Why.
            text: The letter of a D-Mail, or the like, for the journal.
            then: What the new line goes on with after the cut (a D-Mail's checkpoint and letter).
            files: An entry whose snapshots and paths the journal keeps with this operation.

        Raises:
            UnknownCheckpoint: There is none of that id.
            StorageTrouble: The disk refused; nothing changed.
        """

        async def plan() -> Plan:
            point = self.checkpoint_of(checkpoint_id)
            entry = files or Entry(op=reason)
            entry = replace(entry, op=reason, text=text, checkpoint_id=point.id, uid=point.uid)
            return self._cut(point.offset, encode_additions(then, point.id), entry)

        return await self.change_line(plan)

    async def clear(
        self, *, reason: Operation, text: str = "", then: Sequence[Addition] = ()
    ) -> Reverted:
        """Begin a new line with the same system prompt; the line left becomes a world line. All of it, or nothing.

        Args:
            reason: Why.
            text: The summary of a compaction, for the journal.
            then: What the new line holds (a compaction's checkpoint, summary, kept messages and token count).

        Raises:
            StorageTrouble: The disk refused; nothing changed.
        """

        async def plan() -> Plan:
            prompt = self.system_prompt
            extra = b"" if prompt is None else system_prompt_line(prompt)
            extra += encode_additions(then, 0)
            first = self.checkpoints[0].uid if self.checkpoints else ""
            return self._cut(0, extra, Entry(op=reason, text=text, checkpoint_id=0, uid=first))

        return await self.change_line(plan)

    def prepare_revert(self, checkpoint_id: int) -> None:
        """Somebody looks at what reverting to this checkpoint would take: make ready what can be made ready.

        Raises:
            UnknownCheckpoint: There is none of that id.
        """
        self._keeper.prepare_cut(self.checkpoint_of(checkpoint_id).offset)

    async def change_line(self, make_plan: MakePlan) -> Reverted:
        """Carry out an operation that is planned while nothing else can happen to the line. A cancel does not split it.

        Raises:
            StorageTrouble: The disk refused; nothing changed.
        """
        shared = 0

        async def planned() -> Plan:
            nonlocal shared
            plan = await make_plan()
            shared = plan.shared
            return plan

        entry, left = await self._keeper.change(planned)
        path = line_path(self.folder, entry.n)
        gone = range(left.messages_before(shared), left.n_messages)
        return Reverted(
            checkpoint_id=entry.checkpoint_id,
            uid=entry.uid,
            from_checkpoint=entry.from_checkpoint,
            world_line=entry.n,
            messages_kept=gone.start,
            messages_dropped=entry.messages_dropped,
            tool_calls_dropped=entry.tool_calls_dropped,
            tokens_before=entry.tokens_before,
            tokens_after=entry.tokens_after,
            dropped=StoredMessages(self.storage, path, left, gone),
            entry=entry,
        )

    def plan(self, new: NewLine, index: LineIndex, entry: Entry, shared: int) -> Plan:
        """Complete an operation's journal entry with what it drops and frees; only within `change_line`."""

        def read(size: int, offset: int) -> bytes:
            if offset >= new.keep:
                return new.extra[offset - new.keep :][:size]
            if new.source == 0:
                return self.read(size, offset)
            return read_line(self.storage, self.folder, new.source, size, offset)

        messages, calls = self.index.counts(self.index.messages_before(shared))
        texts = LineTokens().before(index, index.size, MessageList(index, read, MessageCache()))
        entry = replace(
            entry,
            from_checkpoint=self.n_checkpoints - 1,
            tokens_before=self.token_count,
            tokens_after=self._sent(index, index.size, texts),
            messages_dropped=messages,
            tool_calls_dropped=calls,
        )
        return Plan(new=new, index=index, entry=entry, shared=shared)

    async def sync(self) -> bool:
        """Bring everything to the disk, off the event loop; False if the disk refuses (then `trouble` says why)."""
        return await self._keeper.sync()

    async def aclose(self) -> None:
        """Save what there is and let go of the files. Look at `trouble` afterwards."""
        await self._keeper.aclose()

    def _cut(self, keep: int, extra: bytes, entry: Entry) -> Plan:
        index = self.index.prefix(keep)
        index.add(extra)
        return self.plan(NewLine(source=0, keep=keep, extra=extra), index, entry, shared=keep)

"""Reminders: `user` messages of the program to the model: a changed mode, notes of a folder, background commands that ended.

They are not in the system prompt, which stays the same to the byte for the provider's cache. They are appended before the
next step, behind the user's message or the last results, and only where this world line does not have them yet: after a
rewind to before a reminder it is sent again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path

from kimi_tui.foreign_text import one_line
from kimi_tui.llm.message import Message, user_message
from kimi_tui.prompts import prompt
from kimi_tui.soul.approval import Approval
from kimi_tui.soul.conversation import Conversation
from kimi_tui.soul.messages import quoted
from kimi_tui.soul.project_notes import left_out_words, notes_below, reminder
from kimi_tui.soul.tool_calls import CallResult
from kimi_tui.tools.credentials import find_keys, without_keys
from kimi_tui.tools.jobs import Job, Jobs
from kimi_tui.wire.events import Notice

_COMMAND_CHARS = 200


class Reminders:
    """The reminders of one session.

    Args:
        conversation: the live conversation.
        approval: knows the approval mode.
        work_dir: the work folder.
        jobs: the background commands.
        without_keys: whether API keys are left out of the notes of folders.
    """

    def __init__(
        self,
        conversation: Conversation,
        approval: Approval,
        work_dir: Path,
        jobs: Jobs,
        *,
        without_keys: bool = False,
    ) -> None:
        self._conversation = conversation
        self._approval = approval
        self._work_dir = work_dir
        self._jobs = jobs
        self._without_keys = without_keys
        self._told_jobs: tuple[int, set[int]] = (0, set())
        # Of plan mode the system prompt says nothing.
        self._first_mode = "ask" if approval.mode == "plan" else approval.mode

    async def due(self) -> list[Message]:
        """The reminders to append before the next step."""
        if self._approval.mode != self._first_mode:
            await self._conversation.load_memory()
        return [*self._of_mode(), *map(user_message, self._of_jobs())]

    async def of_folders(self, done: Sequence[CallResult]) -> list[Message]:
        """The notes of the folders whose files these calls used."""
        memory = self._conversation.memory
        if not (used := {path for each in done for path in each.noted or ()}):
            return []
        known = frozenset(memory.notes)
        notes = await asyncio.to_thread(
            notes_below, self._work_dir, used, known, no_keys=self._without_keys
        )
        if self._without_keys and (words := left_out_words(notes)):
            self._conversation.wire.publish(Notice("info", words))
        memory.notes.update(one.path for one in notes)
        return [reminder(one) for one in notes]

    def _of_mode(self) -> list[Message]:
        memory, mode = self._conversation.memory, self._approval.mode
        if not memory.known or mode == (memory.mode or self._first_mode):
            return []
        memory.mode = mode
        text = prompt(f"mode/{mode}")
        return [Message.model_validate({"role": "user", "content": text, "mode": mode})]

    def _of_jobs(self) -> Iterator[str]:
        """A text for each background command that has ended, and one for those that another world line began and that still run."""
        for job in self._jobs.take_ended():
            how = job.how_it_ended
            if self._without_keys:
                how = without_keys(how, find_keys(how))
            yield prompt("job_ended", ID=str(job.id), COMMAND=_command(job), HOW=quoted(how))
        conversation = self._conversation
        n_changes, told = self._told_jobs
        if n_changes != conversation.n_changes:
            told = set[int]()
        running = [job for job in self._jobs.running if job.id not in told]
        if running:
            uids = {point.uid for point in conversation.context.checkpoints}
            running = [job for job in running if job.key.rpartition(":")[0] not in uids]
        if running:
            listed = "\n".join(f"- {job.id}: `{_command(job)}`" for job in running)
            yield prompt("jobs_running", JOBS=listed)
        self._told_jobs = conversation.n_changes, told.union(job.id for job in running)


def _command(job: Job) -> str:
    return quoted(one_line(job.command)[:_COMMAND_CHARS])

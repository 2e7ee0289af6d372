"""What the program has to tell the model besides: changed modes, the notes of a folder, commands that have ended.

None of it may stand in the system prompt, which stays the same to the byte. It comes as messages of its own, behind the
user's words or the results of a step, and only where this world line does not have it yet: whoever goes back to before a
reminder is reminded again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from kimi_tui.foreign_text import one_line
from kimi_tui.llm.message import Message, user_message
from kimi_tui.prompts import prompt
from kimi_tui.soul import project_notes
from kimi_tui.soul.approval import Approval
from kimi_tui.soul.conversation import Conversation
from kimi_tui.soul.tool_calls import CallResult
from kimi_tui.tools.jobs import Job, Jobs

_COMMAND_CHARS = 200


class Reminders:
    """The reminders of one session.

    Args:
        conversation: the live conversation.
        approval: has the mode.
        work_dir: the session's folder.
        jobs: the commands in the background.
    """

    def __init__(
        self, conversation: Conversation, approval: Approval, work_dir: Path, jobs: Jobs
    ) -> None:
        self._conversation = conversation
        self._approval = approval
        self._work_dir = work_dir
        self._jobs = jobs
        self._known_jobs: tuple[int, set[int]] = (conversation.n_changes, set())
        # Of plan mode the system prompt says nothing.
        self._first_mode = "ask" if approval.mode == "plan" else approval.mode

    async def after_words(self) -> list[Message]:
        """What to tell with what the user says."""
        if self._approval.mode != self._first_mode:
            await self._conversation.remember()
        return [*self._of_mode(), *self._of_jobs(())]

    async def after_step(self, done: Sequence[CallResult]) -> list[Message]:
        """What to tell with the results of a step's calls."""
        memory = self._conversation.memory
        used = {path for each in done for path in each.noted or ()}
        notes = (
            await asyncio.to_thread(
                project_notes.notes_below, self._work_dir, used, frozenset(memory.notes)
            )
            if used
            else ()
        )
        memory.notes.update(one.path for one in notes)
        return [*map(project_notes.reminder, notes), *self._of_mode(), *self._of_jobs(done)]

    def _of_mode(self) -> list[Message]:
        memory, mode = self._conversation.memory, self._approval.mode
        if not memory.known or mode == (memory.mode or self._first_mode):
            return []
        memory.mode = mode
        text = prompt(f"mode/{mode}")
        return [Message.model_validate({"role": "user", "content": text, "mode": mode})]

    def _of_jobs(self, done: Sequence[CallResult]) -> list[Message]:
        """What has ended since it was told last, and what runs on though this world line does not know of it."""
        found = [
            prompt("job_ended", ID=str(job.id), COMMAND=_command(job), HOW=job.how_it_ended)
            for job in self._jobs.take_ended()
        ]
        n_changes, known = self._known_jobs
        if n_changes != self._conversation.n_changes:
            known = set[int]()
        keys = {each.call.key for each in done}
        unknown = [job for job in self._jobs.running if job.id not in known and job.key not in keys]
        if unknown:
            listed = "\n".join(f"- {job.id}: `{_command(job)}`" for job in unknown)
            found.append(prompt("jobs_running", JOBS=listed))
        self._known_jobs = self._conversation.n_changes, {job.id for job in self._jobs.running}
        return [user_message(text) for text in found]


def _command(job: Job) -> str:
    return one_line(job.command)[:_COMMAND_CHARS]

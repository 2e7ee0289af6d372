"""What the program has to tell the model besides: changed modes, the notes of a folder, commands that have ended.

None of it may stand in the system prompt, which stays the same to the byte. It comes as messages of its own, behind the
user's words or the results of a step, and only where this world line does not have it yet: whoever goes back to before a
reminder is reminded again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from kimi_tui.llm.message import Message
from kimi_tui.prompts import prompt
from kimi_tui.soul import project_notes
from kimi_tui.soul.approval import Approval
from kimi_tui.soul.conversation import Conversation
from kimi_tui.soul.tool_calls import CallResult


class Reminders:
    """The reminders of one session.

    Args:
        conversation: the live conversation.
        approval: has the mode.
        work_dir: the session's folder.
    """

    def __init__(self, conversation: Conversation, approval: Approval, work_dir: Path) -> None:
        self._conversation = conversation
        self._approval = approval
        self._work_dir = work_dir
        # Of plan mode the system prompt says nothing.
        self._first_mode = "ask" if approval.mode == "plan" else approval.mode

    async def after_words(self) -> list[Message]:
        """What to tell with what the user says."""
        if self._approval.mode != self._first_mode:
            await self._conversation.remember()
        return self._of_mode()

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
        return [*map(project_notes.reminder, notes), *self._of_mode()]

    def _of_mode(self) -> list[Message]:
        memory, mode = self._conversation.memory, self._approval.mode
        if not memory.known or mode == (memory.mode or self._first_mode):
            return []
        memory.mode = mode
        text = prompt(f"mode/{mode}")
        return [Message.model_validate({"role": "user", "content": text, "mode": mode})]

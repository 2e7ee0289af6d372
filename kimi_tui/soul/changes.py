"""`FileChanges`, a part of the engine: what changed since the session or a turn began, between checkpoints, and in git; the
message of a commit.

Changes of the session come from the snapshots of the work folder, those against a branch or the last commit from git.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from kimi_tui.daemon_threads import in_daemon_thread
from kimi_tui.foreign_text import clean
from kimi_tui.llm.completion import complete
from kimi_tui.llm.errors import ContextOverflowError
from kimi_tui.llm.message import Message
from kimi_tui.prompts import prompt
from kimi_tui.session.schema import Checkpoint
from kimi_tui.session.session import Session
from kimi_tui.soul.blame import Authors, BlamedLine, LineAuthor, LineOfDiff, SessionAuthors
from kimi_tui.soul.conversation import Conversation
from kimi_tui.soul.errors import SoulError
from kimi_tui.soul.git_changes import GitChanges, changes_against, changes_to_commit
from kimi_tui.soul.messages import is_user_words
from kimi_tui.soul.patches import PointRange
from kimi_tui.soul.tasks import OneAtATime
from kimi_tui.tools.credentials import find_keys, redact_keys
from kimi_tui.workspace.diff import Changes, patch_of

MOST_PATCH_CHARS = 120_000
"""The largest number of characters of changes that go to the model for a review."""
_COMMIT_CHARS = 48_000
_TRIES = 3
_MOST_MESSAGE = 4_000


class NamedChanges(NamedTuple):
    """Changes, with what they are in words: `since the session began`."""

    changes: Changes
    what: str


class FileChanges:
    """The changes in the work folder.

    Args:
        conversation: the live conversation.
        work_dir: the work folder.
        environ: the environment of the program.
        asks_for_keys: whether keys are left out of what is sent to the model.
        alone: runs what calls the model.
    """

    def __init__(
        self,
        conversation: Conversation,
        work_dir: Path,
        environ: Mapping[str, str],
        asks_for_keys: bool,
        alone: OneAtATime,
    ) -> None:
        self._conversation = conversation
        self._work_dir = work_dir
        self._environ = environ
        self._asks_for_keys = asks_for_keys
        self._alone = alone
        self._authors: SessionAuthors | None = None

    async def of_session(self) -> NamedChanges:
        """Return the changes since the session began, whoever made them."""
        return NamedChanges(await self._conversation.files.changes(None), "since the session began")

    async def of_turn(self) -> NamedChanges:
        """Return the changes since the user's last message."""
        last = await in_daemon_thread(self._last_of_user)
        if last is None:
            return NamedChanges(Changes(), "since your last message")
        changes = await self._conversation.files.changes(last)
        return NamedChanges(changes, f"since your last message, #{last.id}")

    async def between(self, start: int, end: int | None) -> NamedChanges:
        """Return the changes between two checkpoints of the current world line; `end` None means now.

        Raises:
            KeyError: there is no such checkpoint; the text is for the user.
        """
        first = self._point(start)
        last = None if end is None else self._point(end)
        changes = await self._conversation.files.changes(first, last)
        until = "" if end is None else f" to #{end}"
        return NamedChanges(
            changes, f"from #{start}{until}" if end is not None else f"since #{start}"
        )

    async def blame(self, session: Session, path: str) -> list[BlamedLine]:
        """Return the lines of a file as it is now, each with who wrote it.

        Args:
            session: the session, whose record is written out.
            path: the file, relative to the work folder.

        Raises:
            NoBlame: its lines have no known authors; the text is for the user.
        """
        return await self._conversation.files.blame(path, await self._authors_of(session))

    async def line_author(
        self, session: Session, line: LineOfDiff, step: str = "", span: PointRange | None = None
    ) -> LineAuthor:
        """Return who wrote a line of a diff.

        Args:
            session: the session, whose record is written out.
            line: the line.
            step: the uid of the checkpoint of the step whose diff it is; empty for one of `between` and `of_session`.
            span: the checkpoints of that one.

        Raises:
            NoBlame: no snapshot has the line; the text is for the user.
            KeyError: there is no such checkpoint; the text is for the user.
        """
        start, end = span or (None, None)
        ends = (
            None if start is None else self._point(start),
            None if end is None else self._point(end),
        )
        authors = await self._authors_of(session)
        return await self._conversation.files.line_author(line, authors, step, ends)

    async def _authors_of(self, session: Session) -> Authors:
        if self._authors is None:
            self._authors = SessionAuthors(session)
        return await in_daemon_thread(self._authors.read)

    async def against(self, base: str) -> GitChanges:
        """Return the changes since the working files left a branch or a commit.

        Raises:
            NoGitChanges: they cannot be shown.
        """
        return await asyncio.to_thread(changes_against, self._work_dir, self._environ, base)

    async def to_commit(self) -> GitChanges:
        """Return the staged changes; if there are none, all that could be committed.

        Raises:
            NoGitChanges: they cannot be shown, or there are none.
        """
        return await asyncio.to_thread(changes_to_commit, self._work_dir, self._environ)

    async def draft_message(self, found: GitChanges) -> str:
        """Have the model write the message of a commit. Nothing of that is stored; it can be stopped by `interrupt`.

        Returns:
            the message, clean; empty if the call was stopped.

        Raises:
            LLMError: the model could not be asked.
            SoulBusy: something runs.
            SoulError: the model wrote nothing.
        """
        return await self._alone.run(self._draft(found), stoppable=True)

    async def note_on(self, system: str, question: str) -> str:
        """Have the model write a note about something. Nothing of that is stored; it can be stopped by `interrupt`.

        Returns:
            the note, clean; empty if the call was stopped, or the model wrote nothing.

        Raises:
            LLMError: the model could not be asked.
            SoulBusy: something runs.
        """
        return await self._alone.run(self._note(system, question), stoppable=True)

    async def _note(self, system: str, question: str) -> str:
        async with self._conversation.model.call() as provider:
            asked = self._conversation.model.ask(
                provider, system, (), (Message(role="user", content=question),), patient=False
            )
            try:
                completion = await complete(asked)
            except asyncio.CancelledError:
                return ""
        self._conversation.meter.add_usage(completion.usage)
        self._conversation.publish_status()
        return clean(completion.message.text).strip()

    def patch(self, changes: Changes, most_chars: int = MOST_PATCH_CHARS) -> str:
        """Return changes as text for the model, without keys if the user wants that. It reads all of it, so call it in a thread."""
        text = patch_of(changes.files, most_chars)
        return redact_keys(text, find_keys(text)) if self._asks_for_keys else text

    def _last_of_user(self) -> Checkpoint | None:
        """Return the checkpoint of the user's last message; None if they have said nothing on this world line."""
        context = self._conversation.context
        messages, points = context.messages, context.checkpoints
        for place in range(len(messages) - 1, -1, -1):
            if is_user_words(messages[place]):
                before = (one for one in reversed(points) if one.message_index <= place)
                return next(before, None)
        return None

    def _point(self, number: int) -> Checkpoint:
        return self._conversation.context.index.checkpoint(number)

    async def _draft(self, found: GitChanges) -> str:
        listed = "\n".join(f"- {one}" for one in found.subjects)
        subjects = f"The last commits:\n{listed}\n\n" if listed else ""
        most = _COMMIT_CHARS
        async with self._conversation.model.call() as provider:
            for attempt in range(_TRIES):
                changes = await asyncio.to_thread(self.patch, found.changes, most)
                text = prompt("commit_message", SUBJECTS=subjects, CHANGES=changes)
                question = Message(role="user", content=text)
                system = prompt("commit_message_system")
                try:
                    asked = self._conversation.model.ask(
                        provider, system, (), (question,), patient=False
                    )
                    completion = await complete(asked)
                except asyncio.CancelledError:
                    return ""
                except ContextOverflowError:
                    if attempt == _TRIES - 1:
                        raise
                    most //= 4
                else:
                    self._conversation.meter.add_usage(completion.usage)
                    self._conversation.publish_status()
                    return _message_in(completion.message.text)
        return ""


def _message_in(text: str) -> str:
    """Return the message in an answer, without the code block that models put around it."""
    lines = clean(text).strip()[:_MOST_MESSAGE].split("\n")
    if lines[0].startswith("```"):
        lines = lines[1:]
        if "```" in lines:
            lines = lines[: lines.index("```")]
    message = "\n".join(line.rstrip() for line in lines).strip()
    if not message:
        raise SoulError("The model wrote no message.", advice="Try again, or write it yourself.")
    return message

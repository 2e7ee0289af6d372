"""`SessionCatalog`: reads and changes sessions on the disk for the sessions screen. All of it blocks, so call it in threads.

It imports the `session` package, so it is imported after the first paint.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from kimi_tui.app_paths import short
from kimi_tui.foreign_text import one_line
from kimi_tui.invocation import command_words
from kimi_tui.session.listing import PreviewMessage, describe, last_said, searched_words
from kimi_tui.session.lock import holder_of
from kimi_tui.session.moved_folder import former_folders
from kimi_tui.session.store import TRASH_DAYS, SessionStore
from kimi_tui.tui.formatting import age, counted, size_words, tokens

PREVIEWED = 12
"""The number of messages in a preview."""


AGENT_CHARS = 24
"""Characters of the name of an external agent that are shown."""


@dataclass(eq=False)
class SessionRow:
    """A session as the sessions screen lists it.

    Attributes:
        folder: the folder of its files.
        id: its id.
        title: its title.
        work_dir: its work folder, absolute; may not exist any more.
        place: the work folder for display.
        age: the time since it was written to, in words.
        messages: the number of messages, in words; empty if only reading the whole session would tell.
        facts: further facts, for the preview.
        forked_from: the id of the session that it is a fork of; empty for none.
        archived: whether it is archived.
        held: the process that has it open; empty for none.
        external_agent: the title of the external agent that does its turns; empty for our own agent.
        agent: the other agent whose session it is, not imported yet; empty for one of ours.
        words: the user's messages, for the search; None until they were read.
    """

    folder: Path
    id: str
    title: str
    work_dir: str
    place: str
    age: str
    messages: str = ""
    facts: str = ""
    forked_from: str = ""
    archived: bool = False
    held: str = ""
    external_agent: str = ""
    agent: str = ""
    words: str | None = field(default=None, repr=False)

    @property
    def name(self) -> str:
        """The title, folder and external agent in lower case, for the search."""
        return f"{self.title}\n{self.place}\n{self.external_agent}".casefold()


class SessionCatalog:
    """The sessions of one data folder.

    Args:
        root: the data folder.
        work_dir: the work folder whose sessions are those of "this folder".
        own_id: the id of the session that is open in this program; empty for none.

    Attributes:
        store: the sessions.
    """

    def __init__(self, root: Path, work_dir: Path, own_id: str = "") -> None:
        self.store = SessionStore(root)
        self._work_dir = work_dir
        self._own_id = own_id
        # The missing folders that may be the work folder under a former name, and whether they certainly are.
        self._former: dict[str, bool] = {}

    def folders(self, *, everywhere: bool) -> list[Path]:
        """Return the folders of the sessions, the newest first: of all of them, or of those of the work folder.

        The latter are followed by those of a missing folder that may be the work folder under a former name.
        """
        if everywhere:
            return self.store.newest_first()
        former = former_folders(self.store, self._work_dir)
        self._former = {one.path: one.is_same for one in former}
        return [
            *self.store.newest_first(self._work_dir),
            *(folder for one in former for folder in one.sessions),
        ]

    def described(self, folders: Sequence[Path]) -> list[SessionRow]:
        """Return a row for each session in these folders that is not empty."""
        return [row for folder in folders if (row := self._row(folder)) is not None]

    def _row(self, folder: Path) -> SessionRow | None:
        info = describe(folder)
        if info is None:
            return None
        now = datetime.now(UTC)
        is_its_own = self.store.is_of(folder, info.work_dir)
        work_dir = info.work_dir if is_its_own else str(self._work_dir)
        is_gone = not os.path.lexists(work_dir)
        facts = [
            *([self._gone_words(work_dir)] if is_gone else []),
            *([counted(info.messages, "message")] if info.messages is not None else []),
            *([f"{tokens(info.tokens)} tokens"] if info.tokens is not None else []),
            # Only the timeline shows how many world lines have something of their own.
            *([f"{size_words(info.world_lines_bytes)} of world lines"] if info.world_lines else []),
        ]
        return SessionRow(
            folder=folder,
            id=info.id,
            title=one_line(info.title),
            work_dir=work_dir,
            place=one_line(short(Path(work_dir))),
            age=age(datetime.fromtimestamp(info.updated_at, UTC), now),
            messages="" if info.messages is None else f"{info.messages:,}",
            facts=", ".join(facts),
            forked_from=one_line(info.forked_from),
            archived=info.archived,
            external_agent=self._title_of(info.external_agent),
            held="" if info.id == self._own_id else holder_of(folder) or "",
        )

    @staticmethod
    def _title_of(external_agent: str) -> str:
        """Return the title of an external agent; empty for none."""
        if not external_agent:
            return ""
        from kimi_tui.external.agents import title_of

        return one_line(title_of(external_agent))[:AGENT_CHARS]

    def _gone_words(self, work_dir: str) -> str:
        match self._former.get(work_dir):
            case True:
                return "its folder was renamed or moved; Enter continues it in this folder"
            case False:
                return "its folder no longer exists; Enter continues it in this folder"
            case None:
                return "its folder no longer exists"

    @staticmethod
    def search(rows: Sequence[SessionRow], parts: Sequence[str]) -> list[SessionRow]:
        """Return the rows that contain each of these words, in lower case, in their name or in the user's messages."""
        found: list[SessionRow] = []
        for row in rows:
            if row.words is None:
                row.words = searched_words(row.folder)
            if all(part in row.name or part in row.words for part in parts):
                found.append(row)
        return found

    @staticmethod
    def last_said(row: SessionRow) -> list[PreviewMessage]:
        """Return the last messages of a session."""
        return last_said(row.folder, PREVIEWED)

    @staticmethod
    def holder(row: SessionRow) -> str:
        """Return the process that has a session open now; empty for none."""
        return holder_of(row.folder) or ""

    def rename(self, row: SessionRow, title: str) -> None:
        """Set the title of a session; an empty one resets it to the beginning of the first message.

        Raises:
            SessionError: another process has it open, or the disk refused.
        """
        self.store.note(self.store.at(row.folder), title=title)

    def archive(self, row: SessionRow, archived: bool) -> None:
        """Archive a session, or bring it back into the usual list.

        Raises:
            SessionError: another process has it open, or the disk refused.
        """
        self.store.note(self.store.at(row.folder), archived=archived)

    def move_to_trash(self, row: SessionRow) -> str:
        """Move a session to the trash. Returns a sentence on where it is.

        Raises:
            SessionError: another process has it open, or the disk refused.
        """
        thrown = self.store.move_to_trash(self.store.at(row.folder))
        command = command_words("sessions", "restore", row.id[:8])
        return f"It is in {short(thrown.parent)} for {TRASH_DAYS} days; {command} restores it."

    @property
    def trash_words(self) -> str:
        """Where a deleted session stays and for how long: the end of a sentence."""
        return f"{short(self.store.trash)} for {TRASH_DAYS} days"

    async def fork(self, row: SessionRow) -> str:
        """Copy a session into a new one. Returns the id of that. Reads files in a thread.

        Raises:
            SessionError: the disk refused.
        """
        return (await self.store.at(row.folder).fork()).id

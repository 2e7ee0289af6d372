"""`OtherSessions`: the sessions of other agents for the sessions screen, to look at and to import. All of it blocks: call it in threads.

It imports the readers of their files, so it is imported when the screen has nothing else to do.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from pathlib import Path

from kimi_tui.app_paths import short
from kimi_tui.display_names import counted
from kimi_tui.foreign_text import one_line
from kimi_tui.migration.agents import (
    AGENTS,
    FILES_WORDS,
    find_sessions,
    import_session,
    losses_words,
    place_of,
    read_session,
)
from kimi_tui.migration.plain import CannotRead, FoundSession, PlainSession
from kimi_tui.session.errors import SessionError
from kimi_tui.session.listing import PreviewMessage
from kimi_tui.session.store import SessionStore
from kimi_tui.tui.formatting import age, size_words
from kimi_tui.tui.sessions.catalog import PREVIEWED, SessionRow

log = logging.getLogger(__name__)

MOST_LOOKED_AT = 32 << 20
"""Bytes of a session that is read for its preview; a larger one is read when it is imported."""
_MOST_CHARS = 2_000


class OtherSessions:
    """The sessions of other agents that are not imported yet.

    Args:
        store: our sessions.
        work_dir: the work folder whose sessions are those of "this folder".

    Attributes:
        n_here: how many this folder has.
    """

    def __init__(self, store: SessionStore, work_dir: Path) -> None:
        self._store = store
        self._work_dir = work_dir
        self._found: dict[str, FoundSession] = {}
        self._read: tuple[str, PlainSession] | None = None
        self.n_here = 0

    def find(self) -> str:
        """Look for the sessions of this folder; return a sentence on how many each agent has, empty for none."""
        counts: list[str] = []
        here = self._sessions(self._work_dir)
        self.n_here = len(here)
        for name, agent in AGENTS.items():
            count = sum(found.agent == name for found in here)
            if count:
                counts.append(counted(count, f"{agent.title} session"))
        if not counts:
            return ""
        *most, last = counts
        return f"{', '.join(most)} and {last} in this folder" if most else f"{last} in this folder"

    def rows(self, *, everywhere: bool) -> list[SessionRow]:
        """Return a row for each session of this folder or of all, the newest first."""
        now = datetime.now(UTC)
        rows: list[SessionRow] = []
        self._found.clear()
        for found in self._sessions(None if everywhere else self._work_dir):
            target = place_of(self._store, found)
            self._found[target.name] = found
            agent = AGENTS[found.agent].title
            rows.append(
                SessionRow(
                    folder=target,
                    id=target.name,
                    title=one_line(found.title) or "Untitled",
                    work_dir=found.work_dir,
                    place=f"{agent}: {short(Path(found.work_dir))}" if everywhere else agent,
                    age=age(datetime.fromtimestamp(found.updated_at, UTC), now),
                    facts=size_words(found.size) if found.size else "",
                    agent=agent,
                )
            )
        return rows

    def _sessions(self, work_dir: Path | None) -> list[FoundSession]:
        sessions: list[FoundSession] = []
        for agent in AGENTS.values():
            try:
                found = find_sessions(agent, work_dir)
            except (CannotRead, OSError) as trouble:
                log.info("sessions of %s: %s", agent.name, trouble)
                continue
            sessions += [one for one in found if not place_of(self._store, one).exists()]
        return sorted(sessions, key=lambda one: (one.updated_at, one.id), reverse=True)

    def look(self, row: SessionRow) -> list[PreviewMessage]:
        """Read a session; return its last messages, and put what it has, and what would be left out, into the facts of its row."""
        found = self._found.get(row.id)
        if found is None or found.size > MOST_LOOKED_AT:
            return []
        try:
            plain = self._whole(found, row.id)
        except CannotRead as trouble:
            row.facts = one_line(str(trouble))
            return []
        messages, calls, compactions = plain.counts()
        row.messages = f"{messages:,}"
        facts = [
            counted(messages, "message"),
            *([counted(calls, "tool call")] if calls else []),
            *([counted(len(plain.leaves()), "fork")] if plain.leaves() else []),
            *([counted(compactions, "compaction")] if compactions else []),
        ]
        if left_out := losses_words(plain.losses).rstrip("."):
            facts.append(f"{left_out[0].lower()}{left_out[1:]}")
        row.facts = ", ".join(facts)
        said = [
            PreviewMessage(
                "user" if entry.kind == "said" else "assistant", entry.text[:_MOST_CHARS]
            )
            for entry in map(plain.entries.__getitem__, plain.path_to(plain.last))
            if entry.kind != "summary" and entry.text.strip()
        ]
        return said[-PREVIEWED:]

    def take(self, row: SessionRow) -> str:
        """Import a session; return a sentence on what was left out.

        Raises:
            SessionError: it cannot be read, or the disk refused.
        """
        found = self._found.get(row.id)
        if found is None:
            raise SessionError(
                "This session no longer exists: its agent deleted or moved it. Esc goes back."
            )
        try:
            plain = self._whole(found, row.id)
            import_session(self._store, plain)
        except CannotRead as trouble:
            raise SessionError(str(trouble)) from trouble
        self._read = None
        self.n_here -= Path(found.work_dir) == self._work_dir
        return f"{losses_words(plain.losses)} {FILES_WORDS}".strip()

    def _whole(self, found: FoundSession, name: str) -> PlainSession:
        if self._read is None or self._read[0] != name:
            self._read = (name, read_session(found))
        return self._read[1]

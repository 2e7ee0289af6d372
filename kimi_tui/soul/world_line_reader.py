"""Reads world lines for a screen: the list of them, one of them (also as Markdown), and a comparison with the live line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from kimi_tui.daemon_threads import in_daemon_thread
from kimi_tui.projection.tokens import CheckpointTokens, DMailCuts
from kimi_tui.session.schema import Checkpoint
from kimi_tui.session.session import Session
from kimi_tui.session.world_lines import WorldLine, shared_checkpoints
from kimi_tui.soul.conversation_text import as_markdown
from kimi_tui.soul.file_history import FileHistory
from kimi_tui.soul.history import session_history
from kimi_tui.soul.messages import (
    segments,
    summary_text,
)
from kimi_tui.soul.rebuilt_history import rebuild_world_line
from kimi_tui.soul.record import read_stored
from kimi_tui.soul.rewind_values import Target
from kimi_tui.soul.stored_agents import agents_as_markdown
from kimi_tui.wire.events import ContextReverted, EventRecord
from kimi_tui.workspace.diff import Divergence


@dataclass(frozen=True, slots=True)
class WorldLineComparison:
    """A comparison of the live line with another world line, from the fork on.

    Attributes:
        world_line: The number of the other line, which was left.
        fork: The id of the newest checkpoint that both have, -1 if they share none.
        shared_tokens: Tokens in the window at the fork; 0 if that is not known.
        live, other: The events of each side from the fork on, as `Lines.read` returns them.
        files: The working files that differ from the fork on either side.
    """

    world_line: int
    fork: int
    live: Sequence[EventRecord]
    other: Sequence[EventRecord]
    files: Divergence
    shared_tokens: int = 0


class StoredSummary(NamedTuple):
    """A summary on a world line: the number and the uid of its checkpoint, and its text as stored."""

    checkpoint_id: int
    uid: str
    text: str


@dataclass(frozen=True, slots=True)
class WorldLineReader:
    """Reads the world lines of one session. Files are read in threads."""

    session: Session
    files: FileHistory
    figures: CheckpointTokens

    async def world_lines(self) -> Sequence[WorldLine]:
        """Return the world lines that were left, in order of number."""
        session = self.session
        return await in_daemon_thread(session.world_lines.list, session.context.world_line)

    async def read(self, world_line: int) -> list[EventRecord]:
        """Return the events of a world line, as `history` rebuilds them.

        Raises:
            KeyError: no such world line.
        """
        session = self.session

        def read() -> list[EventRecord]:
            stored = read_stored(session)
            return rebuild_world_line(
                session,
                stored.records,
                world_line,
                self._dmails(stored.records),
                incomplete=stored.incomplete,
            )

        return await in_daemon_thread(read)

    def _dmails(self, records: Sequence[EventRecord]) -> dict[str, ContextReverted]:
        """Return the deliveries of D-Mails by the uids of their checkpoints, with the server's later token figures."""
        sent = DMailCuts()
        for record in records:
            sent.apply(record.event)
        left = ((uid, cut, self.figures.left_by(uid)) for uid, cut in sent.all)
        return {
            uid: replace(cut, tokens_after=figure.tokens) if figure is not None else cut
            for uid, cut, figure in left
        }

    async def markdown(self, target: Target) -> str:
        """Return a world line as Markdown: up to before one of its checkpoints, or all of it.

        Raises:
            KeyError: no such checkpoint or world line.
        """
        line = await in_daemon_thread(self.session.world_line, target.world_line)
        end = None if target.is_end else line.index.checkpoint(target.id).message_index
        # Messages that are appended during the export do not belong to the copy.
        kept = line.messages[: len(line.messages) if end is None else end]
        agents = await agents_as_markdown(self.session)
        return await in_daemon_thread(as_markdown, kept, agents)

    async def summaries(self) -> Sequence[StoredSummary]:
        """Return the summaries on the live line, oldest first."""
        parts = await in_daemon_thread(segments, self.session.context.world_line)
        return [
            StoredSummary(part.point.id, part.point.uid, text)
            for part in parts
            for message in part.messages
            if (text := summary_text(message)) is not None
        ]

    async def compare(self, world_line: int) -> WorldLineComparison:
        """Compare a world line that was left with the live one, from the fork on.

        Raises:
            KeyError: no such world line.
        """
        line = self.session.context.world_line
        other = await in_daemon_thread(self.session.world_line, world_line)
        shared = await in_daemon_thread(shared_checkpoints, line, other)
        live, points = line.checkpoints, other.checkpoints

        def read() -> list[list[EventRecord]]:
            session = self.session
            stored, dmails = read_stored(session), self._dmails(session_history(session))
            return [
                rebuild_world_line(session, stored.records, n, dmails, shared, stored.incomplete)
                for n in (0, world_line)
            ]

        of_live, of_other = await in_daemon_thread(read)
        figure = self.figures.get(live[shared].uid) if 0 < shared < len(live) else None
        return WorldLineComparison(
            world_line=world_line,
            fork=live[shared - 1].id if shared else -1,
            live=of_live,
            other=of_other,
            files=await self._diverged_files(live, points, shared),
            shared_tokens=figure.tokens if figure is not None else 0,
        )

    async def _diverged_files(
        self, live: Sequence[Checkpoint], other: Sequence[Checkpoint], shared: int
    ) -> Divergence:
        """Return the files that the live world line and another one, which share their first checkpoints, changed differently."""
        if not other:
            return Divergence(reason="That world line has no checkpoint.")
        newest = _names(other[-1:])
        begins = [*_names(live[shared : shared + 1]), *_names(other[shared : shared + 1])]
        return await self.files.divergence(begins or newest, newest)


def _names(points: Sequence[Checkpoint]) -> list[str]:
    """Return the uids of checkpoints before a compaction, and their present ones."""
    return [name for point in points for name in (point.was, point.uid) if name]

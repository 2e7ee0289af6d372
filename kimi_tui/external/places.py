"""`AgentPlaces`: up to which message of the context each session of an external agent knows the conversation.

A session of the agent grows with its turns and cannot be cut. After a rewind or a switch the one that stands nearest before the
end of the context goes on, or a copy of it; what it does not know is told to it as text. The file is `external.json` in the
session's folder. A copy of the session has none: two programs must not continue one session of the agent.

Copies that were made at the agent stand in its own list of sessions, so that they are noted, too: those that no world line needs
any more can be deleted there.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from kimi_tui import lenient_json
from kimi_tui.filesystem import Storage, read_regular
from kimi_tui.session.context import Context
from kimi_tui.session.errors import SessionError
from kimi_tui.session.jsonl import parse
from kimi_tui.session.rotation import stored_world_lines
from kimi_tui.session.schema import count_of
from kimi_tui.session.session import Session

FILE_NAME = "external.json"
_MOST_BYTES = 1 << 20
_MOST_PLACES = 500
_MOST_COPIES = 2_000


class AgentPlace(NamedTuple):
    """A session of the agent, and the end of what it knows.

    Attributes:
        session: its id.
        uid: the checkpoint after which it ends; empty if it knows nothing.
        number: the number of messages after that checkpoint that it knows.
    """

    session: str
    uid: str = ""
    number: int = 0


class AgentPlaces:
    """The places of one agent's sessions.

    Args:
        folder: the folder of the session.
        storage: the disk.
        agent: the name of the agent; places of another one do not count.
    """

    def __init__(self, folder: Path, storage: Storage, agent: str) -> None:
        self._folder = folder
        self._storage = storage
        self._agent = agent
        self._places: list[AgentPlace] = []
        self._copies: dict[str, None] = {}

    def read(self) -> None:
        """Read the file; without a readable one there are no places. It blocks, so call it in a thread."""
        with contextlib.suppress(OSError):
            record = lenient_json.mapping(
                parse(read_regular(self._folder / FILE_NAME, _MOST_BYTES))
            )
            if record.get("agent") != self._agent:
                return
            for item in lenient_json.listing(record.get("places"))[-_MOST_PLACES:]:
                fields = lenient_json.mapping(item)
                session = lenient_json.text(fields.get("session"))
                number = count_of(fields.get("messages"))
                if session and number is not None:
                    place = AgentPlace(session, lenient_json.text(fields.get("uid")), number)
                    self._places.append(place)
            for one in lenient_json.listing(record.get("copies"))[-_MOST_COPIES:]:
                if isinstance(one, str) and one:
                    self._copies[one] = None

    def write(self) -> None:
        """Write the file; a refusal of the disk only costs the agent's own memory. It blocks, so call it in a thread."""
        record = {
            "version": 1,
            "agent": self._agent,
            "places": [
                {"session": one.session, "uid": one.uid, "messages": one.number}
                for one in self._places
            ],
            "copies": [*self._copies],
        }
        with contextlib.suppress(OSError):
            data = json.dumps(record, indent=1).encode() + b"\n"
            self._storage.replace_file(self._folder / FILE_NAME, data)

    @property
    def all(self) -> Sequence[AgentPlace]:
        """All places, the newest last."""
        return tuple(self._places)

    @staticmethod
    def at_end(session: str, context: Context) -> AgentPlace:
        """Return the place of a session that knows the conversation up to its present end."""
        points = context.checkpoints
        if not points:
            return AgentPlace(session)
        number = context.index.n_messages - points[-1].message_index
        return AgentPlace(session, points[-1].uid, number)

    def put(self, session: str, context: Context) -> None:
        """Note that a session of the agent knows the conversation up to its present end."""
        self.add(self.at_end(session, context))

    def add(self, place: AgentPlace) -> None:
        """Note a place, which replaces any other one of its session."""
        self.forget(place.session)
        self._places.append(place)
        del self._places[:-_MOST_PLACES]

    def forget(self, session: str) -> None:
        """Note that it is not known any more up to where a session knows the conversation."""
        self._places = [one for one in self._places if one.session != session]

    def note_copy(self, session: str) -> None:
        """Note a session that is a copy, made for this conversation alone."""
        self._copies[session] = None
        while len(self._copies) > _MOST_COPIES:
            del self._copies[next(iter(self._copies))]

    def forget_copy(self, session: str) -> None:
        """Note that a copy was deleted, or cannot be."""
        self._copies.pop(session, None)
        self.forget(session)

    async def unneeded(self, session: Session, in_use: str) -> tuple[str, ...]:
        """Return the copies to which no rewind, switch, undo or redo can lead any more, the oldest first.

        Args:
            session: the open session.
            in_use: the session of the agent that goes on.
        """
        known = {one.session: one.uid for one in self._places}
        away = [one for one in self._copies if one != in_use]
        needed = {point.uid for point in session.context.checkpoints}
        n_entries = len(session.context.journal.entries)
        if any(known[one] not in needed for one in away if one in known):
            try:
                needed |= await asyncio.to_thread(_stored_uids, session)
            except SessionError:
                # A line cannot be read, so that nobody knows what it needs.
                return ()
            if len(session.context.journal.entries) != n_entries:
                # A line may have become the current one while the others were read.
                return ()
        return tuple(one for one in away if known.get(one, "") not in needed)

    def nearest(self, context: Context) -> tuple[AgentPlace, int] | None:
        """Return the place that is nearest to the end of the live world line, and the number of messages that it covers.

        The newest one of several. None if there is none on that line.
        """
        starts = {point.uid: point.message_index for point in context.checkpoints}
        ends = {
            point.uid: following.message_index
            for point, following in zip(context.checkpoints, context.checkpoints[1:], strict=False)
        }
        found: tuple[AgentPlace, int] | None = None
        for one in self._places:
            if one.uid not in starts:
                continue
            covered = starts[one.uid] + one.number
            if covered > ends.get(one.uid, context.index.n_messages):
                continue
            if found is None or covered >= found[1]:
                found = one, covered
        return found


def _stored_uids(session: Session) -> set[str]:
    """Return the uids of the checkpoints of all world lines but the current one. It reads files.

    Raises:
        SessionError: a world line cannot be read.
    """
    return {
        point.uid
        for n in stored_world_lines(session.dir)
        for point in session.world_lines.index(n).checkpoints
    }

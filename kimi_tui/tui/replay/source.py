"""Reads a session for a replay without opening it, and forks it at a checkpoint.

The module imports the session and the engine's history, so it is imported in a thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from operator import eq
from pathlib import Path
from typing import NamedTuple

from kimi_tui.app_paths import data_dir
from kimi_tui.daemon_threads import in_daemon_thread
from kimi_tui.images import Image
from kimi_tui.launch import NEWEST, Launch
from kimi_tui.projection.replay import Replay
from kimi_tui.projection.session_model import title_from
from kimi_tui.projection.subagents import with_agents
from kimi_tui.session.context import scan_world_line
from kimi_tui.session.errors import SessionNotFound, UnknownWorldLine
from kimi_tui.session.images import reference_of
from kimi_tui.session.lock import holder_of
from kimi_tui.session.metadata import read_state
from kimi_tui.session.rotation import stored_world_lines
from kimi_tui.session.session import Session
from kimi_tui.session.store import SessionStore, read_only_copy
from kimi_tui.soul.history import session_history, without_deleted
from kimi_tui.soul.rebuilt_history import with_futures_told, with_futures_visited
from kimi_tui.soul.record import closing_events, final_checkpoints, read_stored
from kimi_tui.soul.stored_agents import agent_states
from kimi_tui.tool_cards import ImageBlock
from kimi_tui.wire.events import (
    CheckpointCreated,
    EventRecord,
    StatusUpdate,
    StepBegin,
    TextPart,
    ToolCall,
    ToolResult,
    TurnBegin,
)
from kimi_tui.workspace.git_branch import branch_of


class RecordedSession(NamedTuple):
    """A session that can be played back."""

    session: Session
    replay: Replay
    title: str
    branch: str

    def image(self, facts: ImageBlock) -> Image | None:
        """Return an image of the session; None if it is missing. Blocks."""
        return self.session.images.get(reference_of(facts.sha256, facts.media_type))


def find(launch: Launch) -> Session:
    """Return the session that the command line names. Takes no lock and writes nothing.

    Raises:
        SessionNotFound: there is no such session; the text says what to do.
    """
    store = SessionStore(data_dir())
    if launch.resume not in (None, NEWEST):
        return store.find(str(launch.resume), launch.work_dir)
    newest = store.newest(launch.work_dir)
    if newest is None:
        raise SessionNotFound(
            "This folder has no session to replay. Give the id of one; kimi-tui sessions lists them."
        )
    return newest


def recorded(
    session: Session, *, visits_futures: bool = False
) -> tuple[Sequence[EventRecord], str]:
    """Return the events and the title of a session, even of one that another process has open. Blocks.

    Args:
        session: the session.
        visits_futures: whether the messages of futures that were never current are told as well, when each became a world line.
    """
    stored = read_stored(session)
    records: Sequence[EventRecord] = without_deleted(stored.records, session)
    if visits_futures:
        records = with_futures_visited(session, records)
    records = with_futures_told(session, records)
    lacks_some = bool(stored.incomplete) or stored.is_behind
    if lacks_some or not (_is_whole(records) and _is_true(records, session)):
        records = _with_sizes(asyncio.run(_records_of_context(session)))
    if holder_of(session.dir) is None:
        records = [*records, *closing_events(records)]
    return with_agents(records, agent_states(session)), _title(session, records)


def read(session: Session) -> RecordedSession:
    """Read a session, even one that another process has open. It blocks for long, so call it in a thread."""
    records, title = recorded(session)
    work_dir = str(session.work_dir)
    return RecordedSession(session, Replay(records, work_dir), title, branch_of(Path(work_dir)))


def _is_whole(records: Sequence[EventRecord]) -> bool:
    """Return whether the record begins where the conversation does; that of another program, or a damaged one, does not."""
    if any(record.foreign for record in records):
        return False
    for record in records:
        match record.event:
            case CheckpointCreated(id=number):
                return number == 0
            case StepBegin() | TextPart() | ToolCall() | ToolResult():
                return False
            case _:
                pass
    return False


def _is_true(records: Sequence[EventRecord], session: Session) -> bool:
    """Return whether the record ends where the conversation does, and tells all of it; if not, its end or a part of it is lost.

    While another process works on it, one of the two may be a step ahead of the other.
    """
    told = final_checkpoints(records)
    line = [point.uid for point in scan_world_line(session.storage, session.dir, 0).checkpoints]
    if told is None or abs(len(told) - len(line)) > 1:
        return False
    made = {one.event.uid for one in records if isinstance(one.event, CheckpointCreated)}
    return made.issuperset(told) and all(map(eq, told, line))


async def _records_of_context(session: Session) -> Sequence[EventRecord]:
    """Return the history from the conversation itself. Reading it may repair it, so a copy is read, as the session is not ours."""
    async with read_only_copy(session) as copied:
        return session_history(copied)


def _with_sizes(records: Sequence[EventRecord]) -> Sequence[EventRecord]:
    """Return the records with window sizes added from the checkpoints, if the record itself has none."""
    if any(isinstance(record.event, StatusUpdate) for record in records):
        return records
    sized: list[EventRecord] = []
    for record in records:
        sized.append(record)
        match record.event:
            case CheckpointCreated(tokens=used) if used > 0:
                sized.append(record._replace(event=StatusUpdate(used=used, limit=0, trigger=0)))
            case _:
                pass
    return [record._replace(seq=number) for number, record in enumerate(sized, 1)]


def _title(session: Session, records: Sequence[EventRecord]) -> str:
    named = read_state(session.dir).title
    first = next((r.event for r in records if isinstance(r.event, TurnBegin)), None)
    return named or (title_from(first) if first is not None else "")


async def fork_at(session: Session, uid: str, *, whole: bool) -> Session:
    """Fork a session so that the copy has everything up to a checkpoint.

    Args:
        session: the session that is played; another process may have it open.
        uid: the checkpoint.
        whole: whether to include the step of the checkpoint; else the copy ends before it.

    Raises:
        UnknownWorldLine: no line of the session has that checkpoint any more.
        StorageTrouble: the disk refused.
    """
    checkpoint, line, after = await in_daemon_thread(_place_of, session, uid, whole)
    return await session.fork(checkpoint, line, after=after)


def _place_of(session: Session, uid: str, whole: bool) -> tuple[int | None, int, int | None]:
    """Return the first checkpoint that is not copied (None: all are), the line to copy, and the last copied checkpoint if requested."""
    for n in (0, *stored_world_lines(session.dir)):
        try:
            points = scan_world_line(session.storage, session.dir, n).checkpoints
        except OSError:
            continue
        for index, point in enumerate(points):
            if point.uid != uid:
                continue
            if not whole:
                return point.id, n, None
            following = points[index + 1].id if index + 1 < len(points) else None
            return following, n, point.id
    raise UnknownWorldLine("This moment is no longer in the session's files. Choose a later one.")


def _said_at(records: Iterable[EventRecord], uid: str) -> str:
    """Return the user's text with which a checkpoint began; empty if it began with none."""
    said = ""
    for record in records:
        match record.event:
            case TurnBegin(text=text):
                said = text
            case CheckpointCreated(uid=made):
                if made == uid:
                    return said
                said = ""
            case _:
                pass
    return ""


async def forked(launch: Launch, recorded: RecordedSession, uid: str, *, whole: bool) -> Launch:
    """Fork the session at a checkpoint; return how to open the fork.

    Args:
        launch: the launch of the app.
        recorded: the session that is played.
        uid: the checkpoint.
        whole: whether to include the step of the checkpoint; else the copy ends before it.

    Raises:
        UnknownWorldLine: no line of the session has that checkpoint any more.
        StorageTrouble: the disk refused.
    """
    fork = await fork_at(recorded.session, uid, whole=whole)
    records = recorded.replay.recording.records
    prompt = "" if whole else await in_daemon_thread(_said_at, records, uid)
    return launch._replace(
        work_dir=recorded.session.work_dir,
        resume=fork.id,
        fork=False,
        replay=False,
        prompt=prompt,
        offers_files=True,
        notices=("You are in a copy; the session that you replayed is unchanged.",),
    )

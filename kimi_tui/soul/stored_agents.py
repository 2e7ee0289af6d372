"""The files of a session's sub-agents, read without their engine: their last states, and their conversations.

Each has a folder of its own in `subagents/` of the session's folder, which is that of a session, with its state in `agent.json`
(`subagents.Subagents` writes it).
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from kimi_tui import lenient_json
from kimi_tui.daemon_threads import in_daemon_thread
from kimi_tui.filesystem import Storage, read_regular, remove_tree
from kimi_tui.foreign_text import one_line
from kimi_tui.session.context import scan_world_line
from kimi_tui.session.errors import SessionError, SessionNotFound
from kimi_tui.session.rotation import LIVE_NAME
from kimi_tui.session.schema import MessageKind
from kimi_tui.session.session import AGENTS_NAME, Session
from kimi_tui.session.store import read_only_copy
from kimi_tui.soul.conversation_text import as_markdown
from kimi_tui.tools.base import RESULTS_NAME
from kimi_tui.wire.codec import decode_event
from kimi_tui.wire.events import AgentChanged

STATE_NAME = "agent.json"
_KILLED = "kimi-tui exited before the sub-agent was done."
_MAX_STATE_BYTES = 1 << 20
_NAME = re.compile(r"[a-z][a-z0-9-]{0,39}-[0-9]{1,6}")
_MOST_AGENTS = 10_000
_REMOVED = ".removed-"
"""The beginning of the name of a folder that is being removed."""


class StoredAgent(NamedTuple):
    """The file of a sub-agent: its name, all of the file as JSON, and its last state."""

    name: str
    table: Mapping[str, object]
    state: AgentChanged


def is_folder(path: Path) -> bool:
    """Return whether this is a folder itself, not a link to one."""
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except OSError:
        return False


def has_agents(session_folder: Path) -> bool:
    """Return whether a session in this folder has had sub-agents. It reads the folder."""
    return (session_folder / AGENTS_NAME).is_dir()


def stored_agents(folder: Path, *, renamed: bool = False) -> Iterator[StoredAgent]:
    """Yield the sub-agents in a folder, in no order; one whose file cannot be read is left out. It reads files.

    Args:
        folder: the folder with those of the sub-agents.
        renamed: whether the state in a file may already have another name than the folder around it, as on the way elsewhere.
    """
    try:
        names = [
            entry.name
            for entry in os.scandir(folder)
            if _NAME.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False)
        ]
    except OSError:
        return
    for name in names[:_MOST_AGENTS]:
        try:
            data = read_regular(folder / name / STATE_NAME, _MAX_STATE_BYTES)
            record: object = json.loads(data)
        except (OSError, ValueError, RecursionError):
            continue
        table = lenient_json.mapping(record)
        state = decode_event("AgentChanged", lenient_json.mapping(table.get("agent")))
        if isinstance(state, AgentChanged) and (state.name == name or renamed):
            yield StoredAgent(name, table, state)


def left_by_kill(
    storage: Storage, folder: Path, state: AgentChanged, pending: Collection[str]
) -> AgentChanged:
    """Return the state of a sub-agent that nobody runs any more: one that had not ended is paused, or stopped. It reads files.

    Args:
        storage: the disk.
        folder: the folder of the sub-agent.
        state: its stored state.
        pending: the keys of the calls without a result, with which it can go on.
    """
    if not state.is_running:
        return state
    # The number of steps is stored at a beginning and an end only.
    return replace(
        state,
        step=max(state.step, _n_answers(storage, folder)),
        state="paused" if state.key in pending else "stopped",
        why=_KILLED,
        doing="",
        ended_at=state.ended_at or _written_at(folder),
    )


def _written_at(folder: Path) -> float:
    """Return when the conversation of a sub-agent was written last, in seconds since 1970; 0 if it was not."""
    try:
        return os.lstat(folder / LIVE_NAME).st_mtime
    except OSError:
        return 0.0


def _n_answers(storage: Storage, folder: Path) -> int:
    """Return how many answers of a model the conversation of a sub-agent has; 0 if it cannot be read."""
    with contextlib.suppress(OSError):
        index = scan_world_line(storage, folder, 0)
        kinds = index.kinds(0, index.n_messages)
        return kinds.count(MessageKind.ANSWER) + kinds.count(MessageKind.WORDS)
    return 0


def _states_in(records: object, name: str) -> list[AgentChanged]:
    """Return the states of a sub-agent on lines that were left."""
    tables = map(lenient_json.mapping, lenient_json.listing(records))
    found = (decode_event("AgentChanged", lenient_json.mapping(one.get("agent"))) for one in tables)
    return [one for one in found if isinstance(one, AgentChanged) and one.name == name]


def agent_states(session: Session) -> list[AgentChanged]:
    """Return the stored states of a session's sub-agents: the present one of each behind those on lines that were left.

    It reads files. The session may be open elsewhere.
    """
    found = list(stored_agents(session.dir / AGENTS_NAME))
    states: list[AgentChanged] = []
    for one in sorted(found, key=lambda each: (each.state.number, each.name)):
        states += [*_states_in(one.table.get("versions"), one.name)]
        states += [*_states_in(one.table.get("later"), one.name), one.state]
    return states


def agent_session(session: Session, name: str) -> Session:
    """Return the conversation of a sub-agent of a session, not opened.

    Raises:
        SessionNotFound: the name is none of a sub-agent.
    """
    if not _NAME.fullmatch(name):
        raise SessionNotFound(f"There is no sub-agent {one_line(name)[:80]!r}.")
    return Session(session.dir / AGENTS_NAME / name, session.work_dir, session.storage)


def agents_by_step(session: Session) -> dict[str, set[str]]:
    """Return the uids of the steps that called each stored sub-agent of a session, also on lines that were left, by name.

    There are none where a link stands for their folder: what is behind it belongs to somebody else.
    """
    found: dict[str, set[str]] = {}
    if not is_folder(session.dir / AGENTS_NAME):
        return found
    for one in agent_states(session):
        found.setdefault(one.name, set()).add(one.uid)
    return found


def keys_of_agents(session: Session) -> dict[str, str]:
    """Return the key of the call that each stored sub-agent of a session works for at present, by name. It reads files."""
    return {one.name: one.state.key for one in stored_agents(session.dir / AGENTS_NAME)}


def remove_agents(session: Session, names: Collection[str]) -> None:
    """Remove stored sub-agents of a session, with what they kept beside it; nobody has them open. It blocks.

    Raises:
        OSError: the disk refused.
    """
    folder, results = session.dir / AGENTS_NAME, session.dir / RESULTS_NAME
    if not is_folder(folder):
        return
    for name in names:
        gone = folder / f"{_REMOVED}{name}"
        if os.path.lexists(gone):
            _remove(gone)
        session.storage.replace(agent_session(session, name).dir, gone)
        if is_folder(results) and os.path.lexists(results / name):
            _remove(results / name)
    if names:
        session.storage.sync_folder(folder)
    sweep_agents(folder)


def sweep_agents(folder: Path) -> None:
    """Remove what a kill has left of sub-agents that were being removed. A disk that refuses is passed over."""
    if not is_folder(folder):
        return
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            if name.startswith(_REMOVED):
                with contextlib.suppress(OSError):
                    _remove(folder / name)


def _remove(path: Path) -> None:
    """Remove a folder with all that is in it, or a link without what it leads to."""
    if is_folder(path):
        remove_tree(path)
    else:
        path.unlink()


async def agents_as_markdown(session: Session) -> dict[str, str]:
    """Return the conversations of a session's sub-agents as Markdown, by their names; without those that cannot be read.

    The session may be open elsewhere.
    """
    found: dict[str, str] = {}
    if not await in_daemon_thread(has_agents, session.dir):
        return found
    for one in await in_daemon_thread(lambda: list(stored_agents(session.dir / AGENTS_NAME))):
        with contextlib.suppress(SessionError, OSError):
            async with read_only_copy(agent_session(session, one.name)) as read:
                messages = read.context.world_line.messages[:]
                found[one.name] = await in_daemon_thread(as_markdown, messages)
    return found

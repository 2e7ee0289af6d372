"""Carries the sub-agents of a future over into the session whose world line it becomes.

The folder of each goes as it is, by one rename, with its state written anew before: so a sub-agent is in one of the two sessions at any
moment, nothing is copied, and the same call after a kill goes on with those that are left.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection
from dataclasses import replace
from itertools import chain, count
from pathlib import Path
from typing import Any

from kimi_tui import lenient_json
from kimi_tui.filesystem import Storage
from kimi_tui.futures.set_files import move_back
from kimi_tui.session.metadata import read_state
from kimi_tui.session.session import AGENTS_NAME, Session
from kimi_tui.soul.stored_agents import (
    STATE_NAME,
    StoredAgent,
    agent_states,
    left_by_kill,
    stored_agents,
)
from kimi_tui.wire.codec import encode_event
from kimi_tui.wire.events import AgentChanged

_NUMBERS = 1_000_000
"""The numbers in names are below this one (`stored_agents`)."""


def carry_agents(session: Session, fork: Path, pending: Collection[str]) -> int:
    """Move those sub-agents into the session that only the session of a future has; return how many. It may be called again.

    One whose name the session has given to another meanwhile gets the next free one.

    Args:
        session: the session, open.
        fork: the folder of the future's session, which no process has open.
        pending: the keys of the calls at the end of the future's line that have no result.

    Raises:
        OSError: the disk refused; those that were not moved stay.
    """
    known = agent_states(session)
    keys, number = {one.key for one in known}, max((one.number for one in known), default=0)
    found = list(stored_agents(fork / AGENTS_NAME, renamed=True))
    own = sorted((one for one in found if one.state.key not in keys), key=_order)
    storage, target = session.storage, session.dir / AGENTS_NAME
    for place, one in enumerate(own, 1):
        if not target.exists():
            storage.make_folder(target)
            storage.sync_folder(session.dir)
        folder = fork / AGENTS_NAME / one.name
        name = _free_name(target, one.name)
        state = left_by_kill(storage, folder, one.state, pending)
        _rewrite(storage, folder, one, replace(state, name=name, number=number + place))
        if read_state(folder).work_dir != str(session.work_dir):
            move_back(Session(folder, session.work_dir, storage))
        storage.replace(folder, target / name)
    if own:
        storage.sync_folder(target)
    return len(own)


def _order(one: StoredAgent) -> tuple[int, str]:
    return one.state.number, one.name


def _free_name(folder: Path, name: str) -> str:
    """Return a name that no sub-agent in a folder has: this one, or the next one of its kind."""
    kind, _, number = name.rpartition("-")
    names = (f"{kind}-{place}" for place in chain(range(int(number), _NUMBERS), count(1)))
    return next(one for one in names if not os.path.lexists(folder / one))


def _rewrite(storage: Storage, folder: Path, one: StoredAgent, state: AgentChanged) -> None:
    """Write the state of a sub-agent, with its name in the states on lines that were left."""

    def named(versions: object) -> list[dict[str, Any]]:
        records = [dict(lenient_json.mapping(each)) for each in lenient_json.listing(versions)]
        agents = [dict(lenient_json.mapping(each.get("agent"))) for each in records]
        return [
            {**each, "agent": {**agent, "name": state.name}}
            for each, agent in zip(records, agents, strict=True)
        ]

    table = {
        **one.table,
        "agent": encode_event(state),
        "versions": named(one.table.get("versions")),
        "later": named(one.table.get("later")),
    }
    data = json.dumps(table, ensure_ascii=False).encode("utf-8", "replace")
    storage.replace_file(folder / STATE_NAME, data)

"""Deletes world lines of a session together with the sub-agents that belong to them alone.

A sub-agent belongs to the step that called it, so it goes with the last line that has this step.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_right
from collections.abc import Collection

from kimi_tui.session.context_index import ContextIndex
from kimi_tui.session.errors import StorageTrouble, UnknownWorldLine
from kimi_tui.session.rotation import stored_world_lines
from kimi_tui.session.schema import MessageKind
from kimi_tui.session.session import Session
from kimi_tui.session.store import disk_use, prune
from kimi_tui.soul.stored_agents import (
    agent_session,
    agents_by_step,
    keys_of_agents,
    remove_agents,
)

_ALWAYS = "~"
"""Later than any time in a record."""


def agents_of_lines(session: Session, lines: Collection[int]) -> list[str]:
    """Return the names of the sub-agents that only these world lines of an open session have. It reads files.

    Those whose step is older than a summary on another line stay: the chat may still show them above it, even if the line that
    the compaction left was deleted before, or was one of a future. So do those on a line that a compaction of the session left.
    """
    steps = agents_by_step(session)
    if not steps:
        return []
    there = stored_world_lines(session.dir)
    compacted = {one.n for one in session.context.journal.entries if one.op == "compaction"}
    gone = {n for n in lines if n in there} - compacted
    live = session.context.world_line.index
    kept, summarised_at = {point.uid for point in live.checkpoints}, _summarised_at(live)
    lost: dict[str, str] = {}
    for n in there:
        try:
            index = session.world_lines.index(n)
        except UnknownWorldLine:
            if n in gone:
                continue
            return []  # nobody knows which sub-agents it has
        if n in gone:
            lost.update((point.uid, point.at) for point in index.checkpoints)
        else:
            kept.update(point.uid for point in index.checkpoints)
            summarised_at = max(summarised_at, _summarised_at(index))
    kept.update(uid for uid, at in lost.items() if at <= summarised_at)
    return [name for name, uids in steps.items() if uids & lost.keys() and not uids & kept]


def _summarised_at(index: ContextIndex) -> str:
    """Return when the newest summary of a line was made; empty if it has none."""
    kinds, places = index.kinds(), list[int]()
    while (place := kinds.find(MessageKind.SUMMARY, places[-1] + 1 if places else 0)) >= 0:
        places.append(place)
    starts = [point.message_index for point in index.checkpoints]
    begun = [bisect_right(starts, place) - 1 for place in places]
    return max(((n >= 0 and index.checkpoints[n].at) or _ALWAYS for n in begun), default="")


def agents_size(session: Session, names: Collection[str]) -> int:
    """Return the bytes of the files of sub-agents. It reads folders."""
    return sum(disk_use(agent_session(session, name).dir).total for name in names)


def prune_lines(session: Session, lines: Collection[int]) -> int:
    """Delete world lines of an open session, with the sub-agents that only they have; return the bytes freed. It blocks.

    The journal names the sub-agents first, and they go behind the lines: what is left of a session after a kill, or if the disk
    refuses, is a line with all of its sub-agents, or sub-agents without a line, which `finish_pruning` removes.

    Args:
        session: an open session; no engine of it has one of these sub-agents open.
        lines: the numbers of the world lines.

    Raises:
        UnknownWorldLine: one of them does not exist; nothing was deleted.
        StorageTrouble: something could not be deleted.
    """
    names = agents_of_lines(session, lines)
    keys = keys_of_agents(session) if names else {}
    used = agents_size(session, names)
    freed = prune(session, lines, [keys[name] for name in names])
    try:
        remove_agents(session, names)
    except OSError as error:
        raise StorageTrouble.of("delete the sub-agents of the world lines", error) from error
    return freed + used


def finish_pruning(session: Session) -> None:
    """Remove the sub-agents that an interrupted `prune_lines` left in an open session without a line. It blocks.

    A disk that refuses is passed over.
    """
    noted = session.context.journal.pruned_agents
    if not noted:
        return
    left = {name for name, key in keys_of_agents(session).items() if key in noted}
    if not left:
        return
    there = {point.uid for point in session.context.checkpoints}
    with contextlib.suppress(UnknownWorldLine, OSError):
        for n in stored_world_lines(session.dir):
            there.update(point.uid for point in session.world_lines.index(n).checkpoints)
        steps = agents_by_step(session)
        remove_agents(session, [name for name in left & steps.keys() if not steps[name] & there])

"""Deletes world lines of a session together with the sub-agents that belong to them alone.

A sub-agent belongs to the step that called it, so it goes with the last line that has this step.
"""

from __future__ import annotations

from collections.abc import Collection

from kimi_tui.session.errors import StorageTrouble, UnknownWorldLine
from kimi_tui.session.rotation import stored_world_lines
from kimi_tui.session.session import Session
from kimi_tui.session.store import disk_use, prune
from kimi_tui.soul.stored_agents import agent_session, agents_by_step, remove_agents


def agents_of_lines(session: Session, lines: Collection[int]) -> list[str]:
    """Return the names of the sub-agents that only these world lines of an open session have. It reads files.

    Those on a line that a compaction replaced stay: the chat still shows them above the summary.
    """
    steps = agents_by_step(session)
    if not steps:
        return []
    there = stored_world_lines(session.dir)
    compacted = {one.n for one in session.context.journal.entries if one.op == "compaction"}
    gone = {n for n in lines if n in there} - compacted
    kept = {point.uid for point in session.context.checkpoints}
    lost: set[str] = set()
    for n in there:
        try:
            uids = {point.uid for point in session.world_lines.index(n).checkpoints}
        except UnknownWorldLine:
            if n in gone:
                continue
            return []  # nobody knows which sub-agents it has
        (lost if n in gone else kept).update(uids)
    return [name for name, uids in steps.items() if uids & lost and not uids & kept]


def prune_lines(session: Session, lines: Collection[int]) -> int:
    """Delete world lines of an open session, with the sub-agents that only they have; return the bytes freed. It blocks.

    The sub-agents go first: what a kill leaves of them has no name of theirs any more, and the next call removes it.

    Args:
        session: an open session; no engine of it has one of these sub-agents open.
        lines: the numbers of the world lines.

    Raises:
        UnknownWorldLine: one of them does not exist; nothing was deleted.
        StorageTrouble: something could not be deleted.
    """
    names = agents_of_lines(session, lines)
    freed = sum(disk_use(agent_session(session, name).dir).total for name in names)
    if set(lines) <= stored_world_lines(session.dir).keys():
        try:
            remove_agents(session, names)
        except OSError as error:
            raise StorageTrouble.of("delete the sub-agents of the world lines", error) from error
    return freed + prune(session, lines)

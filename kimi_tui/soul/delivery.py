"""Delivers a D-Mail: the live line goes back to before a checkpoint, and goes on there with the letter.

The same for letters that the agent sends within a turn and for those that a person writes by hand.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from kimi_tui.session.records import NewCheckpoint
from kimi_tui.session.reports import Reverted
from kimi_tui.soul.dmail import write_letter
from kimi_tui.soul.live_line import LiveLine


async def deliver(
    line: LiveLine, checkpoint_id: int, letters: Sequence[str], *, files_asked: bool = False
) -> Reverted:
    """Go back and put the letter there, with what the person said since before it, and tell of it.

    Args:
        line: the conversation.
        checkpoint_id: where the letter goes; it takes that checkpoint's place.
        letters: what was written, in the order in which it was sent.
        files_asked: the sender asked that the working files go back too.

    Raises:
        UnknownCheckpoint: there is none of that id.
        StorageTrouble: the disk refused; nothing changed.
    """
    context = line.context
    before = line.used
    point = context.checkpoint_of(checkpoint_id)
    undone = context.messages[point.message_index :]
    letter = await asyncio.to_thread(
        write_letter, point.id, letters, undone, files_asked=files_asked
    )
    reverted = await context.revert_to(
        checkpoint_id,
        reason="dmail",
        text=letter.text,
        then=[NewCheckpoint(marker=line.marks), *letter.carried, letter.message],
    )
    left = line.number_of(reverted)
    line.kept(point.message_index)
    await line.follow()
    line.tell_reverted(
        reverted,
        "dmail",
        world_line=left,
        tokens_before=before,
        text=letter.text,
        facts=letter.facts,
        carried=tuple(message.text for message in letter.carried),
    )
    line.tell_newest_checkpoint("dmail", f"D-Mail from #{reverted.from_checkpoint}")
    line.tell_changed("dmail", left, 0, context.checkpoints[-1].uid)
    return reverted

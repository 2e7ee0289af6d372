"""Delivers a D-Mail: the live line goes back to before a checkpoint, and goes on there with the letter.

The same for letters that the agent sends within a turn and for those that a person writes by hand.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from kimi_tui.llm.message import user_message
from kimi_tui.prompts.load import prompt
from kimi_tui.session.records import NewCheckpoint, new_uid
from kimi_tui.session.reports import Reverted
from kimi_tui.soul.dmail import Author, write_letter
from kimi_tui.soul.internal_messages import is_said
from kimi_tui.soul.letter_files import FilesOfLetter
from kimi_tui.soul.live_line import LiveLine
from kimi_tui.soul.marks import PersonMarks
from kimi_tui.soul.restoring import Restoring

NO_FILES = FilesOfLetter()


async def deliver(
    line: LiveLine,
    marks: PersonMarks,
    checkpoint_id: int,
    letters: Sequence[str],
    restoring: Restoring,
    files: FilesOfLetter = NO_FILES,
    author: Author = "agent",
) -> Reverted:
    """Go back and put the letter there, with what the person said since before it, and tell of it.

    Args:
        line: the conversation.
        marks: which messages are carried over like the person's words.
        checkpoint_id: where the letter goes; it takes that checkpoint's place.
        letters: what was written, in the order in which it was sent.
        restoring: brings files back.
        files: what happens to the working files.
        author: who wrote them.

    Raises:
        UnknownCheckpoint: there is none of that id.
        StorageTrouble: the disk refused; nothing changed.
    """
    context = line.context
    before = line.used
    point = context.checkpoint_of(checkpoint_id)
    undone = context.messages[point.message_index :]
    left_points = [one for one in context.checkpoints if one.id >= point.id]
    pinned = marks.pinned_points(left_points)
    changed = await restoring.changed_since(point)
    letter = await asyncio.to_thread(
        write_letter,
        point.id,
        letters,
        undone,
        files_note=files.note,
        restored=files.restored,
        changed=changed,
        work_dir=str(restoring.work_dir),
        pinned=[place - point.message_index for place in marks.pinned_places(point.message_index)],
        author=author,
    )
    uid = new_uid()
    # Written before it holds: a name that nothing bears does no harm, a pin that is lost would.
    await marks.pin_all((uid, place) for place in letter.pinned)
    reverted = await restoring.along(
        files.prepared,
        "dmail",
        lambda entry: context.revert_to(
            checkpoint_id,
            reason="dmail",
            text=letter.text,
            then=[NewCheckpoint(marker=line.marks, uid=uid), *letter.carried, letter.message],
            files=entry,
        ),
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
        carried=tuple(message.text for message in letter.carried if is_said(message)),
        pinned=pinned,
        author=author,
    )
    outcome = await restoring.carry_out(files.prepared, reverted.uid)
    failed = [one for one in outcome if one.reason]
    line.tell_newest_checkpoint(
        "dmail", "Your D-Mail" if author == "person" else f"D-Mail from #{reverted.from_checkpoint}"
    )
    if files.prepared and len(failed) > len(files.prepared.left):
        names = ", ".join(f"`{one.path}` ({one.reason})" for one in failed)
        await line.append([user_message(prompt("files_left", NAMES=names))])
    line.tell_changed("dmail", left, 0, context.checkpoints[-1].uid)
    return reverted

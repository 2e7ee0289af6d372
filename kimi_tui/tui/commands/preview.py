"""The question before every operation that leads to another place: what would go, and whether the files go along."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kimi_tui.soul.rewind import FileOutcome, RewindPreview, Target
    from kimi_tui.tui.main.screen import MainScreen
    from kimi_tui.tui.preview.layout import PreviewAction, PreviewAnswer


async def choose(
    screen: MainScreen,
    target: Target,
    going: PreviewAction | None = None,
    dmail_text: str = "",
) -> tuple[Target, PreviewAnswer] | None:
    """Show what a rewind or jump there would take, and ask what to do; None where the user stays.

    Args:
        screen: over which it is asked.
        target: a checkpoint, or the end of a world line.
        going: a fork or a D-Mail that was chosen already: nothing is asked where no files can go along with it.
        dmail_text: that D-Mail; empty where it is still to be written.

    Returns:
        the answer, and what it is about: from a checkpoint of another line the user may go on to its end.

    Raises:
        KeyError: there is no such checkpoint; the text is for the user.
    """
    from dataclasses import replace

    from kimi_tui.soul.rewind import END, Target
    from kimi_tui.tui.preview.layout import (
        COMPACT_FROM,
        COMPACT_TO,
        DMAIL,
        WHOLE,
        PreviewAnswer,
        actions_at,
    )
    from kimi_tui.tui.preview.screen import RewindScreen

    soul, before = await screen.conversation.opened(), screen.n_changes
    # What was chosen while an operation was under way was chosen among what that has left by now.
    await soul.settled()
    while True:
        found = await soul.preview(target)
        if screen.n_changes != before:
            return None
        if going is not None and not _has_files(found):
            return target, PreviewAnswer(going.name)
        # What the user said and pinned stays with a D-Mail.
        is_dmail = going is DMAIL and not target.world_line
        if is_dmail:
            taken = await soul.preview_dmail(target.id, dmail_text, "person")
            found = replace(taken, files=found.files)
        parts = ((COMPACT_FROM, target, None), (COMPACT_TO, None, target))
        compacts = [
            action
            for action, start, until in parts
            if not target.world_line and soul.can_compact(start=start, until=until)
        ]
        question = RewindScreen(
            found,
            running=soul.running,
            actions=actions_at(
                target.id,
                target.world_line,
                has_dmail=soul.has_dmail,
                is_there=found.is_there,
                compacts=compacts,
            ),
            line_name=screen.views.timeline.model.line_name(target.world_line),
            going=going,
            write=screen.write_on,
            typed_at=screen.typed_at,
        )
        with screen.foreseen(target, found, words_stay=is_dmail):
            answer = await screen.ask_of_line(question)
        if answer is None:
            return None
        if answer.action != WHOLE.name:
            return target, answer
        target, going = Target(END, target.world_line), None


def _has_files(preview: RewindPreview) -> bool:
    return preview.files is not None and bool(preview.files.restorable or preview.files.conflicts)


async def offer_files(screen: MainScreen) -> None:
    """Where a conversation begins whose files are not what they were at its end, ask whether they come back."""
    from dataclasses import replace

    from kimi_tui.soul.rewind import END, Target
    from kimi_tui.tui.preview.layout import BRING, LEAVE
    from kimi_tui.tui.preview.screen import RewindScreen

    soul = await screen.conversation.opened()
    before = soul.message_count
    await soul.files_ready()
    end = Target(END)
    found = await soul.preview(end)
    if found.files is None or not _has_files(found):
        if found.files is not None and found.files.reason:
            words = "This is a fork; its files are as they are now."
            screen.tell(words, advice=found.files.reason)
        return
    if soul.running or soul.message_count != before:
        # Nobody is held up who has gone on already.
        screen.tell("Some files are not what they were at this moment.", level="warning")
        return
    question = RewindScreen(
        replace(found, label="Some files are not what they were at this moment."),
        actions=(LEAVE, BRING),
        title="Files of this moment",
        write=screen.write_on,
        typed_at=screen.typed_at,
        is_asked_for=False,
    )
    answer = await screen.ask_of_line(question)
    if answer is not None and answer.files == "only":
        outcome = await soul.rewind(end, "only", answer.chosen)
        screen.tell(files_said(outcome.files))


def files_said(files: Sequence[FileOutcome]) -> str:
    """What became of the files, after they were verified."""
    from kimi_tui.projection.transcript import files_words

    alone = [one.path for one in files if one.reason]
    deleted = [one.path for one in files if one.fate == "delete" and not one.reason]
    back = [one.path for one in files if one.fate != "delete" and not one.reason]
    return f"{files_words(back, deleted, alone)}."

"""Commands that change the conversation from a checkpoint on: rewind, fork, D-Mail and compaction, also as chosen in a preview.

For a D-Mail the user writes its text first; for a compaction, what the summary must keep. A summary can be read, edited and
undone.
"""

from __future__ import annotations

import asyncio
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING

from kimi_tui.daemon_threads import in_daemon_thread
from kimi_tui.tui.faults import run_detached
from kimi_tui.tui.formatting import line_words
from kimi_tui.tui.main.commands.changes import writer_words
from kimi_tui.tui.main.commands.session import WAY_BACK, files_said, fork_at, tell_no_checkpoint
from kimi_tui.tui.prompt.command import line_and_number, number
from kimi_tui.tui.screens import app_of

if TYPE_CHECKING:
    from kimi_tui.soul.kimisoul import KimiSoul
    from kimi_tui.soul.rewind_values import RewindOutcome, RewindPreview, Target
    from kimi_tui.tui.dialogs.text_dialog import TextDialog
    from kimi_tui.tui.main.commands import MainParts
    from kimi_tui.tui.preview.layout import PreviewAction, PreviewAnswer


async def _import_preview() -> None:
    # On the event loop the first preview would delay keys.
    await in_daemon_thread(import_module, "kimi_tui.tui.preview.screen")


async def rewind(main: MainParts, argument: str) -> None:
    """Preview a rewind to checkpoint N; without one, choose it on the timeline."""
    if not argument:
        main.bench.focus_timeline()
        return
    found = number(argument)
    if found is None:
        tell_no_checkpoint(main, argument, "/rewind 5")
        return
    from kimi_tui.soul.rewind_values import Target

    await preview(main, Target(found))


async def fork(main: MainParts, argument: str) -> None:
    """Copy the conversation, or what precedes a checkpoint, into a session of its own."""
    found = number(argument) if argument else None
    if argument and found is None:
        tell_no_checkpoint(main, argument, "/fork 5")
        return
    soul = await main.conversation.opened("travel")
    from kimi_tui.soul.rewind_values import END, Target
    from kimi_tui.tui.preview.layout import FORK, PreviewAnswer

    if found is None:
        await fork_at(main, soul, Target(END), PreviewAnswer(FORK.name))
    else:
        await preview(main, Target(found), FORK)


async def dmail(main: MainParts, argument: str) -> None:
    """Send a D-Mail to the checkpoint of `N TEXT` or `K:N TEXT`; without a text, let the user write it."""
    where, _, text = argument.partition(" ")
    found = line_and_number(where)
    if found is None:
        tell_no_checkpoint(main, where, "/dmail 5")
        return
    soul = await main.conversation.opened("dmails")
    if not soul.dmails.enabled:
        main.bench.tell(
            "D-Mails are off.",
            advice='Turn on "Allow D-Mails" in /settings (dmail.enabled), then start another session with /new.',
        )
        return
    from kimi_tui.soul.rewind_values import Target
    from kimi_tui.tui.preview.layout import DMAIL

    await preview(main, Target(found[1], found[0]), DMAIL, text.strip())


async def preview(
    main: MainParts,
    target: Target,
    pending: PreviewAction | None = None,
    dmail_text: str = "",
    *,
    first: str = "",
) -> None:
    """Show the preview of a rewind or jump, and carry out the action that the user chooses.

    Args:
        main: the main screen.
        target: a checkpoint, or the end of a world line.
        pending: a fork or a D-Mail that was chosen already.
        dmail_text: the text of that D-Mail; empty if it is still to be written.
        first: the name of the action that is selected at first, if it is offered; empty for the one that loses least.

    Raises:
        KeyError: there is no such checkpoint; the text is for the user.
        OSError: the disk refused; nothing changed.
    """
    await _import_preview()
    from kimi_tui.tui.preview.layout import COMPACT_FROM, COMPACT_TO, COPY, DMAIL, FORK, FUTURES

    found = await choose(main, target, pending, dmail_text, first=first)
    if dmail_text and (found is None or found[1].action != DMAIL.name):
        main.bench.keep(f"/dmail {place_of(target)} {dmail_text}")
    if found is None:
        return
    target, answer = found
    soul = await main.conversation.opened()
    if answer.action not in (FUTURES.name, COPY.name):
        # The change is to be seen, also if a future was read meanwhile.
        main.beside.leave(focus=False)
    if answer.action == FORK.name:
        await fork_at(main, soul, target, answer)
    elif answer.action == DMAIL.name:
        if dmail_text:
            await send_dmail(main, soul, target, answer, dmail_text)
        else:
            await write_dmail(main, soul, target, answer)
    elif answer.action == COMPACT_FROM.name:
        await compact_part(main, soul, start=target)
    elif answer.action == COMPACT_TO.name:
        await compact_part(main, soul, until=target)
    elif answer.action == FUTURES.name:
        main.futures.begin_from(target)
    elif answer.action == COPY.name:
        text = await soul.lines.markdown(target)
        from kimi_tui.foreign_text import clean_source

        app_of(main.bench.screen).copy_to_clipboard(await asyncio.to_thread(clean_source, text))
    else:
        await _rewind(main, soul, target, answer)


async def _rewind(main: MainParts, soul: KimiSoul, target: Target, answer: PreviewAnswer) -> None:
    if soul.running:
        await soul.interrupt()
    line_name = main.bench.views.timeline.model.line_name(target.world_line)
    outcome = await soul.travel.rewind(target, answer.files, answer.chosen)
    if answer.files == "only":
        main.bench.return_to_prompt()
        main.bench.tell(files_said(outcome.files), advice=WAY_BACK)
        return
    main.viewer.return_to_now()
    back = f" {files_said(outcome.files)}" if answer.files != "keep" else ""
    prompt = main.bench.images.with_chips(outcome.prompt, outcome.images)
    if prompt:
        main.bench.return_message(outcome.change, prompt)
    main.bench.tell(f"{_done_said(target, line_name, outcome)}.{back}", advice=WAY_BACK)


def _done_said(target: Target, line_name: str, outcome: RewindOutcome) -> str:
    """Return the notice after a rewind or jump: what happened to the conversation, and how to continue."""
    done = "Rewound"
    if target.world_line:
        at = "" if target.is_end else f" at #{target.id}"
        line = line_words(target.world_line, line_name)
        done = f"Switched to {line}{at}"
    if outcome.prompt or outcome.images:
        return f"{done}; edit your message in the prompt"
    return f"{done}; press Enter in the empty prompt to continue" if outcome.is_open else done


async def choose(
    main: MainParts,
    target: Target,
    pending: PreviewAction | None = None,
    dmail_text: str = "",
    *,
    first: str = "",
) -> tuple[Target, PreviewAnswer] | None:
    """Show the preview of a rewind or jump, and ask what to do.

    Args:
        main: the main screen.
        target: a checkpoint, or the end of a world line.
        pending: a fork or a D-Mail that was chosen already; then nothing is asked where there are no files to restore, and
            where a D-Mail is still to be written or takes nothing away.
        dmail_text: the text of that D-Mail; empty if it is still to be written.
        first: as for `preview`.

    Returns:
        the target and the answer; None if the user cancelled. The target is another one than that given where the user
        went on from a checkpoint of another line to its end.

    Raises:
        KeyError: there is no such checkpoint; the text is for the user.
    """
    await _import_preview()
    from dataclasses import replace

    from kimi_tui.soul.rewind_values import END, Prospect, Target
    from kimi_tui.tui.preview.layout import (
        COMPACT_FROM,
        COMPACT_TO,
        DMAIL,
        WHOLE,
        PreviewAnswer,
        actions_at,
    )
    from kimi_tui.tui.preview.screen import RewindScreen

    soul, before = await main.conversation.opened("travel"), main.bench.n_changes
    parts = main.conversation.state.parts
    # An operation under way is awaited first: it may leave the line on which the target was chosen.
    await soul.settled()
    while True:
        found = await soul.travel.preview(target)
        if main.bench.n_changes != before:
            return None
        # The user has seen no preview yet of the steps that a D-Mail written in one line with its command drops.
        takes_away = pending is DMAIL and bool(dmail_text) and bool(found.messages)
        if pending is not None and not (takes_away or _has_files(found)):
            return target, PreviewAnswer(pending.name)
        # A D-Mail keeps what the user said and pinned.
        is_dmail = pending is DMAIL and not target.world_line
        if is_dmail:
            taken = await soul.dmails.preview(target.id, dmail_text, "person")
            found = replace(taken, files=found.files)
        spans = ((COMPACT_FROM, target, None), (COMPACT_TO, None, target))
        compacts = [
            action
            for action, start, until in spans
            if "model" in parts
            and not target.world_line
            and soul.can_compact(start=start, until=until)
        ]
        actions = actions_at(
            target.id,
            target.world_line,
            has_dmail="dmails" in parts and soul.dmails.enabled,
            has_lines="lines" in parts,
            has_futures="model" in parts,
            is_there=found.is_there,
            compacts=compacts,
        )
        if dmail_text:
            # The text of the D-Mail is written already.
            sending = replace(DMAIL, verb="send")
            actions = tuple(sending if one.name == DMAIL.name else one for one in actions)
        question = RewindScreen(
            found,
            running=soul.running,
            actions=actions,
            line_name=main.bench.views.timeline.model.line_name(target.world_line),
            pending=pending,
            write=main.keystrokes.write_to_prompt,
            typed_at=main.keystrokes.written_at,
            who=partial(writer_words, main, target.id) if _is_on_current(target) else None,
            first=first,
        )
        prospect = Prospect(target, found.tokens_after, found.estimated, words_stay=is_dmail)
        with main.viewer.showing_prospect(prospect):
            answer = await main.bench.ask_of_line(question)
        if answer is None:
            return None
        if answer.action != WHOLE.name:
            return target, answer
        target, pending = Target(END, target.world_line), None


def _is_on_current(target: Target) -> bool:
    return not target.world_line and target.id >= 0


def _has_files(preview: RewindPreview) -> bool:
    return preview.files is not None and bool(preview.files.restorable or preview.files.conflicts)


async def offer_files(main: MainParts) -> None:
    """Ask whether to restore files, after opening a session whose files differ from those at the end of its conversation."""
    from dataclasses import replace

    from kimi_tui.soul.rewind_values import END, Target
    from kimi_tui.tui.preview.layout import BRING, LEAVE
    from kimi_tui.tui.preview.screen import RewindScreen

    soul = await main.conversation.opened("travel")
    before = soul.message_count
    await soul.files_ready()
    end = Target(END)
    found = await soul.travel.preview(end)
    if found.files is None or not _has_files(found):
        if found.files is not None and found.files.reason:
            words = "This is a fork of the conversation; the files were not changed."
            main.bench.tell(words, advice=found.files.reason)
        return
    if soul.running or soul.message_count != before:
        # A user who has gone on already is not held up by a question.
        main.bench.tell(
            "Some files have changed since the last message.",
            level="warning",
        )
        return
    question = RewindScreen(
        replace(found, label="Some files have changed since the last message."),
        actions=(LEAVE, BRING),
        title="Changed files",
        write=main.keystrokes.write_to_prompt,
        typed_at=main.keystrokes.written_at,
        is_asked_for=False,
    )
    answer = await main.bench.ask_of_line(question)
    if answer is not None and answer.files == "only":
        outcome = await soul.travel.rewind(end, "only", answer.chosen)
        main.bench.tell(files_said(outcome.files))


def place_of(target: Target) -> str:
    """Return a target as the user types it: `8`, or `2:8` on world line 2."""
    return f"{target.world_line}:{target.id}" if target.world_line else str(target.id)


def name_of(main: MainParts, target: Target) -> str:
    """Return a target as it is named in sentences: `#8`, `#8 of world line 2 (fix the quotes)`."""
    name = main.bench.views.timeline.model.line_name(target.world_line)
    line = f" of {line_words(target.world_line, name)}" if target.world_line else ""
    return f"#{target.id}{line}"


async def write_dmail(
    main: MainParts, soul: KimiSoul, target: Target, answer: PreviewAnswer, draft: str = ""
) -> None:
    """Ask for the text of a D-Mail, then send it; `answer` says whether files are restored, `draft` is the text to begin with.

    Raises:
        KeyError: there is no such checkpoint; the text is for the user.
    """
    from kimi_tui.soul.rewind_values import Prospect
    from kimi_tui.tui.dialogs.text_dialog import Drafting, TextDialog, TextQuestion

    question = TextQuestion(
        title=f"D-Mail to {name_of(main, target)}",
        question="What should the agent know at that checkpoint?",
        consequence="The agent goes back to that checkpoint, reads your note and continues from there.",
        text=draft,
        placeholder="Write a note to the agent's past self",
        verb="send",
        kind="dmail",
    )
    drafting = Drafting(lambda: run_detached(soul.dmails.draft(target)), soul.interrupt)
    dialog = TextDialog(question, drafting)
    if target.world_line:
        text = await _written(main, dialog)
    else:
        found = await soul.dmails.preview(target.id, "", "person")
        prospect = Prospect(target, found.tokens_after, found.estimated, words_stay=True)
        with main.viewer.showing_prospect(prospect):
            text = await _written(main, dialog)
    if text:
        try:
            await send_dmail(main, soul, target, answer, text)
        except Exception:
            main.bench.keep(text)  # the user still has the text when the failure is shown
            raise


async def send_dmail(
    main: MainParts, soul: KimiSoul, target: Target, answer: PreviewAnswer, text: str
) -> None:
    """Send a D-Mail to the agent's past self, which continues with it."""
    if soul.running:
        await soul.interrupt()
    outcome = await soul.dmails.send(target, text, answer.files, answer.chosen)
    main.bench.return_to_prompt()
    back = f" {files_said(outcome.files)}" if answer.files != "keep" else ""
    main.bench.tell(
        f"Your D-Mail is at {name_of(main, target)}, and the agent continues from there.{back}",
        advice=WAY_BACK,
    )
    main.conversation.resume()


async def compact(main: MainParts, argument: str) -> None:
    """Compact now, or when the turn has ended."""
    await main.conversation.compact(argument)


async def summary(main: MainParts, argument: str) -> None:
    """Read the newest summary."""
    await read_summary(main, "")


async def read_summary(main: MainParts, uid: str) -> None:
    """Show a summary of the live line, then carry out the answer of its screen: edit, undo or rewind.

    Args:
        main: the main screen.
        uid: the checkpoint of the summary; empty for the newest one.

    Raises:
        SoulBusy: a turn or operation is running.
    """
    from kimi_tui.soul.rewind_values import Target
    from kimi_tui.tui.dialogs.text_screen import Summary, SummaryScreen

    soul = await main.conversation.opened("lines")
    found = await soul.lines.summaries()
    here = next((one for one in found if one.uid == uid), None) if uid else None
    here = here or (found[-1] if found else None)
    if here is None:
        main.bench.tell("The current conversation has no summary, because it was not compacted.")
        return
    point = main.bench.views.live_point(here.checkpoint_id)
    before = point.before if point is not None else 0
    after = before + (point.saved or 0) if point is not None and before else 0
    is_guess = point is not None and not point.saved_measured
    shown = Summary(here.checkpoint_id, here.text, before, after, here is found[-1], is_guess)
    answer = await main.bench.ask(SummaryScreen(shown))
    if answer == "edit":
        await _edit_summary(main, soul, here.text)
    elif answer == "undo":
        main.bench.tell_reversal(await soul.travel.undo())
    elif answer == "rewind":
        await preview(main, Target(here.checkpoint_id))


async def _edit_summary(main: MainParts, soul: KimiSoul, text: str) -> None:
    from kimi_tui.tui.dialogs.text_dialog import TextDialog, TextQuestion

    question = TextQuestion(
        title="Edit the summary",
        question="What should the agent know about the earlier messages?",
        consequence="Your text replaces the summary; /undo restores the earlier one.",
        text=text,
        verb="keep",
        kind="compaction",
    )
    written = await main.bench.ask(TextDialog(question))
    if written and written != text.strip():
        await soul.edit_summary(written)
        main.bench.return_to_prompt()
        main.bench.tell("The agent now has your summary.", advice=WAY_BACK)


async def compact_part(
    main: MainParts, soul: KimiSoul, *, start: Target | None = None, until: Target | None = None
) -> None:
    """Ask what the summary must keep, then compact from a checkpoint on, or up to it.

    Raises:
        KeyError: there is no such checkpoint; the text is for the user.
    """
    from kimi_tui.tui.dialogs.text_dialog import TextDialog, TextQuestion

    part = f"up to {name_of(main, until)}" if until else ""
    part = f"from {name_of(main, start)} on" if start else part
    stays = "before them" if start else "after them"
    question = TextQuestion(
        title=f"Compact {part}".strip(),
        question="What must the summary keep?",
        consequence=f"A summary replaces the chosen messages; the messages {stays} stay as they are.",
        placeholder="If empty, the model decides",
        verb="compact",
        kind="compaction",
        may_be_empty=True,
        low=True,
    )
    text = await _written(main, TextDialog(question))
    if text is None:
        return
    is_done = False
    try:
        if soul.running:
            await soul.interrupt()
        main.bench.return_to_prompt()
        is_done = await soul.compact(text, start=start, until=until)
    finally:
        if not is_done:
            main.bench.keep(text)  # the user still has the text when the failure is shown


async def _written(main: MainParts, dialog: TextDialog) -> str | None:
    """Return the text that the user writes in a dialog about the live line; None if they cancelled.

    Where another operation changes the line meanwhile the dialog closes, and what was written goes into the prompt.
    """
    before = main.bench.n_changes
    text = await main.bench.ask_of_line(dialog)
    if text is None and main.bench.n_changes != before:
        main.bench.keep(dialog.area.text)
    return text

"""From a chosen checkpoint to a rewound session: preview, choice, operation, and the prompt as it should stand then."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kimi_tui.tui.commands.dmail import compact_part, write_dmail
from kimi_tui.tui.commands.session import WAY_BACK, fork_at
from kimi_tui.tui.prompt.command import number

if TYPE_CHECKING:
    from kimi_tui.soul.kimisoul import KimiSoul
    from kimi_tui.soul.rewind import FilesChoice, RewindOutcome, RewindPreview, Target
    from kimi_tui.tui.main.screen import MainScreen


async def rewind(screen: MainScreen, argument: str) -> None:
    """Preview a rewind to checkpoint N; without one, choose it on the timeline."""
    if not argument:
        screen.focus_timeline()
        return
    found = number(argument)
    if found is None:
        screen.tell(f"{argument[:20]} is no checkpoint: a number is needed.", level="warning")
        return
    from kimi_tui.soul.rewind import Target

    await preview(screen, Target(found))


async def preview(screen: MainScreen, target: Target) -> None:
    """Show what a rewind would take, ask what to do at that checkpoint, and do it.

    Raises:
        KeyError: there is no such checkpoint; the text is for the user.
        OSError: the disk refused; nothing changed.
    """
    from kimi_tui.tui.preview.layout import (
        BOTH,
        COMPACT_FROM,
        COMPACT_TO,
        COPY,
        DMAIL,
        FILES,
        FORK,
        REWIND,
        actions_at,
    )
    from kimi_tui.tui.preview.screen import RewindScreen

    soul = await screen.conversation.opened()
    found = await soul.preview(target)
    actions = actions_at(target.id, target.world_line, has_dmail=soul.has_dmail)
    question = RewindScreen(
        found, running=soul.running, actions=actions, typed_ahead=screen.type_in_prompt
    )
    answer = await screen.ask(question)
    if answer is None:
        return
    if answer.action == REWIND.name:
        await _rewind(screen, soul, target)
    elif answer.action == BOTH.name:
        await _rewind(screen, soul, target, "restore", answer.chosen)
    elif answer.action == FILES.name:
        await _files_only(screen, soul, target, answer.chosen)
    elif answer.action == FORK.name:
        await fork_at(screen, soul, target)
    elif answer.action == DMAIL.name:
        await write_dmail(screen, soul, target)
    elif answer.action == COMPACT_FROM.name:
        await compact_part(screen, soul, start=target)
    elif answer.action == COMPACT_TO.name:
        await compact_part(screen, soul, until=target)
    elif answer.action == COPY.name:
        screen.kimi.copy_to_clipboard(as_markdown(found))
        screen.tell("Copied as Markdown.")


async def _rewind(
    screen: MainScreen,
    soul: KimiSoul,
    target: Target,
    files: FilesChoice = "keep",
    chosen: frozenset[str] | None = None,
) -> None:
    if soul.running:
        await soul.interrupt()
    uid = screen.uid_of(target)
    outcome = await soul.rewind(target, files, chosen)
    screen.return_to_now()
    back = f" {_files_said(outcome)}" if files != "keep" else ""
    if outcome.prompt:
        screen.return_message(target, uid, outcome.prompt)
    screen.tell(f"{_done_said(target, outcome)}.{back}", advice=WAY_BACK)


def _done_said(target: Target, outcome: RewindOutcome) -> str:
    """What happened to the conversation, and how it goes on from there."""
    line = target.world_line
    done = f"Jumped to #{target.id} of world line {line}" if line else "Rewound"
    if outcome.prompt:
        return f"{done}; your message is back for editing"
    return f"{done}; Enter in an empty prompt goes on from there" if outcome.is_open else done


async def _files_only(
    screen: MainScreen, soul: KimiSoul, target: Target, chosen: frozenset[str] | None
) -> None:
    if soul.running:
        await soul.interrupt()
    outcome = await soul.rewind(target, "only", chosen)
    screen.return_to_prompt()
    screen.tell(_files_said(outcome), advice=WAY_BACK)


def _files_said(outcome: RewindOutcome) -> str:
    """What became of the files, after they were verified."""
    from kimi_tui.tui.formatting import counted

    alone = [one for one in outcome.files if one.reason]
    deleted = sum(1 for one in outcome.files if one.fate == "delete")
    back = len(outcome.files) - len(alone) - deleted
    parts = [f"{counted(back, 'file')} brought back"] if back else []
    parts += [f"{deleted} deleted"] if deleted else []
    parts += [f"{len(alone)} left alone"] if alone else []
    return (", ".join(parts) or "No file had to be changed") + "."


def as_markdown(preview: RewindPreview) -> str:
    """What a rewind would take, as Markdown."""
    lines = [f"## #{preview.target.id} {preview.label}".rstrip(), ""]
    for message in preview.goes:
        if message.kind == "tool":
            failed = " (failed)" if message.failed else ""
            lines.append(f"- `{message.name}` {message.text}{failed}")
        else:
            words = {"user": "You", "agent": "Agent", "dmail": "D-Mail", "summary": "Summary"}
            lines += [f"**{words[message.kind]}:** {message.text}", ""]
    return "\n".join(lines).strip() + "\n"

"""From a chosen checkpoint to a rewound session: preview, choice, operation, and the prompt as it should stand then."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from kimi_tui.soul.protocol import FilesChoice, RewindOutcome, RewindPreview, Soul, Target
from kimi_tui.tui.app_of import app_of
from kimi_tui.tui.main.asking import ask
from kimi_tui.tui.main.letters import WAY_BACK, compact_part, write_dmail
from kimi_tui.tui.main.messages import SessionWanted
from kimi_tui.tui.numbers import counted
from kimi_tui.tui.preview.actions import (
    BOTH,
    COMPACT_FROM,
    COMPACT_TO,
    COPY,
    FILES,
    FORK,
    LETTER,
    REWIND,
    actions_at,
)
from kimi_tui.tui.preview.screen import RewindScreen

if TYPE_CHECKING:
    from textual.screen import Screen

    from kimi_tui.tui.main.conversation import Conversation
    from kimi_tui.tui.main.notices import Level


class Stage(Protocol):
    """What the flow needs of the screen."""

    def tell(self, text: str, *, level: Level = "info", advice: str = "") -> None:
        """Show a notice."""
        ...

    def uid_of(self, target: Target) -> str:
        """The lasting name of a checkpoint of the live line; empty where there is none."""
        ...

    def return_message(self, uid: str, checkpoint_id: int, text: str) -> None:
        """Replace what stands in the prompt by the message of a checkpoint that is gone from the live line."""
        ...

    def return_to_prompt(self) -> None:
        """Close the timeline where it floats, and give the prompt the keys."""
        ...

    def return_to_now(self) -> None:
        """The same, and a line that was left is on view no longer."""
        ...


async def rewind_flow(
    stage: Stage, screen: Screen[Any], conversation: Conversation, target: Target
) -> None:
    """Ask what to do at a checkpoint, then do it.

    Raises:
        KeyError: there is no such checkpoint; the text is for the person.
        OSError: the disk refused; nothing changed.
    """
    soul = conversation.engine.soul
    if soul is None:
        stage.tell("The session is still being opened.")
        return
    preview = await soul.preview(target)
    actions = actions_at(target.id, target.world_line)
    answer = await ask(screen, RewindScreen(preview, running=soul.running, actions=actions))
    if answer is None:
        return
    if answer.action == REWIND.name:
        await _rewind(stage, soul, target)
    elif answer.action == BOTH.name:
        await _rewind(stage, soul, target, "restore", answer.chosen)
    elif answer.action == FILES.name:
        await _files_only(stage, soul, target, answer.chosen)
    elif answer.action == FORK.name:
        session_id = await soul.fork(target)
        launch = conversation.elsewhere(session_id)
        if launch is None:
            stage.tell("Forked into a new session.", advice=f"Its id is {session_id}.")
        else:
            screen.post_message(SessionWanted(launch))
    elif answer.action == LETTER.name:
        await write_dmail(stage, screen, conversation, soul, target)
    elif answer.action == COMPACT_FROM.name:
        await compact_part(stage, screen, soul, start=target)
    elif answer.action == COMPACT_TO.name:
        await compact_part(stage, screen, soul, until=target)
    elif answer.action == COPY.name:
        app_of(screen).copy_to_clipboard(as_markdown(preview))
        stage.tell("Copied as Markdown.")


async def _rewind(
    stage: Stage,
    soul: Soul,
    target: Target,
    files: FilesChoice = "keep",
    chosen: frozenset[str] | None = None,
) -> None:
    if soul.running:
        await soul.interrupt()
    uid = stage.uid_of(target)
    outcome = await soul.rewind(target, files, chosen)
    stage.return_to_now()
    back = f" {_files_said(outcome)}" if files != "keep" else ""
    if outcome.prompt:
        stage.return_message(uid, target.id, outcome.prompt)
    stage.tell(f"{_done_said(target, outcome)}.{back}", advice=WAY_BACK)


def _done_said(target: Target, outcome: RewindOutcome) -> str:
    """What happened to the conversation, and how it goes on from there."""
    line = target.world_line
    done = f"Jumped to #{target.id} of world line {line}" if line else "Rewound"
    if outcome.prompt:
        return f"{done}; your message is back for editing"
    return f"{done}; Enter in an empty prompt goes on from there" if outcome.is_open else done


async def _files_only(
    stage: Stage, soul: Soul, target: Target, chosen: frozenset[str] | None
) -> None:
    if soul.running:
        await soul.interrupt()
    outcome = await soul.rewind(target, "only", chosen)
    stage.return_to_prompt()
    stage.tell(_files_said(outcome), advice=WAY_BACK)


def _files_said(outcome: RewindOutcome) -> str:
    """What became of the files, after they were verified."""
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

"""What the person writes at a checkpoint: a D-Mail to the agent's past self, and what a summary of a part must keep."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from kimi_tui.soul.protocol import Soul, Target
from kimi_tui.tui.letter.model import Letter
from kimi_tui.tui.letter.screen import Drafting, LetterScreen
from kimi_tui.tui.main.asking import ask

if TYPE_CHECKING:
    from textual.screen import Screen

    from kimi_tui.tui.main.conversation import Conversation
    from kimi_tui.tui.main.notices import Level


class Stage(Protocol):
    """What the flows need of the screen."""

    def tell(self, text: str, *, level: Level = "info", advice: str = "") -> None:
        """Show a notice."""
        ...

    def return_to_prompt(self) -> None:
        """Close the timeline where it floats, and give the prompt the keys."""
        ...


WAY_BACK = "Nothing is lost: /undo, or u on the timeline, brings it back."


def name_of(target: Target) -> str:
    """`#8`, or `#8 of world line 2`."""
    return (
        f"#{target.id} of world line {target.world_line}" if target.world_line else f"#{target.id}"
    )


async def write_dmail(
    stage: Stage, screen: Screen[Any], conversation: Conversation, soul: Soul, target: Target
) -> None:
    """Let the person write to the agent's past self, then send it.

    Raises:
        KeyError: there is no such checkpoint; the text is for the person.
    """
    letter = Letter(
        title=f"D-Mail to {name_of(target)}",
        question="What should the agent have known there?",
        consequence="It goes back to before that step, reads this, and goes on from there.",
        placeholder="Write to the agent's past self",
        verb="send",
        kind="dmail",
    )
    drafting = Drafting(lambda: soul.draft_dmail(target), soul.interrupt)
    text = await ask(screen, LetterScreen(letter, drafting))
    if text:
        await send_dmail(stage, conversation, soul, target, text)


async def send_dmail(
    stage: Stage, conversation: Conversation, soul: Soul, target: Target, text: str
) -> None:
    """Send a letter to the agent's past self, who goes on with it."""
    if soul.running:
        await soul.interrupt()
    await soul.dmail(target, text)
    stage.return_to_prompt()
    stage.tell(f"Your D-Mail arrived at {name_of(target)}.", advice=WAY_BACK)
    conversation.let_on()


async def compact_part(
    stage: Stage,
    screen: Screen[Any],
    soul: Soul,
    *,
    start: Target | None = None,
    until: Target | None = None,
) -> None:
    """Ask what the summary must keep, then compact from a checkpoint on, or up to it.

    Raises:
        KeyError: there is no such checkpoint; the text is for the person.
    """
    part = f"from {name_of(start)} on" if start else f"up to {name_of(until)}" if until else ""
    stays = "before" if start else "from there on"
    letter = Letter(
        title=f"Compact {part}".strip(),
        question="What must the summary keep?",
        consequence=f"A summary takes the place of that part; what is {stays} stays as it is.",
        placeholder="Nothing in particular",
        verb="compact",
        kind="compaction",
        may_be_empty=True,
        low=True,
    )
    text = await ask(screen, LetterScreen(letter))
    if text is None:
        return
    if soul.running:
        await soul.interrupt()
    stage.return_to_prompt()
    await soul.compact(text, start=start, until=until)

"""What the user writes at a checkpoint: a D-Mail to the agent's past self, and what a summary of a part must keep."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kimi_tui.tui.callbacks import apart
from kimi_tui.tui.commands.session import WAY_BACK, files_said
from kimi_tui.tui.formatting import line_words

if TYPE_CHECKING:
    from kimi_tui.soul.kimisoul import KimiSoul
    from kimi_tui.soul.rewind import Target
    from kimi_tui.tui.dialogs.text_dialog import TextDialog
    from kimi_tui.tui.main.screen import MainScreen
    from kimi_tui.tui.preview.layout import PreviewAnswer


def place_of(target: Target) -> str:
    """A place as it is typed: `8`, or `2:8` on world line 2."""
    return f"{target.world_line}:{target.id}" if target.world_line else str(target.id)


def name_of(screen: MainScreen, target: Target) -> str:
    """`#8`, or `#8 of world line 2 (fix the quotes)`."""
    name = screen.views.timeline.model.line_name(target.world_line)
    line = f" of {line_words(target.world_line, name)}" if target.world_line else ""
    return f"#{target.id}{line}"


async def write_dmail(
    screen: MainScreen, soul: KimiSoul, target: Target, answer: PreviewAnswer
) -> None:
    """Let the user write to the agent's past self, then send it; the answer says what becomes of the files.

    Raises:
        KeyError: there is no such checkpoint; the text is for the user.
    """
    from kimi_tui.tui.dialogs.text_dialog import Drafting, TextDialog, TextQuestion

    question = TextQuestion(
        title=f"D-Mail to {name_of(screen, target)}",
        question="What should the agent have known there?",
        consequence="It goes back to before that step, reads this, and goes on from there.",
        placeholder="Write to the agent's past self",
        verb="send",
        kind="dmail",
    )
    drafting = Drafting(lambda: apart(soul.draft_dmail(target)), soul.interrupt)
    dialog = TextDialog(question, drafting)
    if target.world_line:
        text = await _written(screen, dialog)
    else:
        found = await soul.preview_dmail(target.id, "", "person")
        with screen.foreseen(target, found, words_stay=True):
            text = await _written(screen, dialog)
    if text:
        try:
            await send_dmail(screen, soul, target, answer, text)
        except Exception:
            screen.keep(text)  # what was written is not lost with the failure, which is told
            raise


async def send_dmail(
    screen: MainScreen, soul: KimiSoul, target: Target, answer: PreviewAnswer, text: str
) -> None:
    """Send a D-Mail to the agent's past self, who goes on with it."""
    if soul.running:
        await soul.interrupt()
    outcome = await soul.dmail(target, text, answer.files, answer.chosen)
    screen.return_to_prompt()
    back = f" {files_said(outcome.files)}" if answer.files != "keep" else ""
    screen.tell(f"Your D-Mail arrived at {name_of(screen, target)}.{back}", advice=WAY_BACK)
    screen.conversation.let_on()


async def compact_part(
    screen: MainScreen, soul: KimiSoul, *, start: Target | None = None, until: Target | None = None
) -> None:
    """Ask what the summary must keep, then compact from a checkpoint on, or up to it.

    Raises:
        KeyError: there is no such checkpoint; the text is for the user.
    """
    from kimi_tui.tui.dialogs.text_dialog import TextDialog, TextQuestion

    part = f"up to {name_of(screen, until)}" if until else ""
    part = f"from {name_of(screen, start)} on" if start else part
    stays = "before" if start else "from there on"
    question = TextQuestion(
        title=f"Compact {part}".strip(),
        question="What must the summary keep?",
        consequence=f"A summary takes the place of that part; what is {stays} stays as it is.",
        placeholder="Nothing in particular",
        verb="compact",
        kind="compaction",
        may_be_empty=True,
        low=True,
    )
    text = await _written(screen, TextDialog(question))
    if text is None:
        return
    is_done = False
    try:
        if soul.running:
            await soul.interrupt()
        screen.return_to_prompt()
        is_done = await soul.compact(text, start=start, until=until)
    finally:
        if not is_done:
            screen.keep(text)  # as a D-Mail's text is; why it failed is told


async def _written(screen: MainScreen, dialog: TextDialog) -> str | None:
    """What the user writes about a place of the line; where that becomes another one first it goes into the prompt."""
    before = screen.n_changes
    text = await screen.ask_of_line(dialog)
    if text is None and screen.n_changes != before:
        screen.keep(dialog.area.text)
    return text

"""Compaction: compact the conversation, and read, edit or undo a summary (a part from a checkpoint on: `rewind.compact_part`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kimi_tui.tui.main.commands.rewind import preview
from kimi_tui.tui.main.commands.session import WAY_BACK

if TYPE_CHECKING:
    from kimi_tui.soul.kimisoul import KimiSoul
    from kimi_tui.tui.main.parts import MainParts


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

    soul = await main.conversation.opened()
    found = [one for one in await soul.messages() if one.kind == "summary"]
    here = next((one for one in found if one.uid == uid), None) if uid else None
    here = here or (found[-1] if found else None)
    if here is None:
        main.bench.tell("Nothing was compacted on the live line.")
        return
    point = main.bench.views.live_point(here.checkpoint_id)
    before = point.before if point is not None else 0
    after = before + (point.saved or 0) if point is not None and before else 0
    is_guess = point is not None and not point.saved_measured
    shown = Summary(here.checkpoint_id, here.text, before, after, here is found[-1], is_guess)
    answer = await main.bench.ask(SummaryScreen(shown))
    if answer == "edit":
        await _edit(main, soul, here.text)
    elif answer == "undo":
        main.bench.tell(await soul.undo())
    elif answer == "rewind":
        await preview(main, Target(here.checkpoint_id))


async def _edit(main: MainParts, soul: KimiSoul, text: str) -> None:
    from kimi_tui.tui.dialogs.text_dialog import TextDialog, TextQuestion

    question = TextQuestion(
        title="Edit the summary",
        question="What should the agent know of what came before?",
        consequence="Your text takes the place of the summary; undo brings the one before back.",
        text=text,
        verb="keep",
        kind="compaction",
    )
    written = await main.bench.ask(TextDialog(question))
    if written and written != text.strip():
        await soul.edit_summary(written)
        main.bench.return_to_prompt()
        main.bench.tell("The summary is yours now.", advice=WAY_BACK)

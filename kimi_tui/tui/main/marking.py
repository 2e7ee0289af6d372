"""Names for checkpoints, pins on messages, and the summary of a compaction to be read and edited."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kimi_tui.soul.protocol import Soul, Target
from kimi_tui.tui.letter.model import Letter
from kimi_tui.tui.letter.screen import LetterScreen
from kimi_tui.tui.letter.summary import Summary, SummaryScreen
from kimi_tui.tui.main.asking import ask
from kimi_tui.tui.main.letters import WAY_BACK, name_of

if TYPE_CHECKING:
    from kimi_tui.tui.main.screen import MainScreen
    from kimi_tui.tui.timeline.points import Point

NAME_CHARS = 60


def live_point(screen: MainScreen, checkpoint_id: int) -> Point | None:
    """A checkpoint of the live line, as the timeline knows it."""
    model = screen.views.timeline.model
    live = model.tree.live if model is not None else []
    return next((point for point in live if point.id == checkpoint_id), None)


async def name_it(screen: MainScreen, soul: Soul, target: Target, uid: str) -> None:
    """Ask for a name of a checkpoint; an empty one takes the name away."""
    letter = Letter(
        title=f"Bookmark {name_of(target)}",
        question="What is this step called?",
        consequence="The name stands on the timeline and can be found with /.",
        text=soul.bookmarks.get(uid, ""),
        placeholder="No name takes the bookmark away",
        verb="keep",
        may_be_empty=True,
        low=True,
    )
    name = await ask(screen, LetterScreen(letter))
    if name is not None:
        await bookmark(screen, soul, uid, name)


async def bookmark(screen: MainScreen, soul: Soul, uid: str, name: str) -> None:
    """Keep a name, and show it."""
    await soul.bookmark(uid, " ".join(name.split())[:NAME_CHARS])
    screen.views.mark(soul.bookmarks, soul.pins)


async def pin(screen: MainScreen, soul: Soul, uid: str, number: int = 0) -> None:
    """Pin a message, or no longer, and show that."""
    pinned = (uid, number) not in soul.pins
    await soul.pin(uid, number, pinned)
    screen.views.mark(soul.bookmarks, soul.pins)
    if pinned:
        screen.tell("Pinned: neither a compaction nor a D-Mail drops it.")
    else:
        screen.tell("No longer pinned.")


async def read_summary(screen: MainScreen, soul: Soul, uid: str) -> None:
    """Show a summary of the live line, then do what is chosen there; without a uid the newest one.

    Raises:
        SoulBusy: the agent works.
    """
    found = [one for one in await soul.messages() if one.kind == "summary"]
    here = next((one for one in found if one.uid == uid), None) if uid else None
    here = here or (found[-1] if found else None)
    if here is None:
        screen.tell("Nothing was compacted on the live line.")
        return
    point = live_point(screen, here.checkpoint_id)
    before = point.before if point is not None else 0
    after = before + (point.saved or 0) if point is not None and before else 0
    shown = Summary(here.checkpoint_id, here.text, before, after, here is found[-1])
    answer = await ask(screen, SummaryScreen(shown))
    if answer == "edit":
        await _edit(screen, soul, here.text)
    elif answer == "undo":
        screen.tell(await soul.undo())
    elif answer == "rewind":
        screen.preview(Target(here.checkpoint_id))


async def _edit(screen: MainScreen, soul: Soul, text: str) -> None:
    letter = Letter(
        title="Edit the summary",
        question="What should the agent know of what came before?",
        consequence="Your text takes the place of the summary; undo brings the one before back.",
        text=text,
        verb="keep",
        kind="compaction",
    )
    written = await ask(screen, LetterScreen(letter))
    if written and written != text.strip():
        await soul.edit_summary(written)
        screen.return_to_prompt()
        screen.tell("The summary is yours now.", advice=WAY_BACK)

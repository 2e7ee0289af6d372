"""Bookmarks and pins: names for checkpoints and world lines, and messages that no compaction or D-Mail drops."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kimi_tui.tui.main.commands.rewind import name_of
from kimi_tui.tui.main.commands.session import tell_no_number
from kimi_tui.tui.prompt.command import number

if TYPE_CHECKING:
    from kimi_tui.soul.kimisoul import KimiSoul
    from kimi_tui.soul.rewind_values import Target
    from kimi_tui.tui.main.parts import MainParts

NAME_CHARS = 60


async def bookmark(main: MainParts, argument: str) -> None:
    """`N NAME`: name a checkpoint of the live line; `N`: ask for its name."""
    where, _, name = argument.partition(" ")
    found = _live_checkpoint(main, where)
    if found is None:
        return
    checkpoint_id, uid = found
    soul = await main.conversation.opened()
    if name.strip():
        await _keep_name(main, soul, uid, name)
        return
    from kimi_tui.soul.rewind_values import Target

    await name_checkpoint(main, Target(checkpoint_id), uid)


async def name(main: MainParts, argument: str) -> None:
    """`K NAME`: name a world line; `K`: ask for its name; `NAME`: name the one on view."""
    where, _, words = argument.partition(" ")
    line = number(where)
    if line is None and main.bench.reading:
        await name_line(main, main.bench.reading, argument)
    elif line is None:
        main.bench.keep(f"/name {argument}")
        said = "Which world line? Its number stands before the name."
        main.bench.tell(
            said, level="warning", advice=f"/name 1 {argument[:20]} names world line 1."
        )
    else:
        await name_line(main, line, words.strip())


async def name_line(main: MainParts, world_line: int, words: str = "") -> None:
    """Name a world line; without words, ask for them: none give it its own first words again."""
    from kimi_tui.tui.dialogs.text_dialog import TextDialog, TextQuestion

    line = main.bench.views.timeline.model.tree.lines.get(world_line)
    if line is None or not line.mark:
        main.bench.tell(f"There is no world line {world_line}.", level="warning")
        return
    soul = await main.conversation.opened()
    kept = words or await main.bench.ask(
        TextDialog(
            TextQuestion(
                title=f"Name world line {world_line}",
                question="What was tried there?",
                consequence="The name stands on the timeline in place of the line's first words.",
                text=soul.bookmarks.get(line.mark, ""),
                placeholder=line.own_words or "No name",
                verb="keep",
                may_be_empty=True,
                low=True,
            )
        )
    )
    if kept is not None:
        await _keep_name(main, soul, line.mark, kept)


async def pin(main: MainParts, argument: str) -> None:
    """`N`: pin what stands at a checkpoint of the live line, or no longer."""
    if found := _live_checkpoint(main, argument):
        await pin_message(main, found[1])


def _live_checkpoint(main: MainParts, text: str) -> tuple[int, str] | None:
    """The checkpoint of the live line that a text names, with its uid; where there is none, that is said."""
    checkpoint_id = number(text)
    if checkpoint_id is None:
        tell_no_number(main, text)
        return None
    point = main.bench.views.live_point(checkpoint_id)
    if point is None or point.uid.startswith("~"):
        said = f"There is no checkpoint #{checkpoint_id} on the live line."
        main.bench.tell(said, level="warning")
        return None
    return checkpoint_id, point.uid


async def name_checkpoint(main: MainParts, target: Target, uid: str) -> None:
    """Ask for a name of a checkpoint; an empty one takes the name away."""
    from kimi_tui.tui.dialogs.text_dialog import TextDialog, TextQuestion

    soul = await main.conversation.opened()
    question = TextQuestion(
        title=f"Bookmark {name_of(main, target)}",
        question="What is this step called?",
        consequence="The name stands on the timeline and can be found with /.",
        text=soul.bookmarks.get(uid, ""),
        placeholder="No name takes the bookmark away",
        verb="keep",
        may_be_empty=True,
        low=True,
    )
    name = await main.bench.ask(TextDialog(question))
    if name is not None:
        await _keep_name(main, soul, uid, name)


async def _keep_name(main: MainParts, soul: KimiSoul, uid: str, name: str) -> None:
    await soul.bookmark(uid, " ".join(name.split())[:NAME_CHARS])
    main.bench.views.mark(soul.bookmarks, soul.pins)
    main.viewer.tell_news()


async def pin_message(main: MainParts, uid: str, message_number: int = 0) -> None:
    """Pin a message of a checkpoint, or no longer, and show that."""
    soul = await main.conversation.opened()
    pinned = (uid, message_number) not in soul.pins
    await soul.pin(uid, message_number, pinned)
    main.bench.views.mark(soul.bookmarks, soul.pins)
    if pinned:
        main.bench.tell("Pinned: neither a compaction nor a D-Mail drops it.")
    else:
        main.bench.tell("No longer pinned.")

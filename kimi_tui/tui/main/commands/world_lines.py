"""Commands about world lines (read, compare, jump, send a message of one), and names and pins on them and their checkpoints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kimi_tui.daemon_threads import in_daemon_thread
from kimi_tui.tui.formatting import line_words, missing_line_words
from kimi_tui.tui.key_names import key_of
from kimi_tui.tui.main.commands.rewind import name_of, preview
from kimi_tui.tui.main.commands.session import lines_named, tell_no_checkpoint, tell_no_line
from kimi_tui.tui.prompt.command import number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kimi_tui.projection.blocks import Block
    from kimi_tui.soul.kimisoul import KimiSoul
    from kimi_tui.soul.rewind_values import Target
    from kimi_tui.tui.main.commands import MainParts

QUOTE_CHARS = 600
NAME_CHARS = 60


async def switch(main: MainParts, argument: str) -> None:
    """Preview a switch to the end of a world line (`K`), or to before its checkpoint N (`K:N`)."""
    line, _, checkpoint = argument.partition(":")
    k, n = number(line), number(checkpoint)
    if k is None and (named := _line_of(main, argument)) is not None:
        k, n, checkpoint = named, None, ""
    if not argument:
        k = await _chosen_line(main, "Switch to a world line", "preview the switch")
        if k is not None:
            await _preview_jump(main, k, None)
    elif k is None or (checkpoint and n is None):
        tell_no_line(main, argument, "/switch 1")
    else:
        await _preview_jump(main, k, n)


async def read(main: MainParts, argument: str) -> None:
    """Show a world line in the place of the chat (`K`); without a number, return to now."""
    k = _line_of(main, argument)
    if k is not None:
        await open_line(main, k)
    elif argument:
        tell_no_line(main, argument, "/worldline 1")
    elif main.bench.reading:
        main.viewer.leave()
    elif (k := await _chosen_line(main, "Read a world line", "read")) is not None:
        await open_line(main, k)


async def compare(main: MainParts, argument: str) -> None:
    """Show a line (`K`, or without an argument the line on view, else one that the user chooses) beside the live line."""
    k = _line_of(main, argument) if argument else main.bench.reading or None
    if k is None and argument:
        tell_no_line(main, argument, "/compare 1")
        return
    if k is None and main.conversation.running:
        main.bench.tell_working()
        return
    if k is None:
        k = await _chosen_line(main, "Compare with the current world line", "compare")
    if k is not None:
        await compare_with_live(main, k)


def _line_of(main: MainParts, argument: str) -> int | None:
    """Return the world line that an argument names by its number, or by the name that the timeline shows; None if it names none, or
    if several lines have the name.
    """
    if (k := number(argument)) is not None or not argument.strip():
        return k
    named = lines_named(main, argument)
    return named[0] if len(named) == 1 else None


async def _chosen_line(main: MainParts, title: str, verb: str) -> int | None:
    """Return the world line that the user chooses; without asking if there is only one.

    Args:
        main: the main screen.
        title: the title of the list.
        verb: what Enter does with the chosen line.

    Returns:
        the number of the line; None if the list was closed, or if there is no line, as a notice says.
    """
    timeline = main.bench.views.timeline.model
    lines = sorted(timeline.tree.lines.items(), reverse=True)
    if not lines:
        tell_no_line(main, "", "")
        return None
    if len(lines) == 1:
        return lines[0][0]
    from kimi_tui.tui.dialogs.list_screen import ListedItem, ListScreen
    from kimi_tui.tui.formatting import counted
    from kimi_tui.tui.pick_list import Entry

    items = [
        ListedItem(
            Entry(f"{n}  {timeline.line_name(n)}", counted(len(line.checkpoints), "step")),
            f"World line {n}: {timeline.line_name(n)}",
            verb,
            result=str(n),
        )
        for n, line in lines
    ]

    async def again() -> Sequence[ListedItem]:
        return items

    chosen = await main.bench.ask(ListScreen(title, again, first=items, empty=""))
    return number(chosen) if chosen else None


async def open_line(main: MainParts, world_line: int, checkpoint_id: int = -1) -> None:
    """Show a world line in the place of the chat, and give it the keys.

    Args:
        main: the main screen.
        world_line: the number of the line; 0 for the live line, which is the chat.
        checkpoint_id: the checkpoint of it to scroll to; -1 for its end.

    Raises:
        KeyError: there is no such line; the text is for the user.
    """
    main.beside.leave(focus=False)
    if not world_line:
        main.viewer.leave()
        main.viewer.show_prospect(None)
        main.bench.read_chat(checkpoint_id)
        return
    from_timeline = main.bench.timeline_pane.has_keys
    main.bench.timeline_pane.close()
    soul = await main.conversation.opened("lines")
    await main.viewer.open(soul, world_line, checkpoint_id, from_timeline=from_timeline)


async def compare_with_live(main: MainParts, world_line: int) -> None:
    """Show a world line beside the live line, then do what is chosen there.

    Raises:
        KeyError: there is no such line; the text is for the user.
        SoulBusy: the agent works.
    """
    from kimi_tui.projection.comparison import Comparison
    from kimi_tui.session.errors import UnknownWorldLine
    from kimi_tui.tui.compare.screen import CompareScreen
    from kimi_tui.tui.frame_rows import READ_ONLY
    from kimi_tui.tui.gauge import Gauge

    soul = await main.conversation.opened("lines")
    try:
        found = await soul.lines.compare(world_line)
    except UnknownWorldLine as error:
        raise KeyError(missing_line_words(world_line)) from error
    info = next((one for one in await soul.lines.all() if one.n == world_line), None)
    if info is None:
        raise KeyError(missing_line_words(world_line))
    now = main.bench.views.gauge
    gauge = Gauge()
    gauge.show_model(now.model)
    used = now.model.status.used
    work_dir = main.bench.transcript.work_dir
    comparison = await in_daemon_thread(Comparison.of, found.other, found.live, work_dir)
    page = CompareScreen(
        found,
        comparison,
        info,
        name=main.bench.views.timeline.model.line_name(world_line),
        used=used,
        heading=main.bench.header.heading._replace(words=READ_ONLY),
        gauge=gauge,
        load_image=main.conversation.load_image,
        write=main.keystrokes.write_to_prompt,
        copies="dmails" in main.conversation.state.parts,
    )
    answer = await main.bench.ask(page)
    if answer is None:
        return
    if answer.action == "jump":
        at = answer.block.checkpoint if answer.block is not None else None
        await _preview_jump(main, world_line, at)
    else:
        there = [entry.block for entry in comparison.sides["other"]]
        await send_to_now(main, soul, world_line, there, answer.block)


async def jump_to_chosen(main: MainParts) -> None:
    """Preview a jump to the visible line: to before the chosen message, or to its end if none is chosen."""
    if main.bench.reading:
        await _preview_jump(main, main.bench.reading, main.viewer.chosen_checkpoint)


async def send_chosen(main: MainParts) -> None:
    """Send the chosen message of the visible line to the present, or its newest text if none is chosen."""
    world_line = main.bench.reading
    if not world_line:
        return
    soul = await main.conversation.opened("dmails")
    await send_to_now(main, soul, world_line, main.viewer.blocks, main.viewer.chosen)


async def _preview_jump(main: MainParts, world_line: int, checkpoint_id: int | None) -> None:
    from kimi_tui.soul.rewind_values import END, Target

    await preview(main, Target(END if checkpoint_id is None else checkpoint_id, world_line))


async def send_to_now(
    main: MainParts,
    soul: KimiSoul,
    world_line: int,
    blocks: Sequence[Block],
    chosen: Block | None,
) -> None:
    """Let the user send a message of another line to the present, with words of their own before it.

    Args:
        main: the main screen.
        soul: the engine of the session.
        world_line: the number of the line.
        blocks: the messages of it that are shown.
        chosen: the one to send; None for the newest words of the agent.
    """
    from kimi_tui.projection.comparison import content_of, newest_words, number_of

    block = chosen or newest_words(blocks)
    if block is None:
        main.bench.tell(
            f"World line {world_line} has nothing new: the current world line has all its messages."
        )
        return
    message_number = number_of(block, blocks)
    if message_number is None:
        main.bench.tell("This message cannot be copied.", advice="Select another message with Tab.")
        return
    from kimi_tui.display_names import titled
    from kimi_tui.foreign_text import one_line
    from kimi_tui.projection.blocks import images_of
    from kimi_tui.tui.dialogs.text_dialog import TextDialog, TextQuestion

    text = titled(content_of(block), [image.name for image in images_of(block)])
    question = TextQuestion(
        title=f"Copy from {line_words(world_line, main.bench.views.timeline.model.line_name(world_line))}",
        question=f"This message, from checkpoint #{block.checkpoint}, is copied to the end of the current conversation.",
        consequence="Your text is put before it; the agent reads both in its next step.",
        placeholder="Add a text, or leave it empty",
        quote=one_line(text[:QUOTE_CHARS]),
        verb="copy",
        kind="dmail",
        may_be_empty=True,
        low=True,
    )
    note = await main.bench.ask(TextDialog(question))
    if note is None:
        return
    try:
        await soul.dmails.carry(world_line, block.uid, message_number, note=note)
    except Exception:
        main.bench.keep(note)  # as a D-Mail's text is
        raise
    main.viewer.return_to_now()
    main.bench.transcript.scroll_to_end()
    send = key_of("send", main.bench.keys)
    main.bench.tell(
        "The message is at the end of the conversation.",
        advice=f"Press {send} in the empty prompt to let the agent continue.",
    )


# --- names, bookmarks and pins


async def bookmark(main: MainParts, argument: str) -> None:
    """Name a checkpoint of the live line (`N NAME`); with `N` alone, ask for its name."""
    where, _, name = argument.partition(" ")
    found = _live_checkpoint(main, where, "bookmark")
    if found is None:
        return
    checkpoint_id, uid = found
    soul = await main.conversation.opened("marks")
    if name.strip():
        await _keep_name(main, soul, uid, name)
        main.bench.tell(
            f"Checkpoint #{checkpoint_id} is bookmarked as {soul.marks.bookmarks.get(uid, '')}."
        )
        return
    from kimi_tui.soul.rewind_values import Target

    await name_checkpoint(main, Target(checkpoint_id), uid)


async def name(main: MainParts, argument: str) -> None:
    """Name a world line (`K NAME`), or the one on view (`NAME`); with `K` alone, ask for its name."""
    where, _, words = argument.partition(" ")
    line = number(where)
    if line is None and main.bench.reading:
        await name_line(main, main.bench.reading, argument)
    elif line is None:
        main.bench.keep(f"/name {argument}")
        said = "The number of the world line is missing."
        main.bench.tell(
            said, level="warning", advice=f"/name 1 {argument[:20]} names world line 1."
        )
    else:
        await name_line(main, line, words.strip())


async def name_line(main: MainParts, world_line: int, words: str = "") -> None:
    """Name a world line. Without words, ask for a name; an empty answer names the line by its own first words again."""
    from kimi_tui.tui.dialogs.text_dialog import TextDialog, TextQuestion

    line = main.bench.views.timeline.model.tree.lines.get(world_line)
    if line is None or not line.mark:
        main.bench.tell(missing_line_words(world_line), level="warning")
        return
    soul = await main.conversation.opened("marks")
    kept = words or await main.bench.ask(
        TextDialog(
            TextQuestion(
                title=f"Name world line {world_line}",
                question="What was tried there?",
                consequence="The timeline shows the name in place of the first words of the world line.",
                text=soul.marks.bookmarks.get(line.mark, ""),
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
    """Pin the message at a checkpoint of the live line (`N`), or unpin it."""
    if found := _live_checkpoint(main, argument, "pin"):
        await pin_message(main, found[1])


def _live_checkpoint(main: MainParts, text: str, command: str) -> tuple[int, str] | None:
    """Return the checkpoint of the live line that a text names, with its uid; None, after a notice, if there is none."""
    checkpoint_id = number(text)
    if checkpoint_id is None:
        tell_no_checkpoint(main, text, f"/{command} 5")
        return None
    point = main.bench.views.live_point(checkpoint_id)
    if point is None or point.uid.startswith("~"):
        said = f"There is no checkpoint #{checkpoint_id} in the current conversation."
        main.bench.tell(said, level="warning")
        return None
    return checkpoint_id, point.uid


async def name_checkpoint(main: MainParts, target: Target, uid: str) -> None:
    """Ask for a name of a checkpoint; an empty one takes the name away."""
    from kimi_tui.tui.dialogs.text_dialog import TextDialog, TextQuestion

    soul = await main.conversation.opened("marks")
    question = TextQuestion(
        title=f"Bookmark {name_of(main, target)}",
        question="What should this checkpoint be called?",
        consequence="The timeline shows the name, and its filter finds it.",
        text=soul.marks.bookmarks.get(uid, ""),
        placeholder="If empty, the bookmark is removed",
        verb="keep",
        may_be_empty=True,
        low=True,
    )
    name = await main.bench.ask(TextDialog(question))
    if name is not None:
        await _keep_name(main, soul, uid, name)


async def _keep_name(main: MainParts, soul: KimiSoul, uid: str, name: str) -> None:
    await soul.marks.bookmark(uid, " ".join(name.split())[:NAME_CHARS])
    main.viewer.tell_news()


async def pin_message(main: MainParts, uid: str, message_number: int = 0) -> None:
    """Pin a message of a checkpoint, or unpin it, and show that. Only our own compactions and D-Mails keep what is pinned."""
    soul = await main.conversation.opened("model")
    pinned = (uid, message_number) not in soul.marks.pins
    await soul.marks.pin(uid, message_number, pinned)
    if pinned:
        main.bench.tell("Pinned. Compactions and D-Mails keep this message.")
    else:
        main.bench.tell("Unpinned this message.")

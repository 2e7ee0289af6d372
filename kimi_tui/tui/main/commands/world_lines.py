"""Commands about world lines: read one in place of the chat, compare it with the live line, jump to it, send a message of it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kimi_tui.tui.formatting import line_words
from kimi_tui.tui.keyboard import key_of
from kimi_tui.tui.main.commands.rewind import preview
from kimi_tui.tui.main.commands.session import tell_no_number
from kimi_tui.tui.prompt.command import number

if TYPE_CHECKING:
    from kimi_tui.projection.world_lines import WorldLineMessage
    from kimi_tui.soul.kimisoul import KimiSoul
    from kimi_tui.tui.main.parts import MainParts

QUOTE_CHARS = 600


async def jump(main: MainParts, argument: str) -> None:
    """`K` or `K:N`: preview a jump to the end of a world line, or to before its checkpoint N."""
    line, _, checkpoint = argument.partition(":")
    k, n = number(line), number(checkpoint)
    if k is None or (checkpoint and n is None):
        tell_no_number(main, argument)
    else:
        await _preview_jump(main, k, n)


async def read(main: MainParts, argument: str) -> None:
    """`K`: show a world line in the place of the chat; without a number, return to now."""
    k = number(argument)
    if k is not None:
        await open_line(main, k)
    elif argument or not main.bench.reading:
        tell_no_number(main, argument)
    else:
        main.viewer.leave()


async def compare(main: MainParts, argument: str) -> None:
    """`K`, or nothing for the line on view: show it beside the live line."""
    k = number(argument) if argument else main.bench.reading or None
    if k is None:
        tell_no_number(main, argument)
    else:
        await compare_with_live(main, k)


async def open_line(main: MainParts, world_line: int, checkpoint_id: int = -1) -> None:
    """Show a world line in the place of the chat, and give it the keys.

    Args:
        main: where.
        world_line: its number; 0 for the live line, which is the chat.
        checkpoint_id: where to in it; -1 for its end.

    Raises:
        KeyError: there is no such line; the text is for the user.
    """
    if not world_line:
        main.viewer.leave()
        main.viewer.show_prospect(None)
        main.bench.read_chat(checkpoint_id)
        return
    from_timeline = main.bench.timeline_pane.has_keys
    main.bench.timeline_pane.close()
    soul = await main.conversation.opened()
    await main.viewer.open(soul, world_line, checkpoint_id, from_timeline=from_timeline)


async def compare_with_live(main: MainParts, world_line: int) -> None:
    """Show a world line beside the live line, then do what is chosen there.

    Raises:
        KeyError: there is no such line; the text is for the user.
        SoulBusy: the agent works.
    """
    from kimi_tui.projection.world_lines import Comparison
    from kimi_tui.tui.compare.screen import CompareScreen
    from kimi_tui.tui.frame import READ_ONLY
    from kimi_tui.tui.gauge import Gauge
    from kimi_tui.tui.world_line_view import newest_words

    soul = await main.conversation.opened()
    found = await soul.compare(world_line)
    info = next((one for one in await soul.world_lines() if one.n == world_line), None)
    if info is None:
        raise KeyError(f"There is no world line {world_line}.")
    now = main.bench.views.gauge
    gauge = Gauge()
    gauge.show_model(now.model)
    used = now.model.status.used
    comparison = await asyncio.to_thread(Comparison, found.other, found.live)
    page = CompareScreen(
        found,
        info,
        name=main.bench.views.timeline.model.line_name(world_line),
        used=used,
        heading=main.bench.header.heading._replace(words=READ_ONLY),
        gauge=gauge,
        comparison=comparison,
        load_image=main.bench.transcript.load_image,
        write=main.keystrokes.write_on,
    )
    answer = await main.bench.ask(page)
    if answer is None:
        return
    if answer.action == "jump":
        at = answer.message.checkpoint_id if answer.message is not None else None
        await _preview_jump(main, world_line, at)
    else:
        await _send_to_now(main, soul, world_line, answer.message or newest_words(found.other))


async def jump_to_chosen(main: MainParts) -> None:
    """Preview a jump to the line on view: to before the chosen message, or to its end where none is chosen."""
    if main.bench.reading:
        await _preview_jump(main, main.bench.reading, main.viewer.chosen_checkpoint)


async def send_chosen(main: MainParts) -> None:
    """Send the chosen message of the line on view to the present, or its newest words where none is chosen."""
    world_line = main.bench.reading
    if not world_line:
        return
    soul = await main.conversation.opened()
    messages = await soul.messages(world_line)
    chosen = main.viewer.chosen_message(messages)
    if chosen is None and main.viewer.has_choice:
        main.bench.tell("This cannot be sent.", advice="Tab chooses another message.")
        return
    from kimi_tui.tui.world_line_view import newest_words

    await _send_to_now(main, soul, world_line, chosen or newest_words(messages))


async def _preview_jump(main: MainParts, world_line: int, checkpoint_id: int | None) -> None:
    from kimi_tui.soul.rewind_values import END, Target

    await preview(main, Target(END if checkpoint_id is None else checkpoint_id, world_line))


async def _send_to_now(
    main: MainParts, soul: KimiSoul, world_line: int, message: WorldLineMessage | None
) -> None:
    """Let the user send a message of another line to the present, with words of their own before it."""
    if message is None:
        main.bench.tell(f"World line {world_line} has nothing to send that is not here.")
        return
    from kimi_tui.display_names import titled
    from kimi_tui.foreign_text import one_line
    from kimi_tui.tui.dialogs.text_dialog import TextDialog, TextQuestion
    from kimi_tui.wire.display import ImageBlock

    calls = ", ".join(f"{name} {target}" for name, target in message.calls)
    images = [shown.name for shown in message.display if isinstance(shown, ImageBlock)]
    text = titled(message.text, images) or calls
    question = TextQuestion(
        title=f"Send to now from {line_words(world_line, main.bench.views.timeline.model.line_name(world_line))}",
        question=f"This message of #{message.checkpoint_id} goes to the end of the conversation.",
        consequence="Your words stand before it; the agent reads both in its next step.",
        placeholder="A word of your own, if you like",
        quote=one_line(text[:QUOTE_CHARS]),
        verb="send",
        kind="dmail",
        may_be_empty=True,
        low=True,
    )
    note = await main.bench.ask(TextDialog(question))
    if note is None:
        return
    try:
        await soul.carry(world_line, message.uid, message.number, note=note)
    except Exception:
        main.bench.keep(note)  # as a D-Mail's text is
        raise
    main.viewer.return_to_now()
    main.bench.transcript.scroll_to_end()
    send = key_of("send", main.bench.keys)
    main.bench.tell(
        "It stands at the end of the conversation.",
        advice=f"{send} in an empty prompt lets the agent go on.",
    )

"""Shows a world line beside the live line, then does what is wanted of it there."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kimi_tui.soul.protocol import Soul
from kimi_tui.tui.compare.model import Comparison
from kimi_tui.tui.compare.screen import CompareScreen
from kimi_tui.tui.gauge.widget import Gauge
from kimi_tui.tui.main.asking import ask
from kimi_tui.tui.main.header import READ_ONLY
from kimi_tui.tui.main.reading import jump, send
from kimi_tui.tui.worldline.model import newest_words

if TYPE_CHECKING:
    from kimi_tui.tui.main.screen import MainScreen


async def compare(screen: MainScreen, soul: Soul, world_line: int) -> None:
    """Compare a line that was left with the live one.

    Raises:
        KeyError: there is no such line; the text is for the person.
        SoulBusy: the agent works.
    """
    found = await soul.compare(world_line)
    info = next((one for one in await soul.world_lines() if one.n == world_line), None)
    if info is None:
        raise KeyError(f"There is no world line {world_line}.")
    now = screen.views.gauge
    gauge = Gauge()
    gauge.model = now.model
    used = now.model.usage.used if now.model is not None else 0
    comparison = await asyncio.to_thread(Comparison, found.other, found.live)
    page = CompareScreen(
        found,
        info,
        used=used,
        heading=screen.header.heading._replace(words=READ_ONLY),
        gauge=gauge,
        comparison=comparison,
    )
    wanted = await ask(screen, page)
    if wanted is None:
        return
    if wanted.wish == "jump":
        at = wanted.message.checkpoint_id if wanted.message is not None else None
        await jump(screen, soul, world_line, at)
    else:
        await send(screen, soul, world_line, wanted.message or newest_words(found.other))

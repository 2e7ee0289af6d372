"""Where keys lead to in the chat: the person's words above and below, the next block."""

from __future__ import annotations

from kimi_tui.tui.chat.blocks import UserBlock
from kimi_tui.tui.chat.flow import Flow


def turn_row(flow: Flow, top: int, step: int) -> int:
    """The row of the person's words before (-1) or after (1) a row."""
    starts = [
        flow.start(index) + view.gap
        for index, view in enumerate(flow.views)
        if isinstance(view.block, UserBlock)
    ]
    if step < 0:
        return max((start for start in starts if start < top), default=0)
    return min((start for start in starts if start > top), default=flow.height)


def next_block(flow: Flow, current: int | None, step: int) -> int | None:
    """The index of the next block above or below; every one can be kept, returned to or copied.

    Args:
        flow: all blocks.
        current: the key of the block to start from; None starts at the end that is farther away.
        step: -1 for above, 1 for below.
    """
    last = len(flow.views) - 1
    here = next((at for at, view in enumerate(flow.views) if view.block.key == current), None)
    if here is None:
        return None if last < 0 else last if step < 0 else 0
    return min(max(here + step, 0), last)

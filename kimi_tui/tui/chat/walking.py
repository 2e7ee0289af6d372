"""Where keys lead to in the chat: the person's words above and below, the next card."""

from __future__ import annotations

from kimi_tui.tui.chat.blocks import AgentBlock, MarkBlock, UserBlock
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
    """The index of the next block above or below that can be unfolded or returned to.

    Args:
        flow: all blocks.
        current: the key of the block to start from; None starts at the end that is farther away.
        step: -1 for above, 1 for below.
    """
    able = [
        index
        for index, view in enumerate(flow.views)
        if not isinstance(view.block, (AgentBlock, MarkBlock))
    ]
    if not able:
        return None
    keys = [flow.views[index].block.key for index in able]
    if current in keys:
        return able[min(max(keys.index(current) + step, 0), len(able) - 1)]
    return able[-1 if step < 0 else 0]

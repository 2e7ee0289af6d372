"""Which message a block of a world line shows, so that it can be sent to the present."""

from __future__ import annotations

from kimi_tui.projection.blocks import (
    AgentBlock,
    Block,
    CompactionBlock,
    MarkBlock,
    ThoughtBlock,
    ToolBlock,
    UserBlock,
)
from kimi_tui.projection.comparison import newest_words, number_of


def test_which_message_a_block_shows() -> None:
    own = ToolBlock(8, 2, "b", 3)
    own.is_own = True
    killed = ToolBlock(9, 3, "c", 1, state="stopped")
    blocks: list[Block] = [
        UserBlock(1, 1, "a"),
        ThoughtBlock(2, 2, "b"),
        AgentBlock(3, 2, "b"),
        ToolBlock(4, 2, "b"),
        ToolBlock(5, 2, "b"),
        MarkBlock(6, 2, "b"),
        ToolBlock(7, 2, "b", 4),
        own,
        killed,
        CompactionBlock(10),
    ]
    # A result stands behind the message that called, after those of the calls before it.
    assert [number_of(block, blocks) for block in blocks] == [
        0, None, 0, 1, 2, None, 5, None, 1, None,
    ]  # fmt: skip
    assert newest_words(blocks) is blocks[2]
    assert newest_words(blocks[:1]) is blocks[0]
    assert newest_words([]) is None

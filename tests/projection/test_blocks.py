"""The blocks that a rewind would drop."""

from __future__ import annotations

from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimi_tui.projection.blocks import (
    AgentBlock,
    Block,
    BlockList,
    CompactionBlock,
    DMailBlock,
    NoticeBlock,
    ToolBlock,
    UserBlock,
    copied,
)


@given(
    st.lists(st.tuples(st.integers(0, 2), st.booleans()), max_size=30),
    st.integers(0, 40),
    st.integers(0, 5),
    st.integers(0, 5),
)
def test_the_first_block_from_a_checkpoint_on(
    steps: list[tuple[int, bool]], checkpoint: int, base: int, tail: int
) -> None:
    blocks, number = BlockList(), 0
    for step, has_none in steps:
        number += step
        blocks.blocks.append(NoticeBlock(key=0, checkpoint=None if has_none else number))
    blocks.base, blocks.tail = min(base, len(steps)), min(tail, len(steps) - min(base, len(steps)))
    numbers = [block.checkpoint for block in blocks.blocks]
    slowly = (
        at
        for at in range(blocks.base, blocks.end)
        if (number := numbers[at]) is not None and number >= checkpoint
    )
    assert blocks.first_from(checkpoint) == next(slowly, blocks.end)


@pytest.mark.parametrize("kind", [UserBlock, ToolBlock, DMailBlock, AgentBlock, CompactionBlock])
def test_a_copy_is_another_block_with_the_same_values_but_those_named(kind: type[Block]) -> None:
    block = kind(key=3, checkpoint=4, uid="u", number=2, n_edits=7, at=1.5, pinned=True)
    copy = copied(block, checkpoint=9, replaced=True)
    assert copy is not block
    assert type(copy) is kind
    wanted = {one.name: getattr(block, one.name) for one in fields(block)}
    wanted |= {"checkpoint": 9, "replaced": True, "n_edits": 8}
    assert {one.name: getattr(copy, one.name) for one in fields(copy)} == wanted
    assert (block.checkpoint, block.n_edits) == (4, 7)

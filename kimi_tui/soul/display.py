"""What tools did, as the blocks that cards draw; diffs are computed here, bounded and away from the event loop.

How texts are compared is in `workspace.diff`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from kimi_tui.tools.base import CommandRun, Effect, FileEdit, TodoChange
from kimi_tui.wire.display import (
    BriefBlock,
    DiffBlock,
    DiffLine,
    DisplayBlock,
    ShellBlock,
    TodoBlock,
    TodoItem,
)
from kimi_tui.workspace.diff import diff_lines

CARD_LINES = 200
"""Rows of a diff that a card keeps; the whole counts stand beside them."""
_SMALL_CHARS = 8_000


async def blocks_of(effects: Iterable[Effect], brief: str = "") -> tuple[DisplayBlock, ...]:
    """The blocks of a finished call: its few words first, then what it changed."""
    blocks: list[DisplayBlock] = [BriefBlock(brief)] if brief else []
    for effect in effects:
        match effect:
            case FileEdit():
                blocks.append(await diff_of(effect, CARD_LINES))
            case TodoChange(items):
                blocks.append(TodoBlock(tuple(TodoItem(i.title, i.status) for i in items)))
            case CommandRun(command, exit_code, duration_s):
                blocks.append(ShellBlock(command, exit_code, duration_s))
    return tuple(blocks)


async def diffs_of(edits: Iterable[FileEdit]) -> tuple[DisplayBlock, ...]:
    """The whole diffs that the user must see before a yes."""
    return tuple([await diff_of(edit, None) for edit in edits])


async def diff_of(edit: FileEdit, max_lines: int | None) -> DiffBlock:
    """One edit as a diff; large texts are compared in a thread."""
    if len(edit.before or "") + len(edit.after) <= _SMALL_CHARS:
        return diff_block(edit, max_lines)
    return await asyncio.to_thread(diff_block, edit, max_lines)


def diff_block(edit: FileEdit, max_lines: int | None = CARD_LINES) -> DiffBlock:
    """The change of one file, by lines.

    Args:
        edit: both texts, whole.
        max_lines: how many rows to keep; None for all of them.
    """
    diff = diff_lines(edit.before or "", edit.after, max_lines)
    rows = tuple(DiffLine(*row) for row in diff.rows)
    return DiffBlock(edit.path, diff.added, diff.removed, rows, edit.before is None)

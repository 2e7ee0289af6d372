"""What tools did, as the blocks that cards draw; diffs are computed here, bounded and away from the event loop.

Comparing is by lines. The ends that two texts share are cut off first, and where what is left is too much to compare in
bearable time, the block says how many lines were replaced and shows none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher

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

CARD_LINES = 200
"""Rows of a diff that a card keeps; the whole counts stand beside them."""
CONTEXT_LINES = 2
MAX_COMPARED_LINES = 5_000
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
    """The whole diffs that a person must see before a yes."""
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
    old = _lines(edit.before or "")
    new = _lines(edit.after)
    if (edit.before or "").endswith("\n") != edit.after.endswith("\n") and old and new:
        # The one difference that lines do not show: an empty last row stands for the final newline.
        (old if (edit.before or "").endswith("\n") else new).append("")
    head = _common_head(old, new)
    tail = _common_tail(old, new, head)
    old_middle, new_middle = old[head : len(old) - tail], new[head : len(new) - tail]
    created = edit.before is None
    if max(len(old_middle), len(new_middle)) > MAX_COMPARED_LINES and old_middle and new_middle:
        if max_lines is None:
            rows = _replaced(old_middle, new_middle, head)
            return DiffBlock(edit.path, len(new_middle), len(old_middle), rows, created)
        return DiffBlock(edit.path, len(new_middle), len(old_middle), (), created)
    codes = SequenceMatcher(None, old_middle, new_middle).get_opcodes()
    added = sum(j2 - j1 for tag, _, _, j1, j2 in codes if tag != "equal")
    removed = sum(i2 - i1 for tag, i1, i2, _, _ in codes if tag != "equal")
    changes = [
        (i1 + head, i2 + head, j1 + head, j2 + head)
        for tag, i1, i2, j1, j2 in codes
        if tag != "equal"
    ]
    rows = _rows(changes, old, new, max_lines)
    return DiffBlock(edit.path, added, removed, rows, created)


def _rows(
    changes: Sequence[tuple[int, int, int, int]],
    old: Sequence[str],
    new: Sequence[str],
    max_lines: int | None,
) -> tuple[DiffLine, ...]:
    rows: list[DiffLine] = []
    shown_to = 0
    for position, (i1, i2, j1, j2) in enumerate(changes):
        start = max(shown_to, j1 - CONTEXT_LINES)
        rows += [DiffLine(" ", j + 1, new[j]) for j in range(start, j1)]
        rows += [DiffLine("-", i + 1, old[i]) for i in range(i1, i2)]
        rows += [DiffLine("+", j + 1, new[j]) for j in range(j1, j2)]
        following = changes[position + 1][2] if position + 1 < len(changes) else len(new)
        shown_to = min(j2 + CONTEXT_LINES, following)
        rows += [DiffLine(" ", j + 1, new[j]) for j in range(j2, shown_to)]
        if max_lines is not None and len(rows) >= max_lines:
            return tuple(rows[:max_lines])
    return tuple(rows)


def _replaced(old: Sequence[str], new: Sequence[str], head: int) -> tuple[DiffLine, ...]:
    removed = [DiffLine("-", head + i + 1, text) for i, text in enumerate(old)]
    added = [DiffLine("+", head + j + 1, text) for j, text in enumerate(new)]
    return (*removed, *added)


def _lines(text: str) -> list[str]:
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    return lines


def _common_head(old: Sequence[str], new: Sequence[str]) -> int:
    count = 0
    for first, second in zip(old, new, strict=False):
        if first != second:
            break
        count += 1
    return count


def _common_tail(old: Sequence[str], new: Sequence[str], head: int) -> int:
    most = min(len(old), len(new)) - head
    count = 0
    while count < most and old[-1 - count] == new[-1 - count]:
        count += 1
    return count

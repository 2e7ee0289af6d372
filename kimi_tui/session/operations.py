"""Jump, undo and redo: operations that bring back a line that was left.

Undo reverses the newest operation that is not undone, again and again, also in a new process, because all of it is computed from
the journal. Redo holds until something new is said or done.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Literal

from kimi_tui.session.context import Context
from kimi_tui.session.errors import NothingToUndo, SessionError, UnknownWorldLine
from kimi_tui.session.journal import Entry
from kimi_tui.session.line import LineIndex
from kimi_tui.session.line_files import stored_lines
from kimi_tui.session.line_keeper import Plan
from kimi_tui.session.opening import read_line, scan_line
from kimi_tui.session.readable_line import known_checkpoint
from kimi_tui.session.records import Checkpoint, Operation
from kimi_tui.session.reports import Reverted
from kimi_tui.session.switching import NewLine

_CHUNK_BYTES = 1 << 20


class AlreadyThere(SessionError):
    """The live line already is what was asked for."""


@dataclass(frozen=True, slots=True)
class Undone:
    """What was undone or redone: the operation, and what it did to the line (None where only files were touched)."""

    entry: Entry
    reverted: Reverted | None


@dataclass(frozen=True, slots=True)
class _Stacks:
    undo: tuple[Entry, ...]
    redo: tuple[Entry, ...]
    # The undo that a redo takes back, by the id of the operation it undid.
    undone_by: dict[str, Entry]


def next_undo(context: Context) -> Entry:
    """The operation that undo would reverse.

    Raises:
        NothingToUndo: There is none, or the line it left is gone.
    """
    stack = _stacks(context).undo
    if not stack:
        raise NothingToUndo("There is nothing to undo.")
    _check_there(context, stack[-1])
    return stack[-1]


def next_redo(context: Context) -> Entry:
    """The operation that redo would carry out again.

    Raises:
        NothingToUndo: There is none, or the line it made is gone.
    """
    stacks = _stacks(context)
    if not stacks.redo:
        raise NothingToUndo("There is nothing to redo.")
    _check_there(context, stacks.undone_by[stacks.redo[-1].id])
    return stacks.redo[-1]


@asynccontextmanager
async def growing(context: Context, op: Operation, text: str = "") -> AsyncGenerator[None]:
    """Put something at the end of the live line within this, as an operation of its own that undo takes back.

    Args:
        context: The live line.
        op: What it is.
        text: What it brings, for the journal.

    Raises:
        StorageTrouble: The disk refused the journal's entry; nothing was added.
    """
    meant = Entry(
        op=op,
        size=context.size_bytes,
        checkpoint_id=context.n_checkpoints,
        from_checkpoint=context.n_checkpoints - 1,
        tokens_before=context.token_count,
        text=text,
    )
    entry = await asyncio.to_thread(context.journal.intend, meant)
    try:
        yield
    except BaseException:
        context.journal.void(entry)
        raise
    await asyncio.to_thread(context.journal.finish, entry)


async def undo(context: Context, *, files: Entry | None = None) -> Undone:
    """Reverse the newest operation that is not undone.

    Args:
        context: The live line.
        files: What was done to the working files along with it: its snapshots and paths go into the journal.

    Raises:
        NothingToUndo: There is none, or the line it left is gone.
        StorageTrouble: The disk refused; nothing changed.
    """
    entry = next_undo(context)
    return await _bring_back(context, "undo", entry, left=entry, files=files)


async def redo(context: Context, *, files: Entry | None = None) -> Undone:
    """Carry out again what was undone last.

    Args:
        context: The live line.
        files: What was done to the working files along with it.

    Raises:
        NothingToUndo: There is none, or the line it made is gone.
        StorageTrouble: The disk refused; nothing changed.
    """
    entry = next_redo(context)
    left = _stacks(context).undone_by[entry.id]
    return await _bring_back(context, "redo", entry, left=left, files=files)


async def jump(
    context: Context, n: int, checkpoint_id: int | None = None, *, files: Entry | None = None
) -> Reverted:
    """Make world line `n` live, up to before a checkpoint of it, or all of it. World line `n` stays.

    Args:
        context: The live line.
        n: The world line.
        checkpoint_id: The first thing of it that does not come along.
        files: What was done to the working files along with it.

    Raises:
        UnknownWorldLine: There is no such line.
        UnknownCheckpoint: It has no such checkpoint.
        AlreadyThere: The live line is exactly that.
        StorageTrouble: The disk refused; nothing changed.
    """
    if n not in stored_lines(context.folder):
        raise UnknownWorldLine(f"There is no world line {n}.")

    async def plan() -> Plan:
        whole = await asyncio.to_thread(scan_line, context.storage, context.folder, n)
        keep, target, uid = whole.size, -1, ""
        if checkpoint_id is not None:
            point = known_checkpoint(whole, checkpoint_id)
            keep, target, uid = point.offset, point.id, point.uid
        entry = replace(
            files or Entry(op="jump"), op="jump", source=n, checkpoint_id=target, uid=uid
        )
        made = await _plan(context, n, keep, whole, entry)
        if made.shared == keep == context.size_bytes:
            raise AlreadyThere("The conversation is there already.")
        return made

    return await context.change_line(plan)


async def _bring_back(
    context: Context,
    op: Literal["undo", "redo"],
    entry: Entry,
    *,
    left: Entry,
    files: Entry | None,
) -> Undone:
    """Make live again what the operation `left` left behind."""
    done = replace(
        files or Entry(op=op),
        op=op,
        of=entry.id,
        reason=entry.op,
        checkpoint_id=entry.checkpoint_id,
        uid=entry.uid,
    )
    if left.grows_line:
        # What followed stays as a world line.
        point = _point_at(context, left.size)
        return Undone(entry, await context.revert_to(point.id, reason=op, files=done))
    if not left.changes_line:
        done = replace(done, to_size=context.size_bytes)
        await asyncio.to_thread(context.journal.record_files, done)
        return Undone(entry, None)

    async def plan() -> Plan:
        whole = await asyncio.to_thread(scan_line, context.storage, context.folder, left.n)
        return await _plan(context, left.n, left.size, whole, done)

    return Undone(entry, await context.change_line(plan))


async def _plan(context: Context, n: int, keep: int, whole: LineIndex, entry: Entry) -> Plan:
    index = whole.prefix(keep)
    shared = await asyncio.to_thread(_shared_bytes, context, n, index)
    return context.plan(NewLine(source=n, keep=keep), index, entry, shared)


def _shared_bytes(context: Context, n: int, index: LineIndex) -> int:
    """How many bytes of whole records the live line and another have in common at their beginning."""
    position = 0
    for mine, other in zip(context.checkpoints, index.checkpoints, strict=False):
        if (mine.uid, mine.offset) != (other.uid, other.offset):
            break
        position = mine.offset
    end = min(context.size_bytes, index.size)
    while position < end:
        size = min(_CHUNK_BYTES, end - position)
        mine = context.read(size, position)
        other = read_line(context.storage, context.folder, n, size, position)
        if mine != other:
            same = next(
                at for at, pair in enumerate(zip(mine, other, strict=True)) if pair[0] != pair[1]
            )
            return position + mine.rfind(b"\n", 0, same) + 1 if b"\n" in mine[:same] else position
        position += size
    return position


def _check_there(context: Context, entry: Entry) -> None:
    if entry.grows_line:
        _point_at(context, entry.size)
    if not entry.changes_line:
        return
    size = stored_lines(context.folder).get(entry.n)
    if size is None or size < entry.size:
        raise NothingToUndo(f"World line {entry.n}, which it left, is gone.")


def _point_at(context: Context, offset: int) -> Checkpoint:
    """The checkpoint with which what was put behind so many bytes begins."""
    for point in context.checkpoints:
        if point.offset == offset:
            return point
    raise NothingToUndo("What was added is not on the live line any more.")


def _stacks(context: Context) -> _Stacks:
    undo: list[Entry] = []
    redo: list[Entry] = []
    undone_by: dict[str, Entry] = {}
    entries: Sequence[Entry] = context.journal.entries
    there = stored_lines(context.folder)
    for entry in entries:
        if entry.op == "undo":
            known = next((known for known in reversed(undo) if known.id == entry.of), None)
            if known is not None:
                undo.remove(known)
                redo.append(known)
                undone_by[known.id] = entry
        elif entry.op == "redo":
            known = next((known for known in reversed(redo) if known.id == entry.of), None)
            if known is not None:
                redo.remove(known)
                # Undoing it again brings back what this redo left.
                undo.append(replace(known, n=entry.n, size=entry.size))
        elif entry.grows_line and not entry.done:
            continue
        elif entry.done or not entry.changes_line or entry.n in there:
            undo.append(entry)
            redo.clear()
    if entries and entries[-1].to_size != context.size_bytes:
        # Something was said since.
        redo.clear()
    return _Stacks(tuple(undo), tuple(redo), undone_by)

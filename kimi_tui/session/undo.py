"""Jump, undo and redo: operations that bring back a line that was left.

Undo reverses the newest operation that is not undone. It can be repeated, even in a new process, because everything is
computed from the journal. Redo is possible until there is a new message or operation.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Literal

from kimi_tui.session.context import NO_FIGURES, Context, ContextChange, KnownTokens, Reverted
from kimi_tui.session.errors import NothingToUndo, UnknownWorldLine
from kimi_tui.session.journal import JournalEntry
from kimi_tui.session.rotation import stored_world_lines
from kimi_tui.session.schema import Checkpoint, Operation


@dataclass(frozen=True, slots=True)
class Undone:
    """The operation that was undone or redone, and its effect on the line (None if only files were changed)."""

    entry: JournalEntry
    reverted: Reverted | None


@dataclass(frozen=True, slots=True)
class _Stacks:
    undo: tuple[JournalEntry, ...]
    redo: tuple[JournalEntry, ...]
    # The undo of each undone operation, by that operation's id; a redo takes it back.
    undone_by: dict[str, JournalEntry]


def next_undo(context: Context) -> JournalEntry:
    """Return the operation that undo would reverse.

    Raises:
        NothingToUndo: There is no such operation, or the line it left is gone.
    """
    stack = _stacks(context).undo
    if not stack:
        raise NothingToUndo(
            "There is nothing to undo. Undo reverses a rewind, D-Mail, compaction, switch or clear; to go back in the conversation, "
            "rewind to a step."
        )
    _check_there(context, stack[-1])
    return stack[-1]


def next_redo(context: Context) -> JournalEntry:
    """Return the operation that redo would carry out again.

    Raises:
        NothingToUndo: There is no such operation, or the line it made is gone.
    """
    stacks = _stacks(context)
    if not stacks.redo:
        raise NothingToUndo("There is nothing to redo.")
    _check_there(context, stacks.undone_by[stacks.redo[-1].id])
    return stacks.redo[-1]


@asynccontextmanager
async def journaled_append(
    context: Context, op: Operation, text: str = "", tokens: KnownTokens = NO_FIGURES
) -> AsyncGenerator[None]:
    """Journal everything that is appended to the live line within this context as one operation, which undo can take back.

    Args:
        context: The live line.
        op: The kind of operation.
        text: Its text, for the journal.
        tokens: The figures that the user sees.

    Raises:
        StorageTrouble: The disk refused the journal's entry; nothing was added.
    """
    meant = JournalEntry(
        op=op,
        size=context.size_bytes,
        checkpoint_id=context.n_checkpoints,
        from_checkpoint=context.n_checkpoints - 1,
        tokens_before=context.token_count if tokens.before is None else tokens.before,
        text=text,
    )
    entry = await asyncio.to_thread(context.journal.intend, meant)
    try:
        yield
    except BaseException:
        context.journal.void(entry)
        raise
    await asyncio.to_thread(context.journal.finish, entry)


async def undo(
    context: Context, *, files: JournalEntry | None = None, tokens: KnownTokens = NO_FIGURES
) -> Undone:
    """Reverse the newest operation that is not undone.

    Args:
        context: The live line.
        files: The change of the working files that goes with it: its snapshots and paths are journaled.
        tokens: The figures that the user sees.

    Raises:
        NothingToUndo: There is no such operation, or the line it left is gone.
        StorageTrouble: The disk refused; nothing changed.
    """
    entry = next_undo(context)
    return await _bring_back(context, "undo", entry, left=entry, files=files, tokens=tokens)


async def redo(
    context: Context, *, files: JournalEntry | None = None, tokens: KnownTokens = NO_FIGURES
) -> Undone:
    """Carry out again the operation that was undone last.

    Args:
        context: The live line.
        files: The change of the working files that goes with it.
        tokens: The figures that the user sees.

    Raises:
        NothingToUndo: There is no such operation, or the line it made is gone.
        StorageTrouble: The disk refused; nothing changed.
    """
    entry = next_redo(context)
    left = _stacks(context).undone_by[entry.id]
    return await _bring_back(context, "redo", entry, left=left, files=files, tokens=tokens)


async def jump(
    context: Context,
    n: int,
    checkpoint_id: int | None = None,
    *,
    files: JournalEntry | None = None,
    tokens: KnownTokens = NO_FIGURES,
) -> Reverted:
    """Make world line `n` live, up to before one of its checkpoints, or all of it. World line `n` stays.

    Args:
        context: The live line.
        n: The world line.
        checkpoint_id: The checkpoint at which the new live line ends, not included; None for the whole line.
        files: The change of the working files that goes with it.
        tokens: The figures that the user sees.

    Raises:
        UnknownWorldLine: No line has that number.
        UnknownCheckpoint: The line has no such checkpoint.
        AlreadyThere: The live line is exactly the requested one.
        StorageTrouble: The disk refused; nothing changed.
    """
    if n not in stored_world_lines(context.folder):
        raise UnknownWorldLine(f"There is no world line {n}.")
    entry = replace(files or JournalEntry(op="jump"), op="jump", source=n)
    return await context.change(ContextChange(entry, source=n, before=checkpoint_id, tokens=tokens))


async def _bring_back(
    context: Context,
    op: Literal["undo", "redo"],
    entry: JournalEntry,
    *,
    left: JournalEntry,
    files: JournalEntry | None,
    tokens: KnownTokens,
) -> Undone:
    """Make the line live again that the operation `left` left."""
    done = replace(
        files or JournalEntry(op=op),
        op=op,
        of=entry.id,
        reason=entry.op,
        checkpoint_id=entry.checkpoint_id,
        uid=entry.uid,
        # The line has as many tokens again as before the operation.
        tokens_after=left.tokens_before,
    )
    if left.grows_line:
        # Undoing an append cuts the line; the appended part stays as a world line.
        point = _point_at(context, left.size)
        reverted = await context.revert_to(point.id, reason=op, files=done, tokens=tokens)
        return Undone(entry, reverted)
    if not left.changes_line:
        done = replace(done, to_size=context.size_bytes)
        await asyncio.to_thread(context.journal.record_files, done)
        return Undone(entry, None)
    change = ContextChange(done, source=left.n, size=left.size, tokens=tokens)
    return Undone(entry, await context.change(change))


def _check_there(context: Context, entry: JournalEntry) -> None:
    if entry.grows_line:
        _point_at(context, entry.size)
    if not entry.changes_line:
        return
    size = stored_world_lines(context.folder).get(entry.n)
    if size is None or size < entry.size:
        raise NothingToUndo(f"World line {entry.n} was deleted, so this cannot be undone.")


def _point_at(context: Context, offset: int) -> Checkpoint:
    """Return the checkpoint that begins the part appended after that many bytes."""
    for point in context.checkpoints:
        if point.offset == offset:
            return point
    raise NothingToUndo(
        "That change is no longer on the current world line, so /undo and /redo cannot reach it."
    )


def _stacks(context: Context) -> _Stacks:
    undo: list[JournalEntry] = []
    redo: list[JournalEntry] = []
    undone_by: dict[str, JournalEntry] = {}
    entries: Sequence[JournalEntry] = context.journal.entries
    there = stored_world_lines(context.folder)
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
                # Undoing it again brings back the line that this redo left.
                undo.append(replace(known, n=entry.n, size=entry.size))
        elif entry.grows_line and not entry.done:
            continue
        elif entry.done or not entry.changes_line or entry.n in there:
            undo.append(entry)
            redo.clear()
    if entries and entries[-1].to_size != context.size_bytes:
        # A message or operation came since, so nothing can be redone.
        redo.clear()
    return _Stacks(tuple(undo), tuple(redo), undone_by)

"""Forks a session: copies it so that one of its lines is the live line of a new session, with all world lines.

The copy is made under a temporary name and renamed, so that an incomplete copy is never visible.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
import uuid
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from itertools import chain, count
from pathlib import Path
from typing import Any

from kimi_tui import lenient_json
from kimi_tui.filesystem import Storage
from kimi_tui.session.aside import FORKED, made_aside
from kimi_tui.session.context import scan
from kimi_tui.session.context_index import ContextIndex
from kimi_tui.session.errors import UnknownWorldLine
from kimi_tui.session.journal import JOURNAL_NAME, Journal
from kimi_tui.session.jsonl import RECORD_NAME, JsonlLog
from kimi_tui.session.listing import describe
from kimi_tui.session.lock import LOCK_NAME
from kimi_tui.session.metadata import MARKS_NAME, SessionSummary, read_state, write_state
from kimi_tui.session.rotation import LIVE_NAME, stored_world_lines, world_line_path
from kimi_tui.session.schema import count_of

_FORK = re.compile(r"^Fork( \d+)?( (?:at|after) #\d+)?( of world line \d+)?: ")
# Each of these events begins another line.
_CUTS = frozenset({"ContextReverted", "CompactionBegin"})


def fork_session(
    storage: Storage,
    folder: Path,
    checkpoint_id: int | None,
    world_line: int = 0,
    after: int | None = None,
    name: str = "",
) -> Path:
    """Make the copy and return its folder. It blocks, so call it in a thread.

    Args:
        storage: The disk.
        folder: The session to copy; another process may have it open.
        checkpoint_id: The checkpoint at which the copy ends, not included; None for the whole line.
        world_line: The line to copy; 0 is the live one.
        after: The last checkpoint of the copy, if the fork was made for it; the title names it.
        name: The name of the copy's folder; a session whose folder begins with a dot is not listed. Empty for a new id.

    Raises:
        UnknownCheckpoint: The line has no checkpoint with that id.
        UnknownWorldLine: No line has that number.
        StorageTrouble: The disk refused; nothing was made.
    """
    name = name or str(uuid.uuid4())
    target, temporary = folder.with_name(name), folder.with_name(f"{FORKED}{name.lstrip('.')}")
    with made_aside(storage, temporary, target, "copy the session"):
        if not os.path.lexists(world_line_path(folder, world_line)):
            raise UnknownWorldLine(f"There is no world line {world_line}.")
        with storage.opened(world_line_path(folder, world_line)) as source:
            storage.make_folder(temporary)
            index = scan(storage, source)
            size, n_messages, points = index.size, index.n_messages, index.checkpoints
            if checkpoint_id is not None:
                point = index.checkpoint(checkpoint_id)
                size, n_messages = point.offset, point.message_index
                points = points[: points.index(point)]
            storage.write_file(temporary / LIVE_NAME, b"", source=source, size=size, new=True)
        lines = stored_world_lines(folder)
        for n in lines:
            # A world line's file is never written again, so both sessions may share it.
            storage.link_or_copy(world_line_path(folder, n), world_line_path(temporary, n))
        _copy_journal(storage, folder, temporary)
        whole = checkpoint_id is None and world_line == 0
        newest = None if whole else points[-1].uid if points else ""
        if not _copy_record(storage, folder, temporary, newest, lines) and not whole:
            _end_record(storage, temporary, index, len(points), world_line)
        if (folder / MARKS_NAME).exists():
            storage.copy_file(folder / MARKS_NAME, temporary / MARKS_NAME)
        _share_others(storage, folder, temporary)
        state = read_state(folder)
        usage = index.usage_before(size)
        state = replace(
            state,
            title=_title(folder, checkpoint_id, world_line, after),
            archived=False,
            forked_from=folder.name,
            summary=SessionSummary(
                size=size,
                messages=index.counts(0, n_messages)[0],
                tokens=usage[0] if usage else 0,
                title=state.summary.title,
            ),
        )
        write_state(storage, temporary, state)
    return target


def _copy_journal(storage: Storage, folder: Path, target: Path) -> None:
    """Copy the journal, never as a link, because both sessions go on writing theirs. An unfinished operation of the source is
    left out.
    """
    if not (folder / JOURNAL_NAME).exists():
        return
    known = Journal(folder, storage)
    known.load()
    entries = known.entries
    in_doubt = {entries[-1].id} if entries and not entries[-1].done else set[str]()
    kept = JsonlLog(target / JOURNAL_NAME, storage, metadata=None)
    for record in JsonlLog(folder / JOURNAL_NAME, storage, metadata=None).read():
        if record.get("id") not in in_doubt:
            kept.append(record)
    kept.close()


def _copy_record(
    storage: Storage, folder: Path, target: Path, newest: str | None, lines: Collection[int]
) -> bool:
    """Copy the record until the line continues after the checkpoint `newest`, or all of it for None.

    All of it is copied as well if some of the world lines were left later. Returns whether the copy ends after that checkpoint.
    """
    path = folder / RECORD_NAME
    if not path.exists():
        return True
    with storage.opened(path) as source:
        size, is_there = storage.readable_size(source), False
        if newest is not None:
            end, seen = _end_behind(JsonlLog(path, storage).read_with_offsets(), newest)
            if end is not None and seen.issuperset(lines):
                size, is_there = end, True
        storage.write_file(target / RECORD_NAME, b"", source=source, size=size, new=True)
    return is_there


def _end_record(
    storage: Storage, target: Path, index: ContextIndex, kept: int, world_line: int
) -> None:
    """Append an event to a record that was copied whole: it says that the line was changed to the copied one.

    Readers need it where the live line has records that are in none of the copy's lines.

    Args:
        storage: The disk.
        target: The copy.
        index: The index of the copied line.
        kept: The number of its checkpoints in the copy.
        world_line: The number of the copied line.
    """
    points = index.checkpoints
    uid = points[kept].uid if kept < len(points) else ""
    usage = index.usage_before(index.size)
    tokens = usage[0] if usage else 0
    event: dict[str, Any] = {"op": "jump", "from_line": 0, "to_line": world_line, "uid": uid}
    if not world_line:
        event = {
            "reason": "jump",
            "checkpoint_id": points[kept].id,
            "uid": uid,
            "from_checkpoint": points[-1].id,
            "world_line": 0,
            "messages_dropped": 0,
            "tool_calls_dropped": 0,
            "tokens_before": tokens,
            "tokens_after": points[kept].tokens or tokens,
        }
    kind = "LineChanged" if world_line else "ContextReverted"
    record = JsonlLog(target / RECORD_NAME, storage, metadata=None)
    record.append({"timestamp": time.time(), "message": {"type": kind, "payload": event}})
    record.close()


def _end_behind(
    records: Iterable[tuple[int, dict[str, Any]]], newest: str
) -> tuple[int | None, set[int]]:
    """Find where in a record the line continues after its checkpoint `newest`, and the world lines that were left before.

    The place is None if the line never continues, if that checkpoint was never made, or if one event tells of it together
    with later ones.
    """
    seen: set[int] = set()
    is_there = not newest
    turn: int | None = None
    for offset, record in records:
        kind, payload = _event(record)
        if kind == "TurnBegin":
            # The messages since the turn began belong to the next checkpoint.
            turn = offset
        elif kind == "CheckpointCreated":
            if is_there:
                # The parts that a compaction kept cannot be separated from it.
                end = offset if turn is None else turn
                return None if payload.get("was") else end, seen
            is_there = is_there or lenient_json.text(payload.get("uid")) == newest
            turn = None
        else:
            if is_there and (kind in _CUTS or (kind == "LineChanged" and payload.get("to_line"))):
                return offset, seen
            seen.add(count_of(payload.get("world_line")) or 0)
    return None, seen


def _event(record: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    message = lenient_json.mapping(record.get("message"))
    return lenient_json.text(message.get("type")), lenient_json.mapping(message.get("payload"))


def _title(folder: Path, checkpoint_id: int | None, world_line: int, after: int | None) -> str:
    """Return the title of the copy, which names the checkpoint at which it was made; no other session of the folder has that title.

    It is empty if the line has no messages: then the copy's own first message becomes its title, as in any session.
    """
    info = describe(folder)
    if info is None:
        return ""
    origin = _FORK.sub("", info.title) or "Untitled"
    place = "" if checkpoint_id is None else f" at #{checkpoint_id}"
    place = place if after is None else f" after #{after}"
    place += f" of world line {world_line}" if world_line else ""
    taken: set[str] = set()
    with contextlib.suppress(OSError):
        taken = {read_state(other).title for other in folder.parent.iterdir()}
    titles = (f"Fork{f' {n}' if n else ''}{place}: {origin}" for n in chain((0,), count(2)))
    return next(title for title in titles if title not in taken)


def share_files(
    storage: Storage, folder: Path, target: Path, below: str, but: Collection[str] = ()
) -> None:
    """Link a folder of a session file by file into another one, and copy the files that change.

    Args:
        storage: The disk.
        folder: The session.
        target: The other session's folder.
        below: The name of the folder in it.
        but: The names of files that are left out.

    Raises:
        OSError: The disk refused.
    """
    paths = (path for path in _files_below(folder, below) if path.name not in but)
    _share(storage, folder, target, paths)


def _share_others(storage: Storage, folder: Path, target: Path) -> None:
    """Link the session's other folders (the contents of snapshots) file by file: their files never change."""
    _share(storage, folder, target, _files_below(folder))


def _share(storage: Storage, folder: Path, target: Path, paths: Iterable[Path]) -> None:
    made: set[Path] = set()
    for path in paths:
        # Two names of one file would be one lock. A file that is being written has no final name, and may lose this one at any moment.
        if path.name == LOCK_NAME or path.suffix == ".tmp":
            continue
        beside = target / path.relative_to(folder)
        storage.make_folder(beside.parent)
        made.update(above for above in beside.parents if target in above.parents)
        if path.suffix in (".json", ".jsonl"):
            storage.copy_file(path, beside)
        else:
            storage.link_or_copy(path, beside)
    # The names in each folder are synced; those in the copy itself are synced last.
    for below in sorted(made, reverse=True):
        storage.sync_folder(below)


def _files_below(folder: Path, name: str = "") -> Iterator[Path]:
    """Yield the files in the folders of a folder, or in that one of them."""
    with contextlib.suppress(OSError):
        for path in [folder / name] if name else sorted(folder.iterdir()):
            if path.is_dir() and not path.is_symlink():
                yield from (
                    below
                    for below in sorted(path.rglob("*"))
                    if below.is_file() and not below.is_symlink()
                )

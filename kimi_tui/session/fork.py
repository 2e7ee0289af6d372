"""The copy of a session: a line of it becomes the live line of a new one, which has all the world lines too.

The copy is made beside and renamed into place, so that no half of one is ever seen.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from kimi_tui.filesystem import Storage
from kimi_tui.session.context import known_checkpoint
from kimi_tui.session.context_store import scan
from kimi_tui.session.errors import StorageTrouble, UnknownWorldLine
from kimi_tui.session.journal import JOURNAL_NAME, Journal
from kimi_tui.session.jsonl import RECORD_NAME, JsonlLog
from kimi_tui.session.rotation import LIVE_NAME, stored_world_lines, world_line_path
from kimi_tui.session.schema import text_of
from kimi_tui.session.side_files import MARKS_NAME, Summary, read_state, write_state


def copy_session(
    storage: Storage, folder: Path, checkpoint_id: int | None, world_line: int = 0
) -> Path:
    """Make the copy; blocks, so call it in a thread. Returns its folder.

    Args:
        storage: The disk.
        folder: The session to copy; another process may have it open.
        checkpoint_id: The first thing of the line that does not come along; None for all of it.
        world_line: Which line; 0 is the live one.

    Raises:
        UnknownCheckpoint: The line has none of that id.
        UnknownWorldLine: There is no such line.
        StorageTrouble: The disk refused; nothing was made.
    """
    name = str(uuid.uuid4())
    target, temporary = folder.with_name(name), folder.with_name(f".fork-{name}")
    try:
        if not os.path.lexists(world_line_path(folder, world_line)):
            raise UnknownWorldLine(f"There is no world line {world_line}.")
        with storage.opened(world_line_path(folder, world_line)) as source:
            storage.make_folder(temporary)
            index = scan(storage, source)
            size, uid = index.size, ""
            if checkpoint_id is not None:
                point = known_checkpoint(index, checkpoint_id)
                size, uid = point.offset, point.uid
            storage.write_file(temporary / LIVE_NAME, b"", source=source, size=size, new=True)
        for n in stored_world_lines(folder):
            # It is never written again, so both sessions may have the same file.
            storage.link_or_copy(world_line_path(folder, n), world_line_path(temporary, n))
        _copy_journal(storage, folder, temporary)
        whole = checkpoint_id is None and world_line == 0
        _copy_record(storage, folder, temporary, None if whole else uid)
        if (folder / MARKS_NAME).exists():
            storage.copy_file(folder / MARKS_NAME, temporary / MARKS_NAME)
        _share_others(storage, folder, temporary)
        state = read_state(folder)
        # What was noted for the list counted another line.
        write_state(storage, temporary, replace(state, forked_from=folder.name, summary=Summary()))
        storage.sync_folder(temporary)
        storage.replace(temporary, target)
        storage.sync_folder(target.parent)
    except BaseException as error:
        shutil.rmtree(temporary, ignore_errors=True)
        if isinstance(error, OSError) and not isinstance(error, StorageTrouble):
            raise StorageTrouble.of("copy the session", error) from error
        raise
    return target


def _copy_journal(storage: Storage, folder: Path, target: Path) -> None:
    """Never linked: both sessions go on writing theirs. An operation that is just happening over there does not come along."""
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


def _copy_record(storage: Storage, folder: Path, target: Path, uid: str | None) -> None:
    """What was seen, up to where checkpoint `uid` was made; whole for None; nothing where it never was."""
    path = folder / RECORD_NAME
    if not path.exists() or uid == "":
        return
    with storage.opened(path) as source:
        size = storage.readable_size(source)
        if uid is not None:
            records = JsonlLog(path, storage).read_with_offsets()
            ends = [offset for offset, record in records if _makes(record, uid)]
            if not ends:
                return
            size = ends[0]
        storage.write_file(target / RECORD_NAME, b"", source=source, size=size, new=True)


def _makes(record: dict[str, Any], uid: str) -> bool:
    message: object = record.get("message")
    if not isinstance(message, dict):
        return False
    fields = cast("dict[str, object]", message)
    payload: object = fields.get("payload")
    return (
        fields.get("type") == "CheckpointCreated"
        and isinstance(payload, dict)
        and text_of(cast("dict[str, object]", payload).get("uid")) == uid
    )


def _share_others(storage: Storage, folder: Path, target: Path) -> None:
    """Folders of the session (the contents of snapshots) are linked file by file: their files never change."""
    made: set[Path] = set()
    for path in _files_below(folder):
        beside = target / path.relative_to(folder)
        storage.make_folder(beside.parent)
        made.update(above for above in beside.parents if target in above.parents)
        if path.suffix in (".json", ".jsonl"):
            storage.copy_file(path, beside)
        else:
            storage.link_or_copy(path, beside)
    # The names in each of them; that of the copy itself is brought to the disk last.
    for below in sorted(made, reverse=True):
        storage.sync_folder(below)


def _files_below(folder: Path) -> Iterator[Path]:
    with contextlib.suppress(OSError):
        for path in sorted(folder.iterdir()):
            if path.is_dir() and not path.is_symlink():
                yield from (
                    below
                    for below in sorted(path.rglob("*"))
                    if below.is_file() and not below.is_symlink()
                )

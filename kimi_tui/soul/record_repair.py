"""Repairs records that contain the history of an imported session twice.

kimi-cli's record has no events of checkpoints. An earlier version took a short record for that of a killed program, and when
the session was opened appended its whole history again, made from the context files. Such a part is recognised without doubt:
it follows directly after records of kimi-cli, which have no number, and creates checkpoints with names made from the bytes
before them, while a checkpoint created in a running session has a random name. It contains nothing that the context files do
not.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
from collections.abc import Iterable, Iterator
from typing import Any

from kimi_tui import lenient_json
from kimi_tui.daemon_threads import in_daemon_thread
from kimi_tui.session.session import Session

log = logging.getLogger(__name__)

StoredLine = tuple[int, dict[str, Any]]
"""The offset of a line of the record in bytes, and the line's object."""
DOUBLED_NAME = "wire.doubled.jsonl"
"""The name under which the record is kept as it was before a repair."""
_OURS_ALONE = frozenset({"CheckpointCreated", "ContextReverted", "LineChanged"})
_FIRST_LINES = 8
_HASH_CHARS = 64
"""The number of characters of a name that is made from bytes."""


async def repair_record(session: Session) -> str:
    """Remove the doubled part from the record of an open session.

    The former record is kept beside it. If the disk refuses, nothing is changed, as every reader skips that part.

    Returns:
        a sentence for the user; empty if there was nothing to repair.
    """
    starts, kept = await in_daemon_thread(_offsets, session)
    if len(kept) == len(starts):
        return ""
    return await asyncio.to_thread(_rewrite, session, starts, kept)


def _offsets(session: Session) -> tuple[list[int], set[int]]:
    """Return the offsets of all lines of the record, and of those without the doubled part; nothing if there can be no such part."""
    record = session.record
    if not any(_is_foreign(line) for line in itertools.islice(record.read(), _FIRST_LINES)):
        # Only a session that began in kimi-cli can be an import.
        return [], set()
    starts = [offset for offset, _ in record.read_with_offsets()]
    return starts, {offset for offset, _ in without_doubled(record.read_with_offsets())}


def _rewrite(session: Session, starts: list[int], kept: set[int]) -> str:
    record, storage = session.record, session.storage
    beside = session.dir / DOUBLED_NAME
    temporary = session.dir / f".{record.path.name}.tmp"
    try:
        with storage.opened(record.path) as source:
            # An unreadable line stays with the line before it.
            ends = [*starts[1:], storage.readable_size(source)]
            with storage.opened(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as target:
                for start, end in zip([0, *starts[1:]], ends, strict=True):
                    if start in kept or not start:
                        storage.write_all(target, storage.pread(source, end - start, start))
                storage.fsync(target)
        if not os.path.lexists(beside):
            storage.link_or_copy(record.path, beside)
        storage.replace(temporary, record.path)
        storage.sync_folder(session.dir)
    except OSError:
        log.exception("the record cannot be repaired")
        with contextlib.suppress(OSError):
            storage.unlink(temporary)
        return ""
    return (
        "An earlier version recorded the history of this imported session twice. This is repaired. "
        f"The old record is kept as {DOUBLED_NAME}."
    )


def without_doubled(lines: Iterable[StoredLine]) -> Iterator[StoredLine]:
    """Yield the lines of a record except the parts that contain kimi-cli's history for a second time.

    Args:
        lines: the lines of a record, or of its end; in a record without such a part hardly any line is held back.
    """
    follows_foreign = False
    held: list[StoredLine] = []
    for stored in lines:
        offset, line = stored
        if not follows_foreign and "seq" in line:
            # Nearly all lines are such ones: a running program of ours has numbered them.
            yield stored
            continue
        is_foreign = _is_foreign(line)
        if follows_foreign and not is_foreign:
            held.append((offset, line))
            if _created(line) is not None and not any(map(_is_imported, held)):
                # A running program wrote this line, so the part has ended.
                yield from held
                held, follows_foreign = [], False
            continue
        yield from held[_end_of_doubled(held) :]
        held, follows_foreign = [], is_foreign
        yield offset, line
    yield from held[_end_of_doubled(held) :]


def _end_of_doubled(lines: list[StoredLine]) -> int:
    """Return how many of the lines after kimi-cli's are its history once more; 0 if that was not appended."""
    created = [place for place, line in enumerate(lines) if _is_imported(line)]
    if not created:
        return 0
    # The whole part was written at once, so the lines after its last checkpoint have the same time.
    end = created[-1]
    at = lines[end][1].get("timestamp")
    while end < len(lines) and lines[end][1].get("timestamp") == at:
        end += 1
    return end


def _is_imported(line: StoredLine) -> bool:
    """Return whether a line creates a checkpoint that another program made."""
    uid = _created(line[1])
    return uid is not None and len(uid) == _HASH_CHARS


def _created(line: dict[str, Any]) -> str | None:
    """Return the name of the checkpoint that a line creates; None for any other line."""
    message = lenient_json.mapping(line.get("message"))
    payload = lenient_json.mapping(message.get("payload"))
    if message.get("type") != "CheckpointCreated" or payload.get("was"):
        return None
    return lenient_json.text(payload.get("uid"))


def _is_foreign(line: dict[str, Any]) -> bool:
    kind = lenient_json.mapping(line.get("message")).get("type")
    return "seq" not in line and isinstance(kind, str) and kind not in _OURS_ALONE

"""The one way in which the live line becomes another one: rewind, D-Mail, compaction, clear, jump, undo and redo.

The order is what makes it atomic: (1) the live file is synced, (2) the new line is written to a temporary file and synced,
(3) the intent is journaled and synced, (4) the live file gets its second name as a world line, (5) the temporary file is renamed over the
live one, (6) the folder is synced, (7) the journal is told. Killed before (5) the session opens as before: a second name, or a
copy, of what still is the live line is dropped at open (`line_files.tidy`). Killed after (5) it opens as after. The
live name exists at every moment.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, replace
from pathlib import Path

from kimi_tui.session.errors import StorageTrouble
from kimi_tui.session.journal import Entry, Journal
from kimi_tui.session.line_files import (
    keep_live_as,
    line_holding,
    line_path,
    live_path,
    next_number,
    stored_lines,
)
from kimi_tui.session.live_file import LiveFile
from kimi_tui.session.storage import Storage, copy_bytes, write_all


@dataclass(frozen=True, slots=True)
class NewLine:
    """What the live line is to be: the first `keep` bytes of line `source` (0 = the live one), then `extra`."""

    source: int
    keep: int
    extra: bytes = b""

    @property
    def size(self) -> int:
        """Its size in bytes."""
        return self.keep + len(self.extra)


def switch(
    storage: Storage,
    folder: Path,
    live: LiveFile,
    journal: Journal,
    new: NewLine,
    entry: Entry,
    known_holder: int | None = None,
) -> Entry:
    """Carry the operation `entry` out; blocks, so call it in a thread. Returns the entry as journaled.

    `known_holder` is a world line that is known to begin with the whole live line.

    Raises:
        StorageTrouble: The disk refused; nothing changed.
    """
    doing = "change the conversation"
    if live.unsaved_bytes or live.must_rewrite:
        raise live.trouble or StorageTrouble("Could not save the conversation.")
    live.sync()
    temporary = folder / f".{live_path(folder).name}.tmp"
    intended: Entry | None = None
    stored_anew = False
    try:
        live.check()
        identity = _write_new(storage, folder, temporary, new)
        holder = known_holder
        if holder is None or holder not in stored_lines(folder):
            holder = line_holding(storage, folder, live.size)
        number = next_number(folder, journal) if holder is None else holder
        intended = journal.intend(
            replace(entry, n=number, size=live.size, stored=holder is None, to_size=new.size)
        )
        if holder is None:
            keep_live_as(storage, folder, number)
            stored_anew = True
        live.release()
        storage.replace(temporary, live_path(folder))
    except OSError as error:
        with contextlib.suppress(OSError):
            storage.unlink(temporary)
        if intended is not None:
            if stored_anew:
                with contextlib.suppress(OSError):
                    storage.unlink(line_path(folder, intended.n))
            journal.void(intended)
        raise (
            error if isinstance(error, StorageTrouble) else StorageTrouble.of(doing, error)
        ) from error
    if new.source == 0:
        live.switched(identity, new.size, new.keep, new.extra)
    else:
        live.adopt(new.size)
    try:
        storage.sync_folder(folder)
    except OSError as error:
        # Which of the two files the name leads to after a power cut is not known: the line is written anew at the next sync.
        live.distrust(error, doing)
    journal.finish(intended)
    return intended


def _write_new(storage: Storage, folder: Path, temporary: Path, new: NewLine) -> tuple[int, int]:
    fd = storage.open(temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    try:
        if new.keep:
            source = storage.open(line_path(folder, new.source), os.O_RDONLY)
            try:
                copy_bytes(storage, source, fd, new.keep)
            finally:
                storage.close(source)
        write_all(storage, fd, new.extra)
        storage.fsync(fd)
        status = storage.fstat(fd)
    finally:
        storage.close(fd)
    return status.st_dev, status.st_ino

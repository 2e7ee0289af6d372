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

from kimi_tui.session.ahead import Copied
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
from kimi_tui.session.new_file import Identity, write_new
from kimi_tui.session.storage import Storage, write_all


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
    copied: Copied | None = None,
) -> Entry:
    """Carry the operation `entry` out; blocks, so call it in a thread. Returns the entry as journaled.

    `known_holder` is a world line that is known to begin with the whole live line, `copied` what is to be kept of the
    live one where that has been copied already. The caller clears away what is left of it.

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
        if copied is not None and copied.still_there(storage):
            temporary = copied.path
            identity = _complete(storage, copied, new.extra)
        else:
            identity = _write_new(storage, folder, temporary, new)
        holder = known_holder
        if holder is None or stored_lines(folder).get(holder, -1) < live.size:
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


def _complete(storage: Storage, copied: Copied, extra: bytes) -> Identity:
    if extra:
        fd = storage.open(copied.path, os.O_RDWR | os.O_APPEND)
        try:
            write_all(storage, fd, extra)
            storage.fsync(fd)
        finally:
            storage.close(fd)
    return copied.identity


def _write_new(storage: Storage, folder: Path, temporary: Path, new: NewLine) -> Identity:
    if not new.keep:
        return write_new(storage, temporary, None, 0, new.extra)
    source = storage.open(line_path(folder, new.source), os.O_RDONLY)
    try:
        return write_new(storage, temporary, source, new.keep, new.extra)
    finally:
        storage.close(source)

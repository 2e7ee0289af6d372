"""How much disk a session takes, and the deletion of lines that were left, on the person's word alone."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from kimi_tui.session.errors import StorageTrouble, UnknownWorldLine
from kimi_tui.session.line_files import LIVE_NAME, STORED_NAME, line_path, stored_lines
from kimi_tui.session.record import RECORD_NAME
from kimi_tui.session.session import Session


@dataclass(frozen=True, slots=True)
class DiskUse:
    """Bytes by what they are for; `other` is everything else (snapshots, side files)."""

    live: int = 0
    world_lines: int = 0
    record: int = 0
    other: int = 0

    @property
    def total(self) -> int:
        """All of it."""
        return self.live + self.world_lines + self.record + self.other


def disk_use(folder: Path) -> DiskUse:
    """What a session takes."""
    live = world_lines = record = other = 0
    for root, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                size = os.lstat(os.path.join(root, name)).st_size
                if root != str(folder):
                    other += size
                elif name == LIVE_NAME:
                    live = size
                elif STORED_NAME.fullmatch(name):
                    world_lines += size
                elif name == RECORD_NAME:
                    record = size
                else:
                    other += size
    return DiskUse(live, world_lines, record, other)


def prune(session: Session, lines: Collection[int] | None = None) -> int:
    """Delete world lines of an open session; returns the bytes freed. Undo of what left them is gone with them.

    Args:
        session: An open session.
        lines: Which; None for all. The live line is never among them.

    Raises:
        UnknownWorldLine: One of them does not exist; nothing was deleted.
        StorageTrouble: One could not be deleted.
    """
    there = stored_lines(session.dir)
    chosen = sorted(there if lines is None else set(lines))
    for n in chosen:
        if n not in there:
            raise UnknownWorldLine(f"There is no world line {n}.")
    if not chosen:
        return 0
    # First the word, then the deed: a line that is gone for no reason would look like damage.
    session.context.journal.note({"op": "prune", "lines": chosen})
    session.context.journal.sync()
    try:
        for n in chosen:
            session.storage.unlink(line_path(session.dir, n))
        session.storage.sync_folder(session.dir)
    except OSError as error:
        raise StorageTrouble.of("delete the world lines", error) from error
    return sum(there[n] for n in chosen)

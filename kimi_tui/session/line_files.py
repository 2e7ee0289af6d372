"""The files of one session's lines: their names, their numbers, and what a crash may have left of them.

`context.jsonl` is the live line, `context_N.jsonl` are the lines left. Nothing here reads what they say.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable
from pathlib import Path

from kimi_tui.session.journal import Entry, Journal
from kimi_tui.session.storage import NO_HARD_LINKS, Storage, copy_bytes, same_bytes

LIVE_NAME = "context.jsonl"
STORED_NAME = re.compile(r"context_([1-9][0-9]{0,8})\.jsonl")

# What was being written when a process died; nobody else can be writing it, for the session is locked.
_UNFINISHED = re.compile(r"\.(context(_[0-9]+)?\.jsonl|state\.json|marks\.json)\.tmp")


def live_path(folder: Path) -> Path:
    """The live line's file."""
    return folder / LIVE_NAME


def line_path(folder: Path, n: int) -> Path:
    """The file of world line `n`; 0 is the live line."""
    return folder / (f"context_{n}.jsonl" if n else LIVE_NAME)


def stored_lines(folder: Path) -> dict[int, int]:
    """Every world line's number and size, in order of number. A second name of the live file is none."""
    found: dict[int, int] = {}
    live = _status(live_path(folder))
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                match = STORED_NAME.fullmatch(entry.name)
                if match and entry.is_file(follow_symlinks=False):
                    status = entry.stat(follow_symlinks=False)
                    if live is None or (status.st_dev, status.st_ino) != (
                        live.st_dev,
                        live.st_ino,
                    ):
                        found[int(match[1])] = status.st_size
    except OSError:
        return {}
    return dict(sorted(found.items()))


def next_number(folder: Path, journal: Journal) -> int:
    """A number that no world line has or was ever meant to have."""
    with contextlib.suppress(OSError):
        names = os.listdir(folder)
        numbers = [int(match[1]) for name in names if (match := STORED_NAME.fullmatch(name))]
        return 1 + max([journal.largest_line, *numbers])
    return 1 + journal.largest_line


def line_holding(storage: Storage, folder: Path, size: int) -> int | None:
    """The world line that begins with the whole live line (its first `size` bytes), so that it need not be kept twice."""
    for n, stored_size in sorted(stored_lines(folder).items(), reverse=True):
        if stored_size >= size:
            with contextlib.suppress(OSError):
                if same_bytes(storage, live_path(folder), line_path(folder, n), size):
                    return n
    return None


def keep_live_as(storage: Storage, folder: Path, n: int) -> None:
    """Give the live file a second name as world line `n`, or a copy of it where there are no hard links.

    The live name itself is never renamed away: killed at any point, there is a live line.

    Raises:
        OSError: The disk refused; world line `n` is not there.
    """
    live, stored = live_path(folder), line_path(folder, n)
    try:
        storage.link(live, stored)
        return
    except OSError as error:
        if error.errno not in NO_HARD_LINKS:
            raise
    copy_file(storage, live, stored)


def copy_file(storage: Storage, source: Path, target: Path) -> None:
    """Copy a file whole under a name that is not taken, or not at all.

    Raises:
        OSError: The disk refused.
    """
    temporary = target.with_name(f".{target.name}.tmp")
    try:
        source_fd = storage.open(source, os.O_RDONLY)
        try:
            fd = storage.open(temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
            try:
                copy_bytes(storage, source_fd, fd, storage.fstat(source_fd).st_size)
                storage.fsync(fd)
            finally:
                storage.close(fd)
        finally:
            storage.close(source_fd)
        if _status(target) is not None:
            raise FileExistsError(17, "the name is taken", str(target))
        storage.replace(temporary, target)
    except OSError:
        with contextlib.suppress(OSError):
            storage.unlink(temporary)
        raise


def tidy(storage: Storage, folder: Path, journal: Journal, remark: Callable[[str], None]) -> None:
    """Finish or take back what a crash left between two calls, before anything is read or appended. Never raises.

    Args:
        storage: The disk.
        folder: The session's folder.
        journal: Its journal, loaded.
        remark: Told what the person should know.
    """
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            if _UNFINISHED.fullmatch(name):
                storage.unlink(folder / name)
    _restore_missing_live(storage, folder, remark)
    _drop_second_names(storage, folder)
    entries = journal.entries
    if entries and not entries[-1].done:
        _settle(storage, folder, journal, entries[-1])


def _restore_missing_live(storage: Storage, folder: Path, remark: Callable[[str], None]) -> None:
    # kimi-cli renames the live file away first; killed there, it leaves none. We never do.
    if _status(live_path(folder)) is not None:
        return
    stored = stored_lines(folder)
    if stored:
        newest = max(stored)
        with contextlib.suppress(OSError):
            storage.replace(line_path(folder, newest), live_path(folder))
            storage.sync_folder(folder)
            remark(f"The live line was missing; world line {newest} has taken its place.")


def _drop_second_names(storage: Storage, folder: Path) -> None:
    # Killed between link and rename: the world line is the live file itself.
    live = _status(live_path(folder))
    if live is None or live.st_nlink < 2:
        return
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            if STORED_NAME.fullmatch(name):
                status = _status(folder / name)
                if status and (status.st_dev, status.st_ino) == (live.st_dev, live.st_ino):
                    storage.unlink(folder / name)
        storage.sync_folder(folder)


def _settle(storage: Storage, folder: Path, journal: Journal, entry: Entry) -> None:
    if not entry.changes_line:
        return
    stored = _status(line_path(folder, entry.n))
    live = _status(live_path(folder))
    if live is None:
        return
    happened = stored is not None and live.st_size != entry.size
    if stored is not None and live.st_size == entry.size:
        try:
            same = same_bytes(storage, live_path(folder), line_path(folder, entry.n), entry.size)
        except OSError:
            return
        # The live line still is the line left, so the operation did not come to its rename; unless it meant to leave
        # a line for one of the same size (a jump), which then is another one.
        happened = not same
        if same and entry.stored:
            # The copy that was made where there are no hard links.
            with contextlib.suppress(OSError):
                storage.unlink(line_path(folder, entry.n))
    elif not entry.stored:
        # The line left was in that file all along, so only the size that was meant tells.
        happened = live.st_size == entry.to_size
    if happened:
        journal.finish(entry)
    else:
        journal.void(entry)


def _status(path: Path) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except OSError:
        return None

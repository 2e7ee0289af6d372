"""Writes the files of a past state into a folder of the user's: all of them, or none.

They are written beside the folder under a temporary name. A note in the data folder, locked while that is done, names this place,
so that the next start removes what a killed program has left.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable
from pathlib import Path

from kimi_tui.app_paths import make_private, short
from kimi_tui.filesystem import is_temporary_name, new_temporary_name, read_regular, remove_tree
from kimi_tui.workspace.base import (
    FileState,
    NoBase,
    Past,
    Progress,
    check_room,
    refused,
    write_files,
)
from kimi_tui.workspace.store import BlobDamaged

_NOTE = "unfinished-"
_MOST_PATH_BYTES = 1 << 16


def write_worktree(
    past: Past, state: FileState, folder: Path, notes: Path, told: Callable[[Progress], None]
) -> int:
    """Write the files of a state into a new folder; return their number.

    Args:
        past: the states.
        state: the state.
        folder: the folder, which must not exist or is empty; folders above it are made.
        notes: a folder of this program's own, for the note.
        told: called while the files are written.

    Raises:
        NoBase: it cannot be written; nothing of it is left.
    """
    if os.path.lexists(folder) and not (folder.is_dir() and not any(folder.iterdir())):
        raise NoBase(
            f'"{short(folder)}" already exists and is not empty. Choose a new or an empty folder.'
        )
    files = past.files(state)
    temporary = folder.parent / new_temporary_name(folder.name)
    note = notes / f"{_NOTE}{os.urandom(8).hex()}"
    try:
        make_private(notes)
        held = os.open(note, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise NoBase(refused(error)) from error
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.write(held, os.fsencode(temporary))
        folder.parent.mkdir(parents=True, exist_ok=True)
        check_room(folder.parent, files)
        temporary.mkdir()
        write_files(temporary, files, past.content, told=told)
        temporary.rename(folder)
    except (OSError, BlobDamaged) as error:
        raise NoBase(refused(error)) from error
    finally:
        with contextlib.suppress(OSError):
            remove_tree(temporary)
        with contextlib.suppress(OSError):
            note.unlink()
        os.close(held)
    return sum(1 for entry in files.values() if entry.kept)


def remove_unfinished(notes: Path) -> int:
    """Remove the folders that killed programs were writing; return how many."""
    n_removed = 0
    for note in sorted(notes.glob(f"{_NOTE}*")):
        with contextlib.suppress(OSError):
            held = os.open(note, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                place = Path(os.fsdecode(read_regular(note, _MOST_PATH_BYTES)))
                is_ours = is_temporary_name(place.name) and place.is_absolute()
                if is_ours and place.is_dir() and not place.is_symlink():
                    remove_tree(place)
                    n_removed += 1
                note.unlink()
            finally:
                os.close(held)
    return n_removed

"""Folders of sessions that are not whole, because they are being copied, imported or deleted: their names begin with a dot, so that
they are never listed.

A program that works on such a folder holds a shared lock of the folder around it. The exclusive lock can therefore be had only
when all of them were left by killed programs; `remove_unfinished` takes it and removes them.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import shutil
import threading
from collections.abc import Generator
from pathlib import Path

from kimi_tui.filesystem import Storage, remove_tree
from kimi_tui.session.errors import StorageTrouble

log = logging.getLogger(__name__)

FORKED, IMPORTED, DELETED = ".fork-", ".import-", ".deleted-"
"""The beginnings of their names."""


@contextlib.contextmanager
def made_aside(storage: Storage, temporary: Path, target: Path, doing: str) -> Generator[None]:
    """Let a session's folder be made under a temporary name, and give it its own name at the end: all of it is seen, or nothing.

    Args:
        storage: The disk.
        temporary: The folder, which the context makes beside the target; it is removed if anything fails. Its name begins
            with one of the words above, so that it is removed after a kill as well.
        target: Its name at the end.
        doing: What is done, for the error: `copy the session`.

    Raises:
        StorageTrouble: The disk refused.
    """
    try:
        if not target.parent.exists():
            storage.make_folder(target.parent)
        with at_work(target.parent):
            try:
                yield
                storage.sync_folder(temporary)
                storage.replace(temporary, target)
                storage.sync_folder(target.parent)
            except BaseException:
                shutil.rmtree(temporary, ignore_errors=True)
                raise
    except OSError as error:
        if isinstance(error, StorageTrouble):
            raise
        raise StorageTrouble.of(doing, error) from error


@contextlib.contextmanager
def at_work(bucket: Path) -> Generator[None]:
    """Keep what is being made or deleted in a folder of sessions from being taken for left over. It may wait for a removal."""
    with contextlib.ExitStack() as held:
        # A disk without locks removes nothing either.
        with contextlib.suppress(OSError):
            held.enter_context(_locked(bucket, fcntl.LOCK_SH))
        yield


def remove_unfinished(sessions: Path) -> int:
    """Remove the folders that killed programs have left half made or half deleted; return how many. It blocks.

    Args:
        sessions: The folder with the folders of sessions of each work folder.
    """
    n_removed = 0
    for bucket in _folders(sessions):
        if not _unfinished(bucket):
            continue
        try:
            with _locked(bucket, fcntl.LOCK_EX | fcntl.LOCK_NB):
                for folder in _unfinished(bucket):
                    remove_tree(folder)
                    n_removed += 1
        except BlockingIOError:
            pass
        except OSError as error:
            log.warning("half a session could not be removed", exc_info=error)
    return n_removed


def remove_unfinished_in_background(sessions: Path) -> None:
    """Remove the same, without waiting for it; the end of the program does not wait for it either."""
    thread = threading.Thread(
        target=remove_unfinished, args=(sessions,), name="unfinished", daemon=True
    )
    thread.start()


@contextlib.contextmanager
def _locked(bucket: str | Path, how: int) -> Generator[None]:
    folder = os.open(bucket, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(folder, how)
        yield
    finally:
        os.close(folder)


def _unfinished(bucket: str) -> list[str]:
    """Return the paths of the folders in a folder of sessions that are not whole. A link is none of ours."""
    with contextlib.suppress(OSError):
        names = [one for one in os.listdir(bucket) if one.startswith((FORKED, IMPORTED, DELETED))]
        paths = [os.path.join(bucket, name) for name in names]
        return [path for path in paths if os.path.isdir(path) and not os.path.islink(path)]
    return []


def _folders(folder: Path) -> list[str]:
    with contextlib.suppress(OSError), os.scandir(folder) as listing:
        return [one.path for one in listing if one.is_dir(follow_symlinks=False)]
    return []

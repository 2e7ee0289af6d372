"""Replacing a file in one step: whoever reads sees the old one or the new one, and a crash leaves one of the two.

The new file is written beside the old one and renamed in the same folder descriptor. Everything here blocks and belongs
in a thread.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat

from kimi_tui.tools.files import (
    HASHED_LIMIT_BYTES,
    Content,
    content_version,
    look,
    parent_of,
    read_whole,
    refused,
    stat_version,
)
from kimi_tui.tools.place import Place
from kimi_tui.tools.problem import ToolProblem

_COPY_BYTES = 1024 * 1024


def replace_file(place: Place, data: bytes, expected: Content | None) -> str:
    """Put `data` in the file's place in one step, keeping its mode and owner; returns the new version.

    Args:
        place: the file; folders on the way are made.
        data: all of its new content.
        expected: what was read before the person was asked; None where the file did not exist.

    Raises:
        ToolProblem: the file is not as expected any more, or the disk refused. Nothing was changed then.
    """
    name = place.real.name
    with parent_of(place, create=True) as folder:
        _check_unchanged(name, folder, place, expected)
        temporary = f".{name[:100]}.{secrets.token_hex(6)}.tmp"
        try:
            _write_new(temporary, folder, data, expected)
            if expected is None:
                _publish_new(temporary, name, folder)
            else:
                os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        except FileExistsError as error:
            _discard(temporary, folder)
            raise _changed(place) from error
        except OSError as error:
            _discard(temporary, folder)
            raise refused(error, place.asked) from error
        except BaseException:
            _discard(temporary, folder)
            raise
        _sync_folder(folder)
        if len(data) <= HASHED_LIMIT_BYTES:
            return content_version(data)
        return stat_version(os.stat(name, dir_fd=folder, follow_symlinks=False))


def _check_unchanged(name: str, folder: int, place: Place, expected: Content | None) -> None:
    found = look(name, folder, place)
    if (found is None) != (expected is None):
        raise _changed(place)
    if found is None or expected is None:
        return
    if not found.st_mode & 0o222:
        raise ToolProblem(
            f"{place.asked} is read-only (mode {stat.S_IMODE(found.st_mode):04o}).",
            brief="read-only",
        )
    now = read_whole(place)
    if now is None or now.version != expected.version:
        raise _changed(place)


def _changed(place: Place) -> ToolProblem:
    return ToolProblem(
        f"{place.asked} changed on disk in the meantime. Nothing was written: read it again, then repeat the change.",
        brief="changed on disk",
    )


def _write_new(temporary: str, folder: int, data: bytes, expected: Content | None) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    # A new file gets its mode from the umask; one that replaces another stays closed until it has that one's mode.
    descriptor = os.open(temporary, flags, 0o666 if expected is None else 0o600, dir_fd=folder)
    with open(descriptor, "wb", buffering=0) as file:
        view = memoryview(data)
        while view:
            view = view[file.write(view[:_COPY_BYTES]) or 0 :]
        if expected is not None:
            old = expected.stat
            if (old.st_uid, old.st_gid) != (os.geteuid(), os.getegid()):
                with contextlib.suppress(OSError):
                    os.fchown(descriptor, old.st_uid, old.st_gid)
            os.fchmod(descriptor, stat.S_IMODE(old.st_mode))
        os.fsync(descriptor)


def _publish_new(temporary: str, name: str, folder: int) -> None:
    """Give a new file its name only if the name is still free, which a rename cannot do."""
    try:
        os.link(temporary, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
    except FileExistsError:
        raise
    except OSError:
        # A file system without hard links.
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    else:
        os.unlink(temporary, dir_fd=folder)


def _discard(temporary: str, folder: int) -> None:
    with contextlib.suppress(OSError):
        os.unlink(temporary, dir_fd=folder)


def _sync_folder(folder: int) -> None:
    # The descriptor may be one for walking only; folders that cannot be synced are so on their file system.
    with contextlib.suppress(OSError):
        descriptor = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

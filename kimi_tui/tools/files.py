"""Opens and reads regular files for tools, following no link and blocking on no special file.

A resolved path is opened name by name, by descriptor, never following a link: if a folder in it became a link after the path
was resolved, opening fails. Everything here blocks and belongs in a thread.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

from kimi_tui.filesystem import open_folder
from kimi_tui.tools.outcome import ToolProblem
from kimi_tui.tools.paths import ResolvedPath
from kimi_tui.tools.text import nearest_names
from kimi_tui.workspace import store

HASHED_LIMIT_BYTES = 8 * 1024 * 1024
"""Up to this size in bytes a version is the hash of the content; above, it is made of the file system's facts."""

_READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Content:
    """The bytes of a file as they were read, and their version."""

    data: bytes
    stat: os.stat_result
    version: str


@contextlib.contextmanager
def parent_of(target: ResolvedPath, *, create: bool = False) -> Generator[int]:
    """Open the folder that holds the file, name by name without following links; yields its descriptor.

    Raises:
        ToolProblem: a folder of the path is missing, is no folder, may not be entered, or has become a link.
    """
    anchor = target.root if target.inside else Path(target.real.anchor)
    parts = target.real.parts[len(anchor.parts) :]
    if not parts:
        raise ToolProblem(f"{target.written} is a folder, not a file.", brief="a folder")
    try:
        descriptor = open_folder(anchor, parts[:-1], create=create)
    except OSError as error:
        walked = Path(error.filename)
        if walked == anchor:
            raise refused(error, str(anchor)) from error
        raise _folder_problem(error, target, walked) from error
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def searched(target: ResolvedPath, top: Path) -> Generator[int]:
    """Open a searched folder, or the one from which a search below it starts, as `parent_of` does; yields its descriptor.

    Args:
        target: the searched file or folder.
        top: its folder, or one above that.

    Raises:
        ToolProblem: a folder of the path is missing, may not be entered, or has become a link.
    """
    anchor = target.root if target.inside else Path(target.real.anchor)
    try:
        descriptor = open_folder(anchor, top.relative_to(anchor).parts)
    except OSError as error:
        raise _folder_problem(error, target, Path(error.filename)) from error
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _folder_problem(error: OSError, target: ResolvedPath, walked: Path) -> ToolProblem:
    if error.errno == errno.ENOENT:
        return missing(target)
    if error.errno in (errno.ENOTDIR, errno.ELOOP):
        if walked.is_symlink():
            return ToolProblem(
                f"{target.written}: {walked.name} was replaced by a link during this call. Nothing was done.",
                brief="path changed",
            )
        return ToolProblem(
            f"{target.written}: {walked.name} is a file, not a folder.", brief="no such file"
        )
    return refused(error, target.written)


def missing(target: ResolvedPath) -> ToolProblem:
    """Return the error for a path that does not exist, with the most similar existing names."""
    folder = target.real.parent
    while not folder.is_dir() and folder != folder.parent:
        folder = folder.parent
    wanted = target.real.relative_to(folder).parts[0]
    known = nearest_names(wanted, folder)
    message = f"{target.written} does not exist."
    if known:
        message += " Nearest in that folder: " + ", ".join(known) + "."
    return ToolProblem(message, brief="no such file")


def refused(error: OSError, shown: str) -> ToolProblem:
    """Return the problem for an error of the system; `shown` is the path as the text names it."""
    if error.errno in (errno.EACCES, errno.EPERM):
        return ToolProblem(f"{shown}: no permission.", brief="no permission")
    if error.errno == errno.ENAMETOOLONG:
        return ToolProblem(f"{shown}: the name is too long.", brief="bad path")
    reason = os.strerror(error.errno) if error.errno else str(error)
    return ToolProblem(f"{shown}: {reason}.", brief=reason.lower())


def stat_regular(name: str, folder: int, target: ResolvedPath) -> os.stat_result | None:
    """Return the state of a regular file, or None if the name does not exist.

    Raises:
        ToolProblem: the name is not a regular file.
    """
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise refused(error, target.written) from error
    if stat.S_ISREG(found.st_mode):
        return found
    if stat.S_ISDIR(found.st_mode):
        raise ToolProblem(
            f"{target.written} is a folder, not a file. List it with Glob.", brief="a folder"
        )
    if stat.S_ISLNK(found.st_mode):
        raise ToolProblem(
            f"{target.written} is a link that leads nowhere or in a circle.", brief="broken link"
        )
    kinds = (
        (stat.S_ISFIFO, "a named pipe"),
        (stat.S_ISSOCK, "a socket"),
        (stat.S_ISCHR, "a device"),
        (stat.S_ISBLK, "a device"),
    )
    kind = next((name for test, name in kinds if test(found.st_mode)), "not a regular file")
    raise ToolProblem(
        f"{target.written} is {kind}; only regular files can be used.", brief="not a file"
    )


def open_for_reading(target: ResolvedPath) -> tuple[int, os.stat_result]:
    """Return a descriptor of a regular file and its state; never waits, whatever the name is. The caller closes the descriptor.

    Raises:
        ToolProblem: the file is missing, not regular, or not readable.
    """
    with parent_of(target) as folder:
        if stat_regular(target.real.name, folder, target) is None:
            raise missing(target)
        return _opened(folder, target)


def _opened(folder: int, target: ResolvedPath) -> tuple[int, os.stat_result]:
    """Open a name that was a regular file just now, in its open folder; see `open_for_reading`."""
    try:
        descriptor = os.open(target.real.name, _READ_FLAGS, dir_fd=folder)
    except OSError as error:
        raise refused(error, target.written) from error
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        os.close(descriptor)
        raise ToolProblem(f"{target.written} is not a regular file.", brief="not a file")
    return descriptor, found


def read_whole(target: ResolvedPath) -> Content | None:
    """Read a whole file that may be changed; None if it does not exist. Above the size limit `data` stays empty.

    Raises:
        ToolProblem: the file is not regular, or not readable.
    """
    try:
        with parent_of(target) as folder:
            return read_whole_in(folder, target)
    except ToolProblem as problem:
        if problem.brief == "no such file" and isinstance(problem.__cause__, FileNotFoundError):
            return None
        raise


def read_whole_in(folder: int, target: ResolvedPath) -> Content | None:
    """Read a whole file as `read_whole` does, in its folder, which `parent_of` opened."""
    if stat_regular(target.real.name, folder, target) is None:
        return None
    descriptor, found = _opened(folder, target)
    try:
        if found.st_size > HASHED_LIMIT_BYTES:
            return Content(b"", found, stat_version(found))
        try:
            data = store.read_whole(descriptor, found.st_size)
        except OSError as error:
            raise refused(error, target.written) from error
    finally:
        os.close(descriptor)
    return Content(data, found, content_version(data))


def content_version(data: bytes) -> str:
    """Return the version of a file with these bytes."""
    return f"sha256:{hashlib.sha256(data, usedforsecurity=False).hexdigest()}"


def stat_version(found: os.stat_result) -> str:
    """Return the version of a file that is too large to hash."""
    return f"stat:{found.st_size}:{found.st_mtime_ns}:{found.st_ctime_ns}:{found.st_ino}"

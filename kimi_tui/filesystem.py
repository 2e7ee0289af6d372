"""File operations: opening without blocking on special files, and writing such that a crash leaves either the old or the new state.

`open_regular` and `read_regular` accept names under which others may have put a FIFO, a device or a link. `Storage` has one
method for every call with which the files of sessions are written, so that a test can make each of them fail or kill the
process there; guarantees beyond one call (whole writes, atomic replacement, hard links on file systems that may lack them)
are built on these. `open_folder`, `create_file` and `publish` are for files in folders that others can write to: they work by
descriptor and follow no link. Everything blocks, and raises only `OSError`. The module is imported before the first paint, so
it imports little itself.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import re
import stat
import sys
import threading
import time
from collections.abc import Callable, Collection, Generator, Iterable, Sequence
from pathlib import Path

from kimi_tui.app_paths import make_private

COPY_CHUNK_BYTES = 4 << 20
_HAS_COPY_FILE_RANGE = hasattr(os, "copy_file_range")
MAX_FILE_BYTES = 4 << 30
"""Bytes. A larger file is not read or copied completely: no conversation is this long, but a file with a hole may be."""

NO_HARD_LINKS = frozenset(
    {
        errno.EPERM,
        errno.EACCES,
        errno.EXDEV,
        errno.EMLINK,
        errno.ENOTSUP,
        errno.EOPNOTSUPP,
        errno.EINVAL,
        errno.ENOSYS,
    }
)
"""Errors of file systems without hard links: FAT, BeeGFS, Android, protected_hardlinks, WSL shares, SMB, 9p."""
SETTLED_NS = 2_000_000_000
"""Nanoseconds after which a time stamp is trusted: a file or folder that changed within this time can change again without
another stamp. The coarsest clock in use (FAT) has steps of two seconds."""
TRANSIENT_ERRORS = frozenset(
    {
        errno.EMFILE,
        errno.ENFILE,
        errno.ENOMEM,
        errno.EAGAIN,
        errno.EINTR,
        errno.EIO,
        errno.ESTALE,
        errno.ETIMEDOUT,
    }
)
"""Errors that say nothing about a file or folder: the same system call may succeed in a moment."""
_LACKS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
"""Those of them for which this program lacks something, so that a command that it starts could read what it could not."""
READ_ONLY = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
"""Errors for a file that may only be read."""
# Errors of file systems that cannot sync a folder; they do not mean that data is lost.
_NO_FOLDER_SYNC = frozenset(
    {errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EACCES, errno.EBADF}
)
_BUSY = frozenset({errno.EACCES, errno.EBUSY, errno.EPERM})
_REPLACE_PATIENCE_S = 2.5
_TOP_OF_TREES = 0x20000
"""The flag `T` of `chattr`."""
_MOST_LINKS = 40
"""The number of links that the kernel follows to a file."""

_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)
_NO_LINK = "it is a symbolic link, not a file of its own"
_OTHER_NAME = "it has a hard link in another folder, so it is not written"
_WRITING = os.O_WRONLY | os.O_RDWR

Identity = tuple[int, int]
"""The device and the inode of a file, which identify it as long as it has a name or is open."""


def identity_of(status: os.stat_result) -> Identity:
    """Return the identity of the file that `status` describes."""
    return status.st_dev, status.st_ino


# -- regular files under any name ----------------------------------------------------------------------


class NotARegularFile(OSError):
    """The name is not a regular file, or is a link where none is allowed."""


def open_regular(
    path: Path,
    flags: int = os.O_RDONLY,
    mode: int = 0o600,
    *,
    links: bool = False,
    dir_fd: int | None = None,
) -> int:
    """Open a regular file; return a descriptor that children do not inherit. It never waits for a process at the other end.

    A file opened for writing must have no names outside its own folder: in a hand-made folder a file's name may be a second
    name of a file elsewhere.

    Args:
        path: The path of the file.
        flags: The flags, as for `os.open`.
        mode: The permissions of a new file.
        links: Whether the name itself may be a symbolic link.
        dir_fd: A descriptor of the folder to which the path is relative.

    Raises:
        NotARegularFile: The name is something else than a regular file.
        OSError: The file cannot be opened.
    """
    # The file is truncated only after the check that it is regular.
    safe = flags & ~os.O_TRUNC | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
    try:
        fd = os.open(path, safe if links else safe | os.O_NOFOLLOW, mode, dir_fd=dir_fd)
    except OSError as error:
        raise _refusal(path, error, links=links) from error
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise _odd(path, status.st_mode)
        if flags & _WRITING and not links and status.st_nlink > 1:
            _refuse_names_elsewhere(path, status, dir_fd)
        if flags & os.O_TRUNC:
            os.ftruncate(fd, 0)
    except BaseException:
        os.close(fd)
        raise
    return fd


def read_regular(path: Path, limit_bytes: int, *, links: bool = False) -> bytes:
    """Read a whole regular file.

    Args:
        path: The path of the file.
        limit_bytes: The largest size in bytes; a longer file is refused, not shortened.
        links: Whether the name itself may be a symbolic link.

    Raises:
        NotARegularFile: The name is something else than a regular file.
        OSError: The file cannot be read, or is too long (EFBIG).
    """
    fd = open_regular(path, links=links)
    with open(fd, "rb", buffering=0) as file:
        pieces: list[bytes] = []
        left = limit_bytes + 1
        while left and (piece := file.read(min(left, 1 << 20))):
            pieces.append(piece)
            left -= len(piece)
    if not left:
        raise OSError(errno.EFBIG, f"it is longer than {limit_bytes:,} bytes", str(path))
    return b"".join(pieces)


def _refuse_names_elsewhere(path: Path, status: os.stat_result, dir_fd: int | None) -> None:
    """Refuse a file that has names outside the folder of this one.

    A context file has two names for a moment, both in its own folder; after a crash at that moment it has them until it is opened again.
    """
    n_here = 0
    for name in os.listdir(path.parent if dir_fd is None else dir_fd):
        with contextlib.suppress(OSError):
            there = path.with_name(name) if dir_fd is None else name
            other = os.stat(there, dir_fd=dir_fd, follow_symlinks=False)
            n_here += identity_of(other) == identity_of(status)
    if n_here < status.st_nlink:
        raise NotARegularFile(errno.EMLINK, _OTHER_NAME, str(path))


def _refusal(path: Path, error: OSError, *, links: bool) -> OSError:
    """Return the error with words for the user if the system's own would be puzzling."""
    if error.errno == errno.ELOOP and not links:
        return NotARegularFile(errno.ELOOP, _NO_LINK, str(path))
    if error.errno in (errno.ENXIO, errno.EISDIR, errno.ENODEV):
        # The name is a FIFO without a reader, a socket, or a folder opened for writing.
        try:
            return _odd(path, os.stat(path).st_mode)
        except OSError:
            return error
    return error


def _odd(path: Path, mode: int) -> OSError:
    kind = next((words for is_one, words in _KINDS if is_one(mode)), "")
    if not kind:
        # The file was replaced in between.
        return NotARegularFile(errno.EINVAL, "it is not a regular file", str(path))
    return NotARegularFile(errno.EINVAL, f"it is {kind}, not a regular file", str(path))


# -- single calls --------------------------------------------------------------------------------------


class Noted:
    """The paths on which a result depends, and whether the result is complete.

    Attributes:
        paths: the noted paths (`note_path`).
        is_whole: false if a file or folder was not read because of a transient error (`unread_is_empty`).
    """

    def __init__(self) -> None:
        self.paths: set[str] = set()
        self.is_whole = True


class _Noting(threading.local):
    """The paths that the present thread notes; None if nobody wants them."""

    noted: Noted | None = None
    lack: OSError | None = None


_noting = _Noting()


@contextlib.contextmanager
def noted_paths() -> Generator[Noted]:
    """Collect the paths that this thread notes (`note_path`) within the context, in which no other such context may be entered."""
    _noting.noted = noted = Noted()
    try:
        yield noted
    finally:
        _noting.noted = None


def note_path(path: str) -> None:
    """Note a path on whose existence, kind or target a result depends; with a slash at its end, on what the folder or file holds."""
    if _noting.noted is not None:
        _noting.noted.paths.add(path)


@contextlib.contextmanager
def unread_is_empty() -> Generator[None]:
    """Ignore an `OSError`: an unreadable file or folder counts as empty (`note_unread`)."""
    try:
        yield
    except OSError as error:
        note_unread(error)


def note_unread(error: OSError) -> None:
    """Note that something was taken for empty because of an error. After a transient error `Noted.is_whole` is false."""
    if error.errno in TRANSIENT_ERRORS and _noting.noted is not None:
        _noting.noted.is_whole = False
    if error.errno in _LACKS and _noting.lack is None:
        _noting.lack = error


def raise_lack(error: OSError) -> None:
    """Raise an error again if this program lacks descriptors or memory, as it tells nothing about the file then.

    Raises:
        OSError: it does.
    """
    if error.errno in _LACKS:
        raise error


@contextlib.contextmanager
def all_is_read() -> Generator[None]:
    """Make sure that nothing counted as empty within the context because this program lacked descriptors or memory.

    Raises:
        OSError: something did, so that the result must not be used.
    """
    around, _noting.lack = _noting.lack, None
    try:
        yield
    finally:
        lack, _noting.lack = _noting.lack, around
    if lack is not None:
        raise lack


def links_to(path: str) -> tuple[list[str], str]:
    """Resolve a path: return the links that are followed, each as a real path, and the real path of the target.

    Nothing needs to exist. If links form a circle, the result is one of them. Each step is noted (`note_path`).

    Args:
        path: an absolute path, or one relative to the current folder.
    """
    noted = _noting.noted
    links: list[str] = []
    # The root is the empty text, so that a name can be appended without a check.
    at = ""
    waiting = (path if path.startswith("/") else f"{os.getcwd()}/{path}").split("/")[::-1]
    while waiting:
        name = waiting.pop()
        if name in ("", "."):
            continue
        if name == "..":
            at = at.rpartition("/")[0]
            continue
        at = f"{at}/{name}"
        if noted is not None:
            noted.paths.add(at)
        try:
            target = os.readlink(at)
        except OSError:
            continue
        if len(links) == _MOST_LINKS:
            break
        links.append(at)
        at = "" if target.startswith("/") else at.rpartition("/")[0]
        waiting += target.split("/")[::-1]
    return links, at or "/"


def real_path(path: str) -> str:
    """Return `os.path.realpath`, even if a name is a link at one moment and none at the next, which makes `os.path.realpath`
    fail (EINVAL).
    """
    try:
        return os.path.realpath(path)
    except OSError:
        return links_to(path)[1]


def is_under(path: str, folders: Collection[str]) -> bool:
    """Return whether a path is one of these, or below one; all must be absolute and without links."""
    while path not in folders:
        if path in ("/", ""):
            return False
        # `os.path.dirname` takes five times as long, and the policy of a command asks this thousands of times.
        path = path[: path.rfind("/")] if path.rfind("/") > 0 else path[: path.find("/") + 1]
    return True


def write_all(
    fd: int, data: bytes | memoryview, write: Callable[[int, memoryview], int] = os.write
) -> None:
    """Write everything, however short single writes are.

    Raises:
        OSError: The disk refused; part of the data may be written.
    """
    left = memoryview(data)
    while left:
        done = write(fd, left)
        if done <= 0:
            raise OSError(errno.EIO, "nothing was written")
        left = left[done:]


def fsync(fd: int) -> None:
    """Sync a file; on macOS past the drive's cache, at which `os.fsync` stops."""
    # The module does not exist on native Windows, where the program only says that it does not run there.
    import fcntl

    full = getattr(fcntl, "F_FULLFSYNC", None)
    if full is not None:
        with contextlib.suppress(OSError):
            fcntl.fcntl(fd, full)
            return
    os.fsync(fd)


def sync_folder(path: Path | str, *, dir_fd: int | None = None) -> None:
    """Sync a folder's names, if its file system can.

    Raises:
        OSError: The disk reports an error.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=dir_fd)
    except PermissionError:
        return
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno not in _NO_FOLDER_SYNC:
            raise
    finally:
        os.close(fd)


# -- the files of sessions -----------------------------------------------------------------------------


class Storage:
    """The file operations of a session. Tests replace it to simulate disks that fail at any call.

    Args:
        patient: Whether to retry a refused rename for a while: a Windows virus scanner holds files for milliseconds, and WSL
            passes that on. None decides by the system.
    """

    def __init__(self, *, patient: bool | None = None) -> None:
        self._patient = "microsoft" in os.uname().release.lower() if patient is None else patient

    def open(self, path: Path, flags: int) -> int:
        """Open a regular file; return a descriptor that children do not inherit. New files are for their owner only.

        Raises:
            NotARegularFile: The name is a link, a FIFO, a device or the like.
            OSError: The file cannot be opened.
        """
        return open_regular(path, flags)

    def close(self, fd: int) -> None:
        """Close a descriptor; a failure counts as a failed sync, but the descriptor is closed."""
        os.close(fd)

    def write(self, fd: int, data: bytes | memoryview) -> int:
        """Write; may write less than requested."""
        return os.write(fd, data)

    def pread(self, fd: int, size: int, offset: int) -> bytes:
        """Read at an offset; may read less than requested."""
        return os.pread(fd, size, offset)

    def copy_range(self, source: int, target: int, size: int, offset: int) -> int:
        """Append up to `size` bytes of `source` from `offset` to `target`, inside the kernel if it can."""
        size = min(size, COPY_CHUNK_BYTES)
        if _HAS_COPY_FILE_RANGE:
            # The kernel refuses O_APPEND targets and some file systems; the plain way below also reports real errors.
            try:
                done = os.copy_file_range(source, target, size, offset)
            except OSError:
                done = 0
            if done:
                return done
        return self.write(target, self.pread(source, size, offset))

    def fsync(self, fd: int) -> None:
        """Sync a file."""
        fsync(fd)

    def ftruncate(self, fd: int, size: int) -> None:
        """Truncate a file."""
        os.ftruncate(fd, size)

    def fstat(self, fd: int) -> os.stat_result:
        """Return the status of the file of a descriptor."""
        return os.fstat(fd)

    def stat(self, path: Path) -> os.stat_result:
        """Return the status of the file with this name."""
        return os.stat(path)

    def link(self, source: Path, target: Path) -> None:
        """Create a hard link; raises if the target exists."""
        os.link(source, target)

    def replace(self, source: Path, target: Path) -> None:
        """Rename a file over another, atomically."""
        waited_s = 0.0
        while True:
            try:
                os.replace(source, target)
            except OSError as error:
                if not self._patient or error.errno not in _BUSY or waited_s >= _REPLACE_PATIENCE_S:
                    raise
                pause_s = 0.01 if waited_s < 0.1 else 0.1
                time.sleep(pause_s)
                waited_s += pause_s
            else:
                return

    def unlink(self, path: Path) -> None:
        """Remove a name."""
        os.unlink(path)

    def make_folder(self, path: Path) -> None:
        """Create a folder for its owner only, with its parents."""
        make_private(path)

    def free_bytes(self, path: Path) -> int:
        """Return the bytes that this user may still write to the disk of a folder."""
        status = os.statvfs(path)
        return status.f_bavail * status.f_frsize

    def sync_folder(self, path: Path) -> None:
        """Sync a folder's names, if its file system can."""
        sync_folder(path)

    # The methods below are built from the calls above. All of them raise OSError if the disk refuses.

    @contextlib.contextmanager
    def opened(self, path: Path, flags: int = os.O_RDONLY) -> Generator[int]:
        """Yield a descriptor of a regular file, and close it afterwards."""
        fd = self.open(path, flags)
        try:
            yield fd
        finally:
            self.close(fd)

    def write_all(self, fd: int, data: bytes | memoryview) -> None:
        """Write everything, however short single writes are; after an error a part of it may be written."""
        write_all(fd, data, self.write)

    def append(self, fd: int, data: bytes, *, sync: bool = False) -> None:
        """Append to a file, and sync it if requested; after an error the file ends where it did before."""
        size = self.fstat(fd).st_size
        try:
            self.write_all(fd, data)
            if sync:
                self.fsync(fd)
        except OSError:
            with contextlib.suppress(OSError):
                self.ftruncate(fd, size)
            raise

    def read_exactly(self, fd: int, size: int, offset: int) -> bytes:
        """Read a whole range; a shorter file is an error."""
        pieces: list[bytes] = []
        while size:
            piece = self.pread(fd, size, offset)
            if not piece:
                raise OSError(errno.EIO, "the file is shorter than it was")
            pieces.append(piece)
            offset += len(piece)
            size -= len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def readable_size(self, fd: int) -> int:
        """Return the size of a file that will be read or copied completely; a file that is too large is an error (EFBIG)."""
        size = self.fstat(fd).st_size
        if size > MAX_FILE_BYTES:
            raise OSError(errno.EFBIG, f"it is larger than {MAX_FILE_BYTES >> 30} GB")
        return size

    def same_bytes(self, one: Path, other: Path, size: int) -> bool:
        """Return whether both files begin with the same `size` bytes; the ends are compared first, where they differ most likely."""
        if size == 0:
            return True
        with self.opened(one) as one_fd, self.opened(other) as other_fd:
            last = max(0, size - 4096)
            starts: Iterable[int] = (last, *range(0, last, COPY_CHUNK_BYTES))
            for start in starts:
                count = min(COPY_CHUNK_BYTES, size - start)
                if self.read_exactly(one_fd, count, start) != self.read_exactly(
                    other_fd, count, start
                ):
                    return False
        return True

    def copy_bytes(self, source: int, target: int, size: int, start: int = 0) -> None:
        """Append `size` bytes of one file, from `start` on, to another; a shorter source is an error."""
        offset, end = start, start + size
        while offset < end:
            done = self.copy_range(source, target, end - offset, offset)
            if done <= 0:
                raise OSError(errno.EIO, "the file is shorter than it was")
            offset += done

    def write_file(
        self,
        path: Path,
        data: bytes,
        *,
        source: int | None = None,
        size: int = 0,
        new: bool = False,
        sync: bool = True,
    ) -> Identity:
        """Write a whole file and return its identity; after an error a part of it may exist.

        Args:
            path: The path; an existing file is overwritten.
            data: The bytes of the file after those from `source`.
            source: A descriptor whose first `size` bytes begin the file.
            size: The number of bytes from `source`.
            new: Whether an existing file is an error.
            sync: Whether to sync it.
        """
        with self.opened(path, os.O_RDWR | os.O_CREAT | (os.O_EXCL if new else os.O_TRUNC)) as fd:
            if source is not None:
                self.copy_bytes(source, fd, size)
            self.write_all(fd, data)
            if sync:
                self.fsync(fd)
            return identity_of(self.fstat(fd))

    def write_new(self, path: Path, data: bytes) -> None:
        """Write a whole new file, or leave nothing behind.

        Raises:
            FileExistsError: the file exists; it is not touched.
            OSError: the disk refused.
        """
        try:
            self.write_file(path, data, new=True)
        except FileExistsError:
            raise
        except OSError:
            path.unlink(missing_ok=True)
            raise

    def copy_file(self, source: Path, target: Path, *, sync: bool = True) -> os.stat_result:
        """Copy a whole file to a new name; return the status of the source."""
        with self.opened(source) as fd:
            status = self.fstat(fd)
            size = self.readable_size(fd)
            self.write_file(target, b"", source=fd, size=size, new=True, sync=sync)
            return status

    def link_or_copy(self, source: Path, target: Path) -> None:
        """Give a second name to a file that will not be written any more, or make a synced copy if there are no hard links.

        The name appears atomically with the whole file, and never replaces another.
        """
        try:
            self.link(source, target)
            return
        except OSError as error:
            if error.errno not in NO_HARD_LINKS:
                raise
        temporary = target.with_name(f".{target.name}.tmp")
        try:
            with self.opened(source) as fd:
                self.write_file(temporary, b"", source=fd, size=self.readable_size(fd))
            if os.path.lexists(target):
                raise FileExistsError(
                    errno.EEXIST, "a file with this name already exists", str(target)
                )
            self.replace(temporary, target)
        except OSError:
            with contextlib.suppress(OSError):
                self.unlink(temporary)
            raise

    def replace_file(self, path: Path, data: bytes, *, shared: bool = False) -> None:
        """Write a small file atomically: it is replaced completely, or stays unchanged.

        Args:
            path: The path of the file.
            data: The new contents.
            shared: Whether other processes may replace it at the same moment, so that each needs a temporary name of its own.
                Otherwise the next write overwrites the temporary file of a crash.
        """
        temporary = temporary_of(path)
        if shared:
            temporary = path.with_name(new_temporary_name(path.name))
        try:
            self.write_file(temporary, data, new=shared)
            self.replace(temporary, path)
        except OSError:
            with contextlib.suppress(OSError):
                self.unlink(temporary)
            raise
        self.sync_folder(path.parent)


def temporary_of(path: Path) -> Path:
    """Return the name under which `Storage.replace_file` writes the new contents of a file that is not shared."""
    return path.with_name(f".{path.name}.tmp")


# -- files in folders that others write to as well -----------------------------------------------------

_WALKED = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC
_CREATED = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_WRITE_CHUNK_BYTES = 1 << 20
_TEMPORARY_ENDS = (".tmp", ".restore")
_TEMPORARY = re.compile(r"\..+\.[0-9a-f]{12}\.tmp|\.[0-9a-f]{24}\.restore", re.DOTALL)
# A character takes at most four bytes in a name, and a name has at most 255.
_MOST_NAME_CHARS = 50
_ACCESS_LIST = "system.posix_acl_access"


def open_folder(root: Path | int, parts: Sequence[str], *, create: bool = False) -> int:
    """Open a folder below `root`, name by name without following links; return its descriptor. The caller closes it.

    The descriptor is for names in the folder (`dir_fd`), not for reading or syncing the folder itself.

    Args:
        root: The first folder: a descriptor, or a name, which may be a link.
        parts: The names of the path below it.
        create: Whether to create missing folders.

    Raises:
        OSError: A folder is missing, is no folder (a link is none), has an invalid name (such as `..`), or may not be
            entered; `filename` is its path.
    """
    n_entered = 0
    try:
        folder = os.dup(root) if isinstance(root, int) else os.open(root, _WALKED)
        for part in parts:
            n_entered += 1
            try:
                deeper = enter_folder(part, folder, create=create)
            finally:
                os.close(folder)
            folder = deeper
    except OSError as error:
        above = root if isinstance(root, Path) else Path()
        error.filename = str(above.joinpath(*parts[:n_entered]))
        raise
    return folder


def enter_folder(part: str, folder: int, *, create: bool = False) -> int:
    """Open a folder in an open one; return its descriptor, which the caller closes.

    Args:
        part: its name.
        folder: the descriptor of the folder that it is in.
        create: whether to create it if it is missing.

    Raises:
        OSError: it is missing, is no folder (a link is none), has an invalid name, or may not be entered.
    """
    if part in ("", ".", "..") or "/" in part:
        raise OSError(errno.EINVAL, "this name cannot be the name of a folder")
    try:
        return os.open(part, _WALKED | os.O_NOFOLLOW, dir_fd=folder)
    except FileNotFoundError:
        if not create:
            raise
    with contextlib.suppress(FileExistsError):
        os.mkdir(part, dir_fd=folder)
    return os.open(part, _WALKED | os.O_NOFOLLOW, dir_fd=folder)


def new_temporary_name(name: str) -> str:
    """Return a new name under which the contents of a file of this name are written before they are published."""
    return f".{name[:_MOST_NAME_CHARS]}.{os.urandom(6).hex()}.tmp"


def restoring_name(blob: str) -> str:
    """Return the name under which contents with this hash are restored, so that the next restore removes what a kill has left."""
    return f".{blob[:24]}.restore"


def is_temporary_name(name: str) -> bool:
    """Return whether a file of this name is one that this program writes and has not published: it belongs to nobody's work."""
    return name.endswith(_TEMPORARY_ENDS) and _TEMPORARY.fullmatch(name) is not None


def create_file(
    name: str,
    folder: int,
    data: bytes,
    *,
    mode: int | None = None,
    owner: tuple[int, int] | None = None,
    replaces: str = "",
) -> None:
    """Write and sync a new file in an open folder.

    Args:
        name: The name of the file, which must not exist.
        folder: The descriptor of the folder.
        data: The contents.
        mode: The permissions of the complete file; until it is complete, others cannot read it. None uses the umask.
        owner: The user and group of the file, if setting them is allowed.
        replaces: The file of the same folder that it will replace: its access list and extended attributes are copied.

    Raises:
        OSError: The disk refused; no part of the file is left.
    """
    fd = os.open(name, _CREATED, 0o666 if mode is None else 0o600, dir_fd=folder)
    try:
        try:
            for start in range(0, len(data), _WRITE_CHUNK_BYTES):
                write_all(fd, memoryview(data)[start : start + _WRITE_CHUNK_BYTES])
            if owner is not None and owner != (os.geteuid(), os.getegid()):
                with contextlib.suppress(OSError):
                    os.fchown(fd, *owner)
            if replaces:
                _take_attributes(fd, replaces, folder)
            if mode is not None:
                os.fchmod(fd, mode)
            fsync(fd)
        finally:
            os.close(fd)
    except BaseException:
        discard(name, folder)
        raise


def _take_attributes(fd: int, name: str, folder: int) -> None:
    """Copy the access list and the users' extended attributes of another file to an open one.

    Without the list the group would get the rights that the list gives to named users, because the mode bits of both are the same.

    Raises:
        OSError: The access list cannot be copied.
    """
    if sys.platform != "linux":
        return
    try:
        old = os.open(
            name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder
        )
    except OSError:
        return
    try:
        names: list[str] = []
        with contextlib.suppress(OSError):
            names = os.listxattr(old)
        for one in names:
            if one == _ACCESS_LIST:
                os.setxattr(fd, one, os.getxattr(old, one))
            elif one.startswith("user."):
                with contextlib.suppress(OSError):
                    os.setxattr(fd, one, os.getxattr(old, one))
    finally:
        os.close(old)


def publish(temporary: str, name: str, folder: int, *, replace: bool) -> None:
    """Rename a file from its temporary name to its final one, atomically.

    Args:
        temporary: The temporary name, which is gone afterwards, even after an error.
        name: The final name.
        folder: The descriptor of the folder of both names.
        replace: Whether to replace an existing file. Otherwise a file that has appeared there stays, except on a file system
            without hard links, where the last moment before the rename cannot be checked.

    Raises:
        FileExistsError: The final name exists.
        OSError: The disk refused; the file with the final name is unchanged.
    """
    try:
        if replace or not _linked(temporary, name, folder):
            os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        else:
            # The file has its name by now, so an error would be told of a file that is there.
            discard(temporary, folder)
    except BaseException:
        discard(temporary, folder)
        raise


def _linked(temporary: str, name: str, folder: int) -> bool:
    """Give a second name, as a rename would replace the target; return False if there are no hard links."""
    try:
        os.link(temporary, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
    except NotImplementedError:
        return False
    except OSError as error:
        if error.errno in NO_HARD_LINKS:
            return False
        raise
    return True


def discard(name: str, folder: int) -> None:
    """Remove a name of an open folder, if it exists and can be removed."""
    with contextlib.suppress(OSError):
        os.unlink(name, dir_fd=folder)


# -- removing folders --------------------------------------------------------------------------------

_OPENED = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def spread(folder: str | Path) -> None:
    """Have the file system place the folders that are made in a folder away from one another, if it can (ext4).

    Before it gives a new file an inode, ext4 reads each inode near the folder of the file that was freed in the last minutes: beside the
    removal of some ten thousand files, making as many takes ten times as long.

    Args:
        folder: a new folder, in which many are to be made.
    """
    if sys.platform != "linux":
        return
    import fcntl
    import struct

    size = struct.calcsize("l")
    get, put = 0x80006601 | size << 16, 0x40006602 | size << 16
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            # The kernel reads and writes four bytes, whatever the number of the call says.
            flags = bytearray(size)
            fcntl.ioctl(handle, get, flags)
            found = int.from_bytes(flags[:4], sys.byteorder) | _TOP_OF_TREES
            fcntl.ioctl(handle, put, found.to_bytes(4, sys.byteorder) + bytes(size - 4))
        finally:
            os.close(handle)


def copy_tree(source: str | Path, target: str | Path) -> None:
    """Copy a folder: files with their permission bits and times, folders, and links as links; what is none of these, or cannot be
    read, is left out. It takes half the system calls of `shutil.copytree`, and shares the contents where the file system can.

    Args:
        source: the folder.
        target: the copy, which may exist if it is empty.

    Raises:
        OSError: the disk refused.
    """
    storage = Storage()
    waiting = [(os.fspath(source), os.fspath(target))]
    while waiting:
        folder, copy = waiting.pop()
        try:
            with os.scandir(folder) as listing:
                items = list(listing)
        except PermissionError:
            items = []
        os.makedirs(copy, exist_ok=True)
        if folder == os.fspath(source):
            spread(copy)
        os.chmod(copy, stat.S_IMODE(os.stat(folder).st_mode) | 0o700)
        for item in items:
            status, to = item.stat(follow_symlinks=False), f"{copy}/{item.name}"
            if stat.S_ISDIR(status.st_mode):
                waiting.append((item.path, to))
            elif stat.S_ISLNK(status.st_mode):
                os.symlink(os.readlink(item.path), to)
            elif stat.S_ISREG(status.st_mode):
                _copy_file(storage, item.path, to, status)


def _copy_file(storage: Storage, path: str, to: str, status: os.stat_result) -> None:
    try:
        source = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except PermissionError:
        return
    try:
        mode = stat.S_IMODE(status.st_mode)
        copy = os.open(to, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        try:
            done = 0
            while done < status.st_size:
                if not (n := storage.copy_range(source, copy, status.st_size - done, done)):
                    break
                done += n
            os.fchmod(copy, mode)
            os.utime(copy, ns=(status.st_atime_ns, status.st_mtime_ns))
        finally:
            os.close(copy)
    finally:
        os.close(source)


def remove_tree(top: str | Path) -> None:
    """Remove a folder that commands filled: it may have any depth, unreadable folders, and links to anywhere.

    Each folder in it is moved to the top before it is listed, so paths and chains of descriptors stay short.

    Raises:
        OSError: not everything could be removed.
    """
    if not stat.S_ISDIR(os.lstat(top).st_mode):
        # The mode of what a link leads to is not to be changed either.
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(top))
    os.chmod(top, 0o700)
    held = os.open(top, _OPENED)
    try:
        moved = (f".{os.urandom(8).hex()}.{number}" for number in itertools.count())
        while names := os.listdir(held):
            for name in names:
                folder = _opened_up(name, held)
                if folder < 0:
                    continue
                try:
                    for inner in os.listdir(folder):
                        deeper = _opened_up(inner, folder)
                        if deeper >= 0:
                            os.close(deeper)
                            os.rename(inner, next(moved), src_dir_fd=folder, dst_dir_fd=held)
                finally:
                    os.close(folder)
                os.rmdir(name, dir_fd=held)
    finally:
        os.close(held)
    os.rmdir(top)


def _opened_up(name: str, folder: int) -> int:
    """Open a folder in another one, changing its mode if necessary, and return the descriptor; remove anything else, and return -1."""
    if not stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
        os.unlink(name, dir_fd=folder)
        return -1
    os.chmod(name, 0o700, dir_fd=folder)
    return os.open(name, _OPENED, dir_fd=folder)

"""Files in a repository with which a command could choose what the user's own git runs or reads, and which cannot be kept
from being created.

`levers` finds the existing ones; `put_aside` moves one to a place where git does not find it. Git itself creates none of them
in an existing repository. They are: `commondir` (at the top it moves all settings elsewhere; in a linked working tree it is
git's own as long as it leads back), addresses in `remotes` and `branches`, `info/attributes`, `objects/info/alternates`, and
a repository inside the repository. The policy protects git's settings and hooks.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections import deque
from collections.abc import Generator, Iterator
from pathlib import Path

from kimi_tui.filesystem import (
    all_is_read,
    note_unread,
    open_folder,
    open_regular,
    real_path,
    unread_is_empty,
)

GIT_FILE_BYTES = 4096
ASIDE = "undone-by-kimi-tui"
"""The folder in a repository to which `put_aside` moves levers, so that nothing that the user made is lost."""
ADDRESSES = ("remotes", "branches")
"""Old places of addresses of other repositories. Git reads them, and never writes them."""
_IN_ADDRESSES = tuple(f"{name}/" for name in ADDRESSES)
_FILES = ("commondir", "info/attributes", "objects/info/alternates")
_HELD_FILES = ("info/attributes", "objects/info/alternates")
BARE = frozenset({"HEAD", "objects", "refs"})
"""The names that make a folder a repository without a working tree."""
_MOST_INNER = 400
"""The largest number of folders of a repository that are searched for repositories inside it."""
_FAN_OUT = frozenset({"objects", "lfs", "annex"})
"""Folders with thousands of folders that hold only objects."""
_MOST_TREES = 500


def levers(git: str, *, is_module: bool = False) -> Iterator[str]:
    """Yield the levers in a repository, as paths in it. It lists folders, so call it in a thread.

    If a folder above a lever is a link, the link is the lever.

    Args:
        git: the real path of the repository (`.git`, a bare one, or one of a submodule).
        is_module: whether it is a submodule's repository; the search of the containing repository finds those inside it.
    """
    for name in _FILES:
        yield from _with_links(git, name)
    for name in ADDRESSES:
        if os.path.islink(os.path.join(git, name)):
            yield name
        else:
            yield from (f"{name}/{one}" for one in _names_in(os.path.join(git, name)))
    if os.path.islink(os.path.join(git, "worktrees")):
        yield "worktrees"
    for tree in folders_in(os.path.join(git, "worktrees"))[:_MOST_TREES]:
        if not _leads_back(tree, git):
            yield f"worktrees/{os.path.basename(tree)}/commondir"
    if not is_module:
        yield from (f"{inner}/HEAD" for inner in inner_repositories(git))


def held_levers(git: str, *, is_module: bool = False) -> Iterator[str]:
    """Yield the existing levers that git only reads, as paths in the repository: the sandbox can make them read-only. For a
    repository that is no submodule's, the folders of addresses are included, so that no address can be added.
    """
    if not is_module:
        yield from (name for name in ADDRESSES if not os.path.islink(os.path.join(git, name)))
    for lever in levers(git, is_module=True):
        is_address = lever.startswith(_IN_ADDRESSES)
        is_held = lever in _HELD_FILES or (is_address and is_module)
        if is_held and not os.path.islink(os.path.join(git, lever)):
            yield lever


def _with_links(git: str, name: str) -> Iterator[str]:
    if not os.path.lexists(os.path.join(git, name)):
        return
    parts = name.split("/")
    for n_parts in range(1, len(parts)):
        above = "/".join(parts[:n_parts])
        if os.path.islink(os.path.join(git, above)):
            yield above
            return
    yield name


def _leads_back(tree: str, git: str) -> bool:
    """Return whether the settings of a linked working tree are those of its repository, as far as they are written yet."""
    path = os.path.join(tree, "commondir")
    try:
        status = os.lstat(path)
    except OSError:
        return True
    # A file with another name could be changed under that name.
    if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
        return False
    if status.st_size == 0:
        return True
    if status.st_size > GIT_FILE_BYTES:
        return False
    try:
        with all_is_read():
            named = path_in(path)
    except OSError as error:
        note_unread(error)
        return True
    return real_path(os.path.join(tree, named)) == git


def inner_repositories(git: str, *, is_strict: bool = False) -> Iterator[str]:
    """Yield the repositories inside a repository, as paths in it; not those of submodules, which git keeps in `modules`.

    Raises:
        PermissionError: with `is_strict`, one of the searched folders is closed (`is_closed`).
    """
    waiting = deque([("", "")])
    n_seen = 0
    while waiting and n_seen < _MOST_INNER:
        n_seen += 1
        place, owner = waiting.popleft()
        folder = os.path.join(git, place)
        if is_strict and is_closed(folder):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), folder.rstrip("/"))
        names, folders = _names_of(folder)
        if place and names >= BARE:
            if not place[len(owner) :].lstrip("/").startswith("modules/"):
                yield place
                continue
            owner = place
        for name in sorted(folders):
            if not is_of_objects(place, name):
                waiting.append((f"{place}/{name}" if place else name, owner))


def is_of_objects(place: str, name: str) -> bool:
    """Return whether a folder is one of the thousands that hold objects, named by the beginnings of their hashes.

    Args:
        place: the path of the folder above it.
        name: the name of the folder.
    """
    return len(name) == 2 and name.isalnum() and not _FAN_OUT.isdisjoint(place.split("/"))


def is_closed(folder: str) -> bool:
    """Return whether a folder is there, and this user can list nothing in it or look at nothing in it. A command may: the owner
    can open it again.
    """
    is_open = os.access(folder, os.R_OK | os.X_OK, effective_ids=True)
    return not is_open and os.path.isdir(folder)


def _names_of(folder: str) -> tuple[set[str], list[str]]:
    """Return all names in a folder, and the names of folders."""
    names: set[str] = set()
    folders: list[str] = []
    with unread_is_empty(), os.scandir(folder) as listing:
        for item in listing:
            names.add(item.name)
            if item.is_dir(follow_symlinks=False):
                folders.append(item.name)
    return names, folders


def put_aside(git: str, lever: str) -> bool:
    """Move a lever into the folder `ASIDE` of its repository, where git does not find it; if that fails, remove it.

    No link in the path is followed. Call it in a thread.

    Args:
        git: the real path of the repository.
        lever: a path in it.

    Returns:
        whether something was moved or removed.
    """
    above, name = os.path.split(lever)
    try:
        with opened(git) as top, opened_below(top, above) as folder:
            with contextlib.suppress(OSError):
                with contextlib.suppress(FileExistsError):
                    os.mkdir(ASIDE, 0o700, dir_fd=top)
                with opened_below(top, ASIDE) as aside:
                    kept = f"{os.urandom(4).hex()}-{name}"
                    os.rename(name, kept, src_dir_fd=folder, dst_dir_fd=aside)
                    return True
            os.unlink(name, dir_fd=folder)
            return True
    except OSError:
        return False


@contextlib.contextmanager
def opened(folder: str) -> Generator[int]:
    """Open a folder in which files are to be created or removed; yields its descriptor. A background command can put a link
    in its place at any moment.

    Raises:
        OSError: there is no such folder, or a link in the path.
    """
    top, *parts = Path(folder).parts
    held = open_folder(Path(top), parts)
    try:
        yield held
    finally:
        os.close(held)


@contextlib.contextmanager
def opened_below(folder: int, path: str) -> Generator[int]:
    """Open a folder below an open one, likewise; with an empty path the open one itself.

    Raises:
        OSError: there is no such folder, or a link in the path.
    """
    held = open_folder(folder, [*filter(None, path.split("/"))])
    try:
        yield held
    finally:
        os.close(held)


def folders_in(folder: str) -> list[str]:
    """Return the paths of the folders in a folder, without links."""
    with unread_is_empty(), os.scandir(folder) as listing:
        return [item.path for item in listing if item.is_dir(follow_symlinks=False)]
    return []


def _names_in(folder: str) -> list[str]:
    with unread_is_empty():
        return sorted(os.listdir(folder))
    return []


def path_in(path: str) -> str:
    """Return the path in one of git's small files that name a folder (`.git`, `commondir`, `gitdir`); empty if the file is
    missing or not regular. Like git it takes the whole text without the line ends after it: a line end inside is part of the
    name.
    """
    try:
        with open(open_regular(Path(path)), "rb", buffering=0) as file:
            data = file.read(GIT_FILE_BYTES) or b""
    except OSError as error:
        note_unread(error)
        return ""
    return data.partition(b"\0")[0].rstrip(b"\r\n").decode(errors="surrogateescape")

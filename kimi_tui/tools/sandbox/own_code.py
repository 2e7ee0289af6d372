"""The paths of this program's own code, which a sandboxed command must not change: package, interpreter, what both import.

Each command has a supervisor, which runs outside the sandbox: a command that changed its code would be outside with the next
command. So this code is read-only where a command may otherwise write: in a work folder in which the program is installed or
developed, in a cache from which a package manager runs it, and in a cache whose files are hard links of the installed ones
(`uv`).
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Iterable, Iterator

import kimi_tui
from kimi_tui.filesystem import links_to

_PACKAGES = ("site-packages", "dist-packages")
_DESCRIPTION = ".dist-info"
_UNPACKED = "archive-v"
"""So begin the names of the folders in which `uv` keeps what it links into environments."""


def program_places(roots: Iterable[str], work: str) -> set[str]:
    """What of the program's code is below these folders, and links on the way to it.

    Args:
        roots: real paths of what commands may write.
        work: the work folder; what holds all of it is left out, so that the program can be developed in it.
    """
    found: set[str] = set()
    for place in {*_own_places(), *_linked_places(tuple(roots))}:
        links, end = links_to(place)
        if not os.path.lexists(end):
            # It could be made.
            end = os.path.dirname(end)
        if not _is_below(work, end):
            found |= {one for one in (*links, end) if any(_is_below(one, root) for root in roots)}
    return {one for one in found if os.path.lexists(one)}


def package_folder() -> str:
    """The real path of the folder of this program's package."""
    return os.path.realpath(os.path.dirname(kimi_tui.__file__))


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder.rstrip('/')}/")


@functools.cache
def _own_places() -> frozenset[str]:
    prefixes = {sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix}
    # Where the folder of an environment is the work folder, what counts in it does.
    settings = {os.path.join(prefix, "pyvenv.cfg") for prefix in prefixes}
    programs = {os.path.dirname(path) for path in (sys.executable, sys.argv[0])}
    return frozenset(
        path
        for path in {package_folder(), *prefixes, *settings, *programs, *sys.path}
        if os.path.isabs(path)
    )


def _linked_places(roots: tuple[str, ...]) -> Iterator[str]:
    """The folders of a cache that share files with what is installed for this program."""
    own = _linked_descriptions()
    for root in roots if own else ():
        with contextlib.suppress(OSError):
            for name in os.listdir(root):
                archive = os.path.join(root, name)
                if name.startswith(_UNPACKED):
                    yield from _sharing(archive, os.stat(archive).st_mtime_ns)


@functools.lru_cache(maxsize=8)
def _sharing(archive: str, _changed: int) -> tuple[str, ...]:
    """As long as the same folders are in it."""
    own = _linked_descriptions()
    with contextlib.suppress(OSError):
        entries = [os.path.join(archive, name) for name in os.listdir(archive)]
        return tuple(entry for entry in entries if not own.isdisjoint(_descriptions(entry)))
    return ()


@functools.cache
def _linked_descriptions() -> frozenset[tuple[int, int]]:
    """Of the packages that are installed for this program, those whose files have a second name somewhere."""
    places = [path for path in sys.path if os.path.basename(path) in _PACKAGES]
    return frozenset(
        which for place in places for which, n_names in _descriptions(place).items() if n_names > 1
    )


def _descriptions(folder: str) -> dict[tuple[int, int], int]:
    """The files that describe the packages in a folder, by device and number, and how many names each has."""
    found: dict[tuple[int, int], int] = {}
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            if name.endswith(_DESCRIPTION):
                with contextlib.suppress(OSError):
                    status = os.stat(os.path.join(folder, name, "METADATA"))
                    found[status.st_dev, status.st_ino] = status.st_nlink
    return found

"""`AddedFolders`: folders beside the work folder that the user added for this run, with `--add-dir` or `/add-dir`.

Their files are read without a question, edited and used by commands as the mode allows it. No snapshot has them, so that no
rewind restores them. A folder that was replaced since it was added, also by a link, counts no longer.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from kimi_tui import app_paths
from kimi_tui.foreign_text import one_line
from kimi_tui.tools.outcome import ToolProblem
from kimi_tui.tools.paths import holds_secrets, locate, with_tilde

_MOST = 20
_OF_SYSTEM = frozenset(
    {
        "/",
        "/bin",
        "/boot",
        "/dev",
        "/etc",
        "/lib",
        "/lib64",
        "/proc",
        "/run",
        "/sbin",
        "/sys",
        "/usr",
        "/var",
    }
)


class BadFolder(Exception):
    """A folder that cannot be added. The text is a sentence for the user."""


class _Added(NamedTuple):
    """A folder as it was when it was added."""

    path: str
    device: int
    inode: int

    @property
    def is_there(self) -> bool:
        """Whether it is still the same folder."""
        try:
            found = os.stat(self.path, follow_symlinks=False)
        except OSError:
            return False
        return (found.st_dev, found.st_ino) == (self.device, self.inode) and (
            os.path.realpath(self.path) == self.path
        )


class AddedFolders:
    """The added folders of one session. Nothing here is stored.

    Args:
        work_dir: the work folder.
        environ: the environment of the program.
    """

    def __init__(self, work_dir: Path, environ: Mapping[str, str]) -> None:
        self._work_dir = work_dir
        self._environ = environ
        self._added: list[_Added] = []

    @property
    def paths(self) -> tuple[str, ...]:
        """The real paths of the folders that are still there."""
        return tuple(one.path for one in self._added if one.is_there)

    def add(self, written: str) -> str:
        """Add a folder; return its real path. It looks at files, so call it in a thread.

        Args:
            written: its path as the user wrote it: absolute, with `~`, or from the work folder.

        Raises:
            BadFolder: it cannot be added.
        """
        shown = one_line(written)[:200]
        path = os.path.realpath(os.path.join(self._work_dir, app_paths.expanded(written.strip())))
        work = os.path.realpath(self._work_dir)
        home = os.path.realpath(app_paths.home_of(self._environ) or "/")
        if not written.strip() or not os.path.isdir(path):
            raise BadFolder(f'"{shown}" is not a folder.')
        if is_within(path, (work,)):
            raise BadFolder(f'"{shown}" is in the work folder already.')
        if is_within(work, (path,)):
            raise BadFolder(f'"{shown}" contains the work folder: start kimi-tui there instead.')
        if is_within(home, (path,)) or path in _OF_SYSTEM:
            raise BadFolder(
                f'"{shown}" contains too much: your home folder, or parts of the system.'
            )
        try:
            target = locate(path, self._work_dir, self._environ)
        except ToolProblem as problem:
            raise BadFolder(str(problem)) from problem
        if holds_secrets(target, self._environ, is_folder=True):
            raise BadFolder(f'"{shown}" is a place for secrets, or kimi-tui\'s own folder.')
        if path in self.paths:
            return path
        if len(self.paths) >= _MOST:
            raise BadFolder(f"At most {_MOST} folders can be added.")
        found = os.stat(path)
        self._added = [one for one in self._added if one.path != path]
        self._added.append(_Added(path, found.st_dev, found.st_ino))
        return path

    def remove(self, path: str) -> None:
        """Remove a folder by its real path."""
        self._added = [one for one in self._added if one.path != path]

    def shown(self, path: str) -> str:
        """Return a path of `paths` as the user reads it."""
        return one_line(with_tilde(Path(path), app_paths.home_of(self._environ)))


def is_within(path: str, folders: tuple[str, ...]) -> bool:
    """Return whether a real path is one of these folders, or in one."""
    return any(path == one or path.startswith(f"{one.rstrip('/')}/") for one in folders)

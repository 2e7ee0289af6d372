"""`GitWatch`: while a sandboxed command runs, undoes changes with which it could choose what the user's own git runs.

Existing files that decide it are read-only for commands; levers that a command creates (`git_levers`) are put aside at once:
the kernel reports new names in the repositories (`FolderWatch`). If it cannot, or if there are too many folders, the
repositories are checked when a command starts and when it ends. Levers that existed before the first of the running commands
are the user's, and stay. New repositories in the upper folders, which may be legitimate, are reported while commands run.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from kimi_tui.filesystem import all_is_read
from kimi_tui.tools.sandbox.git_levers import (
    ADDRESSES,
    BARE,
    folders_in,
    is_of_objects,
    levers,
    opened,
    opened_below,
    put_aside,
)
from kimi_tui.tools.sandbox.policy import WatchedFiles
from kimi_tui.workspace.folder_watch import LOST, FolderWatch, NameEvent
from kimi_tui.workspace.protected_names import PASSED_OVER, folded

_log = logging.getLogger(__name__)

_MOST_WATCHES = 1024
_MOST_TREE_WATCHES = 256
_MOST_TOLD = 20
_MOST_UNDONE = 5
"""A command that continues to create levers after this many were undone is ended: between two checks the user's git could read one."""
_NAMES = frozenset(
    {
        "commondir",
        "attributes",
        "alternates",
        "head",
        "objects",
        "refs",
        "info",
        "worktrees",
        *ADDRESSES,
    }
)
"""Names of levers and of the folders that may contain them; git creates many other files in a repository."""
_FIRST = ("", "info", "objects", "objects/info", "worktrees", *ADDRESSES)
_MOST_INNER = 200


class GitNews(NamedTuple):
    """Events noticed while commands run; paths are relative to the work folder.

    Attributes:
        undone: levers that were put aside.
        made: new repositories, and new or changed files that run later, made by a command that still runs.
        is_ended: whether the commands were ended because they created levers again and again.
    """

    undone: tuple[str, ...] = ()
    made: tuple[str, ...] = ()
    is_ended: bool = False


@dataclass(slots=True, eq=False)
class WatchedCommand:
    """A running command.

    Attributes:
        found: the files that run later, as they were before the command.
        end: ends the command.
        undone: the levers that were put aside since it began, relative to the work folder.
        is_ended: whether it was ended because levers were created again and again.
        told: the paths that have been reported.
    """

    found: WatchedFiles
    end: Callable[[], None] = lambda: None
    undone: list[str] = field(default_factory=list[str])
    is_ended: bool = False
    told: set[str] = field(default_factory=set[str])


class GitWatch:
    """The running commands of one sandbox, and the repositories in which they may write. Used from threads."""

    def __init__(self) -> None:
        self._tell: Callable[[GitNews], None] = lambda news: None
        self._lock = threading.RLock()
        self._commands: list[WatchedCommand] = []
        # The levers in each repository before the commands started.
        self._before: dict[str, frozenset[str]] = {}
        # The repository that contains each submodule's repository.
        self._owners: dict[str, str] = {}
        # The repository of each watched folder; empty for one of the work folder itself.
        self._watched: dict[str, str] = {}
        self._folders: FolderWatch | None = None
        self._has_tried = False
        self._n_undone = 0
        self._told_undone: set[str] = set()

    def listen(self, tell: Callable[[GitNews], None]) -> None:
        """Set the function that is called, in any thread, with news."""
        self._tell = tell

    def has_named(self, changed: Sequence[str]) -> None:
        """Note files that run later and that a card has listed, so that they are not reported as another command's."""
        with self._lock:
            for command in self._commands:
                command.told.update(changed)

    @contextlib.contextmanager
    def around(self, command: WatchedCommand) -> Generator[None]:
        """Watch while a command runs. It lists folders, so it belongs in the command's thread.

        Raises:
            OSError: this program lacks descriptors or memory to see what is there before the command.
        """
        self._begin(command)
        try:
            yield
        finally:
            self._finish(command)

    def _begin(self, command: WatchedCommand) -> None:
        with self._lock:
            if not self._commands:
                self._before.clear()
                self._told_undone.clear()
                self._n_undone = 0
            self._check(self._before)
            for other in self._commands:
                news = [path for path in command.found.since(other.found) if path not in other.told]
                if news:
                    other.told.update(news)
                    self._tell(GitNews(made=tuple(news)))
            gits = command.found.git_folders()
            self._owners |= {
                git: owner
                for owner in (*command.found.repositories, *command.found.commons)
                for git in gits
                if git.startswith(f"{owner}/modules/")
            }
            self._watch(gits, command.found)
            for git in gits:
                if git not in self._before:
                    # One that is not seen now would be taken for the command's, and put aside.
                    with all_is_read():
                        before = frozenset(levers(git, is_module=git in self._owners))
                    self._before[git] = before
            self._commands.append(command)

    def _finish(self, command: WatchedCommand) -> None:
        with self._lock:
            self._check(self._before)
            self._commands.remove(command)

    def _watch(self, gits: Sequence[str], found: WatchedFiles) -> None:
        """Watch those folders of these repositories, and those upper folders, that are not watched yet."""
        if not self._has_tried:
            self._has_tried = True
            try:
                self._folders = FolderWatch(self._hear, most=_MOST_WATCHES)
            except OSError as error:
                _log.warning(
                    "git's hooks and settings are not watched while commands run, only checked before and after: %s",
                    error,
                )
        if self._folders is None:
            return
        if not self._commands:
            wanted = {*gits, found.work}
            for path, git in [*self._watched.items()]:
                if (git or found.work) not in wanted:
                    self._folders.remove(path)
                    del self._watched[path]
        # A folder that was removed meanwhile is not watched any more.
        known = self._folders.paths
        self._watched = {path: git for path, git in self._watched.items() if path in known}
        for git in gits:
            trees = [
                os.path.relpath(tree, git) for tree in folders_in(os.path.join(git, "worktrees"))
            ]
            self._add(git, *_FIRST, *trees)
        for git in gits:
            self._add(git, *_inner_folders(git))
        folders = (path for path in found.memory.of(found.work) if not _is_passed_over(path))
        for path in islice(folders, _MOST_TREE_WATCHES):
            if path not in self._watched:
                self._add_of_tree(path)

    def _add(self, git: str, *names: str) -> None:
        """Watch folders of a repository."""
        with contextlib.suppress(OSError), opened(git) as top:
            for name in names:
                with contextlib.suppress(OSError), opened_below(top, name) as folder:
                    path = os.path.join(git, name) if name else git
                    if self._folders and self._folders.add(path, folder, writes=True):
                        self._watched[path] = git

    def _add_of_tree(self, path: str) -> bool:
        """Watch a folder of the work folder; return whether there was room."""
        with contextlib.suppress(OSError), opened(path) as folder:
            if self._folders and self._folders.add(path, folder):
                self._watched[path] = ""
                return True
        return False

    def _hear(self, events: Sequence[NameEvent]) -> None:
        """Handle events, in the thread of the watch."""
        with self._lock:
            if not self._commands:
                return
            is_lost = LOST in events
            touched: dict[str, None] = dict.fromkeys(self._before if is_lost else ())
            made: list[str] = []
            for folder, name, is_folder in events:
                git = self._watched.get(folder)
                if git is None:
                    continue
                if not git:
                    made += self._made(folder, name, is_folder=is_folder)
                elif is_folder and is_of_objects(folder, name):
                    continue
                elif is_folder or folded(name) in _NAMES or os.path.basename(folder) in ADDRESSES:
                    touched |= dict.fromkeys((git, self._owners.get(git, git)))
                    if is_folder:
                        self._add_inner(os.path.relpath(os.path.join(folder, name), git), git)
            self._check(touched)
            self._tell_of(made)

    def _add_inner(self, name: str, git: str) -> None:
        """Watch a new folder in a repository, with the folders that it contains by now.

        Each folder is watched before it is listed, so that names created later are reported.
        """
        waiting = [name]
        for inner in waiting:
            self._add(git, inner)
            if len(waiting) < _MOST_INNER:
                found = folders_in(os.path.join(git, inner))
                waiting += [os.path.relpath(path, git) for path in found]

    def _made(self, folder: str, name: str, *, is_folder: bool) -> list[str]:
        """Return the repositories that a new name in a folder of the work folder creates or contains."""
        path = os.path.join(folder, name)
        if folded(name) == ".git":
            return [path]
        if folded(name) in ("head", "objects", "refs"):
            return (
                [folder] if all(os.path.lexists(os.path.join(folder, one)) for one in BARE) else []
            )
        found: list[str] = []
        waiting = [path] if is_folder else []
        for path in waiting:
            if _is_passed_over(path) or not self._add_of_tree(path):
                continue
            with contextlib.suppress(OSError), os.scandir(path) as listing:
                names = {item.name: item.is_dir(follow_symlinks=False) for item in listing}
                found += [os.path.join(path, one) for one in names if folded(one) == ".git"]
                found += [path] if names.keys() >= BARE else []
                waiting += [
                    os.path.join(path, one)
                    for one, is_dir in names.items()
                    if is_dir and folded(one) != ".git"
                ]
        return found

    def _tell_of(self, made: Sequence[str]) -> None:
        fresh: list[str] = []
        for path in dict.fromkeys(made):
            for command in self._commands:
                shown = os.path.relpath(path, command.found.work)
                if shown not in command.told and len(command.told) < _MOST_TOLD:
                    command.told.add(shown)
                    fresh.append(shown)
        if fresh:
            self._tell(GitNews(made=tuple(dict.fromkeys(fresh))))

    def _check(self, gits: Sequence[str] | dict[str, None] | dict[str, frozenset[str]]) -> None:
        """Put aside the levers in these repositories that were not there before."""
        undone: list[str] = []
        for git in [*gits]:
            before = self._before.get(git)
            if before is None:
                continue
            new = [one for one in levers(git, is_module=git in self._owners) if one not in before]
            undone += [os.path.join(git, one) for one in new if put_aside(git, one)]
        if not undone or not self._commands:
            return
        shown: dict[str, None] = {}
        for command in self._commands:
            own = [os.path.relpath(path, command.found.work) for path in undone]
            command.undone += [path for path in own if path not in command.undone]
            shown.update(dict.fromkeys(own))
        self._n_undone += len(undone)
        is_ended = self._n_undone > _MOST_UNDONE
        if is_ended:
            for command in self._commands:
                command.is_ended = True
                command.end()
        if is_ended or not self._told_undone.issuperset(shown):
            self._told_undone.update(shown)
            self._tell(GitNews(undone=tuple(shown), is_ended=is_ended))


def _is_passed_over(path: str) -> bool:
    return os.path.basename(path) in PASSED_OVER


def _inner_folders(git: str) -> list[str]:
    """Return the other folders of a repository in which a repository could be created, as paths in it, the upper ones first."""
    found: list[str] = []
    waiting = folders_in(git)
    for path in waiting:
        if len(found) >= _MOST_INNER:
            break
        above, name = os.path.split(path)
        if not is_of_objects(above, name):
            found.append(os.path.relpath(path, git))
            waiting += folders_in(path) if name != "modules" else ()
    return found

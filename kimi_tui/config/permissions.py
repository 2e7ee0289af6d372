"""The permissions that the user gave for a project, in a file of their own configuration: `permissions.json`.

They are stored per work folder: its real path, its inode and the file system that it is on. Another folder that takes the
path later, and the same folder under another path, have none of them. Nothing in a work folder is read, and the file is not
used while it is inside the work folder, where a repository could bring it along.

A rule is a text. One for commands has the grammar of `--allow`, such as `git log`; one for a tool of a server, or for
something else, begins with a word and a colon, which no command does.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Callable, Generator
from pathlib import Path
from typing import NamedTuple

from kimi_tui import lenient_json
from kimi_tui.app_paths import make_private, reason_of, short
from kimi_tui.filesystem import Storage, read_regular

FILE_NAME = "permissions.json"
_MOST_BYTES = 1 << 20
_MOST_RULES = 500
_MOST_FOLDERS = 1_000
_LONGEST_RULE = 1_000


class _Folder(NamedTuple):
    """The identity of a work folder."""

    path: str
    inode: int
    file_system: int


class ProjectPermissions:
    """The permissions for one work folder. Everything here reads or writes files, so call it in a thread.

    Args:
        file: the file of all permissions.
        work_dir: the work folder.
    """

    def __init__(self, file: Path, work_dir: Path) -> None:
        self._file = file
        self._work_dir = work_dir

    @property
    def is_usable(self) -> bool:
        """Whether permissions can be given here: the file is outside the work folder."""
        real = os.path.realpath(self._file)
        return os.path.commonpath([real, os.path.realpath(self._work_dir)]) != os.path.realpath(
            self._work_dir
        )

    @property
    def rules(self) -> tuple[str, ...]:
        """The rules for the folder, oldest first; none if the file is missing, damaged, or can be written by other users."""
        folder = _identity(self._work_dir)
        if folder is None or not self.is_usable:
            return ()
        return _rules_in(self._read(), folder)

    @property
    def trouble(self) -> str:
        """A sentence that says why the file is not used; empty if it is, or if there is none."""
        try:
            _checked(self._file)
        except FileNotFoundError:
            return ""
        except (OSError, ValueError) as error:
            why = "it is damaged"
            if isinstance(error, OSError):
                why = reason_of(error, named_in_text=self._file)
            return f"The permissions in {short(self._file)} are ignored: {why}."
        return ""

    def add(self, rule: str) -> None:
        """Store a rule for the folder.

        Raises:
            OSError: the disk refused; nothing changed.
            ValueError: the file is damaged or inside the work folder, or holds too much.
        """
        if not self.is_usable:
            raise ValueError(f"{short(self._file)} is inside this folder")
        if len(rule) > _LONGEST_RULE or not rule.isprintable():
            raise ValueError("the rule is too long")

        def changed(rules: tuple[str, ...]) -> tuple[str, ...]:
            if len(rules) >= _MOST_RULES:
                raise ValueError(f"there are {_MOST_RULES} rules for this folder already")
            return rules if rule in rules else (*rules, rule)

        self._change(changed)

    def remove(self, rule: str) -> None:
        """Remove a rule of the folder. Raises as `add`."""
        self._change(lambda rules: tuple(one for one in rules if one != rule))

    def _read(self) -> list[object]:
        try:
            return _checked(self._file)
        except (OSError, ValueError):
            return []

    def _change(self, changed: Callable[[tuple[str, ...]], tuple[str, ...]]) -> None:
        folder = _identity(self._work_dir)
        if folder is None:
            raise ValueError("the work folder no longer exists")
        make_private(self._file.parent)
        with _locked(self._file.parent):
            try:
                entries = _checked(self._file)
            except FileNotFoundError:
                entries = []
            before = _rules_in(entries, folder)
            after = changed(before)
            if after == before:
                return
            # Rules for a folder that is gone, or that another one took the place of, hold no longer.
            entries = [
                one for one in entries if lenient_json.mapping(one).get("path") != folder.path
            ]
            if after:
                entries.append({**folder._asdict(), "rules": list(after)})
            text = json.dumps({"folders": entries[-_MOST_FOLDERS:]}, indent=1)
            Storage().replace_file(self._file, text.encode(), shared=True)


def shown_rule(rule: str) -> str:
    """Return a rule as the user reads it: `git log`, `tool git/status`, `host example.com`."""
    kind, colon, rest = rule.partition(":")
    if not colon or " " in kind:
        return rule
    if kind == "server":
        return f"the MCP server {rest}"
    # The part behind a number sign identifies the version that was allowed.
    name = rest.partition("#")[0]
    return f"{kind} {name}" if name else f"the {kind} of this folder"


def _identity(work_dir: Path) -> _Folder | None:
    real = os.path.realpath(work_dir)
    try:
        return _Folder(real, os.stat(real).st_ino, os.statvfs(real).f_fsid)
    except OSError:
        return None


@contextlib.contextmanager
def _locked(folder: Path) -> Generator[None]:
    """Keep other processes from changing the file meanwhile; where folders cannot be locked they are not."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def _checked(file: Path) -> list[object]:
    """Return the entries of the file.

    Raises:
        OSError: it cannot be read, or others than its owner can change it.
        ValueError: it is no such file.
    """
    data = read_regular(file, _MOST_BYTES)
    status = os.stat(file)
    if status.st_uid != os.getuid() or status.st_mode & 0o022:
        raise PermissionError(None, "other users can change it", str(file))
    try:
        found: object = json.loads(data)
    except RecursionError as error:
        raise ValueError("it is damaged") from error
    entries = lenient_json.mapping(found).get("folders")
    if not isinstance(entries, list):
        raise ValueError("it is damaged")
    return lenient_json.listing(entries)


def _rules_in(entries: list[object], folder: _Folder) -> tuple[str, ...]:
    for one in entries:
        entry = lenient_json.mapping(one)
        if all(entry.get(name) == value for name, value in folder._asdict().items()):
            rules = lenient_json.listing(entry.get("rules"))
            return tuple(
                rule
                for rule in rules[:_MOST_RULES]
                if isinstance(rule, str) and len(rule) <= _LONGEST_RULE and rule.isprintable()
            )
    return ()

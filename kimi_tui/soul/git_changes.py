"""Differences in a git repository: from the index to the last commit, or from the working files to a commit or a branch.

Names come from git, contents from git's objects and from the files, and lines are compared here: so no filter, hook or diff
program of the repository runs, and no file that may hold secrets is read.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from kimi_tui.app_paths import reason_of
from kimi_tui.display_names import some_of
from kimi_tui.filesystem import open_folder, open_regular
from kimi_tui.foreign_text import one_line
from kimi_tui.helper_programs import run_helper
from kimi_tui.soul.system_prompt import SafeGit, has_own_filters, safe_git
from kimi_tui.workspace.diff import (
    Changes,
    FileDifference,
    LineDiff,
    SideChange,
    diff_lines,
    text_of,
)
from kimi_tui.workspace.protected_names import secrets

_LIMIT_S = 20.0
_MOST_FILES = 300
_MOST_BYTES = 2 << 20
_MOST_NAMES_BYTES = 1 << 20
_MOST_ROWS = 20_000
_N_SUBJECTS = 10
_REVISION = re.compile(r"[A-Za-z0-9_][\w./@{}~^+-]{0,199}", re.ASCII)
_NAMES = (
    "--name-only",
    "--no-renames",
    "--no-ext-diff",
    "--no-textconv",
    "--ignore-submodules=all",
    "-z",
)


class NoGitChanges(Exception):
    """The changes cannot be shown. The text is a sentence for the user."""


class GitChanges(NamedTuple):
    """Changes in a repository.

    Attributes:
        changes: the files.
        root: the top of the repository.
        base: what they are compared with, in words.
        subjects: the subjects of the last commits, the newest first.
        staged: whether the later side is the index, and not the working files.
        is_here: whether the repository's top is the work folder.
    """

    changes: Changes
    root: Path
    base: str
    subjects: tuple[str, ...] = ()
    staged: bool = False
    is_here: bool = True


def changes_to_commit(work_dir: Path, environ: Mapping[str, str]) -> GitChanges:
    """Return the staged changes; if there are none, all changes of tracked files, and new files, but for those that may hold
    secrets. It runs git, so call it in a thread.

    Raises:
        NoGitChanges: they cannot be shown, or there are none.
    """
    asked = _Asked(_git(work_dir, environ), work_dir)
    head = "HEAD" if asked.is_commit("HEAD") else ""
    staged = asked.names("diff", "--cached", *_NAMES, *([head] if head else []))
    base = "the last commit" if head else "an empty repository"
    if staged:
        files = asked.compared(staged, head, index=True)
        return asked.named(files, base)._replace(staged=True)
    names = asked.names("diff", *_NAMES, head) if head else []
    names += asked.names("ls-files", "--others", "--exclude-standard", "-z")
    secret = [name for name in names if secrets().rule_in(name.split("/"))]
    found = asked.compared([name for name in names if name not in secret], head)
    if secret:
        named = some_of([one_line(name)[:60] for name in secret], 3)
        words = f"Not included, because they may contain secrets: {named}. To include one anyway, stage it with !git add."
        found = replace(found, remarks=(*found.remarks, words))
    if not found.files:
        raise NoGitChanges(" ".join(("There is nothing to commit.", *found.remarks)))
    return asked.named(found, base)


def changes_against(work_dir: Path, environ: Mapping[str, str], base: str) -> GitChanges:
    """Return the changes of the working files since they left a branch or a commit. It runs git, so call it in a thread.

    Raises:
        NoGitChanges: they cannot be shown.
    """
    asked = _Asked(_git(work_dir, environ), work_dir)
    if not _REVISION.fullmatch(base) or not asked.is_commit(base):
        raise NoGitChanges(
            f'"{one_line(base)[:60]}" is not a branch or a commit of this repository.'
        )
    left = asked.lines("merge-base", base, "HEAD")
    start = left[0] if left else base
    names = asked.names("diff", *_NAMES, start)
    names += asked.names("ls-files", "--others", "--exclude-standard", "-z")
    return asked.named(asked.compared(names, start), base)


def _git(work_dir: Path, environ: Mapping[str, str]) -> SafeGit:
    git = safe_git(work_dir, environ)
    if git is None:
        raise NoGitChanges("This folder is not in a git repository, or git is not installed.")
    if has_own_filters(git, time.monotonic() + _LIMIT_S):
        raise NoGitChanges(
            "kimi-tui does not show the changes, because git would run filters that this repository configures. To run them anyway, type !git diff."
        )
    return git


class _Asked:
    """Asks git, within one time limit for all."""

    def __init__(self, git: SafeGit, work_dir: Path) -> None:
        self.git = git
        self._work_dir = work_dir
        self._deadline = time.monotonic() + _LIMIT_S

    def _answer(self, arguments: Sequence[str], most: int = _MOST_NAMES_BYTES) -> bytes | None:
        left = self._deadline - time.monotonic()
        try:
            data, code = run_helper(
                (*self.git.argv, *arguments),
                folder=self.git.root,
                env=self.git.env,
                timeout_s=max(0.0, left),
                most=most,
            )
        except subprocess.TimeoutExpired as error:
            raise NoGitChanges("git took too long to list the changes.") from error
        except OSError as error:
            raise NoGitChanges(f"git could not be run: {reason_of(error)}.") from error
        if code is None:
            raise NoGitChanges("There are too many changes to show.")
        return data if code == 0 else None

    def named(self, changes: Changes, base: str) -> GitChanges:
        """Return changes with the facts about the repository."""
        root = self.git.root
        is_here = os.path.realpath(root) == os.path.realpath(self._work_dir)
        return GitChanges(changes, root, base, self._subjects(), is_here=is_here)

    def is_commit(self, revision: str) -> bool:
        return (
            self._answer(("rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}")) is not None
        )

    def lines(self, *arguments: str) -> list[str]:
        return (self._answer(arguments) or b"").decode("utf-8", "replace").splitlines()

    def _subjects(self) -> tuple[str, ...]:
        """Return the subjects of the last commits."""
        return tuple(
            one_line(line)[:120]
            for line in self.lines("log", f"-{_N_SUBJECTS}", "--no-show-signature", "--format=%s")
        )

    def names(self, *arguments: str) -> list[str]:
        """Return the paths that git lists, in order and each once."""
        data = self._answer(arguments) or b""
        return list(dict.fromkeys(map(os.fsdecode, filter(None, data.split(b"\0")))))

    def compared(self, names: Sequence[str], before: str, *, index: bool = False) -> Changes:
        """Compare files with a commit.

        Args:
            names: their paths from the top of the repository.
            before: the commit; empty for none.
            index: whether the later side is the index, and not the files.
        """
        files: list[FileDifference] = []
        room = _MOST_ROWS
        for path in sorted(set(names))[:_MOST_FILES]:
            if secrets().rule_in(path.split("/")):
                files.append(FileDifference(path, SideChange("changed"), is_secret=True))
                continue
            old = self._object(f"{before}:{path}") if before else None
            new = self._object(f":{path}") if index else self._file(path)
            if old == new:
                continue
            diff = _compared(old, new, room)
            room -= 0 if diff is None else len(diff.rows)
            outcome = "new" if old is None else "gone" if new is None else "changed"
            files.append(FileDifference(path, SideChange(outcome, diff=diff)))
        left = len(set(names)) - _MOST_FILES
        remarks = (f"{left:,} more files changed, which are not shown.",) if left > 0 else ()
        return Changes(tuple(files), remarks)

    def _object(self, name: str) -> bytes | None:
        """Return the contents of an object; None if there is none, empty if it is too large."""
        try:
            return self._answer(("cat-file", "blob", name), _MOST_BYTES)
        except NoGitChanges:
            if time.monotonic() >= self._deadline:
                raise
            return _TOO_LARGE

    def _file(self, path: str) -> bytes | None:
        """Return a working file, opened folder by folder, so that no link leads elsewhere; a link is its target."""
        *folders, name = path.split("/")
        try:
            folder = open_folder(self.git.root, folders)
        except OSError:
            return None
        try:
            try:
                with open(open_regular(Path(name), dir_fd=folder), "rb", buffering=0) as file:
                    data = file.read(_MOST_BYTES + 1)
                    return data if len(data) <= _MOST_BYTES else _TOO_LARGE
            except OSError:
                return os.fsencode(os.readlink(name, dir_fd=folder))
        except OSError:
            return None
        finally:
            os.close(folder)


_TOO_LARGE = b"\0"


def _compared(old: bytes | None, new: bytes | None, room: int) -> LineDiff | None:
    texts = [text_of(one) if one is not None else "" for one in (old, new)]
    if texts[0] is None or texts[1] is None or _TOO_LARGE in (old, new):
        return None
    return diff_lines(texts[0], texts[1], max(0, room))

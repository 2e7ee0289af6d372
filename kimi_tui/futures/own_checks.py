"""Which changed files the outcome of a check may depend on: tests, their settings, and what a CI service runs.

A future could pass by changing these instead of the code, so they are named beside the result. The rule is by names alone: a list of
what to look at, not a verdict.

A file in a cache is no source, so nobody would look at it, and it may still stand in for one: Python runs a compiled file that only
claims to be of the source beside it. So a check begins without the cached files that its future wrote (`remove_new_caches`).
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterable
from pathlib import Path

_FOLDERS = frozenset(
    {
        "test",
        "tests",
        "testing",
        "__tests__",
        "__mocks__",
        "__snapshots__",
        "spec",
        "specs",
        "e2e",
        "testdata",
        "fixtures",
        ".github",
        ".gitlab",
        ".circleci",
        ".buildkite",
        ".woodpecker",
        ".husky",
    }
)
_CACHES = frozenset({"__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache"})
"""Folders that a run of the tests writes, each file of which can be made again; a future that only ran its tests has not changed them."""
_NAMES = frozenset(
    {
        "conftest.py",
        "pytest.ini",
        "tox.ini",
        "noxfile.py",
        "setup.cfg",
        "pyproject.toml",
        "package.json",
        "makefile",
        "gnumakefile",
        "justfile",
        "rakefile",
        "taskfile.yml",
        "jenkinsfile",
        "azure-pipelines.yml",
        ".travis.yml",
        ".gitlab-ci.yml",
        ".pre-commit-config.yaml",
        "phpunit.xml",
        "cmakelists.txt",
    }
)
_TEST = re.compile(
    r"(?:test_[^/]*|[^/]*[_.-]tests?|[^/]*[_.-]spec|[^/]{1,80}Tests?)\.[A-Za-z0-9]{1,8}"
)
_CONFIG = re.compile(r"(?:jest|vitest|karma|mocha|playwright|cypress|ava)\.[^/]{1,40}")
_OPERATORS = re.compile(r"[;&|()\n]+")
_LONGEST_CHECK = 10_000
_INTERPRETERS = frozenset(
    {
        "sh",
        "bash",
        "dash",
        "zsh",
        "python",
        "python3",
        "node",
        "ruby",
        "perl",
        "env",
        "exec",
        "time",
    }
)


def may_judge(path: str) -> bool:
    """Return whether the outcome of a check may depend on a file, by its path relative to the work folder."""
    *folders, name = path.split("/")
    if not _CACHES.isdisjoint(folders):
        return False
    if any(folder.lower() in _FOLDERS for folder in folders) or name.lower() in _NAMES:
        return True
    return bool(_TEST.fullmatch(name[:200]) or _CONFIG.fullmatch(name[:200]))


def judging(paths: Iterable[str], check: str = "") -> tuple[str, ...]:
    """Return those of some changed files that the outcome of a check may depend on, sorted; also the scripts that its command runs."""
    scripts = _scripts(check)
    return tuple(sorted(path for path in paths if may_judge(path) or path in scripts))


def remove_new_caches(work_dir: Path, since: float) -> None:
    """Remove the files in caches that were written or moved there since a time, so that a check makes them again.

    What was there before stays, as a run without any cache would take long. Links are removed and not followed. It reads the whole
    folder: call it in a thread.

    Args:
        work_dir: the work folder, which no other program may need as it is.
        since: the time in seconds since 1970. The system notes the time of a change itself, so a command cannot make it earlier.

    Raises:
        OSError: a file cannot be removed, or a folder that was changed since then cannot be listed.
    """
    root = os.fspath(work_dir)
    for path, folders, files, fd in os.fwalk(root):
        # In place of a folder there may be a link to files that were written elsewhere.
        is_cache = not _CACHES.isdisjoint(path[len(root) :].split(os.sep))
        for name in [*files, *folders] if is_cache else folders:
            found = os.lstat(name, dir_fd=fd)
            if found.st_ctime < since:
                continue
            if not stat.S_ISDIR(found.st_mode):
                if is_cache or name in _CACHES:
                    _remove(name, fd)
            elif not found.st_mode & stat.S_IRUSR:
                # The files in it can still be opened by their names.
                raise PermissionError(errno.EACCES, "cannot be listed", os.path.join(path, name))


def _remove(name: str, fd: int) -> None:
    """Remove a file or a link from an open folder, also if it is read-only."""
    try:
        os.unlink(name, dir_fd=fd)
    except PermissionError:
        os.fchmod(fd, stat.S_IRWXU)
        os.unlink(name, dir_fd=fd)


def _scripts(check: str) -> frozenset[str]:
    """Return the words of a command that may be scripts: those that begin a simple command, also behind an interpreter."""
    found: set[str] = set()
    begins = True
    for word in _OPERATORS.sub(" ; ", check[:_LONGEST_CHECK]).split():
        if word == ";":
            begins = True
        elif begins and not word.startswith("-") and "=" not in word:
            found.add(word.removeprefix("./"))
            begins = word.rpartition("/")[2] in _INTERPRETERS
    return frozenset(found)

"""Which changed files the outcome of a check may depend on: tests, their settings, and what a CI service runs.

A future could pass by changing these instead of the code, so they are named beside the result. The rule is by names alone: a list of
what to look at, not a verdict.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

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
"""Folders that a run of the tests writes; a future that only ran its tests has not changed them."""
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

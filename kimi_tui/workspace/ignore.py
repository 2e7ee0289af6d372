"""Which paths git would leave alone, from `.gitignore` files, without asking git.

pathspec compiles the patterns; which of them wins is decided here as git does it, because its own resolver loses files for the
usual white-list idioms (`*` with `!*/` and `!*.txt`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import cast

ALWAYS = frozenset({".git", ".hg", ".svn", ".jj"})
"""Folders that belong to a version control system: never scanned, never restored."""

_GROUP = re.compile(r"\(\?P<[a-z_]+>")


@dataclass(frozen=True, slots=True)
class _Rule:
    regex: re.Pattern[str]
    ignores: bool
    folders_only: bool


class IgnoreFile:
    """The rules of one `.gitignore`; paths are relative to the folder it stands in. Equal where the texts are."""

    __slots__ = ("_any", "_rules", "_text")

    def __init__(self, text: str) -> None:
        self._text = text
        rules: list[_Rule] = []
        for line in text.split("\n"):
            rule = _compiled(line.removesuffix("\r"))
            if rule is not None:
                rules.append(rule)
        self._rules = tuple(reversed(rules))
        # One search over all patterns settles most paths: they match none.
        joined = "|".join(f"(?:{_GROUP.sub('(?:', rule.regex.pattern)})" for rule in rules)
        self._any = re.compile(joined) if rules else None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IgnoreFile) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)

    def verdict(self, path: str, *, is_folder: bool) -> bool | None:
        """True: ignored; False: expressly not; None: no rule here says anything."""
        if self._any is None or self._any.search(path) is None:
            return None
        for rule in self._rules:
            if rule.folders_only and not is_folder:
                continue
            found = rule.regex.search(path)
            if found is not None and found.groupdict().get("ps_d") is None:
                return rule.ignores
        return None


def _compiled(line: str) -> _Rule | None:
    # Not at the top of the module: folders without such a file need none of it.
    from pathspec.patterns.gitignore.base import GitIgnorePatternError
    from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern

    # A pattern that git could not read is skipped, as git does.
    text = line.rstrip(" ") if not line.endswith("\\ ") else line
    folders_only = text.endswith("/") and not text.endswith("\\/")
    if folders_only:
        text = text[:-1]
    try:
        pattern = GitIgnoreSpecPattern(text)
    except (GitIgnorePatternError, re.error):
        return None
    # The pattern's own type leaves open whether it matches text or bytes; from text it is text.
    regex = cast("re.Pattern[str] | None", getattr(pattern, "regex", None))
    if regex is None or pattern.include is None:
        return None
    return _Rule(regex, pattern.include, folders_only)


@dataclass(frozen=True, slots=True)
class IgnoreStack:
    """The rule files from the outermost down to one folder; the deepest that says something wins.

    Each stands with how much of a path (relative to the work folder) its rules do not see, and what they see before it.
    """

    files: tuple[tuple[int, str, IgnoreFile], ...] = ()

    def entered(self, folder: str, rules: IgnoreFile | None) -> IgnoreStack:
        """The stack inside `folder` (relative, empty for the top), where `rules` stand in its own `.gitignore`."""
        if rules is None:
            return self
        return IgnoreStack(((len(folder) + 1 if folder else 0, "", rules), *self.files))

    def around(self, below: str, rules: IgnoreFile | None) -> IgnoreStack:
        """The stack with rules of a folder above the work folder, which from there is called `below` (with its slash)."""
        if rules is None:
            return self
        return IgnoreStack(((0, below, rules), *self.files))

    def ignores(self, path: str, *, is_folder: bool) -> bool:
        """Whether this path (relative to the work folder) is left out; its folders are known not to be."""
        if path.rpartition("/")[2] in ALWAYS:
            return True
        for skipped, before, rules in self.files:
            verdict = rules.verdict(before + path[skipped:], is_folder=is_folder)
            if verdict is not None:
                return verdict
        return False

    def ignores_above(self, levels: int) -> bool:
        """Whether the work folder itself (0 levels) or the folder so many levels above it is left out."""
        for _, below, rules in self.files:
            parts = below.rstrip("/").split("/")
            path = "/".join(parts[: len(parts) - levels])
            verdict = rules.verdict(path, is_folder=True) if path else None
            if verdict is not None:
                return verdict
        return False

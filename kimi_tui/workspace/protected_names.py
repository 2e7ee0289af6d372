"""Which files hold secrets, and which run later or steer what runs, by their names; the lists are `protected_names.toml`.

Names are compared as file systems may: without case, composed, without characters that nobody sees and without blanks and
dots at their end. `NameList` judges a path; `run_values` finds in a file what a package manager would run.
"""

from __future__ import annotations

import fnmatch
import json
import re
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, cast
from unicodedata import normalize

from kimi_tui.foreign_text import INVISIBLE

_UNSEEN = re.compile(f"[{INVISIBLE}]")


def folded(name: str) -> str:
    """A name in the form in which it is compared."""
    if not name.isascii():
        name = normalize("NFC", _UNSEEN.sub("", name).casefold())
    name = name.lower()
    return name.rstrip(" .") or name


@dataclass(frozen=True, slots=True)
class NameList:
    """Rules as `protected_names.toml` writes them.

    Attributes:
        folders: names that cover what is below them too.
        names: names of files.
        patterns: of names of files.
        tails: by its last name, each rule of several names, and whether it covers what is below.
    """

    folders: frozenset[str]
    names: frozenset[str]
    patterns: re.Pattern[str]
    tails: dict[str, tuple[tuple[tuple[str, ...], bool], ...]]

    def rule_in(self, path: Sequence[str], *, is_folder: bool = False) -> str:
        """The name on the way that a rule is about; empty where none is.

        Args:
            path: its names, from the top of what is judged.
            is_folder: the last of them is a folder.
        """
        seen = [folded(name) for name in path]
        last = len(seen) - 1
        for at, name in enumerate(seen):
            if self._covers(seen[: at + 1], is_folder=is_folder or at < last):
                return name
        return ""

    def ends_in(self, path: str, *, is_folder: bool) -> bool:
        """Whether a rule is about the last name of a path, whose folders are known to be in no rule."""
        return self._covers([folded(name) for name in path.split("/")], is_folder=is_folder)

    def _covers(self, seen: Sequence[str], *, is_folder: bool) -> bool:
        name = seen[-1]
        if name in self.folders:
            return True
        for rule, is_below_too in self.tails.get(name, ()):
            if (is_below_too or not is_folder) and tuple(seen[-len(rule) :]) == rule:
                return True
        return not is_folder and (name in self.names or self.patterns.fullmatch(name) is not None)


@cache
def secrets() -> NameList:
    """Files that hold secrets."""
    return _list("secrets")


@cache
def runs_later() -> NameList:
    """Files that run later, or steer what runs."""
    return _list("runs_later")


def run_values(name: str, text: str) -> Sequence[object] | None:
    """What in this file a tool would run; None where it cannot be told.

    Args:
        name: of the file.
        text: of the file; empty where there is none.
    """
    keys = cast("dict[str, list[str]]", _data()["run_keys"]).get(folded(name), [])
    if not keys or not text:
        return [None] * len(keys)
    try:
        parsed: object = tomllib.loads(text) if name.lower().endswith(".toml") else json.loads(text)
    except (ValueError, RecursionError):
        return None
    return [_at(parsed, key) for key in keys]


def _at(value: object, dotted: str) -> object:
    for part in dotted.split("."):
        value = cast("dict[str, object]", value).get(part) if isinstance(value, dict) else None
    return value


@cache
def _data() -> dict[str, Any]:
    return tomllib.loads(
        files("kimi_tui.workspace").joinpath("protected_names.toml").read_text(encoding="utf-8")
    )


def _list(kind: str) -> NameList:
    folders: set[str] = set()
    names: set[str] = set()
    patterns: list[str] = []
    tails: dict[str, tuple[tuple[tuple[str, ...], bool], ...]] = {}
    for table in cast("list[dict[str, list[str]]]", _data()[kind]):
        globs: list[str] = []
        for rule in table["names"]:
            *above, name = parts = tuple(rule.removesuffix("/").split("/"))
            if above:
                tails[name] = (*tails.get(name, ()), (parts, rule.endswith("/")))
            elif "*" in name:
                globs.append(name)
            else:
                (folders if rule.endswith("/") else names).add(name)
        if globs:
            patterns.append(f"(?!{_any(table.get('unless', []))})(?:{_any(globs)})")
    return NameList(frozenset(folders), frozenset(names), re.compile("|".join(patterns)), tails)


def _any(globs: Iterable[str]) -> str:
    return "|".join(fnmatch.translate(glob) for glob in globs) or "(?!)"

"""Decides by name which files hold secrets, and which are executed later or configure what is executed.

The lists are in `protected_names.toml`.

Names are compared as file systems may compare them: ignoring case, Unicode composition, invisible characters, and blanks and
dots at their end; a backup or copy of a file with a secret counts as secret too. `NameList` judges a path; `secret_places`
are the places that count only below the home folder or in the system; `run_values` finds the commands in a file that a
package manager would run.

The target of a link with such a name is guarded as the link is, whatever the target's name: if `.env` is a link to
`conf/real.txt`, a tool that gets `conf/real.txt` would find no guarded name in its path. So `links_in` searches for such
links: at the top of the work folder, in guarded folders (hooks of git and its submodules, settings of editors) and, for up to
`_MOST_LOOKED_AT` names, in the upper folders; in the home folder at its top and in guarded folders. A link that was found
once (also by the sandbox, which searches further) counts as long as the program runs, because a command could remove it.
"""

from __future__ import annotations

import fnmatch
import json
import os
import re
import time
import tomllib
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.resources import files
from itertools import islice
from typing import Any, NamedTuple, cast
from unicodedata import normalize

from kimi_tui.app_paths import home_places
from kimi_tui.filesystem import SETTLED_NS, links_to, note_path, unread_is_empty
from kimi_tui.foreign_text import INVISIBLE

_UNSEEN = re.compile(f"[{INVISIBLE}]")
_ANCHORS = ("~/", "/")
_MOST_ENDINGS = 16
_SWAPS = (".swp", ".swo", ".swn")


def folded(name: str) -> str:
    """Return a name in the form in which it is compared."""
    if not name.isascii():
        name = normalize("NFC", _UNSEEN.sub("", name).casefold())
    name = name.lower()
    return name.rstrip(" .") or name


@dataclass(frozen=True, slots=True)
class NameList:
    """Rules of `protected_names.toml`.

    Attributes:
        folders: names of folders that cover everything below them.
        names: names of files.
        beginnings, ends: beginnings and ends of file names; a name with none of them matches no pattern.
        patterns: patterns of file names.
        tails: each rule of several names by its last name, and whether it covers everything below.
        ways: the names of such a rule without its last one, by the last of them.
        copies: whether the rules also cover backups and copies.
    """

    folders: frozenset[str]
    names: frozenset[str]
    beginnings: tuple[str, ...]
    ends: tuple[str, ...]
    patterns: re.Pattern[str]
    tails: dict[str, tuple[tuple[tuple[str, ...], bool], ...]]
    ways: dict[str, tuple[tuple[str, ...], ...]]
    copies: bool

    def rule_in(self, path: Sequence[str], *, is_folder: bool = False) -> str:
        """Return the first name in the path that a rule covers; empty if there is none.

        Args:
            path: the names of the path, from the top.
            is_folder: whether the last of them is a folder.
        """
        seen = [folded(name) for name in path]
        last = len(seen) - 1
        for at, name in enumerate(seen):
            if self.covers(seen[: at + 1], is_folder=is_folder or at < last):
                return name
        return ""

    def ends_in(self, path: str, *, is_folder: bool) -> bool:
        """Return whether a rule covers the last name of a path whose folders are known to be covered by none."""
        return self.covers([folded(name) for name in path.split("/")], is_folder=is_folder)

    def covers(self, seen: Sequence[str], *, is_folder: bool) -> bool:
        """Return whether the list covers the last of these folded names."""
        if self._is_named(seen, is_folder=is_folder):
            return True
        name = seen[-1]
        if not self.copies or (original := original_of(name)) == name:
            return False
        originals = [original]
        if name.endswith(_SWAPS):
            # An editor hides its copy with a leading dot.
            originals.append(original.removeprefix("."))
        return any(self._is_named([*seen[:-1], one], is_folder=is_folder) for one in originals)

    def leads_on(self, seen: Sequence[str]) -> bool:
        """Return whether a rule of several names may cover a file in the folder with these folded names."""
        return any(self._matches(seen, way) for way in self.ways.get(original_of(seen[-1]), ()))

    def _is_named(self, seen: Sequence[str], *, is_folder: bool) -> bool:
        name = seen[-1]
        if name in self.folders:
            return True
        for rule, is_below_too in self.tails.get(name, ()):
            if (is_below_too or not is_folder) and self._matches(seen, rule):
                return True
        if is_folder:
            return False
        if name in self.names:
            return True
        may_be = name.startswith(self.beginnings) or name.endswith(self.ends)
        return may_be and self.patterns.fullmatch(name) is not None

    def _matches(self, seen: Sequence[str], rule: tuple[str, ...]) -> bool:
        end = tuple(seen[-len(rule) :])
        return end == rule or (self.copies and tuple(map(original_of, end)) == rule)


# The names of a large folder would only push each other out of a cache, of any size.
@lru_cache(maxsize=512)
def original_of(name: str) -> str:
    """Return the folded name of the original if this name looks like a backup or copy; else the folded name itself."""
    for _ in range(_MOST_ENDINGS):
        stem, dot, ending = name.rpartition(".")
        if start := _start_of_copy(name):
            name = name[:start]
        elif dot and ending in _endings() and (start := _start_of_copy(stem)):
            # File managers put the mark of a copy before the ending.
            name = f"{stem[:start]}.{ending}"
        elif name.startswith("#") and name.endswith("#") and len(name) > 2:
            name = name[1:-1]
        elif name.startswith("copy of "):
            name = name.removeprefix("copy of ")
        else:
            break
    return name


@cache
def secrets() -> NameList:
    """Return the list of files that hold secrets."""
    return _list("secrets", copies=True)


@cache
def runs_later() -> NameList:
    """Return the list of files that are executed later, or configure programs that are."""
    return _list("runs_later", copies=False)


@cache
def runs_when_started() -> NameList:
    """Return the list of files that run when the user starts the build, test or tool that reads them. They are edited every day, so
    writing them needs no approval.
    """
    return _list("runs_when_started", copies=False)


def secret_places(environ: Mapping[str, str]) -> list[str]:
    """Return the absolute paths of secrets in the home folder and in the system that names alone do not show.

    Args:
        environ: the environment, for the home folder and its parts that are elsewhere.
    """
    in_home, in_system = _secret_places()
    return [*home_places(environ, *in_home), *in_system]


@cache
def _secret_places() -> tuple[list[str], list[str]]:
    """Read the paths relative to the home folder, and the absolute ones."""
    tables = cast("list[dict[str, list[str]]]", _data()["secrets"])
    rules = [rule.removesuffix("/") for table in tables for rule in table["names"]]
    in_home = [rule[2:] for rule in rules if rule.startswith("~/")]
    return in_home, [rule for rule in rules if rule.startswith("/")]


def partly_run_files() -> list[str]:
    """Return the usual names of files in which only some keys are run."""
    return [
        written
        for name in cast("dict[str, list[str]]", _data()["run_keys"])
        for written in (name, name.capitalize())
    ]


def run_values(name: str, text: str) -> Sequence[object] | None:
    """Return the values in a file that a tool would run; None if they are unknown.

    Args:
        name: the name of the file.
        text: the text of the file; empty if there is no file.
    """
    keys = cast("dict[str, list[str]]", _data()["run_keys"]).get(folded(name), [])
    if not keys or not text:
        return [None] * len(keys)
    try:
        match name.lower().rpartition(".")[2]:
            case "toml":
                parsed: object = tomllib.loads(text)
            case "cfg":
                parsed = _sections(text)
            case _:
                parsed = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return [_at(parsed, key.split(".")) for key in keys]


def _at(value: object, parts: Sequence[str]) -> object:
    if not parts:
        return value
    if not isinstance(value, dict):
        return None
    table = cast("dict[str, object]", value)
    if parts[0] != "*":
        return _at(table.get(parts[0]), parts[1:])
    found = {key: _at(one, parts[1:]) for key, one in table.items()}
    return {key: one for key, one in found.items() if one is not None} or None


def _sections(text: str) -> dict[str, object]:
    """Parse a file in the form of `setup.cfg`: its values by section and key; indented lines belong to the value above."""
    sections: dict[str, dict[str, str]] = {}
    section: dict[str, str] = {}
    key = ""
    for line in text.splitlines():
        if not line.strip() or line.lstrip()[0] in "#;":
            continue
        if line[0] == "[":
            section = sections.setdefault(line[1:].partition("]")[0].strip().lower(), {})
            key = ""
        elif line[0].isspace() and key:
            section[key] += f"\n{line.strip()}"
        else:
            # The sign that comes first ends the key.
            end = min((at for at in (line.find("="), line.find(":")) if at >= 0), default=len(line))
            key = line[:end].strip().lower().replace("_", "-")
            section[key] = line[end + 1 :].strip()
    return dict(sections)


@cache
def _data() -> dict[str, Any]:
    return tomllib.loads(
        files("kimi_tui.workspace").joinpath("protected_names.toml").read_text(encoding="utf-8")
    )


def _start_of_copy(name: str) -> int:
    """Return the place in a name where the mark of a backup or copy begins; 0 if it has none."""
    # The pattern alone would take most of the time of a scan, so endings are compared first.
    found = _copy().search(name) if name.endswith(_ends_of_copies()) else None
    return found.start() if found else 0


@cache
def _ends_of_copies() -> tuple[str, ...]:
    return (*cast("list[str]", _data()["copies"]["words"]), *"~)0123456789tz:._-")


@cache
def _copy() -> re.Pattern[str]:
    words = "|".join(map(re.escape, cast("list[str]", _data()["copies"]["words"])))
    number = r"\d[\dtz:._-]{0,24}"
    # GNOME Files: (copy), (another copy), (3rd copy).
    counted = rf" ?\((?:another |\d{{1,4}}[a-z]{{2}} )?(?:{words})(?: \d{{1,4}})?\)"
    return re.compile(
        rf"(?:\.?~\d{{0,9}}~?|[ ._-]{{1,3}}(?:{words})(?:[ ._-]?(?:\({number}\)|{number}))?|[ ._-]{number}| ?\({number}\)|{counted})\Z"
    )


@cache
def _endings() -> frozenset[str]:
    """Return the endings of the names in the lists."""
    tables = cast("list[dict[str, list[str]]]", _data()["secrets"])
    return frozenset(
        rule.rpartition(".")[2] for table in tables for rule in table["names"] if "." in rule[1:]
    )


def _list(kind: str, *, copies: bool) -> NameList:
    folders: set[str] = set()
    names: set[str] = set()
    beginnings: set[str] = set()
    ends: set[str] = set()
    patterns: list[str] = []
    tails: dict[str, tuple[tuple[tuple[str, ...], bool], ...]] = {}
    for table in cast("list[dict[str, list[str]]]", _data()[kind]):
        globs: list[str] = []
        for rule in table["names"]:
            if rule.startswith(_ANCHORS):
                continue
            *above, name = parts = tuple(rule.removesuffix("/").split("/"))
            if above:
                tails[name] = (*tails.get(name, ()), (parts, rule.endswith("/")))
            elif "*" in name:
                globs.append(name)
                beginning, *_, end = name.split("*")
                (beginnings if beginning else ends).add(beginning or end)
            else:
                (folders if rule.endswith("/") else names).add(name)
        if globs:
            patterns.append(f"(?!{_any(table.get('unless', []))})(?:{_any(globs)})")
    ways: dict[str, tuple[tuple[str, ...], ...]] = {}
    for way in {rule[:-1] for found in tails.values() for rule, _ in found}:
        ways[way[-1]] = (*ways.get(way[-1], ()), way)
    return NameList(
        frozenset(folders),
        frozenset(names),
        tuple(beginnings),
        tuple(ends),
        re.compile("|".join(patterns)),
        tails,
        ways,
        copies,
    )


def _any(globs: Iterable[str]) -> str:
    return "|".join(fnmatch.translate(glob) for glob in globs) or "(?!)"


PASSED_OVER = frozenset({"node_modules", ".venv", "venv", "__pycache__", "target", ".tox", ".nox"})
"""Folders of packages and of build results, which are not searched."""
_STORES = frozenset({"objects", "refs", "logs", "lfs", "annex"})
_DEEPEST = 4
_MOST_LOOKED_AT = 2000
_MOST_AT_THE_TOP = 40_000
_MOST_KNOWN = 5000


class GuardedLink(NamedTuple):
    """A link: the names on the path to it from the searched folder, and the real path of its target."""

    names: tuple[str, ...]
    real: str


_known: dict[str, dict[GuardedLink, None]] = {}


class _LinkListing(NamedTuple):
    """The links that `links_in` found in one folder.

    Attributes:
        stamp: the stamp of the folder (`_stamp_of`); empty if it could not be read, or has changed only just now.
        most: the largest number of names that would have been read.
        n_names: the number of names that were read.
        links: the names of the links that are, or may be, guarded.
        folders: the folders to enter, and whether each is guarded.
    """

    stamp: tuple[int, ...]
    most: int
    n_names: int
    links: Sequence[str]
    folders: Mapping[str, bool]

    def holds(self, stamp: tuple[int, ...], most: int) -> bool:
        """Return whether listing the folder with this stamp up to so many names would find the same."""
        # A folder that stays the same has its names in the same order.
        is_as_much = self.most == most or self.n_names < min(self.most, most)
        return self.stamp == stamp and is_as_much


_listings: dict[tuple[str, int], dict[tuple[str, ...], _LinkListing]] = {}
"""The listings of each searched folder and depth, by the names on the path to the listed one."""


def links_in(folder: str, *, deepest: int = _DEEPEST) -> list[GuardedLink]:
    """Find the guarded links of a folder, and return them with those found before. It lists folders, so call it in a thread.

    A folder is not listed again while its times are the same, because no name appears in it or becomes something else without a
    new time of change. The search of a large folder takes the time of a few hundred calls of `stat` then.

    Args:
        folder: the real path of the folder.
        deepest: the number of levels to descend; with 0 only guarded folders at the top are entered.
    """
    before = _listings.get((folder, deepest), {})
    used: dict[tuple[str, ...], _LinkListing] = {}
    waiting = deque[Iterator[tuple[tuple[str, ...], str, bool]]]([iter([((), folder, False)])])
    n_looked_at = 0
    settled = time.time_ns() - SETTLED_NS
    while waiting and n_looked_at < _MOST_LOOKED_AT:
        found = next(waiting[0], None)
        if found is None:
            waiting.popleft()
            continue
        above, place, is_guarded = found
        most = _MOST_LOOKED_AT - n_looked_at if above else _MOST_AT_THE_TOP
        note_path(f"{place}/")
        known = before.get(above)
        try:
            stamp = _stamp_of(place)
        except OSError:
            continue
        if known is None or not known.holds(stamp, most):
            known = _listed(place, above, stamp, most, known, is_guarded=is_guarded)
            if max(stamp[:2]) >= settled:
                # The folder is listed again the next time; its known folders stay known.
                known = known._replace(stamp=())
        used[above] = known
        n_looked_at += known.n_names if above else 0
        if not known.links and not known.folders:
            continue
        start = place if place.endswith("/") else f"{place}/"
        for name in known.links:
            remember_link(folder, start + name)
        in_git = any(folded(name) == ".git" for name in above)
        enters, enters_guarded = len(above) < deepest, len(above) < max(deepest, 1) + 2 * in_git
        if enters_guarded:
            for name in [name for name, is_one in known.folders.items() if is_one]:
                waiting.appendleft(iter([((*above, name), start + name, True)]))
        if enters:
            waiting.append(_not_guarded(above, start, known.folders))
    _listings[folder, deepest] = used
    return known_links(folder)


def _not_guarded(
    above: tuple[str, ...], start: str, folders: Mapping[str, bool]
) -> Iterator[tuple[tuple[str, ...], str, bool]]:
    """Yield the folders to enter that are not guarded. Of a large folder's not all are reached."""
    for name, is_guarded in folders.items():
        if not is_guarded:
            yield (*above, name), start + name, False


def _stamp_of(folder: str) -> tuple[int, ...]:
    """Return what tells that the names in a folder are the same: its times of change first."""
    found = os.stat(folder)
    return found.st_mtime_ns, found.st_ctime_ns, found.st_dev, found.st_ino


def _listed(
    place: str,
    above: tuple[str, ...],
    stamp: tuple[int, ...],
    most: int,
    before: _LinkListing | None,
    *,
    is_guarded: bool,
) -> _LinkListing:
    """List a folder, whose folders were judged before where an earlier listing has them."""
    passed_over = _STORES if any(folded(name) == ".git" for name in above) else PASSED_OVER
    judged: Mapping[str, bool] = {} if before is None else before.folders
    links: list[str] = []
    folders: dict[str, bool] = {}
    n_names = 0
    is_whole = False
    with unread_is_empty(), os.scandir(place) as listing:
        for item in islice(listing, most):
            n_names += 1
            # Most names are files, and neither question about them goes to the disk.
            if item.is_dir(follow_symlinks=False):
                name = item.name
                if name in passed_over:
                    continue
                is_one = judged.get(name)
                if is_one is None:
                    is_one = is_guarded or _is_guarded((*above, name), is_folder=True)
                folders[name] = is_one
            elif item.is_symlink():
                name = item.name
                if is_guarded or _may_guard((*above, name)):
                    links.append(name)
        is_whole = True
    return _LinkListing(stamp if is_whole else (), most, n_names, links, folders)


def known_links(folder: str) -> list[GuardedLink]:
    """Return the guarded links that were found in a folder, given by its real path."""
    return list(_known.get(folder, ()))


def remember_link(folder: str, link: str) -> str:
    """Note a guarded link below a folder; return the real path of its target."""
    # The way to the target is noted, too: a link in it may lead elsewhere later.
    real = links_to(link)[1]
    known = _known.setdefault(folder, {})
    if len(known) < _MOST_KNOWN:
        known[GuardedLink(tuple(os.path.relpath(link, folder).split("/")), real)] = None
    return real


def _is_guarded(names: tuple[str, ...], *, is_folder: bool = False) -> bool:
    """Return whether one of the lists covers a path whose folders are not guarded."""
    path = "/".join(names)
    return any(rules.ends_in(path, is_folder=is_folder) for rules in (secrets(), runs_later()))


def _may_guard(names: tuple[str, ...]) -> bool:
    """Return whether a link is guarded, or a path through it may be."""
    return _is_guarded(names) or folded(names[-1]) in _ways()


@cache
def _ways() -> frozenset[str]:
    """Return the names of folders in rules of several names."""
    return frozenset(
        name
        for rules in (secrets(), runs_later())
        for same_end in rules.tails.values()
        for rule, _ in same_end
        for name in rule[:-1]
    )

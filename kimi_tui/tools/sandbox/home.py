"""The part of the home folder that sandboxed commands see: only allowed paths, everything else is missing for them.

A list of secret places is never complete: each new program adds one. So the home folder is empty in the sandbox, except for
the places in `home_places.toml` (toolchains, caches, settings of compilers, linters and editors), the folders of the search
path, the files that the user's own settings of git and variables name, the repository around the work folder, and the paths
in `[sandbox] readable`. Settings that may hold credentials are shown without the lines that do (`redacted.py`).

Nothing that a command can write extends this view: no link in the work folder, no path in a file there. `home_view` makes the
view, the backends enforce it (`confine.py`, `sandbox.py`), and `setting_for` returns the line of the configuration that would
allow a read.
"""

from __future__ import annotations

import contextlib
import fnmatch
import glob
import os
import stat
import time
import tomllib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple, cast

from kimi_tui import app_paths
from kimi_tui.filesystem import (
    SETTLED_NS,
    is_under,
    links_to,
    note_path,
    read_regular,
    unread_is_empty,
)
from kimi_tui.tools.sandbox.redacted import MOST_BYTES, without_credentials
from kimi_tui.workspace import protected_names
from kimi_tui.workspace.protected_names import PASSED_OVER, folded

_SYSTEM = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc", "/opt", "/var", "/run", "/nix", "/gnu"),
    *("/proc", "/sys", "/dev", "/tmp", "/boot", "/System", "/Library", "/Applications", "/private"),
)
"""A folder that contains one of these is no home folder that could be emptied."""
_NO_HOMES = (
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib64",
    "/etc",
    "/run",
    "/nix",
    "/proc",
    "/sys",
    "/dev",
)
_SHARED = ("/tmp", "/var/tmp", "/dev/shm", "/private/tmp", "/private/var/tmp")
_OF_PREFIX = ("bin", "sbin", "shims")
_IN_PREFIX = ("lib", "lib64", "libexec", "share", "pyvenv.cfg")
"""If one of these is beside a folder of programs, all of them are one installation."""
_MOST_PROGRAMS = 2000
_MOST_BELOW = 20_000
_DEEPEST = 4
_SETTINGS_FILES = 20
_MOST_ALTERNATES = 20
_OF_GIT = {
    "include": ("path",),
    "includeif": ("path",),
    "core": ("excludesfile", "attributesfile", "hookspath", "fsmonitor", "pager", "editor"),
    "commit": ("template",),
    "init": ("templatedir",),
    "blame": ("ignorerevsfile",),
    "filter": ("clean", "smudge", "process"),
    "diff": ("external", "command", "textconv", "orderfile"),
    "merge": ("driver",),
    "gpg": ("program",),
    "http": ("sslcainfo", "sslcapath"),
    "interactive": ("difffilter",),
    "alias": (),
}
"""The names in git's settings whose values are files that git reads or runs, by section; no names mean all."""
_CLOSED = {
    ".gitconfig": "GIT_CONFIG_GLOBAL",
    ".npmrc": "NPM_CONFIG_USERCONFIG",
    "pip.conf": "PIP_CONFIG_FILE",
}
"""The variables with which a program reads its settings from another file, used if a file cannot be shown in part under its own name."""


@dataclass(frozen=True, slots=True)
class HomeView:
    """The part of the home folder that commands see. Paths are absolute and without links, parents before children.

    Attributes:
        home: the home folder; empty if there is none.
        emptied: the folders that are empty except for the following: the home folder, and folders of configurations elsewhere.
        shown: files and folders in them that can be read, with everything below.
        links: links in them, each with its target.
        texts: files in them, each with the text that is shown instead of its content.
        closed: secrets below `shown`, recognised by their names.
        readable: the user's setting, as it is written.
    """

    home: str = ""
    emptied: tuple[str, ...] = ()
    shown: tuple[str, ...] = ()
    links: tuple[tuple[str, str], ...] = ()
    texts: tuple[tuple[str, bytes], ...] = ()
    closed: tuple[str, ...] = ()
    readable: tuple[str, ...] = ()

    def hides(self, path: str) -> bool:
        """Return whether a real path is missing for commands, according to this view."""
        if not is_under(path, self.emptied) or is_under(path, self.shown):
            return False
        there = (*self.shown, *(one for one, _ in (*self.links, *self.texts)))
        return not any(one == path or one.startswith(f"{path}/") for one in there)

    def copies(self, folder: str) -> tuple[dict[str, bytes], dict[str, str]]:
        """Copy files that cannot be shown in part under their own names: return the copies by their paths in a folder, and
        the variables that make programs read these.
        """
        copies: dict[str, bytes] = {}
        variables: dict[str, str] = {}
        for path, text in self.texts:
            name = os.path.basename(path)
            if name in _CLOSED and _CLOSED[name] not in variables:
                variables[_CLOSED[name]] = copy = os.path.join(folder, f"shown-{name}")
                copies[copy] = text
        return copies, variables


def home_view(
    environ: Mapping[str, str],
    work: str,
    *,
    asked: Iterable[str] = (),
    readable: tuple[str, ...] = (),
    writable: Collection[str] = (),
    own: Iterable[str] = (),
    around: Iterable[str] = (),
) -> HomeView:
    """Return the view of the home folder for commands in a work folder. It lists folders, so call it in a thread.

    The paths that it looks at are noted (`filesystem.note_path`).

    Args:
        environ: the environment of the program.
        work: the real path of the work folder.
        asked: the real paths to which the user's setting leads.
        readable: the setting, as it is written.
        writable: the real paths that commands can write: links in them are ignored.
        own: the paths of this program's code.
        around: the other parts of the work folder's repository (`around_work`).
    """
    home = links_to(app_paths.home_of(environ) or "/")[1]
    asked = {*asked}
    emptied = emptied_for(environ, work, asked)
    if not emptied:
        return HomeView(home, readable=readable)
    found = _Found(tuple(emptied), {work, *writable}, _known_secrets(environ))
    for path in asked:
        found.add_asked(path)
    for path in writable:
        found.add_writable(path)
    for root in emptied:
        if root in _homes(environ):
            _add_listed(found, {**environ, "HOME": root})
    _add_variables(found, environ)
    _add_programs(found, environ)
    _add_named_by_git(found, environ)
    for path in own:
        found.add(path)
    for folder in around:
        found.add(folder, depth=_DEEPEST)
    for folder in _folders_above(work, emptied):
        for name in _data().above:
            found.add(os.path.join(folder, name))
    return found.view(home, readable)


def setting_for(paths: Iterable[str], view: HomeView) -> str:
    """Return the line of the section `[sandbox]` that would make these real paths readable; empty if there is none.

    For a file of another project the whole project is added. Paths that are known to hold credentials are never added.
    """
    added: dict[str, None] = dict.fromkeys(view.readable)
    for path in paths:
        place = next(
            (
                one
                for one in map(str, (Path(path), *Path(path).parents))
                if view.hides(one) and one not in view.emptied and os.path.exists(f"{one}/.git")
            ),
            path,
        )
        added[_tilde(place, view.home)] = None
    if len(added) == len(view.readable):
        return ""
    return f"readable = [{', '.join(map(_quoted, added))}]"


def is_secret_place(path: str, environ: Mapping[str, str]) -> bool:
    """Return whether a real path below the home folder is known to hold credentials, by its place or its names."""
    home = os.path.realpath(app_paths.home_of(environ) or "/")
    names = os.path.relpath(path, home).split("/")
    rules = protected_names.secrets()
    return is_under(path, _known_secrets(environ)) or bool(
        rules.rule_in(names, is_folder=os.path.isdir(path))
    )


def _tilde(path: str, home: str) -> str:
    return f"~/{path[len(home) + 1 :]}" if path.startswith(f"{home}/") else path


def _quoted(text: str) -> str:
    """Return a text as a string of TOML."""
    escaped = "".join(
        f"\\u{ord(char):04x}" if char in '"\\' or not char.isprintable() else char for char in text
    )
    return f'"{escaped}"'


# -- emptied folders --------------------------------------------------------------------------------------


def _homes(environ: Mapping[str, str]) -> list[str]:
    """Return the home folder of the variables, and that of the account."""
    return [
        links_to(one)[1]
        for one in dict.fromkeys((app_paths.home_of(environ), app_paths.home_of({})))
        if one
    ]


def preload(environ: Mapping[str, str]) -> None:
    """Read the lists of names and places, and look at the home folder: processes that are forked afterwards share what is kept of it.

    Args:
        environ: the environment of the program.
    """
    protected_names.secrets()
    protected_names.runs_later()
    protected_names.runs_when_started()
    with contextlib.suppress(OSError):
        home_view(environ, os.devnull)


def emptied_for(environ: Mapping[str, str], work: str, asked: Collection[str]) -> list[str]:
    """Return the real paths of the folders that are empty for commands in a work folder; `asked` are those of the user's setting."""
    return [one for one in _emptied(environ, work) if not is_under(one, asked)]


def _emptied(environ: Mapping[str, str], work: str) -> list[str]:
    """Return the real paths of the home folders, and of folders of configurations elsewhere; none that is below another one."""
    named = [environ.get(name, "") for name in app_paths.XDG_FOLDERS.values()]
    places = [*_homes(environ), *(links_to(one)[1] for one in named if os.path.isabs(one))]
    for place in places:
        note_path(place)
    fit = {
        place
        for place in places
        if os.path.isdir(place) and _may_be_emptied(place) and not is_under(place, (work,))
    }
    return sorted(one for one in fit if not is_under(os.path.dirname(one), fit))


def _may_be_emptied(place: str) -> bool:
    if place in _SHARED or is_under(place, _NO_HOMES):
        return False
    return not any(is_under(one, (place,)) for one in _SYSTEM)


# -- shown paths ------------------------------------------------------------------------------------------


class _Data(NamedTuple):
    places: tuple[str, ...]
    settings: tuple[str, ...]
    closed: tuple[str, ...]
    above: tuple[str, ...]
    variables: Mapping[str, str]


@cache
def _data() -> _Data:
    text = files("kimi_tui.tools.sandbox").joinpath("home_places.toml").read_text(encoding="utf-8")
    data = tomllib.loads(text)

    def names(kind: str) -> tuple[str, ...]:
        tables = cast("list[dict[str, list[str]]]", data[kind])
        return tuple(name for table in tables for name in table["names"])

    variables = cast("dict[str, str]", data["variables"])
    return _Data(names("places"), names("settings"), names("closed"), names("above"), variables)


def _known_secrets(environ: Mapping[str, str]) -> frozenset[str]:
    return frozenset(protected_names.secret_places(environ))


class _Found:
    """Collects the shown paths of the emptied folders."""

    def __init__(
        self, emptied: tuple[str, ...], written: Collection[str], secrets: Collection[str]
    ) -> None:
        self._emptied = emptied
        self._written = written
        self._plain = {*emptied}
        self._secrets = secrets
        self._shown: set[str] = set()
        self._searched: dict[str, int] = {}
        self._links: dict[str, str] = {}
        self._texts: dict[str, bytes] = {}
        self.closed: set[str] = set()
        """Paths below shown ones that must not be readable."""

    def add(self, place: str, *, depth: int = -1, is_listed: bool = False) -> str:
        """Show a place, and the links that lead to it; return its real path, empty if it is not shown.

        Args:
            place: an absolute path; a missing one, or one outside the emptied folders, is ignored.
            depth: the depth to which it is searched for secrets by their names; negative for no search.
            is_listed: whether the place is on the list, which names no secrets.
        """
        way = self._way(place)
        if way is None:
            return ""
        links, end = way
        if not (is_listed and not links) and self._is_secret(end):
            return ""
        self._links.update(links)
        if not is_under(end, self._emptied):
            return ""
        self._shown.add(end)
        if depth >= 0:
            self._searched[end] = max(depth, self._searched.get(end, 0))
        return end

    def add_asked(self, place: str) -> None:
        """Show a path of the user's setting, whatever its name; other secrets in it stay hidden."""
        way = self._way(place)
        if way is not None:
            self._shown.add(way[1])
            if not self._is_secret(way[1]):
                self._searched[way[1]] = _DEEPEST

    def add_writable(self, path: str) -> None:
        """Show a writable path, by its real path: a command that may write nothing can still read it."""
        if is_under(path, self._emptied):
            self._shown.add(path)

    def add_settings(self, place: str) -> None:
        """Show a file of settings, or those at the top of a folder, without credentials."""
        way = self._way(place)
        if way is None:
            return
        links, end = way
        if not is_under(end, self._emptied):
            self._links.update(links)
            return
        if os.path.isdir(end):
            note_path(f"{end}/")
            with unread_is_empty():
                for name in sorted(os.listdir(end)):
                    inner = os.path.join(end, name)
                    if os.path.isfile(inner):
                        self.add_settings(inner)
            self._links.update(links)
            return
        if end in self._shown or end in self._texts:
            self._links.update(links)
            return
        data, text = _shown_text(end)
        if text is None:
            return
        self._links.update(links)
        if text == data:
            self._shown.add(end)
        else:
            self._texts[end] = text

    def _way(self, place: str) -> tuple[dict[str, str], str] | None:
        """Return the links that lead to a place, each with its target, and its real path; None if it must not be shown."""
        links, end = ([], place) if self._is_plain(place) else links_to(place)
        note_path(end)
        if not os.path.lexists(end) or any(is_under(one, (end,)) for one in self._emptied):
            return None
        if any(is_under(link, self._written) for link in links):
            # A command could change where this link leads.
            return None
        found: dict[str, str] = {}
        for link in links:
            if is_under(link, self._emptied):
                try:
                    found[link] = os.readlink(link)
                except OSError:
                    return None
        return found, end

    def _is_plain(self, place: str) -> bool:
        """Return whether a path in an emptied folder has no link in it; most have none, and share the folders above them."""
        if place in self._plain:
            return True
        folder, name = os.path.split(place)
        if name in ("", ".", "..") or not (folder in self._plain or self._is_plain(folder)):
            return False
        note_path(place)
        if os.path.islink(place) or folder == place:
            return False
        self._plain.add(place)
        return True

    def _is_secret(self, end: str) -> bool:
        if is_under(end, self._secrets):
            return True
        # Both are real paths, so what `os.path.relpath` would do is known, and there are dozens of places.
        root = next((one for one in self._emptied if end.startswith(f"{one}/")), "")
        names = end[len(root) + 1 :].split("/")
        return bool(protected_names.secrets().rule_in(names, is_folder=os.path.isdir(end)))

    def view(self, home: str, readable: tuple[str, ...]) -> HomeView:
        """Return the view with all collected paths, except those below other shown ones."""
        shown = sorted(
            one for one in self._shown if not is_under(os.path.dirname(one), self._shown)
        )
        covered = {*shown}
        closed = [links_to(path)[1] for path in sorted(self.closed)]
        closed += [
            secret
            for top, depth in sorted(self._searched.items())
            for secret in _secrets_below(top, home, depth)
            if secret not in self._texts and secret not in self._shown
        ]
        return HomeView(
            home,
            self._emptied,
            tuple(shown),
            tuple(sorted(one for one in self._links.items() if not is_under(one[0], covered))),
            tuple(sorted(one for one in self._texts.items() if not is_under(one[0], covered))),
            tuple(closed),
            readable,
        )


@lru_cache(maxsize=512)
def _redacted(path: str, _stamp: tuple[int, ...]) -> tuple[bytes, bytes | None]:
    data = read_regular(Path(path), MOST_BYTES + 1)
    return data, without_credentials(os.path.basename(path), data)


def _shown_text(path: str) -> tuple[bytes, bytes | None]:
    """Return the content of a settings file, and the part of it that is shown; None for nothing."""
    note_path(f"{path}/")
    with unread_is_empty():
        found = os.stat(path)
        if stat.S_ISREG(found.st_mode):
            stamp = found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
            return _redacted(path, stamp)
    return b"", None


def _add_listed(found: _Found, environ: Mapping[str, str]) -> None:
    for place in _existing(_data().places, environ):
        # A cache is large and has no secrets at its top, so only the other places are searched.
        found.add(place, depth=-1 if "/.cache/" in place else 0, is_listed=True)
    for place in _existing(_data().settings, environ):
        found.add_settings(place)
    for place in app_paths.home_places(environ, *_data().closed):
        folder = os.path.dirname(place)
        for one in glob.iglob(folder, include_hidden=True) if "*" in folder else (folder,):
            note_path(f"{one}/")
        note_path(folder.partition("*")[0])
        found.closed.update(glob.iglob(place, include_hidden=True))


def _existing(names: Sequence[str], environ: Mapping[str, str]) -> Iterator[str]:
    """Yield the existing places of a list, each in the home folder and in the folder that a variable names instead."""
    home = links_to(app_paths.home_of(environ) or "/")[1]
    named = (environ.get(name, "") for name in app_paths.XDG_FOLDERS.values())
    # In the home folder itself, a project may have the name of a cache.
    moved = tuple("" if one and links_to(one)[1] == home else one for one in named)
    listed: dict[str, frozenset[str]] = {}
    tops = {home, *(os.path.normpath(one) for one in moved if one)}
    for folder, plain, globs in _by_folder(names, app_paths.home_of(environ), moved):
        there = _names_in(folder, listed, tops)
        for name in plain & there:
            yield os.path.join(folder, name)
        for pattern in globs:
            for name in fnmatch.filter(there, pattern):
                yield os.path.join(folder, name)


def _names_in(
    folder: str, listed: dict[str, frozenset[str]], tops: Collection[str]
) -> frozenset[str]:
    """Return the names in a folder, none if it is missing: most are missing, and then the folder above (up to one of `tops`) shows it."""
    if folder not in listed:
        above, name = os.path.split(folder)
        is_top = folder in tops or above == folder
        is_missing = not is_top and name not in _names_in(above, listed, tops)
        names: list[str] = []
        if not is_missing:
            note_path(f"{folder}/")
            with unread_is_empty():
                names = os.listdir(folder)
        listed[folder] = frozenset(names)
    return listed[folder]


@lru_cache(maxsize=16)
def _by_folder(
    names: tuple[str, ...], home: str, moved: tuple[str, ...]
) -> list[tuple[str, frozenset[str], tuple[str, ...]]]:
    """Group the names of the list by folder: the folder's path, the names, and the patterns of names."""
    environ = {"HOME": home, **dict(zip(app_paths.XDG_FOLDERS.values(), moved, strict=True))}
    plain: dict[str, set[str]] = {}
    globs: dict[str, list[str]] = {}
    for place in app_paths.home_places(environ, *names):
        folder, name = os.path.split(place)
        if "*" in name:
            globs.setdefault(folder, []).append(name)
            plain.setdefault(folder, set())
        else:
            plain.setdefault(folder, set()).add(name)
    return [(one, frozenset(found), tuple(globs.get(one, ()))) for one, found in plain.items()]


def _add_variables(found: _Found, environ: Mapping[str, str]) -> None:
    for variable, rules in _data().variables.items():
        places = [one for one in environ.get(variable, "").split(os.pathsep) if os.path.isabs(one)]
        for place in places:
            note_path(place)
            if os.path.isfile(place):
                found.add_settings(place)
            elif rules == ".":
                found.add(place, depth=0)
            else:
                start = f"{rules}/"
                for name in _data().places:
                    if name.startswith(start):
                        found.add(os.path.join(place, name.removeprefix(start)), is_listed=True)
                for name in _data().settings:
                    if name.startswith(start):
                        found.add_settings(os.path.join(place, name.removeprefix(start)))


def _add_programs(found: _Found, environ: Mapping[str, str]) -> None:
    """Add the folders of the search path, the targets of their links, and the installations to which these belong."""
    for folder in dict.fromkeys(environ.get("PATH", "").split(os.pathsep)):
        if not os.path.isabs(folder):
            continue
        end = found.add(folder, depth=0)
        if not end:
            continue
        _add_prefix(found, end)
        for target in _links_of(end):
            if found.add(target):
                _add_prefix(found, os.path.dirname(target))


def _links_of(folder: str) -> tuple[str, ...]:
    note_path(f"{folder}/")
    settled = time.time_ns() - SETTLED_NS
    with unread_is_empty():
        status = os.stat(folder)
        stamp = status.st_ino, status.st_dev, status.st_mtime_ns, status.st_ctime_ns
        is_settled = max(stamp[2:]) < settled
        listed = _listed_links if is_settled else _listed_links.__wrapped__
        return listed(folder, stamp)
    return ()


@lru_cache(maxsize=64)
def _listed_links(folder: str, _stamp: tuple[int, ...]) -> tuple[str, ...]:
    """Return the targets of the links in a folder."""
    found: list[str] = []
    with os.scandir(folder) as listing:
        for n, item in enumerate(listing):
            if n == _MOST_PROGRAMS:
                break
            if item.is_symlink():
                found.append(os.path.realpath(item.path))
    return tuple(dict.fromkeys(found))


def _add_prefix(found: _Found, folder: str) -> None:
    prefix, name = os.path.split(folder)
    if name not in _OF_PREFIX or os.path.basename(prefix) == ".local":
        return
    note_path(f"{prefix}/")
    if any(os.path.exists(os.path.join(prefix, one)) for one in _IN_PREFIX):
        found.add(prefix, depth=0)


def _add_named_by_git(found: _Found, environ: Mapping[str, str]) -> None:
    """Add the files that the user's own settings of git include or name."""
    home = app_paths.home_of(environ)
    own = app_paths.home_places(environ, ".gitconfig", ".config/git/config")
    waiting = [*own, environ.get("GIT_CONFIG_GLOBAL", "")]
    seen: set[str] = set()
    while waiting and len(seen) < _SETTINGS_FILES:
        settings = waiting.pop(0)
        if not os.path.isabs(settings) or settings in seen:
            continue
        seen.add(settings)
        found.add_settings(settings)
        text = _shown_text(os.path.realpath(settings))[0].decode(errors="replace")
        for section, name, path in _paths_in(text, home, os.path.dirname(settings)):
            if section in ("include", "includeif"):
                waiting.append(path)
            elif os.path.isdir(path):
                found.add(path, depth=_DEEPEST)
            else:
                found.add_settings(path) if name != "program" else found.add(path)


def _paths_in(text: str, home: str, folder: str) -> Iterator[tuple[str, str, str]]:
    """Yield the section, the name and each path in the lines of git's settings that name files which git reads or runs."""
    section = ""
    for line in text.replace("\\\n", " ").split("\n"):
        bare = line.strip()
        if bare.startswith("["):
            head, _, bare = bare[1:].partition("]")
            section = head.split('"')[0].split(".")[0].strip().lower()
        key, found, value = bare.partition("=")
        name = key.strip().lower()
        if not found or section not in _OF_GIT or name not in (_OF_GIT[section] or (name,)):
            continue
        for word in value.replace('"', " ").replace("'", " ").replace("!", " ").split():
            if word.startswith("~/"):
                yield section, name, os.path.join(home, word[2:])
            elif os.path.isabs(word):
                yield section, name, word
            elif section in ("include", "includeif"):
                yield section, name, os.path.join(folder, word)


# -- the repository around ----------------------------------------------------------------------------------


def _folders_above(work: str, emptied: Collection[str]) -> Iterator[str]:
    """Yield the folders above the work folder, up to the emptied one, which is excluded."""
    folder = os.path.dirname(work)
    while is_under(folder, emptied) and folder not in emptied:
        yield folder
        folder = os.path.dirname(folder)


def around_work(
    work: str, emptied: Collection[str], repositories: Callable[[str], Iterable[str]]
) -> Iterator[str]:
    """Yield the other parts of a work folder's repository: the folders around it, its commits elsewhere, and those that it borrows.

    Commands can write in the work folder, so its own word is not enough: a repository elsewhere counts only if it names this
    folder.
    """
    tops = [work]
    for folder in _folders_above(work, emptied):
        if os.path.lexists(os.path.join(folder, ".git")):
            tops.append(folder)
    if len(tops) > 1:
        yield tops[-1]
    for top in tops:
        for git in repositories(top):
            yield git
            yield from _alternates(git)


def _alternates(git: str) -> Iterator[str]:
    """Yield the folders of objects that a repository borrows from others."""
    waiting = [os.path.join(git, "objects")]
    seen: set[str] = set()
    while waiting and len(seen) < _MOST_ALTERNATES:
        objects = waiting.pop()
        data = b""
        with unread_is_empty():
            data = read_regular(Path(objects, "info/alternates"), MOST_BYTES)
        for line in data.decode(errors="surrogateescape").split("\n"):
            if not line or line.startswith("#") or "\0" in line:
                continue
            other = os.path.realpath(os.path.join(objects, line))
            is_git = os.path.isfile(os.path.join(os.path.dirname(other), "HEAD"))
            if other not in seen and os.path.basename(other) == "objects" and is_git:
                seen.add(other)
                waiting.append(other)
                yield other


# -- secrets below shown paths ----------------------------------------------------------------------------


def _secrets_below(top: str, home: str, deepest: int) -> list[str]:
    """Return the secrets, recognised by name, in a shown folder, to a depth of folders, among the first 20,000 entries."""
    if not os.path.isdir(top):
        return []
    above = tuple(map(folded, os.path.relpath(top, home).split("/"))) if top != home else ()
    note_path(top)
    found: list[str] = []
    waiting = [(top, above if above[:1] != ("..",) else (), 0)]
    n_seen = 0
    while waiting and n_seen < _MOST_BELOW:
        folder, names, depth = waiting.pop(0)
        n_entries, secrets, folders = _listing(folder, names)
        n_seen += n_entries
        found += secrets
        if depth < deepest:
            waiting += [
                (os.path.join(folder, name), (*names, folded(name)), depth + 1) for name in folders
            ]
    return found


_listings: dict[
    tuple[str, tuple[str, ...]], tuple[tuple[int, ...], tuple[int, list[str], list[str]]]
] = {}
_MOST_LISTINGS = 20_000


def _listing(folder: str, above: tuple[str, ...]) -> tuple[int, list[str], list[str]]:
    """Return the number of entries of a folder, its secrets, and the folders to search; cached while its times are the same.
    One that has changed so recently that equal times prove nothing is listed again.
    """
    note_path(f"{folder}/")
    settled = time.time_ns() - SETTLED_NS
    try:
        status = os.stat(folder)
    except OSError:
        return 0, [], []
    stamp = (status.st_ino, status.st_dev, status.st_mtime_ns, status.st_ctime_ns)
    known = _listings.get((folder, above))
    if known is not None and known[0] == stamp:
        return known[1]
    rules = protected_names.secrets()
    secrets: list[str] = []
    folders: list[str] = []
    n_entries = 0
    is_whole = False
    with unread_is_empty(), os.scandir(folder) as listing:
        for item in listing:
            n_entries += 1
            if n_entries > _MOST_BELOW:
                break
            is_folder = item.is_dir(follow_symlinks=False)
            if rules.covers((*above, folded(item.name)), is_folder=is_folder):
                if not item.is_symlink():
                    secrets.append(item.path)
            elif is_folder and item.name not in PASSED_OVER and item.name not in _PACKAGES:
                folders.append(item.name)
        is_whole = True
    if not is_whole or max(stamp[2:]) >= settled:
        return n_entries, secrets, folders
    if len(_listings) >= _MOST_LISTINGS:
        _listings.clear()
    _listings[folder, above] = stamp, (n_entries, secrets, folders)
    return n_entries, secrets, folders


_PACKAGES = frozenset({"site-packages", "dist-packages", "pkgs", "objects", ".git"})
"""Folders with certificates that programs need, or with files named by their content."""
